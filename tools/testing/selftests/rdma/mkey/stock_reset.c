// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A queue pair that is reset while a request is in progress stays in the state RESET,
 * and begins anew when it is set up again. It needs no ib_mkey.
 * needs: on-demand
 */
#include <unistd.h>

#include "mkey_harness.h"
#include "slow.h"

#define PAGE 4096
#define SIZE (4 * PAGE)
#define PAUSE 300000

FIXTURE(reset)
{
	struct mkt_setup s;
	struct mkt_slow slow;
	struct ibv_mr *mr[2];		/* of all of it, on demand */
	struct slow_thread thread;
	bool open;
};

FIXTURE_SETUP(reset)
{
	unsigned int i;

	MKT_OPEN(self->s.dev);
	SLOW_TRY(mkt_slow_try(&self->slow, self->s.dev, SIZE));
	self->open = true;
	MKT_MAKE(&self->s, .flags = MKT_QP_PATIENT, .host = 64 * 1024);
	ASSERT_EQ(0, slow_thread_create(&self->thread));
	for (i = 0; i < 2; i++) {
		self->mr[i] = ibv_reg_mr(self->s.dev[i].pd, self->slow.map, SIZE,
					 MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
		ASSERT_NE(NULL, self->mr[i]);
	}
}

FIXTURE_TEARDOWN(reset)
{
	unsigned int i;

	if (!self->open)
		return;
	slow_thread_end(&self->thread);
	for (i = 0; i < 2; i++)
		if (self->mr[i]) {
			EXPECT_EQ(0, ibv_dereg_mr(self->mr[i]));
		}
	EXPECT_EQ(0, mkt_teardown(&self->s));
	mkt_slow_close(&self->slow);
}

static int reset(void *arg)
{
	return mkt_qp_state(arg, IBV_QPS_RESET);
}

static int reset_state(struct mkt_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return ibv_query_qp(qp->qp, &attr, IBV_QP_STATE, &init) ? -1 : (int)attr.qp_state;
}

/* resets the queue pair of side @side, which may wait for the page, and lets the page arrive */
static int reset_with_page(FIXTURE_DATA(reset) *self, unsigned int side)
{
	slow_run(&self->thread, reset, &self->s.pair.end[side]);
	usleep(PAUSE);
	mkt_slow_hold(&self->slow, false);
	return slow_join(&self->thread);
}

/*
 * The request fails after the reset has begun: its page is late, and its second piece is in no MR.
 */
TEST_F(reset, during_a_send)
{
	struct mkt_qp *qp = &self->s.pair.end[0];
	struct mkt_wr wr = {
		.op = MKT_SEND,
		.sge[0] = { (uintptr_t)self->slow.map, 8, self->mr[0]->lkey },
		.sge[1] = { 0, 8, 0 },
		.num_sge = 2,
	};

	mkt_slow_hold(&self->slow, true);
	ASSERT_EQ(0, mkt_post_send(qp, &wr, 1));
	ASSERT_EQ(0, mkt_slow_wait(&self->slow, 1));
	EXPECT_EQ(0, reset_with_page(self, 0));
	EXPECT_EQ(IBV_QPS_RESET, reset_state(qp));
	usleep(PAUSE);
	EXPECT_EQ(IBV_QPS_RESET, reset_state(qp));
}

/* Of a READ, only the first responses arrive before the reset. */
TEST_F(reset, during_a_read)
{
	struct mkt_wr wr = mkt_plain_wr(&self->s, 0, MKT_READ, 2 * PAGE,
					(uintptr_t)self->slow.map, self->mr[1]->rkey);
	struct mkt_wr add = mkt_plain_wr(&self->s, 0, MKT_FETCH_ADD, 8,
					 (self->s.plain[1].addr + 7) & ~7ULL,
					 self->s.plain[1].mr->rkey);

	/* the first page is there */
	*(volatile uint8_t *)self->slow.map = 1;
	mkt_slow_hold(&self->slow, true);
	ASSERT_EQ(0, mkt_post_send(&self->s.pair.end[0], &wr, 1));
	ASSERT_EQ(0, mkt_slow_wait(&self->slow, 1));
	/* the responses from it arrive */
	usleep(PAUSE);
	EXPECT_EQ(0, reset(&self->s.pair.end[0]));
	EXPECT_EQ(0, reset_with_page(self, 1));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &add));
	/* an error that rxe finds by the last response of the READ has no status of its own */
	usleep(PAUSE);
	EXPECT_EQ(IBV_QPS_RTS, reset_state(&self->s.pair.end[0]));
}

TEST_HARNESS_MAIN
