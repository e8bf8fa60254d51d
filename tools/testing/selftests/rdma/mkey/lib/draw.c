// SPDX-License-Identifier: GPL-2.0
/* Random layouts that fit the leaves of an arena. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mkey_test.h"

static unsigned int mkt_draw_leaf(struct mkt_rng *rng,
				  const struct mkt_arena *arena,
				  const struct mkt_draw *draw)
{
	if (draw->leaf_only)
		return draw->leaf;
	return mkt_between(rng, 0, arena->num_leaves - 1);
}

static size_t mkt_min(size_t a, size_t b)
{
	return a < b ? a : b;
}

/*
 * Draws the strides of a block, then its place. The bytes that the strides
 * reach on both sides of the first block must also be in the leaf.
 */
static void mkt_draw_place(struct mkt_rng *rng, const struct mkt_layout *layout,
			   struct mkt_block *block, size_t leaf_length)
{
	uint64_t room = leaf_length - block->bytes, below = 0, above = 0;
	unsigned int d, order[IBMKEY_MAX_DIMS];

	for (d = 0; d < layout->num_dims; d++)
		order[d] = d;
	for (d = layout->num_dims; d > 1; d--) {
		unsigned int other = mkt_between(rng, 0, d - 1);
		unsigned int swap = order[d - 1];

		order[d - 1] = order[other];
		order[other] = swap;
	}

	/*
	 * in a random order, so that each dimension can get the largest stride
	 */
	for (d = 0; d < layout->num_dims; d++) {
		uint64_t steps = layout->repeat[order[d]] - 1;
		uint64_t max = steps ? room / steps : block->bytes;
		int64_t *stride = &block->stride[order[d]];
		uint64_t reach;

		switch (mkt_between(rng, 0, 5)) {
		case 0:		/* the same bytes again */
			*stride = 0;
			break;
		case 1:		/* no gap */
			*stride = mkt_min(block->bytes, max);
			break;
		default:
			*stride = mkt_between(rng, 0, max);
		}
		reach = steps * *stride;
		room -= reach;
		if (mkt_between(rng, 0, 2)) {
			above += reach;
		} else {
			*stride = -*stride;
			below += reach;
		}
	}
	block->offset = below +
			mkt_between(rng, 0, leaf_length - block->bytes -
				    below - above);
}

/* draws repetition counts whose product is at most @max */
static uint64_t mkt_draw_repeat(struct mkt_rng *rng, struct mkt_layout *layout,
				uint64_t max)
{
	uint64_t product = 1;
	unsigned int d;

	for (d = 0; d < layout->num_dims; d++) {
		layout->repeat[d] = mkt_rand_size(rng, max / product);
		product *= layout->repeat[d];
	}
	return product;
}

/* at least enough blocks for the minimum length, and often far more */
static int mkt_draw_indexed(struct mkt_layout *layout, struct mkt_rng *rng,
			    const struct mkt_arena *arena,
			    const struct mkt_draw *draw)
{
	unsigned int leaf = mkt_draw_leaf(rng, arena, draw);
	size_t length = arena->leaf[leaf].length;
	uint64_t bytes, max, last;
	unsigned int i;

	bytes = mkt_min(mkt_min(draw->max_block, length), draw->max_length);
	bytes = mkt_rand_size(rng, bytes);
	max = mkt_min(draw->max_blocks, draw->max_length / bytes);
	layout->num_blocks = mkt_rand_size(rng, max);
	if (layout->num_blocks * bytes < draw->min_length)
		return EAGAIN;
	layout->block = calloc(layout->num_blocks, sizeof(*layout->block));
	if (!layout->block)
		return ENOMEM;

	layout->index_bytes = mkt_between(rng, 0, 1) ? 4 : 8;
	/* blocks overlap, touch or have gaps */
	layout->unit = mkt_between(rng, 0, 2) ? bytes :
		       mkt_rand_size(rng, 2 * bytes);
	layout->base = mkt_between(rng, 0, length - bytes);
	if (mkt_between(rng, 0, 1))
		layout->base %= layout->unit;
	last = (length - bytes - layout->base) / layout->unit;
	for (i = 0; i < layout->num_blocks; i++) {
		struct mkt_block *block = &layout->block[i];
		uint64_t index = mkt_between(rng, 0, last);

		/* the next block, the same block, or any block */
		if (i && mkt_between(rng, 0, 1)) {
			index = (block[-1].offset - layout->base) / layout->unit;
			if (mkt_between(rng, 0, 3) && index < last)
				index++;
		}
		block->leaf = leaf;
		block->bytes = bytes;
		block->offset = layout->base + index * layout->unit;
	}
	return 0;
}

/* EAGAIN if the layout is too short */
static int mkt_draw_once(struct mkt_layout *layout, struct mkt_rng *rng,
			 const struct mkt_arena *arena, enum mkt_kind kind,
			 const struct mkt_draw *draw)
{
	bool several = kind == MKT_LIST || kind == MKT_INTERLEAVED ||
		       kind == MKT_GENERAL;
	size_t sum = 0;
	unsigned int i;

	memset(layout, 0, sizeof(*layout));
	if (kind == MKT_INDEXED)
		return mkt_draw_indexed(layout, rng, arena, draw);
	if (kind == MKT_STRIDED || kind == MKT_INTERLEAVED)
		layout->num_dims = 1;
	else if (kind != MKT_LIST)
		layout->num_dims = mkt_between(rng, 2, draw->max_dims);

	layout->num_blocks = several ? mkt_rand_size(rng, draw->max_blocks) : 1;
	if (several && kind != MKT_LIST && layout->num_blocks < 2)
		layout->num_blocks = 2;
	layout->block = calloc(layout->num_blocks, sizeof(*layout->block));
	if (!layout->block)
		return ENOMEM;

	/* draw the repetitions first, so that large blocks occur, too */
	for (i = 0; i < layout->num_blocks; i++) {
		struct mkt_block *block = &layout->block[i];
		size_t more = layout->num_blocks - 1 - i;
		size_t left = draw->max_length - sum;
		size_t most = mkt_min(left - more, 1 + 4 * left / (more + 1));
		size_t length;

		block->leaf = mkt_draw_leaf(rng, arena, draw);
		length = arena->leaf[block->leaf].length;
		most = mkt_min(most, mkt_min(draw->max_block, length));
		block->bytes = mkt_rand_size(rng, most);
		sum += block->bytes;
	}
	sum *= mkt_draw_repeat(rng, layout, draw->max_length / sum);
	if (sum < draw->min_length) {
		mkt_layout_free(layout);
		return EAGAIN;
	}
	for (i = 0; i < layout->num_blocks; i++) {
		struct mkt_block *block = &layout->block[i];

		mkt_draw_place(rng, layout, block,
			       arena->leaf[block->leaf].length);
	}
	return 0;
}

int mkt_draw_layout(struct mkt_layout *layout, struct mkt_rng *rng,
		    const struct mkt_arena *arena, enum mkt_kind kind,
		    const struct mkt_draw *draw)
{
	unsigned int tries = 10000;
	int err;

	do
		err = mkt_draw_once(layout, rng, arena, kind, draw);
	while (err == EAGAIN && --tries);
	return err;
}

uint64_t mkt_draw_first(struct mkt_rng *rng)
{
	/* the library refuses atomic operations at other addresses */
	return mkt_between(rng, 0, 1) ? 0 : (mkt_rand(rng) >> mkt_between(rng, 1, 60)) & ~7ull;
}
