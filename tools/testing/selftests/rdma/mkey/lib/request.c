// SPDX-License-Identifier: GPL-2.0
/* Keys that are bound by work requests. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "request.h"

int mkt_request_init(struct mkt_request *request, struct ibv_pd *pd, size_t room)
{
	memset(request, 0, sizeof(*request));
	request->room = room;
	request->text = calloc(1, room);
	if (!request->text)
		return ENOMEM;
	request->mr = ibv_reg_mr(pd, request->text, room, IBV_ACCESS_LOCAL_WRITE);
	if (request->mr)
		return 0;
	free(request->text);
	return errno;
}

void mkt_request_free(struct mkt_request *request)
{
	if (request->mr)
		ibv_dereg_mr(request->mr);
	free(request->text);
}

static size_t mkt_describe_list(struct mkt_request *request, const struct mkt_arena *arena,
				const struct mkt_layout *layout)
{
	struct ibmkey_bind bind = { .kind = IBMKEY_LIST, .num_entries = layout->num_blocks };
	struct ibmkey_range *sge = calloc(layout->num_blocks, sizeof(*sge));
	unsigned int i;
	size_t length;

	for (i = 0; sge && i < layout->num_blocks; i++) {
		const struct mkt_leaf *leaf = &arena->leaf[layout->block[i].leaf];

		sge[i].addr = leaf->addr + layout->block[i].offset;
		sge[i].length = layout->block[i].bytes;
		sge[i].lkey = leaf->mr->lkey;
	}
	bind.ranges = sge;
	length = ibmkey_describe(&bind, request->text, request->room);
	free(sge);
	return length;
}

static size_t mkt_describe_interleaved(struct mkt_request *request,
				       const struct mkt_arena *arena,
				       const struct mkt_layout *layout)
{
	struct ibmkey_bind bind = {
		.kind = IBMKEY_INTERLEAVED,
		.num_entries = layout->num_blocks,
		.num_dims = layout->num_dims,
		.repeat_count = layout->repeat,
	};
	struct ibmkey_block *blocks = calloc(layout->num_blocks, sizeof(*blocks));
	unsigned int i;
	size_t length;

	for (i = 0; blocks && i < layout->num_blocks; i++) {
		const struct mkt_block *block = &layout->block[i];

		blocks[i].addr = arena->leaf[block->leaf].addr + block->offset;
		blocks[i].bytes_count = block->bytes;
		blocks[i].lkey = arena->leaf[block->leaf].mr->lkey;
		memcpy(blocks[i].stride, block->stride, sizeof(block->stride));
	}
	bind.blocks = blocks;
	length = ibmkey_describe(&bind, request->text, request->room);
	free(blocks);
	return length;
}

static size_t mkt_describe_indexed(struct mkt_request *request, const struct mkt_arena *arena,
				   const struct mkt_layout *layout)
{
	const struct mkt_leaf *leaf = &arena->leaf[layout->block[0].leaf];
	struct ibmkey_indexed indexed = {
		.addr = leaf->addr + layout->base,
		.unit = layout->unit,
		.bytes_count = layout->block[0].bytes,
		.num_indices = layout->num_blocks,
		.lkey = leaf->mr->lkey,
	};
	struct ibmkey_bind bind = {
		.kind = IBMKEY_INDEXED,
		.num_entries = 1,
		.indexed = &indexed,
	};
	bool small = layout->index_bytes == 4;
	uint32_t *indices32 = calloc(layout->num_blocks, sizeof(*indices32));
	uint64_t *indices64 = calloc(layout->num_blocks, sizeof(*indices64));
	unsigned int i;
	size_t length = 0;

	for (i = 0; indices32 && indices64 && i < layout->num_blocks; i++) {
		indices64[i] = (layout->block[i].offset - layout->base) / layout->unit;
		indices32[i] = indices64[i];
	}
	indexed.indices32 = small ? indices32 : NULL;
	indexed.indices64 = small ? NULL : indices64;
	length = ibmkey_describe(&bind, request->text, request->room);
	free(indices32);
	free(indices64);
	return length;
}

int mkt_request_describe(struct mkt_request *request, const struct mkt_arena *arena,
			 const struct mkt_layout *layout)
{
	size_t length;

	if (layout->index_bytes)
		length = mkt_describe_indexed(request, arena, layout);
	else if (layout->num_dims)
		length = mkt_describe_interleaved(request, arena, layout);
	else
		length = mkt_describe_list(request, arena, layout);
	if (!length || length > request->room) {
		mkt_diag("a description of %zu bytes in %zu bytes: %s", length, request->room,
			 strerror(errno));
		return EINVAL;
	}
	request->length = length;
	return 0;
}

struct ibmkey_wr mkt_request_wr(const struct mkt_request *request, struct ibv_mr *key)
{
	return (struct ibmkey_wr){
		.mkey = key,
		.access = MKT_ACCESS_ALL,
		.length = request->length,
		.mr = request->mr,
		.addr = (uintptr_t)request->text,
	};
}

int mkt_request_status(struct mkt_qp *qp, const struct ibmkey_wr *wr)
{
	struct ibv_wc wc;
	int err;

	err = ibmkey_post_bind(qp->qp, wr, 77, IBV_SEND_SIGNALED);
	if (!err)
		err = mkt_poll(qp, &wc);
	if (err) {
		mkt_diag("bind by request: %s", strerror(err));
		return -1;
	}
	if (wc.wr_id != 77 || (!wc.status && wc.opcode != IBV_WC_BIND_MW)) {
		mkt_diag("completion of request %lu, opcode %d", (long)wc.wr_id, wc.opcode);
		return -1;
	}
	return wc.status;
}

int mkt_request_inline(struct mkt_qp *qp, const struct ibmkey_wr *wr)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp->qp);
	struct ibmkey_wr inlined = *wr;
	struct ibv_wc wc;
	int err;

	inlined.mr = NULL;
	ibv_wr_start(ex);
	ex->wr_id = 77;
	ex->wr_flags = IBV_SEND_SIGNALED;
	err = ibmkey_wr_bind(ex, &inlined);
	if (err) {
		ibv_wr_abort(ex);
	} else {
		err = ibv_wr_complete(ex);
		if (!err)
			err = mkt_poll(qp, &wc);
	}
	if (err) {
		mkt_diag("bind by an inline request: %s", strerror(err));
		return -1;
	}
	return wc.status;
}
