// SPDX-License-Identifier: GPL-2.0
/*
 * Takes a function of rxe as a livepatch does: an ftrace_ops that may change the instruction
 * pointer. It changes nothing and counts the calls. There can be only one such user of a function,
 * and no direct trampoline beside it.
 */

#include <linux/ftrace.h>
#include <linux/kprobes.h>
#include <linux/module.h>

static char *function = "rxe_mr_copy";
module_param(function, charp, 0444);
MODULE_PARM_DESC(function, "The function to take");

static atomic_t hits;
module_param_named(hits, hits.counter, int, 0444);
MODULE_PARM_DESC(hits, "Calls of the function");

static void notrace patched(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
			    struct ftrace_regs *fregs)
{
	atomic_inc(&hits);
}

static struct ftrace_ops ops = {
	.func = patched,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_SAVE_REGS_IF_SUPPORTED,
};

static int __init mkey_patch_init(void)
{
	struct kprobe probe = { .symbol_name = function };
	unsigned long address;
	int ret;

	ret = register_kprobe(&probe);
	if (ret)
		return ret;
	address = (unsigned long)probe.addr;
	unregister_kprobe(&probe);
	ret = ftrace_set_filter_ip(&ops, address, 0, 0);
	if (ret)
		return ret;
	ret = register_ftrace_function(&ops);
	if (ret)
		ftrace_free_filter(&ops);

	return ret;
}
module_init(mkey_patch_init);

static void __exit mkey_patch_exit(void)
{
	unregister_ftrace_function(&ops);
	ftrace_free_filter(&ops);
}
module_exit(mkey_patch_exit);

MODULE_DESCRIPTION("Tests of ib_mkey: patches a function of rxe as a livepatch does");
MODULE_LICENSE("GPL");
