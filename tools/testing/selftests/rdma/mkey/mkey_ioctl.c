// SPDX-License-Identifier: GPL-2.0
/*
 * Invalid ioctls: attributes that are unknown, missing, duplicated or of the
 * wrong size, handles of other objects, and pointers to unmapped memory.
 */
#include <fcntl.h>
#include <unistd.h>

#include "commands.h"
#include "mkey_harness.h"

FIXTURE(ioctl)
{
	struct mkt_commands c;
};

FIXTURE_SETUP(ioctl)
{
	if (mkt_dev_try_open(&self->c.dev, 0))
		SKIP(return, "no device %s", self->c.dev.name);
	if (!self->c.dev.extended)
		SKIP(return, "%s is not extended by ib_mkey",
		     self->c.dev.name);
	ASSERT_EQ(0, mkt_commands_setup(&self->c));
}

FIXTURE_TEARDOWN(ioctl)
{
	EXPECT_EQ(0, mkt_commands_teardown(&self->c));
}

TEST_F(ioctl, complete)
{
	struct mkt_ioctl cmd;
	unsigned int what;

	for (what = 0; what < NUM_COMMANDS; what++) {
		mkt_command_build(&self->c, &cmd, what);
		EXPECT_EQ(0, mkt_command_run(&self->c, &cmd))
		{
			TH_LOG("command %u", what);
		}
		if (what == QUERY) {
			EXPECT_EQ(6 * 41, self->c.info.length);
			EXPECT_EQ(0, self->c.info.comp_mask);
		}
	}
}

static bool may_be_left_out(enum mkt_what what, uint16_t id)
{
	return (what == DM_ALLOC && id == IB_MKEY_ATTR_DM_ALLOC_CLASS) ||
	       (what == BIND_MANY && id == IB_MKEY_ATTR_BIND_MANY_RESP_FAILED);
}

/* each attribute is removed, duplicated, and given another size */
TEST_F(ioctl, attributes)
{
	unsigned int what, i;

	for (what = 0; what < NUM_COMMANDS; what++) {
		struct mkt_ioctl good, cmd;

		mkt_command_build(&self->c, &good, what);
		for (i = 0; i < good.hdr.num_attrs; i++) {
			struct ib_uverbs_attr *attr = &cmd.attr[i];
			uint16_t id = good.attr[i].attr_id;

			cmd = good;
			mkt_ioctl_drop(&cmd, id);
			EXPECT_EQ(may_be_left_out(what, id) ? 0 : EINVAL,
				  mkt_command_run(&self->c, &cmd))
			{
				TH_LOG("command %u without attribute %u", what,
				       i);
			}
			cmd = good;
			mkt_ioctl_add(&cmd, id, attr->len, attr->data);
			EXPECT_EQ(EINVAL, mkt_command_run(&self->c, &cmd))
			{
				TH_LOG("command %u attribute %u twice", what,
				       i);
			}
			/*
			 * a handle has no size; the other attributes are not
			 * that short
			 */
			cmd = good;
			attr->len = attr->len ? 3 : 4;
			EXPECT_EQ(EINVAL, mkt_command_run(&self->c, &cmd))
			{
				TH_LOG("command %u attribute %u of %u bytes",
				       what, i, attr->len);
			}
			cmd = good;
			attr->attr_data.reserved = 1;
			EXPECT_EQ(EINVAL, mkt_command_run(&self->c, &cmd))
			{
				TH_LOG("command %u attribute %u reserved",
				       what, i);
			}
		}
		/*
		 * an attribute that does not exist matters only if it is
		 * mandatory
		 */
		cmd = good;
		mkt_ioctl_add(&cmd, IB_MKEY_ATTR_CREATE_HANDLE + 27, 8, 1);
		EXPECT_EQ(EPROTONOSUPPORT, mkt_command_run(&self->c, &cmd));
		cmd.attr[cmd.hdr.num_attrs - 1].flags = 0;
		EXPECT_EQ(0, mkt_command_run(&self->c, &cmd));
	}
}

TEST_F(ioctl, header)
{
	unsigned int what;

	for (what = 0; what < NUM_COMMANDS; what++) {
		struct mkt_ioctl good, cmd;

		mkt_command_build(&self->c, &good, what);
		cmd = good;
		cmd.hdr.method_id += 17;
		EXPECT_EQ(EPROTONOSUPPORT, mkt_command_run(&self->c, &cmd));
		/* an attribute of another driver */
		cmd = good;
		cmd.hdr.driver_id = RDMA_DRIVER_MLX5;
		EXPECT_EQ(EINVAL, mkt_command_run(&self->c, &cmd));
		cmd = good;
		cmd.hdr.reserved2 = 1;
		EXPECT_EQ(EPROTONOSUPPORT, mkt_command_run(&self->c, &cmd));
	}
}

TEST_F(ioctl, handles)
{
	struct ibv_mr *gone = ibmkey_alloc(self->c.dev.pd, 1);
	struct mkt_ioctl cmd;
	unsigned int what;
	uint32_t handle;

	ASSERT_NE(NULL, gone);
	handle = gone->handle;
	ASSERT_EQ(0, ibv_dereg_mr(gone));
	for (what = BIND_LIST; what <= UNBIND; what++) {
		mkt_command_build(&self->c, &cmd, what);
		/* the key is the first attribute of all methods */
		cmd.attr[0].data = 123456;
		EXPECT_EQ(ENOENT, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		cmd.attr[0].data = handle;
		EXPECT_EQ(ENOENT, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		cmd.attr[0].data = UINT64_MAX;
		EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		/* handles of MRs that are not keys */
		cmd.attr[0].data = self->c.arena.leaf[0].mr->handle;
		EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		cmd.attr[0].data = self->c.arena.leaf[2].mr->handle;
		EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		/* handles of objects that are not MRs */
		cmd.attr[0].data = self->c.dev.pd->handle;
		EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		cmd.attr[0].data = self->c.arena.mem[1].dm->handle;
		EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	}
	mkt_command_build(&self->c, &cmd, CREATE);
	mkt_ioctl_attr(&cmd, IB_MKEY_ATTR_CREATE_PD_HANDLE)->data =
		self->c.key->handle;
	EXPECT_EQ(EINVAL, mkt_command_run(&self->c, &cmd));
	mkt_command_build(&self->c, &cmd, DM_COPY);
	cmd.attr[0].data = self->c.key->handle;
	EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	cmd.attr[0].data = 123456;
	EXPECT_EQ(ENOENT, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	mkt_command_build(&self->c, &cmd, DM_EXPORT);
	cmd.attr[0].data = self->c.key->handle;
	EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
}

/* pointers to memory that is unmapped, completely or in part */
TEST_F(ioctl, pointers)
{
	const struct {
		enum mkt_what what;
		uint16_t attr;
	} pointers[] = {
		{ CREATE, IB_MKEY_ATTR_CREATE_RESP_LKEY },
		{ CREATE, IB_MKEY_ATTR_CREATE_RESP_RKEY },
		{ BIND_LIST, IB_MKEY_ATTR_BIND_LAYOUT },
		{ BIND_MANY, IB_MKEY_ATTR_BIND_MANY_HANDLES },
		{ BIND_MANY, IB_MKEY_ATTR_BIND_MANY_BINDS },
		{ QUERY, IB_MKEY_ATTR_QUERY_RESP },
		{ CAPS, IB_MKEY_ATTR_QUERY_CAPS_RESP },
		{ DM_COPY, IB_MKEY_ATTR_DM_COPY_ADDR },
		{ DM_EXPORT, IB_MKEY_ATTR_DM_EXPORT_RESP_FD },
	};
	const struct {
		enum mkt_what what;
		__u64 *field;
	} fields[] = {
		{ BIND_LIST, &self->c.bind[0].entries },
		{ BIND_INTERLEAVED, &self->c.bind[1].repeat_count },
		{ BIND_INTERLEAVED, &self->c.bind[1].entries },
		{ BIND_INDEXED, &self->c.bind[2].entries },
		{ BIND_MANY, &self->c.bind[2].entries },
	};
	int before = mkt_dev_count(&self->c.dev, "mr");
	unsigned int i, k;

	for (i = 0; i < ARRAY_SIZE(pointers) + ARRAY_SIZE(fields); i++) {
		const uint64_t bad[] = {
			(uintptr_t)self->c.nowhere, 0, UINT64_MAX - 4095,
			0xffff800000000000, 0x0000800000000000,
		};
		unsigned int f = i - ARRAY_SIZE(pointers);
		bool is_attr = i < ARRAY_SIZE(pointers);
		enum mkt_what what = is_attr ? pointers[i].what : fields[f].what;
		struct mkt_ioctl cmd;

		for (k = 0; k < ARRAY_SIZE(bad); k++) {
			mkt_command_build(&self->c, &cmd, what);
			if (is_attr)
				mkt_ioctl_attr(&cmd, pointers[i].attr)->data =
					bad[k];
			else
				*fields[f].field = bad[k];
			EXPECT_EQ(EFAULT, mkt_command_run(&self->c, &cmd))
			{
				TH_LOG("command %u, pointer %u 0x%" PRIx64,
				       what, i, bad[k]);
			}
		}
	}
	/*
	 * a key whose handle could not be written to the process does not exist
	 */
	if (before >= 0) {
		EXPECT_EQ(before, mkt_dev_count(&self->c.dev, "mr"));
	}
}

TEST_F(ioctl, entries)
{
	void *edge = self->c.nowhere - sizeof(self->c.sge[0]);
	struct mkt_ioctl cmd;
	unsigned int i;

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

	/* no field of a later version is known */
	self->c.sge[1].comp_mask = 1;
	mkt_command_build(&self->c, &cmd, BIND_LIST);
	EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	self->c.block[1].comp_mask = 0x80000000;
	mkt_command_build(&self->c, &cmd, BIND_INTERLEAVED);
	EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	self->c.block[1].comp_mask = 0;
	for (i = 2; i < IB_MKEY_MAX_DIMS; i++) {
		self->c.block[1].stride[i] = 1;
		EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		self->c.block[1].stride[i] = 0;
	}
	EXPECT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));

	/* lengths that only this interface can express */
	self->c.sge[1].comp_mask = 0;
	self->c.sge[1].length = 1ull << 32;
	mkt_command_build(&self->c, &cmd, BIND_LIST);
	EXPECT_EQ(ERANGE, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	self->c.sge[1].length = UINT64_MAX;
	EXPECT_EQ(EOVERFLOW, mkt_ioctl_run(self->c.dev.ctx, &cmd));
}

/* arrays of every length, up to several times the piece that is read at once */
TEST_F(ioctl, long_lists)
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

TEST_F(ioctl, indices)
{
	static const uint32_t sizes[] = { 0, 1, 2, 3, 5, 7, 9, 16, UINT32_MAX };
	struct ib_uverbs_mkey_indexed *indexed = &self->c.indexed;
	uint64_t *edge = self->c.nowhere;
	struct mkt_ioctl cmd, many;
	unsigned int i;

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
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		indexed->index_bytes = sizes[i];
		REFUSED(EINVAL);
	}
	indexed->index_bytes = 8;
	indexed->num_indices = 1;
	indexed->comp_mask = 1;
	REFUSED(EINVAL);
	indexed->comp_mask = 0;
	REFUSED(0);
#undef REFUSED
}

/*
 * Runs the bind of @what, and BIND_MANY with the same description. Returns what
 * both return, or -1 if they differ.
 */
static int bind_both(struct mkt_commands *c, unsigned int at)
{
	static const enum mkt_what whats[] = {
		BIND_LIST, BIND_INTERLEAVED, BIND_INDEXED,
	};
	struct ib_uverbs_mkey_bind bind = c->bind[at];
	struct mkt_ioctl one, many;
	int err;

	mkt_command_build(c, &one, whats[at]);
	mkt_command_build(c, &many, BIND_MANY);
	c->bind[at] = bind;
	err = mkt_ioctl_run(c->dev.ctx, &one);
	if (mkt_ioctl_run(c->dev.ctx, &many) != err)
		return -1;
	return err && c->failed != at ? -1 : err;
}

/* fields of one kind of layout must be zero for the others */
TEST_F(ioctl, kinds)
{
	static const uint32_t unknown[] = {
		IB_UVERBS_MKEY_UNBOUND, IB_UVERBS_MKEY_INDEXED + 1, UINT32_MAX,
	};
	struct ib_uverbs_mkey_bind good, *bind;
	struct mkt_ioctl cmd;
	unsigned int at, i;

	mkt_command_build(&self->c, &cmd, BIND_MANY);
	for (at = 0; at < ARRAY_SIZE(self->c.bind); at++) {
		bind = &self->c.bind[at];
		good = *bind;
#define REFUSED(errno_value, changed, value) do {			\
		*bind = good;						\
		(changed) = (value);					\
		EXPECT_EQ(errno_value, bind_both(&self->c, at));	\
	} while (0)
		for (i = 0; i < ARRAY_SIZE(unknown); i++)
			REFUSED(EINVAL, bind->kind, unknown[i]);
		/* a description of another kind has entries of another size */
		for (i = 1; i < 3; i++)
			REFUSED(EINVAL, bind->kind, 1 + (at + i) % 3);
		REFUSED(EINVAL, bind->entry_size, 0);
		REFUSED(EINVAL, bind->entry_size, good.entry_size - 8);
		REFUSED(EINVAL, bind->entry_size, good.entry_size + 8);
		REFUSED(EINVAL, bind->comp_mask, 1);
		REFUSED(EINVAL, bind->comp_mask, 1u << 31);
		REFUSED(EINVAL, bind->access, 1u << 31);
		REFUSED(EINVAL, bind->access, IBV_ACCESS_REMOTE_WRITE);
		REFUSED(EINVAL, bind->num_entries, 0);
		if (good.kind != IB_UVERBS_MKEY_INTERLEAVED) {
			REFUSED(EINVAL, bind->num_dims, 1);
			REFUSED(EINVAL, bind->repeat_count,
				(uintptr_t)self->c.repeat);
		}
		if (good.kind == IB_UVERBS_MKEY_INDEXED)
			REFUSED(EINVAL, bind->num_entries, 2);
#undef REFUSED
		*bind = good;
		EXPECT_EQ(0, bind_both(&self->c, at));
	}
}

/* a longer description: the bytes that the kernel does not know must be zero */
TEST_F(ioctl, later_version)
{
	const size_t size = sizeof(self->c.bind[0]);
	struct mkt_ioctl cmd;

	mkt_command_build(&self->c, &cmd, BIND_LIST);
	mkt_ioctl_attr(&cmd, IB_MKEY_ATTR_BIND_LAYOUT)->len += 8;
	mkt_ioctl_attr(&cmd, IB_MKEY_ATTR_BIND_LAYOUT)->data =
		(uintptr_t)self->c.bytes;
	memset(self->c.bytes, 0, sizeof(self->c.bytes));
	memcpy(self->c.bytes, &self->c.bind[0], size);
	EXPECT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	self->c.bytes[size] = 1;
	EXPECT_EQ(EOPNOTSUPP, mkt_ioctl_run(self->c.dev.ctx, &cmd));
}

TEST_F(ioctl, query_indices)
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

TEST_F(ioctl, repetitions)
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

TEST_F(ioctl, query_arrays)
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

TEST_F(ioctl, copy_direction)
{
	static const uint64_t bad[] = { 2, 100, UINT32_MAX, UINT64_MAX };
	struct mkt_ioctl cmd;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		mkt_command_build(&self->c, &cmd, DM_COPY);
		mkt_ioctl_attr(&cmd, IB_MKEY_ATTR_DM_COPY_DIR)->data = bad[i];
		EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	}
}

/* a descriptor whose number could not be written to the process is not open */
TEST_F(ioctl, export_unreported)
{
	struct mkt_ioctl cmd;

	mkt_command_build(&self->c, &cmd, DM_EXPORT);
	mkt_ioctl_attr(&cmd, IB_MKEY_ATTR_DM_EXPORT_RESP_FD)->data =
		(uintptr_t)self->c.nowhere;
	EXPECT_EQ(EFAULT, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	EXPECT_EQ(-1, fcntl(self->c.first_fd, F_GETFD));
	mkt_command_build(&self->c, &cmd, DM_EXPORT);
	ASSERT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	EXPECT_EQ(self->c.first_fd, self->c.exported);
	EXPECT_EQ(FD_CLOEXEC, fcntl(self->c.exported, F_GETFD));
	close(self->c.exported);
}

TEST_HARNESS_MAIN
