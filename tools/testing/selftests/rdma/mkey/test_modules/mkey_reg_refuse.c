// SPDX-License-Identifier: GPL-2.0
/* What is refused: layouts that cannot be staged, and requests that bind nothing. */

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

/* Stages one byte at @at of there's memory, under the next rkey, which is returned. */
static u32 stage(struct reg_test *test, struct ib_mr *key, u32 at)
{
	struct ib_sge one = reg_range(&test->there, at, 1);
	u32 rkey = reg_next_key(key);

	return ib_map_mkey_list(key, &one, 1) ? 0 : rkey;
}

/* Requests that are refused. The key keeps its binding and its rkey. */
static int binding(struct reg_test *test)
{
	struct reg_side *there = &test->there;
	struct ib_mr *key = there->key;
	u32 bound, next;

	memset(there->memory, 0, REG_MEMORY);
	there->memory[10] = 110;
	there->memory[20] = 120;
	bound = stage(test, key, 10);
	expect(bound);
	expect_is(reg_bind_status(test, there, key, bound, REG_ACCESS), IB_WC_SUCCESS);
	expect_is(reg_peek(test, bound), 110);

	/* No layout is staged under its rkey: it was used up, or is staged under another one. */
	expect_is(reg_bind_status(test, there, key, bound, REG_ACCESS), IB_WC_MW_BIND_ERR);
	expect_why(key, NOT_MAPPED, IB_MKEY_NO_ENTRY);
	next = stage(test, key, 20);
	expect(next);
	expect_is(reg_bind_status(test, there, key, ib_inc_rkey(next), REG_ACCESS),
		  IB_WC_MW_BIND_ERR);
	/* The rkey of another MR. */
	expect_is(reg_bind_status(test, there, key, next ^ 0x100, REG_ACCESS),
		  IB_WC_LOC_QP_OP_ERR);
	/* A QP of another device. */
	expect_is(reg_bind_status(test, &test->here, key, next, REG_ACCESS), IB_WC_LOC_QP_OP_ERR);
	expect_is(reg_peek(test, bound), 110);
	/* LOCAL_INV with an rkey that the key does not have yet. */
	expect(reg_inv_status(test, there, next) != IB_WC_SUCCESS);
	expect_is(reg_peek(test, bound), 110);

	/* The layout is still staged. A request with wrong flags uses it up. */
	expect_is(reg_bind_status(test, there, key, next, IB_ACCESS_REMOTE_WRITE),
		  IB_WC_MW_BIND_ERR);
	expect_why(key, LOCAL_WRITE, IB_MKEY_NO_ENTRY);
	expect_is(reg_bind_status(test, there, key, next, REG_ACCESS), IB_WC_MW_BIND_ERR);
	expect_is(reg_peek(test, bound), 110);
	next = stage(test, key, 20);
	expect_is(reg_bind_status(test, there, key, next, REG_ACCESS), IB_WC_SUCCESS);
	expect_is(reg_peek(test, next), 120);
	expect_is(reg_peek(test, bound), -IB_WC_REM_ACCESS_ERR);
	expect(reg_inv_status(test, there, bound) != IB_WC_SUCCESS);
	expect_is(reg_peek(test, next), 120);
	expect_is(reg_inv_status(test, there, next), IB_WC_SUCCESS);
	expect_is(reg_peek(test, next), -IB_WC_REM_ACCESS_ERR);
	/* That has changed the key portion, so the rkey names nothing. */
	expect(reg_inv_status(test, there, next) != IB_WC_SUCCESS);

	return 0;
}

/* Leaves that cannot be used are refused when the request executes. */
static int leaves(struct reg_test *test)
{
	struct reg_side *there = &test->there;
	struct ib_mr *key = there->key, *inner, *foreign;
	struct ib_sge bad = { .length = 1 };
	struct ib_pd *pd;

	inner = ib_alloc_mkey(there->side->pd, 1);
	expect(!IS_ERR(inner));
	/* It is not bound, then it is too short, then it has too few access flags. */
	bad.lkey = inner->lkey;
	reg_next_key(key);
	expect_is(ib_map_mkey_list(key, &bad, 1), 0);
	expect_is(reg_bind_status(test, there, key, key->rkey, REG_ACCESS), IB_WC_MW_BIND_ERR);
	bad = reg_range(there, 30, 1);
	expect(!ib_bind_mkey_list(inner, &bad, 1, IB_ACCESS_REMOTE_READ));
	bad = (struct ib_sge){ .addr = 1, .length = 1, .lkey = inner->lkey };
	expect_is(ib_map_mkey_list(key, &bad, 1), 0);
	expect_is(reg_bind_status(test, there, key, key->rkey, IB_ACCESS_REMOTE_READ),
		  IB_WC_MW_BIND_ERR);
	bad.addr = 0;
	expect_is(ib_map_mkey_list(key, &bad, 1), 0);
	expect_is(reg_bind_status(test, there, key, key->rkey, REG_ACCESS), IB_WC_MW_BIND_ERR);
	expect_is(ib_map_mkey_list(key, &bad, 1), 0);
	expect_is(reg_bind_status(test, there, key, key->rkey, IB_ACCESS_REMOTE_READ),
		  IB_WC_SUCCESS);
	there->memory[30] = 130;
	expect_is(reg_peek(test, key->rkey), 130);

	/* Another key refers to the inner one: it cannot be bound anew, or unbound. */
	expect(stage(test, inner, 31));
	expect_is(reg_bind_status(test, there, inner, inner->rkey, REG_ACCESS), IB_WC_MW_BIND_ERR);
	expect(reg_inv_status(test, there, bad.lkey) != IB_WC_SUCCESS);
	expect_is(reg_peek(test, key->rkey), 130);
	expect(ib_dereg_mr(inner) == -EBUSY);
	expect_is(reg_inv_status(test, there, key->rkey), IB_WC_SUCCESS);
	expect(stage(test, inner, 30));
	expect_is(reg_bind_status(test, there, inner, inner->rkey, REG_ACCESS), IB_WC_SUCCESS);
	expect(!ib_dereg_mr(inner));

	/* The key of another protection domain. */
	pd = ib_alloc_pd(there->side->device, 0);
	expect(!IS_ERR(pd));
	foreign = ib_alloc_mkey(pd, 1);
	expect(!IS_ERR(foreign));
	expect(stage(test, foreign, 0));
	expect_is(reg_bind_status(test, there, foreign, foreign->rkey, REG_ACCESS),
		  IB_WC_MW_BIND_ERR);
	expect(!ib_dereg_mr(foreign));
	ib_dealloc_pd(pd);

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
	expect_is(reg_peek(test, key->rkey), 140);
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

/* Tries all that must be refused. */
int reg_refusals(struct reg_test *test)
{
	return staging(test) ?: binding(test) ?: leaves(test) ?: without_memory(test);
}
