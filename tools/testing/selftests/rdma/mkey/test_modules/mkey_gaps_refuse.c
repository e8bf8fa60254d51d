// SPDX-License-Identifier: GPL-2.0
/* What MRs for fast registration refuse, and with which status. */

#include "mkey_reg.h"

/* Makes eight pieces, and maps them to the MR. */
static int pieces(struct reg_side *side)
{
	gaps_even(side, 8, 5);

	return gaps_map(side) == 8 ? 0 : -EIO;
}

static int registrations(struct reg_test *test)
{
	struct reg_side *there = &test->there;
	struct ib_mr *mr = there->mr;
	u32 key = ib_inc_rkey(mr->rkey);

	/*
	 * By a queue pair of another PD, with another MR's key, with an unsupported access
	 * flag.
	 */
	expect_refused(reg_bind_status(test, &test->here, mr, key, REG_ACCESS));
	expect_refused(reg_bind_status(test, there, mr, key ^ 0x100, REG_ACCESS));
	expect_refused(reg_bind_status(test, there, mr, key, IB_ACCESS_FLUSH_PERSISTENT));
	/*
	 * It is registered with a key that is not its current rkey; it cannot be
	 * registered twice.
	 */
	expect_is(reg_bind_status(test, there, mr, key, REG_ACCESS), IB_WC_SUCCESS);
	expect_is(reg_rdma_status(test, IB_WR_RDMA_READ, mr->iova, 1, mr->rkey),
		  IB_WC_REM_ACCESS_ERR);
	expect_is(reg_rdma_status(test, IB_WR_RDMA_READ, mr->iova, 1, key), IB_WC_SUCCESS);
	expect_refused(reg_bind_status(test, there, mr, key, REG_ACCESS));
	expect_refused(reg_inv_status(test, there, mr->rkey));
	expect_is(reg_inv_status(test, there, key), IB_WC_SUCCESS);
	/* Invalidating once more is harmless. */
	expect_is(reg_inv_status(test, there, key), IB_WC_SUCCESS);
	expect_is(reg_rdma_status(test, IB_WR_RDMA_READ, mr->iova, 1, key), IB_WC_REM_ACCESS_ERR);
	ib_update_fast_reg_key(mr, key);

	return 0;
}

/* An MR of another PD of the same device, which the queue pair must not use. */
static int foreign(struct reg_test *test)
{
	struct reg_side *there = &test->there;
	struct ib_mr *mr, *of = there->mr;
	struct ib_pd *pd;

	pd = ib_alloc_pd(there->side->device, 0);
	expect(!IS_ERR(pd));
	mr = ib_alloc_mr(pd, IB_MR_TYPE_SG_GAPS, 8);
	expect(!IS_ERR(mr));
	there->mr = mr;
	expect(!pieces(there));
	expect_refused(reg_bind_status(test, there, mr, mr->rkey, REG_ACCESS));
	expect_refused(reg_inv_status(test, there, mr->rkey));
	there->mr = of;
	expect(!ib_dereg_mr(mr));
	ib_dealloc_pd(pd);

	return 0;
}

static int accesses(struct reg_test *test)
{
	struct reg_side *there = &test->there;
	struct ib_mr *mr = there->mr;
	struct reg_chain chain = {};
	u32 old = mr->rkey;

	expect_is(gaps_register(test, there, IB_ACCESS_REMOTE_READ), IB_WC_SUCCESS);
	expect_is(reg_rdma_status(test, IB_WR_RDMA_READ, mr->iova, 1, old), IB_WC_REM_ACCESS_ERR);
	expect_is(reg_rdma_status(test, IB_WR_RDMA_READ, mr->iova, mr->length, mr->rkey),
		  IB_WC_SUCCESS);
	expect_is(reg_rdma_status(test, IB_WR_RDMA_READ, mr->iova - 1, 1, mr->rkey),
		  IB_WC_REM_ACCESS_ERR);
	expect_is(reg_rdma_status(test, IB_WR_RDMA_READ, mr->iova + 1, mr->length, mr->rkey),
		  IB_WC_REM_ACCESS_ERR);
	expect_is(reg_rdma_status(test, IB_WR_RDMA_READ, 0, 1, mr->rkey), IB_WC_REM_ACCESS_ERR);
	expect_is(reg_rdma_status(test, IB_WR_RDMA_WRITE, mr->iova, 1, mr->rkey),
		  IB_WC_REM_ACCESS_ERR);
	expect_is(gaps_invalidate(test, there), IB_WC_SUCCESS);

	/* By the lkey as well: after the chain itself has invalidated it. */
	reg_bind(&chain, mr, mr->rkey, 0);
	reg_inv(&chain, mr->rkey);
	reg_rdma(&chain, IB_WR_SEND, mr->iova, mr->lkey, 1, 0, 0);
	expect(!reg_run(there->side, &chain));
	expect_is(chain.status[0], IB_WC_SUCCESS);
	expect_is(chain.status[1], IB_WC_SUCCESS);
	expect_is(chain.status[2], IB_WC_LOC_PROT_ERR);

	return ulp_link_connect(&test->link);
}

/* Requests and calls for keys are refused. */
static int keys(struct reg_test *test)
{
	struct reg_side *there = &test->there;
	struct ib_sge all = { .length = 1, .lkey = there->side->pd->local_dma_lkey };
	struct ib_sge over = { .addr = there->mr->iova, .length = 1, .lkey = there->mr->lkey };
	struct ib_mr *mkey;

	all.addr = sg_dma_address(there->sg);
	expect(ib_bind_mkey_list(there->mr, &all, 1, REG_ACCESS) == -EINVAL);
	expect(ib_unbind_mkey(there->mr) == -EINVAL);
	mkey = ib_alloc_mkey(there->side->pd, 1);
	expect(!IS_ERR(mkey));
	/* It is not registered, so it has no bytes. */
	expect(ib_bind_mkey_list(mkey, &over, 1, REG_ACCESS) == -ERANGE);
	expect(ib_map_mr_sg(mkey, there->sg, 1, NULL, SZ_64K) == -EINVAL);
	expect(mkey->page_size == PAGE_SIZE);
	expect(!ib_bind_mkey_list(mkey, &all, 1, REG_ACCESS));
	expect(!ib_unbind_mkey(mkey));
	/* No layout is staged. */
	expect_is(reg_bind_status(test, there, mkey, mkey->rkey, REG_ACCESS), IB_WC_MW_BIND_ERR);

	return ib_dereg_mr(mkey);
}

/* MRs that are deregistered in every state. */
static int lives(struct reg_test *test)
{
	struct reg_side *there = &test->there;
	struct ib_pd *pd = there->side->pd;
	struct ib_mr *mr, *of = there->mr;
	int i, ret = 0;
	u64 iova;
	u32 rkey;

	expect(PTR_ERR(ib_alloc_mr(pd, IB_MR_TYPE_SG_GAPS, 0)) == -EINVAL);
	expect(PTR_ERR(ib_alloc_mr(pd, IB_MR_TYPE_SG_GAPS, U32_MAX)) == -EINVAL);
	for (i = 0; i < 3 && !ret; i++) {
		mr = ib_alloc_mr(pd, IB_MR_TYPE_SG_GAPS, 8);
		expect(!IS_ERR(mr));
		there->mr = mr;
		if (i == 0)
			/* Nothing is mapped. */
			expect_refused(reg_bind_status(test, there, mr, mr->rkey, 0));
		if (i > 0)
			ret = pieces(there);
		if (i > 1)
			ret = ret ?: gaps_register(test, there, REG_ACCESS);
		iova = mr->iova;
		rkey = mr->rkey;
		there->mr = of;
		ret = ret ?: ib_dereg_mr(mr);
		if (i > 1)
			ret = ret ?: reg_rdma_status(test, IB_WR_RDMA_READ, iova, 1, rkey) !=
					     IB_WC_REM_ACCESS_ERR;
	}

	return ret;
}

/*
 * A key over a registered MR: while it is bound, no other list can be mapped to the
 * MR.
 */
static int leaf(struct reg_test *test)
{
	struct reg_side *there = &test->there;
	struct ib_sge over = { .addr = there->mr->iova, .length = 1, .lkey = there->mr->lkey };
	struct ib_mr *mkey;

	mkey = ib_alloc_mkey(there->side->pd, 1);
	expect(!IS_ERR(mkey));
	expect(!ib_bind_mkey_list(mkey, &over, 1, REG_ACCESS));
	expect_is(reg_rdma_status(test, IB_WR_RDMA_READ, 0, 1, mkey->rkey), IB_WC_SUCCESS);
	expect(ib_map_mr_sg(there->mr, there->sg, 1, NULL, SZ_64K) == -EBUSY);
	expect(there->mr->page_size == PAGE_SIZE);
	expect(!ib_unbind_mkey(mkey));
	expect(ib_map_mr_sg(there->mr, there->sg, 1, NULL, PAGE_SIZE) == 1);

	return ib_dereg_mr(mkey);
}

/* Reads 20 bytes through a key, and compares them to bytes 55, ... of the pieces. */
static int leaf_bytes(struct reg_test *test, u32 rkey)
{
	u32 i;

	memset(test->here.memory, 0, PAGE_SIZE);
	expect_is(reg_rdma_status(test, IB_WR_RDMA_READ, 0, 20, rkey), IB_WC_SUCCESS);
	for (i = 0; i < 20; i++)
		expect(test->here.memory[i] == test->there.memory[gaps_place(5, 55 + i)]);

	return 0;
}

/* One chain registers the MR and binds the key to a part of it; another one undoes both. */
static noinline_for_stack int one_chain(struct reg_test *test, struct ib_mr *mkey)
{
	struct reg_side *there = &test->there;
	struct ib_mr *mr = there->mr;
	struct reg_chain both = {}, neither = {};
	struct ib_sge some;

	expect(!pieces(there));
	reg_next_key(mr);
	some = (struct ib_sge){ .addr = mr->iova + 55, .length = 20, .lkey = mr->lkey };
	expect(!ib_map_mkey_list(mkey, &some, 1));
	reg_bind(&both, mr, mr->rkey, REG_ACCESS);
	reg_bind(&both, mkey, mkey->rkey, REG_ACCESS);
	expect(!reg_run(there->side, &both));
	expect_is(both.status[0], IB_WC_SUCCESS);
	expect_is(both.status[1], IB_WC_SUCCESS);
	expect(!leaf_bytes(test, mkey->rkey));
	reg_inv(&neither, mkey->rkey);
	reg_inv(&neither, mr->rkey);
	expect(!reg_run(there->side, &neither));
	expect_is(neither.status[0], IB_WC_SUCCESS);
	expect_is(neither.status[1], IB_WC_SUCCESS);

	return 0;
}

/* A key over an MR with gaps: the MR stays registered while the key is bound. */
static int leaf_with_gaps(struct reg_test *test)
{
	struct reg_side *there = &test->there;
	struct ib_mr *mkey, *mr = there->mr;
	struct ib_sge some;

	reg_fill(test, there);
	expect(!pieces(there));
	mkey = ib_alloc_mkey(there->side->pd, 4);
	expect(!IS_ERR(mkey));
	expect_is(gaps_register(test, there, IB_ACCESS_REMOTE_READ), IB_WC_SUCCESS);
	some = (struct ib_sge){ .addr = mr->iova + 55, .length = 20, .lkey = mr->lkey };
	expect(ib_bind_mkey_list(mkey, &some, 1, REG_ACCESS) == -EACCES);
	expect_is(gaps_invalidate(test, there), IB_WC_SUCCESS);
	expect_is(gaps_register(test, there, REG_ACCESS), IB_WC_SUCCESS);
	some.lkey = mr->lkey;
	some.addr = mr->iova - 1;
	expect(ib_bind_mkey_list(mkey, &some, 1, REG_ACCESS) == -ERANGE);
	some.addr = mr->iova + mr->length - 19;
	expect(ib_bind_mkey_list(mkey, &some, 1, REG_ACCESS) == -ERANGE);
	some.addr = mr->iova + 55;
	expect(!ib_bind_mkey_list(mkey, &some, 1, REG_ACCESS));
	expect(!leaf_bytes(test, mkey->rkey));

	/* It is neither invalidated nor deregistered. A mapping takes effect later. */
	expect_refused(reg_inv_status(test, there, mr->rkey));
	expect(ib_dereg_mr(mr) == -EBUSY);
	sg_set_buf(&there->sg[0], there->memory + 9 * PAGE_SIZE, 64);
	expect(gaps_map(there) == 8);
	expect(!leaf_bytes(test, mkey->rkey));
	expect(!ib_unbind_mkey(mkey));
	expect_is(gaps_invalidate(test, there), IB_WC_SUCCESS);
	expect(ib_bind_mkey_list(mkey, &some, 1, REG_ACCESS) == -ERANGE);

	expect(!one_chain(test, mkey));
	expect_is(reg_rdma_status(test, IB_WR_RDMA_READ, 0, 1, mkey->rkey), IB_WC_REM_ACCESS_ERR);

	return ib_dereg_mr(mkey);
}

/* The type that every driver has works as before. */
static int ordinary(struct reg_test *test)
{
	struct reg_side *there = &test->there;
	struct ib_mr *mr, *of = there->mr;
	int ret;

	mr = ib_alloc_mr(there->side->pd, IB_MR_TYPE_MEM_REG, 8);
	expect(!IS_ERR(mr));
	there->mr = mr;
	/* A gap ends the mapping. */
	ret = pieces(there) == -EIO ? 0 : -EIO;
	sg_init_one(there->sg, there->memory, 3 * PAGE_SIZE);
	there->nents = 1;
	ret = ret ?: gaps_map(there) != 1;
	ret = ret ?: gaps_register(test, there, REG_ACCESS);
	ret = ret ?: reg_rdma_status(test, IB_WR_RDMA_READ, mr->iova + PAGE_SIZE, 1, mr->rkey);
	ret = ret ?: leaf(test);
	ret = ret ?: gaps_invalidate(test, there);
	ret = ret ?: ib_dereg_mr(mr);
	there->mr = of;

	return ret;
}

/* Tries all that must be refused. */
int gaps_refusals(struct reg_test *test)
{
	return pieces(&test->there) ?: registrations(test) ?: foreign(test) ?: accesses(test) ?:
	       keys(test) ?: leaf_with_gaps(test) ?: lives(test) ?: ordinary(test);
}
