// SPDX-License-Identifier: GPL-2.0
/*
 * Ordinary MRs for fast registration of a kernel user, for tests. The module loads only if
 * each request had the status that it must have. It needs no ib_mkey.
 */

#include <linux/module.h>
#include <linux/slab.h>

#include "mkey_reg_chain.c"
#include "mkey_ulp_client.c"
#include "mkey_ulp_link.c"

#define ACCESS (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ)

static char *device = "rxe0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "RDMA device");

static char *peer = "rxe1";
module_param(peer, charp, 0444);
MODULE_PARM_DESC(peer, "RDMA device of the other side");

/* The MR is deregistered while the request is in the send queue. */
static int deregistered(struct ulp_side *side, struct ib_mr **mr)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_SQD };
	struct reg_chain reg = {}, inv = {};
	struct ib_wc wc;

	reg_bind(&reg, *mr, (*mr)->rkey, ACCESS);
	reg_inv(&inv, (*mr)->rkey);
	/* The queue does not run. */
	expect_is(ib_modify_qp(side->qp, &attr, IB_QP_STATE), 0);
	expect_is(reg_post(side, &reg), 0);
	msleep(100);
	expect_is(ib_poll_cq(side->cq, 1, &wc), 0);
	expect_is(ib_dereg_mr(*mr), 0);
	*mr = NULL;
	attr.qp_state = IB_QPS_RTS;
	expect_is(ib_modify_qp(side->qp, &attr, IB_QP_STATE), 0);
	/* This lets the queue run. */
	expect_is(reg_post(side, &inv), 0);
	expect_is(reg_wait(side, &reg), 0);
	expect_is(reg.status[0], IB_WC_LOC_QP_OP_ERR);
	expect_is(reg_wait(side, &inv), 0);
	expect_is(inv.status[0], IB_WC_WR_FLUSH_ERR);

	return 0;
}

/* Registers an MR and invalidates it, twice, by @side's queue pair of any type. */
static int twice(struct ulp_side *side, struct ib_mr *mr)
{
	struct reg_chain chain = {};
	int i;

	for (i = 0; i < 2; i++) {
		reg_bind(&chain, mr, mr->rkey, ACCESS);
		reg_inv(&chain, mr->rkey);
	}
	expect_is(reg_run(side, &chain), 0);
	for (i = 0; i < chain.length; i++)
		expect_is(chain.status[i], IB_WC_SUCCESS);

	return 0;
}

/* The request names the MR and has another MR's key. */
static int other_key(struct ulp_side *side, struct ib_mr *mr, struct ib_mr *other)
{
	struct reg_chain chain = {};

	reg_bind(&chain, mr, other->rkey, ACCESS);
	expect_is(reg_run(side, &chain), 0);
	expect_is(chain.status[0], IB_WC_LOC_QP_OP_ERR);

	return 0;
}

/*
 * uc_connect() - connect a new UC queue pair
 * @qp: the queue pair
 * @peer: any queue pair of the same type
 *
 * Return: 0 or a negative errno.
 */
static int uc_connect(struct ib_qp *qp, struct ib_qp *peer)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT, .port_num = ULP_PORT };
	union ib_gid gid;
	int index, ret;

	index = ulp_gid(peer->device, &gid);
	if (index < 0)
		return index;
	ret = ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT |
				      IB_QP_ACCESS_FLAGS);
	if (ret)
		return ret;
	attr.qp_state = IB_QPS_RTR;
	attr.path_mtu = IB_MTU_1024;
	attr.dest_qp_num = peer->qp_num;
	attr.ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_port_num(&attr.ah_attr, ULP_PORT);
	rdma_ah_set_grh(&attr.ah_attr, &gid, 0, index, 64, 0);
	ret = ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU |
				      IB_QP_DEST_QPN | IB_QP_RQ_PSN);
	if (ret)
		return ret;
	attr.qp_state = IB_QPS_RTS;
	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN);
}

static int unreliable(struct ulp_side *side, struct ib_mr *mr)
{
	struct ib_qp_init_attr init = {
		.cap = {
			.max_send_wr = 4,
			.max_recv_wr = 4,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.qp_type = IB_QPT_UC,
		.port_num = 1,
		.send_cq = side->cq,
		.recv_cq = side->cq,
	};
	struct ulp_side uc = *side;
	struct ib_qp *qp = ib_create_qp(side->pd, &init);
	int ret;

	if (IS_ERR(qp))
		return PTR_ERR(qp);
	uc.qp = qp;
	ret = uc_connect(qp, qp) ?: twice(&uc, mr);
	ib_destroy_qp(qp);

	return ret;
}

static int steps(struct ulp_link *link)
{
	struct ulp_side *side = &link->side[0];
	struct ib_mr *mr[3];
	int i, ret = 0;

	for (i = 0; i < 3; i++) {
		mr[i] = ib_alloc_mr(side->pd, IB_MR_TYPE_MEM_REG, 1);
		if (IS_ERR(mr[i]))
			ret = PTR_ERR(mr[i]);
	}
	ret = ret ?: twice(side, mr[0]) ?: other_key(side, mr[0], mr[1]) ?:
	      ulp_link_connect(link) ?: deregistered(side, &mr[2]) ?: unreliable(side, mr[0]);
	for (i = 0; i < 3; i++)
		if (!IS_ERR_OR_NULL(mr[i]))
			ib_dereg_mr(mr[i]);

	return ret;
}

static int stock_reg(struct ib_device *devices[2])
{
	struct ulp_link link;
	int ret;

	ret = ulp_link_open(&link, devices);
	if (ret)
		return ret;
	ret = steps(&link);
	ulp_link_close(&link);

	return ret;
}

static int __init stock_reg_init(void)
{
	return ulp_client_run("stock_reg", device, peer, stock_reg);
}
module_init(stock_reg_init);

static void __exit stock_reg_exit(void)
{
}
module_exit(stock_reg_exit);

MODULE_DESCRIPTION("Test of a kernel user of fast registration");
MODULE_LICENSE("GPL");
