// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sends sequences whose pages are spread over a cache, as in a paged KV cache. One WRITE
 * from a key sends a sequence. The program takes the key from a pool, binds it to the
 * pages of the sequence, and returns it when the WRITE has completed.
 *
 * usage: pages [DEVICE]
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/mkey.h>

#include "rc.h"

#define PAGE 512
#define PAGES 4096		/* number of pages of the cache */
#define LONGEST 64		/* largest number of pages of a sequence */
#define SEQUENCES 200
#define KEYS 4			/* number of keys that are in use at once */

static char cache[PAGES][PAGE];
static char received[KEYS][LONGEST][PAGE];

struct sequence {
	unsigned int pages;
	unsigned int page[LONGEST];
	struct ibv_mr *key;
};

/* Chooses some pages of the cache in random order. */
static void draw(struct sequence *s)
{
	static unsigned int state = 1;

	state = state * 1103515245 + 12345;
	s->pages = 1 + (state >> 16) % LONGEST;
	for (unsigned int i = 0; i < s->pages; i++) {
		state = state * 1103515245 + 12345;
		s->page[i] = (state >> 16) % PAGES;
	}
}

/* Takes a key and binds it to the pages of the sequence. */
static void bind_pages(struct ibmkey_pool *pool, struct sequence *s,
		       struct ibv_mr *cache_mr)
{
	struct ibmkey_range list[LONGEST];
	int ret;

	for (unsigned int i = 0; i < s->pages; i++)
		list[i] = (struct ibmkey_range) {
			.addr = (uintptr_t)cache[s->page[i]],
			.length = PAGE,
			.lkey = cache_mr->lkey,
		};
	s->key = ibmkey_pool_get(pool);
	if (!s->key)
		err(1, "ibmkey_pool_get");
	ret = ibmkey_bind_list(s->key, 0, s->pages, list);
	if (ret)
		die(ret, "ibmkey_bind_list: %s", ibmkey_last_error());
}

static void post(struct rc_conn *conn, const struct sequence *s,
		 const void *to, const struct ibv_mr *to_mr)
{
	struct ibv_sge all = ibmkey_sge(s->key);
	struct ibv_send_wr wr = {
		.sg_list = &all,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {
			.remote_addr = (uintptr_t)to,
			.rkey = to_mr->rkey,
		},
	};

	rc_post(conn, &wr);
}

static void check(const struct sequence *s, char (*pages)[PAGE])
{
	for (unsigned int i = 0; i < s->pages; i++)
		if (memcmp(pages[i], cache[s->page[i]], PAGE))
			errx(1, "page %u of a sequence has wrong contents", i);
}

int main(int argc, char **argv)
{
	struct ibv_mr *cache_mr, *received_mr;
	struct sequence flying[KEYS];
	struct ibmkey_pool *pool;
	struct rc_conn pair[2];
	unsigned long pages = 0;
	struct rc_dev dev;
	int ret;

	for (size_t i = 0; i < PAGES; i++)
		for (size_t j = 0; j < PAGE; j++)
			cache[i][j] = (i * PAGE + j) * 31 + i;

	rc_open(&dev, argc > 1 ? argv[1] : NULL);
	rc_create_loop(pair, &dev);
	cache_mr = rc_reg(&dev, cache, sizeof(cache), 0);
	received_mr = rc_reg(&dev, received, sizeof(received),
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	pool = ibmkey_pool_create(dev.pd, LONGEST, KEYS);
	if (!pool)
		err(1, "ibmkey_pool_create");

	for (int done = 0; done < SEQUENCES; done += KEYS) {
		for (int i = 0; i < KEYS; i++) {
			draw(&flying[i]);
			bind_pages(pool, &flying[i], cache_mr);
			post(&pair[0], &flying[i], received[i], received_mr);
		}
		/* Requests of one queue pair complete in order. */
		for (int i = 0; i < KEYS; i++) {
			rc_wait(&pair[0]);
			check(&flying[i], received[i]);
			pages += flying[i].pages;
			/* This unbinds the key, so its rkey no longer reaches the sequence. */
			ret = ibmkey_pool_put(pool, flying[i].key);
			if (ret)
				die(ret, "ibmkey_pool_put");
		}
	}

	/* Destroy the keys first: an MR cannot be deregistered while a key describes it. */
	ret = ibmkey_pool_destroy(pool);
	if (ret)
		die(ret, "ibmkey_pool_destroy");
	rc_dereg(cache_mr);
	rc_dereg(received_mr);
	rc_destroy_loop(pair);
	rc_close(&dev);
	printf("%d sequences, %lu pages, each sequence in one write, by %d keys\n",
	       SEQUENCES, pages, KEYS);
	return 0;
}
