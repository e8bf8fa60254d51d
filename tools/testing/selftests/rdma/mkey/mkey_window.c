// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Memory windows over keys and invalidations of keys, which work as those of other
 * MRs. Also the access flags of a window and of its key, and binds of either while the
 * other one is in use. Windows that a queue pair must not use: those of another PD or queue pair,
 * unbound ones, and those whose queue pair has been destroyed. Destruction ends the bindings of
 * windows of type 2, as if each had been invalidated; a reset does not. The test of the kernel's
 * log afterwards finds a destruction that waited in vain.
 * sets: smp
 */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"
#include "mkey_harness.h"
#include "replay.h"

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define KEY_ACCESS (MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND)
#define ZONE 4096	/* the length of the key */
#define MANY 20		/* windows of a queue pair */

static const struct mkt_wants window_wants = {
	.mtu = IBV_MTU_1024,
	.host = 64 * 1024,
	.dm = 8 * 1024,
	.max_entries = 4,
};

FIXTURE(window)
{
	struct mkt_setup s;
	struct ibv_mr *key;	/* of side 1, bound */
	struct ibv_mw *mw;	/* of type 2, unbound */
	struct mkt_qp *owner;	/* of side 1 */
	struct mkt_pair second;	/* in the same PDs */
	struct mkt_dev other;	/* device 1 with another PD */
	struct mkt_pair foreign;	/* side 1 is in that PD */
};

/* binds the key of side 1 over bytes that are aligned in memory, for atomics */
static int window_bind_key(struct mkt_setup *s, unsigned int access)
{
	struct mkt_block block = { .offset = -s->plain[1].addr & 7, .bytes = ZONE };
	struct mkt_layout layout = { .num_blocks = 1, .block = &block };

	return mkt_layout_bind(s->key[1], &s->arena[1], &layout, access);
}

FIXTURE_SETUP(window)
{
	struct mkt_setup *s = &self->s;

	MKT_OPEN_EXTENDED(s->dev);
	ASSERT_EQ(0, mkt_setup(s, &window_wants, _metadata->name));
	ASSERT_EQ(0, window_bind_key(s, KEY_ACCESS));
	self->key = s->key[1];
	self->owner = &s->pair.end[1];
	self->mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, self->mw);
	ASSERT_EQ(0, mkt_pair_create(&self->second, &s->dev[0], &s->dev[1], IBV_MTU_1024, 0));
	self->other = s->dev[1];
	self->other.pd = ibv_alloc_pd(self->other.ctx);
	ASSERT_NE(NULL, self->other.pd);
	ASSERT_EQ(0, mkt_pair_create(&self->foreign, &s->dev[0], &self->other, IBV_MTU_1024, 0));
}

FIXTURE_TEARDOWN(window)
{
	if (self->mw)
		EXPECT_EQ(0, ibv_dealloc_mw(self->mw));
	mkt_pair_destroy(&self->second);
	mkt_pair_destroy(&self->foreign);
	if (self->other.pd)
		EXPECT_EQ(0, ibv_dealloc_pd(self->other.pd));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* binds a window to a part of the key, or tries to; the queue pair can be used afterwards */
static int window_bind(FIXTURE_DATA(window) *self, struct ibv_mw *mw, struct ibv_mr *mr,
		       uint64_t addr, uint64_t length, unsigned int access)
{
	int err = mkt_bind_window(self->owner, mw, mr, addr, length, access);

	return err && mkt_pair_recover(&self->s.pair) ? -1 : err;
}

/* reads through the window */
static int window_read(FIXTURE_DATA(window) *self, struct ibv_mw *mw, uint32_t length)
{
	return mkt_try(&self->s, mw->rkey, MKT_READ, 0, length);
}

/*
 * Invalidates @rkey by a LOCAL_INV of side 1 or by a SEND_WITH_INV of its peer. Returns 1 if that
 * succeeds, 0 if it is refused, and -1 after another error.
 */
static int window_inv(struct mkt_pair *pair, enum mkt_op op, uint32_t rkey)
{
	struct mkt_wr wr = { .op = op, .rkey = rkey }, recv = {};
	bool by_peer = op == MKT_SEND_INV;
	struct mkt_result result;
	int done = -1;

	if (!mkt_exec(pair, by_peer ? 0 : 1, &wr, by_peer ? &recv : NULL, &result)) {
		done = result.status == IBV_WC_SUCCESS;
		/* rxe may acknowledge the SEND before it refuses the invalidation */
		if (by_peer && result.received && result.recv_status != IBV_WC_SUCCESS)
			done = 0;
	}
	return mkt_pair_recover(pair) ? -1 : done;
}

#define SHOWN "/sys/kernel/debug/ib_mkey"

/* the lines of debugfs with a window of @length bytes over the key: two while it is bound */
static int window_shown(const FIXTURE_DATA(window) *self, uint32_t rkey, uint32_t length)
{
	char line[32];

	if (!mkt_command(line, sizeof(line),
			 "cd %s; cat regions leaves | grep -cE '%s 0x%08x window (%u .* %d |0x%08x$)' || :",
			 SHOWN, self->s.dev[1].name, rkey, length, getpid(), self->key->lkey))
		return -1;
	return atoi(line);
}

/* the window is a part of the key */
#define AT 128
#define LENGTH 2048

/* a key with a window can be used, but not changed; mkey_matrix moves bytes through windows */
static void window_use(struct __test_metadata *_metadata,
		       FIXTURE_DATA(window) *self, enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, type);
	const struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	uint32_t rkey;

	ASSERT_NE(NULL, mw);
	ASSERT_EQ(0, window_bind(self, mw, self->key, 0, ZONE, REMOTE));
	rkey = mw->rkey;
	if (!access(SHOWN, R_OK))
		EXPECT_EQ(2, window_shown(self, rkey, ZONE));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(self->key));
	EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, mw, ZONE));
	/* the window would give its access flags on other memory */
	EXPECT_EQ(EBUSY, ibmkey_unbind(self->key));
	EXPECT_EQ(EBUSY, mkt_bind_range(self->key, MKT_ACCESS_ALL, leaf->mr, leaf->addr, 1));
	EXPECT_EQ(0, window_inv(&self->s.pair, MKT_LOCAL_INV, self->key->rkey));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, self->key->rkey, MKT_WRITE, 0, ZONE));
	EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, mw, ZONE));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
	if (!access(SHOWN, R_OK))
		EXPECT_EQ(0, window_shown(self, rkey, ZONE));
	EXPECT_EQ(0, ibmkey_unbind(self->key));
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

/* the number of ways in which a window is invalidated or seems to be */
static unsigned int foreign_inv(struct mkt_pair *pair, uint32_t rkey)
{
	return !!window_inv(pair, MKT_LOCAL_INV, rkey) + !!window_inv(pair, MKT_SEND_INV, rkey);
}

/* an unbound window cannot be invalidated */
TEST_F(window, invalidate_unbound)
{
	EXPECT_EQ(0, foreign_inv(&self->s.pair, self->mw->rkey));
	ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
	EXPECT_EQ(1, window_inv(&self->s.pair, MKT_LOCAL_INV, self->mw->rkey));
	EXPECT_EQ(0, foreign_inv(&self->s.pair, self->mw->rkey));
}

/* a QP or its peer cannot invalidate the window of another QP */
TEST_F(window, invalidate)
{
	ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
	EXPECT_EQ(0, foreign_inv(&self->foreign, self->mw->rkey));
	EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, self->mw, ZONE));
}

/* nor bind it: otherwise the owner's peer would reach the memory of others */
TEST_F(window, bind_foreign)
{
	struct ibv_mw *mw = ibv_alloc_mw(self->other.pd, IBV_MW_TYPE_1);
	const struct mkt_end *plain = &self->s.plain[1];
	struct ibv_mw named;

	ASSERT_NE(NULL, mw);
	/* the library refuses foreign windows, and windows of type 1 here */
	named = *mw;
	named.pd = self->s.dev[1].pd;
	named.type = IBV_MW_TYPE_2;
	EXPECT_EQ(EIO, window_bind(self, &named, self->key, 0, ZONE, REMOTE));
	EXPECT_EQ(EIO, window_bind(self, &named, plain->mr, plain->addr, 1, 0));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
}

/* nor can a window be bound to an MR or a key of another PD, whose lkey can be guessed */
TEST_F(window, bind_to_foreign)
{
	struct ibv_mr *key = ibmkey_alloc(self->other.pd, 1);
	struct ibv_mr *mr = ibv_reg_mr(self->other.pd, self->s.arena[1].mem[0].host, ZONE,
				       KEY_ACCESS);
	uint64_t addr;

	ASSERT_NE(NULL, key);
	ASSERT_NE(NULL, mr);
	addr = (uintptr_t)mr->addr;
	ASSERT_EQ(0, mkt_bind_range(key, KEY_ACCESS, mr, addr, ZONE));
	EXPECT_EQ(EIO, window_bind(self, self->mw, mr, addr, ZONE, REMOTE));
	EXPECT_EQ(EIO, window_bind(self, self->mw, key, 0, ZONE, REMOTE));
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
}

/*
 * a READ of a window's first peer is sent again when another peer has the
 * window
 */
TEST_F(window, replay)
{
	struct mkt_setup *s = &self->s;
	uint8_t *host = s->arena[1].mem[0].host;
	struct ibv_send_wr *bad, bind;
	struct mkt_replay replay;
	struct ibv_wc wc;
	uint32_t rkey;

	memset(host, 0x11, 2 * ZONE);
	ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
	rkey = self->mw->rkey;
	ASSERT_EQ(0, mkt_replay_open(&replay, &s->dev[0]));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(s, rkey, MKT_READ, 0, 256));
	ASSERT_EQ(0, mkt_replay_find(&replay, MKT_BTH_READ_REQUEST));
	ASSERT_EQ(0, window_inv(&self->second, MKT_LOCAL_INV, rkey));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&s->pair, 1, &(struct mkt_wr) {
		.op = MKT_LOCAL_INV,
		.rkey = rkey,
	}));
	memset(host, 0x5c, 2 * ZONE);
	/* under the same rkey */
	bind = mkt_window_wr(self->mw, self->key, 0, ZONE, REMOTE);
	ASSERT_EQ(0, ibv_post_send(self->second.end[1].qp, &bind, &bad));
	ASSERT_EQ(0, mkt_poll(&self->second.end[1], &wc));
	ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(0, mkt_replay_send(&replay, 0x5c, 256));
	mkt_replay_close(&replay);
}

/*
 * Destroys the queue pair that owns the window, which is over @mr, a key or an ordinary MR: no
 * request reaches the MR through the window, and the MR is free.
 */
static void window_destroy_owner(struct __test_metadata *_metadata, FIXTURE_DATA(window) *self,
				 struct ibv_mr *mr, uint64_t addr, int (*release)(struct ibv_mr *))
{
	ASSERT_EQ(0, mkt_bind_window(&self->second.end[1], self->mw, mr, addr, ZONE, REMOTE));
	EXPECT_NE(0, release(mr));
	mkt_pair_destroy(&self->second);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, window_read(self, self->mw, 8));
	EXPECT_EQ(0, release(mr));
	/* the window can be bound again, and works then */
	ASSERT_EQ(0, window_bind_key(&self->s, KEY_ACCESS));
	ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
	EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, self->mw, ZONE));
}

TEST_F(window, of_a_qp_over_a_key)
{
	window_destroy_owner(_metadata, self, self->key, 0, ibmkey_unbind);
}

TEST_F(window, of_a_qp_over_an_mr)
{
	struct ibv_mr *mr = ibv_reg_mr(self->s.dev[1].pd, self->s.arena[1].mem[0].host, ZONE,
				       KEY_ACCESS);

	ASSERT_NE(NULL, mr);
	window_destroy_owner(_metadata, self, mr, (uintptr_t)mr->addr, ibv_dereg_mr);
}

/* all windows of the QP, and no other ones; a window of type 1 belongs to no QP */
TEST_F(window, many_of_a_qp)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mw *mw[MANY];
	unsigned int i;

	ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
	for (i = 0; i < MANY; i++) {
		mw[i] = ibv_alloc_mw(s->dev[1].pd, i ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
		ASSERT_NE(NULL, mw[i]);
		ASSERT_EQ(0, mkt_bind_window(&self->second.end[1], mw[i], self->key, 0, i + 8,
					     REMOTE));
	}
	mkt_pair_destroy(&self->second);
	EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, self->mw, ZONE));
	EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, mw[0], 8));
	for (i = 1; i < MANY; i++) {
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, window_read(self, mw[i], 8));
		ASSERT_EQ(0, window_bind(self, mw[i], self->key, 0, ZONE, REMOTE));
		EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, mw[i], ZONE));
		EXPECT_EQ(0, ibv_dealloc_mw(mw[i]));
	}
	EXPECT_EQ(1, window_inv(&s->pair, MKT_LOCAL_INV, self->mw->rkey));
	/* the window of type 1 is left */
	EXPECT_EQ(EBUSY, ibmkey_unbind(self->key));
	EXPECT_EQ(0, ibv_dealloc_mw(mw[0]));
	EXPECT_EQ(0, ibmkey_unbind(self->key));
}

/* a QP that is reset and connected again keeps its windows, as in stock rxe */
TEST_F(window, of_a_qp_that_is_reset)
{
	ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, self->mw, ZONE));
	EXPECT_EQ(EBUSY, ibmkey_unbind(self->key));
}

/* posts binds of the window with the rkey that it has, and invalidations */
static int window_post(struct mkt_qp *qp, struct ibv_mw *mw, struct ibv_mr *mr)
{
	struct ibv_send_wr *bad, inv = {
		.opcode = IBV_WR_LOCAL_INV,
		.invalidate_rkey = mw->rkey,
	};
	struct ibv_send_wr bind = mkt_window_wr(mw, mr, 0, ZONE, REMOTE);
	unsigned int i;
	int err = 0;

	bind.next = &inv;
	bind.send_flags = 0;
	for (i = 0; !err && i < 8; i++)
		err = ibv_post_send(qp->qp, &bind, &bad);
	inv = bind;
	inv.next = NULL;
	return err ?: ibv_post_send(qp->qp, &inv, &bad);
}

/* requests of the QP are executed while it is being destroyed */
TEST_F(window, posted)
{
	unsigned int i, rounds = mkt_scale(200, 20);
	struct mkt_setup *s = &self->s;

	for (i = 0; i < rounds; i++) {
		ASSERT_EQ(0, window_post(&self->second.end[1], self->mw, self->key));
		mkt_pair_destroy(&self->second);
		ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
		EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, self->mw, ZONE));
		ASSERT_EQ(1, window_inv(&s->pair, MKT_LOCAL_INV, self->mw->rkey));
		ASSERT_EQ(0, mkt_pair_create(&self->second, &s->dev[0], &s->dev[1], IBV_MTU_1024,
					     0));
	}
}

/* leaves a window behind whose QP is newer: the kernel destroys the QP first */
static int window_leave(void)
{
	static struct mkt_setup s;
	struct mkt_pair newer;
	struct ibv_mw *mw;

	if (mkt_dev_open(&s.dev[0], 0) || mkt_dev_open(&s.dev[1], 1) ||
	    mkt_setup(&s, &window_wants, "leave") || window_bind_key(&s, KEY_ACCESS))
		return 1;
	mw = ibv_alloc_mw(s.dev[1].pd, IBV_MW_TYPE_2);
	if (!mw || mkt_pair_create(&newer, &s.dev[0], &s.dev[1], IBV_MTU_1024, 0))
		return 2;
	return mkt_bind_window(&newer.end[1], mw, s.key[1], 0, ZONE, REMOTE) ? 3 : 0;
}

TEST_F(window, exit)
{
	struct mkt_dev *dev = &self->s.dev[1];
	int status, before = mkt_dev_count(dev, "mr");
	pid_t pid = fork();

	ASSERT_LE(0, pid);
	if (!pid)
		_exit(window_leave());
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(before, mkt_dev_count(dev, "mr"));
}

/* a request with another rkey changes nothing */
TEST_F(window, bind_by_wrong_rkey)
{
	struct ibv_mw named = *self->mw;

	named.rkey ^= 3;
	EXPECT_EQ(EIO, window_bind(self, &named, self->key, 0, ZONE, REMOTE));
	EXPECT_EQ(0, ibmkey_unbind(self->key));
	ASSERT_EQ(0, window_bind_key(&self->s, KEY_ACCESS));
	ASSERT_EQ(0, window_bind(self, self->mw, self->key, 0, ZONE, REMOTE));
	EXPECT_EQ(IBV_WC_SUCCESS, window_read(self, self->mw, ZONE));
}

TEST_HARNESS_MAIN
