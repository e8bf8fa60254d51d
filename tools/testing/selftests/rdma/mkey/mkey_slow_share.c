// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Requests that invalidate keys while accesses by them wait for a page.
 * A worker of the driver waits for each, and a user may occupy a part of these workers. Here one
 * process occupies all of its user's part. A process of another user still gets a worker, and
 * another process of the same user does not.
 * needs: on-demand
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "slow_test.h"

#define COUNTERS "/sys/kernel/debug/ib_mkey/counters"

/* more keys than one user has workers for: a fifth of 256 */
#define MANY 56
/* a little less than the time for which a worker waits, in ms */
#define WAIT 1900

/* another user */
#define OTHER 64001

/* exit statuses of the other process */
#define OCCUPIED 0	/* all of its workers waited at the same time */
#define TOO_SLOW 1
#define BROKEN 2

/* a key over a page on demand, and the queue pair that accesses and invalidates it */
struct held {
	struct mkt_pair *pair;
	struct ibv_mr *key;
};

/* the steps of the two processes, each of which waits for steps of the other one */
enum { BEGUN, MADE, READS, INVALIDATIONS, OCCUPIES, ENDS };

struct other {
	atomic_int step;
	pid_t pid;
};

FIXTURE(slow_share)
{
	struct slow_test t;
	struct held held;
	struct other *other;	/* shared with it */
};

/*
 * The number of accesses since ib_mkey was loaded. An access that waits for a page holds the lock
 * of the process's address space, so this maps no memory.
 */
static long accesses(void)
{
	char text[1024] = "", *found;
	int fd = open(COUNTERS, O_RDONLY);
	ssize_t got;

	if (fd < 0)
		return -1;
	got = read(fd, text, sizeof(text) - 1);
	close(fd);
	found = got > 0 ? strstr(text, "\naccesses ") : NULL;
	return found ? atol(found + strlen("\naccesses ")) : -1;
}

/* waits until there are @more accesses than @before */
static int accesses_wait(long before, long more)
{
	return mkt_until(accesses() >= before + more) ? 0 : ETIMEDOUT;
}

/* makes a key over page @page of side 1 */
static int held_make(struct held *held, struct slow_test *t, struct mkt_pair *pair,
		     unsigned int page)
{
	held->pair = pair;
	held->key = ibmkey_alloc(t->s.dev[1].pd, 1);
	return held->key ? mkt_bind_range(held->key, MKT_ACCESS_ALL, t->mr[1], slow_page(t, page),
					  LENGTH) : errno;
}

/* starts a READ by the key; it waits for the page */
static int held_read(struct held *held, struct mkt_setup *s)
{
	struct mkt_wr wr = slow_wr(s, MKT_READ, 0, held->key->rkey);

	return mkt_post_send(&held->pair->end[0], &wr, 1);
}

static int held_invalidate(struct held *held)
{
	struct mkt_wr inv = { .op = MKT_LOCAL_INV, .rkey = held->key->rkey };

	return mkt_post_send(&held->pair->end[1], &inv, 1);
}

static long now_ms(void)
{
	return 1000 * mkt_seconds();
}

FIXTURE_SETUP(slow_share)
{
	if (accesses() < 0)
		SKIP(return, "%s cannot be read", COUNTERS);
	self->other = mmap(NULL, sizeof(*self->other), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->other);
	SLOW_SETUP(&self->t);
	ASSERT_EQ(0, held_make(&self->held, &self->t, &self->t.s.pair, 20));
}

FIXTURE_TEARDOWN(slow_share)
{
	if (self->held.key)
		EXPECT_EQ(0, ibv_dereg_mr(self->held.key));
	EXPECT_EQ(0, slow_test_free(&self->t));
}

static bool step_wait(struct other *other, int step)
{
	return mkt_until(atomic_load(&other->step) >= step);
}

/* invalidates the keys, and waits until a worker of this process is refused */
static int other_invalidate(struct held *held)
{
	unsigned int i;
	struct ibv_wc wc;
	long start = now_ms();

	for (i = 0; i < MANY; i++)
		if (held_invalidate(&held[i]))
			return BROKEN;
	for (i = 0; !ibv_poll_cq(held[i].pair->end[1].cq, 1, &wc); i = (i + 1) % MANY)
		usleep(100);
	/* a request whose worker waits ends later */
	return now_ms() - start < WAIT ? OCCUPIED : TOO_SLOW;
}

/* does not return */
static void other_run(const struct mkt_slow *slow, uid_t uid, struct other *other)
{
	static struct slow_test t;
	static struct mkt_pair pair[MANY];
	static struct held held[MANY];
	int i, result;

	t.slow = *slow;
	if (setresuid(uid, uid, uid))
		_exit(BROKEN);
	for (i = 0; i < 2; i++)
		if (mkt_dev_try_open(&t.s.dev[i], i))
			_exit(BROKEN);
	if (slow_test_make(&t, "other"))
		_exit(BROKEN);
	for (i = 0; i < MANY; i++)
		if (mkt_pair_create(&pair[i], &t.s.dev[0], &t.s.dev[1], IBV_MTU_1024,
				    MKT_QP_PATIENT) ||
		    held_make(&held[i], &t, &pair[i], 40))
			_exit(BROKEN);
	/* no page is held back yet */
	atomic_store(&other->step, MADE);
	if (!step_wait(other, READS))
		_exit(BROKEN);
	for (i = 0; i < MANY; i++)
		if (held_read(&held[i], &t.s))
			_exit(BROKEN);
	if (!step_wait(other, INVALIDATIONS))
		_exit(BROKEN);
	result = other_invalidate(held);
	atomic_store(&other->step, OCCUPIES);
	_exit(step_wait(other, ENDS) ? result : BROKEN);
}

static int other_begin(struct other *other, const struct mkt_slow *slow, uid_t uid)
{
	pid_t pid;

	atomic_store(&other->step, BEGUN);
	pid = fork();
	if (!pid)
		other_run(slow, uid, other);
	/* by the parent alone, because the memory is shared */
	other->pid = pid;
	return pid > 0 && step_wait(other, MADE) ? 0 : EIO;
}

struct times {
	long waited;	/* for how long the invalidation waited, in ms */
	long late;	/* how long it began after those of the other process */
};

/*
 * Lets the other process occupy its workers, and invalidates a key in this process. Returns a
 * message, or NULL.
 */
static const char *slow_invalidate(FIXTURE_DATA(slow_share) *self, struct times *times)
{
	struct other *other = self->other;
	long before = accesses(), begin, start;
	struct ibv_wc wc;

	mkt_slow_hold(&self->t.slow, true);
	atomic_store(&other->step, READS);
	if (held_read(&self->held, &self->t.s))
		return "a READ";
	if (accesses_wait(before, MANY + 1))
		return "the READs: they do not wait for a page";
	begin = now_ms();
	/* after this, all workers of the other process wait */
	atomic_store(&other->step, INVALIDATIONS);
	if (!step_wait(other, OCCUPIES))
		return "the other process";
	start = now_ms();
	if (held_invalidate(&self->held) || mkt_poll(&self->held.pair->end[1], &wc))
		return "the invalidation";
	times->waited = now_ms() - start;
	times->late = start - begin;
	return wc.status == IBV_WC_SUCCESS ? "the invalidation: it ended before the access" : NULL;
}

/* lets the pages arrive, and returns the exit status of the other process */
static int slow_end(struct __test_metadata *_metadata, struct slow_test *t, struct other *other)
{
	struct ibv_wc wc;
	int status = -1;

	mkt_slow_hold(&t->slow, false);
	atomic_store(&other->step, ENDS);
	EXPECT_EQ(other->pid, waitpid(other->pid, &status, 0));
	EXPECT_EQ(0, mkt_poll(&t->s.pair.end[0], &wc));
	EXPECT_EQ(0, mkt_pair_recover(&t->s.pair));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int slow_occupy(struct __test_metadata *_metadata, FIXTURE_DATA(slow_share) *self,
		       uid_t uid, struct times *times)
{
	const char *wrong;
	int status;

	EXPECT_EQ(0, other_begin(self->other, &self->t.slow, uid));
	wrong = slow_invalidate(self, times);
	status = slow_end(_metadata, &self->t, self->other);
	slow_expect(_metadata, wrong);
	return status;
}

TEST_F(slow_share, each_user_has_a_share)
{
	struct times times = {};
	int status;

	if (geteuid())
		SKIP(return, "not root");
	status = slow_occupy(_metadata, self, OTHER, &times);
	if (status == TOO_SLOW)
		SKIP(return, "the workers of the other process did not all wait at once");
	EXPECT_EQ(OCCUPIED, status);
	/* on a slow machine it ends later, but not earlier */
	EXPECT_LE(WAIT, times.waited);
}

TEST_F(slow_share, processes_of_a_user_share)
{
	struct times times = {};
	int status = slow_occupy(_metadata, self, geteuid(), &times);

	if (status == TOO_SLOW || times.late + 200 > WAIT)
		SKIP(return, "the workers of the other process did not all wait at once");
	EXPECT_EQ(OCCUPIED, status);
	/* all workers of this user wait, so this request does not */
	EXPECT_GT(WAIT, times.waited);
}

TEST_HARNESS_MAIN
