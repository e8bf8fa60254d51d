/* SPDX-License-Identifier: GPL-2.0 */
/* Changes of a key while an access by it waits for a page: the set-up of their tests. */
#ifndef MKEY_SLOW_CHANGE_H
#define MKEY_SLOW_CHANGE_H

#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "slow.h"

#define PAGE 4096
/* the offset of the access in its page, and its length */
#define AT 72
#define LENGTH 1000

enum change { BIND, UNBIND, DEREG };

/* made before any page is held back, because making a thread maps memory */
struct slow_thread {
	pthread_t tid;
	sem_t start;
	enum change change;
	struct ibv_mr *key;
	struct ibv_sge sge;
	atomic_bool done;
	int err;
};

static inline void *slow_change(void *arg)
{
	struct slow_thread *thread = arg;

	while (sem_wait(&thread->start))
		;
	switch (thread->change) {
	case BIND:
		thread->err = ibv_rereg_mr_sg(thread->key, MKT_ACCESS_ALL, 1,
					      &thread->sge);
		break;
	case UNBIND:
		thread->err = ibmkey_unbind(thread->key);
		break;
	case DEREG:
		thread->err = ibv_dereg_mr(thread->key);
		break;
	}
	atomic_store(&thread->done, true);
	return NULL;
}

FIXTURE(slow)
{
	struct mkt_setup s;
	struct mkt_slow slow;
	struct ibv_mr *mr;		/* of all of it, on demand */
	struct ibv_mr *other;		/* a key without waiting accesses */
	bool open;
};

FIXTURE_VARIANT(slow)
{
	enum change change;
};

FIXTURE_VARIANT_ADD(slow, bind)
{
	.change = BIND,
};

FIXTURE_VARIANT_ADD(slow, unbind)
{
	.change = UNBIND,
};

FIXTURE_VARIANT_ADD(slow, dereg)
{
	.change = DEREG,
};

FIXTURE_SETUP(slow)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		/* a retransmitted READ runs again, after the key was destroyed */
		.flags = MKT_QP_PATIENT,
		.host = 64 * 1024,
		.max_entries = 4,
	};

	MKT_OPEN_SLOW(self->s.dev, 1, &self->slow, 64 * PAGE);
	self->open = true;
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	self->mr = ibv_reg_mr(self->s.dev[1].pd, self->slow.map,
			      self->slow.size,
			      MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	ASSERT_NE(NULL, self->mr);
	self->other = ibmkey_alloc(self->s.dev[1].pd, 4);
	ASSERT_NE(NULL, self->other);
}

FIXTURE_TEARDOWN(slow)
{
	if (!self->open)
		return;
	if (self->other) {
		EXPECT_EQ(0, ibv_dereg_mr(self->other));
	}
	if (self->s.key[1]) {
		EXPECT_EQ(0, ibv_dereg_mr(self->s.key[1]));
		self->s.key[1] = NULL;
	}
	if (self->mr) {
		EXPECT_EQ(0, ibv_dereg_mr(self->mr));
	}
	EXPECT_EQ(0, mkt_teardown(&self->s));
	mkt_slow_close(&self->slow);
}

static inline bool slow_is_done(struct slow_thread *thread, unsigned int ms)
{
	while (ms-- && !atomic_load(&thread->done))
		usleep(1000);
	return atomic_load(&thread->done);
}

/*
 * binds the key of side 1 over a page that is held back, and starts a WRITE that
 * waits for it
 */
static inline const char *slow_begin(struct mkt_setup *s, struct mkt_slow *slow,
				     struct ibv_mr *mr, unsigned int page)
{
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = {
			.addr = s->plain[0].addr,
			.length = LENGTH,
			.lkey = s->plain[0].mr->lkey,
		},
		.num_sge = 1,
		.rkey = s->key[1]->rkey,
	};
	struct ibv_sge sge = {
		.addr = (uintptr_t)(slow->map + page * PAGE + AT),
		.length = LENGTH,
		.lkey = mr->lkey,
	};

	if (ibv_rereg_mr_sg(s->key[1], MKT_ACCESS_ALL, 1, &sge))
		return "the first bind";
	mkt_slow_hold(slow, true);
	if (mkt_post_send(&s->pair.end[0], &wr, 1))
		return "the post";
	return mkt_slow_wait(slow, 1) ? "the access: it does not wait" : NULL;
}

#endif /* MKEY_SLOW_CHANGE_H */
