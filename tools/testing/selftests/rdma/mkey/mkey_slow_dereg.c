// SPDX-License-Identifier: GPL-2.0
/*
 * An ordinary MR on demand is deregistered while an access by its own rkey, or a prefetch, waits
 * for a page. rxe waits 50 seconds for that, and then frees the MR that is in use. So rxe must not
 * begin before the page is there.
 */

#include "calls.h"
#include "raw.h"
#include "slow_request.h"

/* counts the calls of the function of rxe that frees, before a page is held back */
static bool slow_count(struct __test_metadata *_metadata, const char *function)
{
	if (!geteuid() && mkt_calls_begin(function))
		return true;
	TH_LOG("not root or no kprobe events: what rxe does is not looked at");
	return false;
}

static int slow_dereg(void *mr)
{
	return ibv_dereg_mr(mr);
}

/* deregisters the MR while a page is awaited, which is refused, and lets the page arrive */
static void slow_dereg_refused(struct __test_metadata *_metadata,
			     FIXTURE_DATA(slow_request) *self, bool counts)
{
	long long calls;
	bool busy;

	slow_run(&self->thread[0], slow_dereg, self->mr[1]);
	/* the first call gives up after some seconds */
	busy = slow_join(&self->thread[0]) == EBUSY;
	calls = counts ? mkt_calls() : 0;
	mkt_slow_hold(&self->slow, false);
	EXPECT_TRUE(busy);
	EXPECT_EQ(0, calls);
	if (counts) {
		EXPECT_EQ(0, mkt_calls_end());
	}
}

TEST_F(slow_request, dereg_during_an_access)
{
	bool counts = slow_count(_metadata, "rdma_rxe:rxe_dereg_mr");

	ASSERT_EQ(0, slow_begin(self));
	slow_dereg_refused(_metadata, self, counts);
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(&self->s.pair.end[0], 1));
	/* the MR is as it was */
	EXPECT_EQ(0, slow_write(self, &self->s.pair, 0, (uintptr_t)self->slow.map,
				self->mr[1]->rkey));
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(&self->s.pair.end[0], 1));
	EXPECT_EQ(0, ibv_dereg_mr(self->mr[1]));
	self->mr[1] = NULL;
}

static int slow_advise(void *arg)
{
	FIXTURE_DATA(slow_request) *self = arg;

	return mkt_raw_advise(self->s.dev[1].pd, 0, (uintptr_t)self->slow.map, PAGE,
			      self->mr[1]->lkey);
}

TEST_F(slow_request, dereg_during_a_prefetch)
{
	bool counts = slow_count(_metadata, "rdma_rxe:rxe_dereg_mr");

	mkt_slow_hold(&self->slow, true);
	slow_run(&self->thread[1], slow_advise, self);
	ASSERT_EQ(0, mkt_slow_wait(&self->slow));
	slow_dereg_refused(_metadata, self, counts);
	EXPECT_EQ(0, slow_join(&self->thread[1]));
	EXPECT_EQ(0, ibv_dereg_mr(self->mr[1]));
	self->mr[1] = NULL;
}

TEST_HARNESS_MAIN
