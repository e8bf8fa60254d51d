// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A program of mlx5dv: invalidations, completions of windows beside those of layouts,
 * and several threads and queue pairs.
 * sets: long smp
 */
#include "mlx5dv_test.h"
#include "slow.h"

/* LOCAL_INV ends the validity of the lkey; a request with the same lkey restores it. */
TEST_F(mlx5dv, invalidate_and_configure_again)
{
	struct ibv_sge sge = range(self, 5000, 64);
	uint32_t lkey = self->mkey->lkey, rkey = self->mkey->rkey;
	unsigned int round;

	if (variant->type != IBV_QPT_RC)
		SKIP(return, "LOCAL_INV needs RC");
	for (round = 0; round < 300; round++) {
		sge.addr = (uintptr_t)self->src + round;
		ibv_wr_start(self->qpx);
		next(self, 1);
		mlx5dv_wr_mr_list(self->mqp, self->mkey, IBV_ACCESS_REMOTE_READ, 1, &sge);
		add_write(self, 2, 64, 0);
		next(self, 3);
		ibv_wr_local_inv(self->qpx, lkey);
		ASSERT_EQ(0, ibv_wr_complete(self->qpx));
		ASSERT_EQ(MLX5DV_WC_UMR, completed(self, 1));
		ASSERT_EQ(IBV_WC_RDMA_WRITE, completed(self, 2));
		ASSERT_EQ(IBV_WC_LOCAL_INV, completed(self, 3));
		ASSERT_EQ(0, memcmp(self->dst, self->src + round, 64));
		ASSERT_EQ(lkey, self->mkey->lkey);
		ASSERT_EQ(rkey, self->mkey->rkey);
	}
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, peer_reads(self));
	ASSERT_EQ(0, mkt_pair_recover(&self->pair));
	ASSERT_EQ(0, bind_list(self, IBV_ACCESS_REMOTE_READ, 1, &sge));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7));
	EXPECT_EQ(IBV_WC_SUCCESS, peer_reads(self));
}

/* a WRITE of the 64 bytes of the mkey, whose wr_id is 1 */
static int post_write(FIXTURE_DATA(mlx5dv) *self, size_t to)
{
	ibv_wr_start(self->qpx);
	add_write(self, 1, 64, to);
	return ibv_wr_complete(self->qpx);
}

/* A peer invalidates an mkey without a remote access flag only if the mkey was created for that. */
TEST_F(mlx5dv, invalidation_by_a_peer)
{
	struct mkt_wr send = { .op = MKT_SEND_INV }, recv = { .op = MKT_SEND };
	struct ibv_sge sge = range(self, 5000, 64);
	struct mkt_result result;
	struct ibv_wc wc;

	if (variant->type != IBV_QPT_RC)
		SKIP(return, "SEND with invalidate needs RC");
	ASSERT_EQ(0, bind_list(self, IBV_ACCESS_LOCAL_WRITE, 1, &sge));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7));
	send.rkey = self->mkey->rkey;
	ASSERT_EQ(0, mkt_exec(&self->pair, 1, &send, &recv, &result));
	EXPECT_NE(IBV_WC_SUCCESS, result.recv_status);
	ASSERT_EQ(0, mkt_pair_recover(&self->pair));
	ASSERT_EQ(0, post_write(self, 0));
	EXPECT_EQ(IBV_WC_RDMA_WRITE, completed(self, 1));

	EXPECT_EQ(0, mlx5dv_destroy_mkey(self->mkey));
	self->mkey = create_mkey(&self->dev[0], MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
				 MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE, 4);
	ASSERT_NE(NULL, self->mkey);
	send.rkey = self->mkey->rkey;
	ASSERT_EQ(0, bind_list(self, IBV_ACCESS_LOCAL_WRITE, 1, &sge));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7));
	ASSERT_EQ(0, mkt_exec(&self->pair, 1, &send, &recv, &result));
	EXPECT_EQ(IBV_WC_SUCCESS, result.recv_status);
	ASSERT_EQ(0, post_write(self, 0));
	ASSERT_EQ(0, mkt_poll(&self->pair.end[0], &wc));
	/* rxe may flush a request before it reports why it failed */
	EXPECT_NE(IBV_WC_SUCCESS, wc.status);
	ASSERT_EQ(0, mkt_pair_recover(&self->pair));
	/* the same lkey and rkey again */
	ASSERT_EQ(0, bind_list(self, IBV_ACCESS_LOCAL_WRITE, 1, &sge));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7));
	ASSERT_EQ(0, post_write(self, 1024));
	EXPECT_EQ(IBV_WC_RDMA_WRITE, completed(self, 1));
	EXPECT_EQ(0, memcmp(self->dst + 1024, self->src + 5000, 64));
}

/* the opcode of the next completion, or -1 if it is not a success with this wr_id */
static int polled(struct ibv_cq_ex *cq, uint64_t wr_id)
{
	struct ibv_poll_cq_attr poll = {};
	int opcode = -1;

	if (!mkt_until(!ibv_start_poll(cq, &poll)))
		return -1;
	if (cq->status == IBV_WC_SUCCESS && cq->wr_id == wr_id)
		opcode = ibv_wc_read_opcode(cq);
	ibv_end_poll(cq);
	return opcode;
}

/* A window on the same QP completes as a window, also in an extended CQ without lengths. */
TEST_F(mlx5dv, completions_of_windows)
{
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 4 * DEPTH };
	struct ibv_sge sge = range(self, 5000, 64);
	struct ibv_mw_bind_info info = {
		.mr = ibv_reg_mr(self->dev[0].pd, self->src, SIZE, MKT_ACCESS_ALL |
				 IBV_ACCESS_MW_BIND),
		.addr = (uintptr_t)self->src,
		.length = 64,
		.mw_access_flags = IBV_ACCESS_REMOTE_READ,
	};
	struct ibv_mw *mw = ibv_alloc_mw(self->dev[0].pd, IBV_MW_TYPE_2);
	struct mkt_qp *end = &self->pair.end[0];
	struct ibv_cq_ex *cq;
	int i;

	ASSERT_NE(NULL, mw);
	ASSERT_NE(NULL, info.mr);
	for (i = 0; i < 2; i++) {
		cq = i ? ibv_create_cq_ex(self->dev[0].ctx, &cq_attr) :
			 mlx5dv_create_cq(self->dev[0].ctx, &cq_attr, NULL);
		ASSERT_NE(NULL, cq);
		EXPECT_EQ(0, ibv_destroy_qp(end->qp));
		end->qp = create_mkey_qp(&self->dev[0], ibv_cq_ex_to_cq(cq), variant->type,
					 ALL_OPS);
		ASSERT_NE(NULL, end->qp);
		ASSERT_EQ(0, mkt_pair_recover(&self->pair));
		self->qpx = ibv_qp_to_qp_ex(end->qp);
		self->mqp = mlx5dv_qp_ex_from_ibv_qp_ex(self->qpx);
		ibv_wr_start(self->qpx);
		next(self, 1);
		mlx5dv_wr_mr_list(self->mqp, self->mkey, 0, 1, &sge);
		self->qpx->wr_id = 2;
		self->qpx->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_bind_mw(self->qpx, mw, ibv_inc_rkey(mw->rkey), &info);
		ASSERT_EQ(0, ibv_wr_complete(self->qpx));
		mw->rkey = ibv_inc_rkey(mw->rkey);

		EXPECT_EQ(MLX5DV_WC_UMR, polled(cq, 1));
		EXPECT_EQ(IBV_WC_BIND_MW, polled(cq, 2));
		/* in either order */
		if (!i)
			EXPECT_EQ(0, ibv_dealloc_mw(mw));
		EXPECT_EQ(0, ibv_destroy_qp(end->qp));
		if (i)
			EXPECT_EQ(0, ibv_dealloc_mw(mw));
		end->qp = create_mkey_qp(&self->dev[0], end->cq, variant->type, ALL_OPS);
		ASSERT_NE(NULL, end->qp);
		EXPECT_EQ(0, ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
		mw = ibv_alloc_mw(self->dev[0].pd, IBV_MW_TYPE_2);
		ASSERT_NE(NULL, mw);
	}
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
	EXPECT_EQ(0, ibv_dereg_mr(info.mr));
}

struct poster {
	FIXTURE_DATA(mlx5dv) *self;
	struct mlx5dv_mkey *mkey;
	unsigned int rounds;
	struct slow_thread thread;
};

static int post_list(struct poster *poster, uint16_t num, struct ibv_sge *sge)
{
	FIXTURE_DATA(mlx5dv) *self = poster->self;

	ibv_wr_start(self->qpx);
	next(self, 1);
	mlx5dv_wr_mr_list(self->mqp, poster->mkey, 0, num, sge);
	return ibv_wr_complete(self->qpx);
}

static int post_many(void *arg)
{
	struct poster *poster = arg;
	struct ibv_sge sge[30];
	unsigned int round, i;
	int err = 0;

	for (i = 0; i < 30; i++)
		sge[i] = range(poster->self, 8 * i, 8);
	/* every other description does not fit into the request */
	for (round = 0; round < poster->rounds && !err; round++)
		mkt_until((err = post_list(poster, round % 2 ? 30 : 2, sge)) != ENOSPC);
	return err;
}

/* Two threads on one QP, with one mkey each. Requests are refused while the queue is full. */
TEST_F(mlx5dv, threads)
{
	unsigned int i, done = 0, rounds = mkt_scale(500, 50);
	struct poster poster[2] = {};

	for (i = 0; i < 2; i++) {
		poster[i].self = self;
		poster[i].rounds = rounds;
		poster[i].mkey = create_mkey(&self->dev[0],
					     MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 30);
		ASSERT_NE(NULL, poster[i].mkey);
		ASSERT_EQ(0, slow_thread_create(&poster[i].thread));
		slow_run(&poster[i].thread, post_many, &poster[i]);
	}
	for (done = 0; done < 2 * rounds; done++)
		ASSERT_EQ(MLX5DV_WC_UMR, completed(self, 1));
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, slow_join(&poster[i].thread));
		slow_thread_end(&poster[i].thread);
		EXPECT_EQ(0, mlx5dv_destroy_mkey(poster[i].mkey));
	}
}

/* QPs come and go; what the library keeps for one does not reach the next. */
TEST_F(mlx5dv, many_qps)
{
	struct ibv_qp_init_attr_ex plain = {
		.cap = { DEPTH, DEPTH, 1, 1, 0 },
		.qp_type = variant->type,
		.send_cq = self->pair.end[0].cq,
		.recv_cq = self->pair.end[0].cq,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
		.pd = self->dev[0].pd,
	};
	unsigned int i;

	for (i = 0; i < mkt_scale(200, 20); i++) {
		struct ibv_qp *own = create_mkey_qp(&self->dev[0], plain.send_cq, variant->type,
						    ALL_OPS);
		struct ibv_qp *other = ibv_create_qp_ex(self->dev[0].ctx, &plain);

		ASSERT_NE(NULL, own);
		ASSERT_NE(NULL, other);
		ASSERT_NE(NULL, mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(own)));
		errno = 0;
		ASSERT_EQ(NULL, mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(other)));
		ASSERT_EQ(EINVAL, errno);
		/* in both orders, so that memory is used again by the other kind */
		EXPECT_EQ(0, ibv_destroy_qp(i % 2 ? own : other));
		EXPECT_EQ(0, ibv_destroy_qp(i % 2 ? other : own));
	}
}

TEST_HARNESS_MAIN
