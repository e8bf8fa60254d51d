// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of ODP MRs. This is C because the structures have bit fields and inline
 * functions.
 *
 * Locking: ib_mkey_rxe_odp_lock() takes ib_umem_odp.umem_mutex, which keeps
 * invalidations out until ib_mkey_rxe_odp_unlock(). The mutex is not held while
 * a page is faulted in.
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

/**
 * ib_mkey_rxe_odp_lock() - fault a page in and keep it from being invalidated
 * @mr: an ODP MR
 * @iova: an address of the MR
 * @write: true to write the page
 *
 * Return: the mapped page of PAGE_SIZE that contains @iova, or ERR_PTR().
 */
void *ib_mkey_rxe_odp_lock(struct rxe_mr *mr, u64 iova, bool write)
{
	struct ib_umem_odp *umem_odp = to_ib_umem_odp(mr->umem);
	u64 offset = iova - READ_ONCE(mr->ibmr.iova), va, rest;
	unsigned long want = HMM_PFN_VALID;
	unsigned long index, pfn;
	struct page *page;
	int ret;

	if (offset >= READ_ONCE(mr->ibmr.length))
		return ERR_PTR(-EFAULT);
	va = mr->umem->address + offset;
	index = (va - ib_umem_start(umem_odp)) >> umem_odp->page_shift;
	if (write)
		want |= HMM_PFN_WRITE;

	mutex_lock(&umem_odp->umem_mutex);
	pfn = umem_odp->map.pfn_list[index];
	if ((pfn & want) != want) {
		mutex_unlock(&umem_odp->umem_mutex);
		atomic64_inc(&faults);
		/* On success this returns with the mutex held. */
		ret = ib_mkey_rxe_fault_and_lock(mr, va, write);
		if (ret < 0)
			return ERR_PTR(ret);
		pfn = umem_odp->map.pfn_list[index];
		if ((pfn & want) != want) {
			mutex_unlock(&umem_odp->umem_mutex);
			return ERR_PTR(-EFAULT);
		}
	}
	/* An entry may describe a huge page. */
	rest = va & (BIT_ULL(umem_odp->page_shift) - 1);
	page = hmm_pfn_to_page(pfn) + (rest >> PAGE_SHIFT);

	return kmap_local_page(page);
}

void ib_mkey_rxe_odp_unlock(struct rxe_mr *mr, void *page)
{
	kunmap_local(page);
	mutex_unlock(&to_ib_umem_odp(mr->umem)->umem_mutex);
}

#else

u64 ib_mkey_rxe_odp_faults(void)
{
	return 0;
}

void *ib_mkey_rxe_odp_lock(struct rxe_mr *mr, u64 iova, bool write)
{
	return ERR_PTR(-EOPNOTSUPP);
}

void ib_mkey_rxe_odp_unlock(struct rxe_mr *mr, void *page)
{
}

#endif
