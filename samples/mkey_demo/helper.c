// SPDX-License-Identifier: GPL-2.0
/* Runs mkey_picture, which is in the directory of this program. */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "helper.h"

static const char *helper_path(void)
{
	static char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *slash;

	if (length < 0)
		err(1, "/proc/self/exe");
	path[length] = '\0';
	slash = strrchr(path, '/');
	if (!slash || (size_t)(slash + 1 - path) + sizeof("mkey_picture") > sizeof(path))
		errx(1, "%s: the path is too long", path);
	memcpy(slash + 1, "mkey_picture", sizeof("mkey_picture"));
	return path;
}

/*
 * After a fork, the kernel would give this process copies of the pages that a device writes to.
 * posix_spawn() copies no pages.
 */
struct helper helper_start(const char *const argv[], int its_end)
{
	int ends[2], theirs = its_end == STDIN_FILENO ? 0 : 1, error;
	posix_spawn_file_actions_t actions;
	struct helper helper;

	if (pipe2(ends, O_CLOEXEC))
		err(1, "pipe to mkey_picture");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[theirs], its_end);
	error = posix_spawn(&helper.pid, helper_path(), &actions, NULL, (char *const *)argv,
			    environ);
	posix_spawn_file_actions_destroy(&actions);
	if (error)
		errx(1, "%s: %s: build it with make -C samples", helper_path(), strerror(error));
	close(ends[theirs]);
	helper.stream = fdopen(ends[!theirs], its_end == STDIN_FILENO ? "wb" : "rb");
	if (!helper.stream)
		err(1, "pipe to mkey_picture");
	return helper;
}

void helper_finish(struct helper *helper)
{
	int status;

	fclose(helper->stream);
	while (waitpid(helper->pid, &status, 0) != helper->pid)
		if (errno != EINTR)
			err(1, "mkey_picture");
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		exit(1);
}
