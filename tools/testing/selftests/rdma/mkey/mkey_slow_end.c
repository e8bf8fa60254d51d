// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Requests that bind keys, while an access waits for a page and the queue pair or the
 * process goes.
 * needs: on-demand
 */
#include <signal.h>
#include <sys/wait.h>

#include "raw.h"
#include "slow_request.h"

/* what becomes of a queue pair that has a request to bind a key */
enum end { TO_ERR, TO_RESET, DESTROYED };

/* ends the wait of all accesses, soon */
static int slow_release(void *slow)
{
	usleep(2 * PAUSE);
	mkt_slow_hold(slow, false);
	return 0;
}

/*
 * Ends the use of a queue pair, and then the wait of all accesses. The library unmaps the queue of
 * a queue pair that is destroyed: that call returns after the accesses.
 */
static int slow_end(FIXTURE_DATA(slow_request) *self, struct mkt_qp *qp, enum end end)
{
	struct ibv_qp_attr attr = {
		.qp_state = end == TO_ERR ? IBV_QPS_ERR : IBV_QPS_RESET,
	};
	int err;

	slow_run(&self->thread[1], slow_release, &self->slow);
	if (end == DESTROYED) {
		err = ibv_destroy_qp(qp->qp);
		qp->qp = NULL;
	} else {
		err = ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE);
	}
	slow_join(&self->thread[1]);
	return err;
}

/* A request that has not begun is flushed, or forgotten with its queue. It binds nothing. */
TEST_F(slow_request, queue_ends_before_a_request)
{
	struct mkt_qp *qp = &self->s.pair.end[0];
	struct ibmkey_range old = slow_plain(self, OLD);
	struct ibmkey_wr wr = slow_bind(self, slow_plain(self, NEW));
	enum end end;

	ASSERT_EQ(0, ibmkey_bind_list(self->key, MKT_ACCESS_ALL, 1, &old));
	for (end = TO_ERR; end <= DESTROYED; end++) {
		/* each time another page */
		mkt_slow_hold(&self->slow, true);
		ASSERT_EQ(0, slow_write(self, &self->s.pair, 0,
					(uintptr_t)self->slow.map + end * PAGE,
					self->mr[1]->rkey));
		ASSERT_EQ(0, mkt_slow_wait(&self->slow, 1));
		EXPECT_EQ(0, ibmkey_post_bind(qp->qp, &wr, 2, IBV_SEND_SIGNALED));
		EXPECT_EQ(0, slow_end(self, qp, end));
		if (end == TO_ERR) {
			EXPECT_EQ(IBV_WC_WR_FLUSH_ERR, slow_status(qp, 1));
			EXPECT_EQ(IBV_WC_WR_FLUSH_ERR, slow_status(qp, 2));
		}
		EXPECT_EQ(OLD, slow_bound(self));
		if (end != DESTROYED) {
			ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
		}
		EXPECT_EQ(OLD, slow_bound(self));
	}
	/* the key can still be bound by another queue */
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_request_status(&self->other.end[0], &wr));
	EXPECT_EQ(NEW, slow_bound(self));
}

/* A queue that is drained executes no further request, until it sends again. */
TEST_F(slow_request, drained_queue)
{
	struct mkt_qp *qp = &self->s.pair.end[0];
	struct ibmkey_range old = slow_plain(self, OLD);
	struct ibmkey_wr wr = slow_bind(self, slow_plain(self, NEW));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	unsigned int tries;
	int err = EAGAIN;

	ASSERT_EQ(0, ibmkey_bind_list(self->key, MKT_ACCESS_ALL, 1, &old));
	ASSERT_EQ(0, slow_begin(self));
	EXPECT_EQ(0, ibmkey_post_bind(qp->qp, &wr, 2, IBV_SEND_SIGNALED));
	EXPECT_EQ(0, ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE));
	mkt_slow_hold(&self->slow, false);
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(qp, 1));
	usleep(PAUSE);
	EXPECT_EQ(OLD, slow_bound(self));
	attr.qp_state = IBV_QPS_RTS;
	for (tries = 0; tries < MKT_STALL_PAUSES && err; tries++) {
		usleep(1000);
		err = ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE);
	}
	EXPECT_EQ(0, err);
	/* rxe looks at the queue again when a request is posted */
	EXPECT_EQ(0, ibmkey_post_bind(qp->qp, &wr, 3, IBV_SEND_SIGNALED));
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(qp, 2));
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(qp, 3));
	EXPECT_EQ(NEW, slow_bound(self));
}

/* true if the key has one of the two layouts */
static bool slow_either(FIXTURE_DATA(slow_request) *self)
{
	uint64_t length = slow_bound(self);

	return length == OLD || length == NEW;
}

static int slow_rebind(void *arg)
{
	FIXTURE_DATA(slow_request) *self = arg;
	struct ibmkey_range old = slow_plain(self, OLD);

	return ibmkey_bind_list(self->key, MKT_ACCESS_ALL, 1, &old);
}

/*
 * A request that executes waits for a change of the same key, for two seconds at most. Its queue
 * pair can end meanwhile. The key has the layout of the other change, or that of the request if the
 * other change was made in time.
 */
TEST_F(slow_request, queue_ends_during_a_request)
{
	struct mkt_qp *qp = &self->other.end[0];
	struct ibmkey_range slow;
	struct ibmkey_wr wr;
	enum end end;
	int ret;

	for (end = TO_ERR; end <= DESTROYED; end++) {
		slow = slow_range((uintptr_t)self->slow.map + end * PAGE, OLD, self->mr[0]);
		ASSERT_EQ(0, ibmkey_bind_list(self->key, MKT_ACCESS_ALL, 1, &slow));
		mkt_slow_hold(&self->slow, true);
		ASSERT_EQ(0, slow_write(self, &self->s.pair, 1, 0, self->key->rkey));
		ASSERT_EQ(0, mkt_slow_wait(&self->slow, 1));
		slow_run(&self->thread[0], slow_rebind, self);
		usleep(PAUSE);
		wr = slow_bind(self, slow_plain(self, NEW));
		EXPECT_EQ(0, ibmkey_post_bind(qp->qp, &wr, 2, IBV_SEND_SIGNALED));
		usleep(PAUSE);
		EXPECT_EQ(0, slow_end(self, qp, end));
		if (end == TO_ERR) {
			ret = slow_status(qp, 2);
			EXPECT_TRUE(ret == IBV_WC_WR_FLUSH_ERR || ret == IBV_WC_MW_BIND_ERR);
		}
		EXPECT_EQ(0, slow_join(&self->thread[0]));
		EXPECT_EQ(IBV_WC_SUCCESS, slow_status(&self->s.pair.end[1], 1));
		EXPECT_TRUE(slow_either(self));
		if (end != DESTROYED) {
			ASSERT_EQ(0, mkt_pair_recover(&self->other));
			EXPECT_TRUE(slow_either(self));
		}
	}
	wr = slow_bind(self, slow_plain(self, NEW));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_request_status(&self->s.pair.end[0], &wr));
}

/*
 * A queue pair is destroyed while a datagram waits for a page. The datagram then fails, because its
 * second piece is in no MR, and rxe schedules both tasks of the queue pair.
 */
TEST_F(slow_request, queue_is_destroyed_after_an_error)
{
	struct mkt_wr send = {
		.op = MKT_SEND,
		.sge[0] = { (uintptr_t)self->slow.map + PAGE, 8, self->mr[0]->lkey },
		.sge[1] = { 0, 8, 0 },
		.num_sge = 2,
	};
	struct mkt_pair ud;

	ASSERT_EQ(0, mkt_pair_create(&ud, &self->s.dev[0], &self->s.dev[1], IBV_MTU_1024,
				     MKT_QP_UD));
	mkt_slow_hold(&self->slow, true);
	EXPECT_EQ(0, mkt_post_send(&ud.end[0], &send, 1));
	EXPECT_EQ(0, mkt_slow_wait(&self->slow, 1));
	/* the wait ends, and so the datagram fails */
	EXPECT_EQ(0, mkt_raw_qp_destroy(ud.end[0].qp));
	ud.end[0].qp = NULL;
	mkt_slow_hold(&self->slow, false);
	mkt_pair_destroy(&ud);
}

/* leaves requests in two queues, one of which executes a request; does not return */
static void slow_child(FIXTURE_DATA(slow_request) *parent)
{
	FIXTURE_DATA(slow_request) self = { .slow = parent->slow };
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.flags = MKT_QP_PATIENT,
		.host = 64 * 1024,
	};
	struct ibmkey_range old, slow;
	struct ibmkey_wr wr;
	unsigned int i;

	for (i = 0; i < 2; i++)
		if (mkt_dev_try_open(&self.s.dev[i], i))
			_exit(1);
	if (mkt_setup(&self.s, &wants, "child") ||
	    mkt_pair_create(&self.other, &self.s.dev[0], &self.s.dev[1], IBV_MTU_1024,
			    MKT_QP_PATIENT) ||
	    mkt_request_init(&self.text, self.s.dev[0].pd, PAGE))
		_exit(2);
	self.key = ibmkey_alloc(self.s.dev[0].pd, 4);
	self.mr[0] = ibv_reg_mr(self.s.dev[0].pd, self.slow.map, self.slow.size,
				MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	if (!self.key || !self.mr[0] || slow_thread_create(&self.thread[0]))
		_exit(3);
	slow = slow_range((uintptr_t)self.slow.map + 9 * PAGE, OLD, self.mr[0]);
	old = slow_plain(&self, OLD);
	if (ibmkey_bind_list(self.key, MKT_ACCESS_ALL, 1, &slow) ||
	    slow_write(&self, &self.s.pair, 1, 0, self.key->rkey))
		_exit(4);
	usleep(PAUSE);
	slow_run(&self.thread[0], slow_rebind, &self);
	usleep(PAUSE);
	wr = slow_bind(&self, old);
	for (i = 0; i < 4; i++)
		if (ibmkey_post_bind(self.other.end[0].qp, &wr, i, IBV_SEND_SIGNALED))
			_exit(5);
	raise(SIGKILL);
}

/* a process that is killed leaves nothing behind */
TEST_F(slow_request, killed_process)
{
	static const char *const kind[] = { "mr", "qp", "pd", "cq" };
	int before[ARRAY_SIZE(kind)], status = 0;
	unsigned int i;
	pid_t pid;

	for (i = 0; i < ARRAY_SIZE(kind); i++)
		before[i] = mkt_dev_count(&self->s.dev[0], kind[i]);
	mkt_slow_hold(&self->slow, true);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		slow_child(self);
	EXPECT_EQ(0, mkt_slow_wait(&self->slow, 1));
	/* the end of the process waits for the access, and so for this */
	usleep(4 * PAUSE);
	mkt_slow_hold(&self->slow, false);
	EXPECT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
	{
		mkt_diag("the child ended with status %#x", status);
	}
	for (i = 0; i < ARRAY_SIZE(kind); i++) {
		EXPECT_EQ(before[i], mkt_dev_count(&self->s.dev[0], kind[i]));
	}
}

TEST_HARNESS_MAIN
