// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Keys over ODP memory, also while its pages are unmapped.
 * needs: on-demand
 * sets: smp
 */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"
#include "mkey_harness.h"

#define SIZE (128 * 1024)

FIXTURE(odp)
{
	struct mkt_setup s;
	/* both leaves are over the one memory below; there are no others */
	struct mkt_arena arena;
};

FIXTURE_VARIANT(odp)
{
	bool shared;
	/* the offset of the second leaf's addresses */
	uint64_t shift;
};

FIXTURE_VARIANT_ADD(odp, private) { .shift = 0x123456000 };
FIXTURE_VARIANT_ADD(odp, shared) { .shared = true, .shift = 0x123456000 };

FIXTURE_SETUP(odp)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.host = 64 * 1024,
		.max_entries = 64,
	};
	int access = MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND;
	struct ibv_device_attr_ex attr;

	MKT_OPEN_EXTENDED(self->s.dev);
	ASSERT_EQ(0, ibv_query_device_ex(self->s.dev[1].ctx, NULL, &attr));
	if (!(attr.odp_caps.general_caps & IBV_ODP_SUPPORT))
		SKIP(return, "%s has no memory on demand", self->s.dev[1].name);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	mkt_arena_init(&self->arena, &self->s.dev[1]);
	ASSERT_EQ(0, mkt_arena_add_host(&self->arena, SIZE));
	if (variant->shared)
		ASSERT_EQ(0, mkt_mem_share(&self->arena.mem[0]));
	ASSERT_EQ(0, mkt_arena_add_leaf(&self->arena, 0, 61, SIZE - 61 - 35,
					access, 0));
	ASSERT_EQ(0, mkt_arena_add_leaf(&self->arena, 0, SIZE / 4 + 3, SIZE / 2,
					access, variant->shift));
	ASSERT_EQ(0, mkt_arena_fill(&self->arena, &self->s.rng));
}

FIXTURE_TEARDOWN(odp)
{
	if (self->s.key[1]) {
		EXPECT_EQ(0, ibv_dereg_mr(self->s.key[1]));
		self->s.key[1] = NULL;
	}
	EXPECT_EQ(0, mkt_arena_free(&self->arena));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* one transfer of any kind with a random layout on the side with ODP memory */
static int odp_round(struct mkt_setup *s, struct mkt_arena *arena)
{
	struct mkt_draw draw = {
		.max_length = 48 * 1024,
		.max_block = 32 * 1024,
		.max_blocks = 64,
		.max_dims = s->dev[1].caps.max_dims,
	};
	struct mkt_end key = {};
	struct mkt_xfer xfer = {
		.op = mkt_between(&s->rng, MKT_SEND, MKT_READ),
		.side = mkt_between(&s->rng, 0, 1),
		.end = { &s->plain[0], &key },
		.num_sge = mkt_between(&s->rng, 1, 3),
	};
	struct mkt_layout layout;
	size_t max;
	int err;

	err = mkt_draw_layout(&layout, &s->rng, arena,
			      mkt_between(&s->rng, MKT_LIST, MKT_GENERAL), &draw);
	if (err)
		return err;
	err = mkt_end_key(&key, s->key[1], arena, &layout, MKT_ACCESS_ALL);
	mkt_layout_free(&layout);
	if (!err) {
		max = key.map.length < s->plain[0].map.length ?
		      key.map.length : s->plain[0].map.length;
		xfer.length = mkt_between(&s->rng, 1, max);
		xfer.offset[1] = mkt_between(&s->rng, 0,
					     key.map.length - xfer.length);
		err = mkt_xfer(&s->pair, &xfer);
	}
	mkt_end_free(&key);
	return err;
}

TEST_F(odp, layouts)
{
	unsigned int i, rounds = mkt_scale(300, 30);

	for (i = 0; i < rounds; i++)
		ASSERT_EQ(0, odp_round(&self->s, &self->arena));
}

/* unmaps a page of a file without changing the process's view: it is dropped and found again */
static int odp_drop(void *arg, unsigned int round)
{
	struct mkt_mem *mem = arg;
	size_t page = 7 * (size_t)round % (mem->size / 4096);

	return madvise(mem->host + page * 4096, 4096, MADV_DONTNEED) ? errno : 0;
}

/* the same with pages of the process: they are shared with a child and copied */
static int odp_share(void *arg, unsigned int round)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	return pid < 0 || waitpid(pid, NULL, 0) != pid ? errno : 0;
}

TEST_F(odp, pages_go)
{
	unsigned int i, rounds = mkt_scale(200, 20);
	struct mkt_loop loop = {};

	ASSERT_EQ(0, mkt_loop_start(&loop, variant->shared ? odp_drop : odp_share,
				    &self->arena.mem[0]));
	for (i = 0; i < rounds || (!atomic_load(&loop.rounds) && i < 10000); i++)
		ASSERT_EQ(0, odp_round(&self->s, &self->arena));
	ASSERT_EQ(0, mkt_loop_end(&loop));
	TH_LOG("pages went %u times", loop.rounds);
	EXPECT_LT(0, loop.rounds);
}

/* returns the status of an access of @length bytes of the key */
static int odp_access(struct mkt_setup *s, enum mkt_op op, uint64_t addr,
		      uint32_t length)
{
	return mkt_touch(s, s->key[1]->rkey, op, addr, length);
}

/* at the addresses of the process, and at others */
TEST_F(odp, atomics)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		struct mkt_leaf *leaf = &self->arena.leaf[i];
		uint64_t addr = leaf->addr + 4096 + (-leaf->addr & 7);
		uint64_t *at = (uint64_t *)(uintptr_t)(addr - (i ? variant->shift : 0));
		uint64_t before = at[2];

		ASSERT_EQ(0, mkt_bind_range(self->s.key[1], MKT_ACCESS_ALL, leaf->mr, addr, 64));
		if (variant->shared)
			madvise((void *)((uintptr_t)at & ~4095ul), 4096,
				MADV_DONTNEED);
		EXPECT_EQ(IBV_WC_SUCCESS,
			  odp_access(&self->s, MKT_FETCH_ADD, 16, 8));
		EXPECT_EQ(before + 3, at[2]);
		EXPECT_EQ(IBV_WC_SUCCESS,
			  odp_access(&self->s, MKT_ATOMIC_WRITE, 24, 8));
		EXPECT_EQ(3, at[3]);
	}
}

/* an access to unmapped memory fails, and only that access */
TEST_F(odp, unmapped)
{
	struct mkt_leaf *leaf = &self->arena.leaf[0];
	struct mkt_mem *mem = &self->arena.mem[0];
	size_t hole = 16 * 4096;
	unsigned int i;

	/* both machines compare all memory after each request */
	ASSERT_EQ(0, mkt_bind_range(self->s.key[1], MKT_ACCESS_ALL, leaf->mr, leaf->addr,
				    leaf->length));
	ASSERT_EQ(IBV_WC_SUCCESS,
		  odp_access(&self->s, MKT_WRITE, hole - 61, 8192));
	ASSERT_EQ(0, munmap(mem->host + hole, 4096));
	for (i = 0; i < 2; i++) {
		EXPECT_NE(IBV_WC_SUCCESS,
			  odp_access(&self->s, i ? MKT_READ : MKT_WRITE,
				     hole - 61, 8192));
		ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	}
	EXPECT_EQ(IBV_WC_SUCCESS,
		  odp_access(&self->s, MKT_WRITE, hole - 61 + 4096, 8192));
	/* a new mapping is what is read and written from now on */
	ASSERT_NE(MAP_FAILED, mmap(mem->host + hole, 4096, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	memset((void *)(uintptr_t)self->s.plain[0].addr, 0x5c, 4096);
	EXPECT_EQ(IBV_WC_SUCCESS,
		  odp_access(&self->s, MKT_WRITE, hole - 61, 4096));
	EXPECT_EQ(0x5c, mem->host[hole]);
	EXPECT_EQ(0x5c, mem->host[hole + 4095]);
	/* read-only memory cannot be written */
	ASSERT_EQ(0, mprotect(mem->host + hole, 4096, PROT_READ));
	memset((void *)(uintptr_t)self->s.plain[0].addr, 0x77, 4096);
	EXPECT_NE(IBV_WC_SUCCESS,
		  odp_access(&self->s, MKT_WRITE, hole - 61, 4096));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(0x5c, mem->host[hole]);
	EXPECT_EQ(IBV_WC_SUCCESS,
		  odp_access(&self->s, MKT_READ, hole - 61, 4096));
}

/* ODP memory below another key: the outer key is accessed */
TEST_F(odp, nested)
{
	unsigned int i, rounds = mkt_scale(60, 8);

	for (i = 0; i < rounds; i++) {
		struct mkt_nest nest = {};
		struct mkt_end end;
		struct mkt_xfer xfer = {
			.op = mkt_between(&self->s.rng, MKT_SEND, MKT_READ),
			.side = mkt_between(&self->s.rng, 0, 1),
			.end = { &self->s.plain[0], &end },
			.num_sge = 1,
		};

		ASSERT_EQ(0, mkt_nest_build(&nest, &self->s.rng, &self->arena,
					    1 + i % 8));
		mkt_nest_end(&nest, &end);
		xfer.length = mkt_between(&self->s.rng, 1, end.map.length);
		ASSERT_EQ(0, mkt_xfer(&self->s.pair, &xfer));
		ASSERT_EQ(0, mkt_nest_free(&nest));
	}
}

TEST_HARNESS_MAIN
