// SPDX-License-Identifier: GPL-2.0
/*
 * Gathers blocks at the places that indices give, by one loop for each block size.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* As in gather.c. */
#ifdef AS_KERNEL
#define GATHER_PLACES mkey_bench_gather_places_kernel
#else
#define GATHER_PLACES mkey_bench_gather_places
#endif

#define LOOP(n)								\
static void gather_##n(char *restrict to, const char *restrict from,	\
		       const uint32_t *restrict indices, size_t count)	\
{									\
	for (size_t i = 0; i < count; i++)				\
		memcpy(to + i * n, from + indices[i] * (size_t)(2 * n), n); \
}
LOOP(8)
LOOP(16)
LOOP(64)

/* Gathers @count blocks of @len bytes. An index counts blocks and gaps as long as a block. */
void GATHER_PLACES(char *to, const char *from, const uint32_t *indices, size_t count,
		   size_t len)
{
	switch (len) {
	case 8:
		gather_8(to, from, indices, count);
		break;
	case 16:
		gather_16(to, from, indices, count);
		break;
	case 64:
		gather_64(to, from, indices, count);
		break;
	}
}
