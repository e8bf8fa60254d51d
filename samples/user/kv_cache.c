// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sends blocks of one KV cache to another. Each cache has layers of unequal width, each with its
 * own MR. One WRITE sends a cache block, which has a piece in every layer. Another WRITE sends a
 * list of blocks to other blocks.
 *
 * usage: kv_cache [DEVICE]
 */
#include <err.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "kv.h"
#include "rc.h"

#define LAYERS 32
#define BLOCKS 1000
#define LIST 64			/* number of blocks that one request sends */

#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

struct cache {
	uint8_t *memory[LAYERS];
	struct ibv_mr *layer[LAYERS];
	struct ibv_mr *view;
	struct kv_gather gather;
};

static size_t width[LAYERS];	/* bytes of a piece of each layer */

/* The byte at offset @at of layer @l in the cache of the sender. */
static uint8_t byte_of(size_t l, size_t at)
{
	return (at * 2654435761u >> 13) + l * 7 + 1;
}

static void open_cache(struct cache *cache, struct rc_dev *dev, bool is_filled, unsigned int access)
{
	for (size_t l = 0; l < LAYERS; l++) {
		cache->memory[l] = calloc(BLOCKS, width[l]);
		if (!cache->memory[l])
			err(1, "calloc");
		for (size_t at = 0; is_filled && at < BLOCKS * width[l]; at++)
			cache->memory[l][at] = byte_of(l, at);
		cache->layer[l] = rc_reg(dev, cache->memory[l], BLOCKS * width[l],
					 access & IBV_ACCESS_LOCAL_WRITE);
	}
	cache->view = kv_view(dev->pd, cache->layer, width, LAYERS, BLOCKS, access);
	if (!cache->view)
		err(1, "kv_view: %s", ibmkey_last_error());
	int ret = kv_gather_open(&cache->gather, dev->pd, cache->view, BLOCKS, LIST);

	if (ret)
		die(ret, "kv_gather_open");
}

/* A key goes before what it describes. */
static void close_cache(struct cache *cache)
{
	kv_gather_close(&cache->gather);
	rc_dereg(cache->view);
	for (size_t l = 0; l < LAYERS; l++) {
		rc_dereg(cache->layer[l]);
		free(cache->memory[l]);
	}
}

/* Checks the whole cache: block @to[i] is block @from[i] of the sender; all others are empty. */
static void check(struct cache *cache, const uint32_t *from, const uint32_t *to, uint32_t num)
{
	static int64_t source[BLOCKS];

	memset(source, -1, sizeof(source));
	for (uint32_t i = 0; i < num; i++)
		source[to[i]] = from[i];
	for (size_t l = 0; l < LAYERS; l++) {
		for (size_t at = 0; at < BLOCKS * width[l]; at++) {
			int64_t b = source[at / width[l]];
			uint8_t wanted = b < 0 ? 0 : byte_of(l, b * width[l] + at % width[l]);

			if (cache->memory[l][at] != wanted)
				errx(1, "byte %zu of layer %zu is wrong", at, l);
		}
		memset(cache->memory[l], 0, BLOCKS * width[l]);
	}
}

int main(int argc, char **argv)
{
	struct cache near, far;
	uint32_t from[LIST], to[LIST];
	struct rc_conn pair[2];
	struct rc_dev dev;
	int ret;

	for (size_t l = 0; l < LAYERS; l++)
		width[l] = l % 4 == 3 ? 400 : 800;
	rc_open(&dev, argc > 1 ? argv[1] : NULL);
	rc_create_loop(pair, &dev);
	open_cache(&near, &dev, true, 0);
	open_cache(&far, &dev, false, REMOTE);
	const uint64_t block = near.gather.block;

	/* Block 7 to block 991: the views need no bind. */
	struct ibv_sge one = { 7 * block, block, near.view->lkey };

	rc_transfer(&pair[0], IBV_WR_RDMA_WRITE, one, 991 * block, far.view->rkey);
	check(&far, (uint32_t[]){ 7 }, (uint32_t[]){ 991 }, 1);

	for (uint32_t i = 0; i < LIST; i++) {
		from[i] = (i * 389 + 5) % BLOCKS;
		to[i] = (i * 617 + 11) % BLOCKS;
	}
	/*
	 * A list of blocks to other blocks. The receiver chooses its blocks, binds its key to them,
	 * and tells the sender the rkey. The sender binds its key in the queue, before its WRITE.
	 */
	ret = kv_gather_bind(&far.gather, REMOTE, to, LIST);
	if (ret)
		die(ret, "kv_gather_bind: %s", ibmkey_last_error());
	ret = kv_gather_post(&near.gather, pair[0].qp, 0, from, LIST, 0);
	if (ret)
		die(ret, "kv_gather_post");
	rc_transfer(&pair[0], IBV_WR_RDMA_WRITE, ibmkey_sge(near.gather.key), 0,
		    far.gather.key->rkey);
	check(&far, from, to, LIST);

	/* The view has BLOCKS blocks, so the last number of this list is wrong. */
	to[LIST - 1] = BLOCKS;
	ret = kv_gather_bind(&far.gather, REMOTE, to, LIST);
	if (ret != ERANGE)
		die(ret, "a block outside of the cache is not refused");

	close_cache(&near);
	close_cache(&far);
	rc_destroy_loop(pair);
	rc_close(&dev);
	printf("%d pieces in one write, then %d pieces in one write\n", LAYERS, LIST * LAYERS);
	return 0;
}
