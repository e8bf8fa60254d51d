// SPDX-License-Identifier: GPL-2.0
/*
 * Not a test: takes device memory of the class with the given number (enum
 * ibmkey_dm_class) until an allocation fails. Succeeds if it fails with ENOMEM
 * before the user's share of the device's memory is.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "mkey_test.h"

#define MEGABYTE (1 << 20)

int main(int argc, char **argv)
{
	uint32_t class = argc > 1 ? atoi(argv[1]) : IBMKEY_DM_HOST;
	unsigned int n = 0, limit;
	struct mkt_dev dev;

	if (mkt_dev_open(&dev, 0))
		return 1;
	limit = mkt_dm_share(&dev) / MEGABYTE;
	while (n < limit && mkt_dm_alloc(&dev, MEGABYTE, 0, class))
		n++;
	if (n < limit && errno == ENOMEM)
		return 0;
	printf("%u of %u MiB, then errno %d\n", n, limit, errno);
	return 1;
}
