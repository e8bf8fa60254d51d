// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Lists the bytes of layouts, and the bytes that MPI packs. */
#include <stdlib.h>
#include <string.h>

#include "draw.h"

/* The lists of the bytes of each group of a layout. */
struct listing {
	const struct ibmkey_mpi_layout *layout;
	int64_t **at;
	uint64_t *bytes;
};

static uint64_t group_bytes(const struct ibmkey_mpi_group *g)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < g->num_blocks; i++)
		all += g->blocks[i].bytes_count;
	for (uint32_t d = 0; d < g->num_dims; d++)
		all *= g->repeat[d];
	return all;
}

/* Appends the offsets of a block's bytes, which may be in another key. */
static bool list_block(const struct listing *l, const struct ibmkey_block *block, int64_t at,
		       int64_t *to, uint64_t *n)
{
	for (uint64_t k = 0; k < block->bytes_count; k++, at++) {
		if (block->lkey && (at < 0 || (uint64_t)at >= l->bytes[block->lkey - 1]))
			return false;
		to[(*n)++] = block->lkey ? l->at[block->lkey - 1][at] : at;
	}
	return true;
}

/* Lists the bytes of group @number; the groups that it refers to are listed before. */
static bool list_group(struct listing *l, uint32_t number)
{
	const struct ibmkey_mpi_group *g = &l->layout->groups[number];
	uint64_t index[IBMKEY_MAX_DIMS] = { 0 }, n = 0;
	int d;

	l->bytes[number] = group_bytes(g);
	if (l->bytes[number] > 64 * (uint64_t)MAX_BYTES)
		return false;
	l->at[number] = malloc((l->bytes[number] + 1) * sizeof(**l->at));
	do {
		for (uint32_t i = 0; i < g->num_blocks; i++) {
			int64_t at = g->blocks[i].addr;

			if (g->blocks[i].lkey > number)
				return false;
			for (d = 0; d < (int)g->num_dims; d++)
				at += (int64_t)index[d] * g->blocks[i].stride[d];
			if (!list_block(l, &g->blocks[i], at, l->at[number], &n))
				return false;
		}
		for (d = g->num_dims - 1; d >= 0 && ++index[d] == g->repeat[d]; d--)
			index[d] = 0;
	} while (d >= 0);
	return true;
}

int64_t *list_layout(const struct ibmkey_mpi_layout *layout, size_t bytes)
{
	uint32_t n = layout->num_groups;
	struct listing l = {
		.layout = layout,
		.at = calloc(n + 1, sizeof(*l.at)),
		.bytes = calloc(n + 1, sizeof(*l.bytes)),
	};
	int64_t *whole = NULL;
	bool good = layout->length == bytes;

	for (uint32_t i = 0; i < n && good; i++)
		good = list_group(&l, i);
	if (good && (n ? l.bytes[n - 1] : 0) == bytes)
		whole = n ? l.at[n - 1] : malloc(sizeof(*whole));
	for (uint32_t i = 0; i < n; i++)
		if (l.at[i] != whole)
			free(l.at[i]);
	free(l.at);
	free(l.bytes);
	return whole;
}

void list_packed(MPI_Datatype type, int count, int64_t low, int64_t high, size_t size,
		 int64_t *to)
{
	/* If Open MPI packs a type wrongly, it may read memory before or after the type's bytes. */
	const size_t beside = 1 << 16, span = high - low;
	unsigned char *memory = malloc(span + 2 * beside), *packed = malloc(size + 1);

	memset(to, 0, size * sizeof(*to));
	for (int shift = 0; shift < 24; shift += 8) {
		int position = 0;

		memset(memory, 0, span + 2 * beside);
		memset(packed, 0, size + 1);
		for (size_t i = 0; i < span; i++)
			memory[beside + i] = i >> shift;
		MPI_Pack(memory + beside - low, count, type, packed, size, &position,
			 MPI_COMM_SELF);
		for (size_t i = 0; i < size; i++)
			to[i] |= (int64_t)packed[i] << shift;
	}
	for (size_t i = 0; i < size; i++)
		to[i] += low;
	free(memory);
	free(packed);
}
