// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Implicit MRs, which are over all addresses of a process: the parts of the address space,
 * addresses without memory, and a sparse address space. stock_odp has their bytes. They need no
 * ib_mkey.
 * needs: on-demand
 * sets: smp
 */
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"
#include "mkey_harness.h"
#include "odp.h"

/* the part of the address space that the device describes at once, and the parts of a user */
#define PART (2ull << 20)
#define MAX_PARTS 8192

FIXTURE(implicit)
{
	struct mkt_setup s;
	struct ibv_mr *mr;
};

FIXTURE_SETUP(implicit)
{
	MKT_OPEN(self->s.dev);
	MKT_ON_DEMAND(&self->s.dev[1]);
	MKT_MAKE(&self->s, .mtu = IBV_MTU_4096, .host = 64 * 1024);
	self->mr = ibv_reg_mr(self->s.dev[1].pd, NULL, SIZE_MAX, ON_DEMAND);
	ASSERT_NE(NULL, self->mr);
}

FIXTURE_TEARDOWN(implicit)
{
	if (self->mr)
		EXPECT_EQ(0, ibv_dereg_mr(self->mr));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

static int access_at(FIXTURE_DATA(implicit) *self, enum mkt_op op, const void *at,
		     uint32_t length)
{
	return mkt_touch(&self->s, self->mr->rkey, op, (uintptr_t)at, length);
}

/* the same for an access that may fail */
static int try_at(FIXTURE_DATA(implicit) *self, enum mkt_op op, uint64_t addr)
{
	return mkt_try(&self->s, self->mr->rkey, op, addr, 8);
}

/* one request, and one packet of it, across the end of a part */
TEST_F(implicit, parts)
{
	uint8_t *plain = (void *)(uintptr_t)self->s.plain[0].addr;
	uint8_t *memory = mkt_untouched(4 * PART), *at;
	struct mkt_odp_stats stats;

	ASSERT_NE(NULL, memory);
	at = (void *)(((uintptr_t)memory + 2 * PART - 1) & -PART);
	mkt_rand_bytes(&self->s.rng, plain, 5 * PAGE);
	ASSERT_EQ(IBV_WC_SUCCESS, access_at(self, MKT_WRITE, at - 2 * PAGE - 7, 5 * PAGE));
	EXPECT_EQ(0, memcmp(at - 2 * PAGE - 7, plain, 5 * PAGE));
	mkt_rand_bytes(&self->s.rng, at - 100, 200);
	ASSERT_EQ(IBV_WC_SUCCESS, access_at(self, MKT_READ, at - 100, 200));
	EXPECT_EQ(0, memcmp(at - 100, plain, 200));
	/* a page of each of two parts: each is taken away, and prefetched, on its own */
	ASSERT_EQ(IBV_WC_SUCCESS, access_at(self, MKT_WRITE, at + PART - 1, 2));
	ASSERT_EQ(0, mkt_odp_stats(&self->s.dev[1], self->mr, &stats));
	ASSERT_EQ(0, madvise(at + PART - PAGE, 2 * PAGE, MADV_DONTNEED));
	ASSERT_EQ(0, mkt_odp_since(&self->s.dev[1], self->mr, &stats, &stats));
	EXPECT_EQ(2, stats.invalidations);
	EXPECT_EQ(2, stats.invalidations_handled);
	ASSERT_EQ(0, mkt_odp_stats(&self->s.dev[1], self->mr, &stats));
	ASSERT_EQ(0, mkt_raw_advise(self->s.dev[1].pd, PREFETCH_WRITE,
				    NOW, (uintptr_t)at + PART - 1, 2, self->mr->lkey));
	ASSERT_EQ(IBV_WC_SUCCESS, access_at(self, MKT_WRITE, at + PART - 1, 2));
	ASSERT_EQ(0, mkt_odp_since(&self->s.dev[1], self->mr, &stats, &stats));
	EXPECT_EQ(2, stats.prefetch);
	EXPECT_EQ(0, stats.faults);
	munmap(memory, 4 * PART);
}

/* addresses without memory, of the process and beyond it */
TEST_F(implicit, unmapped)
{
	static const enum mkt_op ops[] = {
		MKT_WRITE, MKT_READ, MKT_FETCH_ADD, MKT_CMP_SWAP, MKT_ATOMIC_WRITE,
	};
	uint8_t *start = mkt_untouched(2 * PART), *memory;
	uint64_t addrs[] = {
		0, 8, 0, PAGE, (1ull << 47) - 8, 1ull << 47, 1ull << 57, 1ull << 63, -PART, -16ull,
		-8ull,
	};
	struct ibv_pd *pd = self->s.dev[1].pd;
	struct mkt_odp_stats stats;
	unsigned int i, o;

	ASSERT_NE(NULL, start);
	/* one page without memory, not at the end of a part */
	memory = (void *)(((uintptr_t)start + PART - 1) & -PART);
	ASSERT_EQ(0, munmap(memory + PAGE, PAGE));
	addrs[2] = (uintptr_t)memory + PAGE;
	for (i = 0; i < ARRAY_SIZE(addrs); i++)
		for (o = 0; o < ARRAY_SIZE(ops); o++)
			EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, try_at(self, ops[o], addrs[i]));
	/* partly */
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  try_at(self, MKT_WRITE, (uintptr_t)memory + PAGE - 4));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, try_at(self, MKT_READ, -4ull));
	for (i = 0; i < ARRAY_SIZE(addrs); i++)
		EXPECT_EQ(EFAULT, mkt_raw_advise(pd, PREFETCH, NOW,
						 addrs[i], 8, self->mr->lkey));
	ASSERT_EQ(0, mkt_odp_stats(&self->s.dev[1], self->mr, &stats));
	EXPECT_EQ(0, stats.faults + stats.faults_handled + stats.prefetch);
	/* and memory that is there */
	ASSERT_EQ(IBV_WC_SUCCESS, access_at(self, MKT_WRITE, memory, 8));
	ASSERT_EQ(IBV_WC_SUCCESS, access_at(self, MKT_WRITE, memory + 2 * PAGE, 8));
	/* an SGE of this node */
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = { (uintptr_t)memory + PAGE, 8, self->mr->lkey },
		.num_sge = 1,
		.remote_addr = self->s.plain[0].addr,
		.rkey = self->s.plain[0].mr->rkey,
	};
	EXPECT_EQ(IBV_WC_LOC_PROT_ERR, mkt_status(&self->s.pair, 1, &wr));
	munmap(start, 2 * PART);
}

TEST_F(implicit, refused)
{
	struct ibv_pd *pd = self->s.dev[1].pd, *other = ibv_alloc_pd(self->s.dev[1].ctx);
	uint8_t *memory = mkt_untouched(PAGE);
	struct ibv_mr *mr;

	ASSERT_NE(NULL, memory);
	ASSERT_NE(NULL, other);
	/* not all addresses, or not on demand, or at other addresses */
	errno = 0;
	EXPECT_EQ(NULL, ibv_reg_mr(pd, (void *)(uintptr_t)PAGE, SIZE_MAX, ON_DEMAND));
	EXPECT_EQ(EINVAL, errno);
	errno = 0;
	EXPECT_EQ(NULL, ibv_reg_mr(pd, NULL, SIZE_MAX, MKT_ACCESS_ALL));
	EXPECT_EQ(EINVAL, errno);
	errno = 0;
	EXPECT_EQ(NULL, ibv_reg_mr_iova(pd, NULL, SIZE_MAX, PAGE, ON_DEMAND));
	EXPECT_EQ(EINVAL, errno);

	/* the flags of an MR count, and its PD */
	mr = ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);
	ASSERT_NE(NULL, mr);
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, mr->rkey, MKT_READ, (uintptr_t)memory, 8));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(&self->s, mr->rkey, MKT_WRITE, (uintptr_t)memory, 8));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(&self->s, mr->rkey, MKT_FETCH_ADD, (uintptr_t)memory, 8));
	EXPECT_EQ(EPERM, mkt_raw_advise(pd, PREFETCH_WRITE, NOW,
					(uintptr_t)memory, 8, mr->lkey));
	/* it was made for reading */
	EXPECT_EQ(EACCES, mkt_raw_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, pd, ON_DEMAND));
	ASSERT_EQ(0, mkt_raw_rereg(mr, IBV_REREG_MR_CHANGE_PD, other, 0));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(&self->s, mr->rkey, MKT_READ, (uintptr_t)memory, 8));
	ASSERT_EQ(0, mkt_raw_rereg(mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS, pd,
				   IBV_ACCESS_ON_DEMAND));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(&self->s, mr->rkey, MKT_READ, (uintptr_t)memory, 8));
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
		  mkt_try(&self->s, mr->rkey, MKT_READ, (uintptr_t)memory, 8));
	EXPECT_EQ(0, ibv_dealloc_pd(other));
	munmap(memory, PAGE);
}

/* reads a page of each of @num parts, which is the zero page; returns how many faulted */
static long sweep(FIXTURE_DATA(implicit) *self, const uint8_t *memory, unsigned int num)
{
	struct mkt_odp_stats stats;
	unsigned int i;

	if (mkt_odp_stats(&self->s.dev[1], self->mr, &stats))
		return -1;
	for (i = 0; i < num; i++) {
		mkt_alive();
		if (access_at(self, MKT_READ, memory + i * PART, 8) != IBV_WC_SUCCESS)
			return -1;
	}
	if (mkt_odp_since(&self->s.dev[1], self->mr, &stats, &stats))
		return -1;
	return stats.faults;
}

/*
 * 100 GiB without memory: a user has so many parts at most. Those that are unmapped make room at
 * once, and others when they are the ones that were not used for the longest time.
 */
TEST_F(implicit, sparse)
{
	const size_t size = 100ull << 30;
	unsigned long node = 1;
	uint8_t *memory, *other;

	/* NUMA balancing takes pages away to see which node uses them, but not with this policy */
	syscall(SYS_set_mempolicy, MPOL_PREFERRED, &node, 8 * sizeof(node));
	memory = mkt_untouched(size);
	ASSERT_NE(NULL, memory);
	memory = (void *)(((uintptr_t)memory + PART - 1) & -PART);
	other = memory + MAX_PARTS * PART;
	EXPECT_EQ(100, sweep(self, memory, 100));
	EXPECT_EQ(0, sweep(self, memory, 100));
	/* all parts are taken; then the later ones are unmapped, and make room */
	EXPECT_EQ(MAX_PARTS - 100, sweep(self, other, MAX_PARTS - 100));
	ASSERT_EQ(0, munmap(other, (MAX_PARTS - 100) * PART));
	ASSERT_EQ(other, mmap(other, MAX_PARTS * PART, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0));
	EXPECT_EQ(1000, sweep(self, other, 1000));
	EXPECT_EQ(0, sweep(self, memory, 100));
	/* as many others: the first ones have gone, and come again */
	EXPECT_EQ(MAX_PARTS, sweep(self, other + MAX_PARTS * PART, MAX_PARTS));
	EXPECT_EQ(100, sweep(self, memory, 100));
	munmap(memory, size - PART);
}

/* gives memory to a page and takes it away, in one part after another, so that parts come and go */
static int remap(void *arg, unsigned int round)
{
	uint8_t *memory = arg;

	memory += round % 4 * PART;
	if (mmap(memory, PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != memory)
		return errno;
	memory[7] = round;
	/* nothing else may be mapped there */
	return mmap(memory, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	       memory ? 0 : errno;
}

TEST_F(implicit, parts_go)
{
	unsigned int i, good = 0, bad = 0, rounds = mkt_scale(400, 60);
	uint8_t *memory = mkt_untouched(5 * PART);
	struct mkt_loop loop = {};
	int status;

	ASSERT_NE(NULL, memory);
	ASSERT_EQ(0, mprotect(memory, 5 * PART, PROT_NONE));
	ASSERT_EQ(0, mkt_loop_start(&loop, remap, memory));
	for (i = 0; i < rounds; i++) {
		status = try_at(self, i % 2 ? MKT_READ : MKT_WRITE,
				(uintptr_t)memory + i % 4 * PART);
		good += status == IBV_WC_SUCCESS;
		bad += status == IBV_WC_REM_ACCESS_ERR;
	}
	ASSERT_EQ(0, mkt_loop_end(&loop));
	EXPECT_EQ(rounds, good + bad);
	TH_LOG("%u accesses found memory, and %u did not", good, bad);
}

TEST_HARNESS_MAIN
