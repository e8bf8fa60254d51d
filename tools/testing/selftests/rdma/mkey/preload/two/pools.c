// SPDX-License-Identifier: GPL-2.0
/* Pools of keys. The same key of a pool always has the same stand-in. */
#include "two.h"

#define KEYS 64

/* stands for a pool on both machines */
struct two_pool {
	struct ibmkey_pool *pool;	/* the library's, where the device is */
	struct ibv_pd *pd;
	struct ibv_mr *keys[KEYS];	/* stand-ins, elsewhere */
};

static struct two_pool *two_of(struct ibmkey_pool *pool)
{
	return (struct two_pool *)pool;
}

static struct ibmkey_pool *two_real(struct ibmkey_pool *pool)
{
	return two_side() < 0 || !pool ? pool : two_of(pool)->pool;
}

struct ibmkey_pool *ibmkey_pool_create(struct ibv_pd *pd, uint32_t max_entries,
				       uint32_t max_keys)
{
	struct ibmkey_pool *pool;
	struct two_pool *own;
	struct two_call call;
	bool shared;

	if (!pd)
		return TWO_NEXT(ibmkey_pool_create)(pd, max_entries, max_keys);
	call = two_begin(pd->context, __func__);
	pool = call.run ? TWO_NEXT(ibmkey_pool_create)(pd, max_entries, max_keys) : NULL;
	shared = call.shared;
	if (!two_end(&call, !!pool) || !shared)
		return pool;
	own = two_alloc(sizeof(*own));
	own->pool = pool;
	own->pd = pd;
	return (struct ibmkey_pool *)own;
}

/* the stand-in of the key whose numbers @far has */
static struct ibv_mr *two_pool_key(struct two_pool *own, const struct ibv_mr *far)
{
	unsigned int i;

	for (i = 0; i < KEYS && own->keys[i]; i++)
		if (own->keys[i]->handle == far->handle)
			break;
	if (i == KEYS)
		two_fail("more than %d keys of a pool", KEYS);
	if (!own->keys[i])
		own->keys[i] = two_alloc(sizeof(*own->keys[i]));
	*own->keys[i] = *far;
	own->keys[i]->context = own->pd->context;
	own->keys[i]->pd = own->pd;
	return own->keys[i];
}

struct ibv_mr *ibmkey_pool_get(struct ibmkey_pool *pool)
{
	struct ibv_mr *mr, far = {};
	struct two_call call;

	if (two_side() < 0 || !pool)
		return TWO_NEXT(ibmkey_pool_get)(two_real(pool));
	call = two_begin(two_of(pool)->pd->context, __func__);
	mr = call.run ? TWO_NEXT(ibmkey_pool_get)(two_of(pool)->pool) : NULL;
	two_mr(&call, call.run ? mr : &far);
	if (!two_end(&call, !!mr))
		return NULL;
	return call.run ? mr : two_pool_key(two_of(pool), &far);
}

int ibmkey_pool_put(struct ibmkey_pool *pool, struct ibv_mr *mkey)
{
	struct two_call call;
	int ret;

	if (two_side() < 0 || !pool || !mkey)
		return TWO_NEXT(ibmkey_pool_put)(two_real(pool), mkey);
	call = two_begin(two_of(pool)->pd->context, __func__);
	ret = call.run ? TWO_NEXT(ibmkey_pool_put)(two_of(pool)->pool, mkey) : 0;
	two_mr(&call, mkey);
	return two_end(&call, ret);
}

int ibmkey_pool_destroy(struct ibmkey_pool *pool)
{
	struct two_call call;
	unsigned int i;
	int ret;

	if (two_side() < 0 || !pool)
		return TWO_NEXT(ibmkey_pool_destroy)(two_real(pool));
	call = two_begin(two_of(pool)->pd->context, __func__);
	ret = two_end(&call, call.run ? TWO_NEXT(ibmkey_pool_destroy)(two_of(pool)->pool) : 0);
	if (ret)
		return ret;
	for (i = 0; i < KEYS && two_of(pool)->keys[i]; i++)
		two_release(two_of(pool)->keys[i]);
	two_release(pool);
	return 0;
}
