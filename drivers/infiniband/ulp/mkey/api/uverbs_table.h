/* SPDX-License-Identifier: GPL-2.0 */
/* The uverbs tables, and the Rust functions that their methods call. */
#ifndef IB_MKEY_UVERBS_TABLE_H
#define IB_MKEY_UVERBS_TABLE_H

#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/ib_mkey_ioctl.h>

extern const struct uapi_definition ib_mkey_uapi_defs[];

/* The module parameter dm_class. */
extern char ib_mkey_dm_class[];

/* Defined in Rust: api/uverbs.rs, api/query.rs, api/bind_many.rs */
struct ib_mr *ib_mkey_uapi_create(struct ib_pd *pd, u32 max_entries, bool revocable,
				  struct ib_uverbs_mkey_refused *refused);
int ib_mkey_uapi_bind(struct ib_mr *mkey,
		      const struct ib_uverbs_mkey_bind *layout,
		      struct ib_uverbs_mkey_refused *refused);
int ib_mkey_uapi_bind_many(struct ib_mr *const *mkeys, u32 num, const u8 *binds,
			   u32 length, u32 size, u32 *failed,
			   struct ib_uverbs_mkey_refused *refused);
int ib_mkey_uapi_query(struct ib_mr *mkey, struct ib_uverbs_mkey_info *info, u64 *base,
		       u64 *repeat_count, u32 max_dims,
		       const struct ib_uverbs_mkey_indexed *wanted,
		       struct ib_uverbs_mkey_indexed *indexed, u64 blocks,
		       u32 num_blocks, struct ib_uverbs_mkey_refused *refused,
		       struct ib_uverbs_mkey_refused_access *refused_access);
int ib_mkey_uapi_query_refused_access(struct ib_ucontext *context,
				      struct ib_uverbs_mkey_refused_access *refused_access);
int ib_mkey_uapi_dm_copy(struct ib_dm *dm, bool to_dm, u64 offset, u64 addr,
			 u64 length);
struct dma_buf *ib_mkey_uapi_dm_view(struct ib_dm *dm);

#endif /* IB_MKEY_UVERBS_TABLE_H */
