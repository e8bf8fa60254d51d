/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The experimental verbs of MLNX_OFED: work requests and completions. Include
 * <infiniband/verbs_exp.h>.
 *
 * A request that fills or invalidates a key has inline bytes, which no other request that binds or
 * invalidates has, and the completion reports their number. So ibv_exp_poll_cq() recognises such
 * a request, and the functions need no state beside the objects of libibverbs.
 */
#ifndef INFINIBAND_VERBS_EXP_WR_H
#define INFINIBAND_VERBS_EXP_WR_H

#include <pthread.h>

#include <infiniband/verbs_exp.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ibv_exp_wr_opcode {
	IBV_EXP_WR_RDMA_WRITE = IBV_WR_RDMA_WRITE,
	IBV_EXP_WR_RDMA_WRITE_WITH_IMM = IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_EXP_WR_SEND = IBV_WR_SEND,
	IBV_EXP_WR_SEND_WITH_IMM = IBV_WR_SEND_WITH_IMM,
	IBV_EXP_WR_RDMA_READ = IBV_WR_RDMA_READ,
	IBV_EXP_WR_ATOMIC_CMP_AND_SWP = IBV_WR_ATOMIC_CMP_AND_SWP,
	IBV_EXP_WR_ATOMIC_FETCH_AND_ADD = IBV_WR_ATOMIC_FETCH_AND_ADD,
	IBV_EXP_WR_LOCAL_INV = IBV_WR_LOCAL_INV,
	IBV_EXP_WR_SEND_WITH_INV = IBV_WR_SEND_WITH_INV,
	IBV_EXP_WR_UMR_FILL = 0x26 + IBV_EXP_START_ENUM,
	IBV_EXP_WR_UMR_INVALIDATE,
};

enum ibv_exp_send_flags {
	IBV_EXP_SEND_FENCE = IBV_SEND_FENCE,
	IBV_EXP_SEND_SIGNALED = IBV_SEND_SIGNALED,
	IBV_EXP_SEND_SOLICITED = IBV_SEND_SOLICITED,
	IBV_EXP_SEND_INLINE = IBV_SEND_INLINE,
};

enum ibv_exp_umr_wr_type {
	IBV_EXP_UMR_MR_LIST,
	IBV_EXP_UMR_REPEAT,
	IBV_EXP_UMR_MR_LIST_FIXED_SIZE,
};

struct ibv_exp_mem_region {
	uint64_t base_addr;
	struct ibv_mr *mr;
	size_t length;
};

struct ibv_exp_mem_repeat_block {
	uint64_t base_addr;
	struct ibv_mr *mr;
	size_t *byte_count;	/* of one element */
	size_t *stride;		/* of one element: from start to start */
};

struct ibv_exp_send_wr {
	uint64_t wr_id;
	struct ibv_exp_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_exp_wr_opcode exp_opcode;
	int reserved;
	union {
		uint32_t imm_data;
		uint32_t invalidate_rkey;
	} ex;
	__typeof__(((struct ibv_send_wr *)0)->wr) wr;
	uint64_t exp_send_flags;	/* enum ibv_exp_send_flags */
	uint32_t comp_mask;		/* 0 */
	union {
		struct {
			uint32_t umr_type;	/* enum ibv_exp_umr_wr_type */
			/* the memory of the description, without IBV_EXP_SEND_INLINE */
			struct ibv_exp_mkey_list_container *memory_objects;
			uint64_t exp_access;	/* enum ibv_exp_access_flags */
			struct ibv_mr *modified_mr;
			uint64_t base_addr;
			uint32_t num_mrs;
			union {
				struct ibv_exp_mem_region *mem_reg_list;
				struct {
					struct ibv_exp_mem_repeat_block *mem_repeat_block_list;
					size_t *repeat_count;	/* of one element */
					uint32_t stride_dim;	/* 1 */
				} rb;
			} mem_list;
		} umr;
	} ext_op;
};

/* Allocates the ranges of a list. Returns NULL and errno on an error. */
static inline struct ibmkey_range *ibmkey_exp_ranges(const struct ibv_exp_send_wr *wr)
{
	const struct ibv_exp_mem_region *from = wr->ext_op.umr.mem_list.mem_reg_list;
	struct ibmkey_range *to;
	uint32_t i;

	to = (struct ibmkey_range *)calloc(wr->ext_op.umr.num_mrs, sizeof(*to));
	for (i = 0; to && i < wr->ext_op.umr.num_mrs; i++) {
		to[i].addr = from[i].base_addr;
		to[i].length = from[i].length;
		to[i].lkey = from[i].mr->lkey;
	}
	return to;
}

/* Allocates the blocks of a layout that repeats. Returns NULL and errno on an error. */
static inline struct ibmkey_block *ibmkey_exp_blocks(const struct ibv_exp_send_wr *wr)
{
	const struct ibv_exp_mem_repeat_block *from =
		wr->ext_op.umr.mem_list.rb.mem_repeat_block_list;
	struct ibmkey_block *to;
	uint32_t i;

	to = (struct ibmkey_block *)calloc(wr->ext_op.umr.num_mrs, sizeof(*to));
	for (i = 0; to && i < wr->ext_op.umr.num_mrs; i++) {
		to[i].addr = from[i].base_addr;
		to[i].bytes_count = from[i].byte_count[0];
		to[i].stride[0] = from[i].stride[0];
		to[i].lkey = from[i].mr->lkey;
	}
	return to;
}

/* Writes the description of the layout in @wr, as ibmkey_describe_at() does. */
static inline size_t ibmkey_exp_describe(const struct ibv_exp_send_wr *wr, void *to, size_t room)
{
	struct ibmkey_block *blocks = NULL;
	struct ibmkey_range *ranges = NULL;
	struct ibmkey_bind bind;
	uint64_t repeat;
	size_t bytes = 0;

	memset(&bind, 0, sizeof(bind));
	/* An invalidation changes the key portion, and the request restores it. */
	bind.comp_mask = IBMKEY_BIND_ANY_PORTION;
	bind.num_entries = wr->ext_op.umr.num_mrs;
	if (wr->ext_op.umr.umr_type == IBV_EXP_UMR_REPEAT) {
		blocks = ibmkey_exp_blocks(wr);
		repeat = wr->ext_op.umr.mem_list.rb.repeat_count[0];
		bind.kind = IBMKEY_INTERLEAVED;
		bind.num_dims = 1;
		bind.repeat_count = &repeat;
		bind.blocks = blocks;
	} else {
		ranges = ibmkey_exp_ranges(wr);
		bind.kind = IBMKEY_LIST;
		bind.ranges = ranges;
	}
	if (blocks || ranges)
		bytes = ibmkey_describe_at(&bind, wr->ext_op.umr.base_addr, to, room);
	free(blocks);
	free(ranges);
	return bytes;
}

/* Returns EINVAL if a request cannot fill a key. */
static inline int ibmkey_exp_check_fill(const struct ibv_exp_send_wr *wr)
{
	const struct ibv_exp_mkey_list_container *list = wr->ext_op.umr.memory_objects;
	const uint32_t type = wr->ext_op.umr.umr_type, num = wr->ext_op.umr.num_mrs;

	if (!num || num > IB_MKEY_MAX_ENTRIES ||
	    (type != IBV_EXP_UMR_MR_LIST && type != IBV_EXP_UMR_MR_LIST_FIXED_SIZE &&
	     type != IBV_EXP_UMR_REPEAT))
		return EINVAL;
	if (type == IBV_EXP_UMR_REPEAT && wr->ext_op.umr.mem_list.rb.stride_dim != 1)
		return EINVAL;
	if (wr->exp_send_flags & IBV_EXP_SEND_INLINE)
		return 0;
	return !list || num > list->max_klm_list_size ? EINVAL : 0;
}

/* Says why a QP did not take a request: rxe's library returns ENOSPC for two reasons. */
static inline int ibmkey_exp_no_space(struct ibv_qp *qp, uint32_t inline_bytes)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(qp, &attr, IBV_QP_CAP, &init))
		return ENOMEM;
	return inline_bytes > init.cap.max_inline_data ? EINVAL : ENOMEM;
}

static inline int ibmkey_exp_post_fill(struct ibv_qp *qp, struct ibv_qp_ex *qpx,
				       const struct ibv_exp_send_wr *wr)
{
	const int is_inline = !!(wr->exp_send_flags & IBV_EXP_SEND_INLINE);
	char text[IBMKEY_EXP_INLINE_BYTES], mark = 0;
	size_t bytes, room = sizeof(text);
	struct ibmkey_wr bind;
	void *to = text;
	int err;

	memset(&bind, 0, sizeof(bind));
	if (ibmkey_exp_check_fill(wr) ||
	    ibmkey_exp_access(wr->ext_op.umr.exp_access, &bind.access))
		return EINVAL;
	if (!is_inline) {
		bind.mr = wr->ext_op.umr.memory_objects->mr;
		room = bind.mr->length;
		to = bind.mr->addr;
	}
	bytes = ibmkey_exp_describe(wr, to, room);
	if (!bytes)
		return errno;
	if (bytes > room)
		return EINVAL;
	bind.mkey = wr->ext_op.umr.modified_mr;
	bind.addr = (uintptr_t)to;
	bind.length = bytes;

	/* rxe's library reads the error of ibv_wr_complete() after it has let another thread in. */
	pthread_mutex_lock(&qp->mutex);
	ibv_wr_start(qpx);
	qpx->wr_id = wr->wr_id;
	qpx->wr_flags = wr->exp_send_flags & ~(uint64_t)IBV_EXP_SEND_INLINE;
	err = ibmkey_wr_bind(qpx, &bind);
	if (err) {
		ibv_wr_abort(qpx);
	} else {
		if (!is_inline)
			ibv_wr_set_inline_data(qpx, &mark, sizeof(mark));
		err = ibv_wr_complete(qpx);
	}
	pthread_mutex_unlock(&qp->mutex);
	return err == ENOSPC ? ibmkey_exp_no_space(qp, is_inline ? bytes : 0) : err;
}

static inline int ibmkey_exp_post(struct ibv_qp *qp, const struct ibv_exp_send_wr *wr)
{
	const uint64_t known = IBV_EXP_SEND_FENCE | IBV_EXP_SEND_SIGNALED |
			       IBV_EXP_SEND_SOLICITED | IBV_EXP_SEND_INLINE;
	struct ibv_qp_ex *qpx = NULL;
	struct ibv_send_wr to, *bad;
	struct ibv_sge mark;
	char byte = 0;

	if (wr->comp_mask || wr->exp_send_flags & ~known)
		return EINVAL;
	memset(&to, 0, sizeof(to));
	to.wr_id = wr->wr_id;
	to.send_flags = wr->exp_send_flags;
	switch (wr->exp_opcode) {
	case IBV_EXP_WR_UMR_FILL:
	case IBV_EXP_WR_UMR_INVALIDATE:
		qpx = ibv_qp_to_qp_ex(qp);
		if (!qpx || !wr->ext_op.umr.modified_mr)
			return EINVAL;
		if (wr->exp_opcode == IBV_EXP_WR_UMR_FILL)
			return ibmkey_exp_post_fill(qp, qpx, wr);
		mark.addr = (uintptr_t)&byte;
		mark.length = sizeof(byte);
		mark.lkey = 0;
		to.opcode = IBV_WR_LOCAL_INV;
		to.send_flags |= IBV_SEND_INLINE;
		to.invalidate_rkey = wr->ext_op.umr.modified_mr->rkey;
		to.sg_list = &mark;
		to.num_sge = 1;
		break;
	case IBV_EXP_WR_RDMA_WRITE:
	case IBV_EXP_WR_RDMA_WRITE_WITH_IMM:
	case IBV_EXP_WR_SEND:
	case IBV_EXP_WR_SEND_WITH_IMM:
	case IBV_EXP_WR_RDMA_READ:
	case IBV_EXP_WR_ATOMIC_CMP_AND_SWP:
	case IBV_EXP_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_EXP_WR_LOCAL_INV:
	case IBV_EXP_WR_SEND_WITH_INV:
		to.opcode = (enum ibv_wr_opcode)wr->exp_opcode;
		to.sg_list = wr->sg_list;
		to.num_sge = wr->num_sge;
		to.imm_data = wr->ex.imm_data;
		to.wr = wr->wr;
		break;
	default:
		return EINVAL;
	}
	return ibv_post_send(qp, &to, &bad);
}

static inline int ibv_exp_post_send(struct ibv_qp *qp, struct ibv_exp_send_wr *wr,
				    struct ibv_exp_send_wr **bad_wr)
{
	int err;

	for (; wr; wr = wr->next) {
		err = ibmkey_exp_post(qp, wr);
		if (err) {
			*bad_wr = wr;
			return err;
		}
	}
	return 0;
}

/* Completions */

enum ibv_exp_wc_opcode {
	IBV_EXP_WC_SEND,
	IBV_EXP_WC_RDMA_WRITE,
	IBV_EXP_WC_RDMA_READ,
	IBV_EXP_WC_COMP_SWAP,
	IBV_EXP_WC_FETCH_ADD,
	IBV_EXP_WC_BIND_MW,
	IBV_EXP_WC_LOCAL_INV,
	IBV_EXP_WC_RECV = 1 << 7,
	IBV_EXP_WC_RECV_RDMA_WITH_IMM,
	IBV_EXP_WC_UMR = 0x100,
};

enum ibv_exp_wc_flags {
	IBV_EXP_WC_GRH = IBV_WC_GRH,
	IBV_EXP_WC_WITH_IMM = IBV_WC_WITH_IMM,
	IBV_EXP_WC_WITH_INV = IBV_WC_WITH_INV,
};

struct ibv_exp_wc {
	uint64_t wr_id;
	enum ibv_wc_status status;
	enum ibv_exp_wc_opcode exp_opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data;
	uint32_t qp_num;
	uint32_t src_qp;
	int reserved;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
	uint64_t exp_wc_flags;	/* enum ibv_exp_wc_flags */
};

static inline void ibmkey_exp_wc(struct ibv_exp_wc *to, const struct ibv_wc *wc)
{
	memset(to, 0, sizeof(*to));
	to->wr_id = wc->wr_id;
	to->status = wc->status;
	to->exp_opcode = (enum ibv_exp_wc_opcode)wc->opcode;
	to->vendor_err = wc->vendor_err;
	to->byte_len = wc->byte_len;
	to->imm_data = wc->imm_data;
	to->qp_num = wc->qp_num;
	to->src_qp = wc->src_qp;
	to->pkey_index = wc->pkey_index;
	to->slid = wc->slid;
	to->sl = wc->sl;
	to->dlid_path_bits = wc->dlid_path_bits;
	to->exp_wc_flags = wc->wc_flags;
	if ((wc->opcode == IBV_WC_BIND_MW || wc->opcode == IBV_WC_LOCAL_INV) && wc->byte_len) {
		to->exp_opcode = IBV_EXP_WC_UMR;
		to->byte_len = 0;
	}
}

/* Returns the number of completions, or a negative errno value. @wc_size is sizeof(*wc). */
static inline int ibv_exp_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_exp_wc *wc,
				  uint32_t wc_size)
{
	struct ibv_wc polled;
	int num, ret;

	if (wc_size != sizeof(*wc))
		return -EINVAL;
	for (num = 0; num < num_entries; num++) {
		ret = ibv_poll_cq(cq, 1, &polled);
		if (ret <= 0)
			return num ? num : ret;
		ibmkey_exp_wc(&wc[num], &polled);
	}
	return num;
}

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_EXP_WR_H */
