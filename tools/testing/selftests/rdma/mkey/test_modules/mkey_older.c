// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel user that is older than ib_mkey, for tests of ib_mkey's removal from a device. It calls
 * four operations of the device as ib_core does, but at the worst time: it reads the pointers while
 * ib_mkey has the device, and calls them after ib_mkey was removed. ib_mkey then calls the driver's
 * operations. This module has replaced these before, so that they sleep.
 *
 * Writing 1 to the parameter "begin" starts this. "asleep" is the number of calls that sleep in the
 * driver's operations. "removed" is Y when ib_core removes the device from this module. Writing 1
 * to "wake" ends the sleep; the removal from this module waits for that.
 */

#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <rdma/ib_verbs.h>

static char *device = "rxe0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "RDMA device");

static bool removed;
module_param(removed, bool, 0444);
MODULE_PARM_DESC(removed, "The device is being removed from this module");

static int asleep_now(char *buffer, const struct kernel_param *kp);
static const struct kernel_param_ops asleep_ops = { .get = asleep_now };
module_param_cb(asleep, &asleep_ops, NULL, 0444);
MODULE_PARM_DESC(asleep, "Calls that sleep in the driver's operations");

static int begin(const char *value, const struct kernel_param *kp);
static const struct kernel_param_ops begin_ops = { .set = begin };
module_param_cb(begin, &begin_ops, NULL, 0200);
MODULE_PARM_DESC(begin, "Call the operations after ib_mkey was removed");

static int wake(const char *value, const struct kernel_param *kp);
static const struct kernel_param_ops wake_ops = { .set = wake };
module_param_cb(wake, &wake_ops, NULL, 0200);
MODULE_PARM_DESC(wake, "End the sleep");

static struct ib_device *found;
static struct {
	int (*create_qp)(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata);
	int (*destroy_qp)(struct ib_qp *qp, struct ib_udata *udata);
	int (*dereg_mr)(struct ib_mr *mr, struct ib_udata *udata);
	int (*dealloc_mw)(struct ib_mw *mw);
} driver;
static atomic_t asleep, started;
static DECLARE_COMPLETION(awake);

static int asleep_now(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%d\n", atomic_read(&asleep));
}

static int sleep_here(void)
{
	atomic_inc(&asleep);
	wait_for_completion(&awake);
	return 0;
}

/* The objects with which the operations are called late. No driver knows them. */
static struct ib_qp late_qp[2];
static struct ib_mr late_mr;
static struct ib_mw late_mw;

static int older_create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	return qp == &late_qp[0] ? sleep_here() : driver.create_qp(qp, attr, udata);
}

static int older_destroy_qp(struct ib_qp *qp, struct ib_udata *udata)
{
	return qp == &late_qp[1] ? sleep_here() : driver.destroy_qp(qp, udata);
}

static int older_dereg_mr(struct ib_mr *mr, struct ib_udata *udata)
{
	return mr == &late_mr ? sleep_here() : driver.dereg_mr(mr, udata);
}

static int older_dealloc_mw(struct ib_mw *mw)
{
	return mw == &late_mw ? sleep_here() : driver.dealloc_mw(mw);
}

/*
 * Waits until ib_mkey was removed, as a thread does that loses the processor right before it calls
 * an operation. It must not sleep. The client data go soon after the operations.
 */
static void lose_processor(void)
{
	unsigned long end;

	while (READ_ONCE(found->ops.dereg_mr) != older_dereg_mr)
		cond_resched();
	for (end = jiffies + HZ; time_before(jiffies, end); )
		cond_resched();
}

/* Reads the pointer of an operation, and calls it late. */
#define CALL_LATE(operation, ...)					\
	do {								\
		__auto_type call = READ_ONCE(found->ops.operation);	\
									\
		atomic_inc(&started);					\
		lose_processor();					\
		call(__VA_ARGS__);					\
	} while (0)

static int create_late(void *unused)
{
	CALL_LATE(create_qp, &late_qp[0], NULL, NULL);
	return 0;
}

static int destroy_late(void *unused)
{
	CALL_LATE(destroy_qp, &late_qp[1], NULL);
	return 0;
}

static int dereg_late(void *unused)
{
	CALL_LATE(dereg_mr, &late_mr, NULL);
	return 0;
}

static int dealloc_late(void *unused)
{
	CALL_LATE(dealloc_mw, &late_mw);
	return 0;
}

static int (*const calls[])(void *) = { create_late, destroy_late, dereg_late, dealloc_late };
static struct task_struct *threads[ARRAY_SIZE(calls)];

static int begin(const char *value, const struct kernel_param *kp)
{
	int i;

	if (!found || threads[0] || found->ops.dereg_mr == older_dereg_mr)
		return -EINVAL;
	late_qp[0].device = found;
	late_qp[1].device = found;
	late_mr.device = found;
	late_mw.device = found;
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		struct task_struct *thread = kthread_create(calls[i], NULL, "mkey_older");

		if (IS_ERR(thread))
			return PTR_ERR(thread);
		threads[i] = get_task_struct(thread);
		wake_up_process(thread);
	}
	while (atomic_read(&started) < ARRAY_SIZE(calls))
		msleep(20);

	return 0;
}

static int wake(const char *value, const struct kernel_param *kp)
{
	complete_all(&awake);
	return 0;
}

static int older_add(struct ib_device *ibdev)
{
	if (found || strcmp(dev_name(&ibdev->dev), device))
		return -EOPNOTSUPP;
	found = ibdev;
	driver.create_qp = ibdev->ops.create_qp;
	driver.destroy_qp = ibdev->ops.destroy_qp;
	driver.dereg_mr = ibdev->ops.dereg_mr;
	driver.dealloc_mw = ibdev->ops.dealloc_mw;
	ibdev->ops.create_qp = older_create_qp;
	ibdev->ops.destroy_qp = older_destroy_qp;
	ibdev->ops.dereg_mr = older_dereg_mr;
	ibdev->ops.dealloc_mw = older_dealloc_mw;

	return 0;
}

static void older_remove(struct ib_device *ibdev, void *data)
{
	int i;

	WRITE_ONCE(removed, true);
	for (i = 0; i < ARRAY_SIZE(calls) && threads[i]; i++) {
		kthread_stop_put(threads[i]);
		threads[i] = NULL;
	}
	ibdev->ops.create_qp = driver.create_qp;
	ibdev->ops.destroy_qp = driver.destroy_qp;
	ibdev->ops.dereg_mr = driver.dereg_mr;
	ibdev->ops.dealloc_mw = driver.dealloc_mw;
	found = NULL;
}

static struct ib_client client = {
	.name = "mkey_older",
	.add = older_add,
	.remove = older_remove,
};

static int __init mkey_older_init(void)
{
	return ib_register_client(&client);
}
module_init(mkey_older_init);

static void __exit mkey_older_exit(void)
{
	ib_unregister_client(&client);
}
module_exit(mkey_older_exit);

MODULE_DESCRIPTION("A kernel user that is older than ib_mkey, for its tests");
MODULE_LICENSE("GPL");
