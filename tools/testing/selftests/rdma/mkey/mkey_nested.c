// SPDX-License-Identifier: GPL-2.0
/*
 * Keys over keys: the bytes that they address, their depth, and what they hold.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "raw.h"

#define MAX_DEPTH 8

FIXTURE(nested)
{
	struct mkt_setup s;
	struct ibv_mr *key[MAX_DEPTH + 1];
};

FIXTURE_SETUP(nested)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.host = 64 * 1024,
		.dm = 32 * 1024,
		.max_entries = 16,
	};
	unsigned int i;

	MKT_OPEN_EXTENDED(self->s.dev);
	ASSERT_EQ(MAX_DEPTH, self->s.dev[1].caps.max_depth);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	for (i = 0; i <= MAX_DEPTH; i++) {
		self->key[i] = ibmkey_alloc(self->s.dev[1].pd, 4);
		ASSERT_NE(NULL, self->key[i]);
	}
}

FIXTURE_TEARDOWN(nested)
{
	unsigned int i;

	for (i = MAX_DEPTH + 1; i > 0; i--) {
		if (self->key[i - 1]) {
			EXPECT_EQ(0, ibv_dereg_mr(self->key[i - 1]));
		}
	}
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* binds @key to @length bytes from @addr on of the MR of @lkey */
static int nested_bind(struct ibv_mr *key, uint32_t lkey, uint64_t addr,
		       uint32_t length, int access)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	return ibv_rereg_mr_sg(key, access, 1, &sge);
}

/* key 0 over @length bytes of leaf 0, and each next key over the one before */
static int nested_chain(struct mkt_setup *s, struct ibv_mr **key,
			unsigned int count, uint32_t length)
{
	struct mkt_leaf *leaf = &s->arena[1].leaf[0];
	unsigned int i;
	int err;

	err = nested_bind(key[0], leaf->mr->lkey, leaf->addr, length,
			  MKT_ACCESS_ALL);
	for (i = 1; i < count && !err; i++)
		err = nested_bind(key[i], key[i - 1]->lkey, 0, length,
				  MKT_ACCESS_ALL);
	return err;
}

static enum ibmkey_kind nested_kind(struct ibv_mr *key)
{
	struct ibmkey_info info;

	return ibmkey_query(key, &info) ? IBMKEY_UNBOUND : info.kind;
}

/* returns the status of an access of @length bytes of @key */
static int nested_access(struct mkt_setup *s, struct ibv_mr *key,
			 enum mkt_op op, uint64_t addr, uint32_t length)
{
	return mkt_touch(s, key->rkey, op, addr, length);
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
						    1 + (i + side * 3) % MAX_DEPTH));
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
	ASSERT_EQ(0, nested_chain(&self->s, self->key, MAX_DEPTH, 4096));
	EXPECT_EQ(ELOOP, nested_bind(self->key[MAX_DEPTH],
				     self->key[MAX_DEPTH - 1]->lkey, 0, 10, 0));
	EXPECT_EQ(IBMKEY_UNBOUND, nested_kind(self->key[MAX_DEPTH]));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, self->key[MAX_DEPTH - 1], MKT_WRITE,
				0, 4096));
	/* one level less is allowed */
	EXPECT_EQ(0, nested_bind(self->key[MAX_DEPTH],
				 self->key[MAX_DEPTH - 2]->lkey, 0, 10, 0));
}

/* no key is over itself, in either direction */
TEST_F(nested, circle)
{
	struct ibv_mr **key = self->key;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibv_sge both[2] = {};

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
	/* the key is in use, but there is no circle */
	EXPECT_EQ(EBUSY, nested_bind(key[1], leaf->mr->lkey, leaf->addr, 10, 0));
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
	uint64_t before, after;
	unsigned int i;

	ASSERT_EQ(0, ibv_rereg_mr_interleaved(key[0], MKT_ACCESS_ALL, 1, &repeat,
					      1, &block));
	for (i = 1; i < MAX_DEPTH; i++)
		ASSERT_EQ(0, nested_bind(key[i], key[i - 1]->lkey, 0, 128,
					 MKT_ACCESS_ALL));
	for (i = 0; i < 128; i += 8) {
		const void *at = (void *)(uintptr_t)(word->addr + first +
						     i / 16 * 64 + i % 16);

		memcpy(&before, at, 8);
		ASSERT_EQ(IBV_WC_SUCCESS,
			  nested_access(&self->s, key[MAX_DEPTH - 1],
					MKT_FETCH_ADD, i, 8));
		memcpy(&after, at, 8);
		ASSERT_EQ(before + 3, after);
	}
	/* two entries of the outer one, side by side in one block of the inner */
	ASSERT_EQ(0, ibmkey_unbind(key[MAX_DEPTH - 1]));
	{
		struct ibv_sge half[2] = {
			{ .addr = 0, .length = 4, .lkey = key[0]->lkey },
			{ .addr = 4, .length = 12, .lkey = key[0]->lkey },
		};

		ASSERT_EQ(0, ibv_rereg_mr_sg(key[MAX_DEPTH - 1], MKT_ACCESS_ALL,
					     2, half));
	}
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  nested_access(&self->s, key[MAX_DEPTH - 1], MKT_FETCH_ADD, 0, 8));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[MAX_DEPTH - 1], MKT_FETCH_ADD, 8, 8));
	/* one entry of the outer one, over two blocks of the inner */
	ASSERT_EQ(0, nested_bind(key[MAX_DEPTH - 1], key[0]->lkey, 12, 20,
				 MKT_ACCESS_ALL));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  nested_access(&self->s, key[MAX_DEPTH - 1], MKT_FETCH_ADD, 0, 8));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
}

/*
 * accesses outside of SRCU, for which only binds of the same key wait; -1 if
 * unknown
 */
static long long nested_count_outside(void)
{
	FILE *f = fopen("/sys/kernel/debug/ib_mkey/accesses_outside", "r");
	long long count = -1;

	if (f && fscanf(f, "%lld", &count) != 1)
		count = -1;
	if (f)
		fclose(f);
	return count;
}

/*
 * A bind waits for the accesses by all keys, except for those through levels of
 * many small pieces, of which one packet can take milliseconds.
 */
TEST_F(nested, outside)
{
	struct ibv_mr **key = self->key;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibmkey_block block = { .bytes_count = 1, .stride = { 2 } };
	const uint64_t repeat = 4096;
	long long before = nested_count_outside();
	unsigned int i;

	if (before < 0)
		SKIP(return, "no debugfs of ib_mkey");
	ASSERT_EQ(0, nested_chain(&self->s, key, 3, 4096));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[2], MKT_READ, 0, 4096));
	EXPECT_EQ(before, nested_count_outside());

	for (i = 3; i-- > 0;)
		ASSERT_EQ(0, ibmkey_unbind(key[i]));
	block.addr = leaf->addr;
	block.lkey = leaf->mr->lkey;
	for (i = 0; i < MAX_DEPTH; i++) {
		ASSERT_EQ(0, ibv_rereg_mr_interleaved(key[i], MKT_ACCESS_ALL, 1,
						      &repeat, 1, &block));
		block.addr = 0;
		block.lkey = key[i]->lkey;
		block.stride[0] = 1;
	}
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[0], MKT_READ, 0, 4096));
	EXPECT_EQ(before, nested_count_outside());
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key[MAX_DEPTH - 1], MKT_READ, 0, 4096));
	EXPECT_LT(before, nested_count_outside());
}

/* accesses through a key that takes a thousand times as long as memory does */
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

/* every level looks for each byte: the pieces of no two levels line up */
static int nested_misaligned(struct mkt_setup *s, struct ibv_mr **key)
{
	struct ibmkey_block block = {
		.addr = s->arena[1].leaf[0].addr,
		.bytes_count = 3,
		.lkey = s->arena[1].leaf[0].mr->lkey,
		.stride = { 0, 5 },
	};
	uint64_t repeat[2] = { 2, 10000 };
	unsigned int i;
	int err = 0;

	for (i = 0; i < MAX_DEPTH && !err; i++) {
		err = ibv_rereg_mr_interleaved(key[i], MKT_ACCESS_ALL, 2, repeat, 1,
					       &block);
		block.addr = 0;
		block.lkey = key[i]->lkey;
		repeat[1] = key[i]->length / 5 - 1;
	}
	return err;
}

/*
 * A bind of another key, and an access to it, do not wait for such accesses. A bind
 * that waits for readers lets one of them end.
 */
TEST_F(nested, others)
{
	struct mkt_setup *s = &self->s;
	unsigned int i, before, during, rounds = mkt_scale(100, 20);
	struct nested_load load = { .s = s };
	struct ibv_mr *key;
	pthread_t tid;

	ASSERT_EQ(0, nested_misaligned(s, self->key));
	load.rkey = self->key[MAX_DEPTH - 1]->rkey;
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
	TH_LOG("%u binds and accesses, %u slow accesses meanwhile", rounds, during);
	EXPECT_GT(rounds / 2, during);
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

/* entries of each of the keys over scattered bytes */
#define SCATTERED 64

/* the number of the byte of entry @i, in an order without a stride */
static unsigned int nested_place(unsigned int i)
{
	return ((i * 37) ^ 21) % SCATTERED;
}

/*
 * Binds @key[0] to every third byte of leaf 0, and each next key to the bytes of the
 * one before, in no order. @at is the position in the leaf of each byte of the last
 * key.
 */
static int nested_scatter(struct mkt_setup *s, struct ibv_mr **key, unsigned int count,
			  size_t *at)
{
	struct mkt_leaf *leaf = &s->arena[1].leaf[0];
	struct ibv_sge sge[SCATTERED];
	unsigned int level, i;
	int err = 0;

	for (level = 0; level < count && !err; level++) {
		size_t below[SCATTERED];

		memcpy(below, at, sizeof(below));
		for (i = 0; i < SCATTERED; i++) {
			unsigned int place = nested_place(i);

			sge[i].addr = level ? place : leaf->addr + 3 * place;
			sge[i].length = 1;
			sge[i].lkey = level ? key[level - 1]->lkey : leaf->mr->lkey;
			at[i] = level ? below[place] : 3 * place;
		}
		err = ibv_rereg_mr_sg(key[level], MKT_ACCESS_ALL, SCATTERED, sge);
	}
	return err;
}

/* bytes of all keys of device 1, or -1 */
static long long nested_charged(struct mkt_setup *s)
{
	char line[32], command[128];

	snprintf(command, sizeof(command),
		 "awk '$1 == \"%s\" && $2 == \"-\" { print $3 }' /sys/kernel/debug/ib_mkey/keys",
		 s->dev[1].name);
	return mkt_command(line, sizeof(line), command) ? atoll(line) : -1;
}

FIXTURE(scattered)
{
	struct mkt_setup s;
	struct ibv_mr *key[MAX_DEPTH];
	size_t at[SCATTERED];
	uint8_t *leaf, *plain;
};

FIXTURE_SETUP(scattered)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.host = 64 * 1024,
		.max_entries = 16,
	};
	unsigned int i;

	MKT_OPEN_EXTENDED(self->s.dev);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	for (i = 0; i < MAX_DEPTH; i++) {
		self->key[i] = ibmkey_alloc(self->s.dev[1].pd, SCATTERED);
		ASSERT_NE(NULL, self->key[i]);
	}
	self->leaf = (uint8_t *)(uintptr_t)self->s.arena[1].leaf[0].addr;
	self->plain = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
}

FIXTURE_TEARDOWN(scattered)
{
	unsigned int i;

	for (i = MAX_DEPTH; i > 0; i--) {
		if (self->key[i - 1]) {
			EXPECT_EQ(0, ibv_dereg_mr(self->key[i - 1]));
		}
	}
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* every part of every length is read and written in its place */
TEST_F(scattered, bytes)
{
	struct ibv_mr *key = self->key[MAX_DEPTH - 1];
	uint8_t wanted[3 * SCATTERED];
	unsigned int from, length, i;

	ASSERT_EQ(0, nested_scatter(&self->s, self->key, MAX_DEPTH, self->at));
	for (from = 0; from < SCATTERED; from += mkt_scale(1, 9)) {
		length = 1 + (from * 29) % (SCATTERED - from);
		mkt_rand_bytes(&self->s.rng, self->leaf, sizeof(wanted));
		memset(self->plain, 0, SCATTERED);
		ASSERT_EQ(IBV_WC_SUCCESS,
			  nested_access(&self->s, key, MKT_READ, from, length));
		for (i = 0; i < length; i++)
			ASSERT_EQ(self->leaf[self->at[from + i]], self->plain[i]);
		memcpy(wanted, self->leaf, sizeof(wanted));
		mkt_rand_bytes(&self->s.rng, self->plain, length);
		for (i = 0; i < length; i++)
			wanted[self->at[from + i]] = self->plain[i];
		ASSERT_EQ(IBV_WC_SUCCESS,
			  nested_access(&self->s, key, MKT_WRITE, from, length));
		ASSERT_EQ(0, memcmp(wanted, self->leaf, sizeof(wanted)));
	}
}

/* an access looks up the leaf once for each byte, as with one level */
TEST_F(scattered, one_level)
{
	long long before = nested_count_outside();

	if (before < 0)
		SKIP(return, "no debugfs of ib_mkey");
	ASSERT_EQ(0, nested_scatter(&self->s, self->key, MAX_DEPTH, self->at));
	EXPECT_EQ(IBV_WC_SUCCESS, nested_access(&self->s, self->key[MAX_DEPTH - 1],
						MKT_READ, 0, SCATTERED));
	EXPECT_EQ(before, nested_count_outside());
}

/* a query returns the description */
TEST_F(scattered, query)
{
	struct ibmkey_block blocks[SCATTERED];
	struct ibmkey_info info;
	unsigned int i;

	ASSERT_EQ(0, nested_scatter(&self->s, self->key, 3, self->at));
	ASSERT_EQ(0, ibmkey_query_layout(self->key[2], &info, 0, NULL, SCATTERED, blocks));
	EXPECT_EQ(IBMKEY_LIST, info.kind);
	EXPECT_EQ(SCATTERED, info.num_entries);
	EXPECT_EQ(SCATTERED, info.length);
	for (i = 0; i < SCATTERED; i++) {
		EXPECT_EQ(self->key[1]->lkey, blocks[i].lkey);
		EXPECT_EQ(nested_place(i), blocks[i].addr);
		EXPECT_EQ(1, blocks[i].bytes_count);
	}
}

/* the access flags and the PD of the leaf are checked on each access */
TEST_F(scattered, rights)
{
	struct ibv_mr *leaf = self->s.arena[1].leaf[0].mr, *key = self->key[MAX_DEPTH - 1];
	struct ibv_pd *pd = self->s.dev[1].pd, *other = ibv_alloc_pd(self->s.dev[1].ctx);

	ASSERT_NE(NULL, other);
	ASSERT_EQ(0, nested_scatter(&self->s, self->key, MAX_DEPTH, self->at));
	ASSERT_EQ(0, mkt_raw_rereg(leaf, IBV_REREG_MR_CHANGE_ACCESS, pd,
				   IBV_ACCESS_REMOTE_READ));
	EXPECT_NE(IBV_WC_SUCCESS,
		  nested_access(&self->s, key, MKT_WRITE, 0, SCATTERED));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key, MKT_READ, 0, SCATTERED));
	ASSERT_EQ(0, mkt_raw_rereg(leaf, IBV_REREG_MR_CHANGE_ACCESS, pd,
				   MKT_ACCESS_ALL));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key, MKT_WRITE, 0, SCATTERED));
	ASSERT_EQ(0, mkt_raw_rereg(leaf, IBV_REREG_MR_CHANGE_PD, other, 0));
	EXPECT_NE(IBV_WC_SUCCESS,
		  nested_access(&self->s, key, MKT_READ, 0, SCATTERED));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	ASSERT_EQ(0, mkt_raw_rereg(leaf, IBV_REREG_MR_CHANGE_PD, pd, 0));
	EXPECT_EQ(IBV_WC_SUCCESS,
		  nested_access(&self->s, key, MKT_READ, 0, SCATTERED));
	EXPECT_EQ(0, ibv_dealloc_pd(other));
}

/* all levels are held until the outermost key is unbound, and its memory is charged */
TEST_F(scattered, held)
{
	struct ibv_mr *leaf = self->s.arena[1].leaf[0].mr;
	long long before, one, all;
	unsigned int i;

	ASSERT_EQ(0, nested_scatter(&self->s, self->key, 1, self->at));
	before = nested_charged(&self->s);
	ASSERT_EQ(0, nested_scatter(&self->s, self->key, 2, self->at));
	one = nested_charged(&self->s);
	ASSERT_EQ(0, ibmkey_unbind(self->key[1]));
	EXPECT_EQ(before, nested_charged(&self->s));
	ASSERT_EQ(0, nested_scatter(&self->s, self->key, MAX_DEPTH, self->at));
	all = nested_charged(&self->s);
	if (before >= 0) {
		/*
		 * the list of the description, and the list of the ranges in
		 * memory
		 */
		EXPECT_LT(2 * 32 * SCATTERED, one - before);
		EXPECT_EQ((MAX_DEPTH - 1) * (one - before), all - before);
	}
	for (i = 0; i < MAX_DEPTH - 1; i++) {
		EXPECT_EQ(EBUSY, ibmkey_unbind(self->key[i]));
		EXPECT_EQ(EBUSY, ibv_dereg_mr(self->key[i]));
	}
	EXPECT_EQ(EBUSY, ibv_dereg_mr(leaf));
	for (i = MAX_DEPTH; i > 1; i--)
		EXPECT_EQ(0, ibmkey_unbind(self->key[i - 1]));
	EXPECT_EQ(before, nested_charged(&self->s));
}

/*
 * A range of a key that is many bytes in memory stays one, so that the list of
 * ranges does not grow with the number of bytes.
 */
TEST_F(scattered, long_range)
{
	struct ibv_sge sge[2] = {
		{ .addr = 5, .length = 1, .lkey = self->key[0]->lkey },
		{ .addr = 0, .length = SCATTERED, .lkey = self->key[0]->lkey },
	};
	unsigned int i;

	ASSERT_EQ(0, nested_scatter(&self->s, self->key, 1, self->at));
	ASSERT_EQ(0, ibv_rereg_mr_sg(self->key[1], MKT_ACCESS_ALL, 2, sge));
	mkt_rand_bytes(&self->s.rng, self->leaf, 3 * SCATTERED);
	ASSERT_EQ(IBV_WC_SUCCESS, nested_access(&self->s, self->key[1], MKT_READ, 0,
						SCATTERED + 1));
	EXPECT_EQ(self->leaf[self->at[5]], self->plain[0]);
	for (i = 0; i < SCATTERED; i++)
		ASSERT_EQ(self->leaf[self->at[i]], self->plain[1 + i]);
	/* and by a key over both */
	ASSERT_EQ(0, nested_bind(self->key[2], self->key[1]->lkey, 0, SCATTERED + 1,
				 MKT_ACCESS_ALL));
	memset(self->plain, 0, SCATTERED + 1);
	ASSERT_EQ(IBV_WC_SUCCESS, nested_access(&self->s, self->key[2], MKT_READ, 0,
						SCATTERED + 1));
	EXPECT_EQ(self->leaf[self->at[5]], self->plain[0]);
	for (i = 0; i < SCATTERED; i++)
		ASSERT_EQ(self->leaf[self->at[i]], self->plain[1 + i]);
}

/* accesses through a nest until one fails */
struct nested_traffic {
	struct mkt_setup *s;
	struct mkt_pair pair;
	uint32_t rkey;
	enum mkt_op op;
	atomic_uint done;
	/* set when the access is no longer allowed */
	atomic_bool over;
	/* an access that began after that has succeeded */
	bool late;
	int err;
};

static void *nested_traffic(void *arg)
{
	struct nested_traffic *traffic = arg;
	struct mkt_setup *s = traffic->s;
	struct mkt_wr wr = {
		.op = traffic->op,
		.sge[0] = {
			.addr = s->plain[0].addr,
			.length = SCATTERED,
			.lkey = s->plain[0].mr->lkey,
		},
		.num_sge = 1,
		.rkey = traffic->rkey,
	};

	while (!traffic->late) {
		bool over = atomic_load(&traffic->over);
		struct ibv_wc wc;

		traffic->err = mkt_post_send(&traffic->pair.end[0], &wr, 1) ?:
			       mkt_poll(&traffic->pair.end[0], &wc);
		if (traffic->err || wc.status)
			break;
		traffic->late = over;
		atomic_fetch_add(&traffic->done, 1);
	}
	return NULL;
}

/*
 * Under accesses through the outermost key: no level below can change; what the leaf no
 * longer allows ends at once; an unbind of the outermost key releases all of it.
 */
TEST_F(scattered, race)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mr *leaf = s->arena[1].leaf[0].mr, *outer = self->key[MAX_DEPTH - 1];
	unsigned int round, rounds = mkt_scale(20, 4), i;

	for (round = 0; round < rounds; round++) {
		bool unbinds = round & 1;
		struct nested_traffic traffic = {
			.s = s,
			.op = round & 2 ? MKT_READ : MKT_WRITE,
		};
		pthread_t tid;

		ASSERT_EQ(0, nested_scatter(s, self->key, MAX_DEPTH, self->at));
		traffic.rkey = outer->rkey;
		ASSERT_EQ(0, mkt_pair_create(&traffic.pair, &s->dev[0], &s->dev[1],
					     IBV_MTU_1024, 0));
		ASSERT_EQ(0, pthread_create(&tid, NULL, nested_traffic, &traffic));
		for (i = 0; i < MAX_DEPTH - 1 || atomic_load(&traffic.done) < 20; i++) {
			struct ibv_mr *key = self->key[i % (MAX_DEPTH - 1)];

			ASSERT_EQ(EBUSY, nested_bind(key, leaf->lkey,
						     s->arena[1].leaf[0].addr, 64,
						     MKT_ACCESS_ALL));
			ASSERT_EQ(EBUSY, ibmkey_unbind(key));
			ASSERT_EQ(EBUSY, ibv_dereg_mr(key));
			ASSERT_EQ(EBUSY, ibv_dereg_mr(leaf));
		}
		if (unbinds) {
			ASSERT_EQ(0, ibmkey_unbind(outer));
		} else {
			ASSERT_EQ(0, mkt_raw_rereg(leaf, IBV_REREG_MR_CHANGE_ACCESS,
						   s->dev[1].pd, IBV_ACCESS_REMOTE_READ));
		}
		atomic_store(&traffic.over, true);
		ASSERT_EQ(0, pthread_join(tid, NULL));
		EXPECT_EQ(0, traffic.err);
		/* reading by the lkey needs no access flag of the leaf */
		EXPECT_EQ(!unbinds && traffic.op == MKT_READ, traffic.late);
		mkt_pair_destroy(&traffic.pair);
		if (!unbinds) {
			ASSERT_EQ(0, mkt_raw_rereg(leaf, IBV_REREG_MR_CHANGE_ACCESS,
						   s->dev[1].pd, MKT_ACCESS_ALL));
		}
		for (i = MAX_DEPTH - unbinds; i > 0; i--)
			ASSERT_EQ(0, ibmkey_unbind(self->key[i - 1]));
	}
}

TEST_HARNESS_MAIN
