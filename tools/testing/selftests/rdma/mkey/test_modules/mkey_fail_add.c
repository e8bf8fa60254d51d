// SPDX-License-Identifier: GPL-2.0
/*
 * Has allocations fail while ib_mkey prepares a device, and only then: all others that
 * add a device, rxe among them, have what they ask for. The parameter symbol names
 * ib_mkey's function, nth the allocation that fails; 0 for none.
 */

#include <linux/bits.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/sched.h>

static char *symbol;
module_param(symbol, charp, 0444);

static unsigned int nth;
module_param(nth, uint, 0644);

/* allocations of the last call of the function up to that one; did it fail? */
static unsigned int allocations = UINT_MAX;
module_param(allocations, uint, 0444);
static bool failed;
module_param(failed, bool, 0444);

/* a number that no call reaches */
#define NEVER BIT(30)

struct call {
	unsigned int nth, before;
};

static int begin(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct call *call = (void *)instance->data;

	call->nth = nth ?: NEVER;
	call->before = current->fail_nth;
	WRITE_ONCE(current->fail_nth, call->nth);
	return 0;
}

static int end(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct call *call = (void *)instance->data;

	allocations = call->nth - READ_ONCE(current->fail_nth);
	failed = allocations == call->nth;
	WRITE_ONCE(current->fail_nth, call->before);
	return 0;
}

static struct kretprobe probe = {
	.entry_handler = begin,
	.handler = end,
	.data_size = sizeof(struct call),
	.maxactive = 8,
};

static int __init mkey_fail_add_init(void)
{
	if (!symbol)
		return -EINVAL;
	probe.kp.symbol_name = symbol;
	return register_kretprobe(&probe);
}
module_init(mkey_fail_add_init);

static void __exit mkey_fail_add_exit(void)
{
	unregister_kretprobe(&probe);
}
module_exit(mkey_fail_add_exit);

MODULE_DESCRIPTION("Has allocations of ib_mkey fail, for its tests");
MODULE_LICENSE("GPL");
