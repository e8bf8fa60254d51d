// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Keys over ODP memory, also while its pages are unmapped, and over all addresses of a
 * process; prefetches through keys, and the statistics of their page faults.
 * needs: on-demand
 * sets: smp
 */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"
#include "mkey_harness.h"
#include "odp.h"

#define SIZE (128 * 1024)
#define PAGES 16

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
	int access = ON_DEMAND;

	MKT_OPEN_EXTENDED(self->s.dev);
	MKT_ON_DEMAND(&self->s.dev[1]);
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

/* what was written through a key stays, if the process itself has not written the page */
TEST_F(odp, reclaimed)
{
	uint8_t *plain = (void *)(uintptr_t)self->s.plain[0].addr;
	uint8_t *memory = mkt_clean_pages(variant->shared, 2);
	struct ibv_mr *mr;

	ASSERT_NE(NULL, memory);
	mr = ibv_reg_mr(self->s.dev[1].pd, memory, 2 * PAGE,
			ON_DEMAND);
	ASSERT_NE(NULL, mr);
	ASSERT_EQ(0, mkt_bind_range(self->s.key[1], MKT_ACCESS_ALL, mr, (uintptr_t)memory,
				    2 * PAGE));
	mkt_rand_bytes(&self->s.rng, plain, PAGE);
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, self->s.key[1]->rkey, MKT_WRITE, 0, PAGE));
	if (!mkt_reclaim(memory, 2))
		SKIP(goto out, "the kernel does not reclaim the other page");
	EXPECT_EQ(0, memcmp(memory, plain, PAGE));
out:
	ASSERT_EQ(0, ibmkey_unbind(self->s.key[1]));
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	munmap(memory, 2 * PAGE);
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

/* the first leaf is by an MR over all addresses of the process */
TEST_F(odp, implicit)
{
	unsigned int i, rounds = mkt_scale(200, 20);
	struct mkt_leaf *leaf = &self->arena.leaf[0];
	struct ibv_mr *mr = leaf->mr;
	struct ibv_sge sge;

	leaf->mr = ibv_reg_mr(self->s.dev[1].pd, NULL, SIZE_MAX,
			      ON_DEMAND);
	ASSERT_NE(NULL, leaf->mr);
	for (i = 0; i < rounds; i++) {
		if (variant->shared)
			ASSERT_EQ(0, madvise(self->arena.mem[0].host, SIZE, MADV_DONTNEED));
		ASSERT_EQ(0, odp_round(&self->s, &self->arena));
	}
	ASSERT_EQ(0, ibmkey_unbind(self->s.key[1]));

	/* all of it, and addresses without memory */
	sge = (struct ibv_sge){ 0, UINT32_MAX, leaf->mr->lkey };
	ASSERT_EQ(0, ibv_rereg_mr_sg(self->s.key[1], MKT_ACCESS_ALL, 1, &sge));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(leaf->mr));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(&self->s, self->s.key[1]->rkey, MKT_READ, 64, 8));
	ASSERT_EQ(0, mkt_bind_range(self->s.key[1], MKT_ACCESS_ALL, leaf->mr, UINT64_MAX - 4096,
				    4096));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(&self->s, self->s.key[1]->rkey, MKT_READ, 4088, 8));
	ASSERT_EQ(0, mkt_bind_range(self->s.key[1], MKT_ACCESS_ALL, leaf->mr,
				    leaf->addr + (-leaf->addr & 7), 4096));
	EXPECT_EQ(IBV_WC_SUCCESS, odp_access(&self->s, MKT_READ, 0, 4096));
	EXPECT_EQ(IBV_WC_SUCCESS, odp_access(&self->s, MKT_FETCH_ADD, 8, 8));
	ASSERT_EQ(0, ibmkey_unbind(self->s.key[1]));
	ASSERT_EQ(0, ibv_dereg_mr(leaf->mr));
	leaf->mr = mr;
}

/* rereg_mr gives an implicit MR other memory, and makes no implicit MR */
TEST_F(odp, rereg_implicit)
{
	struct ibv_pd *pd = self->s.dev[1].pd;
	uint8_t *memory = mkt_untouched(PAGES * PAGE);
	const int access = ON_DEMAND;
	uint64_t addr = (uintptr_t)memory;
	struct ibv_mr *mr;

	ASSERT_NE(NULL, memory);
	mr = ibv_reg_mr(pd, NULL, SIZE_MAX, access);
	ASSERT_NE(NULL, mr);
	ASSERT_EQ(0, mkt_raw_rereg_to(mr, IBV_REREG_MR_CHANGE_TRANSLATION, pd, 0, memory + PAGE,
				      PAGE, addr + PAGE));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, mr->rkey, MKT_WRITE, addr + PAGE, PAGE));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, mr->rkey, MKT_WRITE, addr, 8));
	EXPECT_EQ(EINVAL, mkt_raw_rereg_to(mr, IBV_REREG_MR_CHANGE_TRANSLATION, pd, 0, NULL,
					   UINT64_MAX, 0));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, mr->rkey, MKT_WRITE, addr + PAGE, PAGE));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, mr->rkey, MKT_WRITE, addr, 8));
	EXPECT_EQ(0x2, mkt_mapped(memory, PAGES));
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	munmap(memory, PAGES * PAGE);
}

/* two MRs on demand and a pinned one, of PAGES pages each, and a key over them */
struct odp_advised {
	uint8_t *memory[2];
	struct ibv_mr *mr[2];
	struct ibv_mr *key;
};

/* the key has 8 bytes of each second page of both, and bytes of pinned memory in between */
static int odp_advised(struct odp_advised *advised, struct mkt_setup *s)
{
	const struct mkt_leaf *pinned = &s->arena[1].leaf[0];
	struct ibv_sge sge[PAGES + 1];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		advised->memory[i] = mkt_untouched(PAGES * PAGE);
		if (!advised->memory[i])
			return ENOMEM;
		advised->mr[i] = ibv_reg_mr(s->dev[1].pd, advised->memory[i], PAGES * PAGE,
					    ON_DEMAND);
		if (!advised->mr[i])
			return errno;
	}
	for (i = 0; i < PAGES; i++)
		sge[i] = (struct ibv_sge){
			(uintptr_t)advised->memory[i % 2] + i / 2 * 2 * PAGE + 100, 8,
			advised->mr[i % 2]->lkey,
		};
	sge[PAGES] = (struct ibv_sge){ pinned->addr, 8, pinned->mr->lkey };
	advised->key = ibmkey_alloc(s->dev[1].pd, PAGES + 1);
	if (!advised->key)
		return errno;
	return ibv_rereg_mr_sg(advised->key, MKT_ACCESS_ALL, PAGES + 1, sge);
}

static int odp_advised_free(struct odp_advised *advised)
{
	unsigned int i;
	int err;

	err = ibv_dereg_mr(advised->key);
	for (i = 0; i < 2; i++) {
		err = err ?: ibv_dereg_mr(advised->mr[i]);
		munmap(advised->memory[i], PAGES * PAGE);
	}
	return err;
}

TEST_F(odp, prefetch)
{
	struct mkt_dev *dev = &self->s.dev[1];
	struct ibv_pd *other = ibv_alloc_pd(dev->ctx);
	struct odp_advised a = {};
	struct mkt_odp_stats key;
	uint32_t lkey;

	ASSERT_NE(NULL, other);
	ASSERT_EQ(0, odp_advised(&a, &self->s));
	lkey = a.key->lkey;
	/* bytes 4 to 19: of pages 0 of both, and page 2 of the first one */
	ASSERT_EQ(0, mkt_raw_advise(dev->pd, PREFETCH_WRITE, NOW, 4, 16, lkey));
	EXPECT_EQ(0x5, mkt_mapped(a.memory[0], PAGES));
	EXPECT_EQ(0x1, mkt_mapped(a.memory[1], PAGES));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, a.key->rkey, MKT_WRITE, 0, 24));
	ASSERT_EQ(0, mkt_odp_stats(dev, a.key, &key));
	EXPECT_EQ(3, key.prefetch);
	EXPECT_EQ(0, key.faults);

	/* nothing that is absent comes */
	ASSERT_EQ(0, mkt_raw_advise(dev->pd, NO_FAULT, NOW, 0, PAGES * 8 + 8, lkey));
	EXPECT_EQ(0x5, mkt_mapped(a.memory[0], PAGES));
	EXPECT_EQ(0x1, mkt_mapped(a.memory[1], PAGES));

	/* for reading: a write faults once for each page */
	ASSERT_EQ(0, mkt_raw_advise(dev->pd, PREFETCH, NOW, 24, 8, lkey));
	EXPECT_EQ(0x5, mkt_mapped(a.memory[1], PAGES));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, a.key->rkey, MKT_READ, 24, 8));
	ASSERT_EQ(0, mkt_odp_stats(dev, a.key, &key));
	EXPECT_EQ(0, key.faults);
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, a.key->rkey, MKT_WRITE, 24, 8));
	ASSERT_EQ(0, mkt_odp_stats(dev, a.key, &key));
	EXPECT_EQ(1, key.faults);

	/* work items do it */
	ASSERT_EQ(0, mkt_raw_advise(dev->pd, PREFETCH_WRITE, 0, 0, PAGES * 8 + 8, lkey));
	ASSERT_TRUE(mkt_until(mkt_mapped(a.memory[0], PAGES) == 0x5555 &&
			      mkt_mapped(a.memory[1], PAGES) == 0x5555));

	/* bytes outside, another PD, a key that is not for writing or not bound */
	EXPECT_EQ(EFAULT, mkt_raw_advise(dev->pd, PREFETCH, NOW, PAGES * 8 + 1, 8, lkey));
	EXPECT_EQ(EFAULT, mkt_raw_advise(dev->pd, PREFETCH, 0, -1, 8, lkey));
	EXPECT_EQ(EINVAL, mkt_raw_advise(other, PREFETCH, NOW, 0, 8, lkey));
	EXPECT_EQ(0, ibv_dealloc_pd(other));
	ASSERT_EQ(0, mkt_bind_range(a.key, IBV_ACCESS_REMOTE_READ, a.mr[0],
				    (uintptr_t)a.memory[0], PAGES * PAGE));
	EXPECT_EQ(EPERM, mkt_raw_advise(dev->pd, PREFETCH_WRITE, NOW, PAGE, 8, lkey));
	EXPECT_EQ(0x5555, mkt_mapped(a.memory[0], PAGES));
	ASSERT_EQ(0, mkt_raw_advise(dev->pd, PREFETCH, NOW, PAGE, 1, lkey));
	EXPECT_EQ(0x5557, mkt_mapped(a.memory[0], PAGES));
	/* a leaf that is for writing no more, under a key that is */
	ASSERT_EQ(0, mkt_bind_range(a.key, MKT_ACCESS_ALL, a.mr[0], (uintptr_t)a.memory[0],
				    PAGES * PAGE));
	ASSERT_EQ(0, mkt_raw_rereg(a.mr[0], IBV_REREG_MR_CHANGE_ACCESS, dev->pd,
				   IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_READ));
	EXPECT_EQ(EPERM, mkt_raw_advise(dev->pd, PREFETCH_WRITE, NOW, 3 * PAGE, 8, lkey));
	EXPECT_EQ(0x5557, mkt_mapped(a.memory[0], PAGES));
	ASSERT_EQ(0, ibmkey_unbind(a.key));
	EXPECT_EQ(EINVAL, mkt_raw_advise(dev->pd, PREFETCH, NOW, 0, 8, lkey));
	ASSERT_EQ(0, odp_advised_free(&a));
}

/* one page of many pieces is one range, and pages beside each other are one */
TEST_F(odp, prefetch_strided)
{
	struct mkt_dev *dev = &self->s.dev[1];
	struct mkt_odp_stats key;
	struct odp_advised a = {};

	ASSERT_EQ(0, odp_advised(&a, &self->s));
	ASSERT_EQ(0, mkt_bind_strided(a.key, MKT_ACCESS_ALL, a.mr[0],
				      (uintptr_t)a.memory[0] + 2 * PAGE, 1, 7, 2 * PAGE / 7));
	ASSERT_EQ(0, mkt_raw_advise(dev->pd, PREFETCH_WRITE, NOW, 0, 2 * PAGE / 7, a.key->lkey));
	EXPECT_EQ(0xc, mkt_mapped(a.memory[0], PAGES));
	ASSERT_EQ(0, mkt_odp_stats(dev, a.key, &key));
	EXPECT_EQ(2, key.prefetch);
	ASSERT_EQ(0, odp_advised_free(&a));
}

/* those of a key are the sums of those of its leaves, also of leaves below another key */
TEST_F(odp, statistics)
{
	struct mkt_dev *dev = &self->s.dev[1];
	struct mkt_odp_stats key, leaf[2];
	struct odp_advised a = {};
	struct ibv_mr *outer;
	unsigned int i;

	ASSERT_EQ(0, odp_advised(&a, &self->s));
	outer = ibmkey_alloc(dev->pd, 4);
	ASSERT_NE(NULL, outer);
	EXPECT_EQ(ENODATA, mkt_odp_stats(dev, outer, &key));
	ASSERT_EQ(0, mkt_bind_strided(outer, MKT_ACCESS_ALL, a.key, 0, 4, 8, PAGES));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, outer->rkey, MKT_WRITE, 0, 4 * PAGES));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, outer->rkey, MKT_WRITE, 0, 4 * PAGES));
	ASSERT_EQ(0, madvise(a.memory[1], 4 * PAGE, MADV_DONTNEED));
	ASSERT_EQ(0, mkt_raw_advise(dev->pd, PREFETCH, NOW, 4, 1, outer->lkey));
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, mkt_odp_stats(dev, a.mr[i], &leaf[i]));
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, mkt_odp_stats(dev, i ? outer : a.key, &key));
		EXPECT_EQ(PAGES, key.faults);
		EXPECT_EQ(PAGES, key.faults_handled);
		EXPECT_EQ(2, key.invalidations);
		EXPECT_EQ(1, key.invalidations_handled);
		EXPECT_EQ(1, key.prefetch);
		EXPECT_EQ(leaf[0].faults + leaf[1].faults, key.faults);
		EXPECT_EQ(leaf[1].prefetch, key.prefetch);
		EXPECT_EQ(leaf[1].invalidations, key.invalidations);
	}
	/* a key over pinned memory has none */
	ASSERT_EQ(0, mkt_bind_range(outer, MKT_ACCESS_ALL, self->s.arena[1].leaf[0].mr,
				    self->s.arena[1].leaf[0].addr, 8));
	EXPECT_EQ(ENODATA, mkt_odp_stats(dev, outer, &key));
	ASSERT_EQ(0, ibv_dereg_mr(outer));
	ASSERT_EQ(0, odp_advised_free(&a));
}

TEST_HARNESS_MAIN
