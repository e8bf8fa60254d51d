// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Tests random MPI datatypes. The layout of each must describe the bytes that the MPI standard
 * defines, in the same order. For NUMBER types, these are also compared with the bytes that
 * MPI_Pack() packs. NUMBER does not count types with a feature for which Open MPI packs wrong
 * bytes. Needs no device.
 *
 * usage: random_types [NUMBER [SEED]]
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../form.h"
#include "draw.h"
#include "report.h"

struct totals {
	unsigned long checked, empty, large, nested, depth[IBMKEY_MAX_DIMS + 2];
	/* number of types for which MPI_Pack() agrees or differs, by the features of the type */
	unsigned long agrees[1 << FEATURES], differs[1 << FEATURES], wide;
	/* number of types for which MPI_Pack() agrees, by properties and by levels */
	unsigned long negative, overlapping, resized, zero, levels[MAX_LEVELS + 1];
};

static bool same_bytes(const char *what, const int64_t *a, const int64_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a[i] != b[i]) {
			printf("# byte %zu is at %ld, %s at %ld\n", i, a[i], what, b[i]);
			return false;
		}
	return true;
}

/* Returns the number of levels of keys in a layout. */
static unsigned int levels_of(const struct ibmkey_mpi_layout *layout)
{
	unsigned int *levels = calloc(layout->num_groups + 1, sizeof(*levels)), last = 0;

	for (uint32_t i = 0; i < layout->num_groups; i++) {
		const struct ibmkey_mpi_group *g = &layout->groups[i];

		last = 1;
		for (uint32_t k = 0; k < g->num_blocks; k++)
			if (g->blocks[k].lkey && last <= levels[g->blocks[k].lkey - 1])
				last = levels[g->blocks[k].lkey - 1] + 1;
		levels[i] = last;
	}
	free(levels);
	return last;
}

/* Checks a plain layout: only a list may refer to other keys. */
static bool check_plain(const struct ibmkey_mpi_layout *layout, const struct drawn *all)
{
	struct ibmkey_mpi_layout plain;
	int ret = layout_plain(layout, 65536, &plain);
	int64_t *list = ret ? NULL : list_layout(&plain, all->bytes);
	bool good = list && same_bytes("by definition", list, all->at, all->bytes);

	for (uint32_t i = 0; i < plain.num_groups && good; i++)
		for (uint32_t k = 0; k < plain.groups[i].num_blocks; k++)
			good &= !plain.groups[i].num_dims || !plain.groups[i].blocks[k].lkey;
	if (!good || levels_of(&plain) > 2)
		printf("# without a nest: status %d, %u levels\n", ret, levels_of(&plain));
	good &= levels_of(&plain) <= 2 &&
		ibmkey_mpi_entries(&plain) >= ibmkey_mpi_entries(layout);
	free(list);
	ibmkey_mpi_free(&plain);
	return good;
}

/* Returns true if the layout has a byte twice. */
static bool overlaps(const struct drawn *all, const struct ibmkey_mpi_layout *layout)
{
	unsigned char *used = calloc(layout->high - layout->low, 1);
	bool twice = false;

	for (size_t i = 0; i < all->bytes && !twice; i++)
		twice = used[all->at[i] - layout->low]++;
	free(used);
	return twice;
}

static void count_kind(const struct drawn *element, const struct drawn *all,
		       const struct ibmkey_mpi_layout *layout, int levels, struct totals *totals)
{
	MPI_Aint lower, extent;

	MPI_Type_get_extent(element->type, &lower, &extent);
	totals->negative += lower < 0;
	totals->overlapping += overlaps(all, layout);
	totals->resized += all->resized;
	totals->zero += !!(all->features & EMPTY_MEMBER);
	totals->levels[levels]++;
}

/* Returns false if MPI_Pack() packs other bytes, and no feature of the type explains it. */
static bool compare(const struct drawn *element, int count, const struct drawn *all,
		    const struct ibmkey_mpi_layout *layout, int levels, struct totals *totals)
{
	int64_t *packed;
	bool agrees;

	if (layout->high - layout->low > MAX_SPAN) {
		totals->wide++;
		return true;
	}
	packed = malloc(all->bytes * sizeof(*packed));
	list_packed(element->type, count, layout->low, layout->high, all->bytes, packed);
	agrees = !memcmp(all->at, packed, all->bytes * sizeof(*packed));
	if (!agrees && !all->features)
		same_bytes("MPI_Pack()", all->at, packed, all->bytes);
	free(packed);
	(agrees ? totals->agrees : totals->differs)[all->features]++;
	if (agrees)
		count_kind(element, all, layout, levels, totals);
	return agrees || all->features;
}

/* Returns false if the layout of @count elements, of @levels constructors, is wrong. */
static bool check(const struct drawn *element, int count, int levels, struct totals *totals)
{
	struct drawn all = nothing();
	struct ibmkey_mpi_layout layout;
	bool good = false;
	int64_t *ours;
	int ret;

	append_all(&all, element, count, 0, extent(element));
	if (!all.at) {
		totals->large++;
		return true;
	}
	ret = ibmkey_mpi_layout(element->type, count, &layout);
	ours = ret ? NULL : list_layout(&layout, all.bytes);
	if (!ours) {
		printf("# status %d (%s), %lu bytes instead of %zu\n", ret, layout.part,
		       layout.length, all.bytes);
	} else if (!all.bytes) {
		totals->empty++;
		good = !layout.num_groups;
	} else {
		good = same_bytes("by definition", ours, all.at, all.bytes) &&
		       check_plain(&layout, &all) &&
		       compare(element, count, &all, &layout, levels, totals);
		totals->checked++;
		totals->depth[levels_of(&layout)]++;
		totals->nested += layout.num_groups > 1 &&
				  layout.groups[layout.num_groups - 1].num_dims;
	}
	free(ours);
	free(all.at);
	ibmkey_mpi_free(&layout);
	return good;
}

static const char *const feature_name[FEATURES] = {
	"-1 byte", "empty member", "odd complex", "long double",
};

static void show(const struct totals *t)
{
	printf("# %lu compared with the definition, %lu of them nests; %lu without bytes, %lu large\n",
	       t->checked, t->nested, t->empty, t->large);
	printf("# levels of keys:");
	for (int i = 1; i <= IBMKEY_MAX_DIMS; i++)
		printf(" %lu", t->depth[i]);
	printf("\n# %lu too wide for MPI_Pack(); it agrees for types of which", t->wide);
	printf(" %lu have a negative lower bound, %lu overlap, %lu are resized, %lu have a count of zero\n",
	       t->negative, t->overlapping, t->resized, t->zero);
	printf("# and of 1 to %d levels of constructors:", MAX_LEVELS);
	for (int i = 1; i <= MAX_LEVELS; i++)
		printf(" %lu", t->levels[i]);
	printf("\n");
	for (int f = 0; f < 1 << FEATURES; f++) {
		if (!t->agrees[f] && !t->differs[f])
			continue;
		printf("# MPI_Pack() agrees for %lu and differs for %lu with:", t->agrees[f],
		       t->differs[f]);
		for (int i = 0; i < FEATURES; i++)
			if (f & 1 << i)
				printf(" %s,", feature_name[i]);
		printf("%s\n", f ? "" : " none of the features for which Open MPI errs");
	}
}

/* Draws types until MPI_Pack() agrees for @number types without a feature. */
static void random_types(unsigned long number)
{
	struct totals t = { 0 };
	bool good = true;

	for (unsigned long i = 0; t.agrees[0] < number && good; i++) {
		uint64_t seed = state;
		int levels = between(1, MAX_LEVELS), count = some(3);
		struct drawn d = draw(levels);

		MPI_Type_commit(&d.type);
		good = check(&d, count, levels, &t);
		drop(&d);
		if (!good)
			printf("# type %lu: %d levels, %d elements, state %lu\n", i, levels,
			       count, seed);
		/* Stop if MPI_Pack() agrees for less than a third of all types. */
		good = good && (i < 1000 || t.agrees[0] > i / 3);
	}
	show(&t);
	result(good, "random types: %lu are those of MPI_Pack()", number);
	result(t.nested > number / 100, "some of them are nests");
	good = t.negative > number / 100 && t.overlapping > number / 100 &&
	       t.resized > number / 100 && t.zero > number / 100;
	for (int i = 1; i <= MAX_LEVELS; i++)
		good &= t.levels[i] > number / 100;
	result(good, "there are types of each kind, and of 1 to %d levels", MAX_LEVELS);
}

int main(int argc, char **argv)
{
	unsigned long number = argc > 1 ? strtoul(argv[1], NULL, 0) : 10000;
	int status;

	if (argc > 2)
		state = strtoull(argv[2], NULL, 0);
	MPI_Init(NULL, NULL);
	begin_tests();
	known_types();
	refused_types();
	errors_of_open_mpi();
	random_types(number);
	status = end_tests();
	MPI_Finalize();
	return status;
}
