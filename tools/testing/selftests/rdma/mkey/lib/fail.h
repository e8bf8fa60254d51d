/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Allocations that fail: those of a call of this process, or those of a function of ib_mkey, which
 * the module test_modules/mkey_fail_add.c counts.
 */
#ifndef MKEY_TEST_FAIL_H
#define MKEY_TEST_FAIL_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "mkey_harness.h"

#define FAIL_MODULE "mkey_fail_add"
#define FAIL_FILE "tools/testing/selftests/rdma/mkey/test_modules/" FAIL_MODULE ".ko"
#define FAIL_PARAMETERS "/sys/module/" FAIL_MODULE "/parameters/"

/* what is in the file at @path, or 0 characters */
static inline size_t fail_read(const char *path, char *text, size_t size)
{
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(text, 1, size - 1, f) : 0;

	text[n] = '\0';
	if (f)
		fclose(f);
	return n;
}

/* has allocations of the function @symbol fail; ENOENT if there is no module */
static inline int fail_load(const char *symbol)
{
	const char *dir = getenv("MODULE_DIR") ?: ".";
	char command[512];

	snprintf(command, sizeof(command), "%s/" FAIL_FILE, dir);
	if (access(command, R_OK))
		return ENOENT;
	snprintf(command, sizeof(command), "insmod '%s/" FAIL_FILE "' symbol=%s", dir, symbol);
	if (system(command))
		return EIO;
	return mkt_faults_may_sleep(true) ? 0 : EIO;
}

static inline int fail_unload(void)
{
	bool restored = mkt_faults_may_sleep(false);

	return system("rmmod " FAIL_MODULE) || !restored ? EIO : 0;
}

/* the next call of the function has a fault in allocation @nth, or in none if that is 0 */
static inline int fail_module_arm(unsigned int nth)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", nth);
	return mkt_write_file(FAIL_PARAMETERS "nth", text) ? 0 : EIO;
}

/* returns true if the last call of the function had a fault; @allocations: how many it made */
static inline bool fail_module_happened(unsigned int *allocations)
{
	char text[16];

	fail_read(FAIL_PARAMETERS "allocations", text, sizeof(text));
	if (allocations)
		*allocations = strtoul(text, NULL, 10);
	fail_read(FAIL_PARAMETERS "failed", text, sizeof(text));
	return text[0] == 'Y';
}

/* Skips all tests on a kernel without fault injection. */
#define FAIL_MAIN								\
int main(int argc, char **argv)							\
{										\
	if (access("/proc/thread-self/fail-nth", W_OK)) {			\
		ksft_print_header();						\
		ksft_exit_skip("this kernel has no fault injection\n");		\
	}									\
	return test_harness_run(argc, argv);					\
}

#endif /* MKEY_TEST_FAIL_H */
