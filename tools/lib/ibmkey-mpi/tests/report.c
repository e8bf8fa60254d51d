// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Reports the results of the tests of several files by the kernel's helpers for selftests. */
#include <stdarg.h>
#include <stdio.h>

#include <kselftest.h>

#include "report.h"

void begin_tests(void)
{
	ksft_print_header();
}

void result(bool good, const char *format, ...)
{
	char name[256];
	va_list args;

	va_start(args, format);
	vsnprintf(name, sizeof(name), format, args);
	va_end(args);
	ksft_test_result(good, "%s\n", name);
	fflush(stdout);
}

int end_tests(void)
{
	ksft_set_plan(ksft_test_num());
	ksft_print_cnts();
	return ksft_get_fail_cnt() ? KSFT_FAIL : KSFT_PASS;
}
