// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Traffic to and from device memory: every opcode, and several MRs at odd offsets over
 * one buffer, which all of them see.
 */
#include "mkey_harness.h"

FIXTURE(dm_rdma)
{
	struct mkt_setup s;
	struct mkt_end dm[2];
};

FIXTURE_VARIANT(dm_rdma)
{
	enum ibv_mtu mtu;
	unsigned int flags;
};

FIXTURE_VARIANT_ADD(dm_rdma, mtu1024) { .mtu = IBV_MTU_1024 };
FIXTURE_VARIANT_ADD(dm_rdma, mtu4096) { .mtu = IBV_MTU_4096 };
FIXTURE_VARIANT_ADD(dm_rdma, srq) { .mtu = IBV_MTU_1024, .flags = MKT_QP_SRQ };

FIXTURE_SETUP(dm_rdma)
{
	unsigned int i;

	MKT_SETUP(&self->s, .mtu = variant->mtu, .flags = variant->flags, .host = 128 * 1024,
		  .dm = 64 * 1024);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, mkt_end_leaf(&self->dm[i], &self->s.arena[i], 2));
	}
}

FIXTURE_TEARDOWN(dm_rdma)
{
	mkt_end_free(&self->dm[0]);
	mkt_end_free(&self->dm[1]);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

static int dm_run(struct mkt_setup *s, enum mkt_op op, struct mkt_end *end0,
		  struct mkt_end *end1)
{
	size_t m = mkt_mtu_bytes(s->pair.mtu);
	const size_t lengths[] = {
		1, 3, 64, m - 1, m, m + 1, 3 * m, 60000,
	};
	unsigned int l;
	int err = 0;

	for (l = 0; l < ARRAY_SIZE(lengths) && !err; l++) {
		struct mkt_xfer xfer = {
			.op = op,
			.side = l % 2,
			.end = { end0, end1 },
			.length = lengths[l],
			.num_sge = 1 + l % 3,
		};
		unsigned int i;

		for (i = 0; i < 2; i++) {
			size_t last = xfer.end[i]->map.length - lengths[l];

			xfer.offset[i] = mkt_between(&s->rng, 0, last);
		}
		err = mkt_arena_fill(&s->arena[mkt_xfer_source(&xfer)],
				     &s->rng);
		if (!err)
			err = mkt_xfer(&s->pair, &xfer);
	}
	return err;
}

TEST_F(dm_rdma, copies)
{
	static const enum mkt_op ops[] = {
		MKT_SEND, MKT_SEND_IMM, MKT_WRITE, MKT_WRITE_IMM, MKT_READ,
	};
	unsigned int o;

	for (o = 0; o < ARRAY_SIZE(ops); o++) {
		EXPECT_EQ(0, dm_run(&self->s, ops[o], &self->s.plain[0],
				    &self->dm[1]));
		EXPECT_EQ(0, dm_run(&self->s, ops[o], &self->dm[0],
				    &self->s.plain[1]));
		EXPECT_EQ(0, dm_run(&self->s, ops[o], &self->dm[0],
				    &self->dm[1]));
	}
}

TEST_F(dm_rdma, atomics)
{
	static const enum mkt_op ops[] = {
		MKT_FETCH_ADD, MKT_CMP_SWAP, MKT_CMP_SWAP, MKT_ATOMIC_WRITE,
	};
	struct mkt_end aligned;
	/* eight have each operation from each memory */
	unsigned int i, count = mkt_scale(40, 8);

	ASSERT_EQ(0, mkt_end_leaf(&aligned, &self->s.arena[1], 3));
	for (i = 0; i < count; i++) {
		struct mkt_xfer xfer = {
			.op = ops[i % 4],
			.end = { i & 4 ? &self->dm[0] : &self->s.plain[0],
				 &aligned },
			.offset = { 11 * i, 8 * (i / 4) * 100 },
			.length = 8,
			.num_sge = 1,
			.swap_add = mkt_rand(&self->s.rng),
		};
		size_t at = aligned.map.pos[xfer.offset[1]];

		if (i % 4 == 1)
			memcpy(&xfer.compare, self->s.arena[1].expect + at, 8);
		ASSERT_EQ(0, mkt_xfer(&self->s.pair, &xfer));
	}
	mkt_end_free(&aligned);
}

/* MRs over one buffer that overlap and have different addresses */
TEST_F(dm_rdma, several_regions)
{
	static const struct {
		size_t offset, length;
	} parts[] = {
		{ 0, 65536 }, { 1, 1 }, { 4095, 2 }, { 3, 8191 },
		{ 4096, 4096 }, { 12345, 54321 - 12345 }, { 65535, 1 },
	};
	struct mkt_arena *arena = &self->s.arena[1];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		unsigned int leaf = arena->num_leaves;
		struct mkt_end end;
		struct mkt_xfer xfer = {
			.op = i & 1 ? MKT_READ : MKT_WRITE,
			.end = { &self->s.plain[0], &end },
			.offset = { i },
			.length = parts[i].length,
			.num_sge = 1,
		};

		ASSERT_EQ(0, mkt_arena_add_leaf(arena, 1, parts[i].offset,
						parts[i].length,
						MKT_ACCESS_ALL, 0));
		ASSERT_EQ(0, mkt_end_leaf(&end, arena, leaf));
		EXPECT_EQ(0, mkt_xfer(&self->s.pair, &xfer));
		mkt_end_free(&end);
	}
}

TEST_F(dm_rdma, rights)
{
	struct mkt_arena *arena = &self->s.arena[1];
	unsigned int leaf = arena->num_leaves;
	struct mkt_wr wr = mkt_plain_wr(&self->s, 0, MKT_WRITE, 8, 0, 0);

	ASSERT_EQ(0, mkt_arena_add_leaf(arena, 1, 16, 1000,
					IBV_ACCESS_REMOTE_READ, 0));
	wr.rkey = arena->leaf[leaf].mr->rkey;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_status(&self->s.pair, 0, &wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	wr.op = MKT_FETCH_ADD;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_status(&self->s.pair, 0, &wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	/* beyond the MR's end, which is not the buffer's end */
	wr.op = MKT_READ;
	wr.remote_addr = 993;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_status(&self->s.pair, 0, &wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(0, mkt_arena_check(arena));
	wr.remote_addr = 992;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
}

/* the MR is deregistered while the memory stays */
TEST_F(dm_rdma, deregistered)
{
	struct mkt_arena *arena = &self->s.arena[1];
	unsigned int leaf = arena->num_leaves;
	struct mkt_wr wr = mkt_plain_wr(&self->s, 0, MKT_WRITE, 800, 0, 0);

	ASSERT_EQ(0, mkt_arena_add_leaf(arena, 1, 16, 1000, MKT_ACCESS_ALL,
					0));
	wr.rkey = arena->leaf[leaf].mr->rkey;
	ASSERT_EQ(0, ibv_dereg_mr(arena->leaf[leaf].mr));
	arena->num_leaves = leaf;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_status(&self->s.pair, 0, &wr));
	EXPECT_EQ(0, mkt_arena_check(arena));
}

TEST_HARNESS_MAIN
