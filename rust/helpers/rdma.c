// SPDX-License-Identifier: GPL-2.0

#include <linux/srcu.h>
#include <linux/vmalloc.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>

__rust_helper void *rust_helper_ib_get_client_data(struct ib_device *device,
						   struct ib_client *client)
{
	return ib_get_client_data(device, client);
}

__rust_helper int rust_helper_ib_check_mr_access(struct ib_device *device,
						 unsigned int flags)
{
	return ib_check_mr_access(device, flags);
}

__rust_helper int rust_helper_ib_device_node(struct ib_device *device)
{
	return device->dev.parent ? dev_to_node(device->dev.parent) : NUMA_NO_NODE;
}

__rust_helper struct page *rust_helper_ib_mkey_virt_to_page(const void *address)
{
	return virt_to_page(address);
}

/* Operations of devices that a client wraps: removing the client waits for those that run. */
DEFINE_STATIC_SRCU(rdma_ops_srcu);

__rust_helper int rust_helper_rdma_ops_enter(void)
{
	return srcu_read_lock(&rdma_ops_srcu);
}

__rust_helper void rust_helper_rdma_ops_leave(int index)
{
	srcu_read_unlock(&rdma_ops_srcu, index);
}

__rust_helper void rust_helper_rdma_ops_drain(void)
{
	synchronize_srcu(&rdma_ops_srcu);
}

__rust_helper int rust_helper_srcu_domain_init(struct srcu_struct *srcu)
{
	return init_srcu_struct(srcu);
}

__rust_helper int rust_helper_srcu_enter(struct srcu_struct *srcu)
{
	return srcu_read_lock(srcu);
}

__rust_helper void rust_helper_srcu_leave(struct srcu_struct *srcu, int index)
{
	srcu_read_unlock(srcu, index);
}

__rust_helper void *rust_helper_xa_remove_if(struct xarray *xa, unsigned long index,
					     void *entry)
{
	void *old = xa_cmpxchg(xa, index, entry, NULL, GFP_KERNEL);

	return old == entry ? old : NULL;
}

/*
 * Zeroed memory that its owner can do without: charged to the caller's cgroup,
 * and no OOM killer for it. The kernel crate has no name for __GFP_RETRY_MAYFAIL.
 */
__rust_helper void *rust_helper_vzalloc_mayfail(size_t size, int node)
{
	return vrealloc_node_align(NULL, size, PAGE_SIZE,
				   GFP_KERNEL_ACCOUNT | __GFP_ZERO |
				   __GFP_RETRY_MAYFAIL | __GFP_NOWARN, node);
}

__rust_helper void rust_helper_vfree(const void *area)
{
	vfree(area);
}
