// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Layouts that random ones seldom are: blocks that overlap, megabytes through every kind
 * of layout, and the largest numbers of described bytes, entries and indices: one more is refused
 * and changes nothing. Bytes are written in the order of the key's addresses: of two bytes at one
 * place the later one stays, within a packet and from packet to packet. Many requests at once, and
 * lists of keys, MRs and device memory.
 * sets: long
 */
#include <stdlib.h>

#include "mkey_harness.h"

FIXTURE(layouts)
{
	struct mkt_setup s;
};

FIXTURE_VARIANT(layouts)
{
	enum ibv_mtu mtu;
};

FIXTURE_VARIANT_ADD(layouts, mtu1024) { .mtu = IBV_MTU_1024 };
FIXTURE_VARIANT_ADD(layouts, mtu4096) { .mtu = IBV_MTU_4096 };

/* the last leaf, whose few bytes are described often */
#define SMALL 4
#define SMALL_BYTES 1777

FIXTURE_SETUP(layouts)
{
	unsigned int i;

	MKT_SETUP(&self->s, .mtu = variant->mtu, .host = 96 * 1024, .dm = 48 * 1024,
		  .max_entries = 64);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, mkt_arena_add_leaf(&self->s.arena[i], 0, 20011,
						SMALL_BYTES, MKT_ACCESS_ALL,
						0));
	}
}

FIXTURE_TEARDOWN(layouts)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* the number of bytes of the key that overlap an earlier one */
static size_t overlap_count(const struct mkt_arena *arena,
			    const struct mkt_map *map, size_t length)
{
	uint8_t *seen = calloc(1, arena->size);
	size_t i, count = 0;

	if (!seen)
		return 0;
	for (i = 0; i < length; i++) {
		count += seen[map->pos[i]];
		seen[map->pos[i]] = 1;
	}
	free(seen);
	return count;
}

/* writes by every opcode, as a whole and from the middle, then reads */
static int overlap_run(struct mkt_setup *s, const struct mkt_layout *layout)
{
	/* the side of the key, by the side that posts */
	static const struct {
		enum mkt_op op;
		unsigned int side, key;
	} ways[] = {
		{ MKT_WRITE, 0, 1 },
		{ MKT_SEND, 0, 1 },
		{ MKT_WRITE_IMM, 1, 0 },
		{ MKT_READ, 0, 0 },
		{ MKT_READ, 0, 1 },
		{ MKT_SEND, 1, 1 },
	};
	size_t w, all;
	int err = 0;

	for (w = 0; w < ARRAY_SIZE(ways) && !err; w++) {
		unsigned int key = ways[w].key;
		struct mkt_end end, *ends[2];
		struct mkt_xfer xfer = {
			.op = ways[w].op,
			.side = ways[w].side,
			.num_sge = w % 2 ? 3 : 1,
		};

		err = mkt_end_key(&end, s->key[key], &s->arena[key], layout,
				  MKT_ACCESS_ALL);
		if (err)
			return err;
		all = end.map.length;
		if (!overlap_count(&s->arena[key], &end.map, all)) {
			mkt_diag("nothing overlaps");
			err = EINVAL;
		}
		ends[key] = &end;
		ends[!key] = &s->plain[!key];
		xfer.end[0] = ends[0];
		xfer.end[1] = ends[1];
		xfer.length = all;
		err = err ?: mkt_arena_fill(&s->arena[mkt_xfer_source(&xfer)],
					    &s->rng);
		err = err ?: mkt_xfer(&s->pair, &xfer);
		xfer.offset[key] = all / 3;
		xfer.length = all / 2;
		err = err ?: mkt_xfer(&s->pair, &xfer);
		mkt_end_free(&end);
	}
	if (err)
		mkt_layout_print(layout);
	return err;
}

/* random layouts in a leaf that is far smaller than the description */
TEST_F(layouts, overlapping_random)
{
	struct mkt_draw draw = {
		.min_length = 2 * SMALL_BYTES,
		.max_length = 20 * 1024,
		.max_block = SMALL_BYTES,
		.max_blocks = 64,
		.max_dims = self->s.dev[0].caps.max_dims,
		.leaf_only = true,
		.leaf = SMALL,
	};
	unsigned int i, rounds = mkt_scale(40, 6);

	for (i = 0; i < rounds; i++) {
		enum mkt_kind kind = i % (draw.max_dims > 1 ?
					  MKT_NUM_KINDS : MKT_SUBARRAY);
		struct mkt_layout layout;
		int err;

		ASSERT_EQ(0, mkt_draw_layout(&layout, &self->s.rng,
					     &self->s.arena[0], kind, &draw));
		err = overlap_run(&self->s, &layout);
		mkt_layout_free(&layout);
		ASSERT_EQ(0, err);
	}
}

/* binds the key of @side to a new random layout, which is long enough for three packets */
static int layouts_bind(struct mkt_setup *s, struct mkt_end *end, unsigned int side,
			enum mkt_kind kind, bool dm_only)
{
	struct mkt_draw draw = {
		.min_length = 3 * mkt_mtu_bytes(s->pair.mtu) + 400,
		.max_length = 40 * 1024,
		.max_block = 16 * 1024,
		.max_blocks = 64,
		.max_dims = s->dev[side].caps.max_dims,
		.leaf_only = dm_only,
		.leaf = 2,
	};

	return mkt_end_draw(end, s, side, kind, &draw, MKT_ACCESS_ALL);
}

/* the next kind of layout, and whether all of it is in device memory */
static bool layouts_next(struct mkt_setup *s, enum mkt_kind *kind, bool *dm_only)
{
	if (*kind <= MKT_STRIDED && !*dm_only) {
		*dm_only = true;
		return true;
	}
	*dm_only = false;
	++*kind;
	return *kind < (s->dev[0].caps.max_dims > 1 ? MKT_NUM_KINDS : MKT_SUBARRAY);
}

/* as many requests at once as the responder tracks, and more */
static void queue_requests(struct __test_metadata *_metadata, struct mkt_setup *s,
			   enum mkt_kind kind, bool dm_only)
{
	static const enum mkt_op ops[] = { MKT_WRITE, MKT_READ, MKT_SEND };
	struct mkt_end key[2] = {};
	unsigned int o, i, count = mkt_scale(40, 20);

	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, layouts_bind(s, &key[i], i, kind, dm_only));
	}
	for (o = 0; o < ARRAY_SIZE(ops); o++) {
		struct mkt_xfer xfer = {
			.op = ops[o],
			.end = { &key[0], &key[1] },
			.offset = { 100 + o, 200 - o },
			.length = 2 * mkt_mtu_bytes(s->pair.mtu) + 3,
			.num_sge = 2,
		};

		ASSERT_EQ(0, mkt_arena_fill(&s->arena[mkt_xfer_source(&xfer)], &s->rng));
		ASSERT_EQ(0, mkt_xfer_queue(&s->pair, &xfer, count))
			TH_LOG("%s, kind %u", mkt_op_name(ops[o]), kind);
	}
	mkt_end_free(&key[0]);
	mkt_end_free(&key[1]);
}

TEST_F(layouts, queued)
{
	enum mkt_kind kind = MKT_LIST;
	bool dm_only = false;

	do
		queue_requests(_metadata, &self->s, kind, dm_only);
	while (layouts_next(&self->s, &kind, &dm_only));
}

/* unaligned scatter/gather lists of keys, MRs and device memory */
static void mix_lists(struct __test_metadata *_metadata, struct mkt_setup *s,
		      enum mkt_kind kind, bool dm_only)
{
	static const enum mkt_op ops[] = { MKT_SEND, MKT_WRITE, MKT_READ };
	static const struct {
		unsigned int end;	/* region, key, device memory */
		size_t offset, length;
	} parts[] = {
		{ 0, 100, 333 }, { 1, 7, 1200 }, { 2, 1001, 77 }, { 1, 0, 5 },
		{ 0, 5000, 1 }, { 1, 900, 1801 },
	};
	struct mkt_end here[3] = {}, there = {};
	struct mkt_wr wr = {}, recv = {};
	struct mkt_result result;
	size_t p, i, done;
	unsigned int o;

	ASSERT_EQ(0, mkt_end_leaf(&here[0], &s->arena[0], 0));
	ASSERT_EQ(0, layouts_bind(s, &here[1], 0, kind, dm_only));
	ASSERT_EQ(0, mkt_end_leaf(&here[2], &s->arena[0], 2));
	ASSERT_EQ(0, layouts_bind(s, &there, 1, kind, dm_only));
	for (o = 0; o < ARRAY_SIZE(ops); o++) {
		uint8_t *to = s->arena[1].expect, *from = s->arena[0].expect;

		wr.op = ops[o];
		wr.remote_addr = there.addr;
		wr.rkey = there.mr->rkey;
		wr.num_sge = ARRAY_SIZE(parts);
		ASSERT_EQ(0, mkt_arena_fill(&s->arena[ops[o] == MKT_READ],
					    &s->rng));
		for (p = 0, done = 0; p < ARRAY_SIZE(parts); p++) {
			struct mkt_end *end = &here[parts[p].end];

			wr.sge[p].addr = end->addr + parts[p].offset;
			wr.sge[p].length = parts[p].length;
			wr.sge[p].lkey = end->mr->lkey;
			for (i = 0; i < parts[p].length; i++) {
				uint32_t a = end->map.pos[parts[p].offset + i];
				uint32_t b = there.map.pos[done++];

				if (ops[o] == MKT_READ)
					from[a] = to[b];
				else
					to[b] = from[a];
			}
		}
		recv.num_sge = 1;
		recv.sge[0].addr = there.addr;
		recv.sge[0].length = done;
		recv.sge[0].lkey = there.mr->lkey;
		ASSERT_EQ(0, mkt_exec(&s->pair, 0, &wr,
				      ops[o] == MKT_SEND ? &recv : NULL,
				      &result));
		ASSERT_EQ(IBV_WC_SUCCESS, result.status);
		ASSERT_EQ(0, mkt_arena_check(&s->arena[0]));
		ASSERT_EQ(0, mkt_arena_check(&s->arena[1]));
	}
	for (i = 0; i < 3; i++)
		mkt_end_free(&here[i]);
	mkt_end_free(&there);
}

TEST_F(layouts, mixed_lists)
{
	enum mkt_kind kind = MKT_LIST;
	bool dm_only = false;

	do
		mix_lists(_metadata, &self->s, kind, dm_only);
	while (layouts_next(&self->s, &kind, &dm_only));
}

FIXTURE(large)
{
	struct mkt_setup s;
};

FIXTURE_VARIANT(large)
{
	enum ibv_mtu mtu;
};

FIXTURE_VARIANT_ADD(large, mtu1024) { .mtu = IBV_MTU_1024 };
FIXTURE_VARIANT_ADD(large, mtu4096) { .mtu = IBV_MTU_4096 };

static size_t large_message(void)
{
	return mkt_scale(8192, 128) * 1024;
}

FIXTURE_SETUP(large)
{
	unsigned int most;

	MKT_OPEN_EXTENDED(self->s.dev);
	most = self->s.dev[0].caps.max_entries;
	MKT_MAKE(&self->s, .mtu = variant->mtu, .max_entries = most < 65536 ? most : 65536,
		 .host = large_message() * 9 / 4);
}

FIXTURE_TEARDOWN(large)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* WRITE, READ and SEND of all bytes but the first ones of a key of side 1 */
static int large_run(struct mkt_setup *s, const struct mkt_layout *layout)
{
	static const enum mkt_op ops[] = { MKT_WRITE, MKT_READ, MKT_SEND };
	struct mkt_end key = {};
	unsigned int o;
	int err;

	err = mkt_end_key(&key, s->key[1], &s->arena[1], layout, MKT_ACCESS_ALL);
	for (o = 0; o < ARRAY_SIZE(ops) && !err; o++) {
		struct mkt_xfer xfer = {
			.op = ops[o],
			.end = { &s->plain[0], &key },
			.offset = { 1 + o, 5 },
			.length = key.map.length - 5,
			.num_sge = 1,
		};

		err = mkt_arena_fill(&s->arena[mkt_xfer_source(&xfer)], &s->rng) ?:
		      mkt_xfer(&s->pair, &xfer);
	}
	mkt_end_free(&key);
	return err;
}

/* megabytes of each kind of layout */
TEST_F(large, drawn)
{
	const struct mkt_draw draw = {
		.min_length = large_message() / 2,
		.max_length = large_message(),
		.max_block = 65536,
		.max_blocks = 2000,
		.max_dims = self->s.dev[1].caps.max_dims,
		.leaf_only = true,
	};
	enum mkt_kind kind;

	for (kind = 0; kind < MKT_NUM_KINDS; kind++) {
		struct mkt_layout layout;
		int err;

		ASSERT_EQ(0, mkt_draw_layout(&layout, &self->s.rng, &self->s.arena[1], kind,
					     &draw));
		err = large_run(&self->s, &layout);
		if (err)
			mkt_layout_print(&layout);
		mkt_layout_free(&layout);
		ASSERT_EQ(0, err);
	}
}

/* memory that a key describes again and again */
#define LAP (32 * 4096)

/* reads bytes from @addr on of @key: those from @first on of the laps over leaf 0 */
static void large_read(struct __test_metadata *_metadata, struct mkt_setup *s,
		       struct ibv_mr *key, uint64_t addr, uint64_t first)
{
	const uint8_t *seen = (uint8_t *)(uintptr_t)s->plain[0].addr;
	const uint8_t *from = s->arena[1].expect + s->arena[1].leaf[0].at;
	unsigned int i;

	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(s, key->rkey, MKT_READ, addr, 70000));
	for (i = 0; i < 70000; i++) {
		ASSERT_EQ(from[(first + i) % LAP], seen[i]);
	}
}

/* billions of described bytes, far more than the memory has */
TEST_F(large, description)
{
	const uint64_t mib = 1024 * 1024, length = 4096 * mib * LAP;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibmkey_block block = {
		.addr = leaf->addr,
		.bytes_count = 4096,
		.lkey = leaf->mr->lkey,
		.stride = { 0, 4096 },
	};
	const uint64_t repeat[] = { 4096 * mib, 32 };

	if (self->s.dev[1].caps.max_dims < 2)
		SKIP(return, "the device has one dimension only");
	ASSERT_EQ(0, ibv_rereg_mr_interleaved(self->s.key[1], MKT_ACCESS_ALL,
					      2, repeat, 1, &block));
	ASSERT_EQ(length, self->s.key[1]->length);
	/* the last repetition but one, from its middle */
	large_read(_metadata, &self->s, self->s.key[1], length - LAP - 60000, LAP - 60000);
}

/* A range of a list has 64 bits: 5 GiB of a key that repeats 128 KiB, after 16 bytes of an MR. */
TEST_F(large, long_range)
{
	const uint64_t gib = 1ull << 30, first = 3 * gib + 5, repeat = 8 * gib / LAP + 1;
	const uint64_t at[] = { 0, 4 * gib - 35000, 5 * gib - 70000 };
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibmkey_range range[] = {
		{ .addr = leaf->addr, .length = 16, .lkey = leaf->mr->lkey },
		{ .addr = first, .length = 5 * gib, .lkey = self->s.key[1]->lkey },
	};
	struct ibv_mr *key;
	unsigned int k;

	ASSERT_EQ(0, mkt_bind_strided(self->s.key[1], MKT_ACCESS_ALL, leaf->mr, leaf->addr, LAP, 0,
				      repeat));
	key = ibmkey_alloc(self->s.dev[1].pd, ARRAY_SIZE(range));
	ASSERT_NE(NULL, key);
	ASSERT_EQ(0, ibmkey_bind_list(key, MKT_ACCESS_ALL, ARRAY_SIZE(range), range));
	EXPECT_EQ(16 + 5 * gib, key->length);
	for (k = 0; k < ARRAY_SIZE(at); k++)
		large_read(_metadata, &self->s, key, 16 + at[k], first + at[k]);
	/* one byte too far */
	range[1].length = repeat * LAP - first + 1;
	EXPECT_EQ(ERANGE, ibmkey_bind_list(key, MKT_ACCESS_ALL, ARRAY_SIZE(range), range));
	EXPECT_EQ(0, ibv_dereg_mr(key));
}

/*
 * reads all of @key from the other side: the bytes are the first ones of the
 * leaf
 */
static int large_head(struct mkt_setup *s, struct ibv_mr *key, size_t length)
{
	struct mkt_block block = { .bytes = length };
	struct mkt_layout head = { .num_blocks = 1, .block = &block };
	struct mkt_end end = { .arena = &s->arena[1], .mr = key };
	struct mkt_xfer xfer = {
		.op = MKT_READ,
		.end = { &s->plain[0], &end },
		.length = length,
	};
	int err;

	err = mkt_layout_map(&s->arena[1], &head, &end.map);
	err = err ?: mkt_arena_fill(&s->arena[1], &s->rng);
	err = err ?: mkt_xfer(&s->pair, &xfer);
	mkt_end_free(&end);
	return err;
}

/* as many entries as there may be; mkey_errors has fewer */
TEST_F(large, entries)
{
	const struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	unsigned int max = self->s.dev[1].caps.max_entries;
	struct ibv_mr *key = ibmkey_alloc(self->s.dev[1].pd, max);
	struct ibmkey_info info;
	enum mkt_rows rows;

	ASSERT_NE(NULL, key);
	for (rows = MKT_ROWS_LIST; rows <= MKT_ROWS_BLOCKS; rows++) {
		ASSERT_EQ(0, mkt_bind_rows(key, leaf, rows, max, 1, MKT_ACCESS_ALL));
		EXPECT_EQ(ENOSPC, mkt_bind_rows(key, leaf, rows, max + 1, 1, 0));
		EXPECT_EQ(max, key->length);
		ASSERT_EQ(0, ibmkey_query(key, &info));
		EXPECT_EQ(rows == MKT_ROWS_LIST ? IBMKEY_LIST : IBMKEY_INTERLEAVED, info.kind);
		EXPECT_EQ(max, info.num_entries);
		EXPECT_EQ(0, large_head(&self->s, key, max));
	}
	EXPECT_EQ(0, ibv_dereg_mr(key));
}

/*
 * the largest number of indices, and lists of a key that was created for as
 * many
 */
TEST_F(large, indices)
{
	const struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	uint32_t max = self->s.dev[1].caps.max_indices, most = self->s.dev[1].caps.max_entries, i;
	const size_t all = leaf->length < max ? leaf->length : max;
	uint64_t *seen = calloc(max, sizeof(*seen));
	struct ibmkey_indexed layout;
	struct ibmkey_info info;
	struct ibv_mr *key;

	ASSERT_LE(most, max);
	ASSERT_NE(NULL, seen);
	key = ibmkey_alloc(self->s.dev[1].pd, max);
	ASSERT_NE(NULL, key);
	ASSERT_EQ(0, mkt_bind_rows(key, leaf, MKT_ROWS_INDICES32, max, 1, MKT_ACCESS_ALL));
	EXPECT_EQ(max, key->length);
	EXPECT_EQ(ENOSPC, mkt_bind_rows(key, leaf, MKT_ROWS_INDICES32, max + 1, 1, 0));
	EXPECT_EQ(0, large_head(&self->s, key, all));
	ASSERT_EQ(0, ibmkey_query_indexed(key, &info, &layout, max, seen));
	EXPECT_EQ(max, info.num_entries);
	EXPECT_EQ(max, info.max_entries);
	for (i = 0; i < max; i++) {
		ASSERT_EQ(i % leaf->length, seen[i]);
	}

	/* lists and blocks of such a key have the limit of all keys */
	EXPECT_EQ(ENOSPC, mkt_bind_rows(key, leaf, MKT_ROWS_LIST, most + 1, 1, 0));
	EXPECT_EQ(ENOSPC, mkt_bind_rows(key, leaf, MKT_ROWS_BLOCKS, most + 1, 1, 0));
	EXPECT_EQ(0, large_head(&self->s, key, all));
	EXPECT_EQ(0, ibv_dereg_mr(key));
	free(seen);
}

TEST_HARNESS_MAIN
