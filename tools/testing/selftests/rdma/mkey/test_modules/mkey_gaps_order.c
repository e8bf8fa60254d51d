// SPDX-License-Identifier: GPL-2.0
/* How lists are mapped to MRs, and requests of such MRs that are refused or cut off. */

#include <linux/delay.h>

#include "mkey_reg.h"

/*
 * Maps lists whose first element is left out in part, and lists with too many
 * elements.
 */
static int mapping(struct reg_test *test)
{
	struct reg_side *side = &test->there;
	unsigned int offset;
	int nents;

	gaps_draw(test, side, REG_ELEMENTS + 1, REG_MEMORY);
	expect(gaps_map(side) == REG_ELEMENTS);
	expect(side->mr->length ==
	       side->length - sg_dma_len(&side->sg[REG_ELEMENTS]));
	gaps_unmap(side);

	gaps_draw(test, side, 4, REG_MEMORY);
	sg_set_buf(&side->sg[0], side->memory + 3, 100);
	nents = ib_dma_map_sg(side->side->device, side->sg, 4, DMA_BIDIRECTIONAL);
	expect(nents == 4);
	offset = 99;
	expect(ib_map_mr_sg(side->mr, side->sg, 1, &offset, PAGE_SIZE) == 1);
	expect(offset == 0);
	expect(side->mr->length == 1);
	expect(side->mr->iova == sg_dma_address(side->sg) + 99);
	/* The offset skips all of the first element, or more. */
	offset = 100;
	expect(ib_map_mr_sg(side->mr, side->sg, 4, &offset, SZ_64K) == -EINVAL);
	offset = 101;
	expect(ib_map_mr_sg(side->mr, side->sg, 4, &offset, SZ_64K) == -EINVAL);
	expect(ib_map_mr_sg(side->mr, side->sg, 0, NULL, SZ_64K) == -EINVAL);
	expect(ib_map_mr_sg(side->mr, side->sg, -1, NULL, SZ_64K) == -EINVAL);
	/*
	 * The last mapping is still the registered one, and the one that the MR shows.
	 */
	expect(side->mr->page_size == PAGE_SIZE);
	expect(side->mr->length == 1);
	expect(side->mr->iova == sg_dma_address(side->sg) + 99);
	expect_is(gaps_register(test, side, REG_ACCESS), IB_WC_SUCCESS);
	expect_is(gaps_invalidate(test, side), IB_WC_SUCCESS);
	gaps_unmap(side);

	return 0;
}

/*
 * A registration with a fence, which rxe executes. With the key of another MR it is refused. After
 * a READ that fails it is not executed. reg_order() has valid ones.
 */
static noinline_for_stack int fenced(struct reg_test *test, u32 bad_rkey, u32 bad_key)
{
	struct reg_side *here = &test->here, *there = &test->there;
	u32 lkey = here->side->pd->local_dma_lkey;
	struct reg_chain chain = {};

	reg_rdma(&chain, IB_WR_RDMA_READ, here->addr, lkey, 1, there->mr->iova,
		 there->mr->rkey ^ bad_rkey);
	reg_bind(&chain, here->mr, here->mr->rkey ^ bad_key, 0);
	chain.wr[1].send.send_flags = IB_SEND_FENCE;
	expect(!reg_run(here->side, &chain));
	expect_is(chain.status[0], bad_rkey ? IB_WC_REM_ACCESS_ERR : IB_WC_SUCCESS);
	expect(bad_rkey ? chain.status[1] == IB_WC_WR_FLUSH_ERR : reg_refused(chain.status[1]));

	return ulp_link_connect(&test->link);
}

static int fences(struct reg_test *test)
{
	struct reg_side *here = &test->here, *there = &test->there;
	int ret;

	gaps_even(there, 16, 3);
	expect(gaps_map(there) == 16);
	expect_is(gaps_register(test, there, REG_ACCESS), IB_WC_SUCCESS);
	gaps_even(here, 16, 7);
	expect(gaps_map(here) == 16);
	reg_next_key(here->mr);
	ret = fenced(test, 0, 0x100) ?: fenced(test, 0x100, 0);
	if (ret)
		return ret;
	/* A registered MR would be refused. */
	expect_is(gaps_register(test, here, 0), IB_WC_SUCCESS);
	expect_is(gaps_invalidate(test, here), IB_WC_SUCCESS);
	expect_is(gaps_invalidate(test, there), IB_WC_SUCCESS);
	gaps_unmap(here);

	return 0;
}

/*
 * No byte is written any more once LOCAL_INV has completed, whatever is in
 * progress. Returns 1 if a request was in progress, unless its refusal came
 * first.
 */
static int cut(struct reg_test *test)
{
	struct reg_side *here = &test->here, *there = &test->there;
	u32 lkey = here->side->pd->local_dma_lkey, length, i;
	struct reg_chain chain = {}, inv = {};
	int late = 0;

	gaps_draw(test, there, 256, REG_MEMORY);
	length = there->length;
	expect(gaps_map(there) == 256);
	expect_is(gaps_register(test, there, REG_ACCESS), IB_WC_SUCCESS);
	reg_fill(test, here);
	for (i = 0; i < REG_CHAIN; i++)
		reg_rdma(&chain, IB_WR_RDMA_WRITE, here->addr + i * PAGE_SIZE, lkey, length,
			 there->mr->iova, there->mr->rkey);
	expect(!reg_post(here->side, &chain));
	usleep_range(500, 1000 + prandom_u32_state(&test->random) % 4000);
	reg_inv(&inv, there->mr->rkey);
	expect(!reg_run(there->side, &inv));
	memcpy(there->expected, there->memory, REG_MEMORY);
	expect(!reg_wait(here->side, &chain));
	for (i = 0; i < REG_CHAIN; i++)
		late |= chain.status[i] != IB_WC_SUCCESS;
	gaps_unmap(there);
	expect(!ulp_link_connect(&test->link));
	if (inv.status[0] == IB_WC_WR_FLUSH_ERR) {
		/*
		 * A refusal puts the remote queue pair into the error state: its own requests
		 * are flushed.
		 */
		expect_is(gaps_invalidate(test, there), IB_WC_SUCCESS);
		return 0;
	}
	expect_is(inv.status[0], IB_WC_SUCCESS);

	return reg_same(there) ?: late;
}

/* Maps lists, and registers and invalidates MRs over them. */
int gaps_order(struct reg_test *test)
{
	int i, late = 0, ret;

	ret = mapping(test) ?: fences(test);
	for (i = 0; i < 10 && ret >= 0; i++) {
		ret = ret ?: cut(test);
		if (ret > 0) {
			late++;
			ret = 0;
		}
	}
	if (!ret && !late) {
		pr_err("mkey_reg: no invalidation came before the last write\n");
		ret = -EIO;
	}

	return ret;
}
