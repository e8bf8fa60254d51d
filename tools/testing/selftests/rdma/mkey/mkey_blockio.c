// SPDX-License-Identifier: GPL-2.0
/*
 * Not a test: random direct reads and writes of a block device by several threads, each
 * of which knows every byte of its part. At the end, compares the device with the one
 * behind it.
 *
 * usage: mkey_blockio DEVICE BEHIND ROUNDS SEED [GRAIN]
 *
 * With GRAIN, each is a vector of up to 4 MiB, whose elements begin and end at multiples of
 * GRAIN bytes, with memory between them that keeps its bytes. If the block layer refuses a
 * vector with EINVAL, the same is done without one. Prints how many were refused.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define THREADS 4
#define PART (4 * 1024 * 1024)
#define SECTOR 512
#define MAX_IO (256 * 1024)
#define PAGE 4096
#define ELEMENTS 64
#define UNTOUCHED 0xa5

struct part {
	int fd;
	int behind;
	off_t start;
	unsigned int rounds;
	uint64_t random;
	uint8_t *expected;
	uint8_t *buffer;
	const char *failed;
	/* with GRAIN: what the buffer will have, and the vector in it */
	unsigned int grain;
	uint8_t *image;
	struct iovec vector[ELEMENTS];
	int elements;
	unsigned int vectors;
	unsigned int refused;
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

static void fill(struct part *part, off_t at, size_t length)
{
	size_t i;

	for (i = 0; i < length; i += 8) {
		uint64_t word = draw(part, UINT64_MAX);

		memcpy(part->expected + at + i, &word, 8);
	}
}

static const char *one(struct part *part)
{
	size_t length = SECTOR * (1 + draw(part, MAX_IO / SECTOR));
	off_t at = SECTOR * draw(part, (PART - length) / SECTOR + 1);
	/* the buffer begins at a random sector of a page */
	uint8_t *buffer = part->buffer + SECTOR * draw(part, 8);

	if (draw(part, 4) == 0)
		length = SECTOR;
	if (draw(part, 2)) {
		fill(part, at, length);
		memcpy(buffer, part->expected + at, length);
		return all(part->fd, buffer, length, part->start + at, 1) ? "write" : NULL;
	}
	memset(buffer, UNTOUCHED, length + SECTOR);
	if (all(part->fd, buffer, length, part->start + at, 0))
		return "read";
	if (memcmp(buffer, part->expected + at, length))
		return "what was read";
	return buffer[length] == UNTOUCHED ? NULL : "what follows what was read";
}

/* Draws a vector of that length in the buffer, and returns where it ends. */
static size_t draw_vector(struct part *part, size_t length)
{
	size_t mean = length / part->grain / (1 + draw(part, ELEMENTS / 2));
	size_t end = 0;

	for (part->elements = 0; length; part->elements++) {
		size_t bytes = part->grain * (1 + draw(part, 2 * mean + 1));

		if (bytes > length || part->elements == ELEMENTS - 1)
			bytes = length;
		end += part->grain * draw(part, PAGE / part->grain);
		part->vector[part->elements] = (struct iovec){ part->buffer + end, bytes };
		end += bytes;
		length -= bytes;
	}
	return end;
}

/* Copies the expected bytes at that place to where the vector has them in a copy of the buffer. */
static void scatter(struct part *part, uint8_t *copy, off_t at)
{
	int i;

	for (i = 0; i < part->elements; i++) {
		memcpy(copy + ((uint8_t *)part->vector[i].iov_base - part->buffer),
		       part->expected + at, part->vector[i].iov_len);
		at += part->vector[i].iov_len;
	}
}

static const char *one_vector(struct part *part)
{
	size_t length = SECTOR * (1 + draw(part, 1 << draw(part, 14)));
	off_t at = SECTOR * draw(part, (PART - length) / SECTOR + 1);
	size_t end = draw_vector(part, length);
	int write = draw(part, 2);
	ssize_t n;

	if (write) {
		fill(part, at, length);
		scatter(part, part->buffer, at);
		n = pwritev(part->fd, part->vector, part->elements, part->start + at);
	} else {
		memset(part->buffer, UNTOUCHED, end + SECTOR);
		n = preadv(part->fd, part->vector, part->elements, part->start + at);
	}
	part->vectors++;
	if (n < 0 && errno == EINVAL) {
		part->refused++;
		if (all(part->fd, write ? part->expected + at : part->image, length,
			part->start + at, write))
			return "what is done without a vector";
		return write || !memcmp(part->image, part->expected + at, length) ?
		       NULL : "what was read without a vector";
	}
	if (n != (ssize_t)length)
		return write ? "a written vector" : "a read vector";
	if (write)
		return NULL;
	memset(part->image, UNTOUCHED, end + SECTOR);
	scatter(part, part->image, at);
	return memcmp(part->buffer, part->image, end + SECTOR) ?
	       "what was read into a vector" : NULL;
}

static void *run(void *arg)
{
	struct part *part = arg;
	unsigned int i;

	if (all(part->behind, part->expected, PART, part->start, 0))
		part->failed = "reading the device behind";
	for (i = 0; i < part->rounds && !part->failed; i++)
		part->failed = part->grain ? one_vector(part) : one(part);
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
	const size_t room = PART + (ELEMENTS + 1) * PAGE;
	unsigned int vectors = 0, refused = 0;
	int fd, behind, i, rc = 0;

	if (argc != 5 && argc != 6)
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
		part[i].grain = argc > 5 ? atoi(argv[5]) : 0;
		if (posix_memalign((void **)&part[i].buffer, PAGE, room) ||
		    posix_memalign((void **)&part[i].image, PAGE, room) ||
		    posix_memalign((void **)&part[i].expected, PAGE, PART) ||
		    pthread_create(&thread[i], NULL, run, &part[i]))
			return 1;
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		vectors += part[i].vectors;
		refused += part[i].refused;
		if (!part[i].failed)
			part[i].failed = compare(&part[i], fd, "the device afterwards");
		if (!part[i].failed)
			part[i].failed = compare(&part[i], behind, "the device behind afterwards");
		if (!part[i].failed)
			continue;
		printf("thread %d: %s is wrong (errno %d)\n", i, part[i].failed, errno);
		rc = 1;
	}
	if (vectors)
		printf("%u of %u vectors refused\n", refused, vectors);
	return rc;
}
