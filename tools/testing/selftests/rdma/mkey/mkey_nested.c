// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Keys over keys: the bytes that they address, their depth, and what they hold, also
 * while an inner key is bound. Of keys over many pieces a bind makes one layout: the bytes, the
 * access flags, the description, what is held and charged, and what is refused.
 * sets: long
 */
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"
#include "mkey_harness.h"
#include "raw.h"
#include "request.h"

#define NESTED_DEPTH 8
/* entries of each of the keys over scattered bytes */
#define SCATTERED 64

FIXTURE(nested)
{
	struct mkt_setup s;
	struct ibv_mr *key[NESTED_DEPTH + 1];
	size_t at[SCATTERED];
	uint8_t *leaf, *plain;
};

FIXTURE_SETUP(nested)
{
	unsigned int i;

	MKT_SETUP(&self->s, .host = 64 * 1024, .dm = 32 * 1024, .max_entries = 16);
	ASSERT_EQ(NESTED_DEPTH, self->s.dev[1].caps.max_depth);
	for (i = 0; i <= NESTED_DEPTH; i++) {
		self->key[i] = ibmkey_alloc(self->s.dev[1].pd, SCATTERED);
		ASSERT_NE(NULL, self->key[i]);
	}
	self->leaf = (uint8_t *)(uintptr_t)self->s.arena[1].leaf[0].addr;
	self->plain = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
}

FIXTURE_TEARDOWN(nested)
{
	unsigned int i;

	for (i = NESTED_DEPTH + 1; i > 0; i--) {
		if (self->key[i - 1]) {
			EXPECT_EQ(0, ibv_dereg_mr(self->key[i - 1]));
		}
	}
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* key 0 over @length bytes of leaf 0, and each next key over the one before */
static int nested_chain(struct mkt_setup *s, struct ibv_mr **key, unsigned int count,
			uint32_t length)
{
	struct mkt_leaf *leaf = &s->arena[1].leaf[0];
	unsigned int i;
	int err = mkt_bind_range(key[0], MKT_ACCESS_ALL, leaf->mr, leaf->addr, length);

	for (i = 1; i < count && !err; i++)
		err = mkt_bind_range(key[i], MKT_ACCESS_ALL, key[i - 1], 0, length);
	return err;
}

/* trees of every depth, on either side of every kind of transfer, bound by calls and requests */
TEST_F(nested, trees)
{
	unsigned int i, rounds = mkt_scale(240, 24);
	struct mkt_request request[2];

	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, mkt_request_init(&request[i], self->s.dev[i].pd, 4096));
	for (i = 0; i < rounds; i++) {
		struct mkt_nest nest[2];
		struct mkt_end end[2];
		struct mkt_xfer xfer = {
			.op = mkt_between(&self->s.rng, MKT_SEND, MKT_READ),
			.side = mkt_between(&self->s.rng, 0, 1),
			.end = { &end[0], &end[1] },
			.num_sge = mkt_between(&self->s.rng, 1, 3),
		};
		unsigned int side;
		size_t max;

		for (side = 0; side < 2; side++) {
			nest[side].qp = &self->s.pair.end[side];
			nest[side].request = &request[side];
			ASSERT_EQ(0, mkt_nest_build(&nest[side], &self->s.rng,
						    &self->s.arena[side],
						    1 + (i + side * 3) % NESTED_DEPTH));
			mkt_nest_end(&nest[side], &end[side]);
		}
		max = end[0].map.length < end[1].map.length ?
		      end[0].map.length : end[1].map.length;
		xfer.length = mkt_between(&self->s.rng, 1, max);
		ASSERT_EQ(0, mkt_xfer_drawn(&self->s.pair, &self->s.rng, &xfer))
			TH_LOG("in round %u", i);
		for (side = 0; side < 2; side++)
			ASSERT_EQ(0, mkt_nest_free(&nest[side]));
	}
	for (i = 0; i < 2; i++)
		mkt_request_free(&request[i]);
}

/* as deep as the device allows, and not a level more */
TEST_F(nested, depth)
{
	ASSERT_EQ(0, nested_chain(&self->s, self->key, NESTED_DEPTH, 4096));
	EXPECT_EQ(ELOOP, mkt_bind_range(self->key[NESTED_DEPTH], 0, self->key[NESTED_DEPTH - 1], 0,
					10));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "a key of too many levels"));
	EXPECT_EQ(IBMKEY_UNBOUND, mkt_kind_of(self->key[NESTED_DEPTH]));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, self->key[NESTED_DEPTH - 1]->rkey, MKT_WRITE,
					    0, 4096));
	/* one level less is allowed */
	EXPECT_EQ(0, mkt_bind_range(self->key[NESTED_DEPTH], 0, self->key[NESTED_DEPTH - 2], 0,
				    10));
}

/* no key is over itself, in either direction */
TEST_F(nested, circle)
{
	struct ibv_mr **key = self->key;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibv_sge both[2] = {};

	ASSERT_EQ(0, nested_chain(&self->s, key, 3, 4096));
	EXPECT_EQ(ELOOP, mkt_bind_range(key[0], 0, key[0], 0, 10));
	EXPECT_EQ(ELOOP, mkt_bind_range(key[0], 0, key[1], 0, 10));
	EXPECT_EQ(ELOOP, mkt_bind_range(key[0], 0, key[2], 0, 10));
	/* by the second of two leaves, below another key */
	both[0].addr = leaf->addr;
	both[0].length = 8;
	both[0].lkey = leaf->mr->lkey;
	both[1].length = 8;
	both[1].lkey = key[2]->lkey;
	ASSERT_EQ(0, ibv_rereg_mr_sg(key[4], 0, 2, both));
	EXPECT_EQ(ELOOP, mkt_bind_range(key[1], 0, key[4], 0, 10));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "leads back to mkey through other keys"));
	/* the key is in use, but there is no circle */
	EXPECT_EQ(EBUSY, mkt_bind_range(key[1], 0, leaf->mr, leaf->addr, 10));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "refers to mkey: mkeyctl who shows"));
	/* nothing has changed */
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, key[2]->rkey, MKT_WRITE, 0, 4096));
}

/*
 * a key cannot change while another key refers to it, and can be destroyed
 * after that
 */
TEST_F(nested, busy)
{
	struct ibv_mr **key = self->key;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct mkt_wr inv = { .op = MKT_LOCAL_INV };

	ASSERT_EQ(0, nested_chain(&self->s, key, 2, 4096));
	EXPECT_EQ(EBUSY, mkt_bind_range(key[0], MKT_ACCESS_ALL, leaf->mr, leaf->addr + 1, 9));
	EXPECT_EQ(EBUSY, ibmkey_unbind(key[0]));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(key[0]));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(leaf->mr));
	inv.rkey = key[0]->rkey;
	EXPECT_NE(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &inv));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(IBMKEY_LIST, mkt_kind_of(key[0]));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, key[1]->rkey, MKT_WRITE, 0, 4096));
	/* the outer key may be invalidated, which releases the inner one */
	inv.rkey = key[1]->rkey;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &inv));
	EXPECT_EQ(0, mkt_bind_range(key[0], MKT_ACCESS_ALL, leaf->mr, leaf->addr + 1, 9));
	EXPECT_EQ(0, mkt_bind_range(key[1], 0, key[0], 2, 7));
	/* another bind releases it, too */
	EXPECT_EQ(0, mkt_bind_range(key[1], 0, leaf->mr, leaf->addr, 7));
	EXPECT_EQ(0, ibmkey_unbind(key[0]));
	EXPECT_EQ(ERANGE, mkt_bind_range(key[1], 0, key[0], 0, 1));
	/* destroying a key releases it, too */
	ASSERT_EQ(0, nested_chain(&self->s, key, 2, 64));
	EXPECT_EQ(0, ibv_dereg_mr(key[1]));
	key[1] = NULL;
	EXPECT_EQ(0, ibv_dereg_mr(key[0]));
	key[0] = NULL;
}

/* access flags do not grow on the way up */
TEST_F(nested, rights)
{
	struct ibv_mr **key = self->key;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];

	ASSERT_EQ(0, mkt_bind_range(key[0], 0, leaf->mr, leaf->addr, 100));
	EXPECT_EQ(EACCES, mkt_bind_range(key[1], IBV_ACCESS_LOCAL_WRITE, key[0], 0, 100));
	EXPECT_EQ(EACCES, mkt_bind_range(key[1], MKT_ACCESS_ALL, key[0], 0, 100));
	/* reading by the lkey needs no access flag below */
	ASSERT_EQ(0, mkt_bind_range(key[1], IBV_ACCESS_REMOTE_READ, key[0], 0, 100));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, key[1]->rkey, MKT_READ, 0, 100));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, key[1]->rkey, MKT_WRITE, 0, 100));
}

/* an operand must be in one block of every level */
TEST_F(nested, atomics)
{
	struct ibv_mr **key = self->key;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	size_t first = -leaf->at & 7;
	struct ibv_sge half[2];
	uint64_t before, after;
	unsigned int i;

	ASSERT_EQ(0, mkt_bind_strided(key[0], MKT_ACCESS_ALL, leaf->mr, leaf->addr + first, 16, 64,
				      8));
	for (i = 1; i < NESTED_DEPTH; i++)
		ASSERT_EQ(0, mkt_bind_range(key[i], MKT_ACCESS_ALL, key[i - 1], 0, 128));
	for (i = 0; i < 128; i += 8) {
		const void *at = (void *)(uintptr_t)(leaf->addr + first +
						     i / 16 * 64 + i % 16);

		memcpy(&before, at, 8);
		ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, key[NESTED_DEPTH - 1]->rkey,
						    MKT_FETCH_ADD, i, 8));
		memcpy(&after, at, 8);
		ASSERT_EQ(before + 3, after);
	}
	/* two entries of the outer one, side by side in one block of the inner */
	ASSERT_EQ(0, ibmkey_unbind(key[NESTED_DEPTH - 1]));
	half[0] = (struct ibv_sge){ .addr = 0, .length = 4, .lkey = key[0]->lkey };
	half[1] = (struct ibv_sge){ .addr = 4, .length = 12, .lkey = key[0]->lkey };
	ASSERT_EQ(0, ibv_rereg_mr_sg(key[NESTED_DEPTH - 1], MKT_ACCESS_ALL, 2, half));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, key[NESTED_DEPTH - 1]->rkey,
						 MKT_FETCH_ADD, 0, 8));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, key[NESTED_DEPTH - 1]->rkey, MKT_FETCH_ADD, 8,
					    8));
	/* one entry of the outer one, over two blocks of the inner */
	ASSERT_EQ(0, mkt_bind_range(key[NESTED_DEPTH - 1], MKT_ACCESS_ALL, key[0], 12, 20));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, key[NESTED_DEPTH - 1]->rkey,
						 MKT_FETCH_ADD, 0, 8));
}

/* makes an inner key that is newer than the outer one, and frees neither */
static int nested_leave(void)
{
	struct mkt_arena arena;
	struct ibv_mr *outer, *inner;
	struct mkt_dev dev;
	int err;

	err = mkt_dev_open(&dev, 1);
	outer = err ? NULL : ibmkey_alloc(dev.pd, 1);
	err = err ?: mkt_arena_standard(&arena, &dev, 65536, 0);
	inner = err ? NULL : ibmkey_alloc(dev.pd, 1);
	err = err ?: mkt_bind_range(inner, 0, arena.leaf[0].mr, arena.leaf[0].addr, 100);
	return err ?: mkt_bind_range(outer, 0, inner, 0, 100);
}

/* a process ends with them */
TEST_F(nested, exit)
{
	int before = mkt_dev_count(&self->s.dev[1], "mr");

	ASSERT_LE(0, before);
	EXPECT_EQ(0, MKT_IN_CHILD(nested_leave()));
	EXPECT_EQ(before, mkt_dev_count(&self->s.dev[1], "mr"));
}

struct nested_race {
	struct ibv_mr *key;
	struct mkt_leaf *leaf;
	unsigned int bound, busy;
};

/* binds the inner key to either half of the leaf, when no key is over it */
static int nested_race_inner(void *arg, unsigned int round)
{
	struct nested_race *race = arg;
	unsigned int half = round & 1;
	int err = mkt_bind_range(race->key, MKT_ACCESS_ALL, race->leaf->mr,
				 race->leaf->addr + half * 16384, half ? 4096 : 8192);

	race->bound += !err;
	race->busy += err == EBUSY;
	return err == EBUSY ? 0 : err;
}

/*
 * An outer key that is bound to 8192 bytes of the inner one, which has as many
 * only in its first half, finds that half.
 */
TEST_F(nested, race)
{
	struct nested_race race = { .key = self->key[0], .leaf = &self->s.arena[1].leaf[0] };
	struct mkt_loop loop = {};
	unsigned int i, seen = 0, refused = 0, wanted = mkt_scale(100, 10);
	uint8_t *at = self->leaf, *to = self->plain;

	memset(at, 0xa0, 16384);
	memset(at + 16384, 0xa1, 16384);
	ASSERT_EQ(0, nested_chain(&self->s, self->key, 1, 4096));
	ASSERT_EQ(0, mkt_loop_start(&loop, nested_race_inner, &race));
	for (i = 0; (seen < wanted || !refused) && i < 1000000; i++) {
		int err = mkt_bind_range(self->key[1], MKT_ACCESS_ALL, self->key[0], 4096, 4096);

		if (err == ERANGE) {
			refused++;
			continue;
		}
		ASSERT_EQ(0, err);
		ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, self->key[1]->rkey, MKT_READ, 0,
						    4096));
		ASSERT_EQ(0xa0, to[0]);
		ASSERT_EQ(0, memcmp(to, to + 1, 4095));
		seen++;
		ASSERT_EQ(0, ibmkey_unbind(self->key[1]));
	}
	ASSERT_EQ(0, mkt_loop_end(&loop));
	TH_LOG("%u binds of the inner key, %u refused; %u reads, %u out of range",
	       race.bound, race.busy, seen, refused);
	EXPECT_LE(wanted, seen);
	EXPECT_LT(0, refused);
}

/* the number of the byte of entry @i, in an order without a stride */
static unsigned int nested_place(unsigned int i)
{
	return ((i * 37) ^ 21) % SCATTERED;
}

/*
 * Binds @key[0] to every third byte of leaf 0, and each next key to the bytes of the
 * one before, in no order. @at is the position in the leaf of each byte of the last
 * key.
 */
static int nested_scatter(struct mkt_setup *s, struct ibv_mr **key, unsigned int count,
			  size_t *at)
{
	struct mkt_leaf *leaf = &s->arena[1].leaf[0];
	struct ibv_sge sge[SCATTERED];
	unsigned int level, i;
	int err = 0;

	for (level = 0; level < count && !err; level++) {
		size_t below[SCATTERED];

		memcpy(below, at, sizeof(below));
		for (i = 0; i < SCATTERED; i++) {
			unsigned int place = nested_place(i);

			sge[i].addr = level ? place : leaf->addr + 3 * place;
			sge[i].length = 1;
			sge[i].lkey = level ? key[level - 1]->lkey : leaf->mr->lkey;
			at[i] = level ? below[place] : 3 * place;
		}
		err = ibv_rereg_mr_sg(key[level], MKT_ACCESS_ALL, SCATTERED, sge);
	}
	return err;
}

/* what the leaf no longer allows is refused through @key, also if it is in another PD */
static void nested_follows_leaf(struct __test_metadata *_metadata, struct mkt_setup *s,
				struct ibv_mr *key, uint64_t addr, uint32_t length)
{
	struct ibv_pd *pd = s->dev[1].pd, *other = ibv_alloc_pd(s->dev[1].ctx);
	struct ibv_mr *leaf = s->arena[1].leaf[0].mr;

	ASSERT_NE(NULL, other);
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(s, key->rkey, MKT_WRITE, addr, length));
	ASSERT_EQ(0, mkt_raw_rereg(leaf, IBV_REREG_MR_CHANGE_ACCESS, pd, IBV_ACCESS_REMOTE_READ));
	EXPECT_NE(IBV_WC_SUCCESS, mkt_try(s, key->rkey, MKT_WRITE, addr, length));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(s, key->rkey, MKT_READ, addr, length));
	ASSERT_EQ(0, mkt_raw_rereg(leaf, IBV_REREG_MR_CHANGE_ACCESS, pd, MKT_ACCESS_ALL));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(s, key->rkey, MKT_WRITE, addr, length));
	ASSERT_EQ(0, mkt_raw_rereg(leaf, IBV_REREG_MR_CHANGE_PD, other, 0));
	EXPECT_NE(IBV_WC_SUCCESS, mkt_try(s, key->rkey, MKT_READ, addr, length));
	ASSERT_EQ(0, mkt_raw_rereg(leaf, IBV_REREG_MR_CHANGE_PD, pd, 0));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(s, key->rkey, MKT_READ, addr, length));
	EXPECT_EQ(0, ibv_dealloc_pd(other));
}

/*
 * The access flags and the PD of the leaf are checked on each access: through levels that compose,
 * through so many pieces that a bind need not list them, and through a list of pieces.
 */
TEST_F(nested, leaf_again)
{
	struct ibv_mr **key = self->key;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];

	ASSERT_EQ(0, nested_chain(&self->s, key, 4, 4096));
	nested_follows_leaf(_metadata, &self->s, key[3], 0, 100);
	ASSERT_EQ(0, mkt_bind_range(key[4], MKT_ACCESS_ALL, leaf->mr, leaf->addr, 4096));
	ASSERT_EQ(0, mkt_bind_strided(key[5], MKT_ACCESS_ALL, key[4], 0, 16, 32, 128));
	nested_follows_leaf(_metadata, &self->s, key[5], 8, 1000);
	ASSERT_EQ(0, nested_scatter(&self->s, key + 6, 3, self->at));
	nested_follows_leaf(_metadata, &self->s, key[8], 0, SCATTERED);
}

/* all levels are held until the outermost key is unbound, and its memory is charged */
TEST_F(nested, scattered_held)
{
	struct ibv_mr *leaf = self->s.arena[1].leaf[0].mr;
	long long before, one, all;
	unsigned int i;

	ASSERT_EQ(0, nested_scatter(&self->s, self->key, 1, self->at));
	before = mkt_keys_charged(&self->s.dev[1]);
	ASSERT_EQ(0, nested_scatter(&self->s, self->key, 2, self->at));
	one = mkt_keys_charged(&self->s.dev[1]);
	ASSERT_EQ(0, ibmkey_unbind(self->key[1]));
	EXPECT_EQ(before, mkt_keys_charged(&self->s.dev[1]));
	ASSERT_EQ(0, nested_scatter(&self->s, self->key, NESTED_DEPTH, self->at));
	all = mkt_keys_charged(&self->s.dev[1]);
	if (before >= 0) {
		/*
		 * the list of the description, and the list of the ranges in
		 * memory
		 */
		EXPECT_LT(2 * 32 * SCATTERED, one - before);
		EXPECT_EQ((NESTED_DEPTH - 1) * (one - before), all - before);
	}
	for (i = 0; i < NESTED_DEPTH - 1; i++) {
		EXPECT_EQ(EBUSY, ibmkey_unbind(self->key[i]));
		EXPECT_EQ(EBUSY, ibv_dereg_mr(self->key[i]));
	}
	EXPECT_EQ(EBUSY, ibv_dereg_mr(leaf));
	for (i = NESTED_DEPTH; i > 1; i--)
		EXPECT_EQ(0, ibmkey_unbind(self->key[i - 1]));
	EXPECT_EQ(before, mkt_keys_charged(&self->s.dev[1]));
}

/* binds @key to blocks of @bytes bytes of the MR of @lkey, @stride bytes apart, @times times */
static int nested_strided(struct ibv_mr *key, uint32_t lkey, uint64_t addr, uint64_t bytes,
			  int64_t stride, uint64_t times, uint64_t count)
{
	struct ibmkey_block block = {
		.addr = addr,
		.bytes_count = bytes,
		.lkey = lkey,
		.stride = { 0, stride },
	};
	uint64_t repeat[2] = { times, count };

	return ibv_rereg_mr_interleaved(key, MKT_ACCESS_ALL, 2, repeat, 1, &block);
}

/* pieces of the innermost of the keys of lined_up, and their number with repetition */
#define LINED_UP 512
#define TIMES (1ull << 30)

/*
 * Levels whose blocks advance by whole pieces of the level below need no list: the number of
 * pieces has no limit, and takes no memory.
 */
TEST_F(nested, scattered_lined_up)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	long long before = mkt_keys_charged(&self->s.dev[1]);
	unsigned int level, i, step = 1 << (NESTED_DEPTH - 1);
	uint64_t length;

	ASSERT_LE(16 * LINED_UP, leaf->length);
	/* each level takes every second piece of the level below */
	ASSERT_EQ(0, nested_strided(self->key[0], leaf->mr->lkey, leaf->addr, 8, 16, TIMES,
				    LINED_UP));
	for (level = 1; level < NESTED_DEPTH; level++) {
		length = self->key[level - 1]->length;
		ASSERT_EQ(0, nested_strided(self->key[level], self->key[level - 1]->lkey, 0, 8,
					    16, 1, length / 16));
	}
	length = self->key[NESTED_DEPTH - 1]->length;
	ASSERT_EQ(8 * TIMES * LINED_UP / step, length);
	if (before >= 0) {
		EXPECT_GT(2048 * NESTED_DEPTH, mkt_keys_charged(&self->s.dev[1]) - before);
	}
	mkt_rand_bytes(&self->s.rng, self->leaf, 16 * LINED_UP);
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, self->key[NESTED_DEPTH - 1]->rkey, MKT_READ,
					    length - 100, 100));
	for (i = 0; i < 100; i++) {
		uint64_t at = length - 100 + i, piece = at / 8 * step % LINED_UP;

		ASSERT_EQ(self->leaf[16 * piece + at % 8], self->plain[i]);
	}
}

/*
 * Other levels become a list, of at most 1,048,576 pieces of memory. What is refused changes
 * nothing.
 */
TEST_F(nested, scattered_refused)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibv_mr *inner = self->key[0], *outer = self->key[1];
	unsigned int i;

	/* blocks of 3 bytes in pieces of 2 bytes: each is in two of them */
	ASSERT_EQ(0, nested_strided(inner, leaf->mr->lkey, leaf->addr, 2, 3, 1024, 1000));
	ASSERT_EQ(0, nested_strided(outer, inner->lkey, 1, 3, 5, 1, 1 << 18));
	EXPECT_EQ(ELOOP, nested_strided(outer, inner->lkey, 1, 3, 5, 3, 1 << 18));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "more than 1048576 pieces"));
	EXPECT_EQ(3 << 18, outer->length);
	EXPECT_EQ(ELOOP, nested_strided(self->key[2], inner->lkey, 1, 3, 5, 3, 1 << 18));
	EXPECT_EQ(0, self->key[2]->length);
	mkt_rand_bytes(&self->s.rng, self->leaf, 3000);
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, outer->rkey, MKT_READ, 700000, 100));
	for (i = 0; i < 100; i++) {
		uint64_t at = 700000 + i, byte = (1 + at / 3 * 5 + at % 3) % 2000;

		ASSERT_EQ(self->leaf[byte / 2 * 3 + byte % 2], self->plain[i]);
	}
}

/* accesses through a nest until one fails */
struct nested_traffic {
	struct mkt_loop loop;
	struct mkt_pair pair;
	struct mkt_wr wr;
	/* set when the access is no longer allowed */
	atomic_bool over;
	/* an access that began after that has succeeded */
	bool late;
	enum ibv_wc_status status;
};

/* ends with an access that fails, or that is late */
static int nested_access(void *arg, unsigned int round)
{
	struct nested_traffic *traffic = arg;
	bool over = atomic_load(&traffic->over);
	struct ibv_wc wc;

	if (mkt_post_send(&traffic->pair.end[0], &traffic->wr, 1) ||
	    mkt_poll(&traffic->pair.end[0], &wc))
		return EIO;
	traffic->status = wc.status;
	traffic->late = over && !wc.status;
	return wc.status || over ? ENODATA : 0;
}

/*
 * Under accesses through the outermost key: no level below can change; what the leaf no
 * longer allows ends at once; an unbind of the outermost key releases all of it.
 */
TEST_F(nested, scattered_race)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mr *leaf = s->arena[1].leaf[0].mr, *outer = self->key[NESTED_DEPTH - 1];
	unsigned int round, rounds = mkt_scale(20, 4), i;

	for (round = 0; round < rounds; round++) {
		bool unbinds = round & 1;
		enum mkt_op op = round & 2 ? MKT_READ : MKT_WRITE;
		struct nested_traffic traffic = {};

		ASSERT_EQ(0, nested_scatter(s, self->key, NESTED_DEPTH, self->at));
		traffic.wr = mkt_plain_wr(s, 0, op, SCATTERED, 0, outer->rkey);
		ASSERT_EQ(0, mkt_pair_create(&traffic.pair, &s->dev[0], &s->dev[1],
					     IBV_MTU_1024, 0));
		ASSERT_EQ(0, mkt_loop_start(&traffic.loop, nested_access, &traffic));
		for (i = 0; i < NESTED_DEPTH - 1 || atomic_load(&traffic.loop.rounds) < 20; i++) {
			struct ibv_mr *key = self->key[i % (NESTED_DEPTH - 1)];

			ASSERT_EQ(EBUSY, mkt_bind_range(key, MKT_ACCESS_ALL, leaf,
							s->arena[1].leaf[0].addr, 64));
			ASSERT_EQ(EBUSY, ibmkey_unbind(key));
			ASSERT_EQ(EBUSY, ibv_dereg_mr(key));
			ASSERT_EQ(EBUSY, ibv_dereg_mr(leaf));
		}
		if (unbinds) {
			ASSERT_EQ(0, ibmkey_unbind(outer));
		} else {
			ASSERT_EQ(0, mkt_raw_rereg(leaf, IBV_REREG_MR_CHANGE_ACCESS,
						   s->dev[1].pd, IBV_ACCESS_REMOTE_READ));
		}
		atomic_store(&traffic.over, true);
		EXPECT_TRUE(mkt_until(atomic_load(&traffic.loop.err)));
		EXPECT_EQ(ENODATA, mkt_loop_end(&traffic.loop));
		/* reading by the lkey needs no access flag of the leaf */
		EXPECT_EQ(!unbinds && op == MKT_READ, traffic.late);
		mkt_pair_destroy(&traffic.pair);
		if (!unbinds) {
			ASSERT_EQ(0, mkt_raw_rereg(leaf, IBV_REREG_MR_CHANGE_ACCESS,
						   s->dev[1].pd, MKT_ACCESS_ALL));
		}
		for (i = NESTED_DEPTH - unbinds; i > 0; i--)
			ASSERT_EQ(0, ibmkey_unbind(self->key[i - 1]));
	}
}

TEST_HARNESS_MAIN
