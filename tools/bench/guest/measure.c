// SPDX-License-Identifier: GPL-2.0
/* The clock, and the order of the ways. */
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/mkey.h>

#include "bench.h"

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

size_t scaled(const struct bench *bench, size_t amount, size_t at_least)
{
	amount >>= bench->shift;
	return amount > at_least ? amount : at_least;
}

uint8_t *new_buffer(size_t size)
{
	uint8_t *buffer = aligned_alloc(4096, (size + 4095) & ~(size_t)4095);

	if (!buffer)
		err(1, "a buffer of %zu bytes", size);
	/* Fault the pages in before anything is measured. */
	memset(buffer, 0, size);
	return buffer;
}

void fill_random(uint8_t *to, size_t size, uint32_t seed)
{
	uint32_t x = seed * 2654435761u + 1;

	for (size_t i = 0; i < size; i++) {
		x = x * 1664525 + 1013904223;
		to[i] = x >> 24;
	}
}

void must(int ret, const char *what)
{
	const char *why = ibmkey_last_error();

	/* No bind fails before the call that ends the program. */
	if (ret)
		die(ret, "%s%s%s", what, *why ? ": " : "", why);
}

static unsigned int times_of(const struct way *way)
{
	return way->times ?: 1;
}

static void print_series(const struct series *series, const struct way *way,
			 const uint64_t *ns, unsigned int repetitions)
{
	printf("{\"record\":\"series\",\"group\":\"%s\",\"name\":\"%s\",\"way\":\"%s\"",
	       series->group, series->name, way->name);
	printf(",\"size\":%" PRIu64 ",\"amount\":%" PRIu64 ",\"unit\":\"%s\",\"ns\":[",
	       series->size, series->amount * times_of(way), series->unit);
	for (unsigned int i = 0; i < repetitions; i++)
		printf("%s%" PRIu64, i ? "," : "", ns[i]);
	puts("]}");
}

static uint64_t run_once(const struct way *way)
{
	uint64_t start, ns;

	if (way->reset)
		way->reset(way->context);
	start = now_ns();
	for (unsigned int i = 0; i < times_of(way); i++)
		way->run(way->context);
	ns = now_ns() - start;
	if (way->check)
		way->check(way->context);
	return ns;
}

void measure(const struct bench *bench, const struct series *series,
	     const struct way *ways, unsigned int num_ways)
{
	uint64_t *ns = calloc(num_ways, bench->repetitions * sizeof(*ns));

	if (!ns)
		err(1, "room for figures");
	/*
	 * Run each way once before measuring, because the first run is slower.
	 */
	for (unsigned int w = 0; w < num_ways; w++)
		run_once(&ways[w]);
	for (unsigned int i = 0; i < bench->repetitions && !bench->quiet; i++)
		for (unsigned int turn = 0; turn < num_ways; turn++) {
			/*
			 * Alternate the order, so that no way always follows the
			 * same one.
			 */
			unsigned int w = i % 2 ? num_ways - 1 - turn : turn;

			ns[w * bench->repetitions + i] = run_once(&ways[w]);
		}
	for (unsigned int w = 0; w < num_ways && !bench->quiet; w++)
		print_series(series, &ways[w], ns + w * bench->repetitions,
			     bench->repetitions);
	free(ns);
}
