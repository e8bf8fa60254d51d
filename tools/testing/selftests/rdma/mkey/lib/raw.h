/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The ioctl interface without a library, so that a test can send commands that
 * the library refuses.
 */
#ifndef MKEY_TEST_RAW_H
#define MKEY_TEST_RAW_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/ib_mkey_ioctl.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#define MKT_MAX_ATTRS 16

struct mkt_ioctl {
	struct ib_uverbs_ioctl_hdr hdr;
	struct ib_uverbs_attr attr[MKT_MAX_ATTRS];
};

void mkt_ioctl_init(struct mkt_ioctl *cmd, uint16_t object, uint16_t method);
/* adds one mandatory attribute */
struct ib_uverbs_attr *mkt_ioctl_add(struct mkt_ioctl *cmd, uint16_t id,
				     uint16_t length, uint64_t data);
/* the attribute @id of @cmd */
struct ib_uverbs_attr *mkt_ioctl_attr(struct mkt_ioctl *cmd, uint16_t id);
void mkt_ioctl_drop(struct mkt_ioctl *cmd, uint16_t id);
/* returns 0 or an errno value */
int mkt_ioctl_run(struct ibv_context *ctx, struct mkt_ioctl *cmd);

/* build complete commands; the memory that they point to stays the caller's */
void mkt_raw_caps(struct mkt_ioctl *cmd, struct ib_uverbs_mkey_caps *caps);
void mkt_raw_create(struct mkt_ioctl *cmd, struct ibv_pd *pd,
		    uint32_t max_entries, uint32_t *lkey, uint32_t *rkey);
void mkt_raw_bind(struct mkt_ioctl *cmd, uint32_t handle,
		  const struct ib_uverbs_mkey_bind *layout);
/* the descriptions for it */
struct ib_uverbs_mkey_bind mkt_raw_list(uint32_t access,
					const struct ib_uverbs_mkey_sge *sge,
					uint32_t num);
struct ib_uverbs_mkey_bind
mkt_raw_interleaved(uint32_t access, const uint64_t *repeat, uint32_t num_dims,
		    const struct ib_uverbs_mkey_block *blocks, uint32_t num);
struct ib_uverbs_mkey_bind
mkt_raw_indexed(uint32_t access, const struct ib_uverbs_mkey_indexed *layout);
/* the command contains up to two handles itself */
void mkt_raw_bind_many(struct mkt_ioctl *cmd, const uint32_t *handles,
		       uint32_t num, const struct ib_uverbs_mkey_bind *binds,
		       uint32_t *failed);
void mkt_raw_unbind(struct mkt_ioctl *cmd, uint32_t handle);
void mkt_raw_query(struct mkt_ioctl *cmd, uint32_t handle,
		   struct ib_uverbs_mkey_info *info);
void mkt_raw_dm_copy(struct mkt_ioctl *cmd, uint32_t handle, uint64_t dir,
		     uint64_t offset, void *addr, uint64_t length);
/* with a class, which the test may remove again */
void mkt_raw_dm_alloc(struct mkt_ioctl *cmd, uint64_t length, uint64_t class);
void mkt_raw_dm_export(struct mkt_ioctl *cmd, uint32_t handle, int32_t *fd);
void mkt_raw_dm_view(struct mkt_ioctl *cmd, uint32_t handle, int32_t *fd,
		     uint64_t *length);
void mkt_raw_dm_free(struct mkt_ioctl *cmd, uint32_t handle);
/* runs it: IBV_REREG_MR_*; some providers lack the verb */
int mkt_raw_rereg(struct ibv_mr *mr, uint32_t flags, struct ibv_pd *pd,
		  uint32_t access);
/* the same with a new translation; sets the keys in @mr */
int mkt_raw_rereg_to(struct ibv_mr *mr, uint32_t flags, struct ibv_pd *pd,
		     uint32_t access, const void *start, uint64_t length,
		     uint64_t iova);
/*
 * runs it, with one entry; @advice of enum ib_uverbs_advise_mr_advice, @flags of enum
 * ib_uverbs_advise_mr_flag
 */
int mkt_raw_advise(struct ibv_pd *pd, uint64_t advice, uint32_t flags, uint64_t addr,
		   uint32_t length, uint32_t lkey);
/* the same with a list */
int mkt_raw_advise_list(struct ibv_pd *pd, uint64_t advice, uint32_t flags,
			struct ib_uverbs_sge *list, uint16_t num);
/* ibv_destroy_qp() also unmaps the rings, for which it needs the lock that an access may hold */
int mkt_raw_qp_destroy(struct ibv_qp *qp);
/* the first ring of a queue of this process behind *@end, which is 0 at first; false without one */
bool mkt_next_ring(unsigned long *start, unsigned long *end);
void mkt_raw_mr_destroy(struct mkt_ioctl *cmd, uint32_t handle);

#endif /* MKEY_TEST_RAW_H */
