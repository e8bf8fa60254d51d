// SPDX-License-Identifier: GPL-2.0
/*
 * Halo exchange of two processes over one device: Open MPI's derived datatypes against
 * keys of the same datatypes, in one run. Started by mpirun, with both processes' messages on
 * that device.
 *
 * usage: mkey_bench_halo DEVICE REPETITIONS [-i] [-q]
 *   -i  note that the clock counts instructions
 *   -q  small boxes, all bytes checked; no times, but the packets that the device sent
 */
#include <err.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <ibmkey_mpi.h>

#include "rc.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define AXES 3
#define FACES (2 * AXES)
#define MAX_EDGE 96
/* Exchanges between two barriers: their receives fit in a queue. */
#define ROUNDS (RC_RECV_DEPTH / FACES)

/* A cube of edge cells, with a border of one cell on each side, in row-major order. */
struct box {
	int edge;
	double *cells;
	size_t bytes;
};

struct halo {
	struct box box;
	struct rc_conn conn;
	struct ibv_mr *mr;
	struct ibmkey_mpi_key *out_key[FACES], *in_key[FACES];
	struct ibv_mr *out[FACES], *in[FACES];		/* of these keys */
	MPI_Datatype out_type[FACES], in_type[FACES];
	struct rc_dev *dev;
	int rank, peer;
	int round;					/* counted from 1 */
	int sent, received;				/* by keys, in lists and faces */
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* The layer @at of a box, perpendicular to @axis and without its border. */
static MPI_Datatype layer_type(const struct box *box, int axis, int at)
{
	const int n = box->edge;
	int sizes[] = { n + 2, n + 2, n + 2 }, part[] = { n, n, n }, start[] = { 1, 1, 1 };
	MPI_Datatype type;

	part[axis] = 1;
	start[axis] = at;
	MPI_Type_create_subarray(AXES, sizes, part, start, MPI_ORDER_C, MPI_DOUBLE, &type);
	MPI_Type_commit(&type);
	return type;
}

/* A key of the cells that @type has. */
static struct ibmkey_mpi_key *key_of(struct halo *halo, MPI_Datatype type)
{
	struct ibmkey_mpi_layout layout;
	struct ibmkey_mpi_key *key;
	int ret;

	ret = ibmkey_mpi_layout(type, 1, &layout);
	if (ret)
		die(ret, "ibmkey_mpi_layout: %s", layout.part);
	if (ibmkey_mpi_entries(&layout) != 1)
		errx(1, "%u entries for a layer", ibmkey_mpi_entries(&layout));
	ret = ibmkey_mpi_bind(halo->dev->pd, halo->box.cells, halo->mr, &layout,
			      IBV_ACCESS_LOCAL_WRITE, &key);
	if (ret)
		die(ret, "ibmkey_mpi_bind: %s", ibmkey_mpi_last_error());
	ibmkey_mpi_free(&layout);
	return key;
}

static void free_key(struct ibmkey_mpi_key *key)
{
	int ret = ibmkey_mpi_unbind(key);

	if (ret)
		die(ret, "ibmkey_mpi_unbind");
}

/* Tells the cells of ranks, rounds and places apart. */
static double value(int rank, int round, size_t cell)
{
	return rank * 0.5 + round * 1e7 + cell;
}

static void fill(struct halo *halo, int round)
{
	for (size_t i = 0; i < halo->box.bytes / sizeof(double); i++)
		halo->box.cells[i] = value(halo->rank, round, i);
}

/* The border has the peer's cells of the opposite layers, and nothing else has changed. */
static void check(const struct halo *halo, int round, const char *way)
{
	const int n = halo->box.edge, size = n + 2;

	for (int x = 0; x < size; x++)
		for (int y = 0; y < size; y++)
			for (int z = 0; z < size; z++) {
				int at[] = { x, y, z }, borders = 0, rank = halo->rank;
				size_t from, cell = ((size_t)x * size + y) * size + z;

				for (int a = 0; a < AXES; a++)
					borders += at[a] == 0 || at[a] == n + 1;
				for (int a = 0; a < AXES && borders == 1; a++)
					if (at[a] == 0 || at[a] == n + 1) {
						at[a] = at[a] ? 1 : n;
						rank = halo->peer;
					}
				from = ((size_t)at[0] * size + at[1]) * size + at[2];
				if (halo->box.cells[cell] != value(rank, round, from))
					errx(1, "%s: cell %d %d %d is wrong", way, x, y, z);
			}
}

static void by_mpi(struct halo *halo)
{
	MPI_Request request[2 * FACES];

	for (int i = 0; i < FACES; i++)
		MPI_Irecv(halo->box.cells, 1, halo->in_type[i], halo->peer, i, MPI_COMM_WORLD,
			  &request[i]);
	for (int i = 0; i < FACES; i++)
		MPI_Isend(halo->box.cells, 1, halo->out_type[i], halo->peer, i, MPI_COMM_WORLD,
			  &request[FACES + i]);
	MPI_Waitall(2 * FACES, request, MPI_STATUSES_IGNORE);
}

/* Packed by MPI, sent as bytes, and unpacked: what programs do if they distrust datatypes. */
static void by_packing(struct halo *halo)
{
	const int face = halo->box.edge * halo->box.edge * sizeof(double);
	static char packed[2 * FACES][MAX_EDGE * MAX_EDGE * sizeof(double)];
	MPI_Request request[2 * FACES];

	for (int i = 0; i < FACES; i++)
		MPI_Irecv(packed[i], face, MPI_PACKED, halo->peer, i, MPI_COMM_WORLD, &request[i]);
	for (int i = 0; i < FACES; i++) {
		int at = 0;

		MPI_Pack(halo->box.cells, 1, halo->out_type[i], packed[FACES + i], face, &at,
			 MPI_COMM_WORLD);
		MPI_Isend(packed[FACES + i], face, MPI_PACKED, halo->peer, i, MPI_COMM_WORLD,
			  &request[FACES + i]);
	}
	MPI_Waitall(2 * FACES, request, MPI_STATUSES_IGNORE);
	for (int i = 0; i < FACES; i++) {
		int at = 0;

		MPI_Unpack(packed[i], face, &at, halo->box.cells, 1, halo->in_type[i],
			   MPI_COMM_WORLD);
	}
}

/*
 * One SEND a face. The receives were posted in the same order, before the peer began. It
 * may be a round ahead.
 */
static void by_keys(struct halo *halo)
{
	struct ibv_send_wr wr[FACES];
	struct ibv_sge sge[FACES];

	for (int i = 0; i < FACES; i++) {
		sge[i] = (struct ibv_sge){
			.length = halo->out[i]->length,
			.lkey = halo->out[i]->lkey,
		};
		wr[i] = (struct ibv_send_wr){
			.next = i + 1 < FACES ? &wr[i + 1] : NULL,
			.sg_list = &sge[i],
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = i + 1 < FACES ? 0 : IBV_SEND_SIGNALED,
		};
	}
	rc_post(&halo->conn, wr);
	while (halo->sent < halo->round || halo->received < halo->round * FACES) {
		struct ibv_wc wc = rc_wait(&halo->conn);

		if (wc.opcode & IBV_WC_RECV)
			halo->received++;
		else
			halo->sent++;
	}
}

static void post_receives(struct halo *halo)
{
	halo->sent = 0;
	halo->received = 0;
	for (int i = 0; i < ROUNDS * FACES; i++)
		rc_post_recv(&halo->conn, i, halo->in[i % FACES], NULL,
			     halo->in[i % FACES]->length);
}

static void halo_open(struct halo *halo, struct rc_dev *dev, int edge)
{
	struct rc_addr own, peer;

	MPI_Comm_rank(MPI_COMM_WORLD, &halo->rank);
	halo->peer = !halo->rank;
	halo->dev = dev;
	halo->box.edge = edge;
	halo->box.bytes = (edge + 2) * (edge + 2) * (edge + 2) * sizeof(double);
	halo->box.cells = aligned_alloc(4096, (halo->box.bytes + 4095) & ~4095ul);
	if (!halo->box.cells)
		err(1, "a box of %zu bytes", halo->box.bytes);
	halo->mr = rc_reg(dev, halo->box.cells, halo->box.bytes, IBV_ACCESS_LOCAL_WRITE);
	for (int i = 0; i < FACES; i++) {
		int out = i % 2 ? edge : 1, in = i % 2 ? 0 : edge + 1;

		halo->out_type[i] = layer_type(&halo->box, i / 2, out);
		halo->in_type[i] = layer_type(&halo->box, i / 2, in);
		halo->out_key[i] = key_of(halo, halo->out_type[i]);
		halo->in_key[i] = key_of(halo, halo->in_type[i]);
		halo->out[i] = ibmkey_mpi_mr(halo->out_key[i]);
		halo->in[i] = ibmkey_mpi_mr(halo->in_key[i]);
	}
	rc_create(&halo->conn, dev, "halo");
	own = rc_address(&halo->conn, dev);
	MPI_Sendrecv(&own, sizeof(own), MPI_BYTE, halo->peer, 0, &peer, sizeof(peer), MPI_BYTE,
		     halo->peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	rc_connect(&halo->conn, dev, &peer);
}

static void halo_close(struct halo *halo)
{
	/* The peer may still wait for an acknowledgment. */
	MPI_Barrier(MPI_COMM_WORLD);
	rc_destroy(&halo->conn);
	for (int i = 0; i < FACES; i++) {
		free_key(halo->out_key[i]);
		free_key(halo->in_key[i]);
		MPI_Type_free(&halo->out_type[i]);
		MPI_Type_free(&halo->in_type[i]);
	}
	rc_dereg(halo->mr);
	free(halo->box.cells);
}

static const struct {
	const char *name;
	void (*run)(struct halo *halo);
	void (*before)(struct halo *halo);
} ways[] = {
	{ "mpi", by_mpi, NULL },
	{ "packed", by_packing, NULL },
	{ "key", by_keys, post_receives },
};

enum { WAYS = ARRAY_SIZE(ways) };

static uint64_t exchange(struct halo *halo, int way, int number)
{
	uint64_t start, ns;

	fill(halo, number);
	if (ways[way].before)
		ways[way].before(halo);
	MPI_Barrier(MPI_COMM_WORLD);
	start = now_ns();
	for (halo->round = 1; halo->round <= ROUNDS; halo->round++)
		ways[way].run(halo);
	MPI_Barrier(MPI_COMM_WORLD);
	ns = now_ns() - start;
	check(halo, number, ways[way].name);
	return ns;
}

/* Returns the packets that the device has sent. */
static uint64_t packets_sent(const struct rc_dev *dev)
{
	const char *count = NULL;
	char text[4096] = "", command[256];
	FILE *rdma;

	snprintf(command, sizeof(command), "rdma statistic show link %s/1",
		 ibv_get_device_name(dev->ctx->device));
	rdma = popen(command, "r");
	if (rdma && fread(text, 1, sizeof(text) - 1, rdma))
		count = strstr(text, "sent_pkts ");
	if (!rdma || pclose(rdma) || !count)
		errx(1, "%s shows no packets", command);
	return strtoull(count + strlen("sent_pkts "), NULL, 10);
}

/* The first exchange by a way. Tells how many packets it took, if nothing is measured. */
static void exchange_once(struct halo *halo, int way, bool quiet)
{
	bool shows = quiet && halo->rank == 0;
	uint64_t before = shows ? packets_sent(halo->dev) : 0;

	exchange(halo, way, way);
	if (shows)
		printf("%s %d %" PRIu64 "\n", ways[way].name, halo->box.edge,
		       packets_sent(halo->dev) - before);
}

static void measure(struct rc_dev *dev, int edge, int repetitions, bool quiet)
{
	uint64_t ns[WAYS][100];
	struct halo halo = {};

	halo_open(&halo, dev, edge);
	for (int way = 0; way < WAYS; way++)
		exchange_once(&halo, way, quiet);
	for (int i = 0; i < repetitions && !quiet; i++)
		for (int turn = 0; turn < WAYS; turn++) {
			/* No way always follows the same one. */
			int way = i % 2 ? WAYS - 1 - turn : turn;

			ns[way][i] = exchange(&halo, way, i * WAYS + turn);
		}
	for (int way = 0; way < WAYS && !quiet && halo.rank == 0; way++) {
		printf("{\"record\":\"series\",\"group\":\"halo\",\"name\":\"6 faces\",\"way\":\"%s\",\"size\":%d,\"amount\":%zu,\"unit\":\"bytes\",\"ns\":[",
		       ways[way].name, edge, ROUNDS * 2 * FACES * sizeof(double) * edge * edge);
		for (int i = 0; i < repetitions; i++)
			printf("%s%" PRIu64, i ? "," : "", ns[way][i]);
		puts("]}");
	}
	halo_close(&halo);
}

static void print_run(const struct rc_dev *dev, int repetitions, bool icount)
{
	const char *name = ibv_get_device_name(dev->ctx->device);
	struct utsname kernel;

	if (uname(&kernel))
		err(1, "uname");
	printf("{\"record\":\"run\",\"kernel\":\"%s\",\"cpus\":%ld,\"near\":\"%s\",\"far\":\"%s\",\"mtu\":%u,\"repetitions\":%d,\"shift\":0,\"icount\":%s}\n",
	       kernel.release, sysconf(_SC_NPROCESSORS_ONLN), name, name, 128u << dev->mtu,
	       repetitions, icount ? "true" : "false");
}

int main(int argc, char **argv)
{
	static const int edges[] = { 8, 16, 32, 64, MAX_EDGE };
	const int repetitions = argc > 2 ? atoi(argv[2]) : 0;
	bool quiet = false, icount = false;
	struct rc_dev dev;
	int size, rank;

	for (int i = 3; i < argc; i++) {
		quiet |= !strcmp(argv[i], "-q");
		icount |= !strcmp(argv[i], "-i");
	}
	MPI_Init(&argc, &argv);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (repetitions < 1 || repetitions > 100 || size != 2)
		errx(2, "usage: mpirun -n 2 mkey_bench_halo DEVICE REPETITIONS [-i] [-q]");
	rc_open(&dev, argv[1]);
	if (rank == 0 && !quiet)
		print_run(&dev, repetitions, icount);
	for (unsigned int i = 0; i < (quiet ? 2 : ARRAY_SIZE(edges)); i++)
		measure(&dev, edges[i], repetitions, quiet);
	rc_close(&dev);
	MPI_Finalize();
	return 0;
}
