// SPDX-License-Identifier: GPL-2.0
/* All memory of one side of a test, and the bytes that it should hold. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mkey_test.h"

void mkt_arena_init(struct mkt_arena *arena, struct mkt_dev *dev)
{
	memset(arena, 0, sizeof(*arena));
	arena->dev = dev;
}

static int mkt_arena_grow(struct mkt_arena *arena, size_t size)
{
	struct mkt_mem *mem = &arena->mem[arena->num_mems];
	uint8_t *expect, *seen;

	expect = realloc(arena->expect, arena->size + size);
	if (!expect)
		return ENOMEM;
	arena->expect = expect;
	seen = realloc(arena->seen, arena->size + size);
	if (!seen)
		return ENOMEM;
	arena->seen = seen;
	memset(expect + arena->size, 0, size);
	mem->size = size;
	mem->at = arena->size;
	arena->size += size;
	arena->num_mems++;
	return 0;
}

int mkt_arena_add_map(struct mkt_arena *arena, void *map, size_t map_size,
		      size_t offset, size_t size)
{
	struct mkt_mem *mem = &arena->mem[arena->num_mems];

	if (arena->num_mems == MKT_MAX_MEMS)
		return ENOSPC;
	mem->map = map;
	mem->map_size = map_size;
	mem->host = map + offset;
	return mkt_arena_grow(arena, size);
}

int mkt_arena_add_host(struct mkt_arena *arena, size_t size)
{
	/* The last page is no memory, so that nothing beyond the end is used unnoticed. */
	size_t pages = (size + 4095) & ~4095ul, whole = pages + 4096;
	void *map = mmap(NULL, whole, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		return errno;
	if (mprotect(map + pages, 4096, PROT_NONE)) {
		munmap(map, whole);
		return errno;
	}
	return mkt_arena_add_map(arena, map, whole, 0, size);
}

int mkt_arena_add_dm_class(struct mkt_arena *arena, size_t size,
			   uint64_t dm_class)
{
	struct mkt_mem *mem = &arena->mem[arena->num_mems];

	if (arena->num_mems == MKT_MAX_MEMS)
		return ENOSPC;
	mem->dm = mkt_dm_alloc(arena->dev, size, 0, dm_class);
	if (!mem->dm)
		return errno;
	return mkt_arena_grow(arena, size);
}

int mkt_arena_add_dm(struct mkt_arena *arena, size_t size)
{
	int err = mkt_arena_add_dm_class(arena, size, 0);

	if (err)
		mkt_diag("%s: no device memory of %zu bytes: %s",
			 arena->dev->name, size, strerror(err));
	return err;
}

int mkt_arena_add_mr(struct mkt_arena *arena, struct ibv_mr *mr, uint64_t addr,
		     unsigned int mem, size_t offset, size_t length,
		     uint32_t *pos)
{
	struct mkt_leaf *leaf = &arena->leaf[arena->num_leaves];

	if (arena->num_leaves == MKT_MAX_LEAVES)
		return ENOSPC;
	leaf->mr = mr;
	leaf->addr = addr;
	leaf->length = length;
	leaf->at = arena->mem[mem].at + offset;
	leaf->pos = pos;
	arena->num_leaves++;
	return 0;
}

int mkt_arena_add_leaf(struct mkt_arena *arena, unsigned int num, size_t offset,
		       size_t length, int access, uint64_t shift)
{
	struct mkt_mem *mem = &arena->mem[num];
	uint64_t addr = 0;
	struct ibv_mr *mr;

	if (arena->num_leaves == MKT_MAX_LEAVES)
		return ENOSPC;
	if (mem->dm) {
		mr = ibv_reg_dm_mr(arena->dev->pd, mem->dm, offset, length,
				   access | IBV_ACCESS_ZERO_BASED);
	} else {
		addr = (uintptr_t)mem->host + offset + shift;
		mr = ibv_reg_mr_iova(arena->dev->pd, mem->host + offset,
				     length, addr, access);
	}
	if (!mr) {
		mkt_diag("%s: no MR of %zu bytes: %s", arena->dev->name, length,
			 strerror(errno));
		return errno;
	}
	return mkt_arena_add_mr(arena, mr, addr, num, offset, length, NULL);
}

/*
 * Leaf 0 is nearly all of the host's memory; it begins and ends in the middle
 * of pages. Leaf 1 is a part of leaf 0 at other addresses. With device memory,
 * leaf 2 is a part of it that begins at an odd offset, and leaf 3 is a part
 * whose aligned addresses are aligned in memory.
 */
int mkt_arena_standard(struct mkt_arena *arena, struct mkt_dev *dev,
		       size_t host, size_t dm)
{
	int err;

	mkt_arena_init(arena, dev);
	err = mkt_arena_add_host(arena, host);
	if (!err)
		err = mkt_arena_add_leaf(arena, 0, 61, host - 61 - 35,
					 MKT_ACCESS_ALL, 0);
	if (!err)
		err = mkt_arena_add_leaf(arena, 0, host / 4 + 3, host / 2,
					 MKT_ACCESS_ALL, 0x123456000);
	if (!err && dm)
		err = mkt_arena_add_dm(arena, dm);
	if (!err && dm)
		err = mkt_arena_add_leaf(arena, 1, 29, dm - 29 - 18,
					 MKT_ACCESS_ALL, 0);
	if (!err && dm)
		err = mkt_arena_add_leaf(arena, 1, 64, dm - 64 - 9,
					 MKT_ACCESS_ALL, 0);
	if (err)
		mkt_arena_free(arena);
	return err;
}

static int mkt_mem_read(struct mkt_mem *mem, size_t offset, void *to,
			size_t length)
{
	int err;

	if (mem->host) {
		memcpy(to, mem->host + offset, length);
		return 0;
	}
	err = ibv_memcpy_from_dm(to, mem->dm, offset, length);
	if (err)
		mkt_diag("cannot read device memory: %s", strerror(err));
	return err;
}

int mkt_arena_fill(struct mkt_arena *arena, struct mkt_rng *rng)
{
	unsigned int i;
	int err;

	mkt_rand_bytes(rng, arena->expect, arena->size);
	for (i = 0; i < arena->num_mems; i++) {
		struct mkt_mem *mem = &arena->mem[i];
		uint8_t *from = arena->expect + mem->at;

		if (mem->host) {
			memcpy(mem->host, from, mem->size);
			continue;
		}
		err = ibv_memcpy_to_dm(mem->dm, 0, from, mem->size);
		if (err) {
			mkt_diag("cannot write device memory: %s",
				 strerror(err));
			return err;
		}
	}
	return 0;
}

int mkt_arena_check(struct mkt_arena *arena)
{
	size_t at, first = 0, wrong = 0;
	unsigned int i;
	int err;

	for (i = 0; i < arena->num_mems; i++) {
		struct mkt_mem *mem = &arena->mem[i];

		err = mkt_mem_read(mem, 0, arena->seen + mem->at, mem->size);
		if (err)
			return err;
	}
	if (!memcmp(arena->seen, arena->expect, arena->size))
		return 0;

	for (at = 0; at < arena->size; at++) {
		if (arena->seen[at] == arena->expect[at])
			continue;
		if (!wrong++)
			first = at;
	}
	for (i = 0; i < arena->num_mems; i++)
		if (first - arena->mem[i].at < arena->mem[i].size)
			mkt_diag("%s: %zu bytes are wrong, the first at %zu of memory %u: 0x%02x instead of 0x%02x",
				 arena->dev->name, wrong,
				 first - arena->mem[i].at, i,
				 arena->seen[first], arena->expect[first]);
	return EBADMSG;
}

int mkt_arena_adopt(struct mkt_arena *arena, size_t at, size_t length)
{
	unsigned int i;

	for (i = 0; i < arena->num_mems; i++) {
		struct mkt_mem *mem = &arena->mem[i];

		if (at - mem->at < mem->size)
			return mkt_mem_read(mem, at - mem->at,
					    arena->expect + at, length);
	}
	return ERANGE;
}

int mkt_arena_free(struct mkt_arena *arena)
{
	int err, first = 0;
	unsigned int i;

	/* later leaves refer to earlier ones */
	for (i = arena->num_leaves; i-- > 0;) {
		err = ibv_dereg_mr(arena->leaf[i].mr);
		free(arena->leaf[i].pos);
		if (err)
			mkt_diag("%s: leaf %u stays registered: %s",
				 arena->dev->name, i, strerror(err));
		first = first ?: err;
	}
	for (i = 0; i < arena->num_mems; i++) {
		struct mkt_mem *mem = &arena->mem[i];

		err = 0;
		if (mem->host)
			munmap(mem->map, mem->map_size);
		else
			err = ibv_free_dm(mem->dm);
		if (err)
			mkt_diag("%s: device memory %u stays: %s",
				 arena->dev->name, i, strerror(err));
		first = first ?: err;
	}
	free(arena->expect);
	free(arena->seen);
	mkt_arena_init(arena, arena->dev);
	return first;
}

int mkt_mem_share(struct mkt_mem *mem)
{
	int fd = memfd_create("mkt", 0), err = 0;

	if (fd < 0)
		return errno;
	if (ftruncate(fd, mem->size) ||
	    mmap(mem->host, mem->size, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		err = errno;
	close(fd);
	return err;
}
