// SPDX-License-Identifier: GPL-2.0
/*
 * A file of NFS over RDMA, read and written without the client's cache. This runs with
 * ib_mkey loaded and without it, and the results are compared. The file behind it, which
 * the server has in memory, is mapped, so that every byte is compared.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"

struct nfs {
	enum op op;
	size_t request;
	size_t length;
	int fd;
	uint8_t *buffer;
	uint8_t *behind;
	uint32_t seed;
};

static void reset(void *context)
{
	struct nfs *test = context;
	uint8_t *source = test->op == OP_READ ? test->behind : test->buffer;
	uint8_t *target = test->op == OP_READ ? test->buffer : test->behind;

	fill_random(source, test->length, ++test->seed);
	memset(target, 0, test->length);
}

static void run(void *context)
{
	struct nfs *test = context;
	ssize_t done;

	for (size_t at = 0; at < test->length; at += test->request) {
		if (test->op == OP_READ)
			done = pread(test->fd, test->buffer + at, test->request, at);
		else
			done = pwrite(test->fd, test->buffer + at, test->request, at);
		if (done != (ssize_t)test->request)
			err(1, "%s of a file at %zu: %zd bytes", op_names[test->op], at, done);
	}
}

static void check(void *context)
{
	struct nfs *test = context;

	if (memcmp(test->buffer, test->behind, test->length))
		errx(1, "%s of a file: wrong bytes", op_names[test->op]);
}

static void measure_requests(struct bench *bench, struct nfs *test, enum op op, size_t request,
			     size_t count)
{
	const struct series series = {
		.group = "nfs",
		.name = op_names[op],
		.size = request,
		.amount = request * count,
		.unit = "bytes",
	};
	const struct way way = { bench->way, reset, run, check, test };

	test->op = op;
	test->request = request;
	test->length = request * count;
	measure(bench, &series, &way, 1);
}

static const struct {
	size_t request;
	size_t count;
} requests[] = {
	{ 4 * KIB, 64 },
	{ 64 * KIB, 16 },
	{ 512 * KIB, 4 },
};

static size_t count_of(const struct bench *bench, unsigned int i)
{
	return scaled(bench, requests[i].count, 1);
}

static uint8_t *map_behind(const char *path, size_t length)
{
	int fd = open(path, O_RDWR);
	uint8_t *behind;

	if (fd < 0)
		err(1, "%s", path);
	if (ftruncate(fd, length))
		err(1, "%s: ftruncate to %zu bytes", path, length);
	behind = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (behind == MAP_FAILED)
		err(1, "%s: mmap", path);
	close(fd);

	return behind;
}

void measure_nfs(struct bench *bench)
{
	struct nfs test = {};
	size_t length = 0;

	for (unsigned int i = 0; i < ARRAY_SIZE(requests); i++)
		if (requests[i].request * count_of(bench, i) > length)
			length = requests[i].request * count_of(bench, i);
	test.behind = map_behind(bench->behind, length);
	test.buffer = new_buffer(length);
	test.fd = open(bench->file, O_RDWR | O_DIRECT);
	if (test.fd < 0)
		err(1, "%s", bench->file);
	for (int op = OP_WRITE; op <= OP_READ; op++)
		for (unsigned int i = 0; i < ARRAY_SIZE(requests); i++)
			measure_requests(bench, &test, op, requests[i].request,
					 count_of(bench, i));
	close(test.fd);
	free(test.buffer);
	munmap(test.behind, length);
}
