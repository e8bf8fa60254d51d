/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libibmkey: device memory and indirect memory keys on RDMA devices that lack them.
 *
 * A memory key (mkey) is an ordinary struct ibv_mr that has no memory itself: it
 * describes bytes of other MRs, its leaves. A list describes ranges, one after another.
 * An interleaved layout describes blocks that repeat with a stride in up to 8 dimensions.
 * An indexed layout describes blocks of one size at the places that an array of indices
 * names. Leaves are ordinary MRs, MRs over device memory, and other keys. The key's lkey
 * and rkey can be used like those of any MR. The addresses of the key are 0 to length - 1,
 * in the order of the layout. ibv_dereg_mr() destroys the key.
 *
 * Functions that return int return 0, or an errno value. Functions that return
 * a pointer return NULL and set errno. ibmkey_last_error() says why. enum
 * ib_uverbs_mkey_reason in <rdma/ib_mkey_ioctl.h> lists the reasons to refuse a key or a
 * layout.
 *
 * Structures have a field comp_mask, whose bits stand for fields that later
 * versions add. In this version, only struct ibmkey_bind has such bits. A bit that the
 * function does not know is EINVAL. Zero is always right, so initialise structures with
 * = {}. The elements of arrays keep their size as long as the library is libibmkey.so.2.
 * Further fields of these come as other structures and functions.
 *
 * All functions may be called from any thread. If two threads bind or unbind
 * the same key at the same time, one of the two layouts stays bound, but the
 * length field of the struct ibv_mr may be that of the other one.
 */
#ifndef INFINIBAND_MKEY_H
#define INFINIBAND_MKEY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <infiniband/verbs.h>
#include <rdma/ib_mkey_ioctl.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The structures that the kernel and this library share, under the library's names. */
#define ibmkey_range ib_uverbs_mkey_sge
#define ibmkey_block ib_uverbs_mkey_block
#define ibmkey_indexed ib_uverbs_mkey_indexed
#define ibmkey_caps ib_uverbs_mkey_caps
#define ibmkey_info ib_uverbs_mkey_info
#define ibmkey_refused ib_uverbs_mkey_refused
#define ibmkey_refused_access ib_uverbs_mkey_refused_access

/** IBMKEY_MAX_DIMS - dimensions of an interleaved layout, at most */
#define IBMKEY_MAX_DIMS IB_MKEY_MAX_DIMS

/** enum ibmkey_cap_flags - bits of ibmkey_caps.flags */
enum ibmkey_cap_flags {
	/** @IBMKEY_CAP_DM: device memory; see ibmkey_enable() */
	IBMKEY_CAP_DM = IB_UVERBS_MKEY_CAP_DM,
	/** @IBMKEY_CAP_LIST: ibmkey_bind_list() */
	IBMKEY_CAP_LIST = IB_UVERBS_MKEY_CAP_LIST,
	/** @IBMKEY_CAP_INTERLEAVED: ibmkey_bind_interleaved() */
	IBMKEY_CAP_INTERLEAVED = IB_UVERBS_MKEY_CAP_INTERLEAVED,
	/** @IBMKEY_CAP_ATOMIC: atomic operations through a key */
	IBMKEY_CAP_ATOMIC = IB_UVERBS_MKEY_CAP_ATOMIC,
	/** @IBMKEY_CAP_INDEXED: ibmkey_bind_indexed() */
	IBMKEY_CAP_INDEXED = IB_UVERBS_MKEY_CAP_INDEXED,
	/** @IBMKEY_CAP_REQUEST: ibmkey_post_bind() and ibmkey_wr_bind() */
	IBMKEY_CAP_REQUEST = IB_UVERBS_MKEY_CAP_REQUEST,
};

/** enum ibmkey_kind - kinds of layouts */
enum ibmkey_kind {
	/** @IBMKEY_UNBOUND: nothing is bound; every access fails */
	IBMKEY_UNBOUND = IB_UVERBS_MKEY_UNBOUND,
	/** @IBMKEY_LIST: ranges, one after another */
	IBMKEY_LIST = IB_UVERBS_MKEY_LIST,
	/** @IBMKEY_INTERLEAVED: blocks that repeat with a stride */
	IBMKEY_INTERLEAVED = IB_UVERBS_MKEY_INTERLEAVED,
	/** @IBMKEY_INDEXED: blocks of one size at the places of indices */
	IBMKEY_INDEXED = IB_UVERBS_MKEY_INDEXED,
};

/**
 * ibmkey_query_caps - what a device can do
 * @ctx: an open device
 * @caps: filled in
 *
 * Return: 0; EOPNOTSUPP if the kernel offers no keys on this device.
 */
int ibmkey_query_caps(struct ibv_context *ctx, struct ibmkey_caps *caps);

/**
 * ibmkey_alloc - create a key
 * @pd: protection domain of the key and of all its leaves
 * @max_entries: largest number of entries, blocks or indices that the key can be bound
 *	to: 1 to ibmkey_caps.max_entries, and for indexed layouts 1 to
 *	ibmkey_caps.max_indices
 *
 * The key is unbound and its length is 0; every access by it fails. Creating a
 * key takes much longer than binding it, so keep it and bind it again, or take it from a
 * pool of ibmkey_pool_create(). The lkey and the rkey stay the same, except for their low
 * 8 bits, the key portion.
 *
 * Return: the key, to be destroyed by ibv_dereg_mr(); or NULL and errno.
 */
struct ibv_mr *ibmkey_alloc(struct ibv_pd *pd, uint32_t max_entries);

/** enum ibmkey_alloc_flags - bits of ibmkey_alloc_attr.flags */
enum ibmkey_alloc_flags {
	/**
	 * @IBMKEY_ALLOC_REVOCABLE: the deregistration of a leaf succeeds and unbinds the
	 * key. Without this flag it fails with EBUSY while the key is bound.
	 */
	IBMKEY_ALLOC_REVOCABLE = 1 << 0,
};

/**
 * struct ibmkey_alloc_attr - attributes of a new key
 * @comp_mask: zero, see ibmkey(7)
 * @max_entries: as for ibmkey_alloc()
 * @flags: bits of enum ibmkey_alloc_flags
 */
struct ibmkey_alloc_attr {
	uint64_t comp_mask;
	uint32_t max_entries;
	uint32_t flags;
};

/**
 * ibmkey_alloc_ex - create a key with attributes
 * @pd: its protection domain
 * @attr: the attributes
 *
 * Creates a key as ibmkey_alloc() does. A key with IBMKEY_ALLOC_REVOCABLE suits registration
 * caches, which deregister an MR without asking its users. When ibv_dereg_mr() of a leaf
 * returns 0, no access by the key is in progress, and every later access fails until the
 * key is bound again. The field length of the key's struct ibv_mr does not change;
 * ibmkey_query() tells that the key is unbound. The key portion changes with the next bind by a
 * call, which sets the fields lkey and rkey.
 *
 * The deregistration fails with EBUSY, and the key stays bound, if a memory window, or a
 * key without the flag, refers to the leaf or to the key. The deregistration also fails
 * with EBUSY if an access takes longer than some seconds; the key is unbound then. It fails
 * with ENOMEM if there is no memory to list the keys; none is unbound then.
 *
 * Return: the key, to be destroyed by ibv_dereg_mr(); or NULL and errno: EINVAL for
 * an unknown flag.
 */
struct ibv_mr *ibmkey_alloc_ex(struct ibv_pd *pd,
			       const struct ibmkey_alloc_attr *attr);

/**
 * ibmkey_bind_list - bind a key to ranges, one after another
 * @mkey: a key that ibmkey_alloc() returned, bound or not
 * @access: enum ibv_access_flags; IBV_ACCESS_ZERO_BASED may be left out
 * @num_ranges: number of ranges, not zero
 * @ranges: the ranges, each within the MR that its lkey names
 *
 * Replaces the binding in one step: an access sees the old layout or the new
 * one. When this returns, no access uses the old layout any more. On an error
 * the old layout stays bound. On success @mkey->length is the sum of the
 * ranges' lengths; a range of length 0 is EINVAL.
 *
 * A key needs no flag if the program only sends from it. If @access allows writing of any
 * kind, all leaves need IBV_ACCESS_LOCAL_WRITE. The arrays are copied. ibv_dereg_mr() of a
 * leaf fails with EBUSY until the key is unbound, destroyed or bound to other memory.
 *
 * Return: 0 or an errno value.
 */
int ibmkey_bind_list(struct ibv_mr *mkey, unsigned access, uint32_t num_ranges,
		     const struct ibmkey_range *ranges);

/**
 * ibv_rereg_mr_sg - give an MR the layout of a list of ranges
 * @mkey: a key of ibmkey_alloc(), bound or not; or an MR of ibv_reg_mr() or ibmkey_reg_alloc()
 * @access: enum ibv_access_flags; IBV_ACCESS_ZERO_BASED may be left out
 * @num_sge: number of ranges, not zero
 * @sg_list: the ranges, each shorter than 4 GiB
 *
 * Does what ibmkey_bind_list() does, under the name and with the elements of the RFC for
 * libibverbs. The lengths in these elements have 32 bits. A composite region of three MRs,
 * which one request with an address and a length reads or writes::
 *
 *	struct ibv_sge parts[] = {
 *		{ .addr = (uintptr_t)a, .length = sizeof(a), .lkey = mr_a->lkey },
 *		{ .addr = (uintptr_t)b, .length = sizeof(b), .lkey = mr_b->lkey },
 *		{ .addr = (uintptr_t)c, .length = sizeof(c), .lkey = mr_c->lkey },
 *	};
 *
 *	ret = ibv_rereg_mr_sg(mr, IBV_ACCESS_REMOTE_READ, 3, parts);
 *	if (ret)
 *		errx(1, "%s: %s", strerror(ret), ibmkey_last_error());
 *	send = ibmkey_sge(mr);
 *
 * An MR of ibv_reg_mr() or ibmkey_reg_alloc() becomes a key. Its lkey and rkey change, its field
 * addr is NULL, and its field length is that of the layout. Its addresses begin at 0. The former
 * memory is deregistered, unless the layout names it by the former lkey. Further layouts keep
 * the lkey and the rkey. ibmkey_rereg_mr() with IBV_REREG_MR_CHANGE_TRANSLATION makes the
 * key an MR over memory again, with another lkey and rkey. ibmkey_dereg() deregisters it,
 * also together with former memory. ibv_dereg_mr() leaves former memory registered until the
 * context is closed.
 *
 * Return: 0, or an errno value; then nothing has changed: the errno values of ibmkey_bind_list(),
 * and EBUSY if a key or a window refers to an MR that would become a key.
 */
int ibv_rereg_mr_sg(struct ibv_mr *mkey, unsigned access, uint32_t num_sge,
		    const struct ibv_sge *sg_list);

/**
 * ibmkey_bind_interleaved - bind a key to blocks that repeat with a stride
 * @mkey: a key that ibmkey_alloc() returned, bound or not
 * @access: enum ibv_access_flags; IBV_ACCESS_ZERO_BASED may be left out
 * @num_dims: number of dimensions, 1 to IBMKEY_MAX_DIMS
 * @repeat_count: repetitions in each dimension, outermost first, none zero
 * @num_blocks: number of blocks, not zero
 * @blocks: the blocks
 *
 * For each tuple of indices, with the last dimension changing fastest, the key
 * describes the bytes of blocks[0], then of blocks[1], and so on. A block
 * starts at addr + sum(index[d] * stride[d]). Strides are in bytes. One block in one dimension is a
 * column of a matrix. One block in n dimensions is a box within an
 * n-dimensional array. Several blocks in one dimension interleave several
 * arrays. Column c of double m[ROWS][COLUMNS], registered as mr::
 *
 *	struct ibmkey_block column = {
 *		.addr = (uintptr_t)&m[0][c],
 *		.bytes_count = sizeof(double),
 *		.lkey = mr->lkey,
 *		.stride = { sizeof(m[0]) },
 *	};
 *	uint64_t rows = ROWS;
 *
 *	ret = ibmkey_bind_interleaved(key, 0, 1, &rows, 1, &column);
 *
 * mkeyctl draw prints which bytes a layout describes.
 *
 * Replaces the binding as ibmkey_bind_list() does. On success @mkey->length is the
 * product of the repetitions times the sum of the blocks' bytes.
 *
 * Return: 0 or an errno value.
 */
int ibmkey_bind_interleaved(struct ibv_mr *mkey, unsigned access,
			    uint32_t num_dims, const uint64_t *repeat_count,
			    uint32_t num_blocks,
			    const struct ibmkey_block *blocks);

/**
 * ibv_rereg_mr_interleaved - give an MR the layout of blocks that repeat with a stride
 * @mkey: a key of ibmkey_alloc(), bound or not; or an MR of ibv_reg_mr() or ibmkey_reg_alloc()
 * @access: enum ibv_access_flags; IBV_ACCESS_ZERO_BASED may be left out
 * @num_dims: number of dimensions, 1 to IBMKEY_MAX_DIMS
 * @repeat_count: repetitions in each dimension, outermost first, none zero
 * @num_blocks: number of blocks, not zero
 * @blocks: the blocks, each with one stride in bytes for each dimension
 *
 * Does what ibmkey_bind_interleaved() does, under the name of the RFC for libibverbs. An MR of
 * ibv_reg_mr() or ibmkey_reg_alloc() becomes a key, as ibv_rereg_mr_sg() describes. Column c of
 * double m[N][M], which is registered as mr, as the bytes of mr itself::
 *
 *	struct ibmkey_block column = {
 *		.addr = (uintptr_t)&m[0][c],
 *		.bytes_count = sizeof(double),
 *		.lkey = mr->lkey,
 *		.stride = { sizeof(m[0]) },
 *	};
 *	uint64_t rows = N;
 *
 *	ret = ibv_rereg_mr_interleaved(mr, 0, 1, &rows, 1, &column);
 *	if (ret)
 *		errx(1, "%s: %s", strerror(ret), ibmkey_last_error());
 *	send = ibmkey_sge(mr);
 *
 * The description has the same size for any N. To send another column, keep the lkey that
 * mr had, because the memory is still registered by it.
 *
 * Return: 0, or an errno value; then nothing has changed: the errno values of
 * ibmkey_bind_interleaved(), and EBUSY of ibv_rereg_mr_sg().
 */
int ibv_rereg_mr_interleaved(struct ibv_mr *mkey, unsigned access,
			     uint32_t num_dims, const uint64_t *repeat_count,
			     uint32_t num_blocks,
			     const struct ibmkey_block *blocks);

/**
 * ibmkey_bind_indexed - bind a key to blocks of one size at the places of indices
 * @mkey: a key that ibmkey_alloc() returned, bound or not
 * @access: enum ibv_access_flags; IBV_ACCESS_ZERO_BASED may be left out
 * @layout: the blocks; its indices are copied
 *
 * The key gathers or scatters blocks of a table, such as a KV cache. The layout takes 4 or
 * 8 bytes for each block, the size of an index.
 *
 * Replaces the binding as ibmkey_bind_list() does. On success @mkey->length is the number
 * of indices times the bytes of a block.
 *
 * Return: 0 or an errno value.
 */
int ibmkey_bind_indexed(struct ibv_mr *mkey, unsigned access,
			const struct ibmkey_indexed *layout);

/**
 * ibmkey_last_error - say why a call failed
 *
 * The sentence names the entry and the field, as in
 * "ranges[3].lkey 0x1234 names no MR in the protection domain of mkey". The sentence is
 * about the last call of a function of this library that failed in this thread, or about
 * the request of ibmkey_query_refused() or ibmkey_query_refused_access(). The
 * verbs of libibverbs, such as ibv_alloc_dm() after ibmkey_enable(), leave it as it is.
 * The sentence is for people, and later versions may word it otherwise: do not compare it.
 * Example::
 *
 *	ret = ibmkey_bind_list(key, 0, 2, ranges);
 *	if (ret)
 *		errx(1, "%s: %s", strerror(ret), ibmkey_last_error());
 *
 * Return: the sentence, which stays valid until the next call fails in this thread;
 * an empty string if none has failed. Never NULL.
 */
const char *ibmkey_last_error(void);

/**
 * ibmkey_unbind - return a key to its state after ibmkey_alloc()
 * @mkey: a key, bound or not
 *
 * When this returns, no access uses the old layout any more, and its leaves can
 * be freed. The low 8 bits of @mkey->lkey and @mkey->rkey, the key portion, are incremented. So an
 * lkey or rkey from before the call cannot reach a later layout, until the key portion has the
 * same value again, after 256 changes.
 *
 * The call waits for accesses in progress. If an access waits for a page of an MR on
 * demand, the call waits until the page is there.
 *
 * Return: 0 or an errno value.
 */
int ibmkey_unbind(struct ibv_mr *mkey);

/**
 * ibmkey_reg_iov - register scattered memory as one key
 * @pd: the protection domain
 * @iov: the memory, in the order of the key's bytes; elements may be empty, may
 *	overlap and may be equal
 * @num_iov: number of elements, not zero
 * @access: enum ibv_access_flags, of the key; the MRs under it have no remote
 *	rights
 *
 * Registers the memory and binds a new key to it. The layout is a list. Elements that
 * continue each other are one entry. The key owns the MRs. One MR covers all elements
 * whose pages follow each other, from the first byte of an element to the last one. So
 * each page is registered once, however many elements are in it.
 *
 * ibv_dereg_mr() of such a key destroys the key alone. The MRs under it then stay
 * registered until the context is closed.
 *
 * Return: the key, to be destroyed by ibmkey_dereg(), not by ibv_dereg_mr(); or
 * NULL and errno, with nothing registered: EFAULT for an address that is not
 * mapped or cannot be written although @access needs that, ENOMEM also if the
 * process may not lock so much memory, EINVAL if there is no byte, ENOSPC for
 * more entries than ibmkey_caps.max_entries.
 */
struct ibv_mr *ibmkey_reg_iov(struct ibv_pd *pd, const struct iovec *iov,
			      uint32_t num_iov, int access);

/**
 * ibmkey_reg_strided - register memory that repeats with a stride as one key
 * @pd: the protection domain
 * @first: the first byte of the first block, which has the index 0 in every dimension
 * @bytes: bytes of a block
 * @num_dims: number of dimensions, 1 to IBMKEY_MAX_DIMS
 * @repeat_count: repetitions in each dimension, outermost first, none zero
 * @stride: for each dimension, the bytes from the start of one repetition to the start
 *	of the next; may be negative or zero
 * @access: enum ibv_access_flags, of the key; the MR under it has no remote rights
 *
 * Does for one block of ibmkey_bind_interleaved() what ibmkey_reg_iov() does for ranges:
 * registers all bytes from the lowest to the highest one of the blocks as an MR, which the
 * key owns, and binds a new key to the blocks. Column c of double m[ROWS][COLUMNS]::
 *
 *	key = ibmkey_reg_strided(pd, &m[0][c], sizeof(double), 1, &(uint64_t){ ROWS },
 *				 &(int64_t){ sizeof(m[0]) }, 0);
 *
 * Return: the key, to be destroyed by ibmkey_dereg(), not by ibv_dereg_mr(); or
 * NULL and errno, with nothing registered: the errno values of ibmkey_reg_iov(), and
 * EINVAL if a number is zero or @num_dims is too large.
 */
struct ibv_mr *ibmkey_reg_strided(struct ibv_pd *pd, void *first, size_t bytes,
				  uint32_t num_dims, const uint64_t *repeat_count,
				  const int64_t *stride, int access);

/**
 * ibmkey_dereg - destroy a key or an MR, and what it owns
 * @mkey: a key that ibmkey_reg_iov(), ibmkey_reg_strided() or ibmkey_alloc() returned, an
 *	MR over device memory or a dma-buf that this library registered, or an MR whose
 *	memory ibmkey_reg_alloc(), ibmkey_reg_shared() or ibmkey_rereg_mr() made, or that
 *	ibv_rereg_mr_sg() or ibv_rereg_mr_interleaved() made a key
 *
 * Unbinds the key, deregisters the MRs that the key owns, and destroys the key. Only keys
 * of ibmkey_reg_iov() and ibmkey_reg_strided() own MRs. An MR with memory of the library is
 * deregistered, and then its memory is freed.
 *
 * Return: 0, or an errno value; then the key still exists. EBUSY while a memory window or
 * another key refers to the key. EBUSY also if another key refers to an MR that this key
 * owns; then this key is unbound, and the call can be repeated. EINVAL for an MR of
 * ibv_reg_mr(), which ibv_dereg_mr() deregisters.
 */
int ibmkey_dereg(struct ibv_mr *mkey);

/**
 * ibmkey_sge - describe all bytes of a key, for a work request
 * @mr: a key, or an MR of ibv_reg_mr()
 *
 * The length is that of the field length. An SGE has at most 4 GiB - 1 bytes, so it has
 * the first bytes of a longer key.
 *
 * Return: the SGE.
 */
struct ibv_sge ibmkey_sge(const struct ibv_mr *mr);

/**
 * ibmkey_query - query the binding of a key
 * @mkey: a key
 * @info: filled in
 *
 * LOCAL_INV, SEND with invalidate, the deregistration of a leaf of a revocable key, and a
 * bind by a work request without a layout (struct ibmkey_wr) do not change the length of
 * the program's struct ibv_mr. This call stores the present length.
 *
 * Return: 0; EINVAL if @mkey is not a key; or another errno value.
 */
int ibmkey_query(struct ibv_mr *mkey, struct ibmkey_info *info);

/**
 * ibmkey_query_base - query the base address of a key
 * @mkey: a key
 * @base_addr: set to the address of its first byte: 0, unless ibmkey_bind_at(), or a request
 *	with a description of ibmkey_describe_at(), has bound it
 *
 * Return: 0; EINVAL if @mkey is not a key; or another errno value.
 */
int ibmkey_query_base(struct ibv_mr *mkey, uint64_t *base_addr);

/**
 * ibmkey_why - say why a request has completed with an error
 * @ctx: the context of its QP
 * @wc: the completion, or NULL
 *
 * The sentence is about the last refused access to a key, or to an MR over device memory, that
 * this process made on the device. It names the key, the address, the bytes and the reason, as in
 * "key 0x3a3e refused a local read of 32 bytes at its address 0x7f10: it has 32 bytes, whose
 * addresses begin at 0". If the peer refused the access, and made its key in another process, only
 * a call in that process tells the reason.
 *
 * A request with a wrong SGE completes with IBV_WC_LOC_PROT_ERR, whatever is wrong. Accesses
 * that rxe refuses for a memory window or an ordinary MR are not recorded, and neither are those
 * of queue pairs of other processes. Example::
 *
 *	if (wc.status != IBV_WC_SUCCESS)
 *		errx(1, "%s: %s", ibv_wc_status_str(wc.status), ibmkey_why(qp->context, &wc));
 *
 * Return: the sentence, which stays valid as that of ibmkey_last_error(). Never NULL.
 */
const char *ibmkey_why(struct ibv_context *ctx, const struct ibv_wc *wc);

/**
 * ibmkey_query_refused_access - query the last refused access to a key
 * @mkey: a key
 * @access: filled in; its number is 0 if no access was refused
 *
 * The numbers of refused accesses rise, for all devices together. If an access was refused,
 * ibmkey_last_error() returns the sentence for it.
 *
 * Return: 0; EINVAL if @mkey is not a key; or another errno value.
 */
int ibmkey_query_refused_access(struct ibv_mr *mkey, struct ibmkey_refused_access *access);

/**
 * ibmkey_query_layout - query the binding of a key, with its layout
 * @mkey: a key
 * @info: filled in
 * @max_dims: repetitions that fit in @repeat_count
 * @repeat_count: the first of @info->num_dims repetitions, as many as fit;
 *	unused if @max_dims is 0
 * @max_blocks: blocks that fit in @blocks
 * @blocks: the first of @info->num_entries blocks, as many as fit; entries of a
 *	list have strides of 0. Unused if @max_blocks is 0
 *
 * @info and the contents of the arrays describe the same layout, even if
 * another thread binds a new one meanwhile. Elements that the layout lacks are
 * not written.
 *
 * Return: 0 or an errno value.
 */
int ibmkey_query_layout(struct ibv_mr *mkey, struct ibmkey_info *info,
			uint32_t max_dims, uint64_t *repeat_count,
			uint32_t max_blocks, struct ibmkey_block *blocks);

/**
 * ibmkey_query_indexed - query the binding of a key, with its indices
 * @mkey: a key
 * @info: filled in
 * @layout: filled in if the layout is indexed, with NULL for the indices
 * @max_indices: indices that fit in @indices
 * @indices: the first of @info->num_entries indices, as many as fit, of 64 bits
 *	whatever their size was; unused if @max_indices is 0
 *
 * Does for an indexed layout what ibmkey_query_layout() does for the other layouts. For
 * those, this function stores only @info.
 *
 * Return: 0 or an errno value.
 */
int ibmkey_query_indexed(struct ibv_mr *mkey, struct ibmkey_info *info,
			 struct ibmkey_indexed *layout, uint32_t max_indices,
			 uint64_t *indices);

#ifdef __cplusplus
}
#endif

#include <infiniband/mkey_alloc.h>
#include <infiniband/mkey_dm.h>
#include <infiniband/mkey_import.h>
#include <infiniband/mkey_pool.h>
#include <infiniband/mkey_wr.h>

#endif /* INFINIBAND_MKEY_H */
