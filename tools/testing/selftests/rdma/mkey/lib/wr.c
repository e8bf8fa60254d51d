// SPDX-License-Identifier: GPL-2.0
/* Work requests of every opcode, and their completions. */
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "mkey_test.h"

const char *mkt_op_name(enum mkt_op op)
{
	static const char *const names[] = {
		[MKT_SEND] = "SEND",
		[MKT_SEND_IMM] = "SEND_WITH_IMM",
		[MKT_WRITE] = "RDMA_WRITE",
		[MKT_WRITE_IMM] = "RDMA_WRITE_WITH_IMM",
		[MKT_READ] = "RDMA_READ",
		[MKT_FETCH_ADD] = "FETCH_ADD",
		[MKT_CMP_SWAP] = "CMP_SWAP",
		[MKT_ATOMIC_WRITE] = "ATOMIC_WRITE",
		[MKT_FLUSH] = "FLUSH",
		[MKT_SEND_INV] = "SEND_WITH_INV",
		[MKT_LOCAL_INV] = "LOCAL_INV",
	};

	return names[op];
}

/* the older interface cannot post these two */
static int mkt_post_extended(struct mkt_qp *qp, const struct mkt_wr *wr,
			     uint64_t wr_id)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp->qp);

	if (!ex)
		return EOPNOTSUPP;
	ibv_wr_start(ex);
	ex->wr_id = wr_id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	if (wr->op == MKT_FLUSH)
		ibv_wr_flush(ex, wr->rkey, wr->remote_addr, wr->flush_length,
			     wr->persistent ? IBV_FLUSH_PERSISTENT :
					      IBV_FLUSH_GLOBAL,
			     wr->whole ? IBV_FLUSH_MR : IBV_FLUSH_RANGE);
	else
		ibv_wr_atomic_write(ex, wr->rkey, wr->remote_addr,
				    &wr->swap_add);
	return ibv_wr_complete(ex);
}

int mkt_post_send(struct mkt_qp *qp, const struct mkt_wr *wr, uint64_t wr_id)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[MKT_SEND] = IBV_WR_SEND,
		[MKT_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
		[MKT_WRITE] = IBV_WR_RDMA_WRITE,
		[MKT_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
		[MKT_READ] = IBV_WR_RDMA_READ,
		[MKT_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
		[MKT_CMP_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
		[MKT_SEND_INV] = IBV_WR_SEND_WITH_INV,
		[MKT_LOCAL_INV] = IBV_WR_LOCAL_INV,
	};
	struct ibv_send_wr *bad, send = {
		.wr_id = wr_id,
		.sg_list = (struct ibv_sge *)wr->sge,
		.num_sge = wr->num_sge,
		.send_flags = IBV_SEND_SIGNALED,
	};

	switch (wr->op) {
	case MKT_FLUSH:
	case MKT_ATOMIC_WRITE:
		return mkt_post_extended(qp, wr, wr_id);
	case MKT_FETCH_ADD:
	case MKT_CMP_SWAP:
		send.wr.atomic.remote_addr = wr->remote_addr;
		send.wr.atomic.rkey = wr->rkey;
		send.wr.atomic.compare_add = wr->op == MKT_CMP_SWAP ?
					     wr->compare : wr->swap_add;
		send.wr.atomic.swap = wr->swap_add;
		break;
	case MKT_SEND_INV:
	case MKT_LOCAL_INV:
		send.invalidate_rkey = wr->rkey;
		break;
	default:
		send.imm_data = htonl(wr->imm);
		send.wr.rdma.remote_addr = wr->remote_addr;
		send.wr.rdma.rkey = wr->rkey;
	}
	if (qp->qp->qp_type == IBV_QPT_UD) {
		send.wr.ud.ah = qp->ah;
		send.wr.ud.remote_qpn = qp->peer.qp_num;
		send.wr.ud.remote_qkey = MKT_QKEY;
	}
	send.opcode = opcodes[wr->op];
	return ibv_post_send(qp->qp, &send, &bad);
}

int mkt_post_recv(struct mkt_qp *qp, const struct ibv_sge *sge, int num_sge,
		  uint64_t wr_id)
{
	struct ibv_recv_wr *bad, recv = {
		.wr_id = wr_id,
		.sg_list = (struct ibv_sge *)sge,
		.num_sge = num_sge,
	};

	if (qp->srq)
		return ibv_post_srq_recv(qp->srq, &recv, &bad);
	return ibv_post_recv(qp->qp, &recv, &bad);
}

struct ibv_send_wr mkt_window_wr(struct ibv_mw *mw, struct ibv_mr *mr, uint64_t addr,
				 uint64_t length, unsigned int access)
{
	return (struct ibv_send_wr) {
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = mw,
			.rkey = mw->rkey,
			.bind_info = {
				.mr = mr,
				.addr = addr,
				.length = length,
				.mw_access_flags = access,
			},
		},
	};
}

int mkt_bind_window(struct mkt_qp *qp, struct ibv_mw *mw, struct ibv_mr *mr,
		    uint64_t addr, uint64_t length, unsigned int access)
{
	struct ibv_send_wr *bad, wr = mkt_window_wr(mw, mr, addr, length, access);
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = wr.bind_mw.bind_info,
	};
	struct ibv_wc wc;
	int err;

	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	if (mw->type == IBV_MW_TYPE_1)
		err = ibv_bind_mw(qp->qp, mw, &bind);
	else
		err = ibv_post_send(qp->qp, &wr, &bad);
	if (!err)
		err = mkt_poll(qp, &wc);
	if (err)
		return err;
	if (wc.status != IBV_WC_SUCCESS)
		return EIO;
	if (mw->type == IBV_MW_TYPE_2)
		mw->rkey = wr.bind_mw.rkey;
	return 0;
}

int mkt_poll(struct mkt_qp *qp, struct ibv_wc *wc)
{
	double end = 0;
	unsigned int spins;
	int n;

	for (spins = 0;; spins++) {
		n = ibv_poll_cq(qp->cq, 1, wc);
		if (n < 0) {
			mkt_diag("%s: completion queue is broken",
				 qp->dev->name);
			return EIO;
		}
		if (n) {
			mkt_alive();
			return 0;
		}
		if (spins < 200) {
			sched_yield();
			continue;
		}
		if (!end)
			end = mkt_seconds() + MKT_STALL_SECONDS;
		else if (mkt_seconds() > end)
			break;
		/* sleep longer for slow events such as a retransmission */
		usleep(spins < 300 ? 100 : 1000);
	}
	mkt_diag("%s: nothing completes on queue pair %u", qp->dev->name,
		 qp->qp->qp_num);
	return ETIMEDOUT;
}

static int mkt_poll_recv(struct mkt_qp *qp, struct mkt_result *result)
{
	struct ibv_wc wc;
	int err;

	err = mkt_poll(qp, &wc);
	if (err)
		return err;
	result->received = true;
	result->recv_status = wc.status;
	result->byte_len = wc.byte_len;
	if (wc.status == IBV_WC_SUCCESS && wc.wc_flags & IBV_WC_WITH_IMM)
		result->imm = ntohl(wc.imm_data);
	return 0;
}

/*
 * UC does not acknowledge a WRITE, but a message that is sent after it arrives
 * after it.
 */
static int mkt_uc_fence(struct mkt_qp *self, struct mkt_qp *peer)
{
	struct mkt_wr nothing = { .op = MKT_SEND };
	struct ibv_wc wc;
	int err;

	err = mkt_post_recv(peer, NULL, 0, 3);
	if (!err)
		err = mkt_post_send(self, &nothing, 3);
	if (!err)
		err = mkt_poll(self, &wc);
	return err ?: mkt_poll(peer, &wc);
}

int mkt_exec(struct mkt_pair *pair, unsigned int side, const struct mkt_wr *wr,
	     const struct mkt_wr *recv, struct mkt_result *result)
{
	struct mkt_qp *self = &pair->end[side], *peer = &pair->end[!side];
	struct ibv_wc wc;
	int err = 0;

	memset(result, 0, sizeof(*result));
	if (recv)
		err = mkt_post_recv(peer, recv->sge, recv->num_sge, 2);
	if (!err)
		err = mkt_post_send(self, wr, 1);
	if (err) {
		mkt_diag("%s cannot be posted: %s", mkt_op_name(wr->op),
			 strerror(err));
		return err;
	}
	err = mkt_poll(self, &wc);
	if (err)
		return err;
	result->status = wc.status;
	if (self->qp->qp_type == IBV_QPT_UC && wr->op == MKT_WRITE &&
	    wc.status == IBV_WC_SUCCESS)
		return mkt_uc_fence(self, peer);
	if (!recv)
		return 0;

	/*
	 * A request that the responder refuses completes its receive with an
	 * error. A request that fails before it is sent does not reach the
	 * responder.
	 */
	switch (wc.status) {
	case IBV_WC_SUCCESS:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
		return mkt_poll_recv(peer, result);
	default:
		return 0;
	}
}

int mkt_status(struct mkt_pair *pair, unsigned int side,
	       const struct mkt_wr *wr)
{
	struct mkt_result result;

	if (mkt_exec(pair, side, wr, NULL, &result))
		return -1;
	return result.status;
}
