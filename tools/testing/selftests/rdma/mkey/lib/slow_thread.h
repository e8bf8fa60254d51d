/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A thread that runs a function when it is asked to. While an access waits for a page, no thread
 * can be made: the access holds the lock of the process's address space.
 */
#ifndef MKEY_SLOW_THREAD_H
#define MKEY_SLOW_THREAD_H

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct slow_thread {
	pthread_t tid;
	pid_t kernel_tid;
	sem_t start, done;
	int (*run)(void *arg);	/* NULL: the thread ends */
	void *arg;
	atomic_bool running;
	int result;
};

static inline void *slow_thread(void *arg)
{
	struct slow_thread *thread = arg;
	void *volatile first;

	thread->kernel_tid = gettid();
	/* the C library maps memory when a thread first allocates or frees some */
	first = malloc(1);
	free(first);
	sem_post(&thread->done);
	for (;;) {
		while (sem_wait(&thread->start))
			;
		if (!thread->run)
			return NULL;
		thread->result = thread->run(thread->arg);
		atomic_store(&thread->running, false);
		sem_post(&thread->done);
	}
}

static inline int slow_thread_create(struct slow_thread *thread)
{
	sem_init(&thread->start, 0, 0);
	sem_init(&thread->done, 0, 0);
	if (pthread_create(&thread->tid, NULL, slow_thread, thread))
		return EAGAIN;
	while (sem_wait(&thread->done))
		;
	return 0;
}

static inline void slow_run(struct slow_thread *thread, int (*run)(void *arg), void *arg)
{
	thread->run = run;
	thread->arg = arg;
	atomic_store(&thread->running, true);
	sem_post(&thread->start);
}

/*
 * waits until the function sleeps in the kernel in a state that only a kill ends; false if it ends
 * first, or does not sleep so
 */
static inline bool slow_sleeps(struct slow_thread *thread)
{
	char path[64], text[256], *state;
	unsigned int i, found = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread->kernel_tid);
	/* a short sleep, such as that for a lock, is not the one that is awaited */
	for (i = 0; i < MKT_STALL_PAUSES && found < 20 && atomic_load(&thread->running); i++) {
		usleep(1000);
		fd = open(path, O_RDONLY);
		n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
		if (fd >= 0)
			close(fd);
		text[n > 0 ? n : 0] = 0;
		state = strrchr(text, ')');
		found = state && state[1] && state[2] == 'D' ? found + 1 : 0;
	}
	return found == 20;
}

/* waits for the function and returns its result */
static inline int slow_join(struct slow_thread *thread)
{
	while (sem_wait(&thread->done))
		;
	return thread->result;
}

/* ends the thread, which runs no function now */
static inline void slow_thread_end(struct slow_thread *thread)
{
	slow_run(thread, NULL, NULL);
	pthread_join(thread->tid, NULL);
	sem_destroy(&thread->start);
	sem_destroy(&thread->done);
}

/* a function for a thread */
static inline int slow_dereg(void *mr)
{
	return ibv_dereg_mr(mr);
}

#endif /* MKEY_SLOW_THREAD_H */
