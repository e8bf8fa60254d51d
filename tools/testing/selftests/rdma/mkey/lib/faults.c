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
	static const char *const dirs[] = { "failslab", "fail_page_alloc", NULL };
	const char *const *dir;
	bool done = true;
	char path[64];

	for (dir = dirs; *dir; dir++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/ignore-gfp-wait", *dir);
		done &= mkt_write_file(path, on ? "N" : "Y");
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/verbose", *dir);
		done &= mkt_write_file(path, on ? "0" : "2");
	}
	return done;
}
