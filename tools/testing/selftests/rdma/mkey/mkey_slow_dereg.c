// SPDX-License-Identifier: GPL-2.0
/*
 * An ordinary MR on demand is deregistered, or an address handle is destroyed, while an access or a
 * prefetch that uses it waits for a page. rxe waits 50 seconds for that, and then frees what is in
 * use. So rxe must not begin before the page is there.
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

static int slow_destroy_ah(void *ah)
{
	return ibv_destroy_ah(ah);
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
	ASSERT_EQ(0, mkt_slow_wait(&self->slow, 1));
	slow_dereg_refused(_metadata, self, counts);
	EXPECT_EQ(0, slow_join(&self->thread[1]));
	EXPECT_EQ(0, ibv_dereg_mr(self->mr[1]));
	self->mr[1] = NULL;
}

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
	bool counts = slow_count(_metadata, "rdma_rxe:rxe_destroy_ah");
	struct mkt_pair ud;
	long long calls;
	bool waits;

	ASSERT_EQ(0, mkt_pair_create(&ud, &self->s.dev[0], &self->s.dev[1], IBV_MTU_1024,
				     MKT_QP_UD | MKT_QP_PATIENT));
	mkt_slow_hold(&self->slow, true);
	ASSERT_EQ(0, mkt_post_send(&ud.end[0], &wr, 1));
	ASSERT_EQ(0, mkt_slow_wait(&self->slow, 1));
	slow_run(&self->thread[0], slow_destroy_ah, ud.end[0].ah);
	usleep(PAUSE);
	waits = atomic_load(&self->thread[0].running);
	calls = counts ? mkt_calls() : 0;
	mkt_slow_hold(&self->slow, false);
	EXPECT_EQ(0, slow_join(&self->thread[0]));
	ud.end[0].ah = NULL;
	EXPECT_TRUE(waits);
	EXPECT_EQ(0, calls);
	if (counts) {
		EXPECT_EQ(1, mkt_calls_end());
	}
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(&ud.end[0], 1));
	mkt_pair_destroy(&ud);
}

TEST_HARNESS_MAIN
