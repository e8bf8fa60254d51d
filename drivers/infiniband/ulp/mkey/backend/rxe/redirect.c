// SPDX-License-Identifier: GPL-2.0
/*
 * The functions to which rxe's functions that touch the memory of an MR are
 * redirected. redirect_mw.c has those of memory windows, and attach.c attaches
 * all of them.
 *
 * ftrace makes the first instruction of each redirected function jump to a
 * function below (a direct trampoline). A function that takes an MR reads the
 * MR's type: MRs of ib_mkey have types that stock rxe refuses. For all other MRs
 * it jumps past that first instruction, so stock code runs with the stack and
 * the registers of its caller.
 *
 * A function below that ends in stock code must jump to it. Stock code may sleep,
 * and this module can be unloaded while no device is extended, so no return
 * address of this module may be on the stack. dev/lint/jumps checks the object
 * file.
 *
 * Origin: rxe checks remote access flags when a request arrives, not when it
 * copies the bytes. ib_mkey checks them when it copies, so it must know whether
 * an access is local or remote. No argument of rxe_mr_copy() tells which, so
 * the return address decides. Only calls that provably come from rxe's local
 * side count as local; any other caller needs remote access flags.
 *
 * Locking: the data path takes no lock here. A device pins this module (see
 * MkeyDevice) from before the first redirected call until after the last, so the
 * replacements cannot be unloaded while one runs.
 */

#include <linux/workqueue.h>

#include "redirect.h"
#include "rxe_hook.h"
#include "stock.h"

/* Returns the task of rxe that runs this, or NULL. */
static __always_inline struct rxe_task *running_task(void)
{
	struct work_struct *work = current_work();

	if (!work || !is_in(&ib_mkey_rxe_callers.task_work, (unsigned long)work->func))
		return NULL;
	return container_of(work, struct rxe_task, work);
}

/*
 * Returns the QP whose task runs this and serves a peer, or NULL. For a READ the task must work on
 * a READ: rxe finds a retransmitted request by its PSN, and may find one of another kind.
 */
static __always_inline struct rxe_qp *serving_qp(enum rxe_mr_copy_dir dir)
{
	struct rxe_task *task = running_task();
	struct rxe_qp *qp;

	if (!task)
		return NULL;
	qp = task->qp;
	if (dir == RXE_FROM_MR_OBJ && (!qp->resp.res || qp->resp.res->type != RXE_READ_MASK))
		return NULL;
	return qp;
}

/**
 * ib_mkey_rxe_served() - find the QP that the running task serves
 * @dir: the direction of a copy
 *
 * Return: the QP and the rkey of the peer's request. The QP is NULL if no task of rxe runs this.
 */
struct ib_mkey_rxe_served ib_mkey_rxe_served(u32 dir)
{
	struct rxe_qp *qp = serving_qp(dir);

	return (struct ib_mkey_rxe_served){
		.qp = qp,
		.rkey = qp ? ib_mkey_rxe_rkey_of(qp, dir) : 0,
	};
}

/*
 * Finds the peer of an operation other than a copy. Returns @peer, or NULL if no task of rxe runs
 * this. The self-test, whose @caller is in this module, is a peer in the PD of @mr.
 */
static const struct ib_mkey_rxe_peer *find_peer(struct ib_mkey_rxe_peer *peer,
						const struct rxe_mr *mr, unsigned long caller)
{
	if (!is_in(&ib_mkey_rxe_callers.own_text, caller))
		return ib_mkey_rxe_fill_peer(peer, serving_qp(RXE_TO_MR_OBJ));
	*peer = (struct ib_mkey_rxe_peer){
		.pd = READ_ONCE(mr->ibmr.pd),
		.rkey = READ_ONCE(mr->rkey),
	};
	return peer;
}

/* Does an atomic operation like a peer in the MR's PD. The self-test calls this. */
static noinline enum resp_states atomic_op_test(struct rxe_mr *mr, u64 iova, int opcode,
						u64 compare, u64 swap_add, u64 *orig_val,
						unsigned long caller)
{
	struct ib_mkey_rxe_peer peer;

	return ib_mkey_rxe_atomic_op(mr, iova, opcode, compare, swap_add, orig_val,
				     find_peer(&peer, mr, caller));
}

static noinline enum resp_states atomic_write(struct rxe_mr *mr, u64 iova, u64 value,
					      unsigned long caller)
{
	struct ib_mkey_rxe_peer peer;

	return ib_mkey_rxe_atomic_write(mr, iova, value, find_peer(&peer, mr, caller));
}

static noinline int flush(struct rxe_mr *mr, u64 iova, unsigned int length,
			  unsigned long caller)
{
	struct ib_mkey_rxe_peer peer;

	return ib_mkey_rxe_flush(mr, iova, length, find_peer(&peer, mr, caller));
}

static __always_inline int copy_local(struct rxe_mr *mr, u64 iova, void *addr,
				      unsigned int length, enum rxe_mr_copy_dir dir)
{
	return ib_mkey_rxe_copy_local(mr, iova, addr, ib_mkey_rxe_part(length, dir));
}

static __always_inline int copy_remote(struct rxe_mr *mr, u64 iova, void *addr,
				       unsigned int length, enum rxe_mr_copy_dir dir)
{
	return ib_mkey_rxe_copy_served(mr, iova, addr, ib_mkey_rxe_part(length, dir));
}

/* Copies like a peer in the MR's PD. The self-test calls this. */
static noinline int copy_test(struct rxe_mr *mr, u64 iova, void *addr,
			      unsigned int length, enum rxe_mr_copy_dir dir)
{
	struct rxe_qp *qp __free(kfree) = kzalloc_obj(*qp);

	if (!qp)
		return -ENOMEM;
	qp->ibqp.pd = READ_ONCE(mr->ibmr.pd);
	return ib_mkey_rxe_copy_peer(mr, iova, addr, ib_mkey_rxe_part(length, dir), qp,
				     READ_ONCE(mr->rkey));
}

/*
 * Returns true if bytes of an ordinary MR may be copied now. rereg_user_mr may have moved the MR
 * and removed REMOTE_READ, or changed the PD, since the READ arrived. rxe compares neither for the
 * rest of the response or for a retransmission. A READ through a memory window is allowed: the
 * window has its own flags and PD.
 *
 * The task of a send queue copies for this node only. Its copies come here if a tracer has replaced
 * their return address.
 */
static bool may_read(const struct rxe_mr *mr)
{
	const struct rxe_task *task = running_task();
	const struct rxe_qp *qp;

	if (!task)
		return false;
	qp = task->qp;
	if (task == &qp->send_task)
		return true;
	if (!qp->resp.res || qp->resp.res->type != RXE_READ_MASK)
		return false;
	if (rkey_is_mw(qp->resp.res->read.rkey))
		return true;
	return (READ_ONCE(mr->access) & IB_ACCESS_REMOTE_READ) &&
	       READ_ONCE(mr->ibmr.pd) == qp->ibqp.pd;
}

/* Copies from an ordinary MR for a peer. */
static noinline int copy_for_peer(struct rxe_mr *mr, u64 iova, void *addr,
				  unsigned int length, enum rxe_mr_copy_dir dir)
{
	if (!may_read(mr))
		return -EACCES;
	return static_call(rxe_past_copy)(mr, iova, addr, length, dir);
}

static_assert(IB_MR_TYPE_SG_GAPS - IB_MR_TYPE_MEM_REG == 1);
static_assert(IB_MR_TYPE_DM - IB_MR_TYPE_SG_GAPS == 1);

/*
 * Returns true for an MR of ib_mkey. One comparison suffices for most others: only MEM_REG comes
 * before the types of ib_mkey.
 */
static __always_inline bool is_mkey_mr(const struct rxe_mr *mr)
{
	enum ib_mr_type type = READ_ONCE(mr->ibmr.type);

	if (likely(type > IB_MR_TYPE_DM))
		return false;
	/*
	 * Keeps the compiler from merging both comparisons into one of a range, which takes more
	 * instructions.
	 */
	OPTIMIZER_HIDE_VAR(type);
	return type >= IB_MR_TYPE_SG_GAPS;
}

/* true once rereg_user_mr has moved an ordinary MR to another PD; before, no READ compares PDs */
static bool pds_changed __read_mostly;

/**
 * ib_mkey_rxe_compare_pds() - let later copies for READs compare PDs
 *
 * The caller calls this before it changes the PD of an ordinary MR. If the MR also gets other
 * memory, the caller then waits for the references to the MR. A copy has a reference before it
 * looks at @pds_changed.
 */
void ib_mkey_rxe_compare_pds(void)
{
	WRITE_ONCE(pds_changed, true);
	/* pairs with the atomic increment of the reference that a copy has */
	smp_mb();
}

/*
 * Returns true for a copy from an ordinary MR that may_read() has to look at. Writes need no such
 * test: rxe checks their flags and PD for each packet and then holds a reference, for which rereg
 * waits.
 */
static __always_inline bool is_doubtful(const struct rxe_mr *mr, enum rxe_mr_copy_dir dir)
{
	return dir == RXE_FROM_MR_OBJ && READ_ONCE(mr->ibmr.type) == IB_MR_TYPE_USER &&
	       (!(READ_ONCE(mr->access) & IB_ACCESS_REMOTE_READ) ||
		unlikely(READ_ONCE(pds_changed)));
}

/*
 * Returns the MR of ib_mkey that an lkey or rkey names, with a reference; NULL for another MR or
 * none; an error for an MR of ib_mkey that is being destroyed. RCU keeps the MR until the
 * reference is taken.
 */
static struct rxe_mr *get_own_mr(struct rxe_qp *qp, u32 key)
{
	struct rxe_pool_elem *elem;
	struct rxe_mr *mr;

	rcu_read_lock();
	elem = xa_load(&to_rdev(qp->ibqp.device)->mr_pool.xa, ib_mkey_rxe_index(key));
	mr = elem ? elem->obj : NULL;
	if (!mr || !is_mkey_mr(mr))
		mr = NULL;
	else if (!kref_get_unless_zero(&elem->ref_cnt))
		mr = ERR_PTR(-EINVAL);
	rcu_read_unlock();

	return mr;
}

static noinline int invalidate_mr(struct rxe_qp *qp, struct rxe_mr *mr, u32 key, bool remote)
{
	int ret;

	if (IS_ERR(mr))
		return PTR_ERR(mr);
	ret = ib_mkey_rxe_invalidate_mr(mr, qp->ibqp.pd, key, remote);
	ib_mkey_rxe_put_mr(mr);

	return ret;
}

/* Executes REG_MR. A kernel user may have deregistered the MR of the request. */
static noinline int reg_fast_mr(struct rxe_qp *qp, struct rxe_mr *mr, struct rxe_send_wqe *wqe)
{
	int ret = -EINVAL;

	if (IS_ERR(mr))
		return PTR_ERR(mr);
	if (&mr->ibmr == wqe->wr.wr.reg.mr)
		ret = ib_mkey_rxe_reg_fast_mr(mr, qp->ibqp.pd, wqe->wr.wr.reg.key,
					      wqe->wr.wr.reg.access);
	ib_mkey_rxe_put_mr(mr);

	return ret;
}

static notrace int direct_check_range(struct rxe_mr *mr, u64 iova, size_t length)
{
	if (is_mkey_mr(mr))
		return ib_mkey_rxe_check_range(mr, iova, length);
	return static_call(rxe_past_check_range)(mr, iova, length);
}

static notrace int direct_copy(struct rxe_mr *mr, u64 iova, void *addr,
			       unsigned int length, enum rxe_mr_copy_dir dir)
{
	/* A packet without data may have no MR. */
	if (unlikely(!mr))
		return static_call(rxe_past_copy)(mr, iova, addr, length, dir);
	if (is_mkey_mr(mr))
		return is_in(&ib_mkey_rxe_callers.local_copy, _RET_IP_) ?
				copy_local(mr, iova, addr, length, dir) :
		       is_in(&ib_mkey_rxe_callers.own_text, _RET_IP_) ?
				copy_test(mr, iova, addr, length, dir) :
				copy_remote(mr, iova, addr, length, dir);
	if (is_doubtful(mr, dir) && !is_in(&ib_mkey_rxe_callers.local_copy, _RET_IP_) &&
	    !is_in(&ib_mkey_rxe_callers.own_text, _RET_IP_))
		return copy_for_peer(mr, iova, addr, length, dir);
	return static_call(rxe_past_copy)(mr, iova, addr, length, dir);
}

static notrace enum resp_states direct_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
						 u64 compare, u64 swap_add, u64 *orig_val)
{
	unsigned long caller = _RET_IP_;

	if (is_mkey_mr(mr))
		return is_in(&ib_mkey_rxe_callers.own_text, caller) ?
				atomic_op_test(mr, iova, opcode, compare, swap_add, orig_val,
					       caller) :
				ib_mkey_rxe_atomic_op_served(mr, iova, opcode, compare,
							     swap_add, orig_val);
	return static_call(rxe_past_atomic_op)(mr, iova, opcode, compare, swap_add, orig_val);
}

static notrace enum resp_states direct_atomic_write(struct rxe_mr *mr, u64 iova, u64 value)
{
	unsigned long caller = _RET_IP_;

	if (is_mkey_mr(mr))
		return atomic_write(mr, iova, value, caller);
	return static_call(rxe_past_atomic_write)(mr, iova, value);
}

static notrace int direct_flush(struct rxe_mr *mr, u64 iova, unsigned int length)
{
	unsigned long caller = _RET_IP_;

	if (mr && is_mkey_mr(mr))
		return flush(mr, iova, length, caller);
	return static_call(rxe_past_flush)(mr, iova, length);
}

static notrace int direct_invalidate_mr(struct rxe_qp *qp, u32 key)
{
	const struct ib_mkey_rxe_callers *callers = &ib_mkey_rxe_callers;
	struct rxe_mr *mr = get_own_mr(qp, key);
	unsigned long caller = _RET_IP_;

	if (mr)
		return invalidate_mr(qp, mr, key, !is_in(&callers->local_requester, caller) &&
						  !is_in(&callers->local_ops, caller));
	return static_call(rxe_past_invalidate_mr)(qp, key);
}

/*
 * A process can write to the memory of its requests. The MR pointer in such a request must not be
 * dereferenced, here or in stock rxe.
 */
static notrace int direct_reg_fast_mr(struct rxe_qp *qp, struct rxe_send_wqe *wqe)
{
	struct rxe_mr *mr;

	if (qp->is_user)
		return -EINVAL;
	/*
	 * When rxe repeats earlier requests, it comes to this one again, although it was executed.
	 */
	if (wqe->state == wqe_state_done)
		return 0;
	mr = get_own_mr(qp, wqe->wr.wr.reg.key);
	if (mr)
		return reg_fast_mr(qp, mr, wqe);
	return static_call(rxe_past_reg_fast_mr)(qp, wqe);
}

struct ib_mkey_rxe_hook ib_mkey_rxe_hooks[RXE_NUM_HOOKS] = {
#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure)
#define RXE_REDIRECTED(name, symbol, type, parameters, arguments, failure) \
	{ RXE_FN_##name, direct_##name },
#include "functions.h"
#undef RXE_FUNCTION
};
