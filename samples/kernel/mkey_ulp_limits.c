// SPDX-License-Identifier: GPL-2.0
/*
 * Reaches each limit that ib_query_mkey_caps() returns. One more than a limit is
 * refused.
 */

#include <linux/sizes.h>
#include <linux/slab.h>
#include <rdma/ib_mkey.h>

#include "mkey_ulp.h"
#include "mkey_ulp_expect.h"

static int entries(struct ib_mr *mkey, u32 lkey, u64 addr, u32 max)
{
	struct ib_sge *list = kvcalloc(max + 1, sizeof(*list), GFP_KERNEL);
	int fits, too_many;
	u32 i;

	if (!list)
		return -ENOMEM;
	for (i = 0; i <= max; i++) {
		list[i].addr = addr;
		list[i].length = 1;
		list[i].lkey = lkey;
	}
	fits = ib_bind_mkey_list(mkey, list, max, IB_ACCESS_REMOTE_READ);
	too_many = ib_bind_mkey_list(mkey, list, max + 1, IB_ACCESS_REMOTE_READ);
	kvfree(list);
	expect(!fits && too_many == -ENOSPC && mkey->length == max);

	return 0;
}

/* Binds the largest number of indices, and checks the rules for their two sizes. */
static int indices(struct ib_mr *mkey, u32 lkey, u64 addr, u32 max, u32 max_entries)
{
	u64 *large = kvcalloc(max + 1, sizeof(*large), GFP_KERNEL);
	struct ib_mkey_indexed layout = {
		.addr = addr, .unit = 1, .bytes_count = 2, .lkey = lkey,
		.indices64 = large, .num_indices = max,
	};
	int fits, too_many, both, small, neither;
	u64 length;

	if (!large)
		return -ENOMEM;
	fits = ib_bind_mkey_indexed(mkey, &layout, IB_ACCESS_REMOTE_READ);
	layout.num_indices = max + 1;
	too_many = ib_bind_mkey_indexed(mkey, &layout, IB_ACCESS_REMOTE_READ);
	layout.num_indices = 3;
	layout.indices32 = (u32 *)large;
	both = ib_bind_mkey_indexed(mkey, &layout, IB_ACCESS_REMOTE_READ);
	length = mkey->length;
	layout.indices64 = NULL;
	small = ib_bind_mkey_indexed(mkey, &layout, IB_ACCESS_REMOTE_READ);
	layout.indices32 = NULL;
	neither = ib_bind_mkey_indexed(mkey, &layout, IB_ACCESS_REMOTE_READ);
	kvfree(large);
	expect(!fits && too_many == -ENOSPC && both == -EINVAL && length == 2ull * max);
	expect(!small && neither == -EINVAL && mkey->length == 6);

	/* A key for so many indices cannot have more entries than other keys. */
	return entries(mkey, lkey, addr, max_entries);
}

static int dims(struct ib_mr *mkey, u32 lkey, u64 addr, u32 max)
{
	static const u64 repeat_count[IB_MKEY_MAX_DIMS + 1] = { [0 ... IB_MKEY_MAX_DIMS] = 1 };
	struct ib_mkey_block block = { .addr = addr, .bytes_count = 7, .lkey = lkey };
	struct ib_mkey_interleaved layout = {
		.num_dims = max, .num_blocks = 1,
		.repeat_count = repeat_count, .blocks = &block,
	};

	expect(max <= IB_MKEY_MAX_DIMS);
	expect(!ib_bind_mkey_interleaved(mkey, &layout, IB_ACCESS_REMOTE_READ));
	layout.num_dims = max + 1;
	expect(ib_bind_mkey_interleaved(mkey, &layout, IB_ACCESS_REMOTE_READ) == -EINVAL);
	layout.num_dims = 0;
	expect(ib_bind_mkey_interleaved(mkey, &layout, IB_ACCESS_REMOTE_READ) == -EINVAL);
	expect(mkey->length == 7);

	return 0;
}

/* Binds keys over keys, one level after another. */
static int depth(struct ib_mkey_pool *pool, u32 lkey, u64 addr, u32 max)
{
	struct ib_sge range = { .addr = addr, .length = 9, .lkey = lkey };
	struct ib_mr *keys[16], *over;
	u32 i;

	expect(max < ARRAY_SIZE(keys));
	for (i = 0; i < max; i++) {
		keys[i] = ib_mkey_pool_get(pool);
		expect(keys[i]);
		expect(!ib_bind_mkey_list(keys[i], &range, 1, IB_ACCESS_REMOTE_READ));
		range.addr = 0;
		range.lkey = keys[i]->lkey;
	}
	over = ib_mkey_pool_get(pool);
	expect(over);
	expect(ib_bind_mkey_list(over, &range, 1, IB_ACCESS_REMOTE_READ) == -ELOOP);
	expect(!over->length);
	expect(!ib_mkey_pool_put(pool, over));
	while (i--)
		expect(!ib_mkey_pool_put(pool, keys[i]));

	return 0;
}

static struct ib_dm *alloc(struct ib_device *device, u64 length)
{
	struct ib_dm_alloc_attr attr = { .length = length };

	return ib_alloc_dm(device, &attr);
}

/* Allocates all device memory that is left; other parts of this sample have some. */
static int dm_size(struct ib_device *device, u64 max)
{
	struct ib_dm *one, *rest;

	if (max > (u64)PAGE_SIZE << 16)
		return 0;
	expect(PTR_ERR(alloc(device, max + 1)) == -ENOMEM);
	one = alloc(device, max - SZ_1M);
	if (IS_ERR(one))
		return PTR_ERR(one);
	rest = alloc(device, SZ_1M + 1);
	ib_free_dm(one);
	expect(PTR_ERR(rest) == -ENOMEM);

	return 0;
}

/**
 * ulp_limits() - reach each limit, and go beyond
 * @pd: protection domain
 * @addr: DMA address of some bytes
 *
 * Return: 0, or -EIO if a result was wrong.
 */
int ulp_limits(struct ib_pd *pd, u64 addr)
{
	u32 lkey = pd->local_dma_lkey;
	struct ib_mkey_pool *pool;
	struct ib_mkey_caps caps;
	struct ib_mr *mkey;
	int ret;

	expect(!ib_query_mkey_caps(pd->device, &caps));
	expect(caps.max_indices >= caps.max_entries);
	expect(PTR_ERR(ib_alloc_mkey(pd, caps.max_indices + 1)) == -EINVAL);
	mkey = ib_alloc_mkey(pd, caps.max_indices);
	if (IS_ERR(mkey))
		return PTR_ERR(mkey);
	pool = ib_mkey_pool_create(pd, 1, caps.max_depth + 1);
	if (IS_ERR(pool)) {
		ret = PTR_ERR(pool);
		goto dereg;
	}
	ret = indices(mkey, lkey, addr, caps.max_indices, caps.max_entries) ?:
	      dims(mkey, lkey, addr, caps.max_dims) ?:
	      depth(pool, lkey, addr, caps.max_depth) ?:
	      dm_size(pd->device, caps.max_dm_size);
	if (ib_mkey_pool_destroy(pool))
		ret = ret ?: -EBUSY;
dereg:
	ib_dereg_mr(mkey);
	return ret;
}
