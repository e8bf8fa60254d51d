// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Decodes MPI datatypes by their envelopes; form.c finds the fewest blocks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "form.h"

/* The arguments of the constructor of a datatype. */
struct contents {
	int combiner;
	int *ints;
	MPI_Aint *aints;
	MPI_Datatype *types;
	int num_types;
};

struct decoder {
	struct ibmkey_mpi_layout *layout;
	int level;
};

static int decode(struct decoder *dec, MPI_Datatype type, struct form *form);

static const char *combiner_name(int combiner)
{
	static const struct { int combiner; const char *name; } names[] = {
		{ MPI_COMBINER_NAMED, "named" },
		{ MPI_COMBINER_DUP, "dup" },
		{ MPI_COMBINER_CONTIGUOUS, "contiguous" },
		{ MPI_COMBINER_VECTOR, "vector" },
		{ MPI_COMBINER_HVECTOR, "hvector" },
		{ MPI_COMBINER_INDEXED, "indexed" },
		{ MPI_COMBINER_HINDEXED, "hindexed" },
		{ MPI_COMBINER_INDEXED_BLOCK, "indexed_block" },
		{ MPI_COMBINER_HINDEXED_BLOCK, "hindexed_block" },
		{ MPI_COMBINER_STRUCT, "struct" },
		{ MPI_COMBINER_SUBARRAY, "subarray" },
		{ MPI_COMBINER_DARRAY, "darray" },
		{ MPI_COMBINER_RESIZED, "resized" },
		{ 0, NULL },
	};

	for (size_t i = 0; names[i].name; i++)
		if (names[i].combiner == combiner)
			return names[i].name;
	return "a type";
}

/* Names the part for the first error; outer parts do not replace it. */
static int refuse(struct decoder *dec, int combiner, int member, int ret)
{
	if (ret && !dec->layout->part[0]) {
		if (member < 0)
			snprintf(dec->layout->part, sizeof(dec->layout->part),
				 "%s at level %d", combiner_name(combiner), dec->level);
		else
			snprintf(dec->layout->part, sizeof(dec->layout->part),
				 "member %d of %s at level %d", member,
				 combiner_name(combiner), dec->level);
	}
	return ret;
}

static void contents_free(struct contents *c)
{
	int ints, aints, types, combiner;

	/* The caller owns derived datatypes that MPI_Type_get_contents() returns. */
	for (int i = 0; i < c->num_types; i++) {
		MPI_Type_get_envelope(c->types[i], &ints, &aints, &types, &combiner);
		if (combiner != MPI_COMBINER_NAMED)
			MPI_Type_free(&c->types[i]);
	}
	free(c->ints);
	free(c->aints);
	free(c->types);
}

static int contents_get(MPI_Datatype type, struct contents *c)
{
	int ints, aints, types;

	memset(c, 0, sizeof(*c));
	MPI_Type_get_envelope(type, &ints, &aints, &types, &c->combiner);
	if (c->combiner == MPI_COMBINER_NAMED)
		return 0;
	c->ints = calloc(ints + 1, sizeof(*c->ints));
	c->aints = calloc(aints + 1, sizeof(*c->aints));
	c->types = calloc(types + 1, sizeof(*c->types));
	if (!c->ints || !c->aints || !c->types) {
		contents_free(c);
		return ENOMEM;
	}
	MPI_Type_get_contents(type, ints, aints, types, c->ints, c->aints, c->types);
	c->num_types = types;
	return 0;
}

static int64_t extent_of(MPI_Datatype type)
{
	MPI_Aint lower, extent;

	MPI_Type_get_extent(type, &lower, &extent);
	return extent;
}

/* Sets *@to to @a * @b. */
static int product(int64_t a, int64_t b, int64_t *to)
{
	return __builtin_mul_overflow(a, b, to) ? EOVERFLOW : 0;
}

/* A type of MPI itself. Of those for MPI_MINLOC, one has a gap. */
static int decode_named(MPI_Datatype type, struct form *form)
{
	struct form number = { 0 };
	int size, ret;

	if (type == MPI_SHORT_INT) {
		struct pair { short value; int index; };

		ret = form_block(form, 0, sizeof(short));
		if (!ret)
			ret = form_block(&number, offsetof(struct pair, index), sizeof(int));
		if (!ret)
			ret = form_append(form, &number, 0);
		form_free(&number);
		return ret;
	}
	MPI_Type_size(type, &size);
	return size ? form_block(form, 0, size) : 0;
}

/*
 * Members, one after another. A run is of those that are the same and equally far
 * apart: they become one that repeats.
 */
struct members {
	struct form all;	/* those before the run */
	struct form first;	/* the first one of the run */
	int number;		/* its number */
	uint64_t run;		/* how many are in the run */
	int64_t step;		/* their distance */
};

/* Ends a run; @whole says that no member follows. */
static int members_flush(struct members *m, bool whole)
{
	bool alone = whole && !m->all.num;
	int ret;

	if (!m->run)
		return 0;
	/* A group with dimensions among others takes an entry of the list, too. */
	if (!alone && m->first.num == 1 && !m->first.group[0].num_dims &&
	    m->run <= 2 && m->first.group[0].num_blocks == 1)
		ret = form_copies(&m->first, m->run, m->step);
	else
		ret = form_repeat(&m->first, m->run, m->step);
	if (!ret)
		ret = form_append(&m->all, &m->first, 0);
	form_free(&m->first);
	m->run = 0;
	return ret;
}

/* Takes over @one, which is member @number. */
static int members_add(struct members *m, struct form *one, int number)
{
	int64_t at = 0;
	int ret;

	if (!one->num)
		return 0;
	if (m->run && form_same(&m->first, one, &at) &&
	    (m->run == 1 || at == (int64_t)m->run * m->step)) {
		if (m->run == 1)
			m->step = at;
		m->run++;
		form_free(one);
		return 0;
	}
	ret = members_flush(m, false);
	if (ret) {
		form_free(one);
		return ret;
	}
	m->first = *one;
	m->number = number;
	m->run = 1;
	memset(one, 0, sizeof(*one));
	return 0;
}

static void members_free(struct members *m)
{
	form_free(&m->all);
	form_free(&m->first);
}

/* indexed and its kin: the type, length and place of each member */
static int decode_members(struct decoder *dec, const struct contents *c,
			  struct form *form)
{
	bool is_struct = c->combiner == MPI_COMBINER_STRUCT;
	bool one_length = c->combiner == MPI_COMBINER_INDEXED_BLOCK ||
			  c->combiner == MPI_COMBINER_HINDEXED_BLOCK;
	bool in_bytes = c->combiner != MPI_COMBINER_INDEXED &&
			c->combiner != MPI_COMBINER_INDEXED_BLOCK;
	struct form element = { 0 }, one = { 0 };
	struct members m = { 0 };
	int n = c->ints[0], ret = 0;

	if (!is_struct)
		ret = decode(dec, c->types[0], &element);
	for (int i = 0; i < n && !ret; i++) {
		MPI_Datatype type = c->types[is_struct ? i : 0];
		uint64_t length = one_length ? c->ints[1] : c->ints[1 + i];
		int64_t at = 0;

		if (in_bytes)
			at = c->aints[i];
		else
			ret = product(extent_of(type), c->ints[(one_length ? 2 : 1 + n) + i], &at);
		if (is_struct) {
			form_free(&element);
			ret = decode(dec, type, &element);
		}
		if (!ret)
			ret = form_append(&one, &element, at);
		if (!ret)
			ret = form_repeat(&one, length, extent_of(type));
		refuse(dec, c->combiner, i, ret);
		if (!ret)
			ret = members_add(&m, &one, i);
	}
	if (!ret)
		ret = members_flush(&m, true);
	refuse(dec, c->combiner, m.number, ret);
	if (!ret) {
		*form = m.all;
		memset(&m.all, 0, sizeof(m.all));
	}
	members_free(&m);
	form_free(&element);
	form_free(&one);
	return ret;
}

/* Appends to @to the elements @first to @first + @count - 1 of a row of @from, @stride apart. */
static int append_row(struct form *to, const struct form *from, int64_t first, int64_t count,
		      int64_t stride)
{
	struct form row = { 0 };
	int64_t at;
	int ret;

	ret = product(first, stride, &at);
	if (!ret && count)
		ret = form_append(&row, from, at);
	if (!ret)
		ret = form_repeat(&row, count, stride);
	if (!ret)
		ret = form_append(to, &row, 0);
	form_free(&row);
	return ret;
}

/* The part of an array's dimension that a datatype has. */
struct share {
	int64_t size;		/* of the whole dimension */
	int64_t first;		/* the first element */
	int64_t length;		/* elements that follow each other */
	int64_t step;		/* from one such run to the next */
	int64_t runs;		/* how many there are */
	int64_t rest;		/* elements of a last run that is shorter */
};

/* Makes @form what @share has of @size elements of @form, which are *@stride apart. */
static int take_share(struct form *form, const struct share *share, int64_t *stride)
{
	struct form part = { 0 }, all = { 0 };
	int64_t step;
	int ret;

	ret = product(share->step, *stride, &step);
	if (!ret && share->runs)
		ret = append_row(&part, form, share->first, share->length, *stride);
	if (!ret)
		ret = form_repeat(&part, share->runs, step);
	if (!ret)
		ret = form_append(&all, &part, 0);
	if (!ret)
		ret = append_row(&all, form, share->first + share->runs * share->step, share->rest,
				 *stride);
	if (!ret)
		ret = product(*stride, share->size, stride);
	form_free(&part);
	form_free(form);
	*form = all;
	return ret;
}

static int decode_subarray(const struct contents *c, struct form *form)
{
	int n = c->ints[0], ret = 0;
	const int *sizes = c->ints + 1, *subsizes = sizes + n, *starts = subsizes + n;
	bool c_order = starts[n] == MPI_ORDER_C;
	int64_t stride = extent_of(c->types[0]);

	/* The innermost dimension first. */
	for (int i = 0; i < n && !ret; i++) {
		int d = c_order ? n - 1 - i : i;
		struct share share = {
			.size = sizes[d],
			.first = starts[d],
			.length = subsizes[d],
			.runs = 1,
		};

		ret = take_share(form, &share, &stride);
	}
	return ret;
}

/* Returns what process @rank of @processes has of @size elements. */
static struct share distribute(int size, int distribution, int argument, int rank, int processes)
{
	struct share share = { .size = size };
	int64_t whole;

	if (distribution == MPI_DISTRIBUTE_NONE)
		share.length = size;
	else if (argument != MPI_DISTRIBUTE_DFLT_DARG)
		share.length = argument;
	else if (distribution == MPI_DISTRIBUTE_BLOCK)
		share.length = ((int64_t)size + processes - 1) / processes;
	else
		share.length = 1;
	whole = size / share.length;
	share.first = rank * share.length;
	share.step = processes * share.length;
	if (whole > rank)
		share.runs = (whole - 1 - rank) / processes + 1;
	if (whole % processes == rank)
		share.rest = size % share.length;
	return share;
}

static int decode_darray(const struct contents *c, struct form *form)
{
	int processes = c->ints[0], rank = c->ints[1], n = c->ints[2], ret = 0;
	const int *sizes = c->ints + 3, *distributions = sizes + n;
	const int *arguments = distributions + n, *grid = arguments + n;
	bool c_order = grid[n] == MPI_ORDER_C;
	int64_t stride = extent_of(c->types[0]);
	int *at = calloc(n + 1, sizeof(*at));

	if (!at)
		return ENOMEM;
	/* The grid of processes is in row-major order, whatever the array's order is. */
	for (int d = 0; d < n; d++) {
		processes /= grid[d];
		at[d] = rank / processes;
		rank %= processes;
	}
	for (int i = 0; i < n && !ret; i++) {
		int d = c_order ? n - 1 - i : i;
		struct share share = distribute(sizes[d], distributions[d], arguments[d], at[d],
						grid[d]);

		ret = take_share(form, &share, &stride);
	}
	free(at);
	return ret;
}

static int decode_derived(struct decoder *dec, const struct contents *c,
			  struct form *form)
{
	int64_t extent;
	int ret;

	switch (c->combiner) {
	case MPI_COMBINER_INDEXED:
	case MPI_COMBINER_HINDEXED:
	case MPI_COMBINER_INDEXED_BLOCK:
	case MPI_COMBINER_HINDEXED_BLOCK:
	case MPI_COMBINER_STRUCT:
		return decode_members(dec, c, form);
	case MPI_COMBINER_DUP:
	case MPI_COMBINER_CONTIGUOUS:
	case MPI_COMBINER_VECTOR:
	case MPI_COMBINER_HVECTOR:
	case MPI_COMBINER_SUBARRAY:
	case MPI_COMBINER_DARRAY:
	case MPI_COMBINER_RESIZED:
		break;
	default:
		return EOPNOTSUPP;
	}
	ret = decode(dec, c->types[0], form);
	if (ret)
		return ret;
	extent = extent_of(c->types[0]);
	switch (c->combiner) {
	case MPI_COMBINER_CONTIGUOUS:
		return form_repeat(form, c->ints[0], extent);
	case MPI_COMBINER_VECTOR:
		ret = form_repeat(form, c->ints[1], extent);
		if (!ret)
			ret = product(extent, c->ints[2], &extent);
		return ret ? ret : form_repeat(form, c->ints[0], extent);
	case MPI_COMBINER_HVECTOR:
		ret = form_repeat(form, c->ints[1], extent);
		return ret ? ret : form_repeat(form, c->ints[0], c->aints[0]);
	case MPI_COMBINER_SUBARRAY:
		return decode_subarray(c, form);
	case MPI_COMBINER_DARRAY:
		return decode_darray(c, form);
	default:
		/* dup and resized change no byte */
		return 0;
	}
}

/* Levels are limited, so that this recursion is. */
static int decode(struct decoder *dec, MPI_Datatype type, struct form *form)
{
	struct contents c;
	int ret;

	memset(form, 0, sizeof(*form));
	dec->level++;
	ret = contents_get(type, &c);
	if (!ret) {
		if (dec->level > IBMKEY_MPI_MAX_LEVELS)
			ret = ELOOP;
		else if (c.combiner == MPI_COMBINER_NAMED)
			ret = decode_named(type, form);
		else
			ret = decode_derived(dec, &c, form);
		refuse(dec, c.combiner, -1, ret);
		contents_free(&c);
	}
	if (ret)
		form_free(form);
	dec->level--;
	return ret;
}

/* Sums the bytes up and finds the lowest and the highest one. */
static int measure(struct ibmkey_mpi_layout *layout)
{
	layout->low = INT64_MAX;
	layout->high = INT64_MIN;
	for (uint32_t i = 0; i < layout->num_groups; i++) {
		const struct ibmkey_mpi_group *g = &layout->groups[i];

		for (uint32_t k = 0; k < g->num_blocks; k++) {
			int64_t low = g->blocks[k].addr, high, reach;
			uint64_t bytes = g->blocks[k].bytes_count;

			if (__builtin_add_overflow(low, (int64_t)bytes, &high))
				return EOVERFLOW;
			for (uint32_t d = 0; d < g->num_dims; d++) {
				if (__builtin_mul_overflow((int64_t)g->repeat[d] - 1,
							   g->blocks[k].stride[d], &reach) ||
				    __builtin_add_overflow(reach < 0 ? low : high, reach,
							   reach < 0 ? &low : &high) ||
				    __builtin_mul_overflow(bytes, g->repeat[d], &bytes))
					return EOVERFLOW;
			}
			if (__builtin_add_overflow(layout->length, bytes, &layout->length))
				return EOVERFLOW;
			layout->low = low < layout->low ? low : layout->low;
			layout->high = high > layout->high ? high : layout->high;
		}
	}
	if (!layout->num_groups) {
		layout->low = 0;
		layout->high = 0;
	}
	return 0;
}

int ibmkey_mpi_layout(MPI_Datatype type, int count,
		      struct ibmkey_mpi_layout *layout)
{
	struct decoder dec = { .layout = layout };
	struct form form;
	int ret;

	memset(layout, 0, sizeof(*layout));
	if (count < 0)
		return EINVAL;
	ret = decode(&dec, type, &form);
	if (!ret) {
		ret = form_repeat(&form, count, extent_of(type));
		if (ret)
			snprintf(layout->part, sizeof(layout->part), "the %d elements", count);
	}
	layout->num_groups = form.num;
	layout->groups = form.group;
	if (!ret)
		ret = measure(layout);
	return ret;
}

void ibmkey_mpi_free(struct ibmkey_mpi_layout *layout)
{
	struct form form = { .num = layout->num_groups, .group = layout->groups };

	form_free(&form);
	layout->num_groups = 0;
	layout->groups = NULL;
}

uint32_t ibmkey_mpi_entries(const struct ibmkey_mpi_layout *layout)
{
	uint32_t entries = 0;

	for (uint32_t i = 0; i < layout->num_groups; i++)
		entries += layout->groups[i].num_blocks +
			   (layout->num_groups > 1 && layout->groups[i].num_dims);
	return entries;
}
