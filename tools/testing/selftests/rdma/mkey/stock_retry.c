// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Requests that rxe sends again; it needs no ib_mkey.
 * needs: netem
 *
 * The first test looks at an acknowledgment that arrives while rxe sends the same request again.
 * Both ends of the link hold packets back, so that the order of events is always the same:
 *
 * - all packets of a WRITE arrive, and the acknowledgments are held back;
 * - rxe sends the WRITE again, and its packets are held back, so that it waits for
 *   them in the middle of the request;
 * - the acknowledgments arrive;
 * - rxe sends the rest, and the acknowledgments of all repeated packets are lost.
 *
 * From then on no packet is lost. The WRITE must complete.
 */
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
	uint8_t *bytes[2];	/* the memory of each side */
	struct retry_counts first;
};

FIXTURE_SETUP(retry)
{
	unsigned int i;

	MKT_OPEN(self->s.dev);
	MKT_NETEM(self->netem, self->s.dev);
	MKT_MAKE(&self->s, .flags = MKT_QP_BRIEF, .host = LENGTH + 4096);
	ASSERT_EQ(0, mkt_pair_create(&self->other, &self->s.dev[1], &self->s.dev[0],
				     IBV_MTU_1024, MKT_QP_PATIENT));
	for (i = 0; i < 2; i++)
		self->bytes[i] = (uint8_t *)(uintptr_t)self->s.plain[i].addr;
}

FIXTURE_TEARDOWN(retry)
{
	unsigned int i;

	for (i = 0; i < 2; i++)
		mkt_netem_close(&self->netem[i]);
	mkt_pair_destroy(&self->other);
	EXPECT_EQ(0, mkt_teardown(&self->s));
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

/* a WRITE of @length bytes of side 0 to the memory of side 1 */
static struct mkt_wr retry_write(const FIXTURE_DATA(retry) *self, uint32_t length)
{
	return mkt_plain_wr(&self->s, 0, MKT_WRITE, length, self->s.plain[1].addr,
			    self->s.plain[1].mr->rkey);
}

/* posts a WRITE, of which all bytes arrive, and no acknowledgment */
static int retry_begin(FIXTURE_DATA(retry) *self, uint8_t value)
{
	struct mkt_wr wr = retry_write(self, LENGTH);
	volatile uint8_t *last = self->bytes[1] + LENGTH - 1;
	int err;

	memset(self->bytes[0], value, LENGTH);
	*last = 0;
	self->first = retry_counts(self);
	if (!mkt_netem_set(&self->netem[1], HOLD))
		return ENOENT;
	err = mkt_post_send(&self->s.pair.end[0], &wr, 1);
	if (!err && !mkt_until(*last == value))
		return ETIMEDOUT;
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

TEST_F(retry, acknowledged_while_sent_again)
{
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
		/* ENODATA: rxe waits for ever, and does not send again */
		ASSERT_EQ(0, retry_complete(self, &wc));
		EXPECT_EQ(1, wc.wr_id);
		EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	}
	EXPECT_EQ(0, err);
}

/* what gets lost */
enum lost {
	REQUEST,
	ANSWER,
};

/* posts @wr on side 0, loses it or its answer until rxe sends it again; returns its status */
static int retry_lost(FIXTURE_DATA(retry) *self, enum lost lost, const struct mkt_wr *wr)
{
	struct retry_counts least = { .retries = 1 };
	struct ibv_wc wc = {};
	int err;

	self->first = retry_counts(self);
	if (!mkt_netem_set(&self->netem[lost == REQUEST ? 0 : 1], LOSE))
		return -ENOENT;
	err = mkt_post_send(&self->s.pair.end[0], wr, 7);
	if (!err && !retry_wait(self, &least))
		err = ETIMEDOUT;
	retry_clear(self);
	err = err ?: mkt_poll(&self->s.pair.end[0], &wc);
	return err ? -err : wc.status;
}

/* requests without data, and those whose answer is a READ response */
TEST_F(retry, atomic_write_and_flush)
{
	const unsigned int access = MKT_ACCESS_ALL | IBV_ACCESS_FLUSH_GLOBAL;
	const uint64_t value = 0x1122334455667788;
	static const enum mkt_op ops[] = { MKT_ATOMIC_WRITE, MKT_FLUSH };
	struct mkt_wr wr = { .swap_add = value, .flush_length = 64 };
	/* the memory of side 1 begins anywhere */
	volatile uint64_t *words = (void *)(((uintptr_t)self->bytes[1] + 7) & ~(uintptr_t)7);
	unsigned int o;
	enum lost lost;
	struct ibv_mr *mr;
	int status;

	mr = ibv_reg_mr(self->s.dev[1].pd, self->bytes[1], LENGTH, access);
	ASSERT_NE(NULL, mr);
	wr.rkey = mr->rkey;
	for (o = 0; o < ARRAY_SIZE(ops); o++)
		for (lost = REQUEST; lost <= ANSWER; lost++) {
			wr.op = ops[o];
			wr.remote_addr = (uintptr_t)&words[3 + lost];
			status = retry_lost(self, lost, &wr);
			if (status == -ENOENT)
				SKIP(return, "no netem");
			EXPECT_EQ(IBV_WC_SUCCESS, status);
			EXPECT_EQ(value, words[3 + lost]);
			if (status != IBV_WC_SUCCESS)
				ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
		}
	ASSERT_EQ(0, ibv_dereg_mr(mr));
}

/* a window is bound once, also if the request before the bind is sent again */
TEST_F(retry, bind)
{
	const unsigned int access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	struct retry_counts least = { .retries = 1 };
	struct mkt_qp *qp = &self->s.pair.end[0];
	struct mkt_wr write = retry_write(self, 100);
	struct ibv_send_wr *bad, bind;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_wc wc;
	unsigned int i;

	mr = ibv_reg_mr(self->s.dev[0].pd, self->bytes[0], LENGTH,
			MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND);
	ASSERT_NE(NULL, mr);
	mw = ibv_alloc_mw(self->s.dev[0].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, mw);
	bind = mkt_window_wr(mw, mr, (uintptr_t)self->bytes[0], LENGTH, access);
	bind.wr_id = 2;
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	self->first = retry_counts(self);
	if (!mkt_netem_set(&self->netem[0], LOSE))
		SKIP(return, "no netem");
	ASSERT_EQ(0, mkt_post_send(qp, &write, 1));
	ASSERT_EQ(0, ibv_post_send(qp->qp, &bind, &bad));
	ASSERT_TRUE(retry_wait(self, &least));
	retry_clear(self);
	for (i = 1; i <= 2; i++) {
		ASSERT_EQ(0, mkt_poll(qp, &wc));
		EXPECT_EQ(i, wc.wr_id);
		EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	}
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	ASSERT_EQ(0, ibv_dealloc_mw(mw));
	ASSERT_EQ(0, ibv_dereg_mr(mr));
}

TEST_HARNESS_MAIN
