// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that has the same addresses on both machines, because a work request of the one
 * names addresses of the other; and the bytes that devices have changed.
 *
 * What a test allocates comes from an area at a fixed place, in the order of the test.
 * Libraries use the C library's heap within calls.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "two.h"

#define HEAP_AT 0x200000000000ul
#define HEAP_SIZE (64ul << 30)
#define MAPS_AT 0x300000000000ul
#define HUGE_SIZE (2ul << 20)
#define PAGE 4096ul
#define REGIONS 4096
#define GRAIN 64

static unsigned long two_heap, two_maps = MAPS_AT;

void *two_alloc(size_t size)
{
	void *memory = __libc_calloc(1, size);

	if (!memory)
		two_fail("no memory");
	return memory;
}

void two_release(void *memory)
{
	__libc_free(memory);
}

static bool two_on_heap(const void *memory)
{
	return (uintptr_t)memory - HEAP_AT < HEAP_SIZE;
}

/* the size is in front of the memory; memory is not used again, so it is zero */
static void *two_heap_alloc(size_t align, size_t size)
{
	unsigned long at;

	if (!two_heap) {
		if ((void *)syscall(SYS_mmap, HEAP_AT, HEAP_SIZE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
				    MAP_FIXED_NOREPLACE, -1, 0) != (void *)HEAP_AT)
			_exit(1);
		two_heap = HEAP_AT;
	}
	if (align < 16)
		align = 16;
	at = (two_heap + 16 + align - 1) & -align;
	if (size > HEAP_SIZE / 2 || at + size > HEAP_AT + HEAP_SIZE) {
		errno = ENOMEM;
		return NULL;
	}
	two_heap = at + size;
	((size_t *)at)[-1] = size;
	return (void *)at;
}

static bool two_wanted(void)
{
	return two_side() >= 0 && two_outside();
}

void *malloc(size_t size)
{
	return two_wanted() ? two_heap_alloc(16, size) : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	size_t all;

	if (!two_wanted())
		return __libc_calloc(count, size);
	if (__builtin_mul_overflow(count, size, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	return two_heap_alloc(16, all);
}

void *aligned_alloc(size_t align, size_t size)
{
	return two_wanted() ? two_heap_alloc(align, size) : __libc_memalign(align, size);
}

int posix_memalign(void **memory, size_t align, size_t size)
{
	*memory = aligned_alloc(align, size);
	return *memory ? 0 : ENOMEM;
}

void free(void *memory)
{
	unsigned long first, last;
	size_t size;

	if (!two_on_heap(memory)) {
		__libc_free(memory);
		return;
	}
	size = ((size_t *)memory)[-1];
	first = ((uintptr_t)memory + PAGE - 1) & -PAGE;
	last = ((uintptr_t)memory + size) & -PAGE;
	if (first < last)
		syscall(SYS_madvise, first, last - first, MADV_DONTNEED);
}

void *realloc(void *memory, size_t size)
{
	size_t old;
	void *to;

	if (memory && !two_on_heap(memory))
		return __libc_realloc(memory, size);
	to = malloc(size);
	if (!memory || !to)
		return to;
	old = ((size_t *)memory)[-1];
	memcpy(to, memory, old < size ? old : size);
	free(memory);
	return to;
}

void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	if (!addr && two_wanted()) {
		addr = (void *)two_maps;
		flags |= MAP_FIXED_NOREPLACE;
		two_maps += ((length + HUGE_SIZE - 1) & -HUGE_SIZE) + HUGE_SIZE;
	}
	return (void *)syscall(SYS_mmap, addr, length, prot, flags, fd, offset);
}

void *mmap64(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
	__attribute__((alias("mmap")));

/*
 * Memory of one side. Its machine tells the other one which bytes differ from @seen, what both
 * saw the last time. A test may have written bytes on both machines meanwhile, also the same
 * ones as a device; so the stand-in becomes @seen first.
 */
struct two_region {
	unsigned int side, users;
	uint8_t *addr, *seen;
	size_t length;
};

static struct two_region two_regions[REGIONS];
static unsigned int two_num_regions;

static struct two_region *two_region_of(unsigned int side, uint8_t *addr, size_t length)
{
	struct two_region *r;

	for (r = two_regions; r < two_regions + two_num_regions; r++)
		if (r->users && r->side == side && addr >= r->addr &&
		    addr + length <= r->addr + r->length)
			return r;
	return NULL;
}

void two_memory(unsigned int side, void *addr, size_t length)
{
	struct two_region *r = two_region_of(side, addr, length);

	if (r) {
		r->users++;
		return;
	}
	for (r = two_regions; r < two_regions + two_num_regions && r->users; r++)
		;
	if (r == two_regions + REGIONS)
		two_fail("more than %d MRs", REGIONS);
	if (r == two_regions + two_num_regions)
		two_num_regions++;
	*r = (struct two_region){ side, 1, addr, two_alloc(length), length };
	memcpy(r->seen, addr, length);
}

void two_memory_gone(unsigned int side, void *addr, size_t length)
{
	struct two_region *r = two_region_of(side, addr, length);

	if (r && !--r->users)
		two_release(r->seen);
}

static void two_tell_region(struct two_region *r)
{
	size_t at = 0, end, grain;

	while (at < r->length) {
		uint64_t head[2];

		grain = r->length - at < GRAIN ? r->length - at : GRAIN;
		if (!memcmp(r->addr + at, r->seen + at, grain)) {
			at += grain;
			continue;
		}
		for (end = at; end < r->length; end += grain) {
			grain = r->length - end < GRAIN ? r->length - end : GRAIN;
			if (!memcmp(r->addr + end, r->seen + end, grain))
				break;
		}
		memcpy(r->seen + at, r->addr + at, end - at);
		head[0] = (uintptr_t)r->addr + at;
		head[1] = end - at;
		two_send(head, sizeof(head));
		two_send(r->seen + at, end - at);
		at = end;
	}
}

static void two_tell(void)
{
	static const uint64_t end[2];
	struct two_region *r;

	for (r = two_regions; r < two_regions + two_num_regions; r++)
		if (r->users && (int)r->side == two_side())
			two_tell_region(r);
	two_send(end, sizeof(end));
}

static void two_hear(void)
{
	struct two_region *r;
	uint64_t head[2];

	for (r = two_regions; r < two_regions + two_num_regions; r++)
		/* A test may have made memory read-only that it does not change any more. */
		if (r->users && (int)r->side != two_side() &&
		    memcmp(r->addr, r->seen, r->length))
			memcpy(r->addr, r->seen, r->length);
	for (;;) {
		uint8_t *addr;

		two_recv(head, sizeof(head));
		if (!head[1])
			break;
		addr = (uint8_t *)head[0];
		r = two_region_of(!two_side(), addr, head[1]);
		if (!r)
			two_fail("%p is no memory of the other machine", addr);
		two_recv(addr, head[1]);
		memcpy(r->seen + (addr - r->addr), addr, head[1]);
	}
}

void two_mirror(void)
{
	if (two_side() == 0) {
		two_tell();
		two_hear();
	} else {
		two_hear();
		two_tell();
	}
}
