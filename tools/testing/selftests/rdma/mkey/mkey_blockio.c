// SPDX-License-Identifier: GPL-2.0
/*
 * Not a test: random direct reads and writes of a block device by several threads, each
 * of which knows every byte of its part. At the end, compares the device with the one
 * behind it.
 *
 * usage: mkey_blockio DEVICE BEHIND ROUNDS SEED
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4
#define PART (4 * 1024 * 1024)
#define SECTOR 512
#define MAX_IO (256 * 1024)

struct part {
	int fd;
	int behind;
	off_t start;
	unsigned int rounds;
	uint64_t random;
	uint8_t *expected;
	uint8_t *buffer;
	const char *failed;
};

static uint64_t draw(struct part *part, uint64_t below)
{
	part->random ^= part->random << 13;
	part->random ^= part->random >> 7;
	part->random ^= part->random << 17;
	return (part->random >> 11) % below;
}

static int all(int fd, uint8_t *buffer, size_t length, off_t at, int write)
{
	ssize_t n = write ? pwrite(fd, buffer, length, at) : pread(fd, buffer, length, at);

	return n == (ssize_t)length ? 0 : -1;
}

static const char *one(struct part *part)
{
	size_t length = SECTOR * (1 + draw(part, MAX_IO / SECTOR)), i;
	off_t at = SECTOR * draw(part, (PART - length) / SECTOR + 1);
	/* the buffer begins at a random sector of a page */
	uint8_t *buffer = part->buffer + SECTOR * draw(part, 8);

	if (draw(part, 4) == 0)
		length = SECTOR;
	if (draw(part, 2)) {
		for (i = 0; i < length; i += 8) {
			uint64_t word = draw(part, UINT64_MAX);

			memcpy(buffer + i, &word, 8);
		}
		memcpy(part->expected + at, buffer, length);
		return all(part->fd, buffer, length, part->start + at, 1) ? "write" : NULL;
	}
	memset(buffer, 0xa5, length + SECTOR);
	if (all(part->fd, buffer, length, part->start + at, 0))
		return "read";
	if (memcmp(buffer, part->expected + at, length))
		return "what was read";
	return buffer[length] == 0xa5 ? NULL : "what follows what was read";
}

static void *run(void *arg)
{
	struct part *part = arg;
	unsigned int i;

	if (all(part->behind, part->expected, PART, part->start, 0))
		part->failed = "reading the device behind";
	for (i = 0; i < part->rounds && !part->failed; i++)
		part->failed = one(part);
	return NULL;
}

/* Reads without the cache, which does not know the writes to the other device. */
static const char *compare(struct part *part, int fd, const char *what)
{
	size_t at;

	for (at = 0; at < PART; at += MAX_IO)
		if (all(fd, part->buffer, MAX_IO, part->start + at, 0) ||
		    memcmp(part->buffer, part->expected + at, MAX_IO))
			return what;
	return NULL;
}

int main(int argc, char **argv)
{
	struct part part[THREADS] = {};
	pthread_t thread[THREADS];
	int fd, behind, i, rc = 0;

	if (argc != 5)
		return 2;
	fd = open(argv[1], O_RDWR | O_DIRECT);
	behind = open(argv[2], O_RDONLY | O_DIRECT);
	if (fd < 0 || behind < 0) {
		perror(fd < 0 ? argv[1] : argv[2]);
		return 1;
	}
	for (i = 0; i < THREADS; i++) {
		part[i].fd = fd;
		part[i].behind = behind;
		part[i].start = (off_t)i * PART;
		part[i].rounds = atoi(argv[3]);
		part[i].random = strtoull(argv[4], NULL, 0) * THREADS + i + 1;
		part[i].random *= 0x9e3779b97f4a7c15;
		if (posix_memalign((void **)&part[i].buffer, 4096, MAX_IO + 9 * SECTOR) ||
		    posix_memalign((void **)&part[i].expected, 4096, PART) ||
		    pthread_create(&thread[i], NULL, run, &part[i]))
			return 1;
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		if (!part[i].failed)
			part[i].failed = compare(&part[i], fd, "the device afterwards");
		if (!part[i].failed)
			part[i].failed = compare(&part[i], behind, "the device behind afterwards");
		if (!part[i].failed)
			continue;
		printf("thread %d: %s is wrong (errno %d)\n", i, part[i].failed, errno);
		rc = 1;
	}
	return rc;
}
