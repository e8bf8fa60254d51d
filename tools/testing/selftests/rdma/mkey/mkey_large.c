// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Large messages and large descriptions: megabytes through every kind of layout, and a
 * list with the largest number of entries.
 * sets: long
 */
#include "mkey_harness.h"

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
	struct mkt_wants wants = {
		.mtu = variant->mtu,
		/*
		 * the largest number of entries, and far indices, need more
		 * memory in a short run
		 */
		.host = large_message() * 9 / 4 + mkt_scale(0, 1024) * 1024,
		.max_entries = 65536,
	};

	MKT_OPEN_EXTENDED(self->s.dev);
	if (wants.max_entries > self->s.dev[0].caps.max_entries)
		wants.max_entries = self->s.dev[0].caps.max_entries;
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
}

FIXTURE_TEARDOWN(large)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* runs WRITE, READ and SEND on @length bytes of a key with @layout on side 1 */
static int large_run(struct mkt_setup *s, const struct mkt_layout *layout,
		     size_t offset, size_t length)
{
	static const enum mkt_op ops[] = { MKT_WRITE, MKT_READ, MKT_SEND };
	struct mkt_end key = {};
	unsigned int o;
	int err;

	err = mkt_end_key(&key, s->key[1], &s->arena[1], layout,
			  MKT_ACCESS_ALL);
	for (o = 0; o < ARRAY_SIZE(ops) && !err; o++) {
		struct mkt_xfer xfer = {
			.op = ops[o],
			.end = { &s->plain[0], &key },
			.offset = { 1 + o, offset },
			.length = length,
			.num_sge = 1,
		};

		err = mkt_arena_fill(&s->arena[mkt_xfer_source(&xfer)],
				     &s->rng);
		if (!err)
			err = mkt_xfer(&s->pair, &xfer);
	}
	mkt_end_free(&key);
	return err;
}

TEST_F(large, strided)
{
	struct mkt_block block = {
		.offset = 13,
		.bytes = 48,
		.stride = { 99 },
	};
	struct mkt_layout layout =
		mkt_layout_repeated(&block, large_message() / 48 + 1);

	ASSERT_EQ(0, large_run(&self->s, &layout, 5, large_message()));
}

/* three interleaved arrays of structures, one of them backwards */
TEST_F(large, interleaved)
{
	size_t n = large_message() / 124, part = n * 80;
	struct mkt_block block[] = {
		{ .bytes = 1, .stride = { 5 } },
		{ .offset = part + 3, .bytes = 50, .stride = { 61 } },
		{ .offset = 2 * part + 3 + 74 * n, .bytes = 73,
		  .stride = { -74 } },
	};
	struct mkt_layout layout = {
		.num_dims = 1,
		.repeat = { n },
		.num_blocks = ARRAY_SIZE(block),
		.block = block,
	};

	ASSERT_EQ(0, large_run(&self->s, &layout, 1, n * 124 - 1));
}

TEST_F(large, subarray)
{
	/* planes of 24 rows of 8 KiB, columns of 4 bytes out of every 7 */
	size_t planes = large_message() / (24 * 1024 * 4);
	struct mkt_block block = {
		.offset = 7,
		.bytes = 4,
		.stride = { 24 * 8192, 8192, 7 },
	};
	struct mkt_layout layout = {
		.num_dims = 3,
		.repeat = { planes, 24, 1024 },
		.num_blocks = 1,
		.block = &block,
	};

	if (self->s.dev[1].caps.max_dims < 3)
		SKIP(return, "the device has fewer than three dimensions");
	ASSERT_EQ(0, large_run(&self->s, &layout, 0, planes * 24 * 1024 * 4));
}

TEST_F(large, blocks_of_64k)
{
	unsigned int i, n = large_message() / 65536;
	struct mkt_layout layout = { .num_blocks = n };

	layout.block = calloc(n, sizeof(*layout.block));
	ASSERT_NE(NULL, layout.block);
	/* in reverse order */
	for (i = 0; i < n; i++) {
		layout.block[i].offset = (n - 1 - i) * 65543 + 1;
		layout.block[i].bytes = 65536;
	}
	ASSERT_EQ(0, large_run(&self->s, &layout, 0, large_message()));
	mkt_layout_free(&layout);
}

/* the largest number of entries, read from the middle */
TEST_F(large, entries)
{
	unsigned int i, n = self->s.dev[1].caps.max_entries;
	struct mkt_layout layout = { .num_blocks = n };
	size_t at = 0, length = 0;

	layout.block = calloc(n, sizeof(*layout.block));
	ASSERT_NE(NULL, layout.block);
	for (i = 0; i < n; i++) {
		layout.block[i].bytes = mkt_between(&self->s.rng, 1, 11);
		at += mkt_between(&self->s.rng, 0, 3);
		layout.block[i].offset = at;
		at += layout.block[i].bytes;
		length += layout.block[i].bytes;
	}
	ASSERT_LE(at, self->s.arena[1].leaf[0].length);
	ASSERT_EQ(0, large_run(&self->s, &layout, 0, length));
	ASSERT_EQ(0, large_run(&self->s, &layout, length / 2 + 1, 10000));
	ASSERT_EQ(0, large_run(&self->s, &layout, length - 3, 3));
	mkt_layout_free(&layout);
}

/*
 * Blocks in random order in more than 1 MiB, at multiples of their size. The
 * number of blocks in the last packet is odd.
 */
TEST_F(large, far_indices)
{
	static const unsigned int sizes[] = { 8, 16, 64 };
	const struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	unsigned int i, o, n = 1003;
	struct mkt_layout layout = { .num_blocks = n };

	layout.block = calloc(n, sizeof(*layout.block));
	ASSERT_NE(NULL, layout.block);
	layout.base = -leaf->addr & 63;
	layout.unit = (leaf->length - 128) / n & ~63ull;
	ASSERT_GT(layout.unit * (n - 1), 1024 * 1024);
	for (i = 0; i < n; i++) {
		unsigned int other = mkt_between(&self->s.rng, 0, i);

		layout.block[i].offset = layout.block[other].offset;
		layout.block[other].offset = layout.base + i * layout.unit;
	}
	for (o = 0; o < 2 * ARRAY_SIZE(sizes); o++) {
		unsigned int size = sizes[o / 2];

		layout.index_bytes = o % 2 ? 8 : 4;
		for (i = 0; i < n; i++)
			layout.block[i].bytes = size;
		ASSERT_EQ(0, large_run(&self->s, &layout, 0, n * size));
		ASSERT_EQ(0, large_run(&self->s, &layout, size, 77 * size));
	}
	mkt_layout_free(&layout);
}

/* billions of described bytes, far more than the memory has */
TEST_F(large, description)
{
	const uint64_t mib = 1024 * 1024;
	struct ibmkey_block block = {
		.addr = self->s.arena[1].leaf[0].addr,
		.bytes_count = 4096,
		.lkey = self->s.arena[1].leaf[0].mr->lkey,
		.stride = { 0, 4096 },
	};
	const uint64_t repeat[] = { 4096 * mib, 32 };
	struct mkt_arena *arena = &self->s.arena[1];
	struct mkt_wr wr = {
		.op = MKT_READ,
		.sge[0] = {
			.addr = self->s.plain[0].addr,
			.length = 70000,
			.lkey = self->s.plain[0].mr->lkey,
		},
		.num_sge = 1,
		/* the last repetition but one, from its middle */
		.remote_addr = (4096 * mib - 1) * 32 * 4096 - 60000,
		.rkey = self->s.key[1]->rkey,
	};
	uint8_t *seen = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
	const uint8_t *from = arena->expect + arena->leaf[0].at;
	unsigned int i;

	if (self->s.dev[1].caps.max_dims < 2)
		SKIP(return, "the device has one dimension only");
	ASSERT_EQ(0, ibv_rereg_mr_interleaved(self->s.key[1], MKT_ACCESS_ALL,
					      2, repeat, 1, &block));
	ASSERT_EQ(4096 * mib * 32 * 4096, self->s.key[1]->length);
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	for (i = 0; i < 70000; i++) {
		ASSERT_EQ(from[(32 * 4096 - 60000 + i) % (32 * 4096)], seen[i]);
	}
}

/* A range of a list has 64 bits: 5 GiB of a key that repeats 128 KiB, after 16 bytes of an MR. */
TEST_F(large, long_range)
{
	const uint64_t gib = 1ull << 30, lap = 32 * 4096, first = 3 * gib + 5;
	struct mkt_arena *arena = &self->s.arena[1];
	struct ibmkey_block block = {
		.addr = arena->leaf[0].addr,
		.bytes_count = lap,
		.lkey = arena->leaf[0].mr->lkey,
	};
	struct ibmkey_range range[] = {
		{ .addr = block.addr, .length = 16, .lkey = block.lkey },
		{ .addr = first, .length = 5 * gib, .lkey = self->s.key[1]->lkey },
	};
	struct mkt_wr wr = mkt_plain_wr(&self->s, 0, MKT_READ, 70000, 0, 0);
	const uint8_t *seen = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
	const uint8_t *from = arena->expect + arena->leaf[0].at;
	const uint64_t at[] = { 0, 4 * gib - 35000, 5 * gib - 70000 }, repeat = 8 * gib / lap + 1;
	struct ibv_mr *key;
	unsigned int i, k;

	ASSERT_EQ(0, ibmkey_bind_interleaved(self->s.key[1], MKT_ACCESS_ALL, 1, &repeat, 1,
					     &block));
	key = ibmkey_alloc(self->s.dev[1].pd, ARRAY_SIZE(range));
	ASSERT_NE(NULL, key);
	ASSERT_EQ(0, ibmkey_bind_list(key, MKT_ACCESS_ALL, ARRAY_SIZE(range), range));
	EXPECT_EQ(16 + 5 * gib, key->length);
	wr.rkey = key->rkey;
	for (k = 0; k < ARRAY_SIZE(at); k++) {
		wr.remote_addr = 16 + at[k];
		ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
		for (i = 0; i < 70000; i++)
			ASSERT_EQ(from[(first + at[k] + i) % lap], seen[i]);
	}
	/* one byte too far */
	range[1].length = repeat * lap - first + 1;
	EXPECT_EQ(ERANGE, ibmkey_bind_list(key, MKT_ACCESS_ALL, ARRAY_SIZE(range), range));
	EXPECT_EQ(0, ibv_dereg_mr(key));
}

TEST_HARNESS_MAIN
