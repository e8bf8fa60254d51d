// SPDX-License-Identifier: GPL-2.0
/* Scatterlists with gaps, and MRs over them. */

#include <linux/log2.h>

#include "mkey_reg.h"

/*
 * Draws a list of pieces of the first @room bytes of a side's memory, which have any alignment, do
 * not touch and are in no order.
 */
void gaps_draw(struct reg_test *test, struct reg_side *side, int nents, u32 room)
{
	u32 slot = room / nents;
	int i;

	sg_init_table(side->sg, nents);
	side->nents = nents;
	side->length = 0;
	for (i = 0; i < nents; i++) {
		u32 at = prandom_u32_state(&test->random) % (slot / 2);
		u32 length = 1 + prandom_u32_state(&test->random) % (slot / 2 - 1);
		u32 nth = i;

		/*
		 * An odd number is coprime to a power of two, so each slot is used
		 * once.
		 */
		if (is_power_of_2(nents))
			nth = (i * 0x9e3779b1) & (nents - 1);
		if (!(prandom_u32_state(&test->random) % 4))
			length = 1 + length % 16;
		sg_set_buf(&side->sg[i], side->memory + nth * slot + at, length);
		side->length += length;
	}
}

/* Makes pieces of 64 bytes, one in each page, which begin at @at. */
void gaps_even(struct reg_side *side, int nents, u32 at)
{
	int i;

	sg_init_table(side->sg, nents);
	side->nents = nents;
	side->length = nents * 64;
	for (i = 0; i < nents; i++)
		sg_set_buf(&side->sg[i], side->memory + i * PAGE_SIZE + at, 64);
}

/*
 * Maps a side's list for its device, and to its MR. Runs in a context that must not sleep, as a
 * storage user may. With PREEMPT_RT no such context may take a spinlock, as a driver does to map,
 * so there are none of these users. Returns the return value of ib_map_mr_sg().
 */
int gaps_map(struct reg_side *side)
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

/* Undoes gaps_map(). */
void gaps_unmap(struct reg_side *side)
{
	ib_dma_unmap_sg(side->side->device, side->sg, side->nents, DMA_BIDIRECTIONAL);
}

/* The place in memory of byte @offset of the pieces that gaps_even() makes at @at. */
u32 gaps_place(u32 at, u32 offset)
{
	return offset / 64 * PAGE_SIZE + at + offset % 64;
}

/* Registers what is mapped to a side's MR, by the next key. Returns the status or an error. */
int gaps_register(struct reg_test *test, struct reg_side *side, int access)
{
	return reg_bind_status(test, side, side->mr, reg_next_key(side->mr), access);
}

/* Invalidates a side's MR. Returns the status or an error. */
int gaps_invalidate(struct reg_test *test, struct reg_side *side)
{
	return reg_inv_status(test, side, side->mr->rkey);
}
