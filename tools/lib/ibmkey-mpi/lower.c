// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Makes groups of forms. One key is bound to each group.
 *
 * A form within another one becomes a separate key, the inner key. The loops around the form
 * are the outermost dimensions of the inner key. The outer key refers to the inner one:
 * repetition i of the outer key has the bytes of repetition i of the inner key.
 *
 * If more than IBMKEY_MAX_DIMS loops are around a range, another key is made first, of the
 * outermost loops. For each of their repetitions, that key has the span of memory in which
 * the other loops stay, with its gaps. The blocks of the other loops are then in that key
 * instead of in memory, and one loop over its spans replaces the outermost loops.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "form.h"

/* The loops around a form, and the memory or the key in which its bytes are. */
struct around {
	uint32_t num_loops;		/* at most IBMKEY_MAX_DIMS */
	const struct loop *loops;
	uint32_t key;			/* 0 for memory, n for the key of group n - 1 */
	int64_t at;
};

void groups_free(struct ibmkey_mpi_layout *layout)
{
	for (uint32_t i = 0; i < layout->num_groups; i++)
		free(layout->groups[i].blocks);
	free(layout->groups);
	layout->groups = NULL;
	layout->num_groups = 0;
}

/* Adds a group. @layout owns group->blocks from then on; on an error this frees them. */
static int add_group(struct ibmkey_mpi_layout *layout, const struct ibmkey_mpi_group *group)
{
	struct ibmkey_mpi_group *more;

	more = realloc(layout->groups, (layout->num_groups + 1) * sizeof(*more));
	if (!more) {
		free(group->blocks);
		return ENOMEM;
	}
	layout->groups = more;
	more[layout->num_groups++] = *group;
	return 0;
}

/*
 * Writes all loops around the items of @form to @loops, and returns their number. Two loops
 * become one if the inner one ends where the next repetition of the outer one begins.
 */
static uint32_t all_loops(const struct around *around, const struct form *form,
			  struct loop *loops)
{
	uint32_t n = around->num_loops;
	int64_t reach;

	if (n)
		memcpy(loops, around->loops, n * sizeof(*loops));
	for (uint32_t d = 0; d < form->num_loops; d++) {
		const struct loop *loop = &form->loops[d];

		if (n && !__builtin_mul_overflow(loop->count, loop->stride, &reach) &&
		    loops[n - 1].stride == reach)
			loops[n - 1] = (struct loop){ .count = loops[n - 1].count * loop->count,
						      .stride = loop->stride };
		else
			loops[n++] = *loop;
	}
	return n;
}

/*
 * Adds a group of the outermost IBMKEY_MAX_DIMS loops, and replaces them by one loop over the
 * spans of its key.
 */
static int add_spans(struct ibmkey_mpi_layout *layout, const struct form *form,
		     struct loop *loops, uint32_t *num_loops, struct around *around)
{
	struct form rest = *form;
	struct ibmkey_mpi_group group = { .num_dims = IBMKEY_MAX_DIMS, .num_blocks = 1,
					  .part = form->part };
	uint64_t pieces = 1, bytes, length;
	struct ibmkey_block *block;
	struct span span;
	int ret;

	rest.loops = loops + IBMKEY_MAX_DIMS;
	rest.num_loops = *num_loops - IBMKEY_MAX_DIMS;
	ret = form_measure(&rest, 0, &span);
	if (ret || __builtin_sub_overflow(span.high, span.low, &bytes))
		return EOVERFLOW;
	block = calloc(1, sizeof(*block));
	group.blocks = block;
	if (!block)
		return ENOMEM;
	*block = (struct ibmkey_block){ .addr = around->at + span.low, .bytes_count = bytes,
					.lkey = around->key };
	for (uint32_t d = 0; d < IBMKEY_MAX_DIMS; d++) {
		group.repeat[d] = loops[d].count;
		block->stride[d] = loops[d].stride;
		pieces *= loops[d].count;
	}
	if (__builtin_mul_overflow(pieces, bytes, &length) || length > INT64_MAX) {
		free(block);
		return EOVERFLOW;
	}
	ret = add_group(layout, &group);
	around->key = layout->num_groups;
	around->at = -span.low;
	memmove(loops + 1, rest.loops, rest.num_loops * sizeof(*loops));
	loops[0] = (struct loop){ .count = pieces, .stride = bytes };
	*num_loops = rest.num_loops + 1;
	return ret;
}

static int lower(struct ibmkey_mpi_layout *layout, const struct form *form,
		 const struct around *around);

/* Makes @block of an item in a group with the loops @own. A form in the item becomes a group. */
static int lower_item(struct ibmkey_mpi_layout *layout, const struct item *item,
		      const struct around *own, struct ibmkey_block *block)
{
	struct around inner = *own;
	struct span span;
	int64_t stride;
	int ret;

	memset(block, 0, sizeof(*block));
	block->addr = own->at + item->at;
	block->bytes_count = item->bytes;
	block->lkey = own->key;
	for (uint32_t d = 0; d < own->num_loops; d++)
		block->stride[d] = own->loops[d].stride;
	if (!item->nest)
		return 0;
	inner.at += item->at;
	ret = form_measure(item->nest, 0, &span);
	if (!ret)
		ret = lower(layout, item->nest, &inner);
	block->addr = 0;
	block->bytes_count = span.length;
	block->lkey = layout->num_groups;
	stride = span.length;
	for (uint32_t d = own->num_loops; d > 0; d--) {
		block->stride[d - 1] = stride;
		stride *= own->loops[d - 1].count;
	}
	return ret;
}

/* Adds the groups of a form, its own group last. The levels of the type limit the recursion. */
static int lower(struct ibmkey_mpi_layout *layout, const struct form *form,
		 const struct around *around)
{
	struct ibmkey_mpi_group group = { .num_blocks = form->num_items, .part = form->part };
	struct around own = *around;
	struct loop *loops;
	int ret = 0;

	loops = malloc((around->num_loops + form->num_loops + 1) * sizeof(*loops));
	group.blocks = calloc(form->num_items, sizeof(*group.blocks));
	if (!loops || !group.blocks)
		ret = ENOMEM;
	else
		own.num_loops = all_loops(around, form, loops);
	while (!ret && own.num_loops > IBMKEY_MAX_DIMS)
		ret = add_spans(layout, form, loops, &own.num_loops, &own);
	own.loops = loops;
	for (uint32_t i = 0; i < form->num_items && !ret; i++)
		ret = lower_item(layout, &form->items[i], &own, &group.blocks[i]);
	if (!ret) {
		group.num_dims = own.num_loops;
		for (uint32_t d = 0; d < own.num_loops; d++)
			group.repeat[d] = loops[d].count;
		ret = add_group(layout, &group);
	} else {
		free(group.blocks);
		if (!layout->part[0])
			part_name(&form->part, layout->part, sizeof(layout->part));
	}
	free(loops);
	return ret;
}

int form_lower(const struct form *form, struct ibmkey_mpi_layout *layout)
{
	const struct around memory = { 0 };
	int ret = 0;

	if (form->num_items)
		ret = lower(layout, form, &memory);
	if (ret)
		groups_free(layout);
	return ret;
}

int layout_plain(const struct ibmkey_mpi_layout *layout, uint32_t most,
		 struct ibmkey_mpi_layout *plain)
{
	const struct form *nested = layout->form;
	struct form *form;
	int ret;

	*plain = (struct ibmkey_mpi_layout){
		.length = layout->length,
		.low = layout->low,
		.high = layout->high,
	};
	form = calloc(1, sizeof(*form));
	plain->form = form;
	if (!form)
		return ENOMEM;
	ret = form_copy(form, nested);
	if (!ret)
		ret = form_plain(form, most);
	if (!ret)
		ret = form_lower(form, plain);
	else
		part_name(&nested->part, plain->part, sizeof(plain->part));
	return ret;
}
