// SPDX-License-Identifier: GPL-2.0
/*
 * subject: MRs on demand that requests name directly: every byte, at every offset, also if the
 * addresses of the MR are not those of the process. It needs no ib_mkey.
 * needs: on-demand
 */
#include <sys/mman.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "raw.h"

#define SIZE (64 * 1024)
#define PAGE 4096
#define PAGES 8

FIXTURE(odp)
{
	struct mkt_setup s;
	struct mkt_arena arena;	/* one memory, one MR on demand */
	struct mkt_end end;	/* the MR */
};

FIXTURE_VARIANT(odp)
{
	uint64_t shift;		/* the MR's addresses minus those of the process */
	enum ibv_mtu mtu;
};

FIXTURE_VARIANT_ADD(odp, same) { .mtu = IBV_MTU_1024 };
FIXTURE_VARIANT_ADD(odp, shifted) { .shift = 0x123456000, .mtu = IBV_MTU_4096 };

FIXTURE_SETUP(odp)
{
	struct mkt_wants wants = { .mtu = variant->mtu, .host = SIZE };
	const int access = MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND;
	struct ibv_device_attr_ex attr;

	MKT_OPEN(self->s.dev);
	ASSERT_EQ(0, ibv_query_device_ex(self->s.dev[1].ctx, NULL, &attr));
	if (!(attr.odp_caps.general_caps & IBV_ODP_SUPPORT))
		SKIP(return, "%s has no memory on demand", self->s.dev[1].name);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	mkt_arena_init(&self->arena, &self->s.dev[1]);
	ASSERT_EQ(0, mkt_arena_add_host(&self->arena, SIZE));
	ASSERT_EQ(0, mkt_mem_share(&self->arena.mem[0]));
	ASSERT_EQ(0, mkt_arena_add_leaf(&self->arena, 0, 61, SIZE - 61 - 35, access,
					variant->shift));
	ASSERT_EQ(0, mkt_arena_fill(&self->arena, &self->s.rng));
	ASSERT_EQ(0, mkt_end_leaf(&self->end, &self->arena, 0));
}

FIXTURE_TEARDOWN(odp)
{
	mkt_end_free(&self->end);
	EXPECT_EQ(0, mkt_arena_free(&self->arena));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* takes the pages away; the next access faults them in again */
static int odp_drop(FIXTURE_DATA(odp) *self)
{
	return madvise(self->arena.mem[0].host, SIZE, MADV_DONTNEED) ? errno : 0;
}

TEST_F(odp, copies)
{
	unsigned int i, rounds = mkt_scale(600, 60);
	struct mkt_rng *rng = &self->s.rng;

	for (i = 0; i < rounds; i++) {
		struct mkt_xfer xfer = {
			.op = mkt_between(rng, MKT_SEND, MKT_READ),
			.side = mkt_between(rng, 0, 1),
			.end = { &self->s.plain[0], &self->end },
			.length = mkt_rand_size(rng, 40000),
			.num_sge = mkt_between(rng, 1, 3),
		};

		if (i % 3 == 0)
			ASSERT_EQ(0, odp_drop(self));
		ASSERT_EQ(0, mkt_xfer_drawn(&self->s.pair, rng, &xfer));
	}
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
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
			  mkt_try(&self->s, rkey, ops[o], (first - 1) & ~7ull, 8));
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR,
			  mkt_try(&self->s, rkey, ops[o], (end - 1) & ~7ull, 8));
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
	unsigned char pages[PAGES];
	unsigned int i, mapped = 0;

	if (mincore(memory, PAGES * PAGE, pages))
		return ~0u;
	for (i = 0; i < PAGES; i++)
		mapped |= (pages[i] & 1) << i;
	return mapped;
}

/* memory that has never been touched, and an MR over it from byte @offset on */
static uint8_t *odp_untouched(FIXTURE_DATA(odp) *self, uint64_t shift, unsigned int access,
			      struct ibv_mr **mr)
{
	uint8_t *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	*mr = ibv_reg_mr_iova(self->s.dev[1].pd, memory, PAGES * PAGE,
			      (uintptr_t)memory + shift, access);
	return *mr ? memory : NULL;
}

/* a FLUSH to persistence faults in the pages of its range, and no others */
TEST_F(odp, flush)
{
	struct mkt_wr wr = {
		.op = MKT_FLUSH,
		.flush_length = PAGE + 2,
		.persistent = true,
	};
	struct ibv_mr *mr;
	uint8_t *memory;

	memory = odp_untouched(self, variant->shift, MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND |
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
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	EXPECT_EQ(0xff, odp_mapped(memory));
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

	ASSERT_NE(NULL, mw);
	memory = odp_untouched(self, variant->shift, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_MW_BIND |
			       access, &mr);
	ASSERT_NE(NULL, memory);
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], mw, mr,
				     (uintptr_t)memory + variant->shift + 3 * PAGE, 2 * PAGE,
				     access));
	wr.rkey = mw->rkey;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	EXPECT_EQ(0x18, odp_mapped(memory));
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

	memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ASSERT_NE(MAP_FAILED, memory);
	mr = ibv_reg_mr_iova(self->s.dev[1].pd, memory, length,
			     (uintptr_t)memory + variant->shift,
			     MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_FLUSH_PERSISTENT);
	ASSERT_NE(NULL, mr);
	wr.rkey = mr->rkey;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	ASSERT_EQ(0, mincore(memory + length - PAGE, PAGE, &last));
	EXPECT_EQ(1, last & 1);
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	munmap(memory, length);
}

TEST_F(odp, prefetch)
{
	const uint32_t now = IB_UVERBS_ADVISE_MR_FLAG_FLUSH;
	struct ibv_pd *pd = self->s.dev[1].pd;
	uint8_t *memory;
	struct ibv_mr *mr;
	uint64_t addr;

	memory = odp_untouched(self, variant->shift,
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND, &mr);
	ASSERT_NE(NULL, memory);
	addr = (uintptr_t)memory + variant->shift;
	EXPECT_EQ(0, mkt_raw_advise(pd, now, addr + 3 * PAGE - 1, 2, mr->lkey));
	EXPECT_EQ(0x0c, odp_mapped(memory));
	/* outside of the MR */
	EXPECT_EQ(EFAULT, mkt_raw_advise(pd, now, addr - 1, 2, mr->lkey));
	EXPECT_EQ(EFAULT, mkt_raw_advise(pd, now, addr + PAGES * PAGE - 1, 2, mr->lkey));
	EXPECT_EQ(EFAULT, mkt_raw_advise(pd, 0, addr + PAGES * PAGE, 1, mr->lkey));
	/* ib_mkey and rxe have different errno values for an lkey that does not exist */
	EXPECT_NE(0, mkt_raw_advise(pd, now, addr, 2, mr->lkey ^ 0x5500));
	EXPECT_EQ(0x0c, odp_mapped(memory));
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	munmap(memory, PAGES * PAGE);
}

/* an MR that is not on demand has no pages to fault in */
TEST_F(odp, prefetch_ordinary)
{
	const struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibv_pd *pd = self->s.dev[1].pd;

	EXPECT_EQ(EINVAL, mkt_raw_advise(pd, IB_UVERBS_ADVISE_MR_FLAG_FLUSH, leaf->addr, 8,
					 leaf->mr->lkey));
	EXPECT_EQ(EINVAL, mkt_raw_advise(pd, 0, leaf->addr, 8, leaf->mr->lkey));
}

TEST_HARNESS_MAIN
