// SPDX-License-Identifier: GPL-2.0
/*
 * Exports the functions of include/rdma/ib_mkey.h, which api/kapi.rs,
 * api/bind_many.rs and api/key_pool.rs define. Rust has neither EXPORT_SYMBOL nor
 * module parameters that are strings.
 */

#include <linux/export.h>
#include <linux/moduleparam.h>
#include <rdma/ib_mkey.h>

#include "uverbs_table.h"

char ib_mkey_dm_class[512] = "host";
module_param_string(dm_class, ib_mkey_dm_class, sizeof(ib_mkey_dm_class), 0444);
MODULE_PARM_DESC(dm_class,
		 "Device memory offered: [DEVICE/]CLASS,... of host, node=N, p2p=BDF, pmem=N (default host)");

EXPORT_SYMBOL_NS_GPL(ib_alloc_dm, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_alloc_dm_class, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_query_dm_class, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_free_dm, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_reg_dm_mr, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_memcpy_to_dm, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_memcpy_from_dm, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_dm_to_sgt, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_export_dm, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_alloc_mkey, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_bind_mkey_list, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_bind_mkey_interleaved, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_bind_mkey_indexed, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_bind_mkeys, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_map_mkey, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_map_mkey_list, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_map_mkey_interleaved, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_map_mkey_indexed, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_unbind_mkey, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_query_mkey_caps, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_query_mkey_refused, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_mkey_pool_create, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_mkey_pool_get, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_mkey_pool_put, "IB_MKEY");
EXPORT_SYMBOL_NS_GPL(ib_mkey_pool_destroy, "IB_MKEY");
