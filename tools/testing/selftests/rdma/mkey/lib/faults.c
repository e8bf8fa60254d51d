// SPDX-License-Identifier: GPL-2.0
/* Allocations that fail, on a kernel with fault injection. */
#include <stdio.h>

#include "mkey_test.h"

bool mkt_write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");
	bool written = f && fputs(text, f) >= 0;

	return f && !fclose(f) && written;
}

bool mkt_faults_may_sleep(bool on)
{
	static const char *const dir[] = { "failslab", "fail_page_alloc" };
	bool done = true;
	char path[64];
	unsigned int i;

	for (i = 0; i < sizeof(dir) / sizeof(dir[0]); i++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/ignore-gfp-wait", dir[i]);
		done &= mkt_write_file(path, on ? "N" : "Y");
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/verbose", dir[i]);
		done &= mkt_write_file(path, on ? "0" : "2");
	}
	return done;
}
