// SPDX-License-Identifier: GPL-2.0
/*
 * Fast registration over random scatterlists with gaps, as storage protocols do it for each
 * request. Each byte is checked, also those between the pieces.
 */

#include "mkey_reg.h"

/*
 * Draws a range that exists in both sides' pieces: at most all of the shorter
 * one.
 */
static void draw_range(struct reg_test *test, u32 *here, u32 *there, u32 *length)
{
	struct rnd_state *random = &test->random;

	*length = min(test->here.length, test->there.length);
	if (prandom_u32_state(random) % 4)
		*length = 1 + prandom_u32_state(random) % *length;
	*here = prandom_u32_state(random) % (test->here.length - *length + 1);
	*there = prandom_u32_state(random) % (test->there.length - *length + 1);
}

/*
 * One chain registers an MR, moves bytes between the pieces of both sides, and
 * invalidates the MR.
 */
static int move(struct reg_test *test, enum ib_wr_opcode opcode)
{
	struct reg_side *here = &test->here, *there = &test->there;
	struct reg_chain chain = {};
	u32 here_at, there_at, length;

	draw_range(test, &here_at, &there_at, &length);
	reg_next_key(here->mr);
	/* A READ writes to local memory. */
	reg_bind(&chain, here->mr, here->mr->rkey,
		 opcode == IB_WR_RDMA_READ ? IB_ACCESS_LOCAL_WRITE : 0);
	reg_rdma(&chain, opcode, here->mr->iova + here_at, here->mr->lkey, length,
		 there->mr->iova + there_at, there->mr->rkey);
	reg_inv(&chain, here->mr->rkey);
	expect(!reg_run(here->side, &chain));
	expect(chain.status[0] == IB_WC_SUCCESS);
	expect(chain.status[1] == IB_WC_SUCCESS);
	expect(chain.status[2] == IB_WC_SUCCESS);
	if (opcode == IB_WR_RDMA_READ)
		gaps_copy(here, here_at, there, there_at, length);
	else
		gaps_copy(there, there_at, here, here_at, length);

	return reg_same(here) ?: reg_same(there);
}

/* Sends the bytes of the local pieces to the remote ones, and invalidates their MR. */
static int send_with_invalidate(struct reg_test *test)
{
	struct reg_side *here = &test->here, *there = &test->there;
	struct reg_chain chain = {};
	u32 here_at, there_at, length;
	struct ib_recv_wr recv = { .num_sge = 1 };
	struct ib_sge into;
	struct ib_wc wc;

	draw_range(test, &here_at, &there_at, &length);
	into = (struct ib_sge){
		.addr = there->mr->iova + there_at,
		.length = length,
		.lkey = there->mr->lkey,
	};
	recv.sg_list = &into;
	expect(!ib_post_recv(there->side->qp, &recv, NULL));
	reg_next_key(here->mr);
	reg_bind(&chain, here->mr, here->mr->rkey, 0);
	reg_rdma(&chain, IB_WR_SEND_WITH_INV, here->mr->iova + here_at, here->mr->lkey, length,
		 0, there->mr->rkey);
	reg_inv(&chain, here->mr->rkey);
	expect(!reg_run(here->side, &chain));
	expect(chain.status[1] == IB_WC_SUCCESS);
	expect(chain.status[2] == IB_WC_SUCCESS);
	expect(!module_wait(there->side, &wc));
	expect(wc.status == IB_WC_SUCCESS);
	expect(wc.byte_len == length);
	expect(wc.wc_flags & IB_WC_WITH_INVALIDATE);
	expect(wc.ex.invalidate_rkey == there->mr->rkey);
	gaps_copy(there, there_at, here, here_at, length);

	return reg_same(here) ?: reg_same(there);
}

static int transfers(struct reg_test *test)
{
	expect(!gaps_register(test, &test->there, REG_ACCESS));
	return move(test, IB_WR_RDMA_WRITE) ?: move(test, IB_WR_RDMA_READ) ?:
	       send_with_invalidate(test);
}

/* Draws a number of pieces, or returns the most that the MR takes. */
static int draw_count(struct reg_test *test, uint round)
{
	if (round % 6 == 0)
		return REG_ELEMENTS;
	if (round % 6 == 1)
		return 1;
	return 1 + prandom_u32_state(&test->random) % (2 << prandom_u32_state(&test->random) % 9);
}

static int one_round(struct reg_test *test, uint round)
{
	struct reg_side *here = &test->here, *there = &test->there;
	int ret;

	gaps_draw(test, here, draw_count(test, round));
	gaps_draw(test, there, draw_count(test, round % 5));
	reg_fill(test, here);
	reg_fill(test, there);
	ret = gaps_map(here);
	if (ret < 0)
		return ret;
	expect(ret == here->nents);
	expect(here->mr->length == here->length);
	expect(here->mr->iova == sg_dma_address(here->sg));
	ret = gaps_map(there);
	if (ret == there->nents)
		ret = transfers(test);
	else
		ret = ret < 0 ? ret : -EIO;
	gaps_unmap(there);
	gaps_unmap(here);
	if (ret)
		pr_err("mkey_reg: list %u: %d and %d pieces\n", round, here->nents, there->nents);

	return ret;
}

/* Moves bytes between the pieces of random lists. */
int gaps_rounds(struct reg_test *test, unsigned int rounds)
{
	uint round;
	int ret = 0;

	for (round = 0; round < rounds && !ret; round++)
		ret = one_round(test, round);

	return ret;
}
