// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Allocation of device memory: 100,000 random sizes, after which all memory is free
 * again; all of the memory in pieces; quotas of a user and of the device; and the owners that
 * debugfs shows.
 * sets: long
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mkey_harness.h"

FIXTURE(alloc)
{
	struct mkt_dev dev;
	struct mkt_pool before;
	struct mkt_rng rng;
	uint32_t class;
};

FIXTURE_VARIANT(alloc)
{
	const char *class;
	uint32_t bit;
};

FIXTURE_VARIANT_ADD(alloc, host) { .class = "host", .bit = IBMKEY_DM_HOST };
FIXTURE_VARIANT_ADD(alloc, node) { .class = "node", .bit = IBMKEY_DM_NODE };
FIXTURE_VARIANT_ADD(alloc, p2p) { .class = "p2p", .bit = IBMKEY_DM_P2P };
FIXTURE_VARIANT_ADD(alloc, pmem) { .class = "pmem", .bit = IBMKEY_DM_PMEM };

FIXTURE_SETUP(alloc)
{
	struct ibv_dm *dm;
	char what[64];

	MKT_OPEN_SIDE(&self->dev, 0);
	if (!(self->dev.caps.dm_classes & variant->bit))
		SKIP(return, "%s does not offer this class", self->dev.name);
	if (variant->bit & (IBMKEY_DM_P2P | IBMKEY_DM_PMEM) &&
	    !mkt_hardware(what, sizeof(what), variant->class))
		SKIP(return, "no memory of this class");
	/* the first allocation makes the pool visible */
	dm = mkt_dm_alloc(&self->dev, 1, 0, variant->bit);
	ASSERT_NE(NULL, dm);
	ASSERT_EQ(0, ibv_free_dm(dm));
	if (mkt_pool(&self->dev, variant->class, &self->before))
		SKIP(return, "no debugfs");
	mkt_rng_init(&self->rng, _metadata->name);
}

FIXTURE_TEARDOWN(alloc)
{
	mkt_dev_close(&self->dev);
}

static unsigned int largest(struct mkt_dev *dev, uint32_t class)
{
	unsigned int log;
	struct ibv_dm *dm;

	for (log = 28; log > 12; log--) {
		dm = mkt_dm_alloc(dev, 1ul << log, 0, class);
		if (dm) {
			ibv_free_dm(dm);
			return log;
		}
	}
	return 0;
}

/*
 * Allocate and free random sizes and alignments, a few hundred at a time. A
 * size that was possible before is possible afterwards, and no memory is in
 * use.
 */
TEST_F(alloc, random_sizes)
{
	unsigned int i, rounds = mkt_scale(25000, 1500), had, refused = 0;
	struct ibv_dm *live[300] = {};
	uint64_t sum[300] = {}, used = 0;
	struct mkt_pool now;

	had = largest(&self->dev, variant->bit);
	EXPECT_NE(0, had);
	for (i = 0; i < rounds; i++) {
		unsigned int slot = mkt_between(&self->rng, 0, 299);
		size_t size = mkt_rand_size(&self->rng, 200000);
		uint32_t align = mkt_between(&self->rng, 0, 14);

		if (live[slot]) {
			ASSERT_EQ(0, ibv_free_dm(live[slot]));
			used -= sum[slot];
		}
		sum[slot] = (size + 4095) / 4096 * 4096;
		/* The memory of a PCI function is allocated by pages: its alignment counts, too. */
		if (variant->bit == IBMKEY_DM_P2P && align > 12)
			sum[slot] += (1 << align) - 4096;
		live[slot] = mkt_dm_alloc(&self->dev, size, align, variant->bit);
		if (live[slot]) {
			used += sum[slot];
		} else {
			/* no free memory, or none with this alignment */
			ASSERT_EQ(ENOMEM, errno);
			refused++;
		}
		mkt_alive();
		if (i % 1000 == 999) {
			ASSERT_EQ(0, mkt_pool(&self->dev, variant->class, &now));
			ASSERT_EQ(self->before.used + used, now.used);
			ASSERT_LE(now.used, now.high);
			ASSERT_LE(now.high, now.total);
		}
	}
	/* nearly all requests succeed */
	EXPECT_LT(refused, rounds / 4);
	for (i = 0; i < 300; i++)
		if (live[i])
			ASSERT_EQ(0, ibv_free_dm(live[i]));
	EXPECT_TRUE(mkt_pool_grew(&self->dev, variant->class, &self->before, 0));
	EXPECT_EQ(had, largest(&self->dev, variant->bit));
}

#define MOST_PIECES 512

/* take all of the memory in pieces; a refused request loses none of it */
TEST_F(alloc, all_of_it)
{
	uint64_t piece = 1 << 20;
	struct ibv_dm *dm[MOST_PIECES];
	unsigned int n, round, had = 0;

	while (self->before.total / piece >= MOST_PIECES)
		piece *= 2;
	for (round = 0; round < 3; round++) {
		for (n = 0; n < MOST_PIECES; n++) {
			dm[n] = mkt_dm_alloc(&self->dev, piece, 0, variant->bit);
			if (!dm[n])
				break;
		}
		EXPECT_EQ(ENOMEM, errno);
		ASSERT_GT(MOST_PIECES, n);
		ASSERT_LE(8, n);
		EXPECT_GE(self->before.total, n * piece);
		had = had ?: n;
		EXPECT_EQ(had, n);
		/* refused several times */
		EXPECT_EQ(NULL, mkt_dm_alloc(&self->dev, piece, 0, variant->bit));
		EXPECT_EQ(NULL, mkt_dm_alloc(&self->dev, piece, 0, variant->bit));
		EXPECT_EQ(0, ibv_free_dm(dm[--n]));
		dm[n] = mkt_dm_alloc(&self->dev, piece, 0, variant->bit);
		EXPECT_NE(NULL, dm[n++]);
		while (n) {
			EXPECT_EQ(0, ibv_free_dm(dm[--n]));
		}
	}
}

TEST_F(alloc, owner)
{
	struct ibv_dm *dm[2];

	EXPECT_EQ(-1, mkt_owner_bytes(&self->dev, getuid()));
	dm[0] = mkt_dm_alloc(&self->dev, 5000, 0, variant->bit);
	dm[1] = mkt_dm_alloc(&self->dev, 100, 0, variant->bit);
	ASSERT_NE(NULL, dm[0]);
	ASSERT_NE(NULL, dm[1]);
	EXPECT_EQ(12288, mkt_owner_bytes(&self->dev, getuid()));
	ASSERT_EQ(0, ibv_free_dm(dm[0]));
	EXPECT_EQ(4096, mkt_owner_bytes(&self->dev, getuid()));
	ASSERT_EQ(0, ibv_free_dm(dm[1]));
	EXPECT_EQ(-1, mkt_owner_bytes(&self->dev, getuid()));
}

/*
 * Returns 0 if a new process of @uid gets @length bytes, errno otherwise. It has the opened device
 * from this one; @dev NULL: it opens the device. It ends without freeing them.
 */
static int child_allocs(struct mkt_dev *dev, uid_t uid, uint64_t length, uint32_t class)
{
	struct mkt_dev own;

	return MKT_IN_CHILD(setresuid(uid, uid, uid) ||
			    (!dev && mkt_dev_try_open(&own, 0)) ? 255 :
			    mkt_dm_alloc(dev ?: &own, length, 0, class) ? 0 : errno);
}

/*
 * A user gets a quota and no more: all processes together, also those that have the
 * opened device from another one. mkey_quota.sh runs this with a quota, too.
 */
static void test_quota(struct __test_metadata *_metadata, struct mkt_dev *dev, uint64_t quota,
		       uint32_t class)
{
	uid_t other = getuid() + 64001;
	struct ibv_dm *all, *more;
	struct mkt_dev second;

	EXPECT_ERRNO(ENOMEM, mkt_dm_alloc(dev, quota + 1, 0, class));
	all = mkt_dm_alloc(dev, quota, 0, class);
	ASSERT_NE(NULL, all);
	EXPECT_ERRNO(ENOMEM, mkt_dm_alloc(dev, 1, 0, class));
	EXPECT_EQ(ENOMEM, child_allocs(NULL, getuid(), 1, class));
	if (!getuid()) {
		/* the rest of a PCI function's memory may not be in one piece */
		EXPECT_EQ(0, child_allocs(NULL, other, quota / 2, class));
		EXPECT_EQ(ENOMEM, child_allocs(NULL, other, quota + 1, class));
	}
	ASSERT_EQ(0, ibv_free_dm(all));

	/* what children made of the device stays until the device is closed */
	ASSERT_EQ(0, mkt_dev_open(&second, 0));
	EXPECT_EQ(0, child_allocs(&second, getuid(), quota - 4096, class));
	EXPECT_EQ(ENOMEM, child_allocs(&second, getuid(), 4097, class));
	EXPECT_EQ(0, child_allocs(&second, getuid(), 4096, class));
	EXPECT_EQ(ENOMEM, child_allocs(&second, getuid(), 1, class));
	EXPECT_ERRNO(ENOMEM, mkt_dm_alloc(dev, 1, 0, class));
	mkt_dev_close(&second);
	more = mkt_dm_alloc(dev, quota, 0, class);
	ASSERT_NE(NULL, more);
	ASSERT_EQ(0, ibv_free_dm(more));
}

/* half of each memory, or what the module parameter max_dm_size_per_user says */
TEST_F(alloc, quota)
{
	const char *told = getenv("MKEY_TEST_QUOTA");
	uint64_t quota = told ? strtoull(told, NULL, 0) : (self->before.total / 2) & -4096ul;

	if (quota > 1ull << 28)
		SKIP(return, "too much device memory for one buffer");
	test_quota(_metadata, &self->dev, quota, variant->bit);
}

/* all RAM is one share of a user; each other memory has a share of its own */
TEST_F(alloc, shared_limit)
{
	uint64_t most = mkt_dm_share(&self->dev);
	bool ram = variant->bit & (IBMKEY_DM_HOST | IBMKEY_DM_NODE);
	struct ibv_dm *rest, *dm;
	size_t n;

	/*
	 * the default class is RAM of the host; one buffer can take all of it
	 */
	if (most > 1ull << 28)
		SKIP(return, "too much device memory to take all of it");
	n = (most - self->before.used - (1 << 20)) & -4096ul;
	rest = mkt_dm_alloc(&self->dev, n, 0, IBMKEY_DM_HOST);
	ASSERT_NE(NULL, rest);
	dm = mkt_dm_alloc(&self->dev, 3 << 20, 0, variant->bit);
	if (ram) {
		EXPECT_ERRNO(ENOMEM, dm);
	} else {
		ASSERT_NE(NULL, dm);
		ASSERT_EQ(0, ibv_free_dm(dm));
	}
	ASSERT_EQ(0, ibv_free_dm(rest));
	dm = mkt_dm_alloc(&self->dev, 3 << 20, 0, variant->bit);
	ASSERT_NE(NULL, dm);
	ASSERT_EQ(0, ibv_free_dm(dm));
}

TEST_HARNESS_MAIN
