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

#include <infiniband/mkey.h>

#include "rc.h"

#define ROWS 1000
#define COLUMNS 37
#define COLUMN 5	/* the column that is sent */

static double matrix[ROWS][COLUMNS];
static double received[ROWS];

int main(int argc, char **argv)
{
	struct ibv_mr *target, *key;
	int ret;
	struct rc_conn pair[2];
	struct rc_dev dev;

	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < COLUMNS; j++)
			matrix[i][j] = i + j / 100.0;

	rc_open(&dev, argc > 1 ? argv[1] : NULL);
	rc_create_loop(pair, &dev);

	target = rc_reg(&dev, received, sizeof(received),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	/*
	 * One dimension, in which elements are a row apart. The device only reads through the
	 * key, so no access flag is needed.
	 */
	key = ibmkey_reg_strided(dev.pd, &matrix[0][COLUMN], sizeof(matrix[0][0]), 1,
				 &(uint64_t){ ROWS }, &(int64_t){ sizeof(matrix[0]) }, 0);
	if (!key)
		err(1, "ibmkey_reg_strided: %s", ibmkey_last_error());
	rc_transfer(&pair[0], IBV_WR_RDMA_WRITE, ibmkey_sge(key), (uintptr_t)received,
		    target->rkey);

	for (int i = 0; i < ROWS; i++)
		if (received[i] != matrix[i][COLUMN])
			errx(1, "element %d is %g instead of %g", i, received[i],
			     matrix[i][COLUMN]);

	ret = ibmkey_dereg(key);	/* and the MR under it */
	if (ret)
		die(ret, "ibmkey_dereg: %s", ibmkey_last_error());
	rc_dereg(target);
	rc_destroy_loop(pair);
	rc_close(&dev);
	printf("column %d of %d x %d: %d elements of %zu bytes in one write\n",
	       COLUMN, ROWS, COLUMNS, ROWS, sizeof(matrix[0][0]));
	return 0;
}
