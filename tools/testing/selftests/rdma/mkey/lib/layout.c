// SPDX-License-Identifier: GPL-2.0
/*
 * The reference implementation of layouts: it lists a key's bytes one by one,
 * directly from the definition, and shares no code with any other.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "mkey_test.h"

static size_t mkt_layout_length(const struct mkt_layout *layout)
{
	size_t length = 0;
	unsigned int i;

	for (i = 0; i < layout->num_blocks; i++)
		length += layout->block[i].bytes;
	for (i = 0; i < layout->num_dims; i++)
		length *= layout->repeat[i];
	return length;
}

static uint32_t mkt_leaf_pos(const struct mkt_leaf *leaf, uint64_t offset)
{
	if (leaf->pos && offset < leaf->length)
		return leaf->pos[offset];
	return leaf->at + offset;
}

/* all blocks for one tuple of indices; a list has only the empty tuple */
static void mkt_map_tuple(const struct mkt_arena *arena,
			  const struct mkt_layout *layout,
			  const uint64_t *index, struct mkt_map *map)
{
	unsigned int b, d;
	uint64_t i;

	for (b = 0; b < layout->num_blocks; b++) {
		const struct mkt_block *block = &layout->block[b];
		int64_t start = block->offset;

		for (d = 0; d < layout->num_dims; d++)
			start += (int64_t)index[d] * block->stride[d];
		for (i = 0; i < block->bytes; i++)
			map->pos[map->length++] =
				mkt_leaf_pos(&arena->leaf[block->leaf],
					     start + i);
	}
}

static void mkt_map_dims(const struct mkt_arena *arena,
			 const struct mkt_layout *layout, uint64_t *index,
			 unsigned int dim, struct mkt_map *map)
{
	if (dim == layout->num_dims) {
		mkt_map_tuple(arena, layout, index, map);
		return;
	}
	for (index[dim] = 0; index[dim] < layout->repeat[dim]; index[dim]++)
		mkt_map_dims(arena, layout, index, dim + 1, map);
}

struct mkt_layout mkt_layout_repeated(struct mkt_block *block, uint64_t count)
{
	return (struct mkt_layout){
		.num_dims = 1,
		.repeat = { count },
		.num_blocks = 1,
		.block = block,
	};
}

int mkt_layout_map(const struct mkt_arena *arena,
		   const struct mkt_layout *layout, struct mkt_map *map)
{
	uint64_t index[IBMKEY_MAX_DIMS];
	size_t i, length = mkt_layout_length(layout);

	map->length = 0;
	map->pos = malloc(length * sizeof(*map->pos));
	if (!map->pos)
		return ENOMEM;
	mkt_map_dims(arena, layout, index, 0, map);

	/* this would be a mistake of the test itself */
	for (i = 0; i < map->length; i++)
		if (map->pos[i] >= arena->size)
			abort();
	return 0;
}

void mkt_map_free(struct mkt_map *map)
{
	free(map->pos);
	map->pos = NULL;
	map->length = 0;
}

static int mkt_entries_of_list(struct mkt_entries *entries, const struct mkt_arena *arena,
			       const struct mkt_layout *layout)
{
	unsigned int i;

	entries->ranges = calloc(layout->num_blocks, sizeof(*entries->ranges));
	if (!entries->ranges)
		return ENOMEM;
	for (i = 0; i < layout->num_blocks; i++) {
		const struct mkt_block *block = &layout->block[i];

		entries->ranges[i].addr = arena->leaf[block->leaf].addr + block->offset;
		entries->ranges[i].length = block->bytes;
		entries->ranges[i].lkey = arena->leaf[block->leaf].mr->lkey;
	}
	entries->bind.kind = IBMKEY_LIST;
	entries->bind.ranges = entries->ranges;
	return 0;
}

static int mkt_entries_of_blocks(struct mkt_entries *entries, const struct mkt_arena *arena,
				 const struct mkt_layout *layout)
{
	unsigned int i;

	entries->blocks = calloc(layout->num_blocks, sizeof(*entries->blocks));
	if (!entries->blocks)
		return ENOMEM;
	for (i = 0; i < layout->num_blocks; i++) {
		const struct mkt_block *block = &layout->block[i];
		struct ibmkey_block *to = &entries->blocks[i];

		to->addr = arena->leaf[block->leaf].addr + block->offset;
		to->bytes_count = block->bytes;
		to->lkey = arena->leaf[block->leaf].mr->lkey;
		memcpy(to->stride, block->stride, layout->num_dims * sizeof(*to->stride));
	}
	entries->bind.kind = IBMKEY_INTERLEAVED;
	entries->bind.blocks = entries->blocks;
	entries->bind.num_dims = layout->num_dims;
	entries->bind.repeat_count = layout->repeat;
	return 0;
}

static int mkt_entries_of_indices(struct mkt_entries *entries, const struct mkt_arena *arena,
				  const struct mkt_layout *layout)
{
	const struct mkt_leaf *leaf = &arena->leaf[layout->block[0].leaf];
	bool small = layout->index_bytes == 4;
	unsigned int i;

	/*
	 * allocate exactly as many bytes, so that a read beyond them is found
	 */
	entries->indices = calloc(layout->num_blocks, layout->index_bytes);
	if (!entries->indices)
		return ENOMEM;
	for (i = 0; i < layout->num_blocks; i++) {
		uint64_t index = (layout->block[i].offset - layout->base) / layout->unit;

		if (small)
			((uint32_t *)entries->indices)[i] = index;
		else
			((uint64_t *)entries->indices)[i] = index;
	}
	entries->indexed = (struct ibmkey_indexed){
		.addr = leaf->addr + layout->base,
		.unit = layout->unit,
		.bytes_count = layout->block[0].bytes,
		.indices = (uintptr_t)entries->indices,
		.index_bytes = layout->index_bytes,
		.num_indices = layout->num_blocks,
		.lkey = leaf->mr->lkey,
	};
	entries->bind.kind = IBMKEY_INDEXED;
	entries->bind.indexed = &entries->indexed;
	entries->bind.num_entries = 1;
	return 0;
}

int mkt_layout_entries(struct mkt_entries *entries, const struct mkt_arena *arena,
		       const struct mkt_layout *layout)
{
	memset(entries, 0, sizeof(*entries));
	entries->bind.num_entries = layout->num_blocks;
	if (layout->index_bytes)
		return mkt_entries_of_indices(entries, arena, layout);
	if (layout->num_dims)
		return mkt_entries_of_blocks(entries, arena, layout);
	return mkt_entries_of_list(entries, arena, layout);
}

void mkt_entries_free(struct mkt_entries *entries)
{
	free(entries->ranges);
	free(entries->blocks);
	free(entries->indices);
}

int mkt_layout_bind(struct ibv_mr *key, const struct mkt_arena *arena,
		    const struct mkt_layout *layout, int access)
{
	struct mkt_entries entries;
	struct ibmkey_bind *bind = &entries.bind;
	int err = mkt_layout_entries(&entries, arena, layout);

	bind->mkey = key;
	bind->access = access;
	if (!err && layout->first)
		err = ibmkey_bind_at(bind, layout->first);
	else if (!err && layout->index_bytes)
		err = ibmkey_bind_indexed(key, access, &entries.indexed);
	else if (!err && layout->num_dims)
		err = ibv_rereg_mr_interleaved(key, access, layout->num_dims, layout->repeat,
					       bind->num_entries, entries.blocks);
	else if (!err)
		err = ibmkey_bind_list(key, access, bind->num_entries, entries.ranges);
	mkt_entries_free(&entries);
	if (err) {
		mkt_diag("bind: %s", strerror(err));
		mkt_layout_print(layout);
	}
	return err;
}

int mkt_bind_rows(struct ibv_mr *key, const struct mkt_leaf *leaf, enum mkt_rows rows,
		  unsigned int num, unsigned int step, int access)
{
	const struct mkt_arena arena = { .leaf[0] = *leaf };
	struct mkt_layout layout = {
		.num_dims = rows == MKT_ROWS_BLOCKS ? 1 : rows == MKT_ROWS_DIMS ? 8 : 0,
		.repeat = { 1 },
		.num_blocks = num,
		.block = calloc(num, sizeof(*layout.block)),
		.index_bytes = rows == MKT_ROWS_INDICES32 ? 4 : rows == MKT_ROWS_INDICES64 ? 8 : 0,
		.unit = 1,
	};
	unsigned int i;
	int err;

	if (!layout.block)
		return ENOMEM;
	for (i = 0; i < layout.num_dims && rows == MKT_ROWS_DIMS; i++)
		layout.repeat[i] = 2;
	for (i = 0; i < num; i++) {
		layout.block[i].offset = (uint64_t)i * step % leaf->length;
		layout.block[i].bytes = 1;
		layout.block[i].stride[7] = 1 + i % 3;
	}
	err = mkt_layout_bind(key, &arena, &layout, access);
	free(layout.block);
	return err;
}

void mkt_layout_print(const struct mkt_layout *layout)
{
	unsigned int i, d;

	mkt_diag("layout: %s of %u, %zu bytes",
		 layout->index_bytes ? "indexed" :
		 layout->num_dims ? "interleaved" : "list", layout->num_blocks,
		 mkt_layout_length(layout));
	if (layout->first)
		mkt_diag("  from address %" PRIx64 " on", layout->first);
	if (layout->index_bytes)
		mkt_diag("  base %" PRIu64 " unit %" PRIu64 ", indices of %u bytes",
			 layout->base, layout->unit, layout->index_bytes);
	for (d = 0; d < layout->num_dims; d++)
		mkt_diag("  repeat %" PRIu64, layout->repeat[d]);
	for (i = 0; i < layout->num_blocks && i < 8; i++) {
		const struct mkt_block *block = &layout->block[i];

		mkt_diag("  leaf %u offset %" PRIu64 " bytes %" PRIu64,
			 block->leaf, block->offset, block->bytes);
		for (d = 0; d < layout->num_dims; d++)
			mkt_diag("    stride %" PRId64, block->stride[d]);
	}
}

void mkt_layout_free(struct mkt_layout *layout)
{
	free(layout->block);
	layout->block = NULL;
}
