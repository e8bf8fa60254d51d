// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Access flags at the time of the access. A key is bound in turn to a zone that a peer
 * may use and to one that it may not; or an MR is registered again over them. Whatever a peer
 * requests, and whenever, the second zone is neither read nor written.
 * sets: smp
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

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
	RIGHTS_REREG,		/* an MR is registered again over it */
	RIGHTS_REREG_PD,	/* the same, in another PD with the same flags */
};

FIXTURE(rights)
{
	struct mkt_setup s;
	struct ibv_mr *mr;	/* what the peer names */
	struct ibv_mr *leaf;
	struct ibv_pd *pd;	/* a PD without a queue pair */
	enum rights_way way;
	uint8_t *zone[2];
	pthread_t tid;
	atomic_bool stop;
	atomic_uint turns;
	int err;
};

FIXTURE_VARIANT(rights)
{
	enum rights_way way;
	int flags;		/* of the leaf, or of the MR */
};

FIXTURE_VARIANT_ADD(rights, bind) { .way = RIGHTS_BIND };
FIXTURE_VARIANT_ADD(rights, bind_odp) { .way = RIGHTS_BIND, .flags = IBV_ACCESS_ON_DEMAND };
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
	self->mr = self->way == RIGHTS_BIND ? self->s.key[1] : self->leaf;
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

/* zone 0 with all access flags, zone 1 with local ones only, or in the other PD */
static int rights_turn(FIXTURE_DATA(rights) *self, unsigned int which)
{
	int access = which && self->way != RIGHTS_REREG_PD ? IBV_ACCESS_LOCAL_WRITE :
							      MKT_ACCESS_ALL;
	struct ibv_sge sge = {
		.addr = (uintptr_t)self->zone[which],
		.length = LENGTH,
		.lkey = self->leaf->lkey,
	};

	if (self->way == RIGHTS_BIND)
		return ibv_rereg_mr_sg(self->mr, access, 1, &sge);
	if (self->way == RIGHTS_REREG_PD)
		return mkt_raw_rereg_to(self->mr, IBV_REREG_MR_CHANGE_TRANSLATION |
						  IBV_REREG_MR_CHANGE_PD,
					which ? self->pd : self->s.dev[1].pd, 0,
					self->zone[which], LENGTH, 0);
	return mkt_raw_rereg_to(self->mr, IBV_REREG_MR_CHANGE_TRANSLATION |
					  IBV_REREG_MR_CHANGE_ACCESS,
				self->s.dev[1].pd, access, self->zone[which],
				LENGTH, 0);
}

static void *rights_loop(void *arg)
{
	FIXTURE_DATA(rights) *self = arg;
	unsigned int turn = 0;

	while (!self->err && !atomic_load(&self->stop)) {
		self->err = rights_turn(self, ++turn & 1);
		/* long enough that some requests complete */
		if (!(turn & 1))
			usleep(3000);
		/* an access in progress can prevent an MR from being moved */
		if (self->err == EBUSY)
			self->err = 0;
		atomic_fetch_add(&self->turns, 1);
	}
	return NULL;
}

static struct mkt_wr rights_wr(FIXTURE_DATA(rights) *self, enum mkt_op op)
{
	return (struct mkt_wr){
		.op = op,
		.sge[0] = {
			.addr = self->s.plain[0].addr,
			.length = LENGTH,
			.lkey = self->s.plain[0].mr->lkey,
		},
		.num_sge = 1,
		.rkey = self->mr->rkey,
	};
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
	ASSERT_EQ(0, pthread_create(&self->tid, NULL, rights_loop, self));
	for (i = 0; i < rounds || ((!done || done == i) && i < 100000); i++) {
		struct mkt_wr wr = rights_wr(self, op);
		int status;

		memset(here, op == MKT_READ ? 0 : OPEN, LENGTH);
		status = mkt_status(&self->s.pair, 0, &wr);
		leaked += op == MKT_READ ? rights_count(here, LENGTH, SECRET) > 0 :
			  rights_count(self->zone[1], LENGTH, SECRET) < LENGTH;
		memset(self->zone[1], SECRET, LENGTH);
		if (status == IBV_WC_SUCCESS)
			done++;
		else if (mkt_pair_recover(&self->s.pair))
			break;
	}
	atomic_store(&self->stop, true);
	pthread_join(self->tid, NULL);
	EXPECT_EQ(0, self->err);
	EXPECT_LE(rounds, i);
	TH_LOG("%u requests, %u done, %u turns, %u reached the other zone", i,
	       done, atomic_load(&self->turns), leaked);
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
	struct mkt_wr wr = rights_wr(self, MKT_READ);
	struct mkt_replay replay;
	unsigned int answers;

	ASSERT_EQ(0, rights_turn(self, 0));
	wr.rkey = self->mr->rkey;
	wr.sge[0].length = 512;
	ASSERT_EQ(0, mkt_replay_open(&replay, &self->s.dev[0]));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	ASSERT_EQ(0, mkt_replay_find(&replay, MKT_BTH_READ_REQUEST));
	/* a replayed READ is answered while the zone is the same */
	answers = mkt_replay_send(&replay, OPEN, 512);
	EXPECT_EQ(1, answers);
	ASSERT_EQ(0, rights_turn(self, 1));
	answers = mkt_replay_send(&replay, SECRET, 512);
	EXPECT_EQ(0, answers);
	mkt_replay_close(&replay);
	EXPECT_EQ(0, mkt_pair_recover(&self->s.pair));
}

TEST_HARNESS_MAIN
