// SPDX-License-Identifier: GPL-2.0
/* Queue pairs and their connection. */
#include <errno.h>
#include <string.h>

#include "mkey_test.h"

#define MKT_QP_OPS (IBV_QP_EX_WITH_RDMA_WRITE | \
		    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | \
		    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | \
		    IBV_QP_EX_WITH_RDMA_READ | \
		    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | \
		    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | \
		    IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH | \
		    IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV)

int mkt_qp_create(struct mkt_qp *qp, struct mkt_dev *dev, unsigned int flags)
{
	struct ibv_srq_init_attr srq_attr = {
		.attr = { .max_wr = MKT_DEPTH, .max_sge = MKT_MAX_SGE },
	};
	struct ibv_qp_init_attr_ex attr = {
		.cap = {
			.max_send_wr = MKT_DEPTH,
			.max_recv_wr = MKT_DEPTH,
			.max_send_sge = MKT_MAX_SGE,
			.max_recv_sge = MKT_MAX_SGE,
		},
		.qp_type = flags & MKT_QP_UD ? IBV_QPT_UD :
			   flags & MKT_QP_UC ? IBV_QPT_UC : IBV_QPT_RC,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = dev->pd,
	};
	int err;

	memset(qp, 0, sizeof(*qp));
	qp->dev = dev;
	qp->flags = flags;
	qp->cq = ibv_create_cq(dev->ctx, 4 * MKT_DEPTH, NULL, NULL, 0);
	if (!qp->cq)
		goto err_out;
	if (flags & MKT_QP_SRQ) {
		qp->srq = ibv_create_srq(dev->pd, &srq_attr);
		if (!qp->srq)
			goto err_out;
	}

	attr.send_cq = qp->cq;
	attr.recv_cq = qp->cq;
	attr.srq = qp->srq;
	if (attr.qp_type == IBV_QPT_RC) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = MKT_QP_OPS;
	}
	qp->qp = ibv_create_qp_ex(dev->ctx, &attr);
	if (!qp->qp)
		goto err_out;
	qp->psn = (0x4b0000 + qp->qp->qp_num * 7919) & 0xffffff;
	return 0;

err_out:
	err = errno;
	mkt_diag("%s: no queue pair: %s", dev->name, strerror(err));
	mkt_qp_destroy(qp);
	return err;
}

void mkt_qp_destroy(struct mkt_qp *qp)
{
	if (qp->ah)
		ibv_destroy_ah(qp->ah);
	if (qp->qp)
		ibv_destroy_qp(qp->qp);
	if (qp->srq)
		ibv_destroy_srq(qp->srq);
	if (qp->cq)
		ibv_destroy_cq(qp->cq);
	qp->ah = NULL;
	qp->qp = NULL;
	qp->srq = NULL;
	qp->cq = NULL;
}

void mkt_qp_self(const struct mkt_qp *qp, struct mkt_peer *self)
{
	self->gid = qp->dev->gid;
	self->qp_num = qp->qp->qp_num;
	self->psn = qp->psn;
}

static int mkt_ud_connect(struct mkt_qp *qp, struct ibv_ah_attr *ah)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = MKT_QKEY,
	};
	int err;

	err = ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			    IBV_QP_PORT | IBV_QP_QKEY);
	if (err)
		return err;
	attr.qp_state = IBV_QPS_RTR;
	err = ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE);
	if (err)
		return err;
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = qp->psn;
	err = ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	if (err)
		return err;

	if (!qp->ah)
		qp->ah = ibv_create_ah(qp->dev->pd, ah);
	return qp->ah ? 0 : errno;
}

/* connects RC and UC */
static int mkt_rc_connect(struct mkt_qp *qp, struct ibv_ah_attr *ah,
			  enum ibv_mtu mtu)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = MKT_ACCESS_ALL | IBV_ACCESS_FLUSH_GLOBAL |
				   IBV_ACCESS_FLUSH_PERSISTENT,
	};
	bool rc = qp->qp->qp_type == IBV_QPT_RC;
	int err;

	err = ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (err)
		return err;

	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = mtu;
	attr.dest_qp_num = qp->peer.qp_num;
	attr.rq_psn = qp->peer.psn;
	attr.max_dest_rd_atomic = 16;
	attr.min_rnr_timer = 12;
	attr.ah_attr = *ah;
	err = ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE | IBV_QP_AV |
			    IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    (rc ? IBV_QP_MAX_DEST_RD_ATOMIC |
				  IBV_QP_MIN_RNR_TIMER : 0));
	if (err)
		return err;

	/*
	 * Packets get lost only if a test wants that. On a busy machine a
	 * response can take many seconds, and a READ that is sent again runs
	 * again with the layout that is bound then. So the timeout is 17
	 * seconds, or infinite for the patient. To rxe, a retry count of 7 is
	 * infinite. Where packets do get lost the timeout is a quarter of a
	 * second: if responses take longer than that, requests are sent again
	 * faster than they are served.
	 */
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = qp->flags & MKT_QP_LOSSY ? 16 :
		       qp->flags & MKT_QP_BRIEF ? 19 :
		       qp->flags & MKT_QP_PATIENT ? 0 : 22;
	attr.retry_cnt = qp->flags & MKT_QP_BRIEF ? 6 : 7;
	attr.rnr_retry = 7;
	attr.sq_psn = qp->psn;
	attr.max_rd_atomic = 16;
	return ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
			     (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				   IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC :
				   0));
}

int mkt_qp_connect(struct mkt_qp *qp, const struct mkt_peer *peer,
		   enum ibv_mtu mtu)
{
	struct ibv_ah_attr ah = {
		.is_global = 1,
		.port_num = 1,
		.grh = {
			.dgid = peer->gid,
			.sgid_index = qp->dev->gid_index,
			.hop_limit = 64,
		},
	};
	int err;

	qp->peer = *peer;
	if (qp->qp->qp_type == IBV_QPT_UD)
		err = mkt_ud_connect(qp, &ah);
	else
		err = mkt_rc_connect(qp, &ah, mtu);
	if (err)
		mkt_diag("%s: cannot connect: %s", qp->dev->name,
			 strerror(err));
	return err;
}

int mkt_pair_connect(struct mkt_pair *pair)
{
	struct mkt_peer self[2];
	unsigned int i;
	int err = 0;

	for (i = 0; i < 2; i++)
		mkt_qp_self(&pair->end[i], &self[i]);
	for (i = 0; i < 2 && !err; i++)
		err = mkt_qp_connect(&pair->end[i], &self[!i], pair->mtu);
	return err;
}

int mkt_pair_create(struct mkt_pair *pair, struct mkt_dev *dev0,
		    struct mkt_dev *dev1, enum ibv_mtu mtu, unsigned int flags)
{
	int err;

	memset(pair, 0, sizeof(*pair));
	pair->mtu = mtu;
	err = mkt_qp_create(&pair->end[0], dev0, flags);
	if (err)
		return err;
	err = mkt_qp_create(&pair->end[1], dev1, flags);
	if (!err)
		err = mkt_pair_connect(pair);
	if (err)
		mkt_pair_destroy(pair);
	return err;
}

int mkt_qp_state(struct mkt_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE);
}

int mkt_pair_recover(struct mkt_pair *pair)
{
	struct ibv_wc wc;
	unsigned int i;
	int err;

	for (i = 0; i < 2; i++) {
		err = mkt_qp_state(&pair->end[i], IBV_QPS_RESET);
		if (err) {
			mkt_diag("%s: no reset: %s", pair->end[i].dev->name, strerror(err));
			return err;
		}
	}
	for (i = 0; i < 2; i++) {
		while (ibv_poll_cq(pair->end[i].cq, 1, &wc) > 0)
			;
		/* packets of the time before may still be on their way */
		pair->end[i].psn = (pair->end[i].psn + 0x10000) & 0xffffff;
	}
	return mkt_pair_connect(pair);
}

void mkt_pair_destroy(struct mkt_pair *pair)
{
	mkt_qp_destroy(&pair->end[0]);
	mkt_qp_destroy(&pair->end[1]);
}
