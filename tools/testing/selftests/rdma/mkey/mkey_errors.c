// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Every bind that must be refused, with its errno. The key and its memory are unchanged
 * afterwards.
 */
#include "errors.h"

#define REMOTE_WRITE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define REMOTE_ATOMIC (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* all errors of indexed blocks */
TEST_F(errors, indices)
{
	uint64_t index[9] = { 1, 0, 1, 0, 1, 0, 1, 0, 1 };
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibv_mr *key = self->s.key[1];
	uint64_t addr = leaf->addr, end = addr + leaf->length;
	uint32_t lkey = leaf->mr->lkey;
	struct ibmkey_indexed layout = {
		.addr = addr,
		.unit = 10,
		.bytes_count = 10,
		.indices = (uintptr_t)index,
		.index_bytes = 8,
		.num_indices = 9,
		.lkey = lkey,
	};

	/* too many indices, none, of another size, or none at the address */
	EXPECT_EQ(ENOSPC, ibmkey_bind_indexed(key, 0, &layout));
	layout.num_indices = UINT32_MAX;
	EXPECT_EQ(ENOSPC, ibmkey_bind_indexed(key, 0, &layout));
	layout.num_indices = 0;
	EXPECT_EQ(EINVAL, ibmkey_bind_indexed(key, 0, &layout));
	layout.num_indices = 1;
	layout.index_bytes = 2;
	EXPECT_EQ(EINVAL, ibmkey_bind_indexed(key, 0, &layout));
	layout.index_bytes = 8;
	layout.indices = 0;
	EXPECT_EQ(EFAULT, ibmkey_bind_indexed(key, 0, &layout));
	EXPECT_EQ(EFAULT, ibmkey_bind_indexed(key, 0, NULL));

	EXPECT_EQ(EINVAL, errors_indexed(&self->s, 0, addr, 0, 10, lkey, 1));
	EXPECT_EQ(EINVAL, errors_indexed(&self->s, 0, addr, 10, 0, lkey, 1));
	EXPECT_EQ(EINVAL, errors_indexed(&self->s, 1u << 31, addr, 10, 10,
					 lkey, 1));
	EXPECT_EQ(EINVAL, errors_indexed(&self->s, IBV_ACCESS_REMOTE_WRITE,
					 addr, 10, 10, lkey, 1));
	EXPECT_EQ(ENOENT, errors_indexed(&self->s, 0, addr, 10, 10, lkey ^ 1,
					 1));
	EXPECT_EQ(ENOENT, errors_indexed(&self->s, 0, addr, 10, 10,
					 self->other_pd->lkey, 1));
	EXPECT_EQ(EACCES, errors_indexed(&self->s, IBV_ACCESS_LOCAL_WRITE,
					 (uintptr_t)self->read_only->addr, 10,
					 10, self->read_only->lkey, 1));
	EXPECT_EQ(ELOOP, errors_indexed(&self->s, 0, 0, 10, 10, key->lkey, 1));

	/* one byte too far at either end, by address, index, unit and length */
	EXPECT_EQ(ERANGE, errors_indexed(&self->s, 0, addr - 1, 10, 10, lkey,
					 1));
	EXPECT_EQ(ERANGE, errors_indexed(&self->s, 0, end - 99, 90, 10, lkey,
					 1));
	EXPECT_EQ(ERANGE, errors_indexed(&self->s, 0, addr, leaf->length - 9,
					 10, lkey, 1));
	EXPECT_EQ(ERANGE, errors_indexed(&self->s, 0, addr, 1, 10, lkey,
					 leaf->length - 9));
	EXPECT_EQ(ERANGE, errors_indexed(&self->s, 0, addr, 1,
					 leaf->length + 1, lkey, 0));
	EXPECT_EQ(ERANGE, errors_indexed(&self->s, 0, addr, 1, 10, lkey,
					 UINT32_MAX));

	EXPECT_EQ(EOVERFLOW, errors_indexed(&self->s, 0, addr, 2, 10, lkey,
					    1ull << 63));
	EXPECT_EQ(EOVERFLOW, errors_indexed(&self->s, 0, addr, 1, 10, lkey,
					    UINT64_MAX));
	EXPECT_EQ(EOVERFLOW, errors_indexed(&self->s, 0, addr, UINT64_MAX, 10,
					    lkey, 2));
	EXPECT_EQ(EOVERFLOW, errors_indexed(&self->s, 0, UINT64_MAX - 8, 1, 10,
					    lkey, 0));
	/* only the sum of the bytes overflows */
	EXPECT_EQ(EOVERFLOW, errors_indexed(&self->s, 0, 0, 1, UINT64_MAX / 2,
					    lkey, 0));

	/* the last valid value of each */
	EXPECT_EQ(0, errors_indexed(&self->s, 0, end - 100, 90, 10, lkey, 1));
	EXPECT_EQ(0, errors_indexed(&self->s, 0, addr, leaf->length - 10, 10,
				    lkey, 1));
	EXPECT_EQ(0, errors_indexed(&self->s, 0, addr, 1, 10, lkey,
				    leaf->length - 10));
	EXPECT_EQ(0, mkt_layout_bind(key, &self->s.arena[1], &self->layout,
				     IBV_ACCESS_REMOTE_READ));
}

TEST_F(errors, nothing_described)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibv_mr *key = self->s.key[1];
	struct ibmkey_block block = {
		.addr = leaf->addr,
		.bytes_count = 10,
		.lkey = leaf->mr->lkey,
		.stride = { 10, 10, 10, 10, 10, 10, 10, 10 },
	};
	uint64_t repeat[IBMKEY_MAX_DIMS + 1] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };
	struct ibv_sge sge = {
		.addr = leaf->addr,
		.length = 10,
		.lkey = leaf->mr->lkey,
	};
	unsigned int d, max = self->s.dev[1].caps.max_dims;

	EXPECT_EQ(EINVAL, ibv_rereg_mr_sg(key, 0, 0, &sge));
	EXPECT_EQ(EINVAL, errors_list(&self->s, 0, leaf->addr, 0,
				      leaf->mr->lkey));
	EXPECT_EQ(EINVAL, errors_blocks(&self->s, 0, leaf->addr, 0,
					leaf->mr->lkey, 20, 3));
	EXPECT_EQ(EINVAL, errors_blocks(&self->s, 0, leaf->addr, 10,
					leaf->mr->lkey, 20, 0));
	EXPECT_EQ(EINVAL, ibv_rereg_mr_interleaved(key, 0, 1, repeat, 0,
						   &block));
	EXPECT_EQ(EINVAL, ibv_rereg_mr_interleaved(key, 0, 0, repeat, 1,
						   &block));
	EXPECT_EQ(EINVAL, ibv_rereg_mr_interleaved(key, 0, IBMKEY_MAX_DIMS + 1,
						   repeat, 1, &block));
	for (d = 0; d < max; d++) {
		repeat[d] = 0;
		EXPECT_EQ(EINVAL, ibv_rereg_mr_interleaved(key, 0, max, repeat,
							   1, &block));
		repeat[d] = 1;
	}
}

/* no field of a later version is known; only struct ibmkey_bind has any bit */
TEST_F(errors, comp_mask)
{
	const uint64_t known = IBMKEY_BIND_RKEY | IBMKEY_BIND_ANY_PORTION | IBMKEY_BIND_REMOTE_INV;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibv_mr *key = self->s.key[1];
	const struct ibmkey_range right = {
		.addr = leaf->addr, .length = 10, .lkey = leaf->mr->lkey,
	};
	struct ibmkey_range range[2];
	struct ibmkey_block block[2] = {};
	const uint32_t index = 1;
	struct ibmkey_indexed indexed = {
		.addr = leaf->addr, .unit = 10, .bytes_count = 10,
		.indices = (uintptr_t)&index, .index_bytes = 4, .num_indices = 1,
		.lkey = leaf->mr->lkey,
	};
	const uint64_t repeat = 1;
	struct ibmkey_bind bind = { .mkey = key };
	struct ibmkey_alloc_attr attr = { .max_entries = 1 };
	int before = mkt_dev_count(&self->s.dev[1], "mr");
	unsigned int bit, i;
	uint8_t text[512];

	for (i = 0; i < 2; i++) {
		range[i] = right;
		block[i].addr = right.addr;
		block[i].bytes_count = right.length;
		block[i].lkey = right.lkey;
	}
	for (bit = 0; bit < 64; bit++) {
		/* an entry has 32 bits, and the second of two has one set */
		range[1].comp_mask = 1u << bit % 32;
		block[1].comp_mask = 1u << bit % 32;
		indexed.comp_mask = 1u << bit % 32;
		EXPECT_EQ(EINVAL, ibmkey_bind_list(key, 0, 2, range));
		EXPECT_EQ(EINVAL, ibmkey_bind_interleaved(key, 0, 1, &repeat, 2, block));
		EXPECT_EQ(EINVAL, ibmkey_bind_indexed(key, 0, &indexed));
		bind.kind = IBMKEY_LIST;
		bind.num_entries = 2;
		bind.ranges = range;
		EXPECT_EQ(EINVAL, ibmkey_bind_many(&bind, 1, NULL));
		bind.kind = IBMKEY_INTERLEAVED;
		bind.blocks = block;
		bind.num_dims = 1;
		bind.repeat_count = &repeat;
		EXPECT_EQ(EINVAL, ibmkey_bind_many(&bind, 1, NULL));
		bind.kind = IBMKEY_INDEXED;
		bind.num_entries = 1;
		bind.indexed = &indexed;
		bind.num_dims = 0;
		bind.repeat_count = NULL;
		EXPECT_EQ(EINVAL, ibmkey_bind_many(&bind, 1, NULL));
		errno = 0;
		EXPECT_EQ(0, ibmkey_describe(&bind, text, sizeof(text)));
		EXPECT_EQ(EINVAL, errno);

		/* a call knows the bit of the rkey, a description all three */
		indexed.comp_mask = 0;
		bind.comp_mask = 1ull << bit;
		bind.rkey = key->rkey;
		if (bind.comp_mask != IBMKEY_BIND_RKEY)
			EXPECT_EQ(EINVAL, ibmkey_bind_many(&bind, 1, NULL));
		EXPECT_EQ(!(bind.comp_mask & known),
			  !ibmkey_describe(&bind, text, sizeof(text)))
		{
			TH_LOG("bit %u", bit);
		}
		bind.comp_mask = 0;
		bind.rkey = 0;

		attr.comp_mask = 1ull << bit;
		errno = 0;
		EXPECT_EQ(NULL, ibmkey_alloc_ex(self->s.dev[1].pd, &attr));
		EXPECT_EQ(EINVAL, errno);
	}
	EXPECT_EQ(before, mkt_dev_count(&self->s.dev[1], "mr"));
}

TEST_F(errors, unknown_access)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	unsigned int bit;

	/* a device supports none of these access flags */
	for (bit = 10; bit < 20; bit++) {
		EXPECT_NE(0, errors_list(&self->s, 1u << bit, leaf->addr, 10,
					 leaf->mr->lkey));
	}
	EXPECT_EQ(EINVAL, errors_list(&self->s, 1u << 31, leaf->addr, 10,
				      leaf->mr->lkey));
	EXPECT_EQ(EINVAL, errors_blocks(&self->s, 1u << 31, leaf->addr, 10,
					leaf->mr->lkey, 10, 1));
	/* remote write requires local write, as for any MR */
	EXPECT_EQ(EINVAL, errors_list(&self->s, IBV_ACCESS_REMOTE_WRITE,
				      leaf->addr, 10, leaf->mr->lkey));
	EXPECT_EQ(EINVAL, errors_list(&self->s, IBV_ACCESS_REMOTE_ATOMIC,
				      leaf->addr, 10, leaf->mr->lkey));
}

/*
 * reported as an unknown lkey, because otherwise a process could guess foreign
 * keys
 */
TEST_F(errors, wrong_pd)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	uint32_t lkey = self->other_pd->lkey;
	struct ibv_mr *key;

	EXPECT_EQ(ENOENT, errors_list(&self->s, 0, leaf->addr, 10, lkey));
	EXPECT_EQ(ENOENT, errors_list(&self->s, 0, leaf->addr, 10, lkey ^ 1));
	EXPECT_EQ(ENOENT, errors_blocks(&self->s, 0, leaf->addr, 10, lkey, 10,
					2));
	/* a key of the other PD, bound or unbound */
	key = ibmkey_alloc(self->pd2, 1);
	ASSERT_NE(NULL, key);
	EXPECT_EQ(ENOENT, errors_list(&self->s, 0, 0, 10, key->lkey));
	EXPECT_EQ(0, ibv_dereg_mr(key));
}

TEST_F(errors, unknown_lkey)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	uint32_t lkey = leaf->mr->lkey;

	EXPECT_EQ(ENOENT, errors_list(&self->s, 0, leaf->addr, 10, 0));
	EXPECT_EQ(ENOENT, errors_list(&self->s, 0, leaf->addr, 10, UINT32_MAX));
	/* an index that is in use, with another key portion */
	EXPECT_EQ(ENOENT, errors_list(&self->s, 0, leaf->addr, 10, lkey ^ 1));
	/* an index that is not in use */
	EXPECT_EQ(ENOENT, errors_list(&self->s, 0, leaf->addr, 10,
				      lkey ^ 0x40000000));
	EXPECT_EQ(ENOENT, errors_blocks(&self->s, 0, leaf->addr, 10,
					lkey ^ 0x40000000, 10, 2));
}

TEST_F(errors, freed_lkey)
{
	struct mkt_arena *arena = &self->s.arena[1];
	unsigned int last = arena->num_leaves;
	uint64_t addr;
	uint32_t lkey;

	ASSERT_EQ(0, mkt_arena_add_leaf(arena, 0, 0, 4096, MKT_ACCESS_ALL, 0));
	addr = arena->leaf[last].addr;
	lkey = arena->leaf[last].mr->lkey;
	ASSERT_EQ(0, ibv_dereg_mr(arena->leaf[last].mr));
	arena->num_leaves = last;
	EXPECT_EQ(ENOENT, errors_list(&self->s, 0, addr, 10, lkey));
}

/* a key cannot have an access flag that its leaf lacks */
TEST_F(errors, more_than_a_leaf)
{
	uint64_t addr = (uintptr_t)self->read_only->addr;
	uint32_t lkey = self->read_only->lkey;
	static const unsigned int refused[] = {
		IBV_ACCESS_LOCAL_WRITE, REMOTE_WRITE, REMOTE_ATOMIC,
		MKT_ACCESS_ALL,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		EXPECT_EQ(EACCES, errors_list(&self->s, refused[i], addr, 10,
					      lkey));
		EXPECT_EQ(EACCES, errors_blocks(&self->s, refused[i], addr, 10,
						lkey, 10, 2));
	}
	/* every MR with an lkey can be read */
	EXPECT_EQ(0, errors_list(&self->s, 0, addr, 10, lkey));
	EXPECT_EQ(0, errors_list(&self->s, IBV_ACCESS_REMOTE_READ, addr, 10,
				 lkey));
	EXPECT_EQ(0, mkt_layout_bind(self->s.key[1], &self->s.arena[1],
				     &self->layout, IBV_ACCESS_REMOTE_READ));
}

TEST_F(errors, too_many_entries)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibmkey_block blocks[9] = {};
	struct ibv_sge sge[9];
	uint64_t repeat = 2;
	unsigned int i;

	for (i = 0; i < 9; i++) {
		sge[i].addr = leaf->addr + 16 * i;
		sge[i].length = 8;
		sge[i].lkey = leaf->mr->lkey;
		blocks[i].addr = sge[i].addr;
		blocks[i].bytes_count = 8;
		blocks[i].lkey = leaf->mr->lkey;
	}
	EXPECT_EQ(ENOSPC, ibv_rereg_mr_sg(self->s.key[1], 0, 9, sge));
	EXPECT_EQ(ENOSPC, ibv_rereg_mr_interleaved(self->s.key[1], 0, 1,
						   &repeat, 9, blocks));
	EXPECT_EQ(0, ibv_rereg_mr_sg(self->s.key[1], 0, 8, sge));
	EXPECT_EQ(0, ibv_rereg_mr_interleaved(self->s.key[1], 0, 1, &repeat, 8,
					      blocks));
	EXPECT_EQ(0, mkt_layout_bind(self->s.key[1], &self->s.arena[1],
				     &self->layout, IBV_ACCESS_REMOTE_READ));
}

/* one byte too far at either end, by addresses, lengths and strides */
TEST_F(errors, out_of_range)
{
	unsigned int i;

	for (i = 0; i < 3; i++) {
		struct mkt_leaf *leaf = &self->s.arena[1].leaf[i];
		uint64_t addr = leaf->addr, end = addr + leaf->length;
		uint32_t lkey = leaf->mr->lkey;

		EXPECT_EQ(ERANGE, errors_list(&self->s, 0, end - 9, 10, lkey));
		EXPECT_EQ(ERANGE, errors_list(&self->s, 0, end, 1, lkey));
		EXPECT_EQ(ERANGE, errors_list(&self->s, 0, addr,
					      leaf->length + 1, lkey));
		EXPECT_EQ(ERANGE, errors_blocks(&self->s, 0, end - 9, 10, lkey,
						0, 1));
		/* the fourth block, forwards and backwards */
		EXPECT_EQ(ERANGE, errors_blocks(&self->s, 0, end - 39, 10, lkey,
						10, 4));
		/* there is no address before zero */
		EXPECT_EQ(addr ? ERANGE : EOVERFLOW,
			  errors_blocks(&self->s, 0, addr + 29, 10, lkey, -10,
					4));
		if (addr) {
			EXPECT_EQ(ERANGE, errors_list(&self->s, 0, addr - 1, 10,
						      lkey));
		}
		EXPECT_EQ(ERANGE, errors_list(&self->s, 0, UINT64_MAX - 20, 10,
					      lkey));
	}
}

TEST_F(errors, just_in_range)
{
	unsigned int i;

	for (i = 0; i < 3; i++) {
		struct mkt_leaf *leaf = &self->s.arena[1].leaf[i];
		uint64_t addr = leaf->addr, end = addr + leaf->length;
		uint32_t lkey = leaf->mr->lkey;

		EXPECT_EQ(0, errors_list(&self->s, 0, end - 10, 10, lkey));
		EXPECT_EQ(0, errors_list(&self->s, 0, end - 1, 1, lkey));
		EXPECT_EQ(0, errors_list(&self->s, 0, addr, leaf->length,
					 lkey));
		EXPECT_EQ(0, errors_blocks(&self->s, 0, end - 40, 10, lkey, 10,
					   4));
		EXPECT_EQ(0, errors_blocks(&self->s, 0, addr + 30, 10, lkey,
					   -10, 4));
	}
	EXPECT_EQ(0, mkt_layout_bind(self->s.key[1], &self->s.arena[1],
				     &self->layout, IBV_ACCESS_REMOTE_READ));
}

TEST_F(errors, overflow)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	uint32_t lkey = leaf->mr->lkey;
	uint64_t addr = leaf->addr;

	/* the last byte of a range; 2^64 - 1 is a valid address */
	EXPECT_EQ(EOVERFLOW, errors_list(&self->s, 0, UINT64_MAX - 8, 10,
					 lkey));
	EXPECT_EQ(EOVERFLOW, errors_blocks(&self->s, 0, UINT64_MAX - 8, 10,
					   lkey, 0, 1));
	EXPECT_EQ(ERANGE, errors_list(&self->s, 0, UINT64_MAX - 9, 10, lkey));
	EXPECT_EQ(ERANGE, errors_blocks(&self->s, 0, UINT64_MAX - 9, 10, lkey,
					0, 1));
	/* the last block */
	EXPECT_EQ(EOVERFLOW, errors_blocks(&self->s, 0, addr, 10, lkey,
					   INT64_MAX, 4));
	EXPECT_EQ(EOVERFLOW, errors_blocks(&self->s, 0, addr, 10, lkey,
					   INT64_MIN, 4));
	/* the length; all blocks are the same bytes */
	EXPECT_EQ(EOVERFLOW, errors_blocks(&self->s, 0, addr, 10, lkey, 0,
					   UINT64_MAX / 10));
	EXPECT_EQ(EOVERFLOW, errors_blocks(&self->s, 0, addr, UINT64_MAX, lkey,
					   0, 1));
}

/* a key over itself, and a key over an unbound one */
TEST_F(errors, leaf_key)
{
	struct ibv_mr *inner = ibmkey_alloc(self->s.dev[1].pd, 1);

	ASSERT_NE(NULL, inner);
	EXPECT_EQ(ELOOP, errors_list(&self->s, 0, 0, 10,
				     self->s.key[1]->lkey));
	EXPECT_EQ(ERANGE, errors_list(&self->s, 0, 0, 10, inner->lkey));
	EXPECT_EQ(0, ibv_dereg_mr(inner));
}

TEST_HARNESS_MAIN
