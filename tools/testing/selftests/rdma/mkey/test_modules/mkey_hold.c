// SPDX-License-Identifier: GPL-2.0
/*
 * Holds a thread where it calls a function, until this module is unloaded: so a connection stays in
 * one state. The parameter function names one of points[], task is the begin of the thread's name.
 */

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <rdma/ib_cm.h>
#include <rdma/rdma_cm.h>

static char *function = "";
module_param(function, charp, 0444);
static char *task = "";
module_param(task, charp, 0444);
static bool held;
module_param(held, bool, 0444);

#define POINT(name) { #name, name }
static const struct {
	const char *name;
	void *address;
} points[] = {
	POINT(rdma_resolve_route),
	POINT(rdma_create_qp),
	POINT(rdma_connect),
	POINT(rdma_accept),
	POINT(ib_send_cm_rtu),
	POINT(rdma_disconnect),
	POINT(ib_drain_qp),
	POINT(rdma_destroy_id),
};

static void *address;
static atomic_t armed = ATOMIC_INIT(1);
static DECLARE_COMPLETION(let_go);
static DECLARE_COMPLETION(gone);

/* what the thread calls instead; the functions have up to four arguments */
static long call_held(long a, long b, long c, long d)
{
	long (*call)(long a, long b, long c, long d) = address;
	long ret;

	WRITE_ONCE(held, true);
	wait_for_completion(&let_go);
	ret = call(a, b, c, d);
	complete(&gone);
	return ret;
}

static int before(struct kprobe *probe, struct pt_regs *regs)
{
	if (strncmp(current->comm, task, strlen(task)) || !atomic_xchg(&armed, 0))
		return 0;
	instruction_pointer_set(regs, (unsigned long)call_held);
	return 1;
}

/* Without it the probe is optimised, and cannot change where the thread continues. */
static void after(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe probe = { .pre_handler = before, .post_handler = after };

static int __init mkey_hold_init(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(points); i++) {
		if (!strcmp(points[i].name, function)) {
			address = points[i].address;
			probe.symbol_name = function;
			return register_kprobe(&probe);
		}
	}
	return -EINVAL;
}
module_init(mkey_hold_init);

static void __exit mkey_hold_exit(void)
{
	unregister_kprobe(&probe);
	complete(&let_go);
	if (!atomic_read(&armed))
		wait_for_completion(&gone);
	/* The thread may not have returned to its caller yet. */
	synchronize_rcu_tasks();
}
module_exit(mkey_hold_exit);

MODULE_DESCRIPTION("Stops a thread where it calls a function, for the tests of ib_mkey");
MODULE_LICENSE("GPL");
