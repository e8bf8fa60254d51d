// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A program of mlx5dv, compiled against rdma-core's mlx5dv.h: layouts that work requests
 * configure, and messages that it receives.
 * sets: long smp
 */
#include "mlx5dv_test.h"

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

#define ROWS 6
#define INNER 3

/*
 * UCC makes mkeys of interleaved vectors, and a list over them for one message. The requests of all
 * mkeys and of their use are posted at once.
 */
TEST_F(mlx5dv, list_of_interleaved)
{
	struct mlx5dv_mkey *inner[INNER];
	struct mlx5dv_mr_interleaved data;
	struct ibv_sge sge[INNER];
	unsigned int round, i, row;
	size_t at;

	for (i = 0; i < INNER; i++) {
		inner[i] = create_mkey(&self->dev[0], MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 1);
		ASSERT_NE(NULL, inner[i]);
	}
	for (round = 0; round < 50; round++) {
		ibv_wr_start(self->qpx);
		for (i = 0; i < INNER && !round; i++) {
			data = (struct mlx5dv_mr_interleaved) {
				(uintptr_t)self->src + 2000 * i, 16 + i, 48, self->src_mr->lkey,
			};
			next(self, i);
			mlx5dv_wr_mr_interleaved(self->mqp, inner[i], IBV_ACCESS_LOCAL_WRITE, ROWS,
						 1, &data);
		}
		/* some rows of each, in another order in each round */
		for (i = 0; i < INNER; i++) {
			unsigned int which = (i + round) % INNER;

			sge[i] = (struct ibv_sge) { 16 + which, 2 * (16 + which),
						    inner[which]->lkey };
		}
		next(self, 10);
		mlx5dv_wr_mr_list(self->mqp, self->mkey, IBV_ACCESS_LOCAL_WRITE, INNER, sge);
		add_write(self, 11, 2 * (16 + 17 + 18), 200 * round);
		ASSERT_EQ(0, ibv_wr_complete(self->qpx));
		for (i = 0; i < INNER && !round; i++)
			EXPECT_EQ(MLX5DV_WC_UMR, completed(self, i));
		ASSERT_EQ(MLX5DV_WC_UMR, completed(self, 10));
		ASSERT_EQ(IBV_WC_RDMA_WRITE, completed(self, 11));
		i = (INNER - 1 + round) % INNER;
		ASSERT_TRUE(arrived(self, 200 * round + 101,
				    self->src[2000 * i + 2 * (64 + i) + 15 + i]));
		for (i = 0, at = 200 * round; i < INNER; i++) {
			unsigned int which = (i + round) % INNER, bytes = 16 + which;

			for (row = 1; row <= 2; row++, at += bytes)
				EXPECT_EQ(0, memcmp(self->dst + at, self->src + 2000 * which +
						    row * (bytes + 48), bytes));
		}
		EXPECT_EQ(0xee, self->dst[at]);
	}
	EXPECT_EQ(0, mlx5dv_destroy_mkey(self->mkey));
	self->mkey = NULL;
	for (i = 0; i < INNER; i++)
		EXPECT_EQ(0, mlx5dv_destroy_mkey(inner[i]));
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

/*
 * MLX5_SCATTER_TO_CQE and the flags of a queue pair for scatter to CQE change nothing: a message is
 * in its receive buffer before its completion is polled, and polling writes to no buffer.
 */
TEST_F(mlx5dv, no_scatter_to_cqe)
{
	static const struct {
		const char *variable;	/* NULL: unset */
		uint32_t flags;
	} ways[] = {
		{ NULL, 0 },
		{ NULL, MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE },
		{ NULL, MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE },
		{ "0", 0 },
		{ "1", MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE },
	};
	/* a CQE of mlx5 has room for 32 or 64 bytes */
	static const uint32_t lengths[] = { 1, 31, 32, 33, 64, 65 };
	struct mkt_wr send = {
		.op = MKT_SEND,
		.sge = { { (uintptr_t)self->dst, 0, self->dst_mr->lkey } },
		.num_sge = 1,
	};
	struct mkt_qp *end = &self->pair.end[0];
	unsigned int w, l;
	struct ibv_wc wc;

	if (variant->type != IBV_QPT_RC)
		SKIP(return, "on UC a sender does not learn of the arrival");
	for (w = 0; w < ARRAY_SIZE(ways); w++) {
		struct mlx5dv_qp_init_attr own = {
			.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
			.create_flags = ways[w].flags,
		};

		if (ways[w].variable)
			ASSERT_EQ(0, setenv("MLX5_SCATTER_TO_CQE", ways[w].variable, 1));
		ASSERT_EQ(0, ibv_destroy_qp(end->qp));
		end->qp = create_qp(&self->dev[0], end->cq, variant->type, &own, 0);
		ASSERT_NE(NULL, end->qp);
		ASSERT_EQ(0, mkt_pair_recover(&self->pair));
		for (l = 0; l < ARRAY_SIZE(lengths); l++) {
			uint32_t length = lengths[l];
			struct ibv_sge sge = range(self, 0, length);

			memset(self->src, 0, SIZE);
			ASSERT_EQ(0, mkt_post_recv(end, &sge, 1, 2));
			send.sge[0].length = length;
			ASSERT_EQ(0, mkt_post_send(&self->pair.end[1], &send, 1));
			ASSERT_EQ(0, mkt_poll(&self->pair.end[1], &wc));
			ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
			EXPECT_EQ(0, memcmp(self->src, self->dst, length));
			EXPECT_EQ(0, self->src[length]);
			memset(self->src, 0x55, SIZE);
			ASSERT_EQ(0, mkt_poll(end, &wc));
			EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
			EXPECT_EQ(2, wc.wr_id);
			EXPECT_EQ(length, wc.byte_len);
			EXPECT_EQ(0x55, self->src[0]);
			EXPECT_EQ(0, memcmp(self->src, self->src + 1, SIZE - 1));
		}
	}
	unsetenv("MLX5_SCATTER_TO_CQE");
}

/* The context of a program of which a document shows a part: see below. */
struct program {
	struct ibv_qp_ex *qpx;
};

/* Adds what that part leaves out: a protection domain, a CQ, and the connection to side 1. */
static struct ibv_qp *create_connected(FIXTURE_DATA(mlx5dv) *self, enum ibv_qp_type type,
				       struct program *ctx, struct ibv_context *context,
				       struct ibv_qp_init_attr_ex *attr,
				       struct mlx5dv_qp_init_attr *own)
{
	struct mkt_qp *end = &self->pair.end[0];

	if (ibv_destroy_qp(end->qp))
		return NULL;
	attr->comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr->pd = self->dev[0].pd;
	attr->qp_type = type;
	attr->send_cq = end->cq;
	attr->recv_cq = end->cq;
	attr->cap.max_send_wr = DEPTH;
	attr->cap.max_send_sge = 1;
	end->qp = mlx5dv_create_qp(context, attr, own);
	if (!end->qp || mkt_pair_recover(&self->pair))
		return NULL;
	ctx->qpx = ibv_qp_to_qp_ex(end->qp);
	return end->qp;
}

/*
 * The part of a program by which the vendor's documentation shows UMR, as printed. It sets wr_flags
 * before ibv_wr_start().
 */
#define mlx5dv_create_qp(context, attr, own) \
	create_connected(self, variant->type, ctx, context, attr, own)

TEST_F(mlx5dv, program_of_the_documentation)
{
	const int access_flags = IBV_ACCESS_LOCAL_WRITE;
	struct ibv_context *context = self->dev[0].ctx;
	struct ibv_pd *pd = self->dev[0].pd;
	struct ibv_sge room = { (uintptr_t)self->dst, SIZE, self->dst_mr->lkey };
	struct program program, *ctx = &program;
	struct ibv_mr *mr = self->src_mr;
	struct ibv_wc wc;
	int ret;

#include "umr_snippet.inc"

	ASSERT_EQ(0, ret);
	EXPECT_EQ(MLX5DV_WC_UMR, completed(self, qpx->wr_id));
	ASSERT_EQ(0, mkt_post_recv(&self->pair.end[1], &room, 1, 1));
	ibv_wr_start(qpx);
	qpx->wr_id = 2;
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qpx);
	ibv_wr_set_sge(qpx, dv_mkey->lkey, 0, 2 * 2038);
	ASSERT_EQ(0, ibv_wr_complete(qpx));
	EXPECT_EQ(IBV_WC_SEND, completed(self, 2));
	ASSERT_EQ(0, mkt_poll(&self->pair.end[1], &wc));
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(2 * 2038, wc.byte_len);
	/* 2038 bytes, a gap of 10, and 2038 bytes */
	EXPECT_EQ(0, memcmp(self->dst, self->src, 2038));
	EXPECT_EQ(0, memcmp(self->dst + 2038, self->src + 2048, 2038));
	EXPECT_EQ(0xee, self->dst[2 * 2038]);
	EXPECT_EQ(0, mlx5dv_destroy_mkey(dv_mkey));
	free(array_interleaved);
}

TEST_HARNESS_MAIN
