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

static int mkt_bind_list(struct ibv_mr *key, const struct mkt_arena *arena,
			 const struct mkt_layout *layout, int access)
{
	struct ibv_sge *sge;
	unsigned int i;
	int err;

	sge = calloc(layout->num_blocks, sizeof(*sge));
	if (!sge)
		return ENOMEM;
	for (i = 0; i < layout->num_blocks; i++) {
		const struct mkt_block *block = &layout->block[i];

		sge[i].addr = arena->leaf[block->leaf].addr + block->offset;
		sge[i].length = block->bytes;
		sge[i].lkey = arena->leaf[block->leaf].mr->lkey;
	}
	err = ibv_rereg_mr_sg(key, access, layout->num_blocks, sge);
	free(sge);
	return err;
}

static int mkt_bind_interleaved(struct ibv_mr *key,
				const struct mkt_arena *arena,
				const struct mkt_layout *layout, int access)
{
	struct ibmkey_block *blocks;
	unsigned int i;
	int err;

	blocks = calloc(layout->num_blocks, sizeof(*blocks));
	if (!blocks)
		return ENOMEM;
	for (i = 0; i < layout->num_blocks; i++) {
		const struct mkt_block *block = &layout->block[i];

		blocks[i].addr = arena->leaf[block->leaf].addr + block->offset;
		blocks[i].bytes_count = block->bytes;
		blocks[i].lkey = arena->leaf[block->leaf].mr->lkey;
		memcpy(blocks[i].stride, block->stride, sizeof(block->stride));
	}
	err = ibv_rereg_mr_interleaved(key, access, layout->num_dims,
				       layout->repeat, layout->num_blocks,
				       blocks);
	free(blocks);
	return err;
}

static int mkt_bind_indexed(struct ibv_mr *key, const struct mkt_arena *arena,
			    const struct mkt_layout *layout, int access)
{
	const struct mkt_leaf *leaf = &arena->leaf[layout->block[0].leaf];
	struct ibmkey_indexed indexed = {
		.addr = leaf->addr + layout->base,
		.unit = layout->unit,
		.bytes_count = layout->block[0].bytes,
		.num_indices = layout->num_blocks,
		.lkey = leaf->mr->lkey,
	};
	bool small = layout->index_bytes == 4;
	uint32_t *indices32;
	uint64_t *indices64;
	unsigned int i;
	int err;

	/*
	 * allocate exactly as many bytes, so that a read beyond them is found
	 */
	indices32 = calloc(small ? layout->num_blocks : 1, sizeof(*indices32));
	indices64 = calloc(small ? 1 : layout->num_blocks, sizeof(*indices64));
	if (!indices32 || !indices64) {
		free(indices32);
		free(indices64);
		return ENOMEM;
	}
	for (i = 0; i < layout->num_blocks; i++) {
		uint64_t index;

		index = (layout->block[i].offset - layout->base) / layout->unit;
		if (small)
			indices32[i] = index;
		else
			indices64[i] = index;
	}
	indexed.indices32 = small ? indices32 : NULL;
	indexed.indices64 = small ? NULL : indices64;
	err = ibmkey_bind_indexed(key, access, &indexed);
	free(indices32);
	free(indices64);
	return err;
}

int mkt_layout_bind(struct ibv_mr *key, const struct mkt_arena *arena,
		    const struct mkt_layout *layout, int access)
{
	int err;

	if (layout->index_bytes)
		err = mkt_bind_indexed(key, arena, layout, access);
	else if (layout->num_dims)
		err = mkt_bind_interleaved(key, arena, layout, access);
	else
		err = mkt_bind_list(key, arena, layout, access);
	if (err) {
		mkt_diag("bind: %s", strerror(err));
		mkt_layout_print(layout);
	}
	return err;
}

void mkt_layout_print(const struct mkt_layout *layout)
{
	unsigned int i, d;

	mkt_diag("layout: %s of %u, %zu bytes",
		 layout->index_bytes ? "indexed" :
		 layout->num_dims ? "interleaved" : "list", layout->num_blocks,
		 mkt_layout_length(layout));
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
