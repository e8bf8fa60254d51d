// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Decodes parts of arrays: subarrays, and the elements of a distributed array on one process. */
#include <stdlib.h>

#include "decode.h"

/*
 * Appends the elements @first to @first + @count - 1 of a row to @to. An element has the form
 * @from, and elements are @stride bytes apart.
 */
static int append_row(struct form *to, const struct form *from, int64_t first, int64_t count,
		      int64_t stride)
{
	struct form row = { 0 };
	int64_t at;
	int ret;

	ret = product(first, stride, &at);
	if (!ret && count)
		ret = form_append(&row, from, at);
	if (!ret)
		ret = form_repeat(&row, count, stride);
	if (!ret)
		ret = form_append(to, &row, 0);
	form_free(&row);
	return ret;
}

/* The elements of one dimension of an array that belong to a datatype, as runs. */
struct share {
	int64_t size;		/* elements of the whole dimension */
	int64_t first;		/* number of the first element */
	int64_t length;		/* elements of a run */
	int64_t step;		/* elements from the start of one run to the next */
	int64_t runs;		/* number of runs of this length */
	int64_t rest;		/* elements of a last, shorter run */
};

/*
 * Replaces @form, that of an element, by the form of the elements in @share. Elements are
 * *@stride bytes apart. Sets *@stride to the bytes of the whole dimension.
 */
static int take_share(struct form *form, const struct share *share, int64_t *stride)
{
	struct form part = { 0 }, all = { 0 };
	int64_t step;
	int ret;

	ret = product(share->step, *stride, &step);
	if (!ret && share->runs)
		ret = append_row(&part, form, share->first, share->length, *stride);
	if (!ret)
		ret = form_repeat(&part, share->runs, step);
	if (!ret)
		ret = form_append(&all, &part, 0);
	if (!ret)
		ret = append_row(&all, form, share->first + share->runs * share->step, share->rest,
				 *stride);
	if (!ret)
		ret = product(*stride, share->size, stride);
	form_free(&part);
	form_free(form);
	*form = all;
	return ret;
}

int decode_subarray(const struct contents *c, struct form *form)
{
	int n = c->ints[0], ret = 0;
	const int *sizes = c->ints + 1, *subsizes = sizes + n, *starts = subsizes + n;
	bool c_order = starts[n] == MPI_ORDER_C;
	int64_t stride = extent_of(c->types[0]);

	/* Begin with the innermost dimension, in which elements follow each other. */
	for (int i = 0; i < n && !ret; i++) {
		int d = c_order ? n - 1 - i : i;
		struct share share = {
			.size = sizes[d],
			.first = starts[d],
			.length = subsizes[d],
			.runs = 1,
		};

		ret = take_share(form, &share, &stride);
	}
	return ret;
}

/* Returns the elements of a dimension of @size that process @rank of @processes has. */
static struct share distribute(int size, int distribution, int argument, int rank, int processes)
{
	struct share share = { .size = size };
	int64_t whole;

	if (distribution == MPI_DISTRIBUTE_NONE)
		share.length = size;
	else if (argument != MPI_DISTRIBUTE_DFLT_DARG)
		share.length = argument;
	else if (distribution == MPI_DISTRIBUTE_BLOCK)
		share.length = ((int64_t)size + processes - 1) / processes;
	else
		share.length = 1;
	whole = size / share.length;
	share.first = rank * share.length;
	share.step = processes * share.length;
	if (whole > rank)
		share.runs = (whole - 1 - rank) / processes + 1;
	if (whole % processes == rank)
		share.rest = size % share.length;
	return share;
}

int decode_darray(const struct contents *c, struct form *form)
{
	int processes = c->ints[0], rank = c->ints[1], n = c->ints[2], ret = 0;
	const int *sizes = c->ints + 3, *distributions = sizes + n;
	const int *arguments = distributions + n, *grid = arguments + n;
	bool c_order = grid[n] == MPI_ORDER_C;
	int64_t stride = extent_of(c->types[0]);
	int *at = calloc(n + 1, sizeof(*at));

	if (!at)
		return ENOMEM;
	/* The MPI standard numbers the processes in row-major order, also for MPI_ORDER_FORTRAN. */
	for (int d = 0; d < n; d++) {
		processes /= grid[d];
		at[d] = rank / processes;
		rank %= processes;
	}
	for (int i = 0; i < n && !ret; i++) {
		int d = c_order ? n - 1 - i : i;
		struct share share = distribute(sizes[d], distributions[d], arguments[d], at[d],
						grid[d]);

		ret = take_share(form, &share, &stride);
	}
	free(at);
	return ret;
}
