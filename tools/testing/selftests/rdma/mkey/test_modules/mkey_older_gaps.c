// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel user that is older than ib_mkey and has an MR with gaps, for tests of ib_mkey's removal
 * from a device. ib_core removes the device from ib_mkey first. Until it removes the device from
 * this module, ib_map_mr_sg() calls rxe, which writes to the MR that ib_mkey had claimed.
 *
 * Writing 1 to the parameter "begin" makes the MR. When the device is removed from this module,
 * the module maps a page by the MR and then executes REG_MR. "mapped" and "registered" are the
 * results.
 */

#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <rdma/ib_verbs.h>

#include "rxe.h"
#include "rxe_loc.h"

static char *device = "rxe0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "RDMA device");

static int mapped = -EINPROGRESS;
module_param(mapped, int, 0444);
MODULE_PARM_DESC(mapped, "What ib_map_mr_sg() returned");

static int registered = -EINPROGRESS;
module_param(registered, int, 0444);
MODULE_PARM_DESC(registered, "What rxe_reg_fast_mr() returned");

static int begin(const char *value, const struct kernel_param *kp);
static const struct kernel_param_ops begin_ops = { .set = begin };
module_param_cb(begin, &begin_ops, NULL, 0200);
MODULE_PARM_DESC(begin, "Make the MR");

static struct ib_device *found;
static struct ib_pd *pd;
static struct ib_mr *mr;

static int begin(const char *value, const struct kernel_param *kp)
{
	if (!found || mr)
		return -EINVAL;
	pd = ib_alloc_pd(found, 0);
	if (IS_ERR(pd))
		return PTR_ERR(pd);
	mr = ib_alloc_mr(pd, IB_MR_TYPE_SG_GAPS, 4);
	if (IS_ERR(mr)) {
		int err = PTR_ERR(mr);

		mr = NULL;
		ib_dealloc_pd(pd);
		return err;
	}

	return 0;
}

/* rxe does not export the function. */
static int reg_mr(void)
{
	struct kprobe probe = { .symbol_name = "rxe_reg_fast_mr" };
	int (*reg)(struct rxe_qp *qp, struct rxe_send_wqe *wqe);
	struct rxe_send_wqe *wqe;
	struct rxe_qp *qp;
	int ret;

	ret = register_kprobe(&probe);
	if (ret)
		return ret;
	reg = (void *)probe.addr;
	unregister_kprobe(&probe);

	/* It reads the device and the PD of the queue pair alone. */
	qp = kzalloc_obj(*qp);
	wqe = kzalloc_obj(*wqe);
	ret = -ENOMEM;
	if (qp && wqe) {
		qp->ibqp.device = found;
		qp->ibqp.pd = pd;
		wqe->wr.wr.reg.mr = mr;
		wqe->wr.wr.reg.key = mr->rkey;
		wqe->wr.wr.reg.access = IB_ACCESS_LOCAL_WRITE;
		ret = reg(qp, wqe);
	}
	kfree(wqe);
	kfree(qp);

	return ret;
}

static int older_add(struct ib_device *ibdev)
{
	if (found || strcmp(dev_name(&ibdev->dev), device))
		return -EOPNOTSUPP;
	found = ibdev;

	return 0;
}

static void older_remove(struct ib_device *ibdev, void *data)
{
	struct scatterlist sg;
	void *page;

	if (mr) {
		page = (void *)get_zeroed_page(GFP_KERNEL);
		if (page) {
			sg_init_one(&sg, page, PAGE_SIZE);
			mapped = -ENOMEM;
			if (ib_dma_map_sg(ibdev, &sg, 1, DMA_BIDIRECTIONAL) == 1) {
				mapped = ib_map_mr_sg(mr, &sg, 1, NULL, PAGE_SIZE);
				registered = reg_mr();
				ib_dma_unmap_sg(ibdev, &sg, 1, DMA_BIDIRECTIONAL);
			}
		}
		ib_dereg_mr(mr);
		ib_dealloc_pd(pd);
		free_page((unsigned long)page);
		mr = NULL;
	}
	found = NULL;
}

static struct ib_client client = {
	.name = "mkey_older_gaps",
	.add = older_add,
	.remove = older_remove,
};

static int __init mkey_older_gaps_init(void)
{
	return ib_register_client(&client);
}
module_init(mkey_older_gaps_init);

static void __exit mkey_older_gaps_exit(void)
{
	ib_unregister_client(&client);
}
module_exit(mkey_older_gaps_exit);

MODULE_DESCRIPTION("A kernel user that is older than ib_mkey and has an MR with gaps, for its tests");
MODULE_LICENSE("GPL");
