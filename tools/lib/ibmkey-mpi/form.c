// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The algebra of forms: appending and repeating with the fewest blocks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "form.h"

static void group_free(struct ibmkey_mpi_group *group)
{
	free(group->blocks);
	group->blocks = NULL;
}

void form_free(struct form *form)
{
	for (uint32_t i = 0; i < form->num; i++)
		group_free(&form->group[i]);
	free(form->group);
	memset(form, 0, sizeof(*form));
}

uint64_t form_blocks(const struct form *form)
{
	uint64_t blocks = 0;

	for (uint32_t i = 0; i < form->num; i++)
		blocks += form->group[i].num_blocks;
	return blocks;
}

static int group_copy(struct ibmkey_mpi_group *to,
		      const struct ibmkey_mpi_group *from)
{
	*to = *from;
	to->blocks = malloc(from->num_blocks * sizeof(*to->blocks));
	if (!to->blocks)
		return ENOMEM;
	memcpy(to->blocks, from->blocks, from->num_blocks * sizeof(*to->blocks));
	return 0;
}

static int form_grow(struct form *form, const struct ibmkey_mpi_group *group)
{
	struct ibmkey_mpi_group *more;
	int ret;

	more = realloc(form->group, (form->num + 1) * sizeof(*more));
	if (!more)
		return ENOMEM;
	form->group = more;
	ret = group_copy(&more[form->num], group);
	if (!ret)
		form->num++;
	return ret;
}

int form_block(struct form *form, int64_t at, uint64_t bytes)
{
	struct ibmkey_block block = { .addr = at, .bytes_count = bytes };
	struct ibmkey_mpi_group one = { .num_blocks = 1, .blocks = &block };

	memset(form, 0, sizeof(*form));
	return form_grow(form, &one);
}

static int group_move(struct ibmkey_mpi_group *group, int64_t by)
{
	int64_t at;

	for (uint32_t i = 0; i < group->num_blocks; i++) {
		if (__builtin_add_overflow((int64_t)group->blocks[i].addr, by, &at))
			return EOVERFLOW;
		group->blocks[i].addr = at;
	}
	return 0;
}

/* Appends ranges to ranges; those that continue each other become one. */
static int group_join(struct ibmkey_mpi_group *to,
		      const struct ibmkey_mpi_group *from)
{
	struct ibmkey_block *all, *last;
	uint32_t n = to->num_blocks;

	if (n + (uint64_t)from->num_blocks > IBMKEY_MPI_MAX_BLOCKS + 1)
		return ENOSPC;
	all = realloc(to->blocks, (n + from->num_blocks) * sizeof(*all));
	if (!all)
		return ENOMEM;
	to->blocks = all;
	for (uint32_t i = 0; i < from->num_blocks; i++) {
		last = n ? &all[n - 1] : NULL;
		if (last && last->addr + last->bytes_count == from->blocks[i].addr)
			last->bytes_count += from->blocks[i].bytes_count;
		else
			all[n++] = from->blocks[i];
	}
	to->num_blocks = n;
	return n > IBMKEY_MPI_MAX_BLOCKS ? ENOSPC : 0;
}

int form_append(struct form *form, const struct form *from, int64_t at)
{
	struct ibmkey_mpi_group moved;
	int ret = 0;

	for (uint32_t i = 0; i < from->num && !ret; i++) {
		struct ibmkey_mpi_group *last = NULL;

		ret = group_copy(&moved, &from->group[i]);
		if (ret)
			break;
		ret = group_move(&moved, at);
		if (form->num)
			last = &form->group[form->num - 1];
		if (!ret && last && !last->num_dims && !moved.num_dims)
			ret = group_join(last, &moved);
		else if (!ret)
			ret = form_grow(form, &moved);
		group_free(&moved);
	}
	if (!ret && form_blocks(form) > IBMKEY_MPI_MAX_BLOCKS)
		ret = ENOSPC;
	return ret;
}

bool form_same(const struct form *a, const struct form *b, int64_t *at)
{
	if (a->num != b->num || !a->num)
		return false;
	*at = b->group[0].blocks[0].addr - a->group[0].blocks[0].addr;
	for (uint32_t i = 0; i < a->num; i++) {
		const struct ibmkey_mpi_group *x = &a->group[i], *y = &b->group[i];

		if (x->num_dims != y->num_dims || x->num_blocks != y->num_blocks ||
		    memcmp(x->repeat, y->repeat, x->num_dims * sizeof(*x->repeat)))
			return false;
		for (uint32_t k = 0; k < x->num_blocks; k++)
			if (x->blocks[k].addr + *at != y->blocks[k].addr ||
			    x->blocks[k].bytes_count != y->blocks[k].bytes_count ||
			    memcmp(x->blocks[k].stride, y->blocks[k].stride,
				   x->num_dims * sizeof(*x->blocks[k].stride)))
				return false;
	}
	return true;
}

/* Adds an outermost dimension, or makes the one that is there longer. */
static int group_dimension(struct ibmkey_mpi_group *group, uint64_t count,
			   int64_t stride)
{
	struct ibmkey_block *b = group->blocks;
	bool continues = group->num_dims > 0;
	int64_t reach;

	if (!group->num_dims && group->num_blocks == 1 && stride >= 0 &&
	    b->bytes_count == (uint64_t)stride)
		return __builtin_mul_overflow(b->bytes_count, count, &b->bytes_count) ?
			EOVERFLOW : 0;
	for (uint32_t i = 0; i < group->num_blocks && continues; i++)
		continues = !__builtin_mul_overflow((int64_t)group->repeat[0],
						    b[i].stride[0], &reach) &&
			reach == stride;
	if (continues)
		return __builtin_mul_overflow(group->repeat[0], count,
					      &group->repeat[0]) ? EOVERFLOW : 0;
	if (group->num_dims == IBMKEY_MAX_DIMS)
		return E2BIG;
	memmove(group->repeat + 1, group->repeat,
		group->num_dims * sizeof(*group->repeat));
	group->repeat[0] = count;
	for (uint32_t i = 0; i < group->num_blocks; i++) {
		memmove(b[i].stride + 1, b[i].stride,
			group->num_dims * sizeof(*b[i].stride));
		b[i].stride[0] = stride;
	}
	group->num_dims++;
	return 0;
}

/* Writes out the innermost dimension: each repetition becomes a block. */
static int group_unroll(struct ibmkey_mpi_group *group)
{
	uint32_t inner = group->num_dims - 1, n = 0;
	struct ibmkey_block *all;
	uint64_t total;

	if (__builtin_mul_overflow(group->repeat[inner], (uint64_t)group->num_blocks,
				   &total) || total > IBMKEY_MPI_MAX_BLOCKS)
		return ENOSPC;
	all = malloc(total * sizeof(*all));
	if (!all)
		return ENOMEM;
	for (uint64_t r = 0; r < group->repeat[inner]; r++)
		for (uint32_t i = 0; i < group->num_blocks; i++) {
			all[n] = group->blocks[i];
			all[n].addr += r * (uint64_t)all[n].stride[inner];
			all[n++].stride[inner] = 0;
		}
	free(group->blocks);
	group->blocks = all;
	group->num_blocks = n;
	group->num_dims = inner;
	return 0;
}

/* Returns the blocks of a form whose dimensions are all written out. */
static uint64_t form_unrolled(const struct form *form)
{
	uint64_t all = 0, one;

	for (uint32_t i = 0; i < form->num; i++) {
		one = form->group[i].num_blocks;
		for (uint32_t d = 0; d < form->group[i].num_dims; d++)
			if (__builtin_mul_overflow(one, form->group[i].repeat[d], &one))
				return UINT64_MAX;
		if (__builtin_add_overflow(all, one, &all))
			return UINT64_MAX;
	}
	return all;
}

/* Makes a form ranges, one after another. */
static int form_flatten(struct form *form)
{
	struct form flat = { 0 }, one;
	int ret = 0;

	for (uint32_t i = 0; i < form->num && !ret; i++) {
		while (form->group[i].num_dims && !ret)
			ret = group_unroll(&form->group[i]);
		one = (struct form){ .num = 1, .group = &form->group[i] };
		if (!ret)
			ret = form_append(&flat, &one, 0);
	}
	form_free(form);
	*form = flat;
	return ret;
}

int form_copies(struct form *form, uint64_t count, int64_t stride)
{
	struct form all = { 0 };
	int ret = 0;

	for (uint64_t i = 0; i < count && !ret; i++) {
		int64_t at;

		ret = __builtin_mul_overflow((int64_t)i, stride, &at) ? EOVERFLOW :
			form_append(&all, form, at);
	}
	form_free(form);
	*form = all;
	return ret;
}

int form_repeat(struct form *form, uint64_t count, int64_t stride)
{
	uint64_t inside, outside;
	int ret;

	if (!count) {
		form_free(form);
		return 0;
	}
	if (count == 1 || !form->num)
		return 0;
	if (form->num > 1) {
		/*
		 * One group is needed to repeat it. Either write the inner
		 * dimensions out, or the copies: what takes fewer blocks.
		 */
		inside = form_unrolled(form);
		if (__builtin_mul_overflow(count, form_blocks(form) + form->num, &outside))
			outside = UINT64_MAX;
		if (inside > IBMKEY_MPI_MAX_BLOCKS && outside > IBMKEY_MPI_MAX_BLOCKS)
			return ENOSPC;
		if (outside < inside)
			return form_copies(form, count, stride);
		ret = form_flatten(form);
		if (ret)
			return ret;
	}
	while ((ret = group_dimension(&form->group[0], count, stride)) == E2BIG) {
		ret = group_unroll(&form->group[0]);
		if (ret)
			return ret;
	}
	return ret;
}
