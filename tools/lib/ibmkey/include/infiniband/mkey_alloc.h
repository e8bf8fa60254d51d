/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libibmkey: MRs whose memory the library allocates, and that processes share. Include
 * <infiniband/mkey.h>, which says what errors mean.
 */
#ifndef INFINIBAND_MKEY_ALLOC_H
#define INFINIBAND_MKEY_ALLOC_H

#include <stddef.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * ibmkey_reg_alloc - allocate memory and register it
 * @pd: the protection domain
 * @length: number of bytes, not zero
 * @access: enum ibv_access_flags
 *
 * Does what IBV_EXP_ACCESS_ALLOCATE_MR does in MLNX_OFED: the field addr of the MR is the address
 * of new memory. Its bytes are zero, and the program may read and write them.
 *
 * The memory is contiguous as far as possible. If @length is a multiple of the size of a huge
 * page, and the pool of these pages has enough (vm.nr_hugepages), the memory consists of them.
 * Other memory of 2 MiB or more begins at a multiple of 2 MiB, and the call asks the kernel for
 * transparent huge pages. Huge pages make the registration faster, and the program misses the TLB
 * less often. rxe itself does not benefit: it has a table with an entry for each page of 4 KiB,
 * whether the pages are contiguous or not.
 *
 * The memory is shared with the children of fork(2), and the kernel does not copy it on write.
 * So after a fork, the device still uses the pages that the process sees. A child also sees what
 * is written to them. The memory counts towards RLIMIT_MEMLOCK, and the MR has a file descriptor.
 *
 * ibv_dereg_mr() of such an MR deregisters it, and leaves the memory mapped and the descriptor open
 * until the process ends.
 *
 * Return: the MR, to be deregistered by ibmkey_dereg(), which also frees the memory; or NULL
 * and errno, with nothing allocated: EINVAL if @length is 0 or the access flags are invalid, ENOMEM
 * also if a limit of the process is reached, EMFILE without an unused file descriptor.
 */
struct ibv_mr *ibmkey_reg_alloc(struct ibv_pd *pd, size_t length, int access);

/** enum ibmkey_share_flags - flags of ibmkey_share_mr() */
enum ibmkey_share_flags {
	/**
	 * @IBMKEY_SHARE_READ_ONLY: from now on, no process can map the memory for writing.
	 * Mappings that exist stay as they are, such as that of the process that allocated it.
	 */
	IBMKEY_SHARE_READ_ONLY = 1 << 0,
};

/**
 * ibmkey_share_mr - let another process register the memory of an MR
 * @mr: an MR whose memory the library has allocated, or an MR of ibmkey_reg_shared()
 * @flags: bits of enum ibmkey_share_flags
 * @fd: set to a new file descriptor, close-on-exec
 *
 * The descriptor is a memfd. A program gives it to another process with sendmsg(2), or a child
 * inherits it. Each process that gets it can register the memory by ibmkey_reg_shared(), and
 * share it further. The caller closes it.
 *
 * The MRs are independent: each has its own PD, lkey, rkey and access flags, and can be
 * deregistered first. The memory exists as long as an MR, a mapping or a descriptor of it.
 * ibmkey_rereg_mr() with a new translation ends the sharing for that MR. The other MRs keep the
 * memory.
 *
 * No process can make the memory shorter (F_SEAL_SHRINK). But a process that may write the
 * memory may also replace its pages by empty ones, with MADV_REMOVE or fallocate(2). Then MRs
 * still have the former pages. So share memory for writing only with processes that you trust
 * with its contents. IBMKEY_SHARE_READ_ONLY prevents both (F_SEAL_FUTURE_WRITE).
 *
 * Return: 0, or an errno value: EINVAL for an unknown flag, or if the library has not
 * allocated the memory of @mr.
 */
int ibmkey_share_mr(struct ibv_mr *mr, int flags, int *fd);

/**
 * ibmkey_reg_shared - register memory that another process shares
 * @pd: the protection domain
 * @fd: the file descriptor of ibmkey_share_mr(), or a memfd with F_SEAL_SHRINK
 * @access: enum ibv_access_flags
 *
 * Maps the memory and registers all of it. The field addr of the MR is the address in this
 * process, and the field length is that of the other process's MR. This process can write the
 * memory unless the other one shares it for reading only. The caller may close @fd at once.
 *
 * Return: the MR, to be deregistered by ibmkey_dereg(), which also removes the mapping; or NULL
 * and errno, with nothing mapped: EBADF if @fd is not open, EINVAL if it is another file,
 * EACCES if @access allows writing and the memory is shared for reading only, or the errno values
 * of ibmkey_reg_alloc().
 */
struct ibv_mr *ibmkey_reg_shared(struct ibv_pd *pd, int fd, int access);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_MKEY_ALLOC_H */
