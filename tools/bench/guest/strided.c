// SPDX-License-Identifier: GPL-2.0
/*
 * Blocks with gaps on both sides: by a key on each side, packed, block by
 * block, and the same number of contiguous bytes.
 */
#include <err.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "bench.h"

#define MAX_BYTES MIB
#define MAX_BLOCKS 4096
#define UNTOUCHED 0xa5

void column_bind(struct column *column)
{
	struct ibmkey_block block = {
		.addr = (uintptr_t)column->strided,
		.bytes_count = column->block,
		.lkey = column->strided_mr->lkey,
		.stride = { 2 * column->block },
	};
	uint64_t count = column->count;

	must(ibv_rereg_mr_interleaved(column->key, ACCESS_ALL, 1, &count, 1,
				      &block), "ibv_rereg_mr_interleaved");
}

void column_open(struct rc_dev *dev, struct column *column, size_t block,
		 size_t count)
{
	*column = (struct column) {
		.block = block,
		.count = count,
		.bytes = block * count,
		.span = 2 * block * count,
	};
	column->strided = new_buffer(column->span);
	column->packed = new_buffer(column->bytes);
	column->strided_mr = rc_reg(dev, column->strided, column->span, ACCESS_ALL);
	column->packed_mr = rc_reg(dev, column->packed, column->bytes, ACCESS_ALL);
	column->key = ibmkey_alloc(dev->pd, count);
	if (!column->key)
		err(1, "ibmkey_alloc for %zu entries", count);
}

void column_close(struct column *column)
{
	must(ibv_dereg_mr(column->key), "ibv_dereg_mr of a key");
	must(ibv_dereg_mr(column->strided_mr), "ibv_dereg_mr");
	must(ibv_dereg_mr(column->packed_mr), "ibv_dereg_mr");
	free(column->strided);
	free(column->packed);
}

void column_clear(struct column *column)
{
	memset(column->strided, UNTOUCHED, column->span);
	memset(column->packed, UNTOUCHED, column->bytes);
}

void column_check(const struct column *column, const struct column *from)
{
	for (size_t i = 0; i < column->count; i++) {
		const uint8_t *got = column->strided + 2 * i * column->block;
		const uint8_t *gap = got + column->block;

		if (memcmp(got, from->strided + 2 * i * column->block, column->block))
			errx(1, "block %zu of %zu bytes is not the expected one",
			     i, column->block);
		for (size_t j = 0; j < column->block; j++)
			if (gap[j] != UNTOUCHED)
				errx(1, "bytes behind block %zu of %zu bytes were written",
				     i, column->block);
	}
}

struct strided {
	struct bench *bench;
	enum op op;
	struct column side[2];
	struct column *from, *to;
};

static void reset(void *context)
{
	struct strided *strided = context;

	column_clear(strided->to);
}

static void check(void *context)
{
	struct strided *strided = context;

	column_check(strided->to, strided->from);
}

static void run_contiguous(void *context)
{
	struct strided *strided = context;
	const struct column *near = &strided->side[NEAR];
	const struct column *far = &strided->side[FAR];
	const struct span span[2] = {
		{ (uintptr_t)near->packed, near->packed_mr },
		{ (uintptr_t)far->packed, far->packed_mr },
	};

	move_span(strided->bench, strided->op, span, near->bytes, 1);
}

static void check_contiguous(void *context)
{
	struct strided *strided = context;

	if (memcmp(strided->from->packed, strided->to->packed, strided->to->bytes))
		errx(1, "%zu contiguous bytes are not the expected ones",
		     strided->to->bytes);
}

static void run_key(void *context)
{
	struct strided *strided = context;
	const struct span span[2] = {
		{ 0, strided->side[NEAR].key },
		{ 0, strided->side[FAR].key },
	};

	move_span(strided->bench, strided->op, span, strided->to->bytes, 1);
}

static void run_packed(void *context)
{
	struct strided *strided = context;
	struct column *from = strided->from, *to = strided->to;

	for (size_t i = 0; i < from->count; i++)
		memcpy(from->packed + i * from->block,
		       from->strided + 2 * i * from->block, from->block);
	run_contiguous(context);
	for (size_t i = 0; i < to->count; i++)
		memcpy(to->strided + 2 * i * to->block,
		       to->packed + i * to->block, to->block);
}

static struct ibv_sge block_of(const struct column *column, size_t index)
{
	return (struct ibv_sge) {
		.addr = (uintptr_t)column->strided + 2 * index * column->block,
		.length = column->block,
		.lkey = column->strided_mr->lkey,
	};
}

/* One block per request; SEND gathers and scatters as many as fit a list. */
static size_t blocks_each(const struct strided *strided)
{
	return strided->op == OP_SEND ? RC_MAX_SGE : 1;
}

static void get_blocks(void *context, unsigned int index, struct message *message)
{
	struct strided *strided = context;
	size_t each = blocks_each(strided), first = index * each;
	size_t left = strided->to->count - first;

	message->num_sge = left < each ? left : each;
	for (int i = 0; i < message->num_sge; i++) {
		message->near[i] = block_of(&strided->side[NEAR], first + i);
		message->far[i] = block_of(&strided->side[FAR], first + i);
	}
	message->rkey = strided->side[FAR].strided_mr->rkey;
}

static void run_pieces(void *context)
{
	struct strided *strided = context;
	size_t each = blocks_each(strided);

	move(strided->bench, strided->op, (strided->to->count + each - 1) / each,
	     get_blocks, strided);
}

static void measure_blocks(struct bench *bench, enum op op, size_t block)
{
	size_t bytes = block * MAX_BLOCKS < MAX_BYTES ? block * MAX_BLOCKS : MAX_BYTES;
	size_t count = scaled(bench, bytes, 4 * block) / block;
	/*
	 * A way that is many times faster runs more often for an equally good
	 * figure.
	 */
	unsigned int times = MAX_BYTES / bytes;
	struct strided strided = { .bench = bench, .op = op };
	const struct series series = {
		.group = "strided",
		.name = op_names[op],
		.size = block,
		.amount = block * count,
		.unit = "bytes",
	};
	const struct way ways[] = {
		{ "contiguous", reset, run_contiguous, check_contiguous, &strided, times },
		{ "key", reset, run_key, check, &strided, times },
		{ "packed", reset, run_packed, check, &strided, times },
		{ "pieces", reset, run_pieces, check, &strided, 1 },
	};

	for (int i = 0; i < 2; i++) {
		column_open(&bench->dev[i], &strided.side[i], block, count);
		column_bind(&strided.side[i]);
	}
	strided.from = &strided.side[source_of(op)];
	strided.to = &strided.side[!source_of(op)];
	fill_random(strided.from->strided, strided.from->span, block + op);
	fill_random(strided.from->packed, strided.from->bytes, block);

	measure(bench, &series, ways, ARRAY_SIZE(ways));
	for (int i = 0; i < 2; i++)
		column_close(&strided.side[i]);
}

void measure_strided(struct bench *bench)
{
	static const size_t blocks[] = {
		1, 8, 16, 64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB,
	};

	for (int op = 0; op < NUM_OPS; op++)
		for (unsigned int b = 0; b < ARRAY_SIZE(blocks); b++)
			measure_blocks(bench, op, blocks[b]);
}
