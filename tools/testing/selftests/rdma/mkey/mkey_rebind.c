// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Keys that are bound again, unbound and destroyed while they are in use. One packet
 * sees one layout. After unbinding returns, no access sees the old one.
 * sets: smp
 */
#include <pthread.h>
#include <stdatomic.h>

#include "mkey_harness.h"

#define BLOCK 16
#define STRIDE 48
#define ZONE (64 * 1024)

FIXTURE(rebind)
{
	struct mkt_setup s;
};

FIXTURE_VARIANT(rebind)
{
	/* the leaf is ODP memory */
	bool on_demand;
};

FIXTURE_VARIANT_ADD(rebind, pinned) { .on_demand = false };
FIXTURE_VARIANT_ADD(rebind, odp) { .on_demand = true };

/* replaces leaf 0 by an ODP MR over the same memory */
static int rebind_on_demand(struct mkt_arena *arena)
{
	struct mkt_leaf *leaf = &arena->leaf[0];
	struct ibv_mr *mr;
	int err;

	mr = ibv_reg_mr(arena->dev->pd, (void *)(uintptr_t)leaf->addr,
			leaf->length, MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	if (!mr)
		return errno;
	err = ibv_dereg_mr(leaf->mr);
	leaf->mr = mr;
	return err;
}

FIXTURE_SETUP(rebind)
{
	MKT_SETUP(&self->s, .host = 4 * ZONE, .max_entries = 600);
	if (variant->on_demand && rebind_on_demand(&self->s.arena[1]))
		SKIP(return, "%s has no memory on demand", self->s.dev[1].name);
}

FIXTURE_TEARDOWN(rebind)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* two layouts of equal length that have no byte in common */
static int rebind_with(struct mkt_setup *s, unsigned int which, int access)
{
	struct mkt_leaf *leaf = &s->arena[1].leaf[0];
	struct ibmkey_block block = {
		.addr = leaf->addr,
		.bytes_count = BLOCK,
		.lkey = leaf->mr->lkey,
		.stride = { STRIDE },
	};
	const uint64_t repeat = 512;
	struct ibv_sge sge[512];
	unsigned int i;

	if (!which)
		return ibv_rereg_mr_interleaved(s->key[1], access, 1, &repeat, 1,
						&block);
	for (i = 0; i < 512; i++) {
		sge[i].addr = leaf->addr + ZONE + i * STRIDE;
		sge[i].length = BLOCK;
		sge[i].lkey = leaf->mr->lkey;
	}
	return ibv_rereg_mr_sg(s->key[1], access, 512, sge);
}

static int rebind_to(struct mkt_setup *s, unsigned int which)
{
	return rebind_with(s, which, MKT_ACCESS_ALL);
}

struct rebind_thread {
	struct mkt_setup *s;
	pthread_t tid;
	atomic_bool stop;
	unsigned int count;
	int err;
};

static void *rebind_loop(void *arg)
{
	struct rebind_thread *thread = arg;

	while (!thread->err && !atomic_load(&thread->stop))
		thread->err = rebind_to(thread->s, ++thread->count & 1);
	return NULL;
}

/* binds to zone 0, then runs @loop in a thread until rebind_end() */
static int rebind_start(struct rebind_thread *thread, void *(*loop)(void *))
{
	int err = rebind_to(thread->s, 0);

	return err ?: pthread_create(&thread->tid, NULL, loop, thread);
}

static int rebind_end(struct rebind_thread *thread)
{
	atomic_store(&thread->stop, true);
	pthread_join(thread->tid, NULL);
	return thread->err;
}

/* a request for all of the key, between it and the plain memory of side 0 */
static struct mkt_wr rebind_wr(struct mkt_setup *s, enum mkt_op op)
{
	return (struct mkt_wr){
		.op = op,
		.sge[0] = {
			.addr = s->plain[0].addr,
			.length = 8192,
			.lkey = s->plain[0].mr->lkey,
		},
		.num_sge = 1,
		.rkey = s->key[1]->rkey,
	};
}

static uint8_t *rebind_zone(struct mkt_setup *s, unsigned int which)
{
	return (uint8_t *)(uintptr_t)s->arena[1].leaf[0].addr + which * ZONE;
}

/* each READ response packet comes from one zone */
TEST_F(rebind, read)
{
	struct rebind_thread thread = { .s = &self->s };
	unsigned int i, j, rounds = mkt_scale(400, 60), seen[2] = {};
	uint8_t *to = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
	struct mkt_wr wr = rebind_wr(&self->s, MKT_READ);

	memset(rebind_zone(&self->s, 0), 0xa0, ZONE);
	memset(rebind_zone(&self->s, 1), 0xa1, ZONE);
	ASSERT_EQ(0, rebind_start(&thread, rebind_loop));
	/* enough rounds to see both zones, however they interleave */
	for (i = 0; i < rounds || ((!seen[0] || !seen[1]) && i < 100000);
	     i++) {
		int status;

		memset(to, 0, 8192);
		status = mkt_status(&self->s.pair, 0, &wr);
		ASSERT_EQ(IBV_WC_SUCCESS, status);
		for (j = 0; j < 8192; j++) {
			ASSERT_EQ(0xa0, to[j] & 0xfe);
			ASSERT_EQ(to[j & ~1023], to[j])
			{
				TH_LOG("a packet of two layouts at %u", j);
			}
			seen[to[j] & 1]++;
		}
	}
	ASSERT_EQ(0, rebind_end(&thread));
	TH_LOG("%u reads during %u binds", i, thread.count);
	EXPECT_LT(0, seen[0]);
	EXPECT_LT(0, seen[1]);
}

/* true if the packet's blocks from @block on all contain @value */
static bool rebind_packet_is(const uint8_t *zone, unsigned int packet,
			     uint8_t value)
{
	unsigned int b, i;

	for (b = packet * 64; b < (packet + 1) * 64; b++)
		for (i = 0; i < BLOCK; i++)
			if (zone[b * STRIDE + i] != value)
				return false;
	return true;
}

/* each packet of a WRITE goes completely to one zone */
TEST_F(rebind, write)
{
	struct rebind_thread thread = { .s = &self->s };
	unsigned int i, p, k, rounds = mkt_scale(400, 60), seen[2] = {};
	uint8_t *from = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
	struct mkt_wr wr = rebind_wr(&self->s, MKT_WRITE);

	memset(rebind_zone(&self->s, 0), 0, 2 * ZONE);
	ASSERT_EQ(0, rebind_start(&thread, rebind_loop));
	for (i = 0; i < rounds || ((!seen[0] || !seen[1]) && i < 100000);
	     i++) {
		uint8_t value = 1 + i % 255;

		memset(from, value, 8192);
		ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
		for (p = 0; p < 8; p++) {
			bool here = rebind_packet_is(rebind_zone(&self->s, 0),
						     p, value);
			bool there = rebind_packet_is(rebind_zone(&self->s, 1),
						      p, value);

			ASSERT_TRUE(here != there);
			seen[there]++;
		}
		/* the bytes between the blocks are never written */
		for (k = BLOCK; k < 511 * STRIDE; k++)
			if (k % STRIDE >= BLOCK) {
				ASSERT_EQ(0, rebind_zone(&self->s, 0)[k] |
					  rebind_zone(&self->s, 1)[k]);
			}
		memset(rebind_zone(&self->s, 0), 0, 512 * STRIDE);
		memset(rebind_zone(&self->s, 1), 0, 512 * STRIDE);
	}
	ASSERT_EQ(0, rebind_end(&thread));
	TH_LOG("%u writes during %u binds", i, thread.count);
	EXPECT_LT(0, seen[0]);
	EXPECT_LT(0, seen[1]);
}

/* binds to zone 0 with write access and to zone 1 without */
static void *rebind_read_only_loop(void *arg)
{
	struct rebind_thread *thread = arg;
	unsigned int which;

	while (!thread->err && !atomic_load(&thread->stop)) {
		which = ++thread->count & 1;
		thread->err = rebind_with(thread->s, which,
					  which ? IBV_ACCESS_REMOTE_READ :
						  MKT_ACCESS_ALL);
	}
	return NULL;
}

/*
 * Access flags belong to the layout: a message that began while the key was
 * writable does not continue in a zone that is read-only.
 */
TEST_F(rebind, read_only)
{
	struct rebind_thread thread = { .s = &self->s };
	unsigned int i, k, rounds = mkt_scale(300, 40), stopped = 0;
	struct mkt_wr wr = rebind_wr(&self->s, MKT_WRITE);
	uint8_t *zone = rebind_zone(&self->s, 1);

	memset(zone, 0xa1, 512 * STRIDE);
	memset((void *)(uintptr_t)self->s.plain[0].addr, 0x11, 8192);
	ASSERT_EQ(0, rebind_start(&thread, rebind_read_only_loop));
	for (i = 0; i < rounds || (!stopped && i < 100000); i++) {
		if (mkt_status(&self->s.pair, 0, &wr) != IBV_WC_SUCCESS) {
			stopped++;
			ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
		}
		for (k = 0; k < 512 * STRIDE; k++) {
			ASSERT_EQ(0xa1, zone[k]);
		}
	}
	ASSERT_EQ(0, rebind_end(&thread));
	TH_LOG("%u of %u writes stopped by %u binds", stopped, i, thread.count);
	EXPECT_LT(0, stopped);
}

/* completions of the last @posted requests: returns how many failed, or -1 */
static int rebind_drain(struct mkt_setup *s, unsigned int posted)
{
	struct ibv_wc wc;
	unsigned int i;
	int failed = 0;

	for (i = 0; i < posted; i++) {
		if (mkt_poll(&s->pair.end[0], &wc))
			return -1;
		if (wc.status == IBV_WC_SUCCESS)
			continue;
		/* the other requests are flushed */
		if (!failed++ && wc.status != IBV_WC_REM_ACCESS_ERR) {
			mkt_diag("failed with \"%s\"",
				 ibv_wc_status_str(wc.status));
			return -1;
		}
	}
	return failed;
}

/*
 * After an unbind, a destroy or another bind returns, the memory of the old
 * layout does not change any more, whatever is in progress. Every request
 * writes another value, so that a late one is found.
 */
static void rebind_stop(struct __test_metadata *_metadata, struct mkt_setup *s,
			int (*stop)(struct mkt_setup *s), bool fails)
{
	unsigned int i, r, posted = 40, rounds = mkt_scale(30, 6);
	uint8_t *from = (uint8_t *)(uintptr_t)s->plain[0].addr;
	unsigned int stopped = 0;
	uint8_t *after = malloc(512 * STRIDE);
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0].length = 8192,
		.sge[0].lkey = s->plain[0].mr->lkey,
		.num_sge = 1,
	};
	int failed;

	ASSERT_NE(NULL, after);
	mkt_rand_bytes(&s->rng, from, 8 * 8192);
	for (r = 0; r < rounds || (fails && !stopped && r < 1000); r++) {
		struct ibv_wc wc;

		ASSERT_EQ(0, rebind_to(s, 0));
		wr.rkey = s->key[1]->rkey;
		for (i = 0; i < posted; i++) {
			wr.sge[0].addr = (uintptr_t)from + i % 8 * 8192;
			ASSERT_EQ(0, mkt_post_send(&s->pair.end[0], &wr, i));
		}
		/* while requests are in progress */
		for (i = 0; i < 1 + r % 5; i++) {
			ASSERT_EQ(0, mkt_poll(&s->pair.end[0], &wc));
		}
		ASSERT_EQ(0, stop(s));
		memcpy(after, rebind_zone(s, 0), 512 * STRIDE);
		failed = rebind_drain(s, posted - i);
		ASSERT_LE(0, failed);
		stopped += failed;
		ASSERT_EQ(0, memcmp(after, rebind_zone(s, 0), 512 * STRIDE));
		ASSERT_EQ(0, mkt_pair_recover(&s->pair));
	}
	TH_LOG("%u requests stopped in %u rounds", stopped, r);
	EXPECT_EQ(fails, stopped > 0);
	free(after);
}

static int stop_by_unbind(struct mkt_setup *s)
{
	return ibmkey_unbind(s->key[1]);
}

static int stop_by_bind(struct mkt_setup *s)
{
	return rebind_to(s, 1);
}

static int stop_by_destroy(struct mkt_setup *s)
{
	int err = ibv_dereg_mr(s->key[1]);

	s->key[1] = err ? NULL : ibmkey_alloc(s->dev[1].pd, 600);
	return err ?: !s->key[1];
}

TEST_F(rebind, unbind_stops)
{
	rebind_stop(_metadata, &self->s, stop_by_unbind, true);
}

TEST_F(rebind, bind_stops)
{
	rebind_stop(_metadata, &self->s, stop_by_bind, false);
}

TEST_F(rebind, destroy_stops)
{
	rebind_stop(_metadata, &self->s, stop_by_destroy, true);
}

TEST_HARNESS_MAIN
