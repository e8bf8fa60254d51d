// SPDX-License-Identifier: GPL-2.0
/*
 * Looks at the tasks of rxe's queue pairs when they are destroyed. The task that receives begins a
 * second late if its queue pair is about to be destroyed. "delayed" is the number of these tasks,
 * and "early" that of queue pairs that rxe began to destroy before their tasks had ended.
 */

#include <linux/delay.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/workqueue.h>

#include "rxe.h"
#include "rxe_loc.h"

static uint delayed;
module_param(delayed, uint, 0444);
MODULE_PARM_DESC(delayed, "Tasks that began late");

static uint early;
module_param(early, uint, 0444);
MODULE_PARM_DESC(early, "Queue pairs that rxe began to destroy too early");

static struct kprobe receiver;

/* The thread that has waited, and is in rxe_receiver() now. */
static struct task_struct *passing;

static int receive_late(struct rxe_qp *qp)
{
	int (*receive)(struct rxe_qp *qp) = (void *)receiver.addr;
	int ret;

	delayed++;
	msleep(1000);
	WRITE_ONCE(passing, current);
	ret = receive(qp);
	WRITE_ONCE(passing, NULL);

	return ret;
}

static int instead(struct kprobe *probe, struct pt_regs *regs)
{
	struct rxe_qp *qp = (struct rxe_qp *)regs_get_kernel_argument(regs, 0);

	if (!current_work() || READ_ONCE(qp->valid) || READ_ONCE(passing) == current)
		return 0;
	instruction_pointer_set(regs, (unsigned long)receive_late);
	return 1;
}

/* As in mkey_break.c. */
static void keep_breakpoint(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe receiver = {
	.symbol_name = "rxe_receiver",
	.pre_handler = instead,
	.post_handler = keep_breakpoint,
};

static int look(struct kprobe *probe, struct pt_regs *regs)
{
	struct rxe_qp *qp = to_rqp((struct ib_qp *)regs_get_kernel_argument(regs, 0));

	if (work_busy(&qp->recv_task.work) || work_busy(&qp->send_task.work))
		early++;
	return 0;
}

static struct kprobe destroyer = {
	.symbol_name = "rxe_destroy_qp",
	.pre_handler = look,
};

static int __init mkey_tasks_init(void)
{
	int ret = register_kprobe(&destroyer);

	if (ret)
		return ret;
	ret = register_kprobe(&receiver);
	if (ret)
		unregister_kprobe(&destroyer);

	return ret;
}
module_init(mkey_tasks_init);

static void __exit mkey_tasks_exit(void)
{
	unregister_kprobe(&receiver);
	unregister_kprobe(&destroyer);
}
module_exit(mkey_tasks_exit);

MODULE_DESCRIPTION("Looks at the tasks of queue pairs that are destroyed, for the tests of ib_mkey");
MODULE_LICENSE("GPL");
