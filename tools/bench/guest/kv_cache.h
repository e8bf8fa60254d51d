/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The two KV caches of the group kv. A cache has layers with their own MRs, and each
 * layer has a piece of every block.
 */
#ifndef MKEY_BENCH_KV_CACHE_H
#define MKEY_BENCH_KV_CACHE_H

#include "bench.h"
#include "kv.h"

#define MAX_LAYERS 101
#define MAX_IDS 16

struct shape {
	const char *name;
	unsigned int layers;
	size_t width;			/* bytes of a piece; */
	size_t fifth;			/* of every fifth layer */
	unsigned int blocks;
};

struct cache {
	uint8_t *memory[MAX_LAYERS], *packed;
	struct ibv_mr *layer[MAX_LAYERS], *view, *packed_mr;
	struct kv_gather gather;
	uint32_t ids[MAX_IDS];		/* of the blocks to move */
};

struct kv {
	struct bench *bench;
	const struct shape *shape;
	size_t width[MAX_LAYERS], block;
	unsigned int blocks, num_ids;
	struct cache cache[2];
};

/* Layer @l of block @i of the list. */
static inline uint8_t *piece(const struct kv *kv, int side, unsigned int i, unsigned int l)
{
	return kv->cache[side].memory[l] + kv->cache[side].ids[i] * kv->width[l];
}

/* ucx/kv.c, in mkey_bench_ucx only: both workers use the device of UCX_NET_DEVICES */
void kv_ucx_open(const struct kv *kv);
void kv_ucx_put(void *context);		/* a put for each piece, and a flush */
void kv_ucx_close(const struct kv *kv);

#endif /* MKEY_BENCH_KV_CACHE_H */
