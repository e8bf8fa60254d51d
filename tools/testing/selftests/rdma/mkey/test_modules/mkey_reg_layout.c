// SPDX-License-Identifier: GPL-2.0
/* Random layouts of a side's memory, which are staged for a key. */

#include "mkey_reg.h"

static u32 below(struct reg_test *test, u32 end)
{
	return prandom_u32_state(&test->random) % end;
}

static void add(struct reg_layout *layout, u32 at, u32 length)
{
	while (length--)
		layout->place[layout->length++] = at++;
}

/* Ranges in slots of equal size, which are in any order. */
static void draw_list(struct reg_test *test, struct reg_side *side, struct reg_layout *layout)
{
	u32 count = 1 + below(test, below(test, 3) ? 8 : REG_ENTRIES), slot = REG_LAYOUT / count;
	u32 first = below(test, count), i;

	layout->num_sge = count;
	for (i = 0; i < count; i++) {
		u32 at = (first + i) % count * slot + below(test, slot / 2);
		u32 length = 1 + below(test, min(slot / 2, 4096u));

		layout->sge[i] = (struct ib_sge){
			.addr = side->addr + at,
			.length = length,
			.lkey = side->side->pd->local_dma_lkey,
		};
		add(layout, at, length);
	}
}

/* One or two blocks in one or two dimensions. */
static void draw_interleaved(struct reg_test *test, struct reg_side *side,
			     struct reg_layout *layout)
{
	u32 blocks = 1 + below(test, 2), dims = 1 + below(test, 2), i, j, b;
	u32 inner = 256 + below(test, 64), outer = 8 * inner;

	layout->repeat_count[0] = dims == 1 ? 1 + below(test, 150) : 1 + below(test, 20);
	layout->repeat_count[1] = dims == 1 ? 1 : 1 + below(test, 8);
	for (b = 0; b < blocks; b++)
		layout->block[b] = (struct ib_mkey_block){
			.addr = side->addr + b * 128 + below(test, 60),
			.bytes_count = 1 + below(test, 60),
			.lkey = side->side->pd->local_dma_lkey,
			/* The strides of unused dimensions are ignored. */
			.stride = { dims == 1 ? inner : outer, dims == 1 ? 12345 : inner, 1, 2 },
		};
	layout->interleaved = (struct ib_mkey_interleaved){
		.num_dims = dims,
		.num_blocks = blocks,
		.repeat_count = layout->repeat_count,
		.blocks = layout->block,
	};
	for (i = 0; i < layout->repeat_count[0]; i++)
		for (j = 0; j < layout->repeat_count[1]; j++)
			for (b = 0; b < blocks; b++) {
				const struct ib_mkey_block *block = &layout->block[b];

				add(layout, block->addr - side->addr + i * block->stride[0] +
					    (dims == 1 ? 0 : j * block->stride[1]),
				    block->bytes_count);
			}
}

static void draw_indexed(struct reg_test *test, struct reg_side *side, struct reg_layout *layout)
{
	u32 count = 1 + below(test, REG_ENTRIES), unit = 100 + below(test, 100), i;
	u32 at = below(test, 1000), length = 1 + below(test, unit);
	u32 step = 1 + 2 * below(test, REG_ENTRIES / 2);

	layout->indexed = (struct ib_mkey_indexed){
		.addr = side->addr + at,
		.unit = unit,
		.bytes_count = length,
		.indices32 = layout->index,
		.num_indices = count,
		.lkey = side->side->pd->local_dma_lkey,
	};
	for (i = 0; i < count; i++) {
		/* No index is drawn twice: the count is not a multiple of the step's factors. */
		layout->index[i] = (u32)(((u64)i * step) % 307);
		add(layout, at + layout->index[i] * unit, length);
	}
}

/* The most pieces that the MR takes, or any number of them. */
static void draw_gaps(struct reg_test *test, struct reg_side *side, struct reg_layout *layout)
{
	int nents = below(test, 6) ? 1 + below(test, 2 << below(test, 9)) : REG_ELEMENTS;
	struct scatterlist *sg;
	int i;

	gaps_draw(test, side, min(nents, REG_ELEMENTS), REG_LAYOUT);
	for_each_sg(side->sg, sg, side->nents, i)
		add(layout, (u8 *)sg_virt(sg) - side->memory, sg->length);
}

/* Draws a layout of a side's memory. */
void reg_draw(struct reg_test *test, struct reg_side *side, struct reg_layout *layout)
{
	layout->kind = below(test, REG_KINDS);
	layout->length = 0;
	layout->base = below(test, 2) ? 0 : (u64)prandom_u32_state(&test->random) << 24;
	if (layout->kind == REG_LIST)
		draw_list(test, side, layout);
	else if (layout->kind == REG_INTERLEAVED)
		draw_interleaved(test, side, layout);
	else if (layout->kind == REG_INDEXED)
		draw_indexed(test, side, layout);
	else
		draw_gaps(test, side, layout);
}

/* The key or the MR that a layout of a side is for. */
struct ib_mr *reg_mr(struct reg_side *side, const struct reg_layout *layout)
{
	return layout->kind == REG_GAPS ? side->mr : side->key;
}

/* Maps the side's scatterlist to its MR, at the addresses of the first piece. */
static int map_gaps(struct reg_side *side, struct reg_layout *layout)
{
	int ret = gaps_map(side);

	if (ret < 0)
		return ret;
	expect_is(ret, side->nents);
	expect(side->mr->length == side->length);
	expect(side->mr->iova == sg_dma_address(side->sg));
	layout->base = side->mr->iova;

	return 0;
}

/* Stages a layout of a side for @key or the MR, in a context that must not sleep. */
int reg_map(struct reg_side *side, struct ib_mr *key, struct reg_layout *layout)
{
	struct ib_mkey_bind bind = {
		.mkey = key,
		.num_sge = layout->num_sge,
		.base_addr = layout->base,
		.interleaved = layout->kind == REG_INTERLEAVED ? &layout->interleaved : NULL,
		.indexed = layout->kind == REG_INDEXED ? &layout->indexed : NULL,
		.sg_list = layout->sge,
	};
	unsigned long flags;
	int ret;

	if (layout->kind == REG_GAPS)
		return map_gaps(side, layout);
	local_irq_save(flags);
	if (layout->base)
		ret = ib_map_mkey(&bind);
	else if (layout->kind == REG_LIST)
		ret = ib_map_mkey_list(key, layout->sge, layout->num_sge);
	else if (layout->kind == REG_INTERLEAVED)
		ret = ib_map_mkey_interleaved(key, &layout->interleaved);
	else
		ret = ib_map_mkey_indexed(key, &layout->indexed);
	local_irq_restore(flags);

	return ret;
}

/* Undoes what reg_map() did beside staging. */
void reg_unmap(struct reg_side *side, const struct reg_layout *layout)
{
	if (layout->kind == REG_GAPS)
		gaps_unmap(side);
}
