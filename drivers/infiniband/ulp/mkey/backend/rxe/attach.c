// SPDX-License-Identifier: GPL-2.0
/*
 * Attaches the redirection of rxe's functions by ftrace, and detaches it. The
 * module notifier attaches it when rdma_rxe is loaded, and detaches it when
 * rdma_rxe is unloaded.
 *
 * Locking: ib_mkey_rxe_lock serialises attaching and detaching.
 */

#include <linux/ftrace.h>
#include <linux/kallsyms.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/stringify.h>

#include "redirect.h"
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

struct ib_mkey_rxe_callers ib_mkey_rxe_callers;

static unsigned long replacement_of(const struct ib_mkey_rxe_hook *hook)
{
	return ftrace_jmp_set((unsigned long)hook->replacement);
}

static const char *const symbols[RXE_NUM_FUNCTIONS] = {
#define RXE_FUNCTION(name, symbol, type, parameters, arguments, failure) \
	[RXE_FN_##name] = RXE_PREFIX __stringify(symbol),
#include "functions.h"
#undef RXE_FUNCTION
};

/* kallsyms is not exported, so this parses its text: "name+0x4/0x22d [module]". */
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
 * Returns 0 if ftrace is switched on, or an error. No exported function returns
 * the state of ftrace, but ftrace refuses a permanent probe while it is off. This
 * must be called before the first kprobe is added: as of Linux 7.2, a kprobe that
 * is added and removed while ftrace is off leaves the records of ftrace in
 * disorder.
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
	struct ib_mkey_rxe_callers *callers = &ib_mkey_rxe_callers;
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
	callers->local_copy = range_of(RXE_PREFIX "copy_data");
	callers->local_requester = range_of(RXE_PREFIX "rxe_requester");
	callers->local_ops = range_of(RXE_PREFIX "rxe_do_local_ops");
	callers->task_work = range_of(RXE_PREFIX "do_work");
	callers->own_text = (struct code_range){
		.start = (unsigned long)THIS_MODULE->mem[MOD_TEXT].base,
		.size = THIS_MODULE->mem[MOD_TEXT].size,
	};
	if (!callers->local_copy.size || !callers->task_work.size)
		return -ENOENT;
	ib_mkey_rxe_stock_set(addresses);

	for (i = 0; i < ARRAY_SIZE(ib_mkey_rxe_hooks); i++) {
		struct ib_mkey_rxe_hook *hook = &ib_mkey_rxe_hooks[i];

		err = attach_hook(hook, addresses[hook->function]);
		if (err) {
			pr_err("cannot redirect %s: error %d; a livepatch, kprobe or BPF program may hold it\n",
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
		pr_err("this rdma_rxe lacks a function to redirect\n");
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
