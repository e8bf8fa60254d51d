// SPDX-License-Identifier: GPL-2.0
/*
 * A program of mlx5dv, compiled against ib_mkey's mlx5dv.h: layouts that work requests
 * configure, their order and completions, requests that are refused, and what a device
 * of ib_mkey does not offer.
 */
#include <pthread.h>
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

static struct ibv_qp *create_qp(struct mkt_dev *dev, struct ibv_cq *cq, enum ibv_qp_type type,
				struct mlx5dv_qp_init_attr *own, uint32_t inline_data)
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

static struct ibv_qp *create_mkey_qp(struct mkt_dev *dev, struct ibv_cq *cq, enum ibv_qp_type type,
				     uint64_t ops)
{
	struct mlx5dv_qp_init_attr own = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS |
			     MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
		.send_ops_flags = ops,
	};

	return create_qp(dev, cq, type, &own, 0);
}

static struct mlx5dv_mkey *create_mkey(struct mkt_dev *dev, uint32_t flags, uint16_t entries)
{
	struct mlx5dv_mkey_init_attr attr = {
		.pd = dev->pd,
		.create_flags = flags,
		.max_entries = entries,
	};

	return mlx5dv_create_mkey(&attr);
}

static int connect_pair(struct mkt_pair *pair)
{
	struct mkt_peer self[2];
	int i, err = 0;

	pair->mtu = IBV_MTU_1024;
	for (i = 0; i < 2; i++)
		mkt_qp_self(&pair->end[i], &self[i]);
	for (i = 0; i < 2 && !err; i++)
		err = mkt_qp_connect(&pair->end[i], &self[!i], pair->mtu);
	return err;
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
	ASSERT_EQ(0, connect_pair(&self->pair));
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
static void next(FIXTURE_DATA(mlx5dv) *self, uint64_t wr_id)
{
	self->qpx->wr_id = wr_id;
	self->qpx->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
}

static void add_write(FIXTURE_DATA(mlx5dv) *self, uint64_t wr_id, uint32_t length, size_t to)
{
	self->qpx->wr_id = wr_id;
	self->qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(self->qpx, self->dst_mr->rkey, (uintptr_t)self->dst + to);
	ibv_wr_set_sge(self->qpx, self->mkey->lkey, 0, length);
}

/* the next completion of side 0: its opcode, or -1 if it is not a success with this wr_id */
static int completed(FIXTURE_DATA(mlx5dv) *self, uint64_t wr_id)
{
	struct ibv_wc wc;

	if (mkt_poll(&self->pair.end[0], &wc) || wc.status != IBV_WC_SUCCESS || wc.wr_id != wr_id)
		return -1;
	return wc.opcode;
}

/* A WRITE on UC completes before it arrives, so wait for its last byte. */
static bool arrived(FIXTURE_DATA(mlx5dv) *self, size_t at, uint8_t byte)
{
	const volatile uint8_t *last = self->dst + at;
	unsigned int tries;

	for (tries = 0; *last != byte && tries < MKT_STALL_PAUSES; tries++)
		usleep(1000);
	return *last == byte;
}

static struct ibv_sge range(FIXTURE_DATA(mlx5dv) *self, size_t at, uint32_t length)
{
	return (struct ibv_sge) { (uintptr_t)self->src + at, length, self->src_mr->lkey };
}

static int bind_list(FIXTURE_DATA(mlx5dv) *self, unsigned int access, uint16_t num,
		     struct ibv_sge *sge)
{
	ibv_wr_start(self->qpx);
	next(self, 7);
	mlx5dv_wr_mr_list(self->mqp, self->mkey, access, num, sge);
	return ibv_wr_complete(self->qpx);
}

TEST_F(mlx5dv, list)
{
	struct ibv_sge sge[4];
	size_t i, at = 0;

	for (i = 0; i < 4; i++)
		sge[i] = range(self, 1000 * (4 - i), 100 + i);
	ASSERT_EQ(0, bind_list(self, IBV_ACCESS_LOCAL_WRITE, 4, sge));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7));
	ibv_wr_start(self->qpx);
	add_write(self, 8, 406, 0);
	ASSERT_EQ(0, ibv_wr_complete(self->qpx));
	EXPECT_EQ(IBV_WC_RDMA_WRITE, completed(self, 8));
	ASSERT_TRUE(arrived(self, 405, self->src[1000 + 102]));
	for (i = 0; i < 4; at += 100 + i, i++)
		EXPECT_EQ(0, memcmp(self->dst + at, self->src + 1000 * (4 - i), 100 + i));
	EXPECT_EQ(0xee, self->dst[406]);
}

/* checks the bytes of three repetitions of two blocks, of 8 and 4 bytes */
static bool is_interleaved(FIXTURE_DATA(mlx5dv) *self, size_t at)
{
	size_t i;

	for (i = 0; i < 3; i++, at += 12)
		if (memcmp(self->dst + at, self->src + 10 * i, 8) ||
		    memcmp(self->dst + at + 8, self->src + 640 + 4 * i, 4))
			return false;
	return true;
}

static void blocks(FIXTURE_DATA(mlx5dv) *self, struct mlx5dv_mr_interleaved *data)
{
	data[0] = (struct mlx5dv_mr_interleaved) { (uintptr_t)self->src, 8, 2, self->src_mr->lkey };
	data[1] = (struct mlx5dv_mr_interleaved) { (uintptr_t)self->src + 640, 4, 0,
						   self->src_mr->lkey };
}

TEST_F(mlx5dv, interleaved)
{
	struct mlx5dv_mr_interleaved data[2];

	blocks(self, data);
	ibv_wr_start(self->qpx);
	next(self, 1);
	mlx5dv_wr_mr_interleaved(self->mqp, self->mkey, IBV_ACCESS_LOCAL_WRITE, 3, 2, data);
	add_write(self, 2, 36, 0);
	ASSERT_EQ(0, ibv_wr_complete(self->qpx));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 1));
	EXPECT_EQ(IBV_WC_RDMA_WRITE, completed(self, 2));
	ASSERT_TRUE(arrived(self, 35, self->src[640 + 11]));
	EXPECT_TRUE(is_interleaved(self, 0));
}

/* both setters in both orders; the builder takes wr_id and wr_flags, not the setters */
TEST_F(mlx5dv, configure)
{
	struct mlx5dv_mkey_conf_attr conf = { .conf_flags = MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR };
	struct mlx5dv_mr_interleaved data[2];
	struct ibv_sge sge = range(self, 5000, 64);

	blocks(self, data);
	ibv_wr_start(self->qpx);
	next(self, 1);
	mlx5dv_wr_mkey_configure(self->mqp, self->mkey, 2, &conf);
	self->qpx->wr_id = 99;
	self->qpx->wr_flags = 0;
	mlx5dv_wr_set_mkey_access_flags(self->mqp, IBV_ACCESS_LOCAL_WRITE);
	mlx5dv_wr_set_mkey_layout_interleaved(self->mqp, 3, 2, data);
	EXPECT_EQ(99, self->qpx->wr_id);
	add_write(self, 2, 36, 0);
	next(self, 3);
	mlx5dv_wr_mkey_configure(self->mqp, self->mkey, 2, &conf);
	mlx5dv_wr_set_mkey_layout_list(self->mqp, 1, &sge);
	mlx5dv_wr_set_mkey_access_flags(self->mqp, IBV_ACCESS_LOCAL_WRITE);
	add_write(self, 4, 64, 36);
	ASSERT_EQ(0, ibv_wr_complete(self->qpx));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 1));
	EXPECT_EQ(IBV_WC_RDMA_WRITE, completed(self, 2));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 3));
	EXPECT_EQ(IBV_WC_RDMA_WRITE, completed(self, 4));
	ASSERT_TRUE(arrived(self, 99, self->src[5063]));
	EXPECT_TRUE(is_interleaved(self, 0));
	EXPECT_EQ(0, memcmp(self->dst + 36, self->src + 5000, 64));
}

static int configure(FIXTURE_DATA(mlx5dv) *self, const unsigned int *access,
		     const struct ibv_sge *sge)
{
	struct mlx5dv_mkey_conf_attr conf = {};

	ibv_wr_start(self->qpx);
	next(self, 7);
	mlx5dv_wr_mkey_configure(self->mqp, self->mkey, !!access + !!sge, &conf);
	if (access)
		mlx5dv_wr_set_mkey_access_flags(self->mqp, *access);
	if (sge)
		mlx5dv_wr_set_mkey_layout_list(self->mqp, 1, sge);
	return ibv_wr_complete(self->qpx);
}

/* a READ of 64 bytes through the mkey by the peer */
static int peer_reads(FIXTURE_DATA(mlx5dv) *self)
{
	struct mkt_wr read = {
		.op = MKT_READ,
		.sge = { { (uintptr_t)self->dst, 64, self->dst_mr->lkey } },
		.num_sge = 1,
		.rkey = self->mkey->rkey,
	};

	return mkt_status(&self->pair, 1, &read);
}

/* what a request does not set stays */
TEST_F(mlx5dv, one_property_alone)
{
	const unsigned int none = 0, reads = IBV_ACCESS_REMOTE_READ;
	struct ibv_sge sge = range(self, 5000, 64), other = range(self, 9000, 64);

	if (variant->type != IBV_QPT_RC)
		SKIP(return, "READ needs RC");
	EXPECT_EQ(EOPNOTSUPP, configure(self, &reads, NULL));
	EXPECT_EQ(EOPNOTSUPP, configure(self, NULL, NULL));
	/* without access flags there are none */
	ASSERT_EQ(0, configure(self, NULL, &sge));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, peer_reads(self));
	ASSERT_EQ(0, mkt_pair_recover(&self->pair));
	ASSERT_EQ(0, configure(self, &reads, NULL));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7));
	EXPECT_EQ(IBV_WC_SUCCESS, peer_reads(self));
	EXPECT_EQ(0, memcmp(self->dst, self->src + 5000, 64));
	ASSERT_EQ(0, configure(self, NULL, &other));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7));
	EXPECT_EQ(IBV_WC_SUCCESS, peer_reads(self));
	EXPECT_EQ(0, memcmp(self->dst, self->src + 9000, 64));
	/* nothing changes, and it completes */
	ASSERT_EQ(0, configure(self, NULL, NULL));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7));
	EXPECT_EQ(IBV_WC_SUCCESS, peer_reads(self));
	ASSERT_EQ(0, configure(self, &none, NULL));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, peer_reads(self));
}

#define LONG 100	/* ranges of 4 bytes */
#define BATCH 4		/* layouts that are bound and used at once */
#define BATCHES 8	/* batches whose results are at different places */

static size_t long_at(unsigned int layout, unsigned int i)
{
	return (layout * 131 + i * 17) % (SIZE - 8);
}

/* Adds layouts @first to @first + BATCH - 1 and their uses. Only the last use completes. */
static int post_long(FIXTURE_DATA(mlx5dv) *self, unsigned int first)
{
	struct ibv_sge sge[LONG];
	unsigned int n, i;

	ibv_wr_start(self->qpx);
	for (n = first; n < first + BATCH; n++) {
		for (i = 0; i < LONG; i++)
			sge[i] = range(self, long_at(n, i), 4);
		self->qpx->wr_flags = IBV_SEND_INLINE;
		mlx5dv_wr_mr_list(self->mqp, self->mkey, IBV_ACCESS_LOCAL_WRITE, LONG, sge);
		self->qpx->wr_id = n;
		self->qpx->wr_flags = n + 1 == first + BATCH ? IBV_SEND_SIGNALED : 0;
		ibv_wr_rdma_write(self->qpx, self->dst_mr->rkey,
				  (uintptr_t)self->dst + 4 * LONG * (n % (BATCH * BATCHES)));
		ibv_wr_set_sge(self->qpx, self->mkey->lkey, 0, 4 * LONG);
	}
	return ibv_wr_complete(self->qpx);
}

/* checks what the use of a layout wrote, after its last byte has arrived */
static bool is_long(FIXTURE_DATA(mlx5dv) *self, unsigned int layout)
{
	size_t at = 4 * LONG * (layout % (BATCH * BATCHES));
	unsigned int i;

	if (!arrived(self, at + 4 * LONG - 1, self->src[long_at(layout, LONG - 1) + 3]))
		return false;
	for (i = 0; i < LONG; i++)
		if (memcmp(self->dst + at + 4 * i, self->src + long_at(layout, i), 4))
			return false;
	return true;
}

/*
 * Layouts that do not fit into a request. The queue is kept full of them, so memory that
 * the library uses again too early holds another layout when the device reads it.
 */
TEST_F(mlx5dv, long_lists)
{
	const unsigned int rounds = mkt_scale(20, 4), group = BATCH * BATCHES;
	unsigned int round, n, done, tries, before = mkt_dev_count(&self->dev[0], "mr");
	int err;

	for (round = 0; round < rounds; round++) {
		for (n = round * group, done = n; n < (round + 1) * group; n += BATCH) {
			for (tries = 0, err = ENOSPC; err == ENOSPC && tries < MKT_STALL_PAUSES;
			     tries++) {
				err = post_long(self, n);
				if (err == ENOSPC)
					usleep(1000);
			}
			ASSERT_EQ(0, err);
		}
		for (; done < (round + 1) * group; done += BATCH)
			ASSERT_EQ(IBV_WC_RDMA_WRITE, completed(self, done + BATCH - 1));
		for (n = round * group; n < (round + 1) * group; n++)
			ASSERT_TRUE(is_long(self, n));
	}
	/* The memory of descriptions is used again: at most that of a full queue and a batch. */
	EXPECT_LE(mkt_dev_count(&self->dev[0], "mr"), before + 2 * DEPTH + BATCH);
}

/* The entries that fit into a request, and one more; the same with blocks. */
TEST_F(mlx5dv, entries)
{
	struct mlx5dv_mr_interleaved data[40];
	struct ibv_sge sge[40];
	unsigned int num, i;

	for (num = 1; num <= 40; num++) {
		for (i = 0; i < num; i++) {
			sge[i] = range(self, 100 * (40 - i), 4);
			data[i] = (struct mlx5dv_mr_interleaved) {
				(uintptr_t)self->src + 100 * i, 2, 8, self->src_mr->lkey,
			};
		}
		ibv_wr_start(self->qpx);
		next(self, 1);
		mlx5dv_wr_mr_list(self->mqp, self->mkey, 0, num, sge);
		add_write(self, 2, 4 * num, 0);
		next(self, 3);
		mlx5dv_wr_mr_interleaved(self->mqp, self->mkey, 0, 2, num, data);
		add_write(self, 4, 4 * num, 1024);
		ASSERT_EQ(0, ibv_wr_complete(self->qpx));
		ASSERT_EQ(MLX5DV_WC_UMR, completed(self, 1));
		ASSERT_EQ(IBV_WC_RDMA_WRITE, completed(self, 2));
		ASSERT_EQ(MLX5DV_WC_UMR, completed(self, 3));
		ASSERT_EQ(IBV_WC_RDMA_WRITE, completed(self, 4));
		ASSERT_TRUE(arrived(self, 1024 + 4 * num - 1, self->src[100 * (num - 1) + 11]));
		for (i = 0; i < num; i++) {
			EXPECT_EQ(0, memcmp(self->dst + 4 * i, self->src + 100 * (40 - i), 4));
			EXPECT_EQ(0, memcmp(self->dst + 1024 + 2 * i, self->src + 100 * i, 2));
			EXPECT_EQ(0, memcmp(self->dst + 1024 + 2 * num + 2 * i,
					    self->src + 100 * i + 10, 2));
		}
	}
}

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
	ibv_wr_start(self->qpx);
	add_write(self, 1, 64, 0);
	ASSERT_EQ(0, ibv_wr_complete(self->qpx));
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
	ibv_wr_start(self->qpx);
	add_write(self, 1, 64, 0);
	ASSERT_EQ(0, ibv_wr_complete(self->qpx));
	ASSERT_EQ(0, mkt_poll(&self->pair.end[0], &wc));
	/* rxe may flush a request before it reports why it failed */
	EXPECT_NE(IBV_WC_SUCCESS, wc.status);
	ASSERT_EQ(0, mkt_pair_recover(&self->pair));
	/* the same lkey and rkey again */
	ASSERT_EQ(0, bind_list(self, IBV_ACCESS_LOCAL_WRITE, 1, &sge));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7));
	ibv_wr_start(self->qpx);
	add_write(self, 1, 64, 1024);
	ASSERT_EQ(0, ibv_wr_complete(self->qpx));
	EXPECT_EQ(IBV_WC_RDMA_WRITE, completed(self, 1));
	EXPECT_EQ(0, memcmp(self->dst + 1024, self->src + 5000, 64));
}

/* The kernel refuses a layout: an error completion, and the old layout stays. */
TEST_F(mlx5dv, refused_by_the_kernel)
{
	struct ibv_sge sge = range(self, 5000, 64), wrong = range(self, SIZE - 10, 64);
	struct ibv_wc wc;

	ASSERT_EQ(0, bind_list(self, IBV_ACCESS_LOCAL_WRITE, 1, &sge));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7));
	ASSERT_EQ(0, bind_list(self, IBV_ACCESS_LOCAL_WRITE, 1, &wrong));
	ASSERT_EQ(0, mkt_poll(&self->pair.end[0], &wc));
	EXPECT_EQ(IBV_WC_MW_BIND_ERR, wc.status);
	EXPECT_EQ(7, wc.wr_id);
	ASSERT_EQ(0, mkt_pair_recover(&self->pair));
	ibv_wr_start(self->qpx);
	add_write(self, 8, 64, 0);
	ASSERT_EQ(0, ibv_wr_complete(self->qpx));
	EXPECT_EQ(IBV_WC_RDMA_WRITE, completed(self, 8));
	ASSERT_TRUE(arrived(self, 63, self->src[5063]));
	EXPECT_EQ(0, memcmp(self->dst, self->src + 5000, 64));
}

/* one way to build a request that ibv_wr_complete() must refuse */
struct refusal {
	const char *what;
	int err;
	void (*build)(FIXTURE_DATA(mlx5dv) *self, struct ibv_sge *sge,
		      struct mlx5dv_mkey_conf_attr *conf);
};

#define REFUSAL(name, error, ...)						\
	static void build_##name(FIXTURE_DATA(mlx5dv) *self, struct ibv_sge *sge,	\
				 struct mlx5dv_mkey_conf_attr *conf)		\
	{									\
		struct mlx5dv_qp_ex *mqp = self->mqp;				\
		struct mlx5dv_mkey *mkey = self->mkey;				\
		__VA_ARGS__							\
	}									\
	static const struct refusal name = { #name, error, build_##name }

REFUSAL(not_inline, EOPNOTSUPP, self->qpx->wr_flags = IBV_SEND_SIGNALED;
	mlx5dv_wr_mr_list(mqp, mkey, 0, 1, sge););
REFUSAL(no_entries, EINVAL, mlx5dv_wr_mr_list(mqp, mkey, 0, 0, sge););
REFUSAL(no_list, EINVAL, mlx5dv_wr_mr_list(mqp, mkey, 0, 1, NULL););
REFUSAL(no_blocks, EINVAL, mlx5dv_wr_mr_interleaved(mqp, mkey, 0, 1, 0, NULL););
REFUSAL(no_mkey, EINVAL, mlx5dv_wr_mr_list(mqp, NULL, 0, 1, sge);(void)mkey;);
REFUSAL(too_many, ENOMEM, mlx5dv_wr_mr_list(mqp, mkey, 0, MAX_ENTRIES + 1, sge););
REFUSAL(access_flag, EINVAL, mlx5dv_wr_mr_list(mqp, mkey, IBV_ACCESS_HUGETLB, 1, sge););
REFUSAL(no_conf, EINVAL, mlx5dv_wr_mkey_configure(mqp, mkey, 0, NULL););
REFUSAL(conf_flag, EOPNOTSUPP, conf->conf_flags = 2;
	mlx5dv_wr_mkey_configure(mqp, mkey, 1, conf););
REFUSAL(conf_mask, EOPNOTSUPP, conf->comp_mask = 1;
	mlx5dv_wr_mkey_configure(mqp, mkey, 1, conf););
REFUSAL(missing_setter, EINVAL, mlx5dv_wr_mkey_configure(mqp, mkey, 2, conf);
	mlx5dv_wr_set_mkey_layout_list(mqp, 1, sge););
REFUSAL(setter_too_many, EINVAL, mlx5dv_wr_mkey_configure(mqp, mkey, 1, conf);
	mlx5dv_wr_set_mkey_layout_list(mqp, 1, sge); mlx5dv_wr_set_mkey_access_flags(mqp, 0););
REFUSAL(access_twice, EINVAL, mlx5dv_wr_mkey_configure(mqp, mkey, 3, conf);
	mlx5dv_wr_set_mkey_access_flags(mqp, 0); mlx5dv_wr_set_mkey_access_flags(mqp, 0););
REFUSAL(layout_twice, EINVAL, mlx5dv_wr_mkey_configure(mqp, mkey, 3, conf);
	mlx5dv_wr_set_mkey_layout_list(mqp, 1, sge);
	mlx5dv_wr_set_mkey_layout_interleaved(mqp, 1, 1, NULL););
REFUSAL(setter_alone, EINVAL, mlx5dv_wr_set_mkey_access_flags(mqp, 0);(void)mkey;);
REFUSAL(two_at_once, EINVAL, mlx5dv_wr_mkey_configure(mqp, mkey, 1, conf);
	mlx5dv_wr_mr_list(mqp, mkey, 0, 1, sge););
REFUSAL(signature, EOPNOTSUPP, mlx5dv_wr_mkey_configure(mqp, mkey, 2, conf);
	mlx5dv_wr_set_mkey_layout_list(mqp, 1, sge); mlx5dv_wr_set_mkey_sig_block(mqp, NULL););
REFUSAL(crypto, EOPNOTSUPP, mlx5dv_wr_mkey_configure(mqp, mkey, 2, conf);
	mlx5dv_wr_set_mkey_layout_list(mqp, 1, sge); mlx5dv_wr_set_mkey_crypto(mqp, NULL););
REFUSAL(dma_copy, EOPNOTSUPP, mlx5dv_wr_memcpy(mqp, 0, 0, 0, 0, 1);(void)mkey;);
REFUSAL(raw, EOPNOTSUPP, mlx5dv_wr_raw_wqe(mqp, NULL);(void)mkey;);
REFUSAL(dc, EOPNOTSUPP, mlx5dv_wr_set_dc_addr(mqp, NULL, 0, 0);(void)mkey;);
REFUSAL(dc_stream, EOPNOTSUPP, mlx5dv_wr_set_dc_addr_stream(mqp, NULL, 0, 0, 0);(void)mkey;);

static const struct refusal *const refusals[] = {
	&not_inline, &no_entries, &no_list, &no_blocks, &no_mkey, &too_many, &access_flag, &no_conf,
	&conf_flag, &conf_mask, &missing_setter, &setter_too_many, &access_twice, &layout_twice,
	&setter_alone, &two_at_once, &signature, &crypto, &dma_copy, &raw, &dc, &dc_stream,
};

/* Nothing of a batch with such a request is posted, and the mkey stays as it was. */
TEST_F(mlx5dv, refused_before_posting)
{
	struct ibv_sge sge = range(self, 5000, 64), other = range(self, 100, 64);
	struct ibv_wc wc;
	size_t i;

	ASSERT_EQ(0, bind_list(self, IBV_ACCESS_LOCAL_WRITE, 1, &sge));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7));
	for (i = 0; i < ARRAY_SIZE(refusals); i++) {
		struct mlx5dv_mkey_conf_attr conf = {};
		int err;

		ibv_wr_start(self->qpx);
		add_write(self, 1, 64, 1024);
		next(self, 2);
		refusals[i]->build(self, &other, &conf);
		add_write(self, 3, 64, 1024);
		err = ibv_wr_complete(self->qpx);
		EXPECT_EQ(refusals[i]->err, err)
			mkt_diag("%s: %d", refusals[i]->what, err);
	}
	ibv_wr_start(self->qpx);
	mlx5dv_wr_mr_list(self->mqp, self->mkey, 0, 1, &other);
	ibv_wr_abort(self->qpx);

	ibv_wr_start(self->qpx);
	add_write(self, 8, 64, 0);
	ASSERT_EQ(0, ibv_wr_complete(self->qpx));
	EXPECT_EQ(IBV_WC_RDMA_WRITE, completed(self, 8));
	ASSERT_TRUE(arrived(self, 63, self->src[5063]));
	EXPECT_EQ(0, memcmp(self->dst, self->src + 5000, 64));
	EXPECT_EQ(0xee, self->dst[1024]);
	EXPECT_EQ(0, ibv_poll_cq(self->pair.end[0].cq, 1, &wc));
}

/* A QP has only the requests that it was created for. */
TEST_F(mlx5dv, qp_without_the_request)
{
	const uint64_t ops[] = { MLX5DV_QP_EX_WITH_MR_LIST, MLX5DV_QP_EX_WITH_MR_INTERLEAVED,
				 MLX5DV_QP_EX_WITH_MKEY_CONFIGURE };
	struct ibv_sge sge = range(self, 5000, 64);
	struct mlx5dv_mr_interleaved data[2];
	size_t has, used;

	blocks(self, data);
	for (has = 0; has < 3; has++) {
		struct ibv_qp *qp = create_mkey_qp(&self->dev[0], self->pair.end[0].cq,
						   variant->type, ops[has]);
		struct ibv_qp_ex *qpx;
		struct mlx5dv_qp_ex *mqp;

		ASSERT_NE(NULL, qp);
		qpx = ibv_qp_to_qp_ex(qp);
		mqp = mlx5dv_qp_ex_from_ibv_qp_ex(qpx);
		ASSERT_NE(NULL, mqp);
		for (used = 0; used < 3; used++) {
			struct mlx5dv_mkey_conf_attr conf = {};

			if (used == has)
				continue;
			ibv_wr_start(qpx);
			qpx->wr_flags = IBV_SEND_INLINE;
			if (used == 0)
				mlx5dv_wr_mr_list(mqp, self->mkey, 0, 1, &sge);
			else if (used == 1)
				mlx5dv_wr_mr_interleaved(mqp, self->mkey, 0, 1, 2, data);
			else
				mlx5dv_wr_mkey_configure(mqp, self->mkey, 0, &conf);
			EXPECT_EQ(EOPNOTSUPP, ibv_wr_complete(qpx));
		}
		EXPECT_EQ(0, ibv_destroy_qp(qp));
	}
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
	const unsigned int want[] = { MLX5DV_WC_UMR, IBV_WC_BIND_MW };
	struct ibv_poll_cq_attr poll = {};
	struct ibv_cq_ex *cq;
	int i, tries, err;

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

		for (tries = 0, err = ENOENT; err == ENOENT && tries < MKT_STALL_PAUSES; tries++) {
			usleep(1000);
			err = ibv_start_poll(cq, &poll);
		}
		ASSERT_EQ(0, err);
		EXPECT_EQ(IBV_WC_SUCCESS, cq->status);
		EXPECT_EQ(want[0], ibv_wc_read_opcode(cq));
		ibv_end_poll(cq);
		for (tries = 0, err = ENOENT; err == ENOENT && tries < MKT_STALL_PAUSES; tries++) {
			usleep(1000);
			err = ibv_start_poll(cq, &poll);
		}
		ASSERT_EQ(0, err);
		EXPECT_EQ(IBV_WC_SUCCESS, cq->status);
		EXPECT_EQ(2, cq->wr_id);
		EXPECT_EQ(want[1], ibv_wc_read_opcode(cq));
		ibv_end_poll(cq);
		/* rxe waits for a QP's windows when the QP is destroyed. */
		EXPECT_EQ(0, ibv_dealloc_mw(mw));
		EXPECT_EQ(0, ibv_destroy_qp(end->qp));
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
	int err;
};

static void *post_many(void *arg)
{
	struct poster *poster = arg;
	FIXTURE_DATA(mlx5dv) *self = poster->self;
	unsigned int round, tries, i;
	struct ibv_sge sge[30];

	for (round = 0; round < poster->rounds && !poster->err; round++) {
		/* every other description does not fit into the request */
		for (i = 0; i < 30; i++)
			sge[i] = range(self, 8 * i, 8);
		poster->err = ENOSPC;
		for (tries = 0; poster->err == ENOSPC && tries < MKT_STALL_PAUSES; tries++) {
			if (tries)
				usleep(1000);
			ibv_wr_start(self->qpx);
			next(self, 1);
			mlx5dv_wr_mr_list(self->mqp, poster->mkey, 0, round % 2 ? 30 : 2, sge);
			poster->err = ibv_wr_complete(self->qpx);
		}
	}
	return NULL;
}

/* Two threads on one QP, with one mkey each. Requests are refused while the queue is full. */
TEST_F(mlx5dv, threads)
{
	unsigned int i, done = 0, rounds = mkt_scale(500, 50);
	struct poster poster[2] = {};
	pthread_t thread[2];
	struct ibv_wc wc;

	for (i = 0; i < 2; i++) {
		poster[i].self = self;
		poster[i].rounds = rounds;
		poster[i].mkey = create_mkey(&self->dev[0],
					     MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 30);
		ASSERT_NE(NULL, poster[i].mkey);
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, post_many, &poster[i]));
	}
	for (done = 0; done < 2 * rounds; done++) {
		ASSERT_EQ(0, mkt_poll(&self->pair.end[0], &wc));
		ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		ASSERT_EQ(MLX5DV_WC_UMR, wc.opcode);
	}
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, pthread_join(thread[i], NULL));
		EXPECT_EQ(0, poster[i].err);
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

TEST_F(mlx5dv, creation_is_refused)
{
	struct mlx5dv_qp_init_attr qp[] = {
		{ .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC },
		{ .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS },
		{ .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		  .send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE },
		{ .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		  .send_ops_flags = MLX5DV_QP_EX_WITH_MEMCPY },
		{ .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		  .create_flags = MLX5DV_QP_CREATE_SIG_PIPELINING },
		{ .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		  .create_flags = MLX5DV_QP_CREATE_OOO_DP },
	};
	const uint32_t mkey[] = {
		0, MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE,
		1 | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE,
		1 | MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO,
		1 | MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG, 1 | 1 << 5,
	};
	struct mlx5dv_qp_init_attr unknown = { .comp_mask = 1 << 4 };
	struct mlx5dv_qp_init_attr ud = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST,
	};
	struct mlx5dv_cq_init_attr cq = { .comp_mask = 1 };
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 4 };
	struct ibv_cq *own = self->pair.end[0].cq;
	struct mlx5dv_mkey_err mkey_err;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(qp); i++) {
		errno = 0;
		EXPECT_EQ(NULL, create_qp(&self->dev[0], own, variant->type, &qp[i], 0));
		EXPECT_EQ(EOPNOTSUPP, errno);
	}
	EXPECT_EQ(NULL, create_qp(&self->dev[0], own, variant->type, &unknown, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(NULL, create_qp(&self->dev[0], own, IBV_QPT_UD, &ud, 0));
	EXPECT_EQ(EOPNOTSUPP, errno);
	EXPECT_EQ(NULL, mlx5dv_create_qp(self->dev[0].ctx, NULL, NULL));
	EXPECT_EQ(EINVAL, errno);
	for (i = 0; i < ARRAY_SIZE(mkey); i++) {
		errno = 0;
		EXPECT_EQ(NULL, create_mkey(&self->dev[0], mkey[i], 4));
		EXPECT_EQ(EOPNOTSUPP, errno);
	}
	EXPECT_EQ(NULL, create_mkey(&self->dev[0], MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(NULL, mlx5dv_create_mkey(NULL));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(EINVAL, mlx5dv_destroy_mkey(NULL));
	EXPECT_EQ(EOPNOTSUPP, mlx5dv_mkey_check(self->mkey, &mkey_err));
	EXPECT_EQ(NULL, mlx5dv_create_cq(self->dev[0].ctx, &cq_attr, &cq));
	EXPECT_EQ(EOPNOTSUPP, errno);
}

TEST_F(mlx5dv, device_memory)
{
	struct ibv_alloc_dm_attr attr = { .length = 4096 };
	struct mlx5dv_alloc_dm_attr own = { .type = MLX5DV_DM_TYPE_MEMIC };
	struct ibv_dm *dm = mlx5dv_alloc_dm(self->dev[0].ctx, &attr, &own);
	struct ibv_sge sge = { .addr = 100, .length = 64 };
	struct ibv_mr *mr;

	ASSERT_NE(NULL, dm);
	EXPECT_EQ(0, ibv_memcpy_to_dm(dm, 100, self->src, 64));
	mr = ibv_reg_dm_mr(self->dev[0].pd, dm, 0, 4096, IBV_ACCESS_ZERO_BASED |
			   IBV_ACCESS_LOCAL_WRITE);
	ASSERT_NE(NULL, mr);
	sge.lkey = mr->lkey;
	ibv_wr_start(self->qpx);
	next(self, 1);
	mlx5dv_wr_mr_list(self->mqp, self->mkey, 0, 1, &sge);
	add_write(self, 2, 64, 0);
	ASSERT_EQ(0, ibv_wr_complete(self->qpx));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 1));
	EXPECT_EQ(IBV_WC_RDMA_WRITE, completed(self, 2));
	ASSERT_TRUE(arrived(self, 63, self->src[63]));
	EXPECT_EQ(0, memcmp(self->dst, self->src, 64));

	EXPECT_EQ(NULL, mlx5dv_dm_map_op_addr(dm, 0));
	EXPECT_EQ(EOPNOTSUPP, errno);
	own.type = MLX5DV_DM_TYPE_STEERING_SW_ICM;
	EXPECT_EQ(NULL, mlx5dv_alloc_dm(self->dev[0].ctx, &attr, &own));
	EXPECT_EQ(EOPNOTSUPP, errno);
	/* An mkey does not keep its leaves. It can be bound again. */
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_EQ(0, ibv_free_dm(dm));
	sge = range(self, 5000, 64);
	ASSERT_EQ(0, bind_list(self, 0, 1, &sge));
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, 7));
	ibv_wr_start(self->qpx);
	add_write(self, 8, 64, 1024);
	ASSERT_EQ(0, ibv_wr_complete(self->qpx));
	EXPECT_EQ(IBV_WC_RDMA_WRITE, completed(self, 8));
	ASSERT_TRUE(arrived(self, 1024 + 63, self->src[5063]));
}

FIXTURE(device)
{
	struct mkt_dev dev[2];
};

FIXTURE_SETUP(device)
{
	MKT_OPEN_EXTENDED(self->dev);
}

FIXTURE_TEARDOWN(device)
{
	mkt_dev_close(&self->dev[0]);
	mkt_dev_close(&self->dev[1]);
}

TEST_F(device, caps)
{
	const uint64_t none = MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE |
			      MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK | MLX5DV_CONTEXT_MASK_REG_C0 |
			      MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS;
	const uint64_t all = (MLX5DV_CONTEXT_MASK_OOO_RECV_WRS << 1) - 1;
	struct mlx5dv_context caps;

	memset(&caps, 0xff, sizeof(caps));
	ASSERT_EQ(0, mlx5dv_query_device(self->dev[0].ctx, &caps));
	EXPECT_EQ(all & ~none, caps.comp_mask);
	EXPECT_EQ(0, caps.version);
	EXPECT_EQ(0, caps.flags);
	EXPECT_EQ(0, caps.sig_caps.block_prot);
	EXPECT_EQ(0, caps.sig_caps.block_size);
	EXPECT_EQ(0, caps.crypto_caps.flags);
	EXPECT_EQ(0, caps.crypto_caps.crypto_engines);
	EXPECT_EQ(0, caps.max_wr_memcpy_length);
	EXPECT_EQ(0, caps.cqe_comp_caps.max_num);
	EXPECT_EQ(0, caps.dc_odp_caps);
	EXPECT_EQ(0, caps.ooo_recv_wrs_caps.max_rc);

	/* Fields that the caller does not know stay as they are. */
	memset(&caps, 0xff, sizeof(caps));
	caps.comp_mask = MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD;
	ASSERT_EQ(0, mlx5dv_query_device(self->dev[0].ctx, &caps));
	EXPECT_EQ(MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD, caps.comp_mask);
	EXPECT_EQ(0, caps.sig_caps.block_prot);
	EXPECT_EQ(UINT64_MAX, caps.max_wr_memcpy_length);
	EXPECT_EQ(UINT32_MAX, caps.ooo_recv_wrs_caps.max_uc);
	EXPECT_EQ(EINVAL, mlx5dv_query_device(self->dev[0].ctx, NULL));
	EXPECT_EQ(EINVAL, mlx5dv_query_device(NULL, &caps));
}

TEST_F(device, open)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct mlx5dv_context_attr attr = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	struct ibv_device_attr_ex device = {};
	struct ibv_context *ctx;

	ASSERT_NE(NULL, list);
	EXPECT_FALSE(mlx5dv_is_supported(NULL));
	if (!list[0])
		SKIP(return, "this network namespace has no device");
	ASSERT_TRUE(mlx5dv_is_supported(list[0]));
	ctx = mlx5dv_open_device(list[0], &attr);
	ASSERT_NE(NULL, ctx);
	/* device memory needs no more calls */
	ASSERT_EQ(0, ibv_query_device_ex(ctx, NULL, &device));
	EXPECT_NE(0, device.max_dm_size);
	EXPECT_EQ(0, ibv_close_device(ctx));
	attr.flags = 2;
	EXPECT_EQ(NULL, mlx5dv_open_device(list[0], &attr));
	EXPECT_EQ(EINVAL, errno);
	attr.flags = 0;
	attr.comp_mask = 1;
	EXPECT_EQ(NULL, mlx5dv_open_device(list[0], &attr));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(NULL, mlx5dv_open_device(list[0], NULL));
	EXPECT_EQ(EINVAL, errno);
	ibv_free_device_list(list);
}

TEST_HARNESS_MAIN
