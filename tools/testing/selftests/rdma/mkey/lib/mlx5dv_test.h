/* SPDX-License-Identifier: GPL-2.0 */
/* A program of mlx5dv, and its queue pair: the set-up of the tests of mlx5dv. */
#ifndef MKEY_MLX5DV_TEST_H
#define MKEY_MLX5DV_TEST_H

#include <stdlib.h>

#include <infiniband/mlx5dv.h>

#include "mkey_harness.h"

#define SIZE (64 * 1024)
#define MAX_ENTRIES 400
#define DEPTH 16
#define ALL_OPS (MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED | \
		 MLX5DV_QP_EX_WITH_MKEY_CONFIGURE)

/* side 0 configures mkeys over src; side 1 is an ordinary program with dst */
FIXTURE(mlx5dv)
{
	struct mkt_dev dev[2];
	struct mkt_pair pair;
	struct ibv_qp_ex *qpx;
	struct mlx5dv_qp_ex *mqp;
	struct mlx5dv_mkey *mkey;
	uint8_t *src, *dst;
	struct ibv_mr *src_mr, *dst_mr;
};

FIXTURE_VARIANT(mlx5dv)
{
	enum ibv_qp_type type;
};

FIXTURE_VARIANT_ADD(mlx5dv, rc)
{
	.type = IBV_QPT_RC,
};

FIXTURE_VARIANT_ADD(mlx5dv, uc)
{
	.type = IBV_QPT_UC,
};

static inline struct ibv_qp *create_qp(struct mkt_dev *dev, struct ibv_cq *cq,
				       enum ibv_qp_type type, struct mlx5dv_qp_init_attr *own,
				       uint32_t inline_data)
{
	struct ibv_qp_init_attr_ex attr = {
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 2,
			.max_recv_sge = 2,
			.max_inline_data = inline_data,
		},
		.qp_type = type,
		.send_cq = cq,
		.recv_cq = cq,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
		.pd = dev->pd,
	};

	return mlx5dv_create_qp(dev->ctx, &attr, own);
}

static inline struct ibv_qp *create_mkey_qp(struct mkt_dev *dev, struct ibv_cq *cq,
					    enum ibv_qp_type type, uint64_t ops)
{
	struct mlx5dv_qp_init_attr own = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS |
			     MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
		.send_ops_flags = ops,
	};

	return create_qp(dev, cq, type, &own, 0);
}

static inline struct mlx5dv_mkey *create_mkey(struct mkt_dev *dev, uint32_t flags, uint16_t entries)
{
	struct mlx5dv_mkey_init_attr attr = {
		.pd = dev->pd,
		.create_flags = flags,
		.max_entries = entries,
	};

	return mlx5dv_create_mkey(&attr);
}

FIXTURE_SETUP(mlx5dv)
{
	struct mkt_qp *end = self->pair.end;
	size_t i;

	MKT_OPEN_EXTENDED(self->dev);
	ASSERT_EQ(0, mkt_qp_create(&end[1], &self->dev[1],
				   variant->type == IBV_QPT_UC ? MKT_QP_UC : 0));
	end[0].dev = &self->dev[0];
	end[0].psn = 0x1234;
	end[0].cq = ibv_create_cq(self->dev[0].ctx, 4 * DEPTH, NULL, NULL, 0);
	ASSERT_NE(NULL, end[0].cq);
	end[0].qp = create_mkey_qp(&self->dev[0], end[0].cq, variant->type, ALL_OPS);
	ASSERT_NE(NULL, end[0].qp);
	self->pair.mtu = IBV_MTU_1024;
	ASSERT_EQ(0, mkt_pair_connect(&self->pair));
	self->qpx = ibv_qp_to_qp_ex(end[0].qp);
	ASSERT_NE(NULL, self->qpx);
	self->mqp = mlx5dv_qp_ex_from_ibv_qp_ex(self->qpx);
	ASSERT_NE(NULL, self->mqp);

	self->src = malloc(SIZE);
	self->dst = malloc(SIZE);
	for (i = 0; i < SIZE; i++)
		self->src[i] = i * 31 + i / 256;
	memset(self->dst, 0xee, SIZE);
	self->src_mr = ibv_reg_mr(self->dev[0].pd, self->src, SIZE, MKT_ACCESS_ALL);
	self->dst_mr = ibv_reg_mr(self->dev[1].pd, self->dst, SIZE, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, self->src_mr);
	ASSERT_NE(NULL, self->dst_mr);
	self->mkey = create_mkey(&self->dev[0], MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, MAX_ENTRIES);
	ASSERT_NE(NULL, self->mkey);
}

FIXTURE_TEARDOWN(mlx5dv)
{
	mkt_pair_destroy(&self->pair);
	if (self->mkey)
		EXPECT_EQ(0, mlx5dv_destroy_mkey(self->mkey));
	if (self->src_mr)
		EXPECT_EQ(0, ibv_dereg_mr(self->src_mr));
	if (self->dst_mr)
		EXPECT_EQ(0, ibv_dereg_mr(self->dst_mr));
	free(self->src);
	free(self->dst);
	mkt_dev_close(&self->dev[0]);
	mkt_dev_close(&self->dev[1]);
}

/* the request that is added next has this wr_id, a completion, and can configure an mkey */
static inline void next(FIXTURE_DATA(mlx5dv) *self, uint64_t wr_id)
{
	self->qpx->wr_id = wr_id;
	self->qpx->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
}

static inline void add_write(FIXTURE_DATA(mlx5dv) *self, uint64_t wr_id, uint32_t length, size_t to)
{
	self->qpx->wr_id = wr_id;
	self->qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(self->qpx, self->dst_mr->rkey, (uintptr_t)self->dst + to);
	ibv_wr_set_sge(self->qpx, self->mkey->lkey, 0, length);
}

/* the next completion of side 0: its opcode, or -1 if it is not a success with this wr_id */
static inline int completed(FIXTURE_DATA(mlx5dv) *self, uint64_t wr_id)
{
	struct ibv_wc wc;

	if (mkt_poll(&self->pair.end[0], &wc) || wc.status != IBV_WC_SUCCESS || wc.wr_id != wr_id)
		return -1;
	return wc.opcode;
}

/* A WRITE on UC completes before it arrives, so wait for its last byte. */
static inline bool arrived(FIXTURE_DATA(mlx5dv) *self, size_t at, uint8_t byte)
{
	const volatile uint8_t *last = self->dst + at;
	unsigned int tries;

	for (tries = 0; *last != byte && tries < MKT_STALL_PAUSES; tries++)
		usleep(1000);
	return *last == byte;
}

static inline struct ibv_sge range(FIXTURE_DATA(mlx5dv) *self, size_t at, uint32_t length)
{
	return (struct ibv_sge) { (uintptr_t)self->src + at, length, self->src_mr->lkey };
}

static inline int bind_list(FIXTURE_DATA(mlx5dv) *self, unsigned int access, uint16_t num,
			    struct ibv_sge *sge)
{
	ibv_wr_start(self->qpx);
	next(self, 7);
	mlx5dv_wr_mr_list(self->mqp, self->mkey, access, num, sge);
	return ibv_wr_complete(self->qpx);
}

static inline void blocks(FIXTURE_DATA(mlx5dv) *self, struct mlx5dv_mr_interleaved *data)
{
	data[0] = (struct mlx5dv_mr_interleaved) { (uintptr_t)self->src, 8, 2, self->src_mr->lkey };
	data[1] = (struct mlx5dv_mr_interleaved) { (uintptr_t)self->src + 640, 4, 0,
						   self->src_mr->lkey };
}

/* a READ of 64 bytes through the mkey by the peer */
static inline int peer_reads(FIXTURE_DATA(mlx5dv) *self)
{
	struct mkt_wr read = {
		.op = MKT_READ,
		.sge = { { (uintptr_t)self->dst, 64, self->dst_mr->lkey } },
		.num_sge = 1,
		.rkey = self->mkey->rkey,
	};

	return mkt_status(&self->pair, 1, &read);
}

#endif /* MKEY_MLX5DV_TEST_H */
