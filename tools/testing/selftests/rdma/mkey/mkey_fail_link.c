// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Adds a link, and loads the module, while one allocation of ib_mkey after another fails.
 * The link is not added then, or the module not loaded, rxe holds no reference to ib_mkey, and
 * kmemleak finds no leak. Allocations of rxe and of the core succeed, because stock code that leaks
 * is not under test. Needs a kernel with fault injection. Loads the module again.
 * needs: faults
 */
#include "fail.h"

#define LINK "rxe_mktf"

FIXTURE(fail_link)
{
	int references;		/* to the module, without the link; -1 if it is not loaded */
	bool module, prepared;
};

FIXTURE_VARIANT(fail_link)
{
	/* a function of ib_mkey, or the one that calls its initialization */
	const char *symbol;
	/* commands: before the test, under test, to undo it, after the test */
	const char *prepare, *up, *down, *restore;
	bool link;
};

FIXTURE_VARIANT_ADD(fail_link, add) {
	.symbol = "ib_mkey_rxe_add",
	.prepare = "ip link add " LINK " type dummy && ip link set " LINK " up",
	.up = "rdma link add " LINK " type rxe netdev " LINK,
	.down = "rdma link delete " LINK,
	.restore = "ip link delete " LINK,
	.link = true,
};
FIXTURE_VARIANT_ADD(fail_link, load) {
	.symbol = "do_one_initcall",
	.prepare = "bash $TOP/dev/vm/guest/rdma-down && modprobe -a ib_uverbs rxe_provider",
	.up = "modprobe ib_mkey",
	.down = "rmmod ib_mkey",
	.restore = "bash $TOP/dev/vm/guest/rdma-up",
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

	if (geteuid() || link_references() < 0)
		SKIP(return, "not root, or no ib_mkey");
	if (!variant->link && !getenv("TOP"))
		SKIP(return, "not in the virtual machine");
	err = fail_load(variant->symbol);
	if (err == ENOENT)
		SKIP(return, "no " FAIL_MODULE ".ko in MODULE_DIR");
	ASSERT_EQ(0, err);
	self->module = true;
	self->prepared = true;
	ASSERT_EQ(0, system(variant->prepare));
	self->references = link_references();
}

FIXTURE_TEARDOWN(fail_link)
{
	if (self->prepared)
		EXPECT_EQ(0, system(variant->restore));
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

/* runs the command under test with fault number @nth, or 0 for none, and undoes it */
static bool link_try(FIXTURE_DATA(fail_link) *self, const FIXTURE_VARIANT(fail_link) *variant,
		     unsigned int nth, struct outcome *outcome)
{
	int references;

	if (fail_module_arm(nth)) {
		mkt_diag("fault %u: not set", nth);
		return false;
	}
	outcome->added = !system(variant->up);
	outcome->failed = fail_module_happened(&outcome->allocations);
	if (outcome->added && variant->link && !link_is_extended()) {
		mkt_diag("fault %u: the link is not extended", nth);
		return false;
	}
	if (outcome->added && system(variant->down)) {
		mkt_diag("fault %u: %s fails", nth, variant->down);
		return false;
	}
	references = link_references();
	if (references == self->references)
		return true;
	mkt_diag("fault %u: %d references to ib_mkey, not %d", nth, references,
		 self->references);
	return false;
}

/*
 * In a quick run a dozen fail: the first allocation, without which the module is not loaded, and
 * with another seed others. Most are of debugfs, and the module does without them.
 */
TEST_F(fail_link, fails)
{
	unsigned int nth, step, failed = 0, refused = 0;
	struct outcome none, now;
	struct mkt_rng rng;

	mkt_rng_init(&rng, _metadata->name);
	ASSERT_TRUE(link_try(self, variant, 0, &none));
	ASSERT_TRUE(none.added);
	ASSERT_LT(5, none.allocations);
	step = 1 + none.allocations / mkt_scale(none.allocations + 1, 12);
	mkt_diag("%u allocations, every %u", none.allocations, step);
	for (nth = 1; nth <= none.allocations;
	     nth += nth == 1 ? mkt_between(&rng, 1, step) : step) {
		ASSERT_TRUE(link_try(self, variant, nth, &now))
			mkt_diag("fault %u", nth);
		mkt_alive();
		failed += now.failed;
		refused += !now.added;
		/* without a fault nothing is different */
		ASSERT_TRUE(now.failed || now.added);
	}
	mkt_diag("%u failed: %u not added", failed, refused);
	EXPECT_LT(0, refused);
	ASSERT_TRUE(link_try(self, variant, 0, &now));
	EXPECT_TRUE(now.added);
}

FAIL_MAIN
