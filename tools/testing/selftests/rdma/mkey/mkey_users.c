// SPDX-License-Identifier: GPL-2.0
/*
 * subject: The limit of the kernel's memory that keys take is one of a user: of all the
 * processes that opened the device as this user, and of those that have the opened device from
 * them. Needs root, to be other users.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mkey_harness.h"

/* the user whom the tests fill the limit of, and another one */
#define USER 64001
#define OTHER 64002
/* more keys than a limit has memory for */
#define MOST 16384

FIXTURE(users)
{
	/* a process of USER that tells how many keys it got, and keeps them while @hold is open */
	pid_t holder;
	int hold;
	/* how many keys of the largest lists a user gets */
	int limit;
};

/* becomes @uid; a process whose saved user is root may, too */
static int users_become(uid_t uid)
{
	if (getuid() == uid && geteuid() == uid)
		return 0;
	return seteuid(0) || setgroups(0, NULL) || setresgid(uid, uid, uid) ||
	       setresuid(uid, uid, uid);
}

/* binds keys to the largest lists until the limit; returns how many, or -1 */
static int users_take(struct mkt_dev *dev, int most)
{
	static uint8_t byte[4096];
	struct mkt_leaf leaf = { .addr = (uintptr_t)byte, .length = sizeof(byte) };
	uint32_t n = dev->caps.max_entries;
	struct ibv_mr *key;
	int count;

	leaf.mr = ibv_reg_mr(dev->pd, byte, sizeof(byte), MKT_ACCESS_ALL);
	if (!leaf.mr)
		return -1;
	for (count = 0; count < most; count++) {
		int err;

		key = ibmkey_alloc(dev->pd, n);
		err = key ? mkt_bind_rows(key, &leaf, MKT_ROWS_LIST, n, 2, MKT_ACCESS_ALL) : errno;
		if (err) {
			if (key)
				ibv_dereg_mr(key);
			return err == ENOMEM ? count : -1;
		}
		mkt_alive();
	}
	return count;
}

/* the number that the process @pid writes to @fd; -1 if it writes none */
static int users_told(int fd)
{
	int count;

	return read(fd, &count, sizeof(count)) == sizeof(count) ? count : -1;
}

static void __attribute__((noreturn)) users_tell(int fd, int count)
{
	_exit(write(fd, &count, sizeof(count)) != sizeof(count));
}

/* makes a process that returns from here with 0, and has a pipe for users_told() in @fd */
static pid_t users_fork(int fd[2])
{
	pid_t pid;

	if (pipe2(fd, O_CLOEXEC))
		return -1;
	fflush(stdout);
	pid = fork();
	if (pid > 0)
		close(fd[1]);
	return pid;
}

/*
 * Returns how many of @most keys a new process of @uid gets. It has the opened device from this
 * one; @dev NULL: it opens the device.
 */
static int users_child_takes(struct mkt_dev *dev, uid_t uid, int most)
{
	int fd[2], count = -1;
	struct mkt_dev own;
	pid_t pid;

	pid = users_fork(fd);
	if (!pid) {
		if (!users_become(uid) && (dev || !mkt_dev_try_open(&own, 0)))
			count = users_take(dev ?: &own, most);
		users_tell(fd[1], count);
	}
	count = users_told(fd[0]);
	close(fd[0]);
	return pid < 0 || waitpid(pid, NULL, 0) != pid ? -1 : count;
}

FIXTURE_SETUP(users)
{
	int fd[2], hold[2], count = -1;
	struct mkt_dev dev;

	self->holder = -1;
	if (geteuid())
		SKIP(return, "not root");
	MKT_OPEN_SIDE(&dev, 0);
	mkt_dev_close(&dev);
	ASSERT_EQ(0, pipe2(hold, O_CLOEXEC));
	self->holder = users_fork(fd);
	ASSERT_LE(0, self->holder);
	if (!self->holder) {
		close(hold[1]);
		if (!users_become(USER) && !mkt_dev_try_open(&dev, 0))
			count = users_take(&dev, MOST);
		if (write(fd[1], &count, sizeof(count)) != sizeof(count))
			_exit(1);
		_exit(read(hold[0], &count, 1) != 0);
	}
	close(hold[0]);
	self->hold = hold[1];
	self->limit = users_told(fd[0]);
	close(fd[0]);
	/* the device's limit would hide that of a user */
	ASSERT_LT(4, self->limit);
	ASSERT_GT(MOST, self->limit);
}

/* frees the keys of the holder; returns its status */
static int users_let_go(FIXTURE_DATA(users) *self)
{
	int status = -1;

	if (self->holder > 0) {
		close(self->hold);
		waitpid(self->holder, &status, 0);
		self->holder = -1;
	}
	return status;
}

FIXTURE_TEARDOWN(users)
{
	users_let_go(self);
}

/* two processes of one user share the limit, and other users do not */
TEST_F(users, processes_share_it)
{
	EXPECT_EQ(0, users_child_takes(NULL, USER, 1));
	EXPECT_EQ(self->limit / 2, users_child_takes(NULL, OTHER, self->limit / 2));
	EXPECT_EQ(1, users_child_takes(NULL, 0, 1));
	EXPECT_EQ(0, users_let_go(self));
	EXPECT_EQ(self->limit, users_child_takes(NULL, USER, MOST));
}

/* what a process has made by a device that it has from another one counts after its end */
TEST_F(users, children_share_it)
{
	int fd[2], count[4] = { -1, -1, -1, -1 }, half = self->limit / 2;
	struct mkt_dev dev;
	unsigned int i;
	pid_t pid;

	EXPECT_EQ(0, users_let_go(self));
	pid = users_fork(fd);
	ASSERT_LE(0, pid);
	if (!pid) {
		if (users_become(USER) || mkt_dev_try_open(&dev, 0))
			_exit(1);
		count[0] = users_child_takes(&dev, USER, half);
		for (i = 1; i < 3; i++)
			count[i] = users_child_takes(&dev, USER, MOST);
		count[3] = users_take(&dev, MOST);
		for (i = 0; i < 4; i++)
			if (write(fd[1], &count[i], sizeof(count[i])) != sizeof(count[i]))
				_exit(1);
		_exit(0);
	}
	for (i = 0; i < 4; i++)
		count[i] = users_told(fd[0]);
	close(fd[0]);
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	EXPECT_EQ(half, count[0]);
	EXPECT_EQ(self->limit - half, count[1]);
	EXPECT_EQ(0, count[2]);
	EXPECT_EQ(0, count[3]);
}

/* the user who opened the device is charged, not the caller */
TEST_F(users, the_opener_is_charged)
{
	struct mkt_dev dev;
	int fd[2];
	pid_t pid;

	/* root opens the device, and USER calls */
	ASSERT_EQ(0, mkt_dev_open(&dev, 0));
	EXPECT_EQ(2, users_child_takes(&dev, USER, 2));
	/* the keys of the child go with the context */
	EXPECT_EQ(0, ibv_close_device(dev.ctx));

	/* USER opens the device, and OTHER calls */
	pid = users_fork(fd);
	ASSERT_LE(0, pid);
	if (!pid) {
		int count = -1;

		if (!setresuid(USER, USER, 0) && !mkt_dev_try_open(&dev, 0))
			count = users_child_takes(&dev, OTHER, 1);
		users_tell(fd[1], count);
	}
	EXPECT_EQ(0, users_told(fd[0]));
	close(fd[0]);
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
}

static bool users_map(pid_t pid, const char *file, const char *map)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : write(fd, map, strlen(map));
	close(fd);
	return n == strlen(map);
}

/* the users of a namespace count as the user who made it */
TEST_F(users, a_namespace_is_no_other_user)
{
	int fd[2], go[2], count;
	struct mkt_dev dev;
	char byte;
	pid_t pid;

	ASSERT_EQ(0, pipe2(go, O_CLOEXEC));
	pid = users_fork(fd);
	ASSERT_LE(0, pid);
	if (!pid) {
		close(go[1]);
		if (users_become(USER) || unshare(CLONE_NEWUSER))
			users_tell(fd[1], -2);
		count = 0;
		if (write(fd[1], &count, sizeof(count)) != sizeof(count) ||
		    read(go[0], &byte, 1) != 1)
			_exit(1);
		count = -1;
		if (!setresgid(5, 5, 5) && !setresuid(5, 5, 5) && getuid() == 5 &&
		    !mkt_dev_try_open(&dev, 0))
			count = users_take(&dev, 1);
		users_tell(fd[1], count);
	}
	close(go[0]);
	count = users_told(fd[0]);
	if (count == -2) {
		waitpid(pid, NULL, 0);
		SKIP(return, "no user namespaces");
	}
	ASSERT_EQ(0, count);
	EXPECT_TRUE(users_map(pid, "uid_map", "0 64001 1\n1 65000 100\n"));
	EXPECT_TRUE(users_map(pid, "gid_map", "0 64001 1\n1 65000 100\n"));
	EXPECT_EQ(1, write(go[1], "", 1));
	close(go[1]);
	EXPECT_EQ(0, users_told(fd[0]));
	close(fd[0]);
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
}

TEST_HARNESS_MAIN
