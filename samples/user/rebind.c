// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sends a row, a column and the diagonal of a matrix through one key. Work requests bind
 * and invalidate the key in the order of the queue, so the program waits only once.
 *
 * usage: rebind [DEVICE]
 */
#include <err.h>
#include <stdio.h>
#include <infiniband/mkey.h>
#include "rc.h"

#define N 6
#define MESSAGES 3

static double m[N][N], got[MESSAGES][N];

/* Posts three requests: bind the key to N elements of m, send them, invalidate the key. */
static void post_message(struct rc_conn *conn, struct ibv_mr *key, int i,
			 const struct ibmkey_block *element)
{
	struct ibmkey_bind layout = { .mkey = key, .access = IBV_ACCESS_REMOTE_READ,
				      .kind = IBMKEY_INTERLEAVED, .num_entries = 1, .num_dims = 1,
				      .repeat_count = &(uint64_t){ N }, .blocks = element };
	int ret = ibmkey_post_layout(ibv_qp_to_qp_ex(conn->qp), &layout, 0, 0);

	if (ret)
		die(ret, "ibmkey_post_layout: %s", ibmkey_last_error());
	struct ibv_sge all = ibmkey_sge(key);
	struct ibv_send_wr send = { .sg_list = &all, .num_sge = 1, .opcode = IBV_WR_SEND };

	rc_post(conn, &send);
	/* The next message uses the lkey and rkey that this call sets. */
	ret = ibmkey_post_unbind(conn->qp, key, i, i == MESSAGES - 1 ? IBV_SEND_SIGNALED : 0);
	if (ret)
		die(ret, "ibmkey_post_unbind");
}

int main(int argc, char **argv)
{
	const int64_t size = sizeof(double), row = sizeof(m[0]);
	struct rc_conn pair[2];
	struct rc_dev dev;
	struct ibv_wc wc;
	uint32_t stale;

	for (int i = 0; i < N * N; i++)
		m[i / N][i % N] = 10 * (i / N) + i % N;
	rc_open(&dev, argc > 1 ? argv[1] : NULL);
	rc_create_loop(pair, &dev);
	struct ibv_mr *mr = rc_reg(&dev, m, sizeof(m), 0);
	struct ibv_mr *to = rc_reg(&dev, got, sizeof(got), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *key = ibmkey_alloc(dev.pd, 1);
	const struct ibmkey_block elements[MESSAGES] = {
		{ (uintptr_t)m[1], size, { size }, mr->lkey, 0 },	/* row 1 */
		{ (uintptr_t)&m[0][2], size, { row }, mr->lkey, 0 },	/* column 2 */
		{ (uintptr_t)m, size, { row + size }, mr->lkey, 0 },	/* diagonal */
	};
	if (!key)
		err(1, "ibmkey_alloc");
	for (int i = 0; i < MESSAGES; i++) {
		stale = key->rkey;
		rc_post_recv(&pair[1], i, to, got[i], sizeof(got[i]));
		post_message(&pair[0], key, i, &elements[i]);
	}
	rc_wait(&pair[0]);		/* the last of the nine requests completes */
	for (int i = 0; i < MESSAGES; i++, puts("")) {
		rc_wait(&pair[1]);
		for (int j = 0; j < N; j++) {
			printf("%4g", got[i][j]);
			if (got[i][j] != *(double *)(elements[i].addr + j * elements[i].stride[0]))
				errx(1, ": element %d of message %d is wrong", j, i);
		}
	}
	/* The peer still has the rkey of the last message. */
	struct ibv_send_wr read = { .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
		.sg_list = &(struct ibv_sge){ (uintptr_t)got, row, to->lkey }, .num_sge = 1,
		.wr.rdma.rkey = stale };
	rc_post(&pair[1], &read);
	while (!ibv_poll_cq(pair[1].cq, 1, &wc))
		;
	printf("a READ by the last rkey: %s\n", ibv_wc_status_str(wc.status));

	rc_dereg(key);			/* before the MRs that it describes */
	rc_dereg(to);
	rc_dereg(mr);
	rc_destroy_loop(pair);
	rc_close(&dev);
	return wc.status != IBV_WC_REM_ACCESS_ERR;
}
