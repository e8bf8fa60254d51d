// SPDX-License-Identifier: GPL-2.0
/*
 * subject: An ordinary MR on demand is deregistered, or an address handle is destroyed, while an
 * access or a prefetch that uses it waits for a page. Neither call waits for the page.
 * needs: on-demand
 */

#include "raw.h"
#include "slow_request.h"

static int slow_destroy_ah(void *ah)
{
	return ibv_destroy_ah(ah);
}

/* runs the call in a thread while a page is held back; true if it returns before that arrives */
static bool slow_returns(FIXTURE_DATA(slow_request) *self, int (*call)(void *arg), void *arg)
{
	unsigned int i;

	slow_run(&self->thread[0], call, arg);
	/* rxe would wait for 50 seconds */
	for (i = 0; i < 40000 && atomic_load(&self->thread[0].running); i++)
		usleep(1000);
	return !atomic_load(&self->thread[0].running);
}

/* An access that waits for a page fails. */
TEST_F(slow_request, dereg_during_an_access)
{
	bool returns;

	ASSERT_EQ(0, slow_begin(self));
	returns = slow_returns(self, slow_dereg, self->mr[1]);
	self->mr[1] = NULL;
	if (returns) {
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, slow_status(&self->s.pair.end[0], 1));
	}
	mkt_slow_hold(&self->slow, false);
	EXPECT_TRUE(returns);
	EXPECT_EQ(0, slow_join(&self->thread[0]));
}

static int slow_advise(void *arg)
{
	FIXTURE_DATA(slow_request) *self = arg;

	return mkt_raw_advise(self->s.dev[1].pd, 0, (uintptr_t)self->slow.map, PAGE,
			      self->mr[1]->lkey);
}

TEST_F(slow_request, dereg_during_a_prefetch)
{
	bool returns;
	int err;

	mkt_slow_hold(&self->slow, true);
	slow_run(&self->thread[1], slow_advise, self);
	ASSERT_EQ(0, mkt_slow_wait(&self->slow, 1));
	returns = slow_returns(self, slow_dereg, self->mr[1]);
	self->mr[1] = NULL;
	mkt_slow_hold(&self->slow, false);
	EXPECT_TRUE(returns);
	EXPECT_EQ(0, slow_join(&self->thread[0]));
	/* it may have returned before, as the prefetch may continue after the call */
	err = slow_join(&self->thread[1]);
	EXPECT_TRUE(err == 0 || err == EINTR);
}

/* The datagram is not affected. */
TEST_F(slow_request, destroy_ah_during_a_datagram)
{
	struct mkt_wr wr = {
		.op = MKT_SEND,
		.sge[0] = {
			.addr = (uintptr_t)self->slow.map,
			.length = 64,
			.lkey = self->mr[0]->lkey,
		},
		.num_sge = 1,
	};
	struct mkt_pair ud;
	bool returns;

	ASSERT_EQ(0, mkt_pair_create(&ud, &self->s.dev[0], &self->s.dev[1], IBV_MTU_1024,
				     MKT_QP_UD | MKT_QP_PATIENT));
	mkt_slow_hold(&self->slow, true);
	ASSERT_EQ(0, mkt_post_send(&ud.end[0], &wr, 1));
	ASSERT_EQ(0, mkt_slow_wait(&self->slow, 1));
	returns = slow_returns(self, slow_destroy_ah, ud.end[0].ah);
	ud.end[0].ah = NULL;
	mkt_slow_hold(&self->slow, false);
	EXPECT_TRUE(returns);
	EXPECT_EQ(0, slow_join(&self->thread[0]));
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(&ud.end[0], 1));
	mkt_pair_destroy(&ud);
}

TEST_HARNESS_MAIN
