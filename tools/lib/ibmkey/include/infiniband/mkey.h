/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libibmkey: device memory and indirect memory keys on RDMA devices that lack them.
 *
 * A memory key (mkey) is an ordinary struct ibv_mr that has no memory itself: it
 * describes bytes of other MRs, its leaves. A list describes ranges, one after another.
 * An interleaved layout describes blocks that repeat with a stride in up to 8 dimensions.
 * An indexed layout describes blocks of one size at the places that an array of indices
 * names. Leaves are ordinary MRs, MRs over device memory, and other keys. The key's lkey
 * and rkey can be used like those of any MR. Its addresses are 0 to length - 1, in the
 * order of the layout. ibv_dereg_mr() destroys it.
 *
 * Functions that return int return 0, or an errno value. Functions that return
 * a pointer return NULL and set errno. Unless a function says otherwise, the
 * errors are these:
 *
 * EINVAL	zero entries, blocks, dimensions, repetitions or bytes; unknown
 *		access flag; not a key
 * ENOENT	an lkey that names nothing in the key's protection domain
 * EACCES	the key would allow more than a leaf does
 * ENOSPC	more entries than the key was created for
 * EOVERFLOW	a length or an address that does not fit 64 bits
 * ERANGE	a block that reaches outside its leaf
 * ELOOP	a key that would refer to itself, too many levels of keys, or levels
 *		of small pieces through which a packet could take too long
 * EBUSY	a key or a window still refers to the object
 * ENOMEM	no memory, or the limit on device memory is reached
 * EOPNOTSUPP	the device, or this kind of leaf, cannot do it
 *
 * Structures have a field comp_mask, whose bits stand for fields that later
 * versions add. This version has none. For a structure that a function reads, a
 * bit that the function does not know is EINVAL. For a structure that it fills
 * in, the caller sets the bits of the later fields that it has room for, and the
 * function clears those that it did not fill in. Zero is always right, so
 * initialise structures with = {}.
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

#ifdef __cplusplus
extern "C" {
#endif

/** IBMKEY_MAX_DIMS - dimensions of an interleaved layout, at most */
#define IBMKEY_MAX_DIMS 8

/** enum ibmkey_cap_flags - bits of ibmkey_caps.flags */
enum ibmkey_cap_flags {
	/** @IBMKEY_CAP_DM: device memory; see ibmkey_enable() */
	IBMKEY_CAP_DM = 1 << 0,
	/** @IBMKEY_CAP_LIST: ibmkey_bind_list() */
	IBMKEY_CAP_LIST = 1 << 1,
	/** @IBMKEY_CAP_INTERLEAVED: ibmkey_bind_interleaved() */
	IBMKEY_CAP_INTERLEAVED = 1 << 2,
	/** @IBMKEY_CAP_ATOMIC: atomic operations through a key */
	IBMKEY_CAP_ATOMIC = 1 << 3,
	/** @IBMKEY_CAP_INDEXED: ibmkey_bind_indexed() */
	IBMKEY_CAP_INDEXED = 1 << 4,
	/** @IBMKEY_CAP_REQUEST: ibmkey_post_bind() and ibmkey_wr_bind() */
	IBMKEY_CAP_REQUEST = 1 << 5,
};

/** enum ibmkey_dm_class - bits of ibmkey_caps.dm_classes */
enum ibmkey_dm_class {
	/** @IBMKEY_DM_HOST: RAM of the host, near the device */
	IBMKEY_DM_HOST = 1 << 0,
	/** @IBMKEY_DM_NODE: RAM of one NUMA node: CXL, HBM */
	IBMKEY_DM_NODE = 1 << 1,
	/** @IBMKEY_DM_P2P: memory of a PCI device, published for peers */
	IBMKEY_DM_P2P = 1 << 2,
	/** @IBMKEY_DM_PMEM: persistent memory */
	IBMKEY_DM_PMEM = 1 << 3,
};

/*
 * The class and its number, for ibmkey_alloc_dm(): NUMA node n, a PCI function
 * (in a domain up to 255), or /dev/pmemN. The class alone is the first of its
 * kind that the device offers.
 */
#define IBMKEY_DM_THE_NODE(n) (IBMKEY_DM_NODE | ((uint32_t)(n) + 1) << 8)
#define IBMKEY_DM_THE_PMEM(n) (IBMKEY_DM_PMEM | ((uint32_t)(n) + 1) << 8)
#define IBMKEY_DM_THE_P2P(domain, bus, devfn)                            \
	(IBMKEY_DM_P2P | ((uint32_t)(domain) << 16 | (uint32_t)(bus) << 8 | \
			  (uint32_t)(devfn))                             \
				 << 8)

/**
 * struct ibmkey_caps - what a device can do
 * @comp_mask: zero, see above
 * @max_dm_size: device memory in bytes, for all users in total
 * @max_entries: entries or blocks of one key
 * @max_dims: dimensions of an interleaved layout
 * @max_depth: levels of keys over keys, the outermost counted
 * @dm_classes: bits of enum ibmkey_dm_class
 * @flags: bits of enum ibmkey_cap_flags
 * @max_indices: indices of one key; 0 if the kernel has no indexed layouts
 */
struct ibmkey_caps {
	uint64_t comp_mask;
	uint64_t max_dm_size;
	uint32_t max_entries;
	uint32_t max_dims;
	uint32_t max_depth;
	uint32_t dm_classes;
	uint64_t flags;
	uint32_t max_indices;
};

/**
 * struct ibmkey_range - a range of a leaf
 * @addr: first byte: an address in the MR that @lkey names, an offset if that MR
 *	is zero-based
 * @length: bytes, not zero
 * @lkey: lkey of an MR in the key's protection domain
 * @comp_mask: zero, see above
 */
struct ibmkey_range {
	uint64_t addr;
	uint64_t length;
	uint32_t lkey;
	uint32_t comp_mask;
};

/**
 * struct ibmkey_block - a repeated block of a leaf
 * @addr: first byte of the block at index 0 of every dimension: an address in
 *	the MR that @lkey names, an offset if that MR is zero-based
 * @bytes_count: bytes of one block, not zero
 * @lkey: lkey of an MR in the key's protection domain
 * @comp_mask: zero, see above
 * @stride: bytes from one block's start to the next one's, for each dimension,
 *	outermost first; may be negative or zero. Those of unused dimensions
 *	are ignored.
 */
struct ibmkey_block {
	uint64_t addr;
	uint64_t bytes_count;
	uint32_t lkey;
	uint32_t comp_mask;
	int64_t stride[IBMKEY_MAX_DIMS];
};

/**
 * struct ibmkey_indexed - blocks of one size at the places that indices give
 * @comp_mask: zero, see above
 * @addr: first byte of the block of index 0: an address in the MR that @lkey
 *	names, an offset where that region is zero-based
 * @unit: bytes from the block of one index to that of the next, not zero
 * @bytes_count: bytes of a block, not zero
 * @indices32: the indices; NULL if @indices64 has them
 * @indices64: the indices; NULL if @indices32 has them
 * @num_indices: number of indices, not zero
 * @lkey: lkey of an MR in the key's protection domain
 *
 * The block of index i starts at @addr + i * @unit. The blocks follow each
 * other in the order of the indices. Indices may be equal.
 */
struct ibmkey_indexed {
	uint64_t comp_mask;
	uint64_t addr;
	uint64_t unit;
	uint64_t bytes_count;
	const uint32_t *indices32;
	const uint64_t *indices64;
	uint32_t num_indices;
	uint32_t lkey;
};

/** enum ibmkey_kind - kinds of layouts */
enum ibmkey_kind {
	/** @IBMKEY_UNBOUND: nothing is bound; every access fails */
	IBMKEY_UNBOUND,
	/** @IBMKEY_LIST: ranges, one after another */
	IBMKEY_LIST,
	/** @IBMKEY_INTERLEAVED: blocks that repeat with a stride */
	IBMKEY_INTERLEAVED,
	/** @IBMKEY_INDEXED: blocks of one size at the places of indices */
	IBMKEY_INDEXED,
};

/**
 * struct ibmkey_info - what is bound to a key
 * @comp_mask: zero, see above
 * @length: bytes that the key addresses, 0 when unbound
 * @kind: enum ibmkey_kind
 * @access: enum ibv_access_flags, as bound
 * @max_entries: entries that the key was created for
 * @num_entries: entries, blocks or indices bound
 * @num_dims: dimensions bound, 0 for a list and for an indexed layout
 * @lkey: local key
 * @rkey: remote key
 */
struct ibmkey_info {
	uint64_t comp_mask;
	uint64_t length;
	uint32_t kind;
	uint32_t access;
	uint32_t max_entries;
	uint32_t num_entries;
	uint32_t num_dims;
	uint32_t lkey;
	uint32_t rkey;
};

/**
 * ibmkey_enable - make the device-memory verbs work on a context
 * @ctx: an open device
 *
 * Afterwards ibv_alloc_dm(), ibv_free_dm(), ibv_reg_dm_mr(), ibv_memcpy_to_dm()
 * and ibv_memcpy_from_dm() work on @ctx, and ibv_query_device_ex() returns
 * max_dm_size, which the kernel alone does not report to programs. If the
 * device's provider has these verbs, they stay as they are. Keys do not need
 * this function. Calling it again changes nothing.
 *
 * ibv_reg_dm_mr() requires IBV_ACCESS_ZERO_BASED. A copy may have any offset,
 * address and length within the device memory.
 *
 * Return: 0; EOPNOTSUPP if the kernel offers no device memory on this device.
 */
int ibmkey_enable(struct ibv_context *ctx);

/**
 * ibmkey_alloc_dm - allocate device memory of a class
 * @ctx: an open device
 * @attr: as for ibv_alloc_dm(); the alignment is that of the physical address
 * @dm_class: a bit of enum ibmkey_dm_class, or one of IBMKEY_DM_THE_NODE() and
 *	so on; 0 is the device's default, as with ibv_alloc_dm()
 *
 * Enables @ctx, see ibmkey_enable(). A device offers host memory and the
 * classes that the module parameter dm_class gives it.
 *
 * Return: the memory, to be freed by ibv_free_dm(); or NULL and errno: EINVAL
 * for an invalid class, EOPNOTSUPP for a class that the device does not offer.
 */
struct ibv_dm *ibmkey_alloc_dm(struct ibv_context *ctx,
			       const struct ibv_alloc_dm_attr *attr,
			       uint32_t dm_class);

/**
 * ibmkey_export_dm - export device memory as a dma-buf
 * @dm: device memory of ibv_alloc_dm() or ibmkey_alloc_dm()
 * @fd: set to a new file descriptor, close-on-exec
 *
 * Processes can map the dma-buf with mmap(2) and MAP_SHARED, and pass it to
 * other processes and to devices. Its size is that of the device memory in
 * whole pages. ibv_free_dm() revokes it: accesses to mappings raise SIGBUS from
 * then on, and new mappings fail with ENODEV. The caller closes the descriptor.
 *
 * Return: 0 or an errno value.
 */
int ibmkey_export_dm(struct ibv_dm *dm, int *fd);

/**
 * ibmkey_reg_dmabuf_mr - register a part of a dma-buf
 * @pd: the protection domain
 * @offset: of the first byte in the dma-buf
 * @length: bytes
 * @iova: address of the first byte in the MR; its offset in a page is that
 *	of @offset
 * @fd: the dma-buf
 * @access: enum ibv_access_flags
 *
 * Does what ibv_reg_dmabuf_mr() does. rxe's provider library lacks that verb. The
 * exporter must give the kernel a mapping of ordinary memory that stays in place.
 * Such exporters are /dev/udmabuf for memfds, DMA-BUF heaps, and
 * ibmkey_export_dm() for device memory. The MR keeps the dma-buf, even if it is
 * revoked. It can be used like an MR of ibv_reg_mr(): for every verb, and as a
 * leaf of keys.
 *
 * Return: the MR, to be deregistered by ibv_dereg_mr(); or NULL and errno:
 * EBADF if @fd is not open, EINVAL if it is not a dma-buf, for a range outside
 * of the dma-buf or for invalid access flags, EACCES for write access to a
 * read-only dma-buf, EOPNOTSUPP if the exporter has no such mapping, ENODEV if
 * the dma-buf was revoked.
 */
struct ibv_mr *ibmkey_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				    size_t length, uint64_t iova, int fd,
				    int access);

/**
 * ibmkey_rereg_mr - change the memory, PD or access flags of an MR
 * @mr: an MR of ibv_reg_mr()
 * @flags: what changes, of enum ibv_rereg_mr_flags
 * @pd: the new protection domain, if that changes
 * @addr: the new memory, and the address of its first byte in the MR, if
 *	the translation changes
 * @length: bytes from @addr on
 * @access: the new access flags, if those change
 *
 * Does what ibv_rereg_mr() does. rxe's provider library lacks that verb. The lkey
 * and rkey stay. While the memory changes, accesses are refused.
 *
 * Return: 0, or an errno value; then nothing has changed: EBUSY if the memory
 * would change and a key or a window refers to the MR, EOPNOTSUPP for a key or
 * an MR over a dma-buf.
 */
int ibmkey_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		    size_t length, int access);

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
 * @pd: its protection domain; all leaves must be in the same one
 * @max_entries: entries, blocks or indices that it can be bound to, 1 to
 *	ibmkey_caps.max_entries, or for an indexed layout to
 *	ibmkey_caps.max_indices
 *
 * The key is unbound and its length is 0; every access by it fails. Creating a
 * key takes much longer than binding it, so keep it and bind it again.
 *
 * Return: the key, to be destroyed by ibv_dereg_mr(); or NULL and errno.
 */
struct ibv_mr *ibmkey_alloc(struct ibv_pd *pd, uint32_t max_entries);

/** enum ibmkey_alloc_flags - bits of ibmkey_alloc_attr.flags */
enum ibmkey_alloc_flags {
	/**
	 * @IBMKEY_ALLOC_YIELD: the deregistration of a leaf succeeds and unbinds the
	 * key. Without this flag it fails with EBUSY while the key is bound.
	 */
	IBMKEY_ALLOC_YIELD = 1 << 0,
};

/**
 * struct ibmkey_alloc_attr - attributes of a new key
 * @comp_mask: zero, see above
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
 * As for ibmkey_alloc(). A key with IBMKEY_ALLOC_YIELD suits registration caches, which
 * deregister an MR without asking who uses it. When ibv_dereg_mr() of a leaf returns
 * 0, every access by the key fails until it is bound again, and no access is in
 * progress. @length of the key does not change; ibmkey_query() tells that the key is
 * unbound. Its tag changes with the next bind, which sets lkey and rkey. If a memory
 * window, or a key without the flag, refers to the leaf or to the key, the
 * deregistration fails with EBUSY.
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
 * Return: 0 or an errno value.
 */
int ibmkey_bind_list(struct ibv_mr *mkey, unsigned access, uint32_t num_ranges,
		     const struct ibmkey_range *ranges);

/**
 * ibv_rereg_mr_sg - bind a key to ranges in elements of libibverbs
 * @mkey: as for ibmkey_bind_list()
 * @access: as for ibmkey_bind_list()
 * @num_sge: number of ranges, not zero
 * @sg_list: the ranges, each shorter than 4 GiB
 *
 * The name that the RFC for libibverbs gives to ibmkey_bind_list(), with ranges of
 * up to 32 bits.
 *
 * Return: 0 or an errno value.
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
 * starts at addr + sum(index[d] * stride[d]). One block in one dimension is a
 * column of a matrix. One block in n dimensions is a box within an
 * n-dimensional array. Several blocks in one dimension interleave several
 * arrays.
 *
 * Otherwise as ibmkey_bind_list(); @mkey->length becomes the product of the
 * repetitions times the sum of the blocks' bytes.
 *
 * Return: 0 or an errno value.
 */
int ibmkey_bind_interleaved(struct ibv_mr *mkey, unsigned access,
			    uint32_t num_dims, const uint64_t *repeat_count,
			    uint32_t num_blocks,
			    const struct ibmkey_block *blocks);

/**
 * ibv_rereg_mr_interleaved - bind a key to blocks that repeat with a stride
 * @mkey: as for ibmkey_bind_interleaved()
 * @access: as for ibmkey_bind_interleaved()
 * @num_dims: as for ibmkey_bind_interleaved()
 * @repeat_count: as for ibmkey_bind_interleaved()
 * @num_blocks: as for ibmkey_bind_interleaved()
 * @blocks: as for ibmkey_bind_interleaved()
 *
 * The name that the RFC for libibverbs gives to ibmkey_bind_interleaved().
 *
 * Return: 0 or an errno value.
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
 * Gathers or scatters blocks of a table, such as those of a KV cache, with 4 or 8
 * bytes for each block. Otherwise as ibmkey_bind_list(); @mkey->length becomes the
 * number of indices times the bytes of a block.
 *
 * Return: 0 or an errno value: EINVAL also if @layout has both sizes of indices,
 * or neither.
 */
int ibmkey_bind_indexed(struct ibv_mr *mkey, unsigned access,
			const struct ibmkey_indexed *layout);

/** enum ibmkey_bind_mask - bits of ibmkey_bind.comp_mask */
enum ibmkey_bind_mask {
	/** @IBMKEY_BIND_RKEY: @rkey is valid */
	IBMKEY_BIND_RKEY = 1 << 0,
	/**
	 * @IBMKEY_BIND_ANY_TAG: for ibmkey_describe(): while the key is unbound, a
	 * request with this description finds it by an rkey with any tag
	 */
	IBMKEY_BIND_ANY_TAG = 1 << 1,
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
 * @rkey: the lkey and rkey of the key from then on, which may differ from those
 *	before in the low 8 bits, as ibv_inc_rkey() returns it. Without
 *	IBMKEY_BIND_RKEY they stay.
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
 * @failed: if not NULL, filled in on an error: the number of the key that is the
 *	reason, @num if no key is
 *
 * All descriptions are checked completely, against the bindings before the call.
 * Then all keys are bound. It takes little longer than binding one key, because
 * it waits for the accesses by all old bindings together. Each key is replaced
 * in one step, but the keys are replaced one by one: a concurrent access may
 * find one key bound and another not yet.
 *
 * Return: 0, or an errno value; then nothing has changed. EINVAL for a key that
 * is named twice, EBUSY also for a key that another description refers to.
 */
int ibmkey_bind_many(const struct ibmkey_bind *binds, uint32_t num,
		     uint32_t *failed);

/**
 * ibmkey_describe - write the description of a layout for a work request
 * @bind: the layout; @bind->mkey, @bind->access and @bind->rkey are not used
 * @to: memory for the description, of any alignment; NULL if @room is 0
 * @room: number of bytes there
 *
 * Return: the number of bytes of the description. If it exceeds @room, nothing is
 * written. 0 and errno for a layout that cannot be described: EINVAL, EFAULT.
 */
size_t ibmkey_describe(const struct ibmkey_bind *bind, void *to, size_t room);

/**
 * struct ibmkey_wr - a work request that binds a key
 * @comp_mask: zero, see above
 * @mkey: a key in the QP's protection domain, bound or not
 * @access: enum ibv_access_flags; IBV_ACCESS_ZERO_BASED may be left out
 * @length: bytes of the description
 * @mr: an MR in the QP's protection domain that contains the description; not
 *	with on-demand paging. NULL: the description is at @addr in this process and
 *	is copied into the request, which only ibmkey_wr_bind() can do
 * @addr: address of the description: an address in @mr
 * @rkey: the lkey and rkey of the key from then on, which may differ from those
 *	before in the low 8 bits, as ibv_inc_rkey() returns it; 0: they stay
 */
struct ibmkey_wr {
	uint64_t comp_mask;
	struct ibv_mr *mkey;
	struct ibv_mr *mr;
	uint64_t addr;
	uint32_t length;
	unsigned access;
	uint32_t rkey;
};

/**
 * ibmkey_post_bind - post a work request that binds a key
 * @qp: an RC or UC QP
 * @wr: the request
 * @wr_id: for the completion
 * @send_flags: enum ibv_send_flags: IBV_SEND_SIGNALED; IBV_SEND_FENCE to wait for all
 *	earlier requests also if the key is not bound
 *
 * The request takes effect in the order of the queue: requests that are posted to
 * @qp later use the new layout, and earlier ones the old one. If the key is bound,
 * the request waits until all earlier requests have completed. It does not wait for
 * other accesses in progress, which may use the old layout until the key is
 * unbound, invalidated or destroyed. The completion has the opcode IBV_WC_BIND_MW.
 * Until then the description must stay as it is.
 *
 * If the request is refused, it completes with IBV_WC_MW_BIND_ERR, the key keeps
 * its binding, and ibmkey_query_refused() gives the reason. At most
 * ibmkey_caps.max_entries entries, blocks or indices can be bound by a request.
 * @wr->mkey->length does not change; ibmkey_query() gives the length.
 *
 * The request finds the key by @wr->mkey->rkey. This call then sets @wr->mkey->lkey
 * and rkey to those that the key has after the request, so that later requests can
 * use them. An rkey or lkey of the key from before no longer works then. If the
 * request is refused, ibmkey_query() gives the lkey and rkey that the key still has.
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
 * As for ibmkey_post_bind(). A description that is copied into the request may have
 * as many bytes as the QP's max_inline_data.
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
 * The request changes the tag of the lkey and rkey, as ibmkey_unbind() does. This
 * call sets @mkey->lkey and rkey to the new ones, ibv_inc_rkey(@mkey->rkey). A program
 * that posts IBV_WR_LOCAL_INV itself, or learns from a completion with
 * IBV_WC_WITH_INV that a peer has invalidated the key, does the same, or calls
 * ibmkey_query().
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
 * @error: the errno value of the last request that was refused, 0 if none was
 * @entry: the number of the entry or block that was the reason; the number of
 *	all of them if no single one was
 *
 * Return: 0 or an errno value; EOPNOTSUPP if the kernel has no such requests.
 */
int ibmkey_query_refused(struct ibv_mr *mkey, int *error, uint32_t *entry);

/**
 * ibmkey_last_error - say why a bind failed
 *
 * The sentence names the entry and the field, as in
 * "ranges[3].lkey 0x1234 names no MR in the protection domain of mkey". It is
 * about the last call of ibmkey_bind_list(), ibmkey_bind_interleaved(),
 * ibmkey_bind_indexed() or ibmkey_bind_many() that failed in this thread. It is
 * for people: do not compare it.
 *
 * A bind that fails takes longer by some binds of the same layout to a key of the
 * library, which find the entry.
 *
 * Return: the sentence, which stays valid until the next bind of this thread
 * fails; an empty string if none has failed. Never NULL.
 */
const char *ibmkey_last_error(void);

/**
 * ibmkey_unbind - return a key to its state after ibmkey_alloc()
 * @mkey: a key, bound or not
 *
 * When this returns, no access uses the old layout any more, and its leaves can
 * be freed. The low 8 bits of @mkey->lkey and @mkey->rkey, the tag, are
 * incremented: an lkey or rkey of the key from before never reaches a later layout,
 * unless the tag takes its value again.
 *
 * Return: 0 or an errno value.
 */
int ibmkey_unbind(struct ibv_mr *mkey);

struct ibmkey_pool;

/**
 * ibmkey_pool_create - make a pool of keys
 * @pd: protection domain of the keys, which must outlive the pool
 * @max_entries: largest number of entries or blocks of each key
 * @max_keys: largest number of keys, not zero
 *
 * The pool creates the first key now, and another one when a thread takes a key
 * and none is free. Any number of threads may use a pool at once.
 *
 * Return: the pool; or NULL and errno.
 */
struct ibmkey_pool *ibmkey_pool_create(struct ibv_pd *pd, uint32_t max_entries,
				       uint32_t max_keys);

/**
 * ibmkey_pool_get - take a key from a pool
 * @pool: a pool
 *
 * The key is unbound. If one is free, this takes a lock but no system call.
 *
 * Return: the key, which ibmkey_pool_put() returns and which must not be
 * deregistered; or NULL and errno: EAGAIN if all are in use.
 */
struct ibv_mr *ibmkey_pool_get(struct ibmkey_pool *pool);

/**
 * ibmkey_pool_put - return a key to its pool
 * @pool: a pool
 * @mkey: a key that ibmkey_pool_get() returned, bound or not
 *
 * Unbinds the key: when this returns, no access by the key is in progress. Its lkey
 * and rkey change as for ibmkey_unbind(): a peer that still uses the old rkey
 * cannot reach the layouts of the key's next owner.
 *
 * Return: 0, or an errno value; then the key is still the caller's: EBUSY while
 * a memory window or another key refers to it. EINVAL for a key that is not the
 * caller's: one that was returned before, or that is not of this pool.
 */
int ibmkey_pool_put(struct ibmkey_pool *pool, struct ibv_mr *mkey);

/**
 * ibmkey_pool_destroy - destroy a pool and its keys
 * @pool: a pool, or NULL
 *
 * Return: 0; EBUSY, with nothing changed, if a key was not returned; or another
 * errno value.
 */
int ibmkey_pool_destroy(struct ibmkey_pool *pool);

/**
 * ibmkey_import_context - use a context of another verbs library
 * @cmd_fd: the command file descriptor of an open context
 *
 * For bindings of other languages, whose objects have a descriptor and handles,
 * but no pointers of libibverbs. The context works with the functions of this
 * header, and after ibmkey_enable() with the device-memory verbs. libibverbs's other functions
 * must not be called on it. Keys and MRs that are made with it are destroyed by
 * ibmkey_dereg(), not by ibv_dereg_mr(). The descriptor is duplicated: objects of the context
 * stay until both are closed.
 *
 * Return: the context, to be closed by ibmkey_unimport_context(); or NULL and
 * errno.
 */
struct ibv_context *ibmkey_import_context(int cmd_fd);

/**
 * ibmkey_unimport_context - close an imported context
 * @ctx: of ibmkey_import_context(), or NULL; nothing made with it is used any
 *	more
 */
void ibmkey_unimport_context(struct ibv_context *ctx);

/**
 * ibmkey_import_pd - use a protection domain of another verbs library
 * @ctx: of ibmkey_import_context()
 * @pd_handle: the handle of the protection domain in the kernel, as in struct
 *	ibv_pd. A handle that names none is ENOENT or EINVAL where it is used.
 *
 * Return: the protection domain, to be freed by ibmkey_unimport_pd(), which does
 * not deallocate it; or NULL and errno.
 */
struct ibv_pd *ibmkey_import_pd(struct ibv_context *ctx, uint32_t pd_handle);

/**
 * ibmkey_unimport_pd - free an imported protection domain
 * @pd: of ibmkey_import_pd(), or NULL; nothing made with it is used any more
 */
void ibmkey_unimport_pd(struct ibv_pd *pd);

/**
 * ibmkey_reg_iov - register scattered memory as one key
 * @pd: the protection domain
 * @iov: the memory, in the order of the key's bytes; elements may be empty, may
 *	overlap and may be equal
 * @num_iov: number of elements, not zero
 * @access: enum ibv_access_flags, of the key and of the MRs under it
 *
 * Registers the memory and binds a new key to it, as a list with one entry for
 * each element that does not continue the one before. The key owns the MRs. Each
 * page is registered once, however many elements are in it: an MR reaches from
 * the first to the last byte of elements whose pages follow each other.
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
 * ibmkey_dereg - destroy a key and what it owns
 * @mkey: a key that ibmkey_reg_iov() or ibmkey_alloc() returned, or an MR over
 *	device memory or a dma-buf that this library registered
 *
 * Unbinds the key, deregisters the MRs that it owns, and destroys it. Keys of
 * ibmkey_alloc(), and MRs, own none.
 *
 * Return: 0, or an errno value; then the key still exists: EBUSY while a memory
 * window or another key refers to it. If another key refers to an MR that it
 * owns, this is EBUSY too; the key is unbound then, and the call can be
 * repeated.
 */
int ibmkey_dereg(struct ibv_mr *mkey);

/**
 * ibmkey_query - query the binding of a key
 * @mkey: a key
 * @info: filled in
 *
 * Return: 0; EINVAL if @mkey is not a key; or another errno value.
 */
int ibmkey_query(struct ibv_mr *mkey, struct ibmkey_info *info);

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
 * As for ibmkey_query_layout(), which stores nothing of an indexed layout. For
 * other layouts, this stores only @info.
 *
 * Return: 0 or an errno value.
 */
int ibmkey_query_indexed(struct ibv_mr *mkey, struct ibmkey_info *info,
			 struct ibmkey_indexed *layout, uint32_t max_indices,
			 uint64_t *indices);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_MKEY_H */
