// SPDX-License-Identifier: GPL-2.0

#include <linux/atomic.h>
#include <linux/lockdep.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/wait_bit.h>

__rust_helper unsigned long rust_helper_spin_lock_irqsave(spinlock_t *lock)
	__acquires(lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

__rust_helper bool rust_helper_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags)
{
	return spin_trylock_irqsave(lock, *flags);
}

__rust_helper void rust_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags)
	__releases(lock)
{
	spin_unlock_irqrestore(lock, flags);
}

/*
 * A thread may hold several mutexes of one class at once, see rust/kernel/sync/lock.rs. Such a
 * thread also holds this lock. The lock excludes no other thread, and exists for lockdep only.
 */
#ifdef CONFIG_DEBUG_LOCK_ALLOC
static struct {
	struct lockdep_map dep_map;
} rdma_many = {
	.dep_map = STATIC_LOCKDEP_MAP_INIT("rdma_many", &rdma_many),
};

__rust_helper void rust_helper_rdma_many_begin(void)
{
	lock_map_acquire(&rdma_many.dep_map);
}

__rust_helper void rust_helper_rdma_many_end(void)
{
	lock_map_release(&rdma_many.dep_map);
}
#else
__rust_helper void rust_helper_rdma_many_begin(void)
{
}

__rust_helper void rust_helper_rdma_many_end(void)
{
}
#endif

__rust_helper void rust_helper_rdma_many_lock(struct mutex *mutex)
{
	mutex_lock_nest_lock(mutex, &rdma_many);
}

/* The count of a value that readers find under RCU, see rust/kernel/sync/rcu_arc.rs. */
__rust_helper bool rust_helper_refcount_inc_not_zero_acquire(refcount_t *refs)
{
	return refcount_inc_not_zero_acquire(refs);
}

__rust_helper void rust_helper_refcount_set_release(refcount_t *refs, int count)
{
	refcount_set_release(refs, count);
}

__rust_helper void rust_helper_rdma_smp_mb(void)
{
	/* The caller says what this orders. */
	smp_mb();
}

/* What has not ended, see rust/kernel/sync/pending.rs. */
__rust_helper bool rust_helper_rdma_none_pending(atomic_t *count)
{
	/* Pairs with the release in atomic_dec_and_test() in rust_helper_rdma_end_pending(). */
	return !atomic_read_acquire(count);
}

__rust_helper void rust_helper_rdma_wait_pending(atomic_t *count)
{
	wait_var_event(count, !atomic_read_acquire(count));
}

__rust_helper bool rust_helper_rdma_wait_pending_killable(atomic_t *count)
{
	return !wait_var_event_killable(count, !atomic_read_acquire(count));
}

__rust_helper bool rust_helper_rdma_wait_pending_timeout(atomic_t *count, long jiffies)
{
	return wait_var_event_timeout(count, !atomic_read_acquire(count), jiffies);
}

__rust_helper void rust_helper_rdma_end_pending(atomic_t *count)
{
	if (atomic_dec_and_test(count))
		wake_up_var(count);
}
