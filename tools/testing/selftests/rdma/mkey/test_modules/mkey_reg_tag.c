// SPDX-License-Identifier: GPL-2.0
/* The key portion that a kernel user chooses, and what invalidations make of it. */

#include "mkey_reg.h"

/* Binds a key to one byte of there's memory by a call. */
static int bind(struct reg_test *test, struct ib_mr *key)
{
	struct ib_sge one = reg_range(&test->there, 40, 1);

	return ib_bind_mkey_list(key, &one, 1, REG_ACCESS);
}

/* Chooses the key portion of @rkey, and binds the key. */
static int bind_as(struct reg_test *test, struct ib_mr *key, u32 rkey)
{
	ib_update_fast_reg_key(key, rkey & 0xff);
	return bind(test, key);
}

/* The key has the rkey @rkey, and @old is the rkey of nothing. */
static int changed(struct reg_test *test, struct ib_mr *key, u32 old, u32 rkey)
{
	expect(key->rkey == rkey);
	expect(key->lkey == rkey);
	expect_is(reg_peek(test, rkey), 140);
	expect_is(reg_peek(test, old), -IB_WC_REM_ACCESS_ERR);

	return 0;
}

/* Two key portions in turn: one of them is the next one of the other. */
static int alternate(struct reg_test *test, struct ib_mr *key)
{
	u32 rkey[2] = { key->rkey, key->rkey ^ 1 };
	int i, ret = 0;

	for (i = 1; i < 6 && !ret; i++) {
		expect(!bind_as(test, key, rkey[i & 1]));
		ret = changed(test, key, rkey[~i & 1], rkey[i & 1]);
	}

	return ret;
}

/* Invalidations leave the fields of ib_mr, which do not choose a key portion after that. */
static int invalidated(struct reg_test *test, struct ib_mr *key)
{
	u32 old = key->rkey, next = ib_inc_rkey(old);
	int ret;

	expect_is(reg_inv_status(test, &test->there, old), IB_WC_SUCCESS);
	expect(key->rkey == old);
	expect(!bind(test, key));
	ret = changed(test, key, old, next);
	if (ret)
		return ret;

	/* A second invalidation finds nothing bound, and changes the key portion once more. */
	old = next;
	next = ib_inc_rkey(old);
	expect_is(reg_inv_status(test, &test->there, old), IB_WC_SUCCESS);
	expect_is(reg_inv_status(test, &test->there, next), IB_WC_SUCCESS);
	expect(key->rkey == old);
	expect(!bind(test, key));
	ret = changed(test, key, old, ib_inc_rkey(next));
	if (ret)
		return ret;

	/* The user may still choose one. */
	old = key->rkey;
	expect_is(reg_inv_status(test, &test->there, old), IB_WC_SUCCESS);
	expect(!bind_as(test, key, old ^ 0x40));

	return changed(test, key, old, old ^ 0x40);
}

/* The key portion that REG_MR has used is no choice for a later bind by a call. */
static int requested(struct reg_test *test, struct ib_mr *key)
{
	struct ib_sge one = reg_range(&test->there, 40, 1);
	u32 rkey;
	int ret;

	expect_is(reg_inv_status(test, &test->there, key->rkey), IB_WC_SUCCESS);
	rkey = reg_next_key(key);
	expect(!ib_map_mkey_list(key, &one, 1));
	expect_is(reg_bind_status(test, &test->there, key, rkey, REG_ACCESS), IB_WC_SUCCESS);
	expect(!bind(test, key));
	ret = changed(test, key, ib_inc_rkey(rkey), rkey);
	if (ret)
		return ret;
	rkey = reg_next_key(key);
	expect(!ib_map_mkey_list(key, &one, 1));
	expect_is(reg_bind_status(test, &test->there, key, rkey, REG_ACCESS), IB_WC_SUCCESS);
	expect_is(reg_inv_status(test, &test->there, rkey), IB_WC_SUCCESS);
	expect(!bind(test, key));

	return changed(test, key, rkey, ib_inc_rkey(rkey));
}

/* An unbind by a call replaces what the user chose before. */
static int unbound(struct reg_test *test, struct ib_mr *key)
{
	u32 old = key->rkey;

	ib_update_fast_reg_key(key, (old & 0xff) ^ 0x20);
	expect(!ib_unbind_mkey(key));
	expect(key->rkey == ib_inc_rkey(old));
	expect(!bind(test, key));

	return changed(test, key, old, ib_inc_rkey(old));
}

/* Chooses key portions, and lets invalidations change them. */
int reg_tags(struct reg_test *test)
{
	struct ib_mr *key = ib_alloc_mkey(test->there.side->pd, 1);
	int ret, gone;

	expect(!IS_ERR(key));
	test->there.memory[40] = 140;
	ret = alternate(test, key) ?: invalidated(test, key) ?: requested(test, key) ?:
	      unbound(test, key);
	gone = ib_dereg_mr(key);

	return ret ?: gone;
}
