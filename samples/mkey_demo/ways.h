/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Three ways for data in several blocks to reach blocks elsewhere:
 *
 *  - one key: one RDMA WRITE from one key to another; no block is copied by
 *    the program;
 *  - packed: copied together here, one RDMA WRITE, copied apart there;
 *  - a request each: one RDMA WRITE for every run of bytes that is contiguous
 *    at both ends, posted in lists.
 *
 * Each is timed from the first thing that the sender does to its learning that
 * the data is in place and the receiver's program knows.
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
	uint32_t key;		/* lkey at the sender, rkey at the receiver */
};

/* One side's data. */
struct region {
	struct ibv_mr *mkey;	/* describes all blocks, in order */
	struct block *blocks;
	unsigned int num_blocks;
	uint64_t length;	/* of all blocks together */
	double bind_ms;		/* what describing them took */
};

struct figures {
	uint64_t bytes;
	unsigned int blocks;	/* the larger number of the two sides */
	unsigned int requests;	/* of WAY_REQUEST_EACH */
	double bind_ms;		/* both sides' */
	double ms[NUM_WAYS];	/* median */
};

/*
 * Every transfer is checked by the receiver: @reset puts its memory back into
 * the state from before and @check returns NULL, or what is wrong.
 */
struct checks {
	void (*reset)(void *context);
	const char *(*check)(void *context);
	void *context;
};

/*
 * Called at the same time, one in each node. The last transfer that the
 * receiver sees is by one key.
 */
struct figures ways_send(struct node *node, const struct region *from,
			 unsigned int repetitions);
void ways_receive(struct node *node, const struct region *to,
		  const struct checks *checks, unsigned int repetitions);

#endif /* MKEY_DEMO_WAYS_H */
