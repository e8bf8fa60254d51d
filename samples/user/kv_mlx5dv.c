// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sends blocks of one KV cache to another by mkeys of mlx5dv, with the libmlx5 of rdma-core on a
 * ConnectX, or with that of ib_mkey on rxe. A cache has layers with their own MRs. The first mkey
 * of a side is a view of its cache: one interleaved layout, in which each cache block is
 * contiguous. The second one has a list of blocks of the view.
 *
 * usage: kv_mlx5dv [DEVICE]
 */
#include <err.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/mlx5dv.h>

#include "rc.h"

#define LAYERS 8
#define WIDTH 800		/* bytes of a piece; a ConnectX has a field of 16 bits for it */
#define BLOCKS 1000
#define BLOCK (LAYERS * WIDTH)
#define LIST 16			/* number of blocks that one request sends */

struct side {
	struct rc_conn conn;
	struct ibv_mr *layer[LAYERS];
	struct mlx5dv_mkey *view, *list;
};

static uint8_t memory[2][LAYERS][BLOCKS][WIDTH];

static void create_queue(struct side *side, struct rc_dev *dev, const char *what)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_send_sge = 1, .max_inline_data = 512 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
		.pd = dev->pd,
	};
	struct mlx5dv_qp_init_attr own = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED,
	};
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	rc_create(&side->conn, dev, what);
	if (ibv_destroy_qp(side->conn.qp))
		err(1, "ibv_destroy_qp");
	attr.send_cq = side->conn.cq;
	attr.recv_cq = side->conn.cq;
	side->conn.qp = mlx5dv_create_qp(dev->ctx, &attr, &own);
	if (!side->conn.qp)
		err(1, "mlx5dv_create_qp");
	if (ibv_modify_qp(side->conn.qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			  IBV_QP_ACCESS_FLAGS))
		err(1, "ibv_modify_qp");
}

static struct mlx5dv_mkey *create_mkey(struct rc_dev *dev, uint16_t entries)
{
	struct mlx5dv_mkey_init_attr attr = {
		.pd = dev->pd,
		.max_entries = entries,
		.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT,
	};
	struct mlx5dv_mkey *mkey = mlx5dv_create_mkey(&attr);

	if (!mkey)
		err(1, "mlx5dv_create_mkey");
	return mkey;
}

/* Configures both mkeys of a side by its own queue: the view, and then the list of @blocks. */
static void configure(struct side *side, uint32_t access, const uint32_t *blocks)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(side->conn.qp);
	struct mlx5dv_qp_ex *mqp = mlx5dv_qp_ex_from_ibv_qp_ex(qp);
	struct mlx5dv_mr_interleaved pieces[LAYERS];
	struct ibv_sge list[LIST];
	int ret;

	for (int l = 0; l < LAYERS; l++)
		pieces[l] = (struct mlx5dv_mr_interleaved) {
			(uintptr_t)side->layer[l]->addr, WIDTH, 0, side->layer[l]->lkey
		};
	for (int i = 0; i < LIST; i++)
		list[i] = (struct ibv_sge) { (uint64_t)blocks[i] * BLOCK, BLOCK, side->view->lkey };
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
	mlx5dv_wr_mr_interleaved(mqp, side->view, access, BLOCKS, LAYERS, pieces);
	mlx5dv_wr_mr_list(mqp, side->list, access, LIST, list);
	ret = ibv_wr_complete(qp);
	if (ret)
		die(ret, "ibv_wr_complete");
	rc_wait(&side->conn);
	rc_wait(&side->conn);
}

int main(int argc, char **argv)
{
	const uint32_t remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	uint32_t blocks[2][LIST];
	struct side side[2] = {};
	struct rc_addr addr[2];
	struct rc_dev dev;

	rc_open(&dev, argc > 1 ? argv[1] : NULL);
	for (size_t i = 0; i < sizeof(memory[0]); i++)
		((uint8_t *)memory[0])[i] = (i * 2654435761u >> 13) | 1;
	for (int s = 0; s < 2; s++) {
		create_queue(&side[s], &dev, s ? "far" : "near");
		addr[s] = rc_address(&side[s].conn, &dev);
		for (int l = 0; l < LAYERS; l++)
			side[s].layer[l] = rc_reg(&dev, memory[s][l], sizeof(memory[s][l]), remote);
		side[s].view = create_mkey(&dev, LAYERS + 1);
		side[s].list = create_mkey(&dev, LIST);
		for (int i = 0; i < LIST; i++)
			blocks[s][i] = (i * (s ? 617 : 389) + 5) % BLOCKS;
	}
	for (int s = 0; s < 2; s++) {
		rc_connect(&side[s].conn, &dev, &addr[!s]);
		configure(&side[s], remote, blocks[s]);
	}

	struct ibv_sge all = { 0, LIST * BLOCK, side[0].list->lkey };

	rc_transfer(&side[0].conn, IBV_WR_RDMA_WRITE, all, 0, side[1].list->rkey);
	for (int l = 0; l < LAYERS; l++)
		for (int i = 0; i < LIST; i++)
			if (memcmp(memory[1][l][blocks[1][i]], memory[0][l][blocks[0][i]], WIDTH))
				errx(1, "block %d of layer %d is wrong", i, l);

	for (int s = 0; s < 2; s++) {
		if (mlx5dv_destroy_mkey(side[s].list) || mlx5dv_destroy_mkey(side[s].view))
			errx(1, "mlx5dv_destroy_mkey");
		for (int l = 0; l < LAYERS; l++)
			rc_dereg(side[s].layer[l]);
		rc_destroy(&side[s].conn);
	}
	rc_close(&dev);
	printf("%d pieces of %d bytes in one write\n", LIST * LAYERS, WIDTH);
	return 0;
}
