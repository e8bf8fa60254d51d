// SPDX-License-Identifier: GPL-2.0
/*
 * Calls of stock rxe if its functions are redirected. This file has the calls
 * whose parameters differ if rxe has a table of operations. table.c has these
 * calls for that case.
 */

#include "rxe_hook.h"
#include "stock.h"

int ib_mkey_rxe_stock_copy(struct rxe_mr *mr, u64 iova, void *addr,
			   unsigned int length, enum rxe_mr_copy_dir dir)
{
	return stock_copy(mr, iova, addr, length, dir);
}

int ib_mkey_rxe_stock_bind_mw(struct rxe_qp *qp, const struct ib_mkey_rxe_bind_mw *bind)
{
	struct rxe_send_wqe *wqe __free(kfree) = kzalloc_obj(*wqe);

	if (!wqe)
		return -ENOMEM;
	wqe->wr.wr.mw.addr = bind->addr;
	wqe->wr.wr.mw.length = bind->length;
	wqe->wr.wr.mw.mr_lkey = bind->mr_lkey;
	wqe->wr.wr.mw.mw_rkey = bind->mw_rkey;
	wqe->wr.wr.mw.rkey = bind->rkey;
	wqe->wr.wr.mw.access = bind->access;
	return static_call(rxe_past_bind_mw)(qp, wqe);
}

/*
 * Stock rxe dereferences the NULL pointers of a window of type 2 that is not bound, and lets every
 * QP of the device invalidate a window. The caller holds the lock of Windows, so the result of the
 * tests below does not change.
 */
int ib_mkey_rxe_stock_invalidate_mw(struct rxe_qp *qp, u32 rkey)
{
	struct rxe_mw *mw = ib_mkey_rxe_get_mw(qp->ibqp.device, rkey >> 8);
	int ret = -EINVAL;

	if (!mw)
		return ret;
	if (mw->state == RXE_MW_STATE_VALID && mw->qp == qp)
		ret = static_call(rxe_past_invalidate_mw)(qp, rkey);
	ib_mkey_rxe_put_mw(mw);

	return ret;
}

/* Invalidates an MR as a kernel QP in @pd does, for the self-test. */
int ib_mkey_rxe_stock_invalidate_mr(struct ib_pd *pd, u32 key)
{
	struct rxe_qp *qp __free(kfree) = kzalloc_obj(*qp);

	if (!qp)
		return -ENOMEM;
	qp->ibqp.device = pd->device;
	qp->ibqp.pd = pd;
	return stock_invalidate_mr(qp, key);
}
