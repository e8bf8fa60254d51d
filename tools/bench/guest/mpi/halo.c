// SPDX-License-Identifier: GPL-2.0
/*
 * Exchanges of two processes over one device, the halo of a cube and the transposition of a
 * matrix: Open MPI's derived datatypes against keys of the same datatypes, in one run. Started
 * by mpirun, with both processes' messages on that device.
 *
 * usage: mkey_bench_halo DEVICE REPETITIONS [-i] [-q]
 *   -i  note that the clock counts instructions
 *   -q  small boxes, all bytes checked; no times, but the packets that the device sent, and
 *       the bytes that Open MPI copied to or from a buffer
 */
#include <dlfcn.h>
#include <err.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <ibmkey_mpi.h>

#include "rc.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define AXES 3
#define FACES (2 * AXES)
#define MAX_EDGE 96
#define COMPLEX 2	/* doubles of an element of a matrix */
/* Exchanges between two barriers: their receives fit in a queue. */
#define ROUNDS (RC_RECV_DEPTH / FACES)

struct exchange;

/* Each process sends what @type gives for a message, and receives the peer's. */
struct kind {
	const char *name;
	int messages;
	size_t (*cells)(int edge);			/* doubles of a process */
	size_t (*sent)(int edge);			/* doubles of a message */
	MPI_Datatype (*type)(const struct exchange *ex, int message, bool out);
	/* The sender's cell from which @cell is; -1 if it is not received. */
	ssize_t (*source)(const struct exchange *ex, size_t cell);
};

struct exchange {
	const struct kind *kind;
	int edge;
	double *cells;
	struct rc_conn conn;
	struct ibv_mr *mr;
	struct ibmkey_mpi_key *out_key[FACES], *in_key[FACES];
	struct ibv_mr *out[FACES], *in[FACES];		/* of these keys */
	MPI_Datatype out_type[FACES], in_type[FACES];
	struct rc_dev *dev;
	int rank, peer;
	int round;					/* counted from 1 */
	int sent, received;				/* by keys, in lists and messages */
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static size_t volume(int edge)
{
	return (size_t)edge * edge * edge;
}

/* A cube of edge cells, with a border of one cell on each side, in row-major order. */
static size_t box_cells(int edge)
{
	return volume(edge + 2);
}

static size_t face_cells(int edge)
{
	return (size_t)edge * edge;
}

/* A layer of a box, perpendicular to an axis and without its border. */
static MPI_Datatype face_type(const struct exchange *ex, int message, bool out)
{
	const int n = ex->edge, axis = message / 2, high = message % 2;
	int sizes[] = { n + 2, n + 2, n + 2 }, part[] = { n, n, n }, start[] = { 1, 1, 1 };
	MPI_Datatype type;

	part[axis] = 1;
	start[axis] = out ? (high ? n : 1) : (high ? 0 : n + 1);
	MPI_Type_create_subarray(AXES, sizes, part, start, MPI_ORDER_C, MPI_DOUBLE, &type);
	return type;
}

/* The border has the peer's cells of the opposite layers. */
static ssize_t face_source(const struct exchange *ex, size_t cell)
{
	const int n = ex->edge, size = n + 2;
	int at[] = { cell / size / size, cell / size % size, cell % size }, borders = 0;

	for (int a = 0; a < AXES; a++)
		borders += at[a] == 0 || at[a] == n + 1;
	if (borders != 1)
		return -1;
	for (int a = 0; a < AXES; a++)
		if (at[a] == 0 || at[a] == n + 1)
			at[a] = at[a] ? 1 : n;
	return (at[0] * size + at[1]) * size + at[2];
}

/*
 * A square matrix of complex numbers, of which each process has edge rows, and then edge rows of
 * the transposed matrix. The diagonal blocks need no peer, and are not transposed here.
 */
static size_t matrix_cells(int edge)
{
	return 2ul * edge * 2 * edge * COMPLEX;
}

static size_t block_cells(int edge)
{
	return (size_t)edge * edge * COMPLEX;
}

/* The peer's columns of the own rows; they become the peer's rows, from the own column on. */
static MPI_Datatype block_type(const struct exchange *ex, int message, bool out)
{
	const int n = ex->edge;
	const size_t first = (out ? 0 : 2 * n * n) + (size_t)ex->peer * n;
	MPI_Datatype block, column, type;

	(void)message;	/* there is one */
	if (out) {
		MPI_Type_vector(n, n, 2 * n, MPI_C_DOUBLE_COMPLEX, &block);
	} else {
		MPI_Type_vector(n, 1, 2 * n, MPI_C_DOUBLE_COMPLEX, &type);
		MPI_Type_create_resized(type, 0, COMPLEX * sizeof(double), &column);
		MPI_Type_free(&type);
		MPI_Type_contiguous(n, column, &block);
		MPI_Type_free(&column);
	}
	MPI_Type_create_hindexed_block(1, 1, &(MPI_Aint){ first * COMPLEX * sizeof(double) }, block,
				       &type);
	MPI_Type_free(&block);
	return type;
}

static ssize_t block_source(const struct exchange *ex, size_t cell)
{
	const int n = ex->edge;
	const size_t element = cell / COMPLEX;
	const int row = (int)(element / (2 * n)) - n, column = element % (2 * n);

	if (row < 0 || column / n != ex->peer)
		return -1;
	return (((size_t)(column % n) * 2 * n) + ex->rank * n + row) * COMPLEX + cell % COMPLEX;
}

static const struct kind kinds[] = {
	{ "6 faces", FACES, box_cells, face_cells, face_type, face_source },
	{ "transposition", 1, matrix_cells, block_cells, block_type, block_source },
};

/* A key of the cells that @type has. */
static struct ibmkey_mpi_key *key_of(struct exchange *ex, MPI_Datatype type)
{
	struct ibmkey_mpi_layout layout;
	struct ibmkey_mpi_key *key;
	int ret;

	ret = ibmkey_mpi_layout(type, 1, &layout);
	if (ret)
		die(ret, "ibmkey_mpi_layout: %s", layout.part);
	if (ibmkey_mpi_entries(&layout) != 1)
		errx(1, "%s: %u entries", ex->kind->name, ibmkey_mpi_entries(&layout));
	ret = ibmkey_mpi_bind(ex->dev->pd, ex->cells, ex->mr, &layout,
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

static void fill(struct exchange *ex, int round)
{
	for (size_t i = 0; i < ex->kind->cells(ex->edge); i++)
		ex->cells[i] = value(ex->rank, round, i);
}

/* Each cell that is received has the peer's, and nothing else has changed. */
static void check(const struct exchange *ex, int round, const char *way)
{
	for (size_t cell = 0; cell < ex->kind->cells(ex->edge); cell++) {
		ssize_t from = ex->kind->source(ex, cell);
		double expected = from < 0 ? value(ex->rank, round, cell) :
					     value(ex->peer, round, from);

		if (ex->cells[cell] != expected)
			errx(1, "%s, %s: cell %zu is wrong", ex->kind->name, way, cell);
	}
}

static void by_mpi(struct exchange *ex)
{
	const int n = ex->kind->messages;
	MPI_Request request[2 * FACES];

	for (int i = 0; i < n; i++)
		MPI_Irecv(ex->cells, 1, ex->in_type[i], ex->peer, i, MPI_COMM_WORLD, &request[i]);
	for (int i = 0; i < n; i++)
		MPI_Isend(ex->cells, 1, ex->out_type[i], ex->peer, i, MPI_COMM_WORLD,
			  &request[n + i]);
	MPI_Waitall(2 * n, request, MPI_STATUSES_IGNORE);
}

/* Packed by MPI, sent as bytes, and unpacked: what programs do if they distrust datatypes. */
static void by_packing(struct exchange *ex)
{
	const int n = ex->kind->messages, bytes = ex->kind->sent(ex->edge) * sizeof(double);
	static char packed[2 * FACES][MAX_EDGE * MAX_EDGE * COMPLEX * sizeof(double)];
	MPI_Request request[2 * FACES];

	for (int i = 0; i < n; i++)
		MPI_Irecv(packed[i], bytes, MPI_PACKED, ex->peer, i, MPI_COMM_WORLD, &request[i]);
	for (int i = 0; i < n; i++) {
		int at = 0;

		MPI_Pack(ex->cells, 1, ex->out_type[i], packed[n + i], bytes, &at, MPI_COMM_WORLD);
		MPI_Isend(packed[n + i], bytes, MPI_PACKED, ex->peer, i, MPI_COMM_WORLD,
			  &request[n + i]);
	}
	MPI_Waitall(2 * n, request, MPI_STATUSES_IGNORE);
	for (int i = 0; i < n; i++) {
		int at = 0;

		MPI_Unpack(packed[i], bytes, &at, ex->cells, 1, ex->in_type[i], MPI_COMM_WORLD);
	}
}

/*
 * One SEND a message. The receives were posted in the same order, before the peer began. It
 * may be a round ahead.
 */
static void by_keys(struct exchange *ex)
{
	const int n = ex->kind->messages;
	struct ibv_send_wr wr[FACES];
	struct ibv_sge sge[FACES];

	for (int i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){
			.length = ex->out[i]->length,
			.lkey = ex->out[i]->lkey,
		};
		wr[i] = (struct ibv_send_wr){
			.next = i + 1 < n ? &wr[i + 1] : NULL,
			.sg_list = &sge[i],
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = i + 1 < n ? 0 : IBV_SEND_SIGNALED,
		};
	}
	rc_post(&ex->conn, wr);
	while (ex->sent < ex->round || ex->received < ex->round * n) {
		struct ibv_wc wc = rc_wait(&ex->conn);

		if (wc.opcode & IBV_WC_RECV)
			ex->received++;
		else
			ex->sent++;
	}
}

static void post_receives(struct exchange *ex)
{
	const int n = ex->kind->messages;

	ex->sent = 0;
	ex->received = 0;
	for (int i = 0; i < ROUNDS * n; i++)
		rc_post_recv(&ex->conn, i, ex->in[i % n], NULL, ex->in[i % n]->length);
}

static void exchange_open(struct exchange *ex, struct rc_dev *dev, int edge)
{
	const size_t bytes = ex->kind->cells(edge) * sizeof(double);
	struct rc_addr own, peer;

	MPI_Comm_rank(MPI_COMM_WORLD, &ex->rank);
	ex->peer = !ex->rank;
	ex->dev = dev;
	ex->edge = edge;
	ex->cells = aligned_alloc(4096, (bytes + 4095) & ~4095ul);
	if (!ex->cells)
		err(1, "%zu bytes", bytes);
	ex->mr = rc_reg(dev, ex->cells, bytes, IBV_ACCESS_LOCAL_WRITE);
	for (int i = 0; i < ex->kind->messages; i++) {
		ex->out_type[i] = ex->kind->type(ex, i, true);
		ex->in_type[i] = ex->kind->type(ex, i, false);
		MPI_Type_commit(&ex->out_type[i]);
		MPI_Type_commit(&ex->in_type[i]);
		ex->out_key[i] = key_of(ex, ex->out_type[i]);
		ex->in_key[i] = key_of(ex, ex->in_type[i]);
		ex->out[i] = ibmkey_mpi_mr(ex->out_key[i]);
		ex->in[i] = ibmkey_mpi_mr(ex->in_key[i]);
	}
	rc_create(&ex->conn, dev, "exchange");
	own = rc_address(&ex->conn, dev);
	MPI_Sendrecv(&own, sizeof(own), MPI_BYTE, ex->peer, 0, &peer, sizeof(peer), MPI_BYTE,
		     ex->peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	rc_connect(&ex->conn, dev, &peer);
}

static void exchange_close(struct exchange *ex)
{
	/* The peer may still wait for an acknowledgment. */
	MPI_Barrier(MPI_COMM_WORLD);
	rc_destroy(&ex->conn);
	for (int i = 0; i < ex->kind->messages; i++) {
		free_key(ex->out_key[i]);
		free_key(ex->in_key[i]);
		MPI_Type_free(&ex->out_type[i]);
		MPI_Type_free(&ex->in_type[i]);
	}
	rc_dereg(ex->mr);
	free(ex->cells);
}

static const struct {
	const char *name;
	void (*run)(struct exchange *ex);
	void (*before)(struct exchange *ex);
} ways[] = {
	{ "mpi", by_mpi, NULL },
	{ "packed", by_packing, NULL },
	{ "key", by_keys, post_receives },
};

enum { WAYS = ARRAY_SIZE(ways) };

static uint64_t exchange_by(struct exchange *ex, int way, int number)
{
	uint64_t start, ns;

	fill(ex, number);
	if (ways[way].before)
		ways[way].before(ex);
	MPI_Barrier(MPI_COMM_WORLD);
	start = now_ns();
	for (ex->round = 1; ex->round <= ROUNDS; ex->round++)
		ways[way].run(ex);
	MPI_Barrier(MPI_COMM_WORLD);
	ns = now_ns() - start;
	check(ex, number, ways[way].name);
	return ns;
}

static uint64_t copied;	/* bytes that Open MPI has packed or unpacked */

/* Counts what a function of Open MPI copies. It packs and unpacks by these two alone. */
#define COUNTED(name) \
int32_t name(void *state, struct iovec *iov, uint32_t *count, size_t *bytes) \
{ \
	static typeof(name) *real; \
	int32_t ret; \
	real = real ?: dlsym(RTLD_NEXT, #name); \
	if (!real) \
		errx(1, "no " #name " in Open MPI"); \
	ret = real(state, iov, count, bytes); \
	copied += *bytes; \
	return ret; \
}

COUNTED(opal_convertor_pack)
COUNTED(opal_convertor_unpack)

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

/* The first exchange by a way. Tells what it took, if nothing is measured. */
static void exchange_once(struct exchange *ex, int way, bool quiet)
{
	bool shows = quiet && ex->rank == 0;
	uint64_t before = shows ? packets_sent(ex->dev) : 0;

	copied = 0;
	exchange_by(ex, way, way);
	if (shows)
		printf("%s %s %d %" PRIu64 " %" PRIu64 "\n",
		       ex->kind->messages == 1 ? "block" : "faces", ways[way].name, ex->edge,
		       packets_sent(ex->dev) - before, copied);
}

static void measure(const struct kind *kind, struct rc_dev *dev, int edge, int repetitions,
		    bool quiet)
{
	uint64_t ns[WAYS][100];
	struct exchange ex = { .kind = kind };

	exchange_open(&ex, dev, edge);
	for (int way = 0; way < WAYS; way++)
		exchange_once(&ex, way, quiet);
	for (int i = 0; i < repetitions && !quiet; i++)
		for (int turn = 0; turn < WAYS; turn++) {
			/* No way always follows the same one. */
			int way = i % 2 ? WAYS - 1 - turn : turn;

			ns[way][i] = exchange_by(&ex, way, i * WAYS + turn);
		}
	for (int way = 0; way < WAYS && !quiet && ex.rank == 0; way++) {
		printf("{\"record\":\"series\",\"group\":\"halo\",\"name\":\"%s\",\"way\":\"%s\",\"size\":%d,\"amount\":%zu,\"unit\":\"bytes\",\"ns\":[",
		       kind->name, ways[way].name, edge,
		       ROUNDS * 2 * kind->messages * sizeof(double) * kind->sent(edge));
		for (int i = 0; i < repetitions; i++)
			printf("%s%" PRIu64, i ? "," : "", ns[way][i]);
		puts("]}");
	}
	exchange_close(&ex);
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
	for (unsigned int k = 0; k < ARRAY_SIZE(kinds); k++)
		for (unsigned int i = 0; i < (quiet ? 2 : ARRAY_SIZE(edges)); i++)
			measure(&kinds[k], &dev, edges[i], repetitions, quiet);
	rc_close(&dev);
	MPI_Finalize();
	return 0;
}
