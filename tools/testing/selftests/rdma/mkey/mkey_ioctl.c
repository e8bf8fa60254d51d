// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Invalid ioctls: methods that do not exist, attributes that are unknown, missing,
 * duplicated or of the wrong size, handles of other objects, and pointers to unmapped memory.
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
			/* a number does not grow, as a structure does */
			cmd = good;
			if (attr->len == 4 || attr->len == 8) {
				attr->len += 8;
				EXPECT_EQ(EINVAL, mkt_command_run(&self->c, &cmd))
				{
					TH_LOG("command %u attribute %u of %u bytes",
					       what, i, attr->len);
				}
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

/* the numbers of the methods; the others are free, for the provider and for later versions */
TEST_F(ioctl, methods)
{
	static const struct {
		uint16_t object;
		uint64_t used;
	} objects[] = {
		{ UVERBS_OBJECT_DEVICE, 1 << 6 },
		{ UVERBS_OBJECT_DM, 1 << 3 | 1 << 4 | 1 << 5 },
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
			{
				TH_LOG("object %u method %u", objects[i].object, id);
			}
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
 * structures that the kernel reads: a shorter one is refused, and the bytes that the
 * kernel does not know must be zero
 */
TEST_F(ioctl, later_version)
{
	const struct ib_uverbs_mkey_indexed wanted = { .index_bytes = 8 };
	const struct {
		enum mkt_what what;
		uint16_t attr, size;
		const void *known;
	} read[] = {
		{ BIND_LIST, IB_MKEY_ATTR_BIND_LAYOUT, sizeof(self->c.bind[0]),
		  &self->c.bind[0] },
		{ QUERY, IB_MKEY_ATTR_QUERY_INDEXED, sizeof(wanted), &wanted },
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
			if (length >= read[i].size)
				bytes[length] = 1;
			EXPECT_EQ(length < read[i].size ? EINVAL : 0,
				  mkt_ioctl_run(self->c.dev.ctx, &cmd))
			{
				TH_LOG("structure %u of %u bytes", i, length);
			}
			if (length <= read[i].size)
				continue;
			bytes[length - 1] = 1;
			EXPECT_EQ(EOPNOTSUPP, mkt_ioctl_run(self->c.dev.ctx, &cmd))
			{
				TH_LOG("structure %u of %u bytes", i, length);
			}
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
			{
				TH_LOG("answer %u of %u bytes", i, length);
			}
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

/* a descriptor whose number could not be written to the process is not open */
TEST_F(ioctl, files_unreported)
{
	static const struct {
		enum mkt_what what;
		uint16_t attr;
	} files[] = {
		{ DM_EXPORT, IB_MKEY_ATTR_DM_EXPORT_RESP_FD },
		{ DM_VIEW, IB_MKEY_ATTR_DM_VIEW_RESP_FD },
		{ DM_VIEW, IB_MKEY_ATTR_DM_VIEW_RESP_LENGTH },
	};
	struct mkt_ioctl cmd;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
		mkt_command_build(&self->c, &cmd, files[i].what);
		mkt_ioctl_attr(&cmd, files[i].attr)->data =
			(uintptr_t)self->c.nowhere;
		EXPECT_EQ(EFAULT, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		EXPECT_EQ(-1, fcntl(self->c.first_fd, F_GETFD));
		mkt_command_build(&self->c, &cmd, files[i].what);
		ASSERT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		EXPECT_EQ(self->c.first_fd, self->c.exported);
		EXPECT_EQ(FD_CLOEXEC, fcntl(self->c.exported, F_GETFD));
		close(self->c.exported);
	}
}

TEST_HARNESS_MAIN
