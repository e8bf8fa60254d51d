// SPDX-License-Identifier: GPL-2.0
/*
 * Random scatterlists with gaps; work requests on MRs over them.
 */

#include <linux/prandom.h>
#include <linux/slab.h>

#include "mkey_gaps.h"

/**
 * gaps_draw() - draw a list of pieces of a side's memory
 * @gaps: where random numbers come from
 * @side: its list is replaced
 * @nents: number of pieces
 *
 * The pieces have any alignment, do not touch and are in no order.
 */
void gaps_draw(struct gaps *gaps, struct gaps_side *side, int nents)
{
	u32 slot = GAPS_MEMORY / nents;
	int i;

	sg_init_table(side->sg, nents);
	side->nents = nents;
	side->length = 0;
	for (i = 0; i < nents; i++) {
		u32 at = prandom_u32_state(gaps->random) % (slot / 2);
		u32 length = 1 + prandom_u32_state(gaps->random) % (slot / 2 - 1);
		u32 nth = i;

		/*
		 * An odd number is coprime to a power of two, so each slot is used
		 * once.
		 */
		if (is_power_of_2(nents))
			nth = (i * 0x9e3779b1) & (nents - 1);
		if (!(prandom_u32_state(gaps->random) % 4))
			length = 1 + length % 16;
		sg_set_buf(&side->sg[i], side->memory + nth * slot + at, length);
		side->length += length;
	}
}

/**
 * gaps_map() - map a side's list for its device, and to its region
 * @side: the side; gaps_unmap() unmaps the list for the device
 *
 * Runs in a context that must not sleep, as a storage user may. With PREEMPT_RT no such
 * context may take a spinlock, as a driver does to map, so there are none of these users.
 *
 * Return: the return value of ib_map_mr_sg().
 */
int gaps_map(struct gaps_side *side)
{
	unsigned long flags;
	int ret;

	if (!ib_dma_map_sg(side->side->device, side->sg, side->nents, DMA_BIDIRECTIONAL))
		return -ENOMEM;
	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		return ib_map_mr_sg(side->mr, side->sg, side->nents, NULL, PAGE_SIZE);
	local_irq_save(flags);
	ret = ib_map_mr_sg(side->mr, side->sg, side->nents, NULL, PAGE_SIZE);
	local_irq_restore(flags);

	return ret;
}

/**
 * gaps_unmap() - undo gaps_map()
 * @side: the side
 */
void gaps_unmap(struct gaps_side *side)
{
	ib_dma_unmap_sg(side->side->device, side->sg, side->nents, DMA_BIDIRECTIONAL);
}

/**
 * gaps_fill() - fill a side's memory with random bytes
 * @gaps: where they come from
 * @side: the side
 */
void gaps_fill(struct gaps *gaps, struct gaps_side *side)
{
	prandom_bytes_state(gaps->random, side->expected, GAPS_MEMORY);
	memcpy(side->memory, side->expected, GAPS_MEMORY);
}

/**
 * gaps_same() - compare all of a side's memory to what it should hold
 * @side: the side
 *
 * Return: 0, or -EIO if a byte differs, in a piece or between them.
 */
int gaps_same(struct gaps_side *side)
{
	return module_same(side->side, side->memory, side->expected, GAPS_MEMORY);
}

/* The place in memory of byte @offset of the pieces. */
static u32 place(struct gaps_side *side, u32 offset)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(side->sg, sg, side->nents, i) {
		if (offset < sg->length)
			return (u8 *)sg_virt(sg) - side->memory + offset;
		offset -= sg->length;
	}

	return 0;
}

/**
 * gaps_copy() - apply a transfer to the expected bytes
 * @to: whose pieces are written
 * @to_offset: first byte of them
 * @from: whose pieces are read
 * @from_offset: first byte of them
 * @length: bytes
 */
void gaps_copy(struct gaps_side *to, u32 to_offset, struct gaps_side *from,
	       u32 from_offset, u32 length)
{
	u32 i;

	for (i = 0; i < length; i++)
		to->expected[place(to, to_offset + i)] =
			from->expected[place(from, from_offset + i)];
}

static union gaps_wr *next(struct gaps_chain *chain, enum ib_wr_opcode opcode)
{
	union gaps_wr *wr = &chain->wr[chain->length];

	memset(wr, 0, sizeof(*wr));
	wr->send.opcode = opcode;
	if (chain->length++)
		wr[-1].send.next = &wr->send;

	return wr;
}

static void one_sge(struct gaps_chain *chain, union gaps_wr *wr, u64 addr, u32 lkey, u32 length)
{
	chain->sge = (struct ib_sge){ .addr = addr, .length = length, .lkey = lkey };
	wr->send.sg_list = &chain->sge;
	wr->send.num_sge = 1;
}

/**
 * gaps_reg() - add REG_MR to a chain
 * @chain: the chain
 * @side: the side of the MR, which is registered with its current rkey
 * @access: rights
 */
void gaps_reg(struct gaps_chain *chain, struct gaps_side *side, int access)
{
	struct ib_reg_wr *wr = &next(chain, IB_WR_REG_MR)->reg;

	wr->mr = side->mr;
	wr->key = side->mr->rkey;
	wr->access = access;
}

/**
 * gaps_rdma() - add a WRITE or READ to a chain
 * @chain: the chain, in which nothing else has an SGE
 * @opcode: which
 * @addr: local address
 * @lkey: local key
 * @length: bytes
 * @remote_addr: remote address
 * @rkey: remote key
 */
void gaps_rdma(struct gaps_chain *chain, enum ib_wr_opcode opcode, u64 addr, u32 lkey,
	       u32 length, u64 remote_addr, u32 rkey)
{
	union gaps_wr *wr = next(chain, opcode);

	one_sge(chain, wr, addr, lkey, length);
	wr->rdma.remote_addr = remote_addr;
	wr->rdma.rkey = rkey;
}

/**
 * gaps_send() - add a SEND to a chain
 * @chain: the chain, in which nothing else has an SGE
 * @addr: local address
 * @lkey: local key
 * @length: bytes
 */
void gaps_send(struct gaps_chain *chain, u64 addr, u32 lkey, u32 length)
{
	one_sge(chain, next(chain, IB_WR_SEND), addr, lkey, length);
}

/**
 * gaps_inv() - add LOCAL_INV to a chain
 * @chain: the chain
 * @key: the key to invalidate
 */
void gaps_inv(struct gaps_chain *chain, u32 key)
{
	next(chain, IB_WR_LOCAL_INV)->send.ex.invalidate_rkey = key;
}

/**
 * gaps_run() - post a chain at once and wait for all of it
 * @side: on whose queue
 * @chain: the chain; what is in it is told how it completed
 *
 * Return: 0, or the error of posting or waiting.
 */
int gaps_run(struct ulp_side *side, struct gaps_chain *chain)
{
	struct ib_wc wc;
	int i, ret;

	ret = ib_post_send(side->qp, &chain->wr[0].send, NULL);
	for (i = 0; i < chain->length && !ret; i++) {
		ret = module_wait(side, &wc);
		chain->status[i] = wc.status;
	}

	return ret;
}

/**
 * gaps_register() - register what is mapped to a side's region, by the next key
 * @side: the side
 * @access: rights
 *
 * Return: 0, the status it completed with, or an error.
 */
int gaps_register(struct gaps_side *side, int access)
{
	struct gaps_chain chain = {};
	int ret;

	ib_update_fast_reg_key(side->mr, ib_inc_rkey(side->mr->rkey));
	gaps_reg(&chain, side, access);
	ret = gaps_run(side->side, &chain);

	return ret ?: chain.status[0];
}

/**
 * gaps_invalidate() - invalidate a side's region
 * @side: the side
 *
 * Return: 0, the status it completed with, or an error.
 */
int gaps_invalidate(struct gaps_side *side)
{
	struct gaps_chain chain = {};
	int ret;

	gaps_inv(&chain, side->mr->rkey);
	ret = gaps_run(side->side, &chain);

	return ret ?: chain.status[0];
}
