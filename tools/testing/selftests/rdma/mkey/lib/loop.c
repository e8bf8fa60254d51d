// SPDX-License-Identifier: GPL-2.0
/* A thread that does one thing again and again. */
#include <unistd.h>

#include "loop.h"
#include "mkey_test.h"

static void *mkt_loop_run(void *arg)
{
	struct mkt_loop *loop = arg;
	int err = 0;

	while (!err && !atomic_load(&loop->stop)) {
		err = loop->step(loop->arg, atomic_load(&loop->rounds));
		atomic_fetch_add(&loop->rounds, 1);
	}
	atomic_store(&loop->err, err);
	return NULL;
}

int mkt_loop_start(struct mkt_loop *loop, int (*step)(void *arg, unsigned int round), void *arg)
{
	loop->step = step;
	loop->arg = arg;
	return pthread_create(&loop->tid, NULL, mkt_loop_run, loop);
}

int mkt_loop_end(struct mkt_loop *loop)
{
	atomic_store(&loop->stop, true);
	pthread_join(loop->tid, NULL);
	return atomic_load(&loop->err);
}

int mkt_loop_wait(struct mkt_loop *loop, unsigned int rounds)
{
	while (atomic_load(&loop->rounds) < rounds && !atomic_load(&loop->err)) {
		usleep(1000);
		mkt_alive();
	}
	return mkt_loop_end(loop);
}
