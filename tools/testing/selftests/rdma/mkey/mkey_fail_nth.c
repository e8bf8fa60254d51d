// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Runs every command with its first allocation or user copy failing, then with its
 * second, and so on until it succeeds. A command that fails changes nothing. Needs a kernel with
 * fault injection; kmemleak finds leaks.
 * needs: faults
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fail.h"

static int fail_create(FIXTURE_DATA(fail_nth) *self)
{
	mkt_command_build(&self->c, &self->cmd, CREATE);
	return 0;
}

static int fail_created(FIXTURE_DATA(fail_nth) *self, int err)
{
	struct mkt_ioctl cmd;

	if (err)
		return 0;
	mkt_raw_mr_destroy(&cmd, self->cmd.attr[0].data);
	return mkt_ioctl_run(self->c.dev.ctx, &cmd);
}

TEST_F(fail_nth, create)
{
	static const struct fail_op op = {
		fail_create, fail_run_command, fail_created,
	};
	int before = mkt_dev_count(&self->c.dev, "mr");

	EXPECT_LT(0, fail_sweep(self, &op));
	if (before >= 0) {
		EXPECT_EQ(before, mkt_dev_count(&self->c.dev, "mr"));
	}
}

/* the key was bound to another kind of layout, which stays if this fails */
static int fail_list(FIXTURE_DATA(fail_nth) *self)
{
	mkt_command_build(&self->c, &self->cmd, BIND_LIST);
	return fail_command(self, BIND_INTERLEAVED);
}

static int fail_list_bound(FIXTURE_DATA(fail_nth) *self, int err)
{
	int seen = fail_command(self, QUERY);

	return seen ?: self->c.info.kind == (err ? IB_UVERBS_MKEY_INTERLEAVED :
					     IB_UVERBS_MKEY_LIST) ? 0 : EBADMSG;
}

TEST_F(fail_nth, bind_list)
{
	static const struct fail_op op = {
		fail_list, fail_run_command, fail_list_bound,
	};

	EXPECT_LT(0, fail_sweep(self, &op));
	/* every MR is released */
	ASSERT_EQ(0, fail_command(self, UNBIND));
	EXPECT_EQ(0, ibv_dereg_mr(self->c.arena.leaf[0].mr));
	self->c.arena.leaf[0] = self->c.arena.leaf[--self->c.arena.num_leaves];
}

static int fail_interleaved(FIXTURE_DATA(fail_nth) *self)
{
	mkt_command_build(&self->c, &self->cmd, BIND_INTERLEAVED);
	return fail_command(self, BIND_LIST);
}

static int fail_interleaved_bound(FIXTURE_DATA(fail_nth) *self, int err)
{
	int seen = fail_command(self, QUERY);

	return seen ?: self->c.info.kind == (err ? IB_UVERBS_MKEY_LIST :
					     IB_UVERBS_MKEY_INTERLEAVED) ?
		       0 : EBADMSG;
}

TEST_F(fail_nth, bind_interleaved)
{
	static const struct fail_op op = {
		fail_interleaved, fail_run_command, fail_interleaved_bound,
	};

	EXPECT_LT(0, fail_sweep(self, &op));
	ASSERT_EQ(0, fail_command(self, UNBIND));
	EXPECT_EQ(0, ibv_dereg_mr(self->c.arena.leaf[0].mr));
	self->c.arena.leaf[0] = self->c.arena.leaf[--self->c.arena.num_leaves];
}

static int fail_indexed(FIXTURE_DATA(fail_nth) *self)
{
	mkt_command_build(&self->c, &self->cmd, BIND_INDEXED);
	return fail_command(self, BIND_LIST);
}

static int fail_indexed_bound(FIXTURE_DATA(fail_nth) *self, int err)
{
	int seen = fail_command(self, QUERY);

	return seen ?: self->c.info.kind == (err ? IB_UVERBS_MKEY_LIST :
					     IB_UVERBS_MKEY_INDEXED) ?
		       0 : EBADMSG;
}

TEST_F(fail_nth, bind_indexed)
{
	static const struct fail_op op = {
		fail_indexed, fail_run_command, fail_indexed_bound,
	};

	EXPECT_LT(0, fail_sweep(self, &op));
	ASSERT_EQ(0, fail_command(self, UNBIND));
	EXPECT_EQ(0, ibv_dereg_mr(self->c.arena.leaf[0].mr));
	self->c.arena.leaf[0] = self->c.arena.leaf[--self->c.arena.num_leaves];
}

static int fail_query_indices(FIXTURE_DATA(fail_nth) *self)
{
	mkt_command_build(&self->c, &self->cmd, QUERY);
	self->wanted = (struct ib_uverbs_mkey_indexed){
		.indices = (uintptr_t)self->c.bytes,
		.num_indices = 3,
		.index_bytes = 8,
	};
	mkt_ioctl_add(&self->cmd, IB_MKEY_ATTR_QUERY_INDEXED,
		      sizeof(self->wanted), (uintptr_t)&self->wanted);
	return fail_command(self, BIND_INDEXED);
}

TEST_F(fail_nth, query_indices)
{
	static const struct fail_op op = {
		fail_query_indices, fail_run_command,
	};

	EXPECT_LT(0, fail_sweep(self, &op));
}

/* binds one key to blocks and another to nothing: both or neither */
static int fail_many(FIXTURE_DATA(fail_nth) *self)
{
	struct mkt_ioctl unbind;
	int err;

	mkt_raw_unbind(&unbind, self->c.other->handle);
	err = mkt_ioctl_run(self->c.dev.ctx, &unbind);
	mkt_command_build(&self->c, &self->cmd, BIND_MANY);
	return err ?: fail_command(self, BIND_INTERLEAVED);
}

static int fail_many_bound(FIXTURE_DATA(fail_nth) *self, int err)
{
	int seen = fail_command(self, QUERY);
	uint32_t kind = self->c.info.kind;
	struct mkt_ioctl other;

	mkt_raw_query(&other, self->c.other->handle, &self->c.info);
	seen = seen ?: mkt_ioctl_run(self->c.dev.ctx, &other);
	if (err)
		return seen ?: kind == IB_UVERBS_MKEY_INTERLEAVED &&
			       self->c.info.kind == IB_UVERBS_MKEY_UNBOUND ?
			       0 : EBADMSG;
	return seen ?: kind == IB_UVERBS_MKEY_LIST &&
		       self->c.info.kind == IB_UVERBS_MKEY_INTERLEAVED ?
		       0 : EBADMSG;
}

TEST_F(fail_nth, bind_many)
{
	static const struct fail_op op = {
		fail_many, fail_run_command, fail_many_bound,
	};

	EXPECT_LT(0, fail_sweep(self, &op));
	ASSERT_EQ(0, fail_command(self, UNBIND));
	EXPECT_EQ(0, ibmkey_unbind(self->c.other));
	EXPECT_EQ(0, ibmkey_unbind(self->c.third));
	EXPECT_EQ(0, ibv_dereg_mr(self->c.arena.leaf[0].mr));
	self->c.arena.leaf[0] = self->c.arena.leaf[--self->c.arena.num_leaves];
}

static int fail_unbind(FIXTURE_DATA(fail_nth) *self)
{
	mkt_command_build(&self->c, &self->cmd, UNBIND);
	return fail_command(self, BIND_LIST);
}

static int fail_unbound(FIXTURE_DATA(fail_nth) *self, int err)
{
	int seen = fail_command(self, QUERY);

	return seen ?: self->c.info.kind == (err ? IB_UVERBS_MKEY_LIST :
					     IB_UVERBS_MKEY_UNBOUND) ?
		       0 : EBADMSG;
}

TEST_F(fail_nth, unbind)
{
	static const struct fail_op op = {
		fail_unbind, fail_run_command, fail_unbound,
	};

	EXPECT_LE(0, fail_sweep(self, &op));
}

static int fail_query(FIXTURE_DATA(fail_nth) *self)
{
	mkt_command_build(&self->c, &self->cmd, QUERY);
	return 0;
}

TEST_F(fail_nth, query)
{
	static const struct fail_op op = { fail_query, fail_run_command };

	EXPECT_LT(0, fail_sweep(self, &op));
}

static int fail_reg_iov(FIXTURE_DATA(fail_nth) *self)
{
	self->mr = ibmkey_reg_iov(self->c.dev.pd, self->iov, ARRAY_SIZE(self->iov),
				  MKT_ACCESS_ALL);
	return self->mr ? 0 : errno;
}

static int fail_iov_registered(FIXTURE_DATA(fail_nth) *self, int err)
{
	return err ? 0 : ibmkey_dereg(self->mr);
}

/* three registrations, a key and a bind: what was done before the failure is undone */
TEST_F(fail_nth, reg_iov)
{
	static const struct fail_op op = {
		NULL, fail_reg_iov, fail_iov_registered,
	};
	const size_t page = sysconf(_SC_PAGESIZE), size = 2 * ARRAY_SIZE(self->iov) * page;
	uint8_t *memory = aligned_alloc(page, size);
	int before = mkt_dev_count(&self->c.dev, "mr");
	unsigned int i;

	ASSERT_NE(NULL, memory);
	memset(memory, 0, size);
	for (i = 0; i < ARRAY_SIZE(self->iov); i++)
		self->iov[i] = (struct iovec){ memory + 2 * i * page, 100 };
	EXPECT_LT(0, fail_sweep(self, &op));
	if (before >= 0) {
		EXPECT_EQ(before, mkt_dev_count(&self->c.dev, "mr"));
	}
	free(memory);
}

int main(int argc, char **argv)
{
	return fail_main(argc, argv);
}
