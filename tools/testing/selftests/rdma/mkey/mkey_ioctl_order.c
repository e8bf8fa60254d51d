// SPDX-License-Identifier: GPL-2.0
/*
 * subject: The order in which a bind makes its checks, as uapi.rst lists them (Order of checks).
 * A description begins with many mistakes. Each step corrects one of them, and the call returns
 * the error of the next one in the list. No refused call changes the key.
 */
#include "commands.h"
#include "mkey_harness.h"

FIXTURE(ioctl_order)
{
	struct mkt_commands c;
	struct ib_uverbs_mkey_bind bind;
	/* without local write */
	struct ibv_mr *readable;
	/* bound to a byte of c.key, so that no bind of c.key succeeds */
	struct ibv_mr *outer;
	uint32_t unknown;
};

FIXTURE_SETUP(ioctl_order)
{
	struct ibmkey_range range = { .length = 1 };
	struct mkt_commands *c = &self->c;

	MKT_OPEN_SIDE(&c->dev, 0);
	ASSERT_EQ(0, mkt_commands_setup(c));
	self->readable = ibv_reg_mr(c->dev.pd, c->bytes, sizeof(c->bytes), 0);
	ASSERT_NE(NULL, self->readable);
	self->unknown = c->sge[0].lkey ^ 1;
	range.addr = c->sge[0].addr;
	range.lkey = c->sge[0].lkey;
	ASSERT_EQ(0, ibmkey_bind_list(c->key, 0, 1, &range));
	self->outer = ibmkey_alloc(c->dev.pd, 1);
	ASSERT_NE(NULL, self->outer);
	range.addr = 0;
	range.lkey = c->key->lkey;
	ASSERT_EQ(0, ibmkey_bind_list(self->outer, 0, 1, &range));
}

FIXTURE_TEARDOWN(ioctl_order)
{
	EXPECT_EQ(0, ibv_dereg_mr(self->outer));
	EXPECT_EQ(0, ibmkey_unbind(self->c.key));
	EXPECT_EQ(0, ibv_dereg_mr(self->readable));
	EXPECT_EQ(0, mkt_commands_teardown(&self->c));
}

/* Binds the MR @handle to @bind. Returns -1 if a refused call has changed the key. */
static int order_bind(struct mkt_commands *c, uint32_t handle,
		      const struct ib_uverbs_mkey_bind *bind)
{
	struct ibmkey_info before, after;
	struct mkt_ioctl cmd;
	int err;

	if (ibmkey_query(c->key, &before))
		return -1;
	mkt_raw_bind(&cmd, handle, bind);
	err = mkt_ioctl_run(c->dev.ctx, &cmd);
	if (ibmkey_query(c->key, &after))
		return -1;
	if (err && (after.rkey != before.rkey || after.kind != before.kind ||
		    after.length != before.length || after.access != before.access))
		return -1;
	return err;
}

#define EXPECT_REFUSED(error)							\
	EXPECT_EQ(error, order_bind(&self->c, self->c.key->handle, &self->bind))

/* corrects a mistake; the next one of the list has the error */
#define STEP(error, correction) do {						\
	correction;								\
	EXPECT_REFUSED(error);							\
} while (0)

/* the last steps are the same for each kind of layout, which has no other mistakes */
#define EXPECT_LAST_STEPS() do {						\
	self->bind.rkey = self->c.key->rkey;					\
	EXPECT_REFUSED(EINVAL);							\
	self->bind.comp_mask = IB_UVERBS_MKEY_BIND_RKEY;			\
	self->bind.rkey ^= 0x100;						\
	EXPECT_REFUSED(EINVAL);							\
	self->bind.rkey ^= 0x100;						\
	EXPECT_REFUSED(EBUSY);							\
	EXPECT_EQ(0, ibmkey_unbind(self->outer));				\
	EXPECT_REFUSED(0);							\
} while (0)

TEST_F(ioctl_order, call)
{
	struct mkt_commands *c = &self->c;
	struct ib_uverbs_attr *layout;
	struct mkt_ioctl cmd;

	self->bind = mkt_raw_list(0, c->nowhere, UINT32_MAX);
	self->bind.comp_mask = UINT32_MAX;
	memcpy(c->bytes, &self->bind, sizeof(self->bind));
	c->bytes[sizeof(self->bind)] = 1;
	mkt_raw_bind(&cmd, UINT32_MAX, &self->bind);
	layout = mkt_ioctl_attr(&cmd, IB_MKEY_ATTR_BIND_LAYOUT);
	layout->len = sizeof(self->bind) + 8;
	layout->data = (uintptr_t)c->bytes;
	EXPECT_EQ(ENOENT, mkt_ioctl_run(c->dev.ctx, &cmd));
	mkt_ioctl_attr(&cmd, IB_MKEY_ATTR_BIND_HANDLE)->data = self->readable->handle;
	EXPECT_EQ(EOPNOTSUPP, mkt_ioctl_run(c->dev.ctx, &cmd));
	c->bytes[sizeof(self->bind)] = 0;
	EXPECT_EQ(EINVAL, mkt_ioctl_run(c->dev.ctx, &cmd));
	/* a description without that mistake of an MR that is not a key */
	self->bind.comp_mask = 0;
	EXPECT_EQ(EINVAL, order_bind(c, self->readable->handle, &self->bind));
	EXPECT_REFUSED(ENOSPC);
}

TEST_F(ioctl_order, list)
{
	struct mkt_commands *c = &self->c;

	self->bind = mkt_raw_list(IBV_ACCESS_ON_DEMAND, c->nowhere, UINT32_MAX);
	self->bind.reserved = 1;
	EXPECT_REFUSED(EINVAL);
	self->bind.reserved = 0;
	self->bind.entry_size++;
	EXPECT_REFUSED(EINVAL);
	STEP(ENOSPC, self->bind.entry_size--);
	STEP(EINVAL, self->bind.num_entries = 5);
	STEP(ENOSPC, self->bind.access = IBV_ACCESS_LOCAL_WRITE);
	STEP(EFAULT, self->bind.num_entries = 2);

	/* entry by entry */
	self->bind.entries = (uintptr_t)c->sge;
	c->sge[0] = (struct ib_uverbs_mkey_sge){ .lkey = self->unknown, .comp_mask = 1 };
	c->sge[1] = c->sge[0];
	EXPECT_REFUSED(EINVAL);
	STEP(ENOENT, c->sge[0].comp_mask = 0);
	STEP(ELOOP, c->sge[0].lkey = c->key->lkey);
	STEP(EINVAL, c->sge[0].lkey = self->readable->lkey);
	STEP(ENOENT, c->sge[1].comp_mask = 0);
	c->sge[1].lkey = self->readable->lkey;

	/* the layout as a whole */
	c->sge[1].addr = 2;
	c->sge[1].length = UINT64_MAX;
	EXPECT_REFUSED(EINVAL);
	STEP(EOVERFLOW, c->sge[0].length = 1);
	STEP(EACCES, c->sge[1].length = 1);
	self->bind.access = 0;
	self->bind.rkey = 1;
	EXPECT_REFUSED(ERANGE);
	STEP(ERANGE, c->sge[0].addr = (uintptr_t)c->bytes);
	c->sge[1].addr = (uintptr_t)c->bytes;
	EXPECT_LAST_STEPS();
}

TEST_F(ioctl_order, interleaved)
{
	struct mkt_commands *c = &self->c;

	self->bind = mkt_raw_interleaved(IBV_ACCESS_ON_DEMAND, c->nowhere, 0, c->nowhere,
					 UINT32_MAX);
	EXPECT_REFUSED(EINVAL);
	STEP(EINVAL, self->bind.num_dims = IB_MKEY_MAX_DIMS + 1);
	STEP(EFAULT, self->bind.num_dims = 2);
	STEP(ENOSPC, self->bind.repeat_count = (uintptr_t)c->repeat);
	STEP(EINVAL, self->bind.num_entries = 5);
	STEP(ENOSPC, self->bind.access = IBV_ACCESS_LOCAL_WRITE);
	STEP(EFAULT, self->bind.num_entries = 2);

	/* block by block */
	self->bind.entries = (uintptr_t)c->block;
	memset(c->block, 0, sizeof(c->block));
	c->block[0].lkey = self->unknown;
	c->block[0].stride[2] = 1;
	c->block[1] = c->block[0];
	EXPECT_REFUSED(EINVAL);
	STEP(ENOENT, c->block[0].stride[2] = 0);
	STEP(EINVAL, c->block[0].lkey = self->readable->lkey);
	STEP(ENOENT, c->block[1].stride[2] = 0);
	c->block[1].lkey = self->readable->lkey;

	/* the layout as a whole */
	c->repeat[1] = 0;
	c->block[1].bytes_count = UINT64_MAX;
	EXPECT_REFUSED(EINVAL);
	STEP(EINVAL, c->repeat[1] = 2);
	STEP(EOVERFLOW, c->block[0].bytes_count = 1);
	STEP(EACCES, c->block[1].bytes_count = 1);
	self->bind.access = 0;
	self->bind.rkey = 1;
	EXPECT_REFUSED(ERANGE);
	c->block[0].addr = (uintptr_t)c->bytes;
	c->block[1].addr = (uintptr_t)c->bytes;
	EXPECT_LAST_STEPS();
}

TEST_F(ioctl_order, indexed)
{
	struct mkt_commands *c = &self->c;

	self->bind = mkt_raw_indexed(IBV_ACCESS_ON_DEMAND, c->nowhere);
	self->bind.num_entries = UINT32_MAX;
	EXPECT_REFUSED(EINVAL);
	STEP(EFAULT, self->bind.num_entries = 1);
	self->bind.entries = (uintptr_t)&c->indexed;
	c->indexed = (struct ib_uverbs_mkey_indexed){
		.indices = (uintptr_t)c->nowhere,
		.num_indices = UINT32_MAX,
		.index_bytes = 5,
		.lkey = self->unknown,
		.comp_mask = 1,
	};
	EXPECT_REFUSED(EINVAL);
	STEP(EINVAL, c->indexed.comp_mask = 0);
	STEP(ENOSPC, self->bind.access = IBV_ACCESS_LOCAL_WRITE);
	STEP(EINVAL, c->indexed.num_indices = 3);
	STEP(EFAULT, c->indexed.index_bytes = 8);
	STEP(ENOENT, c->indexed.indices = (uintptr_t)c->indices);
	c->indexed.lkey = self->readable->lkey;

	/* the layout as a whole */
	c->indices[2] = UINT64_MAX;
	c->indexed.unit = 2;
	EXPECT_REFUSED(EINVAL);
	STEP(EOVERFLOW, c->indexed.bytes_count = 1);
	STEP(EACCES, c->indices[2] = 1);
	self->bind.access = 0;
	self->bind.rkey = 1;
	EXPECT_REFUSED(ERANGE);
	c->indexed.addr = (uintptr_t)c->bytes;
	EXPECT_LAST_STEPS();
}

TEST_HARNESS_MAIN
