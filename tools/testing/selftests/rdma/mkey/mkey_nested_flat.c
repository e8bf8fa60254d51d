// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Keys over keys of many pieces, of which a bind makes one layout: the bytes, the
 * access flags, the description, what is held and charged, and what is refused.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "mkey_harness.h"
#include "nested.h"
#include "raw.h"

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
	char line[32], command[256];
	long long charged = -1;

	snprintf(command, sizeof(command),
		 "awk '$1 == \"%s\" && $2 == \"-\" { print $3 }' /sys/kernel/debug/ib_mkey/keys",
		 s->dev[1].name);
	if (mkt_command(line, sizeof(line), command))
		charged = atoll(line);
	return charged;
}

FIXTURE(scattered)
{
	struct mkt_setup s;
	struct ibv_mr *key[NESTED_DEPTH];
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
	for (i = 0; i < NESTED_DEPTH; i++) {
		self->key[i] = ibmkey_alloc(self->s.dev[1].pd, SCATTERED);
		ASSERT_NE(NULL, self->key[i]);
	}
	self->leaf = (uint8_t *)(uintptr_t)self->s.arena[1].leaf[0].addr;
	self->plain = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
}

FIXTURE_TEARDOWN(scattered)
{
	unsigned int i;

	for (i = NESTED_DEPTH; i > 0; i--) {
		if (self->key[i - 1]) {
			EXPECT_EQ(0, ibv_dereg_mr(self->key[i - 1]));
		}
	}
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* every part of every length is read and written in its place */
TEST_F(scattered, bytes)
{
	struct ibv_mr *key = self->key[NESTED_DEPTH - 1];
	uint8_t wanted[3 * SCATTERED];
	unsigned int from, length, i;

	ASSERT_EQ(0, nested_scatter(&self->s, self->key, NESTED_DEPTH, self->at));
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
	struct ibv_mr *leaf = self->s.arena[1].leaf[0].mr, *key = self->key[NESTED_DEPTH - 1];
	struct ibv_pd *pd = self->s.dev[1].pd, *other = ibv_alloc_pd(self->s.dev[1].ctx);

	ASSERT_NE(NULL, other);
	ASSERT_EQ(0, nested_scatter(&self->s, self->key, NESTED_DEPTH, self->at));
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
	ASSERT_EQ(0, nested_scatter(&self->s, self->key, NESTED_DEPTH, self->at));
	all = nested_charged(&self->s);
	if (before >= 0) {
		/*
		 * the list of the description, and the list of the ranges in
		 * memory
		 */
		EXPECT_LT(2 * 32 * SCATTERED, one - before);
		EXPECT_EQ((NESTED_DEPTH - 1) * (one - before), all - before);
	}
	for (i = 0; i < NESTED_DEPTH - 1; i++) {
		EXPECT_EQ(EBUSY, ibmkey_unbind(self->key[i]));
		EXPECT_EQ(EBUSY, ibv_dereg_mr(self->key[i]));
	}
	EXPECT_EQ(EBUSY, ibv_dereg_mr(leaf));
	for (i = NESTED_DEPTH; i > 1; i--)
		EXPECT_EQ(0, ibmkey_unbind(self->key[i - 1]));
	EXPECT_EQ(before, nested_charged(&self->s));
}

/* binds @key to blocks of @bytes bytes of the MR of @lkey, @stride bytes apart, @times times */
static int nested_strided(struct ibv_mr *key, uint32_t lkey, uint64_t addr, uint64_t bytes,
			  int64_t stride, uint64_t times, uint64_t count)
{
	struct ibmkey_block block = {
		.addr = addr,
		.bytes_count = bytes,
		.lkey = lkey,
		.stride = { 0, stride },
	};
	uint64_t repeat[2] = { times, count };

	return ibv_rereg_mr_interleaved(key, MKT_ACCESS_ALL, 2, repeat, 1, &block);
}

/* pieces of the innermost of the keys of lined_up, and their number with repetition */
#define LINED_UP 512
#define TIMES (1ull << 30)

/*
 * Levels whose blocks advance by whole pieces of the level below need no list: the number of
 * pieces has no limit, and takes no memory.
 */
TEST_F(scattered, lined_up)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	long long before = nested_charged(&self->s);
	unsigned int level, i, step = 1 << (NESTED_DEPTH - 1);
	uint64_t length;

	ASSERT_LE(16 * LINED_UP, leaf->length);
	/* each level takes every second piece of the level below */
	ASSERT_EQ(0, nested_strided(self->key[0], leaf->mr->lkey, leaf->addr, 8, 16, TIMES,
				    LINED_UP));
	for (level = 1; level < NESTED_DEPTH; level++) {
		length = self->key[level - 1]->length;
		ASSERT_EQ(0, nested_strided(self->key[level], self->key[level - 1]->lkey, 0, 8,
					    16, 1, length / 16));
	}
	length = self->key[NESTED_DEPTH - 1]->length;
	ASSERT_EQ(8 * TIMES * LINED_UP / step, length);
	if (before >= 0) {
		EXPECT_GT(2048 * NESTED_DEPTH, nested_charged(&self->s) - before);
	}
	mkt_rand_bytes(&self->s.rng, self->leaf, 16 * LINED_UP);
	ASSERT_EQ(IBV_WC_SUCCESS, nested_access(&self->s, self->key[NESTED_DEPTH - 1], MKT_READ,
						length - 100, 100));
	for (i = 0; i < 100; i++) {
		uint64_t at = length - 100 + i, piece = at / 8 * step % LINED_UP;

		ASSERT_EQ(self->leaf[16 * piece + at % 8], self->plain[i]);
	}
}

/*
 * Other levels become a list, of at most 1,048,576 pieces of memory. What is refused changes
 * nothing.
 */
TEST_F(scattered, refused)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibv_mr *inner = self->key[0], *outer = self->key[1];
	unsigned int i;

	/* blocks of 3 bytes in pieces of 2 bytes: each is in two of them */
	ASSERT_EQ(0, nested_strided(inner, leaf->mr->lkey, leaf->addr, 2, 3, 1024, 1000));
	ASSERT_EQ(0, nested_strided(outer, inner->lkey, 1, 3, 5, 1, 1 << 18));
	EXPECT_EQ(ELOOP, nested_strided(outer, inner->lkey, 1, 3, 5, 3, 1 << 18));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "more than 1048576 pieces"));
	EXPECT_EQ(3 << 18, outer->length);
	EXPECT_EQ(ELOOP, nested_strided(self->key[2], inner->lkey, 1, 3, 5, 3, 1 << 18));
	EXPECT_EQ(0, self->key[2]->length);
	mkt_rand_bytes(&self->s.rng, self->leaf, 3000);
	ASSERT_EQ(IBV_WC_SUCCESS, nested_access(&self->s, outer, MKT_READ, 700000, 100));
	for (i = 0; i < 100; i++) {
		uint64_t at = 700000 + i, byte = (1 + at / 3 * 5 + at % 3) % 2000;

		ASSERT_EQ(self->leaf[byte / 2 * 3 + byte % 2], self->plain[i]);
	}
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

static unsigned int nested_done(const struct nested_traffic *traffic)
{
	return atomic_load(&traffic->done);
}

/*
 * Under accesses through the outermost key: no level below can change; what the leaf no
 * longer allows ends at once; an unbind of the outermost key releases all of it.
 */
TEST_F(scattered, race)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mr *leaf = s->arena[1].leaf[0].mr, *outer = self->key[NESTED_DEPTH - 1];
	unsigned int round, rounds = mkt_scale(20, 4), i;

	for (round = 0; round < rounds; round++) {
		bool unbinds = round & 1;
		struct nested_traffic traffic = {
			.s = s,
			.op = round & 2 ? MKT_READ : MKT_WRITE,
		};
		pthread_t tid;

		ASSERT_EQ(0, nested_scatter(s, self->key, NESTED_DEPTH, self->at));
		traffic.rkey = outer->rkey;
		ASSERT_EQ(0, mkt_pair_create(&traffic.pair, &s->dev[0], &s->dev[1],
					     IBV_MTU_1024, 0));
		ASSERT_EQ(0, pthread_create(&tid, NULL, nested_traffic, &traffic));
		for (i = 0; i < NESTED_DEPTH - 1 || nested_done(&traffic) < 20; i++) {
			struct ibv_mr *key = self->key[i % (NESTED_DEPTH - 1)];

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
		pthread_join(tid, NULL);
		EXPECT_EQ(0, traffic.err);
		/* reading by the lkey needs no access flag of the leaf */
		EXPECT_EQ(!unbinds && traffic.op == MKT_READ, traffic.late);
		mkt_pair_destroy(&traffic.pair);
		if (!unbinds) {
			ASSERT_EQ(0, mkt_raw_rereg(leaf, IBV_REREG_MR_CHANGE_ACCESS,
						   s->dev[1].pd, MKT_ACCESS_ALL));
		}
		for (i = NESTED_DEPTH - unbinds; i > 0; i--)
			ASSERT_EQ(0, ibmkey_unbind(self->key[i - 1]));
	}
}

TEST_HARNESS_MAIN
