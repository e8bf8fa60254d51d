// SPDX-License-Identifier: GPL-2.0
/*
 * Not a test: takes device memory of RAM until there is none for it any more.
 * Succeeds if that was an error like any other, and before the device had none.
 */
#include <errno.h>
#include <stdio.h>

#include "mkey_test.h"

#define MEGABYTE (1 << 20)

int main(void)
{
	struct ibv_alloc_dm_attr attr = { .length = MEGABYTE };
	unsigned int n = 0, limit;
	struct mkt_dev dev;

	if (mkt_dev_open(&dev, 0))
		return 1;
	limit = dev.caps.max_dm_size / MEGABYTE;
	while (n < limit && ibmkey_alloc_dm(dev.ctx, &attr, IBMKEY_DM_HOST))
		n++;
	if (n < limit && errno == ENOMEM)
		return 0;
	printf("%u of %u MiB, then errno %d\n", n, limit, errno);
	return 1;
}
