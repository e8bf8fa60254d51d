// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Draws random datatypes. Lists their bytes by the definitions of the MPI standard. */
#include <stdlib.h>

#include "draw.h"

#define NAMED 13	/* types of MPI itself that are drawn */

uint64_t state = 88172645463325252;

uint64_t rnd(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 11) % n;
}

int between(int low, int high)
{
	return low + (int)rnd(high - low + 1);
}

int some(int high)
{
	return rnd(16) ? between(1, high) : 0;
}

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
	to->features |= from->features;
	to->has_complex |= from->has_complex;
	to->resized |= from->resized;
	if (from->has_complex && by % 16)
		to->features |= ODD_COMPLEX;
}

/* Adds to @to the features of @count copies of @from, each @stride bytes after the one before. */
static void note_repeats(struct drawn *to, const struct drawn *from, int count, int64_t stride)
{
	if (count > 1 && from->bytes && stride == -1)
		to->features |= MINUS_ONE;
	if (!count || !from->bytes)
		to->features |= EMPTY_MEMBER;
}

void append_all(struct drawn *to, const struct drawn *from, int count, int64_t by,
		int64_t stride)
{
	for (int i = 0; i < count && to->at; i++)
		append(to, from, by + i * stride);
	note_repeats(to, from, count, stride);
}

struct drawn nothing(void)
{
	return (struct drawn){ .at = malloc(sizeof(int64_t)) };
}

int64_t extent(const struct drawn *d)
{
	MPI_Aint lower, extent;

	MPI_Type_get_extent(d->type, &lower, &extent);
	return extent;
}

void drop(struct drawn *d)
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

	if (d.type == MPI_LONG_DOUBLE)
		d.features = PADDING;
	d.has_complex = d.type == MPI_C_DOUBLE_COMPLEX;

	MPI_Type_size(d.type, &size);
	d.at = malloc(size * sizeof(*d.at));
	for (; d.bytes < (size_t)size; d.bytes++)
		d.at[d.bytes] = d.bytes + (d.type == MPI_SHORT_INT && d.bytes >= 2 ? 2 : 0);
	return d;
}

/* Draws lengths and places of members. Some are regular, some overlap, and some are empty. */
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

/* Draws how a dimension is distributed over processes. Returns the length of a run. */
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

/* A dimension of a distributed array, and the elements of one process in it. */
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
	note_repeats(&new, old, n, bytes);
	return new;
}

struct drawn draw(int levels)
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
		new.resized = true;
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
