// SPDX-License-Identifier: GPL-2.0
/*
 * Measures describing memory: binding an unbound key, binding a bound key to
 * something else, and unbinding; compared with registering the same memory, and
 * with a method of uverbs that only looks an MR up. All layouts describe blocks of
 * 16 bytes in order.
 */
#include <err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include <infiniband/mkey.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "bench.h"

#define BLOCK 16

struct bind {
	struct bench *bench;
	struct column column;		/* of the remote side */
	struct column from;
	unsigned int num_dims;		/* 0: a list */
	uint64_t repeat[IBMKEY_MAX_DIMS];
	struct ibmkey_block block;
	struct ibv_sge *list;
	size_t entries;
	struct {			/* what UVERBS_METHOD_QUERY_MR says */
		uint32_t lkey, rkey;
		uint64_t length, iova;
	} found;
	struct ibmkey_indexed indexed;	/* no indices: another layout */
	struct ibv_mr *mr;		/* of the same memory, registered again */
};

static void bind_key(void *context)
{
	struct bind *bind = context;

	if (bind->indexed.indices)
		must(ibmkey_bind_indexed(bind->column.key, ACCESS_ALL,
					 &bind->indexed),
		     "ibmkey_bind_indexed");
	else if (bind->num_dims)
		must(ibv_rereg_mr_interleaved(bind->column.key, ACCESS_ALL,
					      bind->num_dims, bind->repeat, 1,
					      &bind->block),
		     "ibv_rereg_mr_interleaved");
	else
		must(ibv_rereg_mr_sg(bind->column.key, ACCESS_ALL,
				     bind->entries, bind->list),
		     "ibv_rereg_mr_sg");
}

static void unbind_key(void *context)
{
	struct bind *bind = context;

	must(ibmkey_unbind(bind->column.key), "ibmkey_unbind");
}

/*
 * Binds the key to another layout, which check_key() can tell from the right
 * one.
 */
static void bind_other(void *context)
{
	struct bind *bind = context;
	struct ibv_sge other = {
		.addr = (uintptr_t)bind->column.strided,
		.length = 1,
		.lkey = bind->column.strided_mr->lkey,
	};

	must(ibv_rereg_mr_sg(bind->column.key, ACCESS_ALL, 1, &other),
	     "ibv_rereg_mr_sg of one byte");
}

/* A transfer by the key must show the layout that was bound last. */
static void check_key(void *context)
{
	struct bind *bind = context;
	const struct span span[2] = {
		{ (uintptr_t)bind->from.packed, bind->from.packed_mr },
		{ 0, bind->column.key },
	};

	column_clear(&bind->column);
	move_span(bind->bench, OP_WRITE, span, bind->column.bytes, 1);
	column_check(&bind->column, &bind->from);
}

static void check_unbound(void *context)
{
	struct bind *bind = context;
	struct ibmkey_info info;

	must(ibmkey_query(bind->column.key, &info), "ibmkey_query");
	if (info.kind != IBMKEY_UNBOUND || info.length)
		errx(1, "a key is bound after ibmkey_unbind()");
}

static void reg_mr(void *context)
{
	struct bind *bind = context;

	bind->mr = rc_reg(&bind->bench->dev[FAR], bind->column.strided,
			  bind->column.span, ACCESS_ALL);
}

static void dereg_mr(void *context)
{
	struct bind *bind = context;

	must(ibv_dereg_mr(bind->mr), "ibv_dereg_mr");
	bind->mr = NULL;
}

static void query_mr(void *context)
{
	struct bind *bind = context;
	const struct ibv_mr *mr = bind->column.strided_mr;
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attrs[5];
	} cmd = {
		.hdr = {
			.length = sizeof(cmd),
			.object_id = UVERBS_OBJECT_MR,
			.method_id = UVERBS_METHOD_QUERY_MR,
			.num_attrs = ARRAY_SIZE(cmd.attrs),
			.driver_id = RDMA_DRIVER_RXE,
		},
		.attrs = {
			{ .attr_id = UVERBS_ATTR_QUERY_MR_HANDLE, .data = mr->handle },
			{ .attr_id = UVERBS_ATTR_QUERY_MR_RESP_LKEY,
			  .len = sizeof(bind->found.lkey),
			  .data = (uintptr_t)&bind->found.lkey },
			{ .attr_id = UVERBS_ATTR_QUERY_MR_RESP_RKEY,
			  .len = sizeof(bind->found.rkey),
			  .data = (uintptr_t)&bind->found.rkey },
			{ .attr_id = UVERBS_ATTR_QUERY_MR_RESP_LENGTH,
			  .len = sizeof(bind->found.length),
			  .data = (uintptr_t)&bind->found.length },
			{ .attr_id = UVERBS_ATTR_QUERY_MR_RESP_IOVA,
			  .len = sizeof(bind->found.iova),
			  .data = (uintptr_t)&bind->found.iova },
		},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cmd.attrs); i++)
		cmd.attrs[i].flags = UVERBS_ATTR_F_MANDATORY;
	if (ioctl(mr->context->cmd_fd, RDMA_VERBS_IOCTL, &cmd))
		err(1, "UVERBS_METHOD_QUERY_MR");
}

static void check_answer(void *context)
{
	struct bind *bind = context;
	const struct ibv_mr *mr = bind->column.strided_mr;

	if (bind->found.lkey != mr->lkey || bind->found.rkey != mr->rkey ||
	    bind->found.length != mr->length)
		errx(1, "UVERBS_METHOD_QUERY_MR describes another MR");
}

static void measure_layout(struct bind *bind, const char *name, uint64_t size)
{
	const struct series series = {
		.group = "bind",
		.name = name,
		.size = size,
		.amount = 1,
		.unit = "operations",
	};
	const struct way ways[] = {
		{ "register", NULL, reg_mr, dereg_mr, bind },
		{ "query", NULL, query_mr, check_answer, bind },
		{ "bind", unbind_key, bind_key, check_key, bind },
		{ "rebind", bind_other, bind_key, check_key, bind },
		{ "unbind", bind_key, unbind_key, check_unbound, bind },
	};

	measure(bind->bench, &series, ways, ARRAY_SIZE(ways));
}

static void bind_open(struct bind *bind, struct bench *bench, size_t count)
{
	*bind = (struct bind) { .bench = bench };
	column_open(&bench->dev[FAR], &bind->column, BLOCK, count);
	column_open(&bench->dev[NEAR], &bind->from, BLOCK, count);
	fill_random(bind->from.strided, bind->from.span, count);
	for (size_t i = 0; i < count * BLOCK; i++)
		bind->from.packed[i] = bind->from.strided[2 * i - i % BLOCK];
}

static void bind_close(struct bind *bind)
{
	column_close(&bind->from);
	column_close(&bind->column);
}

/*
 * Entries of one length at one distance; or, to have no such row, two for each
 * block.
 */
static void measure_list(struct bench *bench, size_t entries, bool even)
{
	const size_t each = even ? 1 : 2, first = BLOCK / each - (each - 1);
	struct bind bind;

	bind_open(&bind, bench, entries / each);
	bind.entries = entries;
	must(ibv_dereg_mr(bind.column.key), "ibv_dereg_mr of a key");
	bind.column.key = ibmkey_alloc(bench->dev[FAR].pd, entries);
	if (!bind.column.key)
		err(1, "ibmkey_alloc for %zu entries", entries);
	bind.list = calloc(entries, sizeof(*bind.list));
	if (!bind.list)
		err(1, "list of %zu entries", entries);
	for (size_t i = 0; i < entries; i++) {
		const size_t from = i % each * first;

		bind.list[i] = (struct ibv_sge) {
			.addr = (uintptr_t)bind.column.strided +
				i / each * 2 * BLOCK + from,
			.length = from ? BLOCK - first : first,
			.lkey = bind.column.strided_mr->lkey,
		};
	}
	measure_layout(&bind, even ? "list" : "uneven list", entries);
	free(bind.list);
	bind_close(&bind);
}

static void measure_indexed(struct bench *bench, size_t count)
{
	uint32_t *indices = calloc(count, sizeof(*indices));
	struct bind bind;

	if (!indices)
		err(1, "%zu indices", count);
	for (size_t i = 0; i < count; i++)
		indices[i] = i;
	bind_open(&bind, bench, count);
	bind.indexed = (struct ibmkey_indexed) {
		.addr = (uintptr_t)bind.column.strided,
		.unit = 2 * BLOCK,
		.bytes_count = BLOCK,
		.indices = (uintptr_t)indices,
		.index_bytes = sizeof(*indices),
		.num_indices = count,
		.lkey = bind.column.strided_mr->lkey,
	};
	measure_layout(&bind, "indexed", count);
	free(indices);
	bind_close(&bind);
}

/*
 * Two repetitions in each dimension, nested so that the blocks follow in order.
 */
static void measure_dims(struct bench *bench, unsigned int num_dims)
{
	struct bind bind;

	bind_open(&bind, bench, 1u << num_dims);
	bind.num_dims = num_dims;
	bind.block = (struct ibmkey_block) {
		.addr = (uintptr_t)bind.column.strided,
		.bytes_count = BLOCK,
		.lkey = bind.column.strided_mr->lkey,
	};
	for (unsigned int d = 0; d < num_dims; d++) {
		bind.repeat[d] = 2;
		bind.block.stride[d] = 2 * BLOCK << (num_dims - 1 - d);
	}
	measure_layout(&bind, "interleaved", num_dims);
	bind_close(&bind);
}

void measure_bind(struct bench *bench)
{
	for (size_t entries = 1; entries <= 65536; entries *= 16)
		measure_list(bench, scaled(bench, entries, 1), true);
	for (size_t entries = 16; entries <= 65536; entries *= 16)
		measure_list(bench, scaled(bench, entries, 2) & ~1ull, false);
	for (size_t count = 1; count <= 65536; count *= 16)
		measure_indexed(bench, scaled(bench, count, 1));
	for (unsigned int num_dims = 1; num_dims <= IBMKEY_MAX_DIMS; num_dims++)
		measure_dims(bench, num_dims);
}
