// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Pools of keys: a key from the pool is unbound, a returned key releases its leaves,
 * and threads get different keys.
 * sets: smp
 */
#include <sched.h>
#include <stdlib.h>

#include "loop.h"
#include "mkey_harness.h"

#define POOL_KEYS 5
#define POOL_BYTES 500

FIXTURE(pool)
{
	struct mkt_setup s;
	struct mkt_leaf *leaf;		/* of side 1 */
	struct ibmkey_pool *pool;
};

FIXTURE_SETUP(pool)
{
	MKT_SETUP(&self->s, .mtu = IBV_MTU_4096, .host = 64 * 1024);
	self->leaf = &self->s.arena[1].leaf[0];
	self->pool = ibmkey_pool_create(self->s.dev[1].pd, 2, POOL_KEYS);
	ASSERT_NE(NULL, self->pool);
}

FIXTURE_TEARDOWN(pool)
{
	EXPECT_EQ(0, ibmkey_pool_destroy(self->pool));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

static int pool_bind(struct ibv_mr *key, struct mkt_leaf *leaf, uint64_t at)
{
	return mkt_bind_range(key, MKT_ACCESS_ALL, leaf->mr, leaf->addr + at, POOL_BYTES);
}

static int pool_read(struct mkt_setup *s, struct ibv_mr *key)
{
	return mkt_touch(s, key->rkey, MKT_READ, 0, POOL_BYTES);
}

static bool pool_unbound(struct ibv_mr *key)
{
	struct ibmkey_info info;

	return !ibmkey_query(key, &info) && info.kind == IBMKEY_UNBOUND &&
	       info.max_entries == 2 && !key->length;
}

/* take all keys, none twice; return them and take them again */
TEST_F(pool, all_of_them)
{
	struct ibv_mr *key[POOL_KEYS];
	unsigned int i, k, round;

	for (round = 0; round < 3; round++) {
		for (i = 0; i < POOL_KEYS; i++) {
			key[i] = ibmkey_pool_get(self->pool);
			ASSERT_NE(NULL, key[i]);
			EXPECT_TRUE(pool_unbound(key[i]));
			for (k = 0; k < i; k++) {
				EXPECT_NE(key[k], key[i]);
				EXPECT_NE(key[k]->rkey, key[i]->rkey);
			}
			EXPECT_EQ(0, pool_bind(key[i], self->leaf, i));
			EXPECT_EQ(IBV_WC_SUCCESS, pool_read(&self->s, key[i]));
		}
		errno = 0;
		EXPECT_ERRNO(EAGAIN, ibmkey_pool_get(self->pool));
		for (i = 0; i < POOL_KEYS; i++) {
			EXPECT_EQ(EBUSY, ibmkey_pool_destroy(self->pool));
			EXPECT_EQ(0, ibmkey_pool_put(self->pool, key[i]));
		}
	}
}

/* a returned key reaches no memory and holds none */
TEST_F(pool, lets_go)
{
	struct ibv_mr *key = ibmkey_pool_get(self->pool), *mr;
	struct mkt_leaf leaf = *self->leaf;

	ASSERT_NE(NULL, key);
	leaf.mr = ibv_reg_mr(self->s.dev[1].pd,
			     self->s.arena[1].mem[0].host, 4096,
			     MKT_ACCESS_ALL);
	ASSERT_NE(NULL, leaf.mr);
	leaf.addr = (uintptr_t)leaf.mr->addr;
	mr = leaf.mr;
	ASSERT_EQ(0, pool_bind(key, &leaf, 0));
	EXPECT_EQ(IBV_WC_SUCCESS, pool_read(&self->s, key));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(mr));
	ASSERT_EQ(0, ibmkey_pool_put(self->pool, key));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, pool_read(&self->s, key));
	EXPECT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(key, ibmkey_pool_get(self->pool));
	EXPECT_TRUE(pool_unbound(key));
	EXPECT_EQ(0, ibmkey_pool_put(self->pool, key));
}

/* a key is returned once, and to its own pool */
TEST_F(pool, twice)
{
	struct ibmkey_pool *other = ibmkey_pool_create(self->s.dev[1].pd, 2, 1);
	struct ibv_mr *key = ibmkey_pool_get(self->pool);
	struct ibv_mr *in_use = ibmkey_pool_get(self->pool);
	struct ibv_mr *stranger = ibmkey_alloc(self->s.dev[1].pd, 2);
	struct ibv_mr *third;

	ASSERT_NE(NULL, other);
	ASSERT_NE(NULL, key);
	ASSERT_NE(NULL, in_use);
	ASSERT_NE(NULL, stranger);
	/* a key that is still bound afterwards was not touched */
	ASSERT_EQ(0, pool_bind(key, self->leaf, 0));
	ASSERT_EQ(0, pool_bind(stranger, self->leaf, 0));
	EXPECT_EQ(EINVAL, ibmkey_pool_put(other, key));
	EXPECT_EQ(EINVAL, ibmkey_pool_put(self->pool, stranger));
	EXPECT_EQ(EINVAL, ibmkey_pool_put(self->pool, self->leaf->mr));
	EXPECT_EQ(POOL_BYTES, key->length);
	EXPECT_EQ(POOL_BYTES, stranger->length);
	EXPECT_EQ(IBV_WC_SUCCESS, pool_read(&self->s, key));
	EXPECT_EQ(0, ibmkey_pool_put(self->pool, key));
	EXPECT_EQ(EINVAL, ibmkey_pool_put(self->pool, key));
	/* the free key is given to one user only */
	EXPECT_EQ(key, ibmkey_pool_get(self->pool));
	third = ibmkey_pool_get(self->pool);
	ASSERT_NE(NULL, third);
	EXPECT_NE(key, third);
	EXPECT_EQ(0, ibmkey_pool_put(self->pool, third));
	EXPECT_EQ(0, ibmkey_pool_put(self->pool, key));
	EXPECT_EQ(EBUSY, ibmkey_pool_destroy(self->pool));
	EXPECT_EQ(0, ibmkey_pool_put(self->pool, in_use));
	EXPECT_EQ(0, ibv_dereg_mr(stranger));
	EXPECT_EQ(0, ibmkey_pool_destroy(other));
}

/* a key that cannot be unbound stays with its user */
TEST_F(pool, busy)
{
	struct ibv_mr *inner = ibmkey_pool_get(self->pool);
	struct ibv_mr *outer = ibmkey_pool_get(self->pool);

	ASSERT_NE(NULL, inner);
	ASSERT_NE(NULL, outer);
	ASSERT_EQ(0, pool_bind(inner, self->leaf, 0));
	ASSERT_EQ(0, mkt_bind_range(outer, 0, inner, 0, 10));
	EXPECT_EQ(EBUSY, ibmkey_pool_put(self->pool, inner));
	EXPECT_EQ(POOL_BYTES, inner->length);
	EXPECT_EQ(IBV_WC_SUCCESS, pool_read(&self->s, inner));
	EXPECT_EQ(0, ibmkey_pool_put(self->pool, outer));
	EXPECT_EQ(0, ibmkey_pool_put(self->pool, inner));
}

TEST_F(pool, arguments)
{
	struct ibv_pd *pd = self->s.dev[1].pd;
	const struct {
		struct ibv_pd *pd;
		uint32_t entries, keys;
	} refused[] = {
		{ pd, 2, 0 }, { pd, 0, 2 }, { NULL, 2, 2 },
		/* indexed layouts may have more entries than others */
		{ pd, (1 << 20) + 1, 2 },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		errno = 0;
		EXPECT_ERRNO(EINVAL, ibmkey_pool_create(refused[i].pd, refused[i].entries,
							refused[i].keys));
	}
	EXPECT_ERRNO(EINVAL, ibmkey_pool_get(NULL));
	EXPECT_EQ(EINVAL, ibmkey_pool_put(self->pool, NULL));
	EXPECT_EQ(EINVAL, ibmkey_pool_put(NULL, NULL));
	EXPECT_EQ(0, ibmkey_pool_destroy(NULL));
}

struct pool_thread {
	struct mkt_loop loop;
	struct ibmkey_pool *pool;
	struct mkt_leaf *leaf;
	unsigned int number, none;
};

static int pool_step(void *arg, unsigned int round)
{
	struct pool_thread *t = arg;
	struct ibv_mr *key = ibmkey_pool_get(t->pool);
	struct ibmkey_block block;
	struct ibmkey_info info;
	int err;

	while (!key && errno == EAGAIN) {
		t->none++;
		sched_yield();
		key = ibmkey_pool_get(t->pool);
	}
	if (!key)
		return errno;
	/* no other thread has the key: it keeps the binding that was made here */
	err = key->length ? EBADMSG : 0;
	err = err ?: pool_bind(key, t->leaf, t->number);
	err = err ?: ibmkey_query_layout(key, &info, 0, NULL, 1, &block);
	if (!err && (info.num_entries != 1 || block.addr != t->leaf->addr + t->number))
		err = EBADMSG;
	return err ?: ibmkey_pool_put(t->pool, key);
}

/* more threads than keys */
TEST_F(pool, threads)
{
	struct pool_thread t[POOL_KEYS + 3] = {};
	unsigned int i, none = 0;

	for (i = 0; i < ARRAY_SIZE(t); i++) {
		t[i].pool = self->pool;
		t[i].leaf = self->leaf;
		t[i].number = i;
		ASSERT_EQ(0, mkt_loop_start(&t[i].loop, pool_step, &t[i]));
	}
	for (i = 0; i < ARRAY_SIZE(t); i++) {
		EXPECT_EQ(0, mkt_loop_wait(&t[i].loop, mkt_scale(400, 40)));
		none += t[i].none;
	}
	TH_LOG("%u times there was none", none);
}

TEST_HARNESS_MAIN
