// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Exchanges the faces of a 3-D box with the border of its neighbour, as solvers do in
 * each step. For each of the 6 faces there is a key on both sides, which is made once. A
 * step is one list of 6 requests, without packing.
 *
 * usage: halo [DEVICE]
 */
#include <err.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "rc.h"

enum { X = 12, Y = 20, Z = 28, AXES = 3, FACES = 2 * AXES, STEPS = 3 };

/* A box with a border of one cell on each side. */
struct box {
	double cells[X + 2][Y + 2][Z + 2];
};

static const uint64_t inside[AXES] = { X, Y, Z };
static const int64_t stride[AXES] = {
	sizeof(double[Y + 2][Z + 2]), sizeof(double[Z + 2]), sizeof(double)
};

static struct box here, there, expected;

/* A layer of a box perpendicular to @axis, without the border of that layer. */
struct layer {
	int axis;
	uint64_t at;
};

/* Sets @u and @v to the other two axes. */
static void across(int axis, int *u, int *v)
{
	*u = axis == 0 ? 1 : 0;
	*v = axis == 2 ? 1 : 2;
}

/* Returns a face of the box, or the opposite border of the neighbour, to which that face goes. */
static struct layer layer_of(int face, bool of_neighbour)
{
	uint64_t last = inside[face / 2];

	if (of_neighbour)
		return (struct layer){ face / 2, face % 2 ? 0 : last + 1 };
	return (struct layer){ face / 2, face % 2 ? last : 1 };
}

static struct ibv_mr *layer_key(struct rc_dev *dev, struct box *box, struct layer layer,
				int access)
{
	int u, v;

	across(layer.axis, &u, &v);
	char *first = (char *)box + layer.at * stride[layer.axis] + stride[u] + stride[v];
	struct ibv_mr *key = ibmkey_reg_strided(dev->pd, first, sizeof(double), 2,
						(uint64_t[]){ inside[u], inside[v] },
						(int64_t[]){ stride[u], stride[v] }, access);

	if (!key)
		err(1, "ibmkey_reg_strided: %s", ibmkey_last_error());
	return key;
}

/* Sends all faces by one list of requests. The completion of the last one is that of all. */
static void exchange(struct rc_conn *conn, struct ibv_mr *const from[], struct ibv_mr *const to[])
{
	struct ibv_send_wr wr[FACES];
	struct ibv_sge sge[FACES];

	for (int i = 0; i < FACES; i++) {
		sge[i] = ibmkey_sge(from[i]);
		wr[i] = (struct ibv_send_wr){
			.next = i + 1 < FACES ? &wr[i + 1] : NULL,
			.sg_list = &sge[i], .num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = i + 1 < FACES ? 0 : IBV_SEND_SIGNALED,
			.wr.rdma = { .rkey = to[i]->rkey },
		};
	}
	rc_post(conn, wr);
	rc_wait(conn);
}

/* Copies a face by assignments, for the comparison. */
static void expect(int face)
{
	struct layer from = layer_of(face, false), to = layer_of(face, true);
	int u, v;

	across(from.axis, &u, &v);
	for (uint64_t i = 1; i <= inside[u]; i++)
		for (uint64_t j = 1; j <= inside[v]; j++) {
			int64_t in_layer = i * stride[u] + j * stride[v];

			memcpy((char *)&expected + to.at * stride[to.axis] + in_layer,
			       (char *)&here + from.at * stride[from.axis] + in_layer,
			       sizeof(double));
		}
}

int main(int argc, char **argv)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_mr *from[FACES], *to[FACES];
	struct rc_conn pair[2];
	struct rc_dev dev;

	rc_open(&dev, argc > 1 ? argv[1] : NULL);
	rc_create_loop(pair, &dev);
	for (int i = 0; i < FACES; i++) {
		from[i] = layer_key(&dev, &here, layer_of(i, false), 0);
		to[i] = layer_key(&dev, &there, layer_of(i, true), access);
	}
	for (int step = 0; step < STEPS; step++) {
		for (size_t i = 0; i < sizeof(here) / sizeof(double); i++)
			((double *)&here)[i] = step * 1e6 + i + 0.5;
		for (int i = 0; i < FACES; i++)
			expect(i);
		exchange(&pair[0], from, to);
		if (memcmp(&there, &expected, sizeof(there)))
			errx(1, "step %d: the border is wrong, or other cells changed", step);
	}

	for (int i = 0; i < FACES; i++)
		if (ibmkey_dereg(from[i]) || ibmkey_dereg(to[i]))
			errx(1, "ibmkey_dereg: %s", ibmkey_last_error());
	rc_destroy_loop(pair);
	rc_close(&dev);
	printf("%d steps with the 6 faces of %d x %d x %d cells\n", STEPS, X, Y, Z);
	return 0;
}
