// SPDX-License-Identifier: GPL-2.0
/*
 * A provider of rxe's devices other than ib_mkey, for tests. An MR that a process registers with
 * the address PATTERN has no memory: byte n of it is the low byte of n, and it takes only the
 * bytes that it has. All other calls go to rxe. It can be loaded while ib_mkey is not.
 */

#include <linux/module.h>

#include "rxe_provider.h"

/* the first address of an MR without memory */
#define PATTERN 0x7061747465726e00ULL

static const struct rxe_exports *rxe;

static int check_range(struct rxe_mr *mr, u64 iova, size_t length)
{
	u64 offset = iova - PATTERN;

	return length <= mr->ibmr.length && offset <= mr->ibmr.length - length ? 0 : -EINVAL;
}

static int copy(struct rxe_mr *mr, u64 iova, void *addr, unsigned int length,
		enum rxe_mr_copy_dir dir, struct rxe_qp *qp)
{
	u8 *bytes = addr;
	unsigned int i;

	if (check_range(mr, iova, length))
		return -EINVAL;
	for (i = 0; i < length; i++) {
		if (dir == RXE_FROM_MR_OBJ)
			bytes[i] = iova + i;
		else if (bytes[i] != (u8)(iova + i))
			return -EINVAL;
	}

	return 0;
}

static enum resp_states atomic_op(struct rxe_mr *mr, u64 iova, int opcode, u64 compare,
				  u64 swap_add, u64 *orig_val, struct rxe_qp *qp)
{
	return RESPST_ERR_RKEY_VIOLATION;
}

static enum resp_states atomic_write(struct rxe_mr *mr, u64 iova, u64 value, struct rxe_qp *qp)
{
	return RESPST_ERR_RKEY_VIOLATION;
}

static int flush(struct rxe_mr *mr, u64 iova, u64 length, struct rxe_qp *qp)
{
	return -EOPNOTSUPP;
}

static int invalidate(struct rxe_mr *mr, struct rxe_qp *qp, u32 key, bool remote)
{
	return -EINVAL;
}

static int bind_mw(struct rxe_mr *mr, struct rxe_qp *qp, const struct rxe_bind_mw *bind,
		   void **data)
{
	return -EINVAL;
}

static void unbind_mw(void *data)
{
}

static enum ib_wc_status execute(struct rxe_mr *mr, struct rxe_qp *qp,
				 struct rxe_send_wqe *wqe, bool oldest)
{
	return IB_WC_MW_BIND_ERR;
}

static const struct rxe_mr_ops mr_ops = {
	.check_range = check_range,
	.copy = copy,
	.atomic_op = atomic_op,
	.atomic_write = atomic_write,
	.flush = flush,
	.invalidate = invalidate,
	.bind_mw = bind_mw,
	.unbind_mw = unbind_mw,
	.execute = execute,
};

static struct ib_mr *reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access,
				 struct ib_dmah *dmah, struct ib_udata *udata)
{
	struct ib_mr *ibmr;
	struct rxe_mr *mr;

	if (iova != PATTERN)
		return rxe->ops->reg_user_mr(pd, start, length, iova, access, dmah, udata);
	ibmr = rxe->ops->alloc_mr(pd, IB_MR_TYPE_MEM_REG, 1);
	if (IS_ERR(ibmr))
		return ibmr;
	mr = to_rmr(ibmr);
	ibmr->iova = iova;
	ibmr->length = length;
	mr->access = access;
	/* rxe finds the MR by its key from now on, and looks at these two alone first */
	smp_store_release(&mr->ops, &mr_ops);
	/* pairs with rxe's reads of the state */
	smp_store_release(&mr->state, RXE_MR_STATE_VALID);

	return ibmr;
}

static const struct ib_device_ops ops = {
	.reg_user_mr = reg_user_mr,
};

static int add(struct rxe_dev *rdev, const char *name, const struct rxe_exports *exports)
{
	WRITE_ONCE(rxe, exports);
	rdev->provider_data = rdev;

	return 0;
}

static void remove(struct rxe_dev *rdev)
{
	WARN_ON(rdev->provider_data != rdev);
}

static const struct rxe_provider provider = {
	.owner = THIS_MODULE,
	.ops = &ops,
	.add = add,
	.remove = remove,
};

static int __init mkey_provider_init(void)
{
	return rxe_register_provider(&provider);
}
module_init(mkey_provider_init);

static void __exit mkey_provider_exit(void)
{
	rxe_unregister_provider(&provider);
}
module_exit(mkey_provider_exit);

MODULE_DESCRIPTION("Tests of ib_mkey: a second provider of rxe's devices");
MODULE_LICENSE("GPL");
