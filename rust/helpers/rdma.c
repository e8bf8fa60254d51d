// SPDX-License-Identifier: GPL-2.0

#include <linux/cred.h>
#include <linux/lockdep.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>
#include <linux/user_namespace.h>
#include <linux/wait_bit.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

__rust_helper int rust_helper_ib_check_mr_access(struct ib_device *device,
						 unsigned int flags)
{
	return ib_check_mr_access(device, flags);
}

__rust_helper bool rust_helper_uverbs_attr_is_valid(const struct uverbs_attr_bundle *attrs,
						    unsigned int id)
{
	return uverbs_attr_is_valid(attrs, id);
}

__rust_helper int rust_helper_uverbs_copy_u64(u64 *value, const struct uverbs_attr_bundle *attrs,
					      unsigned int id)
{
	return uverbs_copy_from(value, attrs, id);
}

/*
 * Returns the user whom credentials are of, as a number in the initial user namespace.
 *
 * A user can have many users in a user namespace. These count as the user who made
 * the outermost namespace, or, if root made it, as the root of that namespace.
 */
__rust_helper u32 rust_helper_cred_user(const struct cred *cred)
{
	const struct user_namespace *ns = cred->user_ns;
	kuid_t user = cred->uid, root;

	if (ns != &init_user_ns) {
		while (ns->parent != &init_user_ns)
			ns = ns->parent;
		root = make_kuid((struct user_namespace *)ns, 0);
		if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
			user = ns->owner;
		else if (uid_valid(root))
			user = root;
	}
	return __kuid_val(user);
}

__rust_helper int rust_helper_ib_device_node(struct ib_device *device)
{
	return device->dev.parent ? dev_to_node(device->dev.parent) : NUMA_NO_NODE;
}

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

/* Readers of tables and pointers on the data path, see rust/kernel/sync/srcu.rs. */
DEFINE_STATIC_SRCU_FAST(rdma_table_srcu);

/*
 * Readers that entered and left on each CPU. A writer that finds no reader needs no
 * grace period, which takes milliseconds on a machine of many CPUs.
 */
static DEFINE_PER_CPU(struct rdma_table_readers {
	unsigned long entered;
	unsigned long left;
}, rdma_table_readers);

__rust_helper struct srcu_ctr __percpu *rust_helper_rdma_table_enter(void)
{
	this_cpu_inc(rdma_table_readers.entered);
	/*
	 * Orders the count before the read of a pointer. SRCU-fast has no barrier. Pairs with the
	 * first barrier in rdma_table_is_idle().
	 */
	smp_mb();
	return srcu_read_lock_fast(&rdma_table_srcu);
}

__rust_helper void rust_helper_rdma_table_leave(struct srcu_ctr __percpu *entered)
{
	srcu_read_unlock_fast(&rdma_table_srcu, entered);
	/* Orders the reads before the count. Pairs with the second one in rdma_table_is_idle(). */
	smp_mb();
	this_cpu_inc(rdma_table_readers.left);
}

__rust_helper void rust_helper_rdma_smp_mb(void)
{
	/* The caller says what this orders. */
	smp_mb();
}

__rust_helper void rust_helper_rdma_smp_rmb(void)
{
	/* The caller says what this orders. */
	smp_rmb();
}

__rust_helper void rust_helper_rdma_preempt_disable(void)
{
	preempt_disable();
}

__rust_helper void rust_helper_rdma_preempt_enable(void)
{
	preempt_enable();
}

/*
 * Returns true if all readers that may have found what the caller took out have left.
 * As in the scan of SRCU itself, readers that left are counted first. If the sums are
 * equal, each reader that was seen to enter was seen to leave, too.
 */
static bool rdma_table_is_idle(void)
{
	unsigned long entered = 0, left = 0;
	unsigned int cpu;

	/*
	 * Pairs with the barrier in rust_helper_rdma_table_enter(): a reader that is not counted
	 * below does not find what the caller took out. The loops do not use
	 * for_each_possible_cpu(), which calls a function for each CPU.
	 */
	smp_mb();
	for (cpu = 0; cpu < nr_cpu_ids; cpu++)
		if (cpu_possible(cpu))
			left += READ_ONCE(per_cpu(rdma_table_readers.left, cpu));
	/* Pairs with the barrier in rust_helper_rdma_table_leave(). */
	smp_mb();
	for (cpu = 0; cpu < nr_cpu_ids; cpu++)
		if (cpu_possible(cpu))
			entered += READ_ONCE(per_cpu(rdma_table_readers.entered, cpu));

	if (entered != left)
		return false;
	/* Orders the sums before the caller frees what it took out. */
	smp_mb();
	return true;
}

/* Returns the number of readers that entered. Those that enter meanwhile may be left out. */
__rust_helper unsigned long rust_helper_rdma_table_sections(void)
{
	unsigned long entered = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		entered += READ_ONCE(per_cpu(rdma_table_readers.entered, cpu));
	return entered;
}

__rust_helper void rust_helper_rdma_table_synchronize(void)
{
	if (!rdma_table_is_idle())
		synchronize_srcu_expedited(&rdma_table_srcu);
}

/*
 * Returns the state of SRCU. Once a grace period has passed since then,
 * rdma_table_passed() returns true for that state.
 */
__rust_helper unsigned long rust_helper_rdma_table_era(void)
{
	return get_state_synchronize_srcu(&rdma_table_srcu);
}

__rust_helper bool rust_helper_rdma_table_passed(unsigned long era)
{
	return poll_state_synchronize_srcu(&rdma_table_srcu, era);
}

/* Returns true if no reader is left. Otherwise starts a grace period and does not wait for it. */
__rust_helper bool rust_helper_rdma_table_unused(void)
{
	if (rdma_table_is_idle())
		return true;
	start_poll_synchronize_srcu(&rdma_table_srcu);
	return false;
}

/*
 * Waits for the grace periods that rdma_table_unused() started, also if there is no reader.
 * The module must not be unloaded during a grace period.
 */
__rust_helper void rust_helper_rdma_table_drain(void)
{
	synchronize_srcu(&rdma_table_srcu);
}

__rust_helper void *rust_helper_xa_remove_if(struct xarray *xa, unsigned long index,
					     void *entry)
{
	void *old = xa_cmpxchg(xa, index, entry, NULL, GFP_KERNEL);

	return old == entry ? old : NULL;
}

__rust_helper void rust_helper_rdma_cond_resched(void)
{
	cond_resched();
}

/* Waits until @count is zero, see rust/kernel/sync/users.rs. */
__rust_helper void rust_helper_wait_for_none(atomic_t *count)
{
	wait_var_event(count, !atomic_read_acquire(count));
}

__rust_helper bool rust_helper_wait_for_none_killable(atomic_t *count)
{
	return !wait_var_event_killable(count, !atomic_read_acquire(count));
}

__rust_helper bool rust_helper_wait_for_none_timeout(atomic_t *count, long jiffies)
{
	return wait_var_event_timeout(count, !atomic_read_acquire(count), jiffies);
}

/* Counts a user. This is a full barrier, so it orders the count before the caller's next reads. */
__rust_helper void rust_helper_rdma_count_user(atomic_t *count)
{
	atomic_inc(count);
	/* Pairs with the barrier of a writer between its exchange and its check of the count. */
	smp_mb__after_atomic();
}

/* Returns true if there are no users. The caller may then free what they read. */
__rust_helper bool rust_helper_rdma_no_users(atomic_t *count)
{
	return !atomic_read_acquire(count);
}

/* Ends a user. This is a full barrier. Returns true if no users are left. */
__rust_helper bool rust_helper_rdma_uncount_user(atomic_t *count)
{
	return atomic_dec_and_test(count);
}

__rust_helper void rust_helper_rdma_wake_waiting(atomic_t *count)
{
	wake_up_var(count);
}

__rust_helper void rust_helper_put_and_wake(atomic_t *count)
{
	if (atomic_dec_and_test(count))
		wake_up_var(count);
}
