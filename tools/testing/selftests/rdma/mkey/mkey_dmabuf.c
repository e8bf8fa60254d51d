// SPDX-License-Identifier: GPL-2.0
/*
 * subject: MRs over dma-bufs, which rxe alone does not offer: they are used like any MR. Tests
 * the errors, what keeps a dma-buf, and what is freed. Some are over the dma-bufs of
 * test_modules/mkey_exporter.c, which controls what it maps and when it ends a mapping.
 * mkey_matrix moves their bytes.
 * needs: dma-buf
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "matrix.h"
#include "mkey_harness.h"
#include "raw.h"
#include "slow.h"

#define PAGE 4096ul
#define SIZE (10 * PAGE)

FIXTURE(dmabuf)
{
	struct mkt_setup s;
	unsigned int leaf;		/* over a dma-buf, of side 1 */
};

FIXTURE_VARIANT(dmabuf)
{
	mkt_leaf_maker make;
};

FIXTURE_VARIANT_ADD(dmabuf, udmabuf) { .make = mkt_leaf_udmabuf };
FIXTURE_VARIANT_ADD(dmabuf, heap) { .make = mkt_leaf_heap };
FIXTURE_VARIANT_ADD(dmabuf, dm) { .make = mkt_leaf_dm_export };

FIXTURE_SETUP(dmabuf)
{
	struct mkt_arena *arena = &self->s.arena[1];
	int err;

	MKT_SETUP(&self->s, .host = 64 * 1024, .max_entries = 4);
	self->leaf = arena->num_leaves;
	err = variant->make(arena);
	if (err == ENODEV)
		SKIP(return, "this machine has no such dma-buf");
	ASSERT_EQ(0, err);
	ASSERT_EQ(0, mkt_arena_fill(arena, &self->s.rng));
}

FIXTURE_TEARDOWN(dmabuf)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* the MR has no memory of a process, so it cannot be moved or prefetched */
TEST_F(dmabuf, stays)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[self->leaf];
	struct mkt_dev *dev = &self->s.dev[1];
	struct ibv_pd *pd = ibv_alloc_pd(dev->ctx);
	void *start = self->s.arena[1].mem[0].host;

	ASSERT_NE(NULL, pd);
	EXPECT_EQ(EOPNOTSUPP, mkt_raw_rereg_to(leaf->mr,
					       IBV_REREG_MR_CHANGE_TRANSLATION,
					       dev->pd, 0, start, 4096,
					       (uintptr_t)start));
	EXPECT_EQ(EOPNOTSUPP, mkt_raw_rereg(leaf->mr,
					    IBV_REREG_MR_CHANGE_ACCESS,
					    dev->pd, 0));
	EXPECT_EQ(EOPNOTSUPP, mkt_raw_rereg(leaf->mr, IBV_REREG_MR_CHANGE_PD,
					    pd, 0));
	/* its pages are there */
	EXPECT_EQ(0, mkt_raw_advise(dev->pd, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH,
				    IB_UVERBS_ADVISE_MR_FLAG_FLUSH, leaf->addr, 100,
				    leaf->mr->lkey));
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

/* uverbs gives such an MR no right to be bound to; matrix has windows over keys over it */
TEST_F(dmabuf, window)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[self->leaf];
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);

	ASSERT_NE(NULL, mw);
	EXPECT_EQ(EIO, mkt_bind_window(&self->s.pair.end[1], mw, leaf->mr, leaf->addr, 4096,
				       IBV_ACCESS_REMOTE_READ));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
}

FIXTURE(buffer)
{
	struct mkt_dev dev;
	int fd;
};

FIXTURE_SETUP(buffer)
{
	MKT_OPEN_SIDE(&self->dev, 0);
	self->fd = mkt_heap_buffer(SIZE, O_RDWR);
	if (self->fd < 0)
		SKIP(return, "no DMA-BUF heap");
}

FIXTURE_TEARDOWN(buffer)
{
	close(self->fd);
	mkt_dev_close(&self->dev);
}

/* registers and deregisters an MR; returns 0 or an errno */
static int buffer_reg(struct mkt_dev *dev, int fd, uint64_t offset,
		      size_t length, uint64_t iova, int access)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibmkey_reg_dmabuf_mr(dev->pd, offset, length, iova, fd, access);
	return mr ? ibv_dereg_mr(mr) : errno;
}

TEST_F(buffer, ranges)
{
	struct mkt_dev *dev = &self->dev;

	EXPECT_EQ(0, buffer_reg(dev, self->fd, 0, SIZE, 0, MKT_ACCESS_ALL));
	EXPECT_EQ(0, buffer_reg(dev, self->fd, SIZE - 1, 1, PAGE - 1, 0));
	EXPECT_EQ(0, buffer_reg(dev, self->fd, 0, 1, -PAGE, 0));
	EXPECT_EQ(EINVAL, buffer_reg(dev, self->fd, 0, 0, 0, 0));
	EXPECT_EQ(EINVAL, buffer_reg(dev, self->fd, 0, SIZE + 1, 0, 0));
	EXPECT_EQ(EINVAL, buffer_reg(dev, self->fd, 1, SIZE, 1, 0));
	EXPECT_EQ(EINVAL, buffer_reg(dev, self->fd, SIZE, 1, 0, 0));
	EXPECT_EQ(EINVAL, buffer_reg(dev, self->fd, 0, -1ul, 0, 0));
	EXPECT_EQ(EINVAL, buffer_reg(dev, self->fd, -PAGE, 2 * PAGE, 0, 0));
	EXPECT_EQ(EINVAL, buffer_reg(dev, self->fd, 0, 8, 8, 0));
	EXPECT_EQ(EOVERFLOW, buffer_reg(dev, self->fd, 0, 2 * PAGE, -PAGE, 0));
}

TEST_F(buffer, rights)
{
	const int bad[] = {
		IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC,
		/* access flags that the method refuses on any device */
		IBV_ACCESS_MW_BIND, IBV_ACCESS_ZERO_BASED,
		IBV_ACCESS_ON_DEMAND, IBV_ACCESS_FLUSH_GLOBAL, 1 << 30,
	};
	int fd = mkt_heap_buffer(SIZE, O_RDONLY);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(EINVAL, buffer_reg(&self->dev, self->fd, 0, SIZE, 0,
					     bad[i]))
			TH_LOG("rights 0x%x", bad[i]);
	}
	ASSERT_LE(0, fd);
	EXPECT_EQ(EACCES, buffer_reg(&self->dev, fd, 0, SIZE, 0,
				     IBV_ACCESS_LOCAL_WRITE));
	EXPECT_EQ(0, buffer_reg(&self->dev, fd, 0, SIZE, 0,
				IBV_ACCESS_REMOTE_READ));
	close(fd);
}

TEST_F(buffer, descriptors)
{
	int other[2], closed = dup(self->fd);

	close(closed);
	EXPECT_EQ(EBADF, buffer_reg(&self->dev, closed, 0, SIZE, 0, 0));
	EXPECT_EQ(EBADF, buffer_reg(&self->dev, -1, 0, SIZE, 0, 0));
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, other));
	EXPECT_EQ(EINVAL, buffer_reg(&self->dev, other[0], 0, SIZE, 0, 0));
	EXPECT_EQ(EINVAL, buffer_reg(&self->dev, self->dev.ctx->cmd_fd, 0,
				     SIZE, 0, 0));
	close(other[0]);
	close(other[1]);
}

/* the standard verb, from the provider's library or from the preload library */
TEST_F(buffer, verb)
{
	const char *preload = getenv("LD_PRELOAD");
	struct ibv_mr *mr;

	mr = ibv_reg_dmabuf_mr(self->dev.pd, PAGE, PAGE, 0, self->fd,
			       MKT_ACCESS_ALL);
	if (!mr && !preload) {
		EXPECT_EQ(EOPNOTSUPP, errno);
		return;
	}
	ASSERT_NE(NULL, mr);
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_ERRNO(EINVAL, ibv_reg_dmabuf_mr(self->dev.pd, PAGE, SIZE, 0, self->fd,
					       MKT_ACCESS_ALL));
}

/* a revoked buffer cannot be imported again; the last MR frees it */
TEST_F(buffer, revoked)
{
	struct mkt_pool before;
	struct ibv_mr *mr;
	struct ibv_dm *dm;
	int fd;

	if (mkt_pool(&self->dev, "host", &before))
		SKIP(return, "no debugfs");
	dm = mkt_dm_alloc(&self->dev, SIZE, 0, IBMKEY_DM_HOST);
	ASSERT_NE(NULL, dm);
	ASSERT_EQ(0, ibmkey_export_dm(dm, &fd));
	mr = ibmkey_reg_dmabuf_mr(self->dev.pd, 0, SIZE, 0, fd, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, mr);
	EXPECT_EQ(0, buffer_reg(&self->dev, fd, 0, SIZE, 0, MKT_ACCESS_ALL));
	ASSERT_EQ(0, ibv_free_dm(dm));
	/* also while the MR keeps its mapping */
	EXPECT_EQ(ENODEV, buffer_reg(&self->dev, fd, 0, SIZE, 0, 0));
	EXPECT_TRUE(mkt_pool_grew(&self->dev, "host", &before, SIZE));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_TRUE(mkt_pool_grew(&self->dev, "host", &before, 0));
	EXPECT_EQ(ENODEV, buffer_reg(&self->dev, fd, 0, SIZE, 0, 0));
	close(fd);
}

/* an MR keeps the dma-buf after its descriptor was closed */
TEST_F(buffer, closed)
{
	struct mkt_pool before;
	struct ibv_mr *mr;
	struct ibv_dm *dm;
	int fd, i;

	if (mkt_pool(&self->dev, "host", &before))
		SKIP(return, "no debugfs");
	for (i = 0; i < 50; i++) {
		dm = mkt_dm_alloc(&self->dev, SIZE, 0, IBMKEY_DM_HOST);
		ASSERT_NE(NULL, dm);
		ASSERT_EQ(0, ibmkey_export_dm(dm, &fd));
		mr = ibmkey_reg_dmabuf_mr(self->dev.pd, 0, SIZE, 0, fd, 0);
		ASSERT_NE(NULL, mr);
		close(fd);
		if (i & 1) {
			ASSERT_EQ(0, ibv_free_dm(dm));
			ASSERT_EQ(0, ibv_dereg_mr(mr));
		} else {
			ASSERT_EQ(0, ibv_dereg_mr(mr));
			ASSERT_EQ(0, ibv_free_dm(dm));
		}
	}
	EXPECT_TRUE(mkt_pool_grew(&self->dev, "host", &before, 0));
}

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

/* a work item drops the last reference to the dma-buf */
static int exporter_unload(void)
{
	return system("for n in $(seq 1800); do rmmod " EXPORTER
		      " 2>/dev/null && exit; sleep 0.1; done; exit 1");
}

FIXTURE(exporter)
{
	struct mkt_dev dev;
	int fd;
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
	if (self->fd >= 0) {
		EXPECT_EQ(0, exporter_unload());
	}
}

static int exporter_reg(void *data)
{
	FIXTURE_DATA(exporter) *self = data;

	return buffer_reg(&self->dev, self->fd, 0, 4 * PAGE, 0, MKT_ACCESS_ALL);
}

TEST_F(exporter, pages)
{
	static const struct {
		const char *parameters;
		int err;
	} cases[] = {
		{ "pages=1", 0 },
		/* mapped addresses without a struct page: a register, or nothing */
		{ "pages=0", EOPNOTSUPP },
		/*
		 * reserved memory in a hole between RAM: its struct page is of no memory
		 * that the kernel maps
		 */
		{ "pages=0 hole=1", EOPNOTSUPP },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		self->fd = exporter_load(cases[i].parameters);
		if (self->fd == -ENOENT)
			SKIP(return, "no " EXPORTER ".ko in MODULE_DIR");
		if (self->fd == -ENXIO) {
			TH_LOG("there is no hole between RAM");
			self->fd = -1;
			continue;
		}
		ASSERT_LE(0, self->fd);
		EXPECT_EQ(cases[i].err, exporter_reg(self))
			TH_LOG("%s", cases[i].parameters);
		close(self->fd);
		self->fd = -1;
		ASSERT_EQ(0, exporter_unload());
	}
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
static int exporter_delete(int (*call)(void *arg), void *arg, int *result)
{
	bool deleted = false, held = false;
	struct slow_thread thread;
	int n, status = -1;
	pid_t pid;

	if (slow_thread_create(&thread))
		return EAGAIN;
	slow_run(&thread, call, arg);
	/* the wait ends at once, or never */
	for (n = 0; n < 10 * MKT_STALL_SECONDS && !held; n++) {
		held = exporter_parameter("waiting") == 1;
		usleep(100000);
	}
	pid = fork();
	if (!pid)
		_exit(system("rdma link delete " OTHER) ? 1 : 0);
	deleted = mkt_ended(pid, MKT_STALL_SECONDS, &status);
	held = held && exporter_parameter("waiting") == 1;
	if (system("echo 0 >/sys/module/" EXPORTER "/parameters/hold"))
		return EIO;
	if (!deleted)
		waitpid(pid, &status, 0);
	*result = slow_join(&thread);
	slow_thread_end(&thread);
	return !held ? EPROTO : !deleted ? EBUSY : status ? EIO : 0;
}

TEST_F(exporter, slow_dereg)
{
	int result = -1, err = exporter_slow(self, "pages=1 hold=1");
	struct ibv_mr *mr;

	if (err == ENOENT)
		SKIP(return, "no " EXPORTER ".ko in MODULE_DIR");
	ASSERT_EQ(0, err);
	mr = ibmkey_reg_dmabuf_mr(self->dev.pd, 0, PAGE, 0, self->fd, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, mr);
	EXPECT_EQ(0, exporter_delete(slow_dereg, mr, &result));
	EXPECT_EQ(0, result);
}

/* a registration that fails after the buffer was mapped */
TEST_F(exporter, slow_refusal)
{
	int result = -1, err = exporter_slow(self, "pages=0 hold=1");

	if (err == ENOENT)
		SKIP(return, "no " EXPORTER ".ko in MODULE_DIR");
	ASSERT_EQ(0, err);
	EXPECT_EQ(0, exporter_delete(exporter_reg, self, &result));
	EXPECT_EQ(EOPNOTSUPP, result);
}

TEST_HARNESS_MAIN
