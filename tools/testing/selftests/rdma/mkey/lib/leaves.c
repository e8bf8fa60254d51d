// SPDX-License-Identifier: GPL-2.0
/* Every kind of memory that a key can describe, as an MR in an arena. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/dma-heap.h>
#include <linux/udmabuf.h>

#include "matrix.h"

#define SIZE (40 * 1024)
/* an MR begins and ends within pages, at different offsets */
#define HEAD 77
#define TAIL 50

static int mkt_leaf_over(struct mkt_arena *arena, uint64_t shift)
{
	return mkt_arena_add_leaf(arena, arena->num_mems - 1, HEAD,
				  SIZE - HEAD - TAIL, MKT_LEAF_ACCESS, shift);
}

int mkt_leaf_user(struct mkt_arena *arena)
{
	int err = mkt_arena_add_host(arena, SIZE);

	return err ?: mkt_leaf_over(arena, 0);
}

int mkt_leaf_iova(struct mkt_arena *arena)
{
	int err = mkt_arena_add_host(arena, SIZE);

	return err ?: mkt_leaf_over(arena, 0x7123456789000);
}

int mkt_leaf_zero_based(struct mkt_arena *arena)
{
	int err = mkt_arena_add_host(arena, SIZE);

	if (err)
		return err;
	/* the lowest addresses */
	return mkt_leaf_over(arena,
			     -(uintptr_t)arena->mem[arena->num_mems - 1].host);
}

int mkt_leaf_shared(struct mkt_arena *arena)
{
	int err, fd = memfd_create("mkey", MFD_CLOEXEC);
	void *map;

	if (fd < 0)
		return errno;
	map = ftruncate(fd, SIZE) ? MAP_FAILED :
	      mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	err = errno;
	close(fd);
	if (map == MAP_FAILED)
		return err;
	err = mkt_arena_add_map(arena, map, SIZE, 0, SIZE);
	return err ?: mkt_leaf_over(arena, 0);
}

#define HUGE_SIZE (2ul << 20)
#define HUGE_PAGES 4

/* each side needs two; the other tests use the reserved pages again */
static void mkt_huge_pages(void)
{
	FILE *file = fopen("/proc/sys/vm/nr_hugepages", "r+e");
	unsigned int now = 0;

	if (!file)
		return;
	if (fscanf(file, "%u", &now) == 1 && now < HUGE_PAGES) {
		rewind(file);
		fprintf(file, "%u\n", HUGE_PAGES);
	}
	fclose(file);
}

int mkt_leaf_hugetlb(struct mkt_arena *arena)
{
	void *map;
	int err;

	mkt_huge_pages();
	map = mmap(NULL, 2 * HUGE_SIZE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT,
		   -1, 0);
	if (map == MAP_FAILED)
		return ENODEV;
	err = mkt_arena_add_map(arena, map, 2 * HUGE_SIZE,
				HUGE_SIZE - SIZE / 2, SIZE);
	return err ?: mkt_leaf_over(arena, 0);
}

static int mkt_leaf_dm(struct mkt_arena *arena, uint64_t dm_class)
{
	int err = mkt_arena_add_dm_class(arena, SIZE, dm_class);

	return err ?: mkt_leaf_over(arena, 0);
}

int mkt_leaf_dm_host(struct mkt_arena *arena)
{
	return mkt_leaf_dm(arena, IBMKEY_DM_HOST);
}

int mkt_leaf_dm_node(struct mkt_arena *arena)
{
	return mkt_leaf_dm(arena, IBMKEY_DM_NODE);
}

int mkt_leaf_dm_p2p(struct mkt_arena *arena)
{
	char what[64];

	if (!mkt_hardware(what, sizeof(what), "p2p"))
		return ENODEV;
	return mkt_leaf_dm(arena, IBMKEY_DM_P2P);
}

int mkt_leaf_dm_pmem(struct mkt_arena *arena)
{
	char what[64];

	if (!mkt_hardware(what, sizeof(what), "pmem"))
		return ENODEV;
	return mkt_leaf_dm(arena, IBMKEY_DM_PMEM);
}

/* an MR over most of a dma-buf at other addresses; the descriptor is closed */
static int mkt_leaf_import(struct mkt_arena *arena, int fd)
{
	uint64_t iova = 0x33000 + HEAD;
	struct ibv_mr *mr;
	int err;

	mr = ibmkey_reg_dmabuf_mr(arena->dev->pd, HEAD, SIZE - HEAD - TAIL,
				  iova, fd, MKT_ACCESS_ALL);
	err = errno;
	close(fd);
	if (!mr)
		return err;
	return mkt_arena_add_mr(arena, mr, iova, arena->num_mems - 1, HEAD,
				SIZE - HEAD - TAIL, NULL);
}

static int mkt_map_shared(struct mkt_arena *arena, int fd)
{
	void *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		return errno;
	return mkt_arena_add_map(arena, map, SIZE, 0, SIZE);
}

int mkt_udmabuf(int memfd, size_t size)
{
	struct udmabuf_create create = {
		.memfd = memfd,
		.flags = UDMABUF_FLAGS_CLOEXEC,
		.size = size,
	};
	int control = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd;

	if (control < 0)
		return -1;
	fd = ioctl(control, UDMABUF_CREATE, &create);
	close(control);
	return fd;
}

int mkt_leaf_udmabuf(struct mkt_arena *arena)
{
	int memfd = memfd_create("mkey", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int err, fd;

	if (memfd < 0)
		return errno;
	err = ftruncate(memfd, SIZE) ||
	      fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK) ? errno : 0;
	if (!err)
		err = mkt_map_shared(arena, memfd);
	fd = mkt_udmabuf(memfd, SIZE);
	close(memfd);
	if (fd < 0)
		return ENODEV;
	return err ?: mkt_leaf_import(arena, fd);
}

int mkt_heap_buffer(size_t size, int flags)
{
	struct dma_heap_allocation_data data = {
		.len = size,
		.fd_flags = flags | O_CLOEXEC,
	};
	int heap = open("/dev/dma_heap/system", O_RDONLY | O_CLOEXEC), err;

	if (heap < 0)
		return -1;
	err = ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &data);
	close(heap);
	return err ? -1 : (int)data.fd;
}

int mkt_leaf_heap(struct mkt_arena *arena)
{
	int fd = mkt_heap_buffer(SIZE, O_RDWR), err;

	if (fd < 0)
		return ENODEV;
	err = mkt_map_shared(arena, fd);
	return err ?: mkt_leaf_import(arena, fd);
}

int mkt_leaf_dm_export(struct mkt_arena *arena)
{
	int err = mkt_arena_add_dm_class(arena, SIZE, IBMKEY_DM_HOST), fd;

	if (!err)
		err = ibmkey_export_dm(arena->mem[arena->num_mems - 1].dm, &fd);
	return err ?: mkt_leaf_import(arena, fd);
}

/* memory that keeps its bytes when its pages go */
static int mkt_on_demand(struct mkt_arena *arena)
{
	int err;

	if (!mkt_dev_on_demand(arena->dev))
		return EOPNOTSUPP;
	err = mkt_arena_add_host(arena, SIZE);
	return err ?: mkt_mem_share(&arena->mem[arena->num_mems - 1]);
}

static int mkt_leaf_odp_at(struct mkt_arena *arena, uint64_t shift)
{
	int err = mkt_on_demand(arena);

	return err ?: mkt_arena_add_leaf(arena, arena->num_mems - 1, HEAD,
					 SIZE - HEAD - TAIL,
					 MKT_LEAF_ACCESS | IBV_ACCESS_ON_DEMAND,
					 shift);
}

int mkt_leaf_odp(struct mkt_arena *arena)
{
	return mkt_leaf_odp_at(arena, 0);
}

int mkt_leaf_odp_iova(struct mkt_arena *arena)
{
	return mkt_leaf_odp_at(arena, 0x123456000);
}

int mkt_leaf_odp_implicit(struct mkt_arena *arena)
{
	unsigned int num = arena->num_mems;
	int err = mkt_on_demand(arena);
	struct ibv_mr *mr;

	if (err)
		return err;
	mr = ibv_reg_mr(arena->dev->pd, NULL, SIZE_MAX,
			MKT_LEAF_ACCESS | IBV_ACCESS_ON_DEMAND);
	if (!mr)
		return errno;
	return mkt_arena_add_mr(arena, mr, (uintptr_t)arena->mem[num].host + HEAD, num,
				HEAD, SIZE - HEAD - TAIL, NULL);
}

/*
 * Half of the bytes below. Blocks never touch, so consecutive bytes of the key
 * are in one block.
 */
int mkt_leaf_key(struct mkt_arena *arena)
{
	struct mkt_block block = {
		.leaf = arena->num_leaves,
		.offset = -HEAD & 7,
		.bytes = 200,
		.stride = { 264 },
	};
	struct mkt_layout layout = mkt_layout_repeated(&block, 150);
	struct ibv_mr *key;
	struct mkt_map map;
	int err;

	if (arena->dev->caps.max_depth < 2)
		return EOPNOTSUPP;
	err = mkt_leaf_user(arena);
	if (err)
		return err;
	key = ibmkey_alloc(arena->dev->pd, 1);
	if (!key)
		return errno;
	err = mkt_layout_bind(key, arena, &layout,
			      MKT_ACCESS_ALL | IBV_ACCESS_FLUSH_GLOBAL);
	if (!err)
		err = mkt_layout_map(arena, &layout, &map);
	if (err) {
		ibv_dereg_mr(key);
		return err;
	}
	return mkt_arena_add_mr(arena, key, 0, arena->num_mems - 1, 0,
				map.length, map.pos);
}

int mkt_leaf_mixed(struct mkt_arena *arena)
{
	static const mkt_leaf_maker makers[] = {
		mkt_leaf_user, mkt_leaf_iova, mkt_leaf_zero_based,
		mkt_leaf_shared, mkt_leaf_hugetlb, mkt_leaf_dm_host,
		mkt_leaf_dm_node, mkt_leaf_dm_p2p, mkt_leaf_dm_pmem,
		mkt_leaf_odp, NULL,
	};
	const mkt_leaf_maker *make;
	int err;

	for (make = makers; *make; make++) {
		err = (*make)(arena);
		if (err && err != ENODEV && err != EOPNOTSUPP)
			return err;
	}
	return 0;
}
