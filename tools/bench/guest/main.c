// SPDX-License-Identifier: GPL-2.0
/*
 * mkey_bench: measures keys and device memory, and prints records of JSON, one
 * per line, for tools/bench/report. Both ends of the measured transfers are in
 * this process, each on its own device.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <infiniband/mkey.h>
#include <kselftest.h>

#include "bench.h"

#define MAX_REPETITIONS 1000
#define MAX_SHIFT 16

static const struct group {
	const char *name;
	void (*measure)(struct bench *bench);
	bool ordinary;			/* needs no ib_mkey */
	bool file;			/* needs files */
} groups[] = {
	{ "strided", measure_strided, false },
	{ "layouts", measure_layouts, false },
	{ "growth", measure_growth, false },
	{ "bind", measure_bind, false },
	{ "request", measure_request, false },
	{ "dm", measure_dm, false },
	{ "kv", measure_kv, false },
	{ "ordinary", measure_ordinary, true },
	{ "nfs", measure_nfs, true, true },
};

static const char usage[] =
	"usage: mkey_bench [-a DEVICE] [-b DEVICE] [-r N] [-s N] [-w WAY] [-f FILE -o FILE]\n"
	"                  [-i] [-q] [GROUP...]\n"
	"Measures the groups named, or all: strided layouts growth bind request dm kv\n"
	"ordinary, nfs with -f and -o.\n"
	"  -a, -b  the devices (rxe0, rxe1), which can be the same\n"
	"  -r N    repetitions of each measurement (15)\n"
	"  -s N    divide sizes by 2 to this power (0)\n"
	"  -w WAY  what the figures of groups ordinary and nfs are called (ordinary)\n"
	"  -f FILE a file of NFS over RDMA; its bytes are overwritten\n"
	"  -o FILE the same file in the directory that the server exports\n"
	"  -i      note that the clock counts instructions\n"
	"  -q      everything once and small, all bytes checked, TAP instead of figures\n";

static bool is_extended(struct rc_dev *dev)
{
	struct ibmkey_caps caps;

	return !ibmkey_query_caps(dev->ctx, &caps);
}

static void open_bench(struct bench *bench, const char *const device[2])
{
	struct rc_addr addr[2];

	for (int i = 0; i < 2; i++) {
		rc_open(&bench->dev[i], device[i]);
		rc_create(&bench->conn[i], &bench->dev[i], device[i]);
		addr[i] = rc_address(&bench->conn[i], &bench->dev[i]);
	}
	for (int i = 0; i < 2; i++)
		rc_connect(&bench->conn[i], &bench->dev[i], &addr[!i]);
	bench->extended = is_extended(&bench->dev[NEAR]) &&
			  is_extended(&bench->dev[FAR]);
}

static void close_bench(struct bench *bench)
{
	for (int i = 0; i < 2; i++)
		rc_destroy(&bench->conn[i]);
	for (int i = 0; i < 2; i++)
		rc_close(&bench->dev[i]);
}

static void print_run(const struct bench *bench, const char *const device[2])
{
	struct utsname name;

	if (uname(&name))
		err(1, "uname");
	printf("{\"record\":\"run\",\"kernel\":\"%s\",\"cpus\":%ld,\"near\":\"%s\",\"far\":\"%s\",\"mtu\":%u,\"repetitions\":%u,\"shift\":%u,\"icount\":%s}\n",
	       name.release, sysconf(_SC_NPROCESSORS_ONLN), device[NEAR],
	       device[FAR], 128u << bench->dev[NEAR].mtu, bench->repetitions,
	       bench->shift, bench->icount ? "true" : "false");
}

static bool is_chosen(const char *name, char **chosen, int num_chosen)
{
	for (int i = 0; i < num_chosen; i++)
		if (!strcmp(chosen[i], name))
			return true;
	return !num_chosen;
}

static void check_chosen(char **chosen, int num_chosen)
{
	for (int i = 0; i < num_chosen; i++) {
		unsigned int g;

		for (g = 0; g < ARRAY_SIZE(groups); g++)
			if (!strcmp(chosen[i], groups[g].name))
				break;
		if (g == ARRAY_SIZE(groups))
			errx(2, "there is no group %s", chosen[i]);
	}
}

/* Returns what @group needs and this run does not have, or NULL. */
static const char *lacks(const struct bench *bench, const struct group *group)
{
	if (group->file && !(bench->file && bench->behind))
		return "no files of NFS, -f and -o";
	if (!group->ordinary && !bench->extended)
		return "no ib_mkey on these devices";
	return NULL;
}

static void measure_groups(struct bench *bench, char **chosen, int num_chosen)
{
	if (bench->quiet) {
		ksft_print_header();
		ksft_set_plan(num_chosen ? (unsigned int)num_chosen : ARRAY_SIZE(groups));
	}
	for (unsigned int g = 0; g < ARRAY_SIZE(groups); g++) {
		const struct group *group = &groups[g];
		const char *lacking = lacks(bench, group);

		if (!is_chosen(group->name, chosen, num_chosen))
			continue;
		/* Without names, files are optional. */
		if (lacking && !bench->quiet && (num_chosen || !group->file))
			errx(1, "%s, which group %s is about", lacking, group->name);
		if (!lacking)
			group->measure(bench);
		if (bench->quiet && lacking)
			ksft_test_result_skip("%s: %s\n", group->name, lacking);
		else if (bench->quiet)
			ksft_test_result_pass("%s\n", group->name);
		fflush(stdout);
	}
}

static unsigned int number_from(int option, const char *text, unsigned int min,
				unsigned int max)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (!*text || *end || n < min || n > max)
		errx(2, "-%c %s: not a number from %u to %u", option, text, min, max);
	return n;
}

int main(int argc, char **argv)
{
	struct bench bench = { .repetitions = 15, .way = "ordinary" };
	const char *device[2] = { "rxe0", "rxe1" };
	int option;

	while ((option = getopt(argc, argv, "a:b:r:s:w:f:o:iqh")) != -1) {
		switch (option) {
		case 'a':
		case 'b':
			device[option - 'a'] = optarg;
			break;
		case 'r':
			bench.repetitions = number_from(option, optarg, 1,
							MAX_REPETITIONS);
			break;
		case 's':
			bench.shift = number_from(option, optarg, 0, MAX_SHIFT);
			break;
		case 'w':
			bench.way = optarg;
			break;
		case 'f':
			bench.file = optarg;
			break;
		case 'o':
			bench.behind = optarg;
			break;
		case 'i':
			bench.icount = true;
			break;
		case 'q':
			bench.quiet = true;
			bench.shift = 7;
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	check_chosen(argv + optind, argc - optind);

	open_bench(&bench, device);
	if (!bench.quiet)
		print_run(&bench, device);
	measure_groups(&bench, argv + optind, argc - optind);
	close_bench(&bench);
	if (bench.quiet)
		ksft_finished();
	return 0;
}
