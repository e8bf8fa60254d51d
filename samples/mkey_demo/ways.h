/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Three ways to send data from blocks on one side to blocks on the other:
 *
 * - one key: one RDMA WRITE from one key to another; the program copies no
 *   block;
 * - packed: the sender copies the blocks together, sends one RDMA WRITE, and
 *   the receiver copies them apart;
 * - a request each: one RDMA WRITE for every run of bytes that is contiguous on
 *   both sides, posted in lists.
 *
 * The time of a way begins with the sender's first step. It ends when the sender
 * knows that the data are in place and that the receiver's program knows that,
 * too.
 */
#ifndef MKEY_DEMO_WAYS_H
#define MKEY_DEMO_WAYS_H

#include <stdint.h>

#include "node.h"

enum way {
	WAY_ONE_KEY,
	WAY_PACKED,
	WAY_REQUEST_EACH,
	NUM_WAYS
};

struct block {
	uint64_t addr;
	uint64_t length;
	uint32_t key;		/* the lkey at the sender, the rkey at the receiver */
};

/* One side's data. */
struct region {
	struct ibv_mr *mkey;	/* describes all blocks, in order */
	struct block *blocks;
	unsigned int num_blocks;
	uint64_t length;	/* bytes of all blocks together */
	double bind_ms;		/* time for the bind of @mkey */
};

struct figures {
	uint64_t bytes;
	unsigned int blocks;	/* number of blocks, the larger one of both sides */
	unsigned int requests;	/* number of requests of WAY_REQUEST_EACH */
	double bind_ms;		/* time for the binds of both sides */
	double ms[NUM_WAYS];	/* median time of each way */
};

/*
 * The receiver checks every transfer: @reset restores its memory, and @check
 * returns NULL or a description of the error.
 */
struct checks {
	void (*reset)(void *context);
	const char *(*check)(void *context);
	void *context;
};

/*
 * The nodes call these functions at the same time. The last transfer is one by
 * WAY_ONE_KEY.
 */
struct figures ways_send(struct node *node, const struct region *from,
			 unsigned int repetitions);
void ways_receive(struct node *node, const struct region *to,
		  const struct checks *checks, unsigned int repetitions);

#endif /* MKEY_DEMO_WAYS_H */
