// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Tests datatypes at the limits. The error must name the part of the datatype. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../form.h"
#include "draw.h"
#include "report.h"

static bool refused(MPI_Datatype type, int count, int errnum, const char *part)
{
	struct ibmkey_mpi_layout layout;
	int ret = ibmkey_mpi_layout(type, count, &layout);

	if (ret != errnum || strcmp(layout.part, part))
		printf("# status %d, \"%s\", %u entries\n", ret, layout.part,
		       ibmkey_mpi_entries(&layout));
	ibmkey_mpi_free(&layout);
	return ret == errnum && !strcmp(layout.part, part);
}

static void too_many_entries(void)
{
	const int most = IBMKEY_MPI_MAX_ENTRIES;
	int *places = malloc((most + 1) * sizeof(int));
	MPI_Datatype type, outer;

	for (int64_t i = 0; i <= most; i++)
		places[i] = i * i % 10007 * 3;
	MPI_Type_create_indexed_block(most, 1, places, MPI_INT, &type);
	MPI_Type_vector(2, 1, 5, type, &outer);
	result(refused(outer, 1, 0, ""), "as many entries as a layout can have");
	MPI_Type_free(&type);
	MPI_Type_free(&outer);
	MPI_Type_create_indexed_block(most + 1, 1, places, MPI_INT, &type);
	MPI_Type_contiguous(2, type, &outer);
	result(refused(outer, 1, ENOSPC, "member 1048576 of indexed_block at level 2"),
	       "one entry more: the error names the member");
	MPI_Type_free(&type);
	MPI_Type_free(&outer);
	free(places);
}

static void too_many_levels(void)
{
	MPI_Datatype deep, next;

	MPI_Type_vector(2, 1, 3, MPI_INT, &deep);
	for (int i = 0; i < IBMKEY_MPI_MAX_LEVELS; i++) {
		MPI_Type_dup(deep, &next);
		MPI_Type_free(&deep);
		deep = next;
	}
	result(refused(deep, 1, ELOOP, "vector at level 65"), "too many levels");
	MPI_Type_free(&deep);
}

/* Checks that the layout of @type, resized to @extent, fails with EOVERFLOW. Frees @type. */
static void overflows(MPI_Datatype type, MPI_Aint extent, int count, const char *part)
{
	MPI_Datatype wide;

	if (!extent)
		MPI_Type_dup(type, &wide);
	else
		MPI_Type_create_resized(type, 0, extent, &wide);
	result(refused(wide, count, EOVERFLOW, part), "more than 64 bits: %s", part);
	MPI_Type_free(&wide);
	MPI_Type_free(&type);
}

static void too_far(void)
{
	const int million = 1 << 20, sizes[] = { million, million }, ones[] = { 1, 1 };
	const int zeros[] = { 0, 0 }, grid[] = { 1, 1 }, places[] = { 0, million };
	const int blocks[] = { MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_BLOCK };
	const int usual[] = { MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG };
	const MPI_Aint far = INT64_MAX - 2;
	MPI_Datatype type, wide;

	MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint)1 << 45, &wide);
	MPI_Type_vector(2, 1, million, wide, &type);
	overflows(type, 0, 1, "vector at level 2");
	MPI_Type_create_hvector(4, 1, (MPI_Aint)1 << 62, wide, &type);
	overflows(type, 0, 1, "hvector at level 2");
	MPI_Type_contiguous(million, wide, &type);
	overflows(type, 0, 1, "contiguous at level 2");
	MPI_Type_indexed(2, ones, places, wide, &type);
	overflows(type, 0, 1, "member 1 of indexed at level 2");
	MPI_Type_create_hindexed(1, ones, &far, MPI_INT, &type);
	overflows(type, 0, 1, "member 0 of hindexed at level 2");
	MPI_Type_create_subarray(2, sizes, ones, zeros, MPI_ORDER_C, wide, &type);
	overflows(type, 0, 1, "subarray at level 2");
	MPI_Type_create_darray(1, 0, 2, sizes, blocks, usual, grid, MPI_ORDER_C, wide, &type);
	overflows(type, 0, 1, "darray at level 2");
	MPI_Type_dup(MPI_INT, &type);
	overflows(type, (MPI_Aint)1 << 62, 3, "the 3 elements");
	MPI_Type_free(&wide);
}

/* Makes a type of 9 loops, with @last repetitions in the innermost, for which a key is too long. */
static MPI_Datatype long_type(int last, MPI_Aint stride)
{
	MPI_Datatype type, next;

	MPI_Type_create_hvector(last, 1, stride, MPI_CHAR, &type);
	for (int i = 0; i < 8; i++) {
		MPI_Type_create_hvector(32, 1, 3 + 2 * i, type, &next);
		MPI_Type_free(&type);
		type = next;
	}
	return type;
}

static void too_many_dimensions(void)
{
	MPI_Datatype type = long_type(1000, (MPI_Aint)1 << 20);
	struct ibmkey_mpi_layout layout;
	int ret = ibmkey_mpi_layout(type, 1, &layout);

	result(!ret && layout.num_groups == 1 && layout.groups[0].num_dims == IBMKEY_MAX_DIMS &&
	       layout.groups[0].num_blocks == 1000,
	       "more than 8 dimensions, too long for a key over a key: blocks");
	ibmkey_mpi_free(&layout);
	MPI_Type_free(&type);
	type = long_type(1 << 21, 8);
	result(refused(type, 1, ENOSPC, "hvector at level 1"),
	       "more than 8 dimensions, and too many blocks");
	MPI_Type_free(&type);
}

/* Tests a type that has too many entries without keys over keys. */
static void no_plain_layout(void)
{
	MPI_Datatype members[2] = { MPI_DATATYPE_NULL, MPI_DOUBLE }, type;
	struct ibmkey_mpi_layout layout, plain;
	int ret;

	MPI_Type_vector(2000000, 1, 3, MPI_INT, &members[0]);
	MPI_Type_create_struct(2, (int[]){ 1, 1 }, (MPI_Aint[]){ 0, 1 << 26 }, members, &type);
	MPI_Type_free(&members[0]);
	ret = ibmkey_mpi_layout(type, 1000000, &layout);
	result(!ret && ibmkey_mpi_entries(&layout) == 3, "a large nest of 3 entries");
	ret = layout_plain(&layout, 65536, &plain);
	result(ret == ENOSPC && !strcmp(plain.part, "struct at level 1"),
	       "it has too many entries without a nest");
	ibmkey_mpi_free(&plain);
	ibmkey_mpi_free(&layout);
	MPI_Type_free(&type);
}

/* Tests that entries that are written out in a loop are counted for the loops around it. */
static void plain_levels(void)
{
	MPI_Datatype members[2] = { MPI_DATATYPE_NULL, MPI_CHAR }, type, all;
	struct ibmkey_mpi_layout layout, plain;

	MPI_Type_vector(3, 1, 2, MPI_CHAR, &members[0]);
	MPI_Type_create_struct(2, (int[]){ 1, 1 }, (MPI_Aint[]){ 0, 8 }, members, &type);
	MPI_Type_free(&members[0]);
	MPI_Type_create_hvector(250, 1, 12, type, &members[0]);
	MPI_Type_free(&type);
	MPI_Type_create_struct(2, (int[]){ 1, 1 }, (MPI_Aint[]){ 0, 3001 }, members, &type);
	MPI_Type_create_hvector(200, 1, 5000, type, &all);
	result(!ibmkey_mpi_layout(all, 1, &layout) && ibmkey_mpi_entries(&layout) == 5 &&
	       !layout_plain(&layout, 65536, &plain) && ibmkey_mpi_entries(&plain) == 1001 &&
	       plain.num_groups == 1, "three levels become one");
	ibmkey_mpi_free(&plain);
	ibmkey_mpi_free(&layout);
	MPI_Type_free(&members[0]);
	MPI_Type_free(&type);
	MPI_Type_free(&all);
}

/* Tests arguments that are no datatype, no number of elements and no object. */
static void wrong_arguments(void)
{
	struct ibmkey_mpi_layout layout;
	struct ibmkey_mpi_key *key;
	struct ibv_mr mr = { 0 };
	struct ibv_pd pd = { 0 };
	bool named;

	result(refused(MPI_INT, -1, EINVAL, "the -1 elements"), "a negative number of elements");
	result(refused(MPI_DATATYPE_NULL, 1, EINVAL, "MPI_DATATYPE_NULL"), "no datatype");
	named = !ibmkey_mpi_layout(MPI_INT, 1, &layout);
#define NAMED(what, call) \
	(named = named && (call) == EINVAL && !strcmp(ibmkey_mpi_last_error(), what))
	NAMED("pd is NULL", ibmkey_mpi_bind(NULL, NULL, &mr, &layout, 0, &key));
	NAMED("mr is NULL", ibmkey_mpi_bind(&pd, NULL, NULL, &layout, 0, &key));
	NAMED("layout is NULL", ibmkey_mpi_bind(&pd, NULL, &mr, NULL, 0, &key));
	NAMED("key is NULL", ibmkey_mpi_bind(&pd, NULL, &mr, &layout, 0, NULL));
	/* a protection domain without a device */
	NAMED("ctx is NULL", ibmkey_mpi_bind(&pd, NULL, &mr, &layout, 0, &key));
#undef NAMED
	result(named && !key && !ibmkey_mpi_mr(NULL) && !ibmkey_mpi_unbind(NULL),
	       "an argument that is NULL");
	ibmkey_mpi_free(&layout);
}

void refused_types(void)
{
	wrong_arguments();
	too_many_entries();
	too_many_levels();
	too_far();
	too_many_dimensions();
	no_plain_layout();
	plain_levels();
}
