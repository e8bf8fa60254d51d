/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libibmkey: contexts and protection domains of other verbs libraries. Include
 * <infiniband/mkey.h>, which says what errors mean and what comp_mask is for.
 */
#ifndef INFINIBAND_MKEY_IMPORT_H
#define INFINIBAND_MKEY_IMPORT_H

#include <stdint.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * ibmkey_import_context - use a context of another verbs library
 * @cmd_fd: the command file descriptor of an open context
 *
 * For bindings of other languages, whose objects have a descriptor and handles, but no
 * pointers of libibverbs. The functions of this library work on the context, and after
 * ibmkey_enable() the device-memory verbs work, too. No other function of libibverbs may
 * be called on the context. Keys and MRs that are made with it are destroyed by
 * ibmkey_dereg(), not by ibv_dereg_mr(). This function duplicates @cmd_fd: objects of the
 * context stay until both descriptors are closed.
 *
 * Return: the context, to be closed by ibmkey_unimport_context(); or NULL and
 * errno.
 */
struct ibv_context *ibmkey_import_context(int cmd_fd);

/**
 * ibmkey_unimport_context - close an imported context
 * @ctx: a context of ibmkey_import_context(), or NULL. The caller no longer uses any object
 *	that was made with it.
 */
void ibmkey_unimport_context(struct ibv_context *ctx);

/**
 * ibmkey_import_pd - use a protection domain of another verbs library
 * @ctx: a context of ibmkey_import_context()
 * @pd_handle: the handle of the protection domain in the kernel, as in struct ibv_pd. This
 *	function does not check it: calls that use the protection domain fail with
 *	ENOENT or EINVAL if the handle names none.
 *
 * Return: the protection domain, to be freed by ibmkey_unimport_pd(), which does
 * not deallocate it; or NULL and errno.
 */
struct ibv_pd *ibmkey_import_pd(struct ibv_context *ctx, uint32_t pd_handle);

/**
 * ibmkey_unimport_pd - free an imported protection domain
 * @pd: a protection domain of ibmkey_import_pd(), or NULL. The caller no longer uses any
 *	object that was made with it.
 */
void ibmkey_unimport_pd(struct ibv_pd *pd);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_MKEY_IMPORT_H */
