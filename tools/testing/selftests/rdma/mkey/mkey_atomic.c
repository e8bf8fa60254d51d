// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Atomics through keys: on memory of the host and of the device, at the borders of
 * blocks, and concurrently with other atomics on the same bytes. mkey_matrix has all kinds of
 * layouts.
 */
#include "mkey_harness.h"

FIXTURE(atomic)
{
	struct mkt_setup s;
	size_t first;		/* of the leaf, aligned in memory */
};

FIXTURE_VARIANT(atomic)
{
	unsigned int leaf;
	/* an MR over the same memory, with aligned addresses */
	unsigned int direct;
};

FIXTURE_VARIANT_ADD(atomic, host) { .leaf = 0 };

/* a leaf whose addresses are not those of the process */
FIXTURE_VARIANT_ADD(atomic, shifted) { .leaf = 1, .direct = 1 };
FIXTURE_VARIANT_ADD(atomic, dm) { .leaf = 3, .direct = 3 };

/* no address of the MR is aligned both in the MR and in memory */
FIXTURE_VARIANT_ADD(atomic, dm_odd) { .leaf = 2, .direct = 3 };

FIXTURE_SETUP(atomic)
{
	MKT_SETUP(&self->s, .host = 64 * 1024, .dm = 32 * 1024, .max_entries = 16);
	self->first = -self->s.arena[1].leaf[variant->leaf].at & 7;
}

FIXTURE_TEARDOWN(atomic)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/*
 * Runs one of each atomic on every operand of the key, with results in @sink.
 * Those that return a value cannot be posted to an unaligned address.
 */
static int atomic_run(struct mkt_setup *s, struct mkt_end *sink,
		      struct mkt_end *key, size_t first, size_t step,
		      unsigned int count)
{
	static const enum mkt_op ops[] = {
		MKT_FETCH_ADD, MKT_CMP_SWAP, MKT_CMP_SWAP, MKT_ATOMIC_WRITE,
	};
	unsigned int i, o;
	int err = 0;

	for (i = 0; i < count && !err; i++)
		for (o = 0; o < ARRAY_SIZE(ops) && !err; o++) {
			struct mkt_xfer xfer = {
				.op = ops[o],
				.end = { sink, key },
				.offset = { (i * 40 + o * 8) %
					    (sink->map.length - 8),
					    first + i * step },
				.length = 8,
				.num_sge = 1,
				.swap_add = mkt_rand(&s->rng),
				.compare = mkt_rand(&s->rng),
			};
			size_t at = key->map.pos[xfer.offset[1]];

			if (xfer.offset[1] & 7 && ops[o] != MKT_ATOMIC_WRITE)
				continue;
			/* the first of the two matches */
			if (o == 1)
				memcpy(&xfer.compare, s->arena[1].expect + at,
				       sizeof(xfer.compare));
			err = mkt_xfer(&s->pair, &xfer);
		}
	return err;
}

/* the same by a key that is bound to @layout */
static int atomic_through(struct mkt_setup *s, const struct mkt_layout *layout,
			  size_t first, size_t step, unsigned int count)
{
	struct mkt_end key;
	int err;

	err = mkt_end_key(&key, s->key[1], &s->arena[1], layout, MKT_ACCESS_ALL);
	if (err)
		return err;
	err = atomic_run(s, &s->plain[0], &key, first, step, count);
	mkt_end_free(&key);
	return err;
}

/* the operand is aligned in memory, but its address in the key is not */
TEST_F(atomic, odd_address)
{
	struct mkt_block block[] = {
		{ variant->leaf, self->first + 3, 5, { 32 } },
		{ variant->leaf, self->first + 16, 8, { 32 } },
	};
	struct mkt_layout layout = {
		.num_dims = 1,
		.repeat = { 100 },
		.num_blocks = 2,
		.block = block,
	};

	ASSERT_EQ(0, atomic_through(&self->s, &layout, 5, 13, 20));
}

/* operands in two pieces, beyond the end, on odd memory: every atomic fails, and changes nothing */
TEST_F(atomic, refused)
{
	static const enum mkt_op ops[] = {
		MKT_FETCH_ADD, MKT_CMP_SWAP, MKT_ATOMIC_WRITE,
	};
	const enum ibv_wc_status access = IBV_WC_REM_ACCESS_ERR, odd = IBV_WC_REM_INV_REQ_ERR;
	struct mkt_block ranges[] = {
		{ variant->leaf, self->first, 12 },
		{ variant->leaf, self->first + 24, 12 },
		{ variant->leaf, self->first + 48, 4 },
		{ variant->leaf, self->first + 72, 16 },
	};
	struct mkt_block twelve = { variant->leaf, self->first, 12, { 24 } };
	struct mkt_block four = { variant->leaf, self->first, 4, { 8 } };
	struct mkt_block shifted = { variant->leaf, self->first + 4, 64, { 128 } };
	const struct {
		struct mkt_layout layout;
		uint64_t addr;
		enum ibv_wc_status status;
	} tries[] = {
		{ mkt_layout_repeated(&twelve, 49), 8, access },
		{ mkt_layout_repeated(&twelve, 49), 24 * 7 + 8, access },
		{ mkt_layout_repeated(&twelve, 49), 12 * 49 - 4, access },
		{ mkt_layout_repeated(&twelve, 49), 12 * 49 + 4, access },
		{ mkt_layout_repeated(&four, 50), 8, access },
		{ { .num_blocks = 4, .block = ranges }, 8, access },
		{ { .num_blocks = 4, .block = ranges }, 24, access },
		{ mkt_layout_repeated(&shifted, 10), 8, odd },
		{ mkt_layout_repeated(&shifted, 10), 64 + 8, odd },
	};
	unsigned int i, o;

	for (i = 0; i < ARRAY_SIZE(tries); i++) {
		ASSERT_EQ(0, mkt_layout_bind(self->s.key[1], &self->s.arena[1], &tries[i].layout,
					     MKT_ACCESS_ALL));
		for (o = 0; o < ARRAY_SIZE(ops); o++)
			EXPECT_EQ(0, mkt_refused(&self->s, self->s.key[1]->rkey, ops[o],
						 tries[i].addr, 8, tries[i].status))
				TH_LOG("try %u", i);
	}
}

#define ATOMIC_WAYS 3
#define ATOMIC_BATCH 32

/*
 * Additions to one counter, by its MR, by a list and by a strided key, on
 * separate queue pairs and concurrently. Each value from the first to the last
 * is then the result of exactly one addition.
 */
TEST_F(atomic, no_update_is_lost)
{
	unsigned int n = mkt_scale(2048, 256) / ATOMIC_BATCH * ATOMIC_BATCH;
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[variant->leaf];
	struct mkt_leaf *direct = &self->s.arena[1].leaf[variant->direct];
	struct mkt_leaf *to = &self->s.arena[0].leaf[0];
	uint64_t start = mkt_rand(&self->s.rng), counter, round;
	struct ibv_mr *strided = ibmkey_alloc(self->s.dev[1].pd, 1);
	size_t at = leaf->at + self->first + 80;
	struct mkt_pair pair[ATOMIC_WAYS];
	bool *taken = calloc(ATOMIC_WAYS * n, sizeof(*taken));
	struct mkt_wr wr[ATOMIC_WAYS];
	unsigned int w, i;

	ASSERT_NE(NULL, taken);
	ASSERT_NE(NULL, strided);
	ASSERT_EQ(0, mkt_bind_strided(strided, MKT_ACCESS_ALL, leaf->mr, leaf->addr + self->first,
				      8, 16, 10));
	ASSERT_EQ(0, mkt_bind_range(self->s.key[1], MKT_ACCESS_ALL, leaf->mr,
				    leaf->addr + self->first + 64, 128));
	for (w = 0; w < ATOMIC_WAYS; w++) {
		ASSERT_EQ(0, mkt_pair_create(&pair[w], &self->s.dev[0],
					     &self->s.dev[1], IBV_MTU_1024,
					     0));
		memset(&wr[w], 0, sizeof(wr[w]));
		wr[w].op = MKT_FETCH_ADD;
		wr[w].num_sge = 1;
		wr[w].sge[0].length = 8;
		wr[w].sge[0].lkey = to->mr->lkey;
		wr[w].swap_add = 1;
	}
	wr[0].rkey = direct->mr->rkey;
	wr[0].remote_addr = direct->addr + (at - direct->at);
	wr[1].rkey = self->s.key[1]->rkey;
	wr[1].remote_addr = 16;
	wr[2].rkey = strided->rkey;
	wr[2].remote_addr = 5 * 8;

	counter = start;
	memcpy(self->s.arena[1].expect + at, &counter, 8);
	wr[2].op = MKT_ATOMIC_WRITE;
	wr[2].swap_add = start;
	wr[2].num_sge = 0;
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&pair[2], 0, &wr[2]));
	ASSERT_EQ(0, mkt_arena_check(&self->s.arena[1]));
	wr[2].op = MKT_FETCH_ADD;
	wr[2].swap_add = 1;
	wr[2].num_sge = 1;

	for (round = 0; round < n / ATOMIC_BATCH; round++) {
		uint64_t *results = (uint64_t *)(self->s.arena[0].mem[0].host +
						 4096);
		struct ibv_wc wc;

		for (i = 0; i < ATOMIC_BATCH; i++)
			for (w = 0; w < ATOMIC_WAYS; w++) {
				unsigned int k = i * ATOMIC_WAYS + w;

				wr[w].sge[0].addr = (uintptr_t)&results[k];
				ASSERT_EQ(0, mkt_post_send(&pair[w].end[0],
							   &wr[w], k));
			}
		for (i = 0; i < ATOMIC_BATCH; i++)
			for (w = 0; w < ATOMIC_WAYS; w++) {
				ASSERT_EQ(0, mkt_poll(&pair[w].end[0], &wc));
				ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
			}
		for (i = 0; i < ATOMIC_BATCH * ATOMIC_WAYS; i++) {
			ASSERT_GT(ATOMIC_WAYS * n, results[i] - start);
			ASSERT_FALSE(taken[results[i] - start]);
			taken[results[i] - start] = true;
		}
	}
	counter = start + (uint64_t)ATOMIC_WAYS * n;
	memcpy(self->s.arena[1].expect + at, &counter, 8);
	EXPECT_EQ(0, mkt_arena_check(&self->s.arena[1]));

	for (w = 0; w < ATOMIC_WAYS; w++)
		mkt_pair_destroy(&pair[w]);
	EXPECT_EQ(0, ibv_dereg_mr(strided));
	free(taken);
}

TEST_HARNESS_MAIN
