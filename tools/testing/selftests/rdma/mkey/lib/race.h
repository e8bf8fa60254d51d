/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Threads that do one thing again and again until the test ends them: the set-up
 * of the tests of races.
 */
#ifndef MKEY_TEST_RACE_H
#define MKEY_TEST_RACE_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "commands.h"
#include "mkey_harness.h"

#define THREADS 3

FIXTURE(race)
{
	struct mkt_commands c;
	struct mkt_rng rng;
};

FIXTURE_SETUP(race)
{
	MKT_OPEN_SIDE(&self->c.dev, 0);
	mkt_rng_init(&self->rng, _metadata->name);
	ASSERT_EQ(0, mkt_commands_setup(&self->c));
}

FIXTURE_TEARDOWN(race)
{
	EXPECT_EQ(0, mkt_commands_teardown(&self->c));
}

struct race_thread {
	struct race *race;
	pthread_t tid;
	struct mkt_rng rng;
	int err;
};

struct race {
	FIXTURE_DATA(race) *self;
	struct race_thread thread[THREADS];
	atomic_bool stop, failed;
	_Atomic uint32_t name;		/* of the region of the moment */
	_Atomic uint32_t gone;		/* the name of the last region, or 0 while there is one */
	atomic_uint done, refused;	/* by all of them */
};

static inline int race_start(struct race *race, void *(*loop)(void *))
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < THREADS && !err; i++) {
		struct race_thread *thread = &race->thread[i];

		thread->race = race;
		thread->rng.state = mkt_rand(&race->self->rng);
		err = pthread_create(&thread->tid, NULL, loop, thread);
	}
	return err;
}

/* true if there is another round after @i: at least @rounds, and until the race was @met */
static inline bool race_goes_on(bool met, unsigned int i, unsigned int rounds)
{
	return i < rounds || (!met && i < 1000 * rounds);
}

/* waits until a thread has done something, or has failed */
static inline void race_wait(struct race *race)
{
	unsigned int done = atomic_load(&race->done);

	while (atomic_load(&race->done) == done && !atomic_load(&race->failed))
		sched_yield();
}

/* ends the threads; returns the first error of any of them, or 0 */
static inline int race_end(struct race *race)
{
	unsigned int i;
	int err = 0;

	atomic_store(&race->stop, true);
	for (i = 0; i < THREADS; i++) {
		struct race_thread *thread = &race->thread[i];

		pthread_join(thread->tid, NULL);
		err = err ?: thread->err;
	}
	return err;
}

#endif /* MKEY_TEST_RACE_H */
