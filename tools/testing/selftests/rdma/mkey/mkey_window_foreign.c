// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Memory windows that a queue pair must not use: windows of another PD or queue
 * pair, unbound ones, and those whose queue pair has been destroyed. Destruction ends
 * the bindings of windows of type 2, as if each had been invalidated; a reset does not.
 * The test of the kernel's log afterwards finds a destruction that waited in vain.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "replay.h"
#include "window.h"

#define MANY 20

/* the number of ways in which a window is invalidated or seems to be */
static unsigned int foreign_inv(struct mkt_pair *pair, uint32_t rkey)
{
	return !!window_inv(pair, MKT_LOCAL_INV, rkey) + !!window_inv(pair, MKT_SEND_INV, rkey);
}

/* an unbound window cannot be invalidated */
TEST_F(window, invalidate_unbound)
{
	EXPECT_EQ(0, foreign_inv(&self->s.pair, self->mw->rkey));
	ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
	EXPECT_EQ(1, window_inv(&self->s.pair, MKT_LOCAL_INV, self->mw->rkey));
	EXPECT_EQ(0, foreign_inv(&self->s.pair, self->mw->rkey));
}

/* a QP or its peer cannot invalidate the window of another QP */
TEST_F(window, invalidate)
{
	ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
	EXPECT_EQ(0, foreign_inv(&self->foreign, self->mw->rkey));
	EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, self->mw, ZONE));
}

/* nor bind it: otherwise the owner's peer would reach the memory of others */
TEST_F(window, bind_foreign)
{
	struct ibv_mw *mw = ibv_alloc_mw(self->other.pd, IBV_MW_TYPE_1);
	const struct mkt_end *plain = &self->s.plain[1];
	struct ibv_mw named;

	ASSERT_NE(NULL, mw);
	/* the library refuses foreign windows, and windows of type 1 here */
	named = *mw;
	named.pd = self->s.dev[1].pd;
	named.type = IBV_MW_TYPE_2;
	EXPECT_EQ(EIO, window_bind(self, &named, self->key, 0, ZONE, REMOTE));
	EXPECT_EQ(EIO, window_bind(self, &named, plain->mr, plain->addr, 1, 0));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
}

/* nor can a window be bound to an MR or a key of another PD, whose lkey can be guessed */
TEST_F(window, bind_to_foreign)
{
	struct ibv_mr *key = ibmkey_alloc(self->other.pd, 1);
	struct ibv_mr *mr = ibv_reg_mr(self->other.pd, self->s.arena[1].mem[0].host, ZONE,
				       KEY_ACCESS);
	uint64_t addr;

	ASSERT_NE(NULL, key);
	ASSERT_NE(NULL, mr);
	addr = (uintptr_t)mr->addr;
	ASSERT_EQ(0, mkt_bind_range(key, KEY_ACCESS, mr, addr, ZONE));
	EXPECT_EQ(EIO, window_bind(self, self->mw, mr, addr, ZONE, REMOTE));
	EXPECT_EQ(EIO, window_bind(self, self->mw, key, 0, ZONE, REMOTE));
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
}

/*
 * a READ of a window's first peer is sent again when another peer has the
 * window
 */
TEST_F(window, replay)
{
	struct mkt_setup *s = &self->s;
	uint8_t *host = s->arena[1].mem[0].host;
	struct ibv_send_wr *bad, bind;
	struct mkt_replay replay;
	struct ibv_wc wc;
	uint32_t rkey;

	memset(host, 0x11, 2 * ZONE);
	ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
	rkey = self->mw->rkey;
	ASSERT_EQ(0, mkt_replay_open(&replay, &s->dev[0]));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(s, rkey, MKT_READ, 0, 256));
	ASSERT_EQ(0, mkt_replay_find(&replay, MKT_BTH_READ_REQUEST));
	ASSERT_EQ(0, window_inv(&self->second, MKT_LOCAL_INV, rkey));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&s->pair, 1, &(struct mkt_wr) {
		.op = MKT_LOCAL_INV,
		.rkey = rkey,
	}));
	memset(host, 0x5c, 2 * ZONE);
	/* under the same rkey */
	bind = mkt_window_wr(self->mw, self->key, 0, ZONE, REMOTE);
	ASSERT_EQ(0, ibv_post_send(self->second.end[1].qp, &bind, &bad));
	ASSERT_EQ(0, mkt_poll(&self->second.end[1], &wc));
	ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(0, mkt_replay_send(&replay, 0x5c, 256));
	mkt_replay_close(&replay);
}

/*
 * Destroys the queue pair that owns the window, which is over @mr, a key or an ordinary MR: no
 * request reaches the MR through the window, and the MR is free.
 */
static void window_destroy_owner(struct __test_metadata *_metadata, FIXTURE_DATA(window) *self,
				 struct ibv_mr *mr, uint64_t addr, int (*release)(struct ibv_mr *))
{
	ASSERT_EQ(0, mkt_bind_window(&self->second.end[1], self->mw, mr, addr, ZONE, REMOTE));
	EXPECT_NE(0, release(mr));
	mkt_pair_destroy(&self->second);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, window_read(self, self->mw, 8));
	EXPECT_EQ(0, release(mr));
	/* the window can be bound again, and works then */
	ASSERT_EQ(0, window_bind_key(&self->s, KEY_ACCESS));
	ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
	EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, self->mw, ZONE));
}

TEST_F(window, of_a_qp_over_a_key)
{
	window_destroy_owner(_metadata, self, self->key, 0, ibmkey_unbind);
}

TEST_F(window, of_a_qp_over_an_mr)
{
	struct ibv_mr *mr = ibv_reg_mr(self->s.dev[1].pd, self->s.arena[1].mem[0].host, ZONE,
				       KEY_ACCESS);

	ASSERT_NE(NULL, mr);
	window_destroy_owner(_metadata, self, mr, (uintptr_t)mr->addr, ibv_dereg_mr);
}

/* all windows of the QP, and no other ones; a window of type 1 belongs to no QP */
TEST_F(window, many_of_a_qp)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mw *mw[MANY];
	unsigned int i;

	ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
	for (i = 0; i < MANY; i++) {
		mw[i] = ibv_alloc_mw(s->dev[1].pd, i ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
		ASSERT_NE(NULL, mw[i]);
		ASSERT_EQ(0, mkt_bind_window(&self->second.end[1], mw[i], self->key, 0, i + 8,
					     REMOTE));
	}
	mkt_pair_destroy(&self->second);
	EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, self->mw, ZONE));
	EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, mw[0], 8));
	for (i = 1; i < MANY; i++) {
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, window_read(self, mw[i], 8));
		ASSERT_EQ(0, window_bind(self, mw[i], self->key, 0, ZONE, REMOTE));
		EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, mw[i], ZONE));
		EXPECT_EQ(0, ibv_dealloc_mw(mw[i]));
	}
	EXPECT_EQ(1, window_inv(&s->pair, MKT_LOCAL_INV, self->mw->rkey));
	/* the window of type 1 is left */
	EXPECT_EQ(EBUSY, ibmkey_unbind(self->key));
	EXPECT_EQ(0, ibv_dealloc_mw(mw[0]));
	EXPECT_EQ(0, ibmkey_unbind(self->key));
}

/* a QP that is reset and connected again keeps its windows, as in stock rxe */
TEST_F(window, of_a_qp_that_is_reset)
{
	ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, self->mw, ZONE));
	EXPECT_EQ(EBUSY, ibmkey_unbind(self->key));
}

/* posts binds of the window with the rkey that it has, and invalidations */
static int window_post(struct mkt_qp *qp, struct ibv_mw *mw, struct ibv_mr *mr)
{
	struct ibv_send_wr *bad, inv = {
		.opcode = IBV_WR_LOCAL_INV,
		.invalidate_rkey = mw->rkey,
	};
	struct ibv_send_wr bind = mkt_window_wr(mw, mr, 0, ZONE, REMOTE);
	unsigned int i;
	int err = 0;

	bind.next = &inv;
	bind.send_flags = 0;
	for (i = 0; !err && i < 8; i++)
		err = ibv_post_send(qp->qp, &bind, &bad);
	inv = bind;
	inv.next = NULL;
	return err ?: ibv_post_send(qp->qp, &inv, &bad);
}

/* requests of the QP are executed while it is being destroyed */
TEST_F(window, posted)
{
	unsigned int i, rounds = mkt_scale(200, 20);
	struct mkt_setup *s = &self->s;

	for (i = 0; i < rounds; i++) {
		ASSERT_EQ(0, window_post(&self->second.end[1], self->mw, self->key));
		mkt_pair_destroy(&self->second);
		ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
		EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, self->mw, ZONE));
		ASSERT_EQ(1, window_inv(&s->pair, MKT_LOCAL_INV, self->mw->rkey));
		ASSERT_EQ(0, mkt_pair_create(&self->second, &s->dev[0], &s->dev[1], IBV_MTU_1024,
					     0));
	}
}

/* leaves a window behind whose QP is newer: the kernel destroys the QP first */
static int window_leave(void)
{
	static struct mkt_setup s;
	struct mkt_pair newer;
	struct ibv_mw *mw;

	if (mkt_dev_open(&s.dev[0], 0) || mkt_dev_open(&s.dev[1], 1) ||
	    mkt_setup(&s, &window_wants, "leave") || window_bind_key(&s, KEY_ACCESS))
		return 1;
	mw = ibv_alloc_mw(s.dev[1].pd, IBV_MW_TYPE_2);
	if (!mw || mkt_pair_create(&newer, &s.dev[0], &s.dev[1], IBV_MTU_1024, 0))
		return 2;
	return mkt_bind_window(&newer.end[1], mw, s.key[1], 0, ZONE, REMOTE) ? 3 : 0;
}

TEST_F(window, exit)
{
	struct mkt_dev *dev = &self->s.dev[1];
	int status, before = mkt_dev_count(dev, "mr");
	pid_t pid = fork();

	ASSERT_LE(0, pid);
	if (!pid)
		_exit(window_leave());
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(before, mkt_dev_count(dev, "mr"));
}

/* a request with another rkey changes nothing */
TEST_F(window, bind_by_wrong_rkey)
{
	struct ibv_mw named = *self->mw;

	named.rkey ^= 3;
	EXPECT_EQ(EIO, window_bind(self, &named, self->key, 0, ZONE, REMOTE));
	EXPECT_EQ(0, ibmkey_unbind(self->key));
	ASSERT_EQ(0, window_bind_key(&self->s, KEY_ACCESS));
	ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
	EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, self->mw, ZONE));
}

TEST_HARNESS_MAIN
