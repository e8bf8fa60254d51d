// SPDX-License-Identifier: GPL-2.0
/* The connection between the two machines of a test, and the calls that they make. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "two.h"

#define TWO_PORT 18601
/* Not how long a call takes: how late the other machine may be, if both are slow. */
#define TWO_TRIES 12000		/* tenths of a second */
#define TWO_PATIENCE 1200	/* seconds */

struct two_hello {
	uint32_t test;		/* its number in the program */
	uint32_t side;
};

#define TWO_SENTENCE 512

struct two_word {
	uint32_t number;	/* of the call in the test */
	int32_t error;		/* errno */
	int64_t result;
	char name[32];
	char said[TWO_SENTENCE];	/* ibmkey_last_error() after the call */
};

static int two_listener = -1;
static int two_sock = -1;
static uint32_t *two_tests;		/* of all processes: one runs at a time */
static uint32_t two_calls;
static char two_said[TWO_SENTENCE];
static bool two_said_there;		/* the other machine ran the last call */
static __thread unsigned int two_depth;
static __thread bool two_first_thread, two_thread_known;

int two_side(void)
{
	static int side = -2;

	if (side == -2) {
		const char *node = getenv("MKEY_TEST_NODE");

		side = node && (*node == '1' || *node == '2') ? *node - '1' : -1;
	}
	return side;
}

bool two_outside(void)
{
	if (!two_thread_known) {
		two_first_thread = syscall(SYS_gettid) == getpid();
		two_thread_known = true;
	}
	return !two_depth && two_first_thread;
}

void two_enter(void)
{
	two_depth++;
}

void two_leave(void)
{
	two_depth--;
}

void two_fail(const char *format, ...)
{
	char line[256];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	dprintf(STDOUT_FILENO, "# machine %d: %.*s\n", two_side() + 1, n, line);
	_exit(1);
}

void two_send(const void *data, size_t length)
{
	while (length) {
		ssize_t n = send(two_sock, data, length, MSG_NOSIGNAL);

		if (n < 0)
			two_fail("the other machine has ended this test: %s", strerror(errno));
		data += n;
		length -= n;
	}
}

void two_recv(void *data, size_t length)
{
	ssize_t n = length ? recv(two_sock, data, length, MSG_WAITALL) : 0;

	if (n != (ssize_t)length)
		two_fail(n < 0 && errno == EAGAIN ? "the other machine does not come to this call" :
			 "the other machine has ended this test");
}

static void two_patience(int seconds)
{
	struct timeval limit = { .tv_sec = seconds };

	setsockopt(two_sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

/* Machine 2 listens as long as the program runs; each test is a process. */
__attribute__((constructor)) static void two_listen(void)
{
	static const int yes = 1;
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(TWO_PORT) };

	if (two_side() < 0)
		return;
	/* The commands that a test runs are no tests. */
	unsetenv("LD_PRELOAD");
	two_depth++;
	two_tests = mmap(NULL, sizeof(*two_tests), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	two_depth--;
	if (two_tests == MAP_FAILED)
		two_fail("no memory");
	if (two_side() == 0)
		return;
	two_listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(two_listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(two_listener, (struct sockaddr *)&any, sizeof(any)) ||
	    listen(two_listener, SOMAXCONN))
		two_fail("port %d: %s", TWO_PORT, strerror(errno));
}

/* A test may have a thread on one machine only. Its memory is not that of the test. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	int ret;

	two_enter();
	ret = TWO_NEXT(pthread_create)(thread, attr, run, arg);
	two_leave();
	return ret;
}

/* takes a connection if it is of the same test; a process that ended may have left one */
static bool two_greet(int sock)
{
	struct two_hello mine = { *two_tests, two_side() }, theirs;

	return send(sock, &mine, sizeof(mine), MSG_NOSIGNAL) == sizeof(mine) &&
	       recv(sock, &theirs, sizeof(theirs), MSG_WAITALL) == sizeof(theirs) &&
	       theirs.test == mine.test && theirs.side != mine.side;
}

static int two_try(void)
{
	const char *peer = getenv("MKEY_TEST_PEER") ?: "";
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(TWO_PORT) };
	int sock;

	if (two_side() == 1)
		return accept(two_listener, NULL, NULL);
	inet_aton(peer, &to.sin_addr);
	sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (sock >= 0 && connect(sock, (struct sockaddr *)&to, sizeof(to))) {
		close(sock);
		sock = -1;
	}
	return sock;
}

static void two_meet(void)
{
	static const int yes = 1;
	unsigned int i;

	++*two_tests;
	/* The harness gives a test its own process group. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (i = 0; i < TWO_TRIES; i++) {
		int sock = two_try();

		if (sock >= 0 && two_greet(sock)) {
			setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
			two_sock = sock;
			if (two_listener >= 0)
				close(two_listener);
			return;
		}
		if (sock >= 0)
			close(sock);
		usleep(100000);
	}
	two_fail("the other machine does not come to test %u", *two_tests);
}

struct two_call two_begin(struct ibv_context *ctx, const char *name)
{
	bool here = two_here(ctx);
	struct two_call call = {
		.side = here ? two_side() : !two_side(),
		.run = here,
		.shared = two_side() >= 0 && two_outside(),
	};
	struct two_word word = {};

	two_depth++;
	if (!call.shared)
		return call;
	if (two_sock < 0)
		two_meet();
	word.number = ++two_calls;
	strncpy(word.name, name, sizeof(word.name) - 1);
	if (!here) {
		two_send(&word, sizeof(word));
	} else {
		struct two_word theirs;

		/* If the other machine went another way, it may wait for this one. */
		two_patience(TWO_PATIENCE);
		two_recv(&theirs, sizeof(theirs));
		two_patience(0);
		if (theirs.number != word.number || strcmp(theirs.name, word.name))
			two_fail("call %u is %s here, call %u is %.32s there", word.number,
				 word.name, theirs.number, theirs.name);
	}
	errno = 0;
	return call;
}

int64_t two_end(struct two_call *call, int64_t result)
{
	struct two_word word = { .result = result, .error = errno };

	if (call->shared) {
		if (call->run && TWO_NEXT(ibmkey_last_error))
			strncpy(word.said, TWO_NEXT(ibmkey_last_error)(), sizeof(word.said) - 1);
		two_data(call, &word, sizeof(word));
		memcpy(two_said, word.said, sizeof(two_said));
		two_said_there = !call->run;
	}
	two_depth--;
	errno = word.error;
	return word.result;
}

/* The sentence is that of the machine that ran the call. */
const char *ibmkey_last_error(void)
{
	return two_said_there && two_outside() ? two_said : TWO_NEXT(ibmkey_last_error)();
}

void two_data(const struct two_call *call, void *data, size_t length)
{
	if (!call->shared)
		return;
	if (call->run)
		two_send(data, length);
	else
		two_recv(data, length);
}

void *two_object(struct two_call *call, void *object, size_t size)
{
	if (!call->shared) {
		two_end(call, 0);
		return object;
	}
	if (!two_end(call, !!object))
		return NULL;
	return call->run ? object : two_alloc(size);
}

int two_gone(const struct two_call *call, int ret, void *object)
{
	if (!ret && !call->run)
		two_release(object);
	return ret;
}

void two_share(struct ibv_context *ctx, void *data, size_t length)
{
	struct two_call call = two_begin(ctx, __func__);

	two_data(&call, data, length);
	two_end(&call, 0);
}

void two_watch(struct ibv_context *ctx, void *addr, size_t length)
{
	two_memory(two_here(ctx) ? two_side() : !two_side(), addr, length);
}
