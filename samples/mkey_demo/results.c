// SPDX-License-Identifier: GPL-2.0
/* Prints the tables of the figures. mkey_picture arranges them; a tab ends a cell. */
#include <stdio.h>
#include <unistd.h>

#include "helper.h"
#include "results.h"

/* Starts a table. The numbers of a table of figures are aligned to the right. */
static struct helper start_table(const char *kind)
{
	const char *const argv[] = { "mkey_picture", "table", kind, NULL };

	/* The helper writes to the same standard output. */
	fflush(stdout);
	return helper_start(argv, STDIN_FILENO);
}

static void write_row(FILE *table, const char *what, const struct figures *f)
{
	fprintf(table, "%s\t%llu\t%u\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\n", what,
		(unsigned long long)f->bytes, f->blocks, f->ms[WAY_ONE_KEY], f->ms[WAY_PACKED],
		f->ms[WAY_PACKED] / f->ms[WAY_ONE_KEY], f->ms[WAY_REQUEST_EACH],
		f->ms[WAY_REQUEST_EACH] / f->ms[WAY_ONE_KEY]);
}

static void print_ways(const struct figures *tile, const struct figures *pieces,
		       unsigned int repetitions)
{
	struct helper table = start_table("figures");

	fputs("times in ms\tbytes\tblocks\tone key\tpacked\tratio\tmany WRs\tratio\n",
	      table.stream);
	write_row(table.stream, "tile of a picture", tile);
	write_row(table.stream, "header + 3 pieces", pieces);
	helper_finish(&table);

	table = start_table("text");
	fprintf(table.stream,
		"times\tmedians of %u transfers, until the receiver has the data in place\n"
		"one key\tone RDMA WRITE from a key to a key\n"
		"packed\tthe sender copies the data to one buffer, one WRITE, the receiver copies it out\n"
		"many WRs\t%u and %u RDMA WRITEs, one for each run of bytes contiguous at both ends\n"
		"ratio\tthis time divided by that of one key; above 1, one key is faster\n",
		repetitions, tile->requests, pieces->requests);
	helper_finish(&table);
	printf("A key needs no copies at the ends, and one request. The keys of both ends were made once,\n"
	       "for all transfers: %.2f ms for the tile, %.2f ms for the pieces.\n",
	       tile->bind_ms, pieces->bind_ms);
}

static void print_counter(const struct counter_figures *counter)
{
	struct helper table = start_table("figures");

	fprintf(table.stream,
		"both nodes\toperations\tin device memory\tin ordinary memory\tratio\n"
		"fetch-and-add\t%u\t%.0f ms, %.0f/s\t%.0f ms, %.0f/s\t%.2f\n",
		counter->operations, counter->device_memory_ms,
		counter->operations / counter->device_memory_ms * 1e3,
		counter->host_memory_ms,
		counter->operations / counter->host_memory_ms * 1e3,
		counter->host_memory_ms / counter->device_memory_ms);
	helper_finish(&table);

	table = start_table("text");
	fputs("ratio\tthe time in ordinary memory divided by that in device memory\n",
	      table.stream);
	helper_finish(&table);
}

void results_print(const struct results *results, unsigned int repetitions)
{
	putchar('\n');
	print_ways(&results->tile, &results->pieces, repetitions);
	putchar('\n');
	print_counter(&results->counter);
}
