/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A key on side 1, and requests of side 0 to it that must fail and change no
 * byte: the set-up of their tests.
 */
#ifndef MKEY_TEST_ACCESS_H
#define MKEY_TEST_ACCESS_H

#include "mkey_harness.h"

FIXTURE(access)
{
	struct mkt_setup s;
	struct ibmkey_block block;	/* 8 bytes of every 24 */
	uint64_t repeat;
};

/* the key refers to memory of the host or of the device */
FIXTURE_VARIANT(access)
{
	unsigned int leaf;
};

FIXTURE_VARIANT_ADD(access, host) { .leaf = 1 };
FIXTURE_VARIANT_ADD(access, dm) { .leaf = 2 };

static inline int access_bind(struct mkt_setup *s, unsigned int side,
			      const struct ibmkey_block *block, uint64_t repeat,
			      unsigned int access)
{
	return ibv_rereg_mr_interleaved(s->key[side], access, 1, &repeat, 1,
					block);
}

FIXTURE_SETUP(access)
{
	struct mkt_leaf *leaf;

	MKT_SETUP(&self->s, .host = 64 * 1024, .dm = 32 * 1024, .max_entries = 4);
	leaf = &self->s.arena[1].leaf[variant->leaf];
	/* aligned in memory, as atomics need */
	self->block.addr = leaf->addr + (-leaf->at & 7);
	self->block.bytes_count = 8;
	self->block.lkey = leaf->mr->lkey;
	self->block.stride[0] = 24;
	self->repeat = 500;
}

FIXTURE_TEARDOWN(access)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* a request from side 0 to the key of side 1 */
static inline struct mkt_wr access_wr(struct mkt_setup *s, enum mkt_op op,
				      uint64_t addr, uint32_t length)
{
	struct mkt_wr wr = {
		.op = op,
		.sge[0] = {
			.addr = s->plain[0].addr,
			.length = length,
			.lkey = s->plain[0].mr->lkey,
		},
		.num_sge = op == MKT_ATOMIC_WRITE ? 0 : 1,
		.remote_addr = addr,
		.rkey = s->key[1]->rkey,
		.swap_add = 1,
	};

	return wr;
}

/* returns 0 if @wr completes with @status and changes nothing */
static inline int access_fails(struct mkt_setup *s, const struct mkt_wr *wr,
			       enum ibv_wc_status status)
{
	int seen = mkt_status(&s->pair, 0, wr);
	int err;

	if (seen != status) {
		mkt_diag("%s to 0x%" PRIx64 ": \"%s\" instead of \"%s\"",
			 mkt_op_name(wr->op), wr->remote_addr,
			 seen < 0 ? "nothing" : ibv_wc_status_str(seen),
			 ibv_wc_status_str(status));
		return EIO;
	}
	err = mkt_pair_recover(&s->pair);
	if (!err)
		err = mkt_arena_check(&s->arena[0]);
	return err ?: mkt_arena_check(&s->arena[1]);
}

static inline int access_refused(struct mkt_setup *s, enum mkt_op op)
{
	struct mkt_wr wr = access_wr(s, op, 0, 8);

	return access_fails(s, &wr, IBV_WC_REM_ACCESS_ERR);
}

static const enum mkt_op remote_ops[] = {
	MKT_WRITE, MKT_READ, MKT_FETCH_ADD, MKT_CMP_SWAP, MKT_ATOMIC_WRITE,
};

#endif /* MKEY_TEST_ACCESS_H */
