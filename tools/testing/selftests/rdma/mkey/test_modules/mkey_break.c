// SPDX-License-Identifier: GPL-2.0
/*
 * Makes ib_mkey refuse new links of rxe while this module is loaded, for tests of the error
 * path: a copy to a key returns without copying, so the self-test fails. With other_size=1,
 * rxe's queue pairs have another size than ib_mkey was built for.
 */

#include <linux/kprobes.h>
#include <linux/module.h>
#include <rdma/ib_verbs.h>

static bool other_size;
module_param(other_size, bool, 0444);
MODULE_PARM_DESC(other_size, "the queue pairs of new links have another size");

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

/* The queue pairs of the device become larger, which is harmless. */
static int larger(struct kprobe *probe, struct pt_regs *regs)
{
	struct ib_device *ibdev = (struct ib_device *)regs_get_kernel_argument(regs, 0);

	ibdev->ops.size_ib_qp += 8;
	return 0;
}

static struct kprobe size_probe = {
	.symbol_name = "ib_mkey_rxe_sizes_match",
	.pre_handler = larger,
};

static int __init mkey_break_init(void)
{
	return register_kprobe(other_size ? &size_probe : &probe);
}
module_init(mkey_break_init);

static void __exit mkey_break_exit(void)
{
	unregister_kprobe(other_size ? &size_probe : &probe);
}
module_exit(mkey_break_exit);

MODULE_DESCRIPTION("Makes ib_mkey refuse new links, for its tests");
MODULE_LICENSE("GPL");
