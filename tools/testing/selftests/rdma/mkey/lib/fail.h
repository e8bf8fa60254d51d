/* SPDX-License-Identifier: GPL-2.0 */
/* A call whose allocations and user copies fail in turn: the set-up and the loop of the tests. */
#ifndef MKEY_TEST_FAIL_H
#define MKEY_TEST_FAIL_H

#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
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
	MKT_OPEN_SIDE(&self->c.dev, 0);
	ASSERT_EQ(0, mkt_commands_setup(&self->c));
}

FIXTURE_TEARDOWN(fail_nth)
{
	mkt_faults_may_sleep(false);
	EXPECT_EQ(0, mkt_commands_teardown(&self->c));
}

static inline int fail_arm(int fd, unsigned int nth)
{
	char text[16];
	int n = snprintf(text, sizeof(text), "%u", nth);

	return pwrite(fd, text, n, 0) == n ? 0 : errno;
}

/* returns true if the fault was injected; disarms it otherwise */
static inline bool fail_happened(int fd)
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
static inline int fail_sweep(FIXTURE_DATA(fail_nth) *self, const struct fail_op *op)
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

static inline int fail_command(FIXTURE_DATA(fail_nth) *self, enum mkt_what what)
{
	struct mkt_ioctl cmd;

	mkt_command_build(&self->c, &cmd, what);
	return mkt_ioctl_run(self->c.dev.ctx, &cmd);
}

static inline int fail_run_command(FIXTURE_DATA(fail_nth) *self)
{
	return mkt_ioctl_run(self->c.dev.ctx, &self->cmd);
}

/* Skips all tests on a kernel without fault injection. */
static inline int fail_main(int argc, char **argv)
{
	if (access("/proc/thread-self/fail-nth", W_OK)) {
		ksft_print_header();
		ksft_exit_skip("this kernel has no fault injection\n");
	}
	return test_harness_run(argc, argv);
}

#endif /* MKEY_TEST_FAIL_H */
