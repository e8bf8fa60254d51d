// SPDX-License-Identifier: GPL-2.0
/*
 * Measures the kernel memory that a key takes: the memory in use after very
 * many keys were made.
 */
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "bench.h"

struct kind {
	const char *name;
	unsigned int objects;
	unsigned int entries;		/* of each key, 0: an ordinary MR */
	bool bound, list;
};

static const struct kind kinds[] = {
	{ "MR of 4 KiB", 4096, 0, false, false },
	{ "key, unbound", 4096, 1, false, false },
	{ "key, 1 block strided", 4096, 1, true, false },
	{ "key, list of 16", 2048, 16, true, true },
	{ "key, list of 256", 1024, 256, true, true },
	{ "key, list of 4,096", 64, 4096, true, true },
	{ "key, list of 65,536", 8, 65536, true, true },
};

static int64_t kernel_bytes(void)
{
	static const char *const fields[] = { "Slab", "VmallocUsed", "Percpu" };
	FILE *file = fopen("/proc/meminfo", "r");
	unsigned long long kib;
	char line[128], name[64];
	int64_t bytes = 0;

	if (!file)
		err(1, "/proc/meminfo");
	while (fgets(line, sizeof(line), file))
		for (unsigned int i = 0; i < ARRAY_SIZE(fields); i++)
			if (sscanf(line, "%63[^:]: %llu kB", name, &kib) == 2 &&
			    !strcmp(name, fields[i]))
				bytes += kib * KIB;
	fclose(file);
	return bytes;
}

static struct ibv_mr *make(struct rc_dev *dev, const struct kind *kind,
			   const struct column *memory, struct ibv_sge *list)
{
	struct column column = *memory;

	if (!kind->entries)
		return rc_reg(dev, memory->strided, 4096, ACCESS_ALL);
	column.key = ibmkey_alloc(dev->pd, kind->entries);
	if (!column.key)
		err(1, "ibmkey_alloc");
	if (kind->list)
		must(ibv_rereg_mr_sg(column.key, ACCESS_ALL, kind->entries, list),
		     "ibv_rereg_mr_sg");
	else if (kind->bound)
		column_bind(&column);
	return column.key;
}

/*
 * Keeps the objects, so that the next kind cannot reuse memory that they freed.
 */
static struct ibv_mr **measure_kind(struct bench *bench, const struct kind *kind,
				    const struct column *memory,
				    struct ibv_sge *list)
{
	unsigned int objects = scaled(bench, kind->objects, 1);
	struct ibv_mr **mr = calloc(objects, sizeof(*mr));
	int64_t before = kernel_bytes();

	if (!mr)
		err(1, "list of %u keys", objects);
	for (unsigned int i = 0; i < objects; i++)
		mr[i] = make(&bench->dev[NEAR], kind, memory, list);
	if (!bench->quiet)
		printf("{\"record\":\"memory\",\"name\":\"%s\",\"objects\":%u,\"bytes\":%" PRId64 "}\n",
		       kind->name, objects, (kernel_bytes() - before) / objects);
	return mr;
}

void measure_memory(struct bench *bench)
{
	struct ibv_mr **mr[ARRAY_SIZE(kinds)];
	struct column memory;
	struct ibv_sge *list = calloc(65536, sizeof(*list));

	if (!list)
		err(1, "list of entries");
	column_open(&bench->dev[NEAR], &memory, 16, 65536);
	for (unsigned int i = 0; i < 65536; i++)
		list[i] = (struct ibv_sge) {
			.addr = (uintptr_t)memory.strided + i * 32,
			.length = 16,
			.lkey = memory.strided_mr->lkey,
		};
	for (unsigned int k = 0; k < ARRAY_SIZE(kinds); k++)
		mr[k] = measure_kind(bench, &kinds[k], &memory, list);
	for (unsigned int k = 0; k < ARRAY_SIZE(kinds); k++) {
		for (unsigned int i = 0; i < scaled(bench, kinds[k].objects, 1); i++)
			must(ibv_dereg_mr(mr[k][i]), "ibv_dereg_mr");
		free(mr[k]);
	}
	column_close(&memory);
	free(list);
}
