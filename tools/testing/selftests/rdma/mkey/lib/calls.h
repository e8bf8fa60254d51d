/* SPDX-License-Identifier: GPL-2.0 */
/* Counts the calls of a function of the kernel, by a kprobe. */
#ifndef MKEY_TEST_CALLS_H
#define MKEY_TEST_CALLS_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "mkey_test.h"

#define MKT_TRACING "/sys/kernel/tracing"
#define MKT_CALLS "mkey_calls/calls"

/* adds a line to the kprobes of the kernel, or removes one */
static inline bool mkt_calls_event(const char *line)
{
	int fd = open(MKT_TRACING "/kprobe_events", O_WRONLY | O_APPEND | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line);

	if (fd >= 0)
		close(fd);
	return ok;
}

/* counts the calls of @function from now on; false if this kernel cannot */
static inline bool mkt_calls_begin(const char *function)
{
	char line[128];

	if (access(MKT_TRACING "/kprobe_events", F_OK))
		mount("none", MKT_TRACING, "tracefs", 0, NULL);
	snprintf(line, sizeof(line), "p:" MKT_CALLS " %s\n", function);
	return mkt_calls_event(line) &&
	       mkt_write_file(MKT_TRACING "/events/" MKT_CALLS "/enable", "1");
}

/* the calls so far, or -1; allocates nothing, because a page may be awaited */
static inline long long mkt_calls(void)
{
	int fd = open(MKT_TRACING "/kprobe_profile", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : 0, length = 0;
	char text[4096], *line;
	long long hits;

	while (n >= 0 && length < (ssize_t)sizeof(text) - 1) {
		n = read(fd, text + length, sizeof(text) - 1 - length);
		if (n <= 0)
			break;
		length += n;
	}
	if (fd >= 0)
		close(fd);
	text[length] = 0;
	line = strstr(text, " calls ");
	return line && sscanf(line, " calls %lld", &hits) == 1 ? hits : -1;
}

/* ends the count and returns it, or -1 */
static inline long long mkt_calls_end(void)
{
	long long count = mkt_calls();

	if (!mkt_write_file(MKT_TRACING "/events/" MKT_CALLS "/enable", "0") ||
	    !mkt_calls_event("-:" MKT_CALLS "\n"))
		count = -1;
	return count;
}

#endif /* MKEY_TEST_CALLS_H */
