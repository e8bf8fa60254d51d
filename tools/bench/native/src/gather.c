// SPDX-License-Identifier: GPL-2.0
/*
 * Gathers blocks by one loop for each block size, which the compiler knows. A
 * kernel for one block size would have such a loop.
 */

#include <stddef.h>
#include <string.h>

void *memcpy(void *to, const void *from, size_t len) __asm__("mkey_bench_kernel_memcpy");

#define SIZES(x) \
	x(1) x(4) x(8) x(16) x(32) x(64) x(128) x(256) x(512) x(1024) x(2048) x(4096)

#define LOOP(n)								\
static void gather_##n(char *restrict to, const char *restrict from,	\
		       ptrdiff_t stride, size_t count)			\
{									\
	for (size_t i = 0; i < count; i++)				\
		memcpy(to + i * n, from + i * stride, n);		\
}
SIZES(LOOP)

/* Gathers @count blocks of @len bytes. */
void mkey_bench_gather(char *to, const char *from, size_t len, ptrdiff_t stride, size_t count)
{
	switch (len) {
#define CASE(n)								\
	case n:								\
		gather_##n(to, from, stride, count);			\
		break;
	SIZES(CASE)
	}
}
