/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Random datatypes, and lists of their bytes. */
#ifndef DRAW_H
#define DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../ibmkey_mpi.h"

#define MAX_LEVELS 6
#define MAX_BYTES (1 << 18)	/* largest number of packed bytes of a type */

/* The state of the random numbers. */
extern uint64_t state;

uint64_t rnd(uint64_t n);
int between(int low, int high);
/* Returns a random number up to @high. Zero is rare, because a type without bytes tests little. */
int some(int high);

/*
 * Features of datatypes for which Open MPI 5.0.7 may pack other bytes than the MPI standard
 * says (ompi.c has small examples).
 */
enum feature {
	/* repeats at a distance of -1 byte */
	MINUS_ONE = 1 << 0,
	/* a member without bytes, whose place counts for the extent */
	EMPTY_MEMBER = 1 << 1,
	/* a double complex at a distance that is not a multiple of 16 */
	ODD_COMPLEX = 1 << 2,
	/* a long double, whose last 6 bytes have no meaning */
	PADDING = 1 << 3,
};
#define FEATURES 4

/*
 * A datatype, and the offset of each of its bytes by the definitions of the MPI
 * standard, in the order of the type map.
 */
struct drawn {
	MPI_Datatype type;
	size_t bytes;
	int64_t *at;		/* NULL if the type has more than MAX_BYTES bytes */
	unsigned int features;	/* enum feature */
	bool has_complex;
	bool resized;
};

/* Draws a datatype of @levels constructors, one in the other. */
struct drawn draw(int levels);
void drop(struct drawn *d);

struct drawn nothing(void);
int64_t extent(const struct drawn *d);
/* Appends @count copies of @from, each @stride bytes after the one before. */
void append_all(struct drawn *to, const struct drawn *from, int count, int64_t by,
		int64_t stride);

/*
 * Lists the offset of each byte of a layout, by the definition in mkey.h. Returns NULL if the
 * layout does not have @bytes bytes.
 */
int64_t *list_layout(const struct ibmkey_mpi_layout *layout, size_t bytes);

/*
 * Finds the offset of each byte that MPI packs. To do so, packs memory whose bytes from @low to
 * @high tell their position. @high - @low is at most MAX_SPAN.
 */
#define MAX_SPAN (1 << 24)
void list_packed(MPI_Datatype type, int count, int64_t low, int64_t high, size_t size,
		 int64_t *to);

void known_types(void);		/* known.c */
void refused_types(void);	/* refused.c */
void errors_of_open_mpi(void);	/* ompi.c */

#endif /* DRAW_H */
