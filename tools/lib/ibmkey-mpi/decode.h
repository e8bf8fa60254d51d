/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Declarations for layout.c and arrays.c, which decode the constructors of datatypes. */
#ifndef IBMKEY_MPI_DECODE_H
#define IBMKEY_MPI_DECODE_H

#include <errno.h>

#include "form.h"

/* The arguments of the constructor of a datatype. */
struct contents {
	int combiner;
	int *ints;
	MPI_Aint *aints;
	MPI_Datatype *types;
	int num_types;
};

static inline int64_t extent_of(MPI_Datatype type)
{
	MPI_Aint lower, extent;

	MPI_Type_get_extent(type, &lower, &extent);
	return extent;
}

/* Sets *@to to @a * @b; EOVERFLOW if that does not fit. */
static inline int product(int64_t a, int64_t b, int64_t *to)
{
	return __builtin_mul_overflow(a, b, to) ? EOVERFLOW : 0;
}

/* Replace @form, that of an element, by the form of the array's part. */
int decode_subarray(const struct contents *c, struct form *form);
int decode_darray(const struct contents *c, struct form *form);

#endif /* IBMKEY_MPI_DECODE_H */
