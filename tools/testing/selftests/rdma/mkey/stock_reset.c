// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A queue pair that is reset while a READ is in progress begins anew when it is set up
 * again. stock_waits has other requests, and looks at the state. It needs no ib_mkey.
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
	struct ibv_mr *mr;		/* of all of it, on demand, on side 1 */
	struct slow_thread thread;
	bool open;
};

FIXTURE_SETUP(reset)
{
	MKT_OPEN(self->s.dev);
	SLOW_TRY(mkt_slow_try(&self->slow, self->s.dev, SIZE));
	self->open = true;
	MKT_MAKE(&self->s, .flags = MKT_QP_PATIENT, .host = 64 * 1024);
	ASSERT_EQ(0, slow_thread_create(&self->thread));
	self->mr = ibv_reg_mr(self->s.dev[1].pd, self->slow.map, SIZE,
			      MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	ASSERT_NE(NULL, self->mr);
}

FIXTURE_TEARDOWN(reset)
{
	if (!self->open)
		return;
	slow_thread_end(&self->thread);
	if (self->mr)
		EXPECT_EQ(0, ibv_dereg_mr(self->mr));
	EXPECT_EQ(0, mkt_teardown(&self->s));
	mkt_slow_close(&self->slow);
}

static int reset(void *arg)
{
	return mkt_qp_state(arg, IBV_QPS_RESET);
}

/* Of a READ, only the first responses arrive before the reset. */
TEST_F(reset, during_a_read)
{
	struct mkt_wr wr = mkt_plain_wr(&self->s, 0, MKT_READ, 2 * PAGE,
					(uintptr_t)self->slow.map, self->mr->rkey);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
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
	/* this one may wait for the page */
	slow_run(&self->thread, reset, &self->s.pair.end[1]);
	usleep(PAUSE);
	mkt_slow_hold(&self->slow, false);
	EXPECT_EQ(0, slow_join(&self->thread));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &add));
	/* an error that rxe finds by the last response of the READ has no status of its own */
	usleep(PAUSE);
	ASSERT_EQ(0, ibv_query_qp(self->s.pair.end[0].qp, &attr, IBV_QP_STATE, &init));
	EXPECT_EQ(IBV_QPS_RTS, attr.qp_state);
}

TEST_HARNESS_MAIN
