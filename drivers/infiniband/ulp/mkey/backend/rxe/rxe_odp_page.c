// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of MRs on demand. The structures are of bit fields and inline functions.
 *
 * Locking: ib_umem_odp.umem_mutex, which the invalidation takes, from
 * ib_mkey_rxe_odp_lock() to ib_mkey_rxe_odp_unlock(). It is not held while a
 * page is faulted in.
 */

#include <linux/highmem.h>
#include <linux/hmm.h>
#include <rdma/ib_umem_odp.h>

#include "rxe_hook.h"
#include "rxe_loc.h"

#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING

/* Are addresses of the MR those of the process? Stock atomics know no others. */
bool ib_mkey_rxe_odp_at_address(struct rxe_mr *mr)
{
	return mr->ibmr.iova == mr->umem->address;
}

/**
 * ib_mkey_rxe_odp_lock() - keep a page where it is
 * @mr: an MR on demand
 * @iova: an address of the MR
 * @write: whether the page is to be written
 *
 * Return: the mapped page of PAGE_SIZE that @iova is in, or ERR_PTR().
 */
void *ib_mkey_rxe_odp_lock(struct rxe_mr *mr, u64 iova, bool write)
{
	struct ib_umem_odp *umem_odp = to_ib_umem_odp(mr->umem);
	u64 offset = iova - mr->ibmr.iova, va, rest;
	unsigned long want = HMM_PFN_VALID;
	unsigned long index, pfn;
	struct page *page;
	int ret;

	if (offset >= mr->ibmr.length)
		return ERR_PTR(-EFAULT);
	va = mr->umem->address + offset;
	index = (va - ib_umem_start(umem_odp)) >> umem_odp->page_shift;
	if (write)
		want |= HMM_PFN_WRITE;

	mutex_lock(&umem_odp->umem_mutex);
	pfn = umem_odp->map.pfn_list[index];
	if ((pfn & want) != want) {
		mutex_unlock(&umem_odp->umem_mutex);
		/* Returns with the mutex, unless it fails. */
		ret = ib_umem_odp_map_dma_and_lock(umem_odp, va, 1,
						   write ? HMM_PFN_WRITE : 0, true);
		if (ret < 0)
			return ERR_PTR(ret);
		pfn = umem_odp->map.pfn_list[index];
		if ((pfn & want) != want) {
			mutex_unlock(&umem_odp->umem_mutex);
			return ERR_PTR(-EFAULT);
		}
	}
	/* An entry may be for a huge page. */
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

bool ib_mkey_rxe_odp_at_address(struct rxe_mr *mr)
{
	return false;
}

void *ib_mkey_rxe_odp_lock(struct rxe_mr *mr, u64 iova, bool write)
{
	return ERR_PTR(-EOPNOTSUPP);
}

void ib_mkey_rxe_odp_unlock(struct rxe_mr *mr, void *page)
{
}

#endif
