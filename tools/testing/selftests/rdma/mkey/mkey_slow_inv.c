// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that invalidate and bind a key while it is deregistered, and an access
 * by it waits for a page. The key must stay unusable: the deregistration waits only
 * for accesses that began before.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "request.h"
#include "slow.h"

#define PAGE 4096
#define LENGTH 1000
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
	pthread_t tid;
	sem_t start;
	atomic_bool done;
	int err;
	bool open;
};

FIXTURE_SETUP(slow_inv)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.flags = MKT_QP_PATIENT,
		.host = 64 * 1024,
		.max_entries = 4,
	};

	MKT_OPEN_SLOW(self->s.dev, 1, &self->slow, 64 * PAGE);
	self->open = true;
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	self->mr = ibv_reg_mr(self->s.dev[1].pd, self->slow.map, self->slow.size,
			      MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	ASSERT_NE(NULL, self->mr);
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
	if (self->mr) {
		EXPECT_EQ(0, ibv_dereg_mr(self->mr));
	}
	EXPECT_EQ(0, mkt_teardown(&self->s));
	mkt_slow_close(&self->slow);
}

static void *slow_inv_dereg(void *arg)
{
	FIXTURE_DATA(slow_inv) *self = arg;

	while (sem_wait(&self->start))
		;
	self->err = ibv_dereg_mr(self->key);
	atomic_store(&self->done, true);
	return NULL;
}

/* binds the key over a page that is held back, and starts a WRITE that waits for it */
static int slow_inv_begin(FIXTURE_DATA(slow_inv) *self)
{
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = {
			.addr = self->s.plain[0].addr,
			.length = LENGTH,
			.lkey = self->s.plain[0].mr->lkey,
		},
		.num_sge = 1,
		.rkey = self->key->rkey,
	};
	struct ibmkey_range range = {
		.addr = (uintptr_t)self->slow.map,
		.length = LENGTH,
		.lkey = self->mr->lkey,
	};
	int err = ibmkey_bind_list(self->key, MKT_ACCESS_ALL, 1, &range);

	if (err)
		return err;
	mkt_slow_hold(&self->slow, true);
	return mkt_post_send(&self->s.pair.end[0], &wr, 1) ?: mkt_slow_wait(&self->slow, 1);
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
	int status[QPS] = {};
	struct ibv_wc wc = {};
	int err;

	sem_init(&self->start, 0, 0);
	ASSERT_EQ(0, pthread_create(&self->tid, NULL, slow_inv_dereg, self));
	err = slow_inv_begin(self);
	sem_post(&self->start);
	if (!err) {
		/* the deregistration waits for the WRITE */
		usleep(300000);
		err = atomic_load(&self->done) ? ENOENT :
		      mkt_post_send(&self->pair[0].end[0], &inv, 1) ?:
		      mkt_poll(&self->pair[0].end[0], &wc);
		status[0] = wc.status;
		status[1] = slow_inv_bind(self, 1, rkey);
		status[2] = slow_inv_bind(self, 2, ibv_inc_rkey(rkey));
	}
	mkt_slow_hold(&self->slow, false);
	pthread_join(self->tid, NULL);
	sem_destroy(&self->start);
	EXPECT_EQ(0, err);
	EXPECT_EQ(0, self->err);
	EXPECT_NE(IBV_WC_SUCCESS, status[0]);
	EXPECT_EQ(IBV_WC_MW_BIND_ERR, status[1]);
	EXPECT_EQ(IBV_WC_MW_BIND_ERR, status[2]);
	EXPECT_EQ(0, mkt_pair_recover(&self->s.pair));
}

TEST_HARNESS_MAIN
