// SPDX-License-Identifier: GPL-2.0
/*
 * Ordinary MRs, for which ib_mkey only checks whether the MR is its own. This
 * runs with the module loaded and without it, and the results are compared.
 */
#include <err.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define NUM_ADDS 512

struct ordinary {
	struct bench *bench;
	enum op op;
	size_t length;
	unsigned int count;
	uint8_t *memory[2];
	struct ibv_mr *mr[2];
	uint32_t seed;
};

static void ordinary_open(struct ordinary *test)
{
	for (int i = 0; i < 2; i++) {
		test->memory[i] = new_buffer(test->length);
		test->mr[i] = rc_reg(&test->bench->dev[i], test->memory[i],
				     test->length, ACCESS_ALL);
	}
}

static void ordinary_close(struct ordinary *test)
{
	for (int i = 0; i < 2; i++) {
		must(ibv_dereg_mr(test->mr[i]), "ibv_dereg_mr");
		free(test->memory[i]);
	}
}

static void reset(void *context)
{
	struct ordinary *test = context;
	int source = source_of(test->op);

	fill_random(test->memory[source], test->length, ++test->seed);
	memset(test->memory[!source], 0, test->length);
}

static void run(void *context)
{
	struct ordinary *test = context;
	const struct span span[2] = {
		{ (uintptr_t)test->memory[NEAR], test->mr[NEAR] },
		{ (uintptr_t)test->memory[FAR], test->mr[FAR] },
	};

	move_span(test->bench, test->op, span, test->length, test->count);
}

static void check(void *context)
{
	struct ordinary *test = context;

	if (memcmp(test->memory[NEAR], test->memory[FAR], test->length))
		errx(1, "%s of %zu bytes: wrong bytes", op_names[test->op],
		     test->length);
}

static void reset_adds(void *context)
{
	struct ordinary *test = context;

	memset(test->memory[NEAR], 0xff, test->length);
	memset(test->memory[FAR], 0, test->length);
}

static void run_adds(void *context)
{
	struct ordinary *test = context;
	const struct span to = { (uintptr_t)test->memory[FAR], test->mr[FAR] };

	fetch_and_add(test->bench, &to, (uint64_t *)test->memory[NEAR],
		      test->mr[NEAR], test->count);
}

static void check_adds(void *context)
{
	struct ordinary *test = context;

	check_found((const uint64_t *)test->memory[NEAR], test->count,
		    *(const uint64_t *)test->memory[FAR]);
}

static void measure_bytes(struct bench *bench, enum op op, size_t length,
			  unsigned int count)
{
	struct ordinary test = {
		.bench = bench,
		.op = op,
		.length = length,
		.count = scaled(bench, count, 1),
	};
	const struct series series = {
		.group = "ordinary",
		.name = op_names[op],
		.size = length,
		.amount = length * test.count,
		.unit = "bytes",
	};
	const struct way way = { bench->way, reset, run, check, &test };

	ordinary_open(&test);
	measure(bench, &series, &way, 1);
	ordinary_close(&test);
}

static void measure_adds(struct bench *bench)
{
	struct ordinary test = {
		.bench = bench,
		.length = NUM_ADDS * sizeof(uint64_t),
		.count = scaled(bench, NUM_ADDS, 8),
	};
	const struct series series = {
		.group = "ordinary",
		.name = "fetch-and-add",
		.size = sizeof(uint64_t),
		.amount = test.count,
		.unit = "operations",
	};
	const struct way way = {
		bench->way, reset_adds, run_adds, check_adds, &test
	};

	ordinary_open(&test);
	measure(bench, &series, &way, 1);
	ordinary_close(&test);
}

void measure_ordinary(struct bench *bench)
{
	for (int op = 0; op < NUM_OPS; op++) {
		measure_bytes(bench, op, 64, 512);
		measure_bytes(bench, op, 64 * KIB, 16);
	}
	measure_adds(bench);
}
