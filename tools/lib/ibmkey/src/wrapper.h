/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What bindgen reads: our own header, libibverbs's, and the kernel's. */
#include <infiniband/mkey.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <rdma/ib_mkey_ioctl.h>

/* A macro that bindgen cannot evaluate. */
static const unsigned long ibmkey_verbs_ioctl = RDMA_VERBS_IOCTL;

/* What src/object.rs takes it for. */
_Static_assert((uintptr_t)__VERBS_ABI_IS_EXTENDED == UINTPTR_MAX,
	       "the mark of an extended context has changed");
