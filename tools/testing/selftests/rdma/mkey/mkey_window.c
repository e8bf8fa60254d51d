// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Memory windows over keys and invalidations of keys, which work as those of other
 * MRs. Also the access flags of a window and of its key, and binds of either while the
 * other one is in use.
 * sets: smp
 */
#include <string.h>

#include "loop.h"
#include "window.h"

/* the window is a part of the key */
#define AT 128
#define LENGTH 2048

/* binds the key to 300 pieces of 30 bytes */
static int window_strided(FIXTURE_DATA(window) *self, unsigned int leaf, struct mkt_end *end)
{
	struct mkt_block block = { .leaf = leaf, .offset = 5, .bytes = 30, .stride = { 70 } };
	struct mkt_layout layout = mkt_layout_repeated(&block, 300);

	return mkt_end_key(end, self->key, &self->s.arena[1], &layout, KEY_ACCESS);
}

/* bytes that are sent through the window arrive where the key puts them */
static int window_copy(struct mkt_setup *s, const struct mkt_end *key,
		       uint32_t rkey, enum mkt_op op, size_t offset)
{
	struct mkt_wr wr = mkt_plain_wr(s, 0, op, 3000, offset, rkey);
	const struct mkt_end *here = &s->plain[0];
	unsigned int i;
	int err;

	wr.sge[0].addr += 77;
	err = mkt_arena_fill(&s->arena[op == MKT_READ], &s->rng);
	if (err)
		return err;
	if (mkt_status(&s->pair, 0, &wr) != IBV_WC_SUCCESS)
		return EIO;
	for (i = 0; i < 3000; i++) {
		uint8_t *a = &s->arena[0].expect[here->map.pos[77 + i]];
		uint8_t *b = &s->arena[1].expect[key->map.pos[offset + i]];

		if (op == MKT_READ)
			*a = *b;
		else
			*b = *a;
	}
	err = mkt_arena_check(&s->arena[0]);
	return err ?: mkt_arena_check(&s->arena[1]);
}

static void window_use(struct __test_metadata *_metadata,
		       FIXTURE_DATA(window) *self, enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, type);
	const struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct mkt_end end;

	ASSERT_NE(NULL, mw);
	ASSERT_EQ(0, window_strided(self, 1, &end));
	ASSERT_EQ(0, window_bind(self, mw, self->key, 0, end.map.length, REMOTE));
	EXPECT_EQ(0, window_copy(&self->s, &end, mw->rkey, MKT_WRITE, 0));
	EXPECT_EQ(0, window_copy(&self->s, &end, mw->rkey, MKT_READ, 1234));
	/* a key with a window cannot be deregistered */
	EXPECT_EQ(EBUSY, ibv_dereg_mr(self->key));
	EXPECT_EQ(0, window_copy(&self->s, &end, mw->rkey, MKT_WRITE, 11));
	/* nor bound again: the window would give its access flags on other memory */
	EXPECT_EQ(EBUSY, ibmkey_unbind(self->key));
	EXPECT_EQ(EBUSY, mkt_bind_range(self->key, MKT_ACCESS_ALL, leaf->mr, leaf->addr, 1));
	/* nor invalidated */
	EXPECT_EQ(0, window_inv(&self->s.pair, MKT_LOCAL_INV, self->key->rkey));
	EXPECT_EQ(0, window_copy(&self->s, &end, self->key->rkey, MKT_WRITE, 0));
	EXPECT_EQ(0, window_copy(&self->s, &end, mw->rkey, MKT_READ, 5));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
	EXPECT_EQ(0, ibmkey_unbind(self->key));
	mkt_end_free(&end);
}

TEST_F(window, type_1)
{
	window_use(_metadata, self, IBV_MW_TYPE_1);
}

TEST_F(window, type_2)
{
	window_use(_metadata, self, IBV_MW_TYPE_2);
}

/* the access flags that a key must have for a window, and those that it need not have */
TEST_F(window, flags_of_the_key)
{
	static const struct {
		unsigned int key, window;
		int err;
		enum ibv_wc_status read, write;		/* through the window */
	} tries[] = {
		/* a bind gives the access flag for windows, or does not */
		{ MKT_ACCESS_ALL, REMOTE, EIO },
		/* a window gives a peer access that the key itself does not */
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, REMOTE, 0,
		  IBV_WC_SUCCESS, IBV_WC_SUCCESS },
		/* a window cannot write where the key itself cannot */
		{ IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND, REMOTE, EIO },
		{ IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_READ, 0,
		  IBV_WC_SUCCESS, IBV_WC_REM_ACCESS_ERR },
	};
	struct mkt_setup *s = &self->s;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(tries); i++) {
		ASSERT_EQ(0, window_bind_key(s, tries[i].key));
		EXPECT_EQ(tries[i].err, window_bind(self, self->mw, self->key, AT, LENGTH,
						    tries[i].window)) {
			TH_LOG("try %u", i);
		}
		if (tries[i].err)
			continue;
		EXPECT_EQ(tries[i].read, mkt_try(s, self->mw->rkey, MKT_READ, AT, LENGTH));
		EXPECT_EQ(tries[i].write, mkt_try(s, self->mw->rkey, MKT_WRITE, AT, LENGTH));
		if (!(tries[i].key & IBV_ACCESS_REMOTE_READ))
			EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
				  mkt_try(s, self->key->rkey, MKT_READ, AT, 1));
		EXPECT_EQ(1, window_inv(&s->pair, MKT_LOCAL_INV, self->mw->rkey));
	}
	/* nor can a window be bound to an unbound key */
	ASSERT_EQ(0, ibmkey_unbind(self->key));
	EXPECT_EQ(EIO, window_bind(self, self->mw, self->key, 0, 100, REMOTE));
}

/* an invalidated key is unbound: it reaches no memory and holds none */
static void window_invalidated(struct __test_metadata *_metadata, FIXTURE_DATA(window) *self,
			       enum mkt_op op)
{
	struct mkt_arena *arena = &self->s.arena[1];
	struct mkt_end end;

	ASSERT_EQ(0, window_strided(self, 1, &end));
	mkt_end_free(&end);
	EXPECT_EQ(1, window_inv(&self->s.pair, op, self->key->rkey));
	EXPECT_EQ(IBMKEY_UNBOUND, mkt_kind_of(self->key));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, self->key->rkey, MKT_WRITE, 0, 8));
	EXPECT_EQ(0, mkt_arena_check(arena));
	EXPECT_EQ(0, ibv_dereg_mr(arena->leaf[1].mr));
	arena->leaf[1] = arena->leaf[3];
	arena->num_leaves = 3;
	ASSERT_EQ(0, window_strided(self, 0, &end));
	EXPECT_EQ(0, window_copy(&self->s, &end, self->key->rkey, MKT_WRITE, 0));
	mkt_end_free(&end);
}

TEST_F(window, local_invalidate)
{
	window_invalidated(_metadata, self, MKT_LOCAL_INV);
}

TEST_F(window, remote_invalidate)
{
	window_invalidated(_metadata, self, MKT_SEND_INV);
}

/* a peer cannot invalidate a key without remote access flags, and needs only one of them */
TEST_F(window, flags_of_an_invalidation)
{
	static const struct {
		unsigned int access;
		enum mkt_op op;
		int done;
	} tries[] = {
		{ IBV_ACCESS_LOCAL_WRITE, MKT_SEND_INV, 0 },
		{ IBV_ACCESS_LOCAL_WRITE, MKT_LOCAL_INV, 1 },
		{ IBV_ACCESS_REMOTE_READ, MKT_SEND_INV, 1 },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(tries); i++) {
		ASSERT_EQ(0, window_bind_key(&self->s, tries[i].access));
		EXPECT_EQ(tries[i].done,
			  window_inv(&self->s.pair, tries[i].op, self->key->rkey));
		EXPECT_EQ(tries[i].done ? IBMKEY_UNBOUND : IBMKEY_LIST, mkt_kind_of(self->key));
	}
}

/* what a LOCAL_INV does not invalidate, beside a key with a window */
TEST_F(window, invalidate_refused)
{
	struct ibv_mr *leaf, *key = ibmkey_alloc(self->other.pd, 1);
	struct mkt_arena *arena = &self->s.arena[1];
	uint32_t rkey[] = {
		[1] = self->key->rkey ^ 3,		/* the wrong key portion */
		[2] = self->s.plain[1].mr->rkey,	/* an ordinary MR */
		[3] = arena->leaf[2].mr->rkey,		/* an MR of device memory */
	};
	unsigned int i;

	ASSERT_NE(NULL, key);
	leaf = ibv_reg_mr(self->other.pd, arena->mem[0].host, ZONE, 0);
	ASSERT_NE(NULL, leaf);
	ASSERT_EQ(0, mkt_bind_range(key, 0, leaf, (uintptr_t)leaf->addr, 10));
	/* of another PD */
	rkey[0] = key->rkey;
	for (i = 0; i < ARRAY_SIZE(rkey); i++) {
		EXPECT_EQ(0, window_inv(&self->s.pair, MKT_LOCAL_INV, rkey[i])) {
			TH_LOG("rkey %u", i);
		}
	}
	EXPECT_EQ(IBMKEY_LIST, mkt_kind_of(key));
	EXPECT_EQ(IBMKEY_LIST, mkt_kind_of(self->key));
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_dereg_mr(leaf));
}

/*
 * A buffer of device memory has an MR that no program knows. Its key precedes
 * that of the first registered MR. No process can invalidate it by guessing the
 * rest.
 */
TEST_F(window, hidden_region)
{
	struct ibv_dm *dm = mkt_dm_alloc(&self->s.dev[1], 64, 0, 0);
	unsigned int portion, bad = 0;
	uint64_t counter = 0;
	struct ibv_mr *mr;

	ASSERT_NE(NULL, dm);
	mr = ibv_reg_dm_mr(self->s.dev[1].pd, dm, 0, 64,
			   MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	ASSERT_NE(NULL, mr);
	for (portion = 0; portion < 256; portion++)
		bad += !!window_inv(&self->s.pair, MKT_LOCAL_INV,
				    ((mr->rkey >> 8) - 1) << 8 | portion);
	EXPECT_EQ(0, bad);
	/* adds 3 */
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, mr->rkey, MKT_FETCH_ADD, 0, 8));
	EXPECT_EQ(0, ibv_memcpy_from_dm(&counter, dm, 0, sizeof(counter)));
	EXPECT_EQ(3, counter);
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_EQ(0, ibv_free_dm(dm));
}

/* remote flush is an access flag like the others */
TEST_F(window, flush)
{
	struct mkt_arena *arena = &self->s.arena[1];
	const unsigned int flush = MKT_ACCESS_ALL | IBV_ACCESS_FLUSH_GLOBAL;
	struct mkt_block block = {
		.leaf = arena->num_leaves,
		.offset = 5,
		.bytes = 30,
		.stride = { 70 },
	};
	struct mkt_layout layout = mkt_layout_repeated(&block, 100);
	struct mkt_wr wr = {
		.op = MKT_FLUSH,
		.remote_addr = 100,
		.flush_length = 2000,
		.rkey = self->key->rkey,
	};

	/* and the leaf must have this flag */
	EXPECT_EQ(EACCES, window_bind_key(&self->s, flush));
	EXPECT_EQ(0, mkt_arena_add_leaf(arena, 0, 4096, 40000, flush, 0));
	ASSERT_EQ(0, mkt_layout_bind(self->key, arena, &layout, flush));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	wr.flush_length = 2901;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_status(&self->s.pair, 0, &wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	ASSERT_EQ(0, mkt_layout_bind(self->key, arena, &layout, MKT_ACCESS_ALL));
	wr.flush_length = 2000;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_status(&self->s.pair, 0, &wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(0, mkt_arena_check(arena));
}

/* two zones of memory of side 1, which differ in their bytes, as one MR */
static struct ibv_mr *window_zones(struct mkt_setup *s)
{
	uint8_t *host = s->arena[1].mem[0].host;

	memset(host, 0xa0, ZONE);
	memset(host + ZONE, 0xa1, ZONE);
	return ibv_reg_mr(s->dev[1].pd, host, 2 * ZONE, KEY_ACCESS);
}

/* binds the key of side 1 to a zone */
static int window_bind_zone(struct mkt_setup *s, struct ibv_mr *zones, unsigned int zone)
{
	return mkt_bind_range(s->key[1], KEY_ACCESS, zones,
			      (uintptr_t)zones->addr + zone * ZONE, ZONE);
}

struct window_rebind {
	struct mkt_setup *s;
	struct ibv_mr *zones;
	unsigned int busy;
};

static int window_rebind(void *arg, unsigned int round)
{
	struct window_rebind *rebind = arg;
	int err = window_bind_zone(rebind->s, rebind->zones, ~round & 1);

	if (err != EBUSY)
		return err;
	rebind->busy++;
	return 0;
}

static int window_peek(struct mkt_setup *s, uint32_t rkey)
{
	const uint8_t *here = (uint8_t *)(uintptr_t)s->plain[0].addr;

	return mkt_touch(s, rkey, MKT_READ, 0, 1) == IBV_WC_SUCCESS ? *here : -1;
}

/* while a window is bound, the binding of its key does not change */
TEST_F(window, against_rebind)
{
	struct mkt_setup *s = &self->s;
	struct window_rebind rebind = { .s = s, .zones = window_zones(s) };
	unsigned int i, j, rounds = mkt_scale(1000, 150), bad = 0, seen[2] = {};
	struct mkt_loop loop = {};

	ASSERT_NE(NULL, rebind.zones);
	ASSERT_EQ(0, window_bind_zone(s, rebind.zones, 0));
	ASSERT_EQ(0, mkt_loop_start(&loop, window_rebind, &rebind));
	for (i = 0; i < rounds || ((!seen[0] || !seen[1]) && i < 100000); i++) {
		struct ibv_mw *mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_2);
		int first;

		ASSERT_NE(NULL, mw);
		ASSERT_EQ(0, mkt_bind_window(self->owner, mw, self->key, 0, ZONE, REMOTE));
		first = window_peek(s, mw->rkey);
		ASSERT_EQ(0xa0, first & 0xfe);
		seen[first & 1]++;
		for (j = 0; j < 3; j++)
			bad += window_peek(s, mw->rkey) != first;
		ASSERT_EQ(0, ibv_dealloc_mw(mw));
	}
	EXPECT_EQ(0, mkt_loop_end(&loop));
	TH_LOG("%u windows, %u rebinds, %u of them refused", i, loop.rounds, rebind.busy);
	EXPECT_EQ(0, bad);
	EXPECT_LT(0, rebind.busy);
	EXPECT_EQ(0, ibmkey_unbind(self->key));
	EXPECT_EQ(0, ibv_dereg_mr(rebind.zones));
}

/* binds a window, of type 1, to @mr again and again, and lets it keep its rkey */
struct window_binder {
	struct mkt_qp *qp;
	struct ibv_mw mw;
	struct ibv_mr *mr;
	uint64_t addr;
	pthread_t tid;
	int err;
};

static void *window_bind_loop(void *arg)
{
	struct window_binder *binder = arg;
	struct ibv_send_wr *bad, wr = mkt_window_wr(&binder->mw, binder->mr, binder->addr, ZONE,
						    REMOTE);
	struct ibv_wc wc = {};
	unsigned int i;

	/* the library lets only windows of type 2 be posted */
	binder->mw.type = IBV_MW_TYPE_2;
	for (i = 0; i < 50 && !binder->err; i++)
		binder->err = ibv_post_send(binder->qp->qp, &wr, &bad) ?:
			      mkt_poll(binder->qp, &wc) ?: (int)wc.status;
	return NULL;
}

/*
 * Two QPs bind one window at the same time, to a key and to an ordinary MR. If the window is bound
 * to the MR in the end, the key can be unbound.
 */
TEST_F(window, of_two_queues)
{
	struct mkt_setup *s = &self->s;
	unsigned int i, j, free = 0, rounds = mkt_scale(200, 30);
	struct ibv_mr *mr = window_zones(s);
	struct ibv_mw *mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_1);
	uint64_t addr;

	ASSERT_NE(NULL, mr);
	ASSERT_NE(NULL, mw);
	addr = (uintptr_t)mr->addr;
	for (i = 0; i < rounds; i++) {
		struct window_binder binder[2] = {
			{ .qp = self->owner, .mw = *mw, .mr = self->key },
			{ .qp = &self->second.end[1], .mw = *mw, .mr = mr, .addr = addr },
		};
		bool plain;

		ASSERT_EQ(0, window_bind_zone(s, mr, 1));
		for (j = 0; j < 2; j++)
			ASSERT_EQ(0, pthread_create(&binder[j].tid, NULL, window_bind_loop,
						    &binder[j]));
		for (j = 0; j < 2; j++) {
			pthread_join(binder[j].tid, NULL);
			ASSERT_EQ(0, binder[j].err);
		}
		plain = mkt_touch(s, mw->rkey, MKT_READ, addr, 1) == IBV_WC_SUCCESS;
		if (plain) {
			/* the window is over the ordinary MR */
			ASSERT_EQ(0, ibmkey_unbind(self->key));
			free++;
		} else {
			ASSERT_EQ(0, mkt_pair_recover(&s->pair));
			ASSERT_EQ(0xa1, window_peek(s, mw->rkey));
			ASSERT_EQ(EBUSY, ibmkey_unbind(self->key));
			ASSERT_EQ(0, mkt_bind_window(&self->second.end[1], mw, mr, addr, ZONE,
						     REMOTE));
			ASSERT_EQ(0, ibmkey_unbind(self->key));
		}
	}
	TH_LOG("the ordinary MR was last %u times of %u", free, rounds);
	ASSERT_EQ(0, ibv_dealloc_mw(mw));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
}

TEST_HARNESS_MAIN
