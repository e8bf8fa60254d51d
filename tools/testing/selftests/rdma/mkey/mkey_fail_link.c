// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Adds a link while one allocation of ib_mkey after another fails. The link is not
 * added then, rxe holds no reference to ib_mkey, and kmemleak finds no leak. Allocations of rxe
 * and of the core succeed, because stock code that leaks is not under test. Needs a kernel with
 * fault injection.
 * needs: faults
 */
#include "fail.h"

#define LINK "rxe_mktf"

FIXTURE(fail_link)
{
	int references;		/* to the module, without the link */
	bool module, netdev;
};

static int link_references(void)
{
	char text[16];

	return fail_read("/sys/module/ib_mkey/refcnt", text, sizeof(text)) ?
		       atoi(text) : -1;
}

FIXTURE_SETUP(fail_link)
{
	int err;

	self->references = link_references();
	if (geteuid() || self->references < 0)
		SKIP(return, "not root, or no ib_mkey");
	err = fail_load("ib_mkey_rxe_add");
	if (err == ENOENT)
		SKIP(return, "no " FAIL_MODULE ".ko in MODULE_DIR");
	ASSERT_EQ(0, err);
	self->module = true;
	ASSERT_EQ(0, system("ip link add " LINK " type dummy"));
	self->netdev = true;
	ASSERT_EQ(0, system("ip link set " LINK " up"));
}

FIXTURE_TEARDOWN(fail_link)
{
	if (self->netdev)
		EXPECT_EQ(0, system("ip link delete " LINK));
	if (self->module)
		EXPECT_EQ(0, fail_unload());
}

static bool link_is_extended(void)
{
	char text[4096];

	return fail_read("/sys/kernel/debug/ib_mkey/pools", text, sizeof(text)) &&
	       strstr(text, LINK " ");
}

struct outcome {
	unsigned int allocations;	/* of ib_mkey, up to the one that failed */
	bool failed, added;
};

/* adds the link with fault number @nth, or 0 for none, and deletes it */
static bool link_try(FIXTURE_DATA(fail_link) *self, unsigned int nth,
		     struct outcome *outcome)
{
	int references;

	if (fail_module_arm(nth)) {
		mkt_diag("fault %u: not set", nth);
		return false;
	}
	outcome->added = !system("rdma link add " LINK " type rxe netdev " LINK);
	outcome->failed = fail_module_happened(&outcome->allocations);
	if (outcome->added && !link_is_extended()) {
		mkt_diag("fault %u: the link is not extended", nth);
		return false;
	}
	if (outcome->added && system("rdma link delete " LINK)) {
		mkt_diag("fault %u: the link stays", nth);
		return false;
	}
	references = link_references();
	if (references == self->references)
		return true;
	mkt_diag("fault %u: %d references to ib_mkey, not %d", nth, references,
		 self->references);
	return false;
}

/* in a quick run a dozen fail, with another seed others */
TEST_F(fail_link, add)
{
	unsigned int nth, step, failed = 0, refused = 0;
	struct outcome none, now;
	struct mkt_rng rng;

	mkt_rng_init(&rng, _metadata->name);
	ASSERT_TRUE(link_try(self, 0, &none));
	ASSERT_TRUE(none.added);
	ASSERT_LT(5, none.allocations);
	step = 1 + none.allocations / mkt_scale(none.allocations + 1, 12);
	mkt_diag("%u allocations, every %u", none.allocations, step);
	for (nth = mkt_between(&rng, 1, step); nth <= none.allocations; nth += step) {
		ASSERT_TRUE(link_try(self, nth, &now))
			mkt_diag("fault %u", nth);
		mkt_alive();
		failed += now.failed;
		refused += !now.added;
		/* without a fault nothing is different */
		ASSERT_TRUE(now.failed || now.added);
	}
	mkt_diag("%u failed: %u links not added", failed, refused);
	EXPECT_LT(0, refused);
	ASSERT_TRUE(link_try(self, 0, &now));
	EXPECT_TRUE(now.added);
}

FAIL_MAIN
