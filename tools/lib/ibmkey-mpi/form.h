/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Forms. A datatype is decoded to a form, and a form becomes the groups of a layout. A form
 * is a sequence of items that loops repeat, in the order of the type map. An item is a range
 * of memory, or another form with loops. form.c and lower.c do not use MPI.
 *
 * Functions return 0 or an errno value. After an error, only form_free() may be called on the
 * form that the function changes.
 */
#ifndef IBMKEY_MPI_FORM_H
#define IBMKEY_MPI_FORM_H

#include <stdbool.h>
#include <stdint.h>

#include "ibmkey_mpi.h"

struct loop {
	uint64_t count;
	int64_t stride;		/* bytes from one start to the next */
};

struct item {
	int64_t at;		/* offset of the range, or offset that is added to those of @nest */
	uint64_t bytes;		/* length of the range */
	struct form *nest;	/* NULL for a range */
};

/* A form without items has no loops. */
struct form {
	uint32_t num_loops;
	uint32_t num_items;
	struct loop *loops;	/* outermost first */
	struct item *items;
	uint64_t entries;	/* number of items of this form and of all forms in it */
	struct ibmkey_mpi_part part;
};

/* The bytes of a form: their number, and the offsets of the lowest and after the highest one. */
struct span {
	uint64_t length;
	int64_t low;
	int64_t high;
};

void form_free(struct form *form);

int form_copy(struct form *to, const struct form *from);

/* Initialises @form with one range. */
int form_range(struct form *form, int64_t at, uint64_t bytes);

/* Appends a copy of @from, moved by @at, to @form. */
int form_append(struct form *form, const struct form *from, int64_t at);

/* Repeats @form: @count times, @stride bytes from one start to the next. */
int form_repeat(struct form *form, uint64_t count, int64_t stride);

/* Returns true if @b is @a moved by an offset. Sets *@at to that offset. */
bool form_same(const struct form *a, const struct form *b, int64_t *at);

/* Measures the items of @form, repeated by its loops from @first on. EOVERFLOW beyond 63 bits. */
int form_measure(const struct form *form, uint32_t first, struct span *span);

/* Removes the innermost loop: each of its repetitions becomes items. */
int form_unroll(struct form *form);

/*
 * Makes a form that needs no keys over keys, except one list of keys: only ranges are in
 * loops, and at most IBMKEY_MAX_DIMS loops are around a range. If a key of @most entries can
 * have all ranges, the form needs no list of keys either.
 */
int form_plain(struct form *form, uint32_t most);

/*
 * Makes the groups of @layout. EOVERFLOW if a key under another one would be too long; then
 * @layout->part is the part of the datatype, and a plain form may still have a layout.
 */
int form_lower(const struct form *form, struct ibmkey_mpi_layout *layout);

void groups_free(struct ibmkey_mpi_layout *layout);

/* Makes @plain a layout of the same bytes, from a form that form_plain() has changed. */
int layout_plain(const struct ibmkey_mpi_layout *layout, uint32_t most,
		 struct ibmkey_mpi_layout *plain);

/* Writes the name of a part of a datatype to @name, for messages. */
void part_name(const struct ibmkey_mpi_part *part, char *name, size_t size);

#endif /* IBMKEY_MPI_FORM_H */
