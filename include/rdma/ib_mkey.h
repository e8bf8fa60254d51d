/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Device memory and indirect memory keys for kernel users of RDMA.
 *
 * All functions may sleep unless they say otherwise. Errors are those of
 * Documentation/infiniband/mkey/api/uverbs.rst. A device that ib_mkey does not extend
 * gives -EOPNOTSUPP.
 *
 * Scatterlists with gaps need nothing of this: an extended device has
 * IBK_SG_GAPS_REG, and the verbs for IB_MR_TYPE_SG_GAPS work.
 */
#ifndef IB_MKEY_H
#define IB_MKEY_H

#include <rdma/ib_verbs.h>
#include <rdma/ib_mkey_ioctl.h>

struct dma_buf;
struct sg_table;

/**
 * ib_alloc_dm() - allocate device memory
 * @device: an extended device
 * @attr: length in bytes; alignment of its physical address as a power of two,
 *	at most that of the largest block of the page allocator; in flags, which
 *	class of memory: IB_MKEY_DM_HOST, IB_MKEY_DM_NODE(n),
 *	IB_MKEY_DM_P2P(domain, bus, devfn), IB_MKEY_DM_PMEM(n), or 0 for the
 *	device's default
 *
 * The memory is zero. It belongs to the caller until ib_free_dm().
 *
 * Return: the memory, or ERR_PTR(): -EINVAL for a length of zero or above 32
 * bits, for an alignment or a class that there is not; -EOPNOTSUPP for a class
 * that the device does not offer; -ENOMEM beyond a quota or without memory.
 */
struct ib_dm *ib_alloc_dm(struct ib_device *device,
			  const struct ib_dm_alloc_attr *attr);

/**
 * ib_free_dm() - free device memory
 * @dm: memory of ib_alloc_dm()
 *
 * Return: 0, or -EBUSY while a region is registered over it.
 */
int ib_free_dm(struct ib_dm *dm);

/**
 * ib_reg_dm_mr() - register a region over device memory
 * @pd: protection domain of the caller's, of the same device
 * @dm: memory of ib_alloc_dm()
 * @dm_offset: first byte
 * @length: bytes; through a region of none, no access reaches a byte
 * @access: enum ib_access_flags
 *
 * The region's addresses are 0 to @length. Its lkey and rkey work as soon as
 * this returns. It is deregistered by ib_dereg_mr().
 *
 * Return: the region, or ERR_PTR(): -EINVAL out of range, -ENOMEM.
 */
struct ib_mr *ib_reg_dm_mr(struct ib_pd *pd, struct ib_dm *dm, u64 dm_offset,
			   u64 length, int access);

/**
 * ib_memcpy_to_dm() - copy to device memory
 * @dm: memory of ib_alloc_dm()
 * @dm_offset: first byte
 * @host_addr: from where
 * @length: bytes; zero copies nothing
 *
 * Context: any. Does not sleep.
 * Return: 0, or -EINVAL out of range, with nothing copied.
 */
int ib_memcpy_to_dm(struct ib_dm *dm, u64 dm_offset, const void *host_addr,
		    size_t length);

/**
 * ib_memcpy_from_dm() - copy from device memory
 * @host_addr: to where
 * @dm: memory of ib_alloc_dm()
 * @dm_offset: first byte
 * @length: bytes; zero copies nothing
 *
 * Context: any. Does not sleep.
 * Return: 0, or -EINVAL out of range, with nothing copied.
 */
int ib_memcpy_from_dm(void *host_addr, struct ib_dm *dm, u64 dm_offset,
		      size_t length);

/**
 * ib_dm_to_sgt() - the pages of device memory, for a device to read or write
 * @dm: memory of ib_alloc_dm()
 * @dm_offset: first byte
 * @length: bytes, not zero
 * @sgt: filled in, not mapped for DMA; freed by sg_free_table(), before @dm is
 *
 * The pages are RAM, persistent memory or memory of a PCI device, by the class that
 * was asked for. A device that gets them must support that class (block devices:
 * BLK_FEAT_PCI_P2PDMA).
 *
 * Return: 0, -EINVAL out of range, or -ENOMEM.
 */
int ib_dm_to_sgt(struct ib_dm *dm, u64 dm_offset, u64 length,
		 struct sg_table *sgt);

/**
 * ib_export_dm() - device memory as a dma-buf
 * @dm: memory of ib_alloc_dm()
 *
 * All calls for one @dm give the same dma-buf, each with a reference that the
 * caller puts. After ib_free_dm() it cannot be mapped any more: mappings of user
 * space are taken away, importers are told to let go. The memory stays until
 * the last of these has.
 *
 * Return: the dma-buf, or ERR_PTR(): -EOPNOTSUPP, -ENOMEM.
 */
struct dma_buf *ib_export_dm(struct ib_dm *dm);

/**
 * struct ib_mkey_block - a repeated block of a leaf
 * @addr: first byte of the block at index zero of every dimension: an address
 *	in the region that @lkey names, a DMA address for the local DMA lkey
 * @bytes_count: bytes of one block, not zero
 * @lkey: lkey of a region in the key's protection domain
 * @stride: bytes from one block's start to the next one's, for each dimension,
 *	outermost first; may be negative; those of unused dimensions are ignored
 */
struct ib_mkey_block {
	u64 addr;
	u64 bytes_count;
	u32 lkey;
	s64 stride[IB_MKEY_MAX_DIMS];
};

/**
 * struct ib_mkey_interleaved - blocks that repeat
 * @num_dims: dimensions, 1 to IB_MKEY_MAX_DIMS
 * @num_blocks: blocks of one repetition, not zero
 * @repeat_count: repetitions in each dimension, outermost first, none zero
 * @blocks: the blocks, in the order in which their bytes follow each other
 *
 * For each index tuple come block 0's bytes, block 1's and so on. Block b starts
 * at its address plus, for each dimension, the index times the block's stride.
 */
struct ib_mkey_interleaved {
	u32 num_dims;
	u32 num_blocks;
	const u64 *repeat_count;
	const struct ib_mkey_block *blocks;
};

/**
 * struct ib_mkey_indexed - blocks of one size where indices say
 * @addr: first byte of the block of index zero: an address in the region that
 *	@lkey names, a DMA address for the local DMA lkey
 * @unit: bytes from the block of one index to that of the next, not zero
 * @bytes_count: bytes of a block, not zero
 * @indices32: the indices; NULL if @indices64 has them
 * @indices64: the indices; NULL if @indices32 has them
 * @num_indices: how many, not zero
 * @lkey: lkey of a region in the key's protection domain
 *
 * The block of index i starts at @addr + i * @unit. Blocks follow each other in
 * the order of the indices, of which any number may be equal. A bind takes 4 or 8
 * bytes of memory for each, as the caller has them.
 */
struct ib_mkey_indexed {
	u64 addr;
	u64 unit;
	u64 bytes_count;
	const u32 *indices32;
	const u64 *indices64;
	u32 num_indices;
	u32 lkey;
};

/**
 * struct ib_mkey_caps - what a device can do
 * @max_dm_size: device memory in bytes, for all users together
 * @flags: bits of enum ib_uverbs_mkey_cap_flags
 * @max_entries: entries or blocks of one key
 * @max_dims: dimensions of an interleaved layout
 * @max_depth: levels of keys over keys
 * @dm_classes: bits of enum ib_uverbs_mkey_dm_class
 * @max_indices: indices of one key
 */
struct ib_mkey_caps {
	u64 max_dm_size;
	u64 flags;
	u32 max_entries;
	u32 max_dims;
	u32 max_depth;
	u32 dm_classes;
	u32 max_indices;
};

/**
 * ib_alloc_mkey() - make an unbound key
 * @pd: protection domain of the caller's
 * @max_entries: entries, blocks or indices that can be bound, 1 to
 *	IB_MKEY_MAX_INDICES; of entries and blocks never more than
 *	IB_MKEY_MAX_ENTRIES
 *
 * The key is deregistered by ib_dereg_mr().
 *
 * Return: the key, or ERR_PTR().
 */
struct ib_mr *ib_alloc_mkey(struct ib_pd *pd, u32 max_entries);

/**
 * ib_bind_mkey_list() - bind ranges, one after another
 * @mkey: key of ib_alloc_mkey()
 * @sg_list: the ranges
 * @num_sge: how many
 * @access: enum ib_access_flags
 *
 * Replaces what is bound. Accesses to that have ended when this returns.
 *
 * Return: 0 or a negative errno, with nothing changed.
 */
int ib_bind_mkey_list(struct ib_mr *mkey, const struct ib_sge *sg_list,
		      u32 num_sge, int access);

/**
 * ib_bind_mkey_interleaved() - bind blocks that repeat
 * @mkey: key of ib_alloc_mkey()
 * @layout: the blocks
 * @access: enum ib_access_flags
 *
 * As ib_bind_mkey_list().
 *
 * Return: 0 or a negative errno, with nothing changed.
 */
int ib_bind_mkey_interleaved(struct ib_mr *mkey,
			     const struct ib_mkey_interleaved *layout, int access);

/**
 * ib_bind_mkey_indexed() - bind blocks of one size where indices say
 * @mkey: key of ib_alloc_mkey()
 * @layout: the blocks; its indices are copied
 * @access: enum ib_access_flags
 *
 * As ib_bind_mkey_list().
 *
 * Return: 0 or a negative errno, with nothing changed: -EINVAL also for both
 * sizes of indices or neither.
 */
int ib_bind_mkey_indexed(struct ib_mr *mkey,
			 const struct ib_mkey_indexed *layout, int access);

/**
 * struct ib_mkey_bind - what is to be bound to one of several keys
 * @mkey: key of ib_alloc_mkey()
 * @access: enum ib_access_flags
 * @interleaved: blocks that repeat; NULL for another layout
 * @indexed: otherwise, blocks where indices say; NULL for a list
 * @sg_list: otherwise, ranges, one after another
 * @num_sge: how many
 * @error: filled in, a negative errno if this is why the call failed, or 0
 */
struct ib_mkey_bind {
	struct ib_mr *mkey;
	int access;
	u32 num_sge;
	const struct ib_mkey_interleaved *interleaved;
	const struct ib_mkey_indexed *indexed;
	const struct ib_sge *sg_list;
	int error;
};

/**
 * ib_bind_mkeys() - bind several keys, all of them or none
 * @binds: keys of one device, none twice, and what is to be bound to each
 * @num: how many, 1 to IB_MKEY_MAX_BINDS
 *
 * All descriptions are checked completely, against what is bound before the
 * call; then all are bound, and accesses to what was bound have ended when this
 * returns. It takes one grace period. An access that runs meanwhile may find one
 * key bound and another not yet.
 *
 * Return: 0, or a negative errno as of ib_bind_mkey_list(), with nothing changed;
 * -EINVAL for a key that is there twice or of another device; -EBUSY also for a
 * key that another one's description refers to.
 */
int ib_bind_mkeys(struct ib_mkey_bind *binds, u32 num);

/**
 * ib_unbind_mkey() - return a key to its state after ib_alloc_mkey()
 * @mkey: the key
 *
 * No access through the key is left when this returns.
 *
 * Return: 0; or, with nothing changed, -EINVAL for a region that is no key, -EBUSY
 * while a memory window or another key refers to the key.
 */
int ib_unbind_mkey(struct ib_mr *mkey);

/**
 * ib_query_mkey_caps() - ask what a device can do
 * @device: any device
 * @caps: filled in
 *
 * Return: 0, or -EOPNOTSUPP.
 */
int ib_query_mkey_caps(struct ib_device *device, struct ib_mkey_caps *caps);

struct ib_mkey_pool;

/**
 * ib_mkey_pool_create() - make keys that are used again and again
 * @pd: protection domain of the caller's, to stay until the pool is destroyed
 * @max_entries: entries or blocks that can be bound to each
 * @nr: how many keys, not zero
 *
 * Return: the pool, or ERR_PTR().
 */
struct ib_mkey_pool *ib_mkey_pool_create(struct ib_pd *pd, u32 max_entries,
					 u32 nr);

/**
 * ib_mkey_pool_get() - take a key from a pool
 * @pool: the pool
 *
 * The key is bound to nothing. It goes back by ib_mkey_pool_put() and must not be
 * deregistered.
 *
 * Context: process. Does not sleep.
 * Return: the key, or NULL if all are in use.
 */
struct ib_mr *ib_mkey_pool_get(struct ib_mkey_pool *pool);

/**
 * ib_mkey_pool_put() - give a key back to its pool
 * @pool: the pool
 * @mkey: key of ib_mkey_pool_get(), bound or not
 *
 * Unbinds it: no access through it is left when this returns. Its rkey stays what
 * it is: a peer that still uses it reaches what the next owner binds.
 *
 * Context: process. Sleeps, as ib_unbind_mkey() does.
 * Return: 0; or, and the key is still the caller's, -EBUSY while a memory window or
 * another key refers to it, -EINVAL for a key that is not of the pool.
 */
int ib_mkey_pool_put(struct ib_mkey_pool *pool, struct ib_mr *mkey);

/**
 * ib_mkey_pool_destroy() - destroy a pool and its keys
 * @pool: the pool
 *
 * Return: 0, or -EBUSY, with nothing done, if a key has not been given back.
 */
int ib_mkey_pool_destroy(struct ib_mkey_pool *pool);

#endif /* IB_MKEY_H */
