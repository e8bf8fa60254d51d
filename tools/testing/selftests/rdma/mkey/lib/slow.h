/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory whose pages arrive when the test says so, and threads that were made before a page is
 * awaited.
 */
#ifndef MKEY_TEST_SLOW_H
#define MKEY_TEST_SLOW_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "dev.h"

#define SLOW_MAX_WAITING 4096

/* A private mapping of a file of a FUSE file system, which a thread of this process serves. */
struct mkt_slow {
	uint8_t *map;			/* reads as zeros */
	size_t size;
	int dev;			/* to the kernel's side */
	pthread_t server;
	pthread_mutex_t lock;
	bool held;			/* requests for pages are kept waiting */
	unsigned int waiting;		/* that many are, in the order of arrival */
	struct mkt_slow_page {
		uint64_t unique;
		uint32_t size;
	} page[SLOW_MAX_WAITING];
};

/*
 * ENOENT if the kernel has no FUSE, EPERM if the process may not mount it; @size is a multiple of
 * the page size
 */
int mkt_slow_open(struct mkt_slow *slow, size_t size);
/* the same; -1 if that cannot be, or if one of two devices has no memory on demand */
int mkt_slow_try(struct mkt_slow *slow, const struct mkt_dev dev[2], size_t size);
void mkt_slow_close(struct mkt_slow *slow);
/* from now on, requests for missing pages are held back, or answered again */
void mkt_slow_hold(struct mkt_slow *slow, bool held);
/* answers the first request for a page that is held back */
void mkt_slow_pass(struct mkt_slow *slow);
/* waits until accesses wait for @count pages; ETIMEDOUT if they do not */
int mkt_slow_wait(struct mkt_slow *slow, unsigned int count);

/*
 * A thread that runs a function when it is asked to. While an access waits for a page, no thread
 * can be made: the access holds the lock of the process's address space.
 */
struct slow_thread {
	pthread_t tid;
	pid_t kernel_tid;
	sem_t start, done;
	int (*run)(void *arg);	/* NULL: the thread ends */
	void *arg;
	atomic_bool running;
	int result;
};

int slow_thread_create(struct slow_thread *thread);
/* ends the thread, which runs no function now */
void slow_thread_end(struct slow_thread *thread);
void slow_run(struct slow_thread *thread, int (*run)(void *arg), void *arg);
/* waits for the function and returns its result */
int slow_join(struct slow_thread *thread);
/* true if the function returns within @ms milliseconds */
bool slow_returns(struct slow_thread *thread, unsigned int ms);
/*
 * waits until the function sleeps in the kernel in a state that only a kill ends; false if it ends
 * first, or does not sleep so
 */
bool slow_sleeps(struct slow_thread *thread);
/* With mkey_harness.h: skips the test if the set-up @err is -1, which must be 0 otherwise. */
#define SLOW_TRY(err) do {							\
	int __err = err;							\
										\
	if (__err < 0)								\
		SKIP(return, "no memory on demand, or FUSE cannot be mounted");	\
	ASSERT_EQ(0, __err);							\
} while (0)

/* a function for a thread */
int slow_dereg(void *mr);

#endif /* MKEY_TEST_SLOW_H */
