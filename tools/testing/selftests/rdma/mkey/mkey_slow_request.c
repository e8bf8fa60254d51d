// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Requests that bind and invalidate keys while an access waits for a page: what waits
 * for what, what is executed once, and what is left if the queue pair goes. stock_waits kills a
 * process with such requests.
 * needs: on-demand kprobes netem
 */
#include <stdio.h>
#include <stdlib.h>

#include "calls.h"
#include "raw.h"
#include "slow_test.h"

#define OLD 64		/* bytes of the layout that a test begins with */
#define NEW 128		/* of the one that a request binds */

FIXTURE(slow_request)
{
	struct slow_test t;
};

FIXTURE_SETUP(slow_request)
{
	SLOW_SETUP(&self->t);
}

FIXTURE_TEARDOWN(slow_request)
{
	EXPECT_EQ(0, slow_test_free(&self->t));
}

/* @length bytes of ordinary memory of side 0 */
static struct ibmkey_range slow_plain(struct slow_test *t, uint64_t length)
{
	return slow_range(t->s.plain[0].addr, length, t->s.plain[0].mr);
}

/* @length bytes from page @page on, of memory on demand of side 0 */
static struct ibmkey_range slow_late(struct slow_test *t, unsigned int page, uint64_t length)
{
	return slow_range(slow_page(t, page), length, t->mr[0]);
}

/* binds @key to a range of side 0 */
static int slow_bind_range(struct ibv_mr *key, struct ibmkey_range range)
{
	return ibmkey_bind_list(key, MKT_ACCESS_ALL, 1, &range);
}

/* a request that binds the key to @range */
static struct ibmkey_wr slow_bind(struct slow_test *t, struct ibmkey_range range)
{
	mkt_request_range(&t->text, 0, range);
	return mkt_request_wr(&t->text, t->s.key[0]);
}

static int slow_post_bind(struct mkt_qp *qp, const struct ibmkey_wr *wr, uint64_t wr_id)
{
	return ibmkey_post_bind(qp->qp, wr, wr_id, IBV_SEND_SIGNALED);
}

/* binds the key to @range by a request of @qp; returns its status */
static int slow_bind_by(struct slow_test *t, struct mkt_qp *qp, struct ibmkey_range range)
{
	struct ibmkey_wr wr = slow_bind(t, range);

	return mkt_request_status(qp, &wr);
}

/* the length of the key's layout */
static uint64_t slow_bound(struct slow_test *t)
{
	struct ibmkey_info info = {};

	return ibmkey_query(t->s.key[0], &info) ? UINT64_MAX : info.length;
}

/* posts a WRITE of side @side to the bytes from @addr on of @rkey */
static int slow_write(struct slow_test *t, struct mkt_pair *pair, unsigned int side, uint64_t addr,
		      uint32_t rkey)
{
	struct mkt_wr wr = mkt_plain_wr(&t->s, side, MKT_WRITE, 8, addr, rkey);

	return mkt_post_send(&pair->end[side], &wr, 1);
}

/* starts a WRITE of side 1 through the key; @waiting accesses wait for pages then */
static int slow_access(struct slow_test *t, struct mkt_pair *pair, unsigned int waiting)
{
	return slow_write(t, pair, 1, 0, t->s.key[0]->rkey) ?: mkt_slow_wait(&t->slow, waiting);
}

/* lets all pages arrive; returns 0 if the accesses of both queue pairs of side 1 succeed */
static int slow_accessed(struct slow_test *t)
{
	mkt_slow_hold(&t->slow, false);
	return slow_status(&t->s.pair.end[1], 1) ?: slow_status(&t->other.end[1], 1);
}

/*
 * posts two requests on the first queue of side 0: a WRITE, which does not complete before page
 * @page is there, and a bind
 */
static int slow_start(struct slow_test *t, unsigned int page)
{
	struct ibmkey_wr wr = slow_bind(t, slow_plain(t, NEW));

	mkt_slow_hold(&t->slow, true);
	return slow_write(t, &t->s.pair, 0, slow_page(t, page), t->mr[1]->rkey) ?:
	       mkt_slow_wait(&t->slow, 1) ?: slow_post_bind(&t->s.pair.end[0], &wr, 2);
}

/*
 * An earlier request that is repeated uses the old layout again. A request does not wait for
 * earlier ones if the key is not bound: none of them uses it.
 */
TEST_F(slow_request, binds_after_earlier_requests)
{
	struct slow_test *t = &self->t;
	unsigned int bound, i;

	for (bound = 0; bound < 2; bound++) {
		if (bound)
			ASSERT_EQ(0, slow_bind_range(t->s.key[0], slow_plain(t, OLD)));
		ASSERT_EQ(0, slow_start(t, bound));
		if (bound)
			usleep(PAUSE);
		EXPECT_TRUE(mkt_until(slow_bound(t) == (bound ? OLD : NEW)));
		mkt_slow_hold(&t->slow, false);
		for (i = 1; i <= 2; i++)
			EXPECT_EQ(IBV_WC_SUCCESS, slow_status(&t->s.pair.end[0], i));
		EXPECT_EQ(NEW, slow_bound(t));
	}
}

/*
 * The key gets a shorter layout between the two packets of a response to a READ. rxe compares the
 * range with that of the key when the request arrives, not for each packet.
 */
TEST_F(slow_request, a_layout_too_short_for_the_next_packet)
{
	struct slow_test *t = &self->t;
	struct mkt_setup *s = &t->s;
	struct ibv_mr *key = s->key[0];
	struct mkt_wr read = mkt_plain_wr(s, 1, MKT_READ, 2048, PAGE - 1024, key->rkey);
	struct ibmkey_refused_access access = {};

	ASSERT_EQ(0, slow_bind_range(key, slow_late(t, 0, 2 * PAGE)));
	mkt_slow_hold(&t->slow, true);
	ASSERT_EQ(0, mkt_post_send(&s->pair.end[1], &read, 1));
	ASSERT_EQ(0, mkt_slow_wait(&t->slow, 1));
	EXPECT_EQ(IBV_WC_SUCCESS, slow_bind_by(t, &t->other.end[0], slow_plain(t, PAGE)));
	mkt_slow_hold(&t->slow, false);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, slow_status(&s->pair.end[1], 1));
	ASSERT_EQ(0, ibmkey_query_refused_access(key, &access));
	EXPECT_EQ(IB_UVERBS_MKEY_REASON_ACCESS_RANGE, access.reason);
	ASSERT_EQ(0, mkt_pair_recover(&s->pair));
}

/*
 * A deregistration waits for two seconds at most, however many old bindings of slow accesses
 * there are. The first access ends after one second, the second one after two and a half.
 */
TEST_F(slow_request, old_bindings_share_one_deadline)
{
	struct slow_test *t = &self->t;
	struct mkt_pair *pair[2] = { &t->s.pair, &t->other };
	struct mkt_qp *qp = &t->other.end[0];
	unsigned int i;
	int err = 0;

	mkt_slow_hold(&t->slow, true);
	for (i = 0; i < 2 && !err; i++)
		err = slow_bind_by(t, qp, slow_late(t, i, OLD)) ?: slow_access(t, pair[i], i + 1);
	ASSERT_EQ(0, err);
	EXPECT_EQ(0, slow_bind_by(t, qp, slow_plain(t, NEW)));
	slow_run(&t->thread[0], slow_dereg, t->mr[0]);
	usleep(1000000);
	mkt_slow_pass(&t->slow);
	usleep(1500000);
	EXPECT_EQ(IBV_WC_SUCCESS, slow_accessed(t));
	err = slow_join(&t->thread[0]);
	EXPECT_EQ(EBUSY, err);
	if (!err)
		t->mr[0] = NULL;
}

/*
 * The call of the library would say why it failed. For that it allocates memory, and the access
 * that waits has the lock of the process's address space.
 */
static int slow_unbind(void *arg)
{
	struct ibv_mr *key = arg;
	struct mkt_ioctl cmd;

	mkt_raw_unbind(&cmd, key->handle);
	return mkt_ioctl_run(key->context, &cmd);
}

/*
 * Binds the key over byte @at of @low, lets a WRITE through it wait, and binds it to other
 * memory. @waiting WRITEs wait then.
 */
static int slow_replace(struct slow_test *t, struct mkt_pair *pair,
			const struct ibv_mr *low, uint64_t at, unsigned int waiting)
{
	struct mkt_qp *qp = &t->other.end[0];

	return slow_bind_by(t, qp, slow_range(at, OLD, low)) ?: slow_access(t, pair, waiting) ?:
	       slow_bind_by(t, qp, slow_plain(t, NEW));
}

/*
 * An unbind of a key waits for accesses through old bindings over it, but for none that requests
 * replace during the call: their number has no bound. It is refused in the end, because such a
 * binding refers to the key as well. It does not wait at all if another key refers to the key.
 */
TEST_F(slow_request, an_unbind_waits_for_no_later_binding)
{
	struct slow_test *t = &self->t;
	struct ibv_mr *low = ibmkey_alloc(t->s.dev[0].pd, 1);
	struct ibv_mr *holder = ibmkey_alloc(t->s.dev[0].pd, 1);
	struct slow_thread *thread = &t->thread[0];

	ASSERT_NE(NULL, low);
	ASSERT_NE(NULL, holder);
	ASSERT_EQ(0, slow_bind_range(low, slow_late(t, 0, 2 * PAGE)));
	ASSERT_EQ(0, slow_bind_range(holder, slow_range(0, OLD, low)));
	mkt_slow_hold(&t->slow, true);
	ASSERT_EQ(0, slow_replace(t, &t->s.pair, low, 0, 1));
	EXPECT_EQ(EBUSY, slow_unbind(low));
	EXPECT_EQ(0, slow_unbind(holder));
	slow_run(thread, slow_unbind, low);
	/* it waits for the binding that has been replaced */
	EXPECT_TRUE(slow_sleeps(thread));
	EXPECT_EQ(0, slow_replace(t, &t->other, low, PAGE, 2));
	mkt_slow_pass(&t->slow);
	EXPECT_TRUE(slow_returns(thread, 1000 * MKT_STALL_SECONDS));
	EXPECT_EQ(IBV_WC_SUCCESS, slow_accessed(t));
	EXPECT_EQ(EBUSY, slow_join(thread));
	EXPECT_EQ(0, ibv_dereg_mr(holder));
	EXPECT_EQ(0, ibv_dereg_mr(low));
}

/*
 * Two keys, to each of which only an old binding refers. Each can be bound anew, so one call can
 * bind both.
 */
TEST_F(slow_request, a_bind_of_several_drops_all_old_bindings)
{
	struct slow_test *t = &self->t;
	struct mkt_pair *pair[2] = { &t->s.pair, &t->other };
	struct ibmkey_range range = slow_plain(t, NEW);
	struct ibmkey_bind bind[2];
	struct ibv_mr *low[2];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		low[i] = ibmkey_alloc(t->s.dev[0].pd, 1);
		ASSERT_NE(NULL, low[i]);
		ASSERT_EQ(0, slow_bind_range(low[i], slow_late(t, i, PAGE)));
		bind[i] = (struct ibmkey_bind) {
			.mkey = low[i],
			.kind = IBMKEY_LIST,
			.access = MKT_ACCESS_ALL,
			.num_entries = 1,
			.ranges = &range,
		};
	}
	/* the accesses keep the old bindings until then, and ib_mkey keeps them longer */
	mkt_slow_hold(&t->slow, true);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, slow_replace(t, pair[i], low[i], 0, i + 1));
	}
	EXPECT_EQ(IBV_WC_SUCCESS, slow_accessed(t));
	EXPECT_EQ(0, ibmkey_bind_many(bind, 2, NULL));
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, ibv_dereg_mr(low[i]));
	}
}

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
static int slow_end(struct slow_test *t, struct mkt_qp *qp, enum end end)
{
	int err;

	slow_run(&t->thread[1], slow_release, &t->slow);
	if (end == DESTROYED) {
		err = ibv_destroy_qp(qp->qp);
		qp->qp = NULL;
	} else {
		err = mkt_qp_state(qp, end == TO_ERR ? IBV_QPS_ERR : IBV_QPS_RESET);
	}
	slow_join(&t->thread[1]);
	return err;
}

/* A request that has not begun is flushed, or forgotten with its queue. It binds nothing. */
TEST_F(slow_request, queue_ends_before_a_request)
{
	struct slow_test *t = &self->t;
	struct mkt_qp *qp = &t->s.pair.end[0];
	enum end end;

	ASSERT_EQ(0, slow_bind_range(t->s.key[0], slow_plain(t, OLD)));
	for (end = TO_ERR; end <= DESTROYED; end++) {
		ASSERT_EQ(0, slow_start(t, end));
		EXPECT_EQ(0, slow_end(t, qp, end));
		if (end == TO_ERR) {
			EXPECT_EQ(IBV_WC_WR_FLUSH_ERR, slow_status(qp, 1));
			EXPECT_EQ(IBV_WC_WR_FLUSH_ERR, slow_status(qp, 2));
		}
		EXPECT_EQ(OLD, slow_bound(t));
		if (end != DESTROYED) {
			ASSERT_EQ(0, mkt_pair_recover(&t->s.pair));
		}
		EXPECT_EQ(OLD, slow_bound(t));
	}
	/* the key can still be bound by another queue */
	EXPECT_EQ(IBV_WC_SUCCESS, slow_bind_by(t, &t->other.end[0], slow_plain(t, NEW)));
	EXPECT_EQ(NEW, slow_bound(t));
}

/* A queue that is drained executes no further request, until it sends again. */
TEST_F(slow_request, drained_queue)
{
	struct slow_test *t = &self->t;
	struct mkt_qp *qp = &t->s.pair.end[0];
	struct ibmkey_wr wr = slow_bind(t, slow_plain(t, NEW));

	ASSERT_EQ(0, slow_bind_range(t->s.key[0], slow_plain(t, OLD)));
	ASSERT_EQ(0, slow_start(t, 0));
	EXPECT_EQ(0, mkt_qp_state(qp, IBV_QPS_SQD));
	mkt_slow_hold(&t->slow, false);
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(qp, 1));
	usleep(PAUSE);
	EXPECT_EQ(OLD, slow_bound(t));
	EXPECT_TRUE(mkt_until(!mkt_qp_state(qp, IBV_QPS_RTS)));
	/* rxe looks at the queue again when a request is posted */
	EXPECT_EQ(0, slow_post_bind(qp, &wr, 3));
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(qp, 2));
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(qp, 3));
	EXPECT_EQ(NEW, slow_bound(t));
}

/* true if the key has one of the two layouts */
static bool slow_either(struct slow_test *t)
{
	uint64_t length = slow_bound(t);

	return length == OLD || length == NEW;
}

static int slow_rebind(void *arg)
{
	struct slow_test *t = arg;

	return slow_bind_range(t->s.key[0], slow_plain(t, OLD));
}

/*
 * A request that executes waits for a change of the same key, for two seconds at most. Its queue
 * pair can end meanwhile. The key has the layout of the other change, or that of the request if the
 * other change was made in time.
 */
TEST_F(slow_request, queue_ends_during_a_request)
{
	struct slow_test *t = &self->t;
	struct mkt_qp *qp = &t->other.end[0];
	struct ibmkey_wr wr;
	enum end end;
	int ret;

	for (end = TO_ERR; end <= DESTROYED; end++) {
		ASSERT_EQ(0, slow_bind_range(t->s.key[0], slow_late(t, end, OLD)));
		mkt_slow_hold(&t->slow, true);
		ASSERT_EQ(0, slow_access(t, &t->s.pair, 1));
		slow_run(&t->thread[0], slow_rebind, t);
		usleep(PAUSE);
		wr = slow_bind(t, slow_plain(t, NEW));
		EXPECT_EQ(0, slow_post_bind(qp, &wr, 2));
		usleep(PAUSE);
		EXPECT_EQ(0, slow_end(t, qp, end));
		if (end == TO_ERR) {
			ret = slow_status(qp, 2);
			EXPECT_TRUE(ret == IBV_WC_WR_FLUSH_ERR || ret == IBV_WC_MW_BIND_ERR);
		}
		EXPECT_EQ(0, slow_join(&t->thread[0]));
		EXPECT_EQ(IBV_WC_SUCCESS, slow_status(&t->s.pair.end[1], 1));
		EXPECT_TRUE(slow_either(t));
		if (end != DESTROYED) {
			ASSERT_EQ(0, mkt_pair_recover(&t->other));
			EXPECT_TRUE(slow_either(t));
		}
	}
	EXPECT_EQ(IBV_WC_SUCCESS, slow_bind_by(t, &t->s.pair.end[0], slow_plain(t, NEW)));
}

/*
 * A queue pair is destroyed while a datagram waits for a page. The datagram then fails, because its
 * second piece is in no MR, and rxe schedules both tasks of the queue pair.
 */
TEST_F(slow_request, queue_is_destroyed_after_an_error)
{
	struct slow_test *t = &self->t;
	struct mkt_wr send = {
		.op = MKT_SEND,
		.sge[0] = { slow_page(t, 1), 8, t->mr[0]->lkey },
		.sge[1] = { 0, 8, 0 },
		.num_sge = 2,
	};
	struct mkt_pair ud;

	ASSERT_EQ(0, mkt_pair_create(&ud, &t->s.dev[0], &t->s.dev[1], IBV_MTU_1024,
				     MKT_QP_UD));
	mkt_slow_hold(&t->slow, true);
	EXPECT_EQ(0, mkt_post_send(&ud.end[0], &send, 1));
	EXPECT_EQ(0, mkt_slow_wait(&t->slow, 1));
	/* the wait ends, and so the datagram fails */
	EXPECT_EQ(0, mkt_raw_qp_destroy(ud.end[0].qp));
	ud.end[0].qp = NULL;
	mkt_slow_hold(&t->slow, false);
	mkt_pair_destroy(&ud);
}

#define INVALIDATES "rdma_rxe:rxe_invalidate_mr"
/* a receiver that is not ready is tried again after 123 ms */
#define RNR_TIMER 27

/* lets a WRITE of side 0, which gathers its bytes by the key, wait for a page */
static int once_begin(struct slow_test *t)
{
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = { .length = OLD },
		.num_sge = 1,
		.remote_addr = t->s.plain[1].addr,
		.rkey = t->s.plain[1].mr->rkey,
	};
	/* this sets the lkey and the rkey, which an earlier LOCAL_INV has changed */
	int err = slow_bind_range(t->s.key[0], slow_late(t, 0, OLD));

	if (err)
		return err;
	wr.sge[0].lkey = t->s.key[0]->lkey;
	mkt_slow_hold(&t->slow, true);
	return mkt_post_send(&t->other.end[0], &wr, 1) ?: mkt_slow_wait(&t->slow, 1);
}

/*
 * A LOCAL_INV waits for two seconds for an access, and then ends in an error. rxe does not
 * execute it after that: it would wait again, or find that the access has ended.
 */
TEST_F(slow_request, an_invalidation_that_fails_waits_once)
{
	struct slow_test *t = &self->t;
	struct mkt_wr inv = { .op = MKT_LOCAL_INV, .rkey = t->s.key[0]->rkey };
	struct mkt_qp *qp = &t->s.pair.end[0];
	int status = -1, err;

	if (geteuid())
		SKIP(return, "not root");
	if (!mkt_calls_begin(INVALIDATES))
		SKIP(return, "no kprobe events");
	err = once_begin(t) ?: mkt_post_send(qp, &inv, 2);
	if (!err)
		status = slow_status(qp, 2);
	mkt_slow_hold(&t->slow, false);
	EXPECT_EQ(1, mkt_calls_end());
	EXPECT_EQ(0, err);
	EXPECT_EQ(IBV_WC_LOC_QP_OP_ERR, status);
	EXPECT_EQ(0, slow_bound(t));
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(&t->other.end[0], 1));
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
static int once_send_twice(struct slow_test *t, struct mkt_pair *pair,
			   struct mkt_netem *netem)
{
	unsigned long rnr = mkt_dev_counter(&t->s.dev[1], "send_rnr_err");
	struct mkt_wr nothing = { .op = MKT_SEND };
	struct ibv_wc wc;
	int err;

	if (!mkt_netem_set(netem, "slot 3600s 3600s"))
		return ENOENT;
	err = mkt_post_send(&pair->end[0], &nothing, 1);
	if (err)
		return err;
	if (!mkt_until(mkt_dev_counter(&t->s.dev[1], "send_rnr_err") != rnr))
		return ETIMEDOUT;
	return mkt_post_recv(&pair->end[1], NULL, 0, 2) ?: mkt_poll(&pair->end[1], &wc);
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
static int once_repeat(struct slow_test *t, struct mkt_pair *pair,
		       struct mkt_netem *netem, int fd)
{
	struct mkt_wr nothing = { .op = MKT_WRITE }, inv = { .op = MKT_LOCAL_INV };
	long long rnr = once_read(fd);
	int err = once_send_twice(t, pair, netem);

	/* the answers go with the next packet; no command runs while an access waits for a page */
	if (!err && !mkt_netem_set(netem, "slot 1us 1us"))
		err = ENOENT;
	if (!err)
		err = once_begin(t);
	inv.rkey = t->s.key[0]->rkey;
	if (!err)
		err = mkt_post_send(&pair->end[0], &inv, 2) ?:
		      mkt_post_send(&pair->end[1], &nothing, 3);
	if (!err && !mkt_until(once_read(fd) != rnr))
		err = ETIMEDOUT;
	usleep(PAUSE);
	mkt_slow_hold(&t->slow, false);
	if (err || slow_status(&t->other.end[0], 1) || slow_status(&pair->end[0], 1))
		return -1;
	return slow_status(&pair->end[0], 2);
}

/* on a busy machine the LOCAL_INV may have waited too long, and is tried again */
TEST_F(slow_request, an_invalidation_is_not_repeated)
{
	struct slow_test *t = &self->t;
	int fd, status = IBV_WC_LOC_QP_OP_ERR;
	struct mkt_netem netem;
	struct mkt_pair pair;
	unsigned int tries;
	char path[128];

	if (geteuid())
		SKIP(return, "not root");
	if (!mkt_netem_open(&netem, &t->s.dev[1]))
		SKIP(return, "%s is not in a separate namespace", t->s.dev[1].name);
	if (!mkt_netem_set(&netem, "loss 0%"))
		SKIP(return, "no netem");
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/rcvd_rnr_err",
		 t->s.dev[0].name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, once_read(fd));
	for (tries = 0; tries < 3 && status == IBV_WC_LOC_QP_OP_ERR; tries++) {
		ASSERT_EQ(0, mkt_pair_create(&pair, &t->s.dev[0], &t->s.dev[1],
					     IBV_MTU_1024, MKT_QP_LOSSY));
		ASSERT_EQ(0, once_rnr_timer(pair.end[1].qp));
		status = once_repeat(t, &pair, &netem, fd);
		mkt_pair_destroy(&pair);
	}
	EXPECT_EQ(IBV_WC_SUCCESS, status);
	mkt_netem_close(&netem);
	close(fd);
}

/*
 * A key that is deregistered stays unusable for requests that invalidate and bind it: the
 * deregistration waits only for accesses that began before.
 */
TEST_F(slow_request, a_key_that_goes_stays_unusable)
{
	struct slow_test *t = &self->t;
	uint32_t rkey = t->s.key[0]->rkey;
	struct mkt_wr inv = { .op = MKT_LOCAL_INV, .rkey = rkey };
	struct mkt_qp *qp = &t->other.end[0];
	struct ibmkey_wr wr = slow_bind(t, slow_plain(t, NEW));
	struct ibv_mr named = { .context = t->s.dev[0].ctx };
	int status[3] = {}, recovered[2] = {};
	bool waits = false;
	unsigned int i;
	int err;

	mkt_slow_hold(&t->slow, true);
	err = slow_bind_range(t->s.key[0], slow_late(t, 0, OLD)) ?: slow_access(t, &t->s.pair, 1);
	slow_run(&t->thread[0], slow_dereg, t->s.key[0]);
	if (!err) {
		/* the deregistration waits for the WRITE */
		usleep(PAUSE);
		waits = atomic_load(&t->thread[0].running);
		status[0] = mkt_status(&t->other, 0, &inv);
		for (i = 1; i < 3; i++) {
			recovered[i - 1] = mkt_pair_recover(&t->other);
			named.rkey = i == 1 ? rkey : ibv_inc_rkey(rkey);
			wr = mkt_request_wr(&t->text, &named);
			status[i] = mkt_request_status(qp, &wr);
		}
	}
	mkt_slow_hold(&t->slow, false);
	EXPECT_EQ(0, slow_join(&t->thread[0]));
	t->s.key[0] = NULL;
	EXPECT_EQ(0, err);
	EXPECT_TRUE(waits);
	EXPECT_LT(IBV_WC_SUCCESS, status[0]);
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, recovered[i]);
		EXPECT_EQ(IBV_WC_MW_BIND_ERR, status[i + 1]);
	}
	EXPECT_EQ(0, mkt_pair_recover(&t->s.pair));
}

TEST_HARNESS_MAIN
