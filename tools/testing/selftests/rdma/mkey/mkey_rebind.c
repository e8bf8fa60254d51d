// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Keys that are bound again, by calls and by requests, unbound and destroyed, also while
 * they are in use. One packet sees one layout. After unbinding returns, no access sees the old one.
 * The memory that a key keeps for its next binding is charged to its owner once. A binding that a
 * request replaced does not hold up the owner of its leaves.
 * sets: smp
 */
#include <stdlib.h>
#include <unistd.h>

#include "loop.h"
#include "mkey_harness.h"
#include "request.h"

#define BLOCK 16
#define STRIDE 48
#define BLOCKS 512
#define LENGTH (BLOCKS * BLOCK)
#define ZONE (64 * 1024)

FIXTURE(rebind)
{
	struct mkt_setup s;
	struct mkt_request text;	/* of side 1 */
	struct mkt_loop call, request;	/* bind the key of side 1 */
	bool by_request;
	/* two of equal length that have no byte in common: repeated blocks, and a list */
	struct mkt_layout layout[2];
	struct mkt_block block, list[BLOCKS];
};

FIXTURE_VARIANT(rebind)
{
	/* the leaf is ODP memory */
	bool on_demand;
	/* another thread binds the key by requests */
	bool by_request;
};

FIXTURE_VARIANT_ADD(rebind, pinned) { .on_demand = false };
FIXTURE_VARIANT_ADD(rebind, odp) { .on_demand = true };
FIXTURE_VARIANT_ADD(rebind, by_requests_too) { .by_request = true };

/* replaces leaf 0 by an ODP MR over the same memory */
static int rebind_on_demand(struct mkt_arena *arena)
{
	struct mkt_leaf *leaf = &arena->leaf[0];
	struct ibv_mr *mr;
	int err;

	mr = ibv_reg_mr(arena->dev->pd, (void *)(uintptr_t)leaf->addr,
			leaf->length, MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	if (!mr)
		return errno;
	err = ibv_dereg_mr(leaf->mr);
	leaf->mr = mr;
	return err;
}

FIXTURE_SETUP(rebind)
{
	unsigned int i;

	MKT_SETUP(&self->s, .host = 4 * ZONE, .max_entries = 600);
	if (variant->on_demand && rebind_on_demand(&self->s.arena[1]))
		SKIP(return, "%s has no memory on demand", self->s.dev[1].name);
	self->by_request = variant->by_request;
	ASSERT_EQ(0, mkt_request_init(&self->text, self->s.dev[1].pd, 64 * 1024));
	self->block = (struct mkt_block){ .bytes = BLOCK, .stride = { STRIDE } };
	self->layout[0] = mkt_layout_repeated(&self->block, BLOCKS);
	for (i = 0; i < BLOCKS; i++)
		self->list[i] = (struct mkt_block){ .offset = ZONE + i * STRIDE, .bytes = BLOCK };
	self->layout[1] = (struct mkt_layout){ .num_blocks = BLOCKS, .block = self->list };
}

FIXTURE_TEARDOWN(rebind)
{
	mkt_request_free(&self->text);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* binds @key of side 1 by a call, or by a request, which sets the length of the key, too */
static int bind_layout(struct mkt_setup *s, struct mkt_request *text, struct ibv_mr *key,
		       const struct mkt_layout *layout, bool by_request)
{
	struct mkt_arena *arena = &s->arena[1];
	struct mkt_entries entries;
	struct ibmkey_wr wr;
	int err;

	if (!by_request)
		return mkt_layout_bind(key, arena, layout, MKT_ACCESS_ALL);
	err = mkt_request_describe(text, arena, layout) ?:
	      mkt_layout_entries(&entries, arena, layout);
	if (err)
		return err;
	wr = mkt_request_wr(text, key);
	wr.layout = &entries.bind;
	key->length = 0;
	err = mkt_request_status(&s->pair.end[1], &wr);
	mkt_entries_free(&entries);
	return err || key->length ? err : -1;
}

static int rebind_with(FIXTURE_DATA(rebind) *self, unsigned int which, bool by_request)
{
	struct ibv_mr *key = self->s.key[1];
	int err = bind_layout(&self->s, &self->text, key, &self->layout[which], by_request);

	/* after a call, another thread may have begun to set the length */
	return err || !by_request || key->length == LENGTH ? err : -1;
}

static int rebind_call(void *arg, unsigned int round)
{
	return rebind_with(arg, ~round & 1, false);
}

static int rebind_request(void *arg, unsigned int round)
{
	return rebind_with(arg, ~round & 1, true);
}

/* binds to zone 0, and then to each zone in turn until rebind_end() */
static int rebind_start(FIXTURE_DATA(rebind) *self)
{
	int err = rebind_with(self, 0, false) ?:
		  mkt_loop_start(&self->call, rebind_call, self);

	if (!err && self->by_request)
		err = mkt_loop_start(&self->request, rebind_request, self);
	return err;
}

/* after so many transfers */
static int rebind_end(FIXTURE_DATA(rebind) *self, unsigned int transfers)
{
	int err = mkt_loop_end(&self->call);

	if (self->by_request)
		err = mkt_loop_end(&self->request) ?: err;
	mkt_diag("%u transfers during %u binds", transfers,
		 atomic_load(&self->call.rounds) + atomic_load(&self->request.rounds));
	return err;
}

static uint8_t *rebind_zone(struct mkt_setup *s, unsigned int which)
{
	return (uint8_t *)(uintptr_t)s->arena[1].leaf[0].addr + which * ZONE;
}

/* each READ response packet comes from one zone */
TEST_F(rebind, read)
{
	unsigned int i, j, rounds = mkt_rounds(400, 60), seen[2] = {};
	uint8_t *to = (uint8_t *)(uintptr_t)self->s.plain[0].addr;

	memset(rebind_zone(&self->s, 0), 0xa0, ZONE);
	memset(rebind_zone(&self->s, 1), 0xa1, ZONE);
	ASSERT_EQ(0, rebind_start(self));
	/* enough rounds to see both zones, however they interleave */
	for (i = 0; i < rounds || !seen[0] || !seen[1]; i++) {
		ASSERT_GT(100000, i);
		memset(to, 0, LENGTH);
		ASSERT_EQ(IBV_WC_SUCCESS,
			  mkt_touch(&self->s, self->s.key[1]->rkey, MKT_READ, 0, LENGTH));
		for (j = 0; j < LENGTH; j++) {
			ASSERT_EQ(0xa0, to[j] & 0xfe);
			ASSERT_EQ(to[j & ~1023], to[j])
				TH_LOG("a packet of two layouts at %u", j);
			seen[to[j] & 1]++;
		}
	}
	ASSERT_EQ(0, rebind_end(self, i));
}

/* true if the packet's blocks from @block on all contain @value */
static bool rebind_packet_is(const uint8_t *zone, unsigned int packet,
			     uint8_t value)
{
	unsigned int b, i;

	for (b = packet * 64; b < (packet + 1) * 64; b++)
		for (i = 0; i < BLOCK; i++)
			if (zone[b * STRIDE + i] != value)
				return false;
	return true;
}

/* each packet of a WRITE goes completely to one zone */
TEST_F(rebind, write)
{
	unsigned int i, p, k, rounds = mkt_rounds(400, 60), seen[2] = {};
	uint8_t *from = (uint8_t *)(uintptr_t)self->s.plain[0].addr;

	memset(rebind_zone(&self->s, 0), 0, 2 * ZONE);
	ASSERT_EQ(0, rebind_start(self));
	for (i = 0; i < rounds || !seen[0] || !seen[1]; i++) {
		ASSERT_GT(100000, i);
		uint8_t value = 1 + i % 255;

		memset(from, value, LENGTH);
		ASSERT_EQ(IBV_WC_SUCCESS,
			  mkt_touch(&self->s, self->s.key[1]->rkey, MKT_WRITE, 0, LENGTH));
		for (p = 0; p < 8; p++) {
			bool here = rebind_packet_is(rebind_zone(&self->s, 0),
						     p, value);
			bool there = rebind_packet_is(rebind_zone(&self->s, 1),
						      p, value);

			ASSERT_TRUE(here != there);
			seen[there]++;
		}
		/* the bytes between the blocks are never written */
		for (k = BLOCK; k < (BLOCKS - 1) * STRIDE; k++)
			if (k % STRIDE >= BLOCK) {
				ASSERT_EQ(0, rebind_zone(&self->s, 0)[k] |
					  rebind_zone(&self->s, 1)[k]);
			}
		memset(rebind_zone(&self->s, 0), 0, BLOCKS * STRIDE);
		memset(rebind_zone(&self->s, 1), 0, BLOCKS * STRIDE);
	}
	ASSERT_EQ(0, rebind_end(self, i));
}

/* completions of the last @posted requests: returns how many failed, or -1 */
static int rebind_drain(struct mkt_setup *s, unsigned int posted)
{
	struct ibv_wc wc;
	unsigned int i;
	int failed = 0;

	for (i = 0; i < posted; i++) {
		if (mkt_poll(&s->pair.end[0], &wc))
			return -1;
		if (wc.status == IBV_WC_SUCCESS)
			continue;
		/* the other requests are flushed */
		if (!failed++ && wc.status != IBV_WC_REM_ACCESS_ERR) {
			mkt_diag("failed with \"%s\"",
				 ibv_wc_status_str(wc.status));
			return -1;
		}
	}
	return failed;
}

/*
 * After an unbind, a destroy or a bind by a call returns, the memory of the old
 * layout does not change any more, whatever is in progress. Every request
 * writes another value, so that a late one is found.
 */
static void rebind_stop(struct __test_metadata *_metadata, FIXTURE_DATA(rebind) *self,
			int (*stop)(FIXTURE_DATA(rebind) *self), bool fails)
{
	struct mkt_setup *s = &self->s;
	unsigned int i, r, posted = 40, rounds = mkt_scale(30, 6);
	uint8_t *from = (uint8_t *)(uintptr_t)s->plain[0].addr;
	unsigned int stopped = 0;
	uint8_t *after = malloc(BLOCKS * STRIDE);
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0].length = LENGTH,
		.sge[0].lkey = s->plain[0].mr->lkey,
		.num_sge = 1,
	};
	int failed;

	ASSERT_NE(NULL, after);
	mkt_rand_bytes(&s->rng, from, 8 * LENGTH);
	for (r = 0; r < rounds || (fails && !stopped && r < 1000); r++) {
		struct ibv_wc wc;

		ASSERT_EQ(0, rebind_with(self, 0, self->by_request));
		wr.rkey = s->key[1]->rkey;
		for (i = 0; i < posted; i++) {
			wr.sge[0].addr = (uintptr_t)from + i % 8 * LENGTH;
			ASSERT_EQ(0, mkt_post_send(&s->pair.end[0], &wr, i));
		}
		/* while requests are in progress */
		for (i = 0; i < 1 + r % 5; i++) {
			ASSERT_EQ(0, mkt_poll(&s->pair.end[0], &wc));
		}
		ASSERT_EQ(0, stop(self));
		memcpy(after, rebind_zone(s, 0), BLOCKS * STRIDE);
		failed = rebind_drain(s, posted - i);
		ASSERT_LE(0, failed);
		stopped += failed;
		ASSERT_EQ(0, memcmp(after, rebind_zone(s, 0), BLOCKS * STRIDE));
		ASSERT_EQ(0, mkt_pair_recover(&s->pair));
	}
	TH_LOG("%u requests stopped in %u rounds", stopped, r);
	EXPECT_EQ(fails, stopped > 0);
	free(after);
}

static int stop_by_unbind(FIXTURE_DATA(rebind) *self)
{
	return ibmkey_unbind(self->s.key[1]);
}

/* a bind by a request does not wait for accesses of the peer that are in progress */
static int stop_by_bind(FIXTURE_DATA(rebind) *self)
{
	return rebind_with(self, 1, false);
}

static int stop_by_destroy(FIXTURE_DATA(rebind) *self)
{
	struct mkt_setup *s = &self->s;
	int err = ibv_dereg_mr(s->key[1]);

	s->key[1] = err ? NULL : ibmkey_alloc(s->dev[1].pd, 600);
	return err ?: !s->key[1];
}

TEST_F(rebind, unbind_stops)
{
	rebind_stop(_metadata, self, stop_by_unbind, true);
}

TEST_F(rebind, bind_stops)
{
	rebind_stop(_metadata, self, stop_by_bind, false);
}

TEST_F(rebind, destroy_stops)
{
	rebind_stop(_metadata, self, stop_by_destroy, true);
}

/* a key that is bound to layouts of all kinds in turn */

#define ROOM 4096
#define TURN_PAGE 4096

FIXTURE(in_turn)
{
	struct mkt_setup s;
	struct mkt_request text;
	struct mkt_layout layout;
};

FIXTURE_SETUP(in_turn)
{
	MKT_SETUP(&self->s, .host = 4 * TURN_PAGE, .max_entries = 8);
	ASSERT_EQ(0, mkt_request_init(&self->text, self->s.dev[1].pd, ROOM));
}

FIXTURE_TEARDOWN(in_turn)
{
	mkt_layout_free(&self->layout);
	mkt_request_free(&self->text);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* draws a layout of up to so many entries, over leaf @leaf of side 1, or all if it is negative */
static int turn_draw(FIXTURE_DATA(in_turn) *self, enum mkt_kind kind, unsigned int entries,
		     int leaf)
{
	struct mkt_draw draw = {
		.max_length = 400,
		.max_block = 64,
		.max_blocks = entries,
		.max_dims = self->s.dev[1].caps.max_dims,
		.leaf_only = leaf >= 0,
		.leaf = leaf < 0 ? 0 : leaf,
	};

	mkt_layout_free(&self->layout);
	return mkt_draw_layout(&self->layout, &self->s.rng, &self->s.arena[1], kind, &draw);
}

static int turn_bind(FIXTURE_DATA(in_turn) *self, struct ibv_mr *key, bool by_request)
{
	return bind_layout(&self->s, &self->text, key, &self->layout, by_request);
}

/* what a key keeps is charged once, and given back with the key; a long list is not kept */
TEST_F(in_turn, memory_is_charged_once)
{
	static const unsigned int entries[] = { 1, 4, 8 };
	long long before = mkt_keys_charged(&self->s.dev[1]), first = 0, charged;
	unsigned int i, k;
	struct ibv_mr *key;

	if (before < 0)
		SKIP(return, "debugfs does not tell what is charged");
	for (k = 0; k < MKT_NUM_KINDS * ARRAY_SIZE(entries); k++) {
		key = ibmkey_alloc(self->s.dev[1].pd, 8);
		ASSERT_NE(NULL, key);
		ASSERT_EQ(0, turn_draw(self, k % MKT_NUM_KINDS, entries[k / MKT_NUM_KINDS], -1));
		for (i = 0; i < mkt_rounds(80, 6); i++) {
			ASSERT_EQ(0, turn_bind(self, key, false));
			if (i & 1) {
				ASSERT_EQ(0, turn_bind(self, key, true));
			}
			ASSERT_EQ(0, ibmkey_unbind(key));
			charged = mkt_keys_charged(&self->s.dev[1]);
			if (!i)
				first = charged;
			EXPECT_EQ(first, charged);
		}
		EXPECT_EQ(0, ibv_dereg_mr(key));
		EXPECT_EQ(before, mkt_keys_charged(&self->s.dev[1]));
	}
}

/* the leaf of a binding is free after the unbind */
TEST_F(in_turn, leaves_are_free)
{
	struct mkt_arena *arena = &self->s.arena[1];
	struct ibv_mr *key = self->s.key[1];
	unsigned int i, leaf = arena->num_leaves;

	for (i = 0; i < mkt_rounds(100, 20); i++) {
		ASSERT_EQ(0, mkt_arena_add_leaf(arena, 0, 0, TURN_PAGE, MKT_ACCESS_ALL, 0));
		ASSERT_EQ(0, turn_draw(self, i % MKT_NUM_KINDS, 8, leaf));
		ASSERT_EQ(0, turn_bind(self, key, false));
		EXPECT_EQ(EBUSY, ibv_dereg_mr(arena->leaf[leaf].mr));
		ASSERT_EQ(0, ibmkey_unbind(key));
		ASSERT_EQ(0, ibv_dereg_mr(arena->leaf[leaf].mr));
		arena->num_leaves = leaf;
	}
}

/*
 * The leaves of a layout that a request replaced can be deregistered at once: the
 * first layout of the key, one that replaced another, and the last one. That a
 * deregistration waits for accesses is tested by mkey_slow_request, which stops one.
 */
TEST_F(in_turn, replaced_leaves_are_free)
{
	void *host = self->s.arena[1].mem[0].host;
	struct ibv_pd *pd = self->s.dev[1].pd;
	struct ibv_mr *key = ibmkey_alloc(pd, 4), *mr[2];
	struct ibmkey_wr wr;
	unsigned int i;

	ASSERT_NE(NULL, key);
	for (i = 0; i < 3; i++) {
		mr[i & 1] = ibv_reg_mr(pd, host, TURN_PAGE, MKT_ACCESS_ALL);
		ASSERT_NE(NULL, mr[i & 1]);
		mkt_request_range(&self->text, 0, (struct ibmkey_range){
			.addr = (uintptr_t)host, .length = 64, .lkey = mr[i & 1]->lkey,
		});
		wr = mkt_request_wr(&self->text, key);
		ASSERT_EQ(IBV_WC_SUCCESS, mkt_request_status(&self->s.pair.end[1], &wr));
		EXPECT_EQ(EBUSY, ibv_dereg_mr(mr[i & 1]));
		if (i) {
			ASSERT_EQ(0, ibv_dereg_mr(mr[~i & 1]));
		}
	}
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_dereg_mr(mr[~i & 1]));
}

TEST_HARNESS_MAIN
