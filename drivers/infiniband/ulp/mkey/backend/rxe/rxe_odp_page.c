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

/* One try takes up to a second, and occupies a worker. A process may evict its pages each time. */
#define MAX_TRIES 8

/* Pages that were faulted in, or for which that failed. */
static atomic64_t faults;

u64 ib_mkey_rxe_odp_faults(void)
{
	return atomic64_read(&faults);
}

/* Returns true if the MR's addresses are those of the process, as stock atomics require. */
bool ib_mkey_rxe_odp_at_address(struct rxe_mr *mr)
{
	return READ_ONCE(mr->ibmr.iova) == mr->umem->address;
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
	unsigned int tries = MAX_TRIES;
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
		/*
		 * On success this function returns with the mutex held. It fails
		 * with EBUSY if it took more than a second and any page of the MR
		 * was invalidated meanwhile. This page may just have been slow, so
		 * try again.
		 */
		do {
			ret = ib_umem_odp_map_dma_and_lock(umem_odp, va, 1,
							   write ? HMM_PFN_WRITE : 0,
							   true);
		} while (ret == -EBUSY && --tries);
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

/**
 * ib_mkey_rxe_odp_fault() - fault a page in for writing
 * @mr: an ODP MR
 * @iova: an address of the MR
 *
 * Stock code faults the page in, too, but gives up too early if the fault is slow.
 *
 * Return: true if the page was faulted in.
 */
bool ib_mkey_rxe_odp_fault(struct rxe_mr *mr, u64 iova)
{
	void *page = ib_mkey_rxe_odp_lock(mr, iova, true);

	if (IS_ERR(page))
		return false;
	ib_mkey_rxe_odp_unlock(mr, page);

	return true;
}

#else

u64 ib_mkey_rxe_odp_faults(void)
{
	return 0;
}

bool ib_mkey_rxe_odp_at_address(struct rxe_mr *mr)
{
	return false;
}

bool ib_mkey_rxe_odp_fault(struct rxe_mr *mr, u64 iova)
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
