// SPDX-License-Identifier: GPL-2.0
/*
 * Keys over keys of small pieces, of which a bind makes one list: the bytes, the access
 * flags, the description, and what is held and charged.
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
	if (mkt_dev_here(&s->dev[1]) && mkt_command(line, sizeof(line), command))
		charged = atoll(line);
	mkt_share(&s->dev[1], &charged, sizeof(charged));
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

/* an access looks up the leaf once for each byte, as with one level */
TEST_F(scattered, one_level)
{
	long long before = nested_count_outside();

	MKT_ONE_MACHINE(self->s.dev);
	if (before < 0)
		SKIP(return, "no debugfs of ib_mkey");
	ASSERT_EQ(0, nested_scatter(&self->s, self->key, NESTED_DEPTH, self->at));
	EXPECT_EQ(IBV_WC_SUCCESS, nested_access(&self->s, self->key[NESTED_DEPTH - 1],
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

static unsigned int nested_done(const struct nested_traffic *traffic)
{
	unsigned int done = atomic_load(&traffic->done);

	mkt_share(&traffic->s->dev[0], &done, sizeof(done));
	return done;
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
		ASSERT_EQ(0, mkt_dev_thread(&s->dev[0], &tid, nested_traffic, &traffic));
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
		mkt_dev_join(&s->dev[0], tid);
		mkt_share(&s->dev[0], &traffic.late, sizeof(traffic.late));
		mkt_share(&s->dev[0], &traffic.err, sizeof(traffic.err));
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
