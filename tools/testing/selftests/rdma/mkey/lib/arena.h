/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory with an expected value for every byte, and a reference implementation of layouts over it.
 * Part of mkey_test.h.
 */
#ifndef MKEY_TEST_ARENA_H
#define MKEY_TEST_ARENA_H

#include <infiniband/mkey.h>

#include "dev.h"

/*
 * arena.c: all memory of one side. Each byte, of the host or of the device, has
 * a position in the arena; @expect is the value that it should hold.
 */

#define MKT_MAX_MEMS 12
#define MKT_MAX_LEAVES 14

struct mkt_mem {
	uint8_t *host;		/* NULL: device memory */
	void *map;		/* what @host is a part of, to be unmapped */
	size_t map_size;
	struct ibv_dm *dm;
	size_t size;
	size_t at;		/* position of its first byte */
};

struct mkt_leaf {
	struct ibv_mr *mr;
	uint64_t addr;		/* what names its first byte in the MR */
	size_t length;
	size_t at;		/* position of its first byte */
	uint32_t *pos;		/* of every byte, where they are not in a row */
};

struct mkt_arena {
	struct mkt_dev *dev;
	struct mkt_mem mem[MKT_MAX_MEMS];
	unsigned int num_mems;
	struct mkt_leaf leaf[MKT_MAX_LEAVES];
	unsigned int num_leaves;
	size_t size;
	uint8_t *expect;
	uint8_t *seen;
};

#define MKT_ACCESS_ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

void mkt_arena_init(struct mkt_arena *arena, struct mkt_dev *dev);
int mkt_arena_add_host(struct mkt_arena *arena, size_t size);
/* adds @size bytes at @offset of a mapping, which the arena takes over */
int mkt_arena_add_map(struct mkt_arena *arena, void *map, size_t map_size,
		      size_t offset, size_t size);
int mkt_arena_add_dm(struct mkt_arena *arena, size_t size);
/* adds device memory of a class, 0 for the default; no message if there is none */
int mkt_arena_add_dm_class(struct mkt_arena *arena, size_t size,
			   uint64_t dm_class);
/*
 * Registers @length bytes of memory number @mem from @offset on. The MR's
 * addresses are the process's plus @shift, which is a multiple of the page
 * size.
 */
int mkt_arena_add_leaf(struct mkt_arena *arena, unsigned int mem, size_t offset,
		       size_t length, int access, uint64_t shift);
/*
 * Takes over an MR of any kind. Its bytes, from @addr on, are those of memory
 * number @mem from @offset on, or have the positions @pos. The arena takes over
 * @pos, which is malloc'ed.
 */
int mkt_arena_add_mr(struct mkt_arena *arena, struct ibv_mr *mr, uint64_t addr,
		     unsigned int mem, size_t offset, size_t length,
		     uint32_t *pos);
/*
 * one host memory of @host bytes, and device memory of @dm bytes unless that is
 * zero
 */
int mkt_arena_standard(struct mkt_arena *arena, struct mkt_dev *dev,
		       size_t host, size_t dm);
/* fills all memory with new random bytes, and expects them */
int mkt_arena_fill(struct mkt_arena *arena, struct mkt_rng *rng);
/* EBADMSG if a byte differs from the expected one */
int mkt_arena_check(struct mkt_arena *arena);
/* expects the current contents of @length bytes from @at on */
int mkt_arena_adopt(struct mkt_arena *arena, size_t at, size_t length);
int mkt_arena_free(struct mkt_arena *arena);

/* layout.c: the reference implementation */

struct mkt_block {
	unsigned int leaf;
	uint64_t offset;	/* of the first byte, from the leaf's start */
	uint64_t bytes;
	int64_t stride[IBMKEY_MAX_DIMS];
};

struct mkt_layout {
	unsigned int num_dims;	/* 0: a list, or indexed */
	uint64_t repeat[IBMKEY_MAX_DIMS];
	unsigned int num_blocks;
	struct mkt_block *block;
	/*
	 * Indexed: all blocks are in one leaf and have one length. Each begins a
	 * multiple of @unit bytes after @base, which is an offset in the leaf.
	 */
	unsigned int index_bytes;	/* 4 or 8, 0: not indexed */
	uint64_t base;
	uint64_t unit;
	uint64_t first;		/* the address of the key's first byte */
};

/* the block @count times, in one dimension */
struct mkt_layout mkt_layout_repeated(struct mkt_block *block, uint64_t count);

/* the positions of a key's bytes, in the order of its addresses */
struct mkt_map {
	uint32_t *pos;
	size_t length;
};

int mkt_layout_map(const struct mkt_arena *arena,
		   const struct mkt_layout *layout, struct mkt_map *map);
void mkt_map_free(struct mkt_map *map);
/* a layout in the words of the library, whose arrays mkt_entries_free() frees */
struct mkt_entries {
	struct ibmkey_bind bind;
	struct ibmkey_indexed indexed;
	struct ibmkey_range *ranges;
	struct ibmkey_block *blocks;
	void *indices;
};

/* describes @layout over the leaves of @arena; must be freed even if it fails */
int mkt_layout_entries(struct mkt_entries *entries, const struct mkt_arena *arena,
		       const struct mkt_layout *layout);
void mkt_entries_free(struct mkt_entries *entries);
/* binds @key to @layout over the leaves of @arena */
int mkt_layout_bind(struct ibv_mr *key, const struct mkt_arena *arena,
		    const struct mkt_layout *layout, int access);

/* rows: layouts whose only purpose is their number of entries */
enum mkt_rows {
	MKT_ROWS_LIST,
	MKT_ROWS_BLOCKS,	/* in one dimension, once */
	MKT_ROWS_DIMS,		/* blocks in eight dimensions, which take most memory */
	MKT_ROWS_INDICES32,
	MKT_ROWS_INDICES64,
};

/*
 * Binds @key to @num entries of one byte each: byte 0 of the leaf, byte @step, byte 2 * @step, ...,
 * and from the leaf's first byte again.
 */
int mkt_bind_rows(struct ibv_mr *key, const struct mkt_leaf *leaf, enum mkt_rows rows,
		  unsigned int num, unsigned int step, int access);

void mkt_layout_print(const struct mkt_layout *layout);
void mkt_layout_free(struct mkt_layout *layout);

/* draw.c: random layouts */

struct mkt_draw {
	size_t min_length;	/* of the whole key */
	size_t max_length;
	size_t max_block;
	unsigned int max_blocks;
	unsigned int max_dims;
	bool leaf_only;		/* leaf @leaf and no other */
	unsigned int leaf;
};

enum mkt_kind {
	MKT_LIST,
	MKT_INDEXED,		/* one block size, indices */
	MKT_STRIDED,		/* one block, one dimension */
	MKT_INTERLEAVED,	/* several blocks, one dimension */
	MKT_SUBARRAY,		/* one block, several dimensions */
	MKT_GENERAL,		/* several blocks, several dimensions */
	MKT_NUM_KINDS,
};

int mkt_draw_layout(struct mkt_layout *layout, struct mkt_rng *rng,
		    const struct mkt_arena *arena, enum mkt_kind kind,
		    const struct mkt_draw *draw);

/* draws the address of a key's first byte, often 0 */
uint64_t mkt_draw_first(struct mkt_rng *rng);

/* gives it memory that keeps its contents when the process unmaps its pages */
int mkt_mem_share(struct mkt_mem *mem);

#endif /* MKEY_TEST_ARENA_H */
