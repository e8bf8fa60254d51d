// SPDX-License-Identifier: GPL-2.0
/* The order of requests that bind, use and unbind a key. */

#include <linux/slab.h>

#include "mkey_reg.h"

/*
 * Posts at once: bind the key, WRITE or READ through it, bind it to another layout, WRITE or READ
 * through that one, unbind it. The key is a local one. The other side's memory is contiguous. One
 * of the layouts may be a scatterlist, for an MR.
 */
static noinline_for_stack int one_chain(struct reg_test *test, struct reg_layout layout[2],
					struct ib_mr *far)
{
	struct reg_side *here = &test->here, *there = &test->there;
	u32 length[2], at = 0, i, b;
	struct reg_chain chain = {};
	struct ib_mr *mr[2];
	bool read[2];

	for (i = 0; i < 2; i++) {
		u32 rkey;

		do {
			reg_draw(test, here, &layout[i]);
		} while (i && layout[0].kind == REG_GAPS && layout[1].kind == REG_GAPS);
		mr[i] = reg_mr(here, &layout[i]);
		rkey = reg_next_key(mr[i]);
		expect_is(reg_map(here, mr[i], &layout[i]), 0);
		length[i] = min(layout[i].length, (u32)REG_LAYOUT / 2);
		read[i] = prandom_u32_state(&test->random) & 1;
		reg_bind(&chain, mr[i], rkey, REG_ACCESS);
		/* For kernel users lkey and rkey are the same. */
		reg_rdma(&chain, read[i] ? IB_WR_RDMA_READ : IB_WR_RDMA_WRITE, layout[i].base,
			 rkey, length[i], i * REG_LAYOUT / 2, far->rkey);
	}
	reg_inv(&chain, mr[1]->rkey);
	if (mr[0] != mr[1]) {
		/* Only a bind of the same MR waits for the first request, which may be a READ. */
		chain.wr[3].send.send_flags = IB_SEND_FENCE;
		reg_inv(&chain, mr[0]->rkey);
	}
	for (i = 0; i < chain.length; i++)
		if (prandom_u32_state(&test->random) & 1)
			chain.wr[i].send.send_flags |= IB_SEND_FENCE;
	expect_is(reg_run(here->side, &chain), 0);
	for (i = 0; i < chain.length; i++)
		expect_is(chain.status[i], IB_WC_SUCCESS);
	for (i = 0; i < 2; i++) {
		reg_unmap(here, &layout[i]);
		at = i * REG_LAYOUT / 2;
		for (b = 0; b < length[i]; b++) {
			u8 *near = &here->expected[layout[i].place[b]];

			if (read[i])
				*near = there->expected[at + b];
			else
				there->expected[at + b] = *near;
		}
	}

	return reg_same(here) ?: reg_same(there);
}

/* The same for a key over a key or an MR. The requests of one chain bind, use and unbind both. */
static noinline_for_stack int over_key(struct reg_test *test, struct reg_layout *layout,
				       struct ib_mr *inner, struct ib_mr *far)
{
	struct reg_side *here = &test->here, *there = &test->there;
	struct ib_mkey_block block = { .bytes_count = 7, .stride = { 11 } };
	u32 below, rkey = reg_next_key(here->key), i;
	u64 rows;
	struct ib_mkey_interleaved outer = {
		.num_dims = 1,
		.num_blocks = 1,
		.repeat_count = &rows,
		.blocks = &block,
	};
	struct reg_chain chain = {};

	do {
		reg_draw(test, here, layout);
	} while (layout->length < 7);
	if (layout->kind == REG_GAPS)
		inner = here->mr;
	below = reg_next_key(inner);
	expect_is(reg_map(here, inner, layout), 0);
	block.addr = layout->base;
	block.lkey = below;
	rows = (layout->length + 4) / 11;
	expect_is(ib_map_mkey_interleaved(here->key, &outer), 0);
	reg_bind(&chain, inner, below, REG_ACCESS);
	reg_bind(&chain, here->key, rkey, REG_ACCESS);
	reg_rdma(&chain, IB_WR_RDMA_WRITE, 0, rkey, 7 * rows, 0, far->rkey);
	reg_inv(&chain, rkey);
	reg_inv(&chain, below);
	expect_is(reg_run(here->side, &chain), 0);
	for (i = 0; i < chain.length; i++)
		expect_is(chain.status[i], IB_WC_SUCCESS);
	reg_unmap(here, layout);
	for (i = 0; i < 7 * rows; i++)
		there->expected[i] = here->expected[layout->place[i / 7 * 11 + i % 7]];

	return reg_same(there);
}

/* A WRITE by an rkey that is not valid any more. */
static noinline_for_stack int write_late(struct reg_test *test, u32 rkey)
{
	struct reg_side *here = &test->here;
	struct reg_chain late = {};

	reg_rdma(&late, IB_WR_RDMA_WRITE, here->addr, here->side->pd->local_dma_lkey, 1, 0, rkey);
	expect_is(reg_run(here->side, &late), 0);
	expect_is(late.status[0], IB_WC_REM_ACCESS_ERR);

	return ulp_link_connect(&test->link);
}

/* The key or MR is a remote one: bound by its node, written through and invalidated by its peer. */
static noinline_for_stack int from_afar(struct reg_test *test, struct reg_layout *layout)
{
	struct reg_side *here = &test->here, *there = &test->there;
	u32 lkey = here->side->pd->local_dma_lkey;
	struct reg_chain bind = {}, use = {};
	struct ib_sge into = { .addr = there->addr, .lkey = there->side->pd->local_dma_lkey };
	struct ib_recv_wr recv = { .sg_list = &into, .num_sge = 1 };
	struct ib_mr *mr;
	u32 i, old, rkey;
	struct ib_wc wc;

	reg_draw(test, there, layout);
	mr = reg_mr(there, layout);
	old = mr->rkey;
	rkey = reg_next_key(mr);
	expect_is(reg_map(there, mr, layout), 0);
	reg_bind(&bind, mr, rkey, REG_ACCESS);
	expect_is(reg_run(there->side, &bind), 0);
	expect_is(bind.status[0], IB_WC_SUCCESS);

	expect(!ib_post_recv(there->side->qp, &recv, NULL));
	reg_rdma(&use, IB_WR_RDMA_WRITE, here->addr, lkey, layout->length,
		 layout->base, rkey);
	reg_rdma(&use, IB_WR_SEND_WITH_INV, here->addr, lkey, 0, 0, rkey);
	expect_is(reg_run(here->side, &use), 0);
	expect_is(use.status[0], IB_WC_SUCCESS);
	expect_is(use.status[1], IB_WC_SUCCESS);
	expect_is(module_wait(there->side, &wc), 0);
	expect_is(wc.status, IB_WC_SUCCESS);
	expect(wc.wc_flags & IB_WC_WITH_INVALIDATE);
	expect(wc.ex.invalidate_rkey == rkey);
	reg_unmap(there, layout);
	for (i = 0; i < layout->length; i++)
		there->expected[layout->place[i]] = here->memory[i];
	expect_is(reg_same(there), 0);

	/* Neither the old rkey nor the one that was invalidated. */
	expect_is(write_late(test, old), 0);
	expect_is(write_late(test, rkey), 0);

	return reg_same(there);
}

/* Binds, uses, binds again, uses and unbinds in the order of a queue. */
int reg_order(struct reg_test *test, unsigned int rounds)
{
	struct ib_sge all = {
		.addr = test->there.addr,
		.length = REG_LAYOUT,
		.lkey = test->there.side->pd->local_dma_lkey,
	};
	struct reg_layout *layout = kvcalloc(2, sizeof(*layout), GFP_KERNEL);
	struct ib_mr *far, *inner;
	unsigned int i;
	int ret = 0;

	if (!layout)
		return -ENOMEM;
	far = ib_alloc_mkey(test->there.side->pd, 1);
	if (IS_ERR(far)) {
		kvfree(layout);
		return PTR_ERR(far);
	}
	inner = ib_alloc_mkey(test->here.side->pd, REG_ENTRIES);
	if (IS_ERR(inner)) {
		ib_dereg_mr(far);
		kvfree(layout);
		return PTR_ERR(inner);
	}
	ret = ib_bind_mkey_list(far, &all, 1, REG_ACCESS);
	reg_fill(test, &test->here);
	reg_fill(test, &test->there);
	for (i = 0; i < rounds && !ret; i++)
		ret = one_chain(test, layout, far);
	for (i = 0; i < rounds / 4 && !ret; i++)
		ret = over_key(test, layout, inner, far);
	for (i = 0; i < 12 && !ret; i++)
		ret = from_afar(test, layout);
	ret = ib_dereg_mr(inner) ?: ret;
	ret = ib_dereg_mr(far) ?: ret;
	kvfree(layout);

	return ret;
}
