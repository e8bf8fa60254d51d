// SPDX-License-Identifier: GPL-2.0
/*
 * subject: MRs of a provider of rxe other than ib_mkey (test_modules/mkey_provider.c): an MR at
 * the address PATTERN has no memory, and byte n of it is the low byte of n. mkey_lifecycle.sh
 * loads that provider. Without it these tests are skipped.
 */
#include "mkey_harness.h"

#define PATTERN 0x7061747465726e00ULL
#define LENGTH 5000

FIXTURE(provider)
{
	struct mkt_setup s;
	struct ibv_mr *mr[2];	/* one without memory at each end */
	struct mkt_wr wr;
};

FIXTURE_SETUP(provider)
{
	int i;

	MKT_OPEN(self->s.dev);
	MKT_MAKE(&self->s, .host = 2 * LENGTH);
	for (i = 0; i < 2; i++) {
		/* no memory of the process is there, and both are equally far from a page */
		void *addr = (void *)(uintptr_t)(4096 + PATTERN % 4096);

		self->mr[i] = ibv_reg_mr_iova(self->s.dev[i].pd, addr, LENGTH, PATTERN,
					      MKT_ACCESS_ALL);
		if (!self->mr[i])
			SKIP(return, "%s has another provider, or none", self->s.dev[i].name);
	}
	self->wr = mkt_plain_wr(&self->s, 0, MKT_READ, LENGTH - 2, PATTERN + 1, self->mr[1]->rkey);
}

FIXTURE_TEARDOWN(provider)
{
	int i;

	for (i = 0; i < 2; i++)
		if (self->mr[i])
			EXPECT_EQ(0, ibv_dereg_mr(self->mr[i]));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* the ordinary memory of side 0 */
static uint8_t *provider_bytes(const FIXTURE_DATA(provider) *self)
{
	return (uint8_t *)(uintptr_t)self->s.plain[0].addr;
}

TEST_F(provider, read)
{
	const uint8_t *bytes = provider_bytes(self);
	unsigned int i;

	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &self->wr));
	for (i = 0; i < LENGTH - 2; i++)
		ASSERT_EQ((uint8_t)(i + 1), bytes[i]);
}

/* the table is asked at both ends */
TEST_F(provider, local)
{
	self->wr.sge[0].addr = PATTERN + 1;
	self->wr.sge[0].lkey = self->mr[0]->lkey;
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &self->wr));
}

/* the MR takes only what it has */
TEST_F(provider, write)
{
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &self->wr));
	self->wr.op = MKT_WRITE;
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &self->wr));
	provider_bytes(self)[LENGTH / 2]++;
	ASSERT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_status(&self->s.pair, 0, &self->wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
}

TEST_F(provider, range)
{
	self->wr.remote_addr += 2;
	ASSERT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_status(&self->s.pair, 0, &self->wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
}

TEST_HARNESS_MAIN
