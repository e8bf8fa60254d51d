// SPDX-License-Identifier: GPL-2.0
/*
 * Calls of stock rxe if its functions are redirected. The parameters of the calls
 * in this file and in redirect_mw.c differ if rxe has a table of operations.
 * table.c has the calls for that case.
 */

#include "rxe_hook.h"
#include "stock.h"

int ib_mkey_rxe_stock_copy(struct rxe_mr *mr, u64 iova, void *addr,
			   unsigned int length, enum rxe_mr_copy_dir dir)
{
	return stock_copy(mr, iova, addr, length, dir);
}

/*
 * The operations below are those of a peer in the MR's PD. The self-test calls them, and redirect.c
 * recognises it by its return address.
 */
int ib_mkey_rxe_test_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
			       u64 compare, u64 swap_add, u64 *orig_val)
{
	return stock_atomic_op(mr, iova, opcode, compare, swap_add, orig_val);
}

int ib_mkey_rxe_test_atomic_write(struct rxe_mr *mr, u64 iova, u64 value)
{
	return stock_atomic_write(mr, iova, value);
}

int ib_mkey_rxe_test_flush(struct rxe_mr *mr, u64 iova, unsigned int length)
{
	return stock_flush(mr, iova, length);
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
