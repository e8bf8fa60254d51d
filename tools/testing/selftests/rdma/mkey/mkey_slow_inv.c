// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Requests that invalidate and bind a key while it is deregistered, and an access by it
 * waits for a page. The key must stay unusable: the deregistration waits only for accesses that
 * began before.
 * needs: on-demand
 */
#include "request.h"
#include "slow_access.h"

#define QPS 3

FIXTURE(slow_inv)
{
	struct mkt_setup s;
	struct mkt_slow slow;
	struct ibv_mr *mr;		/* of all of it, on demand */
	struct mkt_pair pair[QPS];	/* an error ends the use of each */
	unsigned int pairs;
	struct mkt_request text;
	struct ibv_mr *key;
	bool open;
};

FIXTURE_SETUP(slow_inv)
{
	SLOW_SETUP(self, MKT_ACCESS_ALL);
	self->key = ibmkey_alloc(self->s.dev[1].pd, 4);
	ASSERT_NE(NULL, self->key);
	ASSERT_EQ(0, mkt_request_init(&self->text, self->s.dev[1].pd, PAGE));
	for (; self->pairs < QPS; self->pairs++) {
		ASSERT_EQ(0, mkt_pair_create(&self->pair[self->pairs], &self->s.dev[1],
					     &self->s.dev[0], IBV_MTU_1024,
					     MKT_QP_PATIENT));
	}
}

FIXTURE_TEARDOWN(slow_inv)
{
	if (!self->open)
		return;
	while (self->pairs)
		mkt_pair_destroy(&self->pair[--self->pairs]);
	mkt_request_free(&self->text);
	SLOW_TEARDOWN(self);
}

/* binds the key, named by @rkey, to ordinary memory by a request; returns its status */
static int slow_inv_bind(FIXTURE_DATA(slow_inv) *self, unsigned int pair, uint32_t rkey)
{
	struct ibmkey_range range = {
		.addr = self->s.plain[1].addr,
		.length = LENGTH,
		.lkey = self->s.plain[1].mr->lkey,
	};
	struct ibmkey_bind bind = {
		.kind = IBMKEY_LIST,
		.num_entries = 1,
		.ranges = &range,
	};
	struct ibv_mr named = { .context = self->s.dev[1].ctx, .rkey = rkey };
	struct ibmkey_wr wr;

	self->text.length = ibmkey_describe(&bind, self->text.text, self->text.room);
	wr = mkt_request_wr(&self->text, &named);
	return mkt_request_status(&self->pair[pair].end[0], &wr);
}

TEST_F(slow_inv, a_key_that_goes_stays_unusable)
{
	uint32_t rkey = self->key->rkey;
	struct mkt_wr inv = { .op = MKT_LOCAL_INV, .rkey = rkey };
	struct slow_thread thread;
	int status[QPS] = {};
	struct ibv_wc wc = {};
	int err, deregistered;

	ASSERT_EQ(0, slow_thread_create(&thread));
	err = slow_bind_to(self->key, (uintptr_t)self->slow.map, self->mr, MKT_ACCESS_ALL) ?:
	      slow_hold_write(&self->s, &self->slow, rkey);
	slow_run(&thread, slow_dereg, self->key);
	if (!err) {
		/* the deregistration waits for the WRITE */
		usleep(300000);
		err = !atomic_load(&thread.running) ? ENOENT :
		      mkt_post_send(&self->pair[0].end[0], &inv, 1) ?:
		      mkt_poll(&self->pair[0].end[0], &wc);
		status[0] = wc.status;
		status[1] = slow_inv_bind(self, 1, rkey);
		status[2] = slow_inv_bind(self, 2, ibv_inc_rkey(rkey));
	}
	mkt_slow_hold(&self->slow, false);
	deregistered = slow_join(&thread);
	slow_thread_end(&thread);
	EXPECT_EQ(0, err);
	EXPECT_EQ(0, deregistered);
	EXPECT_NE(IBV_WC_SUCCESS, status[0]);
	EXPECT_EQ(IBV_WC_MW_BIND_ERR, status[1]);
	EXPECT_EQ(IBV_WC_MW_BIND_ERR, status[2]);
	EXPECT_EQ(0, mkt_pair_recover(&self->s.pair));
}

TEST_HARNESS_MAIN
