/* SPDX-License-Identifier: GPL-2.0 */
/* Transfers that are checked against arena.h, and keys over keys. Part of mkey_test.h. */
#ifndef MKEY_TEST_XFER_H
#define MKEY_TEST_XFER_H

#include "arena.h"
#include "qp.h"

/* xfer.c: transfers between two sides, and the bytes that they must change */

struct mkt_end {
	struct mkt_arena *arena;
	struct ibv_mr *mr;	/* a key or an ordinary MR */
	uint64_t addr;		/* of its first byte */
	struct mkt_map map;
};

/* an end that is the whole leaf number @leaf, without a key */
int mkt_end_leaf(struct mkt_end *end, struct mkt_arena *arena,
		 unsigned int leaf);
/* an end that is @key; binds it to @layout */
int mkt_end_key(struct mkt_end *end, struct ibv_mr *key,
		struct mkt_arena *arena, const struct mkt_layout *layout,
		int access);
void mkt_end_free(struct mkt_end *end);

/* expects @length bytes of @from in @to */
void mkt_expect_copy(const struct mkt_end *to, size_t to_offset, const struct mkt_end *from,
		     size_t from_offset, size_t length);

struct mkt_xfer {
	enum mkt_op op;
	unsigned int side;		/* that posts the work request */
	struct mkt_end *end[2];		/* by side */
	size_t offset[2];
	size_t length;
	int num_sge;			/* pieces of each scatter/gather list */
	uint64_t compare;
	uint64_t swap_add;
};

/* the side that the bytes are read from */
static inline unsigned int mkt_xfer_source(const struct mkt_xfer *xfer)
{
	return xfer->op == MKT_READ ? !xfer->side : xfer->side;
}

/*
 * Runs a transfer, then compares every byte of both arenas. EIO if a request
 * failed, EBADMSG for wrong bytes or a wrong completion.
 */
int mkt_xfer(struct mkt_pair *pair, const struct mkt_xfer *xfer);
/* the same at random offsets, after the source was filled with new random bytes */
int mkt_xfer_drawn(struct mkt_pair *pair, struct mkt_rng *rng, struct mkt_xfer *xfer);
/* the same as mkt_xfer() for @count requests that are posted at once; SEND, WRITE and READ */
int mkt_xfer_queue(struct mkt_pair *pair, const struct mkt_xfer *xfer,
		   unsigned int count);

/* nest.c: keys over keys */

#define MKT_MAX_NEST 16

struct mkt_nest {
	struct mkt_arena *arena;
	/* each key comes after those that it refers to */
	struct ibv_mr *key[MKT_MAX_NEST];
	uint64_t first[MKT_MAX_NEST];	/* the addresses of their first bytes */
	struct mkt_map map[MKT_MAX_NEST];
	unsigned int num_keys;
	/* if they are set, requests bind about half of the keys */
	struct mkt_qp *qp;
	struct mkt_request *request;
};

/*
 * @depth levels of random layouts over @arena; must be freed even if it fails. The caller has set
 * or zeroed the queue pair and the request.
 */
int mkt_nest_build(struct mkt_nest *nest, struct mkt_rng *rng,
		   struct mkt_arena *arena, unsigned int depth);
/* the outermost key as an end; freeing @nest frees it */
void mkt_nest_end(const struct mkt_nest *nest, struct mkt_end *end);
int mkt_nest_free(struct mkt_nest *nest);

#endif /* MKEY_TEST_XFER_H */
