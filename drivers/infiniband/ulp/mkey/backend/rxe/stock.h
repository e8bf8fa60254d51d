/* SPDX-License-Identifier: GPL-2.0 */
/* Stock rxe, called directly: internal to the C half of the rxe backend. */
#ifndef IB_MKEY_RXE_STOCK_H
#define IB_MKEY_RXE_STOCK_H

#include <linux/static_call.h>

#include "rxe.h"
#include "rxe_loc.h"

enum rxe_function {
#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure) RXE_FN_##name,
#include "functions.h"
#undef RXE_FUNCTION
	RXE_NUM_FUNCTIONS,
};

#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure) \
	type stock_##name parameters;
#include "functions.h"
#undef RXE_FUNCTION

/* A static call of rxe_sender(), for a caller that has no frame. */
DECLARE_STATIC_CALL(rxe_sender, stock_sender);

#ifdef IB_MKEY_RXE_TABLE
/*
 * An rxe with a table takes the QP of a peer. These calls pass none, because a leaf has no table.
 */
static inline enum resp_states stock_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
					       u64 compare, u64 swap_add, u64 *orig_val)
{
	return stock_qp_atomic_op(mr, iova, opcode, compare, swap_add, orig_val, NULL);
}

static inline enum resp_states stock_atomic_write(struct rxe_mr *mr, u64 iova, u64 value)
{
	return stock_qp_atomic_write(mr, iova, value, NULL);
}

static inline int stock_flush(struct rxe_mr *mr, u64 iova, unsigned int length)
{
	return stock_qp_flush(mr, iova, length, NULL);
}
#endif

/* Static calls of the stock code of a redirected function, past the redirection. */
#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure)
#define RXE_REDIRECTED(name, symbol, type, parameters, arguments, failure) \
	DECLARE_STATIC_CALL(rxe_past_##name, stock_##name);
#include "functions.h"
#undef RXE_FUNCTION

/* Does an atomic operation on an MR of rxe with pinned pages. */
static inline enum resp_states past_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
					      u64 compare, u64 swap_add, u64 *orig_val)
{
#ifdef IB_MKEY_RXE_TABLE
	return stock_atomic_op(mr, iova, opcode, compare, swap_add, orig_val);
#else
	return static_call(rxe_past_atomic_op)(mr, iova, opcode, compare, swap_add, orig_val);
#endif
}

void ib_mkey_rxe_stock_set(const unsigned long addresses[RXE_NUM_FUNCTIONS]);
void ib_mkey_rxe_stock_reset(void);

#endif /* IB_MKEY_RXE_STOCK_H */
