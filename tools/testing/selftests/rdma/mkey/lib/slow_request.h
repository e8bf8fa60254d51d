/* SPDX-License-Identifier: GPL-2.0 */
/* Requests that bind keys while an access waits for a page: the set-up of their tests. */
#ifndef MKEY_SLOW_REQUEST_H
#define MKEY_SLOW_REQUEST_H

#include "mkey_harness.h"
#include "request.h"
#include "slow.h"
#include "slow_thread.h"

#define PAGE 4096
#define OLD 64		/* bytes of the layout that a test begins with */
#define NEW 128		/* of the one that a request binds */
#define PAUSE 300000	/* what does not happen meanwhile does not happen */

/* side 0 has the keys */
FIXTURE(slow_request)
{
	struct mkt_setup s;
	struct mkt_slow slow;
	struct ibv_mr *mr[2];		/* of all of it, on demand */
	struct mkt_pair other;
	struct mkt_request text;
	struct ibv_mr *key;
	struct slow_thread thread[2];
	bool open;
};

FIXTURE_SETUP(slow_request)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.flags = MKT_QP_PATIENT,
		.host = 64 * 1024,
	};
	unsigned int i;

	MKT_OPEN_SLOW(self->s.dev, 1, &self->slow, 64 * PAGE);
	self->open = true;
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, slow_thread_create(&self->thread[i]));
		self->mr[i] = ibv_reg_mr(self->s.dev[i].pd, self->slow.map, self->slow.size,
					 MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
		ASSERT_NE(NULL, self->mr[i]);
	}
	self->key = ibmkey_alloc(self->s.dev[0].pd, 4);
	ASSERT_NE(NULL, self->key);
	ASSERT_EQ(0, mkt_request_init(&self->text, self->s.dev[0].pd, PAGE));
	ASSERT_EQ(0, mkt_pair_create(&self->other, &self->s.dev[0], &self->s.dev[1],
				     IBV_MTU_1024, MKT_QP_PATIENT));
}

FIXTURE_TEARDOWN(slow_request)
{
	unsigned int i;

	if (!self->open)
		return;
	for (i = 0; i < 2; i++)
		slow_thread_end(&self->thread[i]);
	mkt_pair_destroy(&self->other);
	mkt_request_free(&self->text);
	if (self->key) {
		EXPECT_EQ(0, ibv_dereg_mr(self->key));
	}
	for (i = 0; i < 2; i++)
		if (self->mr[i]) {
			EXPECT_EQ(0, ibv_dereg_mr(self->mr[i]));
		}
	EXPECT_EQ(0, mkt_teardown(&self->s));
	mkt_slow_close(&self->slow);
}

static inline struct ibmkey_range slow_range(uint64_t addr, uint64_t length,
					     const struct ibv_mr *mr)
{
	return (struct ibmkey_range) { .addr = addr, .length = length, .lkey = mr->lkey };
}

/* @length bytes of ordinary memory of side 0 */
static inline struct ibmkey_range slow_plain(FIXTURE_DATA(slow_request) *self, uint64_t length)
{
	return slow_range(self->s.plain[0].addr, length, self->s.plain[0].mr);
}

/* a request that binds the key to @range */
static inline struct ibmkey_wr slow_bind(FIXTURE_DATA(slow_request) *self,
					 struct ibmkey_range range)
{
	struct ibmkey_bind bind = {
		.kind = IBMKEY_LIST,
		.num_entries = 1,
		.ranges = &range,
	};

	self->text.length = ibmkey_describe(&bind, self->text.text, self->text.room);
	return mkt_request_wr(&self->text, self->key);
}

/* the length of the key's layout */
static inline uint64_t slow_bound(FIXTURE_DATA(slow_request) *self)
{
	struct ibmkey_info info = {};

	return ibmkey_query(self->key, &info) ? UINT64_MAX : info.length;
}

/* posts a WRITE of side @side that waits for page @page of the other one, by @rkey */
static inline int slow_write(FIXTURE_DATA(slow_request) *self, struct mkt_pair *pair,
			     unsigned int side, uint64_t addr, uint32_t rkey)
{
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = {
			.addr = self->s.plain[side].addr + PAGE,
			.length = 8,
			.lkey = self->s.plain[side].mr->lkey,
		},
		.num_sge = 1,
		.remote_addr = addr,
		.rkey = rkey,
	};

	return mkt_post_send(&pair->end[side], &wr, 1);
}

/* posts a WRITE on the first queue of side 0 that does not complete before a page is there */
static inline int slow_begin(FIXTURE_DATA(slow_request) *self)
{
	mkt_slow_hold(&self->slow, true);
	return slow_write(self, &self->s.pair, 0, (uintptr_t)self->slow.map, self->mr[1]->rkey) ?:
	       mkt_slow_wait(&self->slow, 1);
}

/* the status of the next completion, or -1 */
static inline int slow_status(struct mkt_qp *qp, uint64_t wr_id)
{
	struct ibv_wc wc;

	return mkt_poll(qp, &wc) || wc.wr_id != wr_id ? -1 : (int)wc.status;
}

#endif /* MKEY_SLOW_REQUEST_H */
