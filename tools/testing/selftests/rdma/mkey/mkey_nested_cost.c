// SPDX-License-Identifier: GPL-2.0
/*
 * Keys over keys of small pieces: a bind refuses those through which a packet could take
 * much longer than to memory, and no others.
 */
#include <stdlib.h>

#include "mkey_harness.h"
#include "nested.h"

/* More pieces than a bind makes one list of. */
#define MANY (1 << 17)
#define MEMORY (64 * 1024)
#define PACKET 4096

/* Levels of pieces of @bytes bytes, in rows of @row pieces. */
struct cost_shape {
	unsigned int bytes;
	uint64_t row;
	/* from one piece of a row to the next, and from one row to the next, in pieces */
	unsigned int stride, rows_stride;
};

/* The pieces of a row of two are in different rows of the level below. */
static const struct cost_shape pairs = { 1, 2, 3, 2 };
static const struct cost_shape pairs_of_2 = { 2, 2, 3, 2 };
static const struct cost_shape pairs_of_16 = { 16, 2, 3, 2 };
/* Every piece of a level is in one row of the level below. */
static const struct cost_shape every_second = { 1, 0, 2, 0 };

FIXTURE(nested_cost)
{
	struct mkt_setup s;
	struct ibv_mr *key[NESTED_DEPTH];
	/* the rows of each level, the innermost level first */
	uint64_t rows[NESTED_DEPTH];
	/* times that the innermost level repeats its bytes */
	uint64_t times;
};

FIXTURE_SETUP(nested_cost)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_4096,
		.host = 2 * MEMORY,
		.max_entries = 16,
	};
	unsigned int i;

	MKT_OPEN_EXTENDED(self->s.dev);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	ASSERT_LE(MEMORY, self->s.arena[1].leaf[0].length);
	for (i = 0; i < NESTED_DEPTH; i++) {
		self->key[i] = ibmkey_alloc(self->s.dev[1].pd, 1);
		ASSERT_NE(NULL, self->key[i]);
	}
}

FIXTURE_TEARDOWN(nested_cost)
{
	unsigned int i;

	for (i = NESTED_DEPTH; i > 0; i--) {
		if (self->key[i - 1]) {
			EXPECT_EQ(0, ibv_dereg_mr(self->key[i - 1]));
		}
	}
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* returns the number of rows of @shape that are within @length bytes */
static uint64_t cost_rows(const struct cost_shape *shape, uint64_t length)
{
	uint64_t pieces = length / shape->bytes;

	if (!shape->row)
		return 1 + (pieces - 1) / shape->stride;
	return 1 + (pieces - 1 - (shape->row - 1) * shape->stride) / shape->rows_stride;
}

/* binds level @level of @shape over the level below, or over memory */
static int cost_bind(FIXTURE_DATA(nested_cost) *self, const struct cost_shape *shape,
		     unsigned int level)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibmkey_block block = {
		.addr = level ? 0 : leaf->addr,
		.bytes_count = shape->bytes,
		.lkey = level ? self->key[level - 1]->lkey : leaf->mr->lkey,
		.stride = { 0, shape->rows_stride * shape->bytes,
			    shape->stride * shape->bytes },
	};
	uint64_t length = level ? self->key[level - 1]->length : MEMORY;
	uint64_t repeat[3] = { level ? 1 : self->times, 0, shape->row };

	self->rows[level] = cost_rows(shape, length);
	repeat[1] = self->rows[level];
	if (!shape->row) {
		block.stride[1] = block.stride[2];
		repeat[2] = 1;
	}
	return ibv_rereg_mr_interleaved(self->key[level], MKT_ACCESS_ALL, 3, repeat, 1,
					&block);
}

/* binds levels until one is refused; returns their number, or a negative error */
static int cost_levels(FIXTURE_DATA(nested_cost) *self, const struct cost_shape *shape)
{
	unsigned int level;

	for (level = 0; level < NESTED_DEPTH; level++) {
		int err = cost_bind(self, shape, level);

		if (err)
			return err == ELOOP ? (int)level : -err;
	}
	return level;
}

/* returns the position in the memory of the byte at @offset of level @level */
static uint64_t cost_place(FIXTURE_DATA(nested_cost) *self, const struct cost_shape *shape,
			   int level, uint64_t offset)
{
	for (; level >= 0; level--) {
		uint64_t piece = offset / shape->bytes, row, at;

		if (shape->row) {
			row = piece / shape->row % self->rows[level];
			at = row * shape->rows_stride + piece % shape->row * shape->stride;
		} else {
			at = piece % self->rows[level] * shape->stride;
		}
		offset = at * shape->bytes + offset % shape->bytes;
	}
	return offset;
}

/* checks that a READ of a packet at @offset of level @level has the right bytes */
static bool cost_reads(FIXTURE_DATA(nested_cost) *self, const struct cost_shape *shape,
		       unsigned int level, uint64_t offset)
{
	uint64_t left = self->key[level]->length - offset;
	uint32_t length = left < PACKET ? left : PACKET, i;
	const uint8_t *leaf = (uint8_t *)(uintptr_t)self->s.arena[1].leaf[0].addr;
	const uint8_t *plain = (uint8_t *)(uintptr_t)self->s.plain[0].addr;

	if (nested_access(&self->s, self->key[level], MKT_READ, offset, length))
		return false;
	for (i = 0; i < length; i++)
		if (plain[i] != leaf[cost_place(self, shape, level, offset + i)])
			return false;
	return true;
}

static void cost_fill(FIXTURE_DATA(nested_cost) *self, uint64_t times)
{
	self->times = times;
	mkt_rand_bytes(&self->s.rng, (uint8_t *)(uintptr_t)self->s.arena[1].leaf[0].addr,
		       MEMORY);
}

/* as many levels of single bytes as a packet may look for, and not a level more */
TEST_F(nested_cost, refused)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibv_mr *over;
	int levels, i;

	cost_fill(self, 16);
	levels = cost_levels(self, &pairs);
	TH_LOG("%d levels", levels);
	/* two levels of any pieces are allowed */
	ASSERT_LE(2, levels);
	ASSERT_GT(NESTED_DEPTH, levels);
	ASSERT_LT(MANY, self->key[levels - 1]->length);
	for (i = 0; i < levels; i++)
		EXPECT_TRUE(cost_reads(self, &pairs, i, 4099));
	/* the key is unbound as before, and the one below is free */
	over = self->key[levels];
	EXPECT_EQ(0, over->length);
	ASSERT_EQ(0, ibmkey_unbind(self->key[levels - 1]));
	/* a bound key keeps its layout */
	ASSERT_EQ(0, nested_bind(over, leaf->mr->lkey, leaf->addr, 100, MKT_ACCESS_ALL));
	ASSERT_EQ(0, cost_bind(self, &pairs, levels - 1));
	EXPECT_EQ(ELOOP, cost_bind(self, &pairs, levels));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "describe larger pieces"));
	EXPECT_EQ(100, over->length);
	EXPECT_EQ(IBV_WC_SUCCESS, nested_access(&self->s, over, MKT_WRITE, 0, 100));
	/* one range of the key below is no further work */
	ASSERT_EQ(0, nested_bind(over, self->key[levels - 1]->lkey, 5, PACKET,
				 MKT_ACCESS_ALL));
	EXPECT_EQ(IBV_WC_SUCCESS, nested_access(&self->s, over, MKT_READ, 0, PACKET));
}

/* with few pieces, all levels become one list */
TEST_F(nested_cost, small)
{
	unsigned int level;

	cost_fill(self, 1);
	ASSERT_EQ(NESTED_DEPTH, cost_levels(self, &pairs));
	for (level = 0; level < NESTED_DEPTH; level++) {
		uint64_t length = self->key[level]->length, offset;

		ASSERT_GT(MANY, length);
		for (offset = 0; offset < length; offset += mkt_scale(PACKET, length / 2))
			ASSERT_TRUE(cost_reads(self, &pairs, level, offset));
	}
}

/* pieces of two bytes may have more levels than single bytes */
TEST_F(nested_cost, words)
{
	int bytes, words;

	cost_fill(self, 32);
	bytes = cost_levels(self, &pairs);
	ASSERT_EQ(0, ibmkey_unbind(self->key[bytes - 1]));
	while (bytes-- > 1)
		ASSERT_EQ(0, ibmkey_unbind(self->key[bytes - 1]));
	words = cost_levels(self, &pairs_of_2);
	TH_LOG("%d levels", words);
	ASSERT_LT(2, words);
	EXPECT_TRUE(cost_reads(self, &pairs_of_2, words - 1, 4098));
	EXPECT_TRUE(cost_reads(self, &pairs_of_2, words - 1, 1));
}

/* larger pieces, and pieces that line up, are never refused */
TEST_F(nested_cost, allowed)
{
	static const struct cost_shape *const shapes[] = { &pairs_of_16, &every_second };
	unsigned int i, level;

	for (i = 0; i < 2; i++) {
		cost_fill(self, 1024);
		ASSERT_EQ(NESTED_DEPTH, cost_levels(self, shapes[i]));
		ASSERT_LT(MANY, self->key[NESTED_DEPTH - 1]->length);
		EXPECT_TRUE(cost_reads(self, shapes[i], NESTED_DEPTH - 1, 4099));
		for (level = NESTED_DEPTH; level > 0; level--)
			ASSERT_EQ(0, ibmkey_unbind(self->key[level - 1]));
	}
}

/* binds a key over a few pieces of two bytes of memory, from @addr on */
static int cost_bind_few(FIXTURE_DATA(nested_cost) *self, struct ibv_mr *key, uint64_t addr)
{
	struct ibmkey_block block = {
		.addr = addr,
		.bytes_count = 2,
		.lkey = self->s.arena[1].leaf[0].mr->lkey,
		.stride = { 4 },
	};
	uint64_t count = 16;

	return ibv_rereg_mr_interleaved(key, MKT_ACCESS_ALL, 1, &count, 1, &block);
}

/* binds a key over many pieces of two bytes, of @few and of level 1 in turn; unbinds it */
static int cost_bind_both(FIXTURE_DATA(nested_cost) *self, const struct ibv_mr *few)
{
	struct ibmkey_block block[2] = {
		{ .bytes_count = 2, .lkey = few->lkey },
		{ .bytes_count = 2, .lkey = self->key[1]->lkey, .stride = { 0, 4 } },
	};
	uint64_t repeat[2] = { 32, self->key[1]->length / 4 };
	int err = ibv_rereg_mr_interleaved(self->s.key[1], MKT_ACCESS_ALL, 2, repeat, 2, block);

	return err ?: ibmkey_unbind(self->s.key[1]);
}

/*
 * Pieces of two bytes at even addresses are one in the level below; at an odd address they could
 * be two there. The places of all keys of a level count.
 */
TEST_F(nested_cost, moved)
{
	uint64_t even = (self->s.arena[1].leaf[0].addr + 1) & ~1ull;
	struct ibv_mr *key = self->key[3], *fresh;
	unsigned int i;

	cost_fill(self, 32);
	ASSERT_EQ(0, cost_bind(self, &pairs_of_2, 0));
	ASSERT_EQ(0, cost_bind(self, &pairs_of_2, 1));
	for (i = 0; i < 4; i++) {
		uint64_t addr = even + 100 + i;
		int err = i & 1 ? ELOOP : 0;

		ASSERT_EQ(0, cost_bind_few(self, key, addr));
		EXPECT_EQ(err, cost_bind_both(self, key));
		fresh = ibmkey_alloc(self->s.dev[1].pd, 1);
		ASSERT_NE(NULL, fresh);
		ASSERT_EQ(0, cost_bind_few(self, fresh, addr));
		EXPECT_EQ(err, cost_bind_both(self, fresh));
		EXPECT_EQ(0, ibv_dereg_mr(fresh));
	}
}

TEST_HARNESS_MAIN
