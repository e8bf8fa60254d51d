// SPDX-License-Identifier: GPL-2.0
/* A kernel user of a device that ib_mkey does not extend: each function returns -EOPNOTSUPP. */

#include "mkey_reg.h"

static int result;

static void check(const char *name, long ret)
{
	if (ret == -EOPNOTSUPP)
		return;
	pr_err("%s: %s returned %ld\n", KBUILD_MODNAME, name, ret);
	result = -EIO;
}

/* Calls the functions for objects of @pd. @mr is an ordinary MR, because there is no key. */
static void bare_calls(struct ib_pd *pd, struct ib_mr *mr)
{
	struct ib_dm_alloc_attr attr = { .length = PAGE_SIZE };
	struct ib_sge sge = { .length = 1, .lkey = pd->local_dma_lkey };
	const struct ib_mkey_block block = { .bytes_count = 1, .lkey = sge.lkey };
	const u64 count = 1;
	const u32 index = 0;
	const struct ib_mkey_interleaved blocks = {
		.repeat_count = &count,
		.blocks = &block,
		.num_dims = 1,
		.num_blocks = 1,
	};
	const struct ib_mkey_indexed indexed = {
		.unit = 1,
		.bytes_count = 1,
		.indices32 = &index,
		.num_indices = 1,
		.lkey = sge.lkey,
	};
	const struct ib_mkey_bind bind = { .mkey = mr, .sg_list = &sge, .num_sge = 1 };
	struct ib_mkey_caps caps;
	u32 failed;

	check("ib_query_mkey_caps", ib_query_mkey_caps(pd->device, &caps));
	check("ib_alloc_dm", PTR_ERR_OR_ZERO(ib_alloc_dm(pd->device, &attr)));
	check("ib_alloc_dm_class",
	      PTR_ERR_OR_ZERO(ib_alloc_dm_class(pd->device, &attr, IB_MKEY_DM_HOST)));
	check("ib_alloc_mkey", PTR_ERR_OR_ZERO(ib_alloc_mkey(pd, 1)));
	check("ib_mkey_pool_create", PTR_ERR_OR_ZERO(ib_mkey_pool_create(pd, 1, 1)));
	check("ib_bind_mkey_list", ib_bind_mkey_list(mr, &sge, 1, 0));
	check("ib_bind_mkey_interleaved", ib_bind_mkey_interleaved(mr, &blocks, 0));
	check("ib_bind_mkey_indexed", ib_bind_mkey_indexed(mr, &indexed, 0));
	check("ib_bind_mkeys", ib_bind_mkeys(&bind, 1, &failed));
	check("ib_map_mkey_list", ib_map_mkey_list(mr, &sge, 1));
	check("ib_map_mkey_interleaved", ib_map_mkey_interleaved(mr, &blocks));
	check("ib_map_mkey_indexed", ib_map_mkey_indexed(mr, &indexed));
	check("ib_unbind_mkey", ib_unbind_mkey(mr));
}

/* Calls each function of ib_mkey.h that a user of such a device can call. */
int reg_bare(struct ib_device *device)
{
	struct ib_pd *pd = ib_alloc_pd(device, 0);
	struct ib_mr *mr;

	if (IS_ERR(pd))
		return PTR_ERR(pd);
	mr = ib_alloc_mr(pd, IB_MR_TYPE_MEM_REG, 1);
	if (IS_ERR(mr)) {
		result = PTR_ERR(mr);
	} else {
		bare_calls(pd, mr);
		ib_dereg_mr(mr);
	}
	ib_dealloc_pd(pd);

	return result;
}
