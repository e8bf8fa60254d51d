// SPDX-License-Identifier: GPL-2.0
/*
 * The tasks of a QP that is about to be destroyed, and those that use an address handle that is.
 *
 * rxe waits 50 seconds for the references to the QP, and a task that runs has one. After that rxe
 * waits only until the task says that it is done. The task then still writes to the QP and releases
 * its reference, so a task that is preempted there uses a QP that was freed. A task runs as long as
 * its access waits for a page, also if the page is one of an ordinary MR on demand. The functions
 * below therefore wait for the tasks before rxe destroys the QP. Kernel users have no such pages.
 */

#include <linux/delay.h>
#include <linux/minmax.h>
#include <linux/rcupdate.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "rxe_hook.h"

/*
 * Waits until a task has returned. A wait of two minutes in one piece would be reported as a hung
 * task.
 */
static void end_task(struct rxe_task *task)
{
	unsigned long us = 20;

	while (work_busy(&task->work)) {
		fsleep(us);
		us = min(2 * us, 100000UL);
	}
	/* work_busy() gives a hint. */
	flush_work(&task->work);
}

/**
 * ib_mkey_rxe_end_tasks() - wait until the tasks of a QP have ended
 * @ibqp: the QP of a process that is about to be destroyed
 *
 * Sleeps as long as an access waits for a page. With the mark below, a task that begins later
 * executes no request, answers none and schedules no task. A task that began earlier may schedule
 * the other one, so the second round waits for that.
 */
void ib_mkey_rxe_end_tasks(struct ib_qp *ibqp)
{
	struct rxe_qp *qp = to_rqp(ibqp);
	unsigned long flags;
	int round;

	/* rxe does not destroy such a QP. */
	if (atomic_read(&qp->mcg_num))
		return;
	spin_lock_irqsave(&qp->state_lock, flags);
	WRITE_ONCE(qp->valid, 0);
	spin_unlock_irqrestore(&qp->state_lock, flags);
	for (round = 0; round < 2; round++) {
		end_task(&qp->recv_task);
		end_task(&qp->send_task);
	}
}

/**
 * ib_mkey_rxe_end_ah() - wait until no request uses an address handle
 * @ibah: the address handle of a process that is about to be destroyed
 *
 * A task has a reference to the handle while it gathers the bytes of a datagram, and rxe waits for
 * that no longer than for a QP. The index of the handle stays taken meanwhile, but no request finds
 * the handle by it. Sleeps as long as an access waits for a page.
 */
void ib_mkey_rxe_end_ah(struct ib_ah *ibah)
{
	struct rxe_pool_elem *elem = &to_rah(ibah)->elem;
	struct xarray *xa = &elem->pool->xa;
	unsigned long us = 20, flags;

	xa_lock_irqsave(xa, flags);
	__xa_cmpxchg(xa, elem->index, elem, XA_ZERO_ENTRY, GFP_ATOMIC);
	xa_unlock_irqrestore(xa, flags);
	/* A request that found the handle before has its reference after this. */
	synchronize_rcu_expedited();
	while (kref_read(&elem->ref_cnt) > 1) {
		fsleep(us);
		us = min(2 * us, 100000UL);
	}
}
