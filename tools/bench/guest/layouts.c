// SPDX-License-Identifier: GPL-2.0
/*
 * Blocks of one size at places that no single stride describes: by a key at
 * each end, packed, and the same number of contiguous bytes.
 */
#include <err.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "bench.h"

#define MAX_BYTES MIB
#define MAX_BLOCKS 4096
#define UNTOUCHED 0xa5
/* Repetitions in the two inner dimensions of three. */
#define INNER 8

enum shape { THREE_DIMS, FOUR_BLOCKS, UNEVEN_LIST, INDEXED };

static const char *const shape_names[] = {
	[THREE_DIMS] = "3 dimensions",
	[FOUR_BLOCKS] = "4 blocks",
	[UNEVEN_LIST] = "uneven list",
	[INDEXED] = "indexed",
};

/* The four blocks of a record, and the record's length, in blocks. */
static const size_t fields[] = { 0, 2, 5, 9 };
#define RECORD 12

struct side {
	uint8_t *memory, *packed;
	struct ibv_mr *mr, *packed_mr, *key;
};

struct layouts {
	struct bench *bench;
	enum op op;
	enum shape shape;
	size_t block, count, bytes, span;
	size_t *offset;			/* of each block in a side's memory */
	uint32_t *index;
	uint8_t *expected;
	struct side side[2];
	struct side *from, *to;
};

/* Exchanges the indices at random, so that few have equal distances. */
static void shuffle(uint32_t *index, size_t count)
{
	uint32_t x = 1;

	for (size_t i = 0; i < count; i++)
		index[i] = i;
	for (size_t i = count - 1; i > 0; i--) {
		size_t other;
		uint32_t swap;

		x = x * 1664525 + 1013904223;
		other = (x >> 8) % (i + 1);
		swap = index[i];
		index[i] = index[other];
		index[other] = swap;
	}
}

/* Bytes from one block to the next in each of three dimensions. */
static void strides(size_t block, __s64 stride[3])
{
	stride[2] = 2 * block;
	stride[1] = INNER * stride[2] + block;
	stride[0] = INNER * stride[1] + block;
}

static size_t offset_of(const struct layouts *layouts, size_t i)
{
	const size_t block = layouts->block;
	__s64 stride[3];

	switch (layouts->shape) {
	case THREE_DIMS:
		strides(block, stride);
		return i / (INNER * INNER) * stride[0] +
		       i / INNER % INNER * stride[1] + i % INNER * stride[2];
	case FOUR_BLOCKS:
		return (i / ARRAY_SIZE(fields) * RECORD +
			fields[i % ARRAY_SIZE(fields)]) * block;
	case UNEVEN_LIST:
		/* No two adjacent distances are equal. */
		return 2 * i * block + i * 5 % 13 * (block / 16 ?: 1);
	case INDEXED:
		break;
	}
	return 2 * layouts->index[i] * block;
}

static void bind_list(const struct layouts *layouts, struct side *side)
{
	struct ibv_sge *list = calloc(layouts->count, sizeof(*list));

	if (!list)
		err(1, "list of %zu entries", layouts->count);
	for (size_t i = 0; i < layouts->count; i++)
		list[i] = (struct ibv_sge) {
			.addr = (uintptr_t)side->memory + layouts->offset[i],
			.length = layouts->block,
			.lkey = side->mr->lkey,
		};
	must(ibv_rereg_mr_sg(side->key, ACCESS_ALL, layouts->count, list),
	     "ibv_rereg_mr_sg");
	free(list);
}

static void bind_indexed(const struct layouts *layouts, struct side *side)
{
	const struct ibmkey_indexed indexed = {
		.addr = (uintptr_t)side->memory,
		.unit = 2 * layouts->block,
		.bytes_count = layouts->block,
		.indices = (uintptr_t)layouts->index,
		.index_bytes = sizeof(*layouts->index),
		.num_indices = layouts->count,
		.lkey = side->mr->lkey,
	};

	must(ibmkey_bind_indexed(side->key, ACCESS_ALL, &indexed),
	     "ibmkey_bind_indexed");
}

static void bind_blocks(const struct layouts *layouts, struct side *side)
{
	const bool dims = layouts->shape == THREE_DIMS;
	const unsigned int num_blocks = dims ? 1 : ARRAY_SIZE(fields);
	const uint64_t repeat[3] = {
		layouts->count / (dims ? INNER * INNER : num_blocks), INNER, INNER,
	};
	struct ibmkey_block blocks[ARRAY_SIZE(fields)] = {};

	for (unsigned int b = 0; b < num_blocks; b++) {
		blocks[b] = (struct ibmkey_block) {
			.addr = (uintptr_t)side->memory + fields[b] * layouts->block,
			.bytes_count = layouts->block,
			.lkey = side->mr->lkey,
			.stride = { RECORD * layouts->block },
		};
		if (dims)
			strides(layouts->block, blocks[b].stride);
	}
	must(ibv_rereg_mr_interleaved(side->key, ACCESS_ALL, dims ? 3 : 1, repeat,
				      num_blocks, blocks),
	     "ibv_rereg_mr_interleaved");
}

static void side_open(struct layouts *layouts, int at)
{
	struct rc_dev *dev = &layouts->bench->dev[at];
	struct side *side = &layouts->side[at];

	side->memory = new_buffer(layouts->span);
	side->packed = new_buffer(layouts->bytes);
	side->mr = rc_reg(dev, side->memory, layouts->span, ACCESS_ALL);
	side->packed_mr = rc_reg(dev, side->packed, layouts->bytes, ACCESS_ALL);
	side->key = ibmkey_alloc(dev->pd, layouts->count);
	if (!side->key)
		err(1, "ibmkey_alloc for %zu entries", layouts->count);
	switch (layouts->shape) {
	case UNEVEN_LIST:
		bind_list(layouts, side);
		break;
	case INDEXED:
		bind_indexed(layouts, side);
		break;
	default:
		bind_blocks(layouts, side);
	}
}

static void side_close(struct side *side)
{
	must(ibv_dereg_mr(side->key), "ibv_dereg_mr of a key");
	must(ibv_dereg_mr(side->mr), "ibv_dereg_mr");
	must(ibv_dereg_mr(side->packed_mr), "ibv_dereg_mr");
	free(side->memory);
	free(side->packed);
}

static inline __attribute__((always_inline)) void
gather_blocks(const struct layouts *layouts, const struct side *side, size_t block)
{
	for (size_t i = 0; i < layouts->count; i++)
		memcpy(side->packed + i * block, side->memory + layouts->offset[i],
		       block);
}

static inline __attribute__((always_inline)) void
scatter_blocks(const struct layouts *layouts, const struct side *side, size_t block)
{
	for (size_t i = 0; i < layouts->count; i++)
		memcpy(side->memory + layouts->offset[i], side->packed + i * block,
		       block);
}

/* A program for one block size would have a loop that knows the size. */
static void pack(const struct layouts *layouts, const struct side *side)
{
	switch (layouts->block) {
	case 1:
		return gather_blocks(layouts, side, 1);
	case 8:
		return gather_blocks(layouts, side, 8);
	case 64:
		return gather_blocks(layouts, side, 64);
	default:
		return gather_blocks(layouts, side, layouts->block);
	}
}

static void unpack(const struct layouts *layouts, const struct side *side)
{
	switch (layouts->block) {
	case 1:
		return scatter_blocks(layouts, side, 1);
	case 8:
		return scatter_blocks(layouts, side, 8);
	case 64:
		return scatter_blocks(layouts, side, 64);
	default:
		return scatter_blocks(layouts, side, layouts->block);
	}
}

static void reset(void *context)
{
	struct layouts *layouts = context;

	memset(layouts->to->memory, UNTOUCHED, layouts->span);
	memset(layouts->to->packed, UNTOUCHED, layouts->bytes);
}

static void check(void *context)
{
	struct layouts *layouts = context;

	if (memcmp(layouts->to->memory, layouts->expected, layouts->span))
		errx(1, "%s of %zu bytes: the blocks or the bytes between them are not the expected ones",
		     shape_names[layouts->shape], layouts->block);
}

static void check_contiguous(void *context)
{
	struct layouts *layouts = context;

	if (memcmp(layouts->to->packed, layouts->from->packed, layouts->bytes))
		errx(1, "%zu contiguous bytes are not the expected ones",
		     layouts->bytes);
}

static void run_contiguous(void *context)
{
	struct layouts *layouts = context;
	const struct side *near = &layouts->side[NEAR], *far = &layouts->side[FAR];
	const struct span span[2] = {
		{ (uintptr_t)near->packed, near->packed_mr },
		{ (uintptr_t)far->packed, far->packed_mr },
	};

	move_span(layouts->bench, layouts->op, span, layouts->bytes, 1);
}

static void run_key(void *context)
{
	struct layouts *layouts = context;
	const struct span span[2] = {
		{ 0, layouts->side[NEAR].key },
		{ 0, layouts->side[FAR].key },
	};

	move_span(layouts->bench, layouts->op, span, layouts->bytes, 1);
}

static void run_packed(void *context)
{
	struct layouts *layouts = context;

	pack(layouts, layouts->from);
	run_contiguous(context);
	unpack(layouts, layouts->to);
}

/* Sets where the blocks are, and what the destination must become. */
static void place(struct layouts *layouts)
{
	layouts->bytes = layouts->block * layouts->count;
	layouts->offset = calloc(layouts->count, sizeof(*layouts->offset));
	layouts->index = calloc(layouts->count, sizeof(*layouts->index));
	if (!layouts->offset || !layouts->index)
		err(1, "%zu places", layouts->count);
	shuffle(layouts->index, layouts->count);
	for (size_t i = 0; i < layouts->count; i++) {
		size_t end;

		layouts->offset[i] = offset_of(layouts, i);
		end = layouts->offset[i] + layouts->block;
		if (layouts->span < end)
			layouts->span = end;
	}
	layouts->expected = new_buffer(layouts->span);
	memset(layouts->expected, UNTOUCHED, layouts->span);
}

static void measure_shape(struct bench *bench, enum shape shape, size_t block,
			  size_t count)
{
	struct layouts layouts = {
		.bench = bench,
		.op = OP_WRITE,
		.shape = shape,
		.block = block,
		.count = count,
	};
	const unsigned int times = scaled(bench, MAX_BYTES / (block * count), 1);
	const struct series series = {
		.group = "layouts",
		.name = shape_names[shape],
		.size = block,
		.amount = block * count,
		.unit = "bytes",
	};
	const struct way ways[] = {
		{ "contiguous", reset, run_contiguous, check_contiguous, &layouts, times },
		{ "key", reset, run_key, check, &layouts, times },
		{ "packed", reset, run_packed, check, &layouts, times },
	};

	place(&layouts);
	for (int at = 0; at < 2; at++)
		side_open(&layouts, at);
	layouts.from = &layouts.side[source_of(layouts.op)];
	layouts.to = &layouts.side[!source_of(layouts.op)];
	fill_random(layouts.from->memory, layouts.span, block + shape);
	fill_random(layouts.from->packed, layouts.bytes, block);
	for (size_t i = 0; i < count; i++)
		memcpy(layouts.expected + layouts.offset[i],
		       layouts.from->memory + layouts.offset[i], block);

	measure(bench, &series, ways, ARRAY_SIZE(ways));
	for (int at = 0; at < 2; at++)
		side_close(&layouts.side[at]);
	free(layouts.expected);
	free(layouts.index);
	free(layouts.offset);
}

void measure_layouts(struct bench *bench)
{
	static const enum shape shapes[] = { THREE_DIMS, FOUR_BLOCKS, UNEVEN_LIST, INDEXED };

	for (unsigned int s = 0; s < ARRAY_SIZE(shapes); s++)
		for (size_t block = 1; block <= 4 * KIB; block *= 8) {
			const size_t most = MAX_BYTES / block;
			const size_t count = most < MAX_BLOCKS ? most : MAX_BLOCKS;

			measure_shape(bench, shapes[s], block,
				      scaled(bench, count, INNER * INNER));
		}
}
