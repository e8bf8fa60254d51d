// SPDX-License-Identifier: GPL-2.0
/* Valid commands, and the objects that they refer to. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "commands.h"

static void mkt_commands_layouts(struct mkt_commands *c)
{
	struct mkt_leaf *leaf = &c->arena.leaf[0];
	unsigned int i;

	c->repeat[0] = 3;
	c->repeat[1] = 2;
	for (i = 0; i < 2; i++) {
		c->sge[i].addr = leaf->addr + 100 * i;
		c->sge[i].length = 10 + i;
		c->sge[i].lkey = leaf->mr->lkey;
		c->block[i].addr = leaf->addr + 100 * i;
		c->block[i].bytes_count = 20 + i;
		c->block[i].stride[0] = 400;
		c->block[i].stride[1] = 50;
		c->block[i].lkey = leaf->mr->lkey;
	}
	c->indices[0] = 7;
	c->indices[1] = 0;
	c->indices[2] = 2;
	c->indexed = (struct ib_uverbs_mkey_indexed){
		.addr = leaf->addr + 40,
		.unit = 30,
		.bytes_count = 20,
		.indices = (uintptr_t)c->indices,
		.num_indices = 3,
		.index_bytes = 8,
		.lkey = leaf->mr->lkey,
	};
}

int mkt_commands_setup(struct mkt_commands *c)
{
	int err;

	err = mkt_arena_standard(&c->arena, &c->dev, 65536, 4096);
	if (err)
		return err;
	mkt_commands_layouts(c);
	c->key = ibmkey_alloc(c->dev.pd, 4);
	c->other = ibmkey_alloc(c->dev.pd, 4);
	c->third = ibmkey_alloc(c->dev.pd, 4);
	if (!c->key || !c->other || !c->third)
		return errno;

	/* leave no unused descriptors below it */
	do {
		c->first_fd = dup(0);
		if (c->first_fd < 0)
			return errno;
	} while (c->first_fd < 64);
	close(c->first_fd);

	c->nowhere = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (c->nowhere == MAP_FAILED)
		return errno;
	c->nowhere += 4096;
	return mprotect(c->nowhere, 4096, PROT_NONE) ? errno : 0;
}

int mkt_commands_teardown(struct mkt_commands *c)
{
	int err, first;

	first = ibv_dereg_mr(c->key) ?: ibv_dereg_mr(c->other) ?:
		ibv_dereg_mr(c->third);
	err = mkt_arena_free(&c->arena);
	munmap(c->nowhere - 4096, 8192);
	mkt_dev_close(&c->dev);
	return first ?: err;
}

static void mkt_commands_many(struct mkt_commands *c)
{
	c->handles[0] = c->key->handle;
	c->handles[1] = c->other->handle;
	c->handles[2] = c->third->handle;
}

static void mkt_commands_binds(struct mkt_commands *c)
{
	c->bind[0] = mkt_raw_list(MKT_ACCESS_ALL, c->sge, 2);
	c->bind[1] = mkt_raw_interleaved(MKT_ACCESS_ALL, c->repeat, 2,
					 c->block, 2);
	c->bind[2] = mkt_raw_indexed(MKT_ACCESS_ALL, &c->indexed);
}

void mkt_command_build(struct mkt_commands *c, struct mkt_ioctl *cmd,
		       enum mkt_what what)
{
	uint32_t key = c->key->handle;

	mkt_commands_binds(c);
	switch (what) {
	case CREATE:
		mkt_raw_create(cmd, c->dev.pd, 3, &c->lkey, &c->rkey);
		break;
	case BIND_LIST:
		mkt_raw_bind(cmd, key, &c->bind[0]);
		break;
	case BIND_INTERLEAVED:
		mkt_raw_bind(cmd, key, &c->bind[1]);
		break;
	case BIND_INDEXED:
		mkt_raw_bind(cmd, key, &c->bind[2]);
		break;
	case QUERY:
		mkt_raw_query(cmd, key, &c->info);
		break;
	case UNBIND:
		mkt_raw_unbind(cmd, key);
		break;
	case CAPS:
		/* the buffer has more room than needed */
		mkt_raw_caps(cmd, (void *)c->bytes);
		break;
	case DM_ALLOC:
		mkt_raw_dm_alloc(cmd, 5000, IBMKEY_DM_HOST);
		break;
	case BIND_MANY:
		mkt_commands_many(c);
		mkt_raw_bind_many(cmd, c->handles, 3, c->bind, &c->failed);
		break;
	case DM_EXPORT:
		mkt_raw_dm_export(cmd, c->arena.mem[1].dm->handle,
				  &c->exported);
		break;
	case DM_VIEW:
		mkt_raw_dm_view(cmd, c->arena.mem[1].dm->handle, &c->exported,
				&c->viewed);
		break;
	default:
		mkt_raw_dm_copy(cmd, c->arena.mem[1].dm->handle,
				IB_UVERBS_MKEY_DM_COPY_FROM, 10, c->bytes, 64);
	}
}

int mkt_command_run(struct mkt_commands *c, struct mkt_ioctl *cmd)
{
	int err = mkt_ioctl_run(c->dev.ctx, cmd);
	struct mkt_ioctl destroy;

	if (err)
		return err;
	if (cmd->hdr.object_id == UVERBS_OBJECT_MR &&
	    cmd->hdr.method_id == IB_MKEY_METHOD_CREATE) {
		mkt_raw_mr_destroy(&destroy,
				   mkt_ioctl_attr(cmd, IB_MKEY_ATTR_CREATE_HANDLE)->data);
		return mkt_ioctl_run(c->dev.ctx, &destroy);
	}
	if (cmd->hdr.object_id != UVERBS_OBJECT_DM)
		return 0;
	if (cmd->hdr.method_id == UVERBS_METHOD_DM_ALLOC) {
		mkt_raw_dm_free(&destroy,
				mkt_ioctl_attr(cmd, UVERBS_ATTR_ALLOC_DM_HANDLE)->data);
		return mkt_ioctl_run(c->dev.ctx, &destroy);
	}
	/* a changed command may have stored the number anywhere */
	if (cmd->hdr.method_id == IB_MKEY_METHOD_DM_EXPORT ||
	    cmd->hdr.method_id == IB_MKEY_METHOD_DM_VIEW)
		close_range(c->first_fd, ~0u, 0);
	return 0;
}
