/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Forms: what a datatype lowers to. A form is a sequence of groups, in the order of
 * the type map. This part does not know MPI.
 */
#ifndef IBMKEY_MPI_FORM_H
#define IBMKEY_MPI_FORM_H

#include <stdbool.h>
#include <stdint.h>

#include "ibmkey_mpi.h"

struct form {
	uint32_t num;
	struct ibmkey_mpi_group *group;
};

void form_free(struct form *form);

/* Makes @form one block. */
int form_block(struct form *form, int64_t at, uint64_t bytes);

/* Appends @from, moved by @at, to @form. @from is unchanged. */
int form_append(struct form *form, const struct form *from, int64_t at);

/* Repeats @form: @count times, @stride bytes from one start to the next. */
int form_repeat(struct form *form, uint64_t count, int64_t stride);

/* Repeats @form by writing it @count times. */
int form_copies(struct form *form, uint64_t count, int64_t stride);

/* Returns true if @a moved by *@at is @b; sets *@at. */
bool form_same(const struct form *a, const struct form *b, int64_t *at);

/* Returns the blocks of all groups. */
uint64_t form_blocks(const struct form *form);

#endif /* IBMKEY_MPI_FORM_H */
