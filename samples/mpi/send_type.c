// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sends elements of MPI datatypes without packing. One request writes the bytes of a key
 * of the sender's datatype to a key of the peer's datatype. The result is that of
 * MPI_Pack() and MPI_Unpack().
 *
 * usage: send_type [DEVICE]
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ibmkey_mpi.h>

#include "rc.h"

#define N 24
#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

static double here[N][N][N], there[N][N][N], expected[N][N][N];

/* Makes a key of elements of @type at @buffer, which is in @mr. */
static struct ibmkey_mpi_key *key_of(struct rc_dev *dev, struct ibv_mr *mr, void *buffer,
				     MPI_Datatype type, int count, unsigned int access,
				     uint32_t *entries)
{
	struct ibmkey_mpi_layout layout;
	struct ibmkey_mpi_key *key;
	int ret;

	ret = ibmkey_mpi_layout(type, count, &layout);
	if (ret)
		die(ret, "%s", layout.part);
	ret = ibmkey_mpi_bind(dev->pd, buffer, mr, &layout, access, &key);
	if (ret)
		die(ret, "ibmkey_mpi_bind: %s", ibmkey_mpi_last_error());
	*entries = ibmkey_mpi_entries(&layout);
	ibmkey_mpi_free(&layout);
	return key;
}

static void write_key(struct rc_conn *conn, struct ibv_mr *from, struct ibv_mr *to)
{
	struct ibv_sge all = { .length = from->length, .lkey = from->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &all,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .rkey = to->rkey },
	};

	rc_post(conn, &wr);
	rc_wait(conn);
}

/* Makes the expected result: packs as one datatype and unpacks as the other one. */
static void expect(MPI_Datatype from, MPI_Datatype to)
{
	int size, in = 0, out = 0;
	void *packed;

	MPI_Type_size(from, &size);
	packed = malloc(size);
	MPI_Pack(here, 1, from, packed, size, &in, MPI_COMM_SELF);
	MPI_Unpack(packed, size, &out, expected, 1, to, MPI_COMM_SELF);
	free(packed);
}

static void send_type(struct rc_dev *dev, struct rc_conn *conn, const char *name,
		      MPI_Datatype from, MPI_Datatype to)
{
	struct ibv_mr *from_mr = rc_reg(dev, here, sizeof(here), 0);
	struct ibv_mr *to_mr = rc_reg(dev, there, sizeof(there), REMOTE);
	struct ibmkey_mpi_key *source, *target;
	uint32_t out, in;

	MPI_Type_commit(&from);
	MPI_Type_commit(&to);
	source = key_of(dev, from_mr, here, from, 1, 0, &out);
	target = key_of(dev, to_mr, there, to, 1, REMOTE, &in);
	write_key(conn, ibmkey_mpi_mr(source), ibmkey_mpi_mr(target));
	expect(from, to);
	if (memcmp(there, expected, sizeof(there)))
		errx(1, "%s: the bytes are not those of MPI", name);
	printf("%s: %zu bytes, %u and %u entries\n", name, ibmkey_mpi_mr(source)->length, out, in);
	if (ibmkey_mpi_unbind(source) || ibmkey_mpi_unbind(target))
		errx(1, "%s: a key is busy", name);
	rc_dereg(from_mr);
	rc_dereg(to_mr);
	MPI_Type_free(&from);
	MPI_Type_free(&to);
}

/* Makes a datatype of a box of the array and of one number before it: a struct of two types. */
static MPI_Datatype box_and_number(int first, MPI_Aint number)
{
	const int sizes[] = { N, N, N }, part[] = { 5, 6, 7 }, at[] = { first, 2, 3 };
	const int once[] = { 1, 1 };
	const MPI_Aint places[] = { number, 0 };
	MPI_Datatype types[] = { MPI_DOUBLE, MPI_DATATYPE_NULL }, both;

	MPI_Type_create_subarray(3, sizes, part, at, MPI_ORDER_C, MPI_DOUBLE, &types[1]);
	MPI_Type_create_struct(2, once, places, types, &both);
	MPI_Type_free(&types[1]);
	return both;
}

/* Makes a datatype of one layer of the array, perpendicular to an axis. */
static MPI_Datatype layer(int axis, int at)
{
	int sizes[] = { N, N, N }, part[] = { N, N, N }, start[] = { 0, 0, 0 };
	MPI_Datatype type;

	part[axis] = 1;
	start[axis] = at;
	MPI_Type_create_subarray(3, sizes, part, start, MPI_ORDER_C, MPI_DOUBLE, &type);
	return type;
}

int main(int argc, char **argv)
{
	struct rc_conn pair[2];
	struct rc_dev dev;

	MPI_Init(NULL, NULL);
	for (int i = 0; i < N * N * N; i++)
		(&here[0][0][0])[i] = i + 0.5;
	rc_open(&dev, argc > 1 ? argv[1] : NULL);
	rc_create_loop(pair, &dev);

	send_type(&dev, &pair[0], "layer 3 of axis 0 to layer 9 of axis 2",
		  layer(0, 3), layer(2, 9));
	send_type(&dev, &pair[0], "layer 4 of axis 1 to layer 0 of axis 1",
		  layer(1, 4), layer(1, 0));
	send_type(&dev, &pair[0], "a number and a box",
		  box_and_number(1, 80), box_and_number(9, 8));

	rc_destroy_loop(pair);
	rc_close(&dev);
	MPI_Finalize();
	return 0;
}
