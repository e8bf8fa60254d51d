// SPDX-License-Identifier: GPL-2.0
/*
 * The provider of rxe's devices (rxe_provider.h of rxe): the operations by which
 * rxe calls ib_mkey for its MRs, and the work requests that bind keys.
 *
 * An MR gets the table of operations when ib_mkey claims it, and keeps it. rxe
 * holds a reference to this module for each device that the module extends.
 *
 * ib_mkey does not depend on rdma_rxe by symbols: either module can be unloaded
 * while the other one is loaded and there is no device.
 *
 * Locking: none here. rxe's tasks call the operations without locks.
 */

#include <linux/hmm.h>
#include <linux/module.h>
#include <linux/sched/mm.h>

#include "../../api/uverbs_table.h"
#include "rxe_hook.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

/* rxe's functions. They are set before a device can be used, and valid as long as there is one. */
static const struct rxe_exports *rxe;

/*
 * Returns the peer that @qp serves, and its request. The rkey of a READ, which copies from the MR,
 * is kept separately, because rxe may answer the READ again.
 */
struct ib_mkey_rxe_peer ib_mkey_rxe_peer_of(const struct rxe_qp *qp, enum rxe_mr_copy_dir dir)
{
	const struct resp_res *res = dir == RXE_FROM_MR_OBJ ? qp->resp.res : NULL;
	const struct rxe_mw_binding *mw = qp->resp.mw;

	return (struct ib_mkey_rxe_peer){
		.pd = qp->ibqp.pd,
		.rkey = res ? res->read.rkey : qp->resp.rkey,
		.by_window = mw,
		.access = mw ? mw->access : 0,
	};
}

/* Returns the context of the process that has @pd, or NULL for a kernel user. */
static struct ib_ucontext *context_of(const struct ib_pd *pd)
{
	return pd && pd->uobject ? pd->uobject->context : NULL;
}

/* A process is told nothing of the requests of others, which may name any key. */
static void refused(struct rxe_mr *mr, struct rxe_pd *pd, int access, u32 key, u64 iova,
		    u64 length, bool remote)
{
	if (context_of(&pd->ibpd) == context_of(READ_ONCE(mr->ibmr.pd)))
		ib_mkey_rxe_refused(mr, &pd->ibpd, key, access, iova, length, remote);
}

void ib_mkey_rxe_trace_refused(const struct ib_uverbs_mkey_refused_access *access)
{
	trace_ib_mkey_refused_access(access);
}

static int odp_prefetch(struct rxe_mr *mr, u64 iova, u64 length,
			enum ib_uverbs_advise_mr_advice advice, bool wait)
{
	return ib_mkey_rxe_prefetch(mr, iova, length, advice, wait);
}

static bool odp_stats(struct rxe_mr *mr, struct rxe_odp_stats *stats)
{
	return !ib_mkey_rxe_odp_stats(mr, stats);
}

static int invalidate_mr(struct rxe_mr *mr, struct rxe_qp *qp, u32 key, bool remote)
{
	return ib_mkey_rxe_invalidate_mr(mr, qp->ibqp.pd, key, remote);
}

static int bind_mw(struct rxe_mr *mr, struct rxe_qp *qp, const struct rxe_bind_mw *bind,
		   void **data)
{
	struct ib_mkey_window *window = ib_mkey_rxe_bind_mw(mr, qp->ibqp.pd, bind);

	if (IS_ERR(window))
		return PTR_ERR(window);
	*data = window;

	return 0;
}

static void unbind_mw(void *data)
{
	ib_mkey_rxe_unbind_mw(data);
}

/* Executes a BIND_MW of a process that names a key. The process can write to @wqe at any time. */
static int bind_key(struct rxe_mr *mr, struct rxe_qp *qp, struct rxe_send_wqe *wqe)
{
	const struct rxe_bind_mw bind = {
		.addr = READ_ONCE(wqe->wr.wr.mw.addr),
		.length = READ_ONCE(wqe->wr.wr.mw.length),
		.mr_lkey = READ_ONCE(wqe->wr.wr.mw.mr_lkey),
		.mw_rkey = READ_ONCE(wqe->wr.wr.mw.mw_rkey),
		.rkey = READ_ONCE(wqe->wr.wr.mw.rkey),
		.access = READ_ONCE(wqe->wr.wr.mw.access),
	};
	/* Aligned as the structures of a description. Only bytes that were written are read. */
	u8 data[RXE_MAX_INLINE_DATA] __aligned(8) __uninitialized;
	u32 length = 0;

	if (!bind.length) {
		length = READ_ONCE(wqe->dma.length);
		if (length > sizeof(data) || length > qp->sq.max_inline)
			return -EINVAL;
		memcpy(data, wqe->dma.inline_data, length);
	} else {
		/* A buffer for a short description. Rust must not refer to uninitialized bytes. */
		memset(data, 0, IB_MKEY_RXE_SHORT);
	}

	return ib_mkey_rxe_bind_mkey(mr, qp->ibqp.pd, &bind, data, length);
}

/*
 * Executes the REG_MR of a key, for a kernel user. An allocation must not wait for I/O, because it
 * could wait for the I/O that needs this request.
 */
static int reg_key(struct rxe_mr *mr, struct rxe_qp *qp, struct rxe_send_wqe *wqe, bool oldest)
{
	unsigned int flags = memalloc_noio_save();
	int ret;

	ret = ib_mkey_rxe_reg_mkey(mr, qp->ibqp.pd, wqe->wr.wr.reg.key, wqe->wr.wr.reg.access,
				   oldest);
	memalloc_noio_restore(flags);

	return ret;
}

/*
 * Returns true if @mr is a key that is bound, in the PD of @qp. The PD is compared so that the time
 * a request takes tells nothing of another process's MR.
 */
static bool is_bound(const struct rxe_mr *mr, const struct rxe_qp *qp)
{
	return READ_ONCE(mr->ibmr.pd) == qp->ibqp.pd &&
	       READ_ONCE(mr->state) == RXE_MR_STATE_VALID;
}

/* Returns true for an MR of ib_mkey for fast registration. */
static bool has_elements(const struct rxe_mr *mr)
{
	return READ_ONCE(mr->page_shift) == IB_MKEY_RXE_FAST_REG_SHIFT;
}

/*
 * A request that replaces the layout of a key waits until all earlier requests have completed,
 * because rxe may still send their bytes again. The bind of an unbound key does not wait.
 */
static enum ib_wc_status execute(struct rxe_mr *mr, struct rxe_qp *qp,
				 struct rxe_send_wqe *wqe, bool oldest)
{
	if (!qp->is_user) {
		if (&mr->ibmr != wqe->wr.wr.reg.mr)
			return IB_WC_LOC_QP_OP_ERR;
		if (has_elements(mr))
			return ib_mkey_rxe_reg_fast_mr(mr, qp->ibqp.pd, wqe->wr.wr.reg.key,
						       wqe->wr.wr.reg.access) ?
			       IB_WC_LOC_QP_OP_ERR : IB_WC_SUCCESS;
	}
	if (!oldest && is_bound(mr, qp))
		return IB_WC_MW_BIND_ERR;
	if (qp->is_user ? bind_key(mr, qp, wqe) : reg_key(mr, qp, wqe, oldest))
		return IB_WC_MW_BIND_ERR;

	return IB_WC_SUCCESS;
}

static const struct rxe_mr_ops mr_ops = {
	.check_range = ib_mkey_rxe_check_range,
	.refused = refused,
	.copy = ib_mkey_rxe_copy,
	.atomic_op = ib_mkey_rxe_atomic_op,
	.atomic_write = ib_mkey_rxe_atomic_write,
	.flush = ib_mkey_rxe_flush,
	.invalidate = invalidate_mr,
	.bind_mw = bind_mw,
	.unbind_mw = unbind_mw,
	.execute = execute,
	.odp_prefetch = odp_prefetch,
	.odp_stats = odp_stats,
};

/**
 * ib_mkey_rxe_claim() - let rxe call ib_mkey for an MR
 * @mr: an MR that has not been valid yet
 */
void ib_mkey_rxe_claim(struct rxe_mr *mr)
{
	/* Pairs with the acquire in RxeMr::claimed(). */
	smp_store_release(&mr->ops, &mr_ops);
}

/* The next functions are for the MR of a leaf, which has no table. */

int ib_mkey_rxe_leaf_atomic_op(struct rxe_mr *mr, u64 iova, int opcode, u64 compare,
			       u64 swap_add, u64 *orig_val)
{
	return rxe->atomic_op(mr, iova, opcode, compare, swap_add, orig_val, NULL);
}

int ib_mkey_rxe_leaf_atomic_write(struct rxe_mr *mr, u64 iova, u64 value)
{
	return rxe->atomic_write(mr, iova, value, NULL);
}

int ib_mkey_rxe_leaf_flush(struct rxe_mr *mr, u64 iova, u64 length)
{
	return rxe->flush(mr, iova, length, NULL);
}

int ib_mkey_rxe_leaf_prefetch(struct rxe_mr *mr, u64 iova, u64 length, u32 advice, bool wait)
{
	return rxe->odp_prefetch(mr, iova, length, advice, wait);
}

bool ib_mkey_rxe_leaf_odp_stats(struct rxe_mr *mr, struct rxe_odp_stats *stats)
{
	return rxe->odp_add_stats(mr, stats);
}

/* Returns the part of an implicit MR that has the page at @va, with a reference, or NULL. */
struct ib_umem_odp *ib_mkey_rxe_get_umem(struct rxe_mr *mr, u64 va)
{
	return rxe->odp_get_umem(mr, va);
}

/*
 * Faults in the page of an ODP MR at the address @va of the process. Ends early when the QP of the
 * task that runs this is destroyed. Returns the umem that has the page, with its umem_mutex, or an
 * error pointer.
 */
struct ib_umem_odp *ib_mkey_rxe_fault_and_lock(struct rxe_mr *mr, u64 va, bool write)
{
	return rxe->odp_fault_and_lock(mr, va, 1, write ? HMM_PFN_WRITE : 0);
}

/* Unlocks the umem of a part of an implicit MR, and drops the reference to it. */
void ib_mkey_rxe_unlock_part(struct ib_umem_odp *umem_odp)
{
	rxe->odp_unlock(umem_odp);
}

static int add(struct rxe_dev *rdev, const char *name, const struct rxe_exports *exports)
{
	/* The same ones for each device of a loaded rdma_rxe. */
	WRITE_ONCE(rxe, exports);

	return ib_mkey_rxe_add(&rdev->ib_dev, name, &rdev->provider_data);
}

static void remove(struct rxe_dev *rdev)
{
	void *data = rdev->provider_data;

	rdev->provider_data = NULL;
	ib_mkey_rxe_remove(data);
}

static struct rxe_provider provider = {
	.owner = THIS_MODULE,
	.uapi_defs = ib_mkey_uapi_defs,
	.kernel_cap_flags = IBK_SG_GAPS_REG,
	.add = add,
	.remove = remove,
};

/**
 * ib_mkey_rxe_register() - become the provider of rxe's devices
 * @ops: the device operations of the devices
 *
 * Return: 0, or -EBUSY if there is another provider.
 */
int ib_mkey_rxe_register(const struct ib_device_ops *ops)
{
	provider.ops = ops;

	return rxe_register_provider(&provider);
}

/** ib_mkey_rxe_unregister() - undo ib_mkey_rxe_register(); there is no device any more */
void ib_mkey_rxe_unregister(void)
{
	rxe_unregister_provider(&provider);
}

/**
 * ib_mkey_rxe_is_ours() - tell whether ib_mkey is the provider of a device
 * @ibdev: a device of any driver
 *
 * The operations tell that. An rxe device without a provider may be one of another rdma_rxe, whose
 * structures are not known.
 */
bool ib_mkey_rxe_is_ours(const struct ib_device *ibdev)
{
	return provider.ops && ibdev->ops.dealloc_dm == provider.ops->dealloc_dm;
}

/* Returns the data that ib_mkey_rxe_add() made for a device, or NULL for another device. */
void *ib_mkey_rxe_data(struct ib_device *ibdev)
{
	return ib_mkey_rxe_is_ours(ibdev) ? to_rdev(ibdev)->provider_data : NULL;
}

/* Returns rxe's own device operations. There is a device. */
const struct ib_device_ops *ib_mkey_rxe_ops(void)
{
	return READ_ONCE(rxe)->ops;
}

/* Returns the credentials of the process that opened a device, which @context keeps. */
const struct cred *ib_mkey_rxe_cred(struct ib_ucontext *context)
{
	return to_ruc(context)->cred;
}
