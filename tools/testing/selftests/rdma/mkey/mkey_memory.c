// SPDX-License-Identifier: GPL-2.0
/*
 * subject: The kernel memory that a binding takes, as a control group is charged for it: the
 * documented bytes of a list entry, a block and a distinct leaf, rounded up by the page
 * allocator.
 * needs: cgroup
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mkey_harness.h"

#define MEMORY_ROOT "/sys/fs/cgroup"
#define MEMORY_GROUP MEMORY_ROOT "/mkey_memory"

/* upper limits in bytes, with the overhead of the allocators */
#define PER_ENTRY 32
#define PER_BLOCK 128
#define PER_KEY 608
#define PER_LEAF 256
/* an unbound key keeps the memory of a binding of so many entries */
#define KEPT 4
/* each processor may delay this many bytes of charges and releases */
#define SLACK (64 * sysconf(_SC_PAGESIZE) * sysconf(_SC_NPROCESSORS_CONF))

static int memory_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), err = 0;

	if (fd < 0)
		return errno;
	if (write(fd, text, strlen(text)) < 0)
		err = errno;
	close(fd);
	return err;
}

/* kernel memory of the group's processes in bytes, -1 if unknown */
static long long memory_kernel(void)
{
	char line[128];
	long long bytes = -1;
	FILE *f = fopen(MEMORY_GROUP "/memory.stat", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "kernel %lld", &bytes) == 1)
			break;
	if (f)
		fclose(f);
	return bytes;
}

/* an attribute of the kernel's cache of objects of @size bytes, zero if it has none */
static unsigned long memory_slab(size_t size, const char *what)
{
	bool large = size >= 1024;
	char path[96];
	unsigned long bytes = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/kernel/slab/kmalloc-cg-%zu%s/%s",
		 large ? size / 1024 : size, large ? "k" : "", what);
	f = fopen(path, "r");
	if (f) {
		if (fscanf(f, "%lu", &bytes) != 1)
			bytes = 0;
		fclose(f);
	}
	return bytes;
}

/* bytes of a key beside its entries; debug allocators take more */
static size_t memory_per_key(void)
{
	bool watched = memory_slab(256, "slab_size") != memory_slab(256, "object_size");

	return watched ? 2 * PER_KEY : PER_KEY;
}

/*
 * what an allocation of @bytes is charged; a debug allocator doubles the objects of a
 * cache, whose alignment is their size
 */
static size_t memory_round(size_t bytes)
{
	size_t size = 8, slab;

	while (size < bytes)
		size *= 2;
	slab = memory_slab(size, "slab_size");
	return slab ? slab : size;
}

/*
 * binds @keys keys over leaf 0 to @rows; returns the bytes that they take,
 * and frees them. Unbound keys take no more than they may keep.
 */
static long long memory_of(struct mkt_dev *dev, unsigned int keys,
			   unsigned int entries, enum mkt_rows rows,
			   struct mkt_leaf *leaf)
{
	struct ibv_mr **key = calloc(keys, sizeof(*key));
	long long before, bound = -1, after;
	unsigned int i;

	for (i = 0; key && i < keys; i++)
		key[i] = ibmkey_alloc(dev->pd, entries);
	before = memory_kernel();
	for (i = 0; key && i < keys; i++)
		if (!key[i] || mkt_bind_rows(key[i], leaf, rows, entries, 1, MKT_ACCESS_ALL))
			goto free;
	bound = memory_kernel() - before;
	for (i = 0; i < keys; i++)
		if (ibmkey_unbind(key[i]))
			bound = -1;
	after = memory_kernel() - before;
	mkt_diag("%u keys of %u: %lld bytes each, %lld in all, %lld when unbound",
		 keys, entries, bound / keys, bound, after);
	if (after > SLACK && (entries > KEPT || after > bound + SLACK))
		bound = -1;
free:
	for (i = 0; key && i < keys; i++)
		if (key[i])
			ibv_dereg_mr(key[i]);
	free(key);
	return bound;
}

FIXTURE(memory)
{
	struct mkt_dev dev;
	struct mkt_arena arena;
};

FIXTURE_SETUP(memory)
{
	if (mkt_dev_try_open(&self->dev, 0) || !self->dev.extended)
		SKIP(return, "no device that is extended");
	ASSERT_EQ(0, mkt_arena_standard(&self->arena, &self->dev, 256 * 1024,
					0));
	/* if it is not mounted yet */
	if (access(MEMORY_ROOT "/cgroup.procs", F_OK))
		mount("none", MEMORY_ROOT, "cgroup2", 0, NULL);
	memory_write(MEMORY_ROOT "/cgroup.subtree_control", "+memory");
	/* allocations are charged from here on */
	if ((mkdir(MEMORY_GROUP, 0755) && errno != EEXIST) ||
	    memory_write(MEMORY_GROUP "/cgroup.procs", "0") ||
	    memory_kernel() < 0)
		SKIP(return, "no control group that counts the kernel's memory");
}

FIXTURE_TEARDOWN(memory)
{
	EXPECT_EQ(0, mkt_arena_free(&self->arena));
	mkt_dev_close(&self->dev);
	memory_write(MEMORY_ROOT "/cgroup.procs", "0");
	rmdir(MEMORY_GROUP);
}

TEST_F(memory, entries)
{
	static const struct {
		const char *kind;
		enum mkt_rows rows;
		/* a key takes at least and at most so many bytes per entry */
		size_t least, most;
	} kinds[] = {
		{ "list", MKT_ROWS_LIST, PER_ENTRY, PER_ENTRY },
		{ "blocks of eight dimensions", MKT_ROWS_DIMS, 0, PER_BLOCK },
		{ "indices of 4 bytes", MKT_ROWS_INDICES32, 4, 4 },
		{ "indices of 8 bytes", MKT_ROWS_INDICES64, 8, 8 },
	};
	static const struct {
		unsigned int entries, keys;
	} sizes[] = { { 1, 8000 }, { 1000, 128 }, { 65536, 8 } };
	size_t i, k;

	for (k = 0; k < ARRAY_SIZE(kinds); k++)
		for (i = 0; i < ARRAY_SIZE(sizes); i++) {
			unsigned int n = sizes[i].entries, keys = sizes[i].keys;
			size_t all = memory_round(n * kinds[k].most) + memory_per_key();
			long long bytes;

			TH_LOG("%s", kinds[k].kind);
			bytes = memory_of(&self->dev, keys, n, kinds[k].rows,
					  &self->arena.leaf[0]);
			EXPECT_LT(0, bytes);
			EXPECT_GE((long long)(keys * all + SLACK), bytes);
			/* the memory of the keys was measured */
			EXPECT_LE((long long)(keys * n * kinds[k].least), bytes + SLACK);
		}
}

#define MEMORY_LEAVES 8000

/* each entry refers to a different MR */
TEST_F(memory, leaves)
{
	struct ibv_mr *key = ibmkey_alloc(self->dev.pd, MEMORY_LEAVES);
	static struct ibv_mr *mr[MEMORY_LEAVES];
	static struct ibv_sge sge[MEMORY_LEAVES];
	struct mkt_mem *mem = &self->arena.mem[0];
	long long bytes;
	unsigned int i;

	ASSERT_NE(NULL, key);
	for (i = 0; i < MEMORY_LEAVES; i++) {
		mr[i] = ibv_reg_mr(self->dev.pd, mem->host, 64, MKT_ACCESS_ALL);
		ASSERT_NE(NULL, mr[i]);
		sge[i].addr = (uintptr_t)mem->host;
		sge[i].length = 64;
		sge[i].lkey = mr[i]->lkey;
	}
	bytes = memory_kernel();
	ASSERT_EQ(0, ibv_rereg_mr_sg(key, MKT_ACCESS_ALL, MEMORY_LEAVES, sge));
	bytes = memory_kernel() - bytes;
	mkt_diag("%lld bytes for each distinct leaf, its entry included",
		 bytes / MEMORY_LEAVES);
	EXPECT_LT(0, bytes);
	EXPECT_GE(MEMORY_LEAVES * (PER_LEAF + 2 * PER_ENTRY) + SLACK, bytes);
	EXPECT_EQ(0, ibv_dereg_mr(key));
	for (i = 0; i < MEMORY_LEAVES; i++) {
		EXPECT_EQ(0, ibv_dereg_mr(mr[i]));
	}
}

TEST_HARNESS_MAIN
