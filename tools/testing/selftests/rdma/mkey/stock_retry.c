// SPDX-License-Identifier: GPL-2.0
/*
 * What rxe does with an acknowledgment that arrives while it sends the same request
 * again. It needs no ib_mkey. Both ends of the link hold packets back, so that the
 * order of events is always the same:
 *
 * - all packets of a WRITE arrive, and the acknowledgments are held back;
 * - rxe sends the WRITE again, and its packets are held back, so that it waits for
 *   them in the middle of the request;
 * - the acknowledgments arrive;
 * - rxe sends the rest, and the acknowledgments of all repeated packets are lost.
 *
 * From then on no packet is lost. The WRITE must complete.
 */
#include <stdlib.h>
#include <unistd.h>

#include "mkey_harness.h"

#define PACKETS 100
#define LENGTH (PACKETS * 1024)
/* acknowledgments of so many packets: one in the middle, and one of the end */
#define ACKS 2
/* rxe waits when more packets of a queue pair than this are on their way */
#define ON_THE_WAY 64
#define ATTEMPTS 10
/* the timeout of MKT_QP_BRIEF is two seconds */
#define PATIENCE_SECONDS 12

/* packets wait for an hour */
#define HOLD "slot 3600s 3600s"
/* they go with the next packet that is sent */
#define RELEASE "slot 1us 1us"
#define LOSE "loss 100%"

struct retry_counts {
	unsigned long retries;
	unsigned long sent;
	unsigned long received;
	unsigned long repeated;
};

FIXTURE(retry)
{
	struct mkt_setup s;
	struct mkt_pair other;	/* its packets release those that are held back */
	struct mkt_netem netem[2];
	struct ibv_mr *mr[2];
	uint8_t *bytes[2];
	struct retry_counts first;
};

FIXTURE_SETUP(retry)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.flags = MKT_QP_BRIEF,
		.host = 64 * 1024,
	};
	unsigned int i;

	MKT_OPEN(self->s.dev);
	if (geteuid())
		SKIP(return, "not root");
	MKT_ONE_MACHINE(self->s.dev);
	for (i = 0; i < 2; i++)
		if (!mkt_netem_open(&self->netem[i], &self->s.dev[i]))
			SKIP(return, "%s is not in a separate namespace",
			     self->s.dev[i].name);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	ASSERT_EQ(0, mkt_pair_create(&self->other, &self->s.dev[1], &self->s.dev[0],
				     IBV_MTU_1024, MKT_QP_PATIENT));
	for (i = 0; i < 2; i++) {
		self->bytes[i] = calloc(1, LENGTH);
		ASSERT_NE(NULL, self->bytes[i]);
		self->mr[i] = ibv_reg_mr(self->s.dev[i].pd, self->bytes[i], LENGTH,
					 MKT_ACCESS_ALL);
		ASSERT_NE(NULL, self->mr[i]);
	}
}

FIXTURE_TEARDOWN(retry)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		mkt_netem_close(&self->netem[i]);
		if (self->mr[i])
			ibv_dereg_mr(self->mr[i]);
	}
	mkt_pair_destroy(&self->other);
	EXPECT_EQ(0, mkt_teardown(&self->s));
	for (i = 0; i < 2; i++)
		free(self->bytes[i]);
}

static struct retry_counts retry_counts(FIXTURE_DATA(retry) *self)
{
	const struct mkt_dev *dev = self->s.dev;

	return (struct retry_counts) {
		.retries = mkt_dev_counter(&dev[0], "completer_retry_err"),
		.sent = mkt_dev_counter(&dev[0], "sent_pkts"),
		.received = mkt_dev_counter(&dev[0], "rcvd_pkts"),
		.repeated = mkt_dev_counter(&dev[1], "duplicate_request"),
	};
}

/* waits until all these have been counted since the first; false if that takes minutes */
static bool retry_wait(FIXTURE_DATA(retry) *self, const struct retry_counts *least)
{
	const struct retry_counts *first = &self->first;
	struct retry_counts now;
	unsigned int i;

	for (i = 0; i < MKT_STALL_PAUSES; i++) {
		now = retry_counts(self);
		if (now.retries - first->retries >= least->retries &&
		    now.sent - first->sent >= least->sent &&
		    now.received - first->received >= least->received &&
		    now.repeated - first->repeated >= least->repeated)
			return true;
		usleep(1000);
	}
	mkt_diag("%lu retries, %lu packets sent, %lu received, %lu repeated",
		 now.retries - first->retries, now.sent - first->sent,
		 now.received - first->received, now.repeated - first->repeated);
	return false;
}

static unsigned long retry_retries(FIXTURE_DATA(retry) *self)
{
	return mkt_dev_counter(&self->s.dev[0], "completer_retry_err") - self->first.retries;
}

/* nothing is held back or lost any more; what was held back is lost */
static void retry_clear(FIXTURE_DATA(retry) *self)
{
	struct mkt_netem netem;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		netem = self->netem[i];
		mkt_netem_close(&netem);
	}
}

/* posts a WRITE, of which all bytes arrive, and no acknowledgment */
static int retry_begin(FIXTURE_DATA(retry) *self, uint8_t value)
{
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = {
			.addr = (uintptr_t)self->bytes[0],
			.length = LENGTH,
			.lkey = self->mr[0]->lkey,
		},
		.num_sge = 1,
		.remote_addr = (uintptr_t)self->bytes[1],
		.rkey = self->mr[1]->rkey,
	};
	volatile uint8_t *last = self->bytes[1] + LENGTH - 1;
	unsigned int i;
	int err;

	memset(self->bytes[0], value, LENGTH);
	self->first = retry_counts(self);
	if (!mkt_netem_set(&self->netem[1], HOLD))
		return ENOENT;
	err = mkt_post_send(&self->s.pair.end[0], &wr, 1);
	for (i = 0; !err && *last != value; i++) {
		if (i == MKT_STALL_PAUSES)
			return ETIMEDOUT;
		usleep(1000);
	}
	return err;
}

/*
 * Brings rxe into the state that the first comment describes. Returns EAGAIN if an
 * event came too late.
 */
static int retry_provoke(FIXTURE_DATA(retry) *self)
{
	const struct retry_counts half = { .retries = 1, .sent = PACKETS + ON_THE_WAY };
	const struct retry_counts acks = { .received = ACKS + 1 };
	const struct retry_counts all = { .repeated = PACKETS };
	struct mkt_wr nothing = { .op = MKT_WRITE };
	int err;

	if (!mkt_netem_set(&self->netem[0], HOLD))
		return ENOENT;
	if (retry_retries(self))
		return EAGAIN;
	if (!retry_wait(self, &half) || !mkt_netem_set(&self->netem[1], RELEASE))
		return ETIMEDOUT;
	err = mkt_post_send(&self->other.end[0], &nothing, 2);
	if (err)
		return err;
	if (!retry_wait(self, &acks))
		return ETIMEDOUT;
	/* rxe's task looks at them */
	usleep(50000);
	if (retry_retries(self) != 1)
		return EAGAIN;
	if (!mkt_netem_set(&self->netem[1], LOSE) ||
	    !mkt_netem_set(&self->netem[0], RELEASE))
		return ENOENT;
	/* whatever rxe sends releases the packets */
	if (mkt_post_send(&self->other.end[1], &nothing, 3) || !retry_wait(self, &all))
		return ETIMEDOUT;
	return retry_retries(self) == 1 ? 0 : EAGAIN;
}

/* waits for the WRITE as long as rxe sends it again; ENODATA if rxe has given up */
static int retry_complete(FIXTURE_DATA(retry) *self, struct ibv_wc *wc)
{
	unsigned long before = retry_retries(self);
	unsigned int i;
	int n = 0;

	for (i = 0; i < PATIENCE_SECONDS * 1000 && !n; i++) {
		usleep(1000);
		n = ibv_poll_cq(self->s.pair.end[0].cq, 1, wc);
	}
	if (n)
		return n < 0 ? EIO : 0;
	if (retry_retries(self) == before)
		return ENODATA;
	return mkt_poll(&self->s.pair.end[0], wc);
}

/*
 * rxe without the fix in patches/rxe: nothing happens any more, until the next request
 * completes both. Any other outcome is an error.
 */
TEST_F(retry, acknowledged_while_sent_again)
{
	struct mkt_wr nothing = { .op = MKT_WRITE };
	bool given_up = false;
	struct ibv_wc wc;
	unsigned int i;
	int err = EAGAIN;

	for (i = 0; i < ATTEMPTS && err == EAGAIN; i++) {
		err = retry_begin(self, i + 1);
		if (err == ENOENT)
			SKIP(return, "no netem");
		ASSERT_EQ(0, err);
		err = retry_provoke(self);
		retry_clear(self);
		ASSERT_TRUE(err == 0 || err == EAGAIN);
		switch (retry_complete(self, &wc)) {
		case 0:
			break;
		case ENODATA:
			given_up = true;
			ASSERT_EQ(0, mkt_post_send(&self->s.pair.end[0], &nothing, 4));
			ASSERT_EQ(0, mkt_poll(&self->s.pair.end[0], &wc));
			break;
		default:
			ASSERT_TRUE(false);
		}
		EXPECT_EQ(1, wc.wr_id);
		EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
		if (given_up) {
			ASSERT_EQ(0, mkt_poll(&self->s.pair.end[0], &wc));
			EXPECT_EQ(4, wc.wr_id);
			EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
			SKIP(return, "this rxe waits for ever, and does not send again");
		}
	}
	EXPECT_EQ(0, err);
}

TEST_HARNESS_MAIN
