// SPDX-License-Identifier: GPL-2.0
/* Blocks of a KV cache, to blocks of another one. */
#include <err.h>
#include <stdlib.h>
#include <string.h>

#include "kv_cache.h"

#ifdef KV_UCX
#define GROUP "kv_ucx"
#else
#define GROUP "kv"
#endif

static const struct shape shapes[] = {
#define SHAPE(...) { __VA_ARGS__ },
#include "kv_shapes.h"
#undef SHAPE
};

static void open_cache(struct kv *kv, int side)
{
	struct cache *cache = &kv->cache[side];
	struct rc_dev *dev = &kv->bench->dev[side];

	for (unsigned int l = 0; l < kv->shape->layers; l++) {
		cache->memory[l] = new_buffer(kv->blocks * kv->width[l]);
		if (side == NEAR)
			fill_random(cache->memory[l], kv->blocks * kv->width[l], l + 1);
		cache->layer[l] = rc_reg(dev, cache->memory[l], kv->blocks * kv->width[l],
					 ACCESS_ALL);
	}
	cache->packed = new_buffer(MAX_IDS * kv->block);
	cache->packed_mr = rc_reg(dev, cache->packed, MAX_IDS * kv->block, ACCESS_ALL);
	cache->view = kv_view(dev->pd, cache->layer, kv->width, kv->shape->layers, kv->blocks,
			      ACCESS_ALL);
	if (!cache->view)
		err(1, "kv_view: %s", ibmkey_last_error());
	must(kv_gather_open(&cache->gather, dev->pd, cache->view, kv->blocks, MAX_IDS),
	     "kv_gather_open");
	/* No two adjacent numbers are neighbours, and the sides differ. */
	for (unsigned int i = 0; i < MAX_IDS; i++)
		cache->ids[i] = (i * 7 + side * 3 + 1) % kv->blocks;
}

static void close_cache(struct kv *kv, int side)
{
	struct cache *cache = &kv->cache[side];

	kv_gather_close(&cache->gather);
	rc_dereg(cache->view);
	rc_dereg(cache->packed_mr);
	free(cache->packed);
	for (unsigned int l = 0; l < kv->shape->layers; l++) {
		rc_dereg(cache->layer[l]);
		free(cache->memory[l]);
	}
}

static void reset(void *context)
{
	const struct kv *kv = context;

	for (unsigned int i = 0; i < kv->num_ids; i++)
		for (unsigned int l = 0; l < kv->shape->layers; l++)
			memset(piece(kv, FAR, i, l), 0, kv->width[l]);
}

static void check(void *context)
{
	const struct kv *kv = context;

	for (unsigned int i = 0; i < kv->num_ids; i++)
		for (unsigned int l = 0; l < kv->shape->layers; l++)
			if (memcmp(piece(kv, FAR, i, l), piece(kv, NEAR, i, l), kv->width[l]))
				errx(1, "%s: block %u of layer %u is wrong", kv->shape->name, i, l);
}

static struct ibv_sge of(struct ibv_mr *mr, const void *addr, size_t length)
{
	return (struct ibv_sge) { (uintptr_t)addr, length, mr->lkey };
}

static void get_piece(void *context, unsigned int index, struct message *message)
{
	const struct kv *kv = context;
	unsigned int i = index / kv->shape->layers, l = index % kv->shape->layers;

	message->num_sge = 1;
	message->near[0] = of(kv->cache[NEAR].layer[l], piece(kv, NEAR, i, l), kv->width[l]);
	message->far[0] = of(kv->cache[FAR].layer[l], piece(kv, FAR, i, l), kv->width[l]);
	message->rkey = kv->cache[FAR].layer[l]->rkey;
}

static void by_pieces(void *context)
{
	struct kv *kv = context;

	move(kv->bench, OP_WRITE, kv->num_ids * kv->shape->layers, get_piece, kv);
}

static void get_block(void *context, unsigned int index, struct message *message)
{
	const struct kv *kv = context;
	const struct cache *near = &kv->cache[NEAR], *far = &kv->cache[FAR];

	message->num_sge = 1;
	message->near[0] = of(near->view, (void *)(near->ids[index] * kv->block), kv->block);
	message->far[0] = of(far->view, (void *)(far->ids[index] * kv->block), kv->block);
	message->rkey = far->view->rkey;
}

static void by_views(void *context)
{
	struct kv *kv = context;

	move(kv->bench, OP_WRITE, kv->num_ids, get_block, kv);
}

static void by_packing(void *context)
{
	struct kv *kv = context;
	const struct span span[] = {
		[NEAR] = { (uintptr_t)kv->cache[NEAR].packed, kv->cache[NEAR].packed_mr },
		[FAR] = { (uintptr_t)kv->cache[FAR].packed, kv->cache[FAR].packed_mr },
	};
	uint8_t *at = kv->cache[NEAR].packed;

	for (unsigned int i = 0; i < kv->num_ids; i++)
		for (unsigned int l = 0; l < kv->shape->layers; at += kv->width[l++])
			memcpy(at, piece(kv, NEAR, i, l), kv->width[l]);
	move_span(kv->bench, OP_WRITE, span, kv->num_ids * kv->block, 1);
	at = kv->cache[FAR].packed;
	for (unsigned int i = 0; i < kv->num_ids; i++)
		for (unsigned int l = 0; l < kv->shape->layers; at += kv->width[l++])
			memcpy(piece(kv, FAR, i, l), at, kv->width[l]);
}

/* One WRITE from key to key. */
static void move_gathered(struct kv *kv)
{
	const struct span span[] = {
		[NEAR] = { 0, kv->cache[NEAR].gather.key },
		[FAR] = { 0, kv->cache[FAR].gather.key },
	};

	move_span(kv->bench, OP_WRITE, span, kv->num_ids * kv->block, 1);
}

/* Both sides bind by a call. */
static void by_gathers(void *context)
{
	struct kv *kv = context;

	for (int s = NEAR; s <= FAR; s++)
		must(kv_gather_bind(&kv->cache[s].gather, ACCESS_ALL, kv->cache[s].ids,
				    kv->num_ids), "kv_gather_bind");
	move_gathered(kv);
}

/* Both sides bind by a work request, that of the sender in the queue of its WRITE. */
static void by_requests(void *context)
{
	struct kv *kv = context;

	for (int s = FAR; s >= NEAR; s--) {
		must(kv_gather_post(&kv->cache[s].gather, kv->bench->conn[s].qp, ACCESS_ALL,
				    kv->cache[s].ids, kv->num_ids,
				    s == FAR ? IBV_SEND_SIGNALED : 0), "kv_gather_post");
		if (s == FAR)
			rc_wait(&kv->bench->conn[FAR]);
	}
	move_gathered(kv);
}

void measure_kv(struct bench *bench)
{
	static const unsigned int counts[] = { 1, MAX_IDS };
	static struct kv kv;

	for (size_t s = 0; s < ARRAY_SIZE(shapes); s++) {
		kv = (struct kv) { .bench = bench, .shape = &shapes[s] };
		kv.blocks = scaled(bench, shapes[s].blocks, 32);
		for (unsigned int l = 0; l < shapes[s].layers; l++) {
			kv.width[l] = l % 5 == 4 ? shapes[s].fifth : shapes[s].width;
			kv.block += kv.width[l];
		}
		open_cache(&kv, NEAR);
		open_cache(&kv, FAR);
#ifdef KV_UCX
		kv_ucx_open(&kv);
#endif
		for (size_t c = 0; c < ARRAY_SIZE(counts); c++) {
			const struct way ways[] = {
				{ "pieces", reset, by_pieces, check, &kv },
				{ "packed", reset, by_packing, check, &kv },
				{ "view", reset, by_views, check, &kv },
				{ "call", reset, by_gathers, check, &kv },
				{ "request", reset, by_requests, check, &kv },
#ifdef KV_UCX
				{ "ucx", reset, kv_ucx_put, check, &kv },
#endif
			};

			kv.num_ids = counts[c];
			measure(bench, &(struct series) {
				GROUP, shapes[s].name, counts[c], counts[c] * kv.block, "bytes",
			}, ways, ARRAY_SIZE(ways));
		}
#ifdef KV_UCX
		kv_ucx_close(&kv);
#endif
		close_cache(&kv, NEAR);
		close_cache(&kv, FAR);
	}
}
