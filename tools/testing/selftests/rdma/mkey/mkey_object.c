// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A key as an object: created, bound, queried, bound again, unbound and destroyed, and
 * the effect on the MRs that it refers to. No traffic.
 */
#include "object.h"

/*
 * The other tests skip a device that is not extended. If ib_mkey was loaded in
 * time, that means that its self-test failed, so this test fails.
 */
TEST(extended)
{
	struct mkt_dev dev[2];
	unsigned int i;

	MKT_OPEN(dev);
	if (access("/sys/module/ib_mkey", F_OK))
		SKIP(return, "ib_mkey is not loaded");
	for (i = 0; i < 2; i++) {
		EXPECT_TRUE(dev[i].extended)
		{
			TH_LOG("%s is not", dev[i].name);
		}
		mkt_dev_close(&dev[i]);
	}
}

TEST_F(object, unbound)
{
	struct ibmkey_info info;

	ASSERT_EQ(0, ibmkey_query(self->key, &info));
	EXPECT_EQ(IBMKEY_UNBOUND, info.kind);
	EXPECT_EQ(0, info.length);
	EXPECT_EQ(0, info.access);
	EXPECT_EQ(64, info.max_entries);
	EXPECT_EQ(0, info.num_entries);
	EXPECT_EQ(0, info.num_dims);
	EXPECT_EQ(self->key->lkey, info.lkey);
	EXPECT_EQ(self->key->rkey, info.rkey);
	EXPECT_EQ(0, self->key->length);

	/* unbinding an unbound key changes nothing */
	EXPECT_EQ(0, ibmkey_unbind(self->key));
	ASSERT_EQ(0, ibmkey_query(self->key, &info));
	EXPECT_EQ(IBMKEY_UNBOUND, info.kind);
}

TEST_F(object, max_entries)
{
	struct ibmkey_info info;
	struct ibv_mr *key;
	uint32_t max;

	max = self->dev.caps.max_indices;
	key = ibmkey_alloc(self->dev.pd, max);
	ASSERT_NE(NULL, key);
	ASSERT_EQ(0, ibmkey_query(key, &info));
	EXPECT_EQ(max, info.max_entries);
	ASSERT_EQ(0, ibv_dereg_mr(key));

	EXPECT_ERRNO(EINVAL, ibmkey_alloc(self->dev.pd, 0));
	EXPECT_ERRNO(EINVAL, ibmkey_alloc(self->dev.pd, max + 1));
	EXPECT_ERRNO(EINVAL, ibmkey_alloc(self->dev.pd, UINT32_MAX));
}

TEST_F(object, unbind)
{
	struct ibmkey_info info;

	ASSERT_EQ(0, object_bind_one(&self->arena, self->key, 0, 100));
	ASSERT_EQ(0, ibmkey_unbind(self->key));
	EXPECT_EQ(0, self->key->length);
	ASSERT_EQ(0, ibmkey_query(self->key, &info));
	EXPECT_EQ(IBMKEY_UNBOUND, info.kind);
	EXPECT_EQ(0, info.length);
	EXPECT_EQ(0, info.num_entries);
	EXPECT_EQ(64, info.max_entries);
	ASSERT_EQ(0, object_bind_one(&self->arena, self->key, 0, 200));
	ASSERT_EQ(0, ibmkey_query(self->key, &info));
	EXPECT_EQ(200, info.length);
}

/* an MR cannot be deregistered until no key refers to it */
TEST_F(object, leaf_busy)
{
	struct ibv_mr *other = ibmkey_alloc(self->dev.pd, 1);
	struct mkt_leaf *leaf;
	unsigned int last;

	ASSERT_NE(NULL, other);
	ASSERT_EQ(0, mkt_arena_add_leaf(&self->arena, 0, 100, 1000,
					MKT_ACCESS_ALL, 0));
	last = self->arena.num_leaves - 1;
	leaf = &self->arena.leaf[last];

	ASSERT_EQ(0, object_bind_one(&self->arena, self->key, last, 100));
	ASSERT_EQ(0, object_bind_one(&self->arena, other, last, 100));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(leaf->mr));
	/* the second time, too */
	EXPECT_EQ(EBUSY, ibv_dereg_mr(leaf->mr));
	ASSERT_EQ(0, ibmkey_unbind(self->key));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(leaf->mr));
	/* binding something else releases the MR, too */
	ASSERT_EQ(0, object_bind_one(&self->arena, other, 0, 100));
	EXPECT_EQ(0, ibv_dereg_mr(leaf->mr));
	self->arena.num_leaves = last;
	ASSERT_EQ(0, ibv_dereg_mr(other));
}

/* destroying a bound key releases its MRs */
TEST_F(object, destroy_bound)
{
	unsigned int last;

	ASSERT_EQ(0, mkt_arena_add_leaf(&self->arena, 1, 100, 1000,
					MKT_ACCESS_ALL, 0));
	last = self->arena.num_leaves - 1;
	ASSERT_EQ(0, object_bind_one(&self->arena, self->key, last, 100));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(self->arena.leaf[last].mr));
	EXPECT_EQ(0, ibv_dereg_mr(self->key));
	self->key = NULL;
	EXPECT_EQ(0, ibv_dereg_mr(self->arena.leaf[last].mr));
	self->arena.num_leaves = last;
}

/* a bind that fails releases the MRs that it named */
TEST_F(object, failed_bind_lets_go)
{
	struct ibv_sge sge[2] = {};
	struct mkt_leaf *leaf;
	unsigned int last;

	ASSERT_EQ(0, mkt_arena_add_leaf(&self->arena, 0, 100, 1000,
					MKT_ACCESS_ALL, 0));
	last = self->arena.num_leaves - 1;
	leaf = &self->arena.leaf[last];
	sge[0].addr = leaf->addr;
	sge[0].length = 10;
	sge[0].lkey = leaf->mr->lkey;
	/* out of range */
	sge[1] = sge[0];
	sge[1].length = 1001;
	ASSERT_EQ(ERANGE, ibv_rereg_mr_sg(self->key, 0, 2, sge));
	EXPECT_EQ(0, ibv_dereg_mr(leaf->mr));
	self->arena.num_leaves = last;
}

/* operations of ordinary MRs that keys refuse */
TEST_F(object, not_a_region)
{
	struct ibv_sge sge = {
		.length = 100,
		.lkey = self->key->lkey,
	};
	struct ibmkey_info info;

	ASSERT_EQ(0, object_bind_one(&self->arena, self->key, 0, 100));
	EXPECT_NE(0, mkt_raw_rereg(self->key, IBV_REREG_MR_CHANGE_ACCESS,
				   self->dev.pd, MKT_ACCESS_ALL));
	EXPECT_NE(0, mkt_raw_rereg(self->key, IBV_REREG_MR_CHANGE_PD,
				   self->dev.pd, 0));
	EXPECT_NE(0, mkt_raw_rereg(self->key, IBV_REREG_MR_CHANGE_TRANSLATION,
				   self->dev.pd, MKT_ACCESS_ALL));
	EXPECT_NE(0, ibv_advise_mr(self->dev.pd, IBV_ADVISE_MR_ADVICE_PREFETCH,
				   IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
	/* and MRs refuse operations of keys */
	EXPECT_EQ(EINVAL, ibmkey_unbind(self->arena.leaf[0].mr));
	EXPECT_EQ(EINVAL, ibmkey_query(self->arena.leaf[0].mr, &info));
	EXPECT_EQ(EINVAL, object_bind_one(&self->arena,
					  self->arena.leaf[1].mr, 0, 100));
	EXPECT_EQ(EINVAL, ibmkey_unbind(self->arena.leaf[2].mr));

	ASSERT_EQ(0, ibmkey_query(self->key, &info));
	EXPECT_EQ(100, info.length);
}

TEST_F(object, pd_stays)
{
	struct ibv_pd *pd = ibv_alloc_pd(self->dev.ctx);
	struct ibv_mr *key;

	ASSERT_NE(NULL, pd);
	key = ibmkey_alloc(pd, 1);
	ASSERT_NE(NULL, key);
	EXPECT_EQ(EBUSY, ibv_dealloc_pd(pd));
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

TEST_F(object, many)
{
	unsigned int i, j, n = mkt_scale(500, 100);
	int before = mkt_dev_count(&self->dev, "mr");
	struct ibv_mr **keys = calloc(n, sizeof(*keys));

	ASSERT_NE(NULL, keys);
	for (i = 0; i < n; i++) {
		keys[i] = ibmkey_alloc(self->dev.pd, 1 + i % 7);
		ASSERT_NE(NULL, keys[i]);
		for (j = 0; j < i; j++) {
			ASSERT_NE(keys[j]->lkey, keys[i]->lkey);
		}
		ASSERT_EQ(0, object_bind_one(&self->arena, keys[i], i % 3,
					     1 + i));
	}
	if (before >= 0) {
		EXPECT_EQ(before + n, mkt_dev_count(&self->dev, "mr"));
	}
	/* neither the oldest nor the newest first */
	for (i = 0; i < n; i++) {
		ASSERT_EQ(0, ibv_dereg_mr(keys[i * 7 % n]));
	}
	if (before >= 0) {
		EXPECT_EQ(before, mkt_dev_count(&self->dev, "mr"));
	}
	free(keys);
}

TEST_HARNESS_MAIN
