// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of ODP MRs. This is C because the structures have bit fields and inline
 * functions.
 *
 * Locking: ib_mkey_rxe_odp_lock() takes ib_umem_odp.umem_mutex, which keeps
 * invalidations out until ib_mkey_rxe_odp_unlock(). The mutex is not held while
 * a page is faulted in. An implicit MR has an ib_umem_odp for each of its parts,
 * which rxe counts the references to.
 */

#include <linux/highmem.h>
#include <linux/hmm.h>
#include <rdma/ib_umem_odp.h>

#include "rxe_hook.h"
#include "rxe_loc.h"

#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING

/* Pages that were faulted in, or for which that failed. */
static atomic64_t faults;

u64 ib_mkey_rxe_odp_faults(void)
{
	return atomic64_read(&faults);
}

static unsigned long pfn_of(struct ib_umem_odp *umem_odp, u64 va)
{
	return umem_odp->map.pfn_list[(va - ib_umem_start(umem_odp)) >> PAGE_SHIFT];
}

/* Unlocks the umem of an access to @mr. Only that of a part has a reference. */
static void unlock(struct rxe_mr *mr, struct ib_umem_odp *umem_odp)
{
	if (likely(&umem_odp->umem == mr->umem))
		mutex_unlock(&umem_odp->umem_mutex);
	else
		ib_mkey_rxe_unlock_part(umem_odp);
}

/**
 * ib_mkey_rxe_odp_lock() - fault a page in and keep it from being invalidated
 * @mr: an ODP MR
 * @iova: an address of the MR
 * @write: true to write the page
 * @umem: for what ib_mkey_rxe_odp_unlock() needs
 *
 * Return: the mapped page of PAGE_SIZE that contains @iova, or ERR_PTR().
 */
void *ib_mkey_rxe_odp_lock(struct rxe_mr *mr, u64 iova, bool write, void **umem)
{
	struct ib_umem_odp *umem_odp = to_ib_umem_odp(mr->umem);
	u64 offset = iova - READ_ONCE(mr->ibmr.iova), va;
	unsigned long want = HMM_PFN_VALID;
	unsigned long pfn = 0;

	if (offset >= READ_ONCE(mr->ibmr.length))
		return ERR_PTR(-EFAULT);
	va = mr->umem->address + offset;
	if (write)
		want |= HMM_PFN_WRITE;

	if (unlikely(umem_odp->is_implicit_odp))
		umem_odp = ib_mkey_rxe_get_umem(mr, va);
	if (likely(umem_odp)) {
		mutex_lock(&umem_odp->umem_mutex);
		pfn = pfn_of(umem_odp, va);
		if ((pfn & want) != want)
			unlock(mr, umem_odp);
	}
	if ((pfn & want) != want) {
		atomic64_inc(&faults);
		/* On success this returns with the mutex held, and the page is there. */
		umem_odp = ib_mkey_rxe_fault_and_lock(mr, va, write);
		if (IS_ERR(umem_odp))
			return umem_odp;
	}
	*umem = umem_odp;

	return kmap_local_page(rxe_odp_page(umem_odp, va, write));
}

void ib_mkey_rxe_odp_unlock(struct rxe_mr *mr, void *page, void *umem)
{
	kunmap_local(page);
	unlock(mr, umem);
}

#else

u64 ib_mkey_rxe_odp_faults(void)
{
	return 0;
}

void *ib_mkey_rxe_odp_lock(struct rxe_mr *mr, u64 iova, bool write, void **umem)
{
	return ERR_PTR(-EOPNOTSUPP);
}

void ib_mkey_rxe_odp_unlock(struct rxe_mr *mr, void *page, void *umem)
{
}

#endif
