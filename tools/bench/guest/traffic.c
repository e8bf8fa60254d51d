// SPDX-License-Identifier: GPL-2.0
/*
 * Traffic of MRs that are no keys. Device memory of the remote side is compared with
 * ordinary memory there. The group ordinary runs with ib_mkey loaded and without it,
 * and the results are compared.
 */
#include <err.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "bench.h"

#define NUM_ADDS 512

struct traffic {
	struct bench *bench;
	enum op op;
	size_t length;
	unsigned int count;
	struct ibv_dm *dm;		/* the remote memory, or NULL: @far is */
	uint8_t *near, *far;		/* with @dm, @far is a copy of it */
	struct span span[2];
	uint32_t seed;
};

static void traffic_open(struct traffic *traffic, bool in_dm)
{
	struct ibv_alloc_dm_attr attr = { .length = traffic->length };
	struct rc_dev *dev = traffic->bench->dev;
	struct span *far = &traffic->span[FAR];

	traffic->near = new_buffer(traffic->length);
	traffic->far = new_buffer(traffic->length);
	traffic->span[NEAR] = (struct span) {
		(uintptr_t)traffic->near,
		rc_reg(&dev[NEAR], traffic->near, traffic->length, ACCESS_ALL),
	};
	if (!in_dm) {
		*far = (struct span) {
			(uintptr_t)traffic->far,
			rc_reg(&dev[FAR], traffic->far, traffic->length, ACCESS_ALL),
		};
		return;
	}
	must(ibmkey_enable(dev[FAR].ctx), "ibmkey_enable");
	traffic->dm = ibv_alloc_dm(dev[FAR].ctx, &attr);
	if (!traffic->dm)
		err(1, "ibv_alloc_dm of %zu bytes", traffic->length);
	far->mr = ibv_reg_dm_mr(dev[FAR].pd, traffic->dm, 0, traffic->length,
				ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	if (!far->mr)
		err(1, "ibv_reg_dm_mr");
}

static void traffic_close(struct traffic *traffic)
{
	for (int i = 0; i < 2; i++)
		must(ibv_dereg_mr(traffic->span[i].mr), "ibv_dereg_mr");
	if (traffic->dm)
		must(ibv_free_dm(traffic->dm), "ibv_free_dm");
	free(traffic->near);
	free(traffic->far);
}

/* Makes the remote memory equal to @far. */
static void put_far(struct traffic *traffic)
{
	if (traffic->dm)
		must(ibv_memcpy_to_dm(traffic->dm, 0, traffic->far, traffic->length),
		     "ibv_memcpy_to_dm");
}

/* Makes @far equal to the remote memory. */
static void get_far(struct traffic *traffic)
{
	if (traffic->dm)
		must(ibv_memcpy_from_dm(traffic->far, traffic->dm, 0, traffic->length),
		     "ibv_memcpy_from_dm");
}

static void reset(void *context)
{
	struct traffic *traffic = context;
	const bool read = traffic->op == OP_READ;

	fill_random(read ? traffic->far : traffic->near, traffic->length, ++traffic->seed);
	memset(read ? traffic->near : traffic->far, 0, traffic->length);
	put_far(traffic);
}

static void run(void *context)
{
	struct traffic *traffic = context;

	move_span(traffic->bench, traffic->op, traffic->span, traffic->length,
		  traffic->count);
}

static void check(void *context)
{
	struct traffic *traffic = context;
	uint8_t *sent = new_buffer(traffic->length);

	get_far(traffic);
	fill_random(sent, traffic->length, traffic->seed);
	if (memcmp(sent, traffic->near, traffic->length) ||
	    memcmp(sent, traffic->far, traffic->length))
		errx(1, "%s of %zu bytes to %s memory: wrong bytes", op_names[traffic->op],
		     traffic->length, traffic->dm ? "device" : "ordinary");
	free(sent);
}

static void reset_adds(void *context)
{
	struct traffic *traffic = context;

	memset(traffic->near, 0xff, traffic->length);
	memset(traffic->far, 0, traffic->length);
	put_far(traffic);
}

static void run_adds(void *context)
{
	struct traffic *traffic = context;

	fetch_and_add(traffic->bench, &traffic->span[FAR], (uint64_t *)traffic->near,
		      traffic->span[NEAR].mr, traffic->count);
}

static void check_adds(void *context)
{
	struct traffic *traffic = context;

	get_far(traffic);
	check_found((const uint64_t *)traffic->near, traffic->count,
		    *(const uint64_t *)traffic->far);
}

/*
 * Measures @traffic with ordinary memory, which is called @way; in the group dm, also with
 * device memory.
 */
static void measure_traffic(struct bench *bench, const struct series *series, const char *way,
			    const struct traffic *traffic)
{
	const bool adds = !strcmp(series->name, "fetch-and-add");
	const bool dm = !strcmp(series->group, "dm");
	const char *const names[] = { way, "dm" };
	struct traffic memory[] = { *traffic, *traffic };
	struct way ways[2];

	for (int i = 0; i <= dm; i++) {
		traffic_open(&memory[i], i);
		ways[i] = (struct way) {
			.name = names[i],
			.reset = adds ? reset_adds : reset,
			.run = adds ? run_adds : run,
			.check = adds ? check_adds : check,
			.context = &memory[i],
		};
	}
	measure(bench, series, ways, 1 + dm);
	for (int i = 0; i <= dm; i++)
		traffic_close(&memory[i]);
}

static void measure_bytes(struct bench *bench, const char *group, const char *way, enum op op,
			  size_t length, size_t bytes)
{
	const struct traffic traffic = {
		.bench = bench,
		.op = op,
		.length = length,
		.count = scaled(bench, bytes, length) / length,
	};
	const struct series series = {
		.group = group,
		.name = op_names[op],
		.size = length,
		.amount = length * traffic.count,
		.unit = "bytes",
	};

	measure_traffic(bench, &series, way, &traffic);
}

static void measure_adds(struct bench *bench, const char *group, const char *way)
{
	const struct traffic traffic = {
		.bench = bench,
		.length = NUM_ADDS * sizeof(uint64_t),
		.count = scaled(bench, NUM_ADDS, 8),
	};
	const struct series series = {
		.group = group,
		.name = "fetch-and-add",
		.size = sizeof(uint64_t),
		.amount = traffic.count,
		.unit = "operations",
	};

	measure_traffic(bench, &series, way, &traffic);
}

void measure_dm(struct bench *bench)
{
	static const size_t lengths[] = { 4 * KIB, 64 * KIB, MIB };

	for (int op = OP_WRITE; op <= OP_READ; op++)
		for (unsigned int i = 0; i < ARRAY_SIZE(lengths); i++)
			measure_bytes(bench, "dm", "ordinary", op, lengths[i], 2 * MIB);
	measure_adds(bench, "dm", "ordinary");
}

void measure_ordinary(struct bench *bench)
{
	for (int op = 0; op < NUM_OPS; op++) {
		measure_bytes(bench, "ordinary", bench->way, op, 64, 32 * KIB);
		measure_bytes(bench, "ordinary", bench->way, op, 64 * KIB, MIB);
	}
	measure_adds(bench, "ordinary", bench->way);
}
