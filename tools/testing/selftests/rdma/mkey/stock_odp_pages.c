// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Pages of MRs on demand that the kernel takes away: what was written stays, no freed page
 * is accessed, and an advice does not wait for all of them, nor holds up others. They need no
 * ib_mkey.
 * needs: on-demand
 * sets: smp
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loop.h"
#include "mkey_harness.h"
#include "odp.h"

#define LARGE (128ull << 20)

FIXTURE(pages)
{
	struct mkt_setup s;
	struct ibv_mr *mr;
	/* of the MR, or a part of it */
	uint8_t *memory;
	size_t length;
};

FIXTURE_VARIANT(pages)
{
	bool implicit;
};

FIXTURE_VARIANT_ADD(pages, explicit) { };
FIXTURE_VARIANT_ADD(pages, implicit) { .implicit = true };

FIXTURE_SETUP(pages)
{
	MKT_OPEN(self->s.dev);
	MKT_ON_DEMAND(&self->s.dev[1]);
	MKT_MAKE(&self->s, .mtu = IBV_MTU_4096, .host = 64 * 1024);
}

FIXTURE_TEARDOWN(pages)
{
	if (self->mr)
		EXPECT_EQ(0, ibv_dereg_mr(self->mr));
	if (self->memory)
		EXPECT_EQ(0, munmap(self->memory, self->length));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

static int pages_reg(FIXTURE_DATA(pages) *self, bool implicit, uint8_t *memory, size_t length)
{
	self->memory = memory;
	self->length = length;
	if (memory)
		self->mr = ibv_reg_mr(self->s.dev[1].pd, implicit ? NULL : memory,
				      implicit ? SIZE_MAX : length, ON_DEMAND);
	return self->mr ? 0 : -1;
}

static int pages_access(FIXTURE_DATA(pages) *self, enum mkt_op op, const uint8_t *at,
			uint32_t length)
{
	return mkt_touch(&self->s, self->mr->rkey, op, (uintptr_t)at, length);
}

static int pages_advise(FIXTURE_DATA(pages) *self, uint64_t advice, uint32_t length)
{
	return mkt_raw_advise(self->s.dev[1].pd, advice, NOW, (uintptr_t)self->memory, length,
			      self->mr->lkey);
}

/* by each kind of access that writes; the process itself writes none of the pages afterwards */
static int pages_written(FIXTURE_DATA(pages) *self, uint64_t before)
{
	const uint8_t *plain = (void *)(uintptr_t)self->s.plain[0].addr;
	uint8_t *at = self->memory, expect[PAGE];
	uint64_t value[2];

	mkt_rand_bytes(&self->s.rng, (void *)plain, PAGE);
	memcpy(expect, plain, PAGE);
	if (pages_access(self, MKT_WRITE, at, PAGE) ||
	    pages_access(self, MKT_FETCH_ADD, at + PAGE, 8) ||
	    pages_access(self, MKT_ATOMIC_WRITE, at + 2 * PAGE, 8))
		return -1;
	if (!mkt_reclaim(at, 4))
		return -2;
	memcpy(&value[0], at + PAGE, 8);
	memcpy(&value[1], at + 2 * PAGE, 8);
	return memcmp(at, expect, PAGE) ? 1 : value[0] != before + 3 ? 2 : value[1] != 3 ? 3 : 0;
}

/* pages of a file that the process has read, which lets it write them without a fault */
TEST_F(pages, reclaimed_file)
{
	ASSERT_EQ(0, pages_reg(self, variant->implicit, mkt_clean_pages(true, 4), 4 * PAGE));
	EXPECT_EQ(0, pages_written(self, 0));
}

/* pages that the process does not need until they are written again */
TEST_F(pages, reclaimed_freed)
{
	ASSERT_EQ(0, pages_reg(self, variant->implicit, mkt_clean_pages(false, 4), 4 * PAGE));
	EXPECT_EQ(0, pages_written(self, 1));
}

static int pages_advise_step(void *arg, unsigned int round)
{
	return pages_advise(arg, PREFETCH, LARGE);
}

/* memory that was freed reads as zeros, also during advices that look at its pages */
TEST_F(pages, freed)
{
	uint8_t *plain = (void *)(uintptr_t)self->s.plain[0].addr;
	unsigned int i, stale = 0, rounds = mkt_scale(400, 80);
	struct mkt_loop loop = {};
	uint8_t *last;
	long k;

	ASSERT_EQ(0, pages_reg(self, variant->implicit, mkt_untouched(LARGE), LARGE));
	last = self->memory + LARGE - PAGE;
	ASSERT_EQ(0, mkt_loop_start(&loop, pages_advise_step, self));
	for (i = 0; i < rounds; i++) {
		for (k = 0; k < 16; k++)
			last[-k * 64 * PAGE] = 0x5a;
		/* let an advice come to these pages */
		usleep(1000 * (i % 8));
		ASSERT_EQ(0, madvise(self->memory, LARGE, MADV_DONTNEED));
		for (k = 0; k < 16; k++) {
			memset(plain, 1, 8);
			ASSERT_EQ(IBV_WC_SUCCESS,
				  pages_access(self, MKT_READ, last - k * 64 * PAGE, 8));
			stale += plain[0] != 0;
		}
	}
	ASSERT_EQ(0, mkt_loop_end(&loop));
	EXPECT_LT(0, loop.rounds);
	EXPECT_EQ(0, stale);
}

static int pages_drop_step(void *arg, unsigned int round)
{
	if (madvise(arg, PAGE, MADV_DONTNEED))
		return errno;
	usleep(100);
	return 0;
}

/* an advice for more pages than can be looked at until one of them goes again */
TEST_F(pages, advised_in_vain)
{
	const size_t length = 1ull << 30;
	unsigned int i, rounds = mkt_scale(10, 2);
	struct mkt_loop loop = {};

	ASSERT_EQ(0, pages_reg(self, variant->implicit, mkt_untouched(length), length));
	ASSERT_EQ(0, mkt_loop_start(&loop, pages_drop_step, self->memory));
	for (i = 0; i < rounds; i++) {
		mkt_alive();
		ASSERT_EQ(0, pages_advise(self, PREFETCH, length));
	}
	ASSERT_EQ(0, mkt_loop_end(&loop));
	/* the others are there */
	EXPECT_EQ(0xfffffffe, mkt_mapped(self->memory, 32) & ~1u);
}

/* the number of pages that are there */
static size_t pages_present(FIXTURE_DATA(pages) *self)
{
	size_t i, num = self->length / PAGE, present = 0;
	unsigned char *page = malloc(num);

	if (!page || mincore(self->memory, self->length, page))
		return 0;
	for (i = 0; i < num; i++)
		present += page[i] & 1;
	free(page);
	return present;
}

/*
 * Advice does not hold up the requests of queue pairs, however much there is of it: few pages come
 * before that of a WRITE.
 */
TEST_F(pages, advised_often)
{
	const unsigned int num = UINT16_MAX / sizeof(struct ibv_sge), calls = mkt_scale(32, 8);
	const size_t length = (calls * num + 1) * (size_t)PAGE;
	struct ib_uverbs_sge *list = calloc(num, sizeof(*list));
	unsigned int i, j;
	size_t before;

	ASSERT_NE(NULL, list);
	ASSERT_EQ(0, pages_reg(self, variant->implicit, mkt_untouched(length), length));
	for (i = 0; i < calls; i++) {
		for (j = 0; j < num; j++)
			list[j] = (struct ib_uverbs_sge){
				.addr = (uintptr_t)self->memory + (i * num + j) * (size_t)PAGE,
				.length = 1,
				.lkey = self->mr->lkey,
			};
		mkt_alive();
		ASSERT_EQ(0, mkt_raw_advise_list(self->s.dev[1].pd, PREFETCH_WRITE, 0, list, num));
	}
	before = pages_present(self);
	ASSERT_EQ(IBV_WC_SUCCESS, pages_access(self, MKT_WRITE, self->memory + length - PAGE, 8));
	EXPECT_GT(before + 1024, pages_present(self));
	EXPECT_TRUE(mkt_until(mkt_mapped(self->memory, 1)));
	free(list);
}

TEST_HARNESS_MAIN
