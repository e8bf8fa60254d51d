// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A memory window gives its own range with its own access flags while it is bound, over
 * an MR of ib_mkey and over an ordinary MR. The latter needs no ib_mkey.
 */
#include <string.h>

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
	bool ordinary;
};

FIXTURE_VARIANT_ADD(wrights, key) {};
FIXTURE_VARIANT_ADD(wrights, key_odp) { .on_demand = true };
FIXTURE_VARIANT_ADD(wrights, dm) { .device_memory = true };
FIXTURE_VARIANT_ADD(wrights, user) { .ordinary = true };
FIXTURE_VARIANT_ADD(wrights, odp) { .ordinary = true, .on_demand = true };

FIXTURE_SETUP(wrights)
{
	struct mkt_arena *arena;
	int access = MKT_ACCESS_ALL | IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_MW_BIND;

	MKT_OPEN(self->s.dev);
	if (!variant->ordinary && (!self->s.dev[0].extended || !self->s.dev[1].extended))
		SKIP(return, "not extended by ib_mkey");
	MKT_MAKE(&self->s, .host = 4 * ZONE, .dm = variant->device_memory ? ZONE : 0,
		 .max_entries = variant->ordinary ? 0 : 4);
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
	/* an ordinary MR has the addresses that a key has */
	if (variant->ordinary)
		self->own = ibv_reg_mr_iova(self->s.dev[1].pd, arena->mem[0].host, ZONE, 0,
					    access);
	else
		self->own = ibv_reg_mr(self->s.dev[1].pd, arena->mem[0].host, 2 * ZONE,
				       access);
	if (!self->own && variant->on_demand)
		SKIP(return, "%s has no memory on demand", self->s.dev[1].name);
	ASSERT_NE(NULL, self->own);
	if (variant->ordinary) {
		self->mr = self->own;
		return;
	}
	ASSERT_EQ(0, mkt_bind_range(self->s.key[1], access & ~IBV_ACCESS_ON_DEMAND, self->own,
				    (uintptr_t)arena->mem[0].host, ZONE));
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

/* a FLUSH of a range, or of all of the window */
static int wrights_flush(FIXTURE_DATA(wrights) *self, bool whole, uint64_t addr,
			 uint32_t length)
{
	struct mkt_wr wr = {
		.op = MKT_FLUSH,
		.rkey = self->mw->rkey,
		.remote_addr = addr,
		.flush_length = length,
		.whole = whole,
	};
	int status = mkt_status(&self->s.pair, 0, &wr);

	if (status != IBV_WC_SUCCESS && mkt_pair_recover(&self->s.pair))
		return -1;
	return status;
}

/* every verb in the window, at its ends, and beside it; atomics only of 8 bytes */
static void wrights_range(struct __test_metadata *_metadata, FIXTURE_DATA(wrights) *self,
			  enum ibv_mw_type type, unsigned int access)
{
	static const enum mkt_op ops[] = {
		MKT_WRITE, MKT_READ, MKT_FLUSH, MKT_FETCH_ADD, MKT_CMP_SWAP, MKT_ATOMIC_WRITE,
	};
	static const struct {
		int64_t at;
		uint32_t length;
		enum ibv_wc_status status;
	} tries[] = {
		{ 0, LENGTH, IBV_WC_SUCCESS },
		{ LENGTH - 1, 1, IBV_WC_SUCCESS },
		{ 0, LENGTH + 1, IBV_WC_REM_ACCESS_ERR },
		{ LENGTH, 1, IBV_WC_REM_ACCESS_ERR },
		{ -1, 1, IBV_WC_REM_ACCESS_ERR },
		{ -1, LENGTH, IBV_WC_REM_ACCESS_ERR },
		{ 0, 8, IBV_WC_SUCCESS },
		{ LENGTH / 2, 8, IBV_WC_SUCCESS },
		{ LENGTH - 8, 8, IBV_WC_SUCCESS },
		{ LENGTH, 8, IBV_WC_REM_ACCESS_ERR },
		{ LENGTH + 64, 8, IBV_WC_REM_ACCESS_ERR },
		{ -8, 8, IBV_WC_REM_ACCESS_ERR },
		{ -64, 8, IBV_WC_REM_ACCESS_ERR },
	};
	uint64_t first = access & IBV_ACCESS_ZERO_BASED ? 0 : AT;
	unsigned int o, t;

	wrights_open(_metadata, self, type, access | REMOTE | IBV_ACCESS_FLUSH_GLOBAL);
	for (o = 0; o < ARRAY_SIZE(ops); o++)
		for (t = 0; t < ARRAY_SIZE(tries); t++) {
			uint64_t addr = first + tries[t].at;
			uint32_t length = tries[t].length;
			int status;

			if (ops[o] == MKT_FLUSH)
				status = wrights_flush(self, false, addr, length);
			else if (length == 8 || ops[o] == MKT_WRITE || ops[o] == MKT_READ)
				status = mkt_try(&self->s, self->mw->rkey, ops[o], addr, length);
			else
				continue;
			EXPECT_EQ(tries[t].status, status) {
				TH_LOG("%s of %u at %" PRId64, mkt_op_name(ops[o]), length,
				       tries[t].at);
			}
		}
	EXPECT_EQ(IBV_WC_SUCCESS, wrights_flush(self, true, 0, 0));
}

TEST_F(wrights, range_type_1)
{
	wrights_range(_metadata, self, IBV_MW_TYPE_1, 0);
}

TEST_F(wrights, range_type_2)
{
	wrights_range(_metadata, self, IBV_MW_TYPE_2, 0);
}

TEST_F(wrights, range_zero_based)
{
	wrights_range(_metadata, self, IBV_MW_TYPE_2, IBV_ACCESS_ZERO_BASED);
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
	enum ibv_mw_type type;
	unsigned int i;

	for (type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++) {
		self->mw = ibv_alloc_mw(self->s.dev[1].pd, type);
		ASSERT_NE(NULL, self->mw);
		for (i = 0; i < ARRAY_SIZE(bad); i++) {
			EXPECT_NE(0, mkt_bind_window(&self->s.pair.end[1], self->mw, self->mr,
						     bad[i].addr, bad[i].length,
						     REMOTE | bad[i].access));
			ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
		}
		ASSERT_EQ(0, ibv_dealloc_mw(self->mw));
		self->mw = NULL;
	}
}

TEST_F(wrights, flags)
{
	wrights_open(_metadata, self, IBV_MW_TYPE_2, IBV_ACCESS_REMOTE_READ);
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, self->mw->rkey, MKT_READ, AT, LENGTH));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(&self->s, self->mw->rkey, MKT_WRITE, AT, 1));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(&self->s, self->mw->rkey, MKT_FETCH_ADD, AT, 8));
}

/* a bound window of type 2 cannot be bound again before it is invalidated, and stays as it is */
TEST_F(wrights, bound_again)
{
	struct mkt_qp *owner = &self->s.pair.end[1];
	struct mkt_wr inv = { .op = MKT_LOCAL_INV };

	wrights_open(_metadata, self, IBV_MW_TYPE_2, IBV_ACCESS_REMOTE_READ);
	inv.rkey = self->mw->rkey;
	EXPECT_EQ(EIO, mkt_bind_window(owner, self->mw, self->mr, 0, ZONE, REMOTE));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(inv.rkey, self->mw->rkey);
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, inv.rkey, MKT_READ, AT, LENGTH));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, inv.rkey, MKT_READ, AT - 1, 8));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, inv.rkey, MKT_WRITE, AT, 8));
	/* nor does the window have the rkey of that request */
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(&self->s, ibv_inc_rkey(inv.rkey), MKT_READ, AT, 8));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &inv));
	ASSERT_EQ(0, mkt_bind_window(owner, self->mw, self->mr, 0, ZONE, REMOTE));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, self->mw->rkey, MKT_WRITE, 0, ZONE));
}

/* after another bind, the former rkey of the window fails in every verb */
TEST_F(wrights, stale_rkey)
{
	static const enum mkt_op ops[] = {
		MKT_WRITE, MKT_READ, MKT_FETCH_ADD, MKT_CMP_SWAP, MKT_ATOMIC_WRITE,
	};
	uint32_t stale, now;
	unsigned int o;

	wrights_open(_metadata, self, IBV_MW_TYPE_1, REMOTE | IBV_ACCESS_FLUSH_GLOBAL);
	stale = self->mw->rkey;
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], self->mw, self->mr, AT, LENGTH,
				     REMOTE | IBV_ACCESS_FLUSH_GLOBAL));
	now = self->mw->rkey;
	ASSERT_NE(stale, now);
	for (o = 0; o < ARRAY_SIZE(ops); o++) {
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, stale, ops[o], AT, 8));
		EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, now, ops[o], AT, 8));
	}
	EXPECT_EQ(IBV_WC_SUCCESS, wrights_flush(self, true, 0, 0));
	self->mw->rkey = stale;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, wrights_flush(self, true, 0, 0));
	self->mw->rkey = now;
}

/* a READ through a window is sent again, also after the window was invalidated */
static void wrights_send_again(struct __test_metadata *_metadata, FIXTURE_DATA(wrights) *self,
			       bool device_memory, unsigned int access, uint64_t first)
{
	struct mkt_replay replay;
	struct mkt_wr inv = { .op = MKT_LOCAL_INV };
	uint8_t *host = self->s.arena[1].mem[0].host;
	uint8_t value = 0x5c;

	memset(host, 0, ZONE);
	memset(host + AT, value, LENGTH);
	if (device_memory)
		ASSERT_EQ(0, ibv_memcpy_to_dm(self->s.arena[1].mem[1].dm, 0, host, ZONE));
	wrights_open(_metadata, self, IBV_MW_TYPE_2, access);
	ASSERT_EQ(0, mkt_replay_open(&replay, &self->s.dev[0]));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, self->mw->rkey, MKT_READ, first, 256));
	ASSERT_EQ(0, mkt_replay_find(&replay, MKT_BTH_READ_REQUEST));
	EXPECT_EQ(1, mkt_replay_send(&replay, value, 256));
	inv.rkey = self->mw->rkey;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &inv));
	EXPECT_EQ(0, mkt_replay_send(&replay, value, 256));
	mkt_replay_close(&replay);
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
}

TEST_F(wrights, replay)
{
	wrights_send_again(_metadata, self, variant->device_memory, REMOTE, AT);
}

TEST_F(wrights, replay_zero_based)
{
	wrights_send_again(_metadata, self, variant->device_memory,
			   REMOTE | IBV_ACCESS_ZERO_BASED, 0);
}

/* windows pin an MR; without windows it can be deregistered */
TEST_F(wrights, pinned)
{
	struct mkt_wr inv = { .op = MKT_LOCAL_INV };
	struct ibv_mw *other;
	uint32_t rkey;

	wrights_open(_metadata, self, IBV_MW_TYPE_2, REMOTE);
	EXPECT_NE(0, ibv_dereg_mr(self->mr));
	other = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_1);
	ASSERT_NE(NULL, other);
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], other, self->mr, 0, 1, REMOTE));
	/* bind the window to something else, which releases the first MR */
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], other, self->s.plain[1].mr,
				     self->s.plain[1].addr, 0, 0));
	inv.rkey = self->mw->rkey;
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &inv));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(&self->s, self->mw->rkey, MKT_READ, AT, 1));
	EXPECT_EQ(0, ibv_dealloc_mw(self->mw));
	/* a window that is deallocated while it is bound */
	self->mw = other;
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], other, self->mr, AT, LENGTH, REMOTE));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, other->rkey, MKT_READ, AT, 1));
	EXPECT_NE(0, ibv_dereg_mr(self->mr));
	rkey = other->rkey;
	EXPECT_EQ(0, ibv_dealloc_mw(other));
	self->mw = NULL;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, rkey, MKT_READ, AT, 1));
	if (self->mr == self->own) {
		EXPECT_EQ(0, ibv_dereg_mr(self->own));
		self->own = NULL;
	}
}

TEST_HARNESS_MAIN
