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
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "alike.h"
#include "mkey_harness.h"
#include "raw.h"
#include "request.h"

#define MOST 512
#define OWN 1				/* stands for the lkey of the key itself */

enum alike_leaf {
	WHOLE,
	HALF,				/* the first page */
	READ_ONLY,
	FOREIGN,			/* in another protection domain */
	NESTED,				/* a key */
	LEAVES,
};

FIXTURE(alike)
{
	struct mkt_setup s;
	struct mkt_request text;
	struct ibv_pd *pd;
	struct ibv_mr *leaf[LEAVES];
	uint8_t *host;
	bool call;
};

FIXTURE_VARIANT(alike)
{
	bool call;			/* instead of requests */
};

FIXTURE_VARIANT_ADD(alike, request)
{
};

FIXTURE_VARIANT_ADD(alike, call)
{
	.call = true,
};

FIXTURE_SETUP(alike)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.host = 3 * ALIKE_ZONE,
		.max_entries = ALIKE_ENTRIES,
	};
	struct ibmkey_range all = { .length = 2 * ALIKE_ZONE };
	struct ibv_pd *pd;
	uint64_t addr;

	self->call = variant->call;
	MKT_OPEN_EXTENDED(self->s.dev);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	pd = self->s.dev[1].pd;
	ASSERT_EQ(0, mkt_request_init(&self->text, pd, ALIKE_ROOM));
	addr = self->s.arena[1].leaf[0].addr;
	self->host = (uint8_t *)(uintptr_t)addr;
	mkt_rand_bytes(&self->s.rng, self->host, 2 * ALIKE_ZONE);
	self->pd = ibv_alloc_pd(self->s.dev[1].ctx);
	ASSERT_NE(NULL, self->pd);
	self->leaf[WHOLE] = ibv_reg_mr(pd, self->host, 2 * ALIKE_ZONE, MKT_ACCESS_ALL);
	self->leaf[HALF] = ibv_reg_mr(pd, self->host, ALIKE_ZONE, MKT_ACCESS_ALL);
	self->leaf[READ_ONLY] = ibv_reg_mr(pd, self->host, 2 * ALIKE_ZONE, IBV_ACCESS_REMOTE_READ);
	self->leaf[FOREIGN] = ibv_reg_mr(self->pd, self->host, 2 * ALIKE_ZONE, MKT_ACCESS_ALL);
	self->leaf[NESTED] = ibmkey_alloc(pd, 1);
	for (unsigned int i = 0; i < LEAVES; i++)
		ASSERT_NE(NULL, self->leaf[i]);
	all.addr = addr;
	all.lkey = self->leaf[WHOLE]->lkey;
	ASSERT_EQ(0, ibmkey_bind_list(self->leaf[NESTED], MKT_ACCESS_ALL, 1, &all));
}

FIXTURE_TEARDOWN(alike)
{
	if (self->s.key[1]) {
		EXPECT_EQ(0, ibmkey_unbind(self->s.key[1]));
	}
	for (unsigned int i = LEAVES; i--;)
		EXPECT_EQ(0, ibv_dereg_mr(self->leaf[i]));
	EXPECT_EQ(0, ibv_dealloc_pd(self->pd));
	mkt_request_free(&self->text);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

static uint32_t alike_other_lkey(FIXTURE_DATA(alike) *self)
{
	unsigned int which = mkt_between(&self->s.rng, 0, LEAVES + 2);

	if (which < LEAVES)
		return self->leaf[which]->lkey;
	if (which == LEAVES)
		return OWN;
	/* another tag, or no MR */
	return self->leaf[WHOLE]->lkey ^ (which == LEAVES + 1 ? 1 : 0x4000);
}

/* changes nothing or little */
static void alike_change(FIXTURE_DATA(alike) *self, struct alike_text *text)
{
	static const unsigned int flags[] = {
		0, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND,
		IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ON_DEMAND, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND,
		MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED, IBV_ACCESS_REMOTE_READ | 1u << 17, 1u << 30,
	};
	struct mkt_rng *rng = &self->s.rng;
	uint64_t end = (uintptr_t)self->host + 2 * ALIKE_ZONE;
	unsigned int i;
	uint32_t lkey;

	switch (mkt_between(rng, 0, 9)) {
	case 0:
		alike_shift(text, mkt_between(rng, 0, 2 * ALIKE_ZONE) - ALIKE_ZONE);
		break;
	case 1:
		/* close to the end of the leaf, or to its beginning */
		alike_shift(text, end - *alike_addr(text, 0) - mkt_between(rng, 0, 300));
		break;
	case 2:
		alike_shift(text, (uintptr_t)self->host - *alike_addr(text, 0) +
				  mkt_between(rng, 0, 200) - 100);
		break;
	case 3:
		/* around the end of the address space */
		alike_shift(text, mkt_between(rng, 0, 400) - 200 - *alike_addr(text, 0));
		break;
	case 4:
		text->words[mkt_between(rng, 0, text->length / 4 - 1)] +=
			mkt_between(rng, 0, 4) - 2;
		break;
	case 5:
		text->bytes[mkt_between(rng, 0, text->length - 1)] ^= 1 << mkt_between(rng, 0, 7);
		break;
	case 6:
		lkey = alike_other_lkey(self);
		for (i = 0; i < text->entries; i++)
			*alike_lkey(text, i) = lkey;
		break;
	case 7:
		*alike_lkey(text, mkt_between(rng, 0, text->entries - 1)) = alike_other_lkey(self);
		break;
	case 8:
		text->access = flags[mkt_between(rng, 0, sizeof(flags) / sizeof(*flags) - 1)];
		break;
	default:
		text->length += mkt_between(rng, 0, 2) - 1;
	}
}

/* the result of a request, and of a READ of all bytes if it was executed */
struct alike_result {
	int status;
	int error;
	uint32_t entry;
	struct ibmkey_info info;
	int read;
	uint8_t bytes[MOST];
};

static int alike_execute(FIXTURE_DATA(alike) *self, struct ibv_mr *key,
			 const struct alike_text *text)
{
	struct alike_text own = *text;
	struct ibmkey_info info;
	struct ibmkey_wr wr;
	int status;

	for (unsigned int i = 0; i < own.entries; i++)
		if (*alike_lkey(&own, i) == OWN)
			*alike_lkey(&own, i) = key->lkey;
	if (self->call)
		return alike_call(key, &own);
	memcpy(self->text.text, own.bytes, own.length);
	self->text.length = own.length;
	wr = mkt_request_wr(&self->text, key);
	wr.access = own.access;
	wr.rkey = own.next_tag ? ibv_inc_rkey(key->rkey) : 0;
	status = mkt_request_status(&self->s.pair.end[1], &wr);
	/* The library has changed the keys, which a refused request leaves as they were. */
	if (status && !ibmkey_query(key, &info)) {
		key->lkey = info.lkey;
		key->rkey = info.rkey;
	}
	return status;
}

static void alike_result(FIXTURE_DATA(alike) *self, struct ibv_mr *key,
			 const struct alike_text *text, struct alike_result *result,
			 struct __test_metadata *_metadata)
{
	uint8_t *to = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
	struct mkt_wr wr = {
		.op = MKT_READ,
		.sge[0] = { .addr = self->s.plain[0].addr, .lkey = self->s.plain[0].mr->lkey },
		.num_sge = 1,
	};

	memset(result, 0, sizeof(*result));
	result->status = alike_execute(self, key, text);
	if (result->status && self->call)
		return;
	if (result->status) {
		ASSERT_EQ(IBV_WC_MW_BIND_ERR, result->status);
		ASSERT_EQ(0, ibmkey_query_refused(key, &result->error, &result->entry));
		ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
		return;
	}
	ASSERT_EQ(0, ibmkey_query(key, &result->info));
	wr.rkey = result->info.rkey;
	wr.sge[0].length = result->info.length < MOST ? result->info.length : MOST;
	memset(to, 0, MOST);
	result->read = mkt_status(&self->s.pair, 0, &wr);
	if (result->read) {
		ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	} else {
		memcpy(result->bytes, to, MOST);
	}
	/* the keys differ in these */
	result->info.lkey = 0;
	result->info.rkey = 0;
	result->info.max_entries = 0;
}

/* the structure has padding */
static bool alike_same(const struct ibmkey_info *a, const struct ibmkey_info *b)
{
	return a->comp_mask == b->comp_mask && a->length == b->length && a->kind == b->kind &&
	       a->access == b->access && a->max_entries == b->max_entries &&
	       a->num_entries == b->num_entries && a->num_dims == b->num_dims &&
	       a->lkey == b->lkey && a->rkey == b->rkey;
}

/* the results of a round, and how many rounds ended in each way */
struct alike_rounds {
	unsigned int number, bound, refused;
};

/*
 * Binds the key to @first, so that it has the memory of such a binding, and executes @text for the
 * key and for a new one.
 */
static void alike_round(FIXTURE_DATA(alike) *self, const struct alike_text *first,
			const struct alike_text *text, struct alike_rounds *rounds,
			struct __test_metadata *_metadata)
{
	struct ibv_mr *key = self->s.key[1], *other;
	struct alike_result again, fresh;
	struct ibmkey_info before, after;

	mkt_alive();
	/* The second bind leaves the memory of the first one to the key. */
	ASSERT_EQ(IBV_WC_SUCCESS, alike_execute(self, key, first));
	if (mkt_rand(&self->s.rng) & 1) {
		ASSERT_EQ(IBV_WC_SUCCESS, alike_execute(self, key, first));
	} else {
		ASSERT_EQ(0, ibmkey_unbind(key));
	}
	ASSERT_EQ(0, ibmkey_query(key, &before));
	alike_result(self, key, text, &again, _metadata);
	other = ibmkey_alloc(self->s.dev[1].pd, ALIKE_ENTRIES);
	ASSERT_NE(NULL, other);
	alike_result(self, other, text, &fresh, _metadata);
	ASSERT_EQ(fresh.status, again.status)
	{
		TH_LOG("round %u: %d, %d for a new key, %d, %d again", rounds->number,
		       fresh.status, fresh.error, again.status, again.error);
	}
	ASSERT_EQ(fresh.error, again.error);
	ASSERT_EQ(fresh.entry, again.entry);
	ASSERT_EQ(fresh.read, again.read);
	ASSERT_TRUE(alike_same(&fresh.info, &again.info));
	ASSERT_EQ(0, memcmp(fresh.bytes, again.bytes, sizeof(fresh.bytes)));
	if (again.status) {
		ASSERT_EQ(0, ibmkey_query(key, &after));
		ASSERT_TRUE(alike_same(&before, &after));
		rounds->refused++;
	} else {
		rounds->bound++;
	}
	rounds->number++;
	ASSERT_EQ(0, ibv_dereg_mr(other));
}

TEST_F(alike, as_for_a_new_key)
{
	unsigned int changes, all = mkt_scale(4000, 400);
	struct alike_rounds rounds = {};
	struct alike_text first, text;
	long long moved = alike_moved(&self->s.dev[1]);

	while (rounds.number < all) {
		alike_draw(&first, &self->s.rng, self->leaf[WHOLE]);
		text = first;
		for (changes = mkt_between(&self->s.rng, 0, 2); changes; changes--)
			alike_change(self, &text);
		text.next_tag = mkt_rand(&self->s.rng) & 1;
		alike_round(self, &first, &text, &rounds, _metadata);
	}
	TH_LOG("%u bound, %u refused", rounds.bound, rounds.refused);
	EXPECT_LT(all / 8, rounds.bound);
	EXPECT_LT(all / 8, rounds.refused);
	if (moved >= 0) {
		moved = alike_moved(&self->s.dev[1]) - moved;
		TH_LOG("%lld bindings moved", moved);
		EXPECT_LT(all / 8, moved);
	}
}

/* no field of a description goes without a comparison: each word in turn is another one */
TEST_F(alike, each_word)
{
	static const uint32_t others[] = { 1, -1, 1 << 8, 1 << 31 };
	unsigned int word, other, drawn[2] = {}, kind;
	struct alike_rounds rounds = {};
	struct alike_text first, text;

	while (!drawn[0] || !drawn[1]) {
		alike_draw(&first, &self->s.rng, self->leaf[WHOLE]);
		kind = first.dims != 0;
		if (drawn[kind] || (!kind && first.entries < 2))
			continue;
		drawn[kind]++;
		for (word = 0; word < first.length / 4; word++) {
			for (other = 0; other < sizeof(others) / sizeof(*others); other++) {
				text = first;
				text.words[word] += others[other];
				alike_round(self, &first, &text, &rounds, _metadata);
			}
		}
	}
	TH_LOG("%u bound, %u refused", rounds.bound, rounds.refused);
	EXPECT_LT(0, rounds.bound);
	EXPECT_LT(0, rounds.refused);
}

struct alike_thread {
	FIXTURE_DATA(alike) *self;
	pthread_t tid;
	atomic_uint lkey;		/* of an MR that may be gone */
	atomic_bool stop;
	atomic_uint turns;
	unsigned int bound, refused;
	int err;
};

/* binds one layout over an MR that stays and over one that goes, in turn */
static void *alike_loop(void *arg)
{
	struct alike_thread *thread = arg;
	FIXTURE_DATA(alike) *self = thread->self;
	struct alike_text text;
	struct mkt_rng rng;
	unsigned int turn;
	int status;

	mkt_rng_init(&rng, "alike_loop");
	for (turn = 0; !thread->err && !atomic_load(&thread->stop); turn++) {
		if (turn % 64 == 0)
			alike_draw(&text, &rng, self->leaf[WHOLE]);
		for (unsigned int i = 0; i < text.entries; i++)
			*alike_lkey(&text, i) = turn & 1 ? atomic_load(&thread->lkey) :
							   self->leaf[WHOLE]->lkey;
		status = alike_execute(self, self->s.key[1], &text);
		if (!status) {
			thread->bound++;
		} else if (self->call && turn & 1) {
			thread->refused++;
		} else if (status == IBV_WC_MW_BIND_ERR && turn & 1) {
			thread->refused++;
			thread->err = mkt_pair_recover(&self->s.pair);
		} else {
			thread->err = EIO;
		}
		atomic_store(&thread->turns, turn + 1);
	}
	atomic_store(&thread->stop, true);
	return NULL;
}

/* MRs are deregistered, moved and registered while bindings move to them and away */
TEST_F(alike, leaves_go)
{
	unsigned int i, turns, gone = 0, busy = 0, rounds = mkt_scale(3000, 200);
	struct alike_thread thread = { .self = self };
	struct ibv_mr *mr;
	int ret;

	MKT_ONE_MACHINE(self->s.dev);
	atomic_store(&thread.lkey, self->leaf[WHOLE]->lkey);
	ASSERT_EQ(0, pthread_create(&thread.tid, NULL, alike_loop, &thread));
	for (i = 0; i < rounds; i++) {
		mkt_alive();
		mr = ibv_reg_mr(self->s.dev[1].pd, self->host, 2 * ALIKE_ZONE, MKT_ACCESS_ALL);
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

TEST_HARNESS_MAIN
