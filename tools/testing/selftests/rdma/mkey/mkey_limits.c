// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Each limit of the capability query: the limit itself works; one more is refused and
 * changes nothing. samples/kernel tests the same for kernel users.
 */
#include <stdlib.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "raw.h"

#define LIMITS_BYTES (128 * 1024)
#define LIMITS_DEPTH 64

FIXTURE(limits)
{
	struct mkt_setup s;
	struct mkt_leaf *leaf;		/* of side 1 */
	struct ibv_mr *key;		/* of side 1, for all entries there may be */
	struct ibmkey_caps caps;
};

FIXTURE_SETUP(limits)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_4096,
		.host = LIMITS_BYTES,
	};

	MKT_OPEN_EXTENDED(self->s.dev);
	self->caps = self->s.dev[1].caps;
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
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

TEST_F(limits, list_entries)
{
	unsigned int i, max = self->caps.max_entries;
	struct ibv_sge *sge = calloc(max + 1, sizeof(*sge));
	struct ibmkey_info info;

	ASSERT_NE(NULL, sge);
	for (i = 0; i <= max; i++) {
		sge[i].addr = self->leaf->addr + i;
		sge[i].length = 1;
		sge[i].lkey = self->leaf->mr->lkey;
	}
	ASSERT_EQ(0, ibv_rereg_mr_sg(self->key, MKT_ACCESS_ALL, max, sge));
	EXPECT_EQ(max, self->key->length);
	EXPECT_EQ(ENOSPC, ibv_rereg_mr_sg(self->key, MKT_ACCESS_ALL, max + 1,
					  sge));
	ASSERT_EQ(0, ibmkey_query(self->key, &info));
	EXPECT_EQ(max, info.num_entries);
	EXPECT_EQ(0, limits_read(&self->s, self->key, max));
	free(sge);
}

TEST_F(limits, blocks)
{
	unsigned int i, max = self->caps.max_entries;
	struct ibmkey_block *blocks = calloc(max + 1, sizeof(*blocks));
	const uint64_t once[] = { 1 };

	ASSERT_NE(NULL, blocks);
	for (i = 0; i <= max; i++) {
		blocks[i].addr = self->leaf->addr + i;
		blocks[i].bytes_count = 1;
		blocks[i].lkey = self->leaf->mr->lkey;
	}
	ASSERT_EQ(0, ibv_rereg_mr_interleaved(self->key, MKT_ACCESS_ALL, 1,
					      once, max, blocks));
	EXPECT_EQ(max, self->key->length);
	EXPECT_EQ(ENOSPC, ibv_rereg_mr_interleaved(self->key, MKT_ACCESS_ALL, 1,
						   once, max + 1, blocks));
	EXPECT_EQ(0, limits_read(&self->s, self->key, max));
	free(blocks);
}

/* the limit that a key was created with */
TEST_F(limits, key_entries)
{
	struct ibv_mr *key = ibmkey_alloc(self->s.dev[1].pd, 3);
	struct ibmkey_block blocks[4];
	struct ibv_sge sge[4];
	const uint64_t once[] = { 1 };
	unsigned int i;

	ASSERT_NE(NULL, key);
	memset(blocks, 0, sizeof(blocks));
	for (i = 0; i < 4; i++) {
		sge[i].addr = self->leaf->addr + 10 * i;
		sge[i].length = 10;
		sge[i].lkey = self->leaf->mr->lkey;
		blocks[i].addr = sge[i].addr;
		blocks[i].bytes_count = 10;
		blocks[i].lkey = sge[i].lkey;
	}
	EXPECT_EQ(0, ibv_rereg_mr_sg(key, 0, 3, sge));
	EXPECT_EQ(ENOSPC, ibv_rereg_mr_sg(key, 0, 4, sge));
	EXPECT_EQ(30, key->length);
	EXPECT_EQ(0, ibv_rereg_mr_interleaved(key, 0, 1, once, 3, blocks));
	EXPECT_EQ(ENOSPC, ibv_rereg_mr_interleaved(key, 0, 1, once, 4, blocks));
	EXPECT_EQ(0, ibv_dereg_mr(key));
}

/*
 * the largest number of indices, and lists of a key that was created for as
 * many
 */
TEST_F(limits, indices)
{
	struct ibmkey_indexed layout = {
		.addr = self->leaf->addr,
		.unit = 1,
		.bytes_count = 1,
		.lkey = self->leaf->mr->lkey,
	};
	struct ibmkey_block *blocks;
	const uint64_t once[] = { 1 };
	struct ibmkey_info info;
	struct ibv_sge *sge;
	uint32_t *indices, i, max;
	struct ibv_mr *key;
	uint64_t *seen;

	max = self->caps.max_indices;
	ASSERT_LE(self->caps.max_entries, max);
	indices = calloc(max + 1, sizeof(*indices));
	seen = calloc(max, sizeof(*seen));
	ASSERT_NE(NULL, indices);
	ASSERT_NE(NULL, seen);
	for (i = 0; i <= max; i++)
		indices[i] = i % self->leaf->length;
	layout.indices32 = indices;
	key = ibmkey_alloc(self->s.dev[1].pd, max);
	ASSERT_NE(NULL, key);
	layout.num_indices = max;
	ASSERT_EQ(0, ibmkey_bind_indexed(key, MKT_ACCESS_ALL, &layout));
	EXPECT_EQ(max, key->length);
	layout.num_indices = max + 1;
	EXPECT_EQ(ENOSPC, ibmkey_bind_indexed(key, MKT_ACCESS_ALL, &layout));
	EXPECT_EQ(0, limits_read(&self->s, key, self->leaf->length));
	ASSERT_EQ(0, ibmkey_query_indexed(key, &info, &layout, max, seen));
	EXPECT_EQ(max, info.num_entries);
	EXPECT_EQ(max, info.max_entries);
	for (i = 0; i < max; i++) {
		ASSERT_EQ(indices[i], seen[i]);
	}

	/* lists and blocks of such a key have the limit of all keys */
	sge = calloc(self->caps.max_entries + 1, sizeof(*sge));
	blocks = calloc(self->caps.max_entries + 1, sizeof(*blocks));
	ASSERT_NE(NULL, sge);
	ASSERT_NE(NULL, blocks);
	EXPECT_EQ(ENOSPC, ibv_rereg_mr_sg(key, 0, self->caps.max_entries + 1,
					  sge));
	EXPECT_EQ(ENOSPC, ibv_rereg_mr_interleaved(key, 0, 1, once,
						   self->caps.max_entries + 1,
						   blocks));
	EXPECT_EQ(0, limits_read(&self->s, key, self->leaf->length));
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_ERRNO(EINVAL, ibmkey_alloc(self->s.dev[1].pd, max + 1));
	free(blocks);
	free(sge);
	free(seen);
	free(indices);
}

TEST_F(limits, dims)
{
	unsigned int d, max = self->caps.max_dims;
	uint64_t repeat[IBMKEY_MAX_DIMS + 1];
	struct ibmkey_block block = {
		.addr = self->leaf->addr,
		.bytes_count = 3,
		.lkey = self->leaf->mr->lkey,
	};
	struct ib_uverbs_mkey_block raw = {
		.addr = block.addr,
		.bytes_count = block.bytes_count,
		.lkey = block.lkey,
	};
	struct ib_uverbs_mkey_bind bind;
	struct mkt_ioctl cmd;

	ASSERT_GE(IBMKEY_MAX_DIMS, max);
	/*
	 * contiguous blocks: the same bytes with the largest number of
	 * dimensions
	 */
	for (d = 0; d <= IBMKEY_MAX_DIMS; d++)
		repeat[d] = 2;
	for (d = 0; d < max; d++)
		block.stride[d] = 3 << (max - 1 - d);
	ASSERT_EQ(0, ibv_rereg_mr_interleaved(self->key, MKT_ACCESS_ALL, max,
					      repeat, 1, &block));
	EXPECT_EQ(3 << max, self->key->length);
	EXPECT_EQ(0, limits_read(&self->s, self->key, 3 << max));

	EXPECT_EQ(EINVAL, ibv_rereg_mr_interleaved(self->key, 0, max + 1,
						   repeat, 1, &block));
	/* the kernel refuses it, not only the library */
	bind = mkt_raw_interleaved(0, repeat, max, &raw, 1);
	mkt_raw_bind(&cmd, self->key->handle, &bind);
	EXPECT_EQ(0, mkt_ioctl_run(self->s.dev[1].ctx, &cmd));
	bind.num_dims = max + 1;
	EXPECT_NE(0, mkt_ioctl_run(self->s.dev[1].ctx, &cmd));
}

/* keys over keys: the innermost one is level 1 */
TEST_F(limits, depth)
{
	unsigned int i, max = self->caps.max_depth;
	struct ibv_mr *keys[LIMITS_DEPTH + 1];
	struct ibv_sge sge = {
		.addr = self->leaf->addr,
		.length = 5000,
		.lkey = self->leaf->mr->lkey,
	};

	ASSERT_LT(0, max);
	ASSERT_GE(LIMITS_DEPTH, max);
	for (i = 0; i <= max; i++) {
		keys[i] = ibmkey_alloc(self->s.dev[1].pd, 1);
		ASSERT_NE(NULL, keys[i]);
	}
	for (i = 0; i < max; i++) {
		ASSERT_EQ(0, ibv_rereg_mr_sg(keys[i], MKT_ACCESS_ALL, 1, &sge));
		EXPECT_EQ(0, limits_read(&self->s, keys[i], 5000));
		sge.addr = 0;
		sge.lkey = keys[i]->lkey;
	}
	EXPECT_EQ(max > 1 ? ELOOP : EOPNOTSUPP,
		  ibv_rereg_mr_sg(keys[max], MKT_ACCESS_ALL, 1, &sge));
	EXPECT_EQ(0, limits_read(&self->s, keys[max - 1], 5000));
	/* each key is pinned by the one over it */
	for (i = max + 1; i-- > 0;) {
		EXPECT_EQ(0, ibv_dereg_mr(keys[i]));
	}
}

static struct ibv_dm *limits_dm(struct mkt_dev *dev, uint64_t length)
{
	struct ibv_alloc_dm_attr attr = { .length = length };

	return ibv_alloc_dm(dev->ctx, &attr);
}

/* all that a user may have in two pieces, then one byte more */
TEST_F(limits, dm_size)
{
	struct mkt_dev *dev = &self->s.dev[1];
	uint64_t max = mkt_dm_share(dev), page = sysconf(_SC_PAGESIZE);
	struct ibv_dm *most, *rest;

	if (max > page << 16)
		SKIP(return, "%" PRIu64 " bytes do not go into one buffer", max);
	EXPECT_ERRNO(ENOMEM, limits_dm(dev, max + 1));
	most = limits_dm(dev, max);
	ASSERT_NE(NULL, most);
	EXPECT_ERRNO(ENOMEM, limits_dm(dev, 1));
	ASSERT_EQ(0, ibv_free_dm(most));

	most = limits_dm(dev, max - page);
	rest = limits_dm(dev, page);
	ASSERT_NE(NULL, most);
	ASSERT_NE(NULL, rest);
	EXPECT_ERRNO(ENOMEM, limits_dm(dev, 1));
	EXPECT_EQ(0, ibv_free_dm(rest));
	EXPECT_ERRNO(ENOMEM, limits_dm(dev, page + 1));
	EXPECT_EQ(0, ibv_free_dm(most));
}

TEST_HARNESS_MAIN
