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
	unsigned int waiting;		/* that many are, now */
};

/*
 * ENOENT if the kernel has no such device; @size is a multiple of the page size
 */
int mkt_slow_open(struct mkt_slow *slow, size_t size);
void mkt_slow_close(struct mkt_slow *slow);
/* from now on, requests for missing pages are held back, or answered again */
void mkt_slow_hold(struct mkt_slow *slow, bool held);
/* waits until an access waits for a page; ETIMEDOUT if none does */
int mkt_slow_wait(struct mkt_slow *slow);

#endif /* MKEY_TEST_SLOW_H */
