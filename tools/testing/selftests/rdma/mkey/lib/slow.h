/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory whose pages arrive when the test says so: a mapping of a network block
 * device that the test itself serves.
 */
#ifndef MKEY_TEST_SLOW_H
#define MKEY_TEST_SLOW_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mkt_slow {
	uint8_t *map;			/* private; reads as zeros */
	size_t size;
	int fd;				/* the block device */
	int socket[2];			/* the kernel's, and the server's */
	pthread_t device, server;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool held;			/* requests are kept waiting */
	unsigned int passes;		/* that many are answered nevertheless */
	unsigned int waiting;		/* 1 if one is, now; others come after it */
};

/*
 * ENOENT if the kernel has no such device; @size is a multiple of the page size
 */
int mkt_slow_open(struct mkt_slow *slow, size_t size);
void mkt_slow_close(struct mkt_slow *slow);
/* from now on, requests for missing pages are held back, or answered again */
void mkt_slow_hold(struct mkt_slow *slow, bool held);
/* answers one request for a page while others are held back */
void mkt_slow_pass(struct mkt_slow *slow);
/* waits until accesses wait for @count pages; ETIMEDOUT if they do not */
int mkt_slow_wait(struct mkt_slow *slow, unsigned int count);

/*
 * Opens both devices and @slow, or skips the test. Side @side has to offer memory on demand. With
 * mkey_harness.h.
 */
#define MKT_OPEN_SLOW(dev, side, slow, size) do {				\
	struct ibv_device_attr_ex __attr;					\
	int __err;								\
										\
	MKT_OPEN_EXTENDED(dev);							\
	ASSERT_EQ(0, ibv_query_device_ex((dev)[side].ctx, NULL, &__attr));	\
	if (!(__attr.odp_caps.general_caps & IBV_ODP_SUPPORT))			\
		SKIP(return, "%s has no memory on demand", (dev)[side].name);	\
	__err = mkt_slow_open(slow, size);					\
	if (__err == ENOENT || __err == ENXIO)					\
		SKIP(return, "no network block devices");			\
	ASSERT_EQ(0, __err);							\
} while (0)

#endif /* MKEY_TEST_SLOW_H */
