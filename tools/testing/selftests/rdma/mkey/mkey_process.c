// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Two processes: what one may not do to the other, and what is left after one of them
 * exits, is killed, or executes another program under traffic, or its memory goes while another
 * process keeps the device open. mkey_access has requests by a key of another PD, and of another
 * process. The tests of a process with an implicit MR need no ib_mkey.
 * needs: on-demand
 * sets: first smp
 */
#include <fcntl.h>
#include <sys/wait.h>

#include "mkey_harness.h"
#include "peer.h"
#include "raw.h"

/* the requests before the other process ends, and those that are posted at once */
#define BEFORE 20
#define AT_ONCE 16

FIXTURE(process)
{
	struct mkt_dev dev[2];
	struct mkt_arena arena[2];	/* the one on device 1 is ours too */
	struct mkt_qp qp;		/* of device 0; the other process connects to it */
	struct mkt_peer self;
	struct ibv_mr *key;		/* on device 1 */
	struct mkt_child child;
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
	ASSERT_EQ(0, mkt_child_start(&self->child, &self->self, 256 * 1024, 8192));
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

/* the number of calls with these handles that are not refused */
static unsigned int process_handles(FIXTURE_DATA(process) *self, uint32_t key, uint32_t dm,
				    uint32_t pd)
{
	struct ib_uverbs_mkey_sge sge = {
		.addr = self->arena[1].leaf[0].addr,
		.length = 8,
		.lkey = self->arena[1].leaf[0].mr->lkey,
	};
	struct ib_uverbs_mkey_bind bind = mkt_raw_list(0, &sge, 1);
	struct ibv_pd foreign = { .handle = pd };
	struct ib_uverbs_mkey_info seen;
	unsigned int i, wrong = 0;
	struct mkt_ioctl cmd[6];
	uint32_t lkey, rkey;
	uint8_t bytes[8];

	mkt_raw_query(&cmd[0], key, &seen);
	mkt_raw_unbind(&cmd[1], key);
	mkt_raw_bind(&cmd[2], key, &bind);
	mkt_raw_mr_destroy(&cmd[3], key);
	mkt_raw_dm_copy(&cmd[4], dm, IB_UVERBS_MKEY_DM_COPY_FROM, 0, bytes, 8);
	mkt_raw_create(&cmd[5], &foreign, 1, &lkey, &rkey);
	for (i = 0; i < ARRAY_SIZE(cmd); i++)
		wrong += mkt_ioctl_run(self->dev[1].ctx, &cmd[i]) != ENOENT;
	return wrong;
}

/* the other process's handles and lkeys name nothing in this process */
TEST_F(process, handles_and_lkeys)
{
	struct mkt_peer_info *info = &self->child.info;
	struct ibv_sge sge = { .length = 8, .lkey = info->lkey };
	uint32_t handle = info->handle;

	/* each process's handles start at zero: take one that this process lacks */
	if (handle == self->key->handle || handle < 16)
		handle += 16;
	EXPECT_EQ(0, process_handles(self, handle, info->dm_handle + 64, handle));

	/* lkeys belong to the device, but those of another PD name nothing here */
	EXPECT_EQ(ENOENT, ibv_rereg_mr_sg(self->key, 0, 1, &sge));
	sge.addr = info->leaf_addr;
	sge.lkey = info->leaf_rkey;
	EXPECT_EQ(ENOENT, ibv_rereg_mr_sg(self->key, 0, 1, &sge));
	EXPECT_EQ(0, mkt_child_ask(&self->child, MKT_CHILD_CHECK));
	EXPECT_EQ(0, mkt_child_end(&self->child, true));
}

/* and neither do handles of another device of this process; mkey_errors has the lkeys */
TEST_F(process, handles_of_another_device)
{
	struct ibv_alloc_dm_attr attr = { .length = 4096 };
	struct ibv_context *ctx = self->dev[0].ctx;
	struct ibv_mr *keys[32];	/* more than the handles of device 1 */
	struct ibv_dm *dm;
	struct ibv_pd *pd;
	unsigned int i;

	ASSERT_EQ(0, mkt_child_end(&self->child, true));
	for (i = 0; i < ARRAY_SIZE(keys); i++) {
		keys[i] = ibmkey_alloc(self->dev[0].pd, 1);
		ASSERT_NE(NULL, keys[i]);
	}
	pd = ibv_alloc_pd(ctx);
	dm = ibv_alloc_dm(ctx, &attr);
	ASSERT_TRUE(pd && dm);
	EXPECT_EQ(0, process_handles(self, keys[31]->handle, dm->handle, pd->handle));
	/* they are all there */
	EXPECT_EQ(0, ibv_free_dm(dm));
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
	for (i = 0; i < ARRAY_SIZE(keys); i++)
		EXPECT_EQ(0, ibv_dereg_mr(keys[i]));
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

/* none of this needs a privilege */
TEST_F(process, unprivileged)
{
	struct mkt_child other;

	ASSERT_EQ(0, mkt_child_end(&self->child, true));
	EXPECT_EQ(0, MKT_IN_CHILD(setgid(65534) || setuid(65534) ||
				  mkt_child_start(&other, &self->self, 64 * 1024, 8192)));
}

FIXTURE(ends)
{
	struct mkt_dev dev[2];
	struct mkt_arena arena;		/* on device 0 */
	struct mkt_qp qp;		/* of device 0; the other process connects to it */
	int count[2];			/* MRs and QPs before there was a process */
	struct mkt_pool pool;		/* device memory before there was one */
	struct mkt_child child;
};

FIXTURE_VARIANT(ends)
{
	size_t memory;			/* of a key and of device memory; 0: an implicit MR */
	enum mkt_question how;
};

FIXTURE_VARIANT_ADD(ends, key_exit) { .memory = 8192, .how = MKT_CHILD_EXIT };
FIXTURE_VARIANT_ADD(ends, key_exec) { .memory = 8192, .how = MKT_CHILD_EXEC };
FIXTURE_VARIANT_ADD(ends, key_kill) { .memory = 8192, .how = MKT_CHILD_KILL };
FIXTURE_VARIANT_ADD(ends, implicit_exit) { .how = MKT_CHILD_EXIT };
FIXTURE_VARIANT_ADD(ends, implicit_exec) { .how = MKT_CHILD_EXEC };
FIXTURE_VARIANT_ADD(ends, implicit_kill) { .how = MKT_CHILD_KILL };
FIXTURE_VARIANT_ADD(ends, implicit_memory) { .how = MKT_CHILD_MEMORY };

FIXTURE_SETUP(ends)
{
	MKT_OPEN(self->dev);
	if (variant->memory && !self->dev[1].extended)
		SKIP(return, "%s is not extended by ib_mkey", self->dev[1].name);
	if (!variant->memory)
		MKT_ON_DEMAND(&self->dev[1]);
	ASSERT_EQ(0, mkt_arena_standard(&self->arena, &self->dev[0], 256 * 1024, 0));
	self->count[0] = mkt_dev_count(&self->dev[1], "mr");
	self->count[1] = mkt_dev_count(&self->dev[1], "qp");
	/* zeros without debugfs */
	mkt_pool(&self->dev[1], "host", &self->pool);
}

FIXTURE_TEARDOWN(ends)
{
	EXPECT_EQ(0, mkt_arena_free(&self->arena));
	mkt_dev_close(&self->dev[0]);
	mkt_dev_close(&self->dev[1]);
}

/* the other process's MRs, queue pairs and device memory are gone */
static bool ends_nothing_is_left(FIXTURE_DATA(ends) *self)
{
	return mkt_dev_count(&self->dev[1], "mr") == self->count[0] &&
	       mkt_dev_count(&self->dev[1], "qp") == self->count[1] &&
	       (!self->pool.total || mkt_pool_grew(&self->dev[1], "host", &self->pool, 0));
}

/*
 * Writes to one part of the memory after another, until a request fails, and lets the process end
 * meanwhile. Returns the status of that request, or -1.
 */
static int ends_traffic(FIXTURE_DATA(ends) *self, const FIXTURE_VARIANT(ends) *variant)
{
	const struct mkt_peer_info *info = &self->child.info;
	const struct mkt_leaf *leaf = &self->arena.leaf[0];
	unsigned int posted = 0, done, parts = info->total / info->length;
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = { leaf->addr, info->length, leaf->mr->lkey },
		.num_sge = 1,
		.rkey = info->rkey,
	};
	struct ibv_wc wc;
	int status = 0;

	for (done = 0; !status; done++) {
		mkt_alive();
		for (; posted < done + AT_ONCE; posted++) {
			wr.remote_addr = info->addr + posted % parts * info->length;
			if (mkt_post_send(&self->qp, &wr, 0))
				return -1;
		}
		if (mkt_poll(&self->qp, &wc))
			return -1;
		status = wc.status;
		if (done == BEFORE && mkt_child_tell(&self->child, variant->how))
			return -1;
	}
	for (; done < posted; done++)
		if (mkt_poll(&self->qp, &wc) || wc.status != IBV_WC_WR_FLUSH_ERR)
			return -1;
	return status;
}

/* nothing of the process is left, and the device works for the next one */
TEST_F(ends, under_traffic)
{
	const bool memory_only = variant->how == MKT_CHILD_MEMORY;
	unsigned int i, rounds = mkt_scale(3, 1);
	struct mkt_peer peer;
	int status;

	for (i = 0; i < rounds; i++) {
		ASSERT_EQ(0, mkt_qp_create(&self->qp, &self->dev[0], MKT_QP_BRIEF));
		mkt_qp_self(&self->qp, &peer);
		ASSERT_EQ(0, mkt_child_start(&self->child, &peer, 256 * 1024, variant->memory));
		ASSERT_EQ(0, mkt_qp_connect(&self->qp, &self->child.info.qp, IBV_MTU_1024));
		status = ends_traffic(self, variant);
		/* the queue pair of the process goes, or only its memory */
		EXPECT_TRUE(status == IBV_WC_REM_ACCESS_ERR ||
			    (!memory_only && (status == IBV_WC_RETRY_EXC_ERR ||
					      status == IBV_WC_REM_INV_REQ_ERR)))
			TH_LOG("%s", ibv_wc_status_str(status));
		ASSERT_EQ(0, mkt_child_end(&self->child, variant->how == MKT_CHILD_KILL));
		mkt_qp_destroy(&self->qp);
		/* an implicit MR is freed later */
		EXPECT_TRUE(ends_nothing_is_left(self) ||
			    (!variant->memory && mkt_until(ends_nothing_is_left(self))));
	}
}

TEST_HARNESS_MAIN
