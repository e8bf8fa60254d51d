/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One kind of leaf: random layouts of every kind over it, and every verb by a
 * key to such a layout. leaves.c makes the leaves.
 */
#ifndef MKEY_TEST_MATRIX_H
#define MKEY_TEST_MATRIX_H

#include "mkey_test.h"

struct mkt_matrix {
	struct mkt_setup s;		/* leaf 0 of each side is ordinary memory */
	bool several;			/* any leaf but the first, not just one */
	enum ibv_mw_type window;
	bool operands;			/* draw layouts that have some */
	bool packets;			/* also move parts that end near packets' ends */
	bool absent;			/* pages go before a verb runs on the leaf itself */
	struct mkt_end *end[2];		/* of the verb that runs, by side */
	struct mkt_drawn *drawn[2];	/* what an end is that is a key, or NULL */
	char why[128];			/* there is no such leaf */
};

/*
 * Adds one or more leaves to an arena. Returns ENODEV or EOPNOTSUPP if this
 * machine or device has no such memory; the test is skipped then.
 */
typedef int (*mkt_leaf_maker)(struct mkt_arena *arena);

/* access flags of a leaf that allow all that a key can allow */
#define MKT_LEAF_ACCESS (MKT_ACCESS_ALL | IBV_ACCESS_FLUSH_GLOBAL | \
			 IBV_ACCESS_MW_BIND)

int mkt_leaf_user(struct mkt_arena *arena);
/* addresses that are not those of the process, and that begin at zero */
int mkt_leaf_iova(struct mkt_arena *arena);
int mkt_leaf_zero_based(struct mkt_arena *arena);
/* memory of a file, which other processes can map, too */
int mkt_leaf_shared(struct mkt_arena *arena);
/* across the border of two huge pages */
int mkt_leaf_hugetlb(struct mkt_arena *arena);
int mkt_leaf_dm_host(struct mkt_arena *arena);
int mkt_leaf_dm_node(struct mkt_arena *arena);
int mkt_leaf_dm_p2p(struct mkt_arena *arena);
int mkt_leaf_dm_pmem(struct mkt_arena *arena);
/*
 * dma-bufs of a file's memory, of a heap and of device memory. Their MRs cannot
 * be flushed.
 */
int mkt_leaf_udmabuf(struct mkt_arena *arena);
int mkt_leaf_heap(struct mkt_arena *arena);
int mkt_leaf_dm_export(struct mkt_arena *arena);
/* ODP memory, also at other addresses, and by an MR over all addresses of the process */
int mkt_leaf_odp(struct mkt_arena *arena);
int mkt_leaf_odp_iova(struct mkt_arena *arena);
int mkt_leaf_odp_implicit(struct mkt_arena *arena);
/* a key over blocks with gaps between them */
int mkt_leaf_key(struct mkt_arena *arena);
/* all of the above that can be flushed, in one layout */
int mkt_leaf_mixed(struct mkt_arena *arena);

/* the dma-bufs behind them: returns a descriptor, or -1 */
int mkt_udmabuf(int memfd, size_t size);
int mkt_heap_buffer(size_t size, int flags);

/* @m->s.dev must have been opened; mkt_teardown() of @m->s frees it */
int mkt_matrix_setup(struct mkt_matrix *m, mkt_leaf_maker make, bool several,
		     const char *salt);
/* connects queue pairs with the MKT_QP_* @flags */
int mkt_matrix_connect(struct mkt_matrix *m, unsigned int flags);

/* a random layout, and the end whose key is bound to it */
struct mkt_drawn {
	struct mkt_layout layout;
	struct mkt_end end;
};

/*
 * Draws an offset that is valid for an atomic operation: aligned in @map and in
 * memory, with all 8 bytes in one block of @layout. A NULL layout has one
 * block. Returns ENOENT if there is no such offset.
 */
int mkt_operand(struct mkt_rng *rng, const struct mkt_layout *layout,
		const struct mkt_map *map, size_t *offset);

/* runs @op between the two ends; side @side posts the request */
typedef int mkt_matrix_verb(struct mkt_matrix *m, enum mkt_op op, unsigned int side);

/*
 * Runs @verb for each kind of layout, with a key with the access flags @access
 * on one side, the other, and both. The layout includes the leaf under test.
 */
int mkt_matrix_each(struct mkt_matrix *m, mkt_matrix_verb *verb, enum mkt_op op,
		    unsigned int access);

/* runs @verb on the last leaf of side 0 itself, without a key */
int mkt_matrix_direct(struct mkt_matrix *m, mkt_matrix_verb *verb, enum mkt_op op);

mkt_matrix_verb mkt_matrix_move;
/* requests to bytes beside the ends of the other side's MR fail */
mkt_matrix_verb mkt_matrix_outside;
mkt_matrix_verb mkt_matrix_datagram;
mkt_matrix_verb mkt_matrix_atomic;
mkt_matrix_verb mkt_matrix_flush;
mkt_matrix_verb mkt_matrix_window;
mkt_matrix_verb mkt_matrix_invalidate;

#endif /* MKEY_TEST_MATRIX_H */
