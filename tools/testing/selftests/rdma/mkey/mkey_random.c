// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Random layouts, one transfer for each, after which every byte of both sides is
 * checked. MKEY_TEST_SEED repeats a run; MKEY_TEST_LAYOUTS=n draws at least n layouts for each
 * MTU. Meanwhile other threads bind their own keys to other layouts over the same memory.
 * sets: smp
 */
#include <stdlib.h>
#include <unistd.h>

#include "loop.h"
#include "mkey_harness.h"

FIXTURE_VARIANT(random)
{
	enum ibv_mtu mtu;
};

MKT_FIXTURE(random, .mtu = variant->mtu, .host = 192 * 1024, .dm = 96 * 1024, .max_entries = 300)

FIXTURE_VARIANT_ADD(random, mtu1024) { .mtu = IBV_MTU_1024 };
FIXTURE_VARIANT_ADD(random, mtu4096) { .mtu = IBV_MTU_4096 };

static enum mkt_kind random_kind(struct mkt_setup *s)
{
	bool many = s->dev[0].caps.max_dims > 1;

	return mkt_between(&s->rng, 0, many ? MKT_GENERAL : MKT_INTERLEAVED);
}

static int random_bind(struct mkt_setup *s, struct mkt_end *end,
		       unsigned int side)
{
	struct mkt_draw draw = {
		.max_length = mkt_between(&s->rng, 0, 7) ? 24 * 1024 :
							   160 * 1024,
		.max_block = 64 * 1024,
		.max_blocks = mkt_between(&s->rng, 0, 7) ? 16 : 300,
		.max_dims = s->dev[side].caps.max_dims,
	};

	return mkt_end_draw(end, s, side, random_kind(s), &draw, MKT_ACCESS_ALL);
}

/* a random length, more often near a packet's length */
static size_t random_length(struct mkt_setup *s, size_t max)
{
	size_t mtu = mkt_mtu_bytes(s->pair.mtu), length;

	switch (mkt_between(&s->rng, 0, 3)) {
	case 0:
		length = mtu * mkt_between(&s->rng, 1, 4) +
			 mkt_between(&s->rng, 0, 2) - 1;
		return length <= max ? length : max;
	case 1:
		return max;
	default:
		return mkt_between(&s->rng, 1, max);
	}
}

static int random_xfer(struct mkt_setup *s, struct mkt_end *end0,
		       struct mkt_end *end1)
{
	size_t max = end0->map.length < end1->map.length ?
		     end0->map.length : end1->map.length;
	struct mkt_xfer xfer = {
		.op = mkt_between(&s->rng, MKT_SEND, MKT_READ),
		.side = mkt_between(&s->rng, 0, 1),
		.end = { end0, end1 },
		.length = random_length(s, max),
		.num_sge = mkt_between(&s->rng, 1, 4),
	};
	unsigned int i;
	int err;

	for (i = 0; i < 2; i++) {
		size_t last = xfer.end[i]->map.length - xfer.length;

		xfer.offset[i] = mkt_between(&s->rng, 0, last);
	}
	err = mkt_arena_fill(&s->arena[mkt_xfer_source(&xfer)], &s->rng);
	return err ?: mkt_xfer(&s->pair, &xfer);
}

/* another thread on one side, which binds all the time */
struct random_rebind {
	struct mkt_loop loop;
	struct mkt_setup *s;
	struct ibv_mr *key;
	unsigned int side;
	struct mkt_rng rng;
};

static int random_rebind(void *arg, unsigned int round)
{
	struct random_rebind *r = arg;
	struct mkt_draw draw = {
		.max_length = 24 * 1024,
		.max_block = 8 * 1024,
		.max_blocks = 16,
		.max_dims = r->s->dev[r->side].caps.max_dims,
	};
	enum mkt_kind kind = mkt_between(&r->rng, 0, draw.max_dims > 1 ? MKT_GENERAL :
									 MKT_INTERLEAVED);
	struct mkt_arena *arena = &r->s->arena[r->side];
	struct mkt_layout layout;
	int err;

	err = mkt_draw_layout(&layout, &r->rng, arena, kind, &draw);
	if (err)
		return err;
	err = mkt_layout_bind(r->key, arena, &layout, MKT_ACCESS_ALL);
	mkt_layout_free(&layout);
	/* leave time for the test itself */
	usleep(2000);
	return err;
}

static unsigned int random_wanted(void)
{
	const char *wanted = getenv("MKEY_TEST_LAYOUTS");

	return wanted ? strtoul(wanted, NULL, 0) : mkt_scale(1000, 40);
}

/* the two keys are bound again and again */
TEST_F(random, layouts)
{
	unsigned int i, side, wanted = random_wanted(), bound = 0;
	struct random_rebind other[2] = {};

	for (side = 0; side < 2; side++) {
		struct random_rebind *r = &other[side];

		r->s = &self->s;
		r->side = side;
		r->rng.state = mkt_rand(&self->s.rng);
		r->key = ibmkey_alloc(self->s.dev[side].pd, 16);
		ASSERT_NE(NULL, r->key);
		ASSERT_EQ(0, mkt_loop_start(&r->loop, random_rebind, r));
	}
	for (i = 0; bound < wanted; i++) {
		/* one round in three has a key on one side only */
		unsigned int keys = mkt_between(&self->s.rng, 0, 2) ? 3 :
				    mkt_between(&self->s.rng, 1, 2);
		struct mkt_end key[2] = {}, *end[2];
		int err = 0;

		for (side = 0; side < 2 && !err; side++) {
			end[side] = &self->s.plain[side];
			if (!(keys & (1 << side)))
				continue;
			end[side] = &key[side];
			err = random_bind(&self->s, end[side], side);
			bound++;
		}
		if (!err)
			err = random_xfer(&self->s, end[0], end[1]);
		for (side = 0; side < 2; side++)
			mkt_end_free(&key[side]);
		ASSERT_EQ(0, err)
			TH_LOG("in round %u, after %u layouts", i, bound);
	}
	for (side = 0; side < 2; side++) {
		struct random_rebind *r = &other[side];

		EXPECT_EQ(0, mkt_loop_end(&r->loop));
		EXPECT_LT(0, r->loop.rounds);
		EXPECT_EQ(0, ibv_dereg_mr(r->key));
	}
	TH_LOG("%u layouts, and %u of others meanwhile", bound,
	       other[0].loop.rounds + other[1].loop.rounds);
}

TEST_HARNESS_MAIN
