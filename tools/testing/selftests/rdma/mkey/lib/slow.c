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
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "mkey_test.h"
#include "slow.h"

#define FUSE_PAGE 4096
#define FUSE_ROOM (64 * 1024)

static const char zeros[FUSE_ROOM];

static bool fuse_reply(struct mkt_slow *slow, uint64_t unique, int err, const void *data,
		       size_t size)
{
	struct fuse_out_header header = {
		.len = sizeof(header) + size,
		.error = -err,
		.unique = unique,
	};
	struct iovec iov[] = {
		{ .iov_base = &header, .iov_len = sizeof(header) },
		{ .iov_base = (void *)data, .iov_len = size },
	};

	return writev(slow->dev, iov, 2) == (ssize_t)header.len;
}

static bool fuse_page(struct mkt_slow *slow, struct mkt_slow_page page)
{
	return fuse_reply(slow, page.unique, 0, zeros,
			  page.size < FUSE_ROOM ? page.size : FUSE_ROOM);
}

/* answers a read, or keeps it waiting */
static bool fuse_read(struct mkt_slow *slow, struct mkt_slow_page page)
{
	bool answered = true;

	pthread_mutex_lock(&slow->lock);
	if (slow->held && slow->waiting < SLOW_MAX_WAITING)
		slow->page[slow->waiting++] = page;
	else
		answered = fuse_page(slow, page);
	pthread_mutex_unlock(&slow->lock);
	return answered;
}

/* false if no reply is wanted any more */
static bool fuse_serve(struct mkt_slow *slow, const struct fuse_in_header *in)
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
			.size = slow->size + FUSE_PAGE,
			.mode = S_IFREG | 0600,
			.nlink = 1,
			.blksize = FUSE_PAGE,
		},
	};
	const struct fuse_read_in *read = (const struct fuse_read_in *)(in + 1);
	struct fuse_open_out open = {};

	switch (in->opcode) {
	case FUSE_INIT:
		return fuse_reply(slow, in->unique, 0, &init, sizeof(init));
	case FUSE_GETATTR:
		return fuse_reply(slow, in->unique, 0, &attr, sizeof(attr));
	case FUSE_OPEN:
		return fuse_reply(slow, in->unique, 0, &open, sizeof(open));
	case FUSE_READ:
		return fuse_read(slow, (struct mkt_slow_page){ in->unique, read->size });
	case FUSE_FLUSH:
	case FUSE_RELEASE:
		return fuse_reply(slow, in->unique, 0, NULL, 0);
	case FUSE_FORGET:
	case FUSE_INTERRUPT:
		return true;
	case FUSE_DESTROY:
		return false;
	default:
		return fuse_reply(slow, in->unique, ENOSYS, NULL, 0);
	}
}

static void *fuse_server(void *arg)
{
	struct mkt_slow *slow = arg;
	static _Alignas(8) char buf[FUSE_ROOM + FUSE_PAGE];

	while (read(slow->dev, buf, sizeof(buf)) >= (ssize_t)sizeof(struct fuse_in_header))
		if (!fuse_serve(slow, (const struct fuse_in_header *)buf))
			break;
	return NULL;
}

/* mounts the file over a file, opens it, and leaves no name of it */
static int fuse_mount(struct mkt_slow *slow, int *file)
{
	char path[] = "/tmp/mkey-fuse-XXXXXX", options[96];
	int err = 0, fd = mkstemp(path);

	if (fd < 0)
		return errno;
	close(fd);
	snprintf(options, sizeof(options), "fd=%d,rootmode=%o,user_id=%u,group_id=%u", slow->dev,
		 S_IFREG, geteuid(), getegid());
	if (mount("mkey", path, "fuse", MS_NOSUID | MS_NODEV, options)) {
		err = errno;
		goto unlink;
	}
	err = pthread_create(&slow->server, NULL, fuse_server, slow);
	if (!err) {
		*file = open(path, O_RDWR | O_CLOEXEC);
		err = *file < 0 ? errno : 0;
	}
	umount2(path, MNT_DETACH);
unlink:
	unlink(path);
	return err;
}

/*
 * Lets the server read a page that is not mapped. A fault of a page of the server's memory would
 * wait for the lock of the address space. An access that waits for the server has that lock, if
 * another thread waits for it, too.
 */
static int fuse_warm(struct mkt_slow *slow, int file)
{
	char byte;

	if (mlock(zeros, sizeof(zeros)) || mlock(slow->page, sizeof(slow->page)))
		return errno;
	return pread(file, &byte, 1, slow->size) == 1 ? 0 : EIO;
}

int mkt_slow_open(struct mkt_slow *slow, size_t size)
{
	struct stat st;
	int err, file = -1;

	memset(slow, 0, sizeof(*slow));
	slow->size = size;
	pthread_mutex_init(&slow->lock, NULL);
	slow->dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (slow->dev < 0)
		return errno == ENODEV ? ENOENT : errno;
	err = fuse_mount(slow, &file);
	if (err)
		goto close;
	/* the kernel asks for the size */
	if (fstat(file, &st) || st.st_size != size + FUSE_PAGE)
		err = EIO;
	else
		err = fuse_warm(slow, file);
	if (!err)
		slow->map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	close(file);
	if (!err && slow->map == MAP_FAILED)
		err = errno;
	/* fetch each page by its own request, when it is accessed */
	if (!err && madvise(slow->map, size, MADV_RANDOM))
		err = errno;
	if (!err)
		return 0;
close:
	close(slow->dev);
	return err;
}

int mkt_slow_try(struct mkt_slow *slow, const struct mkt_dev dev[2], size_t size)
{
	int err;

	if (!mkt_dev_on_demand(&dev[0]) || !mkt_dev_on_demand(&dev[1]))
		return -1;
	err = mkt_slow_open(slow, size);
	return err == ENOENT || err == EPERM ? -1 : err;
}

void mkt_slow_close(struct mkt_slow *slow)
{
	mkt_slow_hold(slow, false);
	/* with its last use the file system goes, and the server ends */
	munmap(slow->map, slow->size);
	pthread_join(slow->server, NULL);
	close(slow->dev);
}

/* answers the first @count requests */
static void slow_answer(struct mkt_slow *slow, unsigned int count)
{
	unsigned int i;

	/* a request whose process was killed wants no answer */
	for (i = 0; i < count; i++)
		fuse_page(slow, slow->page[i]);
	slow->waiting -= count;
	memmove(slow->page, slow->page + count, slow->waiting * sizeof(*slow->page));
}

void mkt_slow_hold(struct mkt_slow *slow, bool held)
{
	pthread_mutex_lock(&slow->lock);
	slow->held = held;
	if (!held)
		slow_answer(slow, slow->waiting);
	pthread_mutex_unlock(&slow->lock);
}

void mkt_slow_pass(struct mkt_slow *slow)
{
	pthread_mutex_lock(&slow->lock);
	if (slow->waiting)
		slow_answer(slow, 1);
	pthread_mutex_unlock(&slow->lock);
}

int mkt_slow_wait(struct mkt_slow *slow, unsigned int count)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	unsigned int i, waiting = 0;

	for (i = 0; i < MKT_STALL_PAUSES && waiting < count; i++) {
		if (i)
			nanosleep(&pause, NULL);
		pthread_mutex_lock(&slow->lock);
		waiting = slow->waiting;
		pthread_mutex_unlock(&slow->lock);
	}
	if (waiting >= count)
		return 0;
	mkt_diag("%u instead of %u requests for pages wait", waiting, count);
	return ETIMEDOUT;
}

static void *slow_thread(void *arg)
{
	struct slow_thread *thread = arg;
	void *volatile first;

	thread->kernel_tid = gettid();
	/* the C library maps memory when a thread first allocates or frees some */
	first = malloc(1);
	free(first);
	sem_post(&thread->done);
	for (;;) {
		while (sem_wait(&thread->start))
			;
		if (!thread->run)
			return NULL;
		thread->result = thread->run(thread->arg);
		atomic_store(&thread->running, false);
		sem_post(&thread->done);
	}
}

int slow_thread_create(struct slow_thread *thread)
{
	sem_init(&thread->start, 0, 0);
	sem_init(&thread->done, 0, 0);
	if (pthread_create(&thread->tid, NULL, slow_thread, thread))
		return EAGAIN;
	while (sem_wait(&thread->done))
		;
	return 0;
}

void slow_thread_end(struct slow_thread *thread)
{
	slow_run(thread, NULL, NULL);
	pthread_join(thread->tid, NULL);
	sem_destroy(&thread->start);
	sem_destroy(&thread->done);
}

void slow_run(struct slow_thread *thread, int (*run)(void *arg), void *arg)
{
	thread->run = run;
	thread->arg = arg;
	atomic_store(&thread->running, true);
	sem_post(&thread->start);
}

int slow_join(struct slow_thread *thread)
{
	while (sem_wait(&thread->done))
		;
	return thread->result;
}

bool slow_returns(struct slow_thread *thread, unsigned int ms)
{
	double end = mkt_seconds() + ms / 1000.0;

	while (mkt_seconds() < end && atomic_load(&thread->running))
		usleep(1000);
	return !atomic_load(&thread->running);
}

bool slow_sleeps(struct slow_thread *thread)
{
	char path[64], text[256], *state;
	unsigned int i, found = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread->kernel_tid);
	/* a short sleep, such as that for a lock, is not the one that is awaited */
	for (i = 0; i < MKT_STALL_PAUSES && found < 20 && atomic_load(&thread->running); i++) {
		usleep(1000);
		fd = open(path, O_RDONLY);
		n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
		if (fd >= 0)
			close(fd);
		text[n > 0 ? n : 0] = 0;
		state = strrchr(text, ')');
		found = state && state[1] && state[2] == 'D' ? found + 1 : 0;
	}
	return found == 20;
}

int slow_dereg(void *mr)
{
	return ibv_dereg_mr(mr);
}
