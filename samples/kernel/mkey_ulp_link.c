// SPDX-License-Identifier: GPL-2.0
/*
 * A reliable queue pair on each of two devices, connected to each other, without
 * a connection manager. Nothing in this file is specific to keys.
 */

#include <linux/delay.h>
#include <rdma/ib_cache.h>

#include "mkey_ulp.h"

#define ULP_PORT 1
#define ULP_DEPTH 16

/*
 * The newest GID belongs to the address that was last assigned to the interface.
 */
static int ulp_gid(struct ib_device *device, union ib_gid *gid)
{
	const struct ib_gid_attr *attr;
	int index, found = -ENOENT;

	for (index = 0; index < device->port_data[ULP_PORT].immutable.gid_tbl_len; index++) {
		attr = rdma_get_gid_attr(device, ULP_PORT, index);
		if (IS_ERR(attr))
			continue;
		*gid = attr->gid;
		found = index;
		rdma_put_gid_attr(attr);
	}

	return found;
}

static int ulp_modify(struct ib_qp *qp, u32 dest, union ib_gid *gid, int index)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = ULP_PORT,
		.qp_access_flags = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |
				   IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC,
	};
	int ret;

	ret = ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT |
				      IB_QP_ACCESS_FLAGS);
	if (ret)
		return ret;

	attr.qp_state = IB_QPS_RTR;
	attr.path_mtu = IB_MTU_1024;
	attr.dest_qp_num = dest;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 12;
	attr.ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_port_num(&attr.ah_attr, ULP_PORT);
	rdma_ah_set_grh(&attr.ah_attr, gid, 0, index, 64, 0);
	ret = ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU |
				      IB_QP_DEST_QPN | IB_QP_RQ_PSN |
				      IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER);
	if (ret)
		return ret;

	attr.qp_state = IB_QPS_RTS;
	/* on a busy machine a response may take seconds */
	attr.timeout = 20;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_TIMEOUT | IB_QP_RETRY_CNT |
				       IB_QP_RNR_RETRY | IB_QP_SQ_PSN |
				       IB_QP_MAX_QP_RD_ATOMIC);
}

/*
 * Resets a queue pair. If a request completes with an error, the completion can be polled
 * before the queue pair enters the error state. If it does so after this reset, reset it
 * again.
 */
static int ulp_reset(struct ib_qp *qp)
{
	struct ib_qp_attr reset = { .qp_state = IB_QPS_RESET }, now;
	struct ib_qp_init_attr init;
	int i, ret;

	for (i = 0; i < 3; i++) {
		ret = ib_modify_qp(qp, &reset, IB_QP_STATE);
		if (!ret)
			ret = ib_query_qp(qp, &now, IB_QP_STATE, &init);
		if (ret || now.qp_state == IB_QPS_RESET)
			return ret;
	}

	return -EBUSY;
}

/**
 * ulp_link_connect() - connect the queue pairs, also after an error
 * @link: an open link
 *
 * Return: 0 or a negative errno.
 */
int ulp_link_connect(struct ulp_link *link)
{
	int i, ret, index[2];
	union ib_gid gid[2];

	for (i = 0; i < 2; i++) {
		index[i] = ulp_gid(link->side[i].device, &gid[i]);
		if (index[i] < 0)
			return index[i];
		ret = ulp_reset(link->side[i].qp);
		if (ret)
			return ret;
	}
	for (i = 0; i < 2; i++) {
		ret = ulp_modify(link->side[i].qp, link->side[!i].qp->qp_num,
				 &gid[!i], index[i]);
		if (ret)
			return ret;
	}

	return 0;
}

static void ulp_side_close(struct ulp_side *side)
{
	if (side->qp)
		ib_destroy_qp(side->qp);
	if (side->cq)
		ib_free_cq(side->cq);
	if (side->pd)
		ib_dealloc_pd(side->pd);
}

static int ulp_side_open(struct ulp_side *side, struct ib_device *device)
{
	struct ib_qp_init_attr init = {
		.cap = {
			.max_send_wr = ULP_DEPTH,
			.max_recv_wr = ULP_DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.qp_type = IB_QPT_RC,
		.port_num = ULP_PORT,
	};
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;

	side->device = device;
	pd = ib_alloc_pd(device, 0);
	if (IS_ERR(pd))
		return PTR_ERR(pd);
	side->pd = pd;

	cq = ib_alloc_cq(device, NULL, 2 * ULP_DEPTH, 0, IB_POLL_DIRECT);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	side->cq = cq;

	init.send_cq = cq;
	init.recv_cq = cq;
	qp = ib_create_qp(pd, &init);
	if (IS_ERR(qp))
		return PTR_ERR(qp);
	side->qp = qp;

	return 0;
}

/**
 * ulp_link_open() - make the objects on two devices and connect them
 * @link: filled in
 * @devices: the devices
 *
 * Return: 0 or a negative errno, with nothing left behind.
 */
int ulp_link_open(struct ulp_link *link, struct ib_device *devices[2])
{
	int i, ret = 0;

	memset(link, 0, sizeof(*link));
	for (i = 0; i < 2 && !ret; i++)
		ret = ulp_side_open(&link->side[i], devices[i]);
	if (!ret)
		ret = ulp_link_connect(link);
	if (ret)
		ulp_link_close(link);

	return ret;
}

/**
 * ulp_link_close() - undo ulp_link_open()
 * @link: the link; the MRs in its protection domains must be deregistered
 */
void ulp_link_close(struct ulp_link *link)
{
	ulp_side_close(&link->side[0]);
	ulp_side_close(&link->side[1]);
}

/**
 * ulp_run() - post one work request and wait for it
 * @side: a side of a connected link
 * @wr: the request
 * @status: set to the completion's status
 *
 * Return: 0, -ETIMEDOUT if nothing completes, or the error of posting it.
 */
int ulp_run(struct ulp_side *side, const struct ib_send_wr *wr,
	    enum ib_wc_status *status)
{
	unsigned long end = jiffies + 60 * HZ;
	struct ib_wc wc;
	int ret;

	ret = ib_post_send(side->qp, wr, NULL);
	if (ret)
		return ret;

	while (!ib_poll_cq(side->cq, 1, &wc)) {
		if (time_after(jiffies, end))
			return -ETIMEDOUT;
		usleep_range(50, 100);
	}
	*status = wc.status;

	return 0;
}
