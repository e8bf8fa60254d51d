// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Binds a key, or a window to it, by a request while one allocation of ib_mkey after
 * another fails. Such a request completes with an error, and the key keeps its layout. Needs a
 * kernel with fault injection; kmemleak finds leaks.
 * needs: faults
 */
#include "fail.h"
#include "request.h"

#define SYMBOL "ib_mkey_rxe_bind_mkey"	/* executes a request */
#define ROOM (64 * 1024)	/* 200 blocks of three dimensions take 17 KiB */
#define SWEEPS 8

FIXTURE(fail_request)
{
	struct mkt_setup s;
	struct mkt_request text;
	bool module;
};

FIXTURE_SETUP(fail_request)
{
	int err;

	if (geteuid())
		SKIP(return, "not root");
	MKT_SETUP(&self->s, .host = 256 * 1024, .max_entries = 256);
	ASSERT_EQ(0, mkt_request_init(&self->text, self->s.dev[0].pd, ROOM));
	err = fail_load(SYMBOL);
	if (err == ENOENT)
		SKIP(return, "no " FAIL_MODULE ".ko in MODULE_DIR");
	ASSERT_EQ(0, err);
	self->module = true;
}

FIXTURE_TEARDOWN(fail_request)
{
	if (self->module)
		EXPECT_EQ(0, fail_unload());
	mkt_request_free(&self->text);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/*
 * requests of one layout, with a fault in one allocation after another; adds the requests that were
 * refused to @refused
 */
static int fail_each(FIXTURE_DATA(fail_request) *self, enum mkt_kind kind, bool bound,
		     unsigned int *refused)
{
	struct ibmkey_range old = {
		.addr = self->s.plain[0].addr,
		.length = 64,
		.lkey = self->s.plain[0].mr->lkey,
	};
	struct ibv_mr *key = self->s.key[0];
	uint64_t before = bound ? old.length : 0;
	unsigned int nth, failed = 0, survived = 0;
	bool more = true;
	int err = 0, status;

	for (nth = 1; !err && more; nth++) {
		struct ibmkey_info info = {};
		struct ibmkey_wr wr;
		struct ibmkey_refused why = {};

		/* a key keeps the memory of a short layout for the next one of its kind */
		err = ibmkey_unbind(key) ?:
		      ibmkey_bind_list(key, MKT_ACCESS_ALL, 1, &old);
		if (!err && !bound)
			err = ibmkey_unbind(key);
		wr = mkt_request_wr(&self->text, key);
		err = err ?: fail_module_arm(nth);
		if (err)
			return err;
		status = mkt_request_status(&self->s.pair.end[0], &wr);
		more = fail_module_happened(NULL);
		fail_module_arm(0);
		err = ibmkey_query(key, &info);
		if (err)
			break;
		/* a table that is not contiguous takes the place of one that is */
		if (status == IBV_WC_SUCCESS) {
			survived += more;
			continue;
		}
		failed++;
		err = ibmkey_query_refused(key, &why);
		if (err || status != IBV_WC_MW_BIND_ERR || !more ||
		    why.error != ENOMEM || info.length != before) {
			mkt_diag("fault %u: status %d, %s, %lu bytes", nth, status,
				 strerror(why.error), (long)info.length);
			return EBADMSG;
		}
		err = mkt_pair_recover(&self->s.pair);
	}
	mkt_diag("kind %d: refused after %u faults, bound after %u", kind, failed, survived);
	*refused += failed;
	return err;
}

/*
 * The shape or the pin is an allocation that nothing replaces. The kernel allocates pages for its
 * caches now and then. Such an allocation moves the following ones by one, so that no fault may
 * hit the shape. The sweep is repeated then.
 */
static int fail_sweep(FIXTURE_DATA(fail_request) *self, enum mkt_kind kind, bool bound)
{
	struct mkt_draw draw = {
		.min_length = 2 * 1024,
		.max_length = 24 * 1024,
		.max_block = 256,
		.max_blocks = 200,
		.max_dims = 3,
	};
	unsigned int i, refused = 0;
	struct mkt_layout layout;
	int err;

	err = mkt_draw_layout(&layout, &self->s.rng, &self->s.arena[0], kind, &draw) ?:
	      mkt_request_describe(&self->text, &self->s.arena[0], &layout);
	mkt_layout_free(&layout);
	for (i = 0; i < SWEEPS && !err && !refused; i++)
		err = fail_each(self, kind, bound, &refused);
	return err ?: refused ? 0 : ENOENT;
}

TEST_F(fail_request, unbound_key)
{
	enum mkt_kind kind;

	for (kind = 0; kind < MKT_NUM_KINDS; kind++)
		EXPECT_EQ(0, fail_sweep(self, kind, false));
	/* every MR is released */
	EXPECT_EQ(0, ibmkey_unbind(self->s.key[0]));
}

/* the old layout is kept, too, or the request is refused */
TEST_F(fail_request, bound_key)
{
	enum mkt_kind kind;

	for (kind = 0; kind < MKT_NUM_KINDS; kind++)
		EXPECT_EQ(0, fail_sweep(self, kind, true));
	EXPECT_EQ(0, ibmkey_unbind(self->s.key[0]));
}

/* a window over a key: one that is refused pins nothing */
TEST_F(fail_request, window)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mr *key = s->key[0];
	unsigned int nth, failed = 0;
	bool more = true;
	int err;

	EXPECT_EQ(0, fail_unload());
	self->module = false;
	ASSERT_EQ(0, fail_load("ib_mkey_rxe_bind_mw"));
	self->module = true;
	for (nth = 1; more && nth < 1000; nth++) {
		struct ibv_mw *mw = ibv_alloc_mw(s->dev[0].pd, IBV_MW_TYPE_2);

		ASSERT_NE(NULL, mw);
		ASSERT_EQ(0, mkt_bind_range(key, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND,
					    s->plain[0].mr, s->plain[0].addr, 64));
		ASSERT_EQ(0, fail_module_arm(nth));
		err = mkt_bind_window(&s->pair.end[0], mw, key, 0, 64, IBV_ACCESS_REMOTE_READ);
		more = fail_module_happened(NULL);
		EXPECT_TRUE(!err || (err == EIO && more));
		if (err)
			ASSERT_EQ(0, mkt_pair_recover(&s->pair));
		EXPECT_EQ(err ? 0 : EBUSY, ibmkey_unbind(key));
		EXPECT_EQ(0, ibv_dealloc_mw(mw));
		failed += !!err;
	}
	EXPECT_FALSE(more);
	EXPECT_LT(0, failed);
	EXPECT_EQ(0, ibmkey_unbind(key));
}

FAIL_MAIN
