/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Accesses that wait for a page: the objects of their tests. Side 1 has the key by which side 0
 * accesses memory, and side 0 the key that requests bind.
 */
#ifndef MKEY_SLOW_TEST_H
#define MKEY_SLOW_TEST_H

#include <unistd.h>

#include "mkey_harness.h"
#include "request.h"
#include "slow.h"

#define PAGE 4096
#define LENGTH 1000	/* of an access to side 1, in bytes */
#define PAUSE 300000	/* what does not happen meanwhile does not happen */

static const struct mkt_wants slow_wants = {
	.mtu = IBV_MTU_1024,
	/* a request that is sent again would be another access */
	.flags = MKT_QP_PATIENT,
	.host = 64 * 1024,
	.max_entries = 4,
};

struct slow_test {
	struct mkt_setup s;
	struct mkt_slow slow;
	struct ibv_mr *mr[2];		/* of all of it, on demand, by side */
	struct ibv_mr *unused;		/* a key of side 1 without accesses */
	struct mkt_pair other;
	struct mkt_request text;	/* of side 0 */
	struct slow_thread thread[2];
	bool open;
};

/* makes everything but the devices and the memory */
static inline int slow_test_make(struct slow_test *t, const char *name)
{
	unsigned int access = MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND;
	struct mkt_setup *s = &t->s;
	unsigned int i;
	int err = 0;

	for (i = 0; i < 2 && !err; i++)
		err = slow_thread_create(&t->thread[i]);
	err = err ?: mkt_setup(s, &slow_wants, name) ?:
	      mkt_pair_create(&t->other, &s->dev[0], &s->dev[1], slow_wants.mtu,
			      slow_wants.flags) ?:
	      mkt_request_init(&t->text, s->dev[0].pd, PAGE);
	if (err)
		return err;
	for (i = 0; i < 2; i++) {
		t->mr[i] = ibv_reg_mr(s->dev[i].pd, t->slow.map, t->slow.size, access);
		if (!t->mr[i])
			return errno;
	}
	t->unused = ibmkey_alloc(s->dev[1].pd, 4);
	return t->unused ? 0 : errno;
}

/* an errno value, or -1 if the test must be skipped */
static inline int slow_test_setup(struct slow_test *t, const char *name)
{
	int err = mkt_slow_try(&t->slow, t->s.dev, 64 * PAGE);

	if (err)
		return err;
	t->open = true;
	return slow_test_make(t, name);
}

static inline int slow_free_mr(struct ibv_mr **mr)
{
	int err = *mr ? ibv_dereg_mr(*mr) : 0;

	*mr = NULL;
	return err;
}

static inline int slow_test_free(struct slow_test *t)
{
	unsigned int i;
	int err = 0;

	if (!t->open)
		return 0;
	mkt_slow_hold(&t->slow, false);
	for (i = 0; i < 2; i++)
		slow_thread_end(&t->thread[i]);
	mkt_pair_destroy(&t->other);
	mkt_request_free(&t->text);
	err = slow_free_mr(&t->unused);
	for (i = 0; i < 2; i++)
		err = slow_free_mr(&t->s.key[i]) ?: slow_free_mr(&t->mr[i]) ?: err;
	err = mkt_teardown(&t->s) ?: err;
	mkt_slow_close(&t->slow);
	return err;
}

#define SLOW_SETUP(t) do {							\
	MKT_OPEN_EXTENDED((t)->s.dev);						\
	SLOW_TRY(slow_test_setup(t, _metadata->name));				\
} while (0)

/* fails the test with the message @wrong, unless that is NULL */
static inline void slow_expect(struct __test_metadata *_metadata, const char *wrong)
{
	EXPECT_EQ(NULL, wrong) {
		TH_LOG("%s", wrong);
	}
}

static inline struct ibmkey_range slow_range(uint64_t addr, uint64_t length,
					     const struct ibv_mr *mr)
{
	return (struct ibmkey_range) { .addr = addr, .length = length, .lkey = mr->lkey };
}

/* the address of a page */
static inline uint64_t slow_page(const struct slow_test *t, unsigned int page)
{
	return (uintptr_t)t->slow.map + page * PAGE;
}

/* binds @key of side 1 to ordinary memory */
static inline int slow_bind_plain(const struct mkt_setup *s, struct ibv_mr *key)
{
	return mkt_bind_range(key, MKT_ACCESS_ALL, s->plain[1].mr, s->plain[1].addr, LENGTH);
}

/* a request of side 0 for the bytes from @addr on of @rkey */
static inline struct mkt_wr slow_wr(const struct mkt_setup *s, enum mkt_op op, uint64_t addr,
				    uint32_t rkey)
{
	return mkt_plain_wr(s, 0, op, op == MKT_FETCH_ADD ? 8 : LENGTH, addr, rkey);
}

/* holds pages back, and starts a request of side 0 that waits for one; returns a message or NULL */
static inline const char *slow_hold(struct slow_test *t, enum mkt_op op, uint32_t rkey)
{
	struct mkt_wr wr = slow_wr(&t->s, op, 0, rkey);
	struct ibv_wc wc;

	mkt_slow_hold(&t->slow, true);
	if (mkt_post_send(&t->s.pair.end[0], &wr, 1))
		return "the post";
	if (!mkt_slow_wait(&t->slow, 1))
		return NULL;
	return ibv_poll_cq(t->s.pair.end[0].cq, 1, &wc) == 1 ? ibv_wc_status_str(wc.status) :
	       "the access: it neither waits for a page nor ends";
}

/* the status of the next completion, or -1 */
static inline int slow_status(struct mkt_qp *qp, uint64_t wr_id)
{
	struct ibv_wc wc;

	return mkt_poll(qp, &wc) || wc.wr_id != wr_id ? -1 : (int)wc.status;
}

#endif /* MKEY_SLOW_TEST_H */
