// SPDX-License-Identifier: GPL-2.0

#include <linux/cred.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/user_namespace.h>

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

__rust_helper void rust_helper_rdma_cond_resched(void)
{
	cond_resched();
}

__rust_helper unsigned int rust_helper_noio_begin(void)
{
	return memalloc_noio_save();
}

__rust_helper void rust_helper_noio_end(unsigned int flags)
{
	memalloc_noio_restore(flags);
}

__rust_helper bool rust_helper_current_is_killed(void)
{
	return fatal_signal_pending(current);
}

/*
 * Writes the name of the process. Returns when it was started, which differs between processes that
 * have the same PID, one after the other.
 */
__rust_helper u64 rust_helper_group_leader(char *comm)
{
	get_task_comm(*(char (*)[TASK_COMM_LEN])comm, current->group_leader);

	return current->group_leader->start_time;
}
