// SPDX-License-Identifier: GPL-2.0
/*
 * A memory window over an MR of ib_mkey gives its own range with its own access
 * flags while it is bound. Also tests what a peer may invalidate, and what a
 * process must not post to its QP.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <rdma/rdma_user_rxe.h>

#include "mkey_harness.h"
#include "replay.h"

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
		IBV_ACCESS_REMOTE_ATOMIC)
#define ZONE 4096
/* the window is a part of the MR */
#define AT 128
#define LENGTH 2048

FIXTURE(wrights)
{
	struct mkt_setup s;
	struct ibv_mr *mr;	/* under the window, of @length bytes from @addr on */
	uint64_t addr;
	struct ibv_mr *own;
	struct ibv_mw *mw;
};

FIXTURE_VARIANT(wrights)
{
	bool device_memory;
	bool on_demand;
};

FIXTURE_VARIANT_ADD(wrights, key)
{
};

FIXTURE_VARIANT_ADD(wrights, key_odp)
{
	.on_demand = true,
};

FIXTURE_VARIANT_ADD(wrights, dm)
{
	.device_memory = true,
};

static int wrights_bind_key(struct mkt_setup *s, struct ibv_mr *leaf, size_t offset,
			    unsigned int access)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->arena[1].mem[0].host + offset,
		.length = ZONE,
		.lkey = leaf->lkey,
	};

	return ibv_rereg_mr_sg(s->key[1], access, 1, &sge);
}

FIXTURE_SETUP(wrights)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.host = 4 * ZONE,
		.dm = variant->device_memory ? ZONE : 0,
		.max_entries = 4,
	};
	struct mkt_arena *arena;
	int access = MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND;

	MKT_OPEN_EXTENDED(self->s.dev);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	arena = &self->s.arena[1];
	if (variant->device_memory) {
		self->own = ibv_reg_dm_mr(self->s.dev[1].pd, arena->mem[1].dm, 0, ZONE,
					  access | IBV_ACCESS_ZERO_BASED);
		ASSERT_NE(NULL, self->own);
		self->mr = self->own;
		return;
	}
	if (variant->on_demand)
		access |= IBV_ACCESS_ON_DEMAND;
	self->own = ibv_reg_mr(self->s.dev[1].pd, arena->mem[0].host, 2 * ZONE, access);
	if (!self->own && variant->on_demand)
		SKIP(return, "%s has no memory on demand", self->s.dev[1].name);
	ASSERT_NE(NULL, self->own);
	ASSERT_EQ(0, wrights_bind_key(&self->s, self->own, 0,
				      MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND));
	self->mr = self->s.key[1];
}

FIXTURE_TEARDOWN(wrights)
{
	if (self->mw)
		EXPECT_EQ(0, ibv_dealloc_mw(self->mw));
	if (self->mr && self->mr == self->s.key[1])
		EXPECT_EQ(0, ibmkey_unbind(self->mr));
	if (self->own)
		EXPECT_EQ(0, ibv_dereg_mr(self->own));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

static void wrights_open(struct __test_metadata *_metadata, FIXTURE_DATA(wrights) *self,
			 enum ibv_mw_type type, unsigned int access)
{
	self->mw = ibv_alloc_mw(self->s.dev[1].pd, type);
	ASSERT_NE(NULL, self->mw);
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], self->mw, self->mr, AT, LENGTH,
				     access));
}

/*
 * runs one request and returns its status; the QPs can be used again afterwards
 */
static int wrights_try(struct mkt_setup *s, uint32_t rkey, enum mkt_op op, uint64_t addr,
		       uint32_t length)
{
	int status = mkt_touch(s, rkey, op, addr, length);

	if (status != IBV_WC_SUCCESS && mkt_pair_recover(&s->pair))
		return -1;
	return status;
}

static void wrights_range(struct __test_metadata *_metadata, FIXTURE_DATA(wrights) *self,
			  uint64_t first)
{
	static const enum mkt_op ops[] = { MKT_WRITE, MKT_READ };
	uint32_t rkey = self->mw->rkey;
	unsigned int o;

	for (o = 0; o < ARRAY_SIZE(ops); o++) {
		EXPECT_EQ(IBV_WC_SUCCESS, wrights_try(&self->s, rkey, ops[o], first, LENGTH));
		EXPECT_EQ(IBV_WC_SUCCESS,
			  wrights_try(&self->s, rkey, ops[o], first + LENGTH - 1, 1));
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
			  wrights_try(&self->s, rkey, ops[o], first, LENGTH + 1));
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
			  wrights_try(&self->s, rkey, ops[o], first + LENGTH, 1));
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
			  wrights_try(&self->s, rkey, ops[o], first - 1, 1));
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
			  wrights_try(&self->s, rkey, ops[o], first - 1, LENGTH));
	}
	EXPECT_EQ(IBV_WC_SUCCESS, wrights_try(&self->s, rkey, MKT_FETCH_ADD, first + 8, 8));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  wrights_try(&self->s, rkey, MKT_FETCH_ADD, first + LENGTH, 8));
}

TEST_F(wrights, range_type_1)
{
	wrights_open(_metadata, self, IBV_MW_TYPE_1, REMOTE);
	wrights_range(_metadata, self, AT);
}

TEST_F(wrights, range_type_2)
{
	wrights_open(_metadata, self, IBV_MW_TYPE_2, REMOTE);
	wrights_range(_metadata, self, AT);
}

TEST_F(wrights, range_zero_based)
{
	wrights_open(_metadata, self, IBV_MW_TYPE_2, REMOTE | IBV_ACCESS_ZERO_BASED);
	wrights_range(_metadata, self, 0);
}

/* a window outside of its MR, or with an end beyond 2^64 */
TEST_F(wrights, bad_range)
{
	static const struct {
		uint64_t addr, length;
		unsigned int access;
	} bad[] = {
		{ ZONE, 1 },
		{ 0, ZONE + 1 },
		{ ZONE - 1, 2 },
		{ -1ULL, 2 },
		{ 1, -1ULL },
		{ ZONE - 1, 2, IBV_ACCESS_ZERO_BASED },
		{ -1ULL, 2, IBV_ACCESS_ZERO_BASED },
	};
	unsigned int i;

	self->mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, self->mw);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(EIO, mkt_bind_window(&self->s.pair.end[1], self->mw, self->mr,
					       bad[i].addr, bad[i].length,
					       REMOTE | bad[i].access));
		ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	}
}

TEST_F(wrights, flags)
{
	wrights_open(_metadata, self, IBV_MW_TYPE_2, IBV_ACCESS_REMOTE_READ);
	EXPECT_EQ(IBV_WC_SUCCESS, wrights_try(&self->s, self->mw->rkey, MKT_READ, AT, LENGTH));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  wrights_try(&self->s, self->mw->rkey, MKT_WRITE, AT, 1));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  wrights_try(&self->s, self->mw->rkey, MKT_FETCH_ADD, AT, 8));
}

/* a READ through a window is sent again after the window was invalidated */
TEST_F(wrights, replay)
{
	struct mkt_replay replay;
	struct mkt_wr inv = { .op = MKT_LOCAL_INV };
	uint8_t *host = self->s.arena[1].mem[0].host;
	uint8_t value = 0x5c;

	memset(host, value, ZONE);
	if (self->mr == self->own)
		ASSERT_EQ(0, ibv_memcpy_to_dm(self->s.arena[1].mem[1].dm, 0, host, ZONE));
	wrights_open(_metadata, self, IBV_MW_TYPE_2, REMOTE);
	ASSERT_EQ(0, mkt_replay_open(&replay, &self->s.dev[0]));
	ASSERT_EQ(IBV_WC_SUCCESS, wrights_try(&self->s, self->mw->rkey, MKT_READ, AT, 256));
	ASSERT_EQ(0, mkt_replay_find(&replay, MKT_BTH_READ_REQUEST));
	EXPECT_EQ(1, mkt_replay_send(&replay, value, 256));
	inv.rkey = self->mw->rkey;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &inv));
	EXPECT_EQ(0, mkt_replay_send(&replay, value, 256));
	mkt_replay_close(&replay);
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
}

/* windows pin an MR; without windows it can be deregistered */
TEST_F(wrights, pinned)
{
	struct mkt_wr inv = { .op = MKT_LOCAL_INV };
	struct ibv_mw *other;

	wrights_open(_metadata, self, IBV_MW_TYPE_2, REMOTE);
	other = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_1);
	ASSERT_NE(NULL, other);
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], other, self->mr, 0, 1, REMOTE));
	/* bind the window to something else, which releases the first MR */
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], other, self->s.plain[1].mr,
				     self->s.plain[1].addr, 0, 0));
	inv.rkey = self->mw->rkey;
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &inv));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  wrights_try(&self->s, self->mw->rkey, MKT_READ, AT, 1));
	EXPECT_EQ(0, ibv_dealloc_mw(other));
	EXPECT_EQ(0, ibv_dealloc_mw(self->mw));
	self->mw = NULL;
	if (self->mr == self->own) {
		EXPECT_EQ(0, ibv_dereg_mr(self->own));
		self->own = NULL;
	}
}

FIXTURE(wkey)
{
	struct mkt_setup s;
	struct ibv_mr *leaf;
};

FIXTURE_SETUP(wkey)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.host = 4 * ZONE,
		.max_entries = 4,
	};

	MKT_OPEN_EXTENDED(self->s.dev);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	self->leaf = self->s.arena[1].leaf[0].mr;
}

FIXTURE_TEARDOWN(wkey)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* a window gives a peer access that the key itself does not */
TEST_F(wkey, window_of_local_key)
{
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	struct ibv_mr *key = self->s.key[1];

	ASSERT_NE(NULL, mw);
	ASSERT_EQ(0, mkt_layout_bind(key, &self->s.arena[1],
				     &(struct mkt_layout){ .num_blocks = 1,
					.block = &(struct mkt_block){ .bytes = ZONE } },
				     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], mw, key, AT, LENGTH, REMOTE));
	EXPECT_EQ(IBV_WC_SUCCESS, wrights_try(&self->s, mw->rkey, MKT_READ, AT, LENGTH));
	EXPECT_EQ(IBV_WC_SUCCESS, wrights_try(&self->s, mw->rkey, MKT_WRITE, AT, LENGTH));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, wrights_try(&self->s, key->rkey, MKT_READ, AT, 1));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
}

/* a window cannot write where the key itself cannot */
TEST_F(wkey, window_of_read_only_key)
{
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	struct ibv_mr *key = self->s.key[1];

	ASSERT_NE(NULL, mw);
	ASSERT_EQ(0, mkt_layout_bind(key, &self->s.arena[1],
				     &(struct mkt_layout){ .num_blocks = 1,
					.block = &(struct mkt_block){ .bytes = ZONE } },
				     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND));
	EXPECT_EQ(EIO, mkt_bind_window(&self->s.pair.end[1], mw, key, AT, LENGTH, REMOTE));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], mw, key, AT, LENGTH,
				     IBV_ACCESS_REMOTE_READ));
	EXPECT_EQ(IBV_WC_SUCCESS, wrights_try(&self->s, mw->rkey, MKT_READ, AT, LENGTH));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
}

/* an MR of another PD, whose lkey a process may have guessed */
TEST_F(wkey, window_of_other_pd)
{
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	struct ibv_pd *pd = ibv_alloc_pd(self->s.dev[1].ctx);
	struct ibv_mr *leaf, *key;
	struct ibv_sge sge = { .length = ZONE };

	ASSERT_NE(NULL, mw);
	ASSERT_NE(NULL, pd);
	leaf = ibv_reg_mr(pd, self->s.arena[1].mem[0].host, ZONE, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, leaf);
	key = ibmkey_alloc(pd, 1);
	ASSERT_NE(NULL, key);
	sge.addr = (uintptr_t)leaf->addr;
	sge.lkey = leaf->lkey;
	ASSERT_EQ(0, ibv_rereg_mr_sg(key, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND, 1, &sge));
	EXPECT_EQ(EIO, mkt_bind_window(&self->s.pair.end[1], mw, key, AT, LENGTH, REMOTE));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_dereg_mr(leaf));
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
}

struct wkey_thread {
	struct mkt_setup *s;
	struct ibv_mr *leaf;
	atomic_bool stop;
	unsigned int done, busy;
	int err;
};

static void *wkey_loop(void *arg)
{
	struct wkey_thread *thread = arg;
	unsigned int turn = 0;

	while (!atomic_load(&thread->stop) && !thread->err) {
		int err = wrights_bind_key(thread->s, thread->leaf, (++turn & 1) * ZONE,
					   MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND);

		if (!err)
			thread->done++;
		else if (err == EBUSY)
			thread->busy++;
		else
			thread->err = err;
	}
	return NULL;
}

static int wkey_peek(struct mkt_setup *s, uint32_t rkey)
{
	const uint8_t *here = (uint8_t *)(uintptr_t)s->plain[0].addr;

	return mkt_touch(s, rkey, MKT_READ, 0, 1) == IBV_WC_SUCCESS ? *here : -1;
}

/* while a window is bound, the binding of its key does not change */
TEST_F(wkey, window_against_rebind)
{
	struct mkt_setup *s = &self->s;
	struct wkey_thread thread = { .s = s };
	unsigned int i, j, rounds = mkt_scale(1000, 150), bad = 0, seen[2] = {};
	uint8_t *host = s->arena[1].mem[0].host;
	struct ibv_mw *mw;
	pthread_t tid;

	memset(host, 0xa0, ZONE);
	memset(host + ZONE, 0xa1, ZONE);
	thread.leaf = ibv_reg_mr(s->dev[1].pd, host, 2 * ZONE, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, thread.leaf);
	ASSERT_EQ(0, wrights_bind_key(s, thread.leaf, 0, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND));
	ASSERT_EQ(0, pthread_create(&tid, NULL, wkey_loop, &thread));
	for (i = 0; i < rounds || ((!seen[0] || !seen[1]) && i < 100000); i++) {
		int first;

		mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_2);
		ASSERT_NE(NULL, mw);
		ASSERT_EQ(0, mkt_bind_window(&s->pair.end[1], mw, s->key[1], 0, ZONE, REMOTE));
		first = wkey_peek(s, mw->rkey);
		ASSERT_EQ(0xa0, first & 0xfe);
		seen[first & 1]++;
		for (j = 0; j < 3; j++)
			bad += wkey_peek(s, mw->rkey) != first;
		ASSERT_EQ(0, ibv_dealloc_mw(mw));
	}
	atomic_store(&thread.stop, true);
	pthread_join(tid, NULL);
	TH_LOG("%u windows, %u rebinds, %u refused", i, thread.done, thread.busy);
	EXPECT_EQ(0, thread.err);
	EXPECT_EQ(0, bad);
	EXPECT_LT(0, thread.busy);
	EXPECT_EQ(0, ibmkey_unbind(s->key[1]));
	EXPECT_EQ(0, ibv_dereg_mr(thread.leaf));
}

/* binds a window, of type 1, to @mr again and again, and lets it keep its rkey */
struct wkey_binder {
	struct mkt_qp *qp;
	struct ibv_mw mw;
	struct ibv_mr *mr;
	uint64_t addr;
	pthread_t tid;
	int err;
};

static void *wkey_bind_loop(void *arg)
{
	struct wkey_binder *binder = arg;
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = &binder->mw,
			.rkey = binder->mw.rkey,
			.bind_info = {
				.mr = binder->mr,
				.addr = binder->addr,
				.length = ZONE,
				.mw_access_flags = REMOTE,
			},
		},
	};
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
TEST_F(wkey, window_of_two_queues)
{
	struct mkt_setup *s = &self->s;
	uint8_t *host = s->arena[1].mem[0].host;
	unsigned int i, j, free = 0, rounds = mkt_scale(200, 30);
	struct mkt_pair other;
	struct ibv_mr *mr;
	struct ibv_mw *mw;

	memset(host, 0xa0, ZONE);
	memset(host + ZONE, 0xa1, ZONE);
	mr = ibv_reg_mr(s->dev[1].pd, host, 2 * ZONE, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND);
	ASSERT_NE(NULL, mr);
	mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_1);
	ASSERT_NE(NULL, mw);
	ASSERT_EQ(0, mkt_pair_create(&other, &s->dev[0], &s->dev[1], IBV_MTU_1024, 0));
	for (i = 0; i < rounds; i++) {
		struct wkey_binder binder[2] = {
			{ .qp = &s->pair.end[1], .mw = *mw, .mr = s->key[1] },
			{ .qp = &other.end[1], .mw = *mw, .mr = mr, .addr = (uintptr_t)host },
		};
		bool plain;

		ASSERT_EQ(0, wrights_bind_key(s, mr, ZONE, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND));
		for (j = 0; j < 2; j++)
			ASSERT_EQ(0, pthread_create(&binder[j].tid, NULL, wkey_bind_loop,
						    &binder[j]));
		for (j = 0; j < 2; j++) {
			pthread_join(binder[j].tid, NULL);
			ASSERT_EQ(0, binder[j].err);
		}
		plain = mkt_touch(s, mw->rkey, MKT_READ, (uintptr_t)host, 1) == IBV_WC_SUCCESS;
		if (plain) {
			/* the window is over the ordinary MR */
			ASSERT_EQ(0, ibmkey_unbind(s->key[1]));
			free++;
		} else {
			ASSERT_EQ(0, mkt_pair_recover(&s->pair));
			ASSERT_EQ(0xa1, wkey_peek(s, mw->rkey));
			ASSERT_EQ(EBUSY, ibmkey_unbind(s->key[1]));
			ASSERT_EQ(0, mkt_bind_window(&other.end[1], mw, mr, (uintptr_t)host, ZONE,
						     REMOTE));
			ASSERT_EQ(0, ibmkey_unbind(s->key[1]));
		}
	}
	TH_LOG("the ordinary MR was last %u times of %u", free, rounds);
	ASSERT_EQ(0, ibv_dealloc_mw(mw));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	mkt_pair_destroy(&other);
}

static int wkey_kind(struct ibv_mr *key)
{
	struct ibmkey_info info;

	return ibmkey_query(key, &info) ? -1 : (int)info.kind;
}

/* a peer cannot invalidate a key without remote access flags */
TEST_F(wkey, remote_invalidate_of_local_key)
{
	struct mkt_layout layout = {
		.num_blocks = 1,
		.block = &(struct mkt_block){ .bytes = ZONE },
	};
	struct mkt_wr wr = { .op = MKT_SEND_INV, .rkey = self->s.key[1]->rkey };
	struct mkt_wr recv = {};
	struct mkt_result result;

	ASSERT_EQ(0, mkt_layout_bind(self->s.key[1], &self->s.arena[1], &layout,
				     IBV_ACCESS_LOCAL_WRITE));
	ASSERT_EQ(0, mkt_exec(&self->s.pair, 0, &wr, &recv, &result));
	EXPECT_NE(IBV_WC_SUCCESS, result.recv_status);
	EXPECT_EQ(IBMKEY_LIST, wkey_kind(self->s.key[1]));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	/* the local node may */
	wr.op = MKT_LOCAL_INV;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	EXPECT_EQ(IBMKEY_UNBOUND, wkey_kind(self->s.key[1]));
	/* any remote access flag suffices */
	ASSERT_EQ(0, mkt_layout_bind(self->s.key[1], &self->s.arena[1], &layout,
				     IBV_ACCESS_REMOTE_READ));
	wr.op = MKT_SEND_INV;
	wr.rkey = self->s.key[1]->rkey;
	ASSERT_EQ(0, mkt_exec(&self->s.pair, 0, &wr, &recv, &result));
	EXPECT_EQ(IBV_WC_SUCCESS, result.status);
	EXPECT_EQ(IBMKEY_UNBOUND, wkey_kind(self->s.key[1]));
}

/* enum ib_wr_opcode values for kernel QPs */
#define REG_MR 0x20

/* finds request @wr_id in the queues that this process shares with rxe */
static struct rxe_send_wr *wkey_request(uint64_t wr_id)
{
	struct rxe_send_wr *found = NULL;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "re");

	while (maps && !found && fgets(line, sizeof(line), maps)) {
		unsigned long start, end, at;

		if (!strstr(line, "uverbs") ||
		    sscanf(line, "%lx-%lx rw", &start, &end) != 2)
			continue;
		for (at = start; at + sizeof(*found) <= end && !found; at += 8)
			if (((struct rxe_send_wr *)at)->wr_id == wr_id)
				found = (void *)at;
	}
	if (maps)
		fclose(maps);
	return found;
}

/*
 * REG_MR names its MR by a kernel pointer. A process could write any address
 * there.
 */
TEST_F(wkey, reg_mr_from_a_process)
{
	struct mkt_qp *qp = &self->s.pair.end[1];
	struct ibv_send_wr *bad, wr = {
		.wr_id = 0x6d6b65795f726567ULL,
		.opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = 0x1234567,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct rxe_send_wr *request;
	struct mkt_peer peer;
	struct ibv_wc wc;

	/* the queue does not run yet */
	ASSERT_EQ(0, ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 };
	ASSERT_EQ(0, ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					  IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	/*
	 * the request is in the queue even if the kernel refuses to process it now
	 */
	ibv_post_send(qp->qp, &wr, &bad);
	request = wkey_request(wr.wr_id);
	ASSERT_NE(NULL, request);
	ASSERT_EQ(IBV_WR_LOCAL_INV, request->opcode);
	request->opcode = REG_MR;
	memset(&request->wr, 0x41, 24);
	mkt_qp_self(&self->s.pair.end[0], &peer);
	ASSERT_EQ(0, mkt_qp_connect(qp, &peer, self->s.pair.mtu));
	ASSERT_EQ(REG_MR, request->opcode);
	wr.wr_id++;
	ASSERT_EQ(0, ibv_post_send(qp->qp, &wr, &bad));
	ASSERT_EQ(0, mkt_poll(qp, &wc));
	EXPECT_NE(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(wr.wr_id - 1, wc.wr_id);
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
}

TEST_HARNESS_MAIN
