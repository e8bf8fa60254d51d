// SPDX-License-Identifier: GPL-2.0
/*
 * subject: The file by which a process maps device memory, without the library: its size, who
 * may write to it, what is left of it after the memory was freed, and what it is charged.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <signal.h>

#include "raw.h"
#include "view.h"

struct raw_view {
	struct mkt_ioctl cmd;
	uint64_t length;
	int32_t fd;
	uint8_t *at;
};

static int view_open(struct mkt_dev *dev, struct ibv_dm *dm, struct raw_view *view)
{
	int err;

	mkt_raw_dm_view(&view->cmd, dm->handle, &view->fd, &view->length);
	err = mkt_ioctl_run(dev->ctx, &view->cmd);
	if (err)
		return err;
	view->at = mmap(NULL, (PAGES + 1) * 4096, PROT_READ | PROT_WRITE,
			MAP_SHARED, view->fd, 0);
	return view->at == MAP_FAILED ? errno : 0;
}

static void view_close(struct raw_view *view)
{
	munmap(view->at, (PAGES + 1) * 4096);
	close(view->fd);
}

TEST_F(view, file)
{
	const int rw = PROT_READ | PROT_WRITE;
	struct raw_view view, other;

	ASSERT_EQ(0, view_open(&self->dev, self->dm, &view));
	EXPECT_EQ(LENGTH, view.length);
	EXPECT_EQ(FD_CLOEXEC, fcntl(view.fd, F_GETFD));
	EXPECT_EQ((PAGES + 1) * 4096, lseek(view.fd, 0, SEEK_END));
	/* each call opens the same memory */
	ASSERT_EQ(0, view_open(&self->dev, self->dm, &other));
	view.at[LENGTH - 1] = 0x33;
	EXPECT_EQ(0x33, other.at[LENGTH - 1]);
	view_close(&other);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, rw, MAP_PRIVATE, view.fd, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, (PAGES + 2) * 4096, rw, MAP_SHARED, view.fd, 0));
	EXPECT_EQ(EINVAL, errno);
	/* it is for copies only */
	EXPECT_REFUSED(EOPNOTSUPP, ibmkey_reg_dmabuf_mr(self->dev.pd, 0, 4096, 0, view.fd,
							IBV_ACCESS_LOCAL_WRITE));
	view_close(&view);
}

/* after a free the state changes, and accesses show no byte of the memory */
TEST_F(view, freed)
{
	struct raw_view view;
	struct mkt_pool now;
	size_t i;

	ASSERT_EQ(0, view_open(&self->dev, self->dm, &view));
	/* the last page is not touched before */
	memset(view.at, 0x44, 2 * 4096);
	EXPECT_EQ(0, view.at[PAGES * 4096]);
	ASSERT_EQ(0, ibv_free_dm(self->dm));
	self->dm = NULL;
	ASSERT_EQ(0, mkt_pool(&self->dev, "host", &now));
	EXPECT_EQ(self->before.used, now.used);
	EXPECT_NE(0, view.at[PAGES * 4096]);
	for (i = 0; i < PAGES * 4096; i++) {
		ASSERT_EQ(0, view.at[i]);
	}
	memset(view.at, 0x55, PAGES * 4096);
	EXPECT_EQ(1, view.at[PAGES * 4096]);
	view_close(&view);
}

/* a process cannot make others believe that memory was freed, or that it was not */
TEST_F(view, state_is_read_only)
{
	struct raw_view view;
	int status;
	pid_t pid;

	ASSERT_EQ(0, view_open(&self->dev, self->dm, &view));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		/* fork() does not copy a mapping of a view */
		if (view_open(&self->dev, self->dm, &view))
			_exit(1);
		/* one after the other */
		__atomic_store_n(&view.at[PAGES * 4096 - 1], 1, __ATOMIC_SEQ_CST);
		__atomic_store_n(&view.at[PAGES * 4096], 1, __ATOMIC_SEQ_CST);
		_exit(2);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(SIGBUS, WTERMSIG(status));
	EXPECT_EQ(0, view.at[PAGES * 4096]);
	EXPECT_EQ(1, view.at[PAGES * 4096 - 1]);
	view_close(&view);
}

/* the pages that a mapping keeps count towards the limit of the user */
TEST_F(view, kept_pages_are_charged)
{
	struct raw_view view;

	EXPECT_EQ(PAGES * 4096, mkt_owner_bytes(&self->dev, getuid()));
	ASSERT_EQ(0, view_open(&self->dev, self->dm, &view));
	EXPECT_EQ((PAGES + 2) * 4096, mkt_owner_bytes(&self->dev, getuid()));
	close(view.fd);
	ASSERT_EQ(0, ibv_free_dm(self->dm));
	self->dm = NULL;
	EXPECT_EQ(2 * 4096, mkt_owner_bytes(&self->dev, getuid()));
	munmap(view.at, (PAGES + 1) * 4096);
	EXPECT_EQ(-1, mkt_owner_bytes(&self->dev, getuid()));
}

/* the state changes before the memory: what was copied while it is 0 is true */
static void *free_late(void *arg)
{
	usleep(1000);
	return (void *)(intptr_t)ibv_free_dm(arg);
}

TEST_F(view, freed_meanwhile)
{
	unsigned int round, reads = 0;
	struct raw_view view;
	uint8_t fill[LENGTH];
	pthread_t tid;
	void *err;

	memset(fill, 0x66, LENGTH);
	for (round = 0; round < mkt_scale(200, 20); round++) {
		struct ibv_dm *dm = mkt_dm_alloc(&self->dev, LENGTH, 0, IBMKEY_DM_HOST);
		uint8_t seen, state;

		ASSERT_NE(NULL, dm);
		ASSERT_EQ(0, ibv_memcpy_to_dm(dm, 0, fill, LENGTH));
		ASSERT_EQ(0, view_open(&self->dev, dm, &view));
		ASSERT_EQ(0, pthread_create(&tid, NULL, free_late, dm));
		do {
			const uint8_t *from = &view.at[reads++ % LENGTH];

			seen = __atomic_load_n(from, __ATOMIC_RELAXED);
			__atomic_thread_fence(__ATOMIC_ACQUIRE);
			state = __atomic_load_n(&view.at[PAGES * 4096],
						__ATOMIC_RELAXED);
			ASSERT_TRUE(state || seen == 0x66);
		} while (!state);
		pthread_join(tid, &err);
		EXPECT_EQ(NULL, err);
		view_close(&view);
	}
}

/* memory that a plain copy may not access is copied by the kernel */
TEST_F(view, p2p)
{
	struct ibv_dm *dm;
	struct raw_view view;
	uint8_t byte = 0;
	char what[64];

	if (!mkt_hardware(what, sizeof(what), "p2p"))
		SKIP(return, "no PCI function with memory for peers");
	dm = mkt_dm_alloc(&self->dev, LENGTH, 0, IBMKEY_DM_P2P);
	ASSERT_NE(NULL, dm);
	EXPECT_EQ(EOPNOTSUPP, view_open(&self->dev, dm, &view));
	EXPECT_EQ(0, copy_often(dm));
	EXPECT_EQ(0, views());
	EXPECT_EQ(0, ibv_memcpy_from_dm(&byte, dm, OFTEN - 1, 1));
	EXPECT_EQ(0x5a, byte);
	ASSERT_EQ(0, ibv_free_dm(dm));
}

TEST_HARNESS_MAIN
