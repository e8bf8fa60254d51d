// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Bindings that work requests replaced. ib_mkey keeps such a binding until no access
 * uses it. It must not hold up the owner of its leaves.
 * sets: smp
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "request.h"

#define ROOM 4096
#define AT_ONCE 16

MKT_FIXTURE(old, .host = 64 * 1024)

/*
 * The leaves of a layout that a request replaced can be deregistered at once: the
 * first layout of the key, one that replaced another, and the last one. That a
 * deregistration waits for accesses is tested by mkey_slow_request, which stops one.
 */
TEST_F(old, replaced_leaves_are_free)
{
	struct mkt_setup *s = &self->s;
	struct mkt_qp *qp = &s->pair.end[0];
	struct ibv_mr *key = ibmkey_alloc(s->dev[0].pd, 4), *mr[2];
	struct ibmkey_range range = { .length = 64 };
	struct ibmkey_bind bind = {
		.kind = IBMKEY_LIST,
		.num_entries = 1,
		.ranges = &range,
	};
	struct mkt_request text;
	struct ibmkey_wr wr;
	unsigned int i;

	ASSERT_NE(NULL, key);
	ASSERT_EQ(0, mkt_request_init(&text, s->dev[0].pd, ROOM));
	for (i = 0; i < 3; i++) {
		mr[i & 1] = ibv_reg_mr(s->dev[0].pd, s->arena[0].mem[0].host, 4096,
				       MKT_ACCESS_ALL);
		ASSERT_NE(NULL, mr[i & 1]);
		range.addr = (uintptr_t)s->arena[0].mem[0].host;
		range.lkey = mr[i & 1]->lkey;
		text.length = ibmkey_describe(&bind, text.text, ROOM);
		wr = mkt_request_wr(&text, key);
		ASSERT_EQ(IBV_WC_SUCCESS, mkt_request_status(qp, &wr));
		EXPECT_EQ(EBUSY, ibv_dereg_mr(mr[i & 1]));
		if (i) {
			ASSERT_EQ(0, ibv_dereg_mr(mr[~i & 1]));
		}
	}
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_dereg_mr(mr[~i & 1]));
	mkt_request_free(&text);
}

/* a queue that binds a key to another key and to memory, in turn */
struct old_rebinder {
	struct mkt_qp *qp;
	struct ibv_mr *key;
	struct mkt_request text[2];
	atomic_bool stop;
	atomic_uint binds;
	atomic_int err;
};

static void *old_rebind(void *arg)
{
	struct old_rebinder *rebinder = arg;
	struct ibv_wc wc;
	unsigned int i;

	while (!atomic_load(&rebinder->stop) && !rebinder->err) {
		for (i = 0; i < AT_ONCE && !rebinder->err; i++) {
			struct ibmkey_wr wr = mkt_request_wr(&rebinder->text[i & 1],
							     rebinder->key);

			rebinder->err = ibmkey_post_bind(rebinder->qp->qp, &wr, i,
							 IBV_SEND_SIGNALED);
		}
		for (i = 0; i < AT_ONCE && !rebinder->err; i++) {
			rebinder->err = mkt_poll(rebinder->qp, &wc);
			if (!rebinder->err && wc.status)
				rebinder->err = wc.status;
		}
		atomic_fetch_add(&rebinder->binds, AT_ONCE);
	}
	return NULL;
}

/*
 * A key that is bound over another one all the time. An unbind of the lower key is
 * refused, because a third key refers to it as well. It must not wait for bindings
 * that are replaced during the call: their number has no bound.
 */
TEST_F(old, rebinds_in_a_loop_hold_up_no_unbind)
{
	struct mkt_setup *s = &self->s;
	struct mkt_leaf *leaf = &s->arena[0].leaf[0];
	struct ibv_mr *low = ibmkey_alloc(s->dev[0].pd, 1);
	struct ibv_mr *holder = ibmkey_alloc(s->dev[0].pd, 1);
	struct old_rebinder rebinder = {
		.qp = &s->pair.end[0],
		.key = ibmkey_alloc(s->dev[0].pd, 1),
	};
	struct ibmkey_range range = {
		.addr = leaf->addr,
		.length = 64,
		.lkey = leaf->mr->lkey,
	};
	struct ibmkey_bind bind = {
		.kind = IBMKEY_LIST,
		.num_entries = 1,
		.ranges = &range,
	};
	unsigned int i;
	pthread_t tid;

	ASSERT_NE(NULL, low);
	ASSERT_NE(NULL, holder);
	ASSERT_NE(NULL, rebinder.key);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, mkt_request_init(&rebinder.text[i], s->dev[0].pd, ROOM));
		rebinder.text[i].length = ibmkey_describe(&bind, rebinder.text[i].text, ROOM);
		if (!i) {
			ASSERT_EQ(0, ibmkey_bind_list(low, MKT_ACCESS_ALL, 1, &range));
			range.addr = 0;
			range.lkey = low->lkey;
			ASSERT_EQ(0, ibmkey_bind_list(holder, MKT_ACCESS_ALL, 1, &range));
		}
	}
	ASSERT_EQ(0, pthread_create(&tid, NULL, old_rebind, &rebinder));
	for (i = 0; i < mkt_scale(100, 10); i++) {
		unsigned int before = atomic_load(&rebinder.binds);

		while (atomic_load(&rebinder.binds) == before && !rebinder.err)
			usleep(100);
		EXPECT_EQ(EBUSY, ibmkey_unbind(low));
	}
	atomic_store(&rebinder.stop, true);
	pthread_join(tid, NULL);
	EXPECT_EQ(0, rebinder.err);
	EXPECT_EQ(0, ibv_dereg_mr(rebinder.key));
	EXPECT_EQ(0, ibv_dereg_mr(holder));
	EXPECT_EQ(0, ibv_dereg_mr(low));
	for (i = 0; i < 2; i++)
		mkt_request_free(&rebinder.text[i]);
}

TEST_HARNESS_MAIN
