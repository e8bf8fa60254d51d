// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A key is bound to layouts of all kinds in turn. Each layout is as described, whatever
 * was bound before; no access sees a part of another one; and the memory that a key keeps for
 * its next binding is charged to its owner once, until the key is destroyed.
 * sets: smp
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "mkey_harness.h"
#include "request.h"

#define ROOM 1024
#define ZONE 4096
#define MOST 256

FIXTURE(in_turn)
{
	struct mkt_setup s;
	struct mkt_request text;
	uint8_t *host;			/* of leaf 0 of side 1 */
};

FIXTURE_SETUP(in_turn)
{
	MKT_SETUP(&self->s, .host = 3 * ZONE, .max_entries = 8);
	ASSERT_EQ(0, mkt_request_init(&self->text, self->s.dev[1].pd, ROOM));
	self->host = (uint8_t *)(uintptr_t)self->s.arena[1].leaf[0].addr;
}

FIXTURE_TEARDOWN(in_turn)
{
	mkt_request_free(&self->text);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* bytes that all users of keys of the device have, -1 if unknown */
static long long turn_charged(const struct mkt_dev *dev)
{
	FILE *f = fopen("/sys/kernel/debug/ib_mkey/keys", "r");
	char line[256], name[64], owner[64];
	long long bytes, charged = -1;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%63s %63s %lld", name, owner, &bytes) == 3 &&
		    !strcmp(name, dev->name) && !strcmp(owner, "-"))
			charged = bytes;
	if (f)
		fclose(f);
	return charged;
}

enum turn_shape {
	STRIDED,
	BLOCKS,
	RANGE,
	RANGES,
	INDEXED,
	LONG_LIST,			/* its memory is not kept */
	SHAPES,
};

/* a layout, and the places of its bytes from the beginning of the leaf on */
struct turn_layout {
	struct ibmkey_bind bind;
	struct ibmkey_block block[2];
	struct ibmkey_range range[8];
	uint64_t count;
	uint32_t index[4];
	struct ibmkey_indexed indexed;
	unsigned int place[MOST];
	unsigned int length;
};

static void turn_piece(struct turn_layout *layout, unsigned int at, unsigned int length)
{
	while (length--)
		layout->place[layout->length++] = at++;
}

/* describes the layout @shape of the bytes from @at on */
static void turn_draw(struct turn_layout *layout, const struct mkt_leaf *leaf,
		      enum turn_shape shape, unsigned int at)
{
	static const unsigned int lengths[] = { 3, 5, 8, 16, 1, 30 };
	unsigned int i, n = 1;

	memset(layout, 0, sizeof(*layout));
	switch (shape) {
	case BLOCKS:
	case STRIDED:
		n = shape == BLOCKS ? 2 : n;
		layout->count = 4;
		for (i = 0; i < n; i++)
			layout->block[i] = (struct ibmkey_block){
				.addr = leaf->addr + at + 100 * i,
				.bytes_count = 8,
				.lkey = leaf->mr->lkey,
				.stride = { 24 },
			};
		for (i = 0; i < layout->count * n; i++)
			turn_piece(layout, at + 24 * (i / n) + 100 * (i % n), 8);
		layout->bind = (struct ibmkey_bind){
			.kind = IBMKEY_INTERLEAVED,
			.num_entries = n,
			.num_dims = 1,
			.repeat_count = &layout->count,
			.blocks = layout->block,
		};
		return;
	case INDEXED:
		layout->indexed = (struct ibmkey_indexed){
			.addr = leaf->addr + at,
			.unit = 16,
			.bytes_count = 8,
			.indices32 = layout->index,
			.num_indices = 4,
			.lkey = leaf->mr->lkey,
		};
		for (i = 0; i < 4; i++) {
			layout->index[i] = i * i + 1;
			turn_piece(layout, at + 16 * layout->index[i], 8);
		}
		layout->bind = (struct ibmkey_bind){
			.kind = IBMKEY_INDEXED,
			.num_entries = 1,
			.indexed = &layout->indexed,
		};
		return;
	default:
		n = shape == RANGE ? 1 : shape == RANGES ? 4 : 6;
		for (i = 0; i < n; i++) {
			layout->range[i] = (struct ibmkey_range){
				.addr = leaf->addr + at + 40 * i,
				.length = lengths[i],
				.lkey = leaf->mr->lkey,
			};
			turn_piece(layout, at + 40 * i, lengths[i]);
		}
		layout->bind = (struct ibmkey_bind){
			.kind = IBMKEY_LIST,
			.num_entries = n,
			.ranges = layout->range,
		};
	}
}

static int turn_call(struct ibv_mr *key, const struct turn_layout *layout)
{
	const struct ibmkey_bind *bind = &layout->bind;

	if (bind->kind == IBMKEY_LIST)
		return ibmkey_bind_list(key, MKT_ACCESS_ALL, bind->num_entries, bind->ranges);
	if (bind->kind == IBMKEY_INDEXED)
		return ibmkey_bind_indexed(key, MKT_ACCESS_ALL, &layout->indexed);
	return ibv_rereg_mr_interleaved(key, MKT_ACCESS_ALL, 1, &layout->count,
					bind->num_entries, layout->block);
}

static int turn_request(struct mkt_qp *qp, struct mkt_request *text, struct ibv_mr *key,
			const struct turn_layout *layout)
{
	struct ibmkey_wr wr;

	text->length = ibmkey_describe(&layout->bind, text->text, text->room);
	wr = mkt_request_wr(text, key);
	return mkt_request_status(qp, &wr);
}

/* any layout after any other, by calls and by requests, with an unbind between them or not */
TEST_F(in_turn, any_layout_after_any_other)
{
	unsigned int i, j, at, rounds = mkt_scale(2000, 200);
	uint8_t *to = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibv_mr *key = self->s.key[1];
	struct turn_layout layout;

	mkt_rand_bytes(&self->s.rng, self->host, 2 * ZONE);
	for (i = 0; i < rounds; i++) {
		struct mkt_wr wr = {
			.op = MKT_READ,
			.sge[0] = { .addr = self->s.plain[0].addr,
				    .lkey = self->s.plain[0].mr->lkey },
			.num_sge = 1,
		};

		at = mkt_between(&self->s.rng, 0, 2 * ZONE - 512);
		turn_draw(&layout, leaf, mkt_between(&self->s.rng, 0, SHAPES - 1), at);
		if (mkt_rand(&self->s.rng) & 1) {
			ASSERT_EQ(0, turn_call(key, &layout));
		} else {
			ASSERT_EQ(IBV_WC_SUCCESS,
				  turn_request(&self->s.pair.end[1], &self->text, key, &layout));
		}
		wr.rkey = key->rkey;
		wr.sge[0].length = layout.length;
		memset(to, 0, layout.length);
		ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
		for (j = 0; j < layout.length; j++) {
			ASSERT_EQ(self->host[layout.place[j]], to[j])
			{
				TH_LOG("round %u, byte %u", i, j);
			}
		}
		if (mkt_rand(&self->s.rng) & 1) {
			ASSERT_EQ(0, ibmkey_unbind(key));
		}
	}
}

/* what a key keeps is charged once, and given back with the key */
TEST_F(in_turn, memory_is_charged_once)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	long long before, first = 0, charged;
	struct turn_layout layout;
	enum turn_shape shape;
	struct ibv_mr *key;
	unsigned int i;

	before = turn_charged(&self->s.dev[1]);
	if (before < 0)
		SKIP(return, "debugfs does not tell what is charged");
	for (shape = 0; shape < SHAPES; shape++) {
		key = ibmkey_alloc(self->s.dev[1].pd, 8);
		ASSERT_NE(NULL, key);
		for (i = 0; i < mkt_scale(200, 50); i++) {
			turn_draw(&layout, leaf, shape, i);
			ASSERT_EQ(0, turn_call(key, &layout));
			if (i & 1) {
				ASSERT_EQ(IBV_WC_SUCCESS,
					  turn_request(&self->s.pair.end[1], &self->text, key,
						       &layout));
			}
			ASSERT_EQ(0, ibmkey_unbind(key));
			charged = turn_charged(&self->s.dev[1]);
			if (!i)
				first = charged;
			EXPECT_EQ(first, charged);
		}
		EXPECT_EQ(0, ibv_dereg_mr(key));
		EXPECT_EQ(before, turn_charged(&self->s.dev[1]));
	}
}

/* the leaf of a binding is free after the unbind */
TEST_F(in_turn, leaves_are_free)
{
	struct ibv_mr *key = self->s.key[1];
	struct mkt_leaf leaf = { .addr = (uintptr_t)self->host };
	struct turn_layout layout;
	unsigned int i;

	for (i = 0; i < mkt_scale(100, 20); i++) {
		leaf.mr = ibv_reg_mr(self->s.dev[1].pd, self->host, ZONE, MKT_ACCESS_ALL);
		ASSERT_NE(NULL, leaf.mr);
		turn_draw(&layout, &leaf, i % SHAPES, 0);
		ASSERT_EQ(0, turn_call(key, &layout));
		EXPECT_EQ(EBUSY, ibv_dereg_mr(leaf.mr));
		ASSERT_EQ(0, ibmkey_unbind(key));
		ASSERT_EQ(0, ibv_dereg_mr(leaf.mr));
	}
}

struct turn_thread {
	FIXTURE_DATA(in_turn) *self;
	bool by_request;
	pthread_t tid;
	atomic_bool stop;
	unsigned int count;
	int err;
};

/* binds to zone 0 and to zone 1 in turn */
static void *turn_loop(void *arg)
{
	struct turn_thread *thread = arg;
	struct mkt_setup *s = &thread->self->s;
	struct turn_layout layout[2];
	unsigned int zone;

	turn_draw(&layout[0], &s->arena[1].leaf[0], STRIDED, 0);
	turn_draw(&layout[1], &s->arena[1].leaf[0], RANGES, ZONE);
	while (!thread->err && !atomic_load(&thread->stop)) {
		zone = ++thread->count & 1;
		thread->err = thread->by_request ?
			turn_request(&s->pair.end[1], &thread->self->text, s->key[1],
				     &layout[zone]) :
			turn_call(s->key[1], &layout[zone]);
	}
	return NULL;
}

/* two threads bind one key all the time, by calls and by requests; each READ sees one layout */
TEST_F(in_turn, an_access_sees_one_layout)
{
	uint8_t *to = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
	unsigned int i, j, rounds = mkt_scale(3000, 300), seen[2] = {};
	struct turn_thread thread[2] = {
		{ .self = self },
		{ .self = self, .by_request = true },
	};
	struct turn_layout layout;
	struct mkt_wr wr = mkt_plain_wr(&self->s, 0, MKT_READ, 32, 0, self->s.key[1]->rkey);

	memset(self->host, 0xa0, ZONE);
	memset(self->host + ZONE, 0xa1, ZONE);
	turn_draw(&layout, &self->s.arena[1].leaf[0], STRIDED, 0);
	ASSERT_EQ(32, layout.length);
	ASSERT_EQ(0, turn_call(self->s.key[1], &layout));
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&thread[i].tid, NULL, turn_loop, &thread[i]));
	for (i = 0; i < rounds || ((!seen[0] || !seen[1]) && i < 100000); i++) {
		memset(to, 0, 32);
		ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
		for (j = 0; j < 32; j++) {
			ASSERT_EQ(0xa0, to[j] & 0xfe);
			ASSERT_EQ(to[0], to[j]);
		}
		seen[to[0] & 1]++;
	}
	for (i = 0; i < 2; i++)
		atomic_store(&thread[i].stop, true);
	for (i = 0; i < 2; i++) {
		pthread_join(thread[i].tid, NULL);
		EXPECT_EQ(0, thread[i].err);
		TH_LOG("%u binds %s", thread[i].count, i ? "by requests" : "by calls");
	}
	EXPECT_LT(0, seen[0]);
	EXPECT_LT(0, seen[1]);
}

TEST_HARNESS_MAIN
