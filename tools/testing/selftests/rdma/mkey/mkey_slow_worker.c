// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Requests that invalidate a key while an access by it waits for a page: the workers of
 * the driver that execute them do not wait arbitrarily long.
 * needs: on-demand
 */
#include <stdlib.h>

#include "slow_change.h"

/* a worker of the driver does not wait arbitrarily long for a page */
TEST_F(slow, worker)
{
	struct mkt_setup *s = &self->s;
	struct mkt_wr inv = { .op = MKT_LOCAL_INV, .rkey = s->key[1]->rkey };
	struct slow_change to = {
		.change = variant->change,
		.key = s->key[1],
		.sge = {
			.addr = s->plain[1].addr,
			.length = LENGTH,
			.lkey = s->plain[1].mr->lkey,
		},
	};
	struct ibmkey_info info = {};
	struct slow_thread thread;
	struct ibv_wc wc = {};
	const char *wrong;
	int err = 0, changed;

	ASSERT_EQ(0, slow_thread_create(&thread));
	wrong = slow_begin(s, &self->slow, self->mr, 20);
	if (!wrong) {
		err = mkt_post_send(&s->pair.end[1], &inv, 1) ?:
		      mkt_poll(&s->pair.end[1], &wc) ?:
		      ibmkey_query(s->key[1], &info);
		/* all later changes wait for the access */
		slow_run(&thread, slow_change, &to);
		if (slow_is_done(&thread, 500))
			wrong = "the change: it did not wait";
		else if (ibv_rereg_mr_sg(self->other, MKT_ACCESS_ALL, 1,
					 &to.sge))
			wrong = "another key";
	} else {
		slow_run(&thread, slow_change, &to);
	}
	mkt_slow_hold(&self->slow, false);
	changed = slow_join(&thread);
	slow_thread_end(&thread);
	if (variant->change == DEREG)
		s->key[1] = NULL;
	EXPECT_EQ(NULL, wrong)
	{
		TH_LOG("%s", wrong);
	}
	EXPECT_EQ(0, err);
	EXPECT_NE(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(IBMKEY_UNBOUND, info.kind);
	EXPECT_EQ(0, changed);
	/* the leaf has been released */
	if (variant->change != BIND) {
		EXPECT_EQ(0, ibv_dereg_mr(self->mr));
		self->mr = NULL;
	}
	EXPECT_EQ(0, mkt_pair_recover(&s->pair));
}

/*
 * makes queue pairs of side 1 that are connected to themselves, before any page is
 * held back
 */
static int slow_queue_pairs(struct mkt_setup *s, struct mkt_qp *qp, unsigned int count)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < count && !err; i++) {
		struct mkt_peer self;

		err = mkt_qp_create(&qp[i], &s->dev[1], 0);
		if (!err) {
			mkt_qp_self(&qp[i], &self);
			err = mkt_qp_connect(&qp[i], &self, IBV_MTU_1024);
		}
	}
	return err;
}

/*
 * Returns a message if an access or another key is disturbed while @count queue
 * pairs invalidate a key whose access waits for a page.
 */
static const char *slow_others(struct mkt_setup *s, struct mkt_pair *pair,
			       struct ibv_mr *key, struct mkt_qp *qp,
			       unsigned int count)
{
	struct mkt_wr inv = { .op = MKT_LOCAL_INV, .rkey = s->key[1]->rkey };
	struct mkt_wr wr = slow_wr(s, MKT_WRITE, s->plain[1].addr, s->plain[1].mr->rkey);
	struct ibv_sge sge = {
		.addr = s->plain[1].addr,
		.length = LENGTH,
		.lkey = s->plain[1].mr->lkey,
	};
	struct ibv_wc wc;
	unsigned int i;

	for (i = 0; i < count; i++)
		if (mkt_post_send(&qp[i], &inv, 1))
			return "the post of an invalidation";
	if (mkt_post_send(&pair->end[0], &wr, 1) || mkt_poll(&pair->end[0], &wc) ||
	    wc.status != IBV_WC_SUCCESS)
		return "another queue pair";
	if (ibv_rereg_mr_sg(key, MKT_ACCESS_ALL, 1, &sge) || ibmkey_unbind(key))
		return "another key";
	for (i = 0; i < count; i++)
		if (mkt_poll(&qp[i], &wc) || wc.status == IBV_WC_SUCCESS)
			return "an invalidation: it did not end in an error";
	return NULL;
}

/*
 * More invalidations than the driver has workers, of a key whose access waits for
 * a page: they end before the page arrives, and delay no other queue pair.
 */
TEST_F(slow, workers)
{
	unsigned int i, count = mkt_scale(2100, 300);
	struct mkt_setup *s = &self->s;
	struct ibmkey_info info = {};
	struct mkt_pair pair = {};
	struct ibv_wc wc = {};
	struct mkt_qp *qp;
	const char *wrong;

	if (variant->change != UNBIND)
		SKIP(return, "the same for each change");
	qp = calloc(count, sizeof(*qp));
	ASSERT_NE(NULL, qp);
	ASSERT_EQ(0, slow_queue_pairs(s, qp, count));
	ASSERT_EQ(0, mkt_pair_create(&pair, &s->dev[0], &s->dev[1], IBV_MTU_1024, 0));
	wrong = slow_begin(s, &self->slow, self->mr, 28) ?:
		slow_others(s, &pair, self->other, qp, count);
	if (!wrong && (ibmkey_query(s->key[1], &info) || info.kind != IBMKEY_UNBOUND))
		wrong = "the key: it is bound";
	mkt_slow_hold(&self->slow, false);
	EXPECT_EQ(NULL, wrong)
	{
		TH_LOG("%s", wrong);
	}
	EXPECT_EQ(0, mkt_poll(&s->pair.end[0], &wc));
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	mkt_pair_destroy(&pair);
	for (i = 0; i < count; i++)
		mkt_qp_destroy(&qp[i]);
	free(qp);
	/* nothing is left of these */
	EXPECT_EQ(0, ibmkey_unbind(s->key[1]));
	EXPECT_EQ(0, ibv_dereg_mr(self->mr));
	self->mr = NULL;
}

TEST_HARNESS_MAIN
