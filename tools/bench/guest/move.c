// SPDX-License-Identifier: GPL-2.0
/* Posts requests in lists, as many at a time as the queue has room for. */
#include <err.h>
#include <inttypes.h>
#include <string.h>

#include "bench.h"

#define LIST_LENGTH 32	/* requests posted with one call */

const char *const op_names[NUM_OPS] = {
	[OP_WRITE] = "write",
	[OP_READ] = "read",
	[OP_SEND] = "send",
};

static const enum ibv_wr_opcode opcodes[NUM_OPS] = {
	[OP_WRITE] = IBV_WR_RDMA_WRITE,
	[OP_READ] = IBV_WR_RDMA_READ,
	[OP_SEND] = IBV_WR_SEND,
};

struct queue {
	struct rc_conn *conn;
	unsigned int lists;		/* signalled and not yet completed */
	unsigned int receives;		/* posted and not yet completed */
};

static void post_list(struct queue *queue, struct ibv_send_wr *wr,
		      unsigned int num)
{
	for (unsigned int i = 0; i + 1 < num; i++)
		wr[i].next = &wr[i + 1];
	/* One completion frees the whole list's entries in the queue. */
	wr[num - 1].next = NULL;
	wr[num - 1].send_flags = IBV_SEND_SIGNALED;
	while (queue->lists >= RC_SEND_DEPTH / LIST_LENGTH) {
		rc_wait(&queue->conn[NEAR]);
		queue->lists--;
	}
	rc_post(&queue->conn[NEAR], wr);
	queue->lists++;
}

static void post_receive(struct queue *queue, struct message *message)
{
	struct ibv_recv_wr wr = {
		.sg_list = message->far,
		.num_sge = message->num_sge,
	}, *bad;

	while (queue->receives >= RC_RECV_DEPTH) {
		rc_wait(&queue->conn[FAR]);
		queue->receives--;
	}
	must(ibv_post_recv(queue->conn[FAR].qp, &wr, &bad), "ibv_post_recv");
	queue->receives++;
}

static void drain(struct queue *queue)
{
	for (; queue->receives; queue->receives--)
		rc_wait(&queue->conn[FAR]);
	for (; queue->lists; queue->lists--)
		rc_wait(&queue->conn[NEAR]);
}

void move(struct bench *bench, enum op op, unsigned int count,
	  void (*get)(void *context, unsigned int index, struct message *message),
	  void *context)
{
	struct queue queue = { .conn = bench->conn };
	struct message message[LIST_LENGTH];
	struct ibv_send_wr wr[LIST_LENGTH];

	for (unsigned int next = 0; next < count;) {
		unsigned int n;

		for (n = 0; n < LIST_LENGTH && next < count; n++, next++) {
			get(context, next, &message[n]);
			if (op == OP_SEND)
				post_receive(&queue, &message[n]);
			wr[n] = (struct ibv_send_wr) {
				.sg_list = message[n].near,
				.num_sge = message[n].num_sge,
				.opcode = opcodes[op],
				.wr.rdma = {
					.remote_addr = message[n].far[0].addr,
					.rkey = message[n].rkey,
				},
			};
		}
		post_list(&queue, wr, n);
	}
	drain(&queue);
}

struct spans {
	const struct span *span;
	size_t length;
};

static void get_span(void *context, unsigned int index, struct message *message)
{
	const struct spans *spans = context;

	(void)index;
	message->num_sge = 1;
	message->near[0] = (struct ibv_sge) {
		.addr = spans->span[NEAR].addr,
		.length = spans->length,
		.lkey = spans->span[NEAR].mr->lkey,
	};
	message->far[0] = (struct ibv_sge) {
		.addr = spans->span[FAR].addr,
		.length = spans->length,
		.lkey = spans->span[FAR].mr->lkey,
	};
	message->rkey = spans->span[FAR].mr->rkey;
}

void move_span(struct bench *bench, enum op op, const struct span span[2],
	       size_t length, unsigned int count)
{
	struct spans spans = { span, length };

	move(bench, op, count, get_span, &spans);
}

void fetch_and_add(struct bench *bench, const struct span *to, uint64_t *found,
		   const struct ibv_mr *found_mr, unsigned int count)
{
	struct queue queue = { .conn = bench->conn };
	struct ibv_send_wr wr[LIST_LENGTH];
	struct ibv_sge sge[LIST_LENGTH];

	for (unsigned int next = 0; next < count;) {
		unsigned int n;

		for (n = 0; n < LIST_LENGTH && next < count; n++, next++) {
			sge[n] = (struct ibv_sge) {
				.addr = (uintptr_t)&found[next],
				.length = sizeof(*found),
				.lkey = found_mr->lkey,
			};
			wr[n] = (struct ibv_send_wr) {
				.sg_list = &sge[n],
				.num_sge = 1,
				.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				.wr.atomic = {
					.remote_addr = to->addr,
					.rkey = to->mr->rkey,
					.compare_add = 1,
				},
			};
		}
		post_list(&queue, wr, n);
	}
	drain(&queue);
}

void check_found(const uint64_t *found, unsigned int count, uint64_t last)
{
	for (unsigned int i = 0; i < count; i++)
		if (found[i] != i)
			errx(1, "fetch-and-add %u found %" PRIu64, i, found[i]);
	if (last != count)
		errx(1, "%u fetch-and-adds left %" PRIu64, count, last);
}
