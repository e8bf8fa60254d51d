// SPDX-License-Identifier: GPL-2.0
/*
 * Traffic to device memory of the remote side, compared with the same traffic
 * to ordinary memory there.
 */
#include <err.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "bench.h"

#define NUM_ADDS 1024

struct dm_test {
	struct bench *bench;
	enum op op;
	size_t length;
	unsigned int count;
	struct ibv_dm *dm;
	uint8_t *ordinary, *local, *seen;
	struct ibv_mr *dm_mr, *ordinary_mr, *local_mr;
	uint32_t seed;
};

/* One of the two memories. */
struct target {
	struct dm_test *test;
	bool dm;
};

static void dm_test_open(struct dm_test *test)
{
	struct ibv_alloc_dm_attr attr = { .length = test->length };
	struct rc_dev *far = &test->bench->dev[FAR];

	test->dm = ibv_alloc_dm(far->ctx, &attr);
	if (!test->dm)
		err(1, "ibv_alloc_dm of %zu bytes", test->length);
	test->dm_mr = ibv_reg_dm_mr(far->pd, test->dm, 0, test->length,
				    ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	if (!test->dm_mr)
		err(1, "ibv_reg_dm_mr");
	test->ordinary = new_buffer(test->length);
	test->ordinary_mr = rc_reg(far, test->ordinary, test->length, ACCESS_ALL);
	test->local = new_buffer(test->length);
	test->local_mr = rc_reg(&test->bench->dev[NEAR], test->local,
				test->length, ACCESS_ALL);
	test->seen = new_buffer(test->length);
}

static void dm_test_close(struct dm_test *test)
{
	must(ibv_dereg_mr(test->dm_mr), "ibv_dereg_mr of device memory");
	must(ibv_free_dm(test->dm), "ibv_free_dm");
	must(ibv_dereg_mr(test->ordinary_mr), "ibv_dereg_mr");
	must(ibv_dereg_mr(test->local_mr), "ibv_dereg_mr");
	free(test->ordinary);
	free(test->local);
	free(test->seen);
}

static void put_far(const struct target *target, const uint8_t *bytes)
{
	struct dm_test *test = target->test;

	if (target->dm)
		must(ibv_memcpy_to_dm(test->dm, 0, bytes, test->length),
		     "ibv_memcpy_to_dm");
	else
		memcpy(test->ordinary, bytes, test->length);
}

static const uint8_t *see_far(const struct target *target)
{
	struct dm_test *test = target->test;

	if (!target->dm)
		return test->ordinary;
	must(ibv_memcpy_from_dm(test->seen, test->dm, 0, test->length),
	     "ibv_memcpy_from_dm");
	return test->seen;
}

/* Fills the source and the destination with different bytes. */
static void reset(void *context)
{
	const struct target *target = context;
	struct dm_test *test = target->test;

	fill_random(test->local, test->length, ++test->seed);
	if (test->op != OP_READ)
		return;
	put_far(target, test->local);
	memset(test->local, 0, test->length);
}

static void run(void *context)
{
	const struct target *target = context;
	struct dm_test *test = target->test;
	const struct span span[2] = {
		{ (uintptr_t)test->local, test->local_mr },
		{ target->dm ? 0 : (uintptr_t)test->ordinary,
		  target->dm ? test->dm_mr : test->ordinary_mr },
	};

	move_span(test->bench, test->op, span, test->length, test->count);
}

static void check(void *context)
{
	const struct target *target = context;
	struct dm_test *test = target->test;
	const uint8_t *far = see_far(target);
	uint8_t *sent = new_buffer(test->length);

	fill_random(sent, test->length, test->seed);
	if (memcmp(sent, far, test->length) ||
	    memcmp(sent, test->local, test->length))
		errx(1, "%s of %zu bytes: %s memory is not as expected",
		     op_names[test->op], test->length, target->dm ? "device" : "ordinary");
	free(sent);
}

static void reset_adds(void *context)
{
	const struct target *target = context;
	struct dm_test *test = target->test;

	memset(test->local, 0xff, test->length);
	memset(test->seen, 0, test->length);
	put_far(target, test->seen);
}

static void run_adds(void *context)
{
	const struct target *target = context;
	struct dm_test *test = target->test;
	const struct span to = {
		target->dm ? 0 : (uintptr_t)test->ordinary,
		target->dm ? test->dm_mr : test->ordinary_mr,
	};

	fetch_and_add(test->bench, &to, (uint64_t *)test->local,
		      test->local_mr, test->count);
}

static void check_adds(void *context)
{
	const struct target *target = context;
	struct dm_test *test = target->test;
	uint64_t last;

	memcpy(&last, see_far(target), sizeof(last));
	check_found((const uint64_t *)test->local, test->count, last);
}

static void measure_bandwidth(struct bench *bench, enum op op, size_t length)
{
	struct dm_test test = {
		.bench = bench,
		.op = op,
		.length = length,
		.count = scaled(bench, 2 * MIB, length) / length,
	};
	const struct series series = {
		.group = "dm",
		.name = op_names[op],
		.size = length,
		.amount = length * test.count,
		.unit = "bytes",
	};
	struct target target[] = { { &test, false }, { &test, true } };
	const struct way ways[] = {
		{ "ordinary", reset, run, check, &target[0] },
		{ "dm", reset, run, check, &target[1] },
	};

	dm_test_open(&test);
	measure(bench, &series, ways, ARRAY_SIZE(ways));
	dm_test_close(&test);
}

static void measure_adds(struct bench *bench)
{
	struct dm_test test = {
		.bench = bench,
		.length = NUM_ADDS * sizeof(uint64_t),
		.count = scaled(bench, NUM_ADDS, 8),
	};
	const struct series series = {
		.group = "dm",
		.name = "fetch-and-add",
		.size = sizeof(uint64_t),
		.amount = test.count,
		.unit = "operations",
	};
	struct target target[] = { { &test, false }, { &test, true } };
	const struct way ways[] = {
		{ "ordinary", reset_adds, run_adds, check_adds, &target[0] },
		{ "dm", reset_adds, run_adds, check_adds, &target[1] },
	};

	dm_test_open(&test);
	measure(bench, &series, ways, ARRAY_SIZE(ways));
	dm_test_close(&test);
}

void measure_dm(struct bench *bench)
{
	static const size_t lengths[] = { 4 * KIB, 64 * KIB, MIB };

	for (unsigned int i = 0; i < 2; i++)
		must(ibmkey_enable(bench->dev[i].ctx), "ibmkey_enable");
	for (int op = OP_WRITE; op <= OP_READ; op++)
		for (unsigned int i = 0; i < ARRAY_SIZE(lengths); i++)
			measure_bandwidth(bench, op, lengths[i]);
	measure_adds(bench);
}
