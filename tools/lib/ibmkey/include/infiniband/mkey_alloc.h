/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libibmkey: MRs whose memory the library allocates. Include <infiniband/mkey.h>, which
 * says what errors mean.
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
 * is written to them. The memory counts towards RLIMIT_MEMLOCK.
 *
 * ibv_dereg_mr() of such an MR deregisters it and leaves the memory mapped until the process ends.
 *
 * Return: the MR, to be deregistered by ibmkey_dereg(), which also frees the memory; or NULL
 * and errno, with nothing allocated: EINVAL if @length is 0 or the access flags are invalid, ENOMEM
 * also if a limit of the process is reached, EMFILE without an unused file descriptor.
 */
struct ibv_mr *ibmkey_reg_alloc(struct ibv_pd *pd, size_t length, int access);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_MKEY_ALLOC_H */
