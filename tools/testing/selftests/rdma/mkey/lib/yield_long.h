/* SPDX-License-Identifier: GPL-2.0 */
/* A key that yields and has many leaves, which a thread binds again and again. */
#ifndef MKEY_YIELD_LONG_H
#define MKEY_YIELD_LONG_H

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "mkey_test.h"

/* more leaves than the kernel looks at in one critical section */
#define LEAVES 700

/* a key that is bound again and again; each binding has @mr, an MR or a key, at another place */
struct yield_long {
	struct ibv_mr *key, *mr, *other[LEAVES];
	uint64_t addr;	/* of the other leaves */
	uint64_t at;	/* of @mr */
	atomic_bool stop;
	atomic_uint binds;
	atomic_int err;
};

static inline int yield_long_make(struct yield_long *l, struct mkt_dev *dev, void *at)
{
	struct ibmkey_alloc_attr attr = {
		.max_entries = LEAVES + 1,
		.flags = IBMKEY_ALLOC_YIELD,
	};
	unsigned int i;

	l->addr = (uintptr_t)at;
	l->at = l->addr;
	l->key = ibmkey_alloc_ex(dev->pd, &attr);
	l->mr = ibv_reg_mr(dev->pd, at, 64, 0);
	for (i = 0; i < LEAVES; i++) {
		l->other[i] = ibv_reg_mr(dev->pd, at, 64, 0);
		if (!l->other[i])
			return errno;
	}
	return l->key && l->mr ? 0 : errno;
}

/* binds the key to all leaves; @mr is the first or the last one */
static inline int yield_long_bind(struct yield_long *l, bool last)
{
	struct ibmkey_range range[LEAVES + 1] = {};
	unsigned int i;

	for (i = 0; i <= LEAVES; i++) {
		range[i].addr = l->addr;
		range[i].length = 1;
		range[i].lkey = l->other[(i + last + LEAVES - 1) % LEAVES]->lkey;
	}
	i = last ? LEAVES : 0;
	range[i].addr = l->at;
	range[i].lkey = l->mr->lkey;
	return ibmkey_bind_list(l->key, 0, LEAVES + 1, range);
}

static inline int yield_long_free(struct yield_long *l)
{
	int err = ibv_dereg_mr(l->key);
	unsigned int i;

	if (l->mr && !err)
		err = ibv_dereg_mr(l->mr);
	for (i = 0; i < LEAVES && !err; i++)
		err = ibv_dereg_mr(l->other[i]);
	return err;
}

static inline void *yield_long_loop(void *arg)
{
	struct yield_long *l = arg;
	bool last = false;
	int err = 0;

	while (!atomic_load(&l->stop) && !err) {
		err = yield_long_bind(l, last = !last);
		atomic_fetch_add(&l->binds, 1);
		/* a thread that wakes up interrupts the other one */
		usleep(100 + atomic_load(&l->binds) % 64 * 30);
	}
	atomic_store(&l->err, err);
	return NULL;
}

#endif /* MKEY_YIELD_LONG_H */
