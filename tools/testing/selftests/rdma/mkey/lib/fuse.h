/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory whose pages arrive when the process that serves them says so: a private mapping of a file
 * of a FUSE file system. In contrast to struct mkt_slow, any process can have such memory, also
 * that which accesses it.
 */
#ifndef MKEY_TEST_FUSE_H
#define MKEY_TEST_FUSE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mkt_fuse {
	uint8_t *map;			/* reads as zeros */
	size_t size;
	int dev;			/* to the kernel's side */
	pthread_t server;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool held;			/* reads are kept waiting */
	unsigned int waiting;		/* 1 if one is, now; others come after it */
};

/*
 * ENOENT if the kernel has no FUSE, EPERM if the process may not mount it. A thread of this process
 * serves the pages.
 */
int mkt_fuse_open(struct mkt_fuse *fuse, size_t size);
void mkt_fuse_close(struct mkt_fuse *fuse);
void mkt_fuse_hold(struct mkt_fuse *fuse, bool held);
/* waits until an access waits for a page; ETIMEDOUT if none does */
int mkt_fuse_wait(struct mkt_fuse *fuse);

#endif /* MKEY_TEST_FUSE_H */
