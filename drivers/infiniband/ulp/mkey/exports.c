// SPDX-License-Identifier: GPL-2.0
/*
 * The functions of include/rdma/ib_mkey.h, exported. They are Rust, in kapi.rs;
 * exports of functions exist for C only.
 */

#include <linux/export.h>
#include <rdma/ib_mkey.h>

/**
 * ib_alloc_dm() - allocate device memory
 * @device: an extended device
 * @attr: length in bytes, and alignment as a power of two, at most a page's
 *
 * The memory is zero. It belongs to the caller until ib_free_dm().
 *
 * Return: the memory, or ERR_PTR(): -EINVAL for a length of zero or above 32
 * bits, -ENOMEM beyond the device's quota or without memory.
 */
EXPORT_SYMBOL_GPL(ib_alloc_dm);

/**
 * ib_free_dm() - free device memory
 * @dm: memory of ib_alloc_dm()
 *
 * Return: 0, or -EBUSY while a region is registered over it.
 */
EXPORT_SYMBOL_GPL(ib_free_dm);

/**
 * ib_reg_dm_mr() - register a region over device memory
 * @pd: protection domain of the caller's, of the same device
 * @dm: memory of ib_alloc_dm()
 * @dm_offset: first byte
 * @length: bytes, not zero
 * @access: enum ib_access_flags
 *
 * The region's addresses are 0 to @length. Its lkey and rkey work as soon as
 * this returns. It is deregistered by ib_dereg_mr().
 *
 * Return: the region, or ERR_PTR(): -EINVAL out of range, -ENOMEM.
 */
EXPORT_SYMBOL_GPL(ib_reg_dm_mr);

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
EXPORT_SYMBOL_GPL(ib_memcpy_to_dm);

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
EXPORT_SYMBOL_GPL(ib_memcpy_from_dm);

/**
 * ib_alloc_mkey() - make an unbound key
 * @pd: protection domain of the caller's
 * @max_entries: entries or blocks that can be bound, 1 to IB_MKEY_MAX_ENTRIES
 *
 * The key is deregistered by ib_dereg_mr().
 *
 * Return: the key, or ERR_PTR().
 */
EXPORT_SYMBOL_GPL(ib_alloc_mkey);

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
EXPORT_SYMBOL_GPL(ib_bind_mkey_list);

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
EXPORT_SYMBOL_GPL(ib_bind_mkey_interleaved);

/**
 * ib_unbind_mkey() - return a key to its state after ib_alloc_mkey()
 * @mkey: the key
 *
 * No access through the key is left when this returns.
 *
 * Return: 0, or -EINVAL for a region that is no key.
 */
EXPORT_SYMBOL_GPL(ib_unbind_mkey);

/**
 * ib_query_mkey_caps() - ask what a device can do
 * @device: any device
 * @caps: filled in
 *
 * Return: 0, or -EOPNOTSUPP.
 */
EXPORT_SYMBOL_GPL(ib_query_mkey_caps);
