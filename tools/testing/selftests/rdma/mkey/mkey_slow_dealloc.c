// SPDX-License-Identifier: GPL-2.0
/*
 * A memory window that is invalidated and deallocated while an access through it
 * waits for a page. The worker of the driver that invalidates the window waits for a
 * limited time; the deallocation waits for the access.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "slow.h"

#define PAGE 4096
#define LENGTH 1000

FIXTURE(slow_dealloc)
{
	struct mkt_setup s;
	struct mkt_slow slow;
	struct ibv_mr *mr;		/* of all of it, on demand */
	struct ibv_mw *mw;
	pthread_t tid;			/* deallocates the window */
	sem_t start;
	atomic_bool done;
	int err;
	bool open;
};

/* binds the window to a key over a page that is held back */
static int slow_dealloc_bind(FIXTURE_DATA(slow_dealloc) *self)
{
	struct ibmkey_range range = {
		.addr = (uintptr_t)self->slow.map,
		.length = LENGTH,
		.lkey = self->mr->lkey,
	};
	unsigned int remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct mkt_setup *s = &self->s;

	return ibmkey_bind_list(s->key[1], MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND, 1, &range) ?:
	       mkt_bind_window(&s->pair.end[1], self->mw, s->key[1], 0, LENGTH, remote);
}

FIXTURE_SETUP(slow_dealloc)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.flags = MKT_QP_PATIENT,
		.host = 64 * 1024,
		.max_entries = 4,
	};
	struct ibv_pd *pd;

	MKT_OPEN_SLOW(self->s.dev, 1, &self->slow, 16 * PAGE);
	self->open = true;
	pd = self->s.dev[1].pd;
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	self->mr = ibv_reg_mr(pd, self->slow.map, self->slow.size,
			      MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND);
	ASSERT_NE(NULL, self->mr);
	self->mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
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
	if (self->mr)
		EXPECT_EQ(0, ibv_dereg_mr(self->mr));
	EXPECT_EQ(0, mkt_teardown(&self->s));
	mkt_slow_close(&self->slow);
}

static void *slow_dealloc_thread(void *arg)
{
	FIXTURE_DATA(slow_dealloc) *self = arg;

	while (sem_wait(&self->start))
		;
	/* the invalidation waits now */
	usleep(300000);
	self->err = ibv_dealloc_mw(self->mw);
	atomic_store(&self->done, true);
	return NULL;
}

TEST_F(slow_dealloc, during_an_invalidation)
{
	struct mkt_wr inv = { .op = MKT_LOCAL_INV, .rkey = self->mw->rkey };
	struct mkt_setup *s = &self->s;
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = {
			.addr = s->plain[0].addr,
			.length = LENGTH,
			.lkey = s->plain[0].mr->lkey,
		},
		.num_sge = 1,
		.rkey = self->mw->rkey,
	};
	bool waits = false;
	struct ibv_wc wc = {};
	int err;

	/* before a page is held back, because making a thread maps memory */
	sem_init(&self->start, 0, 0);
	ASSERT_EQ(0, pthread_create(&self->tid, NULL, slow_dealloc_thread, self));
	mkt_slow_hold(&self->slow, true);
	err = mkt_post_send(&s->pair.end[0], &wr, 1) ?: mkt_slow_wait(&self->slow, 1);
	if (!err)
		err = mkt_post_send(&s->pair.end[1], &inv, 1);
	sem_post(&self->start);
	if (!err) {
		/* the page is still held back */
		err = mkt_poll(&s->pair.end[1], &wc);
		waits = !atomic_load(&self->done);
	}
	mkt_slow_hold(&self->slow, false);
	pthread_join(self->tid, NULL);
	sem_destroy(&self->start);
	self->mw = NULL;
	EXPECT_EQ(0, err);
	EXPECT_NE(IBV_WC_SUCCESS, wc.status);
	EXPECT_TRUE(waits);
	EXPECT_EQ(0, self->err);
	EXPECT_EQ(0, mkt_pair_recover(&s->pair));
}

TEST_HARNESS_MAIN
