// SPDX-License-Identifier: GPL-2.0
/*
 * Measures allocating and freeing device memory while much of it is allocated,
 * compared with registering ordinary memory; and copies to and from device
 * memory, compared with memcpy().
 */
#include <err.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "bench.h"

#define BUFFER 4096
#define BATCH 32

struct alloc {
	struct bench *bench;
	struct ibv_dm *dm[BATCH];
	struct ibv_mr *mr[BATCH];
	uint8_t *memory;
};

static struct ibv_dm *new_dm(struct rc_dev *dev, size_t length)
{
	struct ibv_alloc_dm_attr attr = { .length = length };
	struct ibv_dm *dm = ibv_alloc_dm(dev->ctx, &attr);

	if (!dm)
		err(1, "ibv_alloc_dm of %zu bytes", length);
	return dm;
}

static void alloc_and_free(void *context)
{
	struct alloc *alloc = context;

	for (unsigned int i = 0; i < BATCH; i++)
		alloc->dm[i] = new_dm(&alloc->bench->dev[NEAR], BUFFER);
	for (unsigned int i = 0; i < BATCH; i++)
		must(ibv_free_dm(alloc->dm[i]), "ibv_free_dm");
}

static void reg_and_dereg(void *context)
{
	struct alloc *alloc = context;

	for (unsigned int i = 0; i < BATCH; i++)
		alloc->mr[i] = rc_reg(&alloc->bench->dev[NEAR], alloc->memory,
				      BUFFER, ACCESS_ALL);
	for (unsigned int i = 0; i < BATCH; i++)
		must(ibv_dereg_mr(alloc->mr[i]), "ibv_dereg_mr");
}

static void measure_latency(struct bench *bench, const char *name, uint64_t live)
{
	struct alloc alloc = { .bench = bench, .memory = new_buffer(BUFFER) };
	const struct series series = {
		.group = "alloc",
		.name = name,
		.size = live,
		.amount = BATCH,
		.unit = "operations",
	};
	const struct way ways[] = {
		{ "register", NULL, reg_and_dereg, NULL, &alloc, 4 },
		{ "alloc", NULL, alloc_and_free, NULL, &alloc, 4 },
	};

	measure(bench, &series, ways, ARRAY_SIZE(ways));
	free(alloc.memory);
}

void measure_alloc(struct bench *bench)
{
	static const size_t live[] = { 1, 1000, 100000 };
	size_t have = 0, most = scaled(bench, live[ARRAY_SIZE(live) - 1], 1);
	struct ibv_dm **dm = calloc(most, sizeof(*dm));

	if (!dm)
		err(1, "list of %zu buffers", most);
	must(ibmkey_enable(bench->dev[NEAR].ctx), "ibmkey_enable");
	for (unsigned int i = 0; i < ARRAY_SIZE(live); i++) {
		size_t want = scaled(bench, live[i], 1);

		while (have < want)
			dm[have++] = new_dm(&bench->dev[NEAR], BUFFER);
		measure_latency(bench, "filling", have);
	}
	while (have > 1)
		must(ibv_free_dm(dm[--have]), "ibv_free_dm");
	/*
	 * Measure the first state again, which shows if the machine became
	 * slower.
	 */
	measure_latency(bench, "emptied", have);
	must(ibv_free_dm(dm[0]), "ibv_free_dm");
	free(dm);
}

struct copy {
	struct ibv_dm *dm;
	size_t length;
	unsigned int count;
	uint8_t *from, *to, *ordinary;
	uint32_t seed;
};

static void reset_copy(void *context)
{
	struct copy *copy = context;

	fill_random(copy->from, copy->length, ++copy->seed);
	memset(copy->to, 0, copy->length);
}

static void run_plain(void *context)
{
	struct copy *copy = context;

	for (unsigned int i = 0; i < copy->count; i++) {
		memcpy(copy->ordinary, copy->from, copy->length);
		/* Keep the compiler from removing a copy. */
		__asm__ volatile("" : : "r"(copy->ordinary) : "memory");
	}
}

static void check_plain(void *context)
{
	struct copy *copy = context;

	if (memcmp(copy->ordinary, copy->from, copy->length))
		errx(1, "memcpy() of %zu bytes: wrong bytes", copy->length);
}

static void run_to(void *context)
{
	struct copy *copy = context;

	int ret = 0;

	/* What fails is not looked at before the end, which memcpy() has no part of. */
	for (unsigned int i = 0; i < copy->count; i++)
		ret |= ibv_memcpy_to_dm(copy->dm, 0, copy->from, copy->length);
	must(ret, "ibv_memcpy_to_dm");
}

static void run_from(void *context)
{
	struct copy *copy = context;

	int ret = 0;

	for (unsigned int i = 0; i < copy->count; i++)
		ret |= ibv_memcpy_from_dm(copy->to, copy->dm, 0, copy->length);
	must(ret, "ibv_memcpy_from_dm");
}

static void check_copy(void *context)
{
	struct copy *copy = context;

	if (memcmp(copy->to, copy->from, copy->length))
		errx(1, "copy of %zu bytes through device memory: wrong bytes",
		     copy->length);
}

static void read_back(void *context)
{
	run_from(context);
	check_copy(context);
}

static void put_first(void *context)
{
	reset_copy(context);
	run_to(context);
}

static void measure_length(struct bench *bench, size_t length)
{
	struct copy copy = {
		.dm = new_dm(&bench->dev[NEAR], length),
		.length = length,
		.count = scaled(bench, 256 * KIB, 1) / length,
		.from = new_buffer(length),
		.to = new_buffer(length),
		.ordinary = new_buffer(length),
	};
	struct series series = {
		.group = "copy",
		.name = "host",
		.size = length,
		.unit = "bytes",
	};
	const struct way ways[] = {
		{ "memcpy", reset_copy, run_plain, check_plain, &copy },
		{ "to", reset_copy, run_to, read_back, &copy },
		{ "from", put_first, run_from, check_copy, &copy },
	};

	if (copy.count > 256)
		copy.count = 256;
	if (!copy.count)
		copy.count = 1;
	series.amount = length * copy.count;
	measure(bench, &series, ways, ARRAY_SIZE(ways));
	must(ibv_free_dm(copy.dm), "ibv_free_dm");
	free(copy.from);
	free(copy.to);
	free(copy.ordinary);
}

void measure_copy(struct bench *bench)
{
	must(ibmkey_enable(bench->dev[NEAR].ctx), "ibmkey_enable");
	for (size_t length = 64; length <= MIB; length *= 4)
		measure_length(bench, length);
}
