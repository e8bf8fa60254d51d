/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Forms: what a datatype becomes first. A form is a sequence of items that loops repeat,
 * in the order of the type map. An item is a range of memory, or another form with loops.
 * This part does not know MPI.
 *
 * Functions return 0 or an errno value. After an error, a form is only good for form_free().
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
	int64_t at;		/* of the range, or what @nest is moved by */
	uint64_t bytes;		/* of the range */
	struct form *nest;	/* NULL for a range */
};

/* A form without items has no loops. */
struct form {
	uint32_t num_loops;
	uint32_t num_items;
	struct loop *loops;	/* outermost first */
	struct item *items;
	uint64_t entries;	/* items of this form and all forms in it */
	struct ibmkey_mpi_part part;
};

/* The bytes of a form: how many, the lowest one, and the one after the highest. */
struct span {
	uint64_t length;
	int64_t low;
	int64_t high;
};

void form_free(struct form *form);

int form_copy(struct form *to, const struct form *from);

/* Makes @form one range. */
int form_range(struct form *form, int64_t at, uint64_t bytes);

/* Appends @from, moved by @at, to @form. @from is unchanged. */
int form_append(struct form *form, const struct form *from, int64_t at);

/* Repeats @form: @count times, @stride bytes from one start to the next. */
int form_repeat(struct form *form, uint64_t count, int64_t stride);

/* Returns true if @a moved by *@at is @b; sets *@at. */
bool form_same(const struct form *a, const struct form *b, int64_t *at);

/* Measures the items of @form with its loops from @first on; EOVERFLOW beyond 64 bits. */
int form_measure(const struct form *form, uint32_t first, struct span *span);

/* Writes out the innermost loop: each repetition becomes items. */
int form_unroll(struct form *form);

/*
 * Takes away what needs keys over keys, but for a list: loops have ranges only, and not
 * more than IBMKEY_MAX_DIMS of them are around each other. Avoids the list, too, if a key
 * of @most entries can have all ranges.
 */
int form_plain(struct form *form, uint32_t most);

/* Sets the groups of @layout; EOVERFLOW, @layout->part says where, if only a plain form can. */
int form_lower(const struct form *form, struct ibmkey_mpi_layout *layout);

void groups_free(struct ibmkey_mpi_layout *layout);

/* Sets @plain to a layout of the same bytes, of a plain form. */
int layout_plain(const struct ibmkey_mpi_layout *layout, uint32_t most,
		 struct ibmkey_mpi_layout *plain);

/* Writes the name of a part of a datatype. */
void part_name(const struct ibmkey_mpi_part *part, char *name, size_t size);

#endif /* IBMKEY_MPI_FORM_H */
