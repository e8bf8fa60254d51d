// SPDX-License-Identifier: GPL-2.0
/*
 * subject: MRs whose memory the library allocates, and that processes share: ibmkey_reg_alloc(),
 * IBMKEY_REREG_ALLOC, ibmkey_share_mr() and ibmkey_reg_shared(). The memory is of huge pages if
 * possible, and goes with its last MR. A call that fails leaves nothing.
 * needs: leaves, dma-buf
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "mkey_harness.h"

#define TRANSLATION IBV_REREG_MR_CHANGE_TRANSLATION
#define ALLOC (TRANSLATION | IBMKEY_REREG_ALLOC)
#define HUGE (2ul << 20)

MKT_FIXTURE(alloc, .host = 64 * 1024, .max_entries = 4);

/* moves bytes to and from the beginning and the end of @mr, and compares them with its memory */
static int alloc_use(struct mkt_setup *s, const struct ibv_mr *mr)
{
	size_t n = mr->length < 30000 ? mr->length : 30000, at[2] = { 0, mr->length - n }, i;
	uint8_t *far = (uint8_t *)(uintptr_t)s->plain[0].addr, *near;

	for (i = 0; i < 2; i++) {
		near = (uint8_t *)mr->addr + at[i];
		mkt_rand_bytes(&s->rng, far, n);
		if (mkt_try(s, mr->rkey, MKT_WRITE, (uintptr_t)near, n) != IBV_WC_SUCCESS ||
		    memcmp(near, far, n))
			return EBADMSG;
		mkt_rand_bytes(&s->rng, near, n);
		if (mkt_try(s, mr->rkey, MKT_READ, (uintptr_t)near, n) != IBV_WC_SUCCESS ||
		    memcmp(near, far, n))
			return EBADMSG;
	}
	/* the byte after the last one is not the MR's */
	return mkt_try(s, mr->rkey, MKT_READ, (uintptr_t)near + 1, n) == IBV_WC_REM_ACCESS_ERR ?
	       0 : ERANGE;
}

static bool alloc_is_zero(const struct ibv_mr *mr)
{
	const uint8_t *bytes = mr->addr;
	size_t i;

	for (i = 0; i < mr->length && !bytes[i]; i++)
		;
	return i == mr->length;
}

static bool alloc_is_mapped(const void *at)
{
	void *page = (void *)((uintptr_t)at & ~4095ul);

	return !msync(page, 4096, MS_ASYNC);
}

/* kilobytes of a line of smaps about the mapping at @addr, -1 without such a line */
static long alloc_smaps(const void *addr, const char *name)
{
	char line[64];

	return mkt_command(line, sizeof(line),
			   "awk '/^[0-9a-f]+-/ { on = /^%lx-/ } on && $1 == \"%s:\" { print $2 }' /proc/%d/smaps",
			   (unsigned long)addr, name, getpid()) ?
	       strtol(line, NULL, 10) : -1;
}

/* what a call that fails must not leave */
struct alloc_left {
	int mrs, fds;
	long mappings, pinned;
};

static struct alloc_left alloc_left(const struct mkt_setup *s)
{
	struct alloc_left left = { .mrs = mkt_dev_count(&s->dev[1], "mr") };
	DIR *dir = opendir("/proc/self/fd");
	char line[64];

	for (; dir && readdir(dir); left.fds++)
		;
	if (dir)
		closedir(dir);
	if (mkt_command(line, sizeof(line), "grep -c memfd:ibmkey /proc/%d/maps", getpid()))
		left.mappings = strtol(line, NULL, 10);
	if (mkt_command(line, sizeof(line), "awk '/^VmPin:/ { print $2 }' /proc/%d/status",
			getpid()))
		left.pinned = strtol(line, NULL, 10);
	return left;
}

#define EXPECT_LEFT(s, before) do {						\
	struct alloc_left __now = alloc_left(s);				\
										\
	EXPECT_EQ((before).mrs, __now.mrs);					\
	EXPECT_EQ((before).fds, __now.fds);					\
	EXPECT_EQ((before).mappings, __now.mappings);				\
	EXPECT_EQ((before).pinned, __now.pinned);				\
} while (0)

/* any length; all bytes are zero and the process's, and none is left */
TEST_F(alloc, lengths)
{
	static const size_t lengths[] = {
		1, 4095, 4096, 5000, 65536, HUGE - 1, HUGE, HUGE + 5000, 3 * HUGE,
	};
	struct mkt_setup *s = &self->s;
	struct alloc_left before = alloc_left(s);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct ibv_mr *mr = ibmkey_reg_alloc(s->dev[1].pd, lengths[i], MKT_ACCESS_ALL);
		void *addr;

		ASSERT_NE(NULL, mr);
		EXPECT_EQ(lengths[i], mr->length);
		EXPECT_EQ(s->dev[1].pd, mr->pd);
		addr = mr->addr;
		EXPECT_EQ(0, (uintptr_t)addr % (lengths[i] < HUGE ? 4096 : HUGE));
		EXPECT_TRUE(alloc_is_zero(mr));
		EXPECT_EQ(0, alloc_use(s, mr));
		ASSERT_EQ(0, ibmkey_dereg(mr));
		EXPECT_FALSE(alloc_is_mapped(addr));
	}
	EXPECT_LEFT(s, before);
}

/* sets the number of huge pages of the pool; returns the number that there was, -1 if that fails */
static long alloc_set_pool(long pages)
{
	char line[64];

	if (geteuid() || !mkt_write_file("/proc/sys/vm/compact_memory", "1"))
		return -1;
	return mkt_command(line, sizeof(line),
			   "cd /sys/kernel/mm/hugepages/hugepages-2048kB && cat nr_hugepages && echo %ld >nr_hugepages && test $(cat nr_hugepages) -ge %ld",
			   pages, pages) ? strtol(line, NULL, 10) : -1;
}

/* multiples of 2 MiB are of the pool if it has enough pages, else of transparent huge pages */
TEST_F(alloc, huge_pages)
{
	struct mkt_setup *s = &self->s;
	long before = alloc_set_pool(4), kept[3] = {}, kinds[3] = {};
	static const size_t lengths[] = { 3 * HUGE, 3 * HUGE, 2 * HUGE + 4096 };
	struct ibv_mr *mr[3] = {};
	unsigned int i;

	if (before < 0)
		SKIP(return, "no pool of huge pages of 2 MiB");
	/* the first one leaves one page of the pool */
	for (i = 0; i < 3; i++) {
		mr[i] = ibmkey_reg_alloc(s->dev[1].pd, lengths[i], MKT_ACCESS_ALL);
		if (!mr[i])
			break;
		kinds[i] = alloc_smaps(mr[i]->addr, "KernelPageSize");
		kept[i] = alloc_smaps(mr[i]->addr, "ShmemPmdMapped");
	}
	alloc_set_pool(before);
	ASSERT_EQ(3, i);
	EXPECT_EQ(2048, kinds[0]);
	EXPECT_EQ(4, kinds[1]);
	EXPECT_EQ(3 * 2048, kept[1]);
	EXPECT_EQ(4, kinds[2]);
	EXPECT_EQ(2 * 2048, kept[2]);
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(0, alloc_use(s, mr[i]));
		EXPECT_EQ(0, ibmkey_dereg(mr[i]));
	}
}

/* MRs of libibverbs and of the library get new memory, and the program's own again */
TEST_F(alloc, rereg)
{
	struct mkt_setup *s = &self->s;
	struct alloc_left before = alloc_left(s);
	struct ibv_mr *mr;
	uint32_t rkey;
	void *old, *own;

	own = mmap(NULL, 20000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, own);
	mr = ibv_reg_mr(s->dev[1].pd, own, 20000, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, mr);
	rkey = mr->rkey;
	ASSERT_EQ(0, ibmkey_rereg_mr(mr, ALLOC, NULL, NULL, 5000, 0));
	EXPECT_EQ(5000, mr->length);
	EXPECT_NE(own, mr->addr);
	EXPECT_TRUE(alloc_is_zero(mr));
	EXPECT_EQ(0, alloc_use(s, mr));

	/* other memory of the library; the former one is freed */
	old = mr->addr;
	ASSERT_EQ(0, ibmkey_rereg_mr(mr, ALLOC | IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, HUGE + 1,
				     MKT_ACCESS_ALL));
	EXPECT_FALSE(alloc_is_mapped(old));
	EXPECT_TRUE(alloc_is_zero(mr));
	EXPECT_EQ(0, alloc_use(s, mr));

	old = mr->addr;
	ASSERT_EQ(0, ibmkey_rereg_mr(mr, TRANSLATION, NULL, own, 20000, 0));
	EXPECT_FALSE(alloc_is_mapped(old));
	EXPECT_EQ(own, mr->addr);
	EXPECT_EQ(0, alloc_use(s, mr));
	EXPECT_EQ(rkey, mr->rkey);

	ASSERT_EQ(0, ibmkey_rereg_mr(mr, ALLOC, NULL, NULL, 100, 0));
	EXPECT_EQ(0, alloc_use(s, mr));
	old = mr->addr;
	EXPECT_EQ(0, ibmkey_dereg(mr));
	EXPECT_FALSE(alloc_is_mapped(old));

	/* the program's memory is not the library's to free */
	mr = ibmkey_reg_alloc(s->dev[1].pd, 5000, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, mr);
	ASSERT_EQ(0, ibmkey_rereg_mr(mr, TRANSLATION, NULL, own, 20000, 0));
	EXPECT_EQ(0, alloc_use(s, mr));
	EXPECT_EQ(0, ibmkey_dereg(mr));
	EXPECT_TRUE(alloc_is_mapped(own));
	munmap(own, 20000);
	EXPECT_LEFT(s, before);
}

/* a call that fails leaves the MR and its memory as they were */
TEST_F(alloc, rereg_refused)
{
	static const struct {
		int err, flags;
		size_t length;
	} bad[] = {
		{ EINVAL, ALLOC, 0 },
		{ ENOMEM, ALLOC, SIZE_MAX },
		{ ENOMEM, ALLOC, 1ul << 46 },
		{ EINVAL, IBMKEY_REREG_ALLOC, 4096 },
		{ EINVAL, IBMKEY_REREG_ALLOC | IBV_REREG_MR_CHANGE_ACCESS, 4096 },
		{ EOPNOTSUPP, ALLOC | 1 << 20, 4096 },
		{ EINVAL, ALLOC | IBV_REREG_MR_CHANGE_PD, 4096 },
		/* remote writes need local ones */
		{ EINVAL, ALLOC | IBV_REREG_MR_CHANGE_ACCESS, 4096 },
	};
	struct mkt_setup *s = &self->s;
	struct ibv_mr *mr = ibmkey_reg_alloc(s->dev[1].pd, 9000, MKT_ACCESS_ALL);
	struct alloc_left before;
	struct ibv_mr same;
	unsigned int i;

	ASSERT_NE(NULL, mr);
	same = *mr;
	before = alloc_left(s);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(bad[i].err, ibmkey_rereg_mr(mr, bad[i].flags, NULL, NULL, bad[i].length,
						      IBV_ACCESS_REMOTE_WRITE));
		EXPECT_EQ(0, memcmp(&same, mr, sizeof(same)));
	}
	/* memory that the program names is not allocated */
	EXPECT_EQ(EINVAL, ibmkey_rereg_mr(mr, ALLOC, NULL, mr->addr, 4096, 0));
	EXPECT_EQ(EINVAL, ibmkey_rereg_mr(NULL, ALLOC, NULL, NULL, 4096, 0));
	EXPECT_EQ(EOPNOTSUPP, ibmkey_rereg_mr(s->key[1], ALLOC, NULL, NULL, 4096, 0));
	EXPECT_EQ(0, mkt_bind_range(s->key[1], 0, mr, (uintptr_t)mr->addr, 100));
	EXPECT_EQ(EBUSY, ibmkey_rereg_mr(mr, ALLOC, NULL, NULL, 4096, 0));
	EXPECT_EQ(0, ibmkey_unbind(s->key[1]));
	EXPECT_EQ(0, memcmp(&same, mr, sizeof(same)));
	EXPECT_LEFT(s, before);
	EXPECT_EQ(0, alloc_use(s, mr));
	EXPECT_EQ(0, ibmkey_dereg(mr));
}

TEST_F(alloc, refused)
{
	static const struct {
		int err, access;
		size_t length;
	} bad[] = {
		{ EINVAL, MKT_ACCESS_ALL, 0 },
		{ ENOMEM, MKT_ACCESS_ALL, SIZE_MAX },
		{ ENOMEM, MKT_ACCESS_ALL, SIZE_MAX / 2 },
		/* multiples of all sizes of huge pages */
		{ ENOMEM, MKT_ACCESS_ALL, 1ul << 46 },
		{ ENOMEM, MKT_ACCESS_ALL, 1ul << 62 },
		{ EINVAL, 1 << 19, 4096 },
		{ EINVAL, IBV_ACCESS_REMOTE_WRITE, 4096 },
		{ EINVAL, IBV_ACCESS_REMOTE_WRITE, 2 * HUGE },
	};
	struct mkt_setup *s = &self->s;
	struct alloc_left before = alloc_left(s);
	unsigned int i;

	EXPECT_ERRNO(EINVAL, ibmkey_reg_alloc(NULL, 4096, 0));
	EXPECT_STREQ("pd is NULL", ibmkey_last_error());
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		EXPECT_ERRNO(bad[i].err, ibmkey_reg_alloc(s->dev[1].pd, bad[i].length,
							  bad[i].access));
	EXPECT_LEFT(s, before);
	/* for an MR of libibverbs nothing has changed */
	EXPECT_EQ(EINVAL, ibmkey_dereg(s->arena[1].leaf[0].mr));
	EXPECT_EQ(0, alloc_use(s, s->arena[1].leaf[0].mr));
}

/* allocates with a limit; returns 0 if the call fails with @err and leaves nothing */
static int alloc_limited(struct mkt_setup *s, int resource, rlim_t limit, size_t length, int err)
{
	struct rlimit now = { limit, limit };
	struct alloc_left before, after;
	struct rlimit old;
	struct ibv_mr *mr;
	int seen;

	/* CAP_IPC_LOCK lifts RLIMIT_MEMLOCK. After setuid(), /proc/self is root's. */
	if (resource == RLIMIT_MEMLOCK &&
	    (setgid(65534) || setuid(65534) || prctl(PR_SET_DUMPABLE, 1)))
		return 1;
	before = alloc_left(s);
	if (getrlimit(resource, &old))
		return 2;
	now.rlim_max = old.rlim_max;
	if (setrlimit(resource, &now))
		return 3;
	mr = ibmkey_reg_alloc(s->dev[1].pd, length, MKT_ACCESS_ALL);
	seen = errno;
	if (setrlimit(resource, &old))
		return 4;
	if (mr || seen != err)
		return 5;
	after = alloc_left(s);
	return before.fds == after.fds && before.mappings == after.mappings &&
	       before.pinned == after.pinned ? 0 : 6;
}

TEST_F(alloc, limits)
{
	struct mkt_setup *s = &self->s;
	struct alloc_left before = alloc_left(s);
	rlim_t used;
	char line[64];

	ASSERT_TRUE(mkt_command(line, sizeof(line), "awk '/^VmSize:/ { print $2 }' /proc/%d/status",
				getpid()));
	used = strtoul(line, NULL, 10) << 10;
	EXPECT_EQ(0, MKT_IN_CHILD(alloc_limited(s, RLIMIT_MEMLOCK, 65536, 1 << 20, ENOMEM)));
	EXPECT_EQ(0, MKT_IN_CHILD(alloc_limited(s, RLIMIT_MEMLOCK, 65536, 2 * HUGE, ENOMEM)));
	EXPECT_EQ(0, MKT_IN_CHILD(alloc_limited(s, RLIMIT_AS, used + HUGE, 4 * HUGE, ENOMEM)));
	EXPECT_EQ(0, MKT_IN_CHILD(alloc_limited(s, RLIMIT_NOFILE, 3, 4096, EMFILE)));
	EXPECT_LEFT(s, before);
}

/* without room to align memory, the memory is not aligned */
static int alloc_in(struct mkt_setup *s, rlim_t limit, size_t length)
{
	struct rlimit now = { limit, limit };
	struct ibv_mr *mr;

	if (setrlimit(RLIMIT_AS, &now))
		return 1;
	mr = ibmkey_reg_alloc(s->dev[1].pd, length, MKT_ACCESS_ALL);
	return mr ? ibmkey_dereg(mr) : 2;
}

TEST_F(alloc, no_room_to_align)
{
	char line[64];

	ASSERT_TRUE(mkt_command(line, sizeof(line), "awk '/^VmSize:/ { print $2 }' /proc/%d/status",
				getpid()));
	EXPECT_EQ(0, MKT_IN_CHILD(alloc_in(&self->s, (strtoul(line, NULL, 10) << 10) + 2 * HUGE,
					   HUGE + 4096)));
}

/* what a process and its child write, the device reads, and what the device writes both see */
TEST_F(alloc, fork)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mr *mr = ibmkey_reg_alloc(s->dev[1].pd, 4096, MKT_ACCESS_ALL);
	uint8_t *far = (uint8_t *)(uintptr_t)s->plain[0].addr;
	int status, go[2];
	uint8_t *near;
	pid_t pid;

	ASSERT_NE(NULL, mr);
	near = mr->addr;
	memcpy(near, "parent before", 14);
	ASSERT_EQ(0, pipe(go));
	fflush(stdout);
	pid = fork();
	ASSERT_NE(-1, pid);
	if (!pid) {
		char c;

		close(go[1]);
		memcpy(near + 100, "child", 6);
		/* until the parent has used the MR */
		_exit(read(go[0], &c, 1) != 1 || memcmp(near + 300, "device", 7));
	}
	close(go[0]);
	EXPECT_TRUE(mkt_until(!memcmp(near + 100, "child", 6)));
	memcpy(near + 200, "parent after", 13);
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(s, mr->rkey, MKT_READ, (uintptr_t)near, 300));
	EXPECT_STREQ("parent before", (char *)far);
	EXPECT_STREQ("child", (char *)far + 100);
	EXPECT_STREQ("parent after", (char *)far + 200);
	memcpy(far, "device", 7);
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(s, mr->rkey, MKT_WRITE, (uintptr_t)near + 300, 7));
	EXPECT_STREQ("device", (char *)near + 300);
	EXPECT_EQ(1, write(go[1], "", 1));
	EXPECT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	close(go[1]);
	EXPECT_EQ(0, alloc_use(s, mr));
	EXPECT_EQ(0, ibmkey_dereg(mr));
}

/* ibv_dereg_mr() leaves the memory; an MR of libibverbs that has its structure next is its own */
TEST_F(alloc, by_libibverbs)
{
	struct mkt_setup *s = &self->s;
	struct alloc_left before = alloc_left(s), after;
	unsigned int i;

	for (i = 0; i < 10; i++) {
		struct ibv_mr *mr = ibmkey_reg_alloc(s->dev[1].pd, 5000, MKT_ACCESS_ALL);
		struct ibv_mr *other;
		void *addr;

		ASSERT_NE(NULL, mr);
		addr = mr->addr;
		ASSERT_EQ(0, ibv_dereg_mr(mr));
		other = ibv_reg_mr(s->dev[1].pd, s->arena[1].mem[0].host, 4096, MKT_ACCESS_ALL);
		ASSERT_NE(NULL, other);
		EXPECT_EQ(EINVAL, ibmkey_dereg(other));
		EXPECT_EQ(0, ibv_dereg_mr(other));
		/* an MR of the library in the same structure */
		other = ibmkey_reg_alloc(s->dev[1].pd, 5000, MKT_ACCESS_ALL);
		ASSERT_NE(NULL, other);
		EXPECT_TRUE(alloc_is_mapped(addr));
		EXPECT_EQ(0, ibmkey_dereg(other));
		EXPECT_TRUE(alloc_is_mapped(addr));
		munmap(addr, 8192);
	}
	after = alloc_left(s);
	EXPECT_EQ(before.mrs, after.mrs);
	EXPECT_EQ(before.mappings, after.mappings);
	EXPECT_EQ(before.pinned, after.pinned);
}

/* a second MR over the memory, on another device, and either is deregistered first */
TEST_F(alloc, share)
{
	static const size_t lengths[] = { 5000, HUGE + 4096 };
	struct mkt_setup *s = &self->s;
	struct alloc_left before = alloc_left(s);
	unsigned int i;

	for (i = 0; i < 4; i++) {
		size_t length = lengths[i / 2];
		struct ibv_mr *mr = ibmkey_reg_alloc(s->dev[1].pd, length, MKT_ACCESS_ALL);
		struct ibv_mr *own[2] = { mr }, *last;
		struct ibv_pd *pd;
		void *gone;
		int fd = -1;

		ASSERT_NE(NULL, mr);
		ASSERT_EQ(0, ibmkey_share_mr(mr, 0, &fd));
		EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));
		pd = ibv_alloc_pd(s->dev[1].ctx);
		ASSERT_NE(NULL, pd);
		own[1] = ibmkey_reg_shared(s->dev[1].pd, fd, MKT_ACCESS_ALL);
		ASSERT_NE(NULL, own[1]);
		EXPECT_EQ(length, own[1]->length);
		EXPECT_EQ(0, (uintptr_t)own[1]->addr % (length < HUGE ? 4096 : HUGE));
		EXPECT_NE(mr->addr, own[1]->addr);
		/* one that another PD can only read */
		last = ibmkey_reg_shared(pd, fd, 0);
		ASSERT_NE(NULL, last);
		close(fd);
		EXPECT_EQ(0, alloc_use(s, own[0]));
		EXPECT_EQ(0, memcmp(own[0]->addr, own[1]->addr, length));
		EXPECT_EQ(0, alloc_use(s, own[1]));
		EXPECT_EQ(0, memcmp(own[0]->addr, last->addr, length));
		EXPECT_EQ(0, ibmkey_dereg(last));
		EXPECT_EQ(0, ibv_dealloc_pd(pd));

		gone = own[i & 1]->addr;
		EXPECT_EQ(0, ibmkey_dereg(own[i & 1]));
		EXPECT_FALSE(alloc_is_mapped(gone));
		EXPECT_EQ(0, alloc_use(s, own[!(i & 1)]));
		/* the memory of an MR that was registered so is shared further */
		ASSERT_EQ(0, ibmkey_share_mr(own[!(i & 1)], 0, &fd));
		last = ibmkey_reg_shared(s->dev[1].pd, fd, MKT_ACCESS_ALL);
		ASSERT_NE(NULL, last);
		close(fd);
		EXPECT_EQ(0, memcmp(own[!(i & 1)]->addr, last->addr, length));
		EXPECT_EQ(0, ibmkey_dereg(own[!(i & 1)]));
		EXPECT_EQ(0, alloc_use(s, last));
		EXPECT_EQ(0, ibmkey_dereg(last));
	}
	EXPECT_LEFT(s, before);
}

/* a process that gets memory by a socket, with its own context and queue pairs */
static int share_child(int sock)
{
	struct mkt_wants wants = { .host = 64 * 1024 };
	char byte, control[CMSG_SPACE(sizeof(int))] = {};
	struct iovec iov = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct mkt_setup s = {};
	struct ibv_mr *mr;
	int fd;

	if (mkt_dev_open(&s.dev[0], 0) || mkt_dev_open(&s.dev[1], 1) ||
	    mkt_setup(&s, &wants, "child"))
		return 1;
	if (recvmsg(sock, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
		return 2;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	mr = ibmkey_reg_shared(s.dev[1].pd, fd, MKT_ACCESS_ALL);
	close(fd);
	if (!mr)
		return 3;
	if (strcmp(mr->addr, "from the parent") || alloc_use(&s, mr))
		return 4;
	memcpy((char *)s.plain[0].addr, "by RDMA", 8);
	if (mkt_try(&s, mr->rkey, MKT_WRITE, (uintptr_t)mr->addr + 100, 8) != IBV_WC_SUCCESS)
		return 5;
	memcpy((char *)mr->addr + 200, "by the child", 13);
	/* until the parent has other memory */
	if (write(sock, "", 1) != 1 || read(sock, &byte, 1) != 1)
		return 6;
	if (strcmp((char *)mr->addr + 300, "before it moved") ||
	    strcmp((char *)mr->addr + 100, "by RDMA") || alloc_use(&s, mr))
		return 7;
	return ibmkey_dereg(mr) || mkt_teardown(&s) ? 8 : 0;
}

/* both processes use the memory, until a new translation ends the sharing for one of them */
TEST_F(alloc, share_with_process)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mr *mr = ibmkey_reg_alloc(s->dev[1].pd, 40000, MKT_ACCESS_ALL);
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
	struct iovec iov = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
	int sock[2], fd, status;
	pid_t pid;

	ASSERT_NE(NULL, mr);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock));
	fflush(stdout);
	pid = fork();
	ASSERT_NE(-1, pid);
	if (!pid) {
		/* the mapping of the parent is not what is tested */
		if (munmap(mr->addr, 40960))
			_exit(9);
		_exit(share_child(sock[1]));
	}
	close(sock[1]);
	memcpy(mr->addr, "from the parent", 16);
	ASSERT_EQ(0, ibmkey_share_mr(mr, 0, &fd));
	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
	EXPECT_EQ(1, sendmsg(sock[0], &message, 0));
	close(fd);
	EXPECT_EQ(1, read(sock[0], &byte, 1));
	EXPECT_STREQ("by RDMA", (char *)mr->addr + 100);
	EXPECT_STREQ("by the child", (char *)mr->addr + 200);
	memcpy((char *)mr->addr + 300, "before it moved", 16);
	EXPECT_EQ(0, ibmkey_rereg_mr(mr, ALLOC, NULL, NULL, 40000, 0));
	EXPECT_TRUE(alloc_is_zero(mr));
	EXPECT_EQ(1, write(sock[0], "", 1));
	EXPECT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	EXPECT_TRUE(alloc_is_zero(mr));
	EXPECT_EQ(0, alloc_use(s, mr));
	EXPECT_EQ(0, ibmkey_dereg(mr));
	close(sock[0]);
}

static int share_store(char *at)
{
	signal(SIGSEGV, SIG_DFL);
	*(volatile char *)at = 1;
	return 0;
}

/* others can only read; the MR of the process that allocated the memory still writes */
TEST_F(alloc, share_read_only)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mr *mr = ibmkey_reg_alloc(s->dev[1].pd, 9000, MKT_ACCESS_ALL), *other;
	struct alloc_left before;
	int fd, again;

	ASSERT_NE(NULL, mr);
	before = alloc_left(s);
	ASSERT_EQ(0, ibmkey_share_mr(mr, IBMKEY_SHARE_READ_ONLY, &fd));
	EXPECT_ERRNO(EACCES, ibmkey_reg_shared(s->dev[1].pd, fd, IBV_ACCESS_LOCAL_WRITE));
	EXPECT_ERRNO(EACCES, ibmkey_reg_shared(s->dev[1].pd, fd, MKT_ACCESS_ALL));
	EXPECT_ERRNO(EACCES, ibmkey_reg_shared(s->dev[1].pd, fd, IBV_ACCESS_MW_BIND));
	/* a later descriptor gives no more rights */
	ASSERT_EQ(0, ibmkey_share_mr(mr, 0, &again));
	EXPECT_ERRNO(EACCES, ibmkey_reg_shared(s->dev[1].pd, again, IBV_ACCESS_LOCAL_WRITE));
	EXPECT_EQ(-1, fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
	EXPECT_EQ(-1, pwrite(fd, "x", 1, 0));
	close(again);

	other = ibmkey_reg_shared(s->dev[1].pd, fd, IBV_ACCESS_REMOTE_READ);
	close(fd);
	ASSERT_NE(NULL, other);
	EXPECT_EQ(-SIGSEGV, MKT_IN_CHILD(share_store(other->addr)));
	EXPECT_EQ(0, alloc_use(s, mr));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(s, other->rkey, MKT_READ, (uintptr_t)other->addr, 9000));
	EXPECT_EQ(0, memcmp((void *)s->plain[0].addr, mr->addr, 9000));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(s, other->rkey, MKT_WRITE, (uintptr_t)other->addr, 8));
	EXPECT_EQ(0, ibmkey_dereg(other));
	EXPECT_LEFT(s, before);
	EXPECT_EQ(0, ibmkey_dereg(mr));
}

/* memory of the pool is shared with its pages */
TEST_F(alloc, share_huge_pages)
{
	struct mkt_setup *s = &self->s;
	long before = alloc_set_pool(2);
	struct ibv_mr *mr, *other = NULL;
	int fd;

	if (before < 0)
		SKIP(return, "no pool of huge pages of 2 MiB");
	mr = ibmkey_reg_alloc(s->dev[1].pd, 2 * HUGE, MKT_ACCESS_ALL);
	if (mr && !ibmkey_share_mr(mr, IBMKEY_SHARE_READ_ONLY, &fd)) {
		other = ibmkey_reg_shared(s->dev[1].pd, fd, IBV_ACCESS_REMOTE_READ);
		close(fd);
	}
	alloc_set_pool(before);
	ASSERT_NE(NULL, other);
	EXPECT_EQ(2048, alloc_smaps(mr->addr, "KernelPageSize"));
	EXPECT_EQ(2048, alloc_smaps(other->addr, "KernelPageSize"));
	EXPECT_EQ(2 * HUGE, other->length);
	EXPECT_EQ(0, alloc_use(s, mr));
	EXPECT_EQ(0, memcmp(mr->addr, other->addr, 2 * HUGE));
	EXPECT_EQ(0, ibmkey_dereg(mr));
	EXPECT_EQ(0, ibmkey_dereg(other));
}

/* shares memory when all descriptors are in use; 0 if that fails and seals nothing */
static int share_without_descriptors(struct ibv_mr *mr)
{
	int fd = -1, last = -1, next;

	while ((next = dup(0)) >= 0)
		last = next;
	if (ibmkey_share_mr(mr, IBMKEY_SHARE_READ_ONLY, &fd) != EMFILE || fd != -1)
		return 1;
	close(last);
	if (ibmkey_share_mr(mr, 0, &fd))
		return 2;
	return fcntl(fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE ? 3 : 0;
}

/* wrong descriptors and MRs; memory whose pages another process could take away */
TEST_F(alloc, share_refused)
{
	struct mkt_setup *s = &self->s;
	struct ibv_alloc_dm_attr attr = { .length = 4096 };
	struct ibv_mr *mr = ibmkey_reg_alloc(s->dev[1].pd, 9000, MKT_ACCESS_ALL), *other;
	struct ibv_pd *pd = s->dev[1].pd;
	struct alloc_left before;
	struct ibv_dm *dm;
	int fd = -2, buffer;

	ASSERT_NE(NULL, mr);
	before = alloc_left(s);
	EXPECT_EQ(EINVAL, ibmkey_share_mr(NULL, 0, &fd));
	EXPECT_EQ(EFAULT, ibmkey_share_mr(mr, 0, NULL));
	EXPECT_EQ(EINVAL, ibmkey_share_mr(mr, 2, &fd));
	EXPECT_EQ(EINVAL, ibmkey_share_mr(s->arena[1].leaf[0].mr, 0, &fd));
	EXPECT_EQ(EINVAL, ibmkey_share_mr(s->key[1], 0, &fd));
	EXPECT_EQ(0, MKT_IN_CHILD(share_without_descriptors(mr)));
	EXPECT_EQ(-2, fd);

	EXPECT_ERRNO(EBADF, ibmkey_reg_shared(pd, -1, 0));
	EXPECT_ERRNO(EBADF, ibmkey_reg_shared(pd, 1 << 20, 0));
	ASSERT_EQ(0, ibmkey_share_mr(mr, 0, &fd));
	EXPECT_ERRNO(EINVAL, ibmkey_reg_shared(NULL, fd, 0));
	EXPECT_ERRNO(EINVAL, ibmkey_reg_shared(pd, fd, 1 << 19));
	EXPECT_ERRNO(EINVAL, ibmkey_reg_shared(pd, fd, IBV_ACCESS_REMOTE_WRITE));
	/* the length is sealed */
	EXPECT_EQ(-1, ftruncate(fd, 4096));
	EXPECT_EQ(EPERM, errno);
	EXPECT_EQ(-1, ftruncate(fd, 100000));
	EXPECT_EQ(EPERM, errno);
	close(fd);
	EXPECT_ERRNO(EBADF, ibmkey_reg_shared(pd, fd, 0));

	fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, fd);
	EXPECT_ERRNO(EINVAL, ibmkey_reg_shared(pd, fd, 0));
	close(fd);
	fd = memfd_create("mkey_alloc", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ftruncate(fd, 10000));
	EXPECT_ERRNO(EINVAL, ibmkey_reg_shared(pd, fd, 0));
	ASSERT_EQ(0, fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
	other = ibmkey_reg_shared(pd, fd, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, other);
	EXPECT_EQ(0, alloc_use(s, other));
	EXPECT_EQ(0, ibmkey_dereg(other));
	close(fd);
	fd = memfd_create("mkey_alloc", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
	EXPECT_ERRNO(EINVAL, ibmkey_reg_shared(pd, fd, 0));
	close(fd);

	dm = ibmkey_alloc_dm(s->dev[1].ctx, &attr, 0);
	ASSERT_NE(NULL, dm);
	ASSERT_EQ(0, ibmkey_export_dm(dm, &buffer));
	EXPECT_ERRNO(EINVAL, ibmkey_reg_shared(pd, buffer, 0));
	close(buffer);
	EXPECT_EQ(0, ibv_free_dm(dm));
	EXPECT_LEFT(s, before);
	EXPECT_EQ(0, alloc_use(s, mr));
	EXPECT_EQ(0, ibmkey_dereg(mr));
	EXPECT_EQ(EINVAL, ibmkey_share_mr(s->arena[1].leaf[0].mr, 0, &fd));
}

TEST_HARNESS_MAIN
