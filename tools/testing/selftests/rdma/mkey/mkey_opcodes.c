// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Every kind of layout and every opcode that moves bytes, with the key on either side
 * or on both, and messages that end near packet boundaries.
 * sets: long
 */
#include "mkey_harness.h"

FIXTURE(opcodes)
{
	struct mkt_setup s;
	struct mkt_end end[2];
};

FIXTURE_VARIANT(opcodes)
{
	enum mkt_kind kind;
	enum ibv_mtu mtu;
	unsigned int flags;
	bool dm_only;
};

#define MKT_VARIANT(name, ...)						\
	FIXTURE_VARIANT_ADD(opcodes, name##_1024)			\
	{ .mtu = IBV_MTU_1024, __VA_ARGS__ };				\
	FIXTURE_VARIANT_ADD(opcodes, name##_4096)			\
	{ .mtu = IBV_MTU_4096, __VA_ARGS__ }

MKT_VARIANT(list, .kind = MKT_LIST);
MKT_VARIANT(list_dm, .kind = MKT_LIST, .dm_only = true);
MKT_VARIANT(indexed, .kind = MKT_INDEXED);
MKT_VARIANT(indexed_dm, .kind = MKT_INDEXED, .dm_only = true);
MKT_VARIANT(strided, .kind = MKT_STRIDED);
MKT_VARIANT(strided_dm, .kind = MKT_STRIDED, .dm_only = true);
MKT_VARIANT(strided_srq, .kind = MKT_STRIDED, .flags = MKT_QP_SRQ);
MKT_VARIANT(interleaved, .kind = MKT_INTERLEAVED);
MKT_VARIANT(subarray, .kind = MKT_SUBARRAY);
MKT_VARIANT(general, .kind = MKT_GENERAL);

FIXTURE_SETUP(opcodes)
{
	struct mkt_wants wants = {
		.mtu = variant->mtu,
		.flags = variant->flags,
		.host = 96 * 1024,
		.dm = 48 * 1024,
		.max_entries = 64,
	};

	MKT_OPEN_EXTENDED(self->s.dev);
	if (self->s.dev[0].caps.max_dims < 2 && variant->kind >= MKT_SUBARRAY)
		SKIP(return, "the device has one dimension only");
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
}

FIXTURE_TEARDOWN(opcodes)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* binds the key of @side to a new random layout */
static int opcodes_bind(struct mkt_setup *s, struct mkt_end *end,
			unsigned int side,
			const FIXTURE_VARIANT(opcodes) *variant)
{
	struct mkt_draw draw = {
		/* enough for mixed_lists and for three packets */
		.min_length = 3 * mkt_mtu_bytes(variant->mtu) + 400,
		.max_length = 40 * 1024,
		.max_block = 16 * 1024,
		.max_blocks = 64,
		.max_dims = s->dev[side].caps.max_dims,
		.leaf_only = variant->dm_only,
		.leaf = 2,
	};

	return mkt_end_draw(end, s, side, variant->kind, &draw, MKT_ACCESS_ALL);
}

static int opcodes_lengths(struct mkt_setup *s, struct mkt_end *const end[2],
			   enum mkt_op op, unsigned int side, enum ibv_mtu mtu)
{
	size_t m = mkt_mtu_bytes(mtu);
	const size_t lengths[] = {
		1, m - 1, m + 1, 3 * m + 1,
		/* left out in a short run */
		2, 7, 255, m, 2 * m - 1, 2 * m,
	};
	unsigned int l, n = mkt_scale(ARRAY_SIZE(lengths), 4);
	int err = 0;

	for (l = 0; l < n && !err; l++) {
		struct mkt_xfer xfer = {
			.op = op,
			.side = side,
			.end = { end[0], end[1] },
			.length = lengths[l],
			.num_sge = mkt_between(&s->rng, 1, 4),
		};
		unsigned int i;

		for (i = 0; i < 2; i++) {
			size_t last = end[i]->map.length - lengths[l];

			xfer.offset[i] = mkt_between(&s->rng, 0, last);
		}
		err = mkt_arena_fill(&s->arena[mkt_xfer_source(&xfer)],
				     &s->rng);
		if (!err)
			err = mkt_xfer(&s->pair, &xfer);
	}
	return err;
}

/*
 * a key on this side, on the other, on both; and all of that in the other
 * direction
 */
static int opcodes_run(struct mkt_setup *s, enum mkt_op op,
		       const FIXTURE_VARIANT(opcodes) *variant)
{
	unsigned int keys, side, i;

	for (keys = 1; keys < 4; keys++) {
		struct mkt_end key[2] = {}, *end[2];
		int err = 0;

		for (i = 0; i < 2 && !err; i++) {
			end[i] = &s->plain[i];
			if (keys & (1 << i)) {
				end[i] = &key[i];
				err = opcodes_bind(s, end[i], i, variant);
			}
		}
		for (side = 0; side < 2 && !err; side++)
			if (!mkt_quick() || side == (keys & 1))
				err = opcodes_lengths(s, end, op, side,
						      variant->mtu);
		for (i = 0; i < 2; i++)
			mkt_end_free(&key[i]);
		if (err)
			return err;
	}
	return 0;
}

TEST_F(opcodes, send)
{
	ASSERT_EQ(0, opcodes_run(&self->s, MKT_SEND, variant));
}

TEST_F(opcodes, send_with_imm)
{
	ASSERT_EQ(0, opcodes_run(&self->s, MKT_SEND_IMM, variant));
}

TEST_F(opcodes, write)
{
	ASSERT_EQ(0, opcodes_run(&self->s, MKT_WRITE, variant));
}

TEST_F(opcodes, write_with_imm)
{
	ASSERT_EQ(0, opcodes_run(&self->s, MKT_WRITE_IMM, variant));
}

TEST_F(opcodes, read)
{
	ASSERT_EQ(0, opcodes_run(&self->s, MKT_READ, variant));
}

/* as many requests at once as the responder tracks, and more */
TEST_F(opcodes, queued)
{
	static const enum mkt_op ops[] = { MKT_WRITE, MKT_READ, MKT_SEND };
	struct mkt_end key[2] = {};
	unsigned int o, i, count = mkt_scale(40, 20);

	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, opcodes_bind(&self->s, &key[i], i, variant));
	}
	for (o = 0; o < ARRAY_SIZE(ops); o++) {
		struct mkt_xfer xfer = {
			.op = ops[o],
			.end = { &key[0], &key[1] },
			.offset = { 100 + o, 200 - o },
			.length = 2 * mkt_mtu_bytes(variant->mtu) + 3,
			.num_sge = 2,
		};
		struct mkt_arena *source;

		source = &self->s.arena[mkt_xfer_source(&xfer)];
		ASSERT_EQ(0, mkt_arena_fill(source, &self->s.rng));
		ASSERT_EQ(0, mkt_xfer_queue(&self->s.pair, &xfer,
					    count));
	}
	mkt_end_free(&key[0]);
	mkt_end_free(&key[1]);
}

/* unaligned scatter/gather lists of keys, MRs and device memory */
TEST_F(opcodes, mixed_lists)
{
	static const enum mkt_op ops[] = { MKT_SEND, MKT_WRITE, MKT_READ };
	static const struct {
		unsigned int end;	/* region, key, device memory */
		size_t offset, length;
	} parts[] = {
		{ 0, 100, 333 }, { 1, 7, 1200 }, { 2, 1001, 77 }, { 1, 0, 5 },
		{ 0, 5000, 1 }, { 1, 900, 1801 },
	};
	struct mkt_setup *s = &self->s;
	struct mkt_end here[3] = {}, there = {};
	struct mkt_wr wr = {}, recv = {};
	struct mkt_result result;
	size_t p, i, done;
	unsigned int o;

	ASSERT_EQ(0, mkt_end_leaf(&here[0], &s->arena[0], 0));
	ASSERT_EQ(0, opcodes_bind(s, &here[1], 0, variant));
	ASSERT_EQ(0, mkt_end_leaf(&here[2], &s->arena[0], 2));
	ASSERT_EQ(0, opcodes_bind(s, &there, 1, variant));
	for (o = 0; o < ARRAY_SIZE(ops); o++) {
		uint8_t *to = s->arena[1].expect, *from = s->arena[0].expect;

		wr.op = ops[o];
		wr.rkey = there.mr->rkey;
		wr.num_sge = ARRAY_SIZE(parts);
		ASSERT_EQ(0, mkt_arena_fill(&s->arena[ops[o] == MKT_READ],
					    &s->rng));
		for (p = 0, done = 0; p < ARRAY_SIZE(parts); p++) {
			struct mkt_end *end = &here[parts[p].end];

			wr.sge[p].addr = end->addr + parts[p].offset;
			wr.sge[p].length = parts[p].length;
			wr.sge[p].lkey = end->mr->lkey;
			for (i = 0; i < parts[p].length; i++) {
				uint32_t a = end->map.pos[parts[p].offset + i];
				uint32_t b = there.map.pos[done++];

				if (ops[o] == MKT_READ)
					from[a] = to[b];
				else
					to[b] = from[a];
			}
		}
		recv.num_sge = 1;
		recv.sge[0].length = done;
		recv.sge[0].lkey = there.mr->lkey;
		ASSERT_EQ(0, mkt_exec(&s->pair, 0, &wr,
				      ops[o] == MKT_SEND ? &recv : NULL,
				      &result));
		ASSERT_EQ(IBV_WC_SUCCESS, result.status);
		ASSERT_EQ(0, mkt_arena_check(&s->arena[0]));
		ASSERT_EQ(0, mkt_arena_check(&s->arena[1]));
	}
	for (i = 0; i < 3; i++)
		mkt_end_free(&here[i]);
	mkt_end_free(&there);
}

TEST_HARNESS_MAIN
