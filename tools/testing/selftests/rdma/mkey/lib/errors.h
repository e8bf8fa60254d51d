/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A bound key on which binds are refused: the set-up of the tests, and binds
 * with one wrong entry, block or index. The key is compared at the end.
 */
#ifndef MKEY_TEST_ERRORS_H
#define MKEY_TEST_ERRORS_H

#include "mkey_harness.h"

FIXTURE(errors)
{
	struct mkt_setup s;
	struct mkt_layout layout;
	struct mkt_end end;
	struct ibv_mr *read_only;
	struct ibv_pd *pd2;
	struct ibv_mr *other_pd;
};

/* side 1 is under test; its key is always bound */
FIXTURE_SETUP(errors)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.host = 64 * 1024,
		.dm = 16 * 1024,
		.max_entries = 8,
	};
	struct mkt_draw draw = {
		.min_length = 1000,
		.max_length = 8000,
		.max_block = 4000,
		.max_blocks = 8,
		.max_dims = 1,
	};
	struct mkt_arena *arena = &self->s.arena[1];

	MKT_OPEN_EXTENDED(self->s.dev);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	ASSERT_EQ(0, mkt_arena_add_leaf(arena, 0, 4096, 4096, 0, 0));
	self->read_only = arena->leaf[arena->num_leaves - 1].mr;
	ASSERT_EQ(0, mkt_draw_layout(&self->layout, &self->s.rng, arena,
				     MKT_INTERLEAVED, &draw));
	ASSERT_EQ(0, mkt_end_key(&self->end, self->s.key[1], arena,
				 &self->layout, IBV_ACCESS_REMOTE_READ));
	self->pd2 = ibv_alloc_pd(self->s.dev[1].ctx);
	ASSERT_NE(NULL, self->pd2);
	self->other_pd = ibv_reg_mr(self->pd2, arena->mem[0].host, 4096,
				    MKT_ACCESS_ALL);
	ASSERT_NE(NULL, self->other_pd);
}

/* the old binding still works, with every byte in its place */
static inline int errors_unchanged(struct mkt_setup *s, struct mkt_end *end,
				   const struct mkt_layout *layout)
{
	struct ibmkey_info info;
	struct mkt_xfer xfer = {
		.op = MKT_READ,
		.end = { &s->plain[0], end },
		.length = end->map.length,
		.num_sge = 1,
	};
	int err;

	err = ibmkey_query(s->key[1], &info);
	if (err)
		return err;
	if (info.kind != IBMKEY_INTERLEAVED ||
	    info.num_entries != layout->num_blocks ||
	    info.length != end->map.length ||
	    s->key[1]->length != end->map.length ||
	    (info.access & ~IBV_ACCESS_ZERO_BASED) != IBV_ACCESS_REMOTE_READ) {
		mkt_diag("the key is not what it was");
		return EBADMSG;
	}
	err = mkt_arena_fill(&s->arena[1], &s->rng);
	return err ?: mkt_xfer(&s->pair, &xfer);
}

FIXTURE_TEARDOWN(errors)
{
	EXPECT_EQ(0, errors_unchanged(&self->s, &self->end, &self->layout));
	EXPECT_EQ(0, ibv_dereg_mr(self->other_pd));
	EXPECT_EQ(0, ibv_dealloc_pd(self->pd2));
	mkt_end_free(&self->end);
	mkt_layout_free(&self->layout);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

static inline int errors_list(struct mkt_setup *s, unsigned int access, uint64_t addr,
			      uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge[2] = {
		{
			.addr = s->arena[1].leaf[0].addr,
			.length = 10,
			.lkey = s->arena[1].leaf[0].mr->lkey,
		},
		{ .addr = addr, .length = length, .lkey = lkey },
	};

	return ibv_rereg_mr_sg(s->key[1], access, 2, sge);
}

static inline int errors_blocks(struct mkt_setup *s, unsigned int access,
				uint64_t addr, uint64_t bytes, uint32_t lkey,
				int64_t stride, uint64_t repeat)
{
	struct ibmkey_block blocks[2] = {
		{
			.addr = s->arena[1].leaf[0].addr,
			.bytes_count = 10,
			.lkey = s->arena[1].leaf[0].mr->lkey,
		},
		{
			.addr = addr,
			.bytes_count = bytes,
			.lkey = lkey,
			.stride = { stride },
		},
	};

	return ibv_rereg_mr_interleaved(s->key[1], access, 1, &repeat, 2,
					blocks);
}

/* -1 if 4-byte and 8-byte indices give different results */
static inline int errors_indexed(struct mkt_setup *s, unsigned int access,
				 uint64_t addr, uint64_t unit, uint64_t bytes,
				 uint32_t lkey, uint64_t index)
{
	const uint64_t indices[3] = { 0, index, 0 };
	const uint32_t small[3] = { 0, index, 0 };
	struct ibmkey_indexed layout = {
		.addr = addr,
		.unit = unit,
		.bytes_count = bytes,
		.indices = (uintptr_t)indices,
		.index_bytes = 8,
		.num_indices = 3,
		.lkey = lkey,
	};
	int err;

	err = ibmkey_bind_indexed(s->key[1], access, &layout);
	if (index > UINT32_MAX)
		return err;
	layout.indices = (uintptr_t)small;
	layout.index_bytes = 4;
	return ibmkey_bind_indexed(s->key[1], access, &layout) == err ? err :
								       -1;
}

#endif /* MKEY_TEST_ERRORS_H */
