// SPDX-License-Identifier: GPL-2.0
/*
 * subject: MRs over the dma-bufs of test_modules/mkey_exporter.c, which controls what it maps
 * and when it ends a mapping.
 * needs: dma-buf
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mkey_harness.h"

#define PAGE 4096ul

#define EXPORTER "mkey_exporter"

/* a device that is deleted while the exporter blocks */
#define OTHER "rxe_mktd"

static int exporter_parameter(const char *name)
{
	char line[16];

	if (!mkt_command(line, sizeof(line),
			 "cat /sys/module/" EXPORTER "/parameters/%s", name))
		return -1;
	return line[0] == 'Y' ? 1 : line[0] == 'N' ? 0 : atoi(line);
}

/* loading the module gives this process a descriptor */
static int exporter_load(const char *parameters)
{
	const char *dir = getenv("MODULE_DIR");
	char path[512];
	int ko, ret;

	snprintf(path, sizeof(path),
		 "%s/tools/testing/selftests/rdma/mkey/test_modules/" EXPORTER ".ko",
		 dir ?: ".");
	ko = open(path, O_RDONLY | O_CLOEXEC);
	if (ko < 0)
		return -errno;
	ret = syscall(SYS_finit_module, ko, parameters, 0) ? -errno : 0;
	close(ko);
	return ret ?: exporter_parameter("fd");
}

FIXTURE(exporter)
{
	struct mkt_dev dev;
	int fd;
	struct ibv_mr *mr;	/* what exporter_dereg() deregisters */
	bool other;
};

FIXTURE_SETUP(exporter)
{
	self->fd = -1;
	if (geteuid())
		SKIP(return, "not root");
	MKT_OPEN_SIDE(&self->dev, 0);
}

FIXTURE_TEARDOWN(exporter)
{
	if (self->other) {
		EXPECT_EQ(0, system("ip link delete " OTHER));
	}
	if (self->fd >= 0)
		close(self->fd);
	mkt_dev_close(&self->dev);
	/* a work item drops the last reference to the dma-buf */
	if (self->fd >= 0) {
		EXPECT_EQ(0, system("for n in $(seq 1800); do rmmod " EXPORTER
				    " 2>/dev/null && exit; sleep 0.1; done; exit 1"));
	}
}

/* registers and deregisters an MR; returns 0 or an errno */
static int exporter_reg(FIXTURE_DATA(exporter) *self)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibmkey_reg_dmabuf_mr(self->dev.pd, 0, 4 * PAGE, 0, self->fd, MKT_ACCESS_ALL);
	return mr ? ibv_dereg_mr(mr) : errno;
}

TEST_F(exporter, pages)
{
	self->fd = exporter_load("pages=1");
	if (self->fd == -ENOENT)
		SKIP(return, "no " EXPORTER ".ko in MODULE_DIR");
	ASSERT_LE(0, self->fd);
	EXPECT_EQ(0, exporter_reg(self));
}

/* mapped addresses without a struct page: a register, or nothing */
TEST_F(exporter, no_pages)
{
	self->fd = exporter_load("pages=0");
	if (self->fd == -ENOENT)
		SKIP(return, "no " EXPORTER ".ko in MODULE_DIR");
	ASSERT_LE(0, self->fd);
	EXPECT_EQ(EOPNOTSUPP, exporter_reg(self));
}

/* reserved memory in a hole between RAM: its struct page is of no memory that the kernel maps */
TEST_F(exporter, hole)
{
	self->fd = exporter_load("pages=0 hole=1");
	if (self->fd == -ENOENT)
		SKIP(return, "no " EXPORTER ".ko in MODULE_DIR");
	if (self->fd == -ENXIO)
		SKIP(return, "there is no hole between RAM");
	ASSERT_LE(0, self->fd);
	EXPECT_EQ(EOPNOTSUPP, exporter_reg(self));
}

static void *exporter_dereg(void *data)
{
	FIXTURE_DATA(exporter) *self = data;

	return (void *)(intptr_t)ibv_dereg_mr(self->mr);
}

static void *exporter_refused(void *data)
{
	return (void *)(intptr_t)exporter_reg(data);
}

/* adds another device and loads the exporter */
static int exporter_slow(FIXTURE_DATA(exporter) *self, const char *parameters)
{
	self->fd = exporter_load(parameters);
	if (self->fd < 0)
		return -self->fd;
	if (system("ip link add " OTHER " type dummy"))
		return ENODEV;
	self->other = true;
	return system("ip link set " OTHER " up && rdma link add " OTHER
		      " type rxe netdev " OTHER) ? ENODEV : 0;
}

/*
 * Deletes the other device while a thread waits for the end of a mapping.
 * Returns 0 if deleting does not wait for that, too. @result is the return
 * value of @call.
 */
static int exporter_delete(FIXTURE_DATA(exporter) *self, void *(*call)(void *),
			   int *result)
{
	bool deleted = false, held = false;
	int n, status = -1;
	pthread_t thread;
	void *returned;
	pid_t pid;

	if (pthread_create(&thread, NULL, call, self))
		return EAGAIN;
	/* the wait ends at once, or never */
	for (n = 0; n < 10 * MKT_STALL_SECONDS && !held; n++) {
		held = exporter_parameter("waiting") == 1;
		usleep(100000);
	}
	pid = fork();
	if (!pid)
		_exit(system("rdma link delete " OTHER) ? 1 : 0);
	for (n = 0; n < 10 * MKT_STALL_SECONDS && !deleted; n++) {
		deleted = waitpid(pid, &status, WNOHANG) == pid;
		usleep(100000);
	}
	held = held && exporter_parameter("waiting") == 1;
	if (system("echo 0 >/sys/module/" EXPORTER "/parameters/hold"))
		return EIO;
	if (!deleted)
		waitpid(pid, &status, 0);
	pthread_join(thread, &returned);
	*result = (intptr_t)returned;
	return !held ? EPROTO : !deleted ? EBUSY : status ? EIO : 0;
}

TEST_F(exporter, slow_dereg)
{
	int result = -1, err = exporter_slow(self, "pages=1 hold=1");

	if (err == ENOENT)
		SKIP(return, "no " EXPORTER ".ko in MODULE_DIR");
	ASSERT_EQ(0, err);
	self->mr = ibmkey_reg_dmabuf_mr(self->dev.pd, 0, PAGE, 0, self->fd,
					MKT_ACCESS_ALL);
	ASSERT_NE(NULL, self->mr);
	EXPECT_EQ(0, exporter_delete(self, exporter_dereg, &result));
	EXPECT_EQ(0, result);
}

/* a registration that fails after the buffer was mapped */
TEST_F(exporter, slow_refusal)
{
	int result = -1, err = exporter_slow(self, "pages=0 hold=1");

	if (err == ENOENT)
		SKIP(return, "no " EXPORTER ".ko in MODULE_DIR");
	ASSERT_EQ(0, err);
	EXPECT_EQ(0, exporter_delete(self, exporter_refused, &result));
	EXPECT_EQ(EOPNOTSUPP, result);
}

TEST_HARNESS_MAIN
