// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows, if rxe's functions are redirected: the functions to which a bind
 * and an invalidation are redirected, and rxe's part of both. table.c does this if
 * rxe has a table of operations.
 */

#include "redirect.h"
#include "rxe_hook.h"
#include "stock.h"

/* Returns true if rxe would bind a window as @bind says, for a suitable MR. */
static bool may_bind(const struct rxe_qp *qp, const struct rxe_mw *mw,
		     const struct ib_mkey_rxe_bind_mw *bind)
{
	if (mw->rkey != bind->mw_rkey || mw->ibmw.pd != qp->ibqp.pd ||
	    (bind->access & ~RXE_ACCESS_SUPPORTED_MW))
		return false;
	if (mw->ibmw.type == IB_MW_TYPE_2)
		return mw->state == RXE_MW_STATE_FREE && bind->length;
	return mw->state == RXE_MW_STATE_VALID && !(bind->access & IB_ZERO_BASED);
}

/* Returns true if rxe would bind a suitable window to one of its MRs as @bind says. */
static bool may_cover(const struct rxe_qp *qp, const struct rxe_mr *mr,
		      const struct ib_mkey_rxe_bind_mw *bind)
{
	const u32 writes = IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC;
	u64 length = mr->ibmr.length;
	int access = READ_ONCE(mr->access);

	if (mr->lkey != bind->mr_lkey || READ_ONCE(mr->ibmr.pd) != qp->ibqp.pd ||
	    access & IB_ZERO_BASED || !(access & IB_ACCESS_MW_BIND) ||
	    ((bind->access & writes) && !(access & IB_ACCESS_LOCAL_WRITE)) ||
	    bind->length > length)
		return false;
	return bind->access & IB_ZERO_BASED || bind->addr - mr->ibmr.iova <= length - bind->length;
}

/*
 * Binds a window to an MR, or to nothing. The caller holds the lock of the window, has found that
 * it may_bind(), and has counted the window in the MR. Returns the MR that the window was bound to,
 * for release_mr().
 *
 * rxe reads a window without its lock, and uses none of length 0. A request that comes meanwhile is
 * refused, or meets an MR that is at least as new as the access flags that rxe compared.
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
	/* The MR before the access flags. */
	smp_store_release(&mw->access, bind->access);
	WRITE_ONCE(mw->rkey, (mw->rkey & ~0xff) | (bind->rkey & 0xff));
	WRITE_ONCE(mw->addr, bind->addr);
	if (mw->ibmw.type == IB_MW_TYPE_2) {
		kref_get(&qp->elem.ref_cnt);
		WRITE_ONCE(mw->qp, qp);
	}
	WRITE_ONCE(mw->state, RXE_MW_STATE_VALID);
	/* The length last: it lets requests use the window. */
	smp_store_release(&mw->length, bind->length);

	return old;
}

/*
 * Counts a window in an MR, unless the MR is being deregistered. Either this finds the state of a
 * suspended MR, or the deregistration finds the count. Pairs with the barrier in
 * ib_mkey_rxe_suspend().
 */
static bool count_window(struct rxe_mr *mr)
{
	atomic_inc(&mr->num_mw);
	/* The count before the state. */
	smp_mb__after_atomic();
	if (ib_mkey_rxe_state(mr) != RXE_MR_STATE_INVALID)
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
 * Binds a window to one of rxe's MRs, or to nothing, as rxe does. rxe would read the fields of the
 * request more than once. rxe of Linux 7.2 compares the PD of a window only for type 2, and not
 * that of the MR. Returns -ENOENT if the MR is one of ib_mkey.
 */
static int bind_plain(struct rxe_qp *qp, struct rxe_mw *mw,
		      const struct ib_mkey_rxe_bind_mw *bind)
{
	struct rxe_mr *old = NULL, *mr = NULL;
	int ret = -EINVAL;

	if (bind->length) {
		mr = ib_mkey_rxe_get_mr(qp->ibqp.device, bind->mr_lkey >> 8);
		if (!mr)
			return ret;
		if (mr->ibmr.type == IB_MR_TYPE_SG_GAPS || mr->ibmr.type == IB_MR_TYPE_DM) {
			ret = -ENOENT;
			goto put;
		}
	}
	/* A request that may not use the MR or the window must not hold up a deregistration. */
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
	struct rxe_mr *mr = ib_mkey_rxe_get_mr(qp->ibqp.device, lkey >> 8);
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
	int ret;

	if (!rkey_is_mw(bind.mw_rkey))
		return ib_mkey_rxe_request_bind(qp, wqe);
	mw = ib_mkey_rxe_get_mw(qp->ibqp.device, bind.mw_rkey >> 8);
	if (!mw)
		return -EINVAL;
	if (!ib_mkey_rxe_hides_windows()) {
		ret = bind_plain(qp, mw, &bind);
		if (ret != -ENOENT) {
			/*
			 * Another QP may have bound the window to a hidden MR at the same time, and
			 * this bind may have replaced that one. Pairs with the barrier in
			 * ib_mkey_rxe_count_hidden().
			 */
			smp_mb();
			if (unlikely(ib_mkey_rxe_hides_windows()))
				ib_mkey_rxe_replaced_hidden(qp->ibqp.device, mw, bind.mw_rkey >> 8);
			else
				ib_mkey_rxe_put_mw(mw);
			return ret;
		}
	}
	bind.of_qp = mw->ibmw.type == IB_MW_TYPE_2;
	/* rxe of Linux 7.2 compares the PD of a window only for type 2, and not that of the MR. */
	if (mw->ibmw.pd != qp->ibqp.pd || (bind.length && !is_in_pd(qp, bind.mr_lkey))) {
		ib_mkey_rxe_put_mw(mw);
		return -EINVAL;
	}
	return ib_mkey_rxe_bind_mw(qp, qp->ibqp.pd, mw, &bind);
}

notrace int direct_invalidate_mw(struct rxe_qp *qp, u32 rkey)
{
	return ib_mkey_rxe_invalidate_mw(qp, qp->ibqp.device, rkey);
}

int ib_mkey_rxe_stock_bind_mw(struct rxe_qp *qp, const struct ib_mkey_rxe_bind_mw *bind)
{
	struct rxe_mw *mw = ib_mkey_rxe_get_mw(qp->ibqp.device, bind->mw_rkey >> 8);
	int ret;

	if (!mw)
		return -EINVAL;
	ret = bind_plain(qp, mw, bind);
	ib_mkey_rxe_put_mw(mw);

	return ret == -ENOENT ? -EINVAL : ret;
}

/**
 * ib_mkey_rxe_bind_hidden_mr() - bind a window to a hidden MR
 * @qp: the QP that asks
 * @mw: the window, to which the caller has a reference
 * @hidden: the MR, whose range and access flags are those of the window
 * @bind: the request
 *
 * rxe refuses this as of Linux 7.3, because the MR is in another PD than the QP. The MR has to stay
 * there, so that no request can name it. The caller holds the lock of Windows.
 *
 * Return: 0 or -EINVAL
 */
int ib_mkey_rxe_bind_hidden_mr(struct rxe_qp *qp, struct rxe_mw *mw, struct ib_mr *hidden,
			       const struct ib_mkey_rxe_bind_mw *bind)
{
	struct rxe_mr *old;

	spin_lock_bh(&mw->lock);
	if (!may_bind(qp, mw, bind)) {
		spin_unlock_bh(&mw->lock);
		return -EINVAL;
	}
	atomic_inc(&to_rmr(hidden)->num_mw);
	old = set_window(qp, mw, to_rmr(hidden), bind);
	spin_unlock_bh(&mw->lock);
	release_mr(old);

	return 0;
}

/*
 * Stock rxe dereferences the NULL pointers of a window of type 2 that is not bound, and lets every
 * QP of the device invalidate a window. The caller holds the lock of Windows, so no other
 * invalidation runs, and nothing else ends the state VALID. A window of type 2 that is not bound
 * has no QP.
 */
int ib_mkey_rxe_stock_invalidate_mw(struct rxe_qp *qp, u32 rkey)
{
	struct rxe_mw *mw = ib_mkey_rxe_get_mw(qp->ibqp.device, rkey >> 8);
	int ret = -EINVAL;

	if (!mw)
		return ret;
	if (READ_ONCE(mw->state) == RXE_MW_STATE_VALID && READ_ONCE(mw->qp) == qp)
		ret = static_call(rxe_past_invalidate_mw)(qp, rkey);
	ib_mkey_rxe_put_mw(mw);

	return ret;
}
