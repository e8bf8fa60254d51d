// SPDX-License-Identifier: GPL-2.0

#include "mkey_ulp_link.c"
#include "stock_reg.h"

/**
 * stock_uc_connect() - connect a new UC queue pair
 * @qp: the queue pair
 * @peer: any queue pair of the same type
 *
 * Return: 0 or a negative errno.
 */
int stock_uc_connect(struct ib_qp *qp, struct ib_qp *peer)
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
