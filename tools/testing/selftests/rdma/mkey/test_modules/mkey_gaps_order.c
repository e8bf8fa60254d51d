// SPDX-License-Identifier: GPL-2.0
/*
 * The orders in which MRs for fast registration are mapped, registered, used
 * and invalidated, and the state in between.
 */

#include <linux/delay.h>
#include <linux/prandom.h>

#include "mkey_gaps.h"

/*
 * Maps lists whose first element is left out in part, and lists with too many
 * elements.
 */
static int mapping(struct gaps *gaps)
{
	struct gaps_side *side = &gaps->there;
	unsigned int offset;
	int nents;

	gaps_draw(gaps, side, GAPS_ELEMENTS + 1);
	expect(gaps_map(side) == GAPS_ELEMENTS);
	expect(side->mr->length ==
	       side->length - sg_dma_len(&side->sg[GAPS_ELEMENTS]));
	gaps_unmap(side);

	gaps_draw(gaps, side, 4);
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
	expect_status(gaps_register(side, GAPS_ACCESS), IB_WC_SUCCESS);
	expect_status(gaps_invalidate(side), IB_WC_SUCCESS);
	gaps_unmap(side);

	return 0;
}

/* Writes one local byte to the first remote piece. */
static int poke(struct gaps *gaps, u8 byte, u64 addr, u32 rkey)
{
	struct gaps_side *here = &gaps->here;
	struct gaps_chain chain = {};
	u64 from;
	int ret;

	here->memory[0] = byte;
	here->expected[0] = byte;
	from = ib_dma_map_single(here->side->device, here->memory, 1, DMA_TO_DEVICE);
	gaps_rdma(&chain, IB_WR_RDMA_WRITE, from, here->side->pd->local_dma_lkey, 1, addr,
		  rkey);
	ret = gaps_run(here->side, &chain);
	ib_dma_unmap_single(here->side->device, from, 1, DMA_TO_DEVICE);

	return ret ?: chain.status[0];
}

/* Makes pieces of 64 bytes that begin at byte @at of each page. */
static void even(struct gaps_side *side, u32 at)
{
	int i;

	sg_init_table(side->sg, 16);
	side->nents = 16;
	side->length = 16 * 64;
	for (i = 0; i < 16; i++)
		sg_set_buf(&side->sg[i], side->memory + i * PAGE_SIZE + at, 64);
}

/*
 * A mapping that is made while an MR is registered takes effect with its next
 * registration. Without another mapping, the last one is registered again.
 */
static int twice(struct gaps *gaps)
{
	struct gaps_side *there = &gaps->there;
	u32 old;

	gaps_fill(gaps, there);
	even(there, 1);
	expect(gaps_map(there) == 16);
	even(there, 1001);
	expect(gaps_map(there) == 16);
	expect_status(gaps_register(there, GAPS_ACCESS), IB_WC_SUCCESS);
	expect_status(poke(gaps, 1, there->mr->iova + 64, there->mr->rkey), IB_WC_SUCCESS);
	there->expected[PAGE_SIZE + 1001] = 1;
	expect(!gaps_same(there));

	/* This has no effect yet, except on the fields of the MR. */
	even(there, 2001);
	expect(gaps_map(there) == 16);
	expect_status(poke(gaps, 2, (u64)there->memory + 1001 + 64, there->mr->rkey),
		      IB_WC_SUCCESS);
	there->expected[PAGE_SIZE + 1001] = 2;
	expect(!gaps_same(there));

	/* Both layouts are in use: a refused mapping replaces neither. */
	sg_dma_len(&there->sg[15]) = 0;
	expect(ib_map_mr_sg(there->mr, there->sg, 16, NULL, PAGE_SIZE) == -EINVAL);
	sg_dma_len(&there->sg[15]) = 64;

	old = there->mr->rkey;
	expect_status(gaps_invalidate(there), IB_WC_SUCCESS);
	expect_status(gaps_register(there, GAPS_ACCESS), IB_WC_SUCCESS);
	expect(there->mr->rkey != old);
	expect_status(poke(gaps, 3, there->mr->iova + 128, there->mr->rkey), IB_WC_SUCCESS);
	there->expected[2 * PAGE_SIZE + 2001] = 3;
	expect(!gaps_same(there));

	/* Register again without a mapping in between, at other addresses. */
	expect_status(gaps_invalidate(there), IB_WC_SUCCESS);
	there->mr->iova = (there->mr->iova & U32_MAX) | 0x1234567800000000;
	expect_status(gaps_register(there, GAPS_ACCESS), IB_WC_SUCCESS);
	expect_status(poke(gaps, 4, there->mr->iova + 192, there->mr->rkey), IB_WC_SUCCESS);
	there->expected[3 * PAGE_SIZE + 2001] = 4;

	/* Let the last byte be at the last address. */
	expect_status(gaps_invalidate(there), IB_WC_SUCCESS);
	there->mr->iova = -(u64)there->length;
	expect_status(gaps_register(there, GAPS_ACCESS), IB_WC_SUCCESS);
	expect_status(poke(gaps, 5, U64_MAX, there->mr->rkey), IB_WC_SUCCESS);
	there->expected[15 * PAGE_SIZE + 2001 + 63] = 5;
	expect_status(gaps_invalidate(there), IB_WC_SUCCESS);

	return gaps_same(there);
}

/*
 * A registration with a fence, which rxe executes: after a READ, and before a WRITE by the MR. With
 * the key of another MR it is refused. After a READ that fails it is not executed.
 */
static int fenced(struct gaps *gaps)
{
	struct gaps_side *here = &gaps->here, *there = &gaps->there;
	u32 lkey = here->side->pd->local_dma_lkey;
	struct gaps_chain first = {}, chain = {}, other = {}, last = {};
	struct ib_wc wc;
	u64 to;
	int i;

	gaps_fill(gaps, here);
	gaps_fill(gaps, there);
	even(there, 3);
	expect(gaps_map(there) == 16);
	expect_status(gaps_register(there, GAPS_ACCESS), IB_WC_SUCCESS);
	even(here, 7);
	expect(gaps_map(here) == 16);
	ib_update_fast_reg_key(here->mr, ib_inc_rkey(here->mr->rkey));
	to = ib_dma_map_single(here->side->device, here->memory, 1, DMA_FROM_DEVICE);
	gaps_rdma(&first, IB_WR_RDMA_READ, to, lkey, 1, there->mr->iova, there->mr->rkey);
	gaps_reg(&chain, here, 0);
	chain.wr[0].reg.wr.send_flags |= IB_SEND_FENCE;
	gaps_rdma(&chain, IB_WR_RDMA_WRITE, here->mr->iova + 60, here->mr->lkey, 8,
		  there->mr->iova + 124, there->mr->rkey);
	gaps_inv(&chain, here->mr->rkey);
	expect(!ib_post_send(here->side->qp, &first.wr[0].send, NULL));
	expect(!ib_post_send(here->side->qp, &chain.wr[0].send, NULL));
	for (i = 0; i < 4; i++) {
		expect(!module_wait(here->side, &wc));
		expect_status(wc.status, IB_WC_SUCCESS);
	}
	here->expected[0] = there->expected[3];
	gaps_copy(there, 124, here, 60, 8);
	expect(!gaps_same(here));
	expect(!gaps_same(there));

	gaps_reg(&other, here, 0);
	other.wr[0].reg.key = here->mr->rkey ^ 0x100;
	other.wr[0].reg.wr.send_flags |= IB_SEND_FENCE;
	expect(!gaps_run(here->side, &other));
	expect_refused(other.status[0]);
	expect(!ulp_link_connect(&gaps->link));

	gaps_rdma(&last, IB_WR_RDMA_READ, to, lkey, 1, there->mr->iova, there->mr->rkey ^ 0x100);
	gaps_reg(&last, here, 0);
	last.wr[1].reg.wr.send_flags |= IB_SEND_FENCE;
	expect(!gaps_run(here->side, &last));
	expect_status(last.status[0], IB_WC_REM_ACCESS_ERR);
	expect_status(last.status[1], IB_WC_WR_FLUSH_ERR);
	expect(!ulp_link_connect(&gaps->link));
	/* A registered MR would be refused. */
	expect_status(gaps_register(here, 0), IB_WC_SUCCESS);
	expect_status(gaps_invalidate(here), IB_WC_SUCCESS);

	ib_dma_unmap_single(here->side->device, to, 1, DMA_FROM_DEVICE);
	expect_status(gaps_invalidate(there), IB_WC_SUCCESS);
	gaps_unmap(here);

	return 0;
}

/*
 * Atomics on eight bytes in one piece. rxe does not allow kernel users an
 * atomic write.
 */
static int atomics(struct gaps *gaps)
{
	struct gaps_side *here = &gaps->here, *there = &gaps->there;
	u64 *word = (u64 *)(there->memory + PAGE_SIZE + 24);
	struct gaps_chain add = {};
	u64 addr;

	even(there, 20);
	expect(gaps_map(there) == 16);
	expect_status(gaps_register(there, GAPS_ACCESS), IB_WC_SUCCESS);
	addr = ib_dma_map_single(here->side->device, here->memory, 8, DMA_BIDIRECTIONAL);
	*word = 40;
	gaps_rdma(&add, IB_WR_ATOMIC_FETCH_AND_ADD, addr, here->side->pd->local_dma_lkey, 8, 0,
		  0);
	add.wr[0].atomic.remote_addr = there->mr->iova + 64 + 4;
	add.wr[0].atomic.rkey = there->mr->rkey;
	add.wr[0].atomic.compare_add = 2;
	expect(!gaps_run(here->side, &add));
	expect_status(add.status[0], IB_WC_SUCCESS);
	expect(*(u64 *)here->memory == 40);
	expect(*word == 42);

	/* The operand is half in one piece, half in the next. */
	add.wr[0].atomic.remote_addr = there->mr->iova + 60;
	expect(!gaps_run(here->side, &add));
	expect_status(add.status[0], IB_WC_REM_ACCESS_ERR);
	ib_dma_unmap_single(here->side->device, addr, 8, DMA_BIDIRECTIONAL);
	expect(!ulp_link_connect(&gaps->link));
	expect_status(gaps_invalidate(there), IB_WC_SUCCESS);

	return 0;
}

/*
 * No byte is written any more once LOCAL_INV has completed, whatever is in
 * progress. Returns 1 if a request was in progress, unless its refusal came
 * first.
 */
static int cut(struct gaps *gaps)
{
	struct gaps_side *here = &gaps->here, *there = &gaps->there;
	u32 lkey = here->side->pd->local_dma_lkey, length;
	const int times = 6;
	int i, ended, late = 0;
	struct ib_wc wc;
	u64 from;

	gaps_draw(gaps, there, 256);
	length = there->length;
	expect(gaps_map(there) == 256);
	expect_status(gaps_register(there, GAPS_ACCESS), IB_WC_SUCCESS);
	gaps_fill(gaps, here);
	from = ib_dma_map_single(here->side->device, here->memory, GAPS_MEMORY, DMA_TO_DEVICE);
	for (i = 0; i < times; i++) {
		struct gaps_chain chain = {};

		gaps_rdma(&chain, IB_WR_RDMA_WRITE, from + i * PAGE_SIZE, lkey, length,
			  there->mr->iova, there->mr->rkey);
		expect(!ib_post_send(here->side->qp, &chain.wr[0].send, NULL));
	}
	usleep_range(500, 1000 + prandom_u32_state(gaps->random) % 4000);
	ended = gaps_invalidate(there);
	memcpy(there->expected, there->memory, GAPS_MEMORY);
	for (i = 0; i < times; i++) {
		expect(!module_wait(here->side, &wc));
		late |= wc.status != IB_WC_SUCCESS;
	}
	ib_dma_unmap_single(here->side->device, from, GAPS_MEMORY, DMA_TO_DEVICE);
	gaps_unmap(there);
	expect(!ulp_link_connect(&gaps->link));
	if (ended == IB_WC_WR_FLUSH_ERR) {
		/*
		 * A refusal puts the remote queue pair into the error state: its own requests
		 * are flushed.
		 */
		expect_status(gaps_invalidate(there), IB_WC_SUCCESS);
		return 0;
	}
	expect_status(ended, IB_WC_SUCCESS);

	return gaps_same(there) ?: late;
}

/**
 * gaps_order() - map, register and invalidate in all valid orders
 * @gaps: connected sides
 *
 * Return: 0, or an error if a condition did not hold.
 */
int gaps_order(struct gaps *gaps)
{
	int i, late = 0, ret;

	ret = mapping(gaps) ?: twice(gaps) ?: fenced(gaps) ?: atomics(gaps);
	for (i = 0; i < 10 && ret >= 0; i++) {
		ret = ret ?: cut(gaps);
		if (ret > 0) {
			late++;
			ret = 0;
		}
	}
	if (!ret && !late) {
		pr_err("mkey_gaps: no invalidation came before the last write\n");
		ret = -EIO;
	}

	return ret;
}
