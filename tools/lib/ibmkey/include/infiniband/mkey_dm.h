/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libibmkey: device memory, MRs over dma-bufs, and MRs that change. Include
 * <infiniband/mkey.h>, which says what errors mean and what comp_mask is for.
 */
#ifndef INFINIBAND_MKEY_DM_H
#define INFINIBAND_MKEY_DM_H

#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

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
 * The class and its number, for ibmkey_alloc_dm(): NUMA node n, a PCI function,
 * or /dev/pmemN. The class alone is the first of its kind that the device offers.
 */
#define IBMKEY_DM_THE_NODE(n) (IBMKEY_DM_NODE | ((uint64_t)(uint32_t)(n) + 1) << 8)
#define IBMKEY_DM_THE_PMEM(n) (IBMKEY_DM_PMEM | ((uint64_t)(uint32_t)(n) + 1) << 8)
#define IBMKEY_DM_THE_P2P(domain, bus, devfn)                              \
	(IBMKEY_DM_P2P |                                                   \
	 (((uint64_t)(uint32_t)(domain) << 16 | (uint64_t)(uint8_t)(bus) << 8 | \
	   (uint8_t)(devfn)) + 1) << 8)

/*
 * Beside a class, or alone: memory that the caches of the processor are coherent with. The other
 * macro is the bit of ibmkey_caps.flags for a bit of ibmkey_caps.dm_classes whose memory is that.
 */
#define IBMKEY_DM_COHERENT IB_MKEY_DM_COHERENT
#define IBMKEY_CAP_COHERENT(dm_class) IB_MKEY_CAP_COHERENT(dm_class)

/**
 * ibmkey_enable - make the device-memory verbs work on a context
 * @ctx: an open device
 *
 * Afterwards ibv_alloc_dm(), ibv_free_dm(), ibv_reg_dm_mr(), ibv_memcpy_to_dm(),
 * ibv_memcpy_from_dm() and ibv_advise_mr() work on @ctx. ibv_query_device_ex() then
 * returns max_dm_size, which the kernel does not report without this library. If the
 * device's provider has these verbs, the provider's functions stay in use. Keys do not need
 * this function. A second call on @ctx changes nothing.
 *
 * ibv_reg_dm_mr() requires IBV_ACCESS_ZERO_BASED. A copy may begin and end at any byte
 * of the device memory. The first copies of a buffer are system calls; then the
 * library maps it, if possible, and copies as memcpy() does. A copy by a system call
 * returns EFAULT for an address outside of the process's memory; a copy by memcpy()
 * raises SIGSEGV. If another process frees the buffer, a copy returns ENOENT.
 *
 * Return: 0; EOPNOTSUPP if the kernel offers no device memory on this device.
 */
int ibmkey_enable(struct ibv_context *ctx);

/**
 * ibmkey_alloc_dm - allocate device memory of a class
 * @ctx: an open device
 * @attr: as for ibv_alloc_dm(); the alignment is that of the physical address
 * @dm_class: a bit of enum ibmkey_dm_class, or the value of IBMKEY_DM_THE_NODE(),
 *	IBMKEY_DM_THE_PMEM() or IBMKEY_DM_THE_P2P(); 0 is the device's default, as
 *	with ibv_alloc_dm(). With IBMKEY_DM_COHERENT, the first such class whose memory the
 *	caches of the processor are coherent with
 *
 * Enables @ctx as ibmkey_enable() does. A device offers host memory and the classes that
 * the module parameter dm_class gives it. The bytes of new memory are zero. The largest
 * alignment is that of the largest block of the page allocator, 4 MiB on x86-64.
 *
 * Return: the memory, to be freed by ibv_free_dm(); or NULL and errno: EINVAL
 * for an invalid class and for a bit of @attr->comp_mask, EOPNOTSUPP for a class that
 * the device does not offer.
 */
struct ibv_dm *ibmkey_alloc_dm(struct ibv_context *ctx,
			       const struct ibv_alloc_dm_attr *attr,
			       uint64_t dm_class);

/**
 * ibmkey_query_dm - query the class of device memory
 * @dm: device memory of ibv_alloc_dm() or ibmkey_alloc_dm()
 * @dm_class: set to a value for ibmkey_alloc_dm(): the class, with its number if it has one, and
 *	IBMKEY_DM_COHERENT if the caches of the processor are coherent with the memory
 *
 * With coherent memory, the processor and RDMA see each other's bytes at once, also through a
 * mapping of ibmkey_export_dm(), and the processor's atomic operations work. Atomic operations of
 * RDMA are atomic to each other, but not to those of the processor at the same time.
 *
 * Return: 0 or an errno value.
 */
int ibmkey_query_dm(struct ibv_dm *dm, uint64_t *dm_class);

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
 * @offset: offset of the first byte in the dma-buf
 * @length: number of bytes
 * @iova: address of the first byte in the MR; its offset in a page is that
 *	of @offset
 * @fd: the dma-buf
 * @access: enum ibv_access_flags
 *
 * Does what ibv_reg_dmabuf_mr() does. rxe's provider library lacks that verb. The
 * exporter must give the kernel a mapping of ordinary memory that stays in place.
 * Such exporters are /dev/udmabuf for memfds, DMA-BUF heaps, and
 * ibmkey_export_dm() for device memory. The MR keeps the dma-buf, even if its exporter
 * revokes it. The MR can be used like an MR of ibv_reg_mr(): for every verb, and as a leaf
 * of keys.
 *
 * Return: the MR, to be deregistered by ibv_dereg_mr(); or NULL and errno:
 * EBADF if @fd is not open; EINVAL if @fd is not a dma-buf, for a range outside
 * of the dma-buf or for invalid access flags; EACCES for write access to a
 * read-only dma-buf; EOPNOTSUPP if the exporter has no such mapping; ENODEV if
 * the dma-buf was revoked.
 */
struct ibv_mr *ibmkey_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				    size_t length, uint64_t iova, int fd,
				    int access);

/** enum ibmkey_rereg_flags - further flags of ibmkey_rereg_mr() */
enum ibmkey_rereg_flags {
	/**
	 * @IBMKEY_REREG_ALLOC: with IBV_REREG_MR_CHANGE_TRANSLATION and addr NULL: allocates
	 * the memory as ibmkey_reg_alloc() does
	 */
	IBMKEY_REREG_ALLOC = 1 << 16,
};

/**
 * ibmkey_rereg_mr - change the memory, PD or access flags of an MR
 * @mr: an MR of ibv_reg_mr() or ibmkey_reg_alloc()
 * @flags: what changes, of enum ibv_rereg_mr_flags and enum ibmkey_rereg_flags
 * @pd: the new protection domain, if that changes
 * @addr: the new memory, and the address of its first byte in the MR, if
 *	the translation changes
 * @length: bytes from @addr on
 * @access: the new access flags, if those change
 *
 * Does what ibv_rereg_mr() does. rxe's provider library lacks that verb. The lkey
 * and rkey stay. While the memory changes, accesses are refused.
 *
 * When the memory has changed, the call frees the former memory if the library had allocated
 * it. With IBMKEY_REREG_ALLOC, the field addr is the address of new memory, and
 * ibmkey_dereg() deregisters the MR from then on.
 *
 * A key that ibv_rereg_mr_sg() or ibv_rereg_mr_interleaved() has made of an MR becomes an MR over
 * the new memory. Its lkey and rkey change.
 *
 * Return: 0, or an errno value; then nothing has changed: EBUSY if the memory
 * would change and a key or a window refers to the MR, EOPNOTSUPP for another key or
 * an MR over a dma-buf, and the errno values of ibmkey_reg_alloc() for new memory.
 */
int ibmkey_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		    size_t length, int access);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_MKEY_DM_H */
