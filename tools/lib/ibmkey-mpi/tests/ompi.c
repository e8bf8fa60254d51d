// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Tests small datatypes for which Open MPI packs other bytes than the MPI standard says. Random
 * types with these features are compared only with the definition in the standard. If a test
 * reports that a later Open MPI packs as the standard says, such types can be compared with
 * MPI_Pack() again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "report.h"

static bool is_known_version(void)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	MPI_Get_library_version(version, &length);
	return strstr(version, "Open MPI v5.0.7");
}

/*
 * Checks that the layout of @count elements has the bytes at the offsets @expected. With the
 * known version of Open MPI, also checks that MPI_Pack() packs other bytes.
 */
static void error_of(const char *name, MPI_Datatype type, int count, const int64_t *expected,
		     size_t bytes)
{
	struct ibmkey_mpi_layout layout;
	int64_t *ours = NULL, *packed = calloc(bytes, sizeof(*packed));
	bool good = false, differs = false;

	MPI_Type_commit(&type);
	if (!ibmkey_mpi_layout(type, count, &layout))
		ours = list_layout(&layout, bytes);
	if (ours) {
		good = !memcmp(ours, expected, bytes * sizeof(*ours));
		list_packed(type, count, layout.low, layout.high, bytes, packed);
		differs = memcmp(packed, expected, bytes * sizeof(*ours));
	}
	if (is_known_version())
		result(good && differs, "Open MPI errs: %s", name);
	else
		result(good, "%s: this MPI %s", name, differs ? "errs" : "packs as the standard says");
	free(ours);
	free(packed);
	ibmkey_mpi_free(&layout);
	MPI_Type_free(&type);
}

void errors_of_open_mpi(void)
{
	int64_t complex[32], long_double[32];
	MPI_Datatype type, empty, types[2];

	MPI_Type_vector(3, 1, -1, MPI_BYTE, &type);
	error_of("three bytes at a distance of -1 byte", type, 1, (int64_t[]){ 0, -1, -2 }, 3);

	/* The extent is 14 bytes: it reaches to the member without bytes. */
	MPI_Type_contiguous(0, MPI_INT, &empty);
	types[0] = MPI_CHAR;
	types[1] = empty;
	MPI_Type_create_struct(2, (int[]){ 1, 1 }, (MPI_Aint[]){ 0, 14 }, types, &type);
	error_of("two elements of a byte and a member without bytes", type, 2,
		 (int64_t[]){ 0, 14 }, 2);
	MPI_Type_free(&empty);

	for (int i = 0; i < 32; i++) {
		complex[i] = i < 16 ? i : 24 + i - 16;
		long_double[i] = i < 16 ? i : 32 + i - 16;
	}
	MPI_Type_create_hvector(2, 1, 24, MPI_C_DOUBLE_COMPLEX, &type);
	error_of("double complex at a distance of 24 bytes", type, 1, complex, 32);
	MPI_Type_vector(2, 1, 2, MPI_LONG_DOUBLE, &type);
	error_of("the last 6 bytes of a long double", type, 1, long_double, 32);
}
