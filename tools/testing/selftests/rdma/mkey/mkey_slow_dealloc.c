// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A memory window that is invalidated and deallocated while an access through it waits
 * for a page. The worker of the driver that invalidates the window waits for a limited time; the
 * deallocation waits for the access.
 * needs: on-demand
 */
#include "slow_access.h"

FIXTURE(slow_dealloc)
{
	struct mkt_setup s;
	struct mkt_slow slow;
	struct ibv_mr *mr;		/* of all of it, on demand */
	struct ibv_mw *mw;
	bool open;
};

/* binds the window to a key over a page that is held back */
static int slow_dealloc_bind(FIXTURE_DATA(slow_dealloc) *self)
{
	unsigned int remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct mkt_setup *s = &self->s;

	return slow_bind_to(s->key[1], (uintptr_t)self->slow.map, self->mr,
			    MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND) ?:
	       mkt_bind_window(&s->pair.end[1], self->mw, s->key[1], 0, LENGTH, remote);
}

FIXTURE_SETUP(slow_dealloc)
{
	SLOW_SETUP(self, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND);
	self->mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, self->mw);
	ASSERT_EQ(0, slow_dealloc_bind(self));
}

FIXTURE_TEARDOWN(slow_dealloc)
{
	if (!self->open)
		return;
	if (self->mw)
		EXPECT_EQ(0, ibv_dealloc_mw(self->mw));
	if (self->s.key[1])
		EXPECT_EQ(0, ibmkey_unbind(self->s.key[1]));
	SLOW_TEARDOWN(self);
}

static int slow_dealloc_later(void *mw)
{
	/* the invalidation waits now */
	usleep(300000);
	return ibv_dealloc_mw(mw);
}

TEST_F(slow_dealloc, during_an_invalidation)
{
	struct mkt_wr inv = { .op = MKT_LOCAL_INV, .rkey = self->mw->rkey };
	struct mkt_setup *s = &self->s;
	struct slow_thread thread;
	bool waits = false;
	struct ibv_wc wc = {};
	int err, deallocated;

	ASSERT_EQ(0, slow_thread_create(&thread));
	err = slow_hold_write(s, &self->slow, self->mw->rkey);
	if (!err)
		err = mkt_post_send(&s->pair.end[1], &inv, 1);
	slow_run(&thread, slow_dealloc_later, self->mw);
	if (!err) {
		/* the page is still held back */
		err = mkt_poll(&s->pair.end[1], &wc);
		waits = atomic_load(&thread.running);
	}
	mkt_slow_hold(&self->slow, false);
	deallocated = slow_join(&thread);
	slow_thread_end(&thread);
	self->mw = NULL;
	EXPECT_EQ(0, err);
	EXPECT_NE(IBV_WC_SUCCESS, wc.status);
	EXPECT_TRUE(waits);
	EXPECT_EQ(0, deallocated);
	EXPECT_EQ(0, mkt_pair_recover(&s->pair));
}

TEST_HARNESS_MAIN
