// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Device memory while each allocation and each user copy of a call fails in turn.
 * needs: faults
 */
#include "fail.h"

static int fail_copy(FIXTURE_DATA(fail_nth) *self)
{
	mkt_command_build(&self->c, &self->cmd, DM_COPY);
	return 0;
}

TEST_F(fail_nth, dm_copy)
{
	static const struct fail_op op = { fail_copy, fail_run_command };

	EXPECT_LT(0, fail_sweep(self, &op));
}

static int fail_dm_alloc(FIXTURE_DATA(fail_nth) *self)
{
	self->dm = mkt_dm_alloc(&self->c.dev, 100000, 0, 0);
	return self->dm ? 0 : errno;
}

static int fail_dm_allocated(FIXTURE_DATA(fail_nth) *self, int err)
{
	return err ? 0 : ibv_free_dm(self->dm);
}

/* a failure loses none of the quota */
TEST_F(fail_nth, dm_alloc)
{
	static const struct fail_op op = {
		NULL, fail_dm_alloc, fail_dm_allocated,
	};
	struct ibv_alloc_dm_attr attr = {
		/* all bytes but those of the fixture */
		.length = mkt_dm_share(&self->c.dev) - 8192,
	};
	struct ibv_dm *dm;

	if (self->c.dev.caps.max_dm_size > 1ull << 30)
		SKIP(return, "too much device memory to take all of it");
	EXPECT_LT(0, fail_sweep(self, &op));
	dm = ibv_alloc_dm(self->c.dev.ctx, &attr);
	ASSERT_NE(NULL, dm);
	EXPECT_EQ(0, ibv_free_dm(dm));
}

static int fail_far_alloc(FIXTURE_DATA(fail_nth) *self)
{
	self->dm = mkt_dm_alloc(&self->c.dev, 100000, 15, self->class);
	return self->dm ? 0 : errno;
}

/* a failure loses none of a pool of any class */
TEST_F(fail_nth, dm_alloc_class)
{
	static const struct fail_op op = {
		NULL, fail_far_alloc, fail_dm_allocated,
	};
	static const struct {
		const char *name;
		uint32_t bit;
	} classes[] = {
		{ "host", IBMKEY_DM_HOST },
		{ "node", IBMKEY_DM_NODE },
		{ "p2p", IBMKEY_DM_P2P },
		{ "pmem", IBMKEY_DM_PMEM },
	};
	struct mkt_pool before, after;
	unsigned int i;
	char what[64];

	for (i = 0; i < ARRAY_SIZE(classes); i++) {
		if (!(self->c.dev.caps.dm_classes & classes[i].bit))
			continue;
		if (i >= 2 && !mkt_hardware(what, sizeof(what), classes[i].name))
			continue;
		if (mkt_pool(&self->c.dev, classes[i].name, &before))
			continue;
		self->class = classes[i].bit;
		EXPECT_LT(0, fail_sweep(self, &op));
		EXPECT_EQ(0, mkt_pool(&self->c.dev, classes[i].name, &after));
		EXPECT_EQ(before.used, after.used);
		EXPECT_EQ(before.buffers, after.buffers);
	}
}

static int fail_export(FIXTURE_DATA(fail_nth) *self)
{
	mkt_command_build(&self->c, &self->cmd, DM_EXPORT);
	mkt_ioctl_attr(&self->cmd, IB_MKEY_ATTR_DM_EXPORT_HANDLE)->data =
		self->dm->handle;
	return mkt_ioctl_run(self->c.dev.ctx, &self->cmd);
}

static int fail_view(FIXTURE_DATA(fail_nth) *self)
{
	mkt_command_build(&self->c, &self->cmd, DM_VIEW);
	mkt_ioctl_attr(&self->cmd, IB_MKEY_ATTR_DM_VIEW_HANDLE)->data =
		self->dm->handle;
	return mkt_ioctl_run(self->c.dev.ctx, &self->cmd);
}

/* a failure leaves no descriptor, and the memory can be freed */
static int fail_exported(FIXTURE_DATA(fail_nth) *self, int err)
{
	bool open = fcntl(self->c.first_fd, F_GETFD) >= 0;

	if (open)
		close(self->c.first_fd);
	return open == !err ? ibv_free_dm(self->dm) : EBADMSG;
}

TEST_F(fail_nth, dm_export)
{
	static const struct fail_op op = {
		fail_dm_alloc, fail_export, fail_exported,
	};

	EXPECT_LT(0, fail_sweep(self, &op));
}

TEST_F(fail_nth, dm_view)
{
	static const struct fail_op op = {
		fail_dm_alloc, fail_view, fail_exported,
	};

	EXPECT_LT(0, fail_sweep(self, &op));
}

static int fail_dm_reg(FIXTURE_DATA(fail_nth) *self)
{
	self->mr = ibv_reg_dm_mr(self->c.dev.pd, self->c.arena.mem[1].dm, 3,
				 1000, MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	return self->mr ? 0 : errno;
}

static int fail_dm_registered(FIXTURE_DATA(fail_nth) *self, int err)
{
	return err ? 0 : ibv_dereg_mr(self->mr);
}

TEST_F(fail_nth, dm_reg)
{
	static const struct fail_op op = {
		NULL, fail_dm_reg, fail_dm_registered,
	};

	EXPECT_LT(0, fail_sweep(self, &op));
}

int main(int argc, char **argv)
{
	return fail_main(argc, argv);
}
