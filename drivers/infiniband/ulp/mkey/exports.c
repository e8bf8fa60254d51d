// SPDX-License-Identifier: GPL-2.0
/*
 * The functions of include/rdma/ib_mkey.h, exported. They are Rust, in kapi.rs;
 * what exports a function exists for C only.
 */

#include <linux/export.h>
#include <rdma/ib_mkey.h>

EXPORT_SYMBOL_GPL(ib_alloc_dm);
EXPORT_SYMBOL_GPL(ib_free_dm);
EXPORT_SYMBOL_GPL(ib_reg_dm_mr);
EXPORT_SYMBOL_GPL(ib_memcpy_to_dm);
EXPORT_SYMBOL_GPL(ib_memcpy_from_dm);
EXPORT_SYMBOL_GPL(ib_alloc_mkey);
EXPORT_SYMBOL_GPL(ib_bind_mkey_list);
EXPORT_SYMBOL_GPL(ib_bind_mkey_interleaved);
EXPORT_SYMBOL_GPL(ib_unbind_mkey);
EXPORT_SYMBOL_GPL(ib_query_mkey_caps);
