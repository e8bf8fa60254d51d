// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Every bind that must be refused, by each way into the kernel: its errno value, the
 * reason, the entry and the value. The key and its memory are unchanged afterwards.
 */
#include "mkey_harness.h"
#include "raw.h"
#include "refusals.h"
#include "request.h"

#define TEXT (64 * 1024)
/* bytes that a request of the queue pairs can contain */
#define INLINE_MOST 128

/* the ways into the kernel */
enum errors_way {
	IOCTL,			/* IB_MKEY_METHOD_BIND */
	IOCTL_MANY,		/* IB_MKEY_METHOD_BIND_MANY, the layout in the middle of three */
	LIBRARY,		/* ibmkey_bind_many(), which says why in a sentence */
	REQUEST,		/* a work request with the description in an MR */
	INLINE,			/* a work request that contains the description */
};

FIXTURE(errors)
{
	struct mkt_setup s;
	struct mkt_refusals_of of;
	struct ibv_mr *neighbour[2];
	struct mkt_request request;
	struct mkt_text text;
	struct ibv_sge bound;
};

FIXTURE_VARIANT(errors)
{
	enum errors_way way;
};

FIXTURE_VARIANT_ADD(errors, ioctl) { .way = IOCTL };
FIXTURE_VARIANT_ADD(errors, ioctl_many) { .way = IOCTL_MANY };
FIXTURE_VARIANT_ADD(errors, library) { .way = LIBRARY };
FIXTURE_VARIANT_ADD(errors, request) { .way = REQUEST };
FIXTURE_VARIANT_ADD(errors, inline_request) { .way = INLINE };

/* the key of side 0 is always bound */
FIXTURE_SETUP(errors)
{
	unsigned int i;

	MKT_SETUP(&self->s, .host = 64 * 1024, .max_entries = MKT_REFUSALS_ROOM);
	ASSERT_EQ(0, mkt_refusals_open(&self->of, self->s.dev, self->s.key[0]->lkey));
	for (i = 0; i < 2; i++) {
		self->neighbour[i] = ibmkey_alloc(self->s.dev[0].pd, 1);
		ASSERT_NE(NULL, self->neighbour[i]);
	}
	ASSERT_EQ(0, mkt_request_init(&self->request, self->s.dev[0].pd, TEXT));
	self->bound = (struct ibv_sge){
		.addr = self->of.first + 8192, .length = 512, .lkey = self->of.lkey,
	};
	ASSERT_EQ(0, ibv_rereg_mr_sg(self->s.key[0], IBV_ACCESS_REMOTE_READ, 1, &self->bound));
}

/* the key still has the binding of the set-up */
static bool errors_unchanged(FIXTURE_DATA(errors) *self)
{
	struct ibv_mr *key = self->s.key[0];
	struct ibmkey_block block;
	struct ibmkey_info info = {};

	return !ibmkey_query_layout(key, &info, 0, NULL, 1, &block) && info.kind == IBMKEY_LIST &&
	       info.num_entries == 1 && info.length == 512 && key->length == 512 &&
	       info.lkey == key->lkey && info.rkey == key->rkey &&
	       (info.access & ~IBV_ACCESS_ZERO_BASED) == IBV_ACCESS_REMOTE_READ &&
	       block.addr == self->bound.addr && block.lkey == self->bound.lkey;
}

/* and serves a peer */
static int errors_read(FIXTURE_DATA(errors) *self)
{
	struct mkt_wr wr = {
		.op = MKT_READ,
		.sge[0] = {
			.addr = self->s.plain[1].addr,
			.length = 512,
			.lkey = self->s.plain[1].mr->lkey,
		},
		.num_sge = 1,
		.rkey = self->s.key[0]->rkey,
	};
	int status = mkt_status(&self->s.pair, 1, &wr);

	return status ?: memcmp((void *)self->s.plain[1].addr, (void *)self->bound.addr, 512);
}

FIXTURE_TEARDOWN(errors)
{
	unsigned int i;

	EXPECT_TRUE(errors_unchanged(self));
	EXPECT_EQ(0, errors_read(self));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, ibv_dereg_mr(self->neighbour[i]));
	EXPECT_EQ(0, ibmkey_unbind(self->s.key[0]));
	EXPECT_EQ(0, mkt_refusals_close(&self->of));
	mkt_request_free(&self->request);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* Each way returns an errno value, 0, or NOT_BY_THIS_WAY, and says in @why the reason if it can. */
#define NOT_BY_THIS_WAY -1

static int errors_ioctl(FIXTURE_DATA(errors) *self, struct ibmkey_refused *why)
{
	struct mkt_ioctl cmd;

	if (self->text.version != IB_MKEY_LAYOUT_VERSION)
		return NOT_BY_THIS_WAY;
	mkt_raw_bind(&cmd, self->s.key[0]->handle, &self->text.bind);
	mkt_ioctl_add(&cmd, IB_MKEY_ATTR_BIND_RESP_REFUSED, sizeof(*why), (uintptr_t)why);
	return mkt_ioctl_run(self->s.dev[0].ctx, &cmd);
}

static int errors_ioctl_many(FIXTURE_DATA(errors) *self, struct ibmkey_refused *why)
{
	struct ib_uverbs_mkey_sge range = {
		.addr = self->of.first, .length = 10, .lkey = self->of.lkey,
	};
	struct ib_uverbs_mkey_bind right = mkt_raw_list(0, &range, 1);
	struct ib_uverbs_mkey_bind binds[3] = { right, self->text.bind, right };
	const uint32_t handles[3] = {
		self->neighbour[0]->handle, self->s.key[0]->handle, self->neighbour[1]->handle,
	};
	uint32_t failed = 4711;
	struct mkt_ioctl cmd;
	unsigned int i;
	int err;

	if (self->text.version != IB_MKEY_LAYOUT_VERSION)
		return NOT_BY_THIS_WAY;
	mkt_raw_bind_many(&cmd, handles, 3, binds, &failed);
	mkt_ioctl_add(&cmd, IB_MKEY_ATTR_BIND_MANY_RESP_REFUSED, sizeof(*why), (uintptr_t)why);
	err = mkt_ioctl_run(self->s.dev[0].ctx, &cmd);
	/* all or none */
	for (i = 0; i < 2; i++)
		if (mkt_kind_of(self->neighbour[i]) != (err ? IBMKEY_UNBOUND : IBMKEY_LIST) ||
		    (!err && ibmkey_unbind(self->neighbour[i])))
			return EBADE;
	return failed == (err ? 1 : 4711) ? err : EBADE;
}

static int errors_library(FIXTURE_DATA(errors) *self, uint32_t kind)
{
	struct ibmkey_bind bind;
	int err;

	if (!mkt_text_bind(&self->text, kind, &bind))
		return NOT_BY_THIS_WAY;
	bind.mkey = self->s.key[0];
	err = ibmkey_bind_many(&bind, 1, NULL);
	return !err || *ibmkey_last_error() ? err : EBADE;
}

static int errors_request(FIXTURE_DATA(errors) *self, uint32_t kind, bool in_line,
			  struct ibmkey_refused *why)
{
	struct mkt_qp *qp = &self->s.pair.end[0];
	struct mkt_request *request = &self->request;
	struct ibv_mr *key = self->s.key[0];
	struct ibmkey_wr wr;
	int status;

	request->length = mkt_text_write(&self->text, kind, request->text, TEXT);
	if (!request->length || (in_line && request->length > INLINE_MOST))
		return NOT_BY_THIS_WAY;
	wr = mkt_request_wr(request, key);
	wr.access = self->text.bind.access;
	status = in_line ? mkt_request_inline(qp, &wr) : mkt_request_status(qp, &wr);
	if (!status) {
		struct ibmkey_info info = {};

		/* the library cannot know the length */
		return ibmkey_query(key, &info);
	}
	if (status != IBV_WC_MW_BIND_ERR || ibmkey_query_refused(key, why) ||
	    !*ibmkey_last_error() || mkt_pair_recover(&self->s.pair))
		return EBADE;
	return why->error;
}

/* the functions for one kind of layout */
static int errors_arrays(FIXTURE_DATA(errors) *self)
{
	struct ibv_mr *key = self->s.key[0];
	struct ibmkey_block block = {
		.addr = self->of.first, .bytes_count = 10, .lkey = self->of.lkey,
	};
	uint64_t repeat[IBMKEY_MAX_DIMS + 1] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };
	unsigned int bit, d, max = self->s.dev[0].caps.max_dims, wrong = 0;

	wrong += ibv_rereg_mr_sg(key, 0, 0, &self->bound) != EINVAL;
	wrong += ibv_rereg_mr_interleaved(key, 0, 1, repeat, 0, &block) != EINVAL;
	wrong += ibv_rereg_mr_interleaved(key, 0, 0, repeat, 1, &block) != EINVAL;
	wrong += ibv_rereg_mr_interleaved(key, 0, IBMKEY_MAX_DIMS + 1, repeat, 1,
					  &block) != EINVAL;
	wrong += ibmkey_bind_indexed(key, 0, NULL) != EFAULT;
	for (d = 0; d < max; d++) {
		repeat[d] = 0;
		wrong += ibv_rereg_mr_interleaved(key, 0, max, repeat, 1, &block) != EINVAL;
		repeat[d] = 1;
	}
	/* a device supports none of these access flags */
	for (bit = 10; bit < 20; bit++)
		wrong += !ibv_rereg_mr_sg(key, 1u << bit, 1, &self->bound);
	return wrong;
}

TEST_F(errors, table)
{
	unsigned int i, tried = 0;

	for (i = 0; i < mkt_num_refusals(); i++) {
		const struct mkt_refusal *refusal = &__start_mkt_refusals[i];
		struct ibmkey_refused why = {}, expected = {
			.error = refusal->err,
			.reason = refusal->reason,
			.entry = refusal->entry,
		};
		int err = NOT_BY_THIS_WAY;

		mkt_refusal_text(refusal, &self->of, &self->text);
		expected.value = self->text.value;
		switch (variant->way) {
		case IOCTL:
			err = errors_ioctl(self, &why);
			break;
		case IOCTL_MANY:
			err = errors_ioctl_many(self, &why);
			break;
		case LIBRARY:
			err = errors_library(self, refusal->kind);
			break;
		case REQUEST:
		case INLINE:
			err = errors_request(self, refusal->kind, variant->way == INLINE, &why);
			break;
		}
		if (err == NOT_BY_THIS_WAY)
			continue;
		tried++;
		EXPECT_EQ(refusal->err, err)
			TH_LOG("%s", refusal->name);
		if (!err) {
			EXPECT_NE(IBMKEY_UNBOUND, mkt_kind_of(self->s.key[0]));
			ASSERT_EQ(0, ibv_rereg_mr_sg(self->s.key[0], IBV_ACCESS_REMOTE_READ, 1,
						     &self->bound));
			continue;
		}
		if (variant->way != LIBRARY)
			EXPECT_EQ(0, memcmp(&expected, &why, sizeof(why)))
				TH_LOG("%s: error %u reason %u entry %u value 0x%llx instead of %u %u %u 0x%llx",
				       refusal->name, why.error, why.reason, why.entry,
				       (unsigned long long)why.value, expected.error,
				       expected.reason, expected.entry,
				       (unsigned long long)expected.value);
		ASSERT_TRUE(errors_unchanged(self))
			TH_LOG("%s", refusal->name);
	}
	if (variant->way == LIBRARY)
		EXPECT_EQ(0, errors_arrays(self));
	TH_LOG("%u of %u layouts", tried, mkt_num_refusals());
	EXPECT_LT(mkt_num_refusals() / 2, tried);
}

/* no field of a later version is known; only struct ibmkey_bind has any bit */
TEST(comp_mask)
{
	const uint64_t known = IBMKEY_BIND_RKEY | IBMKEY_BIND_ANY_PORTION | IBMKEY_BIND_REMOTE_INV;
	static uint8_t bytes[4096];
	struct ibmkey_range range = { .addr = (uintptr_t)bytes, .length = 10 };
	struct ibmkey_bind bind = { .kind = IBMKEY_LIST, .num_entries = 1, .ranges = &range };
	struct ibmkey_alloc_attr attr = { .max_entries = 1 };
	struct mkt_dev dev = {};
	struct ibv_mr *mr;
	unsigned int bit;
	uint8_t text[512];
	int before;

	MKT_OPEN_SIDE(&dev, 1);
	mr = ibv_reg_mr(dev.pd, bytes, sizeof(bytes), 0);
	ASSERT_NE(NULL, mr);
	bind.mkey = ibmkey_alloc(dev.pd, 1);
	ASSERT_NE(NULL, bind.mkey);
	range.lkey = mr->lkey;
	before = mkt_dev_count(&dev, "mr");
	for (bit = 0; bit < 64; bit++) {
		/* a call knows the bit of the rkey, a description all three */
		bind.comp_mask = 1ull << bit;
		bind.rkey = bind.mkey->rkey;
		if (bind.comp_mask != IBMKEY_BIND_RKEY)
			EXPECT_EQ(EINVAL, ibmkey_bind_many(&bind, 1, NULL));
		EXPECT_EQ(!(bind.comp_mask & known),
			  !ibmkey_describe(&bind, text, sizeof(text)))
			TH_LOG("bit %u", bit);
		attr.comp_mask = 1ull << bit;
		EXPECT_ERRNO(EINVAL, ibmkey_alloc_ex(dev.pd, &attr));
		bind.comp_mask = 0;
		bind.rkey = 0;
	}
	EXPECT_EQ(before, mkt_dev_count(&dev, "mr"));
	EXPECT_EQ(0, ibv_dereg_mr(bind.mkey));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	mkt_dev_close(&dev);
}

TEST_HARNESS_MAIN
