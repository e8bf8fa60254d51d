// SPDX-License-Identifier: GPL-2.0
/* Chains of work requests that bind, use and unbind keys. */

#include <linux/delay.h>
#include <linux/string.h>

#include "mkey_reg.h"

static struct ib_send_wr *next(struct reg_chain *chain, enum ib_wr_opcode opcode)
{
	struct ib_send_wr *wr = &chain->wr[chain->length].send;

	wr->opcode = opcode;
	if (chain->length)
		chain->wr[chain->length - 1].send.next = wr;
	chain->length++;

	return wr;
}

/**
 * reg_bind() - add REG_MR to a chain
 * @chain: the chain
 * @mr: the key, or another MR for fast registration
 * @rkey: the rkey under which a layout is staged
 * @access: access flags
 */
void reg_bind(struct reg_chain *chain, struct ib_mr *mr, u32 rkey, int access)
{
	struct ib_reg_wr *wr = container_of(next(chain, IB_WR_REG_MR), struct ib_reg_wr, wr);

	wr->mr = mr;
	wr->key = rkey;
	wr->access = access;
}

/**
 * reg_rdma() - add a WRITE, a READ or a SEND to a chain
 * @chain: the chain
 * @opcode: which
 * @addr: local address
 * @lkey: local key
 * @length: bytes
 * @remote_addr: remote address
 * @rkey: remote key; for a SEND with invalidate, what is invalidated
 */
void reg_rdma(struct reg_chain *chain, enum ib_wr_opcode opcode, u64 addr, u32 lkey, u32 length,
	      u64 remote_addr, u32 rkey)
{
	struct ib_sge *sge = &chain->sge[chain->length];
	struct ib_send_wr *wr = next(chain, opcode);

	*sge = (struct ib_sge){ .addr = addr, .length = length, .lkey = lkey };
	wr->sg_list = sge;
	wr->num_sge = 1;
	if (opcode == IB_WR_SEND_WITH_INV) {
		wr->ex.invalidate_rkey = rkey;
	} else {
		struct ib_rdma_wr *rdma = container_of(wr, struct ib_rdma_wr, wr);

		rdma->remote_addr = remote_addr;
		rdma->rkey = rkey;
	}
}

/**
 * reg_inv() - add LOCAL_INV to a chain
 * @chain: the chain
 * @rkey: the rkey to invalidate
 */
void reg_inv(struct reg_chain *chain, u32 rkey)
{
	next(chain, IB_WR_LOCAL_INV)->ex.invalidate_rkey = rkey;
}

/**
 * reg_post() - post a chain at once, in a context that must not sleep
 * @side: on whose queue
 * @chain: the chain
 *
 * Return: the return value of ib_post_send().
 */
int reg_post(struct ulp_side *side, struct reg_chain *chain)
{
	unsigned long flags;
	int ret;

	local_irq_save(flags);
	ret = ib_post_send(side->qp, &chain->wr[0].send, NULL);
	local_irq_restore(flags);

	return ret;
}

/**
 * reg_wait() - wait for all of a chain
 * @side: on whose queue it was posted
 * @chain: the chain; its statuses are set
 *
 * Return: 0, or the error of waiting.
 */
int reg_wait(struct ulp_side *side, struct reg_chain *chain)
{
	struct ib_wc wc;
	int i, ret = 0;

	for (i = 0; i < chain->length && !ret; i++) {
		ret = module_wait(side, &wc);
		chain->status[i] = wc.status;
	}

	return ret;
}

/**
 * reg_run() - post a chain at once and wait for all of it
 * @side: on whose queue
 * @chain: the chain; its statuses are set
 *
 * Return: 0, or the error of posting or waiting.
 */
int reg_run(struct ulp_side *side, struct reg_chain *chain)
{
	return reg_post(side, chain) ?: reg_wait(side, chain);
}

/**
 * reg_next_key() - give a key or another MR its next rkey
 * @mr: the key or the MR
 *
 * Return: the rkey.
 */
u32 reg_next_key(struct ib_mr *mr)
{
	ib_update_fast_reg_key(mr, ib_inc_rkey(mr->rkey));

	return mr->rkey;
}

/**
 * reg_fill() - fill a side's memory with random bytes
 * @test: where they come from
 * @side: the side
 */
void reg_fill(struct reg_test *test, struct reg_side *side)
{
	prandom_bytes_state(&test->random, side->expected, REG_MEMORY);
	memcpy(side->memory, side->expected, REG_MEMORY);
}

/**
 * reg_same() - compare all of a side's memory to what it should hold
 * @side: the side
 *
 * Return: 0, or -EIO if a byte differs.
 */
int reg_same(struct reg_side *side)
{
	return module_same(side->side, side->memory, side->expected, REG_MEMORY);
}

/**
 * reg_range() - a range of a side's memory, for a kernel user
 * @side: the side
 * @at: first byte
 * @length: bytes
 *
 * Return: the range.
 */
struct ib_sge reg_range(struct reg_side *side, u32 at, u32 length)
{
	return (struct ib_sge){
		.addr = side->addr + at,
		.length = length,
		.lkey = side->side->pd->local_dma_lkey,
	};
}

/* Runs a chain of one request, and connects the sides again if that fails. */
static int status_of(struct reg_test *test, struct reg_side *side, struct reg_chain *chain)
{
	int ret = reg_run(side->side, chain);

	if (!ret && chain->status[0] != IB_WC_SUCCESS)
		ret = ulp_link_connect(&test->link);

	return ret ?: chain->status[0];
}

/**
 * reg_bind_status() - register an MR, and connect the sides again if that fails
 * @test: connected sides
 * @side: on whose queue
 * @mr: the key, or another MR for fast registration
 * @rkey: the rkey under which a layout is staged
 * @access: access flags
 *
 * Return: the status of the request, or a negative errno.
 */
int reg_bind_status(struct reg_test *test, struct reg_side *side, struct ib_mr *mr, u32 rkey,
		    int access)
{
	struct reg_chain chain = {};

	reg_bind(&chain, mr, rkey, access);

	return status_of(test, side, &chain);
}

/**
 * reg_inv_status() - execute LOCAL_INV, and connect the sides again if that fails
 * @test: connected sides
 * @side: on whose queue
 * @rkey: the rkey to invalidate
 *
 * Return: the status of the request, or a negative errno.
 */
int reg_inv_status(struct reg_test *test, struct reg_side *side, u32 rkey)
{
	struct reg_chain chain = {};

	reg_inv(&chain, rkey);

	return status_of(test, side, &chain);
}

/**
 * reg_rdma_status() - transfer bytes between the memory here and an MR there
 * @test: connected sides
 * @opcode: READ or WRITE
 * @addr: address in the MR
 * @length: bytes
 * @rkey: rkey of the MR
 *
 * Connects the sides again if that fails.
 *
 * Return: the status of the request, or a negative errno.
 */
int reg_rdma_status(struct reg_test *test, enum ib_wr_opcode opcode, u64 addr, u32 length,
		    u32 rkey)
{
	struct reg_side *here = &test->here;
	struct reg_chain chain = {};

	reg_rdma(&chain, opcode, here->addr, here->side->pd->local_dma_lkey, length, addr, rkey);

	return status_of(test, here, &chain);
}

/**
 * reg_peek() - read the first byte by the rkey of a key of the other side
 * @test: connected sides
 * @rkey: the rkey
 *
 * Connects the sides again if the READ fails.
 *
 * Return: the byte, a negative status of the request, or a negative errno.
 */
int reg_peek(struct reg_test *test, u32 rkey)
{
	int ret = reg_rdma_status(test, IB_WR_RDMA_READ, 0, 1, rkey);

	return ret ? -abs(ret) : test->here.memory[0];
}
