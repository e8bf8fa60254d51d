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
	struct ibmkey_block element = {
		.addr = (uintptr_t)&m[0][COLUMN],
		.bytes_count = sizeof(m[0][0]),
		.stride = { sizeof(m[0]) },
	};
	int listener = peer_listen(), sock = peer_accept(listener), ret;
	struct rc_conn conn;

	close(listener);
	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < COLUMNS; j++)
			m[i][j] = value(i, j);
	peer_link(&conn, dev, sock, "the reader");
	struct ibv_mr *mr = rc_reg(dev, m, sizeof(m), 0);
	struct ibv_mr *key = ibmkey_alloc(dev->pd, 1);

	if (!key)
		err(1, "ibmkey_alloc: %s", ibmkey_last_error());
	element.lkey = mr->lkey;
	ret = ibmkey_bind_interleaved(key, IBV_ACCESS_REMOTE_READ, 1, &(uint64_t){ ROWS }, 1,
				      &element);
	if (ret)
		die(ret, "ibmkey_bind_interleaved: %s", ibmkey_last_error());

	struct offer offer = { .rkey = key->rkey, .length = key->length };

	peer_tell(sock, &offer, sizeof(offer));
	peer_meet(sock);
	printf("the other node has column %d of %d x %d\n", COLUMN, ROWS, COLUMNS);
	rc_dereg(key);		/* before the MR that it describes */
	rc_dereg(mr);
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
	struct ibv_sge to = { (uintptr_t)got, sizeof(got), mr->lkey };
	struct ibv_send_wr read = {
		.sg_list = &to,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = 0, .rkey = offer.rkey },
	};

	rc_post(&conn, &read);
	rc_wait(&conn);
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
