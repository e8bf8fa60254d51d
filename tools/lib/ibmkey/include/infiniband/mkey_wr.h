/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libibmkey: several keys bound by one call, and keys bound by work requests. Include
 * <infiniband/mkey.h>, which says what errors mean and what comp_mask is for.
 */
#ifndef INFINIBAND_MKEY_WR_H
#define INFINIBAND_MKEY_WR_H

#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/** enum ibmkey_bind_mask - bits of ibmkey_bind.comp_mask */
enum ibmkey_bind_mask {
	/** @IBMKEY_BIND_RKEY: @rkey is valid */
	IBMKEY_BIND_RKEY = 1 << 0,
	/**
	 * @IBMKEY_BIND_ANY_PORTION: for ibmkey_describe(): a request with this description
	 * finds an unbound key by an rkey with any key portion
	 */
	IBMKEY_BIND_ANY_PORTION = 1 << 1,
	/**
	 * @IBMKEY_BIND_REMOTE_INV: for ibmkey_describe(): a peer may invalidate the key by
	 * SEND with invalidate even if the request has no remote access flag
	 */
	IBMKEY_BIND_REMOTE_INV = 1 << 2,
};

/**
 * struct ibmkey_bind - the description for one of several keys
 * @comp_mask: bits of enum ibmkey_bind_mask
 * @mkey: a key that ibmkey_alloc() returned, bound or not
 * @kind: enum ibmkey_kind, not IBMKEY_UNBOUND
 * @access: enum ibv_access_flags; IBV_ACCESS_ZERO_BASED may be left out
 * @num_entries: number of ranges or blocks, not zero; 1 for an indexed layout
 * @num_dims: number of dimensions of an interleaved layout, otherwise 0
 * @repeat_count: repetitions in each dimension of an interleaved layout,
 *	outermost first, otherwise NULL
 * @ranges: the ranges of a list
 * @blocks: the blocks of an interleaved layout
 * @indexed: the indexed layout
 * @rkey: the new lkey and rkey of the key. It may differ from the old ones in the low 8
 *	bits, as ibv_inc_rkey() changes them. Without IBMKEY_BIND_RKEY the lkey and rkey
 *	stay.
 */
struct ibmkey_bind {
	uint64_t comp_mask;
	struct ibv_mr *mkey;
	uint32_t kind;
	unsigned access;
	uint32_t num_entries;
	uint32_t num_dims;
	const uint64_t *repeat_count;
	union {
		const struct ibmkey_range *ranges;
		const struct ibmkey_block *blocks;
		const struct ibmkey_indexed *indexed;
	};
	uint32_t rkey;
};

/**
 * ibmkey_bind_many - bind several keys, all of them or none
 * @binds: keys of one context, none twice, and a description for each
 * @num: number of keys, 1 to 512
 * @failed: NULL, or filled in on an error: the index in @binds of the key that caused the
 *	error, @num if no key did
 *
 * All descriptions are checked completely, against the bindings before the call.
 * Then all keys are bound. The call takes little longer than binding one key, because it
 * waits once for the accesses by all old bindings. The binding of each key is replaced in
 * one step, but one key after the other: a concurrent access may find one key bound and
 * another not yet.
 *
 * Return: 0, or an errno value; then nothing has changed. EINVAL for a key that
 * is named twice, EBUSY also for a key that another description refers to.
 */
int ibmkey_bind_many(const struct ibmkey_bind *binds, uint32_t num,
		     uint32_t *failed);

/**
 * ibmkey_bind_at - bind a key whose addresses begin at a base address
 * @bind: the key and the layout, which ibmkey_bind_many() could bind, too
 * @base_addr: the address of the first byte of the key; that of the last byte must fit 64
 *	bits
 *
 * Binds the key as ibmkey_bind_list() does. Work requests then name the byte at offset n of
 * the layout by the address @base_addr + n, in SGEs, as remote addresses, for memory windows,
 * and in layouts of other keys. The next bind by another function begins at address 0 again.
 * ibmkey_query_base() gives the base address of a key. The field addr of its struct ibv_mr stays
 * NULL, so ibmkey_sge() is for keys that begin at 0.
 *
 * Return: 0 or an errno value: EOVERFLOW also if the last address does not fit.
 */
int ibmkey_bind_at(const struct ibmkey_bind *bind, uint64_t base_addr);

/**
 * ibmkey_post_layout - post a work request that binds a key to a layout
 * @qp: an RC or UC QP that was created with IBV_QP_EX_WITH_BIND_MW, not between
 *	ibv_wr_start() and ibv_wr_complete(); see ibv_qp_to_qp_ex()
 * @bind: the key and the layout
 * @wr_id: for the completion
 * @send_flags: enum ibv_send_flags; see ibmkey_post_bind()
 *
 * The request does what one of ibmkey_post_bind() does. The description is copied into
 * the request, so the program may change @bind and its arrays at once. A description has
 * 24 bytes, and 24 for each range, or 88 for each block and 8 for each dimension, and must
 * not exceed the QP's max_inline_data. The call also sets @bind->mkey->length to the length
 * of the layout.
 *
 * Return: 0 or an errno value, with no request posted: those of ibmkey_describe();
 * EOPNOTSUPP if the QP was not created for that; the error of ibv_wr_complete(), which is
 * ENOSPC on rxe, if the description is too long for the QP or the queue is full.
 */
int ibmkey_post_layout(struct ibv_qp_ex *qp, const struct ibmkey_bind *bind,
		       uint64_t wr_id, unsigned send_flags);

/**
 * ibmkey_describe - write the description of a layout for a work request
 * @bind: the layout; @bind->mkey, @bind->access and @bind->rkey are not used
 * @to: memory for the description, of any alignment; NULL if @room is 0
 * @room: size of @to in bytes
 *
 * Return: the number of bytes of the description. If it exceeds @room, nothing is
 * written. 0 and errno for a layout that cannot be described: EINVAL also if a number that
 * the kernel does not allow to be zero is zero, EFAULT.
 */
size_t ibmkey_describe(const struct ibmkey_bind *bind, void *to, size_t room);

/**
 * ibmkey_describe_at - write the description of a layout with a base address
 * @bind: as for ibmkey_describe()
 * @base_addr: as for ibmkey_bind_at()
 * @to: as for ibmkey_describe()
 * @room: as for ibmkey_describe()
 *
 * Return: as ibmkey_describe().
 */
size_t ibmkey_describe_at(const struct ibmkey_bind *bind, uint64_t base_addr, void *to,
			  size_t room);

/**
 * struct ibmkey_wr - a work request that binds a key
 * @comp_mask: zero, see ibmkey(7)
 * @mkey: a key in the QP's protection domain, bound or not
 * @access: enum ibv_access_flags; IBV_ACCESS_ZERO_BASED may be left out
 * @length: bytes of the description
 * @mr: an MR without on-demand paging in the QP's protection domain, which contains the
 *	description. With NULL, ibmkey_wr_bind() copies the description from @addr in
 *	this process into the request; ibmkey_post_bind() refuses NULL.
 * @addr: address of the description, in @mr unless that is NULL
 * @rkey: the lkey and rkey of the key after the request. It may differ from the old ones
 *	in the low 8 bits, as ibv_inc_rkey() changes them. With 0 the request gives the key
 *	the rkey that @mkey has.
 * @layout: the layout of the description, by which the call sets @mkey->length; NULL leaves
 *	the length as it is
 */
struct ibmkey_wr {
	uint64_t comp_mask;
	struct ibv_mr *mkey;
	struct ibv_mr *mr;
	uint64_t addr;
	uint32_t length;
	unsigned access;
	uint32_t rkey;
	const struct ibmkey_bind *layout;
};

/**
 * ibmkey_post_bind - post a work request that binds a key
 * @qp: an RC or UC QP
 * @wr: the request
 * @wr_id: for the completion
 * @send_flags: enum ibv_send_flags: IBV_SEND_SIGNALED; IBV_SEND_FENCE to wait for all
 *	earlier requests also if the key is not bound
 *
 * The request executes in the order of the queue: requests that are posted to @qp
 * earlier use the old layout, and later ones use the new layout. If the key is bound,
 * the request waits until all earlier requests have completed. It does not wait for
 * other accesses in progress, which may use the old layout until the key is
 * unbound, invalidated or destroyed. The completion has the opcode IBV_WC_BIND_MW.
 * The description must not change before the completion.
 *
 * If the request is refused, it completes with IBV_WC_MW_BIND_ERR, the QP moves to
 * the error state, the key keeps its binding, and ibmkey_query_refused() gives the
 * reason. A request can bind at most ibmkey_caps.max_entries entries, blocks or indices.
 *
 * An SGE that names the key needs the length of the new layout. The call sets
 * @wr->mkey->length to it if @wr->layout is set. It does not read the description.
 *
 * The request finds the key by @wr->mkey->rkey. This call then sets @wr->mkey->lkey
 * and rkey to those that the key has after the request, so that later requests can
 * use them. An lkey or rkey from before the request then no longer works. If a
 * request with another @rkey is refused, @wr->mkey->lkey and rkey are wrong, and
 * ibmkey_query() gives those that the key still has.
 *
 * Return: 0 or an errno value: EINVAL also if @wr->mr is NULL.
 */
int ibmkey_post_bind(struct ibv_qp *qp, const struct ibmkey_wr *wr,
		     uint64_t wr_id, unsigned send_flags);

/**
 * ibmkey_wr_bind - add a work request that binds a key
 * @qp: an RC or UC QP that was created with IBV_QP_EX_WITH_BIND_MW, between
 *	ibv_wr_start() and ibv_wr_complete(); wr_id and wr_flags apply
 * @wr: the request
 *
 * The request does what a request of ibmkey_post_bind() does. A description that is copied
 * into the request may have as many bytes as the QP's max_inline_data.
 *
 * Return: 0 or an errno value, with no request added. EOPNOTSUPP if the QP was not
 * created for that. ibv_wr_complete() may return other errors.
 */
int ibmkey_wr_bind(struct ibv_qp_ex *qp, const struct ibmkey_wr *wr);

/**
 * ibmkey_post_unbind - post a work request that unbinds a key
 * @qp: an RC QP in the key's protection domain
 * @mkey: a key, by its current rkey
 * @wr_id: for the completion
 * @send_flags: enum ibv_send_flags
 *
 * Posts IBV_WR_LOCAL_INV with @mkey->rkey. The request executes after all earlier
 * requests of @qp have completed. When it has completed, no access uses the old
 * layout any more. If memory of a process holds up an access, the request gives up
 * after some seconds and completes with an error.
 *
 * The request changes the key portion of the lkey and rkey, as ibmkey_unbind() does. This
 * call sets @mkey->lkey and rkey to the new ones, ibv_inc_rkey(@mkey->rkey). A program
 * that posts IBV_WR_LOCAL_INV itself, or learns from a completion with
 * IBV_WC_WITH_INV that a peer has invalidated the key, does the same. If the request
 * fails or is flushed, both fields are wrong, and ibmkey_query() gives those that the
 * key still has.
 *
 * Return: 0 or an errno value.
 */
int ibmkey_post_unbind(struct ibv_qp *qp, struct ibv_mr *mkey, uint64_t wr_id,
		       unsigned send_flags);

/**
 * ibmkey_wr_unbind - add a work request that unbinds a key
 * @qp: an RC QP that was created with IBV_QP_EX_WITH_LOCAL_INV, between
 *	ibv_wr_start() and ibv_wr_complete(); wr_id and wr_flags apply
 * @mkey: a key
 *
 * As for ibmkey_post_unbind().
 *
 * Return: 0 or an errno value, with no request added. EOPNOTSUPP if the QP was not
 * created for that. ibv_wr_complete() may return other errors.
 */
int ibmkey_wr_unbind(struct ibv_qp_ex *qp, struct ibv_mr *mkey);

/**
 * ibmkey_query_refused - query why a work request could not bind a key
 * @mkey: a key
 * @refused: filled in for the last request that was refused: its errno value, 0 if none
 *	was; the reason, its value and the entry, IB_MKEY_NO_ENTRY if no single one is the
 *	reason
 *
 * If a request was refused, ibmkey_last_error() returns the sentence for it.
 *
 * Return: 0 or an errno value; EOPNOTSUPP if the kernel has no such requests.
 */
int ibmkey_query_refused(struct ibv_mr *mkey, struct ibmkey_refused *refused);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_MKEY_WR_H */
