// SPDX-License-Identifier: GPL-2.0
/*
 * The table of operations by which rxe calls ib_mkey for the MRs of ib_mkey. This
 * needs an rxe with such a table for each MR (patches/rxe). redirect.c does the
 * same for other kernels.
 *
 * An MR gets the table when ib_mkey claims it, and keeps it. rxe holds a reference
 * to this module for each such MR until the MR is destroyed, so the table is not
 * unloaded while rxe can find it. So the table also stays for a kernel user that
 * deregisters an MR after ib_mkey was removed from the device.
 *
 * ib_mkey does not depend on rdma_rxe by symbols: either module can be loaded
 * and unloaded without the other. Calls of rxe come from its own tasks, or from
 * a device that is being added, so rdma_rxe is loaded then. The addresses of
 * rxe's functions are looked up when a device of rxe is added.
 *
 * Locking: ib_mkey_rxe_lock serialises attaching and detaching. The data path
 * takes no lock here.
 */

#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/stringify.h>

#include "rxe_hook.h"
#include "stock.h"

static DEFINE_MUTEX(ib_mkey_rxe_lock);
static bool ib_mkey_rxe_attached;

/* ib_mkey identifies a window by the address of either structure. */
static_assert(offsetof(struct rxe_mw, ibmw) == 0);

static int copy(struct rxe_mr *mr, u64 iova, void *addr, unsigned int length,
		enum rxe_mr_copy_dir dir, struct rxe_qp *qp)
{
	const struct ib_mkey_rxe_part part = ib_mkey_rxe_part(length, dir);

	if (!qp)
		return ib_mkey_rxe_copy_local(mr, iova, addr, part);
	return ib_mkey_rxe_copy_peer(mr, iova, addr, part, qp, ib_mkey_rxe_rkey_of(qp, dir));
}

static enum resp_states atomic_op(struct rxe_mr *mr, u64 iova, int opcode, u64 compare,
				  u64 swap_add, u64 *orig_val, struct rxe_qp *qp)
{
	struct ib_mkey_rxe_peer peer;

	return ib_mkey_rxe_atomic_op(mr, iova, opcode, compare, swap_add, orig_val,
				     ib_mkey_rxe_fill_peer(&peer, qp));
}

static enum resp_states atomic_write(struct rxe_mr *mr, u64 iova, u64 value, struct rxe_qp *qp)
{
	struct ib_mkey_rxe_peer peer;

	return ib_mkey_rxe_atomic_write(mr, iova, value, ib_mkey_rxe_fill_peer(&peer, qp));
}

static int flush(struct rxe_mr *mr, u64 iova, unsigned int length, struct rxe_qp *qp)
{
	struct ib_mkey_rxe_peer peer;

	return ib_mkey_rxe_flush(mr, iova, length, ib_mkey_rxe_fill_peer(&peer, qp));
}

static int invalidate_mr(struct rxe_mr *mr, struct rxe_qp *qp, u32 key, bool remote)
{
	return ib_mkey_rxe_invalidate_mr(mr, qp->ibqp.pd, key, remote);
}

static int reg_fast_mr(struct rxe_mr *mr, struct rxe_qp *qp, u32 key, int access)
{
	return ib_mkey_rxe_reg_fast_mr(mr, qp->ibqp.pd, key, access);
}

/*
 * rxe has compared the PD of the MR. It compares the PD and the rkey of the window during the bind.
 * A request that may not bind the window must not hold up one that may.
 */
static int bind_mw(struct rxe_mw *mw, struct rxe_qp *qp, const struct rxe_bind_mw *bind)
{
	const struct ib_mkey_rxe_bind_mw request = {
		.addr = bind->addr,
		.length = bind->length,
		.mr_lkey = bind->mr_lkey,
		.mw_rkey = bind->mw_rkey,
		.rkey = bind->rkey,
		.access = bind->access,
		.of_qp = mw->ibmw.type == IB_MW_TYPE_2,
	};
	bool may = mw->ibmw.pd == qp->ibqp.pd && READ_ONCE(mw->rkey) == bind->mw_rkey;

	ib_mkey_rxe_put_mw(mw);

	return may ? ib_mkey_rxe_bind_mw(qp, qp->ibqp.pd, mw, &request) : -EINVAL;
}

/* Drops the reference first, so that the window can be deallocated while this waits. */
static int invalidate_mw(struct rxe_mw *mw, struct rxe_qp *qp, u32 rkey)
{
	ib_mkey_rxe_put_mw(mw);
	return ib_mkey_rxe_invalidate_mw(qp, qp->ibqp.device, mw, rkey);
}

static const struct rxe_mr_ops ib_mkey_rxe_mr_ops = {
	.owner = THIS_MODULE,
	.check_range = ib_mkey_rxe_check_range,
	.copy = copy,
	.atomic_op = atomic_op,
	.atomic_write = atomic_write,
	.flush = flush,
	.invalidate = invalidate_mr,
	.reg_fast = reg_fast_mr,
	.bind_mw = bind_mw,
	.invalidate_mw = invalidate_mw,
};

/**
 * ib_mkey_rxe_claim() - let rxe call ib_mkey for an MR
 * @mr: an MR that has not been valid yet
 */
void ib_mkey_rxe_claim(struct rxe_mr *mr)
{
	stock_set_ops(mr, &ib_mkey_rxe_mr_ops);
}

/* rxe with the table compares the PD for each packet of a READ itself. */
void ib_mkey_rxe_compare_pds(void)
{
}

/* Returns a QP that serves a peer in the MR's PD, or NULL. The caller frees it. */
static struct rxe_qp *alloc_test_qp(const struct rxe_mr *mr)
{
	struct rxe_qp *qp = kzalloc_obj(*qp);

	if (!qp)
		return NULL;
	qp->ibqp.pd = READ_ONCE(mr->ibmr.pd);
	qp->resp.rkey = READ_ONCE(mr->rkey);
	return qp;
}

/*
 * This function and the next ones do the operations of a peer in the MR's PD. The self-test calls
 * them.
 */
int ib_mkey_rxe_stock_copy(struct rxe_mr *mr, u64 iova, void *addr,
			   unsigned int length, enum rxe_mr_copy_dir dir)
{
	struct rxe_qp *qp __free(kfree) = alloc_test_qp(mr);

	return qp ? stock_copy(mr, iova, addr, length, dir, qp) : -ENOMEM;
}

int ib_mkey_rxe_test_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
			       u64 compare, u64 swap_add, u64 *orig_val)
{
	struct rxe_qp *qp __free(kfree) = alloc_test_qp(mr);

	return qp ? stock_qp_atomic_op(mr, iova, opcode, compare, swap_add, orig_val, qp) :
		    RESPST_ERR_RKEY_VIOLATION;
}

int ib_mkey_rxe_test_atomic_write(struct rxe_mr *mr, u64 iova, u64 value)
{
	struct rxe_qp *qp __free(kfree) = alloc_test_qp(mr);

	return qp ? stock_qp_atomic_write(mr, iova, value, qp) : RESPST_ERR_RKEY_VIOLATION;
}

int ib_mkey_rxe_test_flush(struct rxe_mr *mr, u64 iova, unsigned int length)
{
	struct rxe_qp *qp __free(kfree) = alloc_test_qp(mr);

	return qp ? stock_qp_flush(mr, iova, length, qp) : -ENOMEM;
}

/* Invalidates an MR like a peer of a QP in @pd. The self-test calls this. */
int ib_mkey_rxe_stock_invalidate_mr(struct ib_pd *pd, u32 key)
{
	struct rxe_qp *qp __free(kfree) = kzalloc_obj(*qp);

	if (!qp)
		return -ENOMEM;
	qp->ibqp.device = pd->device;
	qp->ibqp.pd = pd;
	return stock_invalidate_mr(qp, key, true);
}

/* Returns the MR that a request to bind a window names, with a reference, or NULL. */
static struct rxe_mr *get_mr_to_bind(struct rxe_qp *qp, u32 lkey)
{
	struct rxe_mr *mr = ib_mkey_rxe_get_mr(qp->ibqp.device, ib_mkey_rxe_index(lkey));

	if (!mr)
		return NULL;
	if (READ_ONCE(mr->lkey) == lkey && READ_ONCE(mr->ibmr.pd) == qp->ibqp.pd)
		return mr;
	ib_mkey_rxe_put_mr(mr);

	return NULL;
}

static int bind_to(struct rxe_qp *qp, struct rxe_mw *mw, struct rxe_mr *mr,
		   const struct ib_mkey_rxe_bind_mw *bind)
{
	const struct rxe_bind_mw request = {
		.addr = bind->addr,
		.length = bind->length,
		.mr_lkey = bind->mr_lkey,
		.mw_rkey = bind->mw_rkey,
		.rkey = bind->rkey,
		.access = bind->access,
	};

	return stock_bind_mw(mw, mr, qp, &request);
}

int ib_mkey_rxe_stock_bind_mw(struct rxe_qp *qp, struct rxe_mw *mw,
			      const struct ib_mkey_rxe_bind_mw *bind)
{
	struct rxe_mr *mr = NULL;
	int ret = -EINVAL;

	mw = ib_mkey_rxe_hold_mw(qp->ibqp.device, ib_mkey_rxe_index(bind->mw_rkey), mw);
	if (!mw)
		return ret;
	if (bind->length)
		mr = get_mr_to_bind(qp, bind->mr_lkey);
	if (mr || !bind->length)
		ret = bind_to(qp, mw, mr, bind);
	if (mr)
		ib_mkey_rxe_put_mr(mr);
	ib_mkey_rxe_put_mw(mw);

	return ret;
}

/**
 * ib_mkey_rxe_bind_hidden_mr() - bind a window to a hidden MR
 * @qp: the QP that asks
 * @mw: the window
 * @hidden: the MR, whose range and access flags are those of the window
 * @bind: the request
 *
 * The MR is in another PD than the QP, so that no request can name it. rxe binds a window only to
 * an MR with MW_BIND, which the MR has during this call alone. The caller holds the lock of the
 * window's hidden MRs.
 *
 * Return: 0 or -EINVAL
 */
int ib_mkey_rxe_bind_hidden_mr(struct rxe_qp *qp, struct rxe_mw *mw, struct ib_mr *hidden,
			       const struct ib_mkey_rxe_bind_mw *bind)
{
	struct rxe_mr *mr = to_rmr(hidden);
	int ret;

	mw = ib_mkey_rxe_hold_mw(qp->ibqp.device, ib_mkey_rxe_index(bind->mw_rkey), mw);
	if (!mw)
		return -EINVAL;
	WRITE_ONCE(mr->access, READ_ONCE(mr->access) | IB_ACCESS_MW_BIND);
	ret = bind_to(qp, mw, mr, bind);
	WRITE_ONCE(mr->access, READ_ONCE(mr->access) & ~IB_ACCESS_MW_BIND);
	ib_mkey_rxe_put_mw(mw);

	return ret;
}

int ib_mkey_rxe_stock_invalidate_mw(struct rxe_qp *qp, struct rxe_mw *mw, u32 rkey)
{
	int ret;

	mw = ib_mkey_rxe_hold_mw(qp->ibqp.device, ib_mkey_rxe_index(rkey), mw);
	if (!mw)
		return -EINVAL;
	ret = stock_invalidate_mw(mw, qp, rkey);
	ib_mkey_rxe_put_mw(mw);

	return ret;
}

/* rxe itself ends the windows of a QP that it destroys, and releases the QP of a window first. */
void ib_mkey_rxe_close_mw(struct ib_mw *ibmw)
{
}

bool ib_mkey_rxe_close_qp(struct ib_qp *ibqp)
{
	return false;
}

struct rxe_mw *ib_mkey_rxe_next_mw(struct ib_qp *ibqp, u32 *rkey)
{
	return NULL;
}

static const char *const symbols[RXE_NUM_FUNCTIONS] = {
#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure) \
	[RXE_FN_##name] = __stringify(symbol),
#include "functions.h"
#undef RXE_FUNCTION
};

/*
 * The references to rxe's functions are not kept, so rdma_rxe can be unloaded. The module notifier
 * detaches before the functions are freed, and waits for the mutex that is held here.
 */
static int attach_locked(void)
{
	unsigned long addresses[RXE_NUM_FUNCTIONS];
	int i;

	for (i = 0; i < RXE_NUM_FUNCTIONS; i++) {
		addresses[i] = (unsigned long)__symbol_get(symbols[i]);
		if (!addresses[i])
			return -ENOENT;
		__symbol_put(symbols[i]);
	}
	ib_mkey_rxe_stock_set(addresses);
	ib_mkey_rxe_attached = true;

	return 0;
}

static int ib_mkey_rxe_notify(struct notifier_block *nb, unsigned long action, void *data)
{
	struct module *mod = data;

	if (strcmp(mod->name, "rdma_rxe"))
		return NOTIFY_DONE;

	mutex_lock(&ib_mkey_rxe_lock);
	/* After rxe's exit, which has removed its devices, and before its functions are freed. */
	if (action == MODULE_STATE_GOING) {
		ib_mkey_rxe_stock_reset();
		ib_mkey_rxe_attached = false;
	}
	mutex_unlock(&ib_mkey_rxe_lock);

	return NOTIFY_OK;
}

static struct notifier_block ib_mkey_rxe_nb = {
	.notifier_call = ib_mkey_rxe_notify,
};

/**
 * ib_mkey_rxe_init() - follow rdma_rxe
 *
 * Return: 0 or the error of the notifier.
 */
int ib_mkey_rxe_init(void)
{
	return register_module_notifier(&ib_mkey_rxe_nb);
}

/** ib_mkey_rxe_exit() - undo ib_mkey_rxe_init(); no device may be extended */
void ib_mkey_rxe_exit(void)
{
	unregister_module_notifier(&ib_mkey_rxe_nb);
	mutex_lock(&ib_mkey_rxe_lock);
	ib_mkey_rxe_stock_reset();
	ib_mkey_rxe_attached = false;
	mutex_unlock(&ib_mkey_rxe_lock);
}

/**
 * ib_mkey_rxe_attach() - find rxe's functions, for a device of rxe
 *
 * The process that adds a device has loaded rdma_rxe before.
 *
 * Return: true if every function was found, now or before.
 */
bool ib_mkey_rxe_attach(void)
{
	bool attached;

	mutex_lock(&ib_mkey_rxe_lock);
	if (!ib_mkey_rxe_attached && attach_locked())
		pr_err("this rdma_rxe does not export its functions for MRs, or is being loaded\n");
	attached = ib_mkey_rxe_attached;
	mutex_unlock(&ib_mkey_rxe_lock);

	return attached;
}
