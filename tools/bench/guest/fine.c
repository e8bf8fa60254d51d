// SPDX-License-Identifier: GPL-2.0
/*
 * The cost of a packet through keys over keys of small pieces: READ and WRITE of 4 KiB by
 * the outermost key, and READ of as many contiguous bytes.
 */
#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "bench.h"

#define PACKET 4096
#define MAX_LEVELS 8
#define MAX_BLOCKS 16384

/* A level: blocks of @bytes bytes, repeated. */
struct shape {
	const char *name;
	unsigned int dims, num_blocks, bytes;
	/*
	 * Innermost first. There are as many repetitions in the outermost dimension as
	 * the level above needs, and at least this number.
	 */
	uint64_t count[IBMKEY_MAX_DIMS];
	int64_t stride[IBMKEY_MAX_DIMS];
	const struct shape *top;	/* of the outermost level, if it is another one */
	bool two;			/* every second block is of another MR of the memory */
};

static const struct shape third = { "every 3rd byte", 1, 1, 1, { 1 }, { 3 } };

static const struct shape shapes[] = {
	/* Rows of two pieces; those of the level above are in different rows. */
	{ "pairs of bytes", 2, 1, 1, { 2, 1 }, { 3, 2 } },
	{ "pairs of 2 bytes", 2, 1, 2, { 2, 1 }, { 6, 4 } },
	{ "pairs of 8 bytes", 2, 1, 8, { 2, 1 }, { 24, 16 } },
	/* Pieces that begin and end within those of the level below. */
	{ "3 of 5 bytes", 1, 1, 3, { 1 }, { 5 } },
	{ "pairs of 3 bytes", 2, 1, 3, { 2, 1 }, { 5, 11 } },
	{ "31 of 50 bytes", 1, 1, 31, { 1 }, { 50 } },
	/* One row of the outermost level is in many rows of the level below. */
	{ "pairs in a row", 2, 1, 1, { 2, 1 }, { 3, 2 }, .top = &third },
	{ "2 blocks of 2 bytes", 1, 2, 2, { 1 }, { 4 } },
	{ "8 dimensions", 8, 1, 1, { 2, 2, 2, 2, 2, 2, 2, 1 },
	  { 3, 5, 7, 11, 13, 17, 19, 101 } },
	{ "4096 blocks", 3, 4096, 1, { 2, 2, 8 }, { 2039, 4093, 8191 } },
	/* Blocks that are not repeated. */
	{ "list", 1, 16384, 1, { 1 }, { 0 } },
	{ "list of two MRs", 1, 16384, 1, { 1 }, { 0 }, .two = true },
	/* Pieces that line up. */
	{ "every 2nd byte", 1, 1, 1, { 1 }, { 2 } },
};

struct level {
	const struct shape *shape;
	uint64_t count[IBMKEY_MAX_DIMS];	/* innermost first */
	uint64_t length;
	struct ibv_mr *key;
};

struct fine {
	struct bench *bench;
	const struct shape *shape;
	uint64_t size;				/* of the memory */
	uint8_t *near, *far;
	struct ibv_mr *near_mr, *far_mr[2], *demand_mr[2];
	uint8_t *wanted;			/* of the memory after a WRITE */
	unsigned int levels;
	/* Outermost first; over pinned memory, and over ODP memory. */
	struct level level[MAX_LEVELS], demand[MAX_LEVELS];
};

/* Returns the address of block @index, in no order, where all indices are zero. */
static uint64_t block_at(const struct shape *shape, uint64_t index)
{
	return shape->num_blocks == 1 ? 0 : index * index * 7919 % 16381 * shape->bytes;
}

/* Gives @level at least @length bytes. Returns the number of bytes that it needs below. */
static uint64_t set_counts(struct level *level, uint64_t length)
{
	const struct shape *shape = level->shape;
	uint64_t reach = shape->num_blocks == 1 ? shape->bytes : 16381 * shape->bytes;
	unsigned int last = shape->dims - 1;

	memcpy(level->count, shape->count, sizeof(level->count));
	level->length = (uint64_t)shape->num_blocks * shape->bytes;
	for (unsigned int d = 0; d < last; d++)
		level->length *= level->count[d];
	/* A list has one repetition. */
	while (shape->stride[last] && level->length * level->count[last] < length)
		level->count[last]++;
	level->length *= level->count[last];
	for (unsigned int d = 0; d < shape->dims; d++)
		reach += (level->count[d] - 1) * shape->stride[d];
	return reach;
}

/* Returns the address, in the level below, of the byte at @offset. */
static uint64_t locate(const struct level *level, uint64_t offset)
{
	const struct shape *shape = level->shape;
	uint64_t group = (uint64_t)shape->num_blocks * shape->bytes;
	uint64_t tuple = offset / group, in_group = offset % group;
	uint64_t addr = block_at(shape, in_group / shape->bytes) + in_group % shape->bytes;

	for (unsigned int d = 0; d < shape->dims; d++, tuple /= level->count[d - 1])
		addr += tuple % level->count[d] * shape->stride[d];
	return addr;
}

/*
 * Binds a level over the MR or key @below, from address @addr on. Every second block is of
 * @other.
 */
static int bind_level(struct level *level, struct ibv_mr *below, struct ibv_mr *other,
		      uint64_t addr)
{
	const struct shape *shape = level->shape;
	static struct ibmkey_block blocks[MAX_BLOCKS];
	uint64_t count[IBMKEY_MAX_DIMS];

	for (unsigned int i = 0; i < shape->num_blocks; i++) {
		blocks[i] = (struct ibmkey_block) {
			.addr = addr + block_at(shape, i),
			.bytes_count = shape->bytes,
			.lkey = i % 2 ? other->lkey : below->lkey,
		};
		for (unsigned int d = 0; d < shape->dims; d++)
			blocks[i].stride[shape->dims - 1 - d] = shape->stride[d];
	}
	for (unsigned int d = 0; d < shape->dims; d++)
		count[shape->dims - 1 - d] = level->count[d];
	return ibv_rereg_mr_interleaved(level->key, ACCESS_ALL, shape->dims, count,
					shape->num_blocks, blocks);
}

static void reset(void *context)
{
	struct fine *fine = context;

	memset(fine->near, 0, PACKET);
}

static void reset_write(void *context)
{
	struct fine *fine = context;

	fill_random(fine->near, PACKET, fine->levels + 1);
}

static void read_from(struct fine *fine, uint64_t addr, struct ibv_mr *mr)
{
	const struct span span[2] = {
		{ (uintptr_t)fine->near, fine->near_mr }, { addr, mr },
	};

	move_span(fine->bench, OP_READ, span, PACKET, 1);
}

static void run_plain(void *context)
{
	struct fine *fine = context;

	read_from(fine, (uintptr_t)fine->far, fine->far_mr[0]);
}

static void run_nest(void *context)
{
	struct fine *fine = context;

	read_from(fine, 0, fine->level[0].key);
}

static void run_demand(void *context)
{
	struct fine *fine = context;

	read_from(fine, 0, fine->demand[0].key);
}

static void run_write(void *context)
{
	struct fine *fine = context;
	const struct span span[2] = {
		{ (uintptr_t)fine->near, fine->near_mr }, { 0, fine->level[0].key },
	};

	move_span(fine->bench, OP_WRITE, span, PACKET, 1);
}

/* Returns the position in the memory of byte @at of the outermost key. */
static uint64_t place_of(const struct fine *fine, uint64_t at)
{
	for (unsigned int l = 0; l < fine->levels; l++)
		at = locate(&fine->level[l], at);
	return at;
}

static void check_nest(void *context)
{
	struct fine *fine = context;

	for (unsigned int i = 0; i < PACKET; i++) {
		if (fine->near[i] != fine->far[place_of(fine, i)])
			errx(1, "byte %u through %u levels of %s is not the expected one",
			     i, fine->levels, fine->shape->name);
	}
}

static void check_write(void *context)
{
	struct fine *fine = context;

	for (unsigned int i = 0; i < PACKET; i++)
		fine->wanted[place_of(fine, i)] = fine->near[i];
	if (memcmp(fine->far, fine->wanted, fine->size))
		errx(1, "a WRITE through %u levels of %s wrote other bytes", fine->levels,
		     fine->shape->name);
}

/* Sets the number of bytes of each level and of the memory. */
static void set_levels(struct fine *fine)
{
	fine->size = PACKET;
	for (unsigned int l = 0; l < fine->levels; l++) {
		const struct shape *shape = fine->shape;

		fine->level[l].shape = !l && shape->top ? shape->top : shape;
		fine->size = set_counts(&fine->level[l], fine->size);
	}
	if (fine->size < PACKET)
		fine->size = PACKET;
	memcpy(fine->demand, fine->level, sizeof(fine->demand));
}

/* Binds the levels over @mr. Returns 0, or the error of a bind that was refused. */
static int open_levels(struct fine *fine, struct level *level, struct ibv_mr **mr)
{
	struct ibv_mr *below = mr[0], *other = mr[fine->shape->two];
	struct rc_dev *far = &fine->bench->dev[FAR];
	uint64_t addr = (uintptr_t)fine->far;
	int ret = 0;

	for (unsigned int l = fine->levels; l-- > 0;) {
		level[l].key = ibmkey_alloc(far->pd, MAX_BLOCKS);
		if (!level[l].key)
			err(1, "ibmkey_alloc");
		ret = ret ?: bind_level(&level[l], below, other, addr);
		below = level[l].key;
		other = below;
		addr = 0;
	}
	return ret;
}

static void close_levels(struct fine *fine, struct level *level)
{
	for (unsigned int l = 0; l < fine->levels && level[l].key; l++)
		must(ibv_dereg_mr(level[l].key), "ibv_dereg_mr of a key");
}

static void open_fine(struct fine *fine)
{
	struct rc_dev *dev = fine->bench->dev;

	set_levels(fine);
	fine->near = new_buffer(PACKET);
	fine->far = new_buffer(fine->size);
	fill_random(fine->far, fine->size, fine->levels);
	fine->wanted = new_buffer(fine->size);
	memcpy(fine->wanted, fine->far, fine->size);
	fine->near_mr = rc_reg(&dev[NEAR], fine->near, PACKET, ACCESS_ALL);
	for (unsigned int i = 0; i < 2; i++) {
		fine->far_mr[i] = rc_reg(&dev[FAR], fine->far, fine->size, ACCESS_ALL);
		fine->demand_mr[i] = rc_reg(&dev[FAR], fine->far, fine->size,
					    ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	}
}

static void close_fine(struct fine *fine)
{
	must(ibv_dereg_mr(fine->near_mr), "ibv_dereg_mr");
	for (unsigned int i = 0; i < 2; i++) {
		must(ibv_dereg_mr(fine->far_mr[i]), "ibv_dereg_mr");
		must(ibv_dereg_mr(fine->demand_mr[i]), "ibv_dereg_mr");
	}
	free(fine->near);
	free(fine->far);
	free(fine->wanted);
}

static void measure_levels(struct bench *bench, const struct shape *shape,
			   unsigned int levels)
{
	struct fine fine = { .bench = bench, .shape = shape, .levels = levels };
	const struct series series = {
		.group = "fine",
		.name = shape->name,
		.size = levels,
		.amount = 1,
		.unit = "operations",
	};
	const struct way ways[] = {
		{ "plain", reset, run_plain, NULL, &fine, 16 },
		{ "nest", reset, run_nest, check_nest, &fine, 1 },
		{ "write", reset_write, run_write, check_write, &fine, 1 },
		/* This nest takes more, and may be refused. */
		{ "demand", reset, run_demand, check_nest, &fine, 1 },
	};
	int ret, demand;

	open_fine(&fine);
	ret = open_levels(&fine, fine.level, fine.far_mr);
	demand = open_levels(&fine, fine.demand, fine.demand_mr);
	if (ret != ELOOP)
		must(ret, "bind");
	if (demand != ELOOP)
		must(demand, "bind");
	if (!ret)
		measure(bench, &series, ways, ARRAY_SIZE(ways) - !!demand);
	close_levels(&fine, fine.level);
	close_levels(&fine, fine.demand);
	close_fine(&fine);
}

void measure_fine(struct bench *bench)
{
	static const unsigned int levels[] = { 1, 2, 3, 4, 6, 8 };

	/* The memory grows with each level: with 8 it takes seconds to fill. */
	const unsigned int num = bench->quiet ? 3 : ARRAY_SIZE(levels);

	for (unsigned int s = 0; s < ARRAY_SIZE(shapes); s++)
		for (unsigned int l = 0; l < num; l++)
			measure_levels(bench, &shapes[s], levels[l]);
}
