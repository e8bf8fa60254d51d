// SPDX-License-Identifier: GPL-2.0
/*
 * Measures binds by work requests: many keys with one doorbell against as many
 * calls.
 */
#include <err.h>
#include <stdlib.h>

#include <infiniband/mkey.h>

#include "bench.h"

#define BLOCK 64
#define MAX_KEYS 64

struct request {
	struct bench *bench;
	struct rc_conn conn[2];
	struct ibv_qp_ex *qp;		/* of the local side */
	struct column from;		/* the blocks of the local side */
	struct ibv_mr *key[MAX_KEYS];
	unsigned int keys;
	struct ibmkey_range *ranges;
	size_t entries;			/* 0: one block that repeats */
	struct ibmkey_block block;
	uint64_t count;
	struct ibmkey_bind bind;	/* the layout */
	void *text;			/* its description */
	size_t length;
	struct ibv_mr *text_mr;
};

/*
 * Replaces the queue pair by one of @depth requests that takes binds between ibv_wr_start() and
 * ibv_wr_complete().
 */
static void extend(struct rc_conn *conn, struct rc_dev *dev, unsigned int depth)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = depth,
			.max_recv_wr = RC_RECV_DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 256,
		},
		.send_cq = conn->cq,
		.recv_cq = conn->cq,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = dev->pd,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = ACCESS_ALL & ~IBV_ACCESS_LOCAL_WRITE,
	};

	must(ibv_destroy_qp(conn->qp), "ibv_destroy_qp");
	conn->qp = ibv_create_qp_ex(dev->ctx, &init);
	if (!conn->qp)
		err(1, "ibv_create_qp_ex");
	must(ibv_modify_qp(conn->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			   IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "ibv_modify_qp");
}

static void connect_both(struct request *request)
{
	struct rc_dev *dev = request->bench->dev;
	struct rc_addr addr[2];

	for (int i = 0; i < 2; i++) {
		rc_create(&request->conn[i], &dev[i], "requests");
		extend(&request->conn[i], &dev[i], RC_SEND_DEPTH);
		addr[i] = rc_address(&request->conn[i], &dev[i]);
	}
	for (int i = 0; i < 2; i++)
		rc_connect(&request->conn[i], &dev[i], &addr[!i]);
	request->qp = ibv_qp_to_qp_ex(request->conn[NEAR].qp);
}

/* Fills in the layout of the blocks: a list of @entries, or one block. */
static void describe(struct request *request, size_t entries)
{
	struct column *from = &request->from;

	request->entries = entries;
	request->ranges = calloc(entries ?: 1, sizeof(*request->ranges));
	if (!request->ranges)
		err(1, "a list of %zu entries", entries);
	for (size_t i = 0; i < entries; i++)
		request->ranges[i] = (struct ibmkey_range) {
			.addr = (uintptr_t)from->strided + 2 * i * BLOCK,
			.length = BLOCK,
			.lkey = from->strided_mr->lkey,
		};
	request->count = from->count;
	request->block = (struct ibmkey_block) {
		.addr = (uintptr_t)from->strided,
		.bytes_count = BLOCK,
		.lkey = from->strided_mr->lkey,
		.stride = { 2 * BLOCK },
	};
	request->bind = entries ? (struct ibmkey_bind) {
		.kind = IBMKEY_LIST,
		.num_entries = entries,
		.ranges = request->ranges,
	} : (struct ibmkey_bind) {
		.kind = IBMKEY_INTERLEAVED,
		.num_entries = 1,
		.num_dims = 1,
		.repeat_count = &request->count,
		.blocks = &request->block,
	};
	request->length = ibmkey_describe(&request->bind, NULL, 0);
	request->text = new_buffer(request->length);
	ibmkey_describe(&request->bind, request->text, request->length);
	request->text_mr = rc_reg(&request->bench->dev[NEAR], request->text, request->length,
				  IBV_ACCESS_LOCAL_WRITE);
}

static void request_open(struct request *request, struct bench *bench, size_t count,
			 size_t entries, unsigned int keys)
{
	*request = (struct request) { .bench = bench, .keys = keys };
	connect_both(request);
	column_open(&bench->dev[NEAR], &request->from, BLOCK, count);
	fill_random(request->from.strided, request->from.span, count);
	describe(request, entries);
	for (unsigned int i = 0; i < keys; i++) {
		request->key[i] = ibmkey_alloc(bench->dev[NEAR].pd, entries ?: 1);
		if (!request->key[i])
			err(1, "ibmkey_alloc for %zu entries", entries);
	}
}

static void request_close(struct request *request)
{
	for (unsigned int i = 0; i < request->keys; i++)
		must(ibv_dereg_mr(request->key[i]), "ibv_dereg_mr of a key");
	must(ibv_dereg_mr(request->text_mr), "ibv_dereg_mr");
	for (int i = 0; i < 2; i++)
		rc_destroy(&request->conn[i]);
	column_close(&request->from);
	free(request->ranges);
	free(request->text);
}

static void bind_by_call(struct request *request, struct ibv_mr *key)
{
	if (request->entries)
		must(ibmkey_bind_list(key, ACCESS_ALL, request->entries, request->ranges),
		     "ibmkey_bind_list");
	else
		must(ibmkey_bind_interleaved(key, ACCESS_ALL, 1, &request->count, 1,
					     &request->block), "ibmkey_bind_interleaved");
}

/* Adds a request between start and complete. */
static void add_bind(struct request *request, struct ibv_mr *key, unsigned int flags)
{
	const struct ibmkey_wr wr = {
		.mkey = key,
		.mr = request->text_mr,
		.addr = (uintptr_t)request->text,
		.length = request->length,
		.access = ACCESS_ALL,
	};

	request->qp->wr_id = 0;
	request->qp->wr_flags = flags;
	must(ibmkey_wr_bind(request->qp, &wr), "ibmkey_wr_bind");
}

static void unbind_all(void *context)
{
	struct request *request = context;

	for (unsigned int i = 0; i < request->keys; i++)
		must(ibmkey_unbind(request->key[i]), "ibmkey_unbind");
}

static void call_all(void *context)
{
	struct request *request = context;

	for (unsigned int i = 0; i < request->keys; i++)
		bind_by_call(request, request->key[i]);
}

static void request_all(void *context)
{
	struct request *request = context;

	ibv_wr_start(request->qp);
	for (unsigned int i = 0; i < request->keys; i++)
		add_bind(request, request->key[i],
			 i + 1 == request->keys ? IBV_SEND_SIGNALED : 0);
	must(ibv_wr_complete(request->qp), "ibv_wr_complete");
	rc_wait(&request->conn[NEAR]);
}

static void check_all(void *context)
{
	struct request *request = context;
	struct ibmkey_info info = {};

	for (unsigned int i = 0; i < request->keys; i++) {
		must(ibmkey_query(request->key[i], &info), "ibmkey_query");
		if (info.length != request->from.bytes)
			errx(1, "key %u of %u has another layout", i, request->keys);
	}
}

static void measure_binds(struct bench *bench, const char *name, size_t entries)
{
	const unsigned int keys = scaled(bench, entries > 1024 ? 1 : MAX_KEYS, 1);
	struct request request;

	request_open(&request, bench, entries ?: 16, entries, keys);
	{
		const struct series series = {
			.group = "request",
			.name = name,
			.size = entries ?: 1,
			.amount = keys,
			.unit = "operations",
		};
		const struct way ways[] = {
			{ "call", unbind_all, call_all, check_all, &request },
			{ "request", unbind_all, request_all, check_all, &request },
			{ "rebind", call_all, request_all, check_all, &request },
		};

		measure(bench, &series, ways, ARRAY_SIZE(ways));
	}
	request_close(&request);
}

void measure_request(struct bench *bench)
{
	measure_binds(bench, "interleaved", 0);
	measure_binds(bench, "list", 1);
	measure_binds(bench, "list", 4);
	for (size_t entries = 16; entries <= 65536; entries *= 16)
		measure_binds(bench, "list", scaled(bench, entries, 1));
}
