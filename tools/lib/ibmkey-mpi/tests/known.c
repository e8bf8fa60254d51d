// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Tests datatypes for which the layout with the fewest entries is known. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "report.h"

/* Checks the groups of a layout, the dimensions of the last one, and the number of all entries. */
static void known(const char *name, MPI_Datatype type, int count, uint32_t groups,
		  uint32_t dims, uint32_t entries)
{
	struct ibmkey_mpi_layout layout;
	int64_t *ours, *packed;
	bool same;
	int size;

	MPI_Type_commit(&type);
	MPI_Type_size(type, &size);
	size *= count;
	packed = malloc((size + 1) * sizeof(*packed));
	same = !ibmkey_mpi_layout(type, count, &layout);
	ours = list_layout(&layout, size);
	list_packed(type, count, layout.low, layout.high, size, packed);
	same = same && ours && !memcmp(ours, packed, size * sizeof(*ours));
	if (layout.num_groups != groups || (groups && layout.groups[groups - 1].num_dims != dims) ||
	    ibmkey_mpi_entries(&layout) != entries) {
		printf("# %u groups, %u dimensions, %u entries\n", layout.num_groups,
		       layout.num_groups ? layout.groups[layout.num_groups - 1].num_dims : 0,
		       ibmkey_mpi_entries(&layout));
		same = false;
	}
	result(same, "%s", name);
	free(ours);
	free(packed);
	ibmkey_mpi_free(&layout);
	MPI_Type_free(&type);
}

static void known_flat(void)
{
	const int sizes[] = { 4, 5, 6, 7 }, subsizes[] = { 2, 3, 4, 5 }, starts[] = { 1, 1, 1, 1 };
	const int lengths[] = { 2, 1, 3 }, places[] = { 0, 7, 20 };
	const int even[] = { 0, 3, 6, 9 }, whole[] = { 4, 5, 6, 7 }, none[] = { 0, 0, 0, 0 };
	const MPI_Aint at[] = { 0, 8, 100 };
	const MPI_Datatype three[] = { MPI_INT, MPI_DOUBLE, MPI_CHAR };
	MPI_Datatype type, inner;

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
	MPI_Type_create_struct(3, lengths, at, three, &type);
	MPI_Type_dup(type, &inner);
	MPI_Type_free(&type);
	MPI_Type_vector(1000, 1, 2, inner, &type);
	known("vector of structs", type, 2, 1, 2, 2);
	MPI_Type_free(&inner);
	MPI_Type_create_f90_real(12, MPI_UNDEFINED, &inner);
	MPI_Type_contiguous(4, inner, &type);
	known("numbers of Fortran's kinds", type, 2, 1, 0, 1);
	MPI_Type_contiguous(0, MPI_INT, &type);
	known("nothing", type, 5, 0, 0, 0);
	MPI_Type_dup(MPI_SHORT_INT, &type);
	known("MPI_SHORT_INT", type, 3, 1, 1, 2);
}

/* Tests datatypes that need keys over keys. */
static void known_nests(void)
{
	const int ones[] = { 1, 1, 1, 1 }, places[] = { 0, 7, 20 };
	MPI_Datatype type, inner, members[2], pair[2];

	MPI_Type_vector(4, 1, 3, MPI_INT, &inner);
	MPI_Type_indexed(3, ones, places, inner, &type);
	known("indexed of vectors", type, 1, 3, 0, 4);
	MPI_Type_free(&inner);
	MPI_Type_vector(2, 1, 3, MPI_INT, &members[0]);
	members[1] = MPI_DOUBLE;
	MPI_Type_create_struct(2, ones, (MPI_Aint[]){ 0, 40 }, members, &type);
	known("struct of a vector of two and a number: ranges", type, 5, 1, 1, 3);
	MPI_Type_free(&members[0]);
	MPI_Type_vector(4, 1, 2, MPI_INT, &inner);
	MPI_Type_create_struct(3, ones, (MPI_Aint[]){ 0, 4, 32 },
			       (MPI_Datatype[]){ MPI_INT, inner, MPI_INT }, &type);
	known("a vector that the numbers beside it continue", type, 1, 1, 0, 4);
	MPI_Type_free(&inner);
	MPI_Type_vector(100, 1, 3, MPI_INT, &members[0]);
	MPI_Type_create_struct(2, ones, (MPI_Aint[]){ 0, 4000 }, members, &type);
	known("struct of a vector and a number", type, 1, 2, 0, 3);
	for (int n = 2; n <= 50; n += 5) {
		char name[40];

		MPI_Type_create_struct(2, ones, (MPI_Aint[]){ 0, 4000 }, members, &type);
		snprintf(name, sizeof(name), "%d of them", n);
		known(name, type, n, 2, 1, 3);
	}
	MPI_Type_create_struct(2, ones, (MPI_Aint[]){ 0, 4000 }, members, &pair[0]);
	MPI_Type_vector(5, 1, 2, pair[0], &inner);
	MPI_Type_vector(3, 1, 4, inner, &type);
	known("vector of vectors of them", type, 2, 2, 3, 3);
	MPI_Type_create_hvector(5, 1, 4800, pair[0], &members[0]);
	MPI_Type_create_struct(2, ones, (MPI_Aint[]){ 0, 30000 }, members, &type);
	known("struct of a vector of them and a number", type, 3, 3, 1, 5);
	MPI_Type_free(&members[0]);
	MPI_Type_free(&pair[0]);
	MPI_Type_free(&inner);
}

/* Makes @n vectors in each other, none of which continues another. The innermost has @last. */
static MPI_Datatype deep(int n, int last)
{
	MPI_Datatype type = MPI_CHAR, next;
	MPI_Aint stride = 2;

	for (int i = 0; i < n; i++) {
		MPI_Type_create_hvector(i ? 2 : last, 1, stride, type, &next);
		if (i)
			MPI_Type_free(&type);
		type = next;
		stride = i ? 2 * stride + 1 : last * stride + 1;
	}
	return type;
}

/* Tests datatypes with more loops than a key has dimensions. */
static void known_deep(void)
{
	known("8 loops: one block", deep(8, 3), 1, 1, 8, 1);
	known("9 loops of two: two blocks", deep(9, 2), 1, 1, 8, 2);
	known("9 loops: a key over a key", deep(9, 3), 1, 2, 2, 2);
	known("12 loops: a key over a key", deep(12, 3), 1, 2, 5, 2);
	known("16 loops: three levels", deep(16, 2), 1, 3, 2, 3);
}

/* Tests the elements of a distributed array on one process. */
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
	MPI_Type_create_darray(4, 0, 2, (int[]){ 61, 61 }, cyclic, (int[]){ 3, 3 },
			       (int[]){ 2, 2 }, MPI_ORDER_C, MPI_INT, &type);
	known("darray with shorter last runs in both dimensions", type, 1, 4, 0, 7);
	MPI_Type_create_darray(9, 8, 1, &seven, blocks, &runs, (int[]){ 9 }, MPI_ORDER_C, MPI_INT,
			       &type);
	known("darray, a process without elements", type, 3, 0, 0, 0);
}

void known_types(void)
{
	known_flat();
	known_nests();
	known_deep();
	known_darrays();
}
