// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Adds a link while one allocation of ib_mkey after another fails. The link is not
 * added then, rxe holds no reference to ib_mkey, and kmemleak finds no leak. Allocations of rxe
 * and of the core succeed, because stock code that leaks is not under test. Needs a kernel with
 * fault injection.
 * needs: faults
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mkey_harness.h"

#define LINK "rxe_mktf"
#define MODULE "mkey_fail_add"
#define PARAMETERS "/sys/module/" MODULE "/parameters/"
#define MODULE_FILE "tools/testing/selftests/rdma/mkey/test_modules/" MODULE ".ko"

FIXTURE(fail_link)
{
	int references;		/* to the module, without the link */
	bool module, netdev;
};

/* what is in the file at @path, or 0 characters */
static size_t link_read(const char *path, char *text, size_t size)
{
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(text, 1, size - 1, f) : 0;

	text[n] = '\0';
	if (f)
		fclose(f);
	return n;
}

static int link_references(void)
{
	char text[16];

	return link_read("/sys/module/ib_mkey/refcnt", text, sizeof(text)) ?
		       atoi(text) : -1;
}

/* loads the module that has allocations fail, for ib_mkey's way of adding a device */
static int load_module(const char *dir)
{
	char command[512];

	snprintf(command, sizeof(command), "insmod '%s/" MODULE_FILE "' symbol=ib_mkey_rxe_add",
		 dir);
	return system(command);
}

FIXTURE_SETUP(fail_link)
{
	const char *dir = getenv("MODULE_DIR") ?: ".";
	char path[512];

	self->references = link_references();
	if (geteuid() || self->references < 0)
		SKIP(return, "not root, or no ib_mkey");
	snprintf(path, sizeof(path), "%s/" MODULE_FILE, dir);
	if (access(path, R_OK))
		SKIP(return, "no " MODULE ".ko in MODULE_DIR");
	ASSERT_EQ(0, load_module(dir));
	self->module = true;
	ASSERT_EQ(0, system("ip link add " LINK " type dummy"));
	self->netdev = true;
	ASSERT_EQ(0, system("ip link set " LINK " up"));
	ASSERT_TRUE(mkt_faults_may_sleep(true));
}

FIXTURE_TEARDOWN(fail_link)
{
	if (self->netdev) {
		EXPECT_TRUE(mkt_faults_may_sleep(false));
		EXPECT_EQ(0, system("ip link delete " LINK));
	}
	if (self->module) {
		EXPECT_EQ(0, system("rmmod " MODULE));
	}
}

static bool link_is_extended(void)
{
	char text[4096];

	return link_read("/sys/kernel/debug/ib_mkey/pools", text, sizeof(text)) &&
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
	char text[16];
	int references;

	snprintf(text, sizeof(text), "%u", nth);
	if (!mkt_write_file(PARAMETERS "nth", text)) {
		mkt_diag("fault %u: not set", nth);
		return false;
	}
	outcome->added = !system("rdma link add " LINK " type rxe netdev " LINK);
	link_read(PARAMETERS "allocations", text, sizeof(text));
	outcome->allocations = strtoul(text, NULL, 10);
	link_read(PARAMETERS "failed", text, sizeof(text));
	outcome->failed = text[0] == 'Y';
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
		{
			mkt_diag("fault %u", nth);
		}
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

int main(int argc, char **argv)
{
	if (access("/proc/thread-self/fail-nth", W_OK)) {
		ksft_print_header();
		ksft_exit_skip("this kernel has no fault injection\n");
	}
	return test_harness_run(argc, argv);
}
