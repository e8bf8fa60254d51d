/* SPDX-License-Identifier: GPL-2.0 */
/* Two processes, one of which has accesses that wait for a page: what the tests of them share. */
#ifndef MKEY_WAITS_H
#define MKEY_WAITS_H

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "slow.h"

#define PAGE 4096
/* rxe waits for 50 */
#define PATIENCE_SECONDS 40
#define KILL_SECONDS 10

struct waits_shared {
	atomic_bool begun;	/* the access waits, seen by the child */
	atomic_bool go;
	atomic_bool done;
	atomic_bool completed;
	atomic_int result;
	atomic_int status;	/* of the access, once it has completed */
};

/* what a parent and a child share, or MAP_FAILED */
static inline struct waits_shared *waits_share(void)
{
	return mmap(NULL, sizeof(struct waits_shared), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* waits until @flag is set, for a number of seconds */
static inline bool waits_for(const atomic_bool *flag, unsigned int seconds)
{
	double end = mkt_seconds() + seconds;

	while (!atomic_load(flag) && mkt_seconds() < end) {
		usleep(10000);
		mkt_alive();
	}
	return atomic_load(flag);
}

/* kills the process; true if it is gone soon */
static inline bool waits_kill(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	return mkt_ended(pid, KILL_SECONDS, &status) && WIFSIGNALED(status) &&
	       WTERMSIG(status) == SIGKILL;
}

#endif /* MKEY_WAITS_H */
