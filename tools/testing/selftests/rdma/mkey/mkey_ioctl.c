// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Invalid ioctls: methods that do not exist, attributes that are unknown, missing,
 * duplicated or of the wrong size, handles of other objects, and pointers to unmapped memory.
 * Arrays of every length, that are unmapped in part. mkey_errors has the errors of layouts.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "mkey_harness.h"

FIXTURE(ioctl)
{
	struct mkt_commands c;
};

FIXTURE_SETUP(ioctl)
{
	MKT_OPEN_SIDE(&self->c.dev, 0);
	ASSERT_EQ(0, mkt_commands_setup(&self->c));
}

FIXTURE_TEARDOWN(ioctl)
{
	EXPECT_EQ(0, mkt_commands_teardown(&self->c));
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
				TH_LOG("command %u without attribute %u", what,
				       i);
			cmd = good;
			mkt_ioctl_add(&cmd, id, attr->len, attr->data);
			EXPECT_EQ(EINVAL, mkt_command_run(&self->c, &cmd))
				TH_LOG("command %u attribute %u twice", what,
				       i);
			/*
			 * a handle has no size; the other attributes are not
			 * that short
			 */
			cmd = good;
			attr->len = attr->len ? 3 : 4;
			EXPECT_EQ(EINVAL, mkt_command_run(&self->c, &cmd))
				TH_LOG("command %u attribute %u of %u bytes",
				       what, i, attr->len);
			/* a number does not grow, as a structure does */
			cmd = good;
			if (attr->len == 4 || attr->len == 8) {
				attr->len += 8;
				EXPECT_EQ(EINVAL, mkt_command_run(&self->c, &cmd))
					TH_LOG("command %u attribute %u of %u bytes",
					       what, i, attr->len);
			}
			cmd = good;
			attr->attr_data.reserved = 1;
			EXPECT_EQ(EINVAL, mkt_command_run(&self->c, &cmd))
				TH_LOG("command %u attribute %u reserved",
				       what, i);
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

/* the numbers of the methods; the others are free, for the provider and for later versions */
TEST_F(ioctl, methods)
{
	static const struct {
		uint16_t object;
		uint64_t used;
	} objects[] = {
		{ UVERBS_OBJECT_DEVICE, 1 << 6 },
		{ UVERBS_OBJECT_DM, 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 },
		{ UVERBS_OBJECT_MR, 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 },
	};
	struct mkt_ioctl cmd;
	unsigned int i, id;

	for (i = 0; i < ARRAY_SIZE(objects); i++) {
		for (id = 0; id < 64; id++) {
			mkt_ioctl_init(&cmd, objects[i].object,
				       (1u << UVERBS_ID_NS_SHIFT) + id);
			/* a method that exists lacks its mandatory attributes */
			EXPECT_EQ(objects[i].used >> id & 1 ? EINVAL : EPROTONOSUPPORT,
				  mkt_ioctl_run(self->c.dev.ctx, &cmd))
				TH_LOG("object %u method %u", objects[i].object, id);
		}
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
	for (what = DM_EXPORT; what <= DM_VIEW; what++) {
		mkt_command_build(&self->c, &cmd, what);
		cmd.attr[0].data = self->c.key->handle;
		EXPECT_EQ(EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	}
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
		{ DM_VIEW, IB_MKEY_ATTR_DM_VIEW_RESP_FD },
		{ DM_VIEW, IB_MKEY_ATTR_DM_VIEW_RESP_LENGTH },
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
				TH_LOG("command %u, pointer %u 0x%" PRIx64,
				       what, i, bad[k]);
			/* a descriptor that could not be reported is not open */
			EXPECT_EQ(-1, fcntl(self->c.first_fd, F_GETFD));
		}
	}
	/*
	 * a key whose handle could not be written to the process does not exist
	 */
	if (before >= 0) {
		EXPECT_EQ(before, mkt_dev_count(&self->c.dev, "mr"));
	}
}

/* gives @cmd the attribute @id, or changes it */
static void set_attr(struct mkt_ioctl *cmd, uint16_t id, uint16_t length,
		     const void *data)
{
	unsigned int i = 0;

	while (i < cmd->hdr.num_attrs && cmd->attr[i].attr_id != id)
		i++;
	if (i == cmd->hdr.num_attrs)
		mkt_ioctl_add(cmd, id, 0, 0);
	cmd->attr[i].len = length;
	cmd->attr[i].data = (uintptr_t)data;
}

/*
 * structures that the kernel reads: one that is shorter than that of the first version is
 * refused, and the bytes that the kernel does not know must be zero
 */
TEST_F(ioctl, later_version)
{
	const struct ib_uverbs_mkey_indexed wanted = { .index_bytes = 8 };
	const struct {
		enum mkt_what what;
		uint16_t attr, first, size;
		const void *known;
	} read[] = {
		{ BIND_LIST, IB_MKEY_ATTR_BIND_LAYOUT,
		  offsetof(struct ib_uverbs_mkey_bind, base_addr), sizeof(self->c.bind[0]),
		  &self->c.bind[0] },
		{ QUERY, IB_MKEY_ATTR_QUERY_INDEXED, sizeof(wanted), sizeof(wanted), &wanted },
	};
	uint8_t *bytes = self->c.bytes;
	struct mkt_ioctl cmd;
	unsigned int i;
	uint16_t length;

	for (i = 0; i < ARRAY_SIZE(read); i++) {
		for (length = 0; length <= read[i].size + 24; length++) {
			mkt_command_build(&self->c, &cmd, read[i].what);
			set_attr(&cmd, read[i].attr, length, bytes);
			memset(bytes, 0, read[i].size + 24);
			memcpy(bytes, read[i].known, read[i].size);
			/* the byte after the attribute does not matter */
			if (length >= read[i].first)
				bytes[length] = 1;
			EXPECT_EQ(length < read[i].first ? EINVAL : 0,
				  mkt_ioctl_run(self->c.dev.ctx, &cmd))
				TH_LOG("structure %u of %u bytes", i, length);
			if (length <= read[i].size)
				continue;
			bytes[length - 1] = 1;
			EXPECT_EQ(EOPNOTSUPP, mkt_ioctl_run(self->c.dev.ctx, &cmd))
				TH_LOG("structure %u of %u bytes", i, length);
		}
	}
}

/*
 * structures that the kernel fills in: the bytes of a longer one become zero, and one
 * that is shorter than that of the first version is refused
 */
TEST_F(ioctl, later_answers)
{
	static const struct {
		enum mkt_what what;
		uint16_t attr, first, size;
	} answers[] = {
		{ CAPS, IB_MKEY_ATTR_QUERY_CAPS_RESP,
		  offsetof(struct ib_uverbs_mkey_caps, max_indices),
		  sizeof(struct ib_uverbs_mkey_caps) },
		{ QUERY, IB_MKEY_ATTR_QUERY_RESP, sizeof(struct ib_uverbs_mkey_info),
		  sizeof(struct ib_uverbs_mkey_info) },
		{ QUERY, IB_MKEY_ATTR_QUERY_RESP_INDEXED,
		  sizeof(struct ib_uverbs_mkey_indexed),
		  sizeof(struct ib_uverbs_mkey_indexed) },
		{ QUERY, IB_MKEY_ATTR_QUERY_RESP_REFUSED,
		  sizeof(struct ib_uverbs_mkey_refused),
		  sizeof(struct ib_uverbs_mkey_refused) },
	};
	uint8_t whole[128], seen[128], expect[128];
	struct mkt_ioctl cmd;
	unsigned int i;
	uint16_t length;

	mkt_command_build(&self->c, &cmd, BIND_INDEXED);
	ASSERT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	for (i = 0; i < ARRAY_SIZE(answers); i++) {
		const uint16_t size = answers[i].size;

		mkt_command_build(&self->c, &cmd, answers[i].what);
		set_attr(&cmd, answers[i].attr, size, whole);
		ASSERT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		for (length = 0; length <= size + 24; length++) {
			bool valid = length >= answers[i].first;
			uint16_t known = length < size ? length : size;

			memset(seen, 0xff, sizeof(seen));
			memset(expect, 0xff, sizeof(expect));
			if (valid) {
				memset(expect, 0, length);
				memcpy(expect, whole, known);
			}
			set_attr(&cmd, answers[i].attr, length, seen);
			EXPECT_EQ(valid ? 0 : EINVAL, mkt_ioctl_run(self->c.dev.ctx, &cmd));
			EXPECT_EQ(0, memcmp(expect, seen, sizeof(seen)))
				TH_LOG("answer %u of %u bytes", i, length);
		}
	}
}

#define WHY(name) IB_UVERBS_MKEY_REASON_##name
#define NO_ENTRY IB_MKEY_NO_ENTRY

/* runs the command, which is refused for this reason. Each length of the answer is right. */
static bool is_refused(struct mkt_commands *c, struct mkt_ioctl *cmd, uint16_t attr,
		       const struct ib_uverbs_mkey_refused *expect)
{
	const unsigned int size = sizeof(*expect);
	uint8_t seen[64], wanted[64];
	unsigned int length;

	for (length = 0; length <= size + 24; length += length < size - 1 ? size - 1 : 1) {
		bool valid = length >= size;

		memset(seen, 0xff, sizeof(seen));
		memset(wanted, 0xff, sizeof(wanted));
		if (valid) {
			memset(wanted, 0, length);
			memcpy(wanted, expect, size);
		}
		set_attr(cmd, attr, length, seen);
		if (mkt_ioctl_run(c->dev.ctx, cmd) != (valid ? (int)expect->error : EINVAL) ||
		    memcmp(seen, wanted, sizeof(seen)))
			return false;
	}
	return true;
}

/* the answers of the methods, and none if a call succeeds; mkey_errors has all reasons */
TEST_F(ioctl, reasons)
{
	struct ib_uverbs_mkey_refused expect = {
		.error = EINVAL,
		.entry = NO_ENTRY,
		.reason = WHY(MAX_ENTRIES),
		.value = IB_MKEY_MAX_INDICES + 1,
	}, none;
	struct ib_uverbs_mkey_refused seen;
	struct mkt_ioctl cmd;

	mkt_command_build(&self->c, &cmd, CREATE);
	mkt_ioctl_attr(&cmd, IB_MKEY_ATTR_CREATE_MAX_ENTRIES)->data = expect.value;
	EXPECT_TRUE(is_refused(&self->c, &cmd, IB_MKEY_ATTR_CREATE_RESP_REFUSED, &expect));

	mkt_command_build(&self->c, &cmd, BIND_INTERLEAVED);
	self->c.block[1].bytes_count = 0;
	expect.reason = WHY(NO_BYTES);
	expect.entry = 1;
	expect.value = 0;
	EXPECT_TRUE(is_refused(&self->c, &cmd, IB_MKEY_ATTR_BIND_RESP_REFUSED, &expect));
	mkt_command_build(&self->c, &cmd, BIND_MANY);
	self->c.block[1].bytes_count = 0;
	EXPECT_TRUE(is_refused(&self->c, &cmd, IB_MKEY_ATTR_BIND_MANY_RESP_REFUSED, &expect));
	EXPECT_EQ(1, self->c.failed);
	self->c.block[1].bytes_count = 21;
	self->c.handles[2] = self->c.handles[0];
	expect.reason = WHY(TWICE);
	expect.entry = NO_ENTRY;
	EXPECT_TRUE(is_refused(&self->c, &cmd, IB_MKEY_ATTR_BIND_MANY_RESP_REFUSED, &expect));
	EXPECT_EQ(2, self->c.failed);

	memset(&seen, 0xff, sizeof(seen));
	memset(&none, 0xff, sizeof(none));
	mkt_command_build(&self->c, &cmd, BIND_LIST);
	set_attr(&cmd, IB_MKEY_ATTR_BIND_RESP_REFUSED, sizeof(seen), &seen);
	EXPECT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	EXPECT_EQ(0, memcmp(&none, &seen, sizeof(seen)));
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

/* the second of two indices is unmapped; indices of half the size need half the bytes */
TEST_F(ioctl, indices)
{
	uint64_t *edge = self->c.nowhere;
	static const enum mkt_what what[] = { BIND_INDEXED, BIND_MANY };
	struct mkt_ioctl cmd;
	unsigned int i;

	edge[-1] = 3;
	for (i = 0; i < ARRAY_SIZE(what); i++) {
		mkt_command_build(&self->c, &cmd, what[i]);
		self->c.indexed.num_indices = 2;
		self->c.indexed.indices = (uintptr_t)&edge[-1];
		self->c.indexed.index_bytes = 8;
		EXPECT_EQ(EFAULT, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		self->c.indexed.index_bytes = 4;
		EXPECT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	}
}

/* longer descriptions: in each of them, the bytes that the kernel does not know must be zero */
TEST_F(ioctl, later_version_many)
{
	static const uint32_t wrong[] = { 0, 1, 40, 47, 48, 49, 57, 64, 8192, UINT32_MAX };
	const size_t size = sizeof(self->c.bind[0]);
	size_t longer = size + 16;
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
	/* elements of the first version, which lack the base address */
	longer = offsetof(struct ib_uverbs_mkey_bind, base_addr);
	binds->len = 3 * longer;
	bind_size->data = longer;
	for (i = 0; i < 3; i++)
		memcpy(&self->c.bytes[i * longer], &self->c.bind[i], longer);
	EXPECT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
	/* the last element of a size that leaves the next ones unaligned */
	binds->len = 3 * (size + 1);
	bind_size->data = size + 1;
	memset(self->c.bytes, 0, sizeof(self->c.bytes));
	for (i = 0; i < 3; i++)
		memcpy(&self->c.bytes[i * (size + 1)], &self->c.bind[i], size);
	EXPECT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
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

TEST_HARNESS_MAIN
