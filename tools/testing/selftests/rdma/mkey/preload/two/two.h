/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two machines: preloaded into a selftest, which runs on both machines with the same seed.
 * Side 0 of the test is the device of machine 1, side 1 that of machine 2. Both machines
 * take the same way through the test. The machine that has the device of a call runs it and
 * tells the other one the result, which waits. So nothing of a test needs to know where a
 * side is.
 *
 * Each call waits until both machines have come to it. What is before a call in the test
 * has therefore happened on both machines. After each completion, the machines tell each
 * other which bytes of registered memory have changed (memory.c), so that a test sees the
 * bytes of both sides.
 *
 * Calls from other threads than the first one, and calls that a library makes itself, run
 * without the other machine; threads see the own device only.
 *
 * MKEY_TEST_NODE is 1 or 2, MKEY_TEST_PEER the address of the other machine.
 */
#ifndef TWO_H
#define TWO_H

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <infiniband/mkey.h>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* the library's function of that name */
#define TWO_NEXT(name) ({						\
	static __typeof__(&(name)) two_next;				\
									\
	if (!two_next)							\
		two_next = (__typeof__(&(name)))dlsym(RTLD_NEXT, #name); \
	two_next;							\
})

/* link.c: the connection of one test */

struct two_call {
	unsigned int side;
	bool run;		/* this machine has the device */
	bool shared;		/* the other machine waits for the result */
};

/* this machine's side, -1: this process is not a test on two machines */
int two_side(void);
/* false in other threads, and within calls */
bool two_outside(void);
/* writes a line and ends the test */
void two_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* what is between them is within a call */
void two_enter(void);
void two_leave(void);
struct two_call two_begin(struct ibv_context *ctx, const char *name);
/* ends a call: gives the other machine its result and errno */
int64_t two_end(struct two_call *call, int64_t result);
/* gives the other machine what the call wrote to @data; between two_begin() and return */
void two_data(const struct two_call *call, void *data, size_t length);
void two_send(const void *data, size_t length);
void two_recv(void *data, size_t length);

/* a call that returns an int: runs @call on the machine of @ctx, and returns */
#define TWO_INT(ctx, call) do {						\
	struct two_call two_call = two_begin(ctx, __func__);		\
	int two_ret = two_call.run ? (call) : 0;			\
									\
	return two_end(&two_call, two_ret);				\
} while (0)

/* an object of @type that @call returns, or its stand-in; NULL and errno */
#define TWO_NEW(c, type, call) \
	((type *)two_object(c, (c)->run ? (void *)(call) : NULL, sizeof(type)))
void *two_object(struct two_call *call, void *object, size_t size);
/* destroys a stand-in after a successful call */
int two_gone(const struct two_call *call, int ret, void *object);

/* for mkt_share() and mkt_watch() of the tests' library */
void two_share(struct ibv_context *ctx, void *data, size_t length);
void two_watch(struct ibv_context *ctx, void *addr, size_t length);

/* the C library's heap */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *memory);

/* memory.c */
void *two_alloc(size_t size);
void two_release(void *memory);
/* memory that a device may change */
void two_memory(unsigned int side, void *addr, size_t length);
void two_memory_gone(unsigned int side, void *addr, size_t length);
/* both machines see what has changed */
void two_mirror(void);

/* device.c: true unless @ctx is a stand-in */
bool two_here(const struct ibv_context *ctx);

/* dm.c, queue.c: the functions behind pointers of a context */
void two_hook_dm(struct ibv_context *ctx);
void two_hook_queues(struct ibv_context *ctx);

/* verbs.c */
/* gives the other machine the numbers of an MR after a call that may change them */
void two_mr(const struct two_call *call, struct ibv_mr *mr);
struct ibv_mr *two_new_mr(struct two_call *call, struct ibv_mr *mr, struct ibv_pd *pd,
			  void *addr, size_t length);

#endif /* TWO_H */
