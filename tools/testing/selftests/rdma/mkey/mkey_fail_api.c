// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Runs the calls and the requests of a kernel user with one allocation of ib_mkey after
 * another failing (test_modules/mkey_fail_api.c). A call or a REG_MR that fails changes nothing,
 * and an invalidation needs no memory. Needs a kernel with fault injection; kmemleak finds leaks.
 * needs: faults
 */
#include "fail.h"

#define API "mkey_fail_api"

FIXTURE(fail_api)
{
	struct mkt_dev dev[2];
	struct mkt_pool pool;
	int mrs;
	long long keys;
	bool probes;		/* the module that has allocations of a function fail is loaded */
	char load[512];		/* the command that loads the kernel user */
};

FIXTURE_SETUP(fail_api)
{
	const char *dir = getenv("MODULE_DIR") ?: ".";

	if (geteuid())
		SKIP(return, "not root");
	MKT_OPEN_EXTENDED(self->dev);
	snprintf(self->load, sizeof(self->load),
		 "%s/tools/testing/selftests/rdma/mkey/test_modules/" API ".ko", dir);
	if (access(self->load, R_OK))
		SKIP(return, "no " API ".ko in MODULE_DIR");
	snprintf(self->load, sizeof(self->load),
		 "insmod '%s/tools/testing/selftests/rdma/mkey/test_modules/" API
		 ".ko' device=%s peer=%s request=", dir, self->dev[0].name, self->dev[1].name);
	ASSERT_EQ(0, mkt_pool(&self->dev[0], "host", &self->pool));
	self->mrs = mkt_dev_count(&self->dev[0], "mr");
	self->keys = mkt_keys_charged(&self->dev[0]);
}

FIXTURE_TEARDOWN(fail_api)
{
	unsigned int i;

	if (self->probes)
		EXPECT_EQ(0, fail_unload());
	if (self->pool.total) {
		EXPECT_TRUE(mkt_pool_grew(&self->dev[0], "host", &self->pool, 0));
		EXPECT_EQ(self->mrs, mkt_dev_count(&self->dev[0], "mr"));
		EXPECT_EQ(self->keys, mkt_keys_charged(&self->dev[0]));
	}
	for (i = 0; i < 2; i++)
		mkt_dev_close(&self->dev[i]);
}

/* runs the calls, or the request of this number; true if all was as it should be */
static bool api_run(FIXTURE_DATA(fail_api) *self, unsigned int request, bool *refused)
{
	char command[600], text[16];

	snprintf(command, sizeof(command), "%s%u", self->load, request);
	if (system(command)) {
		system("dmesg | grep " API " | tail -n 3 | sed 's/^/# /'");
		return false;
	}
	if (!fail_read("/sys/module/" API "/parameters/refused", text, sizeof(text)))
		return false;
	*refused = text[0] == 'Y';
	return !system("rmmod " API);
}

TEST_F(fail_api, calls)
{
	bool refused;

	ASSERT_TRUE(mkt_faults_may_sleep(true));
	EXPECT_TRUE(api_run(self, 0, &refused));
	EXPECT_TRUE(mkt_faults_may_sleep(false));
	system("dmesg | grep '" API ": ib_' | sed 's/^/# /'");
}

/* as long as a fault comes, the request may be refused */
TEST_F(fail_api, reg_mr)
{
	unsigned int nth, faults = 0, failed = 0;
	bool refused, came = true;

	ASSERT_EQ(0, fail_load("ib_mkey_rxe_reg_mkey"));
	self->probes = true;
	for (nth = 1; came && nth < 1000; nth++) {
		ASSERT_EQ(0, fail_module_arm(nth));
		ASSERT_TRUE(api_run(self, 1, &refused));
		came = fail_module_happened(NULL);
		EXPECT_TRUE(came || !refused);
		faults += came;
		failed += refused;
	}
	mkt_diag("%u faults, refused after %u", faults, failed);
	EXPECT_FALSE(came);
	EXPECT_LT(0, failed);
}

/* LOCAL_INV and SEND_WITH_INV succeed, because they allocate nothing */
TEST_F(fail_api, invalidations)
{
	unsigned int request, allocations;
	bool refused;

	ASSERT_EQ(0, fail_load("ib_mkey_rxe_invalidate_mr"));
	self->probes = true;
	for (request = 2; request <= 3; request++) {
		ASSERT_EQ(0, fail_module_arm(1));
		EXPECT_TRUE(api_run(self, request, &refused));
		EXPECT_FALSE(fail_module_happened(&allocations));
		/* UINT_MAX if the function was not called */
		EXPECT_EQ(0, allocations);
	}
}

FAIL_MAIN
