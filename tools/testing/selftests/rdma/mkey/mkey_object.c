// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A key as an object: created, bound, queried, bound again, unbound and destroyed, and
 * the effect on the MRs that it refers to. What a program can find out: the limits of a device, the
 * layout of a key, and why the last bind failed. No traffic.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "mkey_harness.h"
#include "raw.h"

FIXTURE(object)
{
	struct mkt_dev dev;
	struct mkt_arena arena;
	struct mkt_rng rng;
	struct ibv_mr *key;
};

FIXTURE_SETUP(object)
{
	MKT_OPEN_SIDE(&self->dev, 1);
	mkt_rng_init(&self->rng, _metadata->name);
	ASSERT_EQ(0, mkt_arena_standard(&self->arena, &self->dev, 64 * 1024,
					32 * 1024));
	self->key = ibmkey_alloc(self->dev.pd, 64);
	ASSERT_NE(NULL, self->key);
}

FIXTURE_TEARDOWN(object)
{
	if (self->key) {
		EXPECT_EQ(0, ibv_dereg_mr(self->key));
	}
	EXPECT_EQ(0, mkt_arena_free(&self->arena));
	mkt_dev_close(&self->dev);
}

/* binds one range in leaf @leaf */
static int object_bind_one(struct mkt_arena *arena, struct ibv_mr *key, unsigned int leaf,
			   uint32_t length)
{
	return mkt_bind_range(key, MKT_ACCESS_ALL, arena->leaf[leaf].mr, arena->leaf[leaf].addr,
			      length);
}

/*
 * The other tests skip a device that is not extended. If ib_mkey was loaded in
 * time, that means that its self-test failed, so this test fails.
 */
TEST(extended)
{
	struct mkt_dev dev[2];
	unsigned int i;

	MKT_OPEN(dev);
	if (access("/sys/module/ib_mkey", F_OK))
		SKIP(return, "ib_mkey is not loaded");
	for (i = 0; i < 2; i++) {
		EXPECT_TRUE(dev[i].extended)
			TH_LOG("%s is not", dev[i].name);
		mkt_dev_close(&dev[i]);
	}
}

static void object_is_unbound(struct __test_metadata *_metadata, struct ibv_mr *key)
{
	struct ibmkey_info info;

	ASSERT_EQ(0, ibmkey_query(key, &info));
	EXPECT_EQ(IBMKEY_UNBOUND, info.kind);
	EXPECT_EQ(0, info.length);
	EXPECT_EQ(0, info.access);
	EXPECT_EQ(64, info.max_entries);
	EXPECT_EQ(0, info.num_entries);
	EXPECT_EQ(0, info.num_dims);
	EXPECT_EQ(key->lkey, info.lkey);
	EXPECT_EQ(key->rkey, info.rkey);
	EXPECT_EQ(0, key->length);
}

/* at first, after an unbind that changes nothing, and after one of a bound key */
TEST_F(object, unbound)
{
	struct ibmkey_info info;

	object_is_unbound(_metadata, self->key);
	EXPECT_EQ(0, ibmkey_unbind(self->key));
	object_is_unbound(_metadata, self->key);
	ASSERT_EQ(0, object_bind_one(&self->arena, self->key, 0, 100));
	ASSERT_EQ(0, ibmkey_unbind(self->key));
	object_is_unbound(_metadata, self->key);
	ASSERT_EQ(0, object_bind_one(&self->arena, self->key, 0, 200));
	ASSERT_EQ(0, ibmkey_query(self->key, &info));
	EXPECT_EQ(200, info.length);
}

TEST_F(object, max_entries)
{
	struct ibmkey_info info;
	struct ibv_mr *key;
	uint32_t max;

	max = self->dev.caps.max_indices;
	key = ibmkey_alloc(self->dev.pd, max);
	ASSERT_NE(NULL, key);
	ASSERT_EQ(0, ibmkey_query(key, &info));
	EXPECT_EQ(max, info.max_entries);
	ASSERT_EQ(0, ibv_dereg_mr(key));

	EXPECT_ERRNO(EINVAL, ibmkey_alloc(self->dev.pd, 0));
	EXPECT_ERRNO(EINVAL, ibmkey_alloc(self->dev.pd, max + 1));
	EXPECT_ERRNO(EINVAL, ibmkey_alloc(self->dev.pd, UINT32_MAX));
}

TEST_F(object, pd_stays)
{
	struct ibv_pd *pd = ibv_alloc_pd(self->dev.ctx);
	struct ibv_mr *key;

	ASSERT_NE(NULL, pd);
	key = ibmkey_alloc(pd, 1);
	ASSERT_NE(NULL, key);
	EXPECT_EQ(EBUSY, ibv_dealloc_pd(pd));
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

TEST_F(object, caps)
{
	struct ib_uverbs_mkey_caps raw;
	struct ibv_device_attr_ex attr;
	struct mkt_ioctl cmd;
	uint32_t max_indices = self->dev.caps.max_indices;

	mkt_raw_caps(&cmd, &raw);
	ASSERT_EQ(0, mkt_ioctl_run(self->dev.ctx, &cmd));
	EXPECT_EQ(raw.max_dm_size, self->dev.caps.max_dm_size);
	EXPECT_EQ(raw.flags, self->dev.caps.flags);
	EXPECT_EQ(raw.max_entries, self->dev.caps.max_entries);
	EXPECT_EQ(raw.max_dims, self->dev.caps.max_dims);
	EXPECT_EQ(raw.max_depth, self->dev.caps.max_depth);
	EXPECT_EQ(raw.dm_classes, self->dev.caps.dm_classes);
	EXPECT_EQ(raw.max_indices, max_indices);
	EXPECT_EQ(0, raw.comp_mask);
	EXPECT_TRUE(raw.flags & IB_UVERBS_MKEY_CAP_DM);
	EXPECT_TRUE(raw.flags & IB_UVERBS_MKEY_CAP_LIST);
	EXPECT_TRUE(raw.flags & IB_UVERBS_MKEY_CAP_INTERLEAVED);
	EXPECT_TRUE(raw.flags & IB_UVERBS_MKEY_CAP_ATOMIC);
	EXPECT_TRUE(raw.flags & IB_UVERBS_MKEY_CAP_INDEXED);
	EXPECT_LE(raw.max_entries, max_indices);
	EXPECT_GE(IB_MKEY_MAX_INDICES, max_indices);
	EXPECT_TRUE(raw.dm_classes & IB_UVERBS_MKEY_DM_HOST);
	EXPECT_LT(0, raw.max_entries);
	EXPECT_GE(IB_MKEY_MAX_ENTRIES, raw.max_entries);
	EXPECT_LT(0, raw.max_dims);
	EXPECT_GE(IB_MKEY_MAX_DIMS, raw.max_dims);
	EXPECT_LT(0, raw.max_depth);
	EXPECT_GE(8, raw.max_depth);

	/* the standard verb reports the same device memory */
	ASSERT_EQ(0, ibv_query_device_ex(self->dev.ctx, NULL, &attr));
	EXPECT_EQ(raw.max_dm_size, attr.max_dm_size);
	EXPECT_LE(1 << 20, attr.max_dm_size);
}

/* what a caller has that a library of a later version fills in */
struct later_caps {
	struct ibmkey_caps known;
	uint64_t later[2];
};

/* the bits of fields that the function does not know are cleared, and other bytes stay */
TEST_F(object, caps_comp_mask)
{
	struct later_caps caps[2];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		memset(&caps[i], i ? 0xff : 0, sizeof(caps[i]));
		ASSERT_EQ(0, ibmkey_query_caps(self->dev.ctx, &caps[i].known));
		EXPECT_EQ(0, caps[i].known.comp_mask);
		EXPECT_EQ(i ? UINT64_MAX : 0, caps[i].later[0]);
		EXPECT_EQ(i ? UINT64_MAX : 0, caps[i].later[1]);
	}
	/* each field is filled in */
	EXPECT_EQ(0, memcmp(&caps[0], &caps[1],
			    offsetof(struct ibmkey_caps, max_indices) +
			    sizeof(caps[0].known.max_indices)));
}

struct later_info {
	struct ibmkey_info known;
	uint64_t later[2];
};

/* queries a key by each function; one fills in an indexed layout only if it is bound */
TEST_F(object, info_comp_mask)
{
	struct mkt_leaf *leaf = &self->arena.leaf[0];
	const uint32_t index[] = { 1, 0 };
	const struct ibmkey_indexed bound = {
		.addr = leaf->addr, .unit = 8, .bytes_count = 8,
		.indices = (uintptr_t)index, .index_bytes = 4, .num_indices = 2,
		.lkey = leaf->mr->lkey,
	};
	struct later_info info[3][2];
	struct ibmkey_indexed layout;
	unsigned int k, f, i;

	for (k = IBMKEY_UNBOUND; k <= IBMKEY_INDEXED; k++) {
		if (k == IBMKEY_LIST)
			ASSERT_EQ(0, object_bind_one(&self->arena, self->key, 0, 100));
		if (k == IBMKEY_INDEXED)
			ASSERT_EQ(0, ibmkey_bind_indexed(self->key, 0, &bound));
		for (i = 0; i < 2; i++) {
			memset(&layout, i ? 0xff : 0, sizeof(layout));
			for (f = 0; f < 3; f++)
				memset(&info[f][i], i ? 0xff : 0, sizeof(info[f][i]));
			ASSERT_EQ(0, ibmkey_query(self->key, &info[0][i].known));
			ASSERT_EQ(0, ibmkey_query_layout(self->key, &info[1][i].known, 0, NULL,
							 0, NULL));
			ASSERT_EQ(0, ibmkey_query_indexed(self->key, &info[2][i].known, &layout,
							  0, NULL));
			for (f = 0; f < 3; f++) {
				EXPECT_EQ(0, info[f][i].known.comp_mask);
				EXPECT_EQ(i ? UINT64_MAX : 0, info[f][i].later[0]);
				EXPECT_EQ(i ? UINT64_MAX : 0, info[f][i].later[1]);
				/* each field is filled in */
				EXPECT_EQ(0, memcmp(&info[0][0], &info[f][i],
						    offsetof(struct ibmkey_info, rkey) +
						    sizeof(info[f][i].known.rkey)));
			}
			EXPECT_EQ(k == IBMKEY_INDEXED || !i ? 0 : UINT32_MAX, layout.comp_mask);
			EXPECT_EQ(k == IBMKEY_INDEXED ? 8 : i ? UINT64_MAX : 0, layout.unit);
		}
	}
}

/*
 * The sentences of calls that fail. mkey_errors has all reasons of the kernel, with the entry and
 * the value, and the tests of libibmkey the sentence of each.
 */
TEST_F(object, last_error)
{
	struct mkt_leaf *leaf = &self->arena.leaf[0];
	struct ibmkey_range range[3] = {};
	struct ibmkey_bind bind = { .kind = IBMKEY_LIST, .num_entries = 3, .ranges = range };
	struct ibv_mr *key = ibmkey_alloc(self->dev.pd, 3);
	struct ibv_dm *dm;
	uint8_t *hole = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned int i;
	int fd;

	ASSERT_NE(NULL, key);
	bind.mkey = key;
	for (i = 0; i < 3; i++) {
		range[i].addr = leaf->addr;
		range[i].length = 8;
		range[i].lkey = leaf->mr->lkey;
	}
#define SAYS(words, errno_value, call) do {				\
		EXPECT_EQ(errno_value, call);				\
		EXPECT_NE(NULL, strstr(ibmkey_last_error(), words))	\
		{							\
			TH_LOG("%s: not %s", ibmkey_last_error(), words); \
		}							\
	} while (0)
	EXPECT_STREQ("", ibmkey_last_error());
	range[2].lkey ^= 0xff;
	SAYS("binds[0]: ranges[2].lkey 0x", ENOENT, ibmkey_bind_many(&bind, 1, NULL));
	range[2].lkey = leaf->mr->lkey;
	SAYS("mkey is not a key", EINVAL, ibmkey_unbind(leaf->mr));
	SAYS("info is NULL", EFAULT, ibmkey_query(key, NULL));
	/* the elements of the range in which memory is not there */
	ASSERT_NE(MAP_FAILED, hole);
	ASSERT_EQ(0, munmap(hole + 4096, 4096));
	SAYS("iov[0] to iov[2], 8200 bytes from 0x", EFAULT,
	     ibmkey_reg_iov(self->dev.pd, (struct iovec[]){
			{ hole, 64 }, { hole + 4096, 8 }, { hole + 8192, 8 },
	     }, 3, IBV_ACCESS_LOCAL_WRITE) ? 0 : errno);
	SAYS("iov[0] to iov[0], 70368744177664 bytes", EINVAL,
	     ibmkey_reg_iov(self->dev.pd, (struct iovec[]){
			{ hole, 1ull << 46 },
	     }, 1, 0) ? 0 : errno);
	EXPECT_EQ(0, munmap(hole, 3 * 4096));
	dm = mkt_dm_alloc(&self->dev, 4096, 0, 0);
	ASSERT_NE(NULL, dm);
	ASSERT_EQ(0, ibmkey_export_dm(dm, &fd));
	SAYS("the device refuses a length, an address", EINVAL,
	     ibmkey_reg_dmabuf_mr(self->dev.pd, 0, 64, 7, fd, 0) ? 0 : errno);
	SAYS("the device refuses a length, an address", EINVAL,
	     ibmkey_reg_dmabuf_mr(self->dev.pd, 4096, 64, 0, fd, 0) ? 0 : errno);
	SAYS("the object is of another kind", EINVAL,
	     ibmkey_reg_dmabuf_mr(self->dev.pd, 0, 64, 0, self->dev.ctx->cmd_fd, 0) ?
	     0 : errno);
	EXPECT_EQ(0, close(fd));
	EXPECT_EQ(0, ibv_free_dm(dm));
	/* a bind that works leaves the sentence */
	EXPECT_EQ(0, ibmkey_bind_list(key, 0, 3, range));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "the object is of another kind"));
#undef SAYS
	EXPECT_EQ(0, ibv_dereg_mr(key));
}

/* parent and child of a fork() have the same keys */
TEST_F(object, child)
{
	struct ibv_mr *key = ibmkey_alloc(self->dev.pd, 1);
	struct ibmkey_info info = {};

	ASSERT_NE(NULL, key);
	ASSERT_EQ(0, MKT_IN_CHILD(object_bind_one(&self->arena, key, 0, 8)));
	ASSERT_EQ(0, ibmkey_query(key, &info));
	EXPECT_EQ(8, info.length);
	ASSERT_EQ(0, MKT_IN_CHILD(ibv_dereg_mr(key)));
	EXPECT_EQ(ENOENT, ibmkey_query(key, &info));
	EXPECT_EQ(ENOENT, object_bind_one(&self->arena, key, 0, 8));
	EXPECT_EQ(ENOENT, ibv_dereg_mr(key));
}

/* a query returns the description that was bound, as much of it as there is room for */
TEST_F(object, query)
{
	unsigned int i, b, d, room, dims, rounds = mkt_scale(300, 40);
	struct mkt_draw draw = {
		.max_length = 30000,
		.max_block = 8000,
		.max_blocks = 64,
		.max_dims = self->dev.caps.max_dims,
	};

	for (i = 0; i < rounds; i++) {
		struct ibmkey_block blocks[65];
		uint64_t repeat[IBMKEY_MAX_DIMS];
		struct mkt_layout layout;
		struct ibmkey_info info;
		struct mkt_map map;
		enum mkt_kind kind;

		kind = mkt_between(&self->rng, 0, draw.max_dims > 1 ?
				   MKT_GENERAL : MKT_INTERLEAVED);
		ASSERT_EQ(0, mkt_draw_layout(&layout, &self->rng, &self->arena,
					     kind, &draw));
		ASSERT_EQ(0, mkt_layout_map(&self->arena, &layout, &map));
		ASSERT_EQ(0, mkt_layout_bind(self->key, &self->arena, &layout,
					     IBV_ACCESS_REMOTE_READ));
		memset(blocks, 0x5a, sizeof(blocks));
		memset(repeat, 0x5a, sizeof(repeat));
		room = mkt_between(&self->rng, 0, 64);
		dims = mkt_between(&self->rng, 0, IBMKEY_MAX_DIMS);
		ASSERT_EQ(0, ibmkey_query_layout(self->key, &info, dims, repeat, room, blocks));
		EXPECT_EQ(kind == MKT_LIST ? IBMKEY_LIST :
			  kind == MKT_INDEXED ? IBMKEY_INDEXED :
			  IBMKEY_INTERLEAVED, info.kind);
		EXPECT_EQ(map.length, info.length);
		EXPECT_EQ(map.length, self->key->length);
		EXPECT_EQ(IBV_ACCESS_REMOTE_READ,
			  info.access & ~IBV_ACCESS_ZERO_BASED);
		EXPECT_EQ(64, info.max_entries);
		EXPECT_EQ(layout.num_dims, info.num_dims);
		ASSERT_EQ(layout.num_blocks, info.num_entries);
		for (d = 0; d < layout.num_dims && d < dims; d++) {
			ASSERT_EQ(layout.repeat[d], repeat[d]);
		}
		EXPECT_TRUE(d == IBMKEY_MAX_DIMS || repeat[d] == 0x5a5a5a5a5a5a5a5a);
		/* an indexed layout has no blocks there */
		for (b = 0; b < layout.num_blocks && b < room && !layout.index_bytes; b++) {
			struct mkt_block *block = &layout.block[b];
			struct mkt_leaf *leaf;

			leaf = &self->arena.leaf[block->leaf];
			ASSERT_EQ(leaf->addr + block->offset, blocks[b].addr);
			ASSERT_EQ(block->bytes, blocks[b].bytes_count);
			ASSERT_EQ(leaf->mr->lkey, blocks[b].lkey);
			for (d = 0; d < layout.num_dims; d++) {
				ASSERT_EQ(block->stride[d],
					  blocks[b].stride[d]);
			}
		}
		/* and not one block more */
		EXPECT_EQ(0x5a5a5a5a5a5a5a5a, blocks[b].addr);
		mkt_map_free(&map);
		mkt_layout_free(&layout);
	}
}

/* a query returns the indices of either size, as many as there is room for */
TEST_F(object, query_indexed)
{
	unsigned int i, k, rounds = mkt_scale(100, 20);
	struct mkt_draw draw = {
		.max_length = 30000,
		.max_block = 8000,
		.max_blocks = 64,
	};

	for (i = 0; i < rounds; i++) {
		struct ibmkey_indexed indexed;
		struct mkt_layout layout;
		struct ibmkey_info info;
		struct mkt_leaf *leaf;
		uint64_t indices[65];
		unsigned int room;

		ASSERT_EQ(0, mkt_draw_layout(&layout, &self->rng, &self->arena,
					     MKT_INDEXED, &draw));
		ASSERT_EQ(0, mkt_layout_bind(self->key, &self->arena, &layout,
					     IBV_ACCESS_REMOTE_READ));
		leaf = &self->arena.leaf[layout.block[0].leaf];
		room = mkt_between(&self->rng, 0, 65);
		memset(indices, 0x5a, sizeof(indices));
		memset(&indexed, 0x5a, sizeof(indexed));
		ASSERT_EQ(0, ibmkey_query_indexed(self->key, &info, &indexed,
						  room, indices));
		EXPECT_EQ(IBMKEY_INDEXED, info.kind);
		EXPECT_EQ(layout.num_blocks, info.num_entries);
		EXPECT_EQ(layout.num_blocks * layout.block[0].bytes,
			  info.length);
		EXPECT_EQ(0, info.num_dims);
		EXPECT_EQ(leaf->addr + layout.base, indexed.addr);
		EXPECT_EQ(layout.unit, indexed.unit);
		EXPECT_EQ(layout.block[0].bytes, indexed.bytes_count);
		EXPECT_EQ(layout.num_blocks, indexed.num_indices);
		EXPECT_EQ(leaf->mr->lkey, indexed.lkey);
		EXPECT_EQ(0, indexed.indices);
		for (k = 0; k < layout.num_blocks && k < room; k++) {
			ASSERT_EQ(layout.block[k].offset,
				  layout.base + indices[k] * layout.unit);
		}
		EXPECT_EQ(0x5a5a5a5a5a5a5a5a, indices[k]);
		mkt_layout_free(&layout);
	}

	/* other layouts have no indices */
	ASSERT_EQ(0, object_bind_one(&self->arena, self->key, 0, 100));
	for (k = 0; k < 2; k++) {
		struct ibmkey_indexed indexed = { .unit = 4711 };
		struct ibmkey_info info;
		uint64_t index = 4711;

		ASSERT_EQ(0, ibmkey_query_indexed(self->key, &info, &indexed, 1,
						  &index));
		EXPECT_EQ(k ? IBMKEY_UNBOUND : IBMKEY_LIST, info.kind);
		EXPECT_EQ(4711, indexed.unit);
		EXPECT_EQ(4711, index);
		ASSERT_EQ(0, ibmkey_unbind(self->key));
	}
}

TEST_HARNESS_MAIN
