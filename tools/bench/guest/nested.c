// SPDX-License-Identifier: GPL-2.0
/*
 * Keys over keys: WRITE by a strided key, by keys over that one, and by the
 * same keys over ODP memory; packed, and the same number of contiguous bytes.
 */
#include <err.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "bench.h"

#define BLOCK 256
#define COUNT 1024
#define MAX_LEVELS 8
/* Each level describes the one below in this number of ranges. */
#define RANGES 8

struct nested {
	struct bench *bench;
	struct column near, far;
	/* Keys of the remote side: over pinned memory, and over ODP memory. */
	struct ibv_mr *key[MAX_LEVELS], *on_demand[MAX_LEVELS], *on_demand_mr;
	unsigned int levels;
};

static void reset(void *context)
{
	struct nested *nested = context;

	column_clear(&nested->far);
}

static void check(void *context)
{
	struct nested *nested = context;

	column_check(&nested->far, &nested->near);
}

static void write_to(struct nested *nested, struct ibv_mr *key)
{
	const struct span span[2] = { { 0, nested->near.key }, { 0, key } };

	move_span(nested->bench, OP_WRITE, span, nested->far.bytes, 1);
}

static void run_contiguous(void *context)
{
	struct nested *nested = context;
	const struct span span[2] = {
		{ (uintptr_t)nested->near.packed, nested->near.packed_mr },
		{ (uintptr_t)nested->far.packed, nested->far.packed_mr },
	};

	move_span(nested->bench, OP_WRITE, span, nested->far.bytes, 1);
}

static void check_contiguous(void *context)
{
	struct nested *nested = context;

	if (memcmp(nested->near.packed, nested->far.packed, nested->far.bytes))
		errx(1, "%zu contiguous bytes are not the expected ones",
		     nested->far.bytes);
}

static void run_packed(void *context)
{
	struct nested *nested = context;
	struct column *from = &nested->near, *to = &nested->far;

	for (size_t i = 0; i < from->count; i++)
		memcpy(from->packed + i * BLOCK, from->strided + 2 * i * BLOCK, BLOCK);
	run_contiguous(context);
	for (size_t i = 0; i < to->count; i++)
		memcpy(to->strided + 2 * i * BLOCK, to->packed + i * BLOCK, BLOCK);
}

static void run_flat(void *context)
{
	struct nested *nested = context;

	write_to(nested, nested->far.key);
}

static void run_nested(void *context)
{
	struct nested *nested = context;

	write_to(nested, nested->key[nested->levels - 1]);
}

static void run_on_demand(void *context)
{
	struct nested *nested = context;

	write_to(nested, nested->on_demand[nested->levels - 1]);
}

/* Level 0 is strided; each other level is a list over the one before. */
static void open_chain(struct nested *nested, struct ibv_mr **key, struct ibv_mr *mr)
{
	struct rc_dev *dev = &nested->bench->dev[FAR];
	struct ibmkey_block block = {
		.addr = (uintptr_t)nested->far.strided,
		.bytes_count = nested->far.block,
		.lkey = mr->lkey,
		.stride = { 2 * nested->far.block },
	};
	uint64_t count = nested->far.count;
	struct ibv_sge sge[RANGES];

	for (unsigned int level = 0; level < MAX_LEVELS; level++) {
		key[level] = ibmkey_alloc(dev->pd, RANGES);
		if (!key[level])
			err(1, "ibmkey_alloc");
		for (unsigned int i = 0; level && i < RANGES; i++)
			sge[i] = (struct ibv_sge) {
				.addr = i * (nested->far.bytes / RANGES),
				.length = nested->far.bytes / RANGES,
				.lkey = key[level - 1]->lkey,
			};
		must(level ? ibv_rereg_mr_sg(key[level], ACCESS_ALL, RANGES, sge) :
			     ibv_rereg_mr_interleaved(key[level], ACCESS_ALL, 1,
						      &count, 1, &block), "bind");
	}
}

static void close_chain(struct ibv_mr **key)
{
	for (unsigned int level = MAX_LEVELS; level > 0; level--)
		must(ibv_dereg_mr(key[level - 1]), "ibv_dereg_mr of a key");
}

void measure_nested(struct bench *bench)
{
	struct nested nested = { .bench = bench };
	size_t count = scaled(bench, BLOCK * COUNT, BLOCK * RANGES) / BLOCK;
	struct series series = {
		.group = "nested",
		.name = op_names[OP_WRITE],
		.amount = BLOCK * count,
		.unit = "bytes",
	};
	const struct way ways[] = {
		{ "contiguous", reset, run_contiguous, check_contiguous, &nested, 4 },
		{ "flat", reset, run_flat, check, &nested, 4 },
		{ "nested", reset, run_nested, check, &nested, 4 },
		{ "demand", reset, run_on_demand, check, &nested, 4 },
		{ "packed", reset, run_packed, check, &nested, 4 },
	};

	column_open(&bench->dev[NEAR], &nested.near, BLOCK, count);
	column_open(&bench->dev[FAR], &nested.far, BLOCK, count);
	column_bind(&nested.near);
	column_bind(&nested.far);
	fill_random(nested.near.strided, nested.near.span, 3);
	fill_random(nested.near.packed, nested.near.bytes, 4);
	nested.on_demand_mr = rc_reg(&bench->dev[FAR], nested.far.strided,
				     nested.far.span, ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	open_chain(&nested, nested.key, nested.far.strided_mr);
	open_chain(&nested, nested.on_demand, nested.on_demand_mr);
	for (nested.levels = 1; nested.levels <= MAX_LEVELS; nested.levels++) {
		series.size = nested.levels;
		measure(bench, &series, ways, ARRAY_SIZE(ways));
	}
	close_chain(nested.on_demand);
	close_chain(nested.key);
	must(ibv_dereg_mr(nested.on_demand_mr), "ibv_dereg_mr");
	column_close(&nested.far);
	column_close(&nested.near);
}
