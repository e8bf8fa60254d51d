// SPDX-License-Identifier: GPL-2.0
/*
 * Looks for the feature of the processor for which backend/rxe/mr.c looks in a kernel.
 */

#include <stdbool.h>

bool ib_mkey_fast_strings = true;

#ifdef __x86_64__
#include <cpuid.h>

#define FSRM (1 << 4)

__attribute__((constructor))
static void look_for_fast_strings(void)
{
	unsigned int a, b, c, d;

	ib_mkey_fast_strings = __get_cpuid_count(7, 0, &a, &b, &c, &d) && d & FSRM;
}
#endif
