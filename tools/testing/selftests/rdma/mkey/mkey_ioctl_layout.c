// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Descriptions of layouts, given to the ioctls directly: arrays of every length, that
 * are unmapped in part or in read-only memory, and fields of other kinds of layout.
 */
#include "commands.h"
#include "mkey_harness.h"

FIXTURE(ioctl_layout)
{
	struct mkt_commands c;
};

FIXTURE_SETUP(ioctl_layout)
{
	MKT_OPEN_SIDE(&self->c.dev, 0);
	ASSERT_EQ(0, mkt_commands_setup(&self->c));
}

FIXTURE_TEARDOWN(ioctl_layout)
{
	EXPECT_EQ(0, mkt_commands_teardown(&self->c));
}

TEST_F(ioctl_layout, entries)
{
	void *edge = self->c.nowhere - sizeof(self->c.sge[0]);
	struct mkt_ioctl cmd;

	/*
	 * more than the key has room for, which is found before they are read
	 */
	mkt_command_build(&self->c, &cmd, BIND_LIST);
	self->c.bind[0].num_entries = 5;
	EXPECT_EQ(ENOSPC, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	self->c.bind[0].num_entries = UINT32_MAX;
	EXPECT_EQ(ENOSPC, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	self->c.bind[0].num_entries = 0;
	EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	/* the second of two is unmapped */
	memcpy(edge, self->c.sge, sizeof(self->c.sge[0]));
	self->c.bind[0].num_entries = 2;
	self->c.bind[0].entries = (uintptr_t)edge;
	EXPECT_EQ(EFAULT, mkt_ioctl_run(self->c.dev.ctx, &cmd));

	mkt_command_build(&self->c, &cmd, BIND_INTERLEAVED);
	self->c.bind[1].num_entries = UINT32_MAX;
	EXPECT_EQ(ENOSPC, mkt_ioctl_run(self->c.dev.ctx, &cmd));

	/* lengths that only this interface can express */
	self->c.sge[1].length = 1ull << 32;
	mkt_command_build(&self->c, &cmd, BIND_LIST);
	EXPECT_EQ(ERANGE, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	self->c.sge[1].length = UINT64_MAX;
	EXPECT_EQ(EOVERFLOW, mkt_ioctl_run(self->c.dev.ctx, &cmd));
}

/* arrays of every length, up to several times the piece that is read at once */
TEST_F(ioctl_layout, long_lists)
{
	enum { MOST = 150, LEAVES = 3 };
	struct ib_uverbs_mkey_block found[MOST];
	struct ibv_mr *leaf[LEAVES], *key;
	struct ib_uverbs_mkey_bind bind;
	struct ib_uverbs_mkey_sge *sge;
	struct mkt_ioctl cmd;
	unsigned int num, i;

	key = ibmkey_alloc(self->c.dev.pd, MOST);
	ASSERT_NE(NULL, key);
	for (i = 0; i < LEAVES; i++) {
		leaf[i] = ibv_reg_mr(self->c.dev.pd, self->c.bytes,
				     sizeof(self->c.bytes), 0);
		ASSERT_NE(NULL, leaf[i]);
	}
	for (num = 1; num < MOST; num++) {
		sge = self->c.nowhere - num * sizeof(*sge);
		for (i = 0; i < num; i++)
			sge[i] = (struct ib_uverbs_mkey_sge){
				.addr = (uintptr_t)self->c.bytes + i * i % 4000,
				.length = 1 + num % 8 + i / 7,
				.lkey = leaf[i / 5 % LEAVES]->lkey,
			};
		bind = mkt_raw_list(0, sge, num);
		mkt_raw_bind(&cmd, key->handle, &bind);
		ASSERT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		/* a refused bind leaves the old binding */
		bind.num_entries = num + 1;
		ASSERT_EQ(EFAULT, mkt_ioctl_run(self->c.dev.ctx, &cmd));

		mkt_raw_query(&cmd, key->handle, &self->c.info);
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_BLOCKS, 8,
			      (uintptr_t)found);
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_NUM_BLOCKS, 4, MOST);
		ASSERT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		ASSERT_EQ(num, self->c.info.num_entries);
		for (i = 0; i < num; i++) {
			ASSERT_EQ(sge[i].addr, found[i].addr);
			ASSERT_EQ(sge[i].length, found[i].bytes_count);
			ASSERT_EQ(sge[i].lkey, found[i].lkey);
		}
		/* the last entry of the array is checked, too */
		sge[num - 1].length = sizeof(self->c.bytes) + 1;
		bind.num_entries = num;
		mkt_raw_bind(&cmd, key->handle, &bind);
		ASSERT_EQ(ERANGE, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	}
	EXPECT_EQ(0, ibv_dereg_mr(key));
	for (i = 0; i < LEAVES; i++)
		EXPECT_EQ(0, ibv_dereg_mr(leaf[i]));
}

TEST_F(ioctl_layout, indices)
{
	struct ib_uverbs_mkey_indexed *indexed = &self->c.indexed;
	uint64_t *edge = self->c.nowhere;
	struct mkt_ioctl cmd, many;

	mkt_command_build(&self->c, &cmd, BIND_INDEXED);
	mkt_command_build(&self->c, &many, BIND_MANY);
#define REFUSED(errno_value) do {					\
		EXPECT_EQ(errno_value, mkt_ioctl_run(self->c.dev.ctx, &cmd)); \
		EXPECT_EQ(errno_value, mkt_ioctl_run(self->c.dev.ctx, &many)); \
	} while (0)
	REFUSED(0);
	/*
	 * more than the key has room for, which is found before they are read
	 */
	indexed->indices = (uintptr_t)edge;
	indexed->num_indices = 5;
	REFUSED(ENOSPC);
	indexed->num_indices = UINT32_MAX;
	REFUSED(ENOSPC);
	indexed->num_indices = 0;
	REFUSED(EINVAL);
	/* the first, or the second of two, is unmapped */
	indexed->num_indices = 2;
	REFUSED(EFAULT);
	edge[-1] = 3;
	indexed->indices = (uintptr_t)&edge[-1];
	REFUSED(EFAULT);
	indexed->indices = UINT64_MAX - 3;
	REFUSED(EFAULT);
	/* indices of half the size need half the bytes, which are mapped */
	indexed->indices = (uintptr_t)&edge[-1];
	indexed->index_bytes = 4;
	REFUSED(0);
#undef REFUSED
}

/* longer descriptions: in each of them, the bytes that the kernel does not know must be zero */
TEST_F(ioctl_layout, later_version_many)
{
	static const uint32_t wrong[] = { 0, 1, 40, 47, 49, 64, 8192, UINT32_MAX };
	const size_t size = sizeof(self->c.bind[0]), longer = size + 16;
	struct ib_uverbs_attr *binds, *bind_size;
	struct mkt_ioctl cmd;
	unsigned int i, at;

	mkt_command_build(&self->c, &cmd, BIND_MANY);
	binds = mkt_ioctl_attr(&cmd, IB_MKEY_ATTR_BIND_MANY_BINDS);
	bind_size = mkt_ioctl_attr(&cmd, IB_MKEY_ATTR_BIND_MANY_BIND_SIZE);
	ASSERT_EQ(3 * size, binds->len);
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		bind_size->data = wrong[i];
		self->c.failed = 4711;
		EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd))
			TH_LOG("elements of %u bytes", wrong[i]);
		EXPECT_EQ(3, self->c.failed);
	}
	bind_size->data = size;
	binds->len += size;
	EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));

	binds->len = 3 * longer;
	binds->data = (uintptr_t)self->c.bytes;
	bind_size->data = longer;
	memset(self->c.bytes, 0, sizeof(self->c.bytes));
	for (i = 0; i < 3; i++)
		memcpy(&self->c.bytes[i * longer], &self->c.bind[i], size);
	EXPECT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	for (i = 0; i < 3; i++) {
		for (at = size; at < longer; at++) {
			uint8_t *unknown = &self->c.bytes[i * longer + at];

			*unknown = 1;
			EXPECT_EQ(EOPNOTSUPP,
				  mkt_ioctl_run(self->c.dev.ctx, &cmd));
			EXPECT_EQ(i, self->c.failed);
			*unknown = 0;
		}
	}
	/* the last element of a size that leaves the next ones unaligned */
	binds->len = 3 * (size + 1);
	bind_size->data = size + 1;
	memset(self->c.bytes, 0, sizeof(self->c.bytes));
	for (i = 0; i < 3; i++)
		memcpy(&self->c.bytes[i * (size + 1)], &self->c.bind[i], size);
	EXPECT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
}

TEST_F(ioctl_layout, query_indices)
{
	struct ib_uverbs_mkey_indexed wanted = { .index_bytes = 8 }, bound;
	uint64_t *edge = self->c.nowhere, seen[4];
	struct mkt_ioctl cmd, bind;
	unsigned int i;

	mkt_command_build(&self->c, &bind, BIND_INDEXED);
	ASSERT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &bind));
	mkt_command_build(&self->c, &cmd, QUERY);
	mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_INDEXED, sizeof(wanted),
		      (uintptr_t)&wanted);
	/* with neither room nor an attribute for the answer */
	ASSERT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	EXPECT_EQ(60, self->c.info.length);
	EXPECT_EQ(3, self->c.info.num_entries);
	EXPECT_EQ(IB_UVERBS_MKEY_INDEXED, self->c.info.kind);
	mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_RESP_INDEXED, sizeof(bound),
		      (uintptr_t)&bound);
	memset(seen, 0x5a, sizeof(seen));
	wanted.indices = (uintptr_t)seen;
	wanted.num_indices = 4;
	ASSERT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	EXPECT_EQ(0, memcmp(seen, self->c.indices, sizeof(self->c.indices)));
	EXPECT_EQ(0x5a5a5a5a5a5a5a5a, seen[3]);
	self->c.indexed.indices = 0;
	EXPECT_EQ(0, memcmp(&bound, &self->c.indexed, sizeof(bound)));
	/* there is room for a million, but three are written */
	wanted.num_indices = 1000000;
	wanted.indices = (uintptr_t)&edge[-3];
	EXPECT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	wanted.indices = (uintptr_t)&edge[-2];
	EXPECT_EQ(EFAULT, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	wanted.indices = (uintptr_t)seen;

	/* reserved fields must be zero, and indices have 64 bits */
	for (i = 0; i < sizeof(wanted) / 4; i++) {
		uint32_t *word = (uint32_t *)&wanted + i;
		bool free = i >= offsetof(struct ib_uverbs_mkey_indexed,
					  indices) / 4 &&
			    i <= offsetof(struct ib_uverbs_mkey_indexed,
					  num_indices) / 4;

		if (free)
			continue;
		*word ^= 1;
		EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		*word ^= 1;
	}
	mkt_ioctl_attr(&cmd, IB_MKEY_ATTR_QUERY_RESP_INDEXED)->data =
		(uintptr_t)self->c.nowhere;
	EXPECT_EQ(EFAULT, mkt_ioctl_run(self->c.dev.ctx, &cmd));
}

TEST_F(ioctl_layout, repetitions)
{
	uint64_t repeat[10] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
	static const uint32_t dims[] = { 0, 9, 10, 1u << 31, UINT32_MAX };
	struct mkt_ioctl cmd;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(dims); i++) {
		mkt_command_build(&self->c, &cmd, BIND_INTERLEAVED);
		self->c.bind[1].repeat_count = (uintptr_t)repeat;
		self->c.bind[1].num_dims = dims[i];
		EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd))
		{
			TH_LOG("%u dimensions", dims[i]);
		}
	}
}

TEST_F(ioctl_layout, query_arrays)
{
	struct ib_uverbs_mkey_block blocks[3];
	struct mkt_ioctl cmd;

	mkt_command_build(&self->c, &cmd, BIND_INTERLEAVED);
	ASSERT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	mkt_command_build(&self->c, &cmd, QUERY);
	mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_BLOCKS, 8, (uintptr_t)blocks);
	/* the number of blocks is missing */
	EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_NUM_BLOCKS, 4, 3);
	memset(blocks, 0x5a, sizeof(blocks));
	EXPECT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	EXPECT_EQ(0, memcmp(blocks, self->c.block, sizeof(self->c.block)));
	EXPECT_EQ(0x5a5a5a5a, blocks[2].lkey);
	mkt_ioctl_attr(&cmd, IB_MKEY_ATTR_QUERY_BLOCKS)->data =
		(uintptr_t)self->c.nowhere;
	EXPECT_EQ(EFAULT, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	/* the attribute claims room for a million, but two are written */
	mkt_ioctl_attr(&cmd, IB_MKEY_ATTR_QUERY_NUM_BLOCKS)->data = 1000000;
	mkt_ioctl_attr(&cmd, IB_MKEY_ATTR_QUERY_BLOCKS)->data =
		(uintptr_t)(self->c.nowhere - 2 * sizeof(blocks[0]));
	EXPECT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
}

TEST_HARNESS_MAIN
