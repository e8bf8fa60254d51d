// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Keys whose addresses begin at a base address: what reaches them, what a query tells,
 * and keys over them. mkey_matrix, mkey_soak and mkey_nested draw base addresses for keys that are
 * bound by calls and requests, and for windows over them.
 */
#include "mkey_harness.h"

#define BASE 0x7f0123456789ull
#define LENGTH 256

FIXTURE(base)
{
	struct mkt_setup s;
	struct ibv_mr *key;		/* of side 1 */
	struct ibmkey_block block;	/* half of the bytes of some rows, aligned for atomics */
	uint64_t rows;
	struct ibmkey_bind bind;
	uint8_t *row, *plain;
};

FIXTURE_SETUP(base)
{
	struct mkt_leaf *leaf;
	uint64_t skip;

	MKT_SETUP(&self->s, .host = 16 * 1024, .max_entries = 4);
	self->key = self->s.key[1];
	leaf = &self->s.arena[1].leaf[0];
	skip = -leaf->addr & 7;
	self->row = (uint8_t *)(uintptr_t)(leaf->addr + skip);
	self->plain = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
	self->rows = LENGTH / 16;
	self->block = (struct ibmkey_block){
		.addr = leaf->addr + skip,
		.bytes_count = 16,
		.lkey = leaf->mr->lkey,
		.stride = { 32 },
	};
	self->bind = (struct ibmkey_bind){
		.mkey = self->key,
		.kind = IBMKEY_INTERLEAVED,
		.access = MKT_ACCESS_ALL,
		.num_entries = 1,
		.num_dims = 1,
		.repeat_count = &self->rows,
		.blocks = &self->block,
	};
	ASSERT_EQ(0, ibmkey_bind_at(&self->bind, BASE));
}

FIXTURE_TEARDOWN(base)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* reads @length bytes from @addr on of @rkey, which are those of the key from @offset on */
static bool base_reads(FIXTURE_DATA(base) *self, uint32_t rkey, uint64_t addr, uint32_t offset,
		       uint32_t length)
{
	uint32_t i;

	mkt_rand_bytes(&self->s.rng, self->row, 2 * LENGTH);
	if (mkt_touch(&self->s, rkey, MKT_READ, addr, length) != IBV_WC_SUCCESS)
		return false;
	for (i = 0; i < length; i++)
		if (self->plain[i] != self->row[(offset + i) / 16 * 32 + (offset + i) % 16])
			return false;
	return true;
}

static bool base_refuses(FIXTURE_DATA(base) *self, uint32_t rkey, uint64_t addr, uint32_t length)
{
	return mkt_try(&self->s, rkey, MKT_READ, addr, length) == IBV_WC_REM_ACCESS_ERR;
}

static uint64_t base_of(struct ibv_mr *key)
{
	uint64_t base = 4711;

	return ibmkey_query_base(key, &base) ? 4712 : base;
}

TEST_F(base, range)
{
	struct ibmkey_refused_access access;
	uint64_t base;
	const uint32_t rkey = self->key->rkey;

	EXPECT_EQ(BASE, base_of(self->key));
	EXPECT_EQ(LENGTH, self->key->length);
	EXPECT_EQ(NULL, self->key->addr);
	EXPECT_TRUE(base_reads(self, rkey, BASE, 0, LENGTH));
	EXPECT_TRUE(base_reads(self, rkey, BASE + 77, 77, LENGTH - 77));
	EXPECT_TRUE(base_refuses(self, rkey, BASE + LENGTH, 1));
	EXPECT_TRUE(base_refuses(self, rkey, BASE + 1, LENGTH));
	EXPECT_TRUE(base_refuses(self, rkey, 0, 1));
	EXPECT_TRUE(base_refuses(self, rkey, BASE - 1, 8));
	ASSERT_EQ(0, ibmkey_query_refused_access(self->key, &access));
	EXPECT_EQ(BASE - 1, access.addr);
	EXPECT_EQ(IB_UVERBS_MKEY_REASON_ACCESS_BASE, access.reason);
	EXPECT_EQ(BASE, access.value);
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "its addresses begin at 0x7f0123456789"));
	EXPECT_EQ(EINVAL, ibmkey_query_base(self->s.plain[1].mr, &base));
	EXPECT_EQ(EFAULT, ibmkey_query_base(self->key, NULL));
}

/* a later bind and an unbind end it, and so does an invalidation */
TEST_F(base, stale)
{
	struct mkt_wr inv = { .op = MKT_LOCAL_INV };

	ASSERT_EQ(0, ibmkey_bind_interleaved(self->key, MKT_ACCESS_ALL, 1, &self->rows, 1,
					     &self->block));
	EXPECT_EQ(0, base_of(self->key));
	EXPECT_TRUE(base_refuses(self, self->key->rkey, BASE, 8));
	EXPECT_TRUE(base_reads(self, self->key->rkey, 0, 0, LENGTH));
	ASSERT_EQ(0, ibmkey_bind_at(&self->bind, BASE));
	EXPECT_TRUE(base_refuses(self, self->key->rkey, 0, 8));
	ASSERT_EQ(0, ibmkey_unbind(self->key));
	EXPECT_EQ(0, base_of(self->key));
	ASSERT_EQ(0, ibmkey_bind_at(&self->bind, BASE));
	inv.rkey = self->key->rkey;
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &inv));
	EXPECT_EQ(0, base_of(self->key));
	EXPECT_TRUE(base_refuses(self, ibv_inc_rkey(self->key->rkey), BASE, 8));
}

/* addresses in a layout of another key are those of the key */
TEST_F(base, nested)
{
	struct ibv_mr *outer = ibmkey_alloc(self->s.dev[1].pd, 1);
	struct ibmkey_block found = {};
	struct ibmkey_info info;
	uint64_t word;

	ASSERT_NE(NULL, outer);
	EXPECT_EQ(ERANGE, mkt_bind_range(outer, MKT_ACCESS_ALL, self->key, 0, LENGTH));
	EXPECT_EQ(ERANGE, mkt_bind_range(outer, MKT_ACCESS_ALL, self->key, BASE - 1, 8));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "0x7f0123456789"));
	EXPECT_EQ(ERANGE, mkt_bind_range(outer, MKT_ACCESS_ALL, self->key, BASE + 1, LENGTH));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "0x7f0123456888"));
	ASSERT_EQ(0, mkt_bind_range(outer, MKT_ACCESS_ALL, self->key, BASE + 8, LENGTH - 8));
	EXPECT_TRUE(base_reads(self, outer->rkey, 0, 8, LENGTH - 8));
	ASSERT_EQ(0, ibmkey_query_layout(outer, &info, 0, NULL, 1, &found));
	EXPECT_EQ(BASE + 8, found.addr);
	EXPECT_EQ(0, base_of(outer));
	memcpy(&word, self->row + 8, 8);
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, outer->rkey, MKT_FETCH_ADD, 0, 8));
	word += 3;
	EXPECT_EQ(0, memcmp(&word, self->row + 8, 8));
	/* blocks that line up with those of the key, and blocks that do not */
	ASSERT_EQ(0, mkt_bind_strided(outer, MKT_ACCESS_ALL, self->key, BASE + 3, 5, 16, 10));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, outer->rkey, MKT_READ, 45, 5));
	EXPECT_EQ(0, memcmp(self->plain, self->row + 9 * 32 + 3, 5));
	ASSERT_EQ(0, mkt_bind_strided(outer, MKT_ACCESS_ALL, self->key, BASE + 200, 3, -19, 10));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, outer->rkey, MKT_READ, 27, 3));
	EXPECT_EQ(0, memcmp(self->plain, self->row + 32 + 13, 3));
	EXPECT_EQ(0, ibv_dereg_mr(outer));
}

TEST_HARNESS_MAIN
