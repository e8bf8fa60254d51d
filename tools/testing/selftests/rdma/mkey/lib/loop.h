/* SPDX-License-Identifier: GPL-2.0 */
/* A thread that does one thing again and again, while the test does another. */
#ifndef MKEY_TEST_LOOP_H
#define MKEY_TEST_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* all zeros before it is started */
struct mkt_loop {
	int (*step)(void *arg, unsigned int round);
	void *arg;
	pthread_t tid;
	atomic_bool stop;
	atomic_uint rounds;	/* that have ended */
	atomic_int err;		/* of the step that failed, which was the last one */
};

/* runs @step in a thread, with a number that counts from 0, until it returns an error */
int mkt_loop_start(struct mkt_loop *loop, int (*step)(void *arg, unsigned int round), void *arg);
/* ends the thread after a round; returns the error, or 0 */
int mkt_loop_end(struct mkt_loop *loop);
/* the same after @rounds rounds */
int mkt_loop_wait(struct mkt_loop *loop, unsigned int rounds);

#endif /* MKEY_TEST_LOOP_H */
