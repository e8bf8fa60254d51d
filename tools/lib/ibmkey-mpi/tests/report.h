/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* TAP. kselftest.h counts the tests in variables of one file, so only report.c includes it. */
#ifndef REPORT_H
#define REPORT_H

#include <stdbool.h>

/* Prints the header. */
void begin_tests(void);

/* Prints the result of a test, whose name has at most 255 bytes. */
void result(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints the plan and the totals. Returns the status with which the program has to exit. */
int end_tests(void);

#endif /* REPORT_H */
