// SPDX-License-Identifier: GPL-2.0
/*
 * rxe's objects by their indices, the fields of an MR that C reads and writes by inline functions,
 * and the parts of a copy that are inline functions.
 */

#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <rdma/ib_umem_odp.h>

#include "rxe_hook.h"
#include "rxe_loc.h"

/*
 * If all memory is mapped in the order of struct page, the address of a page is the address of its
 * struct page, times PAGE_SIZE / sizeof(struct page), plus this number. pages.rs uses it.
 */
unsigned long ib_mkey_rxe_page_base __ro_after_init;

/* Sets the variable above. The module's initialisation calls this before the first copy. */
void ib_mkey_rxe_init_page_base(void)
{
	const struct page *page = virt_to_page(PAGE_OFFSET);

	ib_mkey_rxe_page_base = (unsigned long)page_address(page) -
				(unsigned long)page * (PAGE_SIZE / sizeof(*page));
}

/* Copies from persistent memory. Returns how many bytes were not copied. copy.rs calls it. */
unsigned long ib_mkey_copy_mc(void *to, const void *from, unsigned long len)
{
	return copy_mc_to_kernel(to, from, len);
}

/* Returns the object at a pool index, with a reference, or NULL. */
static void *get_object(struct rxe_pool *pool, u32 index)
{
	struct rxe_pool_elem *elem;

	rcu_read_lock();
	elem = xa_load(&pool->xa, index);
	if (elem && !kref_get_unless_zero(&elem->ref_cnt))
		elem = NULL;
	rcu_read_unlock();

	return elem ? elem->obj : NULL;
}

/* Does what rxe's release function does. The object's destruction waits for the completion. */
static void release(struct kref *ref)
{
	complete(&container_of(ref, struct rxe_pool_elem, ref_cnt)->complete);
}

struct rxe_mr *ib_mkey_rxe_get_mr(struct ib_device *ibdev, u32 index)
{
	return get_object(&to_rdev(ibdev)->mr_pool, index);
}

/* Takes a further reference to an MR. The caller has one. */
void ib_mkey_rxe_ref_mr(struct rxe_mr *mr)
{
	kref_get(&mr->elem.ref_cnt);
}

void ib_mkey_rxe_put_mr(struct rxe_mr *mr)
{
	kref_put(&mr->elem.ref_cnt, release);
}

/* Describes @mw if it is bound to an MR of ib_mkey. */
static bool describe_mw(struct rxe_mw *mw, struct ib_mkey_rxe_mw *found)
{
	struct rxe_mw_binding *binding;
	bool is_bound;

	spin_lock_bh(&mw->lock);
	binding = mw->binding;
	is_bound = binding && binding->mr->ops;
	if (is_bound)
		*found = (struct ib_mkey_rxe_mw){
			.rkey = mw->rkey,
			.lkey = READ_ONCE(binding->mr->lkey),
			.length = binding->length,
		};
	spin_unlock_bh(&mw->lock);

	return is_bound;
}

/*
 * Describes the first window from pool index @from on that is bound to an MR of ib_mkey. Returns
 * false if there is none.
 */
bool ib_mkey_rxe_find_mw(struct ib_device *ibdev, u32 from, struct ib_mkey_rxe_mw *found)
{
	struct rxe_pool *pool = &to_rdev(ibdev)->mw_pool;
	unsigned long index = from;
	struct rxe_mw *mw;
	bool is_bound;

	while (xa_find(&pool->xa, &index, U32_MAX, XA_PRESENT)) {
		mw = get_object(pool, index);
		is_bound = mw && describe_mw(mw, found);
		if (mw)
			kref_put(&mw->elem.ref_cnt, release);
		if (is_bound)
			return true;
		index++;
	}
	return false;
}

bool ib_mkey_rxe_is_odp(struct rxe_mr *mr)
{
	return is_odp_mr(mr);
}

/* Returns true if rxe registered @mr over memory of a process. */
bool ib_mkey_rxe_is_user(struct rxe_mr *mr)
{
	return READ_ONCE(mr->ibmr.type) == IB_MR_TYPE_USER && mr->umem;
}

/*
 * Returns true if @mr, an MR that is alone, is over memory of a process and may have @length bytes
 * from @iova on. rxe finds ODP pages by their address in the process.
 */
bool ib_mkey_rxe_fits(struct rxe_mr *mr, u64 iova, u64 length)
{
	if (!ib_mkey_rxe_is_user(mr) || length > mr->umem->length)
		return false;
	if (is_odp_mr(mr))
		return iova == mr->umem->address;
	return offset_in_page(iova) + length <= (u64)mr->nbuf << PAGE_SHIFT;
}
