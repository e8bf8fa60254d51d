// SPDX-License-Identifier: GPL-2.0

#include <linux/cred.h>
#include <linux/lockdep.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
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

__rust_helper void rust_helper_rdma_cond_resched(void)
{
	cond_resched();
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
