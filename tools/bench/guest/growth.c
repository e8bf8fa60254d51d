// SPDX-License-Identifier: GPL-2.0
/*
 * Measures how the cost of one access grows with what a key describes: blocks,
 * entries, levels. An access is a WRITE of 4 KiB to the middle of the key; it is
 * compared with one to ordinary memory. Also measures the access that costs most:
 * a WRITE of 4 KiB to single bytes, each in another page.
 */
#include <err.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "bench.h"

#define ACCESS (4 * KIB)
#define BLOCK 64
/* Blocks of this number are apart; a layout of more blocks repeats them. */
#define APART 4096ull
#define MAX_BLOCKS (1ull << 32)
#define MAX_ENTRIES 65536
#define MAX_LEVELS 8
#define RANGES 8
#define PAGE (4 * KIB)
#define TIMES 16
#define UNTOUCHED 0xa5

struct growth {
	struct bench *bench;
	uint8_t *near, *far;
	struct ibv_mr *near_mr, *far_mr;
	size_t far_size;
	struct ibv_mr *key;
	uint64_t at;			/* where in the key */
	/* The place in far memory of each block of the access. */
	size_t place[ACCESS / BLOCK];
};

static void reset(void *context)
{
	struct growth *growth = context;

	memset(growth->far, UNTOUCHED, growth->far_size);
}

static void run_contiguous(void *context)
{
	struct growth *growth = context;
	const struct span span[2] = {
		{ (uintptr_t)growth->near, growth->near_mr },
		{ (uintptr_t)growth->far, growth->far_mr },
	};

	move_span(growth->bench, OP_WRITE, span, ACCESS, 1);
}

static void check_contiguous(void *context)
{
	struct growth *growth = context;

	if (memcmp(growth->far, growth->near, ACCESS))
		errx(1, "%llu contiguous bytes are not the expected ones", ACCESS);
}

static void run_key(void *context)
{
	struct growth *growth = context;
	const struct span span[2] = {
		{ (uintptr_t)growth->near, growth->near_mr },
		{ growth->at, growth->key },
	};

	move_span(growth->bench, OP_WRITE, span, ACCESS, 1);
}

/* The blocks are in their places, and nothing else was written. */
static void check_key(void *context)
{
	struct growth *growth = context;

	for (unsigned int i = 0; i < ARRAY_SIZE(growth->place); i++) {
		uint8_t *block = growth->far + growth->place[i];

		if (memcmp(block, growth->near + i * BLOCK, BLOCK))
			errx(1, "block %u of an access to %" PRIu64 " is not the expected one",
			     i, growth->at);
		memset(block, UNTOUCHED, BLOCK);
	}
	for (size_t i = 0; i < growth->far_size; i++)
		if (growth->far[i] != UNTOUCHED)
			errx(1, "an access to %" PRIu64 " wrote byte %zu", growth->at, i);
}

static void measure_access(struct growth *growth, const char *name, uint64_t size)
{
	const struct series series = {
		.group = "growth",
		.name = name,
		.size = size,
		.amount = 1,
		.unit = "operations",
	};
	const struct way ways[] = {
		{ "contiguous", reset, run_contiguous, check_contiguous, growth, TIMES },
		{ "key", reset, run_key, check_key, growth, TIMES },
	};

	measure(growth->bench, &series, ways, ARRAY_SIZE(ways));
}

static struct ibv_mr *new_key(struct growth *growth, unsigned int entries)
{
	struct ibv_mr *key = ibmkey_alloc(growth->bench->dev[FAR].pd, entries);

	if (!key)
		err(1, "ibmkey_alloc for %u entries", entries);
	return key;
}

/* Binds @key to @count blocks with gaps of the same size, over and over. */
static void bind_blocks(struct growth *growth, struct ibv_mr *key, uint64_t count)
{
	const uint64_t inner = count < APART ? count : APART;
	const uint64_t repeat[2] = { count / inner, inner };
	const struct ibmkey_block block = {
		.addr = (uintptr_t)growth->far,
		.bytes_count = BLOCK,
		.lkey = growth->far_mr->lkey,
		.stride = { 0, 2 * BLOCK },
	};

	must(ibv_rereg_mr_interleaved(key, ACCESS_ALL, 2, repeat, 1, &block),
	     "ibv_rereg_mr_interleaved");
}

/* An access to block @first of those that bind_blocks() or a list has. */
static void aim(struct growth *growth, uint64_t first, size_t distance)
{
	growth->at = first * BLOCK;
	for (unsigned int i = 0; i < ARRAY_SIZE(growth->place); i++)
		growth->place[i] = (first + i) % APART * distance;
}

static void measure_blocks(struct growth *growth)
{
	const unsigned int shift = growth->bench->quiet ? 8 : 4;

	growth->key = new_key(growth, 1);
	for (uint64_t count = 256; count <= MAX_BLOCKS; count <<= shift) {
		bind_blocks(growth, growth->key, count);
		aim(growth, count / 2, 2 * BLOCK);
		measure_access(growth, "blocks", count);
	}
	must(ibv_dereg_mr(growth->key), "ibv_dereg_mr of a key");
}

/* Distances alternate, so that no entries form a row. */
static size_t entry_place(size_t i)
{
	return i % APART * 2 * BLOCK + (i % 2 ? BLOCK / 2 : 0);
}

static void measure_entries(struct growth *growth)
{
	struct ibv_sge *list = calloc(MAX_ENTRIES, sizeof(*list));

	if (!list)
		err(1, "list of %u entries", MAX_ENTRIES);
	for (size_t i = 0; i < MAX_ENTRIES; i++)
		list[i] = (struct ibv_sge) {
			.addr = (uintptr_t)growth->far + entry_place(i),
			.length = BLOCK,
			.lkey = growth->far_mr->lkey,
		};
	for (size_t count = 256; count <= MAX_ENTRIES; count *= 4) {
		growth->key = new_key(growth, count);
		must(ibv_rereg_mr_sg(growth->key, ACCESS_ALL, count, list),
		     "ibv_rereg_mr_sg");
		growth->at = count / 2 * BLOCK;
		for (unsigned int i = 0; i < ARRAY_SIZE(growth->place); i++)
			growth->place[i] = entry_place(count / 2 + i);
		measure_access(growth, "entries", count);
		must(ibv_dereg_mr(growth->key), "ibv_dereg_mr of a key");
	}
	free(list);
}

/* Each level is a list of ranges of the one below; level 1 is strided. */
static void measure_levels(struct growth *growth)
{
	const uint64_t bytes = APART * BLOCK;
	struct ibv_mr *key[MAX_LEVELS];

	aim(growth, APART / 2, 2 * BLOCK);
	for (unsigned int level = 0; level < MAX_LEVELS; level++) {
		struct ibv_sge sge[RANGES];

		key[level] = new_key(growth, RANGES);
		for (unsigned int i = 0; level && i < RANGES; i++)
			sge[i] = (struct ibv_sge) {
				.addr = i * (bytes / RANGES),
				.length = bytes / RANGES,
				.lkey = key[level - 1]->lkey,
			};
		if (level)
			must(ibv_rereg_mr_sg(key[level], ACCESS_ALL, RANGES, sge),
			     "ibv_rereg_mr_sg");
		else
			bind_blocks(growth, key[level], APART);
		growth->key = key[level];
		measure_access(growth, "levels", level + 1);
	}
	for (unsigned int level = MAX_LEVELS; level > 0; level--)
		must(ibv_dereg_mr(key[level - 1]), "ibv_dereg_mr of a key");
}

/* The memory of single bytes: one in each page, of two MRs in turn. */
struct scattered {
	struct growth *growth;
	uint8_t *memory;
	struct ibv_mr *mr[2], *key;
};

static size_t byte_place(size_t i)
{
	/* The distances alternate, so that no entries form a strided segment. */
	return i * PAGE + (i % 2 ? 8 : 0);
}

static void run_bytes(void *context)
{
	struct scattered *scattered = context;
	struct growth *growth = scattered->growth;
	const struct span span[2] = {
		{ (uintptr_t)growth->near, growth->near_mr },
		{ 0, scattered->key },
	};

	move_span(growth->bench, OP_WRITE, span, ACCESS, 1);
}

static void check_bytes(void *context)
{
	struct scattered *scattered = context;

	for (size_t i = 0; i < ACCESS; i++) {
		uint8_t *byte = scattered->memory + byte_place(i);

		if (*byte != scattered->growth->near[i])
			errx(1, "byte %zu of single bytes is not the expected one", i);
		*byte = UNTOUCHED;
	}
}

static void scattered_open(struct growth *growth, struct scattered *scattered,
			   unsigned int num_mrs, int access)
{
	struct rc_dev *dev = &growth->bench->dev[FAR];
	struct ibv_sge *list = calloc(ACCESS, sizeof(*list));

	if (!list)
		err(1, "list of %llu entries", ACCESS);
	scattered->growth = growth;
	scattered->memory = new_buffer(ACCESS * PAGE);
	for (unsigned int i = 0; i < num_mrs; i++)
		scattered->mr[i] = rc_reg(dev, scattered->memory, ACCESS * PAGE,
					  ACCESS_ALL | access);
	for (size_t i = 0; i < ACCESS; i++)
		list[i] = (struct ibv_sge) {
			.addr = (uintptr_t)scattered->memory + byte_place(i),
			.length = 1,
			.lkey = scattered->mr[i % num_mrs]->lkey,
		};
	scattered->key = new_key(growth, ACCESS);
	must(ibv_rereg_mr_sg(scattered->key, ACCESS_ALL, ACCESS, list), "ibv_rereg_mr_sg");
	free(list);
}

static void scattered_close(struct scattered *scattered)
{
	must(ibv_dereg_mr(scattered->key), "ibv_dereg_mr of a key");
	for (unsigned int i = 0; i < 2 && scattered->mr[i]; i++)
		must(ibv_dereg_mr(scattered->mr[i]), "ibv_dereg_mr");
	free(scattered->memory);
}

static void measure_bytes(struct growth *growth)
{
	struct scattered one = {}, two = {}, one_odp = {}, two_odp = {};
	const struct series series = {
		.group = "worst",
		.name = "single bytes",
		.size = ACCESS,
		.amount = 1,
		.unit = "operations",
	};
	const struct way ways[] = {
		{ "contiguous", reset, run_contiguous, check_contiguous, growth, TIMES },
		{ "one", NULL, run_bytes, check_bytes, &one, 1 },
		{ "two", NULL, run_bytes, check_bytes, &two, 1 },
		{ "one_odp", NULL, run_bytes, check_bytes, &one_odp, 1 },
		{ "two_odp", NULL, run_bytes, check_bytes, &two_odp, 1 },
	};

	scattered_open(growth, &one, 1, 0);
	scattered_open(growth, &two, 2, 0);
	scattered_open(growth, &one_odp, 1, IBV_ACCESS_ON_DEMAND);
	scattered_open(growth, &two_odp, 2, IBV_ACCESS_ON_DEMAND);
	/* The pages of the MRs on demand arrive now. */
	run_bytes(&one_odp);
	run_bytes(&two_odp);
	measure(growth->bench, &series, ways, ARRAY_SIZE(ways));
	scattered_close(&two_odp);
	scattered_close(&one_odp);
	scattered_close(&two);
	scattered_close(&one);
}

void measure_growth(struct bench *bench)
{
	struct growth growth = { .bench = bench, .far_size = 2 * BLOCK * APART };

	growth.near = new_buffer(ACCESS);
	growth.far = new_buffer(growth.far_size);
	growth.near_mr = rc_reg(&bench->dev[NEAR], growth.near, ACCESS, ACCESS_ALL);
	growth.far_mr = rc_reg(&bench->dev[FAR], growth.far, growth.far_size, ACCESS_ALL);
	fill_random(growth.near, ACCESS, 5);
	measure_blocks(&growth);
	measure_entries(&growth);
	measure_levels(&growth);
	measure_bytes(&growth);
	must(ibv_dereg_mr(growth.far_mr), "ibv_dereg_mr");
	must(ibv_dereg_mr(growth.near_mr), "ibv_dereg_mr");
	free(growth.far);
	free(growth.near);
}
