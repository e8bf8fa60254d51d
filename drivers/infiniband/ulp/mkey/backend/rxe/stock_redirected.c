// SPDX-License-Identifier: GPL-2.0
/*
 * Calls of stock rxe if its functions are redirected. This file and redirect_mw.c
 * have the calls whose parameters differ if rxe has a table of operations.
 * table.c has these calls for that case.
 */

#include "rxe_hook.h"
#include "stock.h"

int ib_mkey_rxe_stock_copy(struct rxe_mr *mr, u64 iova, void *addr,
			   unsigned int length, enum rxe_mr_copy_dir dir)
{
	return stock_copy(mr, iova, addr, length, dir);
}

/* Invalidates an MR like a kernel QP in @pd. The self-test calls this. */
int ib_mkey_rxe_stock_invalidate_mr(struct ib_pd *pd, u32 key)
{
	struct rxe_qp *qp __free(kfree) = kzalloc_obj(*qp);

	if (!qp)
		return -ENOMEM;
	qp->ibqp.device = pd->device;
	qp->ibqp.pd = pd;
	return stock_invalidate_mr(qp, key);
}
