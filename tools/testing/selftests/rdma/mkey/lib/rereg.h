/* SPDX-License-Identifier: GPL-2.0 */
/* MRs that are registered again over other memory: the set-up of their tests. */
#ifndef MKEY_TEST_REREG_H
#define MKEY_TEST_REREG_H

#include "mkey_harness.h"
#include "raw.h"

#define TRANSLATION IBV_REREG_MR_CHANGE_TRANSLATION
#define OTHER_SIZE (96 * 1024)

FIXTURE(rereg)
{
	struct mkt_setup s;
	struct ibv_mr *mr;		/* leaf 0 of side 1 */
	unsigned int other;		/* memory that it is moved to */
	uint32_t lkey, rkey;
};

FIXTURE_SETUP(rereg)
{
	struct mkt_arena *arena = &self->s.arena[1];

	MKT_SETUP(&self->s, .host = 64 * 1024, .dm = 8 * 1024, .max_entries = 4);
	self->other = arena->num_mems;
	ASSERT_EQ(0, mkt_arena_add_host(arena, OTHER_SIZE));
	ASSERT_EQ(0, mkt_arena_fill(arena, &self->s.rng));
	self->mr = arena->leaf[0].mr;
	self->lkey = self->mr->lkey;
	self->rkey = self->mr->rkey;
}

FIXTURE_TEARDOWN(rereg)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* tells the arena where leaf 0 is now */
static inline int rereg_moved(struct mkt_setup *s, unsigned int mem, size_t offset,
			      size_t length, uint64_t iova)
{
	struct mkt_arena *arena = &s->arena[1];

	arena->leaf[0].addr = iova;
	arena->leaf[0].length = length;
	arena->leaf[0].at = arena->mem[mem].at + offset;
	mkt_end_free(&s->plain[1]);
	return mkt_end_leaf(&s->plain[1], arena, 0);
}

/* registers leaf 0 again; its addresses are the process's plus @shift */
static inline int rereg_to(struct mkt_setup *s, uint32_t flags, struct ibv_pd *pd,
			   uint32_t access, unsigned int mem, size_t offset, size_t length,
			   uint64_t shift)
{
	struct mkt_arena *arena = &s->arena[1];
	uint8_t *start = arena->mem[mem].host + offset;
	uint64_t iova = (uintptr_t)start + shift;
	int err;

	err = mkt_raw_rereg_to(arena->leaf[0].mr, flags | TRANSLATION, pd,
			       access, start, length, iova);
	return err ?: rereg_moved(s, mem, offset, length, iova);
}

/* moves bytes to and from leaf 0, with it on either side */
static inline int rereg_use(struct mkt_setup *s)
{
	static const enum mkt_op ops[] = { MKT_WRITE, MKT_READ, MKT_SEND };
	size_t max = s->plain[1].map.length;
	unsigned int o, side;
	int err = 0;

	if (max > s->plain[0].map.length)
		max = s->plain[0].map.length;
	for (o = 0; o < ARRAY_SIZE(ops); o++)
		for (side = 0; side < 2 && !err; side++) {
			struct mkt_xfer xfer = {
				.op = ops[o],
				.side = side,
				.end = { &s->plain[0], &s->plain[1] },
				.length = o ? mkt_between(&s->rng, 1, max) :
					      max,
				.num_sge = 2,
			};
			unsigned int from = mkt_xfer_source(&xfer);

			/* backwards from the end */
			xfer.offset[1] = s->plain[1].map.length - xfer.length;
			err = mkt_arena_fill(&s->arena[from], &s->rng);
			if (!err)
				err = mkt_xfer(&s->pair, &xfer);
		}
	return err;
}

static inline int rereg_status(struct mkt_setup *s, enum mkt_op op, uint64_t addr,
			       uint32_t length)
{
	return mkt_try(s, s->arena[1].leaf[0].mr->rkey, op, addr, length);
}

#endif /* MKEY_TEST_REREG_H */
