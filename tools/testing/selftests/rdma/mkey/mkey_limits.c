// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Each limit of the capability query: the limit itself works; one more is refused and
 * changes nothing. samples/kernel tests the same for kernel users, mkey_errors the dimensions,
 * mkey_nested the depth of keys over keys, and dm_alloc the size of device memory.
 */
#include <stdlib.h>

#include "mkey_harness.h"

#define LIMITS_BYTES (128 * 1024)

FIXTURE(limits)
{
	struct mkt_setup s;
	struct mkt_leaf *leaf;		/* of side 1 */
	struct ibv_mr *key;		/* of side 1, for all entries there may be */
	struct ibmkey_caps caps;
};

FIXTURE_SETUP(limits)
{
	MKT_SETUP(&self->s, .mtu = IBV_MTU_4096, .host = LIMITS_BYTES);
	self->caps = self->s.dev[1].caps;
	self->leaf = &self->s.arena[1].leaf[0];
	self->key = ibmkey_alloc(self->s.dev[1].pd, self->caps.max_entries);
	ASSERT_NE(NULL, self->key);
}

FIXTURE_TEARDOWN(limits)
{
	EXPECT_EQ(0, ibv_dereg_mr(self->key));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/*
 * reads all of @key from the other side: the bytes are the first ones of the
 * leaf
 */
static int limits_read(struct mkt_setup *s, struct ibv_mr *key, size_t length)
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
TEST_F(limits, entries)
{
	unsigned int max = self->caps.max_entries;
	struct ibv_mr *key = self->key;
	struct ibmkey_info info;
	enum mkt_rows rows;

	for (rows = MKT_ROWS_LIST; rows <= MKT_ROWS_BLOCKS; rows++) {
		ASSERT_EQ(0, mkt_bind_rows(key, self->leaf, rows, max, 1, MKT_ACCESS_ALL));
		EXPECT_EQ(ENOSPC, mkt_bind_rows(key, self->leaf, rows, max + 1, 1, 0));
		EXPECT_EQ(max, key->length);
		ASSERT_EQ(0, ibmkey_query(key, &info));
		EXPECT_EQ(rows == MKT_ROWS_LIST ? IBMKEY_LIST : IBMKEY_INTERLEAVED, info.kind);
		EXPECT_EQ(max, info.num_entries);
		EXPECT_EQ(0, limits_read(&self->s, key, max));
	}
}

/*
 * the largest number of indices, and lists of a key that was created for as
 * many
 */
TEST_F(limits, indices)
{
	uint32_t i, max = self->caps.max_indices, most = self->caps.max_entries;
	uint64_t *seen = calloc(max, sizeof(*seen));
	struct ibmkey_indexed layout;
	struct ibmkey_info info;
	struct ibv_mr *key;

	ASSERT_LE(most, max);
	ASSERT_NE(NULL, seen);
	key = ibmkey_alloc(self->s.dev[1].pd, max);
	ASSERT_NE(NULL, key);
	ASSERT_EQ(0, mkt_bind_rows(key, self->leaf, MKT_ROWS_INDICES32, max, 1, MKT_ACCESS_ALL));
	EXPECT_EQ(max, key->length);
	EXPECT_EQ(ENOSPC, mkt_bind_rows(key, self->leaf, MKT_ROWS_INDICES32, max + 1, 1, 0));
	EXPECT_EQ(0, limits_read(&self->s, key, self->leaf->length));
	ASSERT_EQ(0, ibmkey_query_indexed(key, &info, &layout, max, seen));
	EXPECT_EQ(max, info.num_entries);
	EXPECT_EQ(max, info.max_entries);
	for (i = 0; i < max; i++) {
		ASSERT_EQ(i % self->leaf->length, seen[i]);
	}

	/* lists and blocks of such a key have the limit of all keys */
	EXPECT_EQ(ENOSPC, mkt_bind_rows(key, self->leaf, MKT_ROWS_LIST, most + 1, 1, 0));
	EXPECT_EQ(ENOSPC, mkt_bind_rows(key, self->leaf, MKT_ROWS_BLOCKS, most + 1, 1, 0));
	EXPECT_EQ(0, limits_read(&self->s, key, self->leaf->length));
	EXPECT_EQ(0, ibv_dereg_mr(key));
	free(seen);
}

TEST_HARNESS_MAIN
