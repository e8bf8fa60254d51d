// SPDX-License-Identifier: GPL-2.0
/*
 * Makes the self-test of ib_mkey fail while this module is loaded, for tests of the
 * error path: a copy to a key returns without copying.
 */

#include <linux/kprobes.h>
#include <linux/module.h>

static int not_copied(void)
{
	return 0;
}

static int instead(struct kprobe *probe, struct pt_regs *regs)
{
	instruction_pointer_set(regs, (unsigned long)not_copied);
	return 1;
}

/* A probe without this may be optimised to a jump, which ignores where pre_handler points. */
static void keep_breakpoint(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe probe = {
	.symbol_name = "ib_mkey_rxe_stock_copy_data",
	.pre_handler = instead,
	.post_handler = keep_breakpoint,
};

static int __init mkey_break_init(void)
{
	return register_kprobe(&probe);
}
module_init(mkey_break_init);

static void __exit mkey_break_exit(void)
{
	unregister_kprobe(&probe);
}
module_exit(mkey_break_exit);

MODULE_DESCRIPTION("Makes the self-test of ib_mkey fail, for its tests");
MODULE_LICENSE("GPL");
