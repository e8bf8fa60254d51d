/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The input of bindgen: the library's header, libibverbs's and the kernel's. */
#include <infiniband/mkey.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <rdma/ib_mkey_ioctl.h>

/* bindgen cannot evaluate this macro. */
static const unsigned long ibmkey_verbs_ioctl = RDMA_VERBS_IOCTL;

/* src/object.rs uses this value. */
_Static_assert((uintptr_t)__VERBS_ABI_IS_EXTENDED == UINTPTR_MAX,
	       "the mark of an extended context has changed");
