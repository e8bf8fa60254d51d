/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Device memory and indirect memory keys for kernel users of RDMA.
 *
 * All functions may sleep unless they say otherwise.
 * Documentation/infiniband/mkey/uapi.rst lists the errors. On a device that ib_mkey
 * does not extend, all of them fail with -EOPNOTSUPP.
 *
 * Scatterlists with gaps need no function of this header: an extended device
 * has IBK_SG_GAPS_REG, and the verbs for IB_MR_TYPE_SG_GAPS work.
 */
#ifndef IB_MKEY_H
#define IB_MKEY_H

#include <rdma/ib_verbs.h>
#include <rdma/ib_mkey_ioctl.h>

struct dma_buf;
struct sg_table;

/* The structures that processes and kernel users share, under the names of this header. */
#define ib_mkey_caps ib_uverbs_mkey_caps
#define ib_mkey_refused ib_uverbs_mkey_refused

/**
 * ib_alloc_dm() - allocate device memory
 * @device: an extended device
 * @attr: length in bytes; alignment of its physical address as a power of two,
 *	at most that of the largest block of the page allocator; no flags
 *
 * The memory is of the device's default class and is zero. It belongs to the
 * caller until ib_free_dm().
 *
 * Return: the memory, or ERR_PTR(): -EINVAL for a length of zero or above 32
 * bits, for an invalid alignment, or for a flag; -ENOMEM beyond a limit or
 * without memory; -EOPNOTSUPP if the machine lacks the memory of the class; -EBUSY
 * if another user has the persistent memory open.
 */
struct ib_dm *ib_alloc_dm(struct ib_device *device,
			  const struct ib_dm_alloc_attr *attr);

/**
 * ib_alloc_dm_class() - allocate device memory of a class
 * @device: an extended device
 * @attr: as for ib_alloc_dm()
 * @dm_class: IB_MKEY_DM_HOST, IB_MKEY_DM_NODE(n), IB_MKEY_DM_P2P(domain, bus,
 *	devfn), IB_MKEY_DM_PMEM(n), or 0 for the device's default. With
 *	IB_MKEY_DM_COHERENT, only memory that the caches of the processor are coherent with
 *
 * Return: as for ib_alloc_dm(); -EINVAL also for an invalid class, -EOPNOTSUPP
 * for a class that the device does not offer.
 */
struct ib_dm *ib_alloc_dm_class(struct ib_device *device,
				const struct ib_dm_alloc_attr *attr, u64 dm_class);

/**
 * ib_query_dm_class() - query the class of device memory
 * @dm: memory of ib_alloc_dm() or ib_alloc_dm_class()
 * @dm_class: set to a value for ib_alloc_dm_class(): the class, with its number if it has one,
 *	and IB_MKEY_DM_COHERENT if the caches of the processor are coherent with the memory
 *
 * Return: 0, or -EOPNOTSUPP for memory that ib_mkey does not provide.
 */
int ib_query_dm_class(struct ib_dm *dm, u64 *dm_class);

/**
 * ib_free_dm() - free device memory
 * @dm: memory of ib_alloc_dm() or ib_alloc_dm_class()
 *
 * Return: 0, or -EBUSY while an MR is registered over it.
 */
int ib_free_dm(struct ib_dm *dm);

/**
 * ib_reg_dm_mr() - register an MR over device memory
 * @pd: the caller's protection domain, of the same device
 * @dm: memory of ib_alloc_dm() or ib_alloc_dm_class()
 * @dm_offset: first byte
 * @length: bytes; no access reaches a byte of an MR of zero bytes
 * @access: enum ib_access_flags
 *
 * The MR is zero-based. Its lkey and rkey are valid when this returns.
 * ib_dereg_mr() deregisters it.
 *
 * Return: the MR, or ERR_PTR(): -EINVAL if the range is not within @dm, if @dm
 * belongs to another device or if access flags are invalid, -EOPNOTSUPP for access
 * flags that the memory does not support, -ENOMEM.
 */
struct ib_mr *ib_reg_dm_mr(struct ib_pd *pd, struct ib_dm *dm, u64 dm_offset,
			   u64 length, int access);

/**
 * ib_memcpy_to_dm() - copy to device memory
 * @dm: memory of ib_alloc_dm() or ib_alloc_dm_class()
 * @dm_offset: first byte
 * @host_addr: source
 * @length: bytes; zero copies nothing
 *
 * Context: any. Does not sleep.
 * Return: 0, or -EINVAL if the range is not within @dm; then nothing is copied.
 */
int ib_memcpy_to_dm(struct ib_dm *dm, u64 dm_offset, const void *host_addr,
		    size_t length);

/**
 * ib_memcpy_from_dm() - copy from device memory
 * @host_addr: destination
 * @dm: memory of ib_alloc_dm() or ib_alloc_dm_class()
 * @dm_offset: first byte
 * @length: bytes; zero copies nothing
 *
 * Context: any. Does not sleep.
 * Return: 0, or -EINVAL if the range is not within @dm; then nothing is copied.
 */
int ib_memcpy_from_dm(void *host_addr, struct ib_dm *dm, u64 dm_offset,
		      size_t length);

/**
 * ib_dm_to_sgt() - the pages of device memory, for a device to read or write
 * @dm: memory of ib_alloc_dm() or ib_alloc_dm_class()
 * @dm_offset: first byte
 * @length: bytes, not zero
 * @sgt: the table to fill in; not mapped for DMA
 *
 * The caller frees @sgt with sg_free_table() before it frees @dm.
 *
 * The pages are RAM, persistent memory or memory of a PCI device, depending on the
 * class of @dm. A device that gets them must support that kind of memory (block
 * devices: BLK_FEAT_PCI_P2PDMA).
 *
 * Return: 0, -EINVAL if the range is not within @dm, or -ENOMEM.
 */
int ib_dm_to_sgt(struct ib_dm *dm, u64 dm_offset, u64 length,
		 struct sg_table *sgt);

/**
 * ib_export_dm() - export device memory as a dma-buf
 * @dm: memory of ib_alloc_dm() or ib_alloc_dm_class()
 *
 * All calls for one @dm return the same dma-buf. Each call takes a reference, which
 * the caller drops with dma_buf_put(). ib_free_dm() revokes the dma-buf: mappings
 * of user space are removed, importers are told to release it, and it cannot be
 * mapped any more. The memory stays until the last importer has released the
 * dma-buf.
 *
 * Return: the dma-buf, or ERR_PTR(): -EOPNOTSUPP for memory that ib_mkey does not
 * provide, -ENOMEM.
 */
struct dma_buf *ib_export_dm(struct ib_dm *dm);

/**
 * struct ib_mkey_block - a repeated block of a leaf
 * @addr: first byte of the block at index zero of every dimension: an address
 *	in the MR that @lkey names, or a DMA address for the local DMA lkey
 * @bytes_count: bytes of one block, not zero
 * @lkey: lkey of an MR in the key's protection domain
 * @stride: for each dimension, outermost first, the bytes from the start of one
 *	repetition to the start of the next; may be negative or zero; strides of
 *	unused dimensions are ignored
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
 * Each index tuple gives the bytes of block 0, then those of block 1, and so on.
 * Block b starts at its address plus, for each dimension, the index times the
 * block's stride.
 */
struct ib_mkey_interleaved {
	u32 num_dims;
	u32 num_blocks;
	const u64 *repeat_count;
	const struct ib_mkey_block *blocks;
};

/**
 * struct ib_mkey_indexed - blocks of one size at the places that indices give
 * @addr: first byte of the block of index zero: an address in the MR that
 *	@lkey names, a DMA address for the local DMA lkey
 * @unit: distance between the blocks of index i and i + 1 in bytes, not zero
 * @bytes_count: bytes of a block, not zero
 * @indices32: the indices, or NULL if @indices64 is set
 * @indices64: the indices, or NULL if @indices32 is set
 * @num_indices: number of indices, not zero
 * @lkey: lkey of an MR in the key's protection domain
 *
 * The block of index i starts at @addr + i * @unit. The blocks follow each other
 * in the order of the indices. Indices may be equal. A bind takes 4 bytes of memory
 * for each index of @indices32 and 8 bytes for each index of @indices64.
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
 * ib_alloc_mkey() - make an unbound key
 * @pd: the caller's protection domain
 * @max_entries: entries, blocks or indices that can be bound, 1 to
 *	IB_MKEY_MAX_INDICES; entries and blocks at most
 *	IB_MKEY_MAX_ENTRIES
 *
 * ib_dereg_mr() deregisters the key.
 *
 * Return: the key, or ERR_PTR(): -EINVAL if @max_entries is out of range, -ENOMEM.
 */
struct ib_mr *ib_alloc_mkey(struct ib_pd *pd, u32 max_entries);

/**
 * ib_bind_mkey_list() - bind ranges, one after another
 * @mkey: key of ib_alloc_mkey()
 * @sg_list: the ranges
 * @num_sge: number of ranges
 * @access: enum ib_access_flags
 *
 * Replaces the binding. Accesses through the old binding have ended when this
 * returns.
 *
 * The low 8 bits of @mkey->lkey and @mkey->rkey, the key portion, stay. To change the key portion
 * together with the layout, call ib_update_fast_reg_key() before: peers that use
 * the old rkey can then reach neither layout. The call takes the key portion in @mkey->rkey
 * only if the caller has changed it since the last bind or unbind.
 *
 * Return: 0, or a negative errno; then nothing has changed.
 */
int ib_bind_mkey_list(struct ib_mr *mkey, const struct ib_sge *sg_list,
		      u32 num_sge, int access);

/**
 * ib_bind_mkey_interleaved() - bind blocks that repeat
 * @mkey: key of ib_alloc_mkey()
 * @layout: the blocks
 * @access: enum ib_access_flags
 *
 * Replaces the binding as ib_bind_mkey_list() does.
 *
 * Return: 0, or a negative errno; then nothing has changed.
 */
int ib_bind_mkey_interleaved(struct ib_mr *mkey,
			     const struct ib_mkey_interleaved *layout, int access);

/**
 * ib_bind_mkey_indexed() - bind blocks of one size at the places of indices
 * @mkey: key of ib_alloc_mkey()
 * @layout: the blocks; its indices are copied
 * @access: enum ib_access_flags
 *
 * Replaces the binding as ib_bind_mkey_list() does.
 *
 * Return: 0, or a negative errno; then nothing has changed. -EINVAL also if
 * @layout has both sizes of indices, or neither.
 */
int ib_bind_mkey_indexed(struct ib_mr *mkey,
			 const struct ib_mkey_indexed *layout, int access);

/* The largest number of layouts that can be staged for a key at the same time. */
#define IB_MKEY_MAX_STAGED 4

/**
 * ib_map_mkey_list() - stage ranges, one after another, for a work request
 * @mkey: key of ib_alloc_mkey()
 * @sg_list: the ranges
 * @num_sge: number of ranges, at most IB_MKEY_MAX_ENTRIES
 *
 * Copies the description into the key, under the rkey that @mkey has now. The
 * binding stays. An ib_reg_wr with opcode IB_WR_REG_MR binds the key to the
 * layout that is staged under the rkey in its field key, and removes that layout
 * from the staged ones:
 *
 *	ib_update_fast_reg_key(mkey, ib_inc_rkey(mkey->rkey));
 *	ret = ib_map_mkey_list(mkey, sg_list, num_sge);
 *	...
 *	reg.wr.opcode = IB_WR_REG_MR;
 *	reg.mr = mkey;
 *	reg.key = mkey->rkey;
 *	reg.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ;
 *
 * Requests that are posted later on the queue see the new layout, through the new
 * lkey and rkey. Earlier requests see the old layout. A request that binds a bound
 * key waits until all earlier requests of its queue have completed. IB_WR_LOCAL_INV
 * with the rkey of the last bind unbinds the key. So does IB_WR_SEND_WITH_INV of a
 * peer, if the access flags of the bind have a remote one. No access by the key is in
 * progress when that request completes.
 *
 * Up to IB_MKEY_MAX_STAGED layouts can be staged at a time, each under its own
 * rkey. A layout replaces the one that is staged under the same rkey.
 * ib_unbind_mkey() drops all of them.
 *
 * This function checks only what depends on the description alone. The request
 * looks the leaves up when it executes, so an earlier request of the queue may
 * register a leaf. The request completes with IB_WC_MW_BIND_ERR if
 * ib_bind_mkey_list() would fail, if no layout is staged under its rkey, or if the
 * key is in another protection domain than the queue pair. Then the key keeps its
 * binding.
 *
 * The caller deregisters the key after the queue pair is drained, as for any MR
 * with work requests.
 *
 * Context: any that may post work requests. Does not sleep. Allocates memory only
 * if the memory that the key keeps of an earlier description is too short.
 * Return: 0, or a negative errno; then nothing has changed: -EINVAL without
 * ranges and for a range without bytes, -ENOSPC for too many ranges, -EOVERFLOW,
 * -EBUSY if IB_MKEY_MAX_STAGED other layouts are staged, -ENOMEM.
 */
int ib_map_mkey_list(struct ib_mr *mkey, const struct ib_sge *sg_list,
		     u32 num_sge);

/**
 * ib_map_mkey_interleaved() - stage blocks that repeat, for a work request
 * @mkey: key of ib_alloc_mkey()
 * @layout: the blocks
 *
 * Stages the layout as ib_map_mkey_list() does.
 *
 * Context: any that may post work requests. Does not sleep.
 * Return: 0, or a negative errno as of ib_map_mkey_list(). -EINVAL also for a
 * repetition of zero, and for no dimension or more than IB_MKEY_MAX_DIMS.
 */
int ib_map_mkey_interleaved(struct ib_mr *mkey,
			    const struct ib_mkey_interleaved *layout);

/**
 * ib_map_mkey_indexed() - stage blocks of one size at the places of indices, for a
 *	work request
 * @mkey: key of ib_alloc_mkey()
 * @layout: the blocks, at most IB_MKEY_MAX_ENTRIES; its indices are copied
 *
 * Stages the layout as ib_map_mkey_list() does.
 *
 * Context: any that may post work requests. Does not sleep.
 * Return: 0, or a negative errno as of ib_map_mkey_list(). -EINVAL also for a unit
 * of zero, and if @layout has both sizes of indices, or neither.
 */
int ib_map_mkey_indexed(struct ib_mr *mkey,
			const struct ib_mkey_indexed *layout);

/**
 * struct ib_mkey_bind - the description for one of several keys, or with a base address
 * @mkey: key of ib_alloc_mkey()
 * @access: enum ib_access_flags
 * @interleaved: an interleaved layout, or NULL
 * @indexed: an indexed layout, or NULL; ignored if @interleaved is set
 * @sg_list: the ranges of a list; ignored if @interleaved or @indexed is set
 * @num_sge: number of ranges
 * @base_addr: base address: the address of the first byte of the key
 */
struct ib_mkey_bind {
	struct ib_mr *mkey;
	int access;
	u32 num_sge;
	u64 base_addr;
	const struct ib_mkey_interleaved *interleaved;
	const struct ib_mkey_indexed *indexed;
	const struct ib_sge *sg_list;
};

/**
 * ib_bind_mkeys() - bind several keys, all of them or none
 * @binds: keys of one device, each named once, and a description for each
 * @num: number of keys, 1 to IB_MKEY_MAX_BINDS
 * @failed: if the call fails, set to the number of the key that caused the error,
 *	or to @num if no single key did; after -ENOMEM any number up to @num; may be
 *	NULL
 *
 * All descriptions are checked completely, against the bindings before the call.
 * Then all keys are bound. Accesses through the old bindings have ended when this
 * returns. During the call, an access may find the new binding of one key and the
 * old binding of another.
 *
 * Return: 0, or a negative errno as of ib_bind_mkey_list(); then nothing has
 * changed. -EINVAL for a key that is named twice or belongs to another device;
 * -EBUSY also for a key that another description refers to.
 */
int ib_bind_mkeys(const struct ib_mkey_bind *binds, u32 num, u32 *failed);

/**
 * ib_map_mkey() - stage a layout with a base address, for a work request
 * @bind: the key and the layout; its access flags are not used
 *
 * Stages the layout as ib_map_mkey_list() does. The addresses of the key begin at
 * @bind->base_addr when the request has bound it.
 *
 * Context: any that may post work requests. Does not sleep.
 * Return: 0, or a negative errno as of ib_map_mkey_list() and the other functions that
 * stage the kind of layout.
 */
int ib_map_mkey(const struct ib_mkey_bind *bind);

/**
 * ib_query_mkey_refused() - query why a key was not bound
 * @mkey: the key
 * @refused: the reason for which a function of this header, or a work request, last
 *	refused to bind @mkey or to map a layout to it; all zero but its entry, which is
 *	IB_MKEY_NO_ENTRY, if none did
 *
 * Context: process.
 * Return: 0, or -EINVAL for an MR that is not a key.
 */
int ib_query_mkey_refused(struct ib_mr *mkey, struct ib_mkey_refused *refused);

/**
 * ib_unbind_mkey() - return a key to its state after ib_alloc_mkey()
 * @mkey: the key
 *
 * No access by the key is in progress when this returns. The key portion is incremented,
 * as by ib_inc_rkey(), in @mkey->lkey and @mkey->rkey too: a peer that still uses
 * the old rkey does not reach a later layout. LOCAL_INV and SEND with invalidate
 * increment the key portion but not these fields, which the caller may write at the
 * same time. The next ib_bind_mkey_list(), and functions like it, set them to the
 * incremented key portion, unless the caller has changed them since the last bind.
 * Drops the layouts that are staged for the key.
 *
 * Return: 0, or a negative errno; then nothing has changed: -EINVAL for an MR that
 * is not a key, -EBUSY while a memory window or another key refers to the key.
 */
int ib_unbind_mkey(struct ib_mr *mkey);

/**
 * ib_query_mkey_caps() - query the limits of a device
 * @device: any device
 * @caps: the structure to fill in
 *
 * Return: 0, or -EOPNOTSUPP if ib_mkey does not extend @device.
 */
int ib_query_mkey_caps(struct ib_device *device, struct ib_mkey_caps *caps);

struct ib_mkey_pool;

/**
 * ib_mkey_pool_create() - make a pool of keys
 * @pd: the caller's protection domain, which must outlive the pool
 * @max_entries: entries, blocks or indices of each key, as for ib_alloc_mkey()
 * @nr: number of keys, not zero
 *
 * Return: the pool, or ERR_PTR() as of ib_alloc_mkey(); -EINVAL also if @nr is zero.
 */
struct ib_mkey_pool *ib_mkey_pool_create(struct ib_pd *pd, u32 max_entries,
					 u32 nr);

/**
 * ib_mkey_pool_get() - take a key from a pool
 * @pool: the pool
 *
 * The key is unbound. The caller returns it with ib_mkey_pool_put(), and must not
 * deregister it.
 *
 * Context: process. Does not sleep.
 * Return: the key, or NULL if all are in use.
 */
struct ib_mr *ib_mkey_pool_get(struct ib_mkey_pool *pool);

/**
 * ib_mkey_pool_put() - return a key to its pool
 * @pool: the pool
 * @mkey: key of ib_mkey_pool_get(), bound or not
 *
 * Unbinds the key, as ib_unbind_mkey() does. A peer that still uses the old rkey
 * does not reach the layouts of the next owner.
 *
 * Context: process. Sleeps, as ib_unbind_mkey() does.
 * Return: 0; -EBUSY while a memory window or another key refers to the key, which
 * the caller then keeps; -EINVAL for a key that was returned before, or that is not
 * of this pool.
 */
int ib_mkey_pool_put(struct ib_mkey_pool *pool, struct ib_mr *mkey);

/**
 * ib_mkey_pool_destroy() - destroy a pool and its keys
 * @pool: the pool
 *
 * Return: 0, or -EBUSY if a key was not returned; then nothing has changed.
 */
int ib_mkey_pool_destroy(struct ib_mkey_pool *pool);

#endif /* IB_MKEY_H */
