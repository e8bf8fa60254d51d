// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Tests keys of random MPI datatypes on a device. Each key is the source and the target of a
 * WRITE and of a READ. The test compares all bytes of the memory, also those between the
 * blocks, with its own list of the type's bytes, and with MPI_Pack() and MPI_Unpack().
 *
 * usage: transfer DEVICE NUMBER [SEED]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../../samples/user/rc.h"
#include "draw.h"
#include "report.h"

#define BESIDE 64		/* bytes before and after those of the type, outside of the MR */
#define MOST (1 << 16)		/* largest number of bytes of a type */
#define WIDEST (1 << 20)	/* largest span of memory of a type */
#define ALL_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static struct rc_dev dev;
static struct rc_conn pair[2];

/* The memory and the key of a type, and a buffer for the same number of packed bytes. */
struct pair_of_mrs {
	const struct drawn *all;		/* the bytes of all elements */
	unsigned char *memory, *expected;
	size_t size;
	unsigned char *buffer;			/* in memory: the address that MPI gets */
	unsigned char *packed, *packed_expected;
	struct ibv_mr *memory_mr, *packed_mr, *key;
};

static void transfer(enum ibv_wr_opcode opcode, const struct ibv_mr *local,
		     const struct ibv_mr *remote)
{
	struct ibv_sge sge = { .addr = (uintptr_t)local->addr, .length = local->length,
			       .lkey = local->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)remote->addr, .rkey = remote->rkey },
	};

	rc_post(&pair[0], &wr);
	rc_wait(&pair[0]);
}

static void fill(unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = rnd(256);
}

/* Compares the whole memory and all packed bytes with what is expected. */
static bool same(const struct pair_of_mrs *p, const char *way)
{
	for (size_t i = 0; i < p->size; i++)
		if (p->memory[i] != p->expected[i]) {
			printf("# %s: byte %ld of memory is wrong\n", way,
			       (long)(p->memory + i - p->buffer));
			return false;
		}
	for (size_t i = 0; i < p->all->bytes; i++)
		if (p->packed[i] != p->packed_expected[i]) {
			printf("# %s: packed byte %zu is wrong\n", way, i);
			return false;
		}
	return true;
}

/* Copies from the key into the packed buffer. */
static bool gather(struct pair_of_mrs *p, bool by_read)
{
	fill(p->packed, p->all->bytes);
	fill(p->memory, p->size);
	memcpy(p->expected, p->memory, p->size);
	for (size_t i = 0; i < p->all->bytes; i++)
		p->packed_expected[i] = p->buffer[p->all->at[i]];
	if (by_read)
		transfer(IBV_WR_RDMA_READ, p->packed_mr, p->key);
	else
		transfer(IBV_WR_RDMA_WRITE, p->key, p->packed_mr);
	return same(p, by_read ? "READ from the key" : "WRITE from the key");
}

/* Copies from the packed buffer into the key. If the key has a byte twice, the last one stays. */
static bool scatter(struct pair_of_mrs *p, bool by_read)
{
	fill(p->packed, p->all->bytes);
	memcpy(p->packed_expected, p->packed, p->all->bytes);
	fill(p->memory, p->size);
	memcpy(p->expected, p->memory, p->size);
	for (size_t i = 0; i < p->all->bytes; i++)
		p->expected[p->buffer - p->memory + p->all->at[i]] = p->packed[i];
	if (by_read)
		transfer(IBV_WR_RDMA_READ, p->key, p->packed_mr);
	else
		transfer(IBV_WR_RDMA_WRITE, p->packed_mr, p->key);
	return same(p, by_read ? "READ into the key" : "WRITE into the key");
}

static bool overlaps(const struct pair_of_mrs *p)
{
	unsigned char *used = calloc(p->size, 1);
	bool twice = false;

	for (size_t i = 0; i < p->all->bytes; i++) {
		unsigned char *byte = &used[p->buffer - p->memory + p->all->at[i]];

		twice |= *byte;
		*byte = 1;
	}
	free(used);
	return twice;
}

/* Does a gather and a scatter, and compares them with MPI_Pack() and MPI_Unpack(). */
static bool as_mpi(struct pair_of_mrs *p, MPI_Datatype type, int count)
{
	int position = 0, bytes = p->all->bytes;

	fill(p->packed, bytes);
	fill(p->memory, p->size);
	MPI_Pack(p->buffer, count, type, p->packed_expected, bytes, &position, MPI_COMM_SELF);
	memcpy(p->expected, p->memory, p->size);
	transfer(IBV_WR_RDMA_WRITE, p->key, p->packed_mr);
	if (!same(p, "MPI_Pack()"))
		return false;
	if (overlaps(p))
		return true;
	fill(p->packed, bytes);
	memcpy(p->packed_expected, p->packed, bytes);
	fill(p->expected, p->size);
	memcpy(p->memory, p->expected, p->size);
	position = 0;
	MPI_Unpack(p->packed, bytes, &position, p->expected + (p->buffer - p->memory), count, type,
		   MPI_COMM_SELF);
	transfer(IBV_WR_RDMA_WRITE, p->packed_mr, p->key);
	return same(p, "MPI_Unpack()");
}

/* Allocates memory that begins @BESIDE bytes before the lowest byte of the layout. */
static void allocate(struct pair_of_mrs *p, const struct ibmkey_mpi_layout *layout,
		     const struct drawn *all)
{
	p->all = all;
	p->size = layout->high - layout->low + 2 * BESIDE;
	p->memory = malloc(p->size);
	p->expected = malloc(p->size);
	p->packed = malloc(all->bytes);
	p->packed_expected = malloc(all->bytes);
	p->buffer = p->memory + BESIDE - layout->low;
	p->memory_mr = rc_reg(&dev, p->memory + BESIDE, layout->high - layout->low, ALL_RIGHTS);
	p->packed_mr = rc_reg(&dev, p->packed, all->bytes, ALL_RIGHTS);
}

static void release(struct pair_of_mrs *p)
{
	rc_dereg(p->memory_mr);
	rc_dereg(p->packed_mr);
	free(p->memory);
	free(p->expected);
	free(p->packed);
	free(p->packed_expected);
}

struct totals {
	unsigned int negative, overlapping, resized, several, nested, deep, by_mpi;
};

static void count_kind(struct totals *t, const struct ibmkey_mpi_layout *layout,
		       const struct pair_of_mrs *p)
{
	const struct ibmkey_mpi_group *last = &layout->groups[layout->num_groups - 1];

	t->negative += layout->low < 0;
	t->overlapping += overlaps(p);
	t->resized += p->all->resized;
	t->several += layout->num_groups > 1;
	t->nested += layout->num_groups > 1 && last->num_dims;
	t->deep += last->num_dims > 3;
}

/* Returns false if a byte is wrong. @entries is 0, or the number that the last key must have. */
static bool carry(const struct drawn *element, const struct drawn *all, int count,
		  uint32_t entries, struct totals *t)
{
	struct ibmkey_mpi_layout layout;
	struct ibmkey_info info = { 0 };
	struct ibmkey_mpi_key *key;
	struct pair_of_mrs p = { 0 };
	bool good;
	int ret;

	ret = ibmkey_mpi_layout(element->type, count, &layout);
	if (ret)
		die(ret, "ibmkey_mpi_layout: %s", layout.part);
	allocate(&p, &layout, all);
	ret = ibmkey_mpi_bind(dev.pd, p.buffer, p.memory_mr, &layout, ALL_RIGHTS, &key);
	if (ret)
		die(ret, "ibmkey_mpi_bind: %s", ibmkey_mpi_last_error());
	p.key = ibmkey_mpi_mr(key);
	if (ibmkey_query(p.key, &info))
		die(errno, "ibmkey_query");
	good = p.key->length == all->bytes && (!entries || info.num_entries == entries);
	if (!good)
		printf("# %zu bytes, %u entries\n", p.key->length, info.num_entries);
	good = good && gather(&p, false) && gather(&p, true) &&
	       scatter(&p, false) && scatter(&p, true);
	if (good && !all->features) {
		good = as_mpi(&p, element->type, count);
		t->by_mpi++;
	}
	count_kind(t, &layout, &p);
	ret = ibmkey_mpi_unbind(key);
	if (ret)
		die(ret, "ibmkey_mpi_unbind");
	release(&p);
	ibmkey_mpi_free(&layout);
	return good;
}

static struct drawn elements(const struct drawn *element, int count)
{
	struct drawn all = nothing();

	append_all(&all, element, count, 0, extent(element));
	return all;
}

static bool fits(const struct drawn *all)
{
	int64_t low = INT64_MAX, high = INT64_MIN;

	for (size_t i = 0; all->at && i < all->bytes; i++) {
		low = all->at[i] < low ? all->at[i] : low;
		high = all->at[i] > high ? all->at[i] : high;
	}
	return all->at && all->bytes && all->bytes <= MOST && high - low < WIDEST;
}

static void random_types(unsigned int number)
{
	struct totals t = { 0 };
	unsigned int carried = 0;
	bool good = true;

	while (carried < number && good) {
		uint64_t seed = state;
		struct drawn element = draw(between(1, MAX_LEVELS));
		int count = between(1, 3);
		struct drawn all = elements(&element, count);

		MPI_Type_commit(&element.type);
		if (fits(&all)) {
			good = carry(&element, &all, count, 0, &t);
			carried++;
		}
		if (!good)
			printf("# type %u, state %lu\n", carried, seed);
		free(all.at);
		drop(&element);
	}
	printf("# %u negative, %u overlapping, %u resized, %u of several keys, %u nests, %u of 4 dimensions or more, %u compared with MPI\n",
	       t.negative, t.overlapping, t.resized, t.several, t.nested, t.deep, t.by_mpi);
	result(good, "keys of %u random types carry the right bytes", number);
	result(t.negative && t.overlapping && t.resized && t.several && t.nested && t.deep &&
	       t.by_mpi > number / 3, "there are types of each kind");
}

/* Makes a type of three single bytes and one more, with the extent @extent. */
static struct drawn small_pieces(MPI_Aint extent)
{
	struct drawn d = { .at = malloc(4 * sizeof(*d.at)) };
	MPI_Datatype vector, both;

	MPI_Type_vector(3, 1, 2, MPI_CHAR, &vector);
	MPI_Type_create_struct(2, (int[]){ 1, 1 }, (MPI_Aint[]){ 0, 8 },
			       (MPI_Datatype[]){ vector, MPI_CHAR }, &both);
	MPI_Type_create_resized(both, 0, extent, &d.type);
	MPI_Type_commit(&d.type);
	MPI_Type_free(&vector);
	MPI_Type_free(&both);
	for (; d.bytes < 4; d.bytes++)
		d.at[d.bytes] = d.bytes < 3 ? 2 * d.bytes : 8;
	return d;
}

/* Tests keys over keys of small pieces, whose number has no limit because they are repeated. */
static void small_nest(void)
{
	struct drawn element = small_pieces(11), few = elements(&element, 10);
	struct drawn all = elements(&element, 40000);
	struct totals t = { 0 };

	result(carry(&element, &few, 10, 2, &t), "a nest of few small pieces");
	free(few.at);
	result(carry(&element, &all, 40000, 2, &t), "a nest of many small pieces");
	free(all.at);
	drop(&element);
}

/* Checks that the bind of @count elements fails with @errnum, and that the message has @text. */
static void refuses(MPI_Datatype type, int count, size_t less, int errnum, const char *text)
{
	struct ibmkey_mpi_layout layout;
	struct ibmkey_mpi_key *key;
	struct ibv_mr *mr;
	unsigned char *memory;
	int ret;

	ret = ibmkey_mpi_layout(type, count, &layout);
	if (ret)
		die(ret, "ibmkey_mpi_layout: %s", layout.part);
	memory = malloc(layout.high);
	mr = rc_reg(&dev, memory, layout.high - less, ALL_RIGHTS);
	ret = ibmkey_mpi_bind(dev.pd, memory, mr, &layout, ALL_RIGHTS, &key);
	if (ret != errnum || key || strncmp(ibmkey_mpi_last_error(), text, strlen(text)))
		printf("# status %d, \"%s\"\n", ret, ibmkey_mpi_last_error());
	result(ret == errnum && !key && !strncmp(ibmkey_mpi_last_error(), text, strlen(text)),
	       "refused: %s", text);
	rc_dereg(mr);
	free(memory);
	ibmkey_mpi_free(&layout);
}

static void refused_binds(void)
{
	const int most = 65536;
	struct drawn element = small_pieces(12);
	int *places = malloc((most + 1) * sizeof(int));
	MPI_Datatype type, members[2] = { MPI_DATATYPE_NULL, MPI_CHAR };

	MPI_Type_vector(10, 1, 2, MPI_INT, &type);
	refuses(type, 1, 1, ERANGE, "vector at level 1: ");
	MPI_Type_free(&type);

	for (int64_t i = 0; i <= most; i++)
		places[i] = i * i % 10007 * 3;
	MPI_Type_create_indexed_block(most + 1, 1, places, MPI_INT, &type);
	refuses(type, 1, 0, ENOSPC,
		"indexed_block at level 1: 65537 entries, the device allows 65536 for a key");
	MPI_Type_free(&type);
	free(places);

	/* The device refuses keys over keys, and a plain layout has too many entries. */
	MPI_Type_contiguous(25000, element.type, &members[0]);
	MPI_Type_create_struct(2, (int[]){ 1, 1 }, (MPI_Aint[]){ 0, 300001 }, members, &type);
	MPI_Type_free(&members[0]);
	MPI_Type_create_resized(type, 0, 1, &members[0]);
	refuses(members[0], 20000, 0, ENOSPC,
		"struct at level 2: 100001 entries, the device allows 65536 for a key");
	/* A list of 20 keys has fewer entries, but the device refuses its pieces, too. */
	refuses(members[0], 20, 0, ELOOP, "struct at level 2: ");
	MPI_Type_free(&members[0]);
	MPI_Type_free(&type);
	drop(&element);
}

/* Tests 12 loops in each other, which need a key over a key. */
static void many_loops(void)
{
	struct drawn element = nothing(), all;
	MPI_Datatype type = MPI_CHAR, next;
	struct totals t = { 0 };
	MPI_Aint stride = 2;

	element.at[element.bytes++] = 0;
	for (int i = 0; i < 12; i++) {
		struct drawn more = nothing();

		append_all(&more, &element, i ? 2 : 3, 0, stride);
		MPI_Type_create_hvector(i ? 2 : 3, 1, stride, type, &next);
		if (i)
			MPI_Type_free(&type);
		free(element.at);
		element = more;
		type = next;
		stride = (i ? 2 : 3) * stride + 1;
	}
	element.type = type;
	MPI_Type_commit(&element.type);
	all = elements(&element, 1);
	result(carry(&element, &all, 1, 1, &t), "more than 8 dimensions");
	free(all.at);
	drop(&element);
}

int main(int argc, char **argv)
{
	int status;

	if (argc < 3)
		die(EINVAL, "usage: transfer DEVICE NUMBER [SEED]");
	if (argc > 3)
		state = strtoull(argv[3], NULL, 0);
	MPI_Init(NULL, NULL);
	rc_open(&dev, argv[1]);
	rc_create_loop(pair, &dev);
	begin_tests();
	random_types(strtoul(argv[2], NULL, 0));
	small_nest();
	many_loops();
	refused_binds();
	status = end_tests();
	rc_destroy_loop(pair);
	rc_close(&dev);
	MPI_Finalize();
	return status;
}
