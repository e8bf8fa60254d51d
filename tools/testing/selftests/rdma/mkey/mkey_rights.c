// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Access flags at the time of the access. A key is bound in turn to a zone that a peer
 * may use and to one that it may not, or under another key portion; or an MR is registered again
 * over them. Whatever a peer requests, and whenever, the second zone is neither read nor written.
 * sets: smp
 */
#include <unistd.h>

#include "loop.h"
#include "mkey_harness.h"
#include "raw.h"
#include "replay.h"

#define ZONE (16 * 1024)
#define LENGTH 8192
#define OPEN 0xa0
#define SECRET 0xa1

/* how the peer's rkey gets to the second zone */
enum rights_way {
	RIGHTS_BIND,		/* a key is bound to it */
	RIGHTS_PORTION,	/* a key is bound to it under another key portion */
	RIGHTS_REREG,		/* an MR is registered again over it */
	RIGHTS_REREG_PD,	/* the same, in another PD with the same flags */
};

FIXTURE(rights)
{
	struct mkt_setup s;
	struct ibv_mr *mr;	/* what the peer names */
	struct ibv_mr *leaf;
	struct ibv_pd *pd;	/* a PD without a queue pair */
	uint32_t rkey;		/* that the peer uses */
	enum rights_way way;
	uint8_t *zone[2];
	struct mkt_loop loop;
};

FIXTURE_VARIANT(rights)
{
	enum rights_way way;
	int flags;		/* of the leaf, or of the MR */
};

FIXTURE_VARIANT_ADD(rights, bind) { .way = RIGHTS_BIND };
FIXTURE_VARIANT_ADD(rights, bind_odp) { .way = RIGHTS_BIND, .flags = IBV_ACCESS_ON_DEMAND };
FIXTURE_VARIANT_ADD(rights, bind_tag) { .way = RIGHTS_PORTION };
FIXTURE_VARIANT_ADD(rights, rereg) { .way = RIGHTS_REREG };
FIXTURE_VARIANT_ADD(rights, rereg_pd) { .way = RIGHTS_REREG_PD };

FIXTURE_SETUP(rights)
{
	MKT_SETUP(&self->s, .host = 4 * ZONE, .max_entries = 4);
	self->way = variant->way;
	self->zone[0] = self->s.arena[1].mem[0].host;
	self->zone[1] = self->zone[0] + ZONE;
	memset(self->zone[0], OPEN, ZONE);
	memset(self->zone[1], SECRET, ZONE);
	self->leaf = ibv_reg_mr(self->s.dev[1].pd, self->zone[0], 2 * ZONE,
				MKT_ACCESS_ALL | variant->flags);
	if (!self->leaf && variant->flags)
		SKIP(return, "%s has no memory on demand", self->s.dev[1].name);
	ASSERT_NE(NULL, self->leaf);
	self->pd = ibv_alloc_pd(self->s.dev[1].ctx);
	ASSERT_NE(NULL, self->pd);
	self->mr = self->way <= RIGHTS_PORTION ? self->s.key[1] : self->leaf;
	self->rkey = self->mr->rkey;
}

FIXTURE_TEARDOWN(rights)
{
	if (self->leaf) {
		EXPECT_EQ(0, ibmkey_unbind(self->s.key[1]));
		EXPECT_EQ(0, ibv_dereg_mr(self->leaf));
		EXPECT_EQ(0, ibv_dealloc_pd(self->pd));
	}
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* binds the key to a zone, under @rkey */
static int rights_bind_tag(FIXTURE_DATA(rights) *self, unsigned int which, uint32_t rkey)
{
	struct ibmkey_range range = {
		.addr = (uintptr_t)self->zone[which],
		.length = LENGTH,
		.lkey = self->leaf->lkey,
	};

	return mkt_bind_as(self->mr, MKT_ACCESS_ALL, rkey, range);
}

/*
 * Zone 0 with all access flags; zone 1 with local ones only, under another key portion, or in the
 * other PD.
 */
static int rights_turn(FIXTURE_DATA(rights) *self, unsigned int which)
{
	int access = which ? IBV_ACCESS_LOCAL_WRITE : MKT_ACCESS_ALL;
	uint32_t what = IBV_REREG_MR_CHANGE_TRANSLATION;
	struct ibv_pd *pd = self->s.dev[1].pd;
	uint64_t addr = (uintptr_t)self->zone[which];

	switch (self->way) {
	case RIGHTS_BIND:
		if (which)
			return mkt_bind_range(self->mr, access, self->leaf, addr, LENGTH);
		return mkt_bind_strided(self->mr, access, self->leaf, addr, 16, 32, LENGTH / 16);
	case RIGHTS_PORTION:
		return rights_bind_tag(self, which, which ? ibv_inc_rkey(self->rkey) : self->rkey);
	case RIGHTS_REREG:
		what |= IBV_REREG_MR_CHANGE_ACCESS;
		break;
	case RIGHTS_REREG_PD:
		what |= IBV_REREG_MR_CHANGE_PD;
		pd = which ? self->pd : pd;
		break;
	}
	return mkt_raw_rereg_to(self->mr, what, pd, access, self->zone[which], LENGTH, 0);
}

static int rights_step(void *arg, unsigned int round)
{
	int err = rights_turn(arg, ~round & 1);

	/* long enough that some requests complete */
	if (round & 1)
		usleep(3000);
	/* an access in progress can prevent an MR from being moved */
	return err == EBUSY ? 0 : err;
}

static unsigned int rights_count(const uint8_t *at, size_t length, uint8_t value)
{
	unsigned int i, count = 0;

	for (i = 0; i < length; i++)
		count += at[i] == value;
	return count;
}

/* a peer sends requests one after another while the zones change */
static void rights_race(struct __test_metadata *_metadata,
			FIXTURE_DATA(rights) *self, enum mkt_op op)
{
	uint8_t *here = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
	unsigned int i, done = 0, leaked = 0;
	unsigned int rounds = mkt_rounds(2000, 300);

	ASSERT_EQ(0, rights_turn(self, 0));
	ASSERT_EQ(0, mkt_loop_start(&self->loop, rights_step, self));
	for (i = 0; i < rounds || ((!done || done == i) && i < 100000); i++) {
		int status;

		memset(here, op == MKT_READ ? 0 : OPEN, LENGTH);
		status = mkt_touch(&self->s, self->rkey, op, 0, LENGTH);
		leaked += op == MKT_READ ? rights_count(here, LENGTH, SECRET) > 0 :
			  rights_count(self->zone[1], LENGTH, SECRET) < LENGTH;
		memset(self->zone[1], SECRET, LENGTH);
		if (status == IBV_WC_SUCCESS)
			done++;
		else if (mkt_pair_recover(&self->s.pair))
			break;
	}
	EXPECT_EQ(0, mkt_loop_end(&self->loop));
	EXPECT_LE(rounds, i);
	TH_LOG("%u requests, %u done, %u turns, %u reached the other zone", i,
	       done, atomic_load(&self->loop.rounds), leaked);
	EXPECT_EQ(0, leaked);
	EXPECT_LT(0, done);
	EXPECT_GT(i, done);
}

TEST_F(rights, read)
{
	rights_race(_metadata, self, MKT_READ);
}

TEST_F(rights, write)
{
	rights_race(_metadata, self, MKT_WRITE);
}

/* a recorded READ is sent again when the other zone is bound */
TEST_F(rights, replay)
{
	struct mkt_replay replay;

	ASSERT_EQ(0, rights_turn(self, 0));
	ASSERT_EQ(0, mkt_replay_open(&replay, &self->s.dev[0]));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, self->rkey, MKT_READ, 0, 512));
	ASSERT_EQ(0, mkt_replay_find(&replay, MKT_BTH_READ_REQUEST));
	/* a replayed READ is answered while the zone is the same */
	EXPECT_EQ(1, mkt_replay_send(&replay, OPEN, 512));
	ASSERT_EQ(0, rights_turn(self, 1));
	EXPECT_EQ(0, mkt_replay_send(&replay, SECRET, 512));
	if (self->way == RIGHTS_PORTION) {
		/* the same bytes under a new key portion */
		ASSERT_EQ(0, rights_bind_tag(self, 0, ibv_inc_rkey(self->rkey)));
		EXPECT_EQ(0, mkt_replay_send(&replay, OPEN, 512));
	}
	mkt_replay_close(&replay);
	EXPECT_EQ(0, mkt_pair_recover(&self->s.pair));
}

TEST_HARNESS_MAIN
