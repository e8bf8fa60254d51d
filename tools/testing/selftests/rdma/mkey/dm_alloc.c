// SPDX-License-Identifier: GPL-2.0
/*
 * Allocation of device memory: 100,000 random sizes, after which all memory is
 * free again; quotas of a process and of the device; and the owners that
 * debugfs shows.
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

FIXTURE_VARIANT_ADD(alloc, host)
{
	.class = "host",
	.bit = IBMKEY_DM_HOST,
};

FIXTURE_VARIANT_ADD(alloc, node)
{
	.class = "node",
	.bit = IBMKEY_DM_NODE,
};

FIXTURE_VARIANT_ADD(alloc, p2p)
{
	.class = "p2p",
	.bit = IBMKEY_DM_P2P,
};

FIXTURE_VARIANT_ADD(alloc, pmem)
{
	.class = "pmem",
	.bit = IBMKEY_DM_PMEM,
};

static struct ibv_dm *dm_alloc(struct mkt_dev *dev, size_t length,
			       uint32_t log_align, uint32_t class)
{
	struct ibv_alloc_dm_attr attr = {
		.length = length,
		.log_align_req = log_align,
	};

	errno = 0;
	return ibmkey_alloc_dm(dev->ctx, &attr, class);
}

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
	dm = dm_alloc(&self->dev, 1, 0, variant->bit);
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
		dm = dm_alloc(dev, 1ul << log, 0, class);
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
		live[slot] = dm_alloc(&self->dev, size, align, variant->bit);
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
	ASSERT_EQ(0, mkt_pool(&self->dev, variant->class, &now));
	EXPECT_EQ(self->before.used, now.used);
	EXPECT_EQ(self->before.buffers, now.buffers);
	EXPECT_EQ(had, largest(&self->dev, variant->bit));
}

TEST_F(alloc, owner)
{
	struct ibv_dm *dm[2];
	char comm[32];

	EXPECT_EQ(-1, mkt_owner_bytes(&self->dev, getpid(), comm));
	dm[0] = dm_alloc(&self->dev, 5000, 0, variant->bit);
	dm[1] = dm_alloc(&self->dev, 100, 0, variant->bit);
	ASSERT_NE(NULL, dm[0]);
	ASSERT_NE(NULL, dm[1]);
	EXPECT_EQ(12288, mkt_owner_bytes(&self->dev, getpid(), comm));
	EXPECT_STREQ("dm_alloc", comm);
	ASSERT_EQ(0, ibv_free_dm(dm[0]));
	EXPECT_EQ(4096, mkt_owner_bytes(&self->dev, getpid(), comm));
	ASSERT_EQ(0, ibv_free_dm(dm[1]));
	EXPECT_EQ(-1, mkt_owner_bytes(&self->dev, getpid(), comm));
}

/*
 * A process gets its quota and no more. The bytes of one process do not count
 * for another. dm_quota.sh runs this with a quota.
 */
TEST_F(alloc, quota)
{
	const char *told = getenv("MKEY_TEST_QUOTA");
	uint64_t quota = told ? strtoull(told, NULL, 0) : 0;
	struct ibv_dm *all, *more;
	int status;
	pid_t pid;

	if (!quota)
		SKIP(return, "MKEY_TEST_QUOTA does not say max_dm_size_per_process");
	EXPECT_EQ(NULL, dm_alloc(&self->dev, quota + 1, 0, variant->bit));
	EXPECT_EQ(ENOMEM, errno);
	all = dm_alloc(&self->dev, quota, 0, variant->bit);
	ASSERT_NE(NULL, all);
	EXPECT_EQ(NULL, dm_alloc(&self->dev, 1, 0, variant->bit));
	EXPECT_EQ(ENOMEM, errno);

	fflush(stdout);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		struct mkt_dev own;

		if (mkt_dev_try_open(&own, 0))
			_exit(1);
		if (!dm_alloc(&own, quota, 0, variant->bit))
			_exit(2);
		if (dm_alloc(&own, 1, 0, variant->bit) || errno != ENOMEM)
			_exit(3);
		/* end without freeing it */
		_exit(0);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);

	ASSERT_EQ(0, ibv_free_dm(all));
	more = dm_alloc(&self->dev, 1, 0, variant->bit);
	ASSERT_NE(NULL, more);
	ASSERT_EQ(0, ibv_free_dm(more));
}

/* all RAM shares one limit; each other memory has its own */
TEST_F(alloc, shared_limit)
{
	uint64_t most = self->dev.caps.max_dm_size;
	bool ram = variant->bit & (IBMKEY_DM_HOST | IBMKEY_DM_NODE);
	struct ibv_dm *rest, *dm;
	size_t n;

	/*
	 * the default class is RAM of the host; one buffer can take all of it
	 */
	if (most > 1ull << 28)
		SKIP(return, "too much device memory to take all of it");
	n = (most - self->before.used - (1 << 20)) & -4096ul;
	rest = dm_alloc(&self->dev, n, 0, IBMKEY_DM_HOST);
	ASSERT_NE(NULL, rest);
	dm = dm_alloc(&self->dev, 3 << 20, 0, variant->bit);
	if (ram) {
		EXPECT_EQ(NULL, dm);
		EXPECT_EQ(ENOMEM, errno);
	} else {
		ASSERT_NE(NULL, dm);
		ASSERT_EQ(0, ibv_free_dm(dm));
	}
	ASSERT_EQ(0, ibv_free_dm(rest));
	dm = dm_alloc(&self->dev, 3 << 20, 0, variant->bit);
	ASSERT_NE(NULL, dm);
	ASSERT_EQ(0, ibv_free_dm(dm));
}

TEST_HARNESS_MAIN
