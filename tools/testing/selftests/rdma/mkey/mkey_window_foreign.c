// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows that a queue pair must not use: windows of another PD or queue
 * pair, and unbound ones.
 */
#include <string.h>

#include "mkey_harness.h"
#include "replay.h"

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define ZONE 4096

FIXTURE(foreign)
{
	struct mkt_setup s;
	struct mkt_dev other;	/* device 1 with another PD */
	struct mkt_pair pair;	/* side 1 is in that PD */
	struct ibv_mw *mw;
};

FIXTURE_SETUP(foreign)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.host = 4 * ZONE,
		.max_entries = 4,
	};
	struct mkt_block block = { .bytes = ZONE };
	struct mkt_layout layout = { .num_blocks = 1, .block = &block };

	MKT_OPEN_EXTENDED(self->s.dev);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	ASSERT_EQ(0, mkt_layout_bind(self->s.key[1], &self->s.arena[1], &layout,
				     MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND));
	self->other = self->s.dev[1];
	self->other.pd = ibv_alloc_pd(self->other.ctx);
	ASSERT_NE(NULL, self->other.pd);
	ASSERT_EQ(0, mkt_pair_create(&self->pair, &self->s.dev[0], &self->other,
				     IBV_MTU_1024, 0));
}

FIXTURE_TEARDOWN(foreign)
{
	if (self->mw)
		EXPECT_EQ(0, ibv_dealloc_mw(self->mw));
	mkt_pair_destroy(&self->pair);
	EXPECT_EQ(0, ibv_dealloc_pd(self->other.pd));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

static bool foreign_local_inv(struct mkt_pair *pair, uint32_t rkey)
{
	struct mkt_wr wr = { .op = MKT_LOCAL_INV, .rkey = rkey };
	bool done = mkt_status(pair, 1, &wr) == IBV_WC_SUCCESS;

	return mkt_pair_recover(pair) || done;
}

static bool foreign_send_inv(struct mkt_pair *pair, uint32_t rkey)
{
	struct mkt_wr wr = { .op = MKT_SEND_INV, .rkey = rkey }, recv = {};
	struct mkt_result result = {};
	int err = mkt_exec(pair, 0, &wr, &recv, &result);

	return mkt_pair_recover(pair) || err || result.recv_status == IBV_WC_SUCCESS;
}

/* an unbound window cannot be invalidated */
TEST_F(foreign, invalidate_unbound)
{
	self->mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, self->mw);
	EXPECT_FALSE(foreign_local_inv(&self->s.pair, self->mw->rkey));
	EXPECT_FALSE(foreign_send_inv(&self->s.pair, self->mw->rkey));
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], self->mw, self->s.key[1], 0, ZONE,
				     REMOTE));
	EXPECT_TRUE(foreign_local_inv(&self->s.pair, self->mw->rkey));
	EXPECT_FALSE(foreign_local_inv(&self->s.pair, self->mw->rkey));
	EXPECT_FALSE(foreign_send_inv(&self->s.pair, self->mw->rkey));
}

/* a QP or its peer cannot invalidate the window of another QP */
TEST_F(foreign, invalidate)
{
	self->mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, self->mw);
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], self->mw, self->s.key[1], 0, ZONE,
				     REMOTE));
	EXPECT_FALSE(foreign_local_inv(&self->pair, self->mw->rkey));
	EXPECT_FALSE(foreign_send_inv(&self->pair, self->mw->rkey));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, self->mw->rkey, MKT_READ, 0, ZONE));
}

/* nor bind it: otherwise the owner's peer would reach the memory of others */
TEST_F(foreign, bind)
{
	const struct mkt_end *plain = &self->s.plain[1];
	struct ibv_mw named;

	self->mw = ibv_alloc_mw(self->other.pd, IBV_MW_TYPE_1);
	ASSERT_NE(NULL, self->mw);
	/* the library refuses foreign windows, and windows of type 1 here */
	named = *self->mw;
	named.pd = self->s.dev[1].pd;
	named.type = IBV_MW_TYPE_2;
	EXPECT_EQ(EIO, mkt_bind_window(&self->s.pair.end[1], &named, self->s.key[1], 0, ZONE,
				       REMOTE));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(EIO, mkt_bind_window(&self->s.pair.end[1], &named, plain->mr, plain->addr, 1,
				       0));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
}

/* nor can a window be bound to an MR of another PD */
TEST_F(foreign, bind_to)
{
	struct ibv_mr *mr = ibv_reg_mr(self->other.pd, self->s.arena[1].mem[0].host, ZONE,
				       MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND);

	ASSERT_NE(NULL, mr);
	self->mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, self->mw);
	EXPECT_EQ(EIO, mkt_bind_window(&self->s.pair.end[1], self->mw, mr,
				       (uintptr_t)mr->addr, ZONE, REMOTE));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(0, ibv_dealloc_mw(self->mw));
	self->mw = NULL;
	EXPECT_EQ(0, ibv_dereg_mr(mr));
}

static int foreign_bind_as(struct mkt_qp *qp, struct ibv_mw *mw, struct ibv_mr *mr, uint32_t rkey)
{
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = mw,
			.rkey = rkey,
			.bind_info = { .mr = mr, .length = ZONE, .mw_access_flags = REMOTE },
		},
	};
	struct ibv_wc wc;
	int err = ibv_post_send(qp->qp, &wr, &bad) ?: mkt_poll(qp, &wc);

	return err ?: wc.status;
}

/*
 * a READ of a window's first peer is sent again when another peer has the
 * window
 */
TEST_F(foreign, replay)
{
	struct mkt_setup *s = &self->s;
	uint8_t *host = s->arena[1].mem[0].host;
	struct ibv_mr *own = ibv_reg_mr(s->dev[1].pd, host, ZONE, MKT_ACCESS_ALL);
	struct ibv_sge sge = { .addr = (uintptr_t)host, .length = ZONE };
	struct mkt_replay replay;
	struct mkt_pair second;
	uint32_t rkey;

	ASSERT_NE(NULL, own);
	sge.lkey = own->lkey;
	ASSERT_EQ(0, ibv_rereg_mr_sg(s->key[1], MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND, 1, &sge));
	ASSERT_EQ(0, mkt_pair_create(&second, &s->dev[0], &s->dev[1], IBV_MTU_1024, 0));
	self->mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, self->mw);
	memset(host, 0x11, ZONE);
	ASSERT_EQ(0, mkt_bind_window(&s->pair.end[1], self->mw, s->key[1], 0, ZONE, REMOTE));
	rkey = self->mw->rkey;
	ASSERT_EQ(0, mkt_replay_open(&replay, &s->dev[0]));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(s, rkey, MKT_READ, 0, 256));
	ASSERT_EQ(0, mkt_replay_find(&replay, MKT_BTH_READ_REQUEST));
	ASSERT_TRUE(foreign_local_inv(&second, rkey) == false);
	{
		struct mkt_wr wr = { .op = MKT_LOCAL_INV, .rkey = rkey };

		ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&s->pair, 1, &wr));
	}
	memset(host, 0x5c, ZONE);
	ASSERT_EQ(0, foreign_bind_as(&second.end[1], self->mw, s->key[1], rkey));
	EXPECT_EQ(0, mkt_replay_send(&replay, 0x5c, 256));
	mkt_replay_close(&replay);
	EXPECT_EQ(0, ibv_dealloc_mw(self->mw));
	self->mw = NULL;
	mkt_pair_destroy(&second);
	EXPECT_EQ(0, ibmkey_unbind(s->key[1]));
	EXPECT_EQ(0, ibv_dereg_mr(own));
}

TEST_HARNESS_MAIN
