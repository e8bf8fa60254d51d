// SPDX-License-Identifier: GPL-2.0
/*
 * subject: MRs that are registered again over other memory: ibv_rereg_mr() with a new
 * translation. The lkey and rkey stay, the bytes are elsewhere. An MR with a key or a window
 * over it cannot be moved. While a peer writes, each packet is in one of the memories.
 * sets: smp
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loop.h"
#include "mkey_harness.h"
#include "raw.h"

#define TRANSLATION IBV_REREG_MR_CHANGE_TRANSLATION
#define OTHER_SIZE (96 * 1024)

FIXTURE(rereg)
{
	struct mkt_setup s;
	struct ibv_mr *mr;		/* leaf 0 of side 1 */
	unsigned int other;		/* memory that it is moved to */
	uint32_t lkey, rkey;
};

FIXTURE_SETUP(rereg)
{
	struct mkt_arena *arena = &self->s.arena[1];

	MKT_SETUP(&self->s, .host = 64 * 1024, .dm = 8 * 1024, .max_entries = 4);
	self->other = arena->num_mems;
	ASSERT_EQ(0, mkt_arena_add_host(arena, OTHER_SIZE));
	ASSERT_EQ(0, mkt_arena_fill(arena, &self->s.rng));
	self->mr = arena->leaf[0].mr;
	self->lkey = self->mr->lkey;
	self->rkey = self->mr->rkey;
}

FIXTURE_TEARDOWN(rereg)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* tells the arena where leaf 0 is now */
static int rereg_moved(struct mkt_setup *s, unsigned int mem, size_t offset, size_t length,
		       uint64_t iova)
{
	struct mkt_arena *arena = &s->arena[1];

	arena->leaf[0].addr = iova;
	arena->leaf[0].length = length;
	arena->leaf[0].at = arena->mem[mem].at + offset;
	mkt_end_free(&s->plain[1]);
	return mkt_end_leaf(&s->plain[1], arena, 0);
}

/* registers leaf 0 again; its addresses are the process's plus @shift */
static int rereg_to(struct mkt_setup *s, uint32_t flags, struct ibv_pd *pd, uint32_t access,
		    unsigned int mem, size_t offset, size_t length, uint64_t shift)
{
	struct mkt_arena *arena = &s->arena[1];
	uint8_t *start = arena->mem[mem].host + offset;
	uint64_t iova = (uintptr_t)start + shift;
	int err;

	err = mkt_raw_rereg_to(arena->leaf[0].mr, flags | TRANSLATION, pd,
			       access, start, length, iova);
	return err ?: rereg_moved(s, mem, offset, length, iova);
}

/* the same to the process's own addresses, in the same PD and with the same access flags */
static int rereg_move(struct mkt_setup *s, unsigned int mem, size_t offset, size_t length)
{
	return rereg_to(s, 0, s->dev[1].pd, 0, mem, offset, length, 0);
}

/* moves bytes to and from leaf 0, with it on either side */
static int rereg_use(struct mkt_setup *s)
{
	static const enum mkt_op ops[] = { MKT_WRITE, MKT_READ, MKT_SEND };
	size_t max = s->plain[1].map.length;
	unsigned int o, side;
	int err = 0;

	if (max > s->plain[0].map.length)
		max = s->plain[0].map.length;
	for (o = 0; o < ARRAY_SIZE(ops); o++)
		for (side = 0; side < 2 && !err; side++) {
			struct mkt_xfer xfer = {
				.op = ops[o],
				.side = side,
				.end = { &s->plain[0], &s->plain[1] },
				.length = o ? mkt_between(&s->rng, 1, max) :
					      max,
				.num_sge = 2,
			};
			unsigned int from = mkt_xfer_source(&xfer);

			/* backwards from the end */
			xfer.offset[1] = s->plain[1].map.length - xfer.length;
			err = mkt_arena_fill(&s->arena[from], &s->rng);
			if (!err)
				err = mkt_xfer(&s->pair, &xfer);
		}
	return err;
}

static int rereg_status(struct mkt_setup *s, enum mkt_op op, uint64_t addr, uint32_t length)
{
	return mkt_try(s, s->arena[1].leaf[0].mr->rkey, op, addr, length);
}

TEST_F(rereg, other_memory)
{
	struct mkt_setup *s = &self->s;

	ASSERT_EQ(0, rereg_use(s));
	ASSERT_EQ(0, rereg_move(s, self->other, 555, s->arena[1].leaf[0].length));
	EXPECT_EQ(0, rereg_use(s));
	/* addresses that are not the process's */
	ASSERT_EQ(0, rereg_to(s, 0, s->dev[1].pd, 0, self->other, 0, 50000,
			      0x5000000));
	EXPECT_EQ(0, rereg_use(s));
	ASSERT_EQ(0, rereg_move(s, 0, 61, 65536 - 61));
	EXPECT_EQ(0, rereg_use(s));
	EXPECT_EQ(self->lkey, self->mr->lkey);
	EXPECT_EQ(self->rkey, self->mr->rkey);
}

/* the ends are at the new addresses, and the old ones are out of reach */
TEST_F(rereg, other_length)
{
	struct mkt_setup *s = &self->s;
	uint64_t first;

	ASSERT_EQ(0, rereg_move(s, self->other, 4090, 3000));
	EXPECT_EQ(0, rereg_use(s));
	first = s->arena[1].leaf[0].addr;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  rereg_status(s, MKT_WRITE, first + 2993, 8));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  rereg_status(s, MKT_READ, first - 1, 8));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  rereg_status(s, MKT_WRITE,
			       (uintptr_t)s->arena[1].mem[0].host + 100, 8));
	ASSERT_EQ(0, rereg_move(s, self->other, 1, OTHER_SIZE - 1));
	EXPECT_EQ(0, rereg_use(s));
	EXPECT_EQ(0, mkt_arena_check(&s->arena[1]));
}

/* new access flags together with the memory, or the old ones */
TEST_F(rereg, with_access)
{
	struct mkt_setup *s = &self->s;
	uint64_t addr;

	ASSERT_EQ(0, rereg_to(s, IBV_REREG_MR_CHANGE_ACCESS, s->dev[1].pd,
			      IBV_ACCESS_REMOTE_READ, self->other, 0, 8192, 0));
	addr = s->arena[1].leaf[0].addr;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, rereg_status(s, MKT_WRITE, addr, 8));
	EXPECT_EQ(IBV_WC_SUCCESS, rereg_status(s, MKT_READ, addr, 8));
	ASSERT_EQ(0, rereg_to(s, 0, s->dev[1].pd, MKT_ACCESS_ALL, self->other,
			      4096, 8192, 0));
	addr = s->arena[1].leaf[0].addr;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, rereg_status(s, MKT_WRITE, addr, 8));
	EXPECT_EQ(EINVAL, rereg_to(s, IBV_REREG_MR_CHANGE_ACCESS,
				   s->dev[1].pd, IBV_ACCESS_REMOTE_WRITE,
				   self->other, 0, 8192, 0));
	ASSERT_EQ(0, rereg_to(s, IBV_REREG_MR_CHANGE_ACCESS, s->dev[1].pd,
			      MKT_ACCESS_ALL, self->other, 0, 8192, 0));
	EXPECT_EQ(0, rereg_use(s));
}

TEST_F(rereg, with_pd)
{
	struct mkt_setup *s = &self->s;
	struct ibv_pd *pd = ibv_alloc_pd(s->dev[1].ctx);
	uint64_t addr;

	ASSERT_NE(NULL, pd);
	ASSERT_EQ(0, rereg_to(s, IBV_REREG_MR_CHANGE_PD, pd, 0, self->other, 0,
			      8192, 0));
	addr = s->arena[1].leaf[0].addr;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, rereg_status(s, MKT_READ, addr, 8));
	/* it is in use */
	EXPECT_EQ(EBUSY, ibv_dealloc_pd(pd));
	ASSERT_EQ(0, rereg_to(s, IBV_REREG_MR_CHANGE_PD |
			      IBV_REREG_MR_CHANGE_ACCESS, s->dev[1].pd,
			      MKT_ACCESS_ALL, 0, 8, 9000, 0));
	EXPECT_EQ(0, rereg_use(s));
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

/* a refused call changes nothing */
TEST_F(rereg, refused)
{
	struct mkt_setup *s = &self->s;
	uint8_t *start = s->arena[1].mem[self->other].host;
	static const struct {
		uint64_t length, shift;
	} bad[] = { { 0, 0 }, { 4096, 1 }, { -1ull, 0 } };
	struct ibv_pd *pd = s->dev[1].pd;
	unsigned int i;
	void *nowhere;

	nowhere = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	ASSERT_NE(MAP_FAILED, nowhere);
	EXPECT_EQ(EFAULT, mkt_raw_rereg_to(self->mr, TRANSLATION, pd, 0, nowhere, 8192,
					   (uintptr_t)nowhere));
	EXPECT_EQ(0, rereg_use(s));
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(EINVAL, mkt_raw_rereg_to(self->mr, TRANSLATION, pd, 0, start,
						   bad[i].length, (uintptr_t)start + bad[i].shift));
	}
	EXPECT_EQ(0, rereg_use(s));
	munmap(nowhere, 8192);
}

/* keys have no memory, and device memory does not move */
TEST_F(rereg, not_ours_to_move)
{
	struct mkt_setup *s = &self->s;
	uint8_t *start = s->arena[1].mem[self->other].host;

	EXPECT_EQ(EOPNOTSUPP, mkt_raw_rereg_to(s->key[1], TRANSLATION,
					       s->dev[1].pd, 0, start, 4096,
					       (uintptr_t)start));
	EXPECT_EQ(EINVAL, mkt_raw_rereg_to(s->arena[1].leaf[2].mr, TRANSLATION,
					   s->dev[1].pd, 0, start, 4096,
					   (uintptr_t)start));
}

/*
 * a leaf cannot be moved while a key refers to it; a key bound later sees the
 * new memory
 */
TEST_F(rereg, bound)
{
	struct mkt_setup *s = &self->s;
	struct mkt_block block = { .offset = 5, .bytes = 7, .stride = { 19 } };
	struct mkt_layout layout = mkt_layout_repeated(&block, 600);
	unsigned int i;

	for (i = 0; i < 3; i++) {
		struct mkt_end key;
		struct mkt_xfer xfer = {
			.op = MKT_WRITE,
			.end = { &s->plain[0], &key },
			.length = 600 * 7,
			.num_sge = 1,
		};

		ASSERT_EQ(0, mkt_end_key(&key, s->key[1], &s->arena[1],
					 &layout, MKT_ACCESS_ALL));
		EXPECT_EQ(0, mkt_xfer(&s->pair, &xfer));
		EXPECT_EQ(EBUSY, rereg_move(s, self->other, 0, 20000));
		EXPECT_EQ(0, mkt_xfer(&s->pair, &xfer));
		ASSERT_EQ(0, ibmkey_unbind(s->key[1]));
		ASSERT_EQ(0, rereg_to(s, 0, s->dev[1].pd, 0,
				      i & 1 ? 0 : self->other, 100 * i, 20000,
				      i * 0x10000));
		mkt_end_free(&key);
	}
}

TEST_F(rereg, window)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mw *mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_1);
	struct mkt_leaf *leaf = &s->arena[1].leaf[0];

	ASSERT_NE(NULL, mw);
	ASSERT_EQ(0, mkt_raw_rereg(self->mr, IBV_REREG_MR_CHANGE_ACCESS,
				   s->dev[1].pd,
				   MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND));
	ASSERT_EQ(0, mkt_bind_window(&s->pair.end[1], mw, self->mr, leaf->addr,
				     4096, IBV_ACCESS_REMOTE_WRITE));
	EXPECT_EQ(EBUSY, rereg_move(s, self->other, 0, 8192));
	EXPECT_EQ(0, rereg_use(s));
	ASSERT_EQ(0, ibv_dealloc_mw(mw));
	ASSERT_EQ(0, rereg_move(s, self->other, 0, 8192));
	EXPECT_EQ(0, rereg_use(s));
}

/* kilobytes that are pinned for devices */
static long rereg_pinned(void)
{
	long pinned = -1;
	char line[64];

	if (mkt_command(line, sizeof(line), "awk '/^VmPin:/ { print $2 }' /proc/%d/status",
			getpid()))
		pinned = strtol(line, NULL, 10);
	return pinned;
}

/* each call releases the former memory */
TEST_F(rereg, nothing_is_left)
{
	struct mkt_setup *s = &self->s;
	size_t length = s->arena[1].leaf[0].length;
	int regions = mkt_dev_count(&s->dev[1], "mr");
	long pinned = rereg_pinned();
	unsigned int i, n = mkt_scale(200, 40);

	for (i = 0; i < n; i++) {
		ASSERT_EQ(0, rereg_move(s, self->other, 61 + i % 7, length));
	}
	EXPECT_EQ(pinned, rereg_pinned());
	EXPECT_EQ(regions, mkt_dev_count(&s->dev[1], "mr"));
	EXPECT_EQ(0, rereg_use(s));
}

/* to ODP memory and back; rxe copies only whole pages of it */
TEST_F(rereg, on_demand)
{
	struct mkt_setup *s = &self->s;
	uint8_t *start = s->arena[1].mem[self->other].host;
	struct mkt_xfer xfer = {
		.op = MKT_WRITE,
		.end = { &s->plain[0], &s->plain[1] },
		.length = 1024,
		.num_sge = 1,
	};

	MKT_ON_DEMAND(&s->dev[1]);
	ASSERT_EQ(0, rereg_to(s, IBV_REREG_MR_CHANGE_ACCESS, s->dev[1].pd,
			      MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND,
			      self->other, 4096, 8192, 0));
	EXPECT_EQ(0, mkt_xfer(&s->pair, &xfer));
	/* other ODP pages, at the process's addresses only */
	ASSERT_EQ(0, rereg_move(s, self->other, 16384, 8192));
	EXPECT_EQ(0, mkt_xfer(&s->pair, &xfer));
	EXPECT_EQ(EINVAL, mkt_raw_rereg_to(self->mr, TRANSLATION,
					   s->dev[1].pd, 0, start, 8192,
					   (uintptr_t)start + 4096));
	EXPECT_EQ(0, mkt_xfer(&s->pair, &xfer));
	ASSERT_EQ(0, rereg_to(s, IBV_REREG_MR_CHANGE_ACCESS, s->dev[1].pd,
			      MKT_ACCESS_ALL, self->other, 33, 8192, 0));
	EXPECT_EQ(0, rereg_use(s));
}

/* the library updates the fields of the struct ibv_mr */
TEST_F(rereg, library)
{
	struct mkt_setup *s = &self->s;
	uint8_t *start = s->arena[1].mem[self->other].host + 300;
	struct ibv_pd *pd = ibv_alloc_pd(s->dev[1].ctx);
	struct ibv_mr *mr = self->mr;

	ASSERT_NE(NULL, pd);
	ASSERT_EQ(0, ibmkey_rereg_mr(mr, TRANSLATION, NULL, start, 20000, 0));
	EXPECT_EQ((void *)start, mr->addr);
	EXPECT_EQ(20000, mr->length);
	EXPECT_EQ(self->rkey, mr->rkey);
	ASSERT_EQ(0, rereg_moved(s, self->other, 300, 20000, (uintptr_t)start));
	EXPECT_EQ(0, rereg_use(s));
	ASSERT_EQ(0, ibmkey_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0,
				     0));
	EXPECT_EQ(pd, mr->pd);
	ASSERT_EQ(0, ibmkey_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD,
				     s->dev[1].pd, NULL, 0, 0));
	EXPECT_EQ(EINVAL, ibmkey_rereg_mr(mr, 0, NULL, start, 20000, 0));
	EXPECT_EQ(EINVAL, ibmkey_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL,
					  NULL, 0, 0));
	EXPECT_EQ(EINVAL, ibmkey_rereg_mr(NULL, TRANSLATION, NULL, start, 1,
					  0));
	EXPECT_EQ((void *)start, mr->addr);
	EXPECT_EQ(0, rereg_use(s));
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

/* the standard verb, from the provider's library or from the preload library */
TEST_F(rereg, verb)
{
	struct mkt_setup *s = &self->s;
	uint8_t *start = s->arena[1].mem[self->other].host;
	int err;

	err = ibv_rereg_mr(self->mr, TRANSLATION, NULL, start, 20000, 0);
	if (err && !getenv("LD_PRELOAD")) {
		EXPECT_EQ(IBV_REREG_MR_ERR_CMD, err);
		EXPECT_EQ(0, rereg_use(s));
		return;
	}
	ASSERT_EQ(0, err);
	ASSERT_EQ(0, rereg_moved(s, self->other, 0, 20000, (uintptr_t)start));
	EXPECT_EQ(0, rereg_use(s));
}

#define PACKET 1024
#define MESSAGE (12 * PACKET)

struct rereg_mover {
	struct mkt_setup *s;
	unsigned int mem[2];
	unsigned int busy;
};

/* moves the MR between two memories, with the same addresses */
static int rereg_mover(void *arg, unsigned int round)
{
	struct rereg_mover *m = arg;
	struct mkt_arena *arena = &m->s->arena[1];
	int err = mkt_raw_rereg_to(arena->leaf[0].mr, TRANSLATION, m->s->dev[1].pd, 0,
				   arena->mem[m->mem[round & 1]].host, MESSAGE, 0x100000);

	m->busy += err == EBUSY;
	/* the MR is hidden at most half of the time */
	usleep(5000);
	return err == EBUSY ? 0 : err;
}

/* number of packets with @value that are in neither memory */
static unsigned int rereg_lost(const uint8_t *const at[2], size_t length,
			       uint8_t value)
{
	unsigned int lost = 0, i;
	size_t p;

	for (p = 0; p < length; p += PACKET) {
		bool found = false;

		for (i = 0; i < 2; i++)
			found |= at[i][p] == value &&
				 !memcmp(at[i] + p, at[i] + p + 1, PACKET - 1);
		lost += !found;
	}
	return lost;
}

/* number of packets that were written in part */
static unsigned int rereg_torn(const uint8_t *const at[2])
{
	unsigned int torn = 0, i;
	size_t p;

	for (i = 0; i < 2; i++)
		for (p = 0; p < MESSAGE; p += PACKET)
			torn += !!memcmp(at[i] + p, at[i] + p + 1, PACKET - 1);
	return torn;
}

/* each packet of a WRITE is in one of the memories, or is refused */
TEST_F(rereg, under_traffic)
{
	struct mkt_setup *s = &self->s;
	struct rereg_mover mover = { .s = s, .mem = { 0, self->other } };
	uint8_t *from = s->arena[0].mem[0].host + 61;
	unsigned int i, n = mkt_scale(1500, 200), refused = 0, lost = 0, torn = 0;
	const uint8_t *at[2] = {
		s->arena[1].mem[0].host,
		s->arena[1].mem[self->other].host,
	};
	struct mkt_loop loop = {};
	unsigned int turns;

	memset(s->arena[1].mem[0].host, 0, MESSAGE);
	memset(s->arena[1].mem[self->other].host, 0, MESSAGE);
	ASSERT_EQ(0, mkt_raw_rereg_to(self->mr, TRANSLATION, s->dev[1].pd, 0,
				      at[1], MESSAGE, 0x100000));
	ASSERT_EQ(0, mkt_loop_start(&loop, rereg_mover, &mover));
	for (i = 0; i < n || (!atomic_load(&loop.rounds) && !atomic_load(&loop.err)); i++) {
		size_t length = i & 1 ? MESSAGE : PACKET;
		int status;

		memset(from, i % 255 + 1, length);
		status = rereg_status(s, MKT_WRITE, 0x100000, length);
		if (status != IBV_WC_SUCCESS) {
			ASSERT_EQ(IBV_WC_REM_ACCESS_ERR, status);
			refused++;
		} else {
			lost += rereg_lost(at, length, i % 255 + 1);
		}
		torn += rereg_torn(at);
	}
	EXPECT_EQ(0, mkt_loop_end(&loop));
	turns = atomic_load(&loop.rounds);
	TH_LOG("%u messages, %u of them refused, moved %u times, busy %u times",
	       i, refused, turns - mover.busy, mover.busy);
	EXPECT_EQ(0, lost);
	EXPECT_EQ(0, torn);
	EXPECT_LT(mover.busy, turns);
	EXPECT_GT(i, refused);
	ASSERT_EQ(0, mkt_arena_adopt(&s->arena[1], s->arena[1].mem[0].at,
				     MESSAGE));
	ASSERT_EQ(0, mkt_arena_adopt(&s->arena[1],
				     s->arena[1].mem[self->other].at, MESSAGE));
	ASSERT_EQ(0, rereg_move(s, self->other, 0, 8192));
	EXPECT_EQ(0, rereg_use(s));
}

TEST_HARNESS_MAIN
