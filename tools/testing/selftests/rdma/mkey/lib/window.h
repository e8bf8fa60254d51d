/* SPDX-License-Identifier: GPL-2.0 */
/* A memory window, the key under it, and queue pairs that own or do not own it. */
#ifndef MKEY_TEST_WINDOW_H
#define MKEY_TEST_WINDOW_H

#include "mkey_harness.h"

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define KEY_ACCESS (MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND)
#define ZONE 4096	/* the length of the key */

static const struct mkt_wants window_wants = {
	.mtu = IBV_MTU_1024,
	.host = 64 * 1024,
	.dm = 8 * 1024,
	.max_entries = 4,
};

FIXTURE(window)
{
	struct mkt_setup s;
	struct ibv_mr *key;	/* of side 1, bound */
	struct ibv_mw *mw;	/* of type 2, unbound */
	struct mkt_qp *owner;	/* of side 1 */
	struct mkt_pair second;	/* in the same PDs */
	struct mkt_dev other;	/* device 1 with another PD */
	struct mkt_pair foreign;	/* side 1 is in that PD */
};

/* binds the key of side 1 over bytes that are aligned in memory, for atomics */
static inline int window_bind_key(struct mkt_setup *s, unsigned int access)
{
	struct mkt_block block = { .offset = -s->plain[1].addr & 7, .bytes = ZONE };
	struct mkt_layout layout = { .num_blocks = 1, .block = &block };

	return mkt_layout_bind(s->key[1], &s->arena[1], &layout, access);
}

FIXTURE_SETUP(window)
{
	struct mkt_setup *s = &self->s;

	MKT_OPEN_EXTENDED(s->dev);
	ASSERT_EQ(0, mkt_setup(s, &window_wants, _metadata->name));
	ASSERT_EQ(0, window_bind_key(s, KEY_ACCESS));
	self->key = s->key[1];
	self->owner = &s->pair.end[1];
	self->mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, self->mw);
	ASSERT_EQ(0, mkt_pair_create(&self->second, &s->dev[0], &s->dev[1], IBV_MTU_1024, 0));
	self->other = s->dev[1];
	self->other.pd = ibv_alloc_pd(self->other.ctx);
	ASSERT_NE(NULL, self->other.pd);
	ASSERT_EQ(0, mkt_pair_create(&self->foreign, &s->dev[0], &self->other, IBV_MTU_1024, 0));
}

FIXTURE_TEARDOWN(window)
{
	if (self->mw)
		EXPECT_EQ(0, ibv_dealloc_mw(self->mw));
	mkt_pair_destroy(&self->second);
	mkt_pair_destroy(&self->foreign);
	if (self->other.pd)
		EXPECT_EQ(0, ibv_dealloc_pd(self->other.pd));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* binds a window to a part of the key, or tries to; the queue pair can be used afterwards */
static inline int window_bind(FIXTURE_DATA(window) *self, struct ibv_mw *mw, struct ibv_mr *mr,
			      uint64_t addr, uint64_t length, unsigned int access)
{
	int err = mkt_bind_window(self->owner, mw, mr, addr, length, access);

	return err && mkt_pair_recover(&self->s.pair) ? -1 : err;
}

/* reads through the window */
static inline int window_read(FIXTURE_DATA(window) *self, struct ibv_mw *mw, uint32_t length)
{
	return mkt_try(&self->s, mw->rkey, MKT_READ, 0, length);
}

/*
 * Invalidates @rkey by a LOCAL_INV of side 1 or by a SEND_WITH_INV of its peer. Returns 1 if that
 * succeeds, 0 if it is refused, and -1 after another error.
 */
static inline int window_inv(struct mkt_pair *pair, enum mkt_op op, uint32_t rkey)
{
	struct mkt_wr wr = { .op = op, .rkey = rkey }, recv = {};
	bool by_peer = op == MKT_SEND_INV;
	struct mkt_result result;
	int done = -1;

	if (!mkt_exec(pair, by_peer ? 0 : 1, &wr, by_peer ? &recv : NULL, &result)) {
		done = result.status == IBV_WC_SUCCESS;
		/* rxe may acknowledge the SEND before it refuses the invalidation */
		if (by_peer && result.received && result.recv_status != IBV_WC_SUCCESS)
			done = 0;
	}
	return mkt_pair_recover(pair) ? -1 : done;
}

#endif /* MKEY_TEST_WINDOW_H */
