// SPDX-License-Identifier: GPL-2.0
/*
 * The functions of include/rdma/ib_mkey.h, exported. They are Rust, in kapi.rs;
 * what exports a function, and parameters that are strings, exist for C only.
 */

#include <linux/export.h>
#include <linux/moduleparam.h>
#include <rdma/ib_mkey.h>

#include "uapi/uverbs_table.h"

char ib_mkey_dm_class[512] = "host";
module_param_string(dm_class, ib_mkey_dm_class, sizeof(ib_mkey_dm_class), 0444);
MODULE_PARM_DESC(dm_class,
		 "Device memory offered: [DEVICE/]CLASS,... of host, node=N, p2p=BDF, pmem=N (default host)");

EXPORT_SYMBOL_GPL(ib_alloc_dm);
EXPORT_SYMBOL_GPL(ib_free_dm);
EXPORT_SYMBOL_GPL(ib_reg_dm_mr);
EXPORT_SYMBOL_GPL(ib_memcpy_to_dm);
EXPORT_SYMBOL_GPL(ib_memcpy_from_dm);
EXPORT_SYMBOL_GPL(ib_dm_to_sgt);
EXPORT_SYMBOL_GPL(ib_export_dm);
EXPORT_SYMBOL_GPL(ib_alloc_mkey);
EXPORT_SYMBOL_GPL(ib_bind_mkey_list);
EXPORT_SYMBOL_GPL(ib_bind_mkey_interleaved);
EXPORT_SYMBOL_GPL(ib_bind_mkeys);
EXPORT_SYMBOL_GPL(ib_unbind_mkey);
EXPORT_SYMBOL_GPL(ib_query_mkey_caps);
EXPORT_SYMBOL_GPL(ib_mkey_pool_create);
EXPORT_SYMBOL_GPL(ib_mkey_pool_get);
EXPORT_SYMBOL_GPL(ib_mkey_pool_put);
EXPORT_SYMBOL_GPL(ib_mkey_pool_destroy);
