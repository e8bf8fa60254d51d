// SPDX-License-Identifier: GPL-2.0
/* Device memory: the functions that ibmkey_enable() puts into a context. */
#include "two.h"

static struct ibv_dm *(*two_next_alloc)(struct ibv_context *ctx, struct ibv_alloc_dm_attr *attr);
static int (*two_next_free)(struct ibv_dm *dm);
static struct ibv_mr *(*two_next_reg)(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset,
				      size_t length, unsigned int access);
static int (*two_next_to)(struct ibv_dm *dm, uint64_t offset, const void *from, size_t length);
static int (*two_next_from)(void *to, struct ibv_dm *dm, uint64_t offset, size_t length);

static int two_to_dm(struct ibv_dm *dm, uint64_t offset, const void *from, size_t length)
{
	TWO_INT(dm->context, two_next_to(dm, offset, from, length));
}

static int two_from_dm(void *to, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	struct two_call call = two_begin(dm->context, __func__);
	int ret = call.run ? two_next_from(to, dm, offset, length) : 0;

	two_data(&call, &ret, sizeof(ret));
	if (!ret)
		two_data(&call, to, length);
	return two_end(&call, ret);
}

static struct ibv_dm *two_dm(struct two_call *call, struct ibv_dm *dm, struct ibv_context *ctx)
{
	bool shared = call->shared;

	dm = two_object(call, dm, sizeof(*dm));
	if (!dm || !shared)
		return dm;
	dm->context = ctx;
	if (call->run) {
		two_next_to = dm->memcpy_to_dm;
		two_next_from = dm->memcpy_from_dm;
	}
	dm->memcpy_to_dm = two_to_dm;
	dm->memcpy_from_dm = two_from_dm;
	return dm;
}

static struct ibv_dm *two_alloc_dm(struct ibv_context *ctx, struct ibv_alloc_dm_attr *attr)
{
	struct two_call call = two_begin(ctx, __func__);

	return two_dm(&call, call.run ? two_next_alloc(ctx, attr) : NULL, ctx);
}

/* The library calls the ibmkey_alloc_dm() of the object that the context's alloc_dm() is in. */
static struct ibv_dm *two_alloc_dm_of_class(struct ibv_context *ctx,
					    const struct ibv_alloc_dm_attr *attr,
					    uint64_t dm_class)
{
	struct verbs_context *vctx = verbs_get_ctx(ctx);
	struct ibv_dm *dm;

	if (vctx->alloc_dm != two_alloc_dm)
		return TWO_NEXT(ibmkey_alloc_dm)(ctx, attr, dm_class);
	vctx->alloc_dm = two_next_alloc;
	dm = TWO_NEXT(ibmkey_alloc_dm)(ctx, attr, dm_class);
	vctx->alloc_dm = two_alloc_dm;
	return dm;
}

struct ibv_dm *ibmkey_alloc_dm(struct ibv_context *ctx, const struct ibv_alloc_dm_attr *attr,
			       uint64_t dm_class)
{
	struct two_call call = two_begin(ctx, __func__);

	return two_dm(&call, call.run ? two_alloc_dm_of_class(ctx, attr, dm_class) : NULL, ctx);
}

static int two_free_dm(struct ibv_dm *dm)
{
	struct two_call call = two_begin(dm->context, __func__);
	int ret = two_end(&call, call.run ? two_next_free(dm) : 0);

	return two_gone(&call, ret, dm);
}

static struct ibv_mr *two_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset,
				    size_t length, unsigned int access)
{
	struct two_call call = two_begin(pd->context, __func__);

	return two_new_mr(&call, call.run ? two_next_reg(pd, dm, offset, length, access) : NULL,
			  pd, NULL, length);
}

void two_hook_dm(struct ibv_context *ctx)
{
	struct verbs_context *vctx = verbs_get_ctx(ctx);

	if (two_here(ctx)) {
		two_next_alloc = vctx->alloc_dm;
		two_next_free = vctx->free_dm;
		two_next_reg = vctx->reg_dm_mr;
	}
	vctx->alloc_dm = two_alloc_dm;
	vctx->free_dm = two_free_dm;
	vctx->reg_dm_mr = two_reg_dm_mr;
}
