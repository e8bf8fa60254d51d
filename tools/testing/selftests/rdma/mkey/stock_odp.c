// SPDX-License-Identifier: GPL-2.0
/*
 * subject: MRs on demand that requests name directly, explicit and implicit ones: every byte, at
 * every offset, also if the addresses of the MR are not those of the process; prefetches, and the
 * statistics of page faults. They need no ib_mkey.
 * needs: on-demand
 * sets: smp
 */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"
#include "mkey_harness.h"
#include "odp.h"

#define SIZE (64 * 1024)
#define PAGES 8

FIXTURE(odp)
{
	struct mkt_setup s;
	struct mkt_arena arena;	/* one memory, one MR on demand */
	struct mkt_end end;	/* the MR, or the implicit one */
	struct ibv_mr *implicit;
};

FIXTURE_VARIANT(odp)
{
	uint64_t shift;		/* the MR's addresses minus those of the process */
	enum ibv_mtu mtu;
	bool implicit;		/* over all addresses of the process */
};

FIXTURE_VARIANT_ADD(odp, same) { .mtu = IBV_MTU_1024 };
FIXTURE_VARIANT_ADD(odp, shifted) { .shift = 0x123456000, .mtu = IBV_MTU_4096 };
FIXTURE_VARIANT_ADD(odp, implicit) { .mtu = IBV_MTU_4096, .implicit = true };

FIXTURE_SETUP(odp)
{
	struct mkt_wants wants = { .mtu = variant->mtu, .host = SIZE };
	const int access = ON_DEMAND;

	MKT_OPEN(self->s.dev);
	MKT_ON_DEMAND(&self->s.dev[1]);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	mkt_arena_init(&self->arena, &self->s.dev[1]);
	ASSERT_EQ(0, mkt_arena_add_host(&self->arena, SIZE));
	ASSERT_EQ(0, mkt_mem_share(&self->arena.mem[0]));
	ASSERT_EQ(0, mkt_arena_add_leaf(&self->arena, 0, 61, SIZE - 61 - 35, access,
					variant->shift));
	ASSERT_EQ(0, mkt_arena_fill(&self->arena, &self->s.rng));
	ASSERT_EQ(0, mkt_end_leaf(&self->end, &self->arena, 0));
	if (!variant->implicit)
		return;
	self->implicit = ibv_reg_mr(self->s.dev[1].pd, NULL, SIZE_MAX, access);
	ASSERT_NE(NULL, self->implicit);
	self->end.mr = self->implicit;
}

FIXTURE_TEARDOWN(odp)
{
	if (self->implicit)
		EXPECT_EQ(0, ibv_dereg_mr(self->implicit));
	mkt_end_free(&self->end);
	EXPECT_EQ(0, mkt_arena_free(&self->arena));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* takes the pages away; the next access faults them in again */
static int odp_drop(FIXTURE_DATA(odp) *self)
{
	return madvise(self->arena.mem[0].host, SIZE, MADV_DONTNEED) ? errno : 0;
}

static int odp_copy(FIXTURE_DATA(odp) *self)
{
	struct mkt_rng *rng = &self->s.rng;
	struct mkt_xfer xfer = {
		.op = mkt_between(rng, MKT_SEND, MKT_READ),
		.side = mkt_between(rng, 0, 1),
		.end = { &self->s.plain[0], &self->end },
		.length = mkt_rand_size(rng, 40000),
		.num_sge = mkt_between(rng, 1, 3),
	};

	return mkt_xfer_drawn(&self->s.pair, rng, &xfer);
}

TEST_F(odp, copies)
{
	unsigned int i, rounds = mkt_scale(600, 60);

	for (i = 0; i < rounds; i++) {
		if (i % 3 == 0)
			ASSERT_EQ(0, odp_drop(self));
		ASSERT_EQ(0, odp_copy(self));
	}
}

/* pages are shared with a child and copied, and go */
static int fork_and_drop(void *arg, unsigned int round)
{
	struct mkt_mem *mem = arg;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	if (pid < 0 || waitpid(pid, NULL, 0) != pid)
		return errno;
	return madvise(mem->host + round * 4096 % mem->size, 4096, MADV_DONTNEED) ? errno : 0;
}

TEST_F(odp, fork)
{
	unsigned int i, rounds = mkt_scale(200, 20);
	struct mkt_loop loop = {};

	ASSERT_EQ(0, mkt_loop_start(&loop, fork_and_drop, &self->arena.mem[0]));
	for (i = 0; i < rounds || (!atomic_load(&loop.rounds) && i < 10000); i++)
		ASSERT_EQ(0, odp_copy(self));
	ASSERT_EQ(0, mkt_loop_end(&loop));
	EXPECT_LT(0, loop.rounds);
}

/* in a page that is mapped, and in one that is not */
TEST_F(odp, atomics)
{
	static const enum mkt_op ops[] = {
		MKT_FETCH_ADD, MKT_CMP_SWAP, MKT_ATOMIC_WRITE,
	};
	unsigned int i, o;
	size_t at;

	for (i = 0; i < mkt_scale(40, 8); i++)
		for (o = 0; o < ARRAY_SIZE(ops); o++) {
			struct mkt_xfer xfer = {
				.op = ops[o],
				.end = { &self->s.plain[0], &self->end },
				.length = 8,
				.num_sge = 1,
				.swap_add = mkt_rand(&self->s.rng),
			};

			/* the MR begins 3 bytes before an aligned address */
			xfer.offset[1] = 3 + 8 * mkt_between(&self->s.rng, 0, 8000);
			at = self->end.map.pos[xfer.offset[1]];
			if (i % 2)
				memcpy(&xfer.compare, self->arena.expect + at, 8);
			if (i % 4 < 2)
				ASSERT_EQ(0, odp_drop(self));
			ASSERT_EQ(0, mkt_xfer(&self->s.pair, &xfer));
		}
}

TEST_F(odp, refused)
{
	static const enum mkt_op ops[] = {
		MKT_WRITE, MKT_READ, MKT_FETCH_ADD, MKT_CMP_SWAP, MKT_ATOMIC_WRITE,
	};
	const uint64_t first = self->end.addr, end = first + self->end.map.length;
	const uint32_t rkey = self->end.mr->rkey;
	unsigned int o;

	for (o = 0; o < ARRAY_SIZE(ops); o++) {
		/* aligned, and partly outside of the MR */
		if (!variant->implicit) {
			EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
				  mkt_try(&self->s, rkey, ops[o], (first - 1) & ~7ull, 8));
			EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
				  mkt_try(&self->s, rkey, ops[o], (end - 1) & ~7ull, 8));
		}
		/*
		 * inside, and across the end of a page; the library refuses the other
		 * atomics itself
		 */
		if (ops[o] == MKT_FETCH_ADD || ops[o] == MKT_CMP_SWAP)
			continue;
		EXPECT_EQ(ops[o] == MKT_ATOMIC_WRITE ? IBV_WC_REM_INV_REQ_ERR :
						       IBV_WC_SUCCESS,
			  mkt_try(&self->s, rkey, ops[o], (first | (PAGE - 1)) - 3, 8));
	}
}

/* the numbers of the pages that are mapped, as bits */
static unsigned int odp_mapped(uint8_t *memory)
{
	return mkt_mapped(memory, PAGES);
}

/* an MR of the variant over the memory */
static struct ibv_mr *odp_reg(FIXTURE_DATA(odp) *self, const FIXTURE_VARIANT(odp) *variant,
			      uint8_t *memory, unsigned int access)
{
	struct ibv_pd *pd = self->s.dev[1].pd;

	if (variant->implicit)
		return ibv_reg_mr(pd, NULL, SIZE_MAX, access);
	return ibv_reg_mr_iova(pd, memory, PAGES * PAGE, (uintptr_t)memory + variant->shift,
			       access);
}

/* memory that has never been touched, and an MR over it */
static uint8_t *odp_untouched(FIXTURE_DATA(odp) *self, const FIXTURE_VARIANT(odp) *variant,
			      unsigned int access, struct ibv_mr **mr)
{
	uint8_t *memory = mkt_untouched(PAGES * PAGE);

	if (!memory)
		return NULL;
	*mr = odp_reg(self, variant, memory, access);
	return *mr ? memory : NULL;
}

/*
 * A FLUSH to persistence faults in the pages of its range, and no others. All of an implicit MR
 * has addresses without memory.
 */
TEST_F(odp, flush)
{
	struct mkt_wr wr = {
		.op = MKT_FLUSH,
		.flush_length = PAGE + 2,
		.persistent = true,
	};
	struct ibv_mr *mr;
	uint8_t *memory;

	memory = odp_untouched(self, variant, ON_DEMAND |
			       IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT, &mr);
	ASSERT_NE(NULL, memory);
	wr.rkey = mr->rkey;
	wr.remote_addr = (uintptr_t)memory + variant->shift + 2 * PAGE - 1;
	ASSERT_EQ(0, odp_mapped(memory));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	EXPECT_EQ(0x0e, odp_mapped(memory));
	wr.whole = true;
	wr.remote_addr = 0;
	wr.flush_length = 0;
	EXPECT_EQ(variant->implicit ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS,
		  mkt_status(&self->s.pair, 0, &wr));
	EXPECT_EQ(variant->implicit ? 0x0e : 0xff, odp_mapped(memory));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	munmap(memory, PAGES * PAGE);
}

/* all of a window is a part of the MR */
TEST_F(odp, flush_window)
{
	const unsigned int access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_FLUSH_PERSISTENT;
	struct mkt_wr wr = { .op = MKT_FLUSH, .whole = true, .persistent = true };
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	uint8_t *memory;
	struct ibv_mr *mr;
	uint64_t addr;

	ASSERT_NE(NULL, mw);
	memory = odp_untouched(self, variant, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_MW_BIND |
			       access, &mr);
	ASSERT_NE(NULL, memory);
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], mw, mr,
				     (uintptr_t)memory + variant->shift + 3 * PAGE, 2 * PAGE,
				     access));
	wr.rkey = mw->rkey;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	EXPECT_EQ(0x18, odp_mapped(memory));
	addr = (uintptr_t)memory + variant->shift + 5 * PAGE;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, mw->rkey, MKT_READ, addr - 8, 8));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, mw->rkey, MKT_READ, addr - 4, 8));
	ASSERT_EQ(0, ibv_dealloc_mw(mw));
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	munmap(memory, PAGES * PAGE);
}

/* more than 32 bits of bytes */
TEST_F(odp, flush_large)
{
	const size_t length = (4ull << 30) + PAGE;
	struct mkt_wr wr = { .op = MKT_FLUSH, .whole = true, .persistent = true };
	unsigned char last = 0;
	struct ibv_mr *mr;
	uint8_t *memory;

	if (variant->implicit)
		SKIP(return, "an implicit MR has addresses without memory");
	memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ASSERT_NE(MAP_FAILED, memory);
	mr = ibv_reg_mr_iova(self->s.dev[1].pd, memory, length,
			     (uintptr_t)memory + variant->shift,
			     ON_DEMAND | IBV_ACCESS_FLUSH_PERSISTENT);
	ASSERT_NE(NULL, mr);
	/* so that it takes no minutes */
	ASSERT_EQ(0, mkt_raw_advise(self->s.dev[1].pd, PREFETCH, NOW,
				    (uintptr_t)memory + variant->shift, UINT32_MAX - PAGE,
				    mr->lkey));
	ASSERT_EQ(0, mincore(memory + length - PAGE, PAGE, &last));
	EXPECT_EQ(0, last & 1);
	wr.rkey = mr->rkey;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	ASSERT_EQ(0, mincore(memory + length - PAGE, PAGE, &last));
	EXPECT_EQ(1, last & 1);
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	munmap(memory, length);
}

/* a request of side 0 for @length bytes from @addr on of @mr; returns its status */
static int odp_access(FIXTURE_DATA(odp) *self, enum mkt_op op, const struct ibv_mr *mr,
		      uint64_t addr, uint32_t length)
{
	return mkt_touch(&self->s, mr->rkey, op, addr, length);
}

TEST_F(odp, prefetch)
{
	struct ibv_pd *pd = self->s.dev[1].pd, *other;
	uint64_t addr, end;
	uint8_t *memory;
	struct ibv_mr *mr;

	memory = odp_untouched(self, variant,
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND, &mr);
	ASSERT_NE(NULL, memory);
	addr = (uintptr_t)memory + variant->shift;
	EXPECT_EQ(0, mkt_raw_advise(pd, PREFETCH, NOW, addr + 3 * PAGE - 1, 2, mr->lkey));
	EXPECT_EQ(0x0c, odp_mapped(memory));
	/* outside of the MR */
	end = addr + PAGES * PAGE;
	if (!variant->implicit) {
		EXPECT_EQ(EFAULT, mkt_raw_advise(pd, PREFETCH, NOW, addr - 1, 2, mr->lkey));
		EXPECT_EQ(EFAULT, mkt_raw_advise(pd, PREFETCH, NOW, end - 1, 2, mr->lkey));
		EXPECT_EQ(EFAULT, mkt_raw_advise(pd, PREFETCH, 0, end, 1, mr->lkey));
		EXPECT_EQ(EFAULT, mkt_raw_advise(pd, NO_FAULT, NOW, end, 1, mr->lkey));
	}
	/* an lkey that does not exist, and that of another PD */
	EXPECT_EQ(EINVAL, mkt_raw_advise(pd, PREFETCH, NOW, addr, 2, mr->lkey ^ 0x5500));
	other = ibv_alloc_pd(self->s.dev[1].ctx);
	ASSERT_NE(NULL, other);
	EXPECT_EQ(EINVAL, mkt_raw_advise(other, PREFETCH, NOW, addr, 2, mr->lkey));
	EXPECT_EQ(EINVAL, mkt_raw_advise(other, PREFETCH, 0, addr, 2, mr->lkey));
	EXPECT_EQ(0, ibv_dealloc_pd(other));
	/* the MR is not for writing */
	EXPECT_EQ(EPERM, mkt_raw_advise(pd, PREFETCH_WRITE, NOW, addr, 2, mr->lkey));
	/* unknown advice, and an unknown flag */
	EXPECT_EQ(EOPNOTSUPP, mkt_raw_advise(pd, NO_FAULT + 1, NOW, addr, 2, mr->lkey));
	EXPECT_EQ(EINVAL, mkt_raw_advise(pd, PREFETCH, NOW << 1, addr, 2, mr->lkey));
	EXPECT_EQ(0x0c, odp_mapped(memory));
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	munmap(memory, PAGES * PAGE);
}

/* an MR that is not on demand has all its pages */
TEST_F(odp, prefetch_ordinary)
{
	const struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibv_pd *pd = self->s.dev[1].pd;
	struct mkt_odp_stats stats;

	EXPECT_EQ(0, mkt_raw_advise(pd, PREFETCH_WRITE, NOW, leaf->addr, 8, leaf->mr->lkey));
	EXPECT_EQ(0, mkt_raw_advise(pd, PREFETCH, 0, leaf->addr, 8, leaf->mr->lkey));
	EXPECT_EQ(EFAULT, mkt_raw_advise(pd, PREFETCH, NOW, leaf->addr + leaf->length, 1,
					 leaf->mr->lkey));
	EXPECT_EQ(ENODATA, mkt_odp_stats(&self->s.dev[1], leaf->mr, &stats));
}

/* what was prefetched, and for what: the statistics of the MR say whether a page was missing */
TEST_F(odp, prefetched)
{
	struct mkt_dev *dev = &self->s.dev[1];
	struct mkt_odp_stats stats;
	uint8_t *memory;
	struct ibv_mr *mr;
	uint64_t addr;

	memory = odp_untouched(self, variant, ON_DEMAND, &mr);
	ASSERT_NE(NULL, memory);
	addr = (uintptr_t)memory + variant->shift;

	/* for writing: two pages */
	ASSERT_EQ(0, mkt_raw_advise(dev->pd, PREFETCH_WRITE, NOW, addr + PAGE - 1, 2, mr->lkey));
	ASSERT_EQ(0x03, odp_mapped(memory));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_WRITE, mr, addr, 2 * PAGE));
	ASSERT_EQ(0, mkt_odp_stats(dev, mr, &stats));
	EXPECT_EQ(2, stats.prefetch);
	EXPECT_EQ(0, stats.faults);

	/* for reading: a read finds the page, and a write faults once */
	ASSERT_EQ(0, mkt_raw_advise(dev->pd, PREFETCH, NOW, addr + 2 * PAGE, 1, mr->lkey));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_READ, mr, addr + 2 * PAGE, 8));
	ASSERT_EQ(0, mkt_odp_stats(dev, mr, &stats));
	EXPECT_EQ(3, stats.prefetch);
	EXPECT_EQ(0, stats.faults);
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_WRITE, mr, addr + 2 * PAGE, 8));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_WRITE, mr, addr + 2 * PAGE, 8));
	ASSERT_EQ(0, mkt_odp_stats(dev, mr, &stats));
	EXPECT_EQ(1, stats.faults);
	EXPECT_EQ(1, stats.faults_handled);

	/* without faults: nothing comes, except for what the process has touched */
	ASSERT_EQ(0, mkt_raw_advise(dev->pd, NO_FAULT, NOW, addr + 3 * PAGE, 2 * PAGE, mr->lkey));
	ASSERT_EQ(0x07, odp_mapped(memory));
	ASSERT_EQ(0, mkt_odp_stats(dev, mr, &stats));
	EXPECT_EQ(3, stats.prefetch);
	memory[3 * PAGE] = 1;
	ASSERT_EQ(0, mkt_raw_advise(dev->pd, NO_FAULT, NOW, addr + 3 * PAGE, 2 * PAGE, mr->lkey));
	ASSERT_EQ(0x0f, odp_mapped(memory));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_WRITE, mr, addr + 3 * PAGE, 8));
	ASSERT_EQ(0, mkt_odp_stats(dev, mr, &stats));
	EXPECT_EQ(4, stats.prefetch);
	EXPECT_EQ(1, stats.faults);

	/* a work item does it */
	ASSERT_EQ(0, mkt_raw_advise(dev->pd, PREFETCH_WRITE, 0, addr + 5 * PAGE, 2 * PAGE,
				    mr->lkey));
	ASSERT_TRUE(mkt_until(!mkt_odp_stats(dev, mr, &stats) && stats.prefetch == 6));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_WRITE, mr, addr + 5 * PAGE, 2 * PAGE));
	ASSERT_EQ(0, mkt_odp_stats(dev, mr, &stats));
	EXPECT_EQ(1, stats.faults);
	EXPECT_EQ(0x6f, odp_mapped(memory));
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	munmap(memory, PAGES * PAGE);
}

TEST_F(odp, statistics)
{
	struct mkt_dev *dev = &self->s.dev[1];
	struct mkt_odp_stats stats;
	uint8_t *memory;
	struct ibv_mr *mr;
	uint64_t addr;

	if (variant->implicit)
		SKIP(return, "stock_implicit has those of the parts of an implicit MR");
	memory = odp_untouched(self, variant, ON_DEMAND, &mr);
	ASSERT_NE(NULL, memory);
	addr = (uintptr_t)memory + variant->shift;
	ASSERT_EQ(0, mkt_odp_stats(dev, mr, &stats));
	EXPECT_EQ(0, stats.faults + stats.faults_handled + stats.invalidations +
		     stats.invalidations_handled + stats.prefetch);

	/* one access of two pages, and each kind of atomic */
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_WRITE, mr, addr + PAGE - 1, 2));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_FETCH_ADD, mr, addr + 4 * PAGE, 8));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_ATOMIC_WRITE, mr, addr + 5 * PAGE, 8));
	/* which are there now */
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_READ, mr, addr + PAGE - 1, 2));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_CMP_SWAP, mr, addr + 4 * PAGE, 8));
	ASSERT_EQ(0, mkt_odp_stats(dev, mr, &stats));
	EXPECT_EQ(4, stats.faults);
	EXPECT_EQ(3, stats.faults_handled);
	EXPECT_EQ(0, stats.invalidations);
	EXPECT_EQ(0, stats.invalidations_handled);

	/* two of the pages go, and others that the device has not */
	ASSERT_EQ(0, madvise(memory, 4 * PAGE, MADV_DONTNEED));
	ASSERT_EQ(0, madvise(memory + 6 * PAGE, PAGE, MADV_DONTNEED));
	ASSERT_EQ(0, mkt_odp_stats(dev, mr, &stats));
	EXPECT_EQ(2, stats.invalidations);
	EXPECT_EQ(1, stats.invalidations_handled);

	/* an access that fails */
	ASSERT_EQ(0, munmap(memory + 7 * PAGE, PAGE));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, mr->rkey, MKT_READ,
						 addr + 7 * PAGE, 8));
	ASSERT_EQ(0, mkt_odp_stats(dev, mr, &stats));
	EXPECT_EQ(4, stats.faults);
	EXPECT_EQ(3, stats.faults_handled);
	EXPECT_EQ(0, stats.prefetch);
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	munmap(memory, PAGES * PAGE);
}

/* an MR over addresses that get their memory later, and over memory that becomes read-only */
TEST_F(odp, late)
{
	uint8_t *plain = (void *)(uintptr_t)self->s.plain[0].addr;
	uint8_t *memory = mkt_untouched(PAGES * PAGE);
	struct ibv_mr *mr;
	uint64_t addr;

	ASSERT_NE(NULL, memory);
	ASSERT_EQ(0, munmap(memory, PAGES * PAGE));
	mr = odp_reg(self, variant, memory, ON_DEMAND);
	ASSERT_NE(NULL, mr);
	addr = (uintptr_t)memory + variant->shift;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, mr->rkey, MKT_WRITE, addr, 8));
	EXPECT_EQ(EFAULT, mkt_raw_advise(self->s.dev[1].pd, PREFETCH, NOW, addr, 8, mr->lkey));
	ASSERT_EQ(memory, mmap(memory, PAGES * PAGE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
	mkt_rand_bytes(&self->s.rng, plain, 3 * PAGE);
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_WRITE, mr, addr + 100, 3 * PAGE));
	EXPECT_EQ(0, memcmp(memory + 100, plain, 3 * PAGE));
	mkt_rand_bytes(&self->s.rng, memory + 100, 3 * PAGE);
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_READ, mr, addr + 100, 3 * PAGE));
	EXPECT_EQ(0, memcmp(memory + 100, plain, 3 * PAGE));
	ASSERT_EQ(0, mprotect(memory, PAGE, PROT_READ));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, mr->rkey, MKT_WRITE, addr, 8));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, mr->rkey, MKT_READ, addr, 8));
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	munmap(memory, PAGES * PAGE);
}

/* rdma-core's header lacks these two */
#define SUPPORT_FLUSH (1u << 6)
#define SUPPORT_ATOMIC_WRITE (1u << 7)

/*
 * Each operation that the device announces for memory on demand works: the queue pairs have @flags,
 * and side @side, with the memory or without it, posts @op.
 */
static const struct {
	unsigned int flags;
	uint32_t cap;
	enum mkt_op op;
	unsigned int side;
} announced_ops[] = {
	{ 0, IBV_ODP_SUPPORT_SEND, MKT_SEND, 1 },
	{ 0, IBV_ODP_SUPPORT_RECV, MKT_SEND, 0 },
	{ 0, IBV_ODP_SUPPORT_WRITE, MKT_WRITE, 0 },
	{ 0, IBV_ODP_SUPPORT_WRITE, MKT_WRITE, 1 },
	{ 0, IBV_ODP_SUPPORT_READ, MKT_READ, 0 },
	{ 0, IBV_ODP_SUPPORT_READ, MKT_READ, 1 },
	{ 0, IBV_ODP_SUPPORT_ATOMIC, MKT_FETCH_ADD, 0 },
	{ 0, IBV_ODP_SUPPORT_ATOMIC, MKT_CMP_SWAP, 0 },
	{ 0, SUPPORT_FLUSH, MKT_FLUSH, 0 },
	{ 0, SUPPORT_ATOMIC_WRITE, MKT_ATOMIC_WRITE, 0 },
	{ MKT_QP_SRQ, IBV_ODP_SUPPORT_SRQ_RECV, MKT_SEND, 0 },
	{ MKT_QP_UD, IBV_ODP_SUPPORT_SEND, MKT_SEND, 1 },
	{ MKT_QP_UD, IBV_ODP_SUPPORT_RECV, MKT_SEND, 0 },
	{ MKT_QP_UD | MKT_QP_SRQ, IBV_ODP_SUPPORT_SRQ_RECV, MKT_SEND, 0 },
};

/* a FLUSH to persistence of a page that is not there; the MR above is not for that */
static int flush_absent(FIXTURE_DATA(odp) *self, const FIXTURE_VARIANT(odp) *variant,
			struct mkt_pair *pair)
{
	const unsigned int access = ON_DEMAND |
				    IBV_ACCESS_FLUSH_PERSISTENT;
	struct mkt_wr wr = { .op = MKT_FLUSH, .flush_length = 8, .persistent = true };
	struct ibv_mr *mr;
	uint8_t *memory;
	int status;

	memory = odp_untouched(self, variant, access, &mr);
	if (!memory)
		return -1;
	wr.rkey = mr->rkey;
	wr.remote_addr = (uintptr_t)memory + variant->shift;
	status = mkt_status(pair, 0, &wr);
	if (ibv_dereg_mr(mr) || munmap(memory, PAGES * PAGE))
		return -1;
	return status;
}

/* the bytes before those of a datagram */
#define GRH 40

/* a datagram of side @side to or from the MR; nothing compares the arenas afterwards */
static int datagram(FIXTURE_DATA(odp) *self, uint64_t shift, struct mkt_pair *pair,
		    unsigned int side)
{
	struct mkt_end *end[2] = { &self->s.plain[0], &self->end };
	uint8_t *at[2] = {
		(void *)(uintptr_t)end[0]->addr, (void *)(uintptr_t)(end[1]->addr - shift),
	};
	struct mkt_wr wr = {
		.op = MKT_SEND,
		.sge[0] = { end[side]->addr, 8, end[side]->mr->lkey },
		.num_sge = 1,
	};
	struct mkt_wr recv = {
		.sge[0] = { end[!side]->addr, GRH + 8, end[!side]->mr->lkey },
		.num_sge = 1,
	};
	struct mkt_result result;
	int err;

	mkt_rand_bytes(&self->s.rng, at[side], 8);
	err = mkt_exec(pair, side, &wr, &recv, &result);
	if (err)
		return err;
	if (result.status != IBV_WC_SUCCESS || result.recv_status != IBV_WC_SUCCESS)
		return EIO;
	return memcmp(at[side], at[!side] + GRH, 8) ? EBADMSG : 0;
}

TEST_F(odp, announced)
{
	unsigned int i, seen[2] = { 0 };
	struct ibv_device_attr_ex attr;

	ASSERT_EQ(0, ibv_query_device_ex(self->s.dev[1].ctx, NULL, &attr));
	EXPECT_EQ(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT, attr.odp_caps.general_caps);
	for (i = 0; i < ARRAY_SIZE(announced_ops); i++) {
		unsigned int flags = announced_ops[i].flags;
		struct mkt_xfer xfer = {
			.op = announced_ops[i].op,
			.side = announced_ops[i].side,
			.end = { &self->s.plain[0], &self->end },
			.offset[1] = 3,
			.length = 8,
			.num_sge = 1,
			.swap_add = 5,
		};
		struct mkt_pair pair;
		uint32_t caps;

		caps = flags & MKT_QP_UD ? attr.odp_caps.per_transport_caps.ud_odp_caps :
					   attr.odp_caps.per_transport_caps.rc_odp_caps;
		seen[!!(flags & MKT_QP_UD)] |= announced_ops[i].cap;
		ASSERT_TRUE(caps & announced_ops[i].cap);
		ASSERT_EQ(0, mkt_pair_create(&pair, &self->s.dev[0], &self->s.dev[1],
					     variant->mtu, flags));
		ASSERT_EQ(0, odp_drop(self));
		if (xfer.op == MKT_FLUSH) {
			EXPECT_EQ(IBV_WC_SUCCESS, flush_absent(self, variant, &pair));
		} else if (flags & MKT_QP_UD) {
			EXPECT_EQ(0, datagram(self, variant->shift, &pair, xfer.side));
		} else {
			EXPECT_EQ(0, mkt_xfer(&pair, &xfer));
		}
		mkt_pair_destroy(&pair);
	}
	EXPECT_EQ(seen[0], attr.odp_caps.per_transport_caps.rc_odp_caps);
	EXPECT_EQ(seen[1], attr.odp_caps.per_transport_caps.ud_odp_caps);
	EXPECT_EQ(0, attr.odp_caps.per_transport_caps.uc_odp_caps);
}

TEST_HARNESS_MAIN
