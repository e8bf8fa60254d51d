// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Random MPI datatypes. The layout of each describes the bytes that the definitions
 * of the MPI standard name, and that MPI_Pack() packs, in the same order. Needs no
 * device.
 *
 * usage: random_types [NUMBER [SEED]]
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ibmkey_mpi.h"

#define MAX_LEVELS 6
#define NAMED 13	/* types of MPI itself that are drawn */
#define MAX_BYTES (1 << 18)	/* of a type, packed */
#define DIGITS 3		/* bytes of a position */

static uint64_t state;

static uint64_t rnd(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 11) % n;
}

static int between(int low, int high)
{
	return low + (int)rnd(high - low + 1);
}

/* Zero is rare: a type without bytes has no other part to test. */
static int some(int high)
{
	return rnd(16) ? between(1, high) : 0;
}

static int tests, failed;

static void result(int ok, const char *format, ...)
{
	va_list args;

	printf("%s %d ", ok ? "ok" : "not ok", ++tests);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	failed += !ok;
}

/*
 * A datatype, and the offset of each of its bytes by the definitions of the MPI
 * standard, in the order of the type map.
 */
struct drawn {
	MPI_Datatype type;
	size_t bytes;
	int64_t *at;		/* NULL: more than MAX_BYTES */
};

static void append(struct drawn *to, const struct drawn *from, int64_t by)
{
	if (!to->at || !from->at || to->bytes + from->bytes > MAX_BYTES) {
		free(to->at);
		to->at = NULL;
		return;
	}
	to->at = realloc(to->at, (to->bytes + from->bytes + 1) * sizeof(*to->at));
	for (size_t i = 0; i < from->bytes; i++)
		to->at[to->bytes++] = from->at[i] + by;
}

/* Appends @count copies, each @stride after the one before. */
static void append_all(struct drawn *to, const struct drawn *from, int count, int64_t by,
		       int64_t stride)
{
	for (int i = 0; i < count && to->at; i++)
		append(to, from, by + i * stride);
}

static struct drawn nothing(void)
{
	return (struct drawn){ .at = malloc(sizeof(int64_t)) };
}

static int64_t extent(const struct drawn *d)
{
	MPI_Aint lower, extent;

	MPI_Type_get_extent(d->type, &lower, &extent);
	return extent;
}

static void drop(struct drawn *d)
{
	int ints, aints, types, combiner;

	MPI_Type_get_envelope(d->type, &ints, &aints, &types, &combiner);
	if (combiner != MPI_COMBINER_NAMED)
		MPI_Type_free(&d->type);
	free(d->at);
}

static struct drawn named(void)
{
	const MPI_Datatype types[NAMED] = {
		MPI_BYTE, MPI_CHAR, MPI_SHORT, MPI_INT, MPI_FLOAT, MPI_DOUBLE, MPI_LONG_DOUBLE,
		MPI_INT64_T, MPI_C_DOUBLE_COMPLEX, MPI_SHORT_INT, MPI_DOUBLE_INT, MPI_LONG_INT,
		MPI_2INT,
	};
	struct drawn d = { .type = types[rnd(NAMED)] };
	int size;

	MPI_Type_size(d.type, &size);
	d.at = malloc(size * sizeof(*d.at));
	for (; d.bytes < (size_t)size; d.bytes++)
		d.at[d.bytes] = d.bytes + (d.type == MPI_SHORT_INT && d.bytes >= 2 ? 2 : 0);
	return d;
}

static struct drawn draw(int levels);

/* Lengths and places of members; some are regular, some overlap, some are empty. */
static void draw_members(int n, int *lengths, int *places)
{
	int regular = !rnd(3), length = some(3), step = between(-3, 6);

	for (int i = 0; i < n; i++) {
		lengths[i] = regular ? length : some(3);
		places[i] = regular ? i * step : between(-8, 12);
	}
}

static struct drawn draw_indexed(struct drawn *old)
{
	int n = some(6), lengths[6], places[6], kind = rnd(4);
	struct drawn new = nothing();
	MPI_Aint at[6];

	draw_members(n, lengths, places);
	for (int i = 0; i < n; i++) {
		if (kind >= 2)
			lengths[i] = lengths[0];
		at[i] = places[i] * 5;
		append_all(&new, old, lengths[i], kind % 2 ? at[i] : places[i] * extent(old),
			   extent(old));
	}
	if (kind == 0)
		MPI_Type_indexed(n, lengths, places, old->type, &new.type);
	else if (kind == 1)
		MPI_Type_create_hindexed(n, lengths, at, old->type, &new.type);
	else if (kind == 2)
		MPI_Type_create_indexed_block(n, n ? lengths[0] : 1, places, old->type, &new.type);
	else
		MPI_Type_create_hindexed_block(n, n ? lengths[0] : 1, at, old->type, &new.type);
	return new;
}

static struct drawn draw_struct(struct drawn *old, int levels)
{
	int n = some(4), lengths[4], places[4];
	struct drawn new = nothing(), member[4];
	MPI_Datatype types[4];
	MPI_Aint at[4];
	bool own[4];

	draw_members(n, lengths, places);
	for (int i = 0; i < n; i++) {
		own[i] = rnd(2);
		member[i] = own[i] ? draw(between(0, levels - 1)) : *old;
		types[i] = member[i].type;
		at[i] = places[i] * 7;
		append_all(&new, &member[i], lengths[i], at[i], extent(&member[i]));
	}
	MPI_Type_create_struct(n, lengths, at, types, &new.type);
	for (int i = 0; i < n; i++)
		if (own[i])
			drop(&member[i]);
	return new;
}

static struct drawn draw_subarray(struct drawn *old)
{
	int n = between(1, 4), sizes[4], subsizes[4], starts[4], index[4] = { 0 }, d;
	bool c_order = rnd(2);
	struct drawn new = nothing();

	for (d = 0; d < n; d++) {
		sizes[d] = between(1, 5);
		subsizes[d] = between(1, sizes[d]);
		starts[d] = between(0, sizes[d] - subsizes[d]);
	}
	MPI_Type_create_subarray(n, sizes, subsizes, starts,
				 c_order ? MPI_ORDER_C : MPI_ORDER_FORTRAN, old->type, &new.type);
	/* The position of each element in the array; the last dimension is the fastest. */
	do {
		int64_t position = 0;

		for (int i = 0; i < n; i++) {
			int k = c_order ? i : n - 1 - i;

			position = position * sizes[k] + starts[k] + index[i];
		}
		append(&new, old, position * extent(old));
		for (d = n - 1; d >= 0; d--) {
			if (++index[d] < subsizes[c_order ? d : n - 1 - d])
				break;
			index[d] = 0;
		}
	} while (d >= 0);
	return new;
}

/* Draws how a dimension is divided between processes. Returns the length of a run. */
static int draw_distribution(int size, int *distribution, int *argument, int *processes)
{
	const int kinds[] = { MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC };
	int least;

	*distribution = kinds[rnd(3)];
	*processes = *distribution == MPI_DISTRIBUTE_NONE ? 1 : between(1, 3);
	*argument = MPI_DISTRIBUTE_DFLT_DARG;
	if (*distribution == MPI_DISTRIBUTE_NONE)
		return size;
	least = *distribution == MPI_DISTRIBUTE_BLOCK ? (size + *processes - 1) / *processes : 1;
	if (rnd(3))
		*argument = between(least, least + 2);
	return *argument == MPI_DISTRIBUTE_DFLT_DARG ? least : *argument;
}

/* A dimension of a distributed array, and the elements that one process has of it. */
struct axis {
	int size, rank;
	int elements, element[9];
};

/* Appends the elements of @axes[0 .. n - 1], the last of which is the fastest. */
static void append_axes(struct drawn *to, const struct drawn *old, const struct axis *axes, int n)
{
	int index[4] = { 0 }, d;

	for (d = 0; d < n; d++)
		if (!axes[d].elements)
			return;
	do {
		int64_t position = 0;

		for (d = 0; d < n; d++)
			position = position * axes[d].size + axes[d].element[index[d]];
		append(to, old, position * extent(old));
		for (d = n - 1; d >= 0 && ++index[d] == axes[d].elements; d--)
			index[d] = 0;
	} while (d >= 0);
}

static struct drawn draw_darray(struct drawn *old)
{
	int n = between(1, 3), sizes[3], kinds[3], arguments[3], grid[3], all = 1, rank = 0;
	bool c_order = rnd(2);
	struct drawn new = nothing();
	struct axis axes[3];

	for (int d = 0; d < n; d++) {
		struct axis *axis = &axes[c_order ? d : n - 1 - d];
		int run;

		sizes[d] = between(1, 9);
		run = draw_distribution(sizes[d], &kinds[d], &arguments[d], &grid[d]);
		*axis = (struct axis){ .size = sizes[d], .rank = rnd(grid[d]) };
		for (int i = 0; i < sizes[d]; i++)
			if (i / run % grid[d] == axis->rank)
				axis->element[axis->elements++] = i;
		/* The grid of processes is in row-major order. */
		rank = rank * grid[d] + axis->rank;
		all *= grid[d];
	}
	MPI_Type_create_darray(all, rank, n, sizes, kinds, arguments, grid,
			       c_order ? MPI_ORDER_C : MPI_ORDER_FORTRAN, old->type, &new.type);
	append_axes(&new, old, axes, n);
	return new;
}

static struct drawn draw_vector(struct drawn *old)
{
	int n = some(4), length = some(3), stride = between(-3, 5);
	MPI_Aint bytes = between(-50, 90);
	struct drawn new = nothing();

	if (rnd(2)) {
		MPI_Type_vector(n, length, stride, old->type, &new.type);
		bytes = stride * extent(old);
	} else {
		MPI_Type_create_hvector(n, length, bytes, old->type, &new.type);
	}
	for (int i = 0; i < n; i++)
		append_all(&new, old, length, i * bytes, extent(old));
	return new;
}

static struct drawn draw(int levels)
{
	struct drawn old, new;
	int n;

	if (!levels)
		return named();
	old = draw(levels - 1);
	switch (rnd(9)) {
	case 0:
		new = nothing();
		n = some(4);
		append_all(&new, &old, n, 0, extent(&old));
		MPI_Type_contiguous(n, old.type, &new.type);
		break;
	case 1:
	case 2:
		new = draw_vector(&old);
		break;
	case 3:
		new = nothing();
		append(&new, &old, 0);
		MPI_Type_create_resized(old.type, between(-20, 20), between(0, 60), &new.type);
		break;
	case 4:
		new = nothing();
		append(&new, &old, 0);
		MPI_Type_dup(old.type, &new.type);
		break;
	case 5:
		new = draw_struct(&old, levels);
		break;
	case 6:
		new = draw_subarray(&old);
		break;
	case 7:
		/* Open MPI refuses a darray of a type without bytes. */
		new = old.bytes ? draw_darray(&old) : draw_subarray(&old);
		break;
	default:
		new = draw_indexed(&old);
	}
	drop(&old);
	return new;
}

/* Writes the offset of each byte of a layout, from the definition in mkey.h. */
static uint64_t list_group(const struct ibmkey_mpi_group *g, int64_t *to)
{
	uint64_t index[IBMKEY_MAX_DIMS] = { 0 }, n = 0;
	int d;

	do {
		for (uint32_t i = 0; i < g->num_blocks; i++) {
			int64_t at = g->blocks[i].addr;

			for (d = 0; d < (int)g->num_dims; d++)
				at += (int64_t)index[d] * g->blocks[i].stride[d];
			for (uint64_t k = 0; k < g->blocks[i].bytes_count; k++)
				to[n++] = at + k;
		}
		for (d = g->num_dims - 1; d >= 0 && ++index[d] == g->repeat[d]; d--)
			index[d] = 0;
	} while (d >= 0);
	return n;
}

/* Finds the offset of each byte that MPI packs: buffers of positions, a digit each. */
static void list_packed(MPI_Datatype type, int count, int64_t low, int64_t high,
			int size, int64_t *to)
{
	unsigned char *memory = malloc(high - low + 1), *packed = malloc(size + 1);

	memset(to, 0, size * sizeof(*to));
	for (int digit = 0; digit < DIGITS; digit++) {
		int position = 0;

		for (int64_t i = 0; i < high - low; i++)
			memory[i] = i >> (8 * digit);
		MPI_Pack(memory - low, count, type, packed, size, &position, MPI_COMM_SELF);
		for (int i = 0; i < size; i++)
			to[i] |= (int64_t)packed[i] << (8 * digit);
	}
	for (int i = 0; i < size; i++)
		to[i] += low;
	free(memory);
	free(packed);
}

struct totals {
	unsigned long checked, packed_so, empty, large, groups[4], dims[IBMKEY_MAX_DIMS + 1];
};

static void show_first_difference(const char *what, const int64_t *a, const int64_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a[i] != b[i]) {
			printf("# byte %zu is at %ld, %s at %ld\n", i, a[i], what, b[i]);
			return;
		}
}

/* Lists the bytes of a layout; NULL if there are not @bytes of them. */
static int64_t *list_layout(const struct ibmkey_mpi_layout *layout, size_t bytes,
			    struct totals *totals)
{
	int64_t *list;
	size_t n = 0;

	if (layout->length != bytes)
		return NULL;
	list = malloc((bytes + 1) * sizeof(*list));
	for (uint32_t i = 0; i < layout->num_groups; i++) {
		n += list_group(&layout->groups[i], list + n);
		totals->dims[layout->groups[i].num_dims]++;
	}
	return list;
}

/*
 * Returns false if the layout of @count elements is wrong. Counts those for which
 * MPI_Pack() agrees.
 */
static bool check(const struct drawn *element, int count, struct totals *totals)
{
	struct drawn all = nothing();
	struct ibmkey_mpi_layout layout;
	int64_t *ours, *theirs;
	bool same = false;
	int ret;

	append_all(&all, element, count, 0, extent(element));
	if (!all.at) {
		totals->large++;
		return true;
	}
	ret = ibmkey_mpi_layout(element->type, count, &layout);
	ours = ret ? NULL : list_layout(&layout, all.bytes, totals);
	if (!ours) {
		printf("# status %d (%s), %lu bytes instead of %zu\n", ret, layout.part,
		       layout.length, all.bytes);
	} else if (!all.bytes) {
		totals->empty++;
		same = !layout.num_groups;
	} else {
		same = !memcmp(ours, all.at, all.bytes * sizeof(*ours));
		if (!same)
			show_first_difference("by definition", ours, all.at, all.bytes);
		totals->checked++;
		totals->groups[layout.num_groups < 4 ? layout.num_groups - 1 : 3]++;
		theirs = malloc(all.bytes * sizeof(*theirs));
		list_packed(element->type, count, layout.low, layout.high, all.bytes, theirs);
		totals->packed_so += !memcmp(ours, theirs, all.bytes * sizeof(*ours));
		free(theirs);
	}
	free(ours);
	free(all.at);
	ibmkey_mpi_free(&layout);
	return same;
}

/*
 * Open MPI 5.0.7 packs other bytes than the standard says for some types: with a
 * stride of -1 byte, with members that have no bytes, with extents that are smaller than
 * the data. A long double's 6 bytes without a meaning are not packed.
 */
#define MPI_DIFFERS_PERCENT 10

static void random_types(int number)
{
	struct totals t = { 0 };
	bool good = true;

	for (int i = 0; i < number && good; i++) {
		uint64_t seed = state;
		int levels = between(1, MAX_LEVELS), count = some(3);
		struct drawn d = draw(levels);

		MPI_Type_commit(&d.type);
		good = check(&d, count, &t);
		drop(&d);
		if (!good)
			printf("# type %d: %d levels, %d elements, state %lu\n", i, levels,
			       count, seed);
	}
	printf("# %lu compared with the definition, MPI_Pack() agrees for %lu\n", t.checked,
	       t.packed_so);
	printf("# %lu without bytes, %lu too large\n", t.empty, t.large);
	printf("# layouts of 1, 2, 3, more groups: %lu %lu %lu %lu\n", t.groups[0], t.groups[1],
	       t.groups[2], t.groups[3]);
	printf("# groups of 0 to 8 dimensions:");
	for (int d = 0; d <= IBMKEY_MAX_DIMS; d++)
		printf(" %lu", t.dims[d]);
	printf("\n");
	result(good && t.checked > (unsigned long)number / 2, "%d random types", number);
	result(t.packed_so * 100 >= t.checked * (100 - MPI_DIFFERS_PERCENT),
	       "MPI_Pack() agrees, but for errors of Open MPI");
}

/* The form of known types: dimensions and blocks of the only group. */
static void known(const char *name, MPI_Datatype type, int count, uint32_t groups,
		  uint32_t dims, uint32_t entries)
{
	struct ibmkey_mpi_layout layout;
	struct totals t = { 0 };
	int64_t *ours, *packed;
	bool same;
	int size;

	MPI_Type_commit(&type);
	MPI_Type_size(type, &size);
	size *= count;
	packed = malloc((size + 1) * sizeof(*packed));
	same = !ibmkey_mpi_layout(type, count, &layout);
	ours = list_layout(&layout, size, &t);
	list_packed(type, count, layout.low, layout.high, size, packed);
	same = same && ours && !memcmp(ours, packed, size * sizeof(*ours));
	if (layout.num_groups != groups || (groups && layout.groups[0].num_dims != dims) ||
	    ibmkey_mpi_entries(&layout) != entries) {
		printf("# %u groups, %u dimensions, %u entries\n", layout.num_groups,
		       groups ? layout.groups[0].num_dims : 0, ibmkey_mpi_entries(&layout));
		same = false;
	}
	result(same, "%s", name);
	free(ours);
	free(packed);
	ibmkey_mpi_free(&layout);
	MPI_Type_free(&type);
}

static void known_types(void)
{
	const int sizes[] = { 4, 5, 6, 7 }, subsizes[] = { 2, 3, 4, 5 }, starts[] = { 1, 1, 1, 1 };
	const int ones[] = { 1, 1, 1, 1 }, lengths[] = { 2, 1, 3 }, places[] = { 0, 7, 20 };
	const int even[] = { 0, 3, 6, 9 }, whole[] = { 4, 5, 6, 7 }, none[] = { 0, 0, 0, 0 };
	const MPI_Aint at[] = { 0, 8, 100 };
	const MPI_Datatype three[] = { MPI_INT, MPI_DOUBLE, MPI_CHAR };
	MPI_Datatype type, inner, members[2];

	MPI_Type_contiguous(10, MPI_INT, &type);
	known("contiguous", type, 3, 1, 0, 1);
	MPI_Type_vector(10, 2, 5, MPI_DOUBLE, &type);
	known("vector", type, 1, 1, 1, 1);
	MPI_Type_vector(10, 5, 5, MPI_DOUBLE, &type);
	known("vector without gaps", type, 1, 1, 0, 1);
	for (int n = 1; n <= 4; n++) {
		char name[40];

		MPI_Type_create_subarray(n, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &type);
		snprintf(name, sizeof(name), "subarray of %d dimensions", n);
		known(name, type, 1, 1, n - 1, 1);
	}
	MPI_Type_create_subarray(4, sizes, whole, none, MPI_ORDER_FORTRAN, MPI_INT, &type);
	known("the whole array", type, 2, 1, 0, 1);
	MPI_Type_create_subarray(3, sizes, subsizes, starts, MPI_ORDER_FORTRAN, MPI_INT, &type);
	known("elements of a subarray", type, 5, 1, 3, 1);
	MPI_Type_indexed(3, lengths, places, MPI_INT, &type);
	known("indexed", type, 1, 1, 0, 3);
	MPI_Type_create_indexed_block(4, 2, even, MPI_INT, &type);
	known("indexed_block, equally far apart", type, 1, 1, 1, 1);
	MPI_Type_create_struct(3, lengths, at, three, &type);
	known("struct that repeats", type, 7, 1, 1, 2);
	MPI_Type_vector(4, 1, 3, MPI_INT, &inner);
	MPI_Type_indexed(3, ones, places, inner, &type);
	known("indexed of vectors", type, 1, 2, 2, 4);
	MPI_Type_vector(100, 1, 3, MPI_INT, &members[0]);
	members[1] = MPI_DOUBLE;
	MPI_Type_create_struct(2, ones, (MPI_Aint[]){ 0, 4000 }, members, &type);
	known("struct of a vector and a number", type, 1, 2, 1, 3);
	MPI_Type_create_struct(2, ones, (MPI_Aint[]){ 0, 4000 }, members, &type);
	known("two of them", type, 2, 4, 1, 6);
	MPI_Type_contiguous(0, MPI_INT, &type);
	known("nothing", type, 5, 0, 0, 0);
	MPI_Type_dup(MPI_SHORT_INT, &type);
	known("MPI_SHORT_INT", type, 3, 1, 1, 2);
}

/* The form of what a process has of a distributed array. */
static void known_darrays(void)
{
	const int sizes[] = { 12, 10, 8 }, grid[] = { 3, 2, 1 };
	const int blocks[] = { MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE };
	const int cyclic[] = { MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE };
	const int usual[] = { MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG,
			      MPI_DISTRIBUTE_DFLT_DARG };
	const int twos[] = { 2, 5, MPI_DISTRIBUTE_DFLT_DARG }, seven = 7, runs = 3, parts = 2;
	MPI_Datatype type;

	MPI_Type_create_darray(6, 3, 3, sizes, blocks, usual, grid, MPI_ORDER_C, MPI_INT, &type);
	known("darray of blocks, C order: a subarray", type, 1, 1, 1, 1);
	MPI_Type_create_darray(6, 3, 3, sizes, blocks, usual, grid, MPI_ORDER_FORTRAN, MPI_INT,
			       &type);
	known("darray of blocks, Fortran order", type, 1, 1, 2, 1);
	MPI_Type_create_darray(6, 5, 3, sizes, cyclic, usual, grid, MPI_ORDER_C, MPI_INT, &type);
	known("darray of single elements", type, 1, 1, 2, 1);
	MPI_Type_create_darray(6, 4, 3, sizes, cyclic, twos, grid, MPI_ORDER_C, MPI_INT, &type);
	known("darray of runs", type, 1, 1, 2, 1);
	MPI_Type_create_darray(2, 0, 1, &seven, cyclic, &runs, &parts, MPI_ORDER_C, MPI_INT, &type);
	known("darray with a shorter last run", type, 2, 1, 1, 2);
	MPI_Type_create_darray(9, 8, 1, &seven, blocks, &runs, (int[]){ 9 }, MPI_ORDER_C, MPI_INT,
			       &type);
	known("darray, a process without elements", type, 3, 0, 0, 0);
}

static bool refused(MPI_Datatype type, int errnum, const char *part)
{
	struct ibmkey_mpi_layout layout;
	int ret = ibmkey_mpi_layout(type, 1, &layout);

	if (ret != errnum || strcmp(layout.part, part))
		printf("# status %d, \"%s\"\n", ret, layout.part);
	ibmkey_mpi_free(&layout);
	return ret == errnum && !strcmp(layout.part, part);
}

static void refused_types(void)
{
	int *places = malloc((IBMKEY_MPI_MAX_BLOCKS + 1) * sizeof(int));
	MPI_Datatype type, deep, next;

	for (int i = 0; i <= IBMKEY_MPI_MAX_BLOCKS; i++)
		places[i] = i * i % 10007 * 3;
	MPI_Type_create_indexed_block(IBMKEY_MPI_MAX_BLOCKS, 1, places, MPI_INT, &type);
	MPI_Type_vector(2, 1, 5, type, &deep);
	result(refused(type, 0, ""), "as many blocks as a key can have");
	MPI_Type_free(&type);
	MPI_Type_free(&deep);
	MPI_Type_create_indexed_block(IBMKEY_MPI_MAX_BLOCKS + 1, 1, places, MPI_INT, &type);
	MPI_Type_contiguous(2, type, &deep);
	result(refused(deep, ENOSPC, "member 65536 of indexed_block at level 2"),
	       "one block more: the error names the member");
	MPI_Type_free(&type);
	MPI_Type_free(&deep);
	free(places);

	MPI_Type_vector(2, 1, 3, MPI_INT, &deep);
	for (int i = 0; i < IBMKEY_MPI_MAX_LEVELS; i++) {
		MPI_Type_dup(deep, &next);
		MPI_Type_free(&deep);
		deep = next;
	}
	result(refused(deep, ELOOP, "vector at level 65"), "too many levels");
	MPI_Type_free(&deep);
}

int main(int argc, char **argv)
{
	int number = argc > 1 ? atoi(argv[1]) : 10000;

	state = argc > 2 ? strtoull(argv[2], NULL, 0) : 88172645463325252;
	MPI_Init(NULL, NULL);
	printf("TAP version 13\n");
	known_types();
	known_darrays();
	refused_types();
	random_types(number);
	printf("1..%d\n", tests);
	MPI_Finalize();
	return failed > 0;
}
