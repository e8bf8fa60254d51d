// SPDX-License-Identifier: GPL-2.0
/*
 * subject: MRs whose memory the library allocates: ibmkey_reg_alloc() and IBMKEY_REREG_ALLOC. The
 * memory is of huge pages if possible, and goes with the MR. A call that fails leaves nothing.
 * needs: leaves
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
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

/* the memory stays as long as a key refers to it */
TEST_F(alloc, leaf)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mr *mr = ibmkey_reg_alloc(s->dev[1].pd, 9000, IBV_ACCESS_LOCAL_WRITE);
	uint8_t *far = (uint8_t *)(uintptr_t)s->plain[0].addr, *near;
	unsigned int i;

	ASSERT_NE(NULL, mr);
	near = mr->addr;
	ASSERT_EQ(0, mkt_bind_strided(s->key[1], MKT_ACCESS_ALL, mr, (uintptr_t)near + 3, 8, 100,
				      80));
	EXPECT_EQ(EBUSY, ibmkey_dereg(mr));
	EXPECT_TRUE(alloc_is_mapped(near));
	mkt_rand_bytes(&s->rng, far, 640);
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(s, s->key[1]->rkey, MKT_WRITE, 0, 640));
	for (i = 0; i < 80; i++)
		EXPECT_EQ(0, memcmp(near + 3 + 100 * i, far + 8 * i, 8));
	EXPECT_EQ(0, ibmkey_unbind(s->key[1]));
	EXPECT_EQ(0, ibmkey_dereg(mr));
	EXPECT_FALSE(alloc_is_mapped(near));
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

TEST_HARNESS_MAIN
