// SPDX-License-Identifier: GPL-2.0
/*
 * Not a test: takes the kernel's memory for keys until ENOMEM, as "lists" with
 * the largest number of entries, as unbound "keys", or as MRs over a "dmabuf".
 * Frees all of it and starts again. Succeeds if it gets the same number the
 * second time and, if BYTES is given, if it used at least an eighth of BYTES and
 * no more than BYTES.
 *
 * "hold" takes lists once and keeps them until standard input ends. "dm CLASS" takes device memory
 * of a class (enum ibmkey_dm_class) once, and succeeds if that fails with ENOMEM before the user's
 * share of the device's memory is used.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "matrix.h"
#include "mkey_test.h"

#define MOST 500000u
#define MEGABYTE (1 << 20)
#define BUFFER (8ul << 20)

enum what { LISTS, KEYS, DMABUF, HOLD };

static const char *const names[] = { "lists", "keys", "dmabuf", "hold" };
/* the number of bytes that each of them takes at least */
static const unsigned long least[] = { 32 * 65536, 512, 16 * (BUFFER / 4096), 0 };

struct exhaust {
	enum what what;
	struct mkt_dev dev;
	struct mkt_leaf leaf;
	int dmabuf;
	struct ibv_mr *mr[MOST];
};

static int exhaust_open(struct exhaust *e)
{
	static uint8_t byte[4096];

	if (mkt_dev_open(&e->dev, 0))
		return EIO;
	e->leaf.addr = (uintptr_t)byte;
	e->leaf.length = sizeof(byte);
	e->leaf.mr = ibv_reg_mr(e->dev.pd, byte, sizeof(byte), MKT_ACCESS_ALL);
	if (!e->leaf.mr)
		return EIO;
	if (e->what == DMABUF) {
		int memfd = memfd_create("exhaust", MFD_ALLOW_SEALING);

		if (memfd < 0 || ftruncate(memfd, BUFFER) ||
		    fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK))
			return EIO;
		e->dmabuf = mkt_udmabuf(memfd, BUFFER);
		if (e->dmabuf < 0)
			return EIO;
	}
	return 0;
}

/* allocates one more, or returns errno */
static struct ibv_mr *exhaust_one(struct exhaust *e)
{
	struct ibv_mr *mr;
	int err;

	if (e->what == DMABUF)
		return ibmkey_reg_dmabuf_mr(e->dev.pd, 0, BUFFER, 0, e->dmabuf,
					    MKT_ACCESS_ALL);
	mr = ibmkey_alloc(e->dev.pd, e->dev.caps.max_entries);
	if (mr && e->what != KEYS) {
		err = mkt_bind_rows(mr, &e->leaf, MKT_ROWS_LIST, e->dev.caps.max_entries, 2,
				    MKT_ACCESS_ALL);
		if (err) {
			ibv_dereg_mr(mr);
			errno = err;
			return NULL;
		}
	}
	return mr;
}

/* returns how many were allocated; -1 if the last error is not ENOMEM */
static int exhaust_all(struct exhaust *e)
{
	unsigned int n = 0, i;
	int err;

	while (n < MOST && (e->mr[n] = exhaust_one(e)))
		n++;
	err = errno;
	if (e->what == HOLD) {
		printf("errno %d\n", err);
		fflush(stdout);
		while (getchar() != EOF)
			;
	}
	for (i = 0; i < n; i++)
		if (ibv_dereg_mr(e->mr[i])) {
			printf("dereg of %u: errno %d\n", i, errno);
			return -1;
		}
	printf("%u %s, then errno %d\n", n, names[e->what], n < MOST ? err : 0);
	return n < MOST && err == ENOMEM ? (int)n : -1;
}

/* takes device memory and keeps it */
static int exhaust_dm(uint32_t class)
{
	unsigned int n = 0, limit;
	struct mkt_dev dev;

	if (mkt_dev_open(&dev, 0))
		return 1;
	limit = mkt_dm_share(&dev) / MEGABYTE;
	while (n < limit && mkt_dm_alloc(&dev, MEGABYTE, 0, class))
		n++;
	if (n < limit && errno == ENOMEM)
		return 0;
	printf("%u of %u MiB, then errno %d\n", n, limit, errno);
	return 1;
}

int main(int argc, char **argv)
{
	unsigned long bytes = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;
	static struct exhaust e;
	int first, second;

	if (argc > 2 && !strcmp(argv[1], "dm"))
		return exhaust_dm(atoi(argv[2]));
	while (argc > 1 && strcmp(argv[1], names[e.what]))
		if (++e.what > HOLD)
			return 2;
	if (exhaust_open(&e)) {
		printf("cannot begin: errno %d\n", errno);
		return 1;
	}
	first = exhaust_all(&e);
	second = e.what == HOLD ? first : exhaust_all(&e);
	if (first <= 0 || second < first - first / 8)
		return 1;
	if (!bytes)
		return 0;
	/* the limit is the same each time, and most of it is used */
	return first != second || first * least[e.what] > bytes ||
	       first * least[e.what] * 8 < bytes;
}
