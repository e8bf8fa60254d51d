// SPDX-License-Identifier: GPL-2.0
/* One kind of leaf under layouts of every kind. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "matrix.h"

#define MAX_ENTRIES 24

static int mkt_matrix_side(struct mkt_matrix *m, unsigned int i,
			   mkt_leaf_maker make)
{
	struct mkt_arena *arena = &m->s.arena[i];
	int err;

	mkt_arena_init(arena, &m->s.dev[i]);
	err = mkt_arena_add_host(arena, 40 * 1024);
	if (!err)
		err = mkt_arena_add_leaf(arena, 0, 123, 40 * 1024 - 123 - 45,
					 MKT_LEAF_ACCESS, 0);
	if (!err)
		err = mkt_end_leaf(&m->s.plain[i], arena, 0);
	if (err)
		return err;
	err = make(arena);
	if (err == ENODEV || err == EOPNOTSUPP) {
		if (i)
			err = mkt_leaf_user(arena);
		else
			snprintf(m->why, sizeof(m->why),
				 "%s has no such memory: %s", m->s.dev[i].name,
				 strerror(err));
	}
	if (err || !m->s.dev[i].extended)
		return err;
	m->s.key[i] = ibmkey_alloc(m->s.dev[i].pd, MAX_ENTRIES);
	return m->s.key[i] ? 0 : errno;
}

int mkt_matrix_setup(struct mkt_matrix *m, mkt_leaf_maker make, bool several,
		     const char *salt)
{
	unsigned int i;
	int err = 0;

	mkt_rng_init(&m->s.rng, salt);
	m->several = several;
	for (i = 0; i < 2 && !err; i++)
		err = mkt_matrix_side(m, i, make);
	for (i = 0; i < 2 && !err; i++)
		err = mkt_arena_fill(&m->s.arena[i], &m->s.rng);
	return err;
}

int mkt_matrix_connect(struct mkt_matrix *m, unsigned int flags)
{
	enum ibv_mtu mtu = mkt_between(&m->s.rng, 0, 1) ? IBV_MTU_1024 : IBV_MTU_4096;

	return mkt_pair_create(&m->s.pair, &m->s.dev[0], &m->s.dev[1], mtu, flags);
}

static int mkt_matrix_operands(struct mkt_matrix *m, unsigned int side,
			       const struct mkt_layout *layout)
{
	struct mkt_map map;
	size_t offset;
	int err;

	err = mkt_layout_map(&m->s.arena[side], layout, &map);
	if (!err)
		err = mkt_operand(&m->s.rng, layout, &map, &offset);
	mkt_map_free(&map);
	return err;
}

static int mkt_matrix_bind(struct mkt_matrix *m, unsigned int side,
			   enum mkt_kind kind, unsigned int access,
			   struct mkt_drawn *drawn)
{
	struct mkt_draw draw = {
		.min_length = 9000,
		.max_length = 16 * 1024,
		.max_block = 4 * 1024,
		.max_blocks = MAX_ENTRIES,
		.max_dims = m->s.dev[side].caps.max_dims,
		.leaf_only = !m->several,
		/* the last leaf; the others are below it */
		.leaf = m->s.arena[side].num_leaves - 1,
	};
	unsigned int tries = 5000;
	int err;

	do {
		mkt_layout_free(&drawn->layout);
		err = mkt_draw_layout(&drawn->layout, &m->s.rng, &m->s.arena[side],
				      kind, &draw);
		if (!err && m->operands)
			err = mkt_matrix_operands(m, side, &drawn->layout);
	} while (err == ENOENT && --tries);
	drawn->layout.first = mkt_draw_first(&m->s.rng);
	if (!err)
		err = mkt_end_key(&drawn->end, m->s.key[side], &m->s.arena[side],
				  &drawn->layout, access);
	return err;
}

/* runs @verb once for each side that posts; bit i of @keys: side i has a key */
static int mkt_matrix_kind(struct mkt_matrix *m, mkt_matrix_verb *verb, enum mkt_op op,
			   unsigned int access, enum mkt_kind kind, unsigned int keys)
{
	struct mkt_drawn drawn[2] = {};
	unsigned int i;
	int err = 0;

	for (i = 0; i < 2 && !err; i++) {
		bool key = keys & (1 << i);

		m->drawn[i] = key ? &drawn[i] : NULL;
		m->end[i] = key ? &drawn[i].end : &m->s.plain[i];
		if (key)
			err = mkt_matrix_bind(m, i, kind, access, &drawn[i]);
	}
	/* the leaf that the test is about, on each side */
	for (i = 0; i < 2 && !err; i++)
		err = verb(m, op, i);
	for (i = 0; i < 2; i++) {
		if (err && drawn[i].layout.block)
			mkt_layout_print(&drawn[i].layout);
		mkt_end_free(&drawn[i].end);
		mkt_layout_free(&drawn[i].layout);
	}
	if (err)
		mkt_diag("layout of kind %u, keys 0x%x", kind, keys);
	return err;
}

int mkt_matrix_each(struct mkt_matrix *m, mkt_matrix_verb *verb, enum mkt_op op,
		    unsigned int access)
{
	/*
	 * The key is on one side, the other, or both, and not always the same one. For
	 * leaves of which more is tested, it is each in turn.
	 */
	unsigned int i, places = m->packets ? mkt_scale(3, 1) : 1;
	unsigned int kind, first = mkt_between(&m->s.rng, 0, 2);
	/* a short run has every third kind of most leaves */
	unsigned int step = mkt_quick() && !m->packets ? 3 : 1;
	int err = 0;

	for (kind = mkt_between(&m->s.rng, 0, step - 1); kind < MKT_NUM_KINDS; kind += step)
		for (i = 0; i < places && !err; i++)
			err = mkt_matrix_kind(m, verb, op, access, kind,
					      1 + (first + kind + i) % 3);
	return err;
}

int mkt_matrix_direct(struct mkt_matrix *m, mkt_matrix_verb *verb, enum mkt_op op)
{
	struct mkt_arena *arena = &m->s.arena[0];
	struct mkt_mem *mem = &arena->mem[arena->num_mems - 1];
	struct mkt_end leaf;
	unsigned int i;
	int err = mkt_end_leaf(&leaf, arena, arena->num_leaves - 1);

	m->end[0] = &leaf;
	m->end[1] = &m->s.plain[1];
	m->drawn[0] = NULL;
	m->drawn[1] = NULL;
	for (i = 0; i < 2 && !err; i++) {
		if (m->absent && madvise(mem->host, mem->size, MADV_DONTNEED))
			err = errno;
		err = err ?: verb(m, op, i);
	}
	mkt_end_free(&leaf);
	return err;
}
