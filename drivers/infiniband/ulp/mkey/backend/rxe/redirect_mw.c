// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows, if rxe's functions are redirected. This file has the functions
 * to which a bind and an invalidation are redirected, and functions that do rxe's
 * part of both. table.c has the functions for an rxe with a table of operations.
 */

#include "redirect.h"
#include "rxe_hook.h"
#include "stock.h"

/* Returns true if rxe would bind a window as @bind says, for a suitable MR. */
static bool may_bind(const struct rxe_qp *qp, const struct rxe_mw *mw,
		     const struct ib_mkey_rxe_bind_mw *bind)
{
	if (READ_ONCE(mw->rkey) != bind->mw_rkey || mw->ibmw.pd != qp->ibqp.pd ||
	    (bind->access & ~RXE_ACCESS_SUPPORTED_MW) || !READ_ONCE(qp->valid))
		return false;
	if (mw->ibmw.type == IB_MW_TYPE_2)
		return READ_ONCE(mw->state) == RXE_MW_STATE_FREE && bind->length;
	return READ_ONCE(mw->state) == RXE_MW_STATE_VALID && !(bind->access & IB_ZERO_BASED);
}

/* Returns true if rxe would bind a suitable window to one of its MRs as @bind says. */
static bool may_cover(const struct rxe_qp *qp, const struct rxe_mr *mr,
		      const struct ib_mkey_rxe_bind_mw *bind)
{
	const u32 writes = IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC;
	u64 length = READ_ONCE(mr->ibmr.length), start = READ_ONCE(mr->ibmr.iova);
	int access = READ_ONCE(mr->access);

	if (READ_ONCE(mr->lkey) != bind->mr_lkey || READ_ONCE(mr->ibmr.pd) != qp->ibqp.pd ||
	    access & IB_ZERO_BASED || !(access & IB_ACCESS_MW_BIND) ||
	    ((bind->access & writes) && !(access & IB_ACCESS_LOCAL_WRITE)) ||
	    bind->length > length)
		return false;
	return bind->access & IB_ZERO_BASED || bind->addr - start <= length - bind->length;
}

/*
 * Binds a window to an MR, or to nothing. The caller holds the lock of the window, has found that
 * it may_bind(), and has counted the window in the MR. Returns the MR that the window was bound to,
 * for release_mr().
 *
 * rxe reads a window without the window's lock, and refuses a window of length 0. So rxe refuses a
 * request that arrives meanwhile, or uses an MR that is at least as new as the access flags that it
 * compared.
 */
static struct rxe_mr *set_window(struct rxe_qp *qp, struct rxe_mw *mw, struct rxe_mr *mr,
				 const struct ib_mkey_rxe_bind_mw *bind)
{
	struct rxe_mr *old = mw->mr;

	if (mr)
		ib_mkey_rxe_ref_mr(mr);
	WRITE_ONCE(mw->length, 0);
	/* rxe_lookup_mw() has no barrier. x86-64 keeps its order: length, access flags, MR. */
	smp_store_release(&mw->mr, mr);
	/* Orders the MR before the access flags. */
	smp_store_release(&mw->access, bind->access);
	WRITE_ONCE(mw->rkey, (mw->rkey & ~0xff) | (bind->rkey & 0xff));
	WRITE_ONCE(mw->addr, bind->addr);
	if (mw->ibmw.type == IB_MW_TYPE_2) {
		kref_get(&qp->elem.ref_cnt);
		WRITE_ONCE(mw->qp, qp);
	}
	WRITE_ONCE(mw->state, RXE_MW_STATE_VALID);
	/* The length is written last, because it lets requests use the window. */
	smp_store_release(&mw->length, bind->length);

	return old;
}

/*
 * Ends the binding of a window of type 2. The caller holds the lock of the window. Returns the MR
 * that the window was bound to, for release_mr(). The caller also releases the window's reference
 * to the QP.
 */
static struct rxe_mr *unset_window(struct rxe_mw *mw)
{
	struct rxe_mr *old = mw->mr;

	/* The length is written first, because rxe refuses a window of length 0. */
	WRITE_ONCE(mw->length, 0);
	WRITE_ONCE(mw->state, RXE_MW_STATE_FREE);
	WRITE_ONCE(mw->access, 0);
	WRITE_ONCE(mw->addr, 0);
	WRITE_ONCE(mw->mr, NULL);
	WRITE_ONCE(mw->qp, NULL);

	return old;
}

/*
 * Counts a window in an MR, unless the MR is being deregistered. Either this function sees that
 * the MR is suspended, or the deregistration sees the count. Pairs with the barrier in
 * Rxe::suspend() in rxe.rs.
 */
static bool count_window(struct rxe_mr *mr)
{
	atomic_inc(&mr->num_mw);
	/* Orders the count before the state. */
	smp_mb__after_atomic();
	if (READ_ONCE(mr->state) != RXE_MR_STATE_INVALID)
		return true;
	atomic_dec(&mr->num_mw);

	return false;
}

static void release_mr(struct rxe_mr *mr)
{
	if (mr) {
		atomic_dec(&mr->num_mw);
		ib_mkey_rxe_put_mr(mr);
	}
}

/*
 * Binds a window to one of rxe's MRs, or to nothing. rxe's own code is not used, because it reads
 * the fields of the request more than once. As of Linux 7.2 it also compares the PD of a window
 * only for type 2, and does not compare the PD of the MR. Returns -ENOENT if the MR is one of
 * ib_mkey.
 */
static int bind_plain(struct rxe_qp *qp, struct rxe_mw *mw,
		      const struct ib_mkey_rxe_bind_mw *bind)
{
	struct rxe_mr *old = NULL, *mr = NULL;
	enum ib_mr_type type;
	int ret = -EINVAL;

	if (bind->length) {
		mr = ib_mkey_rxe_get_mr(qp->ibqp.device, ib_mkey_rxe_index(bind->mr_lkey));
		if (!mr)
			return ret;
		type = READ_ONCE(mr->ibmr.type);
		if (type == IB_MR_TYPE_SG_GAPS || type == IB_MR_TYPE_DM) {
			ret = -ENOENT;
			goto put;
		}
	}
	/*
	 * Checked before the window is counted: a request that may not use the MR or the window
	 * must not make a deregistration fail.
	 */
	if (mw->ibmw.pd != qp->ibqp.pd || (mr && !may_cover(qp, mr, bind)))
		goto put;
	if (mr && !count_window(mr))
		goto put;
	spin_lock_bh(&mw->lock);
	if (may_bind(qp, mw, bind) && (!mr || may_cover(qp, mr, bind))) {
		old = set_window(qp, mw, mr, bind);
		ret = 0;
	}
	spin_unlock_bh(&mw->lock);
	if (!ret)
		release_mr(old);
	else if (mr)
		atomic_dec(&mr->num_mw);
put:
	if (mr)
		ib_mkey_rxe_put_mr(mr);

	return ret;
}

/* Returns true if an MR is in the PD of a QP. */
static bool is_in_pd(struct rxe_qp *qp, u32 lkey)
{
	struct rxe_mr *mr = ib_mkey_rxe_get_mr(qp->ibqp.device, ib_mkey_rxe_index(lkey));
	bool in;

	if (!mr)
		return false;
	in = READ_ONCE(mr->ibmr.pd) == qp->ibqp.pd;
	ib_mkey_rxe_put_mr(mr);

	return in;
}

/* ib_mkey identifies a window by the address of either structure. */
static_assert(offsetof(struct rxe_mw, ibmw) == 0);

/* A process can write to its requests at any time, so each field is read once. */
notrace int direct_bind_mw(struct rxe_qp *qp, struct rxe_send_wqe *wqe)
{
	struct ib_mkey_rxe_bind_mw bind = {
		.addr = READ_ONCE(wqe->wr.wr.mw.addr),
		.length = READ_ONCE(wqe->wr.wr.mw.length),
		.mr_lkey = READ_ONCE(wqe->wr.wr.mw.mr_lkey),
		.mw_rkey = READ_ONCE(wqe->wr.wr.mw.mw_rkey),
		.rkey = READ_ONCE(wqe->wr.wr.mw.rkey),
		.access = READ_ONCE(wqe->wr.wr.mw.access),
	};
	struct rxe_mw *mw;
	bool may;
	int ret;

	if (!rkey_is_mw(bind.mw_rkey))
		return ib_mkey_rxe_request_bind(qp, wqe);
	mw = ib_mkey_rxe_get_mw(qp->ibqp.device, ib_mkey_rxe_index(bind.mw_rkey));
	if (!mw)
		return -EINVAL;
	if (!ib_mkey_rxe_hides_windows(qp->ibqp.device)) {
		ret = bind_plain(qp, mw, &bind);
		if (ret != -ENOENT) {
			ib_mkey_rxe_put_mw(mw);
			/*
			 * Another QP may have bound the window to a hidden MR at the same time, and
			 * this bind may have replaced that binding. Pairs with the barrier in
			 * ib_mkey_rxe_count_hidden().
			 */
			smp_mb();
			if (unlikely(ib_mkey_rxe_hides_windows(qp->ibqp.device)))
				ib_mkey_rxe_replaced_hidden(qp->ibqp.device, mw, bind.mw_rkey);
			return ret;
		}
	}
	bind.of_qp = mw->ibmw.type == IB_MW_TYPE_2;
	/*
	 * rxe of Linux 7.2 compares the PD of a window only for type 2, and not that of the MR. A
	 * request that may not bind the window must not hold up one that may.
	 */
	may = may_bind(qp, mw, &bind) && (!bind.length || is_in_pd(qp, bind.mr_lkey));
	ib_mkey_rxe_put_mw(mw);

	return may ? ib_mkey_rxe_bind_mw(qp, qp->ibqp.pd, mw, &bind) : -EINVAL;
}

/* Returns true if rxe may invalidate a window for a QP. */
static bool may_invalidate(const struct rxe_qp *qp, const struct rxe_mw *mw, u32 rkey)
{
	/* A window of type 1, and one that is not bound, has no QP. */
	return READ_ONCE(mw->state) == RXE_MW_STATE_VALID && READ_ONCE(mw->qp) == qp &&
	       READ_ONCE(mw->rkey) == rkey;
}

notrace int direct_invalidate_mw(struct rxe_qp *qp, u32 rkey)
{
	struct rxe_mw *mw = ib_mkey_rxe_get_mw(qp->ibqp.device, ib_mkey_rxe_index(rkey));
	bool may;

	if (!mw)
		return -EINVAL;
	may = may_invalidate(qp, mw, rkey);
	ib_mkey_rxe_put_mw(mw);

	return may ? ib_mkey_rxe_invalidate_mw(qp, qp->ibqp.device, mw, rkey) : -EINVAL;
}

int ib_mkey_rxe_stock_bind_mw(struct rxe_qp *qp, struct rxe_mw *mw,
			      const struct ib_mkey_rxe_bind_mw *bind)
{
	int ret;

	mw = ib_mkey_rxe_hold_mw(qp->ibqp.device, ib_mkey_rxe_index(bind->mw_rkey), mw);
	if (!mw)
		return -EINVAL;
	ret = bind_plain(qp, mw, bind);
	ib_mkey_rxe_put_mw(mw);

	return ret == -ENOENT ? -EINVAL : ret;
}

/**
 * ib_mkey_rxe_bind_hidden_mr() - bind a window to a hidden MR
 * @qp: the QP that asks
 * @mw: the window
 * @hidden: the MR, whose range and access flags are those of the window
 * @bind: the request
 *
 * rxe refuses this as of Linux 7.3, because the MR is in another PD than the QP. The MR has to stay
 * there, so that no request can name it. The caller holds the lock of the window's hidden MRs.
 *
 * Return: 0 or -EINVAL
 */
int ib_mkey_rxe_bind_hidden_mr(struct rxe_qp *qp, struct rxe_mw *mw, struct ib_mr *hidden,
			       const struct ib_mkey_rxe_bind_mw *bind)
{
	struct rxe_mr *old = NULL;
	int ret = -EINVAL;

	mw = ib_mkey_rxe_hold_mw(qp->ibqp.device, ib_mkey_rxe_index(bind->mw_rkey), mw);
	if (!mw)
		return ret;
	spin_lock_bh(&mw->lock);
	if (may_bind(qp, mw, bind)) {
		atomic_inc(&to_rmr(hidden)->num_mw);
		old = set_window(qp, mw, to_rmr(hidden), bind);
		ret = 0;
	}
	spin_unlock_bh(&mw->lock);
	ib_mkey_rxe_put_mw(mw);
	release_mr(old);

	return ret;
}

/*
 * Invalidates a window of type 2. Stock rxe would dereference the NULL pointers of a window
 * that is not bound, and lets every QP of the device invalidate a window.
 */
int ib_mkey_rxe_stock_invalidate_mw(struct rxe_qp *qp, struct rxe_mw *mw, u32 rkey)
{
	struct rxe_mr *old = NULL;
	bool may;

	mw = ib_mkey_rxe_hold_mw(qp->ibqp.device, ib_mkey_rxe_index(rkey), mw);
	if (!mw)
		return -EINVAL;
	spin_lock_bh(&mw->lock);
	may = may_invalidate(qp, mw, rkey);
	if (may)
		old = unset_window(mw);
	spin_unlock_bh(&mw->lock);
	ib_mkey_rxe_put_mw(mw);
	if (!may)
		return -EINVAL;
	release_mr(old);
	ib_mkey_rxe_put_qp(qp);

	return 0;
}

/**
 * ib_mkey_rxe_close_qp() - let a QP bind no more windows
 * @ibqp: the QP of a process that is about to be destroyed
 *
 * rxe waits for the references of the windows of type 2 that are bound to a QP, for 50 seconds, and
 * frees the QP nevertheless. ib_mkey_rxe_next_mw() finds these windows after this call. rxe itself
 * marks the QP only after that wait. It cannot refuse to destroy such a QP, because only a UD QP is
 * in multicast groups.
 *
 * Return: true if windows may be bound to the QP
 */
bool ib_mkey_rxe_close_qp(struct ib_qp *ibqp)
{
	struct rxe_qp *qp = to_rqp(ibqp);
	unsigned long flags;

	if (ibqp->qp_type != IB_QPT_RC && ibqp->qp_type != IB_QPT_UC)
		return false;
	spin_lock_irqsave(&qp->state_lock, flags);
	WRITE_ONCE(qp->valid, 0);
	spin_unlock_irqrestore(&qp->state_lock, flags);
	/*
	 * Orders the mark before the number of references. A window has a reference to the QP,
	 * and so has a task that found the QP valid and may be about to bind a window.
	 */
	smp_mb();

	return kref_read(&qp->elem.ref_cnt) > 1;
}

/**
 * ib_mkey_rxe_close_mw() - release the QP of a window
 * @ibmw: a window that is about to be deallocated
 *
 * rxe releases the QP after the window has left the pool, where ib_mkey_rxe_next_mw() does not find
 * it any more. A thread of a low priority may take longer for that than rxe waits when it destroys
 * the QP. In the state INVALID no QP binds or uses the window.
 */
void ib_mkey_rxe_close_mw(struct ib_mw *ibmw)
{
	struct rxe_mw *mw = to_rmw(ibmw);
	struct rxe_qp *qp;

	spin_lock_bh(&mw->lock);
	qp = mw->qp;
	WRITE_ONCE(mw->state, RXE_MW_STATE_INVALID);
	WRITE_ONCE(mw->qp, NULL);
	spin_unlock_bh(&mw->lock);
	if (qp)
		ib_mkey_rxe_put_qp(qp);
}

/*
 * Returns true if a window is bound to a closed QP. A bind in progress has the lock of the window,
 * or finds that the QP is closed.
 */
static bool is_of_qp(struct rxe_mw *mw, const struct rxe_qp *qp)
{
	bool is_of;

	if (mw->ibmw.type != IB_MW_TYPE_2 || mw->ibmw.pd != qp->ibqp.pd)
		return false;
	spin_lock_bh(&mw->lock);
	is_of = mw->qp == qp;
	spin_unlock_bh(&mw->lock);

	return is_of;
}

/**
 * ib_mkey_rxe_next_mw() - find a window that is bound to a QP
 * @ibqp: a closed QP
 * @rkey: where the search begins: at this rkey's index; receives the rkey of the window
 *
 * The lock of the pool keeps a window that is found in it. A window that has left the pool is bound
 * to no QP.
 *
 * Return: the address of the window, which may be freed, or NULL
 */
struct rxe_mw *ib_mkey_rxe_next_mw(struct ib_qp *ibqp, u32 *rkey)
{
	struct rxe_pool *pool = &to_rdev(ibqp->device)->mw_pool;
	XA_STATE(xas, &pool->xa, ib_mkey_rxe_index(*rkey));
	struct rxe_mw *found = NULL;
	struct rxe_pool_elem *elem;
	unsigned int looked = 0;

	xas_lock(&xas);
	xas_for_each(&xas, elem, pool->limit.max) {
		struct rxe_mw *mw;

		/* an index that is taken for a window that is not made yet */
		if (xas_retry(&xas, elem))
			continue;
		mw = elem->obj;
		if (is_of_qp(mw, to_rqp(ibqp))) {
			*rkey = READ_ONCE(mw->rkey);
			found = mw;
			break;
		}
		if (++looked % XA_CHECK_SCHED)
			continue;
		xas_pause(&xas);
		xas_unlock(&xas);
		cond_resched();
		xas_lock(&xas);
	}
	xas_unlock(&xas);

	return found;
}
