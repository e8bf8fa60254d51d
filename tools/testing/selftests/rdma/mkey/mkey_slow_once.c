// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A LOCAL_INV of a key is executed once: also if it fails, and if rxe repeats requests
 * while it waits for an access.
 * needs: netem kprobes on-demand
 */
#include <stdio.h>
#include <stdlib.h>

#include "calls.h"
#include "slow_request.h"

#define INVALIDATES "rdma_rxe:rxe_invalidate_mr"
/* a receiver that is not ready is tried again after 123 ms */
#define RNR_TIMER 27

/* lets a WRITE of side 0, which gathers its bytes by the key, wait for a page */
static int once_begin(FIXTURE_DATA(slow_request) *self)
{
	struct ibmkey_range range = slow_range((uintptr_t)self->slow.map, OLD, self->mr[0]);
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = { .length = OLD },
		.num_sge = 1,
		.remote_addr = self->s.plain[1].addr,
		.rkey = self->s.plain[1].mr->rkey,
	};
	struct ibmkey_info info;
	int err = ibmkey_bind_list(self->key, MKT_ACCESS_ALL, 1, &range) ?:
		  ibmkey_query(self->key, &info);

	if (err)
		return err;
	/* an earlier LOCAL_INV has changed these */
	self->key->lkey = info.lkey;
	self->key->rkey = info.rkey;
	wr.sge[0].lkey = info.lkey;
	mkt_slow_hold(&self->slow, true);
	return mkt_post_send(&self->other.end[0], &wr, 1) ?: mkt_slow_wait(&self->slow, 1);
}

/*
 * A LOCAL_INV waits for two seconds for an access, and then ends in an error. rxe does not
 * execute it after that: it would wait again, or find that the access has ended.
 */
TEST_F(slow_request, an_invalidation_that_fails_waits_once)
{
	struct mkt_wr inv = { .op = MKT_LOCAL_INV, .rkey = self->key->rkey };
	struct mkt_qp *qp = &self->s.pair.end[0];
	int status = -1, err;

	if (geteuid())
		SKIP(return, "not root");
	if (!mkt_calls_begin(INVALIDATES))
		SKIP(return, "no kprobe events");
	err = once_begin(self) ?: mkt_post_send(qp, &inv, 2);
	if (!err)
		status = slow_status(qp, 2);
	mkt_slow_hold(&self->slow, false);
	EXPECT_EQ(1, mkt_calls_end());
	EXPECT_EQ(0, err);
	EXPECT_EQ(IBV_WC_LOC_QP_OP_ERR, status);
	EXPECT_EQ(0, slow_bound(self));
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(&self->other.end[0], 1));
}

/* waits until the receiver of side 1 was not ready once more than @before */
static int once_not_ready(FIXTURE_DATA(slow_request) *self, unsigned long before)
{
	unsigned int tries;

	for (tries = 0; tries < MKT_STALL_PAUSES; tries++) {
		if (mkt_dev_counter(&self->s.dev[1], "send_rnr_err") != before)
			return 0;
		usleep(1000);
	}
	return ETIMEDOUT;
}

static int once_rnr_timer(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .min_rnr_timer = RNR_TIMER };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER);
}

/*
 * Posts a SEND whose receiver is not ready at first. rxe sends it again, and the receiver
 * accepts it. Both answers are held back by @netem.
 */
static int once_send_twice(FIXTURE_DATA(slow_request) *self, struct mkt_pair *pair,
			   struct mkt_netem *netem)
{
	unsigned long rnr = mkt_dev_counter(&self->s.dev[1], "send_rnr_err");
	struct mkt_wr nothing = { .op = MKT_SEND };
	struct ibv_wc wc;
	int err;

	if (!mkt_netem_set(netem, "slot 3600s 3600s"))
		return ENOENT;
	err = mkt_post_send(&pair->end[0], &nothing, 1);
	if (err)
		return err;
	return once_not_ready(self, rnr) ?: mkt_post_recv(&pair->end[1], NULL, 0, 2) ?:
	       mkt_poll(&pair->end[1], &wc);
}

/* the number in a file, without a call that needs memory */
static long long once_read(int fd)
{
	char text[32] = "";

	return pread(fd, text, sizeof(text) - 1, 0) > 0 ? atoll(text) : -1;
}

/*
 * The answers arrive: the receiver was not ready, and it has accepted the SEND. The LOCAL_INV
 * after the SEND begins, and waits for an access. Meanwhile the timer of the first answer
 * calls for a repetition. @fd counts the first kind of answers. Returns the status of the
 * LOCAL_INV, or -1.
 */
static int once_repeat(FIXTURE_DATA(slow_request) *self, struct mkt_pair *pair,
		       struct mkt_netem *netem, int fd)
{
	struct mkt_wr nothing = { .op = MKT_WRITE }, inv = { .op = MKT_LOCAL_INV };
	long long rnr = once_read(fd);
	unsigned int tries;
	int err = once_send_twice(self, pair, netem);

	/* the answers go with the next packet; no command runs while an access waits for a page */
	if (!err && !mkt_netem_set(netem, "slot 1us 1us"))
		err = ENOENT;
	if (!err)
		err = once_begin(self);
	inv.rkey = self->key->rkey;
	if (!err)
		err = mkt_post_send(&pair->end[0], &inv, 2) ?:
		      mkt_post_send(&pair->end[1], &nothing, 3);
	for (tries = 0; !err && once_read(fd) == rnr; tries++) {
		if (tries == MKT_STALL_PAUSES)
			err = ETIMEDOUT;
		usleep(1000);
	}
	usleep(PAUSE);
	mkt_slow_hold(&self->slow, false);
	if (err || slow_status(&self->other.end[0], 1) || slow_status(&pair->end[0], 1))
		return -1;
	return slow_status(&pair->end[0], 2);
}

/* on a busy machine the LOCAL_INV may have waited too long, and is tried again */
TEST_F(slow_request, an_invalidation_is_not_repeated)
{
	int fd, status = IBV_WC_LOC_QP_OP_ERR;
	struct mkt_netem netem;
	struct mkt_pair pair;
	unsigned int tries;
	char path[128];

	if (geteuid())
		SKIP(return, "not root");
	if (!mkt_netem_open(&netem, &self->s.dev[1]))
		SKIP(return, "%s is not in a separate namespace", self->s.dev[1].name);
	if (!mkt_netem_set(&netem, "loss 0%"))
		SKIP(return, "no netem");
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/rcvd_rnr_err",
		 self->s.dev[0].name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, once_read(fd));
	for (tries = 0; tries < 3 && status == IBV_WC_LOC_QP_OP_ERR; tries++) {
		ASSERT_EQ(0, mkt_pair_create(&pair, &self->s.dev[0], &self->s.dev[1],
					     IBV_MTU_1024, MKT_QP_LOSSY));
		ASSERT_EQ(0, once_rnr_timer(pair.end[1].qp));
		status = once_repeat(self, &pair, &netem, fd);
		mkt_pair_destroy(&pair);
	}
	EXPECT_EQ(IBV_WC_SUCCESS, status);
	mkt_netem_close(&netem);
	close(fd);
}

TEST_HARNESS_MAIN
