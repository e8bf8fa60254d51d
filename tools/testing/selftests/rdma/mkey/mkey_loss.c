// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A network that loses packets or changes their order: retransmitted requests and
 * repeated replies go through keys again, from the middle of a message on.
 * needs: netem
 * sets: first long
 */
#include <string.h>
#include <unistd.h>

#include "mkey_harness.h"

#define LOSS "loss 12%"

FIXTURE(loss)
{
	struct mkt_setup s;
	struct mkt_end key[2];
	struct mkt_netem netem[2];
};

FIXTURE_VARIANT(loss)
{
	enum mkt_kind kind;
	bool each_kind;		/* each message goes through keys of other kinds */
	unsigned int flags;
	const char *netem;
};

FIXTURE_VARIANT_ADD(loss, list) { .kind = MKT_LIST, .netem = LOSS };
FIXTURE_VARIANT_ADD(loss, strided) { .kind = MKT_STRIDED, .netem = LOSS };
FIXTURE_VARIANT_ADD(loss, general_srq) { .kind = MKT_GENERAL, .flags = MKT_QP_SRQ, .netem = LOSS };
FIXTURE_VARIANT_ADD(loss, reordered) { .each_kind = true, .netem = "delay 4ms reorder 40%" };

static int loss_bind(struct mkt_setup *s, struct mkt_end *end,
		     unsigned int side, enum mkt_kind kind)
{
	struct mkt_draw draw = {
		.min_length = 30 * 1024,
		.max_length = 40 * 1024,
		.max_block = 16 * 1024,
		.max_blocks = 32,
		.max_dims = s->dev[side].caps.max_dims,
	};

	return mkt_end_draw(end, s, side, kind, &draw, MKT_ACCESS_ALL);
}

FIXTURE_SETUP(loss)
{
	unsigned int i;

	MKT_SETUP(&self->s, .flags = MKT_QP_LOSSY | variant->flags, .host = 96 * 1024,
		  .dm = 48 * 1024, .max_entries = 32);
	MKT_NETEM(self->netem, self->s.dev);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, loss_bind(&self->s, &self->key[i], i,
				       variant->kind));
	}
	for (i = 0; i < 2; i++)
		if (!mkt_netem_set(&self->netem[i], variant->netem))
			SKIP(return, "no netem");
}

FIXTURE_TEARDOWN(loss)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		mkt_netem_close(&self->netem[i]);
		mkt_end_free(&self->key[i]);
	}
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* binds both keys to layouts of other kinds: each pair of kinds comes in turn */
static int loss_bind_others(FIXTURE_DATA(loss) *self, unsigned int round)
{
	const unsigned int kinds[] = {
		round % MKT_NUM_KINDS,
		(round + 1 + round / MKT_NUM_KINDS) % MKT_NUM_KINDS,
	};
	unsigned int i;
	int err = 0;

	for (i = 0; i < 2 && !err; i++) {
		mkt_end_free(&self->key[i]);
		err = loss_bind(&self->s, &self->key[i], i, kinds[i]);
	}
	return err;
}

/*
 * Runs transfers until @counter of side @counting, which only losses increment,
 * is high enough.
 */
static void loss_run(struct __test_metadata *_metadata,
		     FIXTURE_DATA(loss) *self, const FIXTURE_VARIANT(loss) *variant,
		     enum mkt_op op, unsigned int counting, const char *counter)
{
	unsigned int least = mkt_scale(8, 3), rounds = 0, least_rounds = least;
	struct mkt_setup *s = &self->s;
	unsigned long first = mkt_dev_counter(&s->dev[counting], counter), seen;

	if (variant->each_kind)
		least_rounds = mkt_scale(MKT_NUM_KINDS * MKT_NUM_KINDS, MKT_NUM_KINDS);
	do {
		struct mkt_xfer xfer = {
			.op = op,
			.end = { &self->key[0], &self->key[1] },
			.offset = { mkt_between(&s->rng, 0, 3000),
				    mkt_between(&s->rng, 0, 3000) },
			.length = mkt_between(&s->rng, 9000, 24000),
			.num_sge = 3,
		};

		if (variant->each_kind)
			ASSERT_EQ(0, loss_bind_others(self, rounds));
		ASSERT_EQ(0, mkt_arena_fill(&s->arena[mkt_xfer_source(&xfer)],
					    &s->rng));
		ASSERT_EQ(0, mkt_xfer(&s->pair, &xfer));
		seen = mkt_dev_counter(&s->dev[counting], counter) - first;
		rounds++;
	} while (rounds < 400 && (seen < least || rounds < least_rounds));
	TH_LOG("%u messages, %s counted %lu", rounds, counter, seen);
	EXPECT_LE(least, seen);
}

/* lost READ responses: the responder reads its memory again */
TEST_F(loss, read_replayed)
{
	loss_run(_metadata, self, variant, MKT_READ, 1, "duplicate_request");
}

TEST_F(loss, write)
{
	loss_run(_metadata, self, variant, MKT_WRITE, 1, "out_of_seq_request");
}

TEST_F(loss, write_imm)
{
	loss_run(_metadata, self, variant, MKT_WRITE_IMM, 1, "out_of_seq_request");
}

TEST_F(loss, send)
{
	loss_run(_metadata, self, variant, MKT_SEND, 1, "out_of_seq_request");
}

/*
 * Each atomic runs once, however often it is sent. ATOMIC_WRITE and FLUSH are
 * left out; stock_retry loses them with ordinary MRs.
 */
TEST_F(loss, atomic)
{
	struct mkt_setup *s = &self->s;
	struct mkt_block block = {
		.offset = -s->arena[1].leaf[0].at & 7,
		.bytes = 8,
		.stride = { 40 },
	};
	struct mkt_layout layout = mkt_layout_repeated(&block, 500);
	unsigned long first = mkt_dev_counter(&s->dev[1], "duplicate_request");
	unsigned int rounds = 0, least = mkt_scale(8, 3);
	unsigned long seen;

	if (variant->each_kind)
		SKIP(return, "one packet at a time has no other order");
	mkt_end_free(&self->key[1]);
	ASSERT_EQ(0, mkt_end_key(&self->key[1], s->key[1], &s->arena[1],
				 &layout, MKT_ACCESS_ALL));
	do {
		struct mkt_xfer xfer = {
			.op = rounds & 1 ? MKT_CMP_SWAP : MKT_FETCH_ADD,
			.end = { &self->key[0], &self->key[1] },
			.offset = { 0, 8 * mkt_between(&s->rng, 0, 499) },
			.length = 8,
			.num_sge = 1,
			.swap_add = mkt_rand(&s->rng),
		};

		/* a swap that ran twice would find the value that it stored */
		memcpy(&xfer.compare, s->arena[1].expect +
		       self->key[1].map.pos[xfer.offset[1]], 8);
		ASSERT_EQ(0, mkt_xfer(&s->pair, &xfer));
		seen = mkt_dev_counter(&s->dev[1], "duplicate_request") - first;
		rounds++;
	} while (rounds < 1000 && seen < least);
	TH_LOG("%u requests, %lu of them twice", rounds, seen);
	EXPECT_LE(least, seen);
}

#define CHAIN 40	/* requests in flight, each with bytes of its own at both ends */
#define SLOT 2048

/* the bytes of request @i at one end */
static uint8_t *loss_slot(struct mkt_setup *s, unsigned int side, unsigned int i)
{
	return (uint8_t *)s->arena[side].mem[0].host + i * SLOT;
}

/* the data of request @i are where they belong */
static bool loss_arrived(struct mkt_setup *s, const struct mkt_wr *wr, unsigned int i)
{
	uint8_t *here = loss_slot(s, 0, i), *there = loss_slot(s, 1, i);
	uint64_t found, now;

	memcpy(&found, here, sizeof(found));
	memcpy(&now, there, sizeof(now));
	switch (wr->op) {
	case MKT_FLUSH:
		return true;
	case MKT_ATOMIC_WRITE:
		return now == wr->swap_add;
	case MKT_FETCH_ADD:
		return found == i && now == i + wr->swap_add;
	default:
		return !memcmp(here, there, wr->sge[0].length);
	}
}

/*
 * Requests of several kinds in flight at once, more than the responder can answer twice. The
 * answers to a request that is sent again complete no other one, whose data may be lost. Each
 * request completes.
 */
TEST_F(loss, in_flight)
{
	static const enum mkt_op ops[] = {
		MKT_WRITE, MKT_READ, MKT_FETCH_ADD, MKT_SEND, MKT_ATOMIC_WRITE, MKT_FLUSH,
	};
	const unsigned int access = MKT_ACCESS_ALL | IBV_ACCESS_FLUSH_GLOBAL;
	unsigned int i, rounds, wrong = 0, number = mkt_scale(60, 15);
	struct mkt_setup *s = &self->s;
	struct ibv_mr *mr[2];
	struct ibv_wc wc;

	for (i = 0; i < 2; i++) {
		mr[i] = ibv_reg_mr(s->dev[i].pd, loss_slot(s, i, 0), CHAIN * SLOT, access);
		ASSERT_NE(NULL, mr[i]);
	}
	mkt_end_free(&self->key[1]);
	ASSERT_EQ(0, mkt_bind_range(s->key[1], access, mr[1], (uintptr_t)mr[1]->addr,
				    CHAIN * SLOT));
	for (rounds = 0; rounds < number; rounds++) {
		struct mkt_wr wr[CHAIN];
		unsigned int receives = 0;

		for (i = 0; i < CHAIN; i++) {
			struct ibv_sge there = { i * SLOT, SLOT, s->key[1]->lkey };
			uint64_t old = i;

			wr[i] = (struct mkt_wr) {
				.op = ops[mkt_between(&s->rng, 0, ARRAY_SIZE(ops) - 1)],
				.sge[0] = { (uintptr_t)loss_slot(s, 0, i), 8, mr[0]->lkey },
				.num_sge = 1,
				.remote_addr = i * SLOT,
				.rkey = s->key[1]->rkey,
				.swap_add = 1 + rounds,
				.flush_length = SLOT,
			};
			mkt_rand_bytes(&s->rng, loss_slot(s, 0, i), SLOT);
			mkt_rand_bytes(&s->rng, loss_slot(s, 1, i), SLOT);
			if (wr[i].op == MKT_FETCH_ADD)
				memcpy(loss_slot(s, 1, i), &old, sizeof(old));
			else if (wr[i].op != MKT_ATOMIC_WRITE && wr[i].op != MKT_FLUSH)
				wr[i].sge[0].length = mkt_between(&s->rng, 8, SLOT);
			if (wr[i].op != MKT_SEND)
				continue;
			ASSERT_EQ(0, mkt_post_recv(&s->pair.end[1], &there, 1, i));
			receives++;
		}
		for (i = 0; i < CHAIN; i++)
			ASSERT_EQ(0, mkt_post_send(&s->pair.end[0], &wr[i], i));
		for (i = 0; i < CHAIN; i++) {
			ASSERT_EQ(0, mkt_poll(&s->pair.end[0], &wc));
			ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
			ASSERT_EQ(i, wc.wr_id);
			wrong += !loss_arrived(s, &wr[i], i);
		}
		while (receives--) {
			ASSERT_EQ(0, mkt_poll(&s->pair.end[1], &wc));
			ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		}
	}
	TH_LOG("%u requests, %u without their data", rounds * CHAIN, wrong);
	EXPECT_EQ(0, wrong);
	ASSERT_EQ(0, ibmkey_unbind(s->key[1]));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, ibv_dereg_mr(mr[i]));
}

/*
 * a SEND without a receive is retransmitted until there is one, with or without
 * a key
 */
TEST_F(loss, receiver_not_ready)
{
	static const enum mkt_op ops[] = { MKT_SEND, MKT_WRITE_IMM };
	struct mkt_setup *s = &self->s;
	unsigned int o;

	for (o = 0; o < ARRAY_SIZE(ops); o++) {
		struct mkt_end *from = &self->key[0], *to = &self->key[1];
		struct mkt_wr wr = {
			.op = ops[o],
			.sge[0] = { from->addr + 100, 20000, from->mr->lkey },
			.num_sge = 1,
			.remote_addr = to->addr + 7,
			.rkey = to->mr->rkey,
		};
		struct ibv_sge sge = { to->addr + 7, 20000, to->mr->lkey };
		unsigned long first;
		struct ibv_wc wc;

		ASSERT_EQ(0, mkt_arena_fill(&s->arena[0], &s->rng));
		first = mkt_dev_counter(&s->dev[0], "rcvd_rnr_err");
		ASSERT_EQ(0, mkt_post_send(&s->pair.end[0], &wr, 1));
		EXPECT_TRUE(mkt_until(mkt_dev_counter(&s->dev[0], "rcvd_rnr_err") >= first + 2));
		ASSERT_EQ(0, mkt_post_recv(&s->pair.end[1], &sge,
					   ops[o] == MKT_SEND, 2));
		ASSERT_EQ(0, mkt_poll(&s->pair.end[0], &wc));
		EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
		ASSERT_EQ(0, mkt_poll(&s->pair.end[1], &wc));
		EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
		mkt_expect_copy(to, 7, from, 100, 20000);
		EXPECT_EQ(0, mkt_arena_check(&s->arena[1]));
	}
}

TEST_HARNESS_MAIN
