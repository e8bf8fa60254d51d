// SPDX-License-Identifier: GPL-2.0
/* Layouts that cannot be staged. */

#include <linux/sched.h>

#include "mkey_reg.h"

/* The reason for which the key was last refused. Stores the entry. */
static int why(struct ib_mr *key, u32 *entry)
{
	struct ib_uverbs_mkey_refused refused;
	int err = ib_query_mkey_refused(key, &refused);

	if (err)
		return err;
	*entry = refused.entry;
	return refused.reason;
}

#define expect_why(key, reason, number) do {					\
	u32 __entry = 0;							\
										\
	expect_is(why(key, &__entry), IB_UVERBS_MKEY_REASON_##reason);		\
	expect_is(__entry, number);						\
} while (0)

/* Layouts that cannot be staged. */
static int staging(struct reg_test *test)
{
	struct reg_side *there = &test->there;
	struct ib_mr *key = there->key, *other;
	struct ib_sge one = reg_range(there, 0, 1), empty = reg_range(there, 0, 0);
	static const u64 much[] = { 1ULL << 40, 1ULL << 30 }, none[] = { 0, 1 };
	static const u32 index = 3;
	struct ib_mkey_block block = { .bytes_count = 1, .addr = one.addr, .lkey = one.lkey };
	struct ib_mkey_interleaved grid = {
		.num_dims = 2, .num_blocks = 1, .repeat_count = much, .blocks = &block,
	};
	struct ib_mkey_indexed indexed = {
		.addr = one.addr, .unit = 1, .bytes_count = 1, .num_indices = 1, .lkey = one.lkey,
	};
	int i;

	expect_is(ib_map_mkey_list(key, &one, 0), -EINVAL);
	expect_why(key, EMPTY, IB_MKEY_NO_ENTRY);
	expect_is(ib_map_mkey_list(key, &empty, 1), -EINVAL);
	expect_why(key, NO_BYTES, 0);
	expect_is(ib_map_mkey_list(key, &one, REG_ENTRIES + 1), -ENOSPC);
	expect_is(ib_map_mkey_interleaved(key, &grid), -EOVERFLOW);
	expect_why(key, LENGTH, IB_MKEY_NO_ENTRY);
	grid.repeat_count = none;
	expect_is(ib_map_mkey_interleaved(key, &grid), -EINVAL);
	grid.num_dims = 0;
	expect_is(ib_map_mkey_interleaved(key, &grid), -EINVAL);
	grid.num_dims = IB_MKEY_MAX_DIMS + 1;
	expect_is(ib_map_mkey_interleaved(key, &grid), -EINVAL);
	expect_is(ib_map_mkey_indexed(key, &indexed), -EINVAL);
	expect_why(key, INDICES, IB_MKEY_NO_ENTRY);
	indexed.indices32 = &index;
	indexed.unit = 0;
	expect_is(ib_map_mkey_indexed(key, &indexed), -EINVAL);
	indexed.unit = 1;
	indexed.num_indices = 0;
	expect_is(ib_map_mkey_indexed(key, &indexed), -EINVAL);
	indexed.num_indices = REG_ENTRIES + 1;
	expect_is(ib_map_mkey_indexed(key, &indexed), -ENOSPC);

	/* Nothing of all that is staged. */
	expect_is(reg_bind_status(test, there, key, key->rkey, REG_ACCESS), IB_WC_MW_BIND_ERR);

	/* An MR that is not a key. */
	other = ib_alloc_mr(there->side->pd, IB_MR_TYPE_MEM_REG, 1);
	expect(!IS_ERR(other));
	expect_is(ib_map_mkey_list(other, &one, 1), -EINVAL);
	expect_is(why(other, &(u32){ 0 }), -EINVAL);
	expect(!ib_dereg_mr(other));

	/* As many as there is room for, one of them anew. */
	for (i = 0; i < IB_MKEY_MAX_STAGED; i++) {
		reg_next_key(key);
		expect_is(ib_map_mkey_list(key, &one, 1), 0);
	}
	expect_is(ib_map_mkey_list(key, &one, 1), 0);
	reg_next_key(key);
	expect_is(ib_map_mkey_list(key, &one, 1), -EBUSY);
	expect_why(key, ALL_MAPPED, IB_MKEY_NO_ENTRY);
	expect(!ib_unbind_mkey(key));
	expect_is(ib_map_mkey_list(key, &one, 1), 0);
	expect(!ib_unbind_mkey(key));
	expect_is(reg_bind_status(test, there, key, key->rkey, REG_ACCESS), IB_WC_MW_BIND_ERR);

	return 0;
}

#ifdef CONFIG_FAULT_INJECTION
/*
 * Stages a layout for a new key while allocation @nth fails. Returns 1 if that many were made, or 0
 * if all succeeded.
 */
static int one_failure(struct reg_test *test, int nth)
{
	struct reg_side *there = &test->there;
	struct ib_sge one = reg_range(there, 40, 1);
	struct ib_mr *key;
	int ret, happened;

	key = ib_alloc_mkey(there->side->pd, 1);
	expect(!IS_ERR(key));
	current->fail_nth = nth;
	ret = ib_map_mkey_list(key, &one, 1);
	happened = !current->fail_nth;
	current->fail_nth = 0;
	if (ret) {
		expect_is(ret, -ENOMEM);
		expect(happened);
		expect_is(reg_bind_status(test, there, key, key->rkey, REG_ACCESS),
			  IB_WC_MW_BIND_ERR);
		expect_is(ib_map_mkey_list(key, &one, 1), 0);
	}
	expect_is(reg_bind_status(test, there, key, key->rkey, REG_ACCESS), IB_WC_SUCCESS);
	there->memory[40] = 140;
	expect_is(reg_rdma_status(test, IB_WR_RDMA_READ, 0, 1, key->rkey), IB_WC_SUCCESS);
	expect(test->here.memory[0] == 140);
	/* The memory is used again: nothing is allocated, so nothing can fail. */
	reg_next_key(key);
	current->fail_nth = 1;
	ret = ib_map_mkey_list(key, &one, 1);
	happened -= 2 * !current->fail_nth;
	current->fail_nth = 0;
	expect_is(ret, 0);
	expect(happened >= 0);
	expect(!ib_dereg_mr(key));

	return happened;
}

static int without_memory(struct reg_test *test)
{
	int nth = 0, ret;

	do {
		ret = one_failure(test, ++nth);
	} while (ret == 1 && nth < 100);
	expect(ret != 1);
	expect(nth > 2);
	pr_info("mkey_reg: staging with %d failures of memory\n", nth - 1);

	return ret;
}
#else
static int without_memory(struct reg_test *test)
{
	return 0;
}
#endif

/* Tries to stage what must be refused. */
int reg_refusals(struct reg_test *test)
{
	return staging(test) ?: without_memory(test);
}
