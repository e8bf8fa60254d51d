// SPDX-License-Identifier: GPL-2.0
/*
 * Measures what a bind by a work request takes from the post to the completion of the last
 * request of a doorbell, by the number of requests of the doorbell. A BIND_MW of a stock window
 * is the floor: rxe and the program do the same for both.
 *
 * On one processor, it takes 3,000 to 10,000 instructions more if the program looks for the
 * completion before rxe's worker has run, because it then sleeps. Without priorities the scheduler
 * decides by what both did before, so each order is measured for itself.
 */
#define _GNU_SOURCE		/* for SCHED_IDLE */
#include <err.h>
#include <sched.h>
#include <stdlib.h>

#include <infiniband/mkey.h>

#include "bench.h"

#define MAX_REQUESTS 1000
#define DEPTH 1024
#define BLOCK 64
#define LIST 4

/* A layout, as a description in an MR, and also in the process for inline data. */
struct text {
	void *bytes;
	size_t length;
	struct ibv_mr *mr;
};

struct doorbell {
	struct rc_dev *dev;
	struct rc_conn conn;
	struct ibv_qp_ex *qp;
	unsigned int requests;
	uint8_t *memory;
	struct ibv_mr *mr;
	struct text strided, list;
	struct ibv_mr *key[MAX_REQUESTS];
	struct ibv_mw *window[MAX_REQUESTS];
};

static void make_text(struct doorbell *doorbell, struct text *text,
		      const struct ibmkey_bind *bind)
{
	text->length = ibmkey_describe(bind, NULL, 0);
	text->bytes = new_buffer(text->length);
	ibmkey_describe(bind, text->bytes, text->length);
	text->mr = rc_reg(doorbell->dev, text->bytes, text->length, IBV_ACCESS_LOCAL_WRITE);
}

static void describe_both(struct doorbell *doorbell)
{
	const uint64_t addr = (uintptr_t)doorbell->memory, count = 16;
	const struct ibmkey_block block = {
		.addr = addr,
		.bytes_count = BLOCK,
		.lkey = doorbell->mr->lkey,
		.stride = { 2 * BLOCK },
	};
	struct ibmkey_range ranges[LIST];

	/* No two distances are equal. */
	for (unsigned int i = 0; i < LIST; i++)
		ranges[i] = (struct ibmkey_range) {
			.addr = addr + (i * i + 1) * 2 * BLOCK,
			.length = BLOCK,
			.lkey = doorbell->mr->lkey,
		};
	make_text(doorbell, &doorbell->strided, &(struct ibmkey_bind) {
		.kind = IBMKEY_INTERLEAVED,
		.num_entries = 1,
		.num_dims = 1,
		.repeat_count = &count,
		.blocks = &block,
	});
	make_text(doorbell, &doorbell->list, &(struct ibmkey_bind) {
		.kind = IBMKEY_LIST,
		.num_entries = LIST,
		.ranges = ranges,
	});
}

static void doorbell_open(struct doorbell *doorbell, struct bench *bench)
{
	struct rc_addr addr;

	doorbell->dev = &bench->dev[NEAR];
	rc_create(&doorbell->conn, doorbell->dev, "doorbell");
	request_extend(&doorbell->conn, doorbell->dev, DEPTH);
	/* No request leaves the node. */
	addr = rc_address(&doorbell->conn, doorbell->dev);
	rc_connect(&doorbell->conn, doorbell->dev, &addr);
	doorbell->qp = ibv_qp_to_qp_ex(doorbell->conn.qp);
	doorbell->memory = new_buffer(8192);
	doorbell->mr = rc_reg(doorbell->dev, doorbell->memory, 8192,
			      ACCESS_ALL | IBV_ACCESS_MW_BIND);
	describe_both(doorbell);
	for (unsigned int i = 0; i < MAX_REQUESTS; i++) {
		doorbell->key[i] = ibmkey_alloc(doorbell->dev->pd, LIST);
		doorbell->window[i] = ibv_alloc_mw(doorbell->dev->pd, IBV_MW_TYPE_2);
		if (!doorbell->key[i] || !doorbell->window[i])
			err(1, "key and window %u", i);
	}
}

static void text_close(struct text *text)
{
	must(ibv_dereg_mr(text->mr), "ibv_dereg_mr");
	free(text->bytes);
}

static void doorbell_close(struct doorbell *doorbell)
{
	for (unsigned int i = 0; i < MAX_REQUESTS; i++) {
		must(ibv_dereg_mr(doorbell->key[i]), "ibv_dereg_mr of a key");
		must(ibv_dealloc_mw(doorbell->window[i]), "ibv_dealloc_mw");
	}
	text_close(&doorbell->strided);
	text_close(&doorbell->list);
	must(ibv_dereg_mr(doorbell->mr), "ibv_dereg_mr");
	free(doorbell->memory);
	rc_destroy(&doorbell->conn);
}

/* Posts one request for each of the keys or windows, and waits for the last one. */
static void ring(struct doorbell *doorbell,
		 void (*add)(struct doorbell *doorbell, unsigned int i))
{
	ibv_wr_start(doorbell->qp);
	for (unsigned int i = 0; i < doorbell->requests; i++) {
		doorbell->qp->wr_id = i;
		doorbell->qp->wr_flags = i + 1 == doorbell->requests ? IBV_SEND_SIGNALED : 0;
		add(doorbell, i);
	}
	must(ibv_wr_complete(doorbell->qp), "ibv_wr_complete");
	rc_wait(&doorbell->conn);
}

static void add_bind(struct doorbell *doorbell, unsigned int i, const struct text *text,
		     struct ibv_mr *mr)
{
	const struct ibmkey_wr wr = {
		.mkey = doorbell->key[i],
		.mr = mr,
		.addr = (uintptr_t)text->bytes,
		.length = text->length,
		.access = ACCESS_ALL,
	};

	must(ibmkey_wr_bind(doorbell->qp, &wr), "ibmkey_wr_bind");
}

static void add_strided(struct doorbell *doorbell, unsigned int i)
{
	add_bind(doorbell, i, &doorbell->strided, doorbell->strided.mr);
}

static void add_inline(struct doorbell *doorbell, unsigned int i)
{
	add_bind(doorbell, i, &doorbell->strided, NULL);
}

static void add_list(struct doorbell *doorbell, unsigned int i)
{
	add_bind(doorbell, i, &doorbell->list, doorbell->list.mr);
}

static void add_unbind(struct doorbell *doorbell, unsigned int i)
{
	must(ibmkey_wr_unbind(doorbell->qp, doorbell->key[i]), "ibmkey_wr_unbind");
}

static void add_window(struct doorbell *doorbell, unsigned int i)
{
	const struct ibv_mw_bind_info info = {
		.mr = doorbell->mr,
		.addr = (uintptr_t)doorbell->memory,
		.length = BLOCK,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_mw *window = doorbell->window[i];
	const uint32_t rkey = ibv_inc_rkey(window->rkey);

	ibv_wr_bind_mw(doorbell->qp, window, rkey, &info);
	window->rkey = rkey;
}

static void add_release(struct doorbell *doorbell, unsigned int i)
{
	ibv_wr_local_inv(doorbell->qp, doorbell->window[i]->rkey);
}

#define WAY(name) static void name##_all(void *context) { ring(context, add_##name); }
WAY(strided)
WAY(inline)
WAY(list)
WAY(unbind)
WAY(window)
WAY(release)

static void clear(void *context)
{
	struct doorbell *doorbell = context;

	for (unsigned int i = 0; i < doorbell->requests; i++)
		must(ibmkey_unbind(doorbell->key[i]), "ibmkey_unbind");
}

/*
 * Unbinds keys after a bind to a layout of the same kind: a key that is bound again and again keeps
 * its memory.
 */
static void clear_strided(void *context)
{
	strided_all(context);
	clear(context);
}

static void clear_list(void *context)
{
	list_all(context);
	clear(context);
}

static void check_bound(void *context)
{
	struct doorbell *doorbell = context;
	struct ibmkey_info info;

	for (unsigned int i = 0; i < doorbell->requests; i++) {
		must(ibmkey_query(doorbell->key[i], &info), "ibmkey_query");
		if (info.kind == IBMKEY_UNBOUND)
			errx(1, "key %u is not bound", i);
	}
}

static void check_unbound(void *context)
{
	struct doorbell *doorbell = context;
	struct ibmkey_info info;

	for (unsigned int i = 0; i < doorbell->requests; i++) {
		must(ibmkey_query(doorbell->key[i], &info), "ibmkey_query");
		if (info.kind != IBMKEY_UNBOUND)
			errx(1, "key %u is bound", i);
	}
}

/* What runs first on the processor after the doorbell. */
static const struct order {
	const char *name;
	int policy;
	int priority;
} orders[] = {
	/* A worker that wakes up preempts a program with this policy, unless they are in groups. */
	{ "worker first", SCHED_IDLE, 0 },
	/* Workers wait until the program sleeps. */
	{ "program first", SCHED_FIFO, 1 },
};

/* Returns false if this process may not have the policy. */
static bool set_policy(int policy, int priority)
{
	const struct sched_param param = { .sched_priority = priority };

	return !sched_setscheduler(0, policy, &param);
}

static void measure_order(struct bench *bench, struct doorbell *doorbell,
			  const struct order *order)
{
	static const unsigned int requests[] = { 1, 10, MAX_REQUESTS };

	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		const struct series series = {
			.group = "doorbell",
			.name = order->name,
			.size = requests[i],
			.amount = requests[i],
			.unit = "operations",
		};
		const struct way ways[] = {
			{ "window", NULL, window_all, release_all, doorbell },
			{ "strided", clear_strided, strided_all, check_bound, doorbell },
			{ "inline", clear_strided, inline_all, check_bound, doorbell },
			{ "list", clear_list, list_all, check_bound, doorbell },
			{ "other", clear_list, strided_all, check_bound, doorbell },
			{ "rebind", strided_all, strided_all, check_bound, doorbell },
			{ "unbind", strided_all, unbind_all, check_unbound, doorbell },
		};

		doorbell->requests = requests[i];
		measure(bench, &series, ways, ARRAY_SIZE(ways));
	}
}

void measure_doorbell(struct bench *bench)
{
	static struct doorbell doorbell;

	doorbell_open(&doorbell, bench);
	for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
		if (!set_policy(orders[i].policy, orders[i].priority)) {
			warn("doorbell, %s: left out", orders[i].name);
			continue;
		}
		measure_order(bench, &doorbell, &orders[i]);
		if (!set_policy(SCHED_OTHER, 0))
			err(1, "SCHED_OTHER");
	}
	doorbell_close(&doorbell);
}
