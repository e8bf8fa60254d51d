// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Gathers the blocks of a sequence from a KV cache with one READ. The cache has
 * blocks of one size. A block list has the numbers of the blocks of the sequence, in
 * order, 4 bytes each. A key is bound to the list without a conversion.
 *
 * usage: kv_gather [DEVICE]
 */
#include <err.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "rc.h"

#define BLOCK 1024		/* bytes of a block, which has keys and values */
#define CACHE 8192		/* number of blocks of the cache */
#define LONGEST 1500		/* largest number of blocks of a sequence */
#define SEQUENCES 20

static char cache[CACHE][BLOCK];
static char gathered[LONGEST][BLOCK];

struct sequence {
	uint32_t blocks;
	uint32_t list[LONGEST];
};

/*
 * Chooses some blocks of the cache. Some of them are adjacent, as in a real
 * cache.
 */
static void draw(struct sequence *s)
{
	static unsigned int state = 1;

	state = state * 1103515245 + 12345;
	s->blocks = 1 + (state >> 16) % LONGEST;
	for (unsigned int i = 0; i < s->blocks; i++) {
		state = state * 1103515245 + 12345;
		if (i && (state >> 16) % 4)
			s->list[i] = (s->list[i - 1] + 1) % CACHE;
		else
			s->list[i] = (state >> 16) % CACHE;
	}
}

/* Binds the key to the blocks of the sequence, on the node with the cache. */
static void bind_blocks(struct ibv_mr *key, const struct sequence *s,
			const struct ibv_mr *cache_mr)
{
	struct ibmkey_indexed layout = {
		.addr = (uintptr_t)cache,
		.unit = BLOCK,
		.bytes_count = BLOCK,
		.indices = (uintptr_t)s->list,
		.index_bytes = sizeof(*s->list),
		.num_indices = s->blocks,
		.lkey = cache_mr->lkey,
	};
	int ret = ibmkey_bind_indexed(key, IBV_ACCESS_REMOTE_READ, &layout);

	if (ret)
		die(ret, "ibmkey_bind_indexed: %s", ibmkey_last_error());
}

int main(int argc, char **argv)
{
	struct ibv_mr *cache_mr, *gathered_mr, *key;
	struct sequence sequence;
	unsigned long blocks = 0;
	struct rc_conn pair[2];
	struct rc_dev dev;

	for (size_t i = 0; i < CACHE; i++)
		for (size_t j = 0; j < BLOCK; j++)
			cache[i][j] = (i * BLOCK + j) * 31 + i;

	rc_open(&dev, argc > 1 ? argv[1] : NULL);
	rc_create_loop(pair, &dev);
	cache_mr = rc_reg(&dev, cache, sizeof(cache), 0);
	gathered_mr = rc_reg(&dev, gathered, sizeof(gathered),
			     IBV_ACCESS_LOCAL_WRITE);
	key = ibmkey_alloc(dev.pd, LONGEST);
	if (!key)
		err(1, "ibmkey_alloc");

	for (int i = 0; i < SEQUENCES; i++) {
		draw(&sequence);
		bind_blocks(key, &sequence, cache_mr);
		memset(gathered, 0, sizeof(gathered));
		/* The node that needs the sequence reads all of its blocks. */
		struct ibv_sge into = { (uintptr_t)gathered, key->length, gathered_mr->lkey };
		rc_transfer(&pair[0], IBV_WR_RDMA_READ, into, 0, key->rkey);
		for (unsigned int b = 0; b < sequence.blocks; b++)
			if (memcmp(gathered[b], cache[sequence.list[b]], BLOCK))
				errx(1, "block %u of a sequence has wrong contents",
				     b);
		blocks += sequence.blocks;
	}

	/* Deregister the key first: an MR cannot be deregistered while a key describes it. */
	rc_dereg(key);
	rc_dereg(cache_mr);
	rc_dereg(gathered_mr);
	rc_destroy_loop(pair);
	rc_close(&dev);
	printf("%d sequences, %lu blocks of %d bytes, each sequence in one read\n",
	       SEQUENCES, blocks, BLOCK);
	return 0;
}
