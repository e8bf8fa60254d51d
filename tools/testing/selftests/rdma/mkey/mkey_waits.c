// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Queue pairs end, and processes are killed, while an access by a key waits for a page.
 * A call that changes the key waits for the access, until the process is killed.
 * needs: on-demand
 */
#include "waits.h"

FIXTURE(key)
{
	struct waits w;
};

FIXTURE_VARIANT(key)
{
	enum end end;
	bool own;	/* the process serves its pages */
	bool unmap;	/* and closes the devices before it stops to */
	bool returns;
};

FIXTURE_VARIANT_ADD(key, destroy_qp) { .end = DESTROY_QP, .returns = true };
FIXTURE_VARIANT_ADD(key, reset_qp) { .end = RESET_QP, .returns = true };
FIXTURE_VARIANT_ADD(key, bind) { .end = BIND_KEY };
FIXTURE_VARIANT_ADD(key, dereg) { .end = DEREG_KEY };
FIXTURE_VARIANT_ADD(key, own_bind) { .end = BIND_KEY, .own = true };
FIXTURE_VARIANT_ADD(key, own_dereg) { .end = DEREG_KEY, .own = true };
FIXTURE_VARIANT_ADD(key, own_destroy_qp) { .end = DESTROY_QP_LIBRARY, .own = true };
FIXTURE_VARIANT_ADD(key, own_closed) { .end = NOTHING, .own = true, .unmap = true };

FIXTURE_SETUP(key)
{
	WAITS_SETUP(&self->w);
	if (!self->w.dev[1].extended)
		SKIP(return, "%s is not extended by ib_mkey", self->w.dev[1].name);
}

FIXTURE_TEARDOWN(key)
{
	waits_teardown(&self->w);
}

TEST_F(key, killed)
{
	struct waits *w = &self->w;
	pid_t pid = waits_fork(w, BY_KEY, variant->end, variant->own, variant->unmap);

	ASSERT_LE(0, pid);
	if (variant->own) {
		EXPECT_TRUE(waits_for(&w->shared->begun, PATIENCE_SECONDS));
	} else {
		EXPECT_EQ(0, mkt_fuse_wait(&w->fuse));
	}
	atomic_store(&w->shared->go, true);
	if (variant->returns) {
		EXPECT_TRUE(waits_for(&w->shared->done, PATIENCE_SECONDS));
		EXPECT_EQ(0, atomic_load(&w->shared->result));
	} else {
		sleep(1);
		EXPECT_FALSE(atomic_load(&w->shared->done));
	}
	EXPECT_TRUE(waits_kill(pid));
	waits_reap(w, pid);
	EXPECT_TRUE(waits_is_clean(w));
}

TEST_HARNESS_MAIN
