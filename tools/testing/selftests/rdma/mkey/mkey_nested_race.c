// SPDX-License-Identifier: GPL-2.0
/*
 * Keys over keys: binds of a key while another key over it is bound, and while accesses
 * pass many levels.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "nested.h"

FIXTURE(nested_race)
{
	struct mkt_setup s;
	struct ibv_mr *key[NESTED_DEPTH + 1];
};

FIXTURE_SETUP(nested_race)
{
	MKT_OPEN_EXTENDED(self->s.dev);
	ASSERT_EQ(NESTED_DEPTH, self->s.dev[1].caps.max_depth);
	ASSERT_EQ(0, nested_open(&self->s, self->key, _metadata->name));
}

FIXTURE_TEARDOWN(nested_race)
{
	EXPECT_EQ(0, nested_close(&self->s, self->key));
}

/*
 * Binds keys over keys whose pieces do not line up, so that every level looks for each
 * byte. Returns the number of levels that are not refused, or a negative error.
 */
static int nested_misaligned(struct mkt_setup *s, struct ibv_mr **key)
{
	struct ibmkey_block block = {
		.addr = s->arena[1].leaf[0].addr,
		.bytes_count = 3,
		.lkey = s->arena[1].leaf[0].mr->lkey,
		.stride = { 0, 5 },
	};
	uint64_t repeat[2] = { 30, 10000 };
	unsigned int i;
	int err = 0;

	for (i = 0; i < NESTED_DEPTH && !err; i++) {
		err = ibv_rereg_mr_interleaved(key[i], MKT_ACCESS_ALL, 2, repeat, 1,
					       &block);
		if (err)
			return err == ELOOP ? (int)i : -err;
		block.addr = 0;
		block.lkey = key[i]->lkey;
		repeat[0] = 2;
		repeat[1] = key[i]->length / 5 - 1;
	}
	return i;
}

/*
 * A bind waits for the accesses by all keys, except for those through levels of
 * many small pieces, of which one packet can take milliseconds.
 */
TEST_F(nested_race, outside)
{
	struct ibv_mr **key = self->key;
	long long before = nested_count_outside();
	unsigned int i;
	int levels;

	MKT_ONE_MACHINE(self->s.dev);
	if (before < 0)
		SKIP(return, "no debugfs of ib_mkey");
	ASSERT_EQ(0, nested_chain(&self->s, key, 3, 4096));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[2], MKT_READ, 0, 4096));
	EXPECT_EQ(before, nested_count_outside());

	for (i = 3; i-- > 0;)
		ASSERT_EQ(0, ibmkey_unbind(key[i]));
	levels = nested_misaligned(&self->s, key);
	ASSERT_LE(2, levels);
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[0], MKT_READ, 0, 4096));
	EXPECT_EQ(before, nested_count_outside());
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[levels - 1], MKT_READ, 0, 4096));
	EXPECT_LT(before, nested_count_outside());
}

/* accesses through a key that take many times as long as those to memory */
struct nested_load {
	struct mkt_setup *s;
	struct mkt_pair pair;
	uint32_t rkey;
	atomic_uint done;
	atomic_bool stop;
	int err;
};

static void *nested_reads(void *arg)
{
	struct nested_load *load = arg;
	struct mkt_setup *s = load->s;
	struct mkt_wr wr = {
		.op = MKT_READ,
		.sge[0] = {
			.addr = s->plain[0].addr,
			.length = 4096,
			.lkey = s->plain[0].mr->lkey,
		},
		.num_sge = 1,
		.rkey = load->rkey,
	};

	while (!load->err && !atomic_load(&load->stop)) {
		struct ibv_wc wc;

		load->err = mkt_post_send(&load->pair.end[0], &wr, 1) ?:
			    mkt_poll(&load->pair.end[0], &wc) ?:
			    wc.status;
		atomic_fetch_add(&load->done, 1);
	}
	return NULL;
}

/*
 * A bind of another key does not wait for such accesses: it waits for readers of SRCU,
 * and each of these accesses is outside. That key can be bound and used meanwhile.
 */
TEST_F(nested_race, others)
{
	struct mkt_setup *s = &self->s;
	unsigned int i, before, during, done, rounds = mkt_scale(100, 20);
	long long outside = nested_count_outside();
	struct nested_load load = { .s = s };
	struct ibv_mr *key;
	int levels;
	pthread_t tid;

	MKT_ONE_MACHINE(self->s.dev);
	if (outside < 0)
		SKIP(return, "no debugfs of ib_mkey");
	levels = nested_misaligned(s, self->key);
	ASSERT_LE(2, levels);
	load.rkey = self->key[levels - 1]->rkey;
	key = ibmkey_alloc(s->dev[1].pd, 1);
	ASSERT_NE(NULL, key);
	/* each access is one packet */
	ASSERT_EQ(0, mkt_pair_create(&load.pair, &s->dev[0], &s->dev[1],
				     IBV_MTU_4096, 0));
	ASSERT_EQ(0, pthread_create(&tid, NULL, nested_reads, &load));
	while (!atomic_load(&load.done))
		usleep(1000);
	before = atomic_load(&load.done);
	for (i = 0; i < rounds; i++) {
		ASSERT_EQ(0, nested_bind(key, s->plain[1].mr->lkey, s->plain[1].addr, 64,
					 MKT_ACCESS_ALL));
		ASSERT_EQ(IBV_WC_SUCCESS, nested_access(s, key, MKT_WRITE, 0, 64));
	}
	during = atomic_load(&load.done) - before;
	atomic_store(&load.stop, true);
	pthread_join(tid, NULL);
	EXPECT_EQ(0, load.err);
	done = atomic_load(&load.done);
	outside = nested_count_outside() - outside;
	TH_LOG("%u binds and accesses, %u slow accesses meanwhile", rounds, during);
	TH_LOG("%u slow accesses, %lld outside", done, outside);
	EXPECT_LE(done, outside);
	mkt_pair_destroy(&load.pair);
	EXPECT_EQ(0, ibv_dereg_mr(key));
}

struct nested_race {
	struct mkt_setup *s;
	struct ibv_mr **key;
	atomic_bool stop;
	unsigned int bound, busy;
	int err;
};

/* binds the inner key to either half of the leaf, when no key is over it */
static void *nested_race_inner(void *arg)
{
	struct nested_race *race = arg;
	struct mkt_leaf *leaf = &race->s->arena[1].leaf[0];
	unsigned int i;
	int err;

	for (i = 0; !race->err && !atomic_load(&race->stop); i++) {
		err = nested_bind(race->key[0], leaf->mr->lkey,
				  leaf->addr + (i & 1) * 16384,
				  i & 1 ? 4096 : 8192, MKT_ACCESS_ALL);
		if (!err)
			race->bound++;
		else if (err == EBUSY)
			race->busy++;
		else
			race->err = err;
	}
	return NULL;
}

/*
 * An outer key that is bound to 8192 bytes of the inner one, which has as many
 * only in its first half, finds that half.
 */
TEST_F(nested_race, race)
{
	struct nested_race race = { .s = &self->s, .key = self->key };
	unsigned int i, seen = 0, refused = 0, wanted = mkt_scale(100, 10);
	uint8_t *at = (uint8_t *)(uintptr_t)self->s.arena[1].leaf[0].addr;
	uint8_t *to = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
	pthread_t tid;

	memset(at, 0xa0, 16384);
	memset(at + 16384, 0xa1, 16384);
	ASSERT_EQ(0, nested_chain(&self->s, self->key, 1, 4096));
	ASSERT_EQ(0, mkt_dev_thread(&self->s.dev[1], &tid, nested_race_inner, &race));
	for (i = 0; (seen < wanted || !refused) && i < 1000000; i++) {
		int err = nested_bind(self->key[1], self->key[0]->lkey, 4096,
				      4096, MKT_ACCESS_ALL);

		if (err == ERANGE) {
			refused++;
			continue;
		}
		ASSERT_EQ(0, err);
		ASSERT_EQ(IBV_WC_SUCCESS,
			  nested_access(&self->s, self->key[1], MKT_READ, 0, 4096));
		ASSERT_EQ(0xa0, to[0]);
		ASSERT_EQ(0, memcmp(to, to + 1, 4095));
		seen++;
		ASSERT_EQ(0, ibmkey_unbind(self->key[1]));
	}
	atomic_store(&race.stop, true);
	mkt_dev_join(&self->s.dev[1], tid);
	mkt_share(&self->s.dev[1], &race.err, sizeof(race.err));
	mkt_share(&self->s.dev[1], &race.bound, sizeof(race.bound));
	mkt_share(&self->s.dev[1], &race.busy, sizeof(race.busy));
	ASSERT_EQ(0, race.err);
	TH_LOG("%u binds of the inner key, %u refused; %u reads, %u out of range",
	       race.bound, race.busy, seen, refused);
	EXPECT_LE(wanted, seen);
	EXPECT_LT(0, refused);
}

TEST_HARNESS_MAIN
