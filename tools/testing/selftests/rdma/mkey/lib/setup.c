// SPDX-License-Identifier: GPL-2.0
/* Two sides with memory, keys and queue pairs between them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mkey_test.h"

static int mkt_setup_side(struct mkt_setup *setup, unsigned int i,
			  const struct mkt_wants *wants)
{
	struct mkt_arena *arena = &setup->arena[i];
	int err;

	err = mkt_arena_standard(arena, &setup->dev[i], wants->host,
				 wants->dm);
	if (!err)
		err = mkt_arena_fill(arena, &setup->rng);
	if (!err)
		err = mkt_end_leaf(&setup->plain[i], arena, 0);
	if (err || !wants->max_entries)
		return err;
	setup->key[i] = ibmkey_alloc(setup->dev[i].pd, wants->max_entries);
	if (setup->key[i])
		return 0;
	mkt_diag("no key of %u entries: %s", wants->max_entries,
		 strerror(errno));
	return errno;
}

int mkt_setup(struct mkt_setup *setup, const struct mkt_wants *wants,
	      const char *salt)
{
	enum ibv_mtu mtu = wants->mtu ?: IBV_MTU_1024;
	char name[64];
	unsigned int i;
	int err = 0;

	/* variants of a test use different seeds */
	snprintf(name, sizeof(name), "%s/%zu/%x", salt, mkt_mtu_bytes(mtu), wants->flags);
	mkt_rng_init(&setup->rng, name);
	for (i = 0; i < 2 && !err; i++)
		err = mkt_setup_side(setup, i, wants);
	if (!err)
		err = mkt_pair_create(&setup->pair, &setup->dev[0],
				      &setup->dev[1], mtu, wants->flags);
	return err;
}

int mkt_end_draw(struct mkt_end *end, struct mkt_setup *setup,
		 unsigned int side, enum mkt_kind kind,
		 const struct mkt_draw *draw, int access)
{
	struct mkt_arena *arena = &setup->arena[side];
	struct mkt_layout layout;
	int err;

	err = mkt_draw_layout(&layout, &setup->rng, arena, kind, draw);
	if (err)
		return err;
	layout.first = mkt_draw_first(&setup->rng);
	err = mkt_end_key(end, setup->key[side], arena, &layout, access);
	mkt_layout_free(&layout);
	return err;
}

struct mkt_wr mkt_plain_wr(const struct mkt_setup *setup, unsigned int side, enum mkt_op op,
			   uint32_t length, uint64_t addr, uint32_t rkey)
{
	return (struct mkt_wr) {
		.op = op,
		.sge[0] = {
			.addr = setup->plain[side].addr,
			.length = length,
			.lkey = setup->plain[side].mr->lkey,
		},
		.num_sge = 1,
		.remote_addr = addr,
		.rkey = rkey,
		.swap_add = 3,
	};
}

int mkt_touch(struct mkt_setup *setup, uint32_t rkey, enum mkt_op op,
	      uint64_t addr, uint32_t length)
{
	struct mkt_wr wr = mkt_plain_wr(setup, 0, op, length, addr, rkey);

	return mkt_status(&setup->pair, 0, &wr);
}

int mkt_try(struct mkt_setup *setup, uint32_t rkey, enum mkt_op op,
	    uint64_t addr, uint32_t length)
{
	int status = mkt_touch(setup, rkey, op, addr, length);

	if (status != IBV_WC_SUCCESS && mkt_pair_recover(&setup->pair))
		return -1;
	return status;
}

int mkt_refused(struct mkt_setup *setup, uint32_t rkey, enum mkt_op op, uint64_t addr,
		uint32_t length, enum ibv_wc_status status)
{
	int seen = mkt_try(setup, rkey, op, addr, length);

	if (seen != (int)status) {
		mkt_diag("%s to 0x%llx: \"%s\" instead of \"%s\"", mkt_op_name(op),
			 (unsigned long long)addr,
			 seen < 0 ? "nothing" : ibv_wc_status_str(seen),
			 ibv_wc_status_str(status));
		return EIO;
	}
	return mkt_arena_check(&setup->arena[0]) ?: mkt_arena_check(&setup->arena[1]);
}

int mkt_teardown(struct mkt_setup *setup)
{
	int err, first = 0;
	unsigned int i;

	mkt_pair_destroy(&setup->pair);
	for (i = 0; i < 2; i++) {
		mkt_end_free(&setup->plain[i]);
		if (setup->key[i]) {
			err = ibv_dereg_mr(setup->key[i]);
			if (err)
				mkt_diag("the key of side %u stays: %s", i,
					 strerror(err));
			first = first ?: err;
		}
		err = mkt_arena_free(&setup->arena[i]);
		first = first ?: err;
		mkt_dev_close(&setup->dev[i]);
	}
	return first;
}
