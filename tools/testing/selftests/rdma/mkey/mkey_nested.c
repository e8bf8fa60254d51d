// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Keys over keys: the bytes that they address, their depth, and what they hold, also
 * while an inner key is bound.
 * sets: long
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "nested.h"
#include "raw.h"

FIXTURE(nested)
{
	struct mkt_setup s;
	struct ibv_mr *key[NESTED_DEPTH + 1];
};

FIXTURE_SETUP(nested)
{
	MKT_OPEN_EXTENDED(self->s.dev);
	ASSERT_EQ(NESTED_DEPTH, self->s.dev[1].caps.max_depth);
	ASSERT_EQ(0, nested_open(&self->s, self->key, _metadata->name));
}

FIXTURE_TEARDOWN(nested)
{
	EXPECT_EQ(0, nested_close(&self->s, self->key));
}

static enum ibmkey_kind nested_kind(struct ibv_mr *key)
{
	struct ibmkey_info info;

	return ibmkey_query(key, &info) ? IBMKEY_UNBOUND : info.kind;
}

/* trees of every depth, on either side of every kind of transfer */
TEST_F(nested, trees)
{
	unsigned int i, rounds = mkt_scale(240, 24);

	for (i = 0; i < rounds; i++) {
		struct mkt_nest nest[2];
		struct mkt_end end[2];
		struct mkt_xfer xfer = {
			.op = mkt_between(&self->s.rng, MKT_SEND, MKT_READ),
			.side = mkt_between(&self->s.rng, 0, 1),
			.end = { &end[0], &end[1] },
			.num_sge = mkt_between(&self->s.rng, 1, 3),
		};
		unsigned int side;
		size_t max;

		for (side = 0; side < 2; side++) {
			ASSERT_EQ(0, mkt_nest_build(&nest[side], &self->s.rng,
						    &self->s.arena[side],
						    1 + (i + side * 3) % NESTED_DEPTH));
			mkt_nest_end(&nest[side], &end[side]);
		}
		max = end[0].map.length < end[1].map.length ?
		      end[0].map.length : end[1].map.length;
		xfer.length = mkt_between(&self->s.rng, 1, max);
		for (side = 0; side < 2; side++)
			xfer.offset[side] =
				mkt_between(&self->s.rng, 0,
					    end[side].map.length - xfer.length);
		ASSERT_EQ(0, mkt_arena_fill(&self->s.arena[mkt_xfer_source(&xfer)],
					    &self->s.rng));
		ASSERT_EQ(0, mkt_xfer(&self->s.pair, &xfer))
		{
			TH_LOG("in round %u", i);
		}
		for (side = 0; side < 2; side++)
			ASSERT_EQ(0, mkt_nest_free(&nest[side]));
	}
}

/* as deep as the device allows, and not a level more */
TEST_F(nested, depth)
{
	ASSERT_EQ(0, nested_chain(&self->s, self->key, NESTED_DEPTH, 4096));
	EXPECT_EQ(ELOOP, nested_bind(self->key[NESTED_DEPTH],
				     self->key[NESTED_DEPTH - 1]->lkey, 0, 10, 0));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "a key of too many levels"));
	EXPECT_EQ(IBMKEY_UNBOUND, nested_kind(self->key[NESTED_DEPTH]));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, self->key[NESTED_DEPTH - 1], MKT_WRITE,
				0, 4096));
	/* one level less is allowed */
	EXPECT_EQ(0, nested_bind(self->key[NESTED_DEPTH],
				 self->key[NESTED_DEPTH - 2]->lkey, 0, 10, 0));
}

/* no key is over itself, in either direction */
TEST_F(nested, circle)
{
	struct ibv_mr **key = self->key;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibv_sge both[2] = {};
	char words[64];

	ASSERT_EQ(0, nested_chain(&self->s, key, 3, 4096));
	EXPECT_EQ(ELOOP, nested_bind(key[0], key[0]->lkey, 0, 10, 0));
	EXPECT_EQ(ELOOP, nested_bind(key[0], key[1]->lkey, 0, 10, 0));
	EXPECT_EQ(ELOOP, nested_bind(key[0], key[2]->lkey, 0, 10, 0));
	/* by the second of two leaves, below another key */
	both[0].addr = leaf->addr;
	both[0].length = 8;
	both[0].lkey = leaf->mr->lkey;
	both[1].length = 8;
	both[1].lkey = key[2]->lkey;
	ASSERT_EQ(0, ibv_rereg_mr_sg(key[4], 0, 2, both));
	EXPECT_EQ(ELOOP, nested_bind(key[1], key[4]->lkey, 0, 10, 0));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "leads back to mkey through other keys"));
	/* the key is in use, but there is no circle */
	EXPECT_EQ(EBUSY, nested_bind(key[1], leaf->mr->lkey, leaf->addr, 10, 0));
	snprintf(words, sizeof(words), "refers to mkey: mkeyctl who DEVICE 0x%x shows",
		 key[1]->lkey);
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), words));
	/* nothing has changed */
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[2], MKT_WRITE, 0, 4096));
}

/*
 * a key cannot change while another key refers to it, and can be destroyed
 * after that
 */
TEST_F(nested, busy)
{
	struct ibv_mr **key = self->key;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct mkt_wr inv = { .op = MKT_LOCAL_INV };

	ASSERT_EQ(0, nested_chain(&self->s, key, 2, 4096));
	EXPECT_EQ(EBUSY, nested_bind(key[0], leaf->mr->lkey, leaf->addr + 1, 9,
				     MKT_ACCESS_ALL));
	EXPECT_EQ(EBUSY, ibmkey_unbind(key[0]));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(key[0]));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(leaf->mr));
	inv.rkey = key[0]->rkey;
	EXPECT_NE(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &inv));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(IBMKEY_LIST, nested_kind(key[0]));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[1], MKT_WRITE, 0, 4096));
	/* the outer key may be invalidated, which releases the inner one */
	inv.rkey = key[1]->rkey;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &inv));
	EXPECT_EQ(0, nested_bind(key[0], leaf->mr->lkey, leaf->addr + 1, 9,
				 MKT_ACCESS_ALL));
	EXPECT_EQ(0, nested_bind(key[1], key[0]->lkey, 2, 7, 0));
	/* another bind releases it, too */
	EXPECT_EQ(0, nested_bind(key[1], leaf->mr->lkey, leaf->addr, 7, 0));
	EXPECT_EQ(0, ibmkey_unbind(key[0]));
	EXPECT_EQ(ERANGE, nested_bind(key[1], key[0]->lkey, 0, 1, 0));
	/* destroying a key releases it, too */
	ASSERT_EQ(0, nested_chain(&self->s, key, 2, 64));
	EXPECT_EQ(0, ibv_dereg_mr(key[1]));
	key[1] = NULL;
	EXPECT_EQ(0, ibv_dereg_mr(key[0]));
	key[0] = NULL;
}

TEST_F(nested, range)
{
	struct ibv_mr **key = self->key;
	struct ibmkey_block block = { .bytes_count = 8, .stride = { 24 } };
	const uint64_t four = 4, five = 5;

	ASSERT_EQ(0, nested_chain(&self->s, key, 1, 100));
	EXPECT_EQ(ERANGE, nested_bind(key[1], key[0]->lkey, 0, 101, 0));
	EXPECT_EQ(ERANGE, nested_bind(key[1], key[0]->lkey, 100, 1, 0));
	EXPECT_EQ(0, nested_bind(key[1], key[0]->lkey, 99, 1, 0));
	block.lkey = key[0]->lkey;
	EXPECT_EQ(ERANGE, ibv_rereg_mr_interleaved(key[1], 0, 1, &five, 1,
						   &block));
	EXPECT_EQ(0, ibv_rereg_mr_interleaved(key[1], 0, 1, &four, 1, &block));
	block.addr = 1;
	block.stride[0] = -1;
	EXPECT_EQ(EOVERFLOW, ibv_rereg_mr_interleaved(key[1], 0, 1, &four, 1,
						      &block));
}

/* access flags do not grow on the way up, and are lost when those below are */
TEST_F(nested, rights)
{
	struct ibv_mr **key = self->key;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];

	ASSERT_EQ(0, nested_bind(key[0], leaf->mr->lkey, leaf->addr, 100, 0));
	EXPECT_EQ(EACCES, nested_bind(key[1], key[0]->lkey, 0, 100,
				      IBV_ACCESS_LOCAL_WRITE));
	EXPECT_EQ(EACCES, nested_bind(key[1], key[0]->lkey, 0, 100,
				      MKT_ACCESS_ALL));
	/* reading by the lkey needs no access flag below */
	ASSERT_EQ(0, nested_bind(key[1], key[0]->lkey, 0, 100,
				 IBV_ACCESS_REMOTE_READ));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[1], MKT_READ, 0, 100));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  nested_access(&self->s, key[1], MKT_WRITE, 0, 100));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	ASSERT_EQ(0, ibmkey_unbind(key[1]));

	ASSERT_EQ(0, nested_chain(&self->s, key, 4, 100));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[3], MKT_WRITE, 0, 100));
	ASSERT_EQ(0, mkt_raw_rereg(leaf->mr, IBV_REREG_MR_CHANGE_ACCESS,
				   self->s.dev[1].pd, IBV_ACCESS_REMOTE_READ));
	EXPECT_NE(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[3], MKT_WRITE, 0, 100));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[3], MKT_READ, 0, 100));
}

/* the same for so many pieces that a bind need not list them */
TEST_F(nested, rights_of_many_pieces)
{
	struct ibv_mr **key = self->key;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibmkey_block block = {
		.bytes_count = 16,
		.stride = { 32 },
	};
	const uint64_t repeat = 128;

	ASSERT_EQ(0, nested_bind(key[0], leaf->mr->lkey, leaf->addr, 4096,
				 MKT_ACCESS_ALL));
	block.lkey = key[0]->lkey;
	ASSERT_EQ(0, ibv_rereg_mr_interleaved(key[1], MKT_ACCESS_ALL, 1, &repeat,
					      1, &block));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[1], MKT_WRITE, 8, 1000));
	ASSERT_EQ(0, mkt_raw_rereg(leaf->mr, IBV_REREG_MR_CHANGE_ACCESS,
				   self->s.dev[1].pd, IBV_ACCESS_REMOTE_READ));
	EXPECT_NE(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[1], MKT_WRITE, 8, 1000));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[1], MKT_READ, 8, 1000));
}

/* an operand must be in one block of every level */
TEST_F(nested, atomics)
{
	struct ibv_mr **key = self->key;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	size_t first = -leaf->at & 7;
	struct ibmkey_block block = {
		.addr = leaf->addr + first,
		.bytes_count = 16,
		.lkey = leaf->mr->lkey,
		.stride = { 64 },
	};
	struct mkt_leaf *word = leaf;
	const uint64_t repeat = 8;
	struct ibv_sge half[2];
	uint64_t before, after;
	unsigned int i;

	ASSERT_EQ(0, ibv_rereg_mr_interleaved(key[0], MKT_ACCESS_ALL, 1, &repeat,
					      1, &block));
	for (i = 1; i < NESTED_DEPTH; i++)
		ASSERT_EQ(0, nested_bind(key[i], key[i - 1]->lkey, 0, 128,
					 MKT_ACCESS_ALL));
	for (i = 0; i < 128; i += 8) {
		const void *at = (void *)(uintptr_t)(word->addr + first +
						     i / 16 * 64 + i % 16);

		memcpy(&before, at, 8);
		ASSERT_EQ(IBV_WC_SUCCESS,
			  nested_access(&self->s, key[NESTED_DEPTH - 1],
					MKT_FETCH_ADD, i, 8));
		memcpy(&after, at, 8);
		ASSERT_EQ(before + 3, after);
	}
	/* two entries of the outer one, side by side in one block of the inner */
	ASSERT_EQ(0, ibmkey_unbind(key[NESTED_DEPTH - 1]));
	half[0] = (struct ibv_sge){ .addr = 0, .length = 4, .lkey = key[0]->lkey };
	half[1] = (struct ibv_sge){ .addr = 4, .length = 12, .lkey = key[0]->lkey };
	ASSERT_EQ(0, ibv_rereg_mr_sg(key[NESTED_DEPTH - 1], MKT_ACCESS_ALL, 2, half));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  nested_access(&self->s, key[NESTED_DEPTH - 1], MKT_FETCH_ADD, 0, 8));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[NESTED_DEPTH - 1], MKT_FETCH_ADD, 8, 8));
	/* one entry of the outer one, over two blocks of the inner */
	ASSERT_EQ(0, nested_bind(key[NESTED_DEPTH - 1], key[0]->lkey, 12, 20,
				 MKT_ACCESS_ALL));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  nested_access(&self->s, key[NESTED_DEPTH - 1], MKT_FETCH_ADD, 0, 8));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
}

/* the process ends with an inner key that is newer than the outer one */
TEST_F(nested, exit)
{
	int status, before = mkt_dev_count(&self->s.dev[1], "mr");
	pid_t pid;

	ASSERT_LE(0, before);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		struct mkt_arena arena;
		struct ibv_mr *outer, *inner;
		struct mkt_dev dev;
		int err;

		err = mkt_dev_open(&dev, 1);
		outer = err ? NULL : ibmkey_alloc(dev.pd, 1);
		err = err ?: mkt_arena_standard(&arena, &dev, 65536, 0);
		inner = err ? NULL : ibmkey_alloc(dev.pd, 1);
		err = err ?: nested_bind(inner, arena.leaf[0].mr->lkey,
					 arena.leaf[0].addr, 100, 0);
		err = err ?: nested_bind(outer, inner->lkey, 0, 100, 0);
		_exit(!!err);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(before, mkt_dev_count(&self->s.dev[1], "mr"));
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
TEST_F(nested, race)
{
	struct nested_race race = { .s = &self->s, .key = self->key };
	unsigned int i, seen = 0, refused = 0, wanted = mkt_scale(100, 10);
	uint8_t *at = (uint8_t *)(uintptr_t)self->s.arena[1].leaf[0].addr;
	uint8_t *to = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
	pthread_t tid;

	memset(at, 0xa0, 16384);
	memset(at + 16384, 0xa1, 16384);
	ASSERT_EQ(0, nested_chain(&self->s, self->key, 1, 4096));
	ASSERT_EQ(0, pthread_create(&tid, NULL, nested_race_inner, &race));
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
	pthread_join(tid, NULL);
	ASSERT_EQ(0, race.err);
	TH_LOG("%u binds of the inner key, %u refused; %u reads, %u out of range",
	       race.bound, race.busy, seen, refused);
	EXPECT_LE(wanted, seen);
	EXPECT_LT(0, refused);
}

TEST_HARNESS_MAIN
