// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Two processes: what one may not do to the other, and what is left after one of them
 * dies. mkey_access has requests by a key of another PD, and of another process.
 * sets: first
 */
#include <fcntl.h>
#include <sys/wait.h>

#include "mkey_harness.h"
#include "peer.h"
#include "raw.h"

FIXTURE(process)
{
	struct mkt_dev dev[2];
	struct mkt_arena arena[2];	/* the one on device 1 is ours too */
	struct mkt_qp qp;		/* on device 0, for the other process */
	struct mkt_peer self;
	struct ibv_mr *key;		/* on device 1 */
	struct mkt_child child;
	int count[2];			/* MRs and QPs before there was a child */
	struct mkt_pool pool;		/* device memory before there was one */
};

FIXTURE_SETUP(process)
{
	unsigned int i;

	MKT_OPEN_EXTENDED(self->dev);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, mkt_arena_standard(&self->arena[i], &self->dev[i],
						256 * 1024, 4096));
	}
	self->key = ibmkey_alloc(self->dev[1].pd, 4);
	ASSERT_NE(NULL, self->key);
	ASSERT_EQ(0, mkt_qp_create(&self->qp, &self->dev[0],
				   MKT_QP_BRIEF));
	mkt_qp_self(&self->qp, &self->self);
	self->count[0] = mkt_dev_count(&self->dev[1], "mr");
	self->count[1] = mkt_dev_count(&self->dev[1], "qp");
	/* zeros without debugfs */
	mkt_pool(&self->dev[1], "host", &self->pool);
	ASSERT_EQ(0, mkt_child_start(&self->child, &self->self, 256 * 1024,
				     8192));
	ASSERT_EQ(0, mkt_qp_connect(&self->qp, &self->child.info.qp,
				    IBV_MTU_1024));
}

FIXTURE_TEARDOWN(process)
{
	unsigned int i;

	mkt_qp_destroy(&self->qp);
	EXPECT_EQ(0, ibv_dereg_mr(self->key));
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, mkt_arena_free(&self->arena[i]));
		mkt_dev_close(&self->dev[i]);
	}
}

/* a request to the other process, by the rkey that it sent */
static enum ibv_wc_status process_write(struct mkt_qp *qp,
					struct mkt_arena *arena, uint64_t addr,
					uint32_t rkey, enum mkt_op op)
{
	struct mkt_wr wr = {
		.op = op,
		.sge[0] = {
			.addr = arena->leaf[0].addr,
			.length = 8,
			.lkey = arena->leaf[0].mr->lkey,
		},
		.num_sge = 1,
		.remote_addr = addr,
		.rkey = rkey,
		.swap_add = 1,
	};
	struct ibv_wc wc;

	if (mkt_post_send(qp, &wr, 0) || mkt_poll(qp, &wc))
		return IBV_WC_GENERAL_ERR;
	return wc.status;
}

/* the other process's handles and lkeys name nothing in this process */
TEST_F(process, handles_and_lkeys)
{
	struct mkt_peer_info *info = &self->child.info;
	struct ibv_context *ctx = self->dev[1].ctx;
	struct ib_uverbs_mkey_sge raw_sge = {
		.addr = self->arena[1].leaf[0].addr,
		.length = 8,
		.lkey = self->arena[1].leaf[0].mr->lkey,
	};
	struct ib_uverbs_mkey_bind bind = mkt_raw_list(0, &raw_sge, 1);
	struct ibv_sge sge = { .length = 8, .lkey = info->lkey };
	struct ib_uverbs_mkey_info seen;
	uint8_t bytes[8];
	struct mkt_ioctl cmd;
	uint32_t handle;

	/*
	 * each process's handles start at zero: take one that this process lacks
	 */
	handle = info->handle;
	if (handle == self->key->handle || handle < 16) {
		handle += 16;
	}
	mkt_raw_query(&cmd, handle, &seen);
	EXPECT_EQ(ENOENT, mkt_ioctl_run(ctx, &cmd));
	mkt_raw_unbind(&cmd, handle);
	EXPECT_EQ(ENOENT, mkt_ioctl_run(ctx, &cmd));
	mkt_raw_bind(&cmd, handle, &bind);
	EXPECT_EQ(ENOENT, mkt_ioctl_run(ctx, &cmd));
	mkt_raw_mr_destroy(&cmd, handle);
	EXPECT_EQ(ENOENT, mkt_ioctl_run(ctx, &cmd));
	mkt_raw_dm_copy(&cmd, info->dm_handle + 64,
			IB_UVERBS_MKEY_DM_COPY_FROM, 0, bytes, 8);
	EXPECT_EQ(ENOENT, mkt_ioctl_run(ctx, &cmd));

	/* lkeys belong to the device, but those of another PD name nothing here */
	EXPECT_EQ(ENOENT, ibv_rereg_mr_sg(self->key, 0, 1, &sge));
	sge.addr = info->leaf_addr;
	sge.lkey = info->leaf_rkey;
	EXPECT_EQ(ENOENT, ibv_rereg_mr_sg(self->key, 0, 1, &sge));
	EXPECT_EQ(0, mkt_child_ask(&self->child, MKT_CHILD_CHECK));
	EXPECT_EQ(0, mkt_child_end(&self->child, true));
}

TEST_F(process, other_unbinds)
{
	EXPECT_EQ(0, mkt_child_ask(&self->child, MKT_CHILD_UNBIND));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  process_write(&self->qp, &self->arena[0], 0,
				self->child.info.rkey, MKT_WRITE));
	EXPECT_EQ(0, mkt_child_ask(&self->child, MKT_CHILD_CHECK));
	EXPECT_EQ(0, mkt_child_end(&self->child, true));
}

/* the child's MRs, queue pairs and device memory are gone */
static void process_left_nothing(struct __test_metadata *_metadata, FIXTURE_DATA(process) *self)
{
	if (self->count[0] >= 0) {
		EXPECT_EQ(self->count[0], mkt_dev_count(&self->dev[1], "mr"));
		EXPECT_EQ(self->count[1], mkt_dev_count(&self->dev[1], "qp"));
	}
	/* zeros without debugfs */
	EXPECT_TRUE(!self->pool.total ||
		    mkt_pool_grew(&self->dev[1], "host", &self->pool, 0));
}

/* nothing of the process is left, whatever was in progress */
static void process_gone(struct __test_metadata *_metadata,
			 FIXTURE_DATA(process) *self, bool by_force)
{
	struct mkt_arena *arena = &self->arena[0];
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = {
			.addr = arena->leaf[0].addr,
			.length = self->child.info.length,
			.lkey = arena->leaf[0].mr->lkey,
		},
		.num_sge = 1,
		.rkey = self->child.info.rkey,
	};
	unsigned int i, posted = 100, failed = 0;
	struct ibv_wc wc;

	for (i = 0; i < posted; i++) {
		ASSERT_EQ(0, mkt_post_send(&self->qp, &wr, i));
	}
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, mkt_poll(&self->qp, &wc));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	}
	if (!by_force) {
		EXPECT_EQ(ECONNRESET, mkt_child_ask(&self->child,
						    MKT_CHILD_EXIT));
	}
	ASSERT_EQ(0, mkt_child_end(&self->child, by_force));
	for (; i < posted; i++) {
		ASSERT_EQ(0, mkt_poll(&self->qp, &wc));
		failed += wc.status != IBV_WC_SUCCESS;
	}
	TH_LOG("%u of %u requests failed", failed, posted);
	/* this request certainly has no receiver */
	EXPECT_NE(IBV_WC_SUCCESS,
		  process_write(&self->qp, arena, 0, self->child.info.rkey,
				MKT_WRITE));
	process_left_nothing(_metadata, self);
}

TEST_F(process, killed)
{
	process_gone(_metadata, self, true);
}

TEST_F(process, exits)
{
	process_gone(_metadata, self, false);
}

/* none of this needs a privilege */
TEST_F(process, unprivileged)
{
	struct mkt_child other;

	ASSERT_EQ(0, mkt_child_end(&self->child, true));
	EXPECT_EQ(0, MKT_IN_CHILD(setgid(65534) || setuid(65534) ||
				  mkt_child_start(&other, &self->self, 64 * 1024, 8192)));
}

TEST_HARNESS_MAIN
