/* SPDX-License-Identifier: GPL-2.0 */
/* Additions to kselftest_harness.h for the ib_mkey selftests. */
#ifndef MKEY_HARNESS_H
#define MKEY_HARNESS_H

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "kselftest_harness.h"
#include "mkey_test.h"

/*
 * No test measures time. On a busy machine an emulated debug kernel may take any
 * time, so a runner should end a program that prints nothing, see mkt_alive(). This
 * limit, in seconds, is for runners that do not.
 */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT 43200

/* opens both devices or skips the test */
#define MKT_OPEN(dev) do {						\
	unsigned int __i;						\
									\
	for (__i = 0; __i < 2; __i++)					\
		if (mkt_dev_try_open(&(dev)[__i], __i))			\
			SKIP(return, "no device %s", (dev)[__i].name);	\
} while (0)

/* the same for tests of ib_mkey's additions */
#define MKT_OPEN_EXTENDED(dev) do {					\
	unsigned int __j;						\
									\
	MKT_OPEN(dev);							\
	for (__j = 0; __j < 2; __j++)					\
		if (!(dev)[__j].extended)				\
			SKIP(return, "%s is not extended by ib_mkey",	\
			     (dev)[__j].name);				\
} while (0)

/* opens the device of one side or skips the test, also if ib_mkey does not extend the device */
#define MKT_OPEN_SIDE(dev, side) do {					\
	if (mkt_dev_try_open(dev, side))				\
		SKIP(return, "no device %s", (dev)->name);		\
	if (!(dev)->extended)						\
		SKIP(return, "%s is not extended by ib_mkey",		\
		     (dev)->name);					\
} while (0)

/* skips the test if the device has no memory on demand */
#define MKT_ON_DEMAND(dev) do {						\
	if (!mkt_dev_on_demand(dev))					\
		SKIP(return, "%s has no memory on demand", (dev)->name);	\
} while (0)

/* makes two sides of both devices; the other arguments are fields of struct mkt_wants */
#define MKT_MAKE(setup, ...) do {					\
	struct mkt_wants __wants = { __VA_ARGS__ };			\
									\
	ASSERT_EQ(0, mkt_setup(setup, &__wants, _metadata->name));	\
} while (0)

/* opens both devices for a test of ib_mkey's additions, and makes two sides of them */
#define MKT_SETUP(setup, ...) do {					\
	MKT_OPEN_EXTENDED((setup)->dev);				\
	MKT_MAKE(setup, __VA_ARGS__);					\
} while (0)

/* a fixture that is two sides and nothing else */
#define MKT_FIXTURE(name, ...)						\
FIXTURE(name)								\
{									\
	struct mkt_setup s;						\
};									\
									\
FIXTURE_SETUP(name)							\
{									\
	MKT_SETUP(&self->s, __VA_ARGS__);				\
}									\
									\
FIXTURE_TEARDOWN(name)							\
{									\
	EXPECT_EQ(0, mkt_teardown(&self->s));				\
}

/* holds the links of both devices in @netem, or skips the test */
#define MKT_NETEM(netem, dev) do {					\
	unsigned int __k;						\
									\
	if (geteuid())							\
		SKIP(return, "not root");				\
	for (__k = 0; __k < 2; __k++)					\
		if (!mkt_netem_open(&(netem)[__k], &(dev)[__k]))	\
			SKIP(return, "%s is not in a separate namespace",	\
			     (dev)[__k].name);				\
} while (0)

/* a call that returns an object is refused */
#define EXPECT_ERRNO(err, call) do {					\
	EXPECT_EQ(NULL, call);						\
	EXPECT_EQ(err, errno);						\
} while (0)

/*
 * Evaluates @result in a new process, which ends with it. Returns the low 8 bits of it, the
 * negative number of a signal that killed the process, or -1000 if there is no process.
 */
#define MKT_IN_CHILD(result) ({						\
	int __status = -1, __ended;					\
	pid_t __pid;							\
									\
	fflush(stdout);							\
	__pid = fork();							\
	if (!__pid)							\
		_exit(result);						\
	__ended = __pid > 0 && waitpid(__pid, &__status, 0) == __pid;	\
	!__ended ? -1000 : WIFSIGNALED(__status) ? -WTERMSIG(__status) :	\
						    WEXITSTATUS(__status);	\
})

#endif /* MKEY_HARNESS_H */
