/* SPDX-License-Identifier: GPL-2.0 */
/* The uverbs method of mkey_floor.ko, an addition to UVERBS_OBJECT_MR for the benchmark. */
#ifndef MKEY_FLOOR_H
#define MKEY_FLOOR_H

#include <rdma/ib_user_ioctl_cmds.h>

enum mkey_floor_methods {
	/* attributes of IB_MKEY_METHOD_BIND; binds nothing; ib_mkey has no method of this id */
	MKEY_FLOOR_METHOD = (1U << UVERBS_ID_NS_SHIFT) + 7,
};

enum mkey_floor_attrs {
	MKEY_FLOOR_ATTR_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	MKEY_FLOOR_ATTR_LAYOUT,
	MKEY_FLOOR_ATTR_RESP_RKEY,
};

#endif /* MKEY_FLOOR_H */
