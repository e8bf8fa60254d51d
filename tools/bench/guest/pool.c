// SPDX-License-Identifier: GPL-2.0
/*
 * Measures a key that is bound once: one that is created and destroyed each
 * time, and one that is taken from a pool and returned.
 */
#include <err.h>
#include <stdlib.h>

#include <infiniband/mkey.h>

#include "bench.h"

#define BATCH 16

struct pool {
	struct rc_dev *dev;
	struct ibmkey_pool *keys;
	size_t entries;
	uint8_t *memory;
	struct ibv_mr *mr;
	struct ibv_sge *list;
};

static void bind_list(struct pool *pool, struct ibv_mr *key)
{
	if (!key)
		err(1, "a key of %zu entries", pool->entries);
	must(ibv_rereg_mr_sg(key, ACCESS_ALL, pool->entries, pool->list),
	     "ibv_rereg_mr_sg");
}

static void create_and_destroy(void *context)
{
	struct pool *pool = context;

	for (unsigned int i = 0; i < BATCH; i++) {
		struct ibv_mr *key = ibmkey_alloc(pool->dev->pd, pool->entries);

		bind_list(pool, key);
		must(ibv_dereg_mr(key), "ibv_dereg_mr");
	}
}

static void get_and_put(void *context)
{
	struct pool *pool = context;

	for (unsigned int i = 0; i < BATCH; i++) {
		struct ibv_mr *key = ibmkey_pool_get(pool->keys);

		bind_list(pool, key);
		must(ibmkey_pool_put(pool->keys, key), "ibmkey_pool_put");
	}
}

/* A returned key is unbound and holds no MR. */
static void check_pool(void *context)
{
	struct pool *pool = context;
	struct ibv_mr *key = ibmkey_pool_get(pool->keys);
	struct ibmkey_info info;

	if (!key)
		err(1, "ibmkey_pool_get");
	must(ibmkey_query(key, &info), "ibmkey_query");
	if (info.kind != IBMKEY_UNBOUND || key->length)
		errx(1, "a key of the pool is bound");
	must(ibmkey_pool_put(pool->keys, key), "ibmkey_pool_put");
}

static void measure_entries(struct bench *bench, size_t entries)
{
	struct pool pool = {
		.dev = &bench->dev[FAR],
		.entries = entries,
		.memory = new_buffer(2 * entries),
		.list = calloc(entries, sizeof(*pool.list)),
	};
	const struct series series = {
		.group = "pool",
		.name = "list",
		.size = entries,
		.amount = BATCH,
		.unit = "operations",
	};
	const struct way ways[] = {
		{ "create", NULL, create_and_destroy, NULL, &pool },
		{ "pool", NULL, get_and_put, check_pool, &pool },
	};

	if (!pool.list)
		err(1, "list of %zu entries", entries);
	pool.mr = rc_reg(pool.dev, pool.memory, 2 * entries, ACCESS_ALL);
	pool.keys = ibmkey_pool_create(pool.dev->pd, entries, 4);
	if (!pool.keys)
		err(1, "ibmkey_pool_create");
	for (size_t i = 0; i < entries; i++)
		pool.list[i] = (struct ibv_sge) {
			.addr = (uintptr_t)pool.memory + 2 * i,
			.length = 1,
			.lkey = pool.mr->lkey,
		};
	measure(bench, &series, ways, ARRAY_SIZE(ways));
	must(ibmkey_pool_destroy(pool.keys), "ibmkey_pool_destroy");
	must(ibv_dereg_mr(pool.mr), "ibv_dereg_mr");
	free(pool.list);
	free(pool.memory);
}

void measure_pool(struct bench *bench)
{
	for (size_t entries = 1; entries <= 256; entries *= 16)
		measure_entries(bench, entries);
}
