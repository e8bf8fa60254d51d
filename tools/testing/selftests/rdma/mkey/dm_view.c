// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Copies to and from device memory without a system call: the library maps memory that
 * is copied often. The results and the errors are those of the kernel's copy, also when another
 * process frees the memory. The file by which a process maps device memory: its size, who may write
 * to it, what is left of it after the memory was freed, and what it is charged.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "raw.h"

/* the first byte after it is not the first one of a page */
#define LENGTH 10000
#define PAGES 3
/* more than the library does by calls */
#define OFTEN 40

FIXTURE(view)
{
	struct mkt_dev dev;
	struct mkt_pool before;
	struct ibv_dm *dm;
	unsigned int files;
	unsigned int left;		/* views that the test cannot remove */
};

static unsigned int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int files = 0;

	while (dir && readdir(dir))
		files++;
	if (dir)
		closedir(dir);
	return files;
}

/* the number of views that this process has mapped */
static unsigned int views(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned int found = 0;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps))
		found += !!strstr(line, "/dmabuf:");
	if (maps)
		fclose(maps);
	return found;
}

/* copy until the library has mapped the memory, if it can */
static int copy_often(struct ibv_dm *dm)
{
	uint8_t byte = 0x5a;
	unsigned int i;
	int err = 0;

	for (i = 0; i < OFTEN && !err; i++)
		err = ibv_memcpy_to_dm(dm, i, &byte, 1);
	return err;
}

FIXTURE_SETUP(view)
{
	MKT_OPEN_SIDE(&self->dev, 0);
	if (mkt_pool(&self->dev, "host", &self->before))
		SKIP(return, "no debugfs");
	self->dm = mkt_dm_alloc(&self->dev, LENGTH, 0, IBMKEY_DM_HOST);
	ASSERT_NE(NULL, self->dm);
	self->files = open_files();
}

/* check that nothing is left, whatever the test did */
FIXTURE_TEARDOWN(view)
{
	if (self->dm)
		EXPECT_EQ(0, ibv_free_dm(self->dm));
	EXPECT_EQ(self->left, views());
	EXPECT_EQ(self->files, open_files());
	EXPECT_TRUE(mkt_pool_grew(&self->dev, "host", &self->before, 0));
	mkt_dev_close(&self->dev);
}

/* memory that is copied once is not worth a mapping */
TEST_F(view, mapped)
{
	uint8_t byte = 1;

	ASSERT_EQ(0, ibv_memcpy_to_dm(self->dm, 0, &byte, 1));
	EXPECT_EQ(0, views());
	ASSERT_EQ(0, copy_often(self->dm));
	EXPECT_EQ(1, views());
	EXPECT_EQ(self->files, open_files());
	ASSERT_EQ(0, ibv_free_dm(self->dm));
	EXPECT_EQ(0, views());
	self->dm = NULL;
}

/* the same errors by a call and without one */
TEST_F(view, refused)
{
	static const struct {
		uint64_t offset, length;
		int err;
	} cases[] = {
		{ LENGTH, 0, 0 },
		{ 0, LENGTH + 1, EINVAL }, { LENGTH, 1, EINVAL },
		{ LENGTH - 1, 2, EINVAL }, { LENGTH + 1, 0, EINVAL },
		{ 3 * 4096 - 1, 1, EINVAL }, { 3 * 4096, 1, EINVAL },
		{ 4 * 4096, 1, EINVAL }, { UINT64_MAX, 1, EINVAL },
		{ UINT64_MAX, 2, EINVAL }, { 1, UINT64_MAX, EINVAL },
		{ UINT64_MAX - 50, 100, EINVAL }, { 1ull << 32, 1, EINVAL },
	};
	uint8_t bytes[LENGTH + 1];
	unsigned int i, mapped;

	memset(bytes, 0x11, sizeof(bytes));
	for (mapped = 0; mapped < 2; mapped++) {
		for (i = 0; i < ARRAY_SIZE(cases); i++) {
			uint64_t offset = cases[i].offset, length = cases[i].length;

			EXPECT_EQ(cases[i].err, ibv_memcpy_to_dm(self->dm, offset,
								 bytes, length));
			EXPECT_EQ(cases[i].err, ibv_memcpy_from_dm(bytes, self->dm,
								   offset, length));
		}
		EXPECT_EQ(EFAULT, ibv_memcpy_to_dm(self->dm, 0, NULL, 1));
		EXPECT_EQ(EFAULT, ibv_memcpy_from_dm(NULL, self->dm, 0, 1));
		EXPECT_EQ(0, ibv_memcpy_from_dm(NULL, self->dm, 0, 0));
		ASSERT_EQ(mapped, views());
		ASSERT_EQ(0, copy_often(self->dm));
	}
	/* nothing else was written */
	ASSERT_EQ(0, ibv_memcpy_from_dm(bytes, self->dm, OFTEN, LENGTH - OFTEN));
	for (i = 0; i < LENGTH - OFTEN; i++)
		ASSERT_EQ(0, bytes[i]);
}

/* without a mapping, the kernel copies; when one is possible, it is made */
TEST_F(view, no_room)
{
	static const int limits[] = { RLIMIT_NOFILE, RLIMIT_AS };
	struct rlimit all, none = {};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(limits); i++) {
		ASSERT_EQ(0, getrlimit(limits[i], &all));
		none.rlim_max = all.rlim_max;
		ASSERT_EQ(0, setrlimit(limits[i], &none));
		EXPECT_EQ(0, copy_often(self->dm));
		ASSERT_EQ(0, setrlimit(limits[i], &all));
		EXPECT_EQ(0, views());
		EXPECT_EQ(self->files, open_files());
	}
	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, copy_often(self->dm));
	EXPECT_EQ(1, views());
}

/* memory that cannot be freed stays mapped */
TEST_F(view, registered)
{
	struct ibv_mr *mr;

	ASSERT_EQ(0, copy_often(self->dm));
	mr = ibv_reg_dm_mr(self->dev.pd, self->dm, 0, LENGTH,
			   MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	ASSERT_NE(NULL, mr);
	EXPECT_EQ(EBUSY, ibv_free_dm(self->dm));
	EXPECT_EQ(1, views());
	EXPECT_EQ(0, copy_often(self->dm));
	ASSERT_EQ(0, ibv_dereg_mr(mr));
}

/* the memory of another handle for it */
TEST_F(view, import)
{
	struct ibv_dm *dm = ibv_import_dm(self->dev.ctx, self->dm->handle);
	uint8_t byte = 0;

	if (!dm && errno == EOPNOTSUPP)
		SKIP(return, "the provider's library lacks the verb");
	ASSERT_NE(NULL, dm);
	ASSERT_EQ(0, copy_often(dm));
	EXPECT_EQ(1, views());
	EXPECT_EQ(EINVAL, ibv_memcpy_to_dm(dm, LENGTH, &byte, 1));
	EXPECT_EQ(0, ibv_memcpy_from_dm(&byte, self->dm, OFTEN - 1, 1));
	EXPECT_EQ(0x5a, byte);
	ibv_unimport_dm(dm);
	EXPECT_EQ(0, views());
	EXPECT_EQ(0, copy_often(self->dm));
	EXPECT_EQ(1, views());
}

/* more buffers than the library maps; the others are copied by calls */
#define MANY 1100
#define MOST 1024

TEST_F(view, many)
{
	struct ibv_dm **dm = calloc(MANY, sizeof(*dm));
	uint8_t byte;
	unsigned int i;

	ASSERT_NE(NULL, dm);
	for (i = 0; i < MANY; i++) {
		dm[i] = mkt_dm_alloc(&self->dev, LENGTH, 0, IBMKEY_DM_HOST);
		ASSERT_NE(NULL, dm[i]);
		ASSERT_EQ(0, copy_often(dm[i]));
		byte = i;
		ASSERT_EQ(0, ibv_memcpy_to_dm(dm[i], LENGTH - 1, &byte, 1));
	}
	EXPECT_EQ(MOST, views());
	for (i = 0; i < MANY; i++) {
		ASSERT_EQ(0, ibv_memcpy_from_dm(&byte, dm[i], LENGTH - 1, 1));
		ASSERT_EQ((uint8_t)i, byte);
		ASSERT_EQ(0, ibv_free_dm(dm[i]));
	}
	/* there is room again */
	ASSERT_EQ(0, copy_often(self->dm));
	EXPECT_EQ(1, views());
	free(dm);
}

/* threads that copy at the same time */
#define THREADS 4
#define PIECE 100

struct copier {
	struct ibv_dm *dm;
	pthread_barrier_t *start;
	unsigned int number;
	int err;
};

static void *copier_run(void *arg)
{
	struct copier *copier = arg;
	uint64_t at = copier->number * PIECE;
	uint8_t put[PIECE], seen[PIECE];
	unsigned int i;

	pthread_barrier_wait(copier->start);
	for (i = 0; i < 4 * OFTEN && !copier->err; i++) {
		memset(put, i + copier->number, PIECE);
		copier->err = ibv_memcpy_to_dm(copier->dm, at, put, PIECE);
		if (!copier->err)
			copier->err = ibv_memcpy_from_dm(seen, copier->dm, at, PIECE);
		if (!copier->err && memcmp(put, seen, PIECE))
			copier->err = EBADMSG;
	}
	return NULL;
}

/* threads that make the first copies at the same time share one mapping */
TEST_F(view, threads)
{
	struct copier copier[THREADS] = {};
	pthread_barrier_t start;
	pthread_t tid[THREADS];
	unsigned int i, round;

	ASSERT_EQ(0, pthread_barrier_init(&start, NULL, THREADS));
	for (round = 0; round < mkt_scale(100, 10); round++) {
		struct ibv_dm *dm = mkt_dm_alloc(&self->dev, LENGTH, 0, IBMKEY_DM_HOST);

		ASSERT_NE(NULL, dm);
		for (i = 0; i < THREADS; i++) {
			copier[i] = (struct copier){ dm, &start, i, 0 };
			ASSERT_EQ(0, pthread_create(&tid[i], NULL, copier_run,
						    &copier[i]));
		}
		for (i = 0; i < THREADS; i++) {
			pthread_join(tid[i], NULL);
			EXPECT_EQ(0, copier[i].err);
		}
		EXPECT_EQ(1, views());
		ASSERT_EQ(0, ibv_free_dm(dm));
		EXPECT_EQ(0, views());
	}
	pthread_barrier_destroy(&start);
}

/* a child has the parent's memory, mapped or not */
TEST_F(view, child_copies)
{
	uint8_t byte = 0x77;

	ASSERT_EQ(0, copy_often(self->dm));
	ASSERT_EQ(0, MKT_IN_CHILD(views() != 1 ||
				  ibv_memcpy_to_dm(self->dm, LENGTH - 1, &byte, 1)));
	byte = 0;
	ASSERT_EQ(0, ibv_memcpy_from_dm(&byte, self->dm, LENGTH - 1, 1));
	EXPECT_EQ(0x77, byte);
}

/*
 * A child frees the memory, which belongs to the parent's open file, too. The
 * memory can be used again at once. The parent's copies fail as the kernel's do,
 * and raise no signal: on the page that it has used, and on the others.
 */
TEST_F(view, child_frees)
{
	uint8_t bytes[LENGTH] = {};
	ASSERT_EQ(0, copy_often(self->dm));
	ASSERT_EQ(1, views());
	ASSERT_EQ(0, MKT_IN_CHILD(ibv_free_dm(self->dm)));
	EXPECT_TRUE(mkt_pool_grew(&self->dev, "host", &self->before, 0));
	EXPECT_EQ(ENOENT, ibv_memcpy_from_dm(bytes, self->dm, 0, 1));
	EXPECT_EQ(ENOENT, ibv_memcpy_to_dm(self->dm, 0, bytes, 1));
	EXPECT_EQ(ENOENT, ibv_memcpy_to_dm(self->dm, 0, bytes, LENGTH));
	EXPECT_EQ(ENOENT, ibv_memcpy_from_dm(bytes, self->dm, 0, LENGTH));
	EXPECT_EQ(ENOENT, ibv_memcpy_from_dm(bytes, self->dm, LENGTH, 1));
	/* what could not be freed keeps its mapping */
	EXPECT_EQ(ENOENT, ibv_free_dm(self->dm));
	self->dm = NULL;
	self->left = 1;
}

/* the file by which a process maps device memory, without the library */

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
	EXPECT_ERRNO(EOPNOTSUPP, ibmkey_reg_dmabuf_mr(self->dev.pd, 0, 4096, 0, view.fd,
						      IBV_ACCESS_LOCAL_WRITE));
	view_close(&view);
}

/* after a free the state changes, and accesses show no byte of the memory */
TEST_F(view, freed)
{
	struct raw_view view;
	size_t i;

	ASSERT_EQ(0, view_open(&self->dev, self->dm, &view));
	/* the last page is not touched before */
	memset(view.at, 0x44, 2 * 4096);
	EXPECT_EQ(0, view.at[PAGES * 4096]);
	ASSERT_EQ(0, ibv_free_dm(self->dm));
	self->dm = NULL;
	EXPECT_TRUE(mkt_pool_grew(&self->dev, "host", &self->before, 0));
	EXPECT_NE(0, view.at[PAGES * 4096]);
	for (i = 0; i < PAGES * 4096; i++) {
		ASSERT_EQ(0, view.at[i]);
	}
	memset(view.at, 0x55, PAGES * 4096);
	EXPECT_EQ(1, view.at[PAGES * 4096]);
	view_close(&view);
}

/* writes to the last byte of the memory, and then to the state */
static int view_write(struct mkt_dev *dev, struct ibv_dm *dm)
{
	struct raw_view view;

	/* fork() does not copy a mapping of a view */
	if (view_open(dev, dm, &view))
		return 1;
	__atomic_store_n(&view.at[PAGES * 4096 - 1], 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&view.at[PAGES * 4096], 1, __ATOMIC_SEQ_CST);
	return 2;
}

/* a process cannot make others believe that memory was freed, or that it was not */
TEST_F(view, state_is_read_only)
{
	struct raw_view view;

	ASSERT_EQ(0, view_open(&self->dev, self->dm, &view));
	EXPECT_EQ(-SIGBUS, MKT_IN_CHILD(view_write(&self->dev, self->dm)));
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
