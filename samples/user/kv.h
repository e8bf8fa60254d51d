/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Keys of a KV cache. A cache has a few layers, each with its own MR, and each layer has a piece
 * of every cache block: block i of a layer is at i times the bytes of its piece. So a cache block
 * has one piece a layer.
 *
 * A view is one key over all layers. In its addresses each cache block is contiguous, and block i
 * begins at i times the bytes of a block. It is bound once, when the cache is registered.
 * A gather is a key over a view. It has the blocks of a list, in the order of the list.
 */
#ifndef SAMPLES_KV_H
#define SAMPLES_KV_H

#include <errno.h>
#include <stdlib.h>

#include <infiniband/mkey.h>

/*
 * Returns a view of @num_blocks cache blocks. Layer l is @layers[l], with pieces of
 * @block_bytes[l]. NULL and errno on an error. ibv_dereg_mr() destroys it, before the layers.
 */
static inline struct ibv_mr *kv_view(struct ibv_pd *pd, struct ibv_mr *const *layers,
				     const size_t *block_bytes, uint32_t num_layers,
				     uint64_t num_blocks, unsigned int access)
{
	struct ibmkey_block *pieces = calloc(num_layers, sizeof(*pieces));
	struct ibv_mr *view = pieces ? ibmkey_alloc(pd, num_layers) : NULL;
	int ret;

	for (uint32_t l = 0; view && l < num_layers; l++)
		pieces[l] = (struct ibmkey_block) {
			.addr = (uintptr_t)layers[l]->addr,
			.bytes_count = block_bytes[l],
			.lkey = layers[l]->lkey,
			.stride = { block_bytes[l] },
		};
	if (view) {
		ret = ibmkey_bind_interleaved(view, access, 1, &num_blocks, num_layers, pieces);
		if (ret) {
			ibv_dereg_mr(view);
			view = NULL;
			errno = ret;
		}
	}
	free(pieces);
	return view;
}

struct kv_gather {
	struct ibv_mr *key;	/* its bytes are the blocks of the list */
	struct ibv_mr *view;
	uint64_t block;		/* bytes of a cache block */
	size_t room;		/* bytes of @text */
	void *text;		/* the description that a work request refers to */
	struct ibv_mr *text_mr;
};

/* Destroys the key, before its view. */
static inline void kv_gather_close(struct kv_gather *gather)
{
	if (gather->key)
		ibv_dereg_mr(gather->key);
	if (gather->text_mr)
		ibv_dereg_mr(gather->text_mr);
	free(gather->text);
	*gather = (struct kv_gather) {};
}

/* Makes an unbound key for @max_blocks of the @num_blocks of a view. Returns an errno value. */
static inline int kv_gather_open(struct kv_gather *gather, struct ibv_pd *pd, struct ibv_mr *view,
				 uint64_t num_blocks, uint32_t max_blocks)
{
	int ret;

	*gather = (struct kv_gather) {
		.view = view,
		.block = view->length / num_blocks,
		/* The numbers, and what precedes them. */
		.room = 128 + sizeof(uint64_t) * (size_t)max_blocks,
	};
	gather->text = malloc(gather->room);
	if (gather->text)
		gather->text_mr = ibv_reg_mr(pd, gather->text, gather->room, 0);
	if (gather->text_mr)
		gather->key = ibmkey_alloc(pd, max_blocks);
	if (gather->key)
		return 0;
	ret = errno;
	kv_gather_close(gather);
	return ret;
}

static inline struct ibmkey_indexed kv_blocks(const struct kv_gather *gather, const uint32_t *ids,
					      uint32_t num_ids)
{
	return (struct ibmkey_indexed) {
		.unit = gather->block,
		.bytes_count = gather->block,
		.indices = (uintptr_t)ids,
		.index_bytes = sizeof(*ids),
		.num_indices = num_ids,
		.lkey = gather->view->lkey,
	};
}

/* Binds the key to these blocks at once. Returns an errno value. */
static inline int kv_gather_bind(struct kv_gather *gather, unsigned int access,
				 const uint32_t *ids, uint32_t num_ids)
{
	struct ibmkey_indexed blocks = kv_blocks(gather, ids, num_ids);

	return ibmkey_bind_indexed(gather->key, access, &blocks);
}

/*
 * Posts a work request that binds the key to these blocks: later requests of the queue use
 * them. Until it completes, the next list must wait. Returns an errno value.
 */
static inline int kv_gather_post(struct kv_gather *gather, struct ibv_qp *qp, unsigned int access,
				 const uint32_t *ids, uint32_t num_ids, unsigned int send_flags)
{
	struct ibmkey_indexed blocks = kv_blocks(gather, ids, num_ids);
	struct ibmkey_bind bind = {
		.kind = IBMKEY_INDEXED,
		.num_entries = 1,
		.indexed = &blocks,
	};
	struct ibmkey_wr wr = {
		.mkey = gather->key,
		.mr = gather->text_mr,
		.addr = (uintptr_t)gather->text,
		.access = access,
		.layout = &bind,
	};

	wr.length = ibmkey_describe(&bind, gather->text, gather->room);
	if (!wr.length)
		return errno;
	if (wr.length > gather->room)
		return ENOSPC;
	return ibmkey_post_bind(qp, &wr, 0, send_flags);
}

#endif /* SAMPLES_KV_H */
