// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Keys that are bound by work requests: every kind of layout.
 * sets: smp
 */
#include "mkey_harness.h"
#include "request.h"

#define ROOM (256 * 1024)
#define HOST (256 * 1024)

FIXTURE(request)
{
	struct mkt_setup s;
	struct mkt_request text;
};

FIXTURE_VARIANT(request)
{
	unsigned int flags;
};

FIXTURE_VARIANT_ADD(request, rc) { .flags = 0 };
FIXTURE_VARIANT_ADD(request, uc) { .flags = MKT_QP_UC };

FIXTURE_SETUP(request)
{
	MKT_SETUP(&self->s, .flags = variant->flags, .host = HOST, .dm = 32 * 1024,
		  .max_entries = 1024);
	ASSERT_EQ(0, mkt_request_init(&self->text, self->s.dev[0].pd, ROOM));
}

FIXTURE_TEARDOWN(request)
{
	mkt_request_free(&self->text);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* binds the key of side 0 by a request that has the description; returns its status */
static int request_inline(struct mkt_setup *s, const struct mkt_layout *layout)
{
	struct mkt_qp *qp = &s->pair.end[0];
	struct mkt_entries entries = {};
	struct ibv_wc wc;
	int err = mkt_layout_entries(&entries, &s->arena[0], layout);

	entries.bind.mkey = s->key[0];
	entries.bind.access = MKT_ACCESS_ALL;
	if (!err)
		err = ibmkey_post_layout(ibv_qp_to_qp_ex(qp->qp), &entries.bind, 77,
					 IBV_SEND_SIGNALED);
	mkt_entries_free(&entries);
	if (!err)
		err = mkt_poll(qp, &wc);
	return err ? -err : wc.wr_id == 77 ? (int)wc.status : -EBADMSG;
}

/* binds the key of side 0 by a request to a random layout */
static int request_bind(struct mkt_setup *s, struct mkt_request *text, enum mkt_kind kind,
			bool is_inline, struct mkt_end *end)
{
	struct mkt_draw draw = {
		.min_length = 2 * 1024,
		.max_length = 24 * 1024,
		.max_block = 4 * 1024,
		.max_blocks = is_inline ? 4 : 700,
		.max_dims = s->dev[0].caps.max_dims,
	};
	struct mkt_layout layout;
	struct ibmkey_info info = {};
	struct ibmkey_wr wr;
	uint64_t base;
	int err;

	memset(end, 0, sizeof(*end));
	err = mkt_draw_layout(&layout, &s->rng, &s->arena[0], kind, &draw);
	if (err)
		return err;
	/* a layout that is posted by ibmkey_post_layout() begins at 0 */
	layout.first = is_inline ? 0 : mkt_draw_first(&s->rng);
	end->addr = layout.first;
	err = mkt_request_describe(text, &s->arena[0], &layout);
	wr = mkt_request_wr(text, s->key[0]);
	if (!err && (is_inline ? request_inline(s, &layout) :
				 mkt_request_status(&s->pair.end[0], &wr))) {
		mkt_layout_print(&layout);
		err = EIO;
	}
	end->arena = &s->arena[0];
	end->mr = s->key[0];
	if (!err)
		err = mkt_layout_map(&s->arena[0], &layout, &end->map);
	if (!err)
		err = ibmkey_query(s->key[0], &info) ?: ibmkey_query_base(s->key[0], &base);
	if (!err && (info.length != end->map.length || base != layout.first ||
		     (is_inline && ibmkey_sge(s->key[0]).length != info.length))) {
		mkt_diag("the key's length is %lu and %zu, not %zu", (long)info.length,
			 s->key[0]->length, end->map.length);
		err = EBADMSG;
	}
	mkt_layout_free(&layout);
	return err;
}

/* a WRITE from the key and, on RC, a READ to it */
static int request_transfer(struct mkt_setup *s, struct mkt_end *end, bool rc)
{
	struct mkt_xfer xfer = {
		.op = MKT_WRITE,
		.end = { end, &s->plain[1] },
		.length = end->map.length,
		.num_sge = 3,
	};
	int err;

	err = mkt_xfer(&s->pair, &xfer);
	if (err || !rc)
		return err;
	xfer.op = MKT_READ;
	return mkt_xfer(&s->pair, &xfer);
}

TEST_F(request, binds_every_kind)
{
	unsigned int rounds = mkt_scale(20, 2), kind, i;
	struct mkt_end end;

	for (i = 0; i < rounds; i++)
		for (kind = 0; kind < MKT_NUM_KINDS; kind++) {
			ASSERT_EQ(0, request_bind(&self->s, &self->text, kind, false, &end));
			ASSERT_EQ(0, request_transfer(&self->s, &end, !variant->flags));
			mkt_end_free(&end);
		}
}

TEST_F(request, binds_from_inline_data)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(self->s.pair.end[0].qp);
	unsigned int kind;
	struct mkt_end end;

	if (!ex || !ex->wr_bind_mw)
		SKIP(return, "no extended queue pair");
	/* four ranges, or one block in one dimension, fit */
	for (kind = 0; kind < MKT_NUM_KINDS; kind++) {
		if (kind != MKT_LIST && kind != MKT_STRIDED)
			continue;
		ASSERT_EQ(0, request_bind(&self->s, &self->text, kind, true, &end));
		ASSERT_EQ(0, request_transfer(&self->s, &end, true));
		mkt_end_free(&end);
	}
}

/* one call posts a bind, a WRITE from the key and its unbind, until key portions repeat */
TEST_F(request, unbinds_in_a_chain)
{
	struct mkt_qp *qp = &self->s.pair.end[0];
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp->qp);
	struct mkt_end *from = &self->s.plain[0], *to = &self->s.plain[1];
	struct ibv_mr *key = self->s.key[0];
	struct ibmkey_range range = { .length = 64, .lkey = from->mr->lkey };
	struct ibmkey_bind bind = { .kind = IBMKEY_LIST, .num_entries = 1, .ranges = &range };
	const uint8_t *there = (uint8_t *)(uintptr_t)to->addr;
	struct ibmkey_wr wr;
	struct ibv_wc wc;
	unsigned int i, w;

	if (!ex || !ex->wr_local_inv)
		SKIP(return, "no LOCAL_INV");
	EXPECT_EQ(EINVAL, ibmkey_wr_unbind(ex, NULL));
	for (i = 0; i < 300; i++) {
		range.addr = from->addr + i;
		self->text.length = ibmkey_describe(&bind, self->text.text, self->text.room);
		wr = mkt_request_wr(&self->text, key);
		ibv_wr_start(ex);
		ex->wr_flags = IBV_SEND_SIGNALED;
		ex->wr_id = 0;
		ASSERT_EQ(0, ibmkey_wr_bind(ex, &wr));
		ex->wr_id = 1;
		ibv_wr_rdma_write(ex, to->mr->rkey, to->addr);
		ibv_wr_set_sge(ex, key->lkey, 0, range.length);
		ex->wr_id = 2;
		ASSERT_EQ(0, ibmkey_wr_unbind(ex, key));
		ASSERT_EQ(0, ibv_wr_complete(ex));
		for (w = 0; w < 3; w++) {
			ASSERT_EQ(0, mkt_poll(qp, &wc));
			ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
			EXPECT_EQ(w, wc.wr_id);
		}
		ASSERT_EQ(IBMKEY_UNBOUND, mkt_kind_of(key));
		ASSERT_EQ(0, memcmp(there, (void *)(uintptr_t)range.addr, range.length));
	}
}

/* what the library refuses, and a description of more bytes than the queue pair takes */
TEST_F(request, refused_before_it_is_posted)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(self->s.pair.end[0].qp);
	const struct mkt_end *plain = &self->s.plain[0];
	struct ibmkey_range range[64] = {};
	struct ibmkey_bind bind = { .mkey = self->s.key[0], .kind = IBMKEY_LIST,
				    .num_entries = 1, .ranges = range };
	uint32_t rkey = bind.mkey->rkey;
	unsigned int i;

	if (!ex || !ex->wr_bind_mw)
		SKIP(return, "no extended queue pair");
	EXPECT_EQ(EINVAL, ibmkey_wr_unbind(NULL, bind.mkey));
	EXPECT_EQ(EINVAL, ibmkey_post_layout(ex, &bind, 0, 0));
	EXPECT_STREQ("ranges[0].length is 0", ibmkey_last_error());
	for (i = 0; i < ARRAY_SIZE(range); i++)
		range[i] = (struct ibmkey_range){ plain->addr, 8, plain->mr->lkey, 0 };
	bind.num_entries = ARRAY_SIZE(range);
	EXPECT_EQ(ENOSPC, ibmkey_post_layout(ex, &bind, 0, 0));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "1560 bytes"));
	EXPECT_EQ(0, bind.mkey->length);
	EXPECT_EQ(rkey, bind.mkey->rkey);
	EXPECT_EQ(EFAULT, ibmkey_post_layout(ex, NULL, 0, 0));
	EXPECT_EQ(EINVAL, ibmkey_post_layout(NULL, &bind, 0, 0));
}

TEST_HARNESS_MAIN
