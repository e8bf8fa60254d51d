// SPDX-License-Identifier: GPL-2.0
/* Builds RDMA_VERBS_IOCTL commands. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>

#include "raw.h"

void mkt_ioctl_init(struct mkt_ioctl *cmd, uint16_t object, uint16_t method)
{
	memset(cmd, 0, sizeof(*cmd));
	cmd->hdr.object_id = object;
	cmd->hdr.method_id = method;
	cmd->hdr.driver_id = RDMA_DRIVER_RXE;
}

struct ib_uverbs_attr *mkt_ioctl_add(struct mkt_ioctl *cmd, uint16_t id,
				     uint16_t length, uint64_t data)
{
	struct ib_uverbs_attr *attr;

	if (cmd->hdr.num_attrs == MKT_MAX_ATTRS)
		abort();
	attr = &cmd->attr[cmd->hdr.num_attrs++];
	attr->attr_id = id;
	attr->len = length;
	attr->flags = UVERBS_ATTR_F_MANDATORY;
	attr->data = data;
	return attr;
}

struct ib_uverbs_attr *mkt_ioctl_attr(struct mkt_ioctl *cmd, uint16_t id)
{
	unsigned int i;

	for (i = 0; i < cmd->hdr.num_attrs; i++)
		if (cmd->attr[i].attr_id == id)
			return &cmd->attr[i];
	abort();
}

void mkt_ioctl_drop(struct mkt_ioctl *cmd, uint16_t id)
{
	struct ib_uverbs_attr *attr = mkt_ioctl_attr(cmd, id);
	struct ib_uverbs_attr *last = &cmd->attr[--cmd->hdr.num_attrs];

	memmove(attr, attr + 1, (char *)last - (char *)attr);
	memset(last, 0, sizeof(*last));
}

int mkt_ioctl_run(struct ibv_context *ctx, struct mkt_ioctl *cmd)
{
	cmd->hdr.length = sizeof(cmd->hdr) +
			  cmd->hdr.num_attrs * sizeof(cmd->attr[0]);
	return ioctl(ctx->cmd_fd, RDMA_VERBS_IOCTL, &cmd->hdr) ? errno : 0;
}

static uint64_t mkt_ptr(const void *ptr)
{
	return (uintptr_t)ptr;
}

void mkt_raw_caps(struct mkt_ioctl *cmd, struct ib_uverbs_mkey_caps *caps)
{
	mkt_ioctl_init(cmd, UVERBS_OBJECT_DEVICE, IB_MKEY_METHOD_QUERY_CAPS);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_QUERY_CAPS_RESP, sizeof(*caps),
		      mkt_ptr(caps));
}

void mkt_raw_create(struct mkt_ioctl *cmd, struct ibv_pd *pd,
		    uint32_t max_entries, uint32_t *lkey, uint32_t *rkey)
{
	mkt_ioctl_init(cmd, UVERBS_OBJECT_MR, IB_MKEY_METHOD_CREATE);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_CREATE_HANDLE, 0, 0);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_CREATE_PD_HANDLE, 0, pd->handle);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_CREATE_MAX_ENTRIES,
		      sizeof(max_entries), max_entries);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_CREATE_RESP_LKEY, sizeof(*lkey),
		      mkt_ptr(lkey));
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_CREATE_RESP_RKEY, sizeof(*rkey),
		      mkt_ptr(rkey));
}

void mkt_raw_bind(struct mkt_ioctl *cmd, uint32_t handle,
		  const struct ib_uverbs_mkey_bind *layout)
{
	mkt_ioctl_init(cmd, UVERBS_OBJECT_MR, IB_MKEY_METHOD_BIND);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_BIND_HANDLE, 0, handle);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_BIND_LAYOUT, sizeof(*layout),
		      mkt_ptr(layout));
}

struct ib_uverbs_mkey_bind mkt_raw_list(uint32_t access,
					const struct ib_uverbs_mkey_sge *sge,
					uint32_t num)
{
	return (struct ib_uverbs_mkey_bind){
		.entries = mkt_ptr(sge),
		.kind = IB_UVERBS_MKEY_LIST,
		.num_entries = num,
		.entry_size = sizeof(*sge),
		.access = access,
	};
}

struct ib_uverbs_mkey_bind
mkt_raw_interleaved(uint32_t access, const uint64_t *repeat, uint32_t num_dims,
		    const struct ib_uverbs_mkey_block *blocks, uint32_t num)
{
	return (struct ib_uverbs_mkey_bind){
		.entries = mkt_ptr(blocks),
		.repeat_count = mkt_ptr(repeat),
		.kind = IB_UVERBS_MKEY_INTERLEAVED,
		.num_entries = num,
		.entry_size = sizeof(*blocks),
		.num_dims = num_dims,
		.access = access,
	};
}

struct ib_uverbs_mkey_bind
mkt_raw_indexed(uint32_t access, const struct ib_uverbs_mkey_indexed *layout)
{
	return (struct ib_uverbs_mkey_bind){
		.entries = mkt_ptr(layout),
		.kind = IB_UVERBS_MKEY_INDEXED,
		.num_entries = 1,
		.entry_size = sizeof(*layout),
		.access = access,
	};
}

void mkt_raw_bind_many(struct mkt_ioctl *cmd, const uint32_t *handles,
		       uint32_t num, const struct ib_uverbs_mkey_bind *binds,
		       uint32_t *failed)
{
	uint64_t inline_handles = 0;
	uint16_t length = num * sizeof(*handles);

	if (length <= sizeof(inline_handles))
		memcpy(&inline_handles, handles, length);
	else
		inline_handles = (uintptr_t)handles;
	mkt_ioctl_init(cmd, UVERBS_OBJECT_MR, IB_MKEY_METHOD_BIND_MANY);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_BIND_MANY_HANDLES, length,
		      inline_handles);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_BIND_MANY_BINDS, num * sizeof(*binds),
		      mkt_ptr(binds));
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_BIND_MANY_BIND_SIZE, sizeof(uint32_t),
		      sizeof(*binds));
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_BIND_MANY_RESP_FAILED, 4,
		      (uintptr_t)failed);
}

void mkt_raw_unbind(struct mkt_ioctl *cmd, uint32_t handle)
{
	mkt_ioctl_init(cmd, UVERBS_OBJECT_MR, IB_MKEY_METHOD_UNBIND);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_UNBIND_HANDLE, 0, handle);
}

void mkt_raw_query(struct mkt_ioctl *cmd, uint32_t handle,
		   struct ib_uverbs_mkey_info *info)
{
	mkt_ioctl_init(cmd, UVERBS_OBJECT_MR, IB_MKEY_METHOD_QUERY);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_QUERY_HANDLE, 0, handle);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_QUERY_RESP, sizeof(*info),
		      mkt_ptr(info));
}

void mkt_raw_dm_copy(struct mkt_ioctl *cmd, uint32_t handle, uint64_t dir,
		     uint64_t offset, void *addr, uint64_t length)
{
	mkt_ioctl_init(cmd, UVERBS_OBJECT_DM, IB_MKEY_METHOD_DM_COPY);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_DM_COPY_HANDLE, 0, handle);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_DM_COPY_DIR, sizeof(dir), dir);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_DM_COPY_OFFSET, sizeof(offset),
		      offset);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_DM_COPY_ADDR, sizeof(uint64_t),
		      mkt_ptr(addr));
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_DM_COPY_LENGTH, sizeof(length),
		      length);
}

void mkt_raw_dm_alloc(struct mkt_ioctl *cmd, uint64_t length, uint64_t class)
{
	mkt_ioctl_init(cmd, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC);
	mkt_ioctl_add(cmd, UVERBS_ATTR_ALLOC_DM_HANDLE, 0, 0);
	mkt_ioctl_add(cmd, UVERBS_ATTR_ALLOC_DM_LENGTH, sizeof(length),
		      length);
	mkt_ioctl_add(cmd, UVERBS_ATTR_ALLOC_DM_ALIGNMENT, sizeof(uint32_t),
		      0);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_DM_ALLOC_CLASS, sizeof(class), class);
}

void mkt_raw_dm_export(struct mkt_ioctl *cmd, uint32_t handle, int32_t *fd)
{
	mkt_ioctl_init(cmd, UVERBS_OBJECT_DM, IB_MKEY_METHOD_DM_EXPORT);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_DM_EXPORT_HANDLE, 0, handle);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_DM_EXPORT_RESP_FD, sizeof(*fd),
		      mkt_ptr(fd));
}

void mkt_raw_dm_view(struct mkt_ioctl *cmd, uint32_t handle, int32_t *fd,
		     uint64_t *length)
{
	mkt_ioctl_init(cmd, UVERBS_OBJECT_DM, IB_MKEY_METHOD_DM_VIEW);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_DM_VIEW_HANDLE, 0, handle);
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_DM_VIEW_RESP_FD, sizeof(*fd),
		      mkt_ptr(fd));
	mkt_ioctl_add(cmd, IB_MKEY_ATTR_DM_VIEW_RESP_LENGTH, sizeof(*length),
		      mkt_ptr(length));
}

void mkt_raw_dm_free(struct mkt_ioctl *cmd, uint32_t handle)
{
	mkt_ioctl_init(cmd, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE);
	mkt_ioctl_add(cmd, UVERBS_ATTR_FREE_DM_HANDLE, 0, handle);
}

int mkt_raw_rereg_to(struct ibv_mr *mr, uint32_t flags, struct ibv_pd *pd,
		     uint32_t access, const void *start, uint64_t length,
		     uint64_t iova)
{
	struct ib_uverbs_rereg_mr_resp resp;
	struct ib_uverbs_rereg_mr req = {
		.response = mkt_ptr(&resp),
		.mr_handle = mr->handle,
		.flags = flags,
		.start = mkt_ptr(start),
		.length = length,
		.hca_va = iova,
		.pd_handle = pd->handle,
		.access_flags = access,
	};
	struct mkt_ioctl cmd;
	int err;

	mkt_ioctl_init(&cmd, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	mkt_ioctl_add(&cmd, UVERBS_ATTR_CORE_IN, sizeof(req), mkt_ptr(&req));
	mkt_ioctl_add(&cmd, UVERBS_ATTR_CORE_OUT, sizeof(resp),
		      mkt_ptr(&resp));
	mkt_ioctl_add(&cmd, UVERBS_ATTR_WRITE_CMD, sizeof(uint64_t),
		      IB_USER_VERBS_CMD_REREG_MR);
	err = mkt_ioctl_run(mr->context, &cmd);
	if (!err) {
		mr->lkey = resp.lkey;
		mr->rkey = resp.rkey;
	}
	return err;
}

int mkt_raw_rereg(struct ibv_mr *mr, uint32_t flags, struct ibv_pd *pd,
		  uint32_t access)
{
	return mkt_raw_rereg_to(mr, flags, pd, access, mr->addr, mr->length,
				mkt_ptr(mr->addr));
}

int mkt_raw_advise(struct ibv_pd *pd, uint64_t advice, uint32_t flags, uint64_t addr,
		   uint32_t length, uint32_t lkey)
{
	struct ib_uverbs_sge sge = {
		.addr = addr,
		.length = length,
		.lkey = lkey,
	};

	return mkt_raw_advise_list(pd, advice, flags, &sge, 1);
}

int mkt_raw_advise_list(struct ibv_pd *pd, uint64_t advice, uint32_t flags,
			struct ib_uverbs_sge *list, uint16_t num)
{
	struct mkt_ioctl cmd;

	mkt_ioctl_init(&cmd, UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR);
	mkt_ioctl_add(&cmd, UVERBS_ATTR_ADVISE_MR_PD_HANDLE, 0, pd->handle);
	mkt_ioctl_add(&cmd, UVERBS_ATTR_ADVISE_MR_ADVICE, sizeof(uint64_t), advice);
	mkt_ioctl_add(&cmd, UVERBS_ATTR_ADVISE_MR_FLAGS, sizeof(uint32_t), flags);
	mkt_ioctl_add(&cmd, UVERBS_ATTR_ADVISE_MR_SGE_LIST, num * sizeof(*list),
		      mkt_ptr(list));
	return mkt_ioctl_run(pd->context, &cmd);
}

int mkt_raw_qp_destroy(struct ibv_qp *qp)
{
	struct ib_uverbs_destroy_qp_resp resp;
	struct mkt_ioctl cmd;

	mkt_ioctl_init(&cmd, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY);
	mkt_ioctl_add(&cmd, UVERBS_ATTR_DESTROY_QP_HANDLE, 0, qp->handle);
	mkt_ioctl_add(&cmd, UVERBS_ATTR_DESTROY_QP_RESP, sizeof(resp), (uintptr_t)&resp);
	return mkt_ioctl_run(qp->context, &cmd);
}

bool mkt_next_ring(unsigned long *start, unsigned long *end)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long behind = *end;
	bool found = false;
	char line[512];

	while (maps && !found && fgets(line, sizeof(line), maps))
		found = strstr(line, "uverbs") && sscanf(line, "%lx-%lx", start, end) == 2 &&
			*start >= behind;
	if (maps)
		fclose(maps);
	return found;
}

void mkt_raw_mr_destroy(struct mkt_ioctl *cmd, uint32_t handle)
{
	mkt_ioctl_init(cmd, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY);
	mkt_ioctl_add(cmd, UVERBS_ATTR_DESTROY_MR_HANDLE, 0, handle);
}
