// SPDX-License-Identifier: GPL-2.0
/*
 * Every command with its first allocation or user copy failing, then with its
 * second, and so on until it gets through. What fails changes nothing. Needs
 * a kernel with fault injection; what leaks is found by its kmemleak.
 */
#include <fcntl.h>

#include "commands.h"
#include "mkey_harness.h"

FIXTURE(fail_nth)
{
	struct mkt_commands c;
	int fd;			/* /proc/thread-self/fail-nth */
};

static void fail_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		mkt_diag("%s: %s", path, strerror(errno));
	close(fd);
}

FIXTURE_SETUP(fail_nth)
{
	self->fd = open("/proc/thread-self/fail-nth", O_RDWR);
	ASSERT_LE(0, self->fd);
	/* allocations that may sleep fail too */
	fail_write("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	fail_write("/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait", "N");
	if (mkt_dev_try_open(&self->c.dev, 0))
		SKIP(return, "no device %s", self->c.dev.name);
	if (!self->c.dev.extended)
		SKIP(return, "%s is not extended by ib_mkey",
		     self->c.dev.name);
	ASSERT_EQ(0, mkt_commands_setup(&self->c));
}

FIXTURE_TEARDOWN(fail_nth)
{
	fail_write("/sys/kernel/debug/failslab/ignore-gfp-wait", "Y");
	fail_write("/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait", "Y");
	EXPECT_EQ(0, mkt_commands_teardown(&self->c));
}

static int fail_arm(int fd, unsigned int nth)
{
	char text[16];
	int n = snprintf(text, sizeof(text), "%u", nth);

	return pwrite(fd, text, n, 0) == n ? 0 : errno;
}

/* true if the fault came; disarms it if not */
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

/* runs a command with one fault after another; returns how many there were */
static int fail_sweep(FIXTURE_DATA(fail_nth) *self,
		      int (*run)(FIXTURE_DATA(fail_nth) *self, int fd))
{
	unsigned int nth, faults = 0;

	for (nth = 1; nth < 10000; nth++) {
		bool happened;
		int err;

		err = fail_arm(self->fd, nth);
		if (err)
			return -err;
		err = run(self, self->fd);
		happened = fail_happened(self->fd);
		faults += happened;
		if (err && !happened) {
			mkt_diag("%s without a fault", strerror(err));
			return -err;
		}
		if (err && err != ENOMEM && err != EFAULT) {
			mkt_diag("%s for fault %u", strerror(err), nth);
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

static bool fail_kind_is(FIXTURE_DATA(fail_nth) *self, uint32_t kind)
{
	return !fail_command(self, QUERY) && self->c.info.kind == kind;
}

/* a key that comes of it goes again, with the faults that are left */
static int fail_create(FIXTURE_DATA(fail_nth) *self, int fd)
{
	struct mkt_ioctl cmd;

	mkt_command_build(&self->c, &cmd, CREATE);
	return mkt_command_run(&self->c, &cmd);
}

TEST_F(fail_nth, create)
{
	int before = mkt_dev_count(&self->c.dev, "mr");

	EXPECT_LT(0, fail_sweep(self, fail_create));
	/* the one whose destruction failed is destroyed on exit */
	if (before >= 0) {
		EXPECT_GE(before + 1, mkt_dev_count(&self->c.dev, "mr"));
	}
}

/* binds over the other kind of layout, which stays if it fails */
static int fail_bind(FIXTURE_DATA(fail_nth) *self, int fd,
		     enum mkt_what what, enum mkt_what other, uint32_t other_is,
		     uint32_t is)
{
	struct mkt_ioctl cmd;
	bool happened;
	char text[16] = {};
	int err;

	/* unharmed: what is there before */
	if (pread(fd, text, sizeof(text) - 1, 0) <= 0 || fail_arm(fd, 0))
		return EIO;
	if (fail_command(self, other))
		return EIO;
	mkt_command_build(&self->c, &cmd, what);
	if (fail_arm(fd, atoi(text)))
		return EIO;
	err = mkt_ioctl_run(self->c.dev.ctx, &cmd);
	happened = fail_happened(fd);
	if (!fail_kind_is(self, err ? other_is : is))
		return EBADMSG;
	/* as it was found, for the one who looks whether a fault came */
	if (!happened && fail_arm(fd, 1000000))
		return EIO;
	return err;
}

static int fail_bind_list(FIXTURE_DATA(fail_nth) *self, int fd)
{
	return fail_bind(self, fd, BIND_LIST, BIND_INTERLEAVED,
			 IB_UVERBS_MKEY_INTERLEAVED, IB_UVERBS_MKEY_LIST);
}

TEST_F(fail_nth, bind_list)
{
	EXPECT_LT(0, fail_sweep(self, fail_bind_list));
}

static int fail_bind_interleaved(FIXTURE_DATA(fail_nth) *self, int fd)
{
	return fail_bind(self, fd, BIND_INTERLEAVED, BIND_LIST,
			 IB_UVERBS_MKEY_LIST, IB_UVERBS_MKEY_INTERLEAVED);
}

TEST_F(fail_nth, bind_interleaved)
{
	EXPECT_LT(0, fail_sweep(self, fail_bind_interleaved));
}

static int fail_query(FIXTURE_DATA(fail_nth) *self, int fd)
{
	return fail_command(self, QUERY);
}

TEST_F(fail_nth, query)
{
	EXPECT_LT(0, fail_sweep(self, fail_query));
}

static int fail_unbind(FIXTURE_DATA(fail_nth) *self, int fd)
{
	return fail_command(self, UNBIND);
}

TEST_F(fail_nth, unbind)
{
	ASSERT_EQ(0, fail_command(self, BIND_LIST));
	EXPECT_LE(0, fail_sweep(self, fail_unbind));
	EXPECT_TRUE(fail_kind_is(self, IB_UVERBS_MKEY_UNBOUND));
}

static int fail_copy(FIXTURE_DATA(fail_nth) *self, int fd)
{
	return fail_command(self, DM_COPY);
}

TEST_F(fail_nth, dm_copy)
{
	EXPECT_LT(0, fail_sweep(self, fail_copy));
}

static int fail_dm_alloc(FIXTURE_DATA(fail_nth) *self, int fd)
{
	struct ibv_alloc_dm_attr attr = { .length = 100000 };
	struct ibv_dm *dm = ibv_alloc_dm(self->c.dev.ctx, &attr);

	if (!dm)
		return errno;
	return ibv_free_dm(dm);
}

/* nothing of the quota is lost by failing */
TEST_F(fail_nth, dm_alloc)
{
	uint64_t max = self->c.dev.caps.max_dm_size;
	struct ibv_alloc_dm_attr attr = { .length = max - 100000 };
	struct ibv_dm *dm;

	if (max < 1 << 20 || max > 1ull << 30)
		SKIP(return, "%" PRIu64 " bytes of device memory", max);
	EXPECT_LT(0, fail_sweep(self, fail_dm_alloc));
	dm = ibv_alloc_dm(self->c.dev.ctx, &attr);
	ASSERT_NE(NULL, dm);
	EXPECT_EQ(0, ibv_free_dm(dm));
}

static int fail_dm_reg(FIXTURE_DATA(fail_nth) *self, int fd)
{
	struct ibv_mr *mr;

	mr = ibv_reg_dm_mr(self->c.dev.pd, self->c.arena.mem[1].dm, 3, 1000,
			   MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	if (!mr)
		return errno;
	return ibv_dereg_mr(mr);
}

TEST_F(fail_nth, dm_reg)
{
	EXPECT_LT(0, fail_sweep(self, fail_dm_reg));
}

int main(int argc, char **argv)
{
	if (access("/proc/thread-self/fail-nth", W_OK)) {
		ksft_print_header();
		ksft_exit_skip("this kernel has no fault injection\n");
	}
	return test_harness_run(argc, argv);
}
