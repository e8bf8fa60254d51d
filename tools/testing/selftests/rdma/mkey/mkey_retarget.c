// SPDX-License-Identifier: GPL-2.0
/*
 * A request or a call that describes the layout of the binding before, at another address,
 * moves that binding. Each one is executed for a key that had such a layout and
 * for a new key, which had none. Both must be refused for the same reason, or be bound
 * to the same bytes. Most descriptions differ from the layout before in little: in an
 * address, a leaf, an access flag, or any one number.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "retarget_round.h"

FIXTURE(retarget)
{
	struct mkt_setup s;
	struct retarget a;
};

FIXTURE_VARIANT(retarget)
{
	bool call;			/* instead of requests */
};

FIXTURE_VARIANT_ADD(retarget, request)
{
};

FIXTURE_VARIANT_ADD(retarget, call)
{
	.call = true,
};

static const struct mkt_wants retarget_wants = {
	.mtu = IBV_MTU_1024,
	.host = 3 * RETARGET_ZONE,
	.max_entries = RETARGET_ENTRIES,
};

FIXTURE_SETUP(retarget)
{
	self->a.s = &self->s;
	self->a.call = variant->call;
	MKT_OPEN_EXTENDED(self->s.dev);
	ASSERT_EQ(0, mkt_setup(&self->s, &retarget_wants, _metadata->name));
	ASSERT_EQ(0, retarget_open(&self->a, &self->s));
}

FIXTURE_TEARDOWN(retarget)
{
	EXPECT_EQ(0, retarget_close(&self->a));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* layouts of any kind over the first leaf, and as many that differ from them */
static void retarget_rounds(struct retarget *a, unsigned int all, bool moves,
			    struct __test_metadata *_metadata)
{
	struct retarget_rounds rounds = {};
	struct retarget_text first, text;
	long long moved = retarget_moved(&a->s->dev[1]);
	unsigned int changes;

	while (rounds.number < all) {
		retarget_draw(&first, &a->s->rng, a->addr, a->first->lkey);
		text = first;
		for (changes = mkt_between(&a->s->rng, 0, 2); changes; changes--)
			retarget_change(a, &text);
		text.next_tag = mkt_rand(&a->s->rng) & 1;
		retarget_round(a, &first, &text, &rounds, _metadata);
	}
	TH_LOG("%u bound, %u refused", rounds.bound, rounds.refused);
	EXPECT_LT(all / 8, rounds.bound);
	EXPECT_LT(all / 8, rounds.refused);
	if (moved < 0)
		return;
	moved = retarget_moved(&a->s->dev[1]) - moved;
	TH_LOG("%lld bindings moved", moved);
	if (moves) {
		EXPECT_LT(all / 8, moved);
	} else {
		EXPECT_EQ(0, moved);
	}
}

TEST_F(retarget, as_for_a_new_key)
{
	retarget_rounds(&self->a, mkt_rounds(4000, 400), true, _metadata);
}

/* no field of a description goes without a comparison: each word in turn is another one */
TEST_F(retarget, each_word)
{
	static const uint32_t others[] = { 1, -1, 1 << 8, 1 << 31 };
	unsigned int word, other, drawn[2] = {}, kind;
	struct retarget_rounds rounds = {};
	struct retarget_text first, text;

	while (!drawn[0] || !drawn[1]) {
		retarget_draw(&first, &self->s.rng, self->a.addr, self->a.first->lkey);
		kind = first.dims != 0;
		if (drawn[kind] || (!kind && first.entries < 2))
			continue;
		drawn[kind]++;
		for (word = 0; word < first.length / 4; word++) {
			for (other = 0; other < sizeof(others) / sizeof(*others); other++) {
				text = first;
				text.words[word] += others[other];
				retarget_round(&self->a, &first, &text, &rounds, _metadata);
			}
		}
	}
	TH_LOG("%u bound, %u refused", rounds.bound, rounds.refused);
	EXPECT_LT(0, rounds.bound);
	EXPECT_LT(0, rounds.refused);
}

struct retarget_thread {
	struct retarget *self;
	pthread_t tid;
	atomic_uint lkey;		/* of an MR that may be gone */
	atomic_bool stop;
	atomic_uint turns;
	unsigned int bound, refused;
	int err;
};

/* binds one layout over an MR that stays and over one that goes, in turn */
static void *retarget_loop(void *arg)
{
	struct retarget_thread *thread = arg;
	struct retarget *self = thread->self;
	struct retarget_text text;
	struct mkt_rng rng;
	unsigned int turn;
	int status;

	mkt_rng_init(&rng, "retarget_loop");
	for (turn = 0; !thread->err && !atomic_load(&thread->stop); turn++) {
		if (turn % 64 == 0)
			retarget_draw(&text, &rng, self->addr, self->first->lkey);
		for (unsigned int i = 0; i < text.entries; i++)
			*retarget_lkey(&text, i) = turn & 1 ? atomic_load(&thread->lkey) :
							   self->leaf[WHOLE]->lkey;
		status = retarget_execute(self, self->s->key[1], &text);
		if (!status) {
			thread->bound++;
		} else if (self->call && turn & 1) {
			thread->refused++;
		} else if (status == IBV_WC_MW_BIND_ERR && turn & 1) {
			thread->refused++;
			thread->err = mkt_pair_recover(&self->s->pair);
		} else {
			thread->err = EIO;
		}
		atomic_store(&thread->turns, turn + 1);
	}
	atomic_store(&thread->stop, true);
	return NULL;
}

/* MRs are deregistered, moved and registered while bindings move to them and away */
TEST_F(retarget, leaves_go)
{
	unsigned int i, turns, gone = 0, busy = 0, rounds = mkt_rounds(3000, 200);
	struct retarget_thread thread = { .self = &self->a };
	struct ibv_mr *mr;
	int ret;

	MKT_ONE_MACHINE(self->s.dev);
	atomic_store(&thread.lkey, self->a.leaf[WHOLE]->lkey);
	ASSERT_EQ(0, pthread_create(&thread.tid, NULL, retarget_loop, &thread));
	for (i = 0; i < rounds; i++) {
		mkt_alive();
		mr = ibv_reg_mr(self->s.dev[1].pd, self->a.host, 2 * RETARGET_ZONE, MKT_ACCESS_ALL);
		ASSERT_NE(NULL, mr);
		atomic_store(&thread.lkey, mr->lkey);
		if (i & 1) {
			ret = mkt_raw_rereg_to(mr, IBV_REREG_MR_CHANGE_ACCESS, self->s.dev[1].pd,
					       IBV_ACCESS_REMOTE_READ, NULL, 0, 0);
			ASSERT_EQ(0, ret);
		}
		/* None to three binds first: one of two is over this MR. */
		turns = atomic_load(&thread.turns) + i % 4;
		while ((int)(atomic_load(&thread.turns) - turns) < 0 && !atomic_load(&thread.stop))
			usleep(100);
		while ((ret = ibv_dereg_mr(mr)) == EBUSY && !atomic_load(&thread.stop))
			busy++;
		ASSERT_EQ(0, ret);
		gone++;
	}
	atomic_store(&thread.stop, true);
	pthread_join(thread.tid, NULL);
	EXPECT_EQ(0, thread.err);
	TH_LOG("%u MRs gone, %u busy; %u bound, %u refused", gone, busy, thread.bound,
	       thread.refused);
	EXPECT_LT(rounds / 8, thread.bound);
}

FIXTURE(retarget_leaf)
{
	struct mkt_setup s;
	struct retarget a;
};

FIXTURE_VARIANT(retarget_leaf)
{
	mkt_leaf_maker make;
	bool moves;
};

FIXTURE_VARIANT_ADD(retarget_leaf, other_addresses)
{
	.make = mkt_leaf_iova,
	.moves = true,
};

FIXTURE_VARIANT_ADD(retarget_leaf, device_memory)
{
	.make = mkt_leaf_dm_host,
};

FIXTURE_VARIANT_ADD(retarget_leaf, dma_buf)
{
	.make = mkt_leaf_udmabuf,
	.moves = true,
};

FIXTURE_VARIANT_ADD(retarget_leaf, dma_buf_of_device_memory)
{
	.make = mkt_leaf_dm_export,
	.moves = true,
};

FIXTURE_VARIANT_ADD(retarget_leaf, on_demand)
{
	.make = mkt_leaf_odp,
};

FIXTURE_SETUP(retarget_leaf)
{
	int err;

	self->a.s = &self->s;
	MKT_OPEN_EXTENDED(self->s.dev);
	MKT_ONE_MACHINE(self->s.dev);
	ASSERT_EQ(0, mkt_setup(&self->s, &retarget_wants, _metadata->name));
	ASSERT_EQ(0, retarget_open(&self->a, &self->s));
	err = retarget_over(&self->a, variant->make);
	if (err == ENODEV || err == EOPNOTSUPP)
		SKIP(return, "no such memory");
	ASSERT_EQ(0, err);
}

FIXTURE_TEARDOWN(retarget_leaf)
{
	EXPECT_EQ(0, retarget_close(&self->a));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* bindings over device memory, and over pages that come on demand, are never moved */
TEST_F(retarget_leaf, as_for_a_new_key)
{
	unsigned int call;

	for (call = 0; call < 2; call++) {
		self->a.call = call;
		retarget_rounds(&self->a, mkt_rounds(1500, 150), variant->moves, _metadata);
	}
}

/* the binding that would be moved was over an ordinary MR */
TEST_F(retarget_leaf, after_an_ordinary_mr)
{
	struct ibv_mr *key = self->s.key[1];
	struct retarget_text first, text;
	long long before, moved = 0;
	unsigned int i, rounds = mkt_rounds(300, 30);

	if (retarget_moved(&self->s.dev[1]) < 0)
		SKIP(return, "no debugfs");
	for (i = 0; i < rounds; i++) {
		self->a.call = i & 1;
		retarget_draw(&first, &self->s.rng, (uintptr_t)self->a.host,
			      self->a.leaf[WHOLE]->lkey);
		text = first;
		retarget_shift(&text, self->a.addr - (uintptr_t)self->a.host);
		for (unsigned int entry = 0; entry < text.entries; entry++)
			*retarget_lkey(&text, entry) = self->a.first->lkey;
		ASSERT_EQ(0, retarget_execute(&self->a, key, &first));
		ASSERT_EQ(0, ibmkey_unbind(key));
		before = retarget_moved(&self->s.dev[1]);
		ASSERT_EQ(0, retarget_execute(&self->a, key, &text));
		moved += retarget_moved(&self->s.dev[1]) - before;
		ASSERT_EQ(0, ibmkey_unbind(key));
	}
	TH_LOG("%lld bindings moved", moved);
	if (variant->moves) {
		EXPECT_LT(rounds / 4, moved);
	} else {
		EXPECT_EQ(0, moved);
	}
}

TEST_HARNESS_MAIN
