// SPDX-License-Identifier: GPL-2.0
/*
 * Runs every command with its first allocation or user copy failing, then with
 * its second, and so on until it succeeds. A command that fails changes
 * nothing. Needs a kernel with fault injection; kmemleak finds leaks.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "commands.h"
#include "mkey_harness.h"

FIXTURE(fail_nth)
{
	struct mkt_commands c;
	int fd;			/* /proc/thread-self/fail-nth */
	struct mkt_ioctl cmd;	/* what is run */
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	uint32_t class;
	struct iovec iov[3];
	struct ib_uverbs_mkey_indexed wanted;
};

FIXTURE_SETUP(fail_nth)
{
	self->fd = open("/proc/thread-self/fail-nth", O_RDWR);
	ASSERT_LE(0, self->fd);
	/* Without root, only allocations that may not sleep fail. */
	mkt_faults_may_sleep(true);
	if (mkt_dev_try_open(&self->c.dev, 0))
		SKIP(return, "no device %s", self->c.dev.name);
	if (!self->c.dev.extended)
		SKIP(return, "%s is not extended by ib_mkey",
		     self->c.dev.name);
	ASSERT_EQ(0, mkt_commands_setup(&self->c));
}

FIXTURE_TEARDOWN(fail_nth)
{
	mkt_faults_may_sleep(false);
	EXPECT_EQ(0, mkt_commands_teardown(&self->c));
}

static int fail_arm(int fd, unsigned int nth)
{
	char text[16];
	int n = snprintf(text, sizeof(text), "%u", nth);

	return pwrite(fd, text, n, 0) == n ? 0 : errno;
}

/* returns true if the fault was injected; disarms it otherwise */
static bool fail_happened(int fd)
{
	char text[16] = {};

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
		return false;
	if (atoi(text) == 0)
		return true;
	fail_arm(fd, 0);
	return false;
}

/* a command under test; only run() has faults */
struct fail_op {
	int (*before)(FIXTURE_DATA(fail_nth) *self);
	int (*run)(FIXTURE_DATA(fail_nth) *self);
	/* undoes the command and checks the state that @err implies */
	int (*after)(FIXTURE_DATA(fail_nth) *self, int err);
};

/* injects one fault after another until none is left; returns their number */
static int fail_sweep(FIXTURE_DATA(fail_nth) *self, const struct fail_op *op)
{
	unsigned int nth, faults = 0;

	for (nth = 1; nth < 10000; nth++) {
		bool happened;
		int err, seen;

		err = op->before ? op->before(self) : 0;
		if (!err)
			err = fail_arm(self->fd, nth);
		if (err) {
			mkt_diag("before fault %u: %s", nth, strerror(err));
			return -err;
		}
		err = op->run(self);
		happened = fail_happened(self->fd);
		faults += happened;
		seen = op->after ? op->after(self, err) : 0;
		if (seen) {
			mkt_diag("after fault %u (%s): %s", nth, strerror(err),
				 strerror(seen));
			return -seen;
		}
		if (err && (!happened || (err != ENOMEM && err != EFAULT))) {
			mkt_diag("%s for fault %u%s", strerror(err), nth,
				 happened ? "" : ", which did not come");
			return -err;
		}
		if (!happened)
			return faults;
	}
	return -ELOOP;
}

static int fail_command(FIXTURE_DATA(fail_nth) *self, enum mkt_what what)
{
	struct mkt_ioctl cmd;

	mkt_command_build(&self->c, &cmd, what);
	return mkt_ioctl_run(self->c.dev.ctx, &cmd);
}

static int fail_run_command(FIXTURE_DATA(fail_nth) *self)
{
	return mkt_ioctl_run(self->c.dev.ctx, &self->cmd);
}

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

static int fail_copy(FIXTURE_DATA(fail_nth) *self)
{
	mkt_command_build(&self->c, &self->cmd, DM_COPY);
	return 0;
}

TEST_F(fail_nth, dm_copy)
{
	static const struct fail_op op = { fail_copy, fail_run_command };

	EXPECT_LT(0, fail_sweep(self, &op));
}

static int fail_dm_alloc(FIXTURE_DATA(fail_nth) *self)
{
	struct ibv_alloc_dm_attr attr = { .length = 100000 };

	self->dm = ibv_alloc_dm(self->c.dev.ctx, &attr);
	return self->dm ? 0 : errno;
}

static int fail_dm_allocated(FIXTURE_DATA(fail_nth) *self, int err)
{
	return err ? 0 : ibv_free_dm(self->dm);
}

/* a failure loses none of the quota */
TEST_F(fail_nth, dm_alloc)
{
	static const struct fail_op op = {
		NULL, fail_dm_alloc, fail_dm_allocated,
	};
	struct ibv_alloc_dm_attr attr = {
		/* all bytes but those of the fixture */
		.length = self->c.dev.caps.max_dm_size - 8192,
	};
	struct ibv_dm *dm;

	if (self->c.dev.caps.max_dm_size > 1ull << 30)
		SKIP(return, "too much device memory to take all of it");
	EXPECT_LT(0, fail_sweep(self, &op));
	dm = ibv_alloc_dm(self->c.dev.ctx, &attr);
	ASSERT_NE(NULL, dm);
	EXPECT_EQ(0, ibv_free_dm(dm));
}

static int fail_far_alloc(FIXTURE_DATA(fail_nth) *self)
{
	struct ibv_alloc_dm_attr attr = {
		.length = 100000,
		.log_align_req = 15,
	};

	self->dm = ibmkey_alloc_dm(self->c.dev.ctx, &attr, self->class);
	return self->dm ? 0 : errno;
}

/* a failure loses none of a pool of any class */
TEST_F(fail_nth, dm_alloc_class)
{
	static const struct fail_op op = {
		NULL, fail_far_alloc, fail_dm_allocated,
	};
	static const struct {
		const char *name;
		uint32_t bit;
	} classes[] = {
		{ "host", IBMKEY_DM_HOST },
		{ "node", IBMKEY_DM_NODE },
		{ "p2p", IBMKEY_DM_P2P },
		{ "pmem", IBMKEY_DM_PMEM },
	};
	struct mkt_pool before, after;
	unsigned int i;
	char what[64];

	for (i = 0; i < ARRAY_SIZE(classes); i++) {
		if (!(self->c.dev.caps.dm_classes & classes[i].bit))
			continue;
		if (i >= 2 && !mkt_hardware(what, sizeof(what), classes[i].name))
			continue;
		if (mkt_pool(&self->c.dev, classes[i].name, &before))
			continue;
		self->class = classes[i].bit;
		EXPECT_LT(0, fail_sweep(self, &op));
		EXPECT_EQ(0, mkt_pool(&self->c.dev, classes[i].name, &after));
		EXPECT_EQ(before.used, after.used);
		EXPECT_EQ(before.buffers, after.buffers);
	}
}

static int fail_export(FIXTURE_DATA(fail_nth) *self)
{
	mkt_command_build(&self->c, &self->cmd, DM_EXPORT);
	mkt_ioctl_attr(&self->cmd, IB_MKEY_ATTR_DM_EXPORT_HANDLE)->data =
		self->dm->handle;
	return mkt_ioctl_run(self->c.dev.ctx, &self->cmd);
}

static int fail_view(FIXTURE_DATA(fail_nth) *self)
{
	mkt_command_build(&self->c, &self->cmd, DM_VIEW);
	mkt_ioctl_attr(&self->cmd, IB_MKEY_ATTR_DM_VIEW_HANDLE)->data =
		self->dm->handle;
	return mkt_ioctl_run(self->c.dev.ctx, &self->cmd);
}

/* a failure leaves no descriptor, and the memory can be freed */
static int fail_exported(FIXTURE_DATA(fail_nth) *self, int err)
{
	bool open = fcntl(self->c.first_fd, F_GETFD) >= 0;

	if (open)
		close(self->c.first_fd);
	return open == !err ? ibv_free_dm(self->dm) : EBADMSG;
}

TEST_F(fail_nth, dm_export)
{
	static const struct fail_op op = {
		fail_dm_alloc, fail_export, fail_exported,
	};

	EXPECT_LT(0, fail_sweep(self, &op));
}

TEST_F(fail_nth, dm_view)
{
	static const struct fail_op op = {
		fail_dm_alloc, fail_view, fail_exported,
	};

	EXPECT_LT(0, fail_sweep(self, &op));
}

static int fail_dm_reg(FIXTURE_DATA(fail_nth) *self)
{
	self->mr = ibv_reg_dm_mr(self->c.dev.pd, self->c.arena.mem[1].dm, 3,
				 1000, MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	return self->mr ? 0 : errno;
}

static int fail_dm_registered(FIXTURE_DATA(fail_nth) *self, int err)
{
	return err ? 0 : ibv_dereg_mr(self->mr);
}

TEST_F(fail_nth, dm_reg)
{
	static const struct fail_op op = {
		NULL, fail_dm_reg, fail_dm_registered,
	};

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
	if (access("/proc/thread-self/fail-nth", W_OK)) {
		ksft_print_header();
		ksft_exit_skip("this kernel has no fault injection\n");
	}
	return test_harness_run(argc, argv);
}
