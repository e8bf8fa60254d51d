// SPDX-License-Identifier: GPL-2.0
/* A file system of one file, whose pages arrive when the test says so. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fuse.h"
#include "mkey_test.h"

#define FUSE_PAGE 4096
#define FUSE_ROOM (64 * 1024)

static bool fuse_reply(struct mkt_fuse *fuse, uint64_t unique, int err, const void *data,
		       size_t size)
{
	static const char zeros[FUSE_ROOM];
	char buf[sizeof(struct fuse_out_header) + FUSE_ROOM];
	struct fuse_out_header header = {
		.len = sizeof(header) + size,
		.error = -err,
		.unique = unique,
	};

	memcpy(buf, &header, sizeof(header));
	memcpy(buf + sizeof(header), data ?: zeros, size);
	return write(fuse->dev, buf, header.len) == (ssize_t)header.len;
}

/* answers a read when reads are not held back */
static bool fuse_read(struct mkt_fuse *fuse, uint64_t unique, uint32_t size)
{
	pthread_mutex_lock(&fuse->lock);
	fuse->waiting++;
	while (fuse->held)
		pthread_cond_wait(&fuse->moved, &fuse->lock);
	fuse->waiting--;
	pthread_mutex_unlock(&fuse->lock);
	return fuse_reply(fuse, unique, 0, NULL, size < FUSE_ROOM ? size : FUSE_ROOM);
}

/* false if no reply is wanted any more */
static bool fuse_serve(struct mkt_fuse *fuse, const struct fuse_in_header *in)
{
	struct fuse_init_out init = {
		.major = FUSE_KERNEL_VERSION,
		.minor = 31,
		.max_write = FUSE_PAGE,
	};
	struct fuse_attr_out attr = {
		.attr_valid = 1u << 30,
		.attr = {
			.ino = FUSE_ROOT_ID,
			.size = fuse->size,
			.mode = S_IFREG | 0600,
			.nlink = 1,
			.blksize = FUSE_PAGE,
		},
	};
	struct fuse_open_out open = {};

	switch (in->opcode) {
	case FUSE_INIT:
		return fuse_reply(fuse, in->unique, 0, &init, sizeof(init));
	case FUSE_GETATTR:
		return fuse_reply(fuse, in->unique, 0, &attr, sizeof(attr));
	case FUSE_OPEN:
		return fuse_reply(fuse, in->unique, 0, &open, sizeof(open));
	case FUSE_READ:
		return fuse_read(fuse, in->unique, ((const struct fuse_read_in *)(in + 1))->size);
	case FUSE_FLUSH:
	case FUSE_RELEASE:
		return fuse_reply(fuse, in->unique, 0, NULL, 0);
	case FUSE_FORGET:
	case FUSE_INTERRUPT:
		return true;
	case FUSE_DESTROY:
		return false;
	default:
		return fuse_reply(fuse, in->unique, ENOSYS, NULL, 0);
	}
}

static void *fuse_server(void *arg)
{
	struct mkt_fuse *fuse = arg;
	static _Alignas(8) char buf[FUSE_ROOM + FUSE_PAGE];

	while (read(fuse->dev, buf, sizeof(buf)) >= (ssize_t)sizeof(struct fuse_in_header))
		if (!fuse_serve(fuse, (const struct fuse_in_header *)buf))
			break;
	return NULL;
}

/* mounts the file over a file, opens it, and leaves no name of it */
static int fuse_mount(struct mkt_fuse *fuse, int *file)
{
	char path[] = "/tmp/mkey-fuse-XXXXXX", options[96];
	int err = 0, fd = mkstemp(path);

	if (fd < 0)
		return errno;
	close(fd);
	snprintf(options, sizeof(options), "fd=%d,rootmode=%o,user_id=%u,group_id=%u", fuse->dev,
		 S_IFREG, geteuid(), getegid());
	if (mount("mkey", path, "fuse", MS_NOSUID | MS_NODEV, options)) {
		err = errno;
		goto unlink;
	}
	err = pthread_create(&fuse->server, NULL, fuse_server, fuse);
	if (!err) {
		*file = open(path, O_RDWR | O_CLOEXEC);
		err = *file < 0 ? errno : 0;
	}
	umount2(path, MNT_DETACH);
unlink:
	unlink(path);
	return err;
}

int mkt_fuse_open(struct mkt_fuse *fuse, size_t size)
{
	struct stat st;
	int err, file = -1;

	memset(fuse, 0, sizeof(*fuse));
	fuse->size = size;
	pthread_mutex_init(&fuse->lock, NULL);
	pthread_cond_init(&fuse->moved, NULL);
	fuse->dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fuse->dev < 0)
		return errno == ENODEV ? ENOENT : errno;
	err = fuse_mount(fuse, &file);
	if (err)
		goto close;
	/* the kernel asks for the size */
	if (fstat(file, &st) || st.st_size != size)
		err = EIO;
	else
		fuse->map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	close(file);
	if (!err && fuse->map == MAP_FAILED)
		err = errno;
	/* fetch each page by its own request, when it is accessed */
	if (!err && madvise(fuse->map, size, MADV_RANDOM))
		err = errno;
	if (!err)
		return 0;
close:
	close(fuse->dev);
	return err;
}

void mkt_fuse_close(struct mkt_fuse *fuse)
{
	mkt_fuse_hold(fuse, false);
	/* with its last use the file system goes, and the server ends */
	munmap(fuse->map, fuse->size);
	pthread_join(fuse->server, NULL);
	close(fuse->dev);
}

void mkt_fuse_hold(struct mkt_fuse *fuse, bool held)
{
	pthread_mutex_lock(&fuse->lock);
	fuse->held = held;
	pthread_cond_broadcast(&fuse->moved);
	pthread_mutex_unlock(&fuse->lock);
}

int mkt_fuse_wait(struct mkt_fuse *fuse)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	unsigned int i, waiting = 0;

	for (i = 0; i < MKT_STALL_PAUSES && !waiting; i++) {
		if (i)
			nanosleep(&pause, NULL);
		pthread_mutex_lock(&fuse->lock);
		waiting = fuse->waiting;
		pthread_mutex_unlock(&fuse->lock);
	}
	return waiting ? 0 : ETIMEDOUT;
}
