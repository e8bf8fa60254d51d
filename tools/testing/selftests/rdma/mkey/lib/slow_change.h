/* SPDX-License-Identifier: GPL-2.0 */
/* Changes of a key while an access by it waits for a page: the set-up of their tests. */
#ifndef MKEY_SLOW_CHANGE_H
#define MKEY_SLOW_CHANGE_H

#include "slow_access.h"

/* the offset of the access in its page */
#define AT 72

enum change { BIND, UNBIND, DEREG };

/* a change of @key, for a thread */
struct slow_change {
	enum change change;
	struct ibv_mr *key;
	struct ibv_sge sge;
};

static inline int slow_change(void *arg)
{
	struct slow_change *change = arg;

	switch (change->change) {
	case BIND:
		return ibv_rereg_mr_sg(change->key, MKT_ACCESS_ALL, 1, &change->sge);
	case UNBIND:
		return ibmkey_unbind(change->key);
	default:
		return ibv_dereg_mr(change->key);
	}
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
	SLOW_SETUP(self, MKT_ACCESS_ALL);
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
	SLOW_TEARDOWN(self);
}

static inline bool slow_is_done(struct slow_thread *thread, unsigned int ms)
{
	while (ms-- && atomic_load(&thread->running))
		usleep(1000);
	return !atomic_load(&thread->running);
}

/*
 * binds the key of side 1 over a page that is held back, and starts a WRITE that
 * waits for it
 */
static inline const char *slow_begin(struct mkt_setup *s, struct mkt_slow *slow,
				     struct ibv_mr *mr, unsigned int page)
{
	uint64_t addr = (uintptr_t)(slow->map + page * PAGE + AT);

	if (slow_bind_to(s->key[1], addr, mr, MKT_ACCESS_ALL))
		return "the first bind";
	return slow_hold_write(s, slow, s->key[1]->rkey) ? "the access: it does not wait" : NULL;
}

#endif /* MKEY_SLOW_CHANGE_H */
