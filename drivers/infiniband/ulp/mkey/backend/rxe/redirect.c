// SPDX-License-Identifier: GPL-2.0
/*
 * Redirection of rxe's functions that touch the memory of an MR or bind a
 * memory window.
 *
 * ftrace makes the first instruction of each redirected function jump to a
 * function below (a direct trampoline). A function that takes an MR reads the
 * MR's type: MRs of ib_mkey have types that stock rxe refuses. For all other MRs
 * it jumps past that first instruction, so stock code runs with the stack and
 * the registers of its caller. The module notifier attaches the redirection when
 * rdma_rxe is loaded and detaches it when rdma_rxe is unloaded.
 *
 * A function below that ends in stock code must jump to it. Stock code may sleep,
 * and this module can be unloaded while no device is extended, so no return
 * address of this module may be on the stack. dev/lint/jumps checks the object
 * file.
 *
 * Origin: rxe checks remote access flags when a request arrives, not when it
 * copies the bytes. ib_mkey checks them when it copies, so it must know whether
 * an access is local or remote. rxe_mr_copy() has no argument for that, so its
 * return address decides. Only calls that provably come from rxe's local side
 * count as local; any other caller needs remote access flags.
 *
 * Locking: ib_mkey_rxe_lock serialises attaching and detaching. The data path
 * takes no lock here. A device pins this module (see MkeyDevice) from before
 * the first redirected call until after the last, so the replacements cannot be
 * unloaded while one runs.
 */

#include <linux/ftrace.h>
#include <linux/kallsyms.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>

#include "rxe_hook.h"
#include "stock.h"

#ifndef CONFIG_DYNAMIC_FTRACE_WITH_JMP
#error ib_mkey redirects rxe with ftrace: CONFIG_DYNAMIC_FTRACE_WITH_JMP is needed (x86-64)
#endif

#ifdef CONFIG_LTO
#error link time optimisation may inline the functions of rxe that ib_mkey redirects
#endif

#if IS_BUILTIN(CONFIG_RDMA_RXE)
#error without a module name, symbols of rxe such as copy_data are those of others, too
#endif

#define RXE_PREFIX "rdma_rxe:"

static DEFINE_MUTEX(ib_mkey_rxe_lock);
static bool ib_mkey_rxe_attached;

/* The place of a function's code. */
struct code_range {
	unsigned long start;
	unsigned long size;
};

/* The caller of rxe_mr_copy() for SGEs of this node. */
static struct code_range local_copy;
/* The caller of rxe_invalidate_mr() for LOCAL_INV is one of these. A compiler may merge them. */
static struct code_range local_requester;
static struct code_range local_ops;
/* The function of rxe's work items. */
static struct code_range task_work;
/* This module, whose self-test calls rxe. */
static struct code_range own_text;

static __always_inline bool is_in(const struct code_range *range, unsigned long ip)
{
	return ip - range->start < range->size;
}

static int copy_local(struct rxe_mr *mr, u64 iova, void *addr,
		      unsigned int length, enum rxe_mr_copy_dir dir)
{
	return ib_mkey_rxe_copy(mr, iova, addr, length, dir, NULL);
}

/*
 * Returns the QP whose task runs this and serves a peer, or NULL. For a READ the task must work on
 * a READ: rxe finds a retransmitted request by its PSN, and may find one of another kind.
 */
static __always_inline struct rxe_qp *serving_qp(enum rxe_mr_copy_dir dir)
{
	struct work_struct *work = current_work();
	struct rxe_qp *qp;

	if (!work || !is_in(&task_work, (unsigned long)work->func))
		return NULL;
	qp = container_of(work, struct rxe_task, work)->qp;
	if (dir == RXE_FROM_MR_OBJ && (!qp->resp.res || qp->resp.res->type != RXE_READ_MASK))
		return NULL;
	return qp;
}

static noinline int copy_remote(struct rxe_mr *mr, u64 iova, void *addr,
				unsigned int length, enum rxe_mr_copy_dir dir)
{
	struct rxe_qp *qp = serving_qp(dir);
	struct ib_mkey_rxe_peer peer;

	if (!qp)
		return -EACCES;
	peer = (struct ib_mkey_rxe_peer){ .pd = qp->ibqp.pd, .qp = qp };
	return ib_mkey_rxe_copy(mr, iova, addr, length, dir, &peer);
}

/* Copies as a peer in the MR's PD does. The self-test calls this. */
static noinline int copy_test(struct rxe_mr *mr, u64 iova, void *addr,
			      unsigned int length, enum rxe_mr_copy_dir dir)
{
	struct ib_mkey_rxe_peer peer = { .pd = mr->ibmr.pd };

	return ib_mkey_rxe_copy(mr, iova, addr, length, dir, &peer);
}

/*
 * Copies from an ordinary MR without REMOTE_READ. rereg_user_mr may have moved the MR and removed
 * the flag since the READ arrived. rxe does not check access flags for the rest of the response or
 * for a retransmission. A READ through a memory window is allowed: the window has its own flags.
 */
static noinline int copy_without_flag(struct rxe_mr *mr, u64 iova, void *addr,
				      unsigned int length, enum rxe_mr_copy_dir dir)
{
	struct rxe_qp *qp = serving_qp(dir);

	if (!qp || !rkey_is_mw(qp->resp.res->read.rkey))
		return -EACCES;
	return static_call(rxe_past_copy)(mr, iova, addr, length, dir);
}

static int invalidate_mr(struct rxe_qp *qp, u32 key, bool remote)
{
	struct rxe_mr *mr = ib_mkey_rxe_get_mr(qp->ibqp.device, key >> 8);
	int ret;

	if (!mr)
		return -EINVAL;
	ret = ib_mkey_rxe_invalidate_mr(mr, qp->ibqp.pd, key, remote);
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
static notrace int direct_bind_mw(struct rxe_qp *qp, struct rxe_send_wqe *wqe)
{
	struct ib_mkey_rxe_bind_mw bind = {
		.addr = READ_ONCE(wqe->wr.wr.mw.addr),
		.length = READ_ONCE(wqe->wr.wr.mw.length),
		.mr_lkey = READ_ONCE(wqe->wr.wr.mw.mr_lkey),
		.mw_rkey = READ_ONCE(wqe->wr.wr.mw.mw_rkey),
		.rkey = READ_ONCE(wqe->wr.wr.mw.rkey),
		.access = READ_ONCE(wqe->wr.wr.mw.access),
	};
	struct rxe_mw *mw = ib_mkey_rxe_get_mw(qp->ibqp.device, bind.mw_rkey >> 8);

	if (!mw)
		return -EINVAL;
	bind.of_qp = mw->ibmw.type == IB_MW_TYPE_2;
	/* rxe compares the PD of a window only for type 2, and does not compare that of the MR */
	if (mw->ibmw.pd != qp->ibqp.pd || (bind.length && !is_in_pd(qp, bind.mr_lkey))) {
		ib_mkey_rxe_put_mw(mw);
		return -EINVAL;
	}
	return ib_mkey_rxe_bind_mw(qp, qp->ibqp.pd, mw, &bind);
}

static __always_inline bool mr_is_ours(const struct rxe_mr *mr)
{
	return mr && (mr->ibmr.type == IB_MR_TYPE_SG_GAPS ||
		      mr->ibmr.type == IB_MR_TYPE_DM);
}

/*
 * Returns true for a READ of an ordinary MR that has no REMOTE_READ now. Writes need no such test:
 * rxe checks their flags for each packet and then holds a reference, for which rereg waits.
 */
static __always_inline bool lacks_remote_read(struct rxe_mr *mr, enum rxe_mr_copy_dir dir)
{
	return mr && dir == RXE_FROM_MR_OBJ && mr->ibmr.type == IB_MR_TYPE_USER &&
	       !(READ_ONCE(mr->access) & IB_ACCESS_REMOTE_READ);
}

/* Returns true if the key of an invalidation names an MR of ib_mkey. RCU keeps the MR meanwhile. */
static bool key_is_ours(struct rxe_qp *qp, u32 key)
{
	struct rxe_pool_elem *elem;
	bool ours;

	rcu_read_lock();
	elem = xa_load(&to_rdev(qp->ibqp.device)->mr_pool.xa, key >> 8);
	ours = elem && mr_is_ours(elem->obj);
	rcu_read_unlock();

	return ours;
}

static notrace int direct_check_range(struct rxe_mr *mr, u64 iova, size_t length)
{
	if (mr_is_ours(mr))
		return ib_mkey_rxe_check_range(mr, iova, length);
	return static_call(rxe_past_check_range)(mr, iova, length);
}

static notrace int direct_copy(struct rxe_mr *mr, u64 iova, void *addr,
			       unsigned int length, enum rxe_mr_copy_dir dir)
{
	unsigned long caller = _RET_IP_;

	if (mr_is_ours(mr))
		return is_in(&local_copy, caller) ?
				copy_local(mr, iova, addr, length, dir) :
		       is_in(&own_text, caller) ?
				copy_test(mr, iova, addr, length, dir) :
				copy_remote(mr, iova, addr, length, dir);
	if (lacks_remote_read(mr, dir) && !is_in(&local_copy, caller) &&
	    !is_in(&own_text, caller))
		return copy_without_flag(mr, iova, addr, length, dir);
	return static_call(rxe_past_copy)(mr, iova, addr, length, dir);
}

static notrace enum resp_states direct_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
						 u64 compare, u64 swap_add, u64 *orig_val)
{
	if (mr_is_ours(mr))
		return ib_mkey_rxe_atomic_op(mr, iova, opcode, compare, swap_add, orig_val);
	return static_call(rxe_past_atomic_op)(mr, iova, opcode, compare, swap_add, orig_val);
}

static notrace enum resp_states direct_atomic_write(struct rxe_mr *mr, u64 iova, u64 value)
{
	if (mr_is_ours(mr))
		return ib_mkey_rxe_atomic_write(mr, iova, value);
	return static_call(rxe_past_atomic_write)(mr, iova, value);
}

static notrace int direct_flush(struct rxe_mr *mr, u64 iova, unsigned int length)
{
	if (mr_is_ours(mr))
		return ib_mkey_rxe_flush(mr, iova, length);
	return static_call(rxe_past_flush)(mr, iova, length);
}

static notrace int direct_invalidate_mr(struct rxe_qp *qp, u32 key)
{
	unsigned long caller = _RET_IP_;

	if (key_is_ours(qp, key))
		return invalidate_mr(qp, key, !is_in(&local_requester, caller) &&
					      !is_in(&local_ops, caller));
	return static_call(rxe_past_invalidate_mr)(qp, key);
}

static notrace int direct_invalidate_mw(struct rxe_qp *qp, u32 rkey)
{
	return ib_mkey_rxe_invalidate_mw(qp, qp->ibqp.device, rkey);
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
	mr = to_rmr(wqe->wr.wr.reg.mr);
	if (mr_is_ours(mr))
		return ib_mkey_rxe_reg_fast_mr(mr, qp->ibqp.pd, wqe->wr.wr.reg.key,
					       wqe->wr.wr.reg.access);
	return static_call(rxe_past_reg_fast_mr)(qp, wqe);
}

static struct ib_mkey_rxe_hook {
	enum rxe_function function;
	void *replacement;
	bool registered;
	struct ftrace_ops ops;
} ib_mkey_rxe_hooks[] = {
#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure)
#define RXE_REDIRECTED(name, symbol, type, parameters, arguments, failure) \
	{ RXE_FN_##name, direct_##name },
#include "functions.h"
#undef RXE_FUNCTION
};

static unsigned long replacement_of(const struct ib_mkey_rxe_hook *hook)
{
	return ftrace_jmp_set((unsigned long)hook->replacement);
}

static const char *const symbols[RXE_NUM_FUNCTIONS] = {
#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure) \
	[RXE_FN_##name] = RXE_PREFIX #symbol,
#include "functions.h"
#undef RXE_FUNCTION
};

/* kallsyms is not exported. Its text for an address is: "name+0x4/0x22d [module]". */
static struct code_range range_of(const char *symbol)
{
	unsigned long address = rust_helper_text_address(symbol);
	char text[KSYM_SYMBOL_LEN];
	unsigned long offset, size;
	const char *numbers;

	if (!address)
		return (struct code_range){};
	sprint_symbol(text, address);
	numbers = strchr(text, '+');
	if (!numbers || sscanf(numbers, "+0x%lx/0x%lx", &offset, &size) != 2)
		return (struct code_range){};
	return (struct code_range){ .start = address - offset, .size = size };
}

static void detach_locked(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(ib_mkey_rxe_hooks); i++) {
		struct ib_mkey_rxe_hook *hook = &ib_mkey_rxe_hooks[i];

		if (!hook->registered)
			continue;
		unregister_ftrace_direct(&hook->ops, replacement_of(hook), true);
		hook->registered = false;
	}
	ib_mkey_rxe_stock_reset();
	ib_mkey_rxe_attached = false;
}

static int attach_hook(struct ib_mkey_rxe_hook *hook, unsigned long address)
{
	int err;

	hook->ops.flags |= FTRACE_OPS_FL_PERMANENT;
	err = ftrace_set_filter_ip(&hook->ops, address, 0, 0);
	if (err)
		return err;
	err = register_ftrace_direct(&hook->ops, replacement_of(hook));
	if (err) {
		ftrace_set_filter_ip(&hook->ops, address, 1, 0);
		return err;
	}
	hook->registered = true;
	return 0;
}

static void notrace ftrace_probe(unsigned long ip, unsigned long parent_ip,
				 struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
}

/*
 * Returns 0 if ftrace is switched on, or an error. No exported function tells
 * that, but ftrace refuses a permanent probe while it is off. Call this before
 * the first kprobe: a kprobe that is added and removed while ftrace is off leaves
 * the records of ftrace in disorder, as of Linux 7.2.
 */
static int ftrace_is_on(void)
{
	static struct ftrace_ops probe = {
		.func = ftrace_probe,
		.flags = FTRACE_OPS_FL_PERMANENT,
	};
	unsigned long ip = (unsigned long)ib_mkey_rxe_init;
	int err;

	err = ftrace_set_filter_ip(&probe, ip, 0, 0);
	if (err)
		return err;
	err = register_ftrace_function(&probe);
	if (!err)
		unregister_ftrace_function(&probe);
	ftrace_set_filter_ip(&probe, ip, 1, 0);

	return err;
}

static int attach_locked(void)
{
	unsigned long addresses[RXE_NUM_FUNCTIONS];
	int i, err;

	err = ftrace_is_on();
	if (err) {
		pr_err("cannot redirect rdma_rxe: error %d: is the sysctl kernel.ftrace_enabled 0?\n",
		       err);
		return err;
	}
	for (i = 0; i < RXE_NUM_FUNCTIONS; i++) {
		addresses[i] = rust_helper_text_address(symbols[i]);
		if (!addresses[i])
			return -ENOENT;
	}
	local_copy = range_of(RXE_PREFIX "copy_data");
	local_requester = range_of(RXE_PREFIX "rxe_requester");
	local_ops = range_of(RXE_PREFIX "rxe_do_local_ops");
	task_work = range_of(RXE_PREFIX "do_work");
	own_text = (struct code_range){
		.start = (unsigned long)THIS_MODULE->mem[MOD_TEXT].base,
		.size = THIS_MODULE->mem[MOD_TEXT].size,
	};
	if (!local_copy.size || !task_work.size)
		return -ENOENT;
	ib_mkey_rxe_stock_set(addresses);

	for (i = 0; i < ARRAY_SIZE(ib_mkey_rxe_hooks); i++) {
		struct ib_mkey_rxe_hook *hook = &ib_mkey_rxe_hooks[i];

		err = attach_hook(hook, addresses[hook->function]);
		if (err) {
			pr_err("ib_mkey: cannot redirect %s: error %d; a livepatch, kprobe or BPF program may hold it\n",
			       symbols[hook->function], err);
			detach_locked();
			return err;
		}
	}

	ib_mkey_rxe_attached = true;
	return 0;
}

static int ib_mkey_rxe_notify(struct notifier_block *nb, unsigned long action,
			      void *data)
{
	struct module *mod = data;

	if (strcmp(mod->name, "rdma_rxe"))
		return NOTIFY_DONE;

	mutex_lock(&ib_mkey_rxe_lock);
	/* Before rxe's init, so that its first device finds the redirection. */
	if (action == MODULE_STATE_COMING && !ib_mkey_rxe_attached &&
	    attach_locked() == -ENOENT)
		pr_err("ib_mkey: this rdma_rxe lacks a function to redirect\n");
	/* Before ftrace forgets the module's functions. */
	else if (action == MODULE_STATE_GOING)
		detach_locked();
	mutex_unlock(&ib_mkey_rxe_lock);

	return NOTIFY_OK;
}

static struct notifier_block ib_mkey_rxe_nb = { .notifier_call = ib_mkey_rxe_notify };

/**
 * ib_mkey_rxe_init() - redirect rdma_rxe, now or when it is loaded
 *
 * Return: 0, also while rdma_rxe is not loaded, or the error of ftrace.
 */
int ib_mkey_rxe_init(void)
{
	int err;

	err = register_module_notifier(&ib_mkey_rxe_nb);
	if (err)
		return err;

	mutex_lock(&ib_mkey_rxe_lock);
	err = ib_mkey_rxe_attached ? 0 : attach_locked();
	mutex_unlock(&ib_mkey_rxe_lock);
	/* rdma_rxe is not loaded. The notifier attaches when it is. */
	if (err == -ENOENT)
		err = 0;
	if (err) {
		unregister_module_notifier(&ib_mkey_rxe_nb);
		return err;
	}

	return 0;
}

/** ib_mkey_rxe_exit() - undo ib_mkey_rxe_init(); no device may be extended */
void ib_mkey_rxe_exit(void)
{
	unregister_module_notifier(&ib_mkey_rxe_nb);
	mutex_lock(&ib_mkey_rxe_lock);
	detach_locked();
	mutex_unlock(&ib_mkey_rxe_lock);
}

/**
 * ib_mkey_rxe_attach() - check that rxe calls ib_mkey, for a device of rxe
 *
 * Return: true if the module notifier has redirected every function.
 */
bool ib_mkey_rxe_attach(void)
{
	return READ_ONCE(ib_mkey_rxe_attached);
}

/**
 * ib_mkey_rxe_claim() - let rxe call ib_mkey for an MR
 * @mr: an MR that has not been valid yet
 *
 * This does nothing: redirected functions read the type of the MR.
 */
void ib_mkey_rxe_claim(struct rxe_mr *mr)
{
}
