// SPDX-License-Identifier: GPL-2.0
/*
 * Calls of stock rxe. They are static calls, because an indirect call would fault
 * with IBT: a function that the kernel does not call by pointer has lost its
 * ENDBR.
 *
 * stock_redirected.c, redirect_mw.c and table.c have the calls of functions whose
 * parameters depend on the way in which rxe calls ib_mkey.
 *
 * Locking: attach.c or table.c calls ib_mkey_rxe_stock_set() and
 * ib_mkey_rxe_stock_reset() under its mutex.
 */

#include <linux/ftrace.h>
#include <linux/static_call.h>

#include "rxe_hook.h"
#include "stock.h"

/* Targets of the static calls while rdma_rxe is not loaded. */
#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure) \
static type absent_##name parameters				\
{								\
	return failure;						\
}								\
DEFINE_STATIC_CALL(rxe_##name, absent_##name);			\
type stock_##name parameters					\
{								\
	return static_call(rxe_##name)arguments;		\
}
#include "functions.h"
#undef RXE_FUNCTION

#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure)
#define RXE_REDIRECTED(name, symbol, type, parameters, arguments, failure) \
	DEFINE_STATIC_CALL(rxe_past_##name, absent_##name);
#include "functions.h"
#undef RXE_FUNCTION

/**
 * ib_mkey_rxe_stock_set() - let calls reach rxe
 * @addresses: the address of ftrace's site in each function
 */
void ib_mkey_rxe_stock_set(const unsigned long addresses[RXE_NUM_FUNCTIONS])
{
#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure) \
	static_call_update(rxe_##name, (void *)addresses[RXE_FN_##name]);
#include "functions.h"
#undef RXE_FUNCTION

#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure)
#define RXE_REDIRECTED(name, symbol, type, parameters, arguments, failure)	\
	static_call_update(rxe_past_##name,					\
			   (void *)(addresses[RXE_FN_##name] + MCOUNT_INSN_SIZE));
#include "functions.h"
#undef RXE_FUNCTION
}

/** ib_mkey_rxe_stock_reset() - let calls fail, because rdma_rxe is being unloaded */
void ib_mkey_rxe_stock_reset(void)
{
#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure) \
	static_call_update(rxe_##name, absent_##name);
#include "functions.h"
#undef RXE_FUNCTION

#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure)
#define RXE_REDIRECTED(name, symbol, type, parameters, arguments, failure) \
	static_call_update(rxe_past_##name, absent_##name);
#include "functions.h"
#undef RXE_FUNCTION
}

int ib_mkey_rxe_stock_check_range(struct rxe_mr *mr, u64 iova, size_t length)
{
	return stock_check_range(mr, iova, length);
}

#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING
/* Not inlined, so that the path of pinned pages saves no register for it. */
static noinline int odp_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
				  u64 compare, u64 swap_add, u64 *orig_val)
{
	return ib_mkey_rxe_odp_at_address(mr) && ib_mkey_rxe_odp_fault(mr, iova) ?
		stock_odp_atomic_op(mr, iova, opcode, compare, swap_add, orig_val) :
		RESPST_ERR_RKEY_VIOLATION;
}
#endif

/* Does an atomic operation on the MR of a leaf, which is never one of ib_mkey. */
int ib_mkey_rxe_leaf_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
			       u64 compare, u64 swap_add, u64 *orig_val)
{
#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING
	if (is_odp_mr(mr))
		return odp_atomic_op(mr, iova, opcode, compare, swap_add, orig_val);
#endif
	return past_atomic_op(mr, iova, opcode, compare, swap_add, orig_val);
}

int ib_mkey_rxe_stock_atomic_write(struct rxe_mr *mr, u64 iova, u64 value)
{
#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING
	if (is_odp_mr(mr))
		return ib_mkey_rxe_odp_at_address(mr) && ib_mkey_rxe_odp_fault(mr, iova) ?
			stock_odp_atomic_write(mr, iova, value) :
			RESPST_ERR_RKEY_VIOLATION;
#endif
	return stock_atomic_write(mr, iova, value);
}

int ib_mkey_rxe_stock_flush(struct rxe_mr *mr, u64 iova, unsigned int length)
{
	return stock_flush(mr, iova, length);
}

/* Does what REG_MR on a kernel QP in the PD of @mr does. The self-test calls this. */
int ib_mkey_rxe_stock_reg_fast_mr(struct ib_mr *mr, u32 key, int access)
{
	struct rxe_send_wqe *wqe __free(kfree) = kzalloc_obj(*wqe);
	struct rxe_qp *qp __free(kfree) = kzalloc_obj(*qp);

	if (!qp || !wqe)
		return -ENOMEM;
	qp->ibqp.device = mr->device;
	qp->ibqp.pd = mr->pd;
	wqe->wr.wr.reg.mr = mr;
	wqe->wr.wr.reg.key = key;
	wqe->wr.wr.reg.access = access;
	return stock_reg_fast_mr(qp, wqe);
}

/* Copies one SGE by the function that rxe's requester and completer call. */
int ib_mkey_rxe_stock_copy_data(struct ib_pd *pd, int access, u32 lkey, u64 iova,
				void *addr, int length, enum rxe_mr_copy_dir dir)
{
	struct {
		struct rxe_dma_info dma;
		struct rxe_sge sge;
	} one = {
		.dma = { .length = length, .resid = length, .num_sge = 1 },
	};

	one.dma.sge[0] = (struct rxe_sge){ .addr = iova, .length = length, .lkey = lkey };
	return stock_copy_data(to_rpd(pd), access, &one.dma, addr, length, dir);
}
