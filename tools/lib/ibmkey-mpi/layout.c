// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Decodes MPI datatypes by their envelopes. form.c then finds a form with few entries. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"

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

void part_name(const struct ibmkey_mpi_part *part, char *name, size_t size)
{
	if (part->member < 0)
		snprintf(name, size, "%s at level %d", combiner_name(part->combiner), part->level);
	else
		snprintf(name, size, "member %d of %s at level %d", part->member,
			 combiner_name(part->combiner), part->level);
}

/* Stores the name of the part if @ret is the first error. Errors of outer parts keep that name. */
static int refuse(struct decoder *dec, int combiner, int member, int ret)
{
	const struct ibmkey_mpi_part part = { combiner, dec->level, member };

	if (ret && !dec->layout->part[0])
		part_name(&part, dec->layout->part, sizeof(dec->layout->part));
	return ret;
}

/* Stores in @form which part of the datatype it is. Checks that its bytes fit 64 bits. */
static int form_is(struct decoder *dec, int combiner, int member, struct form *form)
{
	struct span span;

	form->part = (struct ibmkey_mpi_part){ combiner, dec->level, member };
	return form_measure(form, 0, &span);
}

/* Returns true for types that are not made of another type. MPI does not allow freeing them. */
static bool is_basic(int combiner)
{
	return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
	       combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

static void contents_free(struct contents *c)
{
	int ints, aints, types, combiner;

	/* The caller owns derived datatypes that MPI_Type_get_contents() returns. */
	for (int i = 0; i < c->num_types; i++) {
		MPI_Type_get_envelope(c->types[i], &ints, &aints, &types, &combiner);
		if (!is_basic(combiner))
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
	if (is_basic(c->combiner))
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

/* Decodes a type of MPI itself. The only one with a gap is MPI_SHORT_INT, for MPI_MINLOC. */
static int decode_named(MPI_Datatype type, struct form *form)
{
	struct form number = { 0 };
	int size, ret;

	if (type == MPI_SHORT_INT) {
		struct pair { short value; int index; };

		ret = form_range(form, 0, sizeof(short));
		if (!ret)
			ret = form_range(&number, offsetof(struct pair, index), sizeof(int));
		if (!ret)
			ret = form_append(form, &number, 0);
		form_free(&number);
		return ret;
	}
	MPI_Type_size(type, &size);
	return size ? form_range(form, 0, size) : 0;
}

/*
 * The members of a constructor, one after another. Equal members at equal distances are a
 * run, which becomes one form that repeats.
 */
struct members {
	struct form all;	/* the members before the run */
	struct form first;	/* the first member of the run */
	int number;		/* number of that member */
	uint64_t run;		/* number of members in the run */
	int64_t step;		/* bytes from one member of the run to the next */
};

static int members_flush(struct members *m)
{
	int ret;

	if (!m->run)
		return 0;
	ret = form_repeat(&m->first, m->run, m->step);
	if (!ret)
		ret = form_append(&m->all, &m->first, 0);
	form_free(&m->first);
	m->run = 0;
	return ret;
}

/* Adds @one, which is member @number. Takes its contents and leaves it empty. */
static int members_add(struct members *m, struct form *one, int number)
{
	int64_t at = 0;
	int ret;

	if (!one->num_items)
		return 0;
	if (m->run && form_same(&m->first, one, &at) &&
	    (m->run == 1 || at == (int64_t)m->run * m->step)) {
		if (m->run == 1)
			m->step = at;
		m->run++;
		form_free(one);
		return 0;
	}
	ret = members_flush(m);
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

/* Decodes the constructors that give a place for each member: indexed, struct and so on. */
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
		if (!ret)
			ret = form_is(dec, c->combiner, i, &one);
		refuse(dec, c->combiner, i, ret);
		if (!ret)
			ret = members_add(&m, &one, i);
	}
	if (!ret)
		ret = members_flush(&m);
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
		/* dup and resized describe the same bytes as the old type */
		return 0;
	}
}

/* Decodes a datatype. Limits the levels, because each level is a recursion of this function. */
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
		else if (is_basic(c.combiner))
			ret = decode_named(type, form);
		else
			ret = decode_derived(dec, &c, form);
		/* dup and resized add no bytes, so an error is never their fault */
		if (!ret && c.combiner != MPI_COMBINER_DUP && c.combiner != MPI_COMBINER_RESIZED)
			ret = form_is(dec, c.combiner, -1, form);
		refuse(dec, c.combiner, -1, ret);
		contents_free(&c);
	}
	if (ret)
		form_free(form);
	dec->level--;
	return ret;
}

/* Makes the groups of a form. If a key under another one would be too long, uses a plain form. */
static int make_groups(struct ibmkey_mpi_layout *layout, struct form *form)
{
	struct ibmkey_mpi_layout plain;
	uint32_t last;
	int ret;

	/*
	 * If there is one loop more than dimensions, write out the innermost loop, unless that
	 * makes more entries than another key would.
	 */
	last = form->num_loops - 1;
	if (form->num_loops == IBMKEY_MAX_DIMS + 1 &&
	    form->loops[last].count * form->num_items <= form->num_items + 1ull) {
		ret = form_unroll(form);
		if (ret)
			return ret;
	}
	ret = form_lower(form, layout);
	if (ret != EOVERFLOW)
		return ret;
	ret = layout_plain(layout, 0, &plain);
	if (ret) {
		memcpy(layout->part, plain.part, sizeof(layout->part));
		ibmkey_mpi_free(&plain);
		return ret;
	}
	ibmkey_mpi_free(layout);
	*layout = plain;
	return 0;
}

int ibmkey_mpi_layout(MPI_Datatype type, int count,
		      struct ibmkey_mpi_layout *layout)
{
	struct decoder dec = { .layout = layout };
	struct span span = { 0 };
	struct form *form;
	int ret;

	if (!layout)
		return EINVAL;
	memset(layout, 0, sizeof(*layout));
	if (count < 0) {
		snprintf(layout->part, sizeof(layout->part), "the %d elements", count);
		return EINVAL;
	}
	/* MPI would end the program. */
	if (type == MPI_DATATYPE_NULL) {
		snprintf(layout->part, sizeof(layout->part), "MPI_DATATYPE_NULL");
		return EINVAL;
	}
	form = calloc(1, sizeof(*form));
	if (!form)
		return ENOMEM;
	layout->form = form;
	ret = decode(&dec, type, form);
	if (!ret) {
		ret = form_repeat(form, count, extent_of(type));
		if (!ret)
			ret = form_measure(form, 0, &span);
		if (ret)
			snprintf(layout->part, sizeof(layout->part), "the %d elements", count);
	}
	layout->length = span.length;
	layout->low = span.low;
	layout->high = span.high;
	return ret ? ret : make_groups(layout, form);
}

void ibmkey_mpi_free(struct ibmkey_mpi_layout *layout)
{
	if (layout->form)
		form_free(layout->form);
	free(layout->form);
	layout->form = NULL;
	groups_free(layout);
}

uint32_t ibmkey_mpi_entries(const struct ibmkey_mpi_layout *layout)
{
	uint32_t entries = 0;

	for (uint32_t i = 0; i < layout->num_groups; i++)
		entries += layout->groups[i].num_blocks;
	return entries;
}
