// SPDX-License-Identifier: GPL-2.0
/*
 * Not a test: holds persistent device memory of the first device until it is
 * killed. Prints "ready" when it has the memory, or the errno's name if the
 * allocation fails.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mkey_test.h"

int main(void)
{
	struct mkt_dev dev;

	if (mkt_dev_open(&dev, 0))
		return 1;
	if (!mkt_dm_alloc(&dev, 8192, 0, IBMKEY_DM_PMEM)) {
		puts(strerrorname_np(errno));
		return 0;
	}
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
