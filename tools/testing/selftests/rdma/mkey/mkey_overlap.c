// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Keys with overlapping blocks. Bytes are written in the order of the key's addresses:
 * of two bytes at one place the later one stays, within a packet and from packet to packet.
 * Reading such a key returns the same bytes several times.
 */
#include <stdlib.h>

#include "mkey_harness.h"

FIXTURE(overlap)
{
	struct mkt_setup s;
};

FIXTURE_VARIANT(overlap)
{
	enum ibv_mtu mtu;
};

FIXTURE_VARIANT_ADD(overlap, mtu1024) { .mtu = IBV_MTU_1024 };
FIXTURE_VARIANT_ADD(overlap, mtu4096) { .mtu = IBV_MTU_4096 };

/* the last leaf, whose few bytes are described often */
#define SMALL 4
#define SMALL_BYTES 1777

FIXTURE_SETUP(overlap)
{
	unsigned int i;

	MKT_SETUP(&self->s, .mtu = variant->mtu, .host = 64 * 1024, .dm = 32 * 1024,
		  .max_entries = 64);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, mkt_arena_add_leaf(&self->s.arena[i], 0, 20011,
						SMALL_BYTES, MKT_ACCESS_ALL,
						0));
	}
}

FIXTURE_TEARDOWN(overlap)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* the number of bytes of the key that overlap an earlier one */
static size_t overlap_count(const struct mkt_arena *arena,
			    const struct mkt_map *map, size_t length)
{
	uint8_t *seen = calloc(1, arena->size);
	size_t i, count = 0;

	if (!seen)
		return 0;
	for (i = 0; i < length; i++) {
		count += seen[map->pos[i]];
		seen[map->pos[i]] = 1;
	}
	free(seen);
	return count;
}

/* writes by every opcode, as a whole and from the middle, then reads */
static int overlap_run(struct mkt_setup *s, const struct mkt_layout *layout)
{
	/* the side of the key, by the side that posts */
	static const struct {
		enum mkt_op op;
		unsigned int side, key;
	} ways[] = {
		{ MKT_WRITE, 0, 1 },
		{ MKT_SEND, 0, 1 },
		{ MKT_WRITE_IMM, 1, 0 },
		{ MKT_READ, 0, 0 },
		{ MKT_READ, 0, 1 },
		{ MKT_SEND, 1, 1 },
	};
	size_t w, all;
	int err = 0;

	for (w = 0; w < ARRAY_SIZE(ways) && !err; w++) {
		unsigned int key = ways[w].key;
		struct mkt_end end, *ends[2];
		struct mkt_xfer xfer = {
			.op = ways[w].op,
			.side = ways[w].side,
			.num_sge = w % 2 ? 3 : 1,
		};

		err = mkt_end_key(&end, s->key[key], &s->arena[key], layout,
				  MKT_ACCESS_ALL);
		if (err)
			return err;
		all = end.map.length;
		if (!overlap_count(&s->arena[key], &end.map, all)) {
			mkt_diag("nothing overlaps");
			err = EINVAL;
		}
		ends[key] = &end;
		ends[!key] = &s->plain[!key];
		xfer.end[0] = ends[0];
		xfer.end[1] = ends[1];
		xfer.length = all;
		err = err ?: mkt_arena_fill(&s->arena[mkt_xfer_source(&xfer)],
					    &s->rng);
		err = err ?: mkt_xfer(&s->pair, &xfer);
		xfer.offset[key] = all / 3;
		xfer.length = all / 2;
		err = err ?: mkt_xfer(&s->pair, &xfer);
		mkt_end_free(&end);
	}
	if (err)
		mkt_layout_print(layout);
	return err;
}

/* one block, repeated at distances of all kinds */
TEST_F(overlap, strides)
{
	static const int64_t strides[] = { 0, 1, -1, 16, -16, 47, -47, 0 };
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(strides) - 1; i++) {
		for (j = i; j < i + 2; j++) {
			struct mkt_block block = {
				.leaf = j % 4,
				.offset = 14000,
				.bytes = 48,
				.stride = { strides[i], strides[j] },
			};
			struct mkt_layout layout = {
				.num_dims = 1 + j - i,
				.repeat = { 31, 9 },
				.num_blocks = 1,
				.block = &block,
			};

			if (layout.num_dims == 1)
				layout.repeat[0] = 31 * 9;
			if (layout.num_dims > self->s.dev[0].caps.max_dims)
				continue;
			ASSERT_EQ(0, overlap_run(&self->s, &layout));
		}
	}
}

/* a block that is longer than a packet: whole packets go to one place */
TEST_F(overlap, packets)
{
	struct mkt_block block = {
		.offset = 1001,
		.bytes = mkt_mtu_bytes(variant->mtu) + 100,
	};
	struct mkt_layout layout = mkt_layout_repeated(&block, 6);

	ASSERT_EQ(0, overlap_run(&self->s, &layout));
	block.stride[0] = -100;
	ASSERT_EQ(0, overlap_run(&self->s, &layout));
}

/* several blocks over the same bytes, in one leaf and by two leaves */
TEST_F(overlap, blocks)
{
	struct mkt_block block[] = {
		{ .leaf = 0, .offset = 20000, .bytes = 20, .stride = { 12 } },
		{ .leaf = 1, .offset = 4000, .bytes = 33, .stride = { 9 } },
		{ .leaf = 0, .offset = 20900, .bytes = 7, .stride = { -11 } },
		{ .leaf = 2, .offset = 700, .bytes = 5, .stride = { 3 } },
		{ .leaf = 3, .offset = 670, .bytes = 9, .stride = { 3 } },
	};
	struct mkt_layout layout = {
		.num_dims = 1,
		.repeat = { 80 },
		.num_blocks = ARRAY_SIZE(block),
		.block = block,
	};

	ASSERT_EQ(0, overlap_run(&self->s, &layout));
}

/* entries whose distance is less than their length, forwards and backwards */
TEST_F(overlap, list)
{
	struct mkt_block block[40];
	struct mkt_layout layout = {
		.num_blocks = ARRAY_SIZE(block),
		.block = block,
	};
	int step, i;

	for (step = -7; step <= 7; step += 7) {
		memset(block, 0, sizeof(block));
		for (i = 0; i < ARRAY_SIZE(block); i++) {
			block[i].leaf = i % 3 == 1;
			block[i].offset = i % 3 == 1 ? 4060 + i * step :
						       20000 + i * step;
			block[i].bytes = 333 - i;
		}
		ASSERT_EQ(0, overlap_run(&self->s, &layout));
	}
}

/* random layouts in a leaf that is far smaller than the description */
TEST_F(overlap, random)
{
	struct mkt_draw draw = {
		.min_length = 2 * SMALL_BYTES,
		.max_length = 20 * 1024,
		.max_block = 500,
		.max_blocks = 64,
		.max_dims = self->s.dev[0].caps.max_dims,
		.leaf_only = true,
		.leaf = SMALL,
	};
	unsigned int i, rounds = mkt_scale(40, 6);

	for (i = 0; i < rounds; i++) {
		enum mkt_kind kind = i % (draw.max_dims > 1 ?
					  MKT_NUM_KINDS : MKT_SUBARRAY);
		struct mkt_layout layout;
		int err;

		ASSERT_EQ(0, mkt_draw_layout(&layout, &self->s.rng,
					     &self->s.arena[0], kind, &draw));
		err = overlap_run(&self->s, &layout);
		mkt_layout_free(&layout);
		ASSERT_EQ(0, err);
	}
}

TEST_HARNESS_MAIN
