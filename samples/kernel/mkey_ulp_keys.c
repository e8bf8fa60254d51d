// SPDX-License-Identifier: GPL-2.0
/*
 * Uses several keys: one call binds all of them, and a pool has keys that are used many
 * times.
 */

#include <rdma/ib_mkey.h>

#include "mkey_ulp.h"
#include "mkey_ulp_expect.h"

#define KEYS 3
#define ACCESS (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ)

/* One call binds all of the keys or none. */
static int together(struct ib_mr *keys[KEYS], struct ib_mr *mr)
{
	static const u64 repeat_count = 3;
	struct ib_mkey_block block = { .addr = 8, .bytes_count = 4, .lkey = mr->lkey,
				       .stride = { 16 } };
	struct ib_mkey_interleaved layout = {
		.num_dims = 1, .num_blocks = 1,
		.repeat_count = &repeat_count, .blocks = &block,
	};
	static const u32 places[] = { 9, 4 };
	struct ib_mkey_indexed indexed = {
		.addr = 300, .unit = 10, .bytes_count = 7, .lkey = mr->lkey,
		.indices32 = places, .num_indices = ARRAY_SIZE(places),
	};
	struct ib_sge range[2] = {
		{ .addr = 100, .length = 20, .lkey = mr->lkey },
		{ .addr = 200, .length = 30, .lkey = mr->lkey },
	};
	struct ib_mkey_bind binds[KEYS] = {
		{ .mkey = keys[0], .access = ACCESS, .sg_list = range, .num_sge = 2 },
		{ .mkey = keys[1], .access = ACCESS, .interleaved = &layout },
		{ .mkey = keys[2], .access = ACCESS, .sg_list = range, .num_sge = 1 },
	};
	u32 failed = 4711;
	int i;

	expect(!ib_bind_mkeys(binds, KEYS, &failed));
	expect(failed == 4711);
	expect(keys[0]->length == 50 && keys[1]->length == 12 && keys[2]->length == 20);

	/* The description of the last key has too many entries, so no key is bound. */
	range[0].length = 10;
	binds[2].num_sge = 3;
	expect(ib_bind_mkeys(binds, KEYS, &failed) == -ENOSPC);
	expect(failed == 2);
	expect(keys[0]->length == 50 && keys[1]->length == 12 && keys[2]->length == 20);
	/* One key is in the list twice. */
	binds[2].num_sge = 1;
	binds[2].mkey = keys[0];
	failed = 4711;
	expect(ib_bind_mkeys(binds, KEYS, &failed) == -EINVAL);
	expect(failed == 2);
	expect(keys[0]->length == 50 && keys[2]->length == 20);
	expect(ib_bind_mkeys(binds, 0, NULL) == -EINVAL);
	expect(ib_bind_mkeys(binds, IB_MKEY_MAX_BINDS + 1, &failed) == -EINVAL);
	expect(failed == IB_MKEY_MAX_BINDS + 1);

	binds[2].mkey = keys[2];
	binds[1].interleaved = NULL;
	binds[1].indexed = &indexed;
	/* The addresses of a key can begin elsewhere than at 0. */
	binds[1].base_addr = 1ull << 40;
	expect(!ib_bind_mkeys(binds, KEYS, NULL));
	expect(keys[0]->length == 40 && keys[1]->length == 14 && keys[2]->length == 10);
	expect(!keys[0]->iova && keys[1]->iova == binds[1].base_addr);
	binds[1].base_addr = U64_MAX;
	expect(ib_bind_mkeys(binds, KEYS, NULL) == -EOVERFLOW);
	expect(keys[1]->iova == 1ull << 40);
	for (i = 0; i < KEYS; i++) {
		expect(!ib_unbind_mkey(keys[i]));
		expect(!keys[i]->iova);
	}

	return 0;
}

/* A key in its pool no longer refers to the MR that it was bound to. */
static int recycled(struct ib_mkey_pool *pool, struct ib_mr *mr, struct ib_mr *stranger,
		    struct ib_mr *foreign)
{
	struct ib_sge range = { .addr = 0, .length = 64, .lkey = mr->lkey };
	struct ib_sge inner = { .addr = 0, .length = 8 };
	struct ib_mr *keys[KEYS], *again;
	int i;

	for (i = 0; i < KEYS; i++) {
		keys[i] = ib_mkey_pool_get(pool);
		expect(keys[i] && !keys[i]->length);
		expect(!i || keys[i] != keys[i - 1]);
	}
	expect(!ib_mkey_pool_get(pool));
	expect(together(keys, mr) == 0);

	expect(!ib_bind_mkey_list(keys[0], &range, 1, ACCESS));
	inner.lkey = keys[0]->lkey;
	expect(!ib_bind_mkey_list(keys[1], &inner, 1, ACCESS));
	/* The second key refers to the first one. */
	expect(ib_mkey_pool_put(pool, keys[0]) == -EBUSY);
	expect(keys[0]->length == 64);
	expect(ib_mkey_pool_destroy(pool) == -EBUSY);
	expect(!ib_mkey_pool_put(pool, keys[1]));
	expect(!ib_mkey_pool_put(pool, keys[0]));
	expect(!keys[0]->length && !keys[1]->length);
	expect(ib_mkey_pool_put(pool, mr) == -EINVAL);
	/* A key can be returned once only, even while another key is in use. */
	expect(ib_mkey_pool_put(pool, keys[0]) == -EINVAL);

	again = ib_mkey_pool_get(pool);
	expect((again == keys[0] || again == keys[1]) && !again->length);
	/*
	 * A key of the pool is in use, but the pool takes no key of another
	 * protection domain instead.
	 */
	expect(ib_mkey_pool_put(pool, foreign) == -EINVAL);
	expect(!ib_mkey_pool_put(pool, again));
	expect(!ib_mkey_pool_put(pool, keys[2]));
	/* All keys of the pool are back. It refuses another key, which stays bound. */
	expect(!ib_bind_mkey_list(stranger, &range, 1, ACCESS));
	expect(ib_mkey_pool_put(pool, stranger) == -EINVAL);
	expect(stranger->length == 64);
	expect(!ib_unbind_mkey(stranger));

	return 0;
}

/**
 * ulp_keys() - several keys in one call, and keys of a pool
 * @pd: protection domain
 * @dm: device memory of its device, 4096 bytes
 *
 * Return: 0, or -EIO if a result was wrong.
 */
int ulp_keys(struct ib_pd *pd, struct ib_dm *dm)
{
	struct ib_mkey_pool *pool;
	struct ib_mr *mr, *stranger, *foreign;
	struct ib_pd *other;
	int ret;

	expect(PTR_ERR(ib_mkey_pool_create(pd, 2, 0)) == -EINVAL);
	expect(PTR_ERR(ib_mkey_pool_create(pd, 0, 2)) == -EINVAL);
	mr = ib_reg_dm_mr(pd, dm, 0, 4096, IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	stranger = ib_alloc_mkey(pd, 2);
	if (IS_ERR(stranger)) {
		ret = PTR_ERR(stranger);
		goto dereg;
	}
	other = ib_alloc_pd(pd->device, 0);
	if (IS_ERR(other)) {
		ret = PTR_ERR(other);
		goto dereg_stranger;
	}
	foreign = ib_alloc_mkey(other, 2);
	if (IS_ERR(foreign)) {
		ret = PTR_ERR(foreign);
		goto dealloc;
	}
	pool = ib_mkey_pool_create(pd, 2, KEYS);
	if (IS_ERR(pool)) {
		ret = PTR_ERR(pool);
		goto dereg_foreign;
	}
	ret = recycled(pool, mr, stranger, foreign);
	if (ib_mkey_pool_destroy(pool))
		ret = ret ?: -EBUSY;
dereg_foreign:
	ib_dereg_mr(foreign);
dealloc:
	ib_dealloc_pd(other);
dereg_stranger:
	ib_dereg_mr(stranger);
dereg:
	/* No key of the pool refers to the MR any more. */
	if (ib_dereg_mr(mr))
		ret = ret ?: -EBUSY;
	return ret;
}
