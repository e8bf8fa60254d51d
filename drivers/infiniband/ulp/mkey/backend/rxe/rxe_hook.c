// SPDX-License-Identifier: GPL-2.0
/*
 * Redirection of rxe's functions that touch the memory of an MR.
 *
 * ftrace calls ib_mkey_rxe_entry() at the start of each function in the table
 * below. It looks at one field, the MR's type: types that stock rxe refuses are
 * ours, and only for these the instruction pointer is changed. All other MRs
 * run stock code. While rdma_rxe is not loaded nothing is attached; the module
 * notifier follows it.
 *
 * Locking: ib_mkey_rxe_lock serialises attaching and detaching. The data path
 * takes no lock here. A device pins this module (see MkeyDevice) from before
 * the first redirected call until after the last, so the replacements cannot be
 * unloaded while one runs.
 */

#include <linux/ftrace.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/static_call.h>
#include <rdma/ib_umem_odp.h>

#include "rxe_hook.h"
#include "rxe_loc.h"

#ifndef CONFIG_DYNAMIC_FTRACE_WITH_ARGS
#error ib_mkey redirects rxe with ftrace: CONFIG_DYNAMIC_FTRACE_WITH_ARGS is needed
#endif

#ifdef CONFIG_LTO
#error link time optimisation may inline the functions of rxe that ib_mkey redirects
#endif

#define IB_MKEY_FTRACE_FLAGS (FTRACE_OPS_FL_SAVE_ARGS | \
			      FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT)

#if IS_BUILTIN(CONFIG_RDMA_RXE)
#define RXE_PREFIX ""
#else
#define RXE_PREFIX "rdma_rxe:"
#endif

/* Targets of the static calls while rdma_rxe is not loaded. */
static int no_check_range(struct rxe_mr *mr, u64 iova, size_t length)
{
	return -ENODEV;
}

static int no_copy(struct rxe_mr *mr, u64 iova, void *addr, unsigned int length,
		   enum rxe_mr_copy_dir dir)
{
	return -ENODEV;
}

static int no_copy_data(struct rxe_pd *pd, int access, struct rxe_dma_info *dma,
			void *addr, int length, enum rxe_mr_copy_dir dir)
{
	return -ENODEV;
}

static enum resp_states no_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
				     u64 compare, u64 swap_add, u64 *orig_val)
{
	return RESPST_ERR_RKEY_VIOLATION;
}

static enum resp_states no_atomic_write(struct rxe_mr *mr, u64 iova, u64 value)
{
	return RESPST_ERR_RKEY_VIOLATION;
}

static int no_flush(struct rxe_mr *mr, u64 iova, unsigned int length)
{
	return -ENODEV;
}

static int no_invalidate(struct rxe_qp *qp, u32 key)
{
	return -ENODEV;
}

static int no_reg_fast(struct rxe_qp *qp, struct rxe_send_wqe *wqe)
{
	return -ENODEV;
}

DEFINE_STATIC_CALL(stock_check_range, no_check_range);
DEFINE_STATIC_CALL(stock_copy, no_copy);
DEFINE_STATIC_CALL(stock_copy_data, no_copy_data);
DEFINE_STATIC_CALL(stock_atomic_op, no_atomic_op);
DEFINE_STATIC_CALL(stock_atomic_write, no_atomic_write);
DEFINE_STATIC_CALL(stock_flush, no_flush);
DEFINE_STATIC_CALL(stock_invalidate, no_invalidate);
DEFINE_STATIC_CALL(stock_reg_fast, no_reg_fast);
#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING
DEFINE_STATIC_CALL(stock_odp_atomic_op, no_atomic_op);
DEFINE_STATIC_CALL(stock_odp_atomic_write, no_atomic_write);
#endif

enum rxe_function {
	RXE_CHECK_RANGE,
	RXE_COPY,
	RXE_ATOMIC_OP,
	RXE_ATOMIC_WRITE,
	RXE_FLUSH,
	RXE_INVALIDATE,
	RXE_REG_FAST,
	/* Called, not redirected. */
	RXE_COPY_DATA,
#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING
	RXE_ODP_ATOMIC_OP,
	RXE_ODP_ATOMIC_WRITE,
#endif
	RXE_NUM_FUNCTIONS,
};

static int redirected_invalidate(struct rxe_qp *qp, u32 key)
{
	struct rxe_mr *mr = ib_mkey_rxe_get_mr(qp->ibqp.device, key >> 8);
	int ret;

	if (!mr)
		return -EINVAL;
	ret = ib_mkey_rxe_invalidate(mr, qp->ibqp.pd, key);
	ib_mkey_rxe_put_mr(mr);

	return ret;
}

/* Of a queue pair of the kernel's, see reg_is_ours(). */
static int redirected_reg_fast(struct rxe_qp *qp, struct rxe_send_wqe *wqe)
{
	return ib_mkey_rxe_reg_fast(to_rmr(wqe->wr.wr.reg.mr), qp->ibqp.pd,
				    wqe->wr.wr.reg.key, wqe->wr.wr.reg.access);
}

static struct ib_mkey_rxe_hook {
	const char *symbol;
	void *replacement;
	unsigned long address;
	bool registered;
	struct ftrace_ops ops;
} ib_mkey_rxe_hooks[RXE_NUM_FUNCTIONS] = {
	[RXE_CHECK_RANGE] = { RXE_PREFIX "mr_check_range", ib_mkey_rxe_check_range },
	[RXE_COPY] = { RXE_PREFIX "rxe_mr_copy", ib_mkey_rxe_copy },
	[RXE_ATOMIC_OP] = { RXE_PREFIX "rxe_mr_do_atomic_op", ib_mkey_rxe_atomic_op },
	[RXE_ATOMIC_WRITE] = { RXE_PREFIX "rxe_mr_do_atomic_write", ib_mkey_rxe_atomic_write },
	[RXE_FLUSH] = { RXE_PREFIX "rxe_flush_pmem_iova", ib_mkey_rxe_flush },
	[RXE_INVALIDATE] = { RXE_PREFIX "rxe_invalidate_mr", redirected_invalidate },
	[RXE_REG_FAST] = { RXE_PREFIX "rxe_reg_fast_mr", redirected_reg_fast },
	[RXE_COPY_DATA] = { RXE_PREFIX "copy_data", NULL },
#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING
	[RXE_ODP_ATOMIC_OP] = { RXE_PREFIX "rxe_odp_atomic_op", NULL },
	[RXE_ODP_ATOMIC_WRITE] = { RXE_PREFIX "rxe_odp_do_atomic_write", NULL },
#endif
};

static DEFINE_MUTEX(ib_mkey_rxe_lock);
static bool ib_mkey_rxe_attached;

static __always_inline bool mr_is_ours(const struct rxe_mr *mr)
{
	return mr && (mr->ibmr.type == IB_MR_TYPE_SG_GAPS ||
		      mr->ibmr.type == IB_MR_TYPE_DM);
}

/* The key of an invalidation names an MR; freed by RCU after it left the pool. */
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

/*
 * A request of a program's is in memory that the program may write to: what it
 * says of an MR is no pointer to follow here.
 */
static bool reg_is_ours(struct rxe_qp *qp, struct rxe_send_wqe *wqe)
{
	return !qp->is_user && mr_is_ours(to_rmr(wqe->wr.wr.reg.mr));
}

static void notrace ib_mkey_rxe_entry(unsigned long ip, unsigned long parent_ip,
				      struct ftrace_ops *ops,
				      struct ftrace_regs *fregs)
{
	struct ib_mkey_rxe_hook *hook =
		container_of(ops, struct ib_mkey_rxe_hook, ops);
	void *first = (void *)ftrace_regs_get_argument(fregs, 0);
	bool ours;
	int bit;

	bit = ftrace_test_recursion_trylock(ip, parent_ip);
	if (WARN_ON_ONCE(bit < 0))
		return;

	if (hook == &ib_mkey_rxe_hooks[RXE_INVALIDATE])
		ours = key_is_ours(first, ftrace_regs_get_argument(fregs, 1));
	else if (hook == &ib_mkey_rxe_hooks[RXE_REG_FAST])
		ours = reg_is_ours(first, (void *)ftrace_regs_get_argument(fregs, 1));
	else
		ours = mr_is_ours(first);
	if (ours)
		ftrace_regs_set_instruction_pointer(fregs,
						    (unsigned long)hook->replacement);

	ftrace_test_recursion_unlock(bit);
}

static void detach_locked(void)
{
	int i;

	for (i = 0; i < RXE_NUM_FUNCTIONS; i++) {
		struct ib_mkey_rxe_hook *hook = &ib_mkey_rxe_hooks[i];

		if (!hook->registered)
			continue;
		unregister_ftrace_function(&hook->ops);
		ftrace_set_filter_ip(&hook->ops, hook->address, 1, 0);
		hook->registered = false;
	}

	static_call_update(stock_check_range, no_check_range);
	static_call_update(stock_copy, no_copy);
	static_call_update(stock_copy_data, no_copy_data);
	static_call_update(stock_atomic_op, no_atomic_op);
	static_call_update(stock_atomic_write, no_atomic_write);
	static_call_update(stock_flush, no_flush);
	static_call_update(stock_invalidate, no_invalidate);
	static_call_update(stock_reg_fast, no_reg_fast);
#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING
	static_call_update(stock_odp_atomic_op, no_atomic_op);
	static_call_update(stock_odp_atomic_write, no_atomic_write);
#endif
	ib_mkey_rxe_attached = false;
}

static void *address(enum rxe_function function)
{
	return (void *)ib_mkey_rxe_hooks[function].address;
}

static int attach_locked(void)
{
	int i, err;

	for (i = 0; i < RXE_NUM_FUNCTIONS; i++) {
		struct ib_mkey_rxe_hook *hook = &ib_mkey_rxe_hooks[i];

		hook->address = rust_helper_text_address(hook->symbol);
		if (!hook->address)
			return -ENOENT;
	}

	static_call_update(stock_check_range, address(RXE_CHECK_RANGE));
	static_call_update(stock_copy, address(RXE_COPY));
	static_call_update(stock_copy_data, address(RXE_COPY_DATA));
	static_call_update(stock_atomic_op, address(RXE_ATOMIC_OP));
	static_call_update(stock_atomic_write, address(RXE_ATOMIC_WRITE));
	static_call_update(stock_flush, address(RXE_FLUSH));
	static_call_update(stock_invalidate, address(RXE_INVALIDATE));
	static_call_update(stock_reg_fast, address(RXE_REG_FAST));
#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING
	static_call_update(stock_odp_atomic_op, address(RXE_ODP_ATOMIC_OP));
	static_call_update(stock_odp_atomic_write, address(RXE_ODP_ATOMIC_WRITE));
#endif

	for (i = 0; i < RXE_NUM_FUNCTIONS; i++) {
		struct ib_mkey_rxe_hook *hook = &ib_mkey_rxe_hooks[i];

		if (!hook->replacement)
			continue;
		hook->ops.func = ib_mkey_rxe_entry;
		hook->ops.flags = IB_MKEY_FTRACE_FLAGS;
		err = ftrace_set_filter_ip(&hook->ops, hook->address, 0, 0);
		if (err)
			goto err_detach;
		err = register_ftrace_function(&hook->ops);
		if (err) {
			ftrace_set_filter_ip(&hook->ops, hook->address, 1, 0);
			goto err_detach;
		}
		hook->registered = true;
	}

	ib_mkey_rxe_attached = true;
	return 0;

err_detach:
	pr_err("ib_mkey: cannot redirect %s: error %d; a livepatch or kprobe may hold it\n",
	       ib_mkey_rxe_hooks[i].symbol, err);
	detach_locked();
	return err;
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
	/* Not there: a module that may still come. */
	if (err == -ENOENT && !IS_BUILTIN(CONFIG_RDMA_RXE))
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

/** ib_mkey_rxe_redirected() - is every function of the table redirected? */
bool ib_mkey_rxe_redirected(void)
{
	return READ_ONCE(ib_mkey_rxe_attached);
}

int ib_mkey_rxe_stock_check_range(struct rxe_mr *mr, u64 iova, size_t length)
{
	return static_call(stock_check_range)(mr, iova, length);
}

int ib_mkey_rxe_stock_copy(struct rxe_mr *mr, u64 iova, void *addr,
			   unsigned int length, enum rxe_mr_copy_dir dir)
{
	return static_call(stock_copy)(mr, iova, addr, length, dir);
}

int ib_mkey_rxe_stock_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
				u64 compare, u64 swap_add, u64 *orig_val)
{
#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING
	if (is_odp_mr(mr))
		return ib_mkey_rxe_odp_at_address(mr) ?
			static_call(stock_odp_atomic_op)(mr, iova, opcode, compare,
							 swap_add, orig_val) :
			RESPST_ERR_RKEY_VIOLATION;
#endif
	return static_call(stock_atomic_op)(mr, iova, opcode, compare, swap_add,
					    orig_val);
}

int ib_mkey_rxe_stock_atomic_write(struct rxe_mr *mr, u64 iova, u64 value)
{
#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING
	if (is_odp_mr(mr))
		return ib_mkey_rxe_odp_at_address(mr) ?
			static_call(stock_odp_atomic_write)(mr, iova, value) :
			RESPST_ERR_RKEY_VIOLATION;
#endif
	return static_call(stock_atomic_write)(mr, iova, value);
}

int ib_mkey_rxe_stock_flush(struct rxe_mr *mr, u64 iova, unsigned int length)
{
	return static_call(stock_flush)(mr, iova, length);
}

/* As a queue pair of the kernel's in @pd that has nothing else, for the self-test. */
int ib_mkey_rxe_stock_invalidate(struct ib_pd *pd, u32 key)
{
	struct rxe_qp *qp __free(kfree) = kzalloc_obj(*qp);

	if (!qp)
		return -ENOMEM;
	qp->ibqp.device = pd->device;
	qp->ibqp.pd = pd;
	return static_call(stock_invalidate)(qp, key);
}

int ib_mkey_rxe_stock_reg_fast(struct ib_mr *mr, u32 key, int access)
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
	return static_call(stock_reg_fast)(qp, wqe);
}

/* One SGE through the function that rxe's requester and completer use. */
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
	return static_call(stock_copy_data)(to_rpd(pd), access, &one.dma, addr,
					    length, dir);
}

struct rxe_mr *ib_mkey_rxe_to_mr(struct ib_mr *ibmr)
{
	return to_rmr(ibmr);
}

/* The MR of a pool index with a reference, or NULL. */
struct rxe_mr *ib_mkey_rxe_get_mr(struct ib_device *ibdev, u32 index)
{
	struct rxe_pool_elem *elem;

	rcu_read_lock();
	elem = xa_load(&to_rdev(ibdev)->mr_pool.xa, index);
	if (elem && !kref_get_unless_zero(&elem->ref_cnt))
		elem = NULL;
	rcu_read_unlock();

	return elem ? elem->obj : NULL;
}

/* What rxe's own release function does: dereg_mr() waits for it. */
static void mr_release(struct kref *ref)
{
	complete(&container_of(ref, struct rxe_pool_elem, ref_cnt)->complete);
}

void ib_mkey_rxe_put_mr(struct rxe_mr *mr)
{
	kref_put(&mr->elem.ref_cnt, mr_release);
}

bool ib_mkey_rxe_is_odp(struct rxe_mr *mr)
{
	return is_odp_mr(mr);
}

/* rxe finds pages on demand by their address in the process. */
bool ib_mkey_rxe_odp_fits(struct rxe_mr *mr, u64 iova)
{
	return !is_odp_mr(mr) || iova == mr->umem->address;
}

/* Pages on demand know their MR. */
void ib_mkey_rxe_own_umem(struct rxe_mr *mr)
{
	if (is_odp_mr(mr))
		to_ib_umem_odp(mr->umem)->private = mr;
}

int ib_mkey_rxe_num_mw(struct rxe_mr *mr)
{
	return atomic_read(&mr->num_mw);
}

enum rxe_mr_state ib_mkey_rxe_state(struct rxe_mr *mr)
{
	/* Before what is read of the MR next. */
	return smp_load_acquire(&mr->state);
}

void ib_mkey_rxe_set_state(struct rxe_mr *mr, enum rxe_mr_state state)
{
	/* Who sees the state sees what was written to the MR before. */
	smp_store_release(&mr->state, state);
}
