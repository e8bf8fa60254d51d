/* SPDX-License-Identifier: GPL-2.0 */
/* The redirection of rxe's functions, shared by redirect.c, redirect_mw.c and attach.c. */
#ifndef IB_MKEY_RXE_REDIRECT_H
#define IB_MKEY_RXE_REDIRECT_H

#include <linux/ftrace.h>

#include "stock.h"

/* The place of a function's code. */
struct code_range {
	unsigned long start;
	unsigned long size;
};

static __always_inline bool is_in(const struct code_range *range, unsigned long ip)
{
	return ip - range->start < range->size;
}

/*
 * The callers that tell a redirected function whether an access is local or remote.
 * attach.c finds them before the first call is redirected.
 */
extern struct ib_mkey_rxe_callers {
	/* The caller of rxe_mr_copy() for SGEs of this node. */
	struct code_range local_copy;
	/*
	 * The caller of rxe_invalidate_mr() for LOCAL_INV is one of these. A compiler may merge
	 * them.
	 */
	struct code_range local_requester;
	struct code_range local_ops;
	/* The function of rxe's work items. */
	struct code_range task_work;
	/* This module, whose self-test calls rxe. */
	struct code_range own_text;
} ib_mkey_rxe_callers;

enum ib_mkey_rxe_hook_index {
#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure)
#define RXE_REDIRECTED(name, symbol, type, parameters, arguments, failure) RXE_HOOK_##name,
#include "functions.h"
#undef RXE_FUNCTION
	RXE_NUM_HOOKS,
};

/* The redirection of one function. */
extern struct ib_mkey_rxe_hook {
	enum rxe_function function;
	void *replacement;
	bool registered;
	struct ftrace_ops ops;
} ib_mkey_rxe_hooks[RXE_NUM_HOOKS];

/* redirect_mw.c */
int direct_bind_mw(struct rxe_qp *qp, struct rxe_send_wqe *wqe);
int direct_invalidate_mw(struct rxe_qp *qp, u32 rkey);

#endif /* IB_MKEY_RXE_REDIRECT_H */
