// SPDX-License-Identifier: GPL-2.0
/*
 * Gathers blocks by one loop for each block size, which the compiler knows. A
 * program for one block size would have such a loop.
 */

#include <stddef.h>
#include <string.h>

/* build.rs compiles this twice: as for a program, and as for a kernel, without vectors. */
#ifdef AS_KERNEL
#define GATHER mkey_bench_gather_kernel
void *memcpy(void *to, const void *from, size_t len) __asm__("mkey_bench_kernel_memcpy");
#else
#define GATHER mkey_bench_gather
#endif

#define SIZES(x) \
	x(1) x(2) x(4) x(8) x(12) x(16) x(20) x(24) x(32) x(40) x(48) x(64) x(96) \
	x(128) x(192) x(256) x(384) x(512) x(768) x(1024) x(1536) x(2048) x(3072) x(4096)

#define LOOP(n)								\
static void gather_##n(char *restrict to, const char *restrict from,	\
		       ptrdiff_t stride, size_t count)			\
{									\
	for (size_t i = 0; i < count; i++)				\
		memcpy(to + i * n, from + i * stride, n);		\
}
SIZES(LOOP)

static void gather(char *to, const char *from, size_t len, ptrdiff_t stride, size_t count)
{
	switch (len) {
#define CASE(n)								\
	case n:								\
		gather_##n(to, from, stride, count);			\
		break;
	SIZES(CASE)
	}
}

/*
 * Gathers @bytes bytes from @offset on: a part of one block, whole blocks, and a
 * part of another one.
 */
void GATHER(char *to, const char *from, size_t len, ptrdiff_t stride, size_t offset,
	    size_t bytes)
{
	size_t pos = offset % len, n;

	from += offset / len * stride;
	if (pos) {
		n = bytes < len - pos ? bytes : len - pos;
		memcpy(to, from + pos, n);
		to += n;
		bytes -= n;
		from += stride;
	}
	n = bytes / len;
	gather(to, from, len, stride, n);
	memcpy(to + n * len, from + n * stride, bytes - n * len);
}
