// SPDX-License-Identifier: GPL-2.0

#include <linux/nsproxy.h>
#include <net/net_namespace.h>
#include <rdma/ib_cache.h>
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

__rust_helper int rust_helper_ib_device_node(struct ib_device *device)
{
	return device->dev.parent ? dev_to_node(device->dev.parent) : NUMA_NO_NODE;
}

__rust_helper u64 rust_helper_ib_dma_map_single(struct ib_device *device, void *cpu_addr,
						size_t size,
						enum dma_data_direction direction)
{
	return ib_dma_map_single(device, cpu_addr, size, direction);
}

__rust_helper int rust_helper_ib_dma_mapping_error(struct ib_device *device, u64 dma_addr)
{
	return ib_dma_mapping_error(device, dma_addr);
}

__rust_helper void rust_helper_ib_dma_unmap_single(struct ib_device *device, u64 addr,
						   size_t size,
						   enum dma_data_direction direction)
{
	ib_dma_unmap_single(device, addr, size, direction);
}

__rust_helper void
rust_helper_ib_dma_sync_single_for_cpu(struct ib_device *device, u64 addr, size_t size,
				       enum dma_data_direction direction)
{
	ib_dma_sync_single_for_cpu(device, addr, size, direction);
}

__rust_helper void
rust_helper_ib_dma_sync_single_for_device(struct ib_device *device, u64 addr, size_t size,
					  enum dma_data_direction direction)
{
	ib_dma_sync_single_for_device(device, addr, size, direction);
}

__rust_helper int rust_helper_ib_post_send(struct ib_qp *qp,
					   const struct ib_send_wr *send_wr,
					   const struct ib_send_wr **bad_send_wr)
{
	return ib_post_send(qp, send_wr, bad_send_wr);
}

__rust_helper int rust_helper_ib_post_recv(struct ib_qp *qp,
					   const struct ib_recv_wr *recv_wr,
					   const struct ib_recv_wr **bad_recv_wr)
{
	return ib_post_recv(qp, recv_wr, bad_recv_wr);
}

__rust_helper int rust_helper_ib_post_srq_recv(struct ib_srq *srq,
					       const struct ib_recv_wr *recv_wr,
					       const struct ib_recv_wr **bad_recv_wr)
{
	return ib_post_srq_recv(srq, recv_wr, bad_recv_wr);
}

__rust_helper int rust_helper_ib_dma_map_sg(struct ib_device *device, struct scatterlist *list,
					    int nents, enum dma_data_direction direction)
{
	return ib_dma_map_sg(device, list, nents, direction);
}

__rust_helper void rust_helper_ib_dma_unmap_sg(struct ib_device *device, struct scatterlist *list,
					       int nents, enum dma_data_direction direction)
{
	ib_dma_unmap_sg(device, list, nents, direction);
}

/* Returns the network namespace of the current process, with a reference. */
__rust_helper struct net *rust_helper_rdma_current_net(void)
{
	return get_net(current->nsproxy->net_ns);
}

/* Returns the network namespace of a GID, with a reference, or NULL. */
__rust_helper struct net *rust_helper_rdma_gid_net(const struct ib_gid_attr *attr)
{
	struct net_device *ndev;
	struct net *net = NULL;

	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(attr);
	if (!IS_ERR(ndev))
		net = get_net(dev_net(ndev));
	rcu_read_unlock();
	return net;
}

__rust_helper void rust_helper_rdma_put_net(struct net *net)
{
	put_net(net);
}
