/* SPDX-License-Identifier: GPL-2.0 */
/*
 * mkey_picture, a program that reads and writes files of pictures, and arranges tables. It runs
 * while this program writes to it or reads from it.
 */
#ifndef MKEY_DEMO_HELPER_H
#define MKEY_DEMO_HELPER_H

#include <stdio.h>
#include <sys/types.h>

struct helper {
	FILE *stream;
	pid_t pid;
};

/*
 * Starts mkey_picture with @argv, which ends with NULL. @its_end, STDIN_FILENO or STDOUT_FILENO,
 * is the end of mkey_picture at the stream. Ends this program if that fails.
 */
struct helper helper_start(const char *const argv[], int its_end);

/*
 * Closes the stream and waits for mkey_picture. Ends this program if mkey_picture failed, which
 * has printed the reason then.
 */
void helper_finish(struct helper *helper);

#endif /* MKEY_DEMO_HELPER_H */
