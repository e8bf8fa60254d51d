/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The input of bindgen: the headers of this library, of libibverbs and of the kernel. */
#include <infiniband/mkey.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <rdma/ib_mkey_ioctl.h>

/* bindgen cannot evaluate the macro RDMA_VERBS_IOCTL, so make it a constant. */
static const unsigned long ibmkey_verbs_ioctl = RDMA_VERBS_IOCTL;

/* src/object.rs and src/import.rs use this value. */
_Static_assert((uintptr_t)__VERBS_ABI_IS_EXTENDED == UINTPTR_MAX,
	       "the mark of an extended context has changed");
