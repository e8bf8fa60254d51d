// SPDX-License-Identifier: GPL-2.0
/* Reads and writes files of pictures, by the program mkey_picture. */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image.h"

#define MAX_PIXELS (16u << 20)

/* Returns the path of mkey_picture, which is in the directory of this program. */
static const char *helper(void)
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
 * Starts mkey_picture with a pipe as its standard input or output, and returns the other end
 * of the pipe. After a fork, the kernel would give this process copies of the pages that a
 * device writes to. posix_spawn() copies no pages.
 */
static int start(const char *command, const char *path, int its_end, pid_t *pid)
{
	char *const argv[] = { (char *)"mkey_picture", (char *)command, (char *)"--",
			       (char *)path, NULL };
	int ends[2], theirs = its_end == STDIN_FILENO ? 0 : 1, error;
	posix_spawn_file_actions_t actions;

	if (pipe2(ends, O_CLOEXEC))
		err(1, "%s", path);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[theirs], its_end);
	error = posix_spawn(pid, helper(), &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (error)
		errx(1, "%s: %s: build it with make -C samples", helper(), strerror(error));
	close(ends[theirs]);
	return ends[!theirs];
}

/* Waits for mkey_picture. Prints nothing if it failed, because it has printed the reason. */
static void finish(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) != pid)
		if (errno != EINTR)
			err(1, "mkey_picture");
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		exit(1);
}

struct image image_load(const char *path)
{
	unsigned int width = 0, height = 0;
	struct image image = { 0 };
	size_t size = 0;
	FILE *file;
	pid_t pid;

	if (access(path, R_OK))
		err(1, "%s", path);
	file = fdopen(start("read", path, STDOUT_FILENO, &pid), "rb");
	if (!file)
		err(1, "%s", path);
	if (fscanf(file, "P6 %u %u 255", &width, &height) == 2 && fgetc(file) != EOF &&
	    width && height && (uint64_t)width * height <= MAX_PIXELS) {
		image = image_new(width, height);
		size = fread(image.pixels, 1, image_bytes(&image), file);
	}
	fclose(file);
	finish(pid);
	if (!image.pixels || size != image_bytes(&image))
		errx(1, "%s: mkey_picture printed no whole picture", path);
	return image;
}

void image_write_png(const struct image *image, const char *path)
{
	pid_t pid;
	FILE *file = fdopen(start("png", path, STDIN_FILENO, &pid), "wb");

	if (!file)
		err(1, "%s", path);
	fprintf(file, "P6\n%u %u\n255\n", image->width, image->height);
	/* Ignore an error: mkey_picture reports a picture that is too short. */
	fwrite(image->pixels, 1, image_bytes(image), file);
	fclose(file);
	finish(pid);
}
