// SPDX-License-Identifier: GPL-2.0
/*
 * Work requests that bind keys, in the task of a send queue. Requests that register or invalidate
 * the elements of an MR for fast registration are executed here, too, because that takes less time
 * than in rxe.
 *
 * A request of a process that binds a key is BIND_MW with the rkey of a key in place of the rkey of
 * a window. A request of a kernel user that binds a key is REG_MR with the MR of a key. The task of
 * a send queue calls rxe_sender() by a pointer. ib_mkey lets that pointer point to sender() below.
 * The functions below execute binds, because rxe
 *
 * - would not wait for earlier requests. It gathers the bytes of a request again when it repeats
 *   the request, and answers to a READ arrive later. A request that rebinds a key therefore waits
 *   until all earlier requests of the queue have completed, as rxe does for LOCAL_INV;
 * - would execute the request again when it repeats an earlier one;
 * - completes a request that it refuses with IB_WC_WR_FLUSH_ERR, as of Linux 7.2.
 *
 * A QP of a process is destroyed before ib_mkey is removed from its device. A QP of a kernel user
 * may be destroyed later, so ib_mkey_rxe_give_binds_back() restores its pointer. No task can
 * therefore call this module after it was unloaded.
 */

#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/workqueue.h>

#include "rxe_hook.h"
#include "rxe_queue.h"
#include "stock.h"

/* The address of rxe_sender(), read from a QP. */
static int (*rxe_sender_pointer)(struct rxe_qp *qp);

/*
 * Returns true if @rkey names an MR of ib_mkey that is bound, in the PD of @qp. The PD is compared
 * so that the time a request takes tells nothing of another process's MR.
 */
static bool is_bound(struct rxe_qp *qp, u32 rkey)
{
	struct rxe_pool_elem *elem;
	struct rxe_mr *mr;
	bool bound;

	rcu_read_lock();
	elem = xa_load(&to_rdev(qp->ibqp.device)->mr_pool.xa, ib_mkey_rxe_index(rkey));
	mr = elem ? elem->obj : NULL;
	bound = mr && READ_ONCE(mr->ibmr.pd) == qp->ibqp.pd &&
		READ_ONCE(mr->ibmr.type) == IB_MR_TYPE_SG_GAPS &&
		READ_ONCE(mr->state) == RXE_MR_STATE_VALID;
	rcu_read_unlock();

	return bound;
}

/* Returns true for an MR of ib_mkey for fast registration. */
static bool has_elements(const struct rxe_mr *mr)
{
	return READ_ONCE(mr->ibmr.type) == IB_MR_TYPE_SG_GAPS &&
	       READ_ONCE(mr->page_shift) == IB_MKEY_RXE_FAST_REG_SHIFT;
}

/* What a kernel user's REG_MR registers. */
enum registered {
	/* an MR of rxe */
	REGISTERED_PLAIN,
	/* the elements of an MR of ib_mkey */
	REGISTERED_ELEMENTS,
	/* a key; or the request does not name the MR that it points to */
	REGISTERED_KEY,
};

/*
 * Returns what the REG_MR @wqe registers. Its MR may be deregistered, so it is not dereferenced
 * before it was found by its index.
 */
static noinline enum registered registered_by(struct rxe_qp *qp, const struct rxe_send_wqe *wqe)
{
	enum registered registered;
	u32 index = ib_mkey_rxe_index(wqe->wr.wr.reg.key);
	struct rxe_pool_elem *elem;
	const struct rxe_mr *mr;

	rcu_read_lock();
	elem = xa_load(&to_rdev(qp->ibqp.device)->mr_pool.xa, index);
	mr = elem ? elem->obj : NULL;
	if (!mr || &mr->ibmr != wqe->wr.wr.reg.mr)
		registered = REGISTERED_KEY;
	else if (READ_ONCE(mr->ibmr.type) != IB_MR_TYPE_SG_GAPS)
		registered = REGISTERED_PLAIN;
	else if (has_elements(mr))
		registered = REGISTERED_ELEMENTS;
	else
		registered = REGISTERED_KEY;
	rcu_read_unlock();

	return registered;
}

static __always_inline bool binds_key(struct rxe_qp *qp, const struct rxe_send_wqe *wqe)
{
	if (!qp->is_user)
		return wqe->wr.opcode == IB_WR_REG_MR &&
		       registered_by(qp, wqe) == REGISTERED_KEY;
	return READ_ONCE(wqe->wr.opcode) == IB_WR_BIND_MW &&
	       !rkey_is_mw(READ_ONCE(wqe->wr.wr.mw.mw_rkey));
}

/* Returns true if a request was posted at @index. */
static __always_inline bool is_posted(struct rxe_queue *queue, u32 index)
{
	return index != queue_get_producer(queue, QUEUE_TYPE_FROM_CLIENT);
}

/*
 * As queue_addr_from_index(). UBSAN adds a check to a shift, and a frame for it, unless the shift
 * is less than 32.
 */
static __always_inline struct rxe_send_wqe *request_at(struct rxe_queue *queue, u32 index)
{
	return (void *)(queue->buf->data +
			((index & queue->index_mask) << (queue->log2_elem_size & 31)));
}

/* Returns the request at @index, or NULL if none was posted. */
static struct rxe_send_wqe *posted_at(struct rxe_queue *queue, u32 index)
{
	return is_posted(queue, index) ? request_at(queue, index) : NULL;
}

/* Returns true if rxe executes requests now: it does not flush them, and is not being drained. */
static bool is_sending(const struct rxe_qp *qp)
{
	return READ_ONCE(qp->attr.qp_state) == IB_QPS_RTS && READ_ONCE(qp->valid);
}

/**
 * ib_mkey_rxe_request_bind() - execute a request that binds a key
 * @qp: the QP
 * @wqe: the request, which a process can write to at any time: each field is read once
 *
 * Return: 0 or an error.
 */
int ib_mkey_rxe_request_bind(struct rxe_qp *qp, struct rxe_send_wqe *wqe)
{
	const struct ib_mkey_rxe_bind_mw bind = {
		.addr = READ_ONCE(wqe->wr.wr.mw.addr),
		.length = READ_ONCE(wqe->wr.wr.mw.length),
		.mr_lkey = READ_ONCE(wqe->wr.wr.mw.mr_lkey),
		.mw_rkey = READ_ONCE(wqe->wr.wr.mw.mw_rkey),
		.rkey = READ_ONCE(wqe->wr.wr.mw.rkey),
		.access = READ_ONCE(wqe->wr.wr.mw.access),
	};
	/* Aligned as the structures of a description. Only bytes that were written are read. */
	u8 data[RXE_MAX_INLINE_DATA] __aligned(8) __uninitialized;
	struct rxe_mr *mr;
	u32 length = 0;
	int ret;

	/*
	 * When rxe repeats earlier requests, it comes to this one again, although it was executed.
	 */
	if (READ_ONCE(wqe->state) == wqe_state_done)
		return 0;
	if (!qp->is_user)
		return -EINVAL;
	if (!bind.length) {
		length = READ_ONCE(wqe->dma.length);
		if (length > sizeof(data) || length > qp->sq.max_inline)
			return -EINVAL;
		memcpy(data, wqe->dma.inline_data, length);
	} else {
		/* A buffer for a short description. Rust must not refer to uninitialized bytes. */
		memset(data, 0, IB_MKEY_RXE_SHORT);
	}
	mr = ib_mkey_rxe_get_mr(qp->ibqp.device, ib_mkey_rxe_index(bind.mw_rkey));
	if (!mr)
		return -EINVAL;
	ret = ib_mkey_rxe_bind_mkey(mr, qp->ibqp.pd, &bind, data, length);
	ib_mkey_rxe_put_mr(mr);

	return ret;
}

/*
 * Executes the REG_MR of a key, for a kernel user. An allocation must not wait for I/O, because it
 * could wait for the I/O that needs this request. If this attempt fails, another one follows unless
 * @is_last is true. Returns -ESTALE if the lkey names another MR than that of the request, or a
 * deregistered one.
 */
static int request_reg(struct rxe_qp *qp, struct rxe_send_wqe *wqe, bool is_last)
{
	u32 key = wqe->wr.wr.reg.key;
	unsigned int flags;
	struct rxe_mr *mr;
	int ret = -ESTALE;

	if (wqe->state == wqe_state_done)
		return 0;
	mr = ib_mkey_rxe_get_mr(qp->ibqp.device, ib_mkey_rxe_index(key));
	if (!mr)
		return ret;
	flags = memalloc_noio_save();
	if (&mr->ibmr == wqe->wr.wr.reg.mr)
		ret = ib_mkey_rxe_reg_mkey(mr, qp->ibqp.pd, key, wqe->wr.wr.reg.access, is_last);
	memalloc_noio_restore(flags);
	ib_mkey_rxe_put_mr(mr);

	return ret;
}

/* Completes @wqe, which was executed with the result @ret. An error completes as @error. */
static noinline void complete_now(struct rxe_qp *qp, struct rxe_send_wqe *wqe, int ret,
				  enum ib_wc_status error)
{
	wqe->status = ret ? error : IB_WC_SUCCESS;
	wqe->state = ret ? wqe_state_error : wqe_state_done;
	qp->req.wqe_index = queue_next_index(qp->sq.queue, qp->req.wqe_index);
	/* The completer completes the request, and changes the state of the QP after an error. */
	stock_completer(qp);
}

/* Executes @wqe if its turn has come. Returns as rxe_sender() does: 0 for another pass. */
static noinline int send_bind(struct rxe_qp *qp, struct rxe_send_wqe *wqe)
{
	struct rxe_queue *queue = qp->sq.queue;
	bool first = qp->req.wqe_index == queue_get_consumer(queue, QUEUE_TYPE_FROM_CLIENT);
	u32 rkey = qp->is_user ? READ_ONCE(wqe->wr.wr.mw.mw_rkey) : wqe->wr.wr.reg.key;
	u32 flags = READ_ONCE(wqe->wr.send_flags);
	bool may = first || READ_ONCE(wqe->state) == wqe_state_done ||
		   (!(flags & IB_SEND_FENCE) && !is_bound(qp, rkey));
	int ret = -EAGAIN;

	if (may)
		ret = qp->is_user ? ib_mkey_rxe_request_bind(qp, wqe) :
				    request_reg(qp, wqe, first);
	if (ret && !first) {
		/* The second attempt is the last one. */
		if (may)
			WRITE_ONCE(wqe->wr.send_flags, flags | IB_SEND_FENCE);
		/* rxe's completer calls for another pass when a request has completed. */
		qp->req.wait_fence = 1;
		return stock_completer(qp);
	}
	complete_now(qp, wqe, ret, ret == -ESTALE ? IB_WC_LOC_QP_OP_ERR : IB_WC_MW_BIND_ERR);

	return 0;
}

/*
 * Executes the REG_MR of an MR of ib_mkey for fast registration, as rxe would: at its turn, while
 * earlier requests may be in progress. Returns false if rxe has to execute the request: a request
 * with a fence, one that was executed before, and one that fails here, which changes nothing.
 */
static bool reg_elements(struct rxe_qp *qp, struct rxe_send_wqe *wqe)
{
	u32 key = wqe->wr.wr.reg.key;
	struct rxe_mr *mr;
	int ret = -EINVAL;

	if (wqe->state == wqe_state_done || wqe->wr.send_flags & IB_SEND_FENCE)
		return false;
	mr = ib_mkey_rxe_get_mr(qp->ibqp.device, ib_mkey_rxe_index(key));
	if (!mr)
		return false;
	if (&mr->ibmr == wqe->wr.wr.reg.mr && has_elements(mr))
		ret = ib_mkey_rxe_reg_fast_mr(mr, qp->ibqp.pd, key, wqe->wr.wr.reg.access);
	ib_mkey_rxe_put_mr(mr);

	return !ret;
}

/* Executes the REG_MR @wqe, and returns as rxe_sender() does. */
static noinline int send_reg(struct rxe_qp *qp, struct rxe_send_wqe *wqe)
{
	switch (registered_by(qp, wqe)) {
	case REGISTERED_KEY:
		return send_bind(qp, wqe);
	case REGISTERED_ELEMENTS:
		if (!reg_elements(qp, wqe))
			break;
		complete_now(qp, wqe, 0, IB_WC_SUCCESS);
		return 0;
	case REGISTERED_PLAIN:
		break;
	}

	return stock_sender(qp);
}

/* Returns true if @wqe is the LOCAL_INV of an MR, and sets @key to what it names. */
static __always_inline bool invalidates_mr(const struct rxe_qp *qp,
					   const struct rxe_send_wqe *wqe, u32 *key)
{
	if (likely(READ_ONCE(wqe->wr.opcode) != IB_WR_LOCAL_INV) ||
	    qp->ibqp.qp_type != IB_QPT_RC)
		return false;
	*key = READ_ONCE(wqe->wr.ex.invalidate_rkey);
	return !rkey_is_mw(*key);
}

/*
 * Executes @wqe if it is the LOCAL_INV of an MR of ib_mkey; rxe executes all others. Returns as
 * rxe_sender() does.
 */
static noinline int send_invalidation(struct rxe_qp *qp, struct rxe_send_wqe *wqe, u32 key)
{
	struct rxe_queue *queue = qp->sq.queue;
	struct rxe_mr *mr;
	int ret;

	/* rxe waits for the earlier requests that have not completed. */
	if (qp->req.wqe_index != queue_get_consumer(queue, QUEUE_TYPE_FROM_CLIENT))
		return stock_sender(qp);
	mr = ib_mkey_rxe_get_mr(qp->ibqp.device, ib_mkey_rxe_index(key));
	if (!mr)
		return stock_sender(qp);
	if (READ_ONCE(mr->ibmr.type) != IB_MR_TYPE_SG_GAPS) {
		ib_mkey_rxe_put_mr(mr);
		return stock_sender(qp);
	}
	ret = ib_mkey_rxe_invalidate_mr(mr, qp->ibqp.pd, key, false);
	ib_mkey_rxe_put_mr(mr);
	complete_now(qp, wqe, ret, IB_WC_LOC_QP_OP_ERR);

	return 0;
}

/*
 * Called when rxe must repeat requests, from the oldest one that has not completed. If the oldest
 * one binds or invalidates a key, rxe would execute it in the same pass, even if it was executed
 * before. This function completes such a request if it was executed. need_retry is cleared
 * meanwhile, because rxe's completer does nothing while it is set. Returns true if another pass
 * must follow before rxe repeats requests.
 */
static bool pass_executed(struct rxe_qp *qp)
{
	struct rxe_queue *queue = qp->sq.queue;
	u32 index = queue_get_consumer(queue, QUEUE_TYPE_FROM_CLIENT);
	struct rxe_send_wqe *wqe = posted_at(queue, index);
	bool is_next = index == qp->req.wqe_index;
	u32 key;

	if (!wqe || !(binds_key(qp, wqe) || invalidates_mr(qp, wqe, &key)) ||
	    (!is_next && READ_ONCE(wqe->state) != wqe_state_done))
		return false;
	qp->req.need_retry = 0;
	stock_completer(qp);
	/* All earlier requests have completed. If this is the next one, no later one was sent. */
	if (!is_next)
		qp->req.need_retry = 1;

	return true;
}

/* Executes the next request or none, and returns as rxe_sender() does. */
static noinline int look_at_next(struct rxe_qp *qp)
{
	struct rxe_send_wqe *wqe;
	u32 key;

	if (!is_sending(qp))
		return stock_sender(qp);
	if (qp->req.need_retry && !qp->req.wait_for_rnr_timer)
		return pass_executed(qp) ? 0 : stock_sender(qp);
	wqe = posted_at(qp->sq.queue, qp->req.wqe_index);
	/*
	 * Do not call rxe here: it would execute a request that is posted now without
	 * waiting for earlier ones. The doorbell of that request causes another pass.
	 */
	if (!wqe)
		return stock_completer(qp) ? -EAGAIN : 0;
	if (!qp->is_user && wqe->wr.opcode == IB_WR_REG_MR)
		return send_reg(qp, wqe);
	if (binds_key(qp, wqe))
		return send_bind(qp, wqe);
	if (invalidates_mr(qp, wqe, &key))
		return send_invalidation(qp, wqe, key);

	return stock_sender(qp);
}

/* The operations below LOCAL_INV are ordinary ones: WRITE, SEND, READ and atomic operations. */
static_assert(IB_WR_ATOMIC_FETCH_AND_ADD + 1 == IB_WR_LOCAL_INV);
static_assert(IB_WR_LOCAL_INV < IB_WR_BIND_MW && IB_WR_LOCAL_INV < IB_WR_REG_MR);

/*
 * Replaces rxe_sender(). Only the task of the queue changes the index of the next request. A
 * process can write to its requests at any time. The functions below and rxe may then find
 * another request than this function did, but only one of the same process. An ordinary request
 * needs no stack frame here.
 */
static int sender(struct rxe_qp *qp)
{
	struct rxe_queue *queue = qp->sq.queue;
	u32 index = qp->req.wqe_index;

	if (unlikely(!is_posted(queue, index)) || unlikely(qp->req.need_retry) ||
	    unlikely(READ_ONCE(request_at(queue, index)->wr.opcode) >= IB_WR_LOCAL_INV))
		return look_at_next(qp);
	return static_call(rxe_sender)(qp);
}

/**
 * ib_mkey_rxe_take_binds() - execute requests of a QP that bind keys
 * @ibqp: a QP; nothing is done for one whose requests ib_mkey executes already
 */
void ib_mkey_rxe_take_binds(struct ib_qp *ibqp)
{
	struct rxe_qp *qp = to_rqp(ibqp);

	if (ibqp->qp_type != IB_QPT_RC && ibqp->qp_type != IB_QPT_UC)
		return;
	if (qp->send_task.func == sender)
		return;
	WRITE_ONCE(rxe_sender_pointer, qp->send_task.func);
	WRITE_ONCE(qp->send_task.func, sender);
}

/* Lets rxe execute all requests of a QP. Its task is not in sender() when this returns. */
static void give_back(struct rxe_qp *qp)
{
	if (READ_ONCE(qp->send_task.func) != sender)
		return;
	WRITE_ONCE(qp->send_task.func, READ_ONCE(rxe_sender_pointer));
	flush_work(&qp->send_task.work);
}

/**
 * ib_mkey_rxe_give_binds_back() - let rxe execute all requests again
 * @ibdev: a device; ib_mkey takes over no more of its QPs
 *
 * When this returns, no task is in sender(), except for those of QPs that are being destroyed. rxe
 * has taken these QPs out of its table, and waits for their tasks.
 */
void ib_mkey_rxe_give_binds_back(struct ib_device *ibdev)
{
	struct rxe_pool_elem *elem;
	unsigned long index;
	struct rxe_qp *qp;

	xa_for_each(&to_rdev(ibdev)->qp_pool.xa, index, elem) {
		qp = ib_mkey_rxe_get_qp(ibdev, index);
		if (!qp)
			continue;
		give_back(qp);
		ib_mkey_rxe_put_qp(qp);
	}
}
