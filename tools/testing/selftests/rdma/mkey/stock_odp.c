// SPDX-License-Identifier: GPL-2.0
/*
 * subject: MRs on demand that requests name directly, explicit and implicit ones, also if the
 * addresses of the MR are not those of the process: transfers while pages go, prefetches, and the
 * statistics of page faults. They need no ib_mkey. mkey_matrix.direct has their bytes by each verb.
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
	/* of odp_untouched(): PAGES pages, an MR over them, and their address in it */
	uint8_t *memory;
	struct ibv_mr *mr;
	uint64_t addr;
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
	MKT_OPEN(self->s.dev);
	MKT_ON_DEMAND(&self->s.dev[1]);
	MKT_MAKE(&self->s, .mtu = variant->mtu, .host = SIZE);
	mkt_arena_init(&self->arena, &self->s.dev[1]);
	ASSERT_EQ(0, mkt_arena_add_host(&self->arena, SIZE));
	ASSERT_EQ(0, mkt_mem_share(&self->arena.mem[0]));
	ASSERT_EQ(0, mkt_arena_add_leaf(&self->arena, 0, 61, SIZE - 61 - 35, ON_DEMAND,
					variant->shift));
	ASSERT_EQ(0, mkt_arena_fill(&self->arena, &self->s.rng));
	ASSERT_EQ(0, mkt_end_leaf(&self->end, &self->arena, 0));
	if (!variant->implicit)
		return;
	self->implicit = ibv_reg_mr(self->s.dev[1].pd, NULL, SIZE_MAX, ON_DEMAND);
	ASSERT_NE(NULL, self->implicit);
	self->end.mr = self->implicit;
}

FIXTURE_TEARDOWN(odp)
{
	if (self->mr)
		EXPECT_EQ(0, ibv_dereg_mr(self->mr));
	if (self->memory)
		munmap(self->memory, PAGES * PAGE);
	if (self->implicit)
		EXPECT_EQ(0, ibv_dereg_mr(self->implicit));
	mkt_end_free(&self->end);
	EXPECT_EQ(0, mkt_arena_free(&self->arena));
	EXPECT_EQ(0, mkt_teardown(&self->s));
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

/* registers the memory */
static int odp_reg(FIXTURE_DATA(odp) *self, const FIXTURE_VARIANT(odp) *variant,
		   unsigned int access)
{
	struct ibv_pd *pd = self->s.dev[1].pd;

	self->addr = (uintptr_t)self->memory + variant->shift;
	self->mr = variant->implicit ? ibv_reg_mr(pd, NULL, SIZE_MAX, access) :
				       ibv_reg_mr_iova(pd, self->memory, PAGES * PAGE, self->addr,
						       access);
	return self->mr ? 0 : -1;
}

/* memory that has never been touched, and an MR over it; the teardown frees both */
static int odp_untouched(FIXTURE_DATA(odp) *self, const FIXTURE_VARIANT(odp) *variant,
			 unsigned int access)
{
	self->memory = mkt_untouched(PAGES * PAGE);
	return self->memory ? odp_reg(self, variant, access) : -1;
}

/* an advice for @length bytes from byte @at of the memory on */
static int odp_advise(FIXTURE_DATA(odp) *self, uint64_t advice, uint32_t flags, long at,
		      uint32_t length)
{
	return mkt_raw_advise(self->s.dev[1].pd, advice, flags, self->addr + at, length,
			      self->mr->lkey);
}

/* a request of side 0 for these bytes; returns its status */
static int odp_access(FIXTURE_DATA(odp) *self, enum mkt_op op, long at, uint32_t length)
{
	return mkt_touch(&self->s, self->mr->rkey, op, self->addr + at, length);
}

/*
 * A FLUSH to persistence faults in the pages of its range, and no others: 2 MiB at a time. All of
 * an implicit MR has addresses without memory.
 */
TEST_F(odp, flush)
{
	struct mkt_wr wr = {
		.op = MKT_FLUSH,
		.flush_length = PAGE + 2,
		.persistent = true,
	};
	struct mkt_odp_stats stats;

	ASSERT_EQ(0, odp_untouched(self, variant, ON_DEMAND | IBV_ACCESS_FLUSH_GLOBAL |
						  IBV_ACCESS_FLUSH_PERSISTENT));
	wr.rkey = self->mr->rkey;
	wr.remote_addr = self->addr + 2 * PAGE - 1;
	ASSERT_EQ(0, odp_mapped(self->memory));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	EXPECT_EQ(0x0e, odp_mapped(self->memory));
	if (!variant->implicit) {
		ASSERT_EQ(0, mkt_odp_stats(&self->s.dev[1], self->mr, &stats));
		EXPECT_EQ(3, stats.faults);
		/* two, if the pages are on both sides of a multiple of 2 MiB */
		EXPECT_GE(2, stats.faults_handled);
	}
	wr.whole = true;
	wr.remote_addr = 0;
	wr.flush_length = 0;
	EXPECT_EQ(variant->implicit ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS,
		  mkt_status(&self->s.pair, 0, &wr));
	EXPECT_EQ(variant->implicit ? 0x0e : 0xff, odp_mapped(self->memory));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
}

/* all of a window is a part of the MR */
TEST_F(odp, flush_window)
{
	const unsigned int access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_FLUSH_PERSISTENT;
	struct mkt_wr wr = { .op = MKT_FLUSH, .whole = true, .persistent = true };
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	uint64_t addr;

	ASSERT_NE(NULL, mw);
	ASSERT_EQ(0, odp_untouched(self, variant, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_MW_BIND |
						  access));
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], mw, self->mr,
				     self->addr + 3 * PAGE, 2 * PAGE, access));
	wr.rkey = mw->rkey;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	EXPECT_EQ(0x18, odp_mapped(self->memory));
	addr = self->addr + 5 * PAGE;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, mw->rkey, MKT_READ, addr - 8, 8));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, mw->rkey, MKT_READ, addr - 4, 8));
	ASSERT_EQ(0, ibv_dealloc_mw(mw));
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

TEST_F(odp, prefetch)
{
	struct ibv_pd *pd = self->s.dev[1].pd, *other;

	ASSERT_EQ(0, odp_untouched(self, variant, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND));
	EXPECT_EQ(0, odp_advise(self, PREFETCH, NOW, 3 * PAGE - 1, 2));
	EXPECT_EQ(0x0c, odp_mapped(self->memory));
	/* outside of the MR */
	if (!variant->implicit) {
		EXPECT_EQ(EFAULT, odp_advise(self, PREFETCH, NOW, -1, 2));
		EXPECT_EQ(EFAULT, odp_advise(self, PREFETCH, NOW, PAGES * PAGE - 1, 2));
		EXPECT_EQ(EFAULT, odp_advise(self, PREFETCH, 0, PAGES * PAGE, 1));
		EXPECT_EQ(EFAULT, odp_advise(self, NO_FAULT, NOW, PAGES * PAGE, 1));
	}
	/* an lkey that does not exist, and that of another PD */
	EXPECT_EQ(EINVAL, mkt_raw_advise(pd, PREFETCH, NOW, self->addr, 2,
					 self->mr->lkey ^ 0x5500));
	other = ibv_alloc_pd(self->s.dev[1].ctx);
	ASSERT_NE(NULL, other);
	EXPECT_EQ(EINVAL, mkt_raw_advise(other, PREFETCH, NOW, self->addr, 2, self->mr->lkey));
	EXPECT_EQ(EINVAL, mkt_raw_advise(other, PREFETCH, 0, self->addr, 2, self->mr->lkey));
	EXPECT_EQ(0, ibv_dealloc_pd(other));
	/* the MR is not for writing */
	EXPECT_EQ(EPERM, odp_advise(self, PREFETCH_WRITE, NOW, 0, 2));
	/* unknown advice, and an unknown flag */
	EXPECT_EQ(EOPNOTSUPP, mkt_raw_advise(pd, NO_FAULT + 1, NOW, self->addr, 2, self->mr->lkey));
	EXPECT_EQ(EINVAL, mkt_raw_advise(pd, PREFETCH, NOW << 1, self->addr, 2, self->mr->lkey));
	EXPECT_EQ(0x0c, odp_mapped(self->memory));
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

	ASSERT_EQ(0, odp_untouched(self, variant, ON_DEMAND));

	/* for writing: two pages */
	ASSERT_EQ(0, odp_advise(self, PREFETCH_WRITE, NOW, PAGE - 1, 2));
	ASSERT_EQ(0x03, odp_mapped(self->memory));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_WRITE, 0, 2 * PAGE));
	ASSERT_EQ(0, mkt_odp_stats(dev, self->mr, &stats));
	EXPECT_EQ(2, stats.prefetch);
	EXPECT_EQ(0, stats.faults);

	/* for reading: a read finds the page, and a write faults once */
	ASSERT_EQ(0, odp_advise(self, PREFETCH, NOW, 2 * PAGE, 1));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_READ, 2 * PAGE, 8));
	ASSERT_EQ(0, mkt_odp_stats(dev, self->mr, &stats));
	EXPECT_EQ(3, stats.prefetch);
	EXPECT_EQ(0, stats.faults);
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_WRITE, 2 * PAGE, 8));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_WRITE, 2 * PAGE, 8));
	ASSERT_EQ(0, mkt_odp_stats(dev, self->mr, &stats));
	EXPECT_EQ(1, stats.faults);
	EXPECT_EQ(1, stats.faults_handled);

	/* without faults: nothing comes, except for what the process has touched */
	ASSERT_EQ(0, odp_advise(self, NO_FAULT, NOW, 3 * PAGE, 2 * PAGE));
	ASSERT_EQ(0x07, odp_mapped(self->memory));
	ASSERT_EQ(0, mkt_odp_stats(dev, self->mr, &stats));
	EXPECT_EQ(3, stats.prefetch);
	self->memory[3 * PAGE] = 1;
	ASSERT_EQ(0, odp_advise(self, NO_FAULT, NOW, 3 * PAGE, 2 * PAGE));
	ASSERT_EQ(0x0f, odp_mapped(self->memory));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_WRITE, 3 * PAGE, 8));
	ASSERT_EQ(0, mkt_odp_stats(dev, self->mr, &stats));
	EXPECT_EQ(4, stats.prefetch);
	EXPECT_EQ(1, stats.faults);

	/* a work item does it */
	ASSERT_EQ(0, odp_advise(self, PREFETCH_WRITE, 0, 5 * PAGE, 2 * PAGE));
	ASSERT_TRUE(mkt_until(!mkt_odp_stats(dev, self->mr, &stats) && stats.prefetch == 6));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_WRITE, 5 * PAGE, 2 * PAGE));
	ASSERT_EQ(0, mkt_odp_stats(dev, self->mr, &stats));
	EXPECT_EQ(1, stats.faults);
	EXPECT_EQ(0x6f, odp_mapped(self->memory));
}

TEST_F(odp, statistics)
{
	struct mkt_dev *dev = &self->s.dev[1];
	struct mkt_odp_stats stats;

	if (variant->implicit)
		SKIP(return, "stock_implicit has those of the parts of an implicit MR");
	ASSERT_EQ(0, odp_untouched(self, variant, ON_DEMAND));
	ASSERT_EQ(0, mkt_odp_stats(dev, self->mr, &stats));
	EXPECT_EQ(0, stats.faults + stats.faults_handled + stats.invalidations +
		     stats.invalidations_handled + stats.prefetch);

	/* one access of two pages, and each kind of atomic */
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_WRITE, PAGE - 1, 2));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_FETCH_ADD, 4 * PAGE, 8));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_ATOMIC_WRITE, 5 * PAGE, 8));
	/* which are there now */
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_READ, PAGE - 1, 2));
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_CMP_SWAP, 4 * PAGE, 8));
	ASSERT_EQ(0, mkt_odp_stats(dev, self->mr, &stats));
	EXPECT_EQ(4, stats.faults);
	EXPECT_EQ(3, stats.faults_handled);
	EXPECT_EQ(0, stats.invalidations);
	EXPECT_EQ(0, stats.invalidations_handled);

	/* two of the pages go, and others that the device has not */
	ASSERT_EQ(0, madvise(self->memory, 4 * PAGE, MADV_DONTNEED));
	ASSERT_EQ(0, madvise(self->memory + 6 * PAGE, PAGE, MADV_DONTNEED));
	ASSERT_EQ(0, mkt_odp_stats(dev, self->mr, &stats));
	EXPECT_EQ(2, stats.invalidations);
	EXPECT_EQ(1, stats.invalidations_handled);

	/* an access that fails */
	ASSERT_EQ(0, munmap(self->memory + 7 * PAGE, PAGE));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, self->mr->rkey, MKT_READ,
						 self->addr + 7 * PAGE, 8));
	ASSERT_EQ(0, mkt_odp_stats(dev, self->mr, &stats));
	EXPECT_EQ(4, stats.faults);
	EXPECT_EQ(3, stats.faults_handled);
	EXPECT_EQ(0, stats.prefetch);
}

/* an MR over addresses that get their memory later, and over memory that becomes read-only */
TEST_F(odp, late)
{
	uint8_t *plain = (void *)(uintptr_t)self->s.plain[0].addr;
	uint8_t *memory = mkt_untouched(PAGES * PAGE);

	ASSERT_NE(NULL, memory);
	self->memory = memory;
	ASSERT_EQ(0, munmap(memory, PAGES * PAGE));
	ASSERT_EQ(0, odp_reg(self, variant, ON_DEMAND));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(&self->s, self->mr->rkey, MKT_WRITE, self->addr, 8));
	EXPECT_EQ(EFAULT, odp_advise(self, PREFETCH, NOW, 0, 8));
	ASSERT_EQ(memory, mmap(memory, PAGES * PAGE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
	mkt_rand_bytes(&self->s.rng, plain, 3 * PAGE);
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_WRITE, 100, 3 * PAGE));
	EXPECT_EQ(0, memcmp(memory + 100, plain, 3 * PAGE));
	mkt_rand_bytes(&self->s.rng, memory + 100, 3 * PAGE);
	ASSERT_EQ(IBV_WC_SUCCESS, odp_access(self, MKT_READ, 100, 3 * PAGE));
	EXPECT_EQ(0, memcmp(memory + 100, plain, 3 * PAGE));
	ASSERT_EQ(0, mprotect(memory, PAGE, PROT_READ));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(&self->s, self->mr->rkey, MKT_WRITE, self->addr, 8));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, self->mr->rkey, MKT_READ, self->addr, 8));
}

/* rdma-core's header lacks these two */
#define SUPPORT_FLUSH (1u << 6)
#define SUPPORT_ATOMIC_WRITE (1u << 7)

/*
 * The operations that mkey_matrix.direct and .direct_others run on memory on demand: SRQ_RECV is
 * with RC and UD.
 */
TEST_F(odp, announced)
{
	const uint32_t both = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
			      IBV_ODP_SUPPORT_SRQ_RECV;
	const uint32_t rc = both | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
			    IBV_ODP_SUPPORT_ATOMIC | SUPPORT_FLUSH | SUPPORT_ATOMIC_WRITE;
	struct ibv_device_attr_ex attr;

	ASSERT_EQ(0, ibv_query_device_ex(self->s.dev[1].ctx, NULL, &attr));
	EXPECT_EQ(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT, attr.odp_caps.general_caps);
	EXPECT_EQ(rc, attr.odp_caps.per_transport_caps.rc_odp_caps);
	EXPECT_EQ(both, attr.odp_caps.per_transport_caps.ud_odp_caps);
	EXPECT_EQ(0, attr.odp_caps.per_transport_caps.uc_odp_caps);
}

TEST_HARNESS_MAIN
