// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Appends and repeats forms, so that the result has as few entries as possible. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "form.h"

void form_free(struct form *form)
{
	for (uint32_t i = 0; i < form->num_items; i++)
		if (form->items[i].nest) {
			form_free(form->items[i].nest);
			free(form->items[i].nest);
		}
	free(form->items);
	free(form->loops);
	memset(form, 0, sizeof(*form));
}

/*
 * Appends an item. A range that continues the last range makes that range longer. @form owns
 * item->nest from then on; on an error this frees it.
 */
static int add_item(struct form *form, const struct item *item)
{
	struct item *last = form->num_items ? &form->items[form->num_items - 1] : NULL;
	uint32_t n = form->num_items;
	uint64_t entries = 1 + (item->nest ? item->nest->entries : 0);
	struct item *more;
	int64_t end;
	int ret = 0;

	if (last && !last->nest && !item->nest &&
	    !__builtin_add_overflow(last->at, last->bytes, &end) && end == item->at)
		return __builtin_add_overflow(last->bytes, item->bytes, &last->bytes) ?
			EOVERFLOW : 0;
	if (form->entries + entries > IBMKEY_MPI_MAX_ENTRIES)
		ret = ENOSPC;
	/* The array has room up to the next power of two of its length, so grow it only there. */
	if (!ret && !(n & (n - 1))) {
		more = realloc(form->items, (n ? 2 * (size_t)n : 1) * sizeof(*more));
		if (more)
			form->items = more;
		else
			ret = ENOMEM;
	}
	if (ret) {
		if (item->nest)
			form_free(item->nest);
		free(item->nest);
		return ret;
	}
	form->items[form->num_items++] = *item;
	form->entries += entries;
	return 0;
}

int form_range(struct form *form, int64_t at, uint64_t bytes)
{
	struct item range = { .at = at, .bytes = bytes };

	memset(form, 0, sizeof(*form));
	return add_item(form, &range);
}

/* Returns the number of ranges that @form would have if all its loops were written out. */
static uint64_t form_unrolled(const struct form *form)
{
	uint64_t all = 0, one;

	for (uint32_t i = 0; i < form->num_items; i++) {
		one = form->items[i].nest ? form_unrolled(form->items[i].nest) : 1;
		if (__builtin_add_overflow(all, one, &all))
			return UINT64_MAX;
	}
	for (uint32_t d = 0; d < form->num_loops; d++)
		if (__builtin_mul_overflow(all, form->loops[d].count, &all))
			return UINT64_MAX;
	return all;
}

/* Returns the offset at which the first range of a form begins. */
static uint64_t form_begin(const struct form *form)
{
	const struct item *first = &form->items[0];

	return (uint64_t)first->at + (first->nest ? form_begin(first->nest) : 0);
}

/* Returns the offset at which the last range of the last repetition of a form ends. */
static uint64_t form_end(const struct form *form)
{
	const struct item *last = &form->items[form->num_items - 1];
	uint64_t end = (uint64_t)last->at + (last->nest ? form_end(last->nest) : last->bytes);

	for (uint32_t d = 0; d < form->num_loops; d++)
		end += (form->loops[d].count - 1) * (uint64_t)form->loops[d].stride;
	return end;
}

static int place(int64_t at, uint64_t times, int64_t stride, int64_t *to)
{
	int64_t by;

	return __builtin_mul_overflow(times, stride, &by) ||
	       __builtin_add_overflow(at, by, to) ? EOVERFLOW : 0;
}

static int add_nest(struct form *form, const struct form *from, int64_t at);
static int join_nest(struct form *form, int64_t at);

/* Makes @form one without loops: the old form becomes its only item, or is written out. */
static int form_wrap(struct form *form)
{
	struct form first = *form;
	int ret;

	if (!form->num_loops)
		return 0;
	memset(form, 0, sizeof(*form));
	form->part = first.part;
	ret = add_nest(form, &first, 0);
	form_free(&first);
	return ret;
}

/*
 * Appends @from, moved by @at, with its loops from @loop on written out: each repetition
 * becomes items. If @all, writes out the loops of the forms in @from, too.
 */
static int write_out(struct form *to, const struct form *from, uint32_t loop, int64_t at,
		     bool all)
{
	int64_t moved;
	int ret = 0;

	if (loop < from->num_loops) {
		for (uint64_t i = 0; i < from->loops[loop].count && !ret; i++) {
			ret = place(at, i, from->loops[loop].stride, &moved);
			if (!ret)
				ret = write_out(to, from, loop + 1, moved, all);
		}
		return ret;
	}
	for (uint32_t i = 0; i < from->num_items && !ret; i++) {
		struct item item = from->items[i];

		if (__builtin_add_overflow(item.at, at, &item.at))
			return EOVERFLOW;
		if (item.nest) {
			ret = all ? write_out(to, item.nest, 0, item.at, true) :
				    form_append(to, item.nest, item.at);
			continue;
		}
		ret = form_wrap(to);
		if (!ret)
			ret = join_nest(to, item.at);
		if (!ret)
			ret = add_item(to, &item);
	}
	return ret;
}

int form_copy(struct form *to, const struct form *from)
{
	int ret = 0;

	memset(to, 0, sizeof(*to));
	if (from->num_loops) {
		to->loops = malloc(from->num_loops * sizeof(*to->loops));
		if (!to->loops)
			return ENOMEM;
		memcpy(to->loops, from->loops, from->num_loops * sizeof(*to->loops));
		to->num_loops = from->num_loops;
	}
	to->part = from->part;
	for (uint32_t i = 0; i < from->num_items && !ret; i++) {
		struct item item = from->items[i];

		if (item.nest) {
			item.nest = malloc(sizeof(*item.nest));
			ret = item.nest ? form_copy(item.nest, from->items[i].nest) : ENOMEM;
		}
		if (ret)
			free(item.nest);
		else
			ret = add_item(to, &item);
	}
	if (ret)
		form_free(to);
	return ret;
}

/* Returns true if the last item is a range, and the first range of @from continues it at @at. */
static bool continues(const struct form *form, const struct form *from, int64_t at)
{
	const struct item *last = &form->items[form->num_items - 1];

	return form->num_items && !last->nest &&
	       (uint64_t)last->at + last->bytes == at + form_begin(from);
}

/* Appends a form with loops as one item, or as ranges if these take no more entries. */
static int add_nest(struct form *form, const struct form *from, int64_t at)
{
	struct item item = { .at = at };
	int ret;

	if (form_unrolled(from) <= from->entries + 1 + continues(form, from, at))
		return write_out(form, from, 0, at, true);
	item.nest = malloc(sizeof(*item.nest));
	if (!item.nest)
		return ENOMEM;
	ret = form_copy(item.nest, from);
	if (ret) {
		free(item.nest);
		return ret;
	}
	return add_item(form, &item);
}

static int form_move(struct form *form, int64_t by)
{
	for (uint32_t i = 0; i < form->num_items; i++)
		if (__builtin_add_overflow(form->items[i].at, by, &form->items[i].at))
			return EOVERFLOW;
	return 0;
}

/*
 * Prepares for a range that begins at @at. If the last item is a form that ends there, writes
 * it out, so that the range can continue it, unless that takes more entries.
 */
static int join_nest(struct form *form, int64_t at)
{
	struct item last;
	int ret;

	if (!form->num_items || !form->items[form->num_items - 1].nest)
		return 0;
	last = form->items[form->num_items - 1];
	if (last.at + form_end(last.nest) != (uint64_t)at)
		return 0;
	form->num_items--;
	form->entries -= 1 + last.nest->entries;
	if (form_unrolled(last.nest) <= last.nest->entries + 2 +
					continues(form, last.nest, last.at)) {
		ret = write_out(form, last.nest, 0, last.at, true);
		form_free(last.nest);
		free(last.nest);
		return ret;
	}
	return add_item(form, &last);
}

int form_append(struct form *form, const struct form *from, int64_t at)
{
	int ret;

	if (!from->num_items)
		return 0;
	if (!form->num_items) {
		form_free(form);
		ret = form_copy(form, from);
		return ret ? ret : form_move(form, at);
	}
	ret = form_wrap(form);
	if (!ret && from->num_loops)
		return add_nest(form, from, at);
	return ret ? ret : write_out(form, from, 0, at, false);
}

bool form_same(const struct form *a, const struct form *b, int64_t *at)
{
	int64_t within;

	if (a->num_items != b->num_items || a->num_loops != b->num_loops || !a->num_items ||
	    (a->num_loops && memcmp(a->loops, b->loops, a->num_loops * sizeof(*a->loops))) ||
	    __builtin_sub_overflow(b->items[0].at, a->items[0].at, at))
		return false;
	for (uint32_t i = 0; i < a->num_items; i++) {
		const struct item *x = &a->items[i], *y = &b->items[i];
		int64_t apart;

		if (__builtin_sub_overflow(y->at, x->at, &apart) || x->bytes != y->bytes ||
		    !x->nest != !y->nest)
			return false;
		if (x->nest && (!form_same(x->nest, y->nest, &within) ||
				__builtin_add_overflow(apart, within, &apart)))
			return false;
		if (!i)
			*at = apart;
		if (apart != *at)
			return false;
	}
	return true;
}

int form_repeat(struct form *form, uint64_t count, int64_t stride)
{
	struct item *only = form->items;
	struct loop *loops;
	int64_t reach;

	if (!count) {
		form_free(form);
		return 0;
	}
	if (count == 1 || !form->num_items)
		return 0;
	if (!form->num_loops && form->num_items == 1 && stride >= 0 &&
	    only->bytes == (uint64_t)stride)
		return __builtin_mul_overflow(only->bytes, count, &only->bytes) ? EOVERFLOW : 0;
	loops = form->loops;
	if (form->num_loops && !place(0, loops->count, loops->stride, &reach) && reach == stride)
		return __builtin_mul_overflow(loops->count, count, &loops->count) ? EOVERFLOW : 0;
	loops = realloc(loops, (form->num_loops + 1) * sizeof(*loops));
	if (!loops)
		return ENOMEM;
	memmove(loops + 1, loops, form->num_loops * sizeof(*loops));
	loops[0] = (struct loop){ .count = count, .stride = stride };
	form->loops = loops;
	form->num_loops++;
	return 0;
}

int form_measure(const struct form *form, uint32_t first, struct span *span)
{
	int64_t reach;

	*span = (struct span){ .low = INT64_MAX, .high = INT64_MIN };
	for (uint32_t i = 0; i < form->num_items; i++) {
		const struct item *item = &form->items[i];
		struct span one = { .length = item->bytes };

		if (item->nest ? form_measure(item->nest, 0, &one) != 0 :
		    __builtin_add_overflow(0, item->bytes, &one.high))
			return EOVERFLOW;
		if (__builtin_add_overflow(one.low, item->at, &one.low) ||
		    __builtin_add_overflow(one.high, item->at, &one.high) ||
		    __builtin_add_overflow(span->length, one.length, &span->length))
			return EOVERFLOW;
		span->low = one.low < span->low ? one.low : span->low;
		span->high = one.high > span->high ? one.high : span->high;
	}
	if (!form->num_items)
		*span = (struct span){ 0 };
	for (uint32_t d = first; d < form->num_loops; d++) {
		if (place(0, form->loops[d].count - 1, form->loops[d].stride, &reach) ||
		    __builtin_add_overflow(reach < 0 ? span->low : span->high, reach,
					   reach < 0 ? &span->low : &span->high) ||
		    __builtin_mul_overflow(span->length, form->loops[d].count, &span->length))
			return EOVERFLOW;
	}
	return span->length > INT64_MAX ? EOVERFLOW : 0;
}

/* Replaces the items, and keeps the loops except the last @less ones. */
static void take_items(struct form *form, struct form *items, uint32_t less)
{
	struct form old = *form;

	*form = *items;
	form->part = old.part;
	if (!form->num_loops) {
		form->loops = old.loops;
		form->num_loops = old.num_loops - less;
		old.loops = NULL;
	}
	old.num_loops = 0;
	form_free(&old);
}

int form_unroll(struct form *form)
{
	uint32_t inner = form->num_loops - 1;
	struct form all = { 0 };
	int ret;

	ret = write_out(&all, form, inner, 0, false);
	if (ret)
		form_free(&all);
	else
		take_items(form, &all, 1);
	return ret;
}

int form_plain(struct form *form, uint32_t most)
{
	uint64_t inside, outside;
	bool nests = false, inner;
	struct form all = { 0 };
	int ret = 0;

	for (uint32_t i = 0; i < form->num_items && !ret; i++) {
		struct form *nest = form->items[i].nest;

		if (!nest)
			continue;
		nests = true;
		form->entries -= nest->entries;
		ret = form_plain(nest, most);
		form->entries += nest->entries;
	}
	outside = form->entries;
	if (!ret && nests) {
		/*
		 * Write out either the loops of the forms within (inner), or the repetitions
		 * of this form, whichever takes fewer entries. But if the former takes at
		 * most @most entries, prefer it: the result is then one key.
		 */
		inside = form_unrolled(form);
		for (uint32_t d = 0; d < form->num_loops; d++) {
			inside /= inside == UINT64_MAX ? 1 : form->loops[d].count;
			if (__builtin_mul_overflow(outside, form->loops[d].count, &outside))
				outside = UINT64_MAX;
		}
		inner = form->num_loops && (inside <= most || inside <= outside);
		if (form->num_loops && inside > IBMKEY_MPI_MAX_ENTRIES &&
		    outside > IBMKEY_MPI_MAX_ENTRIES)
			ret = ENOSPC;
		else
			ret = write_out(&all, form, inner ? form->num_loops : 0, 0, inner);
		if (ret)
			form_free(&all);
		else
			take_items(form, &all, inner ? 0 : form->num_loops);
	}
	while (!ret && form->num_loops > IBMKEY_MAX_DIMS)
		ret = form_unroll(form);
	return ret;
}
