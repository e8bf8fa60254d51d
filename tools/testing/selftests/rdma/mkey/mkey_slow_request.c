// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Requests that bind keys while an access waits for a page: what waits for what.
 * needs: on-demand
 */
#include "raw.h"
#include "slow_request.h"

/* a request does not wait for earlier ones if the key is not bound: none of them uses it */
TEST_F(slow_request, binds_an_unbound_key_at_once)
{
	struct mkt_qp *qp = &self->s.pair.end[0];
	struct ibmkey_wr wr = slow_bind(self, slow_plain(self, NEW));
	unsigned int tries;

	ASSERT_EQ(0, slow_begin(self));
	EXPECT_EQ(0, ibmkey_post_bind(qp->qp, &wr, 2, IBV_SEND_SIGNALED));
	for (tries = 0; tries < MKT_STALL_PAUSES && slow_bound(self) != NEW; tries++)
		usleep(1000);
	EXPECT_EQ(NEW, slow_bound(self));
	mkt_slow_hold(&self->slow, false);
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(qp, 1));
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(qp, 2));
}

/* an earlier request that is repeated uses the old layout again */
TEST_F(slow_request, rebinds_after_earlier_requests)
{
	struct mkt_qp *qp = &self->s.pair.end[0];
	struct ibmkey_range old = slow_plain(self, OLD);
	struct ibmkey_wr wr = slow_bind(self, slow_plain(self, NEW));

	ASSERT_EQ(0, ibmkey_bind_list(self->key, MKT_ACCESS_ALL, 1, &old));
	ASSERT_EQ(0, slow_begin(self));
	EXPECT_EQ(0, ibmkey_post_bind(qp->qp, &wr, 2, IBV_SEND_SIGNALED));
	usleep(PAUSE);
	EXPECT_EQ(OLD, slow_bound(self));
	mkt_slow_hold(&self->slow, false);
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(qp, 1));
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(qp, 2));
	EXPECT_EQ(NEW, slow_bound(self));
}

/*
 * A deregistration waits for two seconds at most, however many old bindings of slow accesses
 * there are. The first access ends after one second, the second one after two and a half.
 */
TEST_F(slow_request, old_bindings_share_one_deadline)
{
	struct mkt_pair *pair[2] = { &self->s.pair, &self->other };
	struct ibmkey_wr wr;
	unsigned int i;
	int err = 0;

	mkt_slow_hold(&self->slow, true);
	for (i = 0; i < 2 && !err; i++) {
		wr = slow_bind(self, slow_range((uintptr_t)self->slow.map + i * PAGE, OLD,
						self->mr[0]));
		err = mkt_request_status(&self->other.end[0], &wr) ?:
		      slow_write(self, pair[i], 1, 0, self->key->rkey) ?:
		      mkt_slow_wait(&self->slow, i + 1);
	}
	ASSERT_EQ(0, err);
	wr = slow_bind(self, slow_plain(self, NEW));
	EXPECT_EQ(0, mkt_request_status(&self->other.end[0], &wr));
	slow_run(&self->thread[0], slow_dereg, self->mr[0]);
	usleep(1000000);
	mkt_slow_pass(&self->slow);
	usleep(1500000);
	mkt_slow_hold(&self->slow, false);
	err = slow_join(&self->thread[0]);
	EXPECT_EQ(EBUSY, err);
	if (!err)
		self->mr[0] = NULL;
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(IBV_WC_SUCCESS, slow_status(&pair[i]->end[1], 1));
	}
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
static int slow_replace(FIXTURE_DATA(slow_request) *self, struct mkt_pair *pair,
			const struct ibv_mr *low, uint64_t at, unsigned int waiting)
{
	struct ibmkey_wr wr = slow_bind(self, slow_range(at, OLD, low));
	int err;

	err = mkt_request_status(&self->other.end[0], &wr) ?:
	      slow_write(self, pair, 1, 0, self->key->rkey) ?:
	      mkt_slow_wait(&self->slow, waiting);
	if (err)
		return err;
	wr = slow_bind(self, slow_plain(self, NEW));
	return mkt_request_status(&self->other.end[0], &wr);
}

/*
 * An unbind of a key waits for accesses through old bindings over it, but for none that requests
 * replace during the call: their number has no bound. It is refused in the end, because such a
 * binding refers to the key as well. It does not wait at all if another key refers to the key.
 */
TEST_F(slow_request, an_unbind_waits_for_no_later_binding)
{
	struct mkt_pair *pair[2] = { &self->s.pair, &self->other };
	struct ibv_mr *low = ibmkey_alloc(self->s.dev[0].pd, 1);
	struct ibv_mr *holder = ibmkey_alloc(self->s.dev[0].pd, 1);
	struct ibmkey_range range;
	struct slow_thread *thread = &self->thread[0];
	unsigned int tries, i;

	ASSERT_NE(NULL, low);
	ASSERT_NE(NULL, holder);
	range = slow_range((uintptr_t)self->slow.map, 2 * PAGE, self->mr[0]);
	ASSERT_EQ(0, ibmkey_bind_list(low, MKT_ACCESS_ALL, 1, &range));
	range = slow_range(0, OLD, low);
	ASSERT_EQ(0, ibmkey_bind_list(holder, MKT_ACCESS_ALL, 1, &range));
	mkt_slow_hold(&self->slow, true);
	ASSERT_EQ(0, slow_replace(self, pair[0], low, 0, 1));
	EXPECT_EQ(EBUSY, slow_unbind(low));
	EXPECT_EQ(0, slow_unbind(holder));
	slow_run(thread, slow_unbind, low);
	/* it waits for the binding that has been replaced */
	EXPECT_TRUE(slow_sleeps(thread));
	EXPECT_EQ(0, slow_replace(self, pair[1], low, PAGE, 2));
	mkt_slow_pass(&self->slow);
	for (tries = 0; tries < MKT_STALL_PAUSES && atomic_load(&thread->running); tries++)
		usleep(1000);
	EXPECT_FALSE(atomic_load(&thread->running));
	mkt_slow_hold(&self->slow, false);
	EXPECT_EQ(EBUSY, slow_join(thread));
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(IBV_WC_SUCCESS, slow_status(&pair[i]->end[1], 1));
	}
	EXPECT_EQ(0, ibv_dereg_mr(holder));
	EXPECT_EQ(0, ibv_dereg_mr(low));
}

/*
 * Two keys, to each of which only an old binding refers. Each can be bound anew, so one call can
 * bind both.
 */
TEST_F(slow_request, a_bind_of_several_drops_all_old_bindings)
{
	struct mkt_pair *pair[2] = { &self->s.pair, &self->other };
	struct ibmkey_range range = slow_plain(self, NEW);
	struct ibmkey_bind bind[2];
	struct ibv_mr *low[2];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		struct ibmkey_range page = slow_range((uintptr_t)self->slow.map + i * PAGE, PAGE,
						      self->mr[0]);

		low[i] = ibmkey_alloc(self->s.dev[0].pd, 1);
		ASSERT_NE(NULL, low[i]);
		ASSERT_EQ(0, ibmkey_bind_list(low[i], MKT_ACCESS_ALL, 1, &page));
		bind[i] = (struct ibmkey_bind) {
			.mkey = low[i],
			.kind = IBMKEY_LIST,
			.access = MKT_ACCESS_ALL,
			.num_entries = 1,
			.ranges = &range,
		};
	}
	/* the accesses keep the old bindings until then, and ib_mkey keeps them longer */
	mkt_slow_hold(&self->slow, true);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, slow_replace(self, pair[i], low[i], 0, i + 1));
	}
	mkt_slow_hold(&self->slow, false);
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(IBV_WC_SUCCESS, slow_status(&pair[i]->end[1], 1));
	}
	EXPECT_EQ(0, ibmkey_bind_many(bind, 2, NULL));
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, ibv_dereg_mr(low[i]));
	}
}

TEST_HARNESS_MAIN
