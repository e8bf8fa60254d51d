// SPDX-License-Identifier: GPL-2.0
/* The device of the other machine: in the list of devices, and its contexts. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "two.h"

#define CONTEXTS 64

static struct ibv_device two_far_device;
static struct ibv_context two_far_context = { .device = &two_far_device };
static int (*two_next_query_port)(struct ibv_context *ctx, uint8_t port,
				  struct ibv_port_attr *attr, size_t size);
static int (*two_next_query_device_ex)(struct ibv_context *ctx,
				       const struct ibv_query_device_ex_input *input,
				       struct ibv_device_attr_ex *attr, size_t size);

static struct ibv_context *two_contexts[CONTEXTS];

bool two_here(const struct ibv_context *ctx)
{
	return !ctx || ctx->device != &two_far_device;
}

/* the list that it returns is behind the library's list, which has to be freed */
struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **list, **all;
	int n = 0;

	two_enter();
	list = TWO_NEXT(ibv_get_device_list)(&n);
	two_leave();
	if (two_side() < 0 || !list) {
		if (num)
			*num = n;
		return list;
	}
	two_far_device.node_type = IBV_NODE_CA;
	two_far_device.transport_type = IBV_TRANSPORT_IB;
	snprintf(two_far_device.name, sizeof(two_far_device.name), "rxe%d", !two_side());
	all = two_alloc((n + 3) * sizeof(*all));
	all[0] = (void *)list;
	memcpy(all + 1, list, n * sizeof(*all));
	all[1 + n] = &two_far_device;
	if (num)
		*num = n + 1;
	return all + 1;
}

void ibv_free_device_list(struct ibv_device **list)
{
	two_enter();
	if (two_side() < 0) {
		TWO_NEXT(ibv_free_device_list)(list);
	} else {
		TWO_NEXT(ibv_free_device_list)((void *)list[-1]);
		two_release(list - 1);
	}
	two_leave();
}

static int two_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr,
			  size_t size)
{
	struct two_call call = two_begin(ctx, __func__);
	int ret = call.run ? two_next_query_port(ctx, port, attr, size) : 0;

	two_data(&call, attr, size);
	return two_end(&call, ret);
}

static int two_query_device_ex(struct ibv_context *ctx,
			       const struct ibv_query_device_ex_input *input,
			       struct ibv_device_attr_ex *attr, size_t size)
{
	struct two_call call = two_begin(ctx, __func__);
	int ret = call.run ? two_next_query_device_ex(ctx, input, attr, size) : 0;

	two_data(&call, attr, size);
	return two_end(&call, ret);
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	struct two_call call = two_begin(ctx, __func__);
	int ret = call.run ? TWO_NEXT(ibv_query_device)(ctx, attr) : 0;

	two_data(&call, attr, sizeof(*attr));
	return two_end(&call, ret);
}

ssize_t _ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *entries,
			     size_t max, uint32_t flags, size_t size)
{
	struct two_call call = two_begin(ctx, __func__);
	ssize_t n = call.run ? TWO_NEXT(_ibv_query_gid_table)(ctx, entries, max, flags, size) : 0;

	two_data(&call, &n, sizeof(n));
	if (n > 0)
		two_data(&call, entries, n * size);
	return two_end(&call, n);
}

static struct ibv_context **two_context_of(int fd)
{
	unsigned int i;

	for (i = 0; i < CONTEXTS; i++)
		if (two_contexts[i] && two_contexts[i]->cmd_fd == fd)
			return &two_contexts[i];
	return NULL;
}

/*
 * A test may call a method of a context itself. Of its results, only that of a command in
 * the older form (rereg) is needed on both machines.
 */
static int two_ioctl(struct ibv_context *ctx, unsigned long request, void *arg)
{
	struct two_call call = two_begin(ctx, __func__);
	struct ib_uverbs_ioctl_hdr *hdr = arg;
	int i, ret = call.run ? syscall(SYS_ioctl, ctx->cmd_fd, request, arg) : 0;
	int error = errno;

	for (i = 0; i < hdr->num_attrs; i++)
		if (hdr->object_id == UVERBS_OBJECT_DEVICE &&
		    hdr->method_id == UVERBS_METHOD_INVOKE_WRITE &&
		    hdr->attrs[i].attr_id == UVERBS_ATTR_CORE_OUT)
			two_data(&call, (void *)(uintptr_t)hdr->attrs[i].data, hdr->attrs[i].len);
	errno = error;
	return two_end(&call, ret);
}

int ioctl(int fd, unsigned long request, ...)
{
	struct ibv_context **ctx = NULL;
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (two_side() >= 0 && two_outside() && request == RDMA_VERBS_IOCTL)
		ctx = two_context_of(fd);
	return ctx ? two_ioctl(*ctx, request, arg) : syscall(SYS_ioctl, fd, request, arg);
}

static void two_hook_context(struct ibv_context *ctx)
{
	struct verbs_context *vctx = verbs_get_ctx(ctx);
	unsigned int i;

	for (i = 0; i < CONTEXTS && two_contexts[i]; i++)
		;
	if (i == CONTEXTS)
		two_fail("more than %d contexts", CONTEXTS);
	two_contexts[i] = ctx;

	if (two_here(ctx)) {
		two_next_query_port = vctx->query_port;
		two_next_query_device_ex = vctx->query_device_ex;
	}
	vctx->query_port = two_query_port;
	vctx->query_device_ex = two_query_device_ex;
	two_hook_queues(ctx);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct two_call call = two_begin(device == &two_far_device ? &two_far_context : NULL,
					 __func__);
	struct ibv_context *ctx = call.run ? TWO_NEXT(ibv_open_device)(device) : NULL;
	bool shared = call.shared;

	if (shared && !two_end(&call, !!ctx))
		return NULL;
	if (!shared) {
		two_end(&call, 0);
		return ctx;
	}
	if (!call.run) {
		struct verbs_context *vctx = two_alloc(sizeof(*vctx));

		vctx->sz = sizeof(*vctx);
		ctx = &vctx->context;
		ctx->abi_compat = __VERBS_ABI_IS_EXTENDED;
		ctx->device = device;
		ctx->cmd_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		ctx->async_fd = -1;
		ctx->num_comp_vectors = 1;
	}
	two_hook_context(ctx);
	return ctx;
}

int ibv_close_device(struct ibv_context *ctx)
{
	struct two_call call = two_begin(ctx, __func__);
	struct ibv_context **at = two_context_of(ctx->cmd_fd);
	int ret;

	if (at)
		*at = NULL;
	if (!call.run)
		close(ctx->cmd_fd);
	ret = two_end(&call, call.run ? TWO_NEXT(ibv_close_device)(ctx) : 0);
	return two_gone(&call, ret, call.run ? NULL : verbs_get_ctx(ctx));
}

/* The library replaces query_device_ex(). Its function has to be called within a call, too. */
static int two_enable(struct ibv_context *ctx)
{
	struct verbs_context *vctx = ctx ? verbs_get_ctx(ctx) : NULL;
	bool hooked = vctx && vctx->query_device_ex == two_query_device_ex;
	int ret;

	if (hooked)
		vctx->query_device_ex = two_next_query_device_ex;
	ret = TWO_NEXT(ibmkey_enable)(ctx);
	if (hooked) {
		two_next_query_device_ex = vctx->query_device_ex;
		vctx->query_device_ex = two_query_device_ex;
	}
	return ret;
}

int ibmkey_enable(struct ibv_context *ctx)
{
	struct two_call call = two_begin(ctx, __func__);
	int ret = two_end(&call, call.run ? two_enable(ctx) : 0);

	if (!ret && call.shared)
		two_hook_dm(ctx);
	return ret;
}

int ibmkey_query_caps(struct ibv_context *ctx, struct ibmkey_caps *caps)
{
	struct two_call call = two_begin(ctx, __func__);
	int ret = call.run ? TWO_NEXT(ibmkey_query_caps)(ctx, caps) : 0;

	two_data(&call, caps, sizeof(*caps));
	return two_end(&call, ret);
}
