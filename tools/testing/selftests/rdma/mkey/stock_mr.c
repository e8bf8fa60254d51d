// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Ordinary MRs, windows and queue pairs behave as before, and so do their errors. These
 * tests do not need ib_mkey; they expect the behaviour of a stock device. mkey_matrix.direct has
 * every opcode on ordinary MRs, and needs no ib_mkey for that.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "raw.h"

FIXTURE(stock)
{
	struct mkt_setup s;
};

FIXTURE_SETUP(stock)
{
	MKT_OPEN(self->s.dev);
	MKT_MAKE(&self->s, .host = 64 * 1024);
}

FIXTURE_TEARDOWN(stock)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* the request that fails completes with its own status, and those after it as flushed */
TEST_F(stock, errors)
{
	struct mkt_qp *qp = &self->s.pair.end[0];
	struct mkt_end *plain = &self->s.plain[0];
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = { .addr = plain->addr, .length = 64, .lkey = plain->mr->lkey ^ 0x5500 },
		.num_sge = 1,
		.remote_addr = self->s.plain[1].addr,
		.rkey = self->s.plain[1].mr->rkey,
	};
	struct mkt_wr inv = { .op = MKT_LOCAL_INV, .rkey = plain->mr->rkey ^ 0x5500 };
	const struct {
		const struct mkt_wr *wr;
		enum ibv_wc_status status;
	} fail[] = {
		{ &wr, IBV_WC_LOC_PROT_ERR },
		{ &inv, IBV_WC_LOC_QP_OP_ERR },
	};
	struct ibv_wc wc;
	unsigned int f, i;

	for (f = 0; f < ARRAY_SIZE(fail); f++) {
		for (i = 0; i < 3; i++)
			ASSERT_EQ(0, mkt_post_send(qp, fail[f].wr, i));
		for (i = 0; i < 3; i++) {
			ASSERT_EQ(0, mkt_poll(qp, &wc));
			EXPECT_EQ(i, wc.wr_id);
			EXPECT_EQ(i ? IBV_WC_WR_FLUSH_ERR : fail[f].status, wc.status);
		}
		ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	}
	/* an SGE beyond the end of its MR */
	wr.sge[0].lkey = plain->mr->lkey;
	wr.sge[0].addr += plain->mr->length - 63;
	ASSERT_EQ(IBV_WC_LOC_PROT_ERR, mkt_status(&self->s.pair, 0, &wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	/* an rkey that does not exist */
	EXPECT_EQ(0, mkt_refused(&self->s, wr.rkey ^ 0x5500, MKT_WRITE, wr.remote_addr, 64,
				 IBV_WC_REM_ACCESS_ERR));
}

/* Sends a message of which only the first packet arrives, to a receive of the SRQ of side 1. */
static int stock_cut_off(FIXTURE_DATA(stock) *self, struct mkt_pair *pair, uint64_t wr_id)
{
	const uint32_t packet = mkt_mtu_bytes(pair->mtu);
	const struct mkt_end *from = &self->s.plain[0], *to = &self->s.plain[1];
	uint8_t *sent = (uint8_t *)(uintptr_t)from->addr + packet - 1;
	volatile uint8_t *got = (uint8_t *)(uintptr_t)to->addr + packet - 1;
	const struct ibv_sge into = { to->addr, 2 * packet, to->mr->lkey };
	struct mkt_wr wr = {
		.op = MKT_SEND,
		.sge = {
			{ from->addr, packet, from->mr->lkey },
			{ from->addr, packet, from->mr->lkey ^ 0x5500 },
		},
		.num_sge = 2,
	};

	*sent = 1;
	*got = 0;
	if (mkt_post_recv(&pair->end[1], &into, 1, wr_id) ||
	    mkt_status(pair, 0, &wr) != IBV_WC_LOC_PROT_ERR)
		return EIO;
	return mkt_until(*got) ? 0 : ETIMEDOUT;
}

/* waits at most @ms for the event that the SRQ's QP has reached its last WQE */
static bool stock_last_wqe(struct mkt_qp *qp, int ms)
{
	struct pollfd ready = { .fd = qp->dev->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	while (poll(&ready, 1, ms) == 1) {
		if (ibv_get_async_event(qp->dev->ctx, &event))
			return false;
		ibv_ack_async_event(&event);
		if (event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
			return true;
	}
	return false;
}

/*
 * A message has taken a receive of an SRQ, and its last packet does not come. An error of the queue
 * pair flushes this receive and no other one, before the event. A reset without the event drops it:
 * by IBTA 10.3.1 it may be lost, and no completion comes after a reset.
 */
TEST_F(stock, srq_cut_off)
{
	const struct mkt_end *to = &self->s.plain[1];
	struct mkt_wr nothing = { .op = MKT_SEND };
	struct mkt_wr bad = mkt_plain_wr(&self->s, 0, MKT_WRITE, 8, to->addr,
					 to->mr->rkey ^ 0x5500);
	struct mkt_pair pair;
	struct mkt_qp *qp = &pair.end[1];
	struct ibv_wc wc[2];

	ASSERT_EQ(0, mkt_pair_create(&pair, &self->s.dev[0], &self->s.dev[1], IBV_MTU_1024,
				     MKT_QP_SRQ));
	ASSERT_EQ(0, stock_cut_off(self, &pair, 1));
	ASSERT_EQ(0, mkt_post_recv(qp, NULL, 0, 2));
	ASSERT_EQ(0, mkt_qp_state(qp, IBV_QPS_ERR));
	ASSERT_TRUE(stock_last_wqe(qp, 10000));
	ASSERT_EQ(1, ibv_poll_cq(qp->cq, 2, wc));
	EXPECT_EQ(1, wc[0].wr_id);
	EXPECT_EQ(IBV_WC_WR_FLUSH_ERR, wc[0].status);

	ASSERT_EQ(0, mkt_pair_recover(&pair));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&pair, 0, &nothing));
	ASSERT_EQ(0, mkt_poll(qp, wc));
	EXPECT_EQ(2, wc[0].wr_id);
	EXPECT_EQ(IBV_WC_SUCCESS, wc[0].status);

	ASSERT_EQ(0, stock_cut_off(self, &pair, 3));
	ASSERT_EQ(0, mkt_pair_recover(&pair));
	ASSERT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_status(&pair, 0, &bad));
	EXPECT_EQ(0, ibv_poll_cq(qp->cq, 2, wc));
	mkt_pair_destroy(&pair);
}

/* a QP that fails says so once, however often it is told to fail, and again after a reset */
TEST_F(stock, srq_last_wqe)
{
	struct mkt_pair pair;
	struct mkt_qp *qp = &pair.end[1];
	unsigned int i;

	ASSERT_EQ(0, mkt_pair_create(&pair, &self->s.dev[0], &self->s.dev[1], IBV_MTU_1024,
				     MKT_QP_SRQ));
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, mkt_qp_state(qp, IBV_QPS_ERR));
		EXPECT_TRUE(stock_last_wqe(qp, 10000));
		ASSERT_EQ(0, mkt_qp_state(qp, IBV_QPS_ERR));
		EXPECT_FALSE(stock_last_wqe(qp, 200));
		ASSERT_EQ(0, mkt_pair_recover(&pair));
	}
	mkt_pair_destroy(&pair);
}

/* a UC QP binds a window, invalidates it, and binds it again */
TEST_F(stock, windows_uc)
{
	const int access = MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND;
	struct mkt_arena *arena = &self->s.arena[1];
	struct mkt_wr inv = { .op = MKT_LOCAL_INV };
	struct mkt_pair pair;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_wc wc;
	unsigned int i;

	ASSERT_EQ(0, mkt_pair_create(&pair, &self->s.dev[0], &self->s.dev[1], IBV_MTU_1024,
				     MKT_QP_UC));
	mr = ibv_reg_mr(self->s.dev[1].pd, arena->mem[0].host, 4096, access);
	ASSERT_NE(NULL, mr);
	mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, mw);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, mkt_bind_window(&pair.end[1], mw, mr,
					     (uintptr_t)arena->mem[0].host, 4096,
					     IBV_ACCESS_REMOTE_WRITE));
		inv.rkey = mw->rkey;
		ASSERT_EQ(0, mkt_post_send(&pair.end[1], &inv, 5));
		ASSERT_EQ(0, mkt_poll(&pair.end[1], &wc));
		EXPECT_EQ(5, wc.wr_id);
		EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	}
	/* the window pins the MR no more */
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
	mkt_pair_destroy(&pair);
}

/* re-registering changes access flags, and changes them back */
TEST_F(stock, rereg)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibv_pd *pd = self->s.dev[1].pd;

	ASSERT_EQ(0, mkt_raw_rereg(leaf->mr, IBV_REREG_MR_CHANGE_ACCESS, pd,
				   IBV_ACCESS_LOCAL_WRITE));
	ASSERT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(&self->s, leaf->mr->rkey, MKT_READ, leaf->addr, 100));
	ASSERT_EQ(0, mkt_raw_rereg(leaf->mr, IBV_REREG_MR_CHANGE_ACCESS, pd, MKT_ACCESS_ALL));
	ASSERT_EQ(IBV_WC_SUCCESS,
		  mkt_try(&self->s, leaf->mr->rkey, MKT_READ, leaf->addr, 100));
}

/* the device says that it has windows of type 1 and of type 2B, which the tests above bind */
TEST_F(stock, windows_announced)
{
	struct ibv_device_attr attr;

	ASSERT_EQ(0, ibv_query_device(self->s.dev[1].ctx, &attr));
	EXPECT_TRUE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
	EXPECT_TRUE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	EXPECT_FALSE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A);
}

/* true if a new window of @type cannot be bound to @length bytes of @mr from @addr on */
static bool stock_refuses(FIXTURE_DATA(stock) *self, enum ibv_mw_type type, struct ibv_mr *mr,
			  uint64_t addr, uint64_t length, unsigned int access)
{
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, type);
	int err;

	if (!mw)
		return false;
	err = mkt_bind_window(&self->s.pair.end[1], mw, mr, addr, length, access);
	return mkt_pair_recover(&self->s.pair) == 0 && ibv_dealloc_mw(mw) == 0 && err;
}

/* the flags of the MR; mkey_window_rights has the ranges, and what a window gives */
TEST_F(stock, windows_refused)
{
	const unsigned int write = IBV_ACCESS_REMOTE_WRITE, read = IBV_ACCESS_REMOTE_READ;
	struct mkt_arena *arena = &self->s.arena[1];
	const uint64_t addr = arena->leaf[0].addr;
	struct ibv_pd *pd = self->s.dev[1].pd;
	struct ibv_mr *mr, *plain, *local;
	enum ibv_mw_type type;

	mr = ibv_reg_mr(pd, (void *)(uintptr_t)addr, 4096, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND);
	plain = ibv_reg_mr(pd, (void *)(uintptr_t)addr, 4096, MKT_ACCESS_ALL);
	local = ibv_reg_mr(pd, (void *)(uintptr_t)addr, 4096, read | IBV_ACCESS_MW_BIND);
	ASSERT_NE(NULL, mr);
	ASSERT_NE(NULL, plain);
	ASSERT_NE(NULL, local);
	for (type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++) {
		EXPECT_FALSE(stock_refuses(self, type, mr, addr, 4096, write));
		EXPECT_FALSE(stock_refuses(self, type, mr, addr + 4095, 1, write));
		EXPECT_FALSE(stock_refuses(self, type, local, addr, 4096, read));
		/* the MR does not allow windows, or not such ones */
		EXPECT_TRUE(stock_refuses(self, type, plain, addr, 4096, read));
		EXPECT_TRUE(stock_refuses(self, type, local, addr, 4096, write));
		EXPECT_TRUE(stock_refuses(self, type, local, addr, 8, IBV_ACCESS_REMOTE_ATOMIC));
	}
	/* only a window of type 1 is bound to nothing, and none of that type is zero-based */
	EXPECT_TRUE(stock_refuses(self, IBV_MW_TYPE_2, mr, addr, 0, read));
	EXPECT_TRUE(stock_refuses(self, IBV_MW_TYPE_1, mr, 0, 1, read | IBV_ACCESS_ZERO_BASED));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_EQ(0, ibv_dereg_mr(plain));
	EXPECT_EQ(0, ibv_dereg_mr(local));
}

/*
 * ib_mkey offers its features to programs only if it was loaded before
 * ib_uverbs. Otherwise ib_uverbs does not wait for the programs when the device
 * is removed.
 */
TEST(offers)
{
	struct ibv_device_attr_ex attr = {};
	struct mkt_dev dev;
	struct ibv_mr *mr;
	int fd;

	if (mkt_dev_try_open(&dev, 0))
		SKIP(return, "no device %s", dev.name);
	ASSERT_EQ(0, ibv_query_device_ex(dev.ctx, NULL, &attr));
	EXPECT_EQ(dev.extended, attr.max_dm_size != 0);
	/* not a dma-buf, if the kernel checks that */
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, fd);
	errno = 0;
	mr = ibmkey_reg_dmabuf_mr(dev.pd, 0, 4096, 0, fd, IBV_ACCESS_LOCAL_WRITE);
	EXPECT_EQ(NULL, mr);
	EXPECT_EQ(dev.extended ? EINVAL : EOPNOTSUPP, errno);
	close(fd);
	mkt_dev_close(&dev);
}

TEST_HARNESS_MAIN
