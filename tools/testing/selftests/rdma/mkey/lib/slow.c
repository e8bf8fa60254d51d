// SPDX-License-Identifier: GPL-2.0
/* Memory whose pages arrive when the test says so. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/nbd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "mkey_test.h"
#include "slow.h"

#define SLOW_BLOCK 4096

/* runs the kernel's side of the device; ends when the socket is closed */
static void *slow_device(void *arg)
{
	struct mkt_slow *slow = arg;

	ioctl(slow->fd, NBD_DO_IT);
	return NULL;
}

static bool slow_transfer(int fd, void *buf, size_t size, bool receive)
{
	char *at = buf;
	ssize_t n;

	while (size) {
		n = receive ? recv(fd, at, size, 0) :
			      send(fd, at, size, MSG_NOSIGNAL);
		if (n <= 0 && errno != EINTR)
			return false;
		if (n > 0) {
			at += n;
			size -= n;
		}
	}
	return true;
}

/* answers each read with zeros, one after another; ignores writes */
static void *slow_server(void *arg)
{
	struct mkt_slow *slow = arg;
	static char zeros[SLOW_BLOCK * 64];
	char unwanted[SLOW_BLOCK];
	struct nbd_request request;
	uint32_t left, n;

	/*
	 * A fault of a page of the zeros would wait for the lock of the address space. An access
	 * that waits for this server has that lock, if another thread waits for it, too.
	 */
	if (mlock(zeros, sizeof(zeros)))
		perror("# mlock");
	while (slow_transfer(slow->socket[1], &request, sizeof(request), true)) {
		struct nbd_reply reply = { .magic = htonl(NBD_REPLY_MAGIC) };
		uint32_t type = ntohl(request.type) & 0xffff;

		memcpy(reply.handle, request.handle, sizeof(reply.handle));
		left = ntohl(request.len);
		if (type == NBD_CMD_DISC)
			break;
		for (; type == NBD_CMD_WRITE && left; left -= n) {
			n = left < sizeof(unwanted) ? left : sizeof(unwanted);
			if (!slow_transfer(slow->socket[1], unwanted, n, true))
				return NULL;
		}
		pthread_mutex_lock(&slow->lock);
		slow->waiting++;
		pthread_cond_broadcast(&slow->moved);
		while (slow->held && !slow->passes)
			pthread_cond_wait(&slow->moved, &slow->lock);
		if (slow->passes)
			slow->passes--;
		slow->waiting--;
		pthread_mutex_unlock(&slow->lock);
		if (!slow_transfer(slow->socket[1], &reply, sizeof(reply), false))
			break;
		for (; type == NBD_CMD_READ && left; left -= n) {
			n = left < sizeof(zeros) ? left : sizeof(zeros);
			if (!slow_transfer(slow->socket[1], zeros, n, false))
				return NULL;
		}
	}
	return NULL;
}

/*
 * Returns true if an earlier server's settings are left, or another server is there. The kernel
 * forgets the settings when the last process releases the device. The memory of a process that has
 * ended can keep the device longer, as long as an access of a driver uses the memory. NBD_DO_IT
 * fails until then. The result does not change while this process has the device open.
 */
static bool slow_occupied(unsigned int number)
{
	char path[32];

	snprintf(path, sizeof(path), "/sys/block/nbd%u/pid", number);
	return !access(path, F_OK);
}

/*
 * Makes the accesses to two adjacent pages two requests. The block layer would merge the second
 * into the first, if that has not left the queue yet.
 */
static bool slow_separate(unsigned int number)
{
	char path[48];
	bool done;
	int fd;

	snprintf(path, sizeof(path), "/sys/block/nbd%u/queue/nomerges", number);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	done = fd >= 0 && write(fd, "2", 1) == 1;
	if (fd >= 0)
		close(fd);
	return done;
}

/* attaches the first unused device */
static int slow_attach(struct mkt_slow *slow)
{
	char path[32];
	unsigned int i;
	int err = ENOENT;

	for (i = 0; i < 16; i++) {
		snprintf(path, sizeof(path), "/dev/nbd%u", i);
		slow->fd = open(path, O_RDWR | O_CLOEXEC);
		if (slow->fd < 0)
			return errno;
		if (slow_occupied(i))
			errno = EBUSY;
		else if (slow_separate(i) &&
			 !ioctl(slow->fd, NBD_SET_BLKSIZE, (unsigned long)SLOW_BLOCK) &&
			 !ioctl(slow->fd, NBD_SET_SIZE_BLOCKS,
				(unsigned long)(slow->size / SLOW_BLOCK)) &&
			 !ioctl(slow->fd, NBD_SET_SOCK, slow->socket[0]))
			return 0;
		err = errno;
		close(slow->fd);
		slow->fd = -1;
	}
	return err;
}

/* the device gets its size once the other thread runs it */
static int slow_map(struct mkt_slow *slow)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	unsigned long long size = 0;
	unsigned int i;

	for (i = 0; i < MKT_STALL_PAUSES && size < slow->size; i++) {
		if (ioctl(slow->fd, BLKGETSIZE64, &size))
			return errno;
		nanosleep(&pause, NULL);
	}
	if (size < slow->size)
		return ETIMEDOUT;
	/* drop pages that another process has read */
	if (ioctl(slow->fd, BLKFLSBUF))
		return errno;
	slow->map = mmap(NULL, slow->size, PROT_READ | PROT_WRITE, MAP_PRIVATE,
			 slow->fd, 0);
	if (slow->map == MAP_FAILED) {
		slow->map = NULL;
		return errno;
	}
	/* fetch each page by its own request, when it is accessed */
	return madvise(slow->map, slow->size, MADV_RANDOM) ? errno : 0;
}

int mkt_slow_open(struct mkt_slow *slow, size_t size)
{
	int err;

	memset(slow, 0, sizeof(*slow));
	slow->size = size;
	slow->fd = -1;
	if (access("/dev/nbd0", F_OK) && system("modprobe -q nbd max_part=0"))
		return ENOENT;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, slow->socket))
		return errno;
	pthread_mutex_init(&slow->lock, NULL);
	pthread_cond_init(&slow->moved, NULL);
	err = slow_attach(slow);
	if (err)
		goto close;
	err = pthread_create(&slow->server, NULL, slow_server, slow);
	if (err)
		goto detach;
	err = pthread_create(&slow->device, NULL, slow_device, slow);
	if (err) {
		shutdown(slow->socket[1], SHUT_RDWR);
		pthread_join(slow->server, NULL);
		goto detach;
	}
	err = slow_map(slow);
	if (err)
		mkt_slow_close(slow);
	return err;
detach:
	ioctl(slow->fd, NBD_CLEAR_SOCK);
	close(slow->fd);
close:
	close(slow->socket[0]);
	close(slow->socket[1]);
	return err;
}

void mkt_slow_close(struct mkt_slow *slow)
{
	mkt_slow_hold(slow, false);
	if (slow->map)
		munmap(slow->map, slow->size);
	ioctl(slow->fd, NBD_DISCONNECT);
	shutdown(slow->socket[1], SHUT_RDWR);
	pthread_join(slow->device, NULL);
	pthread_join(slow->server, NULL);
	ioctl(slow->fd, NBD_CLEAR_SOCK);
	close(slow->fd);
	close(slow->socket[0]);
	close(slow->socket[1]);
}

void mkt_slow_hold(struct mkt_slow *slow, bool held)
{
	pthread_mutex_lock(&slow->lock);
	slow->held = held;
	slow->passes = 0;
	pthread_cond_broadcast(&slow->moved);
	pthread_mutex_unlock(&slow->lock);
}

void mkt_slow_pass(struct mkt_slow *slow)
{
	pthread_mutex_lock(&slow->lock);
	slow->passes++;
	pthread_cond_broadcast(&slow->moved);
	pthread_mutex_unlock(&slow->lock);
}

int mkt_slow_wait(struct mkt_slow *slow, unsigned int count)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	unsigned int i, waiting = 0;
	int queued;

	for (i = 0; i < MKT_STALL_PAUSES && waiting < count; i++) {
		if (i)
			nanosleep(&pause, NULL);
		pthread_mutex_lock(&slow->lock);
		/* the server has one; the socket has those after it */
		waiting = slow->waiting;
		if (ioctl(slow->socket[1], FIONREAD, &queued))
			queued = 0;
		waiting += queued / sizeof(struct nbd_request);
		pthread_mutex_unlock(&slow->lock);
	}
	if (waiting >= count)
		return 0;
	mkt_diag("%u instead of %u requests for pages wait", waiting, count);
	return ETIMEDOUT;
}
