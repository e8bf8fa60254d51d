// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sends a column of a matrix to another place as a row. One key describes the elements
 * of the column, whose stride is the length of a row. A request names a key as it names
 * any MR.
 *
 * usage: column [DEVICE]
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/mkey.h>

#include "rc.h"

#define ROWS 1000
#define COLUMNS 37
#define COLUMN 5	/* the column that is sent */

static double matrix[ROWS][COLUMNS];
static double received[ROWS];

/* Makes a key whose bytes are one column of the matrix, top to bottom. */
static struct ibv_mr *column_key(struct rc_dev *dev, struct ibv_mr *base)
{
	struct ibmkey_block element = {
		.addr = (uintptr_t)&matrix[0][COLUMN],
		.bytes_count = sizeof(matrix[0][0]),
		.lkey = base->lkey,
		.stride = { sizeof(matrix[0]) },
	};
	uint64_t rows = ROWS;
	struct ibv_mr *key = ibmkey_alloc(dev->pd, 1);
	int ret;

	if (!key)
		err(1, "ibmkey_alloc");
	/*
	 * One dimension, one block. The device only reads through the key, so no access flag
	 * is needed.
	 */
	ret = ibmkey_bind_interleaved(key, 0, 1, &rows, 1, &element);
	if (ret)
		die(ret, "ibmkey_bind_interleaved: %s", ibmkey_last_error());
	return key;
}

/* Writes the whole key to @to, which belongs to the remote side. */
static void write_key(struct rc_conn *conn, struct ibv_mr *key, size_t length,
		      struct ibv_mr *to)
{
	struct ibv_sge all = {
		.addr = 0,		/* a key's first byte is always at 0 */
		.length = length,
		.lkey = key->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &all,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {
			.remote_addr = (uintptr_t)to->addr,
			.rkey = to->rkey,
		},
	};

	rc_post(conn, &wr);
	rc_wait(conn);
}

int main(int argc, char **argv)
{
	struct ibv_mr *base, *target, *key;
	struct rc_conn pair[2];
	struct rc_dev dev;

	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < COLUMNS; j++)
			matrix[i][j] = i + j / 100.0;

	rc_open(&dev, argc > 1 ? argv[1] : NULL);
	rc_create_loop(pair, &dev);

	base = rc_reg(&dev, matrix, sizeof(matrix), 0);
	target = rc_reg(&dev, received, sizeof(received),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	key = column_key(&dev, base);
	write_key(&pair[0], key, sizeof(received), target);

	for (int i = 0; i < ROWS; i++)
		if (received[i] != matrix[i][COLUMN])
			errx(1, "element %d is %g instead of %g", i, received[i],
			     matrix[i][COLUMN]);

	/* Deregister the key first: an MR cannot be deregistered while a key describes it. */
	rc_dereg(key);
	rc_dereg(base);
	rc_dereg(target);
	rc_destroy_loop(pair);
	rc_close(&dev);
	printf("column %d of %d x %d: %d elements of %zu bytes in one write\n",
	       COLUMN, ROWS, COLUMNS, ROWS, sizeof(matrix[0][0]));
	return 0;
}
