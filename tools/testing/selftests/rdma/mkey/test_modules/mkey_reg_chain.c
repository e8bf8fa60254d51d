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

/* Adds REG_MR to a chain: for a key, @rkey is that under which a layout is staged. */
void reg_bind(struct reg_chain *chain, struct ib_mr *mr, u32 rkey, int access)
{
	struct ib_reg_wr *wr = container_of(next(chain, IB_WR_REG_MR), struct ib_reg_wr, wr);

	wr->mr = mr;
	wr->key = rkey;
	wr->access = access;
}

/* Adds a WRITE, a READ or a SEND to a chain. A SEND with invalidate invalidates @rkey. */
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

/* Adds LOCAL_INV to a chain. */
void reg_inv(struct reg_chain *chain, u32 rkey)
{
	next(chain, IB_WR_LOCAL_INV)->ex.invalidate_rkey = rkey;
}

/* Posts a chain at once, in a context that must not sleep. */
int reg_post(struct ulp_side *side, struct reg_chain *chain)
{
	unsigned long flags;
	int ret;

	local_irq_save(flags);
	ret = ib_post_send(side->qp, &chain->wr[0].send, NULL);
	local_irq_restore(flags);

	return ret;
}

/* Waits for all of a chain, and sets its statuses. */
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

/* Posts a chain at once, waits for all of it and sets its statuses. */
int reg_run(struct ulp_side *side, struct reg_chain *chain)
{
	return reg_post(side, chain) ?: reg_wait(side, chain);
}

/* Gives a key or another MR its next rkey, and returns that. */
u32 reg_next_key(struct ib_mr *mr)
{
	ib_update_fast_reg_key(mr, ib_inc_rkey(mr->rkey));

	return mr->rkey;
}

/* Fills a side's memory with random bytes. */
void reg_fill(struct reg_test *test, struct reg_side *side)
{
	prandom_bytes_state(&test->random, side->expected, REG_MEMORY);
	memcpy(side->memory, side->expected, REG_MEMORY);
}

/* Compares all of a side's memory to what it should hold. The log has the first wrong byte. */
int reg_same(struct reg_side *side)
{
	const u8 *memory = side->memory, *expected = side->expected;
	u32 i;

	if (!memcmp(memory, expected, REG_MEMORY))
		return 0;
	for (i = 0; memory[i] == expected[i]; i++)
		;
	pr_err("%s: byte %u of %s is %#x, not %#x\n", KBUILD_MODNAME, i,
	       dev_name(&side->side->device->dev), memory[i], expected[i]);

	return -EIO;
}

/* Returns a range of a side's memory, for a kernel user. */
struct ib_sge reg_range(struct reg_side *side, u32 at, u32 length)
{
	return (struct ib_sge){
		.addr = side->addr + at,
		.length = length,
		.lkey = side->side->pd->local_dma_lkey,
	};
}

/* Runs a chain of one request, and connects the sides again if that fails. */
int reg_status(struct reg_test *test, struct reg_side *side, struct reg_chain *chain)
{
	int ret = reg_run(side->side, chain);

	if (!ret && chain->status[0] != IB_WC_SUCCESS)
		ret = ulp_link_connect(&test->link);

	return ret ?: chain->status[0];
}

/*
 * Registers a key or another MR. Returns the status of the request or a negative errno. Connects
 * the sides again if it fails.
 */
int reg_bind_status(struct reg_test *test, struct reg_side *side, struct ib_mr *mr, u32 rkey,
		    int access)
{
	struct reg_chain chain = {};

	reg_bind(&chain, mr, rkey, access);

	return reg_status(test, side, &chain);
}

/* The same for LOCAL_INV. */
int reg_inv_status(struct reg_test *test, struct reg_side *side, u32 rkey)
{
	struct reg_chain chain = {};

	reg_inv(&chain, rkey);

	return reg_status(test, side, &chain);
}

/* The same for a READ or a WRITE between the memory here and an MR there. */
int reg_rdma_status(struct reg_test *test, enum ib_wr_opcode opcode, u64 addr, u32 length,
		    u32 rkey)
{
	struct reg_side *here = &test->here;
	struct reg_chain chain = {};

	reg_rdma(&chain, opcode, here->addr, here->side->pd->local_dma_lkey, length, addr, rkey);

	return reg_status(test, here, &chain);
}
