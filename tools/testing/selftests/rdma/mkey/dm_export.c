// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Device memory as a dma-buf: its owner and other processes map it, a device
 * (test_modules/mkey_importer.c) uses it, and freeing the memory revokes it.
 * needs: dma-buf
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mkey_harness.h"

#define LENGTH 10000
#define PAGES 12288

FIXTURE(export)
{
	struct mkt_dev dev;
	struct mkt_pool before;
	struct ibv_dm *dm;
	int fd;
};

FIXTURE_SETUP(export)
{
	MKT_OPEN_SIDE(&self->dev, 0);
	if (mkt_pool(&self->dev, "host", &self->before))
		SKIP(return, "no debugfs");
	self->dm = mkt_dm_alloc(&self->dev, LENGTH, 0, IBMKEY_DM_HOST);
	ASSERT_NE(NULL, self->dm);
	ASSERT_EQ(0, ibmkey_export_dm(self->dm, &self->fd));
}

/* check that nothing is left, whatever the test did */
FIXTURE_TEARDOWN(export)
{
	if (self->dm)
		EXPECT_EQ(0, ibv_free_dm(self->dm));
	EXPECT_TRUE(mkt_pool_grew(&self->dev, "host", &self->before, 0));
	if (self->fd >= 0)
		close(self->fd);
	mkt_dev_close(&self->dev);
}

static uint8_t *map_at(int fd, size_t length, int prot, int flags, off_t offset)
{
	void *at;

	errno = 0;
	at = mmap(NULL, length, prot, flags, fd, offset);
	return at == MAP_FAILED ? NULL : at;
}

static uint8_t *map(int fd)
{
	return map_at(fd, PAGES, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
}

static int read_byte(const uint8_t *at)
{
	signal(SIGBUS, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	__atomic_load_n(at, __ATOMIC_RELAXED);
	return 0;
}

/* reads a byte in another process: returns 0, or minus the signal that killed it */
static int touch(const uint8_t *at)
{
	return MKT_IN_CHILD(read_byte(at));
}

TEST_F(export, mapping)
{
	uint8_t bytes[LENGTH], *all, *part, *read_only;
	size_t i;

	all = map(self->fd);
	ASSERT_NE(NULL, all);
	for (i = 0; i < LENGTH; i++)
		bytes[i] = i * 5 + 1;
	ASSERT_EQ(0, ibv_memcpy_to_dm(self->dm, 0, bytes, LENGTH));
	EXPECT_EQ(0, memcmp(all, bytes, LENGTH));
	part = map_at(self->fd, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 8192);
	ASSERT_NE(NULL, part);
	EXPECT_EQ(0, memcmp(part, bytes + 8192, LENGTH - 8192));
	part[1] = 99;
	EXPECT_EQ(99, all[8193]);
	ASSERT_EQ(0, ibv_memcpy_from_dm(bytes, self->dm, 0, LENGTH));
	EXPECT_EQ(99, bytes[8193]);
	read_only = map_at(self->fd, PAGES, PROT_READ, MAP_SHARED, 0);
	ASSERT_NE(NULL, read_only);
	EXPECT_EQ(0, memcmp(read_only, all, PAGES));
	munmap(read_only, PAGES);
	munmap(part, 4096);
	munmap(all, PAGES);
}

TEST_F(export, refused)
{
	const int rw = PROT_READ | PROT_WRITE;
	static const struct {
		size_t length;
		int flags;
		off_t offset;
	} maps[] = {
		{ PAGES + 1, MAP_SHARED, 0 },
		{ 4096, MAP_SHARED, PAGES },
		{ PAGES, MAP_PRIVATE, 0 },
	};
	unsigned int i;
	int fd;

	for (i = 0; i < ARRAY_SIZE(maps); i++) {
		EXPECT_ERRNO(EINVAL, map_at(self->fd, maps[i].length, rw, maps[i].flags,
					    maps[i].offset));
	}
	EXPECT_EQ(EFAULT, ibmkey_export_dm(self->dm, NULL));
	EXPECT_EQ(EINVAL, ibmkey_export_dm(NULL, &fd));
}

/* every export of a buffer is the same dma-buf */
TEST_F(export, same)
{
	struct stat one, two;
	int fd;

	ASSERT_EQ(0, ibmkey_export_dm(self->dm, &fd));
	ASSERT_EQ(0, fstat(self->fd, &one));
	ASSERT_EQ(0, fstat(fd, &two));
	EXPECT_EQ(one.st_ino, two.st_ino);
	EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));
	close(fd);
}

/*
 * The verb of later versions of libibverbs, from there or from the preload
 * library. The library that this test was built with may lack it.
 */
TEST_F(export, verb)
{
	void *symbol = dlsym(RTLD_DEFAULT, "ibv_dm_export_dmabuf_fd");
	int (*verb)(struct ibv_dm *dm) = symbol;
	uint8_t *one, *other;
	int fd;

	if (!verb)
		SKIP(return, "no ibv_dm_export_dmabuf_fd()");
	fd = verb(self->dm);
	if (fd < 0 && errno == EOPNOTSUPP)
		SKIP(return, "the provider's library lacks the verb");
	ASSERT_LE(0, fd);
	EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));
	one = map(self->fd);
	other = map(fd);
	ASSERT_NE(NULL, one);
	ASSERT_NE(NULL, other);
	one[LENGTH - 1] = 0x5a;
	EXPECT_EQ(0x5a, other[LENGTH - 1]);
	EXPECT_EQ(0, munmap(one, PAGES));
	EXPECT_EQ(0, munmap(other, PAGES));
	close(fd);
}

/* device memory is found by its handle in the file that made it */
TEST_F(export, import)
{
	struct ibv_context *ctx = self->dev.ctx;
	uint8_t seen[4] = {};
	struct ibv_dm *dm;

	errno = 0;
	dm = ibv_import_dm(ctx, self->dm->handle);
	if (!dm && errno == EOPNOTSUPP)
		SKIP(return, "the provider's library lacks the verb");
	ASSERT_NE(NULL, dm);
	ASSERT_EQ(0, ibv_memcpy_to_dm(self->dm, LENGTH - 4, "abcd", 4));
	ASSERT_EQ(0, ibv_memcpy_from_dm(seen, dm, LENGTH - 4, 4));
	EXPECT_EQ(0, memcmp(seen, "abcd", 4));
	ibv_unimport_dm(dm);
	/* it is still there */
	EXPECT_EQ(0, ibv_memcpy_to_dm(self->dm, 0, "e", 1));
	/* a handle that names nothing, and one that names something else */
	EXPECT_ERRNO(ENOENT, ibv_import_dm(ctx, self->dm->handle + 1000));
	EXPECT_ERRNO(EINVAL, ibv_import_dm(ctx, self->dev.pd->handle));
}

TEST_F(export, no_descriptors)
{
	struct rlimit all, none = { 0 };
	int fd;

	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &all));
	none.rlim_max = all.rlim_max;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
	EXPECT_EQ(EMFILE, ibmkey_export_dm(self->dm, &fd));
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &all));
}

/*
 * after a free, no mapping shows the memory, and it can be allocated again at
 * once
 */
TEST_F(export, revoked)
{
	uint8_t *all, *part;

	all = map(self->fd);
	part = map_at(self->fd, 4096, PROT_READ, MAP_SHARED, 4096);
	ASSERT_NE(NULL, all);
	ASSERT_NE(NULL, part);
	all[0] = 1;
	EXPECT_EQ(0, touch(all));
	ASSERT_EQ(0, ibv_free_dm(self->dm));
	self->dm = NULL;
	EXPECT_TRUE(mkt_pool_grew(&self->dev, "host", &self->before, 0));
	EXPECT_EQ(-SIGBUS, touch(all));
	EXPECT_EQ(-SIGBUS, touch(all + 8192));
	EXPECT_EQ(-SIGBUS, touch(part));
	EXPECT_ERRNO(ENODEV, map(self->fd));
	munmap(part, 4096);
	munmap(all, PAGES);
}

/* another process writes, reports that, and reads again when it is told to */
static void other(int fd, int socket)
{
	uint8_t *all = map(fd);
	char byte = 0;

	if (!all)
		_exit(1);
	memset(all, 0x5a, PAGES);
	if (write(socket, &byte, 1) != 1 || read(socket, &byte, 1) != 1)
		_exit(2);
	signal(SIGBUS, SIG_DFL);
	__atomic_load_n(all, __ATOMIC_RELAXED);
	_exit(3);
}

/* all bytes of the memory are @value */
static bool filled(struct ibv_dm *dm, uint8_t value)
{
	uint8_t bytes[LENGTH];

	return !ibv_memcpy_from_dm(bytes, dm, 0, LENGTH) && bytes[0] == value &&
	       !memcmp(bytes, bytes + 1, LENGTH - 1);
}

TEST_F(export, process)
{
	int pair[2], status;
	char byte;
	pid_t pid;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	fflush(stdout);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		other(self->fd, pair[1]);
	ASSERT_EQ(1, read(pair[0], &byte, 1));
	EXPECT_TRUE(filled(self->dm, 0x5a));
	ASSERT_EQ(0, ibv_free_dm(self->dm));
	self->dm = NULL;
	ASSERT_EQ(1, write(pair[0], &byte, 1));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(SIGBUS, WTERMSIG(status));
	close(pair[0]);
	close(pair[1]);
}

/* relative to MODULE_DIR */
#define IMPORTER "tools/testing/selftests/rdma/mkey/test_modules/mkey_importer.ko"

/* the path of the module, or "" if it cannot be loaded */
static const char *importer(void)
{
	const char *dir = getenv("MODULE_DIR");
	static char path[512];

	snprintf(path, sizeof(path), "%s/" IMPORTER, dir ?: ".");
	return geteuid() || access(path, R_OK) ? "" : path;
}

static int load_importer(int fd, bool hold)
{
	char command[600];
	int copy, status;

	/* insmod inherits this descriptor */
	copy = dup(fd);
	snprintf(command, sizeof(command), "insmod %s fd=%d hold=%d", importer(), copy, hold);
	status = system(command);
	close(copy);
	return status;
}

static char importer_revoked(void)
{
	char line[16] = "";

	mkt_command(line, sizeof(line),
		    "cat /sys/module/mkey_importer/parameters/revoked");
	return line[0];
}

/* a device writes to the memory and releases it when it is told to */
TEST_F(export, importer)
{
	if (!*importer())
		SKIP(return, "no mkey_importer.ko in MODULE_DIR");
	ASSERT_EQ(0, load_importer(self->fd, false));
	EXPECT_EQ('N', importer_revoked());
	EXPECT_TRUE(filled(self->dm, 0xff));
	ASSERT_EQ(0, ibv_free_dm(self->dm));
	self->dm = NULL;
	EXPECT_EQ('Y', importer_revoked());
	EXPECT_TRUE(mkt_pool_grew(&self->dev, "host", &self->before, 0));
	EXPECT_EQ(0, system("rmmod mkey_importer"));
	/* the memory cannot be imported any more */
	EXPECT_NE(0, load_importer(self->fd, false));
}

/* an importer that keeps the pages prevents their reuse */
TEST_F(export, importer_holds)
{
	if (!*importer())
		SKIP(return, "no mkey_importer.ko in MODULE_DIR");
	ASSERT_EQ(0, load_importer(self->fd, true));
	ASSERT_EQ(0, ibv_free_dm(self->dm));
	self->dm = NULL;
	EXPECT_EQ('Y', importer_revoked());
	EXPECT_TRUE(mkt_pool_grew(&self->dev, "host", &self->before, PAGES));
	EXPECT_EQ(0, system("rmmod mkey_importer"));
}

/* a device that cannot reach a PCI function's memory cannot import it */
TEST_F(export, importer_far)
{
	struct ibv_dm *dm;
	char what[64];
	int fd;

	if (!*importer())
		SKIP(return, "no mkey_importer.ko in MODULE_DIR");
	if (!mkt_hardware(what, sizeof(what), "p2p"))
		SKIP(return, "no PCI function with memory for peers");
	dm = mkt_dm_alloc(&self->dev, LENGTH, 0, IBMKEY_DM_P2P);
	ASSERT_NE(NULL, dm);
	ASSERT_EQ(0, ibmkey_export_dm(dm, &fd));
	EXPECT_NE(0, load_importer(fd, false));
	EXPECT_NE(0, access("/sys/module/mkey_importer", F_OK));
	close(fd);
	ASSERT_EQ(0, ibv_free_dm(dm));
}

TEST_HARNESS_MAIN
