/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Device memory and indirect memory keys for kernel users of RDMA.
 *
 * All functions may sleep unless they say otherwise. Errors are those of
 * Documentation/infiniband/mkey/uapi.rst. A device that ib_mkey does not extend
 * gives -EOPNOTSUPP.
 */
#ifndef IB_MKEY_H
#define IB_MKEY_H

#include <rdma/ib_verbs.h>
#include <rdma/ib_mkey_ioctl.h>

struct ib_dm *ib_alloc_dm(struct ib_device *device,
			  const struct ib_dm_alloc_attr *attr);
int ib_free_dm(struct ib_dm *dm);
struct ib_mr *ib_reg_dm_mr(struct ib_pd *pd, struct ib_dm *dm, u64 dm_offset,
			   u64 length, int access);
int ib_memcpy_to_dm(struct ib_dm *dm, u64 dm_offset, const void *host_addr,
		    size_t length);
int ib_memcpy_from_dm(void *host_addr, struct ib_dm *dm, u64 dm_offset,
		      size_t length);

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
 * For each index tuple come block 0's bytes, block 1's and so on; block b starts
 * at @addr + sum(index[d] * @stride[d]).
 */
struct ib_mkey_interleaved {
	u32 num_dims;
	u32 num_blocks;
	const u64 *repeat_count;
	const struct ib_mkey_block *blocks;
};

/**
 * struct ib_mkey_caps - what a device can do
 * @max_dm_size: device memory in bytes, for all users together
 * @flags: bits of enum ib_uverbs_mkey_cap_flags
 * @max_entries: entries or blocks of one key
 * @max_dims: dimensions of an interleaved layout
 * @max_depth: levels of keys over keys
 * @dm_classes: bits of enum ib_uverbs_mkey_dm_class
 */
struct ib_mkey_caps {
	u64 max_dm_size;
	u64 flags;
	u32 max_entries;
	u32 max_dims;
	u32 max_depth;
	u32 dm_classes;
};

struct ib_mr *ib_alloc_mkey(struct ib_pd *pd, u32 max_entries);
int ib_bind_mkey_list(struct ib_mr *mkey, const struct ib_sge *sg_list,
		      u32 num_sge, int access);
int ib_bind_mkey_interleaved(struct ib_mr *mkey,
			     const struct ib_mkey_interleaved *layout, int access);
int ib_unbind_mkey(struct ib_mr *mkey);
int ib_query_mkey_caps(struct ib_device *device, struct ib_mkey_caps *caps);

#endif /* IB_MKEY_H */
