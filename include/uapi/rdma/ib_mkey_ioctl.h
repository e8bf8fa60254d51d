/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause) */
/*
 * ioctl ABI of ib_mkey: indirect memory keys and host access to device memory.
 *
 * Every method is an RDMA_VERBS_IOCTL (see rdma/rdma_user_ioctl.h) on a
 * standard object, in the driver namespace of the device that ib_mkey extends.
 * Device memory has methods here to copy, export and map it, and an attribute
 * for its class. The standard UVERBS_OBJECT_DM methods allocate and free it, and
 * UVERBS_METHOD_DM_MR_REG registers it. A key is a UVERBS_OBJECT_MR, and
 * UVERBS_METHOD_MR_DESTROY destroys it.
 *
 * enum ib_uverbs_mkey_reason lists the reasons to refuse a key or its layout;
 * Documentation/infiniband/mkey/uapi.rst has the errors of all methods.
 */
#ifndef IB_MKEY_IOCTL_H
#define IB_MKEY_IOCTL_H

#include <linux/types.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

/**
 * define IB_MKEY_MAX_DIMS - largest number of dimensions of a layout
 */
#define IB_MKEY_MAX_DIMS 8

/**
 * define IB_MKEY_MAX_ENTRIES - largest number of entries or blocks of a key
 */
#define IB_MKEY_MAX_ENTRIES 65536

/**
 * define IB_MKEY_MAX_INDICES - largest number of indices of a key
 */
#define IB_MKEY_MAX_INDICES 1048576

/**
 * define IB_MKEY_MAX_BINDS - largest number of keys of one call
 */
#define IB_MKEY_MAX_BINDS 512

/*
 * Providers number their own methods on the same standard objects from 0. An
 * object can have 8 methods of drivers, fewer if later kernels add standard ones.
 * Of each object, ib_mkey leaves the first one to the provider and at least two more
 * free: the last two of UVERBS_OBJECT_MR, and the last one and two others of UVERBS_OBJECT_DM.
 */

/**
 * enum ib_mkey_device_methods - methods on UVERBS_OBJECT_DEVICE
 */
enum ib_mkey_device_methods {
	/** @IB_MKEY_METHOD_QUERY_CAPS: what the device can do with keys */
	IB_MKEY_METHOD_QUERY_CAPS = (1U << UVERBS_ID_NS_SHIFT) + 6,
};

/**
 * enum ib_mkey_query_caps_attrs - attributes of IB_MKEY_METHOD_QUERY_CAPS
 */
enum ib_mkey_query_caps_attrs {
	/** @IB_MKEY_ATTR_QUERY_CAPS_RESP: out, struct ib_uverbs_mkey_caps */
	IB_MKEY_ATTR_QUERY_CAPS_RESP = (1U << UVERBS_ID_NS_SHIFT),
	/**
	 * @IB_MKEY_ATTR_QUERY_CAPS_RESP_REFUSED_ACCESS: out, optional, struct
	 * ib_uverbs_mkey_refused_access: the last refused access to an MR that the
	 * calling process made on the device and has not destroyed
	 */
	IB_MKEY_ATTR_QUERY_CAPS_RESP_REFUSED_ACCESS,
};

/**
 * enum ib_mkey_dm_methods - methods on UVERBS_OBJECT_DM
 */
enum ib_mkey_dm_methods {
	/** @IB_MKEY_METHOD_DM_COPY: copy between host and device memory */
	IB_MKEY_METHOD_DM_COPY = (1U << UVERBS_ID_NS_SHIFT) + 3,
	/** @IB_MKEY_METHOD_DM_EXPORT: make a dma-buf of device memory */
	IB_MKEY_METHOD_DM_EXPORT,
	/** @IB_MKEY_METHOD_DM_VIEW: make a file to map, for copies without system calls */
	IB_MKEY_METHOD_DM_VIEW,
	/** @IB_MKEY_METHOD_DM_QUERY: query the class of device memory */
	IB_MKEY_METHOD_DM_QUERY,
};

/**
 * enum ib_mkey_dm_alloc_attrs - further attributes of UVERBS_METHOD_DM_ALLOC
 * @IB_MKEY_ATTR_DM_ALLOC_CLASS: in, u64, optional: the class of memory,
 *	IB_MKEY_DM_HOST and so on; 0 or absent: the device's default. With
 *	IB_MKEY_DM_COHERENT, only memory that the caches of the processor are coherent with
 */
enum ib_mkey_dm_alloc_attrs {
	IB_MKEY_ATTR_DM_ALLOC_CLASS = (1U << UVERBS_ID_NS_SHIFT) + 8,
};

/**
 * enum ib_mkey_dm_query_attrs - attributes of IB_MKEY_METHOD_DM_QUERY
 * @IB_MKEY_ATTR_DM_QUERY_HANDLE: idr, the UVERBS_OBJECT_DM
 * @IB_MKEY_ATTR_DM_QUERY_RESP_CLASS: out, u64: the class, IB_MKEY_DM_NODE() and so on, with
 *	IB_MKEY_DM_COHERENT if the caches of the processor are coherent with the memory
 */
enum ib_mkey_dm_query_attrs {
	IB_MKEY_ATTR_DM_QUERY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	IB_MKEY_ATTR_DM_QUERY_RESP_CLASS,
};

/**
 * enum ib_mkey_dm_export_attrs - attributes of IB_MKEY_METHOD_DM_EXPORT
 * @IB_MKEY_ATTR_DM_EXPORT_HANDLE: idr, the UVERBS_OBJECT_DM
 * @IB_MKEY_ATTR_DM_EXPORT_RESP_FD: out, s32, a dma-buf that can be mapped and passed
 *	to other processes; close-on-exec. After the device memory is freed, accesses to
 *	mappings of the dma-buf raise SIGBUS, and importers are told to release it.
 */
enum ib_mkey_dm_export_attrs {
	IB_MKEY_ATTR_DM_EXPORT_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	IB_MKEY_ATTR_DM_EXPORT_RESP_FD,
};

/**
 * enum ib_mkey_dm_view_attrs - attributes of IB_MKEY_METHOD_DM_VIEW
 *
 * Fails with EOPNOTSUPP for memory of a PCI device or of the driver.
 */
enum ib_mkey_dm_view_attrs {
	/** @IB_MKEY_ATTR_DM_VIEW_HANDLE: idr, the UVERBS_OBJECT_DM */
	IB_MKEY_ATTR_DM_VIEW_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	/**
	 * @IB_MKEY_ATTR_DM_VIEW_RESP_FD: out, s32, a file for mmap(2) with
	 * MAP_SHARED; close-on-exec. It has the pages of the device memory and
	 * one page more. The first byte of that page is 0 until the device memory
	 * is freed. From then on, accesses to the other pages raise no signal and
	 * do not reach device memory. A copy is therefore valid if the byte is 0
	 * after the copy.
	 */
	IB_MKEY_ATTR_DM_VIEW_RESP_FD,
	/** @IB_MKEY_ATTR_DM_VIEW_RESP_LENGTH: out, u64, bytes of the device memory */
	IB_MKEY_ATTR_DM_VIEW_RESP_LENGTH,
};

/**
 * enum ib_mkey_dm_copy_attrs - attributes of IB_MKEY_METHOD_DM_COPY
 */
enum ib_mkey_dm_copy_attrs {
	/** @IB_MKEY_ATTR_DM_COPY_HANDLE: idr, the UVERBS_OBJECT_DM */
	IB_MKEY_ATTR_DM_COPY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	/** @IB_MKEY_ATTR_DM_COPY_DIR: in, enum ib_uverbs_mkey_dm_copy_dir, 64 bit constant */
	IB_MKEY_ATTR_DM_COPY_DIR,
	/** @IB_MKEY_ATTR_DM_COPY_OFFSET: in, u64, bytes from the buffer's start */
	IB_MKEY_ATTR_DM_COPY_OFFSET,
	/** @IB_MKEY_ATTR_DM_COPY_ADDR: in, u64, address in the caller's memory */
	IB_MKEY_ATTR_DM_COPY_ADDR,
	/** @IB_MKEY_ATTR_DM_COPY_LENGTH: in, u64, bytes; zero copies nothing */
	IB_MKEY_ATTR_DM_COPY_LENGTH,
};

/**
 * enum ib_uverbs_mkey_dm_copy_dir - direction of IB_MKEY_METHOD_DM_COPY
 */
enum ib_uverbs_mkey_dm_copy_dir {
	/** @IB_UVERBS_MKEY_DM_COPY_TO: from the caller's memory to the device's */
	IB_UVERBS_MKEY_DM_COPY_TO,
	/** @IB_UVERBS_MKEY_DM_COPY_FROM: from the device's memory to the caller's */
	IB_UVERBS_MKEY_DM_COPY_FROM,
};

/**
 * enum ib_mkey_mr_methods - methods on UVERBS_OBJECT_MR
 */
enum ib_mkey_mr_methods {
	/** @IB_MKEY_METHOD_CREATE: create an unbound key */
	IB_MKEY_METHOD_CREATE = (1U << UVERBS_ID_NS_SHIFT) + 1,
	/** @IB_MKEY_METHOD_BIND: bind a key to a layout of any kind */
	IB_MKEY_METHOD_BIND,
	/** @IB_MKEY_METHOD_UNBIND: return a key to its state after creation */
	IB_MKEY_METHOD_UNBIND,
	/** @IB_MKEY_METHOD_QUERY: query the binding of a key */
	IB_MKEY_METHOD_QUERY,
	/** @IB_MKEY_METHOD_BIND_MANY: bind several keys, all or none */
	IB_MKEY_METHOD_BIND_MANY,
};

/**
 * enum ib_mkey_create_attrs - attributes of IB_MKEY_METHOD_CREATE
 */
enum ib_mkey_create_attrs {
	/** @IB_MKEY_ATTR_CREATE_HANDLE: idr, new UVERBS_OBJECT_MR */
	IB_MKEY_ATTR_CREATE_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	/** @IB_MKEY_ATTR_CREATE_PD_HANDLE: idr, UVERBS_OBJECT_PD */
	IB_MKEY_ATTR_CREATE_PD_HANDLE,
	/**
	 * @IB_MKEY_ATTR_CREATE_MAX_ENTRIES: in, u32, 1 to IB_MKEY_MAX_INDICES:
	 * the most entries, blocks or indices that can be bound; for entries and
	 * blocks IB_MKEY_MAX_ENTRIES is a second limit
	 */
	IB_MKEY_ATTR_CREATE_MAX_ENTRIES,
	/** @IB_MKEY_ATTR_CREATE_RESP_LKEY: out, u32 */
	IB_MKEY_ATTR_CREATE_RESP_LKEY,
	/** @IB_MKEY_ATTR_CREATE_RESP_RKEY: out, u32 */
	IB_MKEY_ATTR_CREATE_RESP_RKEY,
	/**
	 * @IB_MKEY_ATTR_CREATE_FLAGS: in, optional, bits of enum
	 * ib_uverbs_mkey_create_flags
	 */
	IB_MKEY_ATTR_CREATE_FLAGS,
	/** @IB_MKEY_ATTR_CREATE_RESP_REFUSED: out, optional, struct ib_uverbs_mkey_refused */
	IB_MKEY_ATTR_CREATE_RESP_REFUSED,
};

/**
 * enum ib_uverbs_mkey_create_flags - bits of IB_MKEY_ATTR_CREATE_FLAGS
 * @IB_UVERBS_MKEY_CREATE_REVOCABLE: the deregistration of a leaf unbinds the key. It
 *	fails with EBUSY only while a memory window or another key refers to the key, or
 *	if accesses to the leaf take some seconds. Without this flag it fails with EBUSY
 *	while the key is bound.
 */
enum ib_uverbs_mkey_create_flags {
	IB_UVERBS_MKEY_CREATE_REVOCABLE = 1 << 0,
};

/**
 * enum ib_mkey_bind_attrs - attributes of IB_MKEY_METHOD_BIND
 */
enum ib_mkey_bind_attrs {
	/** @IB_MKEY_ATTR_BIND_HANDLE: idr, the key (UVERBS_OBJECT_MR) */
	IB_MKEY_ATTR_BIND_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	/** @IB_MKEY_ATTR_BIND_LAYOUT: in, struct ib_uverbs_mkey_bind */
	IB_MKEY_ATTR_BIND_LAYOUT,
	/** @IB_MKEY_ATTR_BIND_RESP_RKEY: out, u32, optional: the lkey and rkey of the key */
	IB_MKEY_ATTR_BIND_RESP_RKEY,
	/** @IB_MKEY_ATTR_BIND_RESP_REFUSED: out, optional, struct ib_uverbs_mkey_refused */
	IB_MKEY_ATTR_BIND_RESP_REFUSED,
};

/**
 * enum ib_mkey_unbind_attrs - attributes of IB_MKEY_METHOD_UNBIND
 */
enum ib_mkey_unbind_attrs {
	/** @IB_MKEY_ATTR_UNBIND_HANDLE: idr, the key (UVERBS_OBJECT_MR) */
	IB_MKEY_ATTR_UNBIND_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	/**
	 * @IB_MKEY_ATTR_UNBIND_RESP_RKEY: out, u32, optional: the new lkey and rkey
	 * of the key, with another key portion
	 */
	IB_MKEY_ATTR_UNBIND_RESP_RKEY,
};

/**
 * enum ib_mkey_query_attrs - attributes of IB_MKEY_METHOD_QUERY
 */
enum ib_mkey_query_attrs {
	/** @IB_MKEY_ATTR_QUERY_HANDLE: idr, the key (UVERBS_OBJECT_MR) */
	IB_MKEY_ATTR_QUERY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	/** @IB_MKEY_ATTR_QUERY_RESP: out, struct ib_uverbs_mkey_info */
	IB_MKEY_ATTR_QUERY_RESP,
	/**
	 * @IB_MKEY_ATTR_QUERY_RESP_REPEAT_COUNT: out, optional, array of u64;
	 * the first counts that fit are written, see ib_uverbs_mkey_info.num_dims
	 */
	IB_MKEY_ATTR_QUERY_RESP_REPEAT_COUNT,
	/**
	 * @IB_MKEY_ATTR_QUERY_BLOCKS: in, optional, u64, address of an array of
	 * struct ib_uverbs_mkey_block. The first blocks that fit are written to
	 * it, see ib_uverbs_mkey_info.num_entries. Entries of a list have
	 * strides of zero. Nothing is written for an indexed layout.
	 */
	IB_MKEY_ATTR_QUERY_BLOCKS,
	/** @IB_MKEY_ATTR_QUERY_NUM_BLOCKS: in, u32, blocks that fit; required with QUERY_BLOCKS */
	IB_MKEY_ATTR_QUERY_NUM_BLOCKS,
	/**
	 * @IB_MKEY_ATTR_QUERY_INDEXED: in, optional, struct ib_uverbs_mkey_indexed.
	 * @indices is the address of an array of @num_indices 64-bit indices,
	 * @index_bytes is 8, all other fields are zero. The first indices that fit
	 * are written to the array, see ib_uverbs_mkey_info.num_entries.
	 */
	IB_MKEY_ATTR_QUERY_INDEXED,
	/**
	 * @IB_MKEY_ATTR_QUERY_RESP_INDEXED: out, optional, struct
	 * ib_uverbs_mkey_indexed: the description of an indexed layout, with
	 * @indices zero; all zero for other layouts
	 */
	IB_MKEY_ATTR_QUERY_RESP_INDEXED,
	/**
	 * @IB_MKEY_ATTR_QUERY_RESP_REFUSED: out, optional, struct
	 * ib_uverbs_mkey_refused: the reason of the last refusal of a work request
	 */
	IB_MKEY_ATTR_QUERY_RESP_REFUSED,
	/**
	 * @IB_MKEY_ATTR_QUERY_RESP_REFUSED_ACCESS: out, optional, struct
	 * ib_uverbs_mkey_refused_access: the last refused access to the key
	 */
	IB_MKEY_ATTR_QUERY_RESP_REFUSED_ACCESS,
	/**
	 * @IB_MKEY_ATTR_QUERY_RESP_BASE_ADDR: out, optional, u64: the address of the
	 * first byte, 0 when unbound
	 */
	IB_MKEY_ATTR_QUERY_RESP_BASE_ADDR,
};

/**
 * enum ib_mkey_bind_many_attrs - attributes of IB_MKEY_METHOD_BIND_MANY
 */
enum ib_mkey_bind_many_attrs {
	/**
	 * @IB_MKEY_ATTR_BIND_MANY_HANDLES: idrs, the keys (UVERBS_OBJECT_MR), 1 to
	 * IB_MKEY_MAX_BINDS; none may be named twice
	 */
	IB_MKEY_ATTR_BIND_MANY_HANDLES = (1U << UVERBS_ID_NS_SHIFT),
	/**
	 * @IB_MKEY_ATTR_BIND_MANY_BINDS: in, array of struct ib_uverbs_mkey_bind,
	 * one for each key
	 */
	IB_MKEY_ATTR_BIND_MANY_BINDS,
	/**
	 * @IB_MKEY_ATTR_BIND_MANY_BIND_SIZE: in, u32, bytes of an element of
	 * BIND_MANY_BINDS. Bytes that the kernel does not know must be zero.
	 */
	IB_MKEY_ATTR_BIND_MANY_BIND_SIZE,
	/**
	 * @IB_MKEY_ATTR_BIND_MANY_RESP_FAILED: out, u32, optional: if the call
	 * fails, the number of the key that caused the error, or the number of
	 * keys if no key did; written when RESP_REFUSED is
	 */
	IB_MKEY_ATTR_BIND_MANY_RESP_FAILED,
	/**
	 * @IB_MKEY_ATTR_BIND_MANY_RESP_RKEYS: out, array of u32, one for each key,
	 * optional: the lkeys and rkeys of the keys
	 */
	IB_MKEY_ATTR_BIND_MANY_RESP_RKEYS,
	/** @IB_MKEY_ATTR_BIND_MANY_RESP_REFUSED: out, optional, struct ib_uverbs_mkey_refused */
	IB_MKEY_ATTR_BIND_MANY_RESP_REFUSED,
};

/**
 * struct ib_uverbs_mkey_sge - a range of a leaf
 * @addr: first byte: an address in the MR that @lkey names, or an offset if that
 *	MR is zero-based
 * @length: bytes, not zero
 * @lkey: lkey of a memory region in the key's protection domain
 * @comp_mask: zero; bits stand for fields of later versions
 */
struct ib_uverbs_mkey_sge {
	__aligned_u64 addr;
	__aligned_u64 length;
	__u32 lkey;
	__u32 comp_mask;
};

/**
 * struct ib_uverbs_mkey_block - a repeated block of a leaf
 * @addr: first byte of the block at index zero of every dimension
 * @bytes_count: bytes of one block, not zero
 * @stride: for each dimension, outermost first, the bytes from the start of one
 *	repetition to the start of the next; may be negative or zero; strides of
 *	unused dimensions are zero
 * @lkey: lkey of a memory region in the key's protection domain
 * @comp_mask: zero; bits stand for fields of later versions
 */
struct ib_uverbs_mkey_block {
	__aligned_u64 addr;
	__aligned_u64 bytes_count;
	__aligned_s64 stride[IB_MKEY_MAX_DIMS];
	__u32 lkey;
	__u32 comp_mask;
};

/**
 * struct ib_uverbs_mkey_indexed - blocks of one size at the places that indices give
 * @addr: first byte of the block of index zero: an address in the MR that @lkey
 *	names, or an offset if that MR is zero-based
 * @unit: distance between the blocks of index i and i + 1 in bytes, not zero
 * @bytes_count: bytes of a block, not zero
 * @indices: address of an array of @num_indices indices of @index_bytes each
 * @num_indices: indices, not zero
 * @index_bytes: 4 or 8
 * @lkey: lkey of a memory region in the key's protection domain
 * @comp_mask: zero; bits stand for fields of later versions
 *
 * The block of index i starts at @addr + i * @unit. The blocks follow each
 * other in the order of the indices. Indices may be equal.
 */
struct ib_uverbs_mkey_indexed {
	__aligned_u64 addr;
	__aligned_u64 unit;
	__aligned_u64 bytes_count;
	__aligned_u64 indices;
	__u32 num_indices;
	__u32 index_bytes;
	__u32 lkey;
	__u32 comp_mask;
};

/**
 * enum ib_uverbs_mkey_bind_mask - bits of ib_uverbs_mkey_bind.comp_mask
 */
enum ib_uverbs_mkey_bind_mask {
	/** @IB_UVERBS_MKEY_BIND_RKEY: @rkey is valid */
	IB_UVERBS_MKEY_BIND_RKEY = 1 << 0,
	/** @IB_UVERBS_MKEY_BIND_BASE: @base_addr is valid */
	IB_UVERBS_MKEY_BIND_BASE = 1 << 1,
};

/**
 * struct ib_uverbs_mkey_bind - the description of a layout
 * @entries: address of an array of struct ib_uverbs_mkey_sge for a list, of
 *	struct ib_uverbs_mkey_block for an interleaved layout, of one struct
 *	ib_uverbs_mkey_indexed for an indexed layout
 * @repeat_count: address of an array of u64, one for each dimension, outermost
 *	first; zero if the layout is not interleaved
 * @kind: enum ib_uverbs_mkey_kind, not IB_UVERBS_MKEY_UNBOUND
 * @num_entries: elements of @entries, not zero
 * @entry_size: bytes of an element of @entries
 * @num_dims: dimensions, 1 to IB_MKEY_MAX_DIMS; zero if the layout is not
 *	interleaved
 * @access: enum ib_uverbs_access_flags
 * @comp_mask: bits of enum ib_uverbs_mkey_bind_mask
 * @rkey: the new lkey and rkey of the key, which may differ from the old ones in
 *	the low 8 bits; zero if @comp_mask lacks IB_UVERBS_MKEY_BIND_RKEY. Then
 *	the lkey and rkey stay, unless the deregistration of a leaf has unbound
 *	the key: in this case the bind increments the low 8 bits.
 * @reserved: zero
 * @base_addr: base address: the address of the first byte of the key; zero if @comp_mask
 *	lacks IB_UVERBS_MKEY_BIND_BASE
 */
struct ib_uverbs_mkey_bind {
	__aligned_u64 entries;
	__aligned_u64 repeat_count;
	__u32 kind;
	__u32 num_entries;
	__u32 entry_size;
	__u32 num_dims;
	__u32 access;
	__u32 comp_mask;
	__u32 rkey;
	__u32 reserved;
	__aligned_u64 base_addr;
};

/**
 * define IB_MKEY_LAYOUT_VERSION - version of struct ib_uverbs_mkey_layout
 */
#define IB_MKEY_LAYOUT_VERSION 1

/**
 * enum ib_uverbs_mkey_layout_mask - bits of ib_uverbs_mkey_layout.comp_mask
 * @IB_UVERBS_MKEY_LAYOUT_ANY_PORTION: if the key is unbound, the request may name it
 *	by an rkey with any key portion
 * @IB_UVERBS_MKEY_LAYOUT_REMOTE_INV: a peer may invalidate the key even if the request
 *	has no remote access flag
 * @IB_UVERBS_MKEY_LAYOUT_BASE: a u64 follows the structure, the base address of the key
 */
enum ib_uverbs_mkey_layout_mask {
	IB_UVERBS_MKEY_LAYOUT_ANY_PORTION = 1 << 0,
	IB_UVERBS_MKEY_LAYOUT_REMOTE_INV = 1 << 1,
	IB_UVERBS_MKEY_LAYOUT_BASE = 1 << 2,
};

/**
 * struct ib_uverbs_mkey_layout - the description of a layout for a work request
 * @version: IB_MKEY_LAYOUT_VERSION
 * @kind: IB_UVERBS_MKEY_LIST, IB_UVERBS_MKEY_INTERLEAVED or IB_UVERBS_MKEY_INDEXED
 * @num_entries: entries or blocks, not zero; 1 for an indexed layout
 * @entry_size: bytes of an entry or a block
 * @num_dims: dimensions of an interleaved layout, zero for others
 * @comp_mask: bits of enum ib_uverbs_mkey_layout_mask
 *
 * A description begins with this structure. The rest follows without a gap: with
 * IB_UVERBS_MKEY_LAYOUT_BASE, the base address, which is 0 without that bit; for a
 * list, @num_entries struct ib_uverbs_mkey_sge; for an interleaved layout,
 * @num_dims repeat counts (u64, outermost first) and @num_entries struct
 * ib_uverbs_mkey_block; for an indexed layout, one struct ib_uverbs_mkey_indexed
 * whose @indices is zero, and the indices, at most IB_MKEY_MAX_ENTRIES.
 *
 * A work request IB_WR_BIND_MW on a QP of a process binds a key if it has the
 * rkey of a key in place of the rkey of a window. The request names the description
 * by an lkey of the QP's protection domain, an address and its exact length. If the
 * length is zero, the description is the inline data of the request. The access
 * flags are enum ib_uverbs_access_flags. The new rkey of the request, which may
 * differ in the low 8 bits, becomes the lkey and the rkey of the key.
 */
struct ib_uverbs_mkey_layout {
	__u32 version;
	__u32 kind;
	__u32 num_entries;
	__u32 entry_size;
	__u32 num_dims;
	__u32 comp_mask;
};

/**
 * define IB_MKEY_NO_ENTRY - no single entry is the reason
 */
#define IB_MKEY_NO_ENTRY 0xffffffff

/**
 * enum ib_uverbs_mkey_reason - why a key was not created or bound, or an access was refused
 * @IB_UVERBS_MKEY_REASON_NONE: no reason is known; the errno value says all
 * @IB_UVERBS_MKEY_REASON_MEMORY: no memory, or max_key_memory or max_key_memory_per_user
 *	is reached
 * @IB_UVERBS_MKEY_REASON_KILLED: the process was killed
 * @IB_UVERBS_MKEY_REASON_BUSY: a memory window or a bound key refers to the key, or
 *	another thread changes it
 * @IB_UVERBS_MKEY_REASON_NOT_A_KEY: the MR is not a key
 * @IB_UVERBS_MKEY_REASON_DEVICE: the device has no keys
 * @IB_UVERBS_MKEY_REASON_MAX_ENTRIES: %value, the number of entries of a new key, is not
 *	1 to IB_MKEY_MAX_INDICES
 * @IB_UVERBS_MKEY_REASON_COMP_MASK: %value, a comp_mask, has an unknown bit: that of the
 *	entry, if there is one
 * @IB_UVERBS_MKEY_REASON_RESERVED: the field reserved, or base_addr without
 *	IB_UVERBS_MKEY_BIND_BASE, is %value and not zero
 * @IB_UVERBS_MKEY_REASON_UNKNOWN_BYTES: bytes after the last field that the kernel knows
 *	are not zero
 * @IB_UVERBS_MKEY_REASON_FAULT: the caller's memory at address %value cannot be read
 * @IB_UVERBS_MKEY_REASON_KIND: %value is no kind of a layout
 * @IB_UVERBS_MKEY_REASON_ENTRY_SIZE: %value is not the size of an entry of this kind
 * @IB_UVERBS_MKEY_REASON_NOT_INTERLEAVED: num_dims or repeat_count is not zero, and the
 *	layout is not interleaved
 * @IB_UVERBS_MKEY_REASON_DIMS: num_dims is %value and not 1 to IB_MKEY_MAX_DIMS
 * @IB_UVERBS_MKEY_REASON_ONE_INDEXED: num_entries is %value and not 1, and the layout is
 *	indexed
 * @IB_UVERBS_MKEY_REASON_ACCESS: a flag of %value, the access flags, is unknown, or keys
 *	do not support it
 * @IB_UVERBS_MKEY_REASON_LOCAL_WRITE: %value, the access flags, has remote write or
 *	atomic without local write
 * @IB_UVERBS_MKEY_REASON_DEVICE_ACCESS: the device lacks a flag of %value, the access
 *	flags
 * @IB_UVERBS_MKEY_REASON_EMPTY: there are no entries, blocks or indices
 * @IB_UVERBS_MKEY_REASON_TOO_MANY: there are more than %value entries, blocks or indices
 * @IB_UVERBS_MKEY_REASON_STRIDE: the stride of dimension %value, which the layout lacks,
 *	is not zero
 * @IB_UVERBS_MKEY_REASON_LKEY: the lkey %value names no MR in the protection domain of
 *	the key
 * @IB_UVERBS_MKEY_REASON_LEAF: the MR of the lkey %value is of a type that cannot be a
 *	leaf
 * @IB_UVERBS_MKEY_REASON_NO_LENGTH: the MR of the lkey %value has no bytes, such as an
 *	unbound key
 * @IB_UVERBS_MKEY_REASON_ITSELF: the lkey %value is that of the key itself
 * @IB_UVERBS_MKEY_REASON_LEVELS: the MR of the lkey %value is a key of too many levels
 * @IB_UVERBS_MKEY_REASON_INDEX_BYTES: the size of an index is %value and not 4 or 8
 * @IB_UVERBS_MKEY_REASON_NO_BYTES: the length or bytes_count is zero
 * @IB_UVERBS_MKEY_REASON_NO_REPEAT: repeat_count of dimension %value is zero
 * @IB_UVERBS_MKEY_REASON_NO_UNIT: unit is zero
 * @IB_UVERBS_MKEY_REASON_ADDRESS: an address of the entry, block or index does not fit
 *	64 bits
 * @IB_UVERBS_MKEY_REASON_LENGTH: the length of the layout does not fit 64 bits
 * @IB_UVERBS_MKEY_REASON_LEAF_ACCESS: the access flags need a flag that the MR of the
 *	lkey %value lacks
 * @IB_UVERBS_MKEY_REASON_BEFORE_LEAF: a byte is before %value, the first address of the
 *	MR
 * @IB_UVERBS_MKEY_REASON_BEYOND_LEAF: a byte is after %value, the last address of the MR
 * @IB_UVERBS_MKEY_REASON_PIECES: keys over keys have more than %value pieces of memory
 * @IB_UVERBS_MKEY_REASON_FLUSH_ON_DEMAND: a flush to persistence with pages on demand
 * @IB_UVERBS_MKEY_REASON_FLUSH_PIECES: a flush to persistence of more than %value pieces
 * @IB_UVERBS_MKEY_REASON_FLUSH_BYTES: a flush to persistence of more than %value bytes
 * @IB_UVERBS_MKEY_REASON_RKEY: %value, the new rkey, differs from that of the key in
 *	more than the low 8 bits, or is not zero without IB_UVERBS_MKEY_BIND_RKEY
 * @IB_UVERBS_MKEY_REASON_CIRCLE: the layout leads back to the key through other keys
 * @IB_UVERBS_MKEY_REASON_NUM_KEYS: there are %value keys and not 1 to IB_MKEY_MAX_BINDS,
 *	or descriptions of another size
 * @IB_UVERBS_MKEY_REASON_TWICE: the key is named twice
 * @IB_UVERBS_MKEY_REASON_OTHER_DEVICE: the key belongs to another device than the first
 *	one
 * @IB_UVERBS_MKEY_REASON_VERSION: %value is not IB_MKEY_LAYOUT_VERSION
 * @IB_UVERBS_MKEY_REASON_DESCRIPTION: the description has another length than its header
 *	says; there are %value bytes
 * @IB_UVERBS_MKEY_REASON_DESCRIPTION_LKEY: the lkey %value names no MR in the protection
 *	domain of the queue pair
 * @IB_UVERBS_MKEY_REASON_DESCRIPTION_LEAF: the MR of the lkey %value, with the
 *	description, is on demand or of another type
 * @IB_UVERBS_MKEY_REASON_DESCRIPTION_RANGE: the description is not within the MR of the
 *	lkey %value
 * @IB_UVERBS_MKEY_REASON_PORTION: %value, the rkey that the request names, is not that
 *	of the key
 * @IB_UVERBS_MKEY_REASON_NOT_MAPPED: no layout is mapped to the key under the rkey
 *	%value
 * @IB_UVERBS_MKEY_REASON_INDICES: the address of the indices is %value and not zero in a
 *	description for a work request; a kernel user gives indices of both sizes or of
 *	none
 * @IB_UVERBS_MKEY_REASON_ALL_MAPPED: as many layouts are mapped to the key as it can
 *	have
 * @IB_UVERBS_MKEY_REASON_ACCESS_UNBOUND: an access to a key to which nothing is bound
 * @IB_UVERBS_MKEY_REASON_ACCESS_RANGE: an access beyond the %value bytes of an MR whose
 *	addresses begin at 0
 * @IB_UVERBS_MKEY_REASON_ACCESS_FLAGS: an access that needs a flag which %value, the
 *	access flags of the MR, lacks
 * @IB_UVERBS_MKEY_REASON_ACCESS_PD: an access by a queue pair in another protection
 *	domain
 * @IB_UVERBS_MKEY_REASON_ACCESS_KEY: an access by an lkey or rkey that is no longer that
 *	of the MR, %value
 * @IB_UVERBS_MKEY_REASON_ACCESS_LEAF: an access to a leaf that was registered again
 *	since the bind, or lacks local write
 * @IB_UVERBS_MKEY_REASON_ACCESS_PIECES: an atomic access to eight bytes that are not in
 *	one piece
 * @IB_UVERBS_MKEY_REASON_ACCESS_ALIGN: an atomic access to memory that is not aligned to
 *	eight bytes
 * @IB_UVERBS_MKEY_REASON_ACCESS_MEMORY: an access to an address at which the process has
 *	no memory
 * @IB_UVERBS_MKEY_REASON_ACCESS_POISON: an access to persistent memory that cannot be
 *	read
 * @IB_UVERBS_MKEY_REASON_BASE: the addresses of the key, from %value on, the base address,
 *	do not fit 64 bits
 * @IB_UVERBS_MKEY_REASON_ACCESS_BASE: an access before or beyond the bytes of an MR whose
 *	addresses begin at %value
 *
 * The numbers stay. Later versions may add reasons. drivers/infiniband/ulp/mkey/errors.rs
 * gives each its errno value.
 */
enum ib_uverbs_mkey_reason {
	IB_UVERBS_MKEY_REASON_NONE = 0,
	IB_UVERBS_MKEY_REASON_MEMORY,
	IB_UVERBS_MKEY_REASON_KILLED,
	IB_UVERBS_MKEY_REASON_BUSY,
	IB_UVERBS_MKEY_REASON_NOT_A_KEY,
	IB_UVERBS_MKEY_REASON_DEVICE,
	IB_UVERBS_MKEY_REASON_MAX_ENTRIES,
	IB_UVERBS_MKEY_REASON_COMP_MASK,
	IB_UVERBS_MKEY_REASON_RESERVED,
	IB_UVERBS_MKEY_REASON_UNKNOWN_BYTES,
	IB_UVERBS_MKEY_REASON_FAULT,
	IB_UVERBS_MKEY_REASON_KIND,
	IB_UVERBS_MKEY_REASON_ENTRY_SIZE,
	IB_UVERBS_MKEY_REASON_NOT_INTERLEAVED,
	IB_UVERBS_MKEY_REASON_DIMS,
	IB_UVERBS_MKEY_REASON_ONE_INDEXED,
	IB_UVERBS_MKEY_REASON_ACCESS,
	IB_UVERBS_MKEY_REASON_LOCAL_WRITE,
	IB_UVERBS_MKEY_REASON_DEVICE_ACCESS,
	IB_UVERBS_MKEY_REASON_EMPTY,
	IB_UVERBS_MKEY_REASON_TOO_MANY,
	IB_UVERBS_MKEY_REASON_STRIDE,
	IB_UVERBS_MKEY_REASON_LKEY,
	IB_UVERBS_MKEY_REASON_LEAF,
	IB_UVERBS_MKEY_REASON_NO_LENGTH,
	IB_UVERBS_MKEY_REASON_ITSELF,
	IB_UVERBS_MKEY_REASON_LEVELS,
	IB_UVERBS_MKEY_REASON_INDEX_BYTES,
	IB_UVERBS_MKEY_REASON_NO_BYTES,
	IB_UVERBS_MKEY_REASON_NO_REPEAT,
	IB_UVERBS_MKEY_REASON_NO_UNIT,
	IB_UVERBS_MKEY_REASON_ADDRESS,
	IB_UVERBS_MKEY_REASON_LENGTH,
	IB_UVERBS_MKEY_REASON_LEAF_ACCESS,
	IB_UVERBS_MKEY_REASON_BEFORE_LEAF,
	IB_UVERBS_MKEY_REASON_BEYOND_LEAF,
	IB_UVERBS_MKEY_REASON_PIECES,
	IB_UVERBS_MKEY_REASON_FLUSH_ON_DEMAND,
	IB_UVERBS_MKEY_REASON_FLUSH_PIECES,
	IB_UVERBS_MKEY_REASON_FLUSH_BYTES,
	IB_UVERBS_MKEY_REASON_RKEY,
	IB_UVERBS_MKEY_REASON_CIRCLE,
	IB_UVERBS_MKEY_REASON_NUM_KEYS,
	IB_UVERBS_MKEY_REASON_TWICE,
	IB_UVERBS_MKEY_REASON_OTHER_DEVICE,
	IB_UVERBS_MKEY_REASON_VERSION,
	IB_UVERBS_MKEY_REASON_DESCRIPTION,
	IB_UVERBS_MKEY_REASON_DESCRIPTION_LKEY,
	IB_UVERBS_MKEY_REASON_DESCRIPTION_LEAF,
	IB_UVERBS_MKEY_REASON_DESCRIPTION_RANGE,
	IB_UVERBS_MKEY_REASON_PORTION,
	IB_UVERBS_MKEY_REASON_NOT_MAPPED,
	IB_UVERBS_MKEY_REASON_INDICES,
	IB_UVERBS_MKEY_REASON_ALL_MAPPED,
	IB_UVERBS_MKEY_REASON_ACCESS_UNBOUND,
	IB_UVERBS_MKEY_REASON_ACCESS_RANGE,
	IB_UVERBS_MKEY_REASON_ACCESS_FLAGS,
	IB_UVERBS_MKEY_REASON_ACCESS_PD,
	IB_UVERBS_MKEY_REASON_ACCESS_KEY,
	IB_UVERBS_MKEY_REASON_ACCESS_LEAF,
	IB_UVERBS_MKEY_REASON_ACCESS_PIECES,
	IB_UVERBS_MKEY_REASON_ACCESS_ALIGN,
	IB_UVERBS_MKEY_REASON_ACCESS_MEMORY,
	IB_UVERBS_MKEY_REASON_ACCESS_POISON,
	IB_UVERBS_MKEY_REASON_BASE,
	IB_UVERBS_MKEY_REASON_ACCESS_BASE,
};

/**
 * struct ib_uverbs_mkey_refused - why a key was not created or bound
 * @error: errno value; in a query 0 if no work request was refused
 * @entry: number of the entry, block or index that is the reason, or IB_MKEY_NO_ENTRY
 * @reason: enum ib_uverbs_mkey_reason
 * @comp_mask: zero; bits stand for fields of later versions that are filled in
 * @value: what the reason says, or zero
 *
 * A call that fails writes it, unless uverbs refuses an attribute or a handle. That of
 * BIND_MANY is about the key that RESP_FAILED names.
 */
struct ib_uverbs_mkey_refused {
	__u32 error;
	__u32 entry;
	__u32 reason;
	__u32 comp_mask;
	__aligned_u64 value;
};

/**
 * struct ib_uverbs_mkey_refused_access - an access that was refused
 * @number: the number of the refusal among those of all devices since ib_mkey was loaded;
 *	0 if no access was refused, and all other fields are zero then
 * @addr: the first address in the MR
 * @length: bytes: those of one packet, or those that a peer asked for
 * @value: what the reason says, or zero
 * @key: the lkey or rkey that the request named; the lkey of the MR if that is not known
 * @reason: enum ib_uverbs_mkey_reason
 * @access: enum ib_uverbs_access_flags that the access needs; zero for a local read
 * @remote: 1 if a peer asked for the access, 0 for an SGE of this node
 * @comp_mask: zero; bits stand for fields of later versions that are filled in
 * @reserved: zero
 *
 * An access is not recorded if a queue pair of another process asked for it.
 */
struct ib_uverbs_mkey_refused_access {
	__aligned_u64 number;
	__aligned_u64 addr;
	__aligned_u64 length;
	__aligned_u64 value;
	__u32 key;
	__u32 reason;
	__u32 access;
	__u32 remote;
	__u32 comp_mask;
	__u32 reserved;
};

/**
 * enum ib_uverbs_mkey_cap_flags - bits of ib_uverbs_mkey_caps.flags
 */
enum ib_uverbs_mkey_cap_flags {
	/** @IB_UVERBS_MKEY_CAP_DM: standard device-memory verbs work */
	IB_UVERBS_MKEY_CAP_DM = 1 << 0,
	/** @IB_UVERBS_MKEY_CAP_LIST: IB_UVERBS_MKEY_LIST can be bound */
	IB_UVERBS_MKEY_CAP_LIST = 1 << 1,
	/** @IB_UVERBS_MKEY_CAP_INTERLEAVED: IB_UVERBS_MKEY_INTERLEAVED can be bound */
	IB_UVERBS_MKEY_CAP_INTERLEAVED = 1 << 2,
	/** @IB_UVERBS_MKEY_CAP_ATOMIC: atomics through a key */
	IB_UVERBS_MKEY_CAP_ATOMIC = 1 << 3,
	/** @IB_UVERBS_MKEY_CAP_INDEXED: IB_UVERBS_MKEY_INDEXED can be bound */
	IB_UVERBS_MKEY_CAP_INDEXED = 1 << 4,
	/** @IB_UVERBS_MKEY_CAP_REQUEST: struct ib_uverbs_mkey_layout works */
	IB_UVERBS_MKEY_CAP_REQUEST = 1 << 5,
};

/**
 * enum ib_uverbs_mkey_dm_class - bits of ib_uverbs_mkey_caps.dm_classes
 */
enum ib_uverbs_mkey_dm_class {
	/** @IB_UVERBS_MKEY_DM_HOST: RAM of the host, near the device */
	IB_UVERBS_MKEY_DM_HOST = 1 << 0,
	/** @IB_UVERBS_MKEY_DM_NODE: RAM of one NUMA node: CXL, HBM */
	IB_UVERBS_MKEY_DM_NODE = 1 << 1,
	/** @IB_UVERBS_MKEY_DM_P2P: memory of a PCI device, published for peers */
	IB_UVERBS_MKEY_DM_P2P = 1 << 2,
	/** @IB_UVERBS_MKEY_DM_PMEM: persistent memory */
	IB_UVERBS_MKEY_DM_PMEM = 1 << 3,
};

/*
 * The class of an allocation, a u64. The low 8 bits are a bit of enum
 * ib_uverbs_mkey_dm_class. The other bits are 1 more than a number within that
 * class, or 0 for the first memory of the class that the device offers. A device
 * offers host memory and the classes that the module parameter dm_class names.
 */
#define IB_MKEY_DM_HOST IB_UVERBS_MKEY_DM_HOST
/* The NUMA node n. */
#define IB_MKEY_DM_NODE(n) (IB_UVERBS_MKEY_DM_NODE | ((__u64)(__u32)(n) + 1) << 8)
/* A PCI function: a domain of 32 bits, a bus and a devfn of 8. */
#define IB_MKEY_DM_P2P(domain, bus, devfn) \
	(IB_UVERBS_MKEY_DM_P2P | \
	 (((__u64)(__u32)(domain) << 16 | (__u64)(__u8)(bus) << 8 | (__u8)(devfn)) + 1) << 8)
/* The DAX device /dev/pmemN. */
#define IB_MKEY_DM_PMEM(n) (IB_UVERBS_MKEY_DM_PMEM | ((__u64)(__u32)(n) + 1) << 8)
/* Beside a class, or alone: memory that the caches of the processor are coherent with. */
#define IB_MKEY_DM_COHERENT (1ULL << 63)

/* The bits of ib_uverbs_mkey_caps.flags for the classes that are coherent. */
#define IB_MKEY_CAP_COHERENT_SHIFT 32
#define IB_MKEY_CAP_COHERENT(dm_class) ((__u64)(dm_class) << IB_MKEY_CAP_COHERENT_SHIFT)

/**
 * struct ib_uverbs_mkey_caps - what a device can do
 * @max_dm_size: bytes of the default class of device memory, for all users in total;
 *	0 while the machine lacks this memory
 * @flags: bits of enum ib_uverbs_mkey_cap_flags, and IB_MKEY_CAP_COHERENT() of the classes
 *	whose memory the caches of the processor are coherent with
 * @max_entries: entries or blocks of one key
 * @max_dims: dimensions of an interleaved layout
 * @max_depth: levels of keys over keys, including the outermost
 * @dm_classes: bits of enum ib_uverbs_mkey_dm_class
 * @max_indices: indices of one key
 * @comp_mask: zero; bits stand for fields of later versions that are filled in
 */
struct ib_uverbs_mkey_caps {
	__aligned_u64 max_dm_size;
	__aligned_u64 flags;
	__u32 max_entries;
	__u32 max_dims;
	__u32 max_depth;
	__u32 dm_classes;
	__u32 max_indices;
	__u32 comp_mask;
};

/**
 * enum ib_uverbs_mkey_kind - kinds of layouts
 */
enum ib_uverbs_mkey_kind {
	/** @IB_UVERBS_MKEY_UNBOUND: nothing is bound; every access fails */
	IB_UVERBS_MKEY_UNBOUND,
	/** @IB_UVERBS_MKEY_LIST: ranges, one after another */
	IB_UVERBS_MKEY_LIST,
	/** @IB_UVERBS_MKEY_INTERLEAVED: strided blocks */
	IB_UVERBS_MKEY_INTERLEAVED,
	/** @IB_UVERBS_MKEY_INDEXED: blocks at the places of indices */
	IB_UVERBS_MKEY_INDEXED,
};

/**
 * struct ib_uverbs_mkey_info - the binding of a key
 * @length: bytes that the key addresses, 0 when unbound
 * @kind: enum ib_uverbs_mkey_kind
 * @access: enum ib_uverbs_access_flags, as bound
 * @max_entries: entries that the key was created for
 * @num_entries: entries, blocks or indices bound
 * @num_dims: dimensions bound, 0 for a list and for an indexed layout
 * @lkey: local key
 * @rkey: remote key
 * @comp_mask: zero; bits stand for fields of later versions that are filled in
 */
struct ib_uverbs_mkey_info {
	__aligned_u64 length;
	__u32 kind;
	__u32 access;
	__u32 max_entries;
	__u32 num_entries;
	__u32 num_dims;
	__u32 lkey;
	__u32 rkey;
	__u32 comp_mask;
};

#endif /* IB_MKEY_IOCTL_H */
