// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Memory windows of type 2 whose queue pair is destroyed or reset. Destruction ends
 * their bindings, as if each had been invalidated; a reset does not. The test of the kernel's
 * log afterwards finds a destruction that waited in vain.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "mkey_harness.h"

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define ZONE 4096
#define MANY 20

FIXTURE(window_qp)
{
	struct mkt_setup s;
	struct mkt_pair second;		/* in the same PDs */
	struct ibv_mw *mw;
};

static const struct mkt_wants window_qp_wants = {
	.mtu = IBV_MTU_1024,
	.host = 4 * ZONE,
	.max_entries = 4,
};

static int window_qp_bind_key(struct mkt_setup *s)
{
	struct mkt_block block = { .bytes = ZONE };
	struct mkt_layout layout = { .num_blocks = 1, .block = &block };

	return mkt_layout_bind(s->key[1], &s->arena[1], &layout,
			       MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND);
}

FIXTURE_SETUP(window_qp)
{
	struct mkt_setup *s = &self->s;

	MKT_OPEN_EXTENDED(s->dev);
	ASSERT_EQ(0, mkt_setup(s, &window_qp_wants, _metadata->name));
	ASSERT_EQ(0, window_qp_bind_key(s));
	self->mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, self->mw);
	ASSERT_EQ(0, mkt_pair_create(&self->second, &s->dev[0], &s->dev[1], IBV_MTU_1024, 0));
}

FIXTURE_TEARDOWN(window_qp)
{
	if (self->mw)
		EXPECT_EQ(0, ibv_dealloc_mw(self->mw));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* the window can be bound again, and works then */
static void window_qp_again(struct __test_metadata *_metadata, FIXTURE_DATA(window_qp) *self,
			    struct ibv_mw *mw)
{
	struct mkt_setup *s = &self->s;

	ASSERT_EQ(0, mkt_bind_window(&s->pair.end[1], mw, s->key[1], 0, ZONE, REMOTE));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(s, mw->rkey, MKT_READ, 0, ZONE));
}

/* no request reaches the key through the window, and the key is free */
TEST_F(window_qp, over_key)
{
	struct mkt_setup *s = &self->s;

	ASSERT_EQ(0, mkt_bind_window(&self->second.end[1], self->mw, s->key[1], 0, ZONE, REMOTE));
	EXPECT_EQ(EBUSY, ibmkey_unbind(s->key[1]));
	mkt_pair_destroy(&self->second);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(s, self->mw->rkey, MKT_READ, 0, 8));
	EXPECT_EQ(0, ibmkey_unbind(s->key[1]));
	ASSERT_EQ(0, window_qp_bind_key(s));
	window_qp_again(_metadata, self, self->mw);
}

/* the same for an MR that is not of ib_mkey */
TEST_F(window_qp, over_mr)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mr *mr = ibv_reg_mr(s->dev[1].pd, s->arena[1].mem[0].host, ZONE,
				       MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND);

	ASSERT_NE(NULL, mr);
	ASSERT_EQ(0, mkt_bind_window(&self->second.end[1], self->mw, mr, (uintptr_t)mr->addr, ZONE,
				     REMOTE));
	EXPECT_NE(0, ibv_dereg_mr(mr));
	mkt_pair_destroy(&self->second);
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	window_qp_again(_metadata, self, self->mw);
}

/* all windows of the QP, and no other ones */
TEST_F(window_qp, many)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mw *mw[MANY];
	unsigned int i;

	ASSERT_EQ(0, mkt_bind_window(&s->pair.end[1], self->mw, s->key[1], 0, ZONE, REMOTE));
	for (i = 0; i < MANY; i++) {
		mw[i] = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_2);
		ASSERT_NE(NULL, mw[i]);
		ASSERT_EQ(0, mkt_bind_window(&self->second.end[1], mw[i], s->key[1], i, 8,
					     REMOTE));
	}
	mkt_pair_destroy(&self->second);
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(s, self->mw->rkey, MKT_READ, 0, ZONE));
	for (i = 0; i < MANY; i++) {
		window_qp_again(_metadata, self, mw[i]);
		EXPECT_EQ(0, ibv_dealloc_mw(mw[i]));
	}
}

/* a window of type 1 belongs to no QP */
TEST_F(window_qp, type_1)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mw *mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_1);

	ASSERT_NE(NULL, mw);
	ASSERT_EQ(0, mkt_bind_window(&self->second.end[1], mw, s->key[1], 0, ZONE, REMOTE));
	mkt_pair_destroy(&self->second);
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(s, mw->rkey, MKT_READ, 0, ZONE));
	EXPECT_EQ(EBUSY, ibmkey_unbind(s->key[1]));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
}

/* a QP that is reset and connected again keeps its windows, as in stock rxe */
TEST_F(window_qp, reset)
{
	struct mkt_setup *s = &self->s;

	mkt_pair_destroy(&self->second);
	ASSERT_EQ(0, mkt_bind_window(&s->pair.end[1], self->mw, s->key[1], 0, ZONE, REMOTE));
	ASSERT_EQ(0, mkt_pair_recover(&s->pair));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(s, self->mw->rkey, MKT_READ, 0, ZONE));
	EXPECT_EQ(EBUSY, ibmkey_unbind(s->key[1]));
}

/* posts binds of the window with the rkey that it has, and invalidations */
static int window_qp_post(struct mkt_qp *qp, struct ibv_mw *mw, struct ibv_mr *mr)
{
	struct ibv_send_wr *bad, inv = {
		.opcode = IBV_WR_LOCAL_INV,
		.invalidate_rkey = mw->rkey,
	};
	struct ibv_send_wr bind = {
		.opcode = IBV_WR_BIND_MW,
		.next = &inv,
		.bind_mw = {
			.mw = mw,
			.rkey = mw->rkey,
			.bind_info = { .mr = mr, .length = ZONE, .mw_access_flags = REMOTE },
		},
	};
	unsigned int i;
	int err = 0;

	for (i = 0; !err && i < 8; i++)
		err = ibv_post_send(qp->qp, &bind, &bad);
	inv = bind;
	inv.next = NULL;
	return err ?: ibv_post_send(qp->qp, &inv, &bad);
}

/* requests of the QP are executed while it is being destroyed */
TEST_F(window_qp, posted)
{
	unsigned int i, rounds = mkt_scale(200, 20);
	struct mkt_setup *s = &self->s;

	for (i = 0; i < rounds; i++) {
		struct mkt_wr wr = { .op = MKT_LOCAL_INV };

		ASSERT_EQ(0, window_qp_post(&self->second.end[1], self->mw, s->key[1]));
		mkt_pair_destroy(&self->second);
		window_qp_again(_metadata, self, self->mw);
		wr.rkey = self->mw->rkey;
		ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&s->pair, 1, &wr));
		ASSERT_EQ(0, mkt_pair_create(&self->second, &s->dev[0], &s->dev[1], IBV_MTU_1024,
					     0));
	}
	mkt_pair_destroy(&self->second);
}

/* leaves a window behind whose QP is newer: the kernel destroys the QP first */
static int window_qp_leave(void)
{
	static struct mkt_setup s;
	struct mkt_pair newer;
	struct ibv_mw *mw;

	if (mkt_dev_open(&s.dev[0], 0) || mkt_dev_open(&s.dev[1], 1) ||
	    mkt_setup(&s, &window_qp_wants, "leave") || window_qp_bind_key(&s))
		return 1;
	mw = ibv_alloc_mw(s.dev[1].pd, IBV_MW_TYPE_2);
	if (!mw || mkt_pair_create(&newer, &s.dev[0], &s.dev[1], IBV_MTU_1024, 0))
		return 2;
	return mkt_bind_window(&newer.end[1], mw, s.key[1], 0, ZONE, REMOTE) ? 3 : 0;
}

TEST_F(window_qp, exit)
{
	struct mkt_dev *dev = &self->s.dev[1];
	int status, before = mkt_dev_count(dev, "mr");
	pid_t pid;

	mkt_pair_destroy(&self->second);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(window_qp_leave());
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(before, mkt_dev_count(dev, "mr"));
}

TEST_HARNESS_MAIN
