// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Reads a column of a matrix on another node by one RDMA READ. The node with the matrix
 * binds a key to the column and tells the other node its rkey. The reader does not know
 * the layout.
 *
 * usage: fetch DEVICE		has the matrix
 *        fetch DEVICE HOST	reads the column from the one on HOST
 */
#include <err.h>
#include <stdio.h>
#include <unistd.h>

#include <infiniband/mkey.h>

#include "peer.h"

#define ROWS 1000
#define COLUMNS 37
#define COLUMN 5

/* The numbers of a key that a peer needs. */
struct offer {
	uint32_t rkey;
	uint32_t length;
};

static double value(int row, int column)
{
	return row * 100 + column;
}

/* Offers the column, and returns when the other node has read it. */
static void give(struct rc_dev *dev)
{
	static double m[ROWS][COLUMNS];
	int listener = peer_listen(), sock = peer_accept(listener);
	struct rc_conn conn;

	close(listener);
	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < COLUMNS; j++)
			m[i][j] = value(i, j);
	peer_link(&conn, dev, sock, "the reader");
	struct ibv_mr *key = ibmkey_reg_strided(dev->pd, &m[0][COLUMN], sizeof(m[0][0]), 1,
						&(uint64_t){ ROWS }, &(int64_t){ sizeof(m[0]) },
						IBV_ACCESS_REMOTE_READ);

	if (!key)
		err(1, "ibmkey_reg_strided: %s", ibmkey_last_error());

	struct offer offer = { .rkey = key->rkey, .length = key->length };

	peer_tell(sock, &offer, sizeof(offer));
	peer_meet(sock);
	printf("the other node has column %d of %d x %d\n", COLUMN, ROWS, COLUMNS);
	if (ibmkey_dereg(key))	/* and the MR under it */
		errx(1, "ibmkey_dereg: %s", ibmkey_last_error());
	rc_destroy(&conn);
	close(sock);
}

static void fetch(struct rc_dev *dev, const char *host)
{
	static double got[ROWS];
	int sock = peer_connect(host);
	struct rc_conn conn;
	struct offer offer;

	peer_link(&conn, dev, sock, "the node with the matrix");
	struct ibv_mr *mr = rc_reg(dev, got, sizeof(got), IBV_ACCESS_LOCAL_WRITE);

	peer_hear(sock, &offer, sizeof(offer));
	if (offer.length != sizeof(got))
		errx(1, "%s offers %u bytes instead of %zu", host, offer.length, sizeof(got));
	rc_transfer(&conn, IBV_WR_RDMA_READ, ibmkey_sge(mr), 0, offer.rkey);
	for (int i = 0; i < ROWS; i++)
		if (got[i] != value(i, COLUMN))
			errx(1, "row %d is %g instead of %g", i, got[i], value(i, COLUMN));
	printf("column %d of %d x %d from %s: %d elements of %zu bytes in one READ\n", COLUMN, ROWS,
	       COLUMNS, host, ROWS, sizeof(got[0]));
	peer_meet(sock);
	rc_dereg(mr);
	rc_destroy(&conn);
	close(sock);
}

int main(int argc, char **argv)
{
	struct rc_dev dev;

	if (argc < 2 || argc > 3)
		errx(2, "usage: fetch DEVICE [HOST]");
	rc_open(&dev, argv[1]);
	if (argc == 2)
		give(&dev);
	else
		fetch(&dev, argv[2]);
	rc_close(&dev);
	return 0;
}
