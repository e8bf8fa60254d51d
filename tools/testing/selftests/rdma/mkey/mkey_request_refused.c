// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Work requests to bind a key that are refused. Each one completes with its status,
 * tells the errno value, the reason and the entry, and leaves the key as it was.
 * sets: smp
 */
#include <stdlib.h>
#include <sys/mman.h>

#include <rdma/ib_mkey_ioctl.h>

#include "loop.h"
#include "mkey_harness.h"
#include "raw.h"
#include "request.h"

#define ROOM (256 * 1024)
#define HOST (256 * 1024)

FIXTURE(refused)
{
	struct mkt_setup s;
	struct mkt_request text;
	struct ibmkey_range range[2];
	/* where one entry of the description is */
	struct ib_uverbs_mkey_layout *header;
	struct ib_uverbs_mkey_sge *entry;
	struct ibmkey_wr wr;
};

FIXTURE_SETUP(refused)
{
	struct mkt_leaf *leaf;
	struct ibmkey_bind bind = {
		.kind = IBMKEY_LIST,
		.num_entries = 2,
		.ranges = self->range,
	};
	unsigned int i;

	MKT_SETUP(&self->s, .host = HOST, .max_entries = 4);
	ASSERT_EQ(0, mkt_request_init(&self->text, self->s.dev[0].pd, ROOM));
	leaf = &self->s.arena[0].leaf[0];
	for (i = 0; i < 2; i++) {
		self->range[i].addr = leaf->addr + i * 8192;
		self->range[i].length = 512;
		self->range[i].lkey = leaf->mr->lkey;
	}
	/* the binding that must stay: the second range alone */
	ASSERT_EQ(0, ibmkey_bind_list(self->s.key[0], MKT_ACCESS_ALL, 1, &self->range[1]));
	self->text.length = ibmkey_describe(&bind, self->text.text, ROOM);
	ASSERT_EQ(24 + 2 * 24, self->text.length);
	self->header = (void *)self->text.text;
	self->entry = (void *)(self->header + 1);
	self->wr = mkt_request_wr(&self->text, self->s.key[0]);
}

FIXTURE_TEARDOWN(refused)
{
	mkt_request_free(&self->text);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* true if the key still has the binding of the set-up, and serves a READ to it */
static bool refused_kept(struct mkt_setup *s)
{
	struct ibmkey_block block;
	struct ibmkey_info info = {};

	if (ibmkey_query_layout(s->key[0], &info, 0, NULL, 1, &block))
		return false;
	return info.kind == IBMKEY_LIST && info.num_entries == 1 && info.length == 512 &&
	       block.addr == s->arena[0].leaf[0].addr + 8192;
}

#define NO_ENTRY IB_MKEY_NO_ENTRY

/* posts the request, which is refused with @errno_value for @why and entry @number */
#define REFUSED(errno_value, why, number) do {					\
	struct ibmkey_refused __refused = {};					\
										\
	ASSERT_EQ(IBV_WC_MW_BIND_ERR,						\
		  mkt_request_status(&self->s.pair.end[0], &self->wr));		\
	ASSERT_EQ(0, ibmkey_query_refused(self->s.key[0], &__refused));		\
	EXPECT_EQ(errno_value, __refused.error);				\
	EXPECT_EQ(IB_UVERBS_MKEY_REASON_##why, __refused.reason);		\
	EXPECT_EQ(number, __refused.entry);					\
	EXPECT_TRUE(refused_kept(&self->s));					\
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));				\
} while (0)

TEST_F(refused, nothing_is_refused_at_first)
{
	struct ibmkey_refused refused = { .error = 5, .reason = 5, .value = 5 };

	EXPECT_EQ(0, ibmkey_query_refused(self->s.key[0], &refused));
	EXPECT_EQ(0, refused.error);
	EXPECT_EQ(IB_UVERBS_MKEY_REASON_NONE, refused.reason);
	EXPECT_EQ(NO_ENTRY, refused.entry);
	EXPECT_EQ(0, refused.value);
	EXPECT_STREQ("", ibmkey_last_error());
	/* the description of the other tests is right */
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_request_status(&self->s.pair.end[0], &self->wr));
	EXPECT_FALSE(refused_kept(&self->s));
}

/* a request with a field of a later version is not posted */
TEST_F(refused, comp_mask)
{
	struct ibv_qp *qp = self->s.pair.end[0].qp;
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	uint32_t rkey = self->s.key[0]->rkey;
	unsigned int bit;

	self->wr.rkey = ibv_inc_rkey(rkey);
	for (bit = 0; bit < 64; bit++) {
		self->wr.comp_mask = 1ull << bit;
		EXPECT_EQ(EINVAL, ibmkey_post_bind(qp, &self->wr, 1, IBV_SEND_SIGNALED));
		if (!ex || !ex->wr_bind_mw)
			continue;
		ibv_wr_start(ex);
		EXPECT_EQ(EINVAL, ibmkey_wr_bind(ex, &self->wr));
		ibv_wr_abort(ex);
	}
	EXPECT_EQ(rkey, self->s.key[0]->rkey);
	EXPECT_TRUE(refused_kept(&self->s));
	/* the next completion is that of the next request */
	self->wr.comp_mask = 0;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_request_status(&self->s.pair.end[0], &self->wr));
}

/* what the calls' documentation says about a refusal: the entry, the QP and the rkey */
TEST_F(refused, as_documented)
{
	struct ibv_mr *key = self->s.key[0], *mr;
	struct ibv_qp_init_attr init;
	struct ibmkey_info info = {};
	uint32_t rkey = key->rkey;
	struct ibv_qp_attr attr;
	unsigned int tries;

	mr = ibv_reg_mr(self->s.dev[0].pd, self->text.text, 64, 0);
	ASSERT_NE(NULL, mr);
	self->range[1].lkey = mr->lkey;
	self->range[1].addr = (uintptr_t)self->text.text;
	self->range[1].length = 8;
	self->entry[1].lkey = mr->lkey;
	self->entry[1].addr = self->range[1].addr;
	self->entry[1].length = 8;
	REFUSED(EACCES, LEAF_ACCESS, 1);
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "entries[1].lkey 0x"));
	/* a call with the same layout names the same entry */
	EXPECT_EQ(EACCES, ibmkey_bind_list(key, MKT_ACCESS_ALL, 2, self->range));
	EXPECT_NE(NULL, strstr(ibmkey_last_error(), "ranges[1]"));

	self->wr.rkey = ibv_inc_rkey(rkey);
	ASSERT_EQ(IBV_WC_MW_BIND_ERR, mkt_request_status(&self->s.pair.end[0], &self->wr));
	/* rxe completes the request before it changes the state */
	for (tries = 0; tries < MKT_STALL_PAUSES; tries++) {
		ASSERT_EQ(0, ibv_query_qp(self->s.pair.end[0].qp, &attr, IBV_QP_STATE, &init));
		if (attr.qp_state == IBV_QPS_ERR)
			break;
		usleep(1000);
	}
	EXPECT_EQ(IBV_QPS_ERR, attr.qp_state);
	EXPECT_EQ(ibv_inc_rkey(rkey), key->rkey);
	EXPECT_EQ(0, ibmkey_query(key, &info));
	EXPECT_EQ(rkey, info.rkey);
	EXPECT_EQ(rkey, info.lkey);
	EXPECT_EQ(512, key->length);
	key->rkey = info.rkey;
	key->lkey = info.lkey;
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
}

TEST_F(refused, description)
{
	struct ibv_pd *pd = ibv_alloc_pd(self->s.dev[0].ctx);
	struct ibv_mr *mr, *mine = self->wr.mr;
	uint64_t addr = self->wr.addr;
	struct ibv_mr gone = *mine;
	void *page;

	ASSERT_NE(NULL, pd);
	/* in another PD */
	mr = ibv_reg_mr(pd, self->text.text, ROOM, 0);
	ASSERT_NE(NULL, mr);
	self->wr.mr = mr;
	REFUSED(ENOENT, DESCRIPTION_LKEY, NO_ENTRY);
	ASSERT_EQ(0, ibv_dereg_mr(mr));
	ASSERT_EQ(0, ibv_dealloc_pd(pd));
	/* deregistered */
	gone.lkey = mine->lkey ^ 1;
	self->wr.mr = &gone;
	REFUSED(ENOENT, DESCRIPTION_LKEY, NO_ENTRY);
	gone.lkey = 0xffffff00;
	REFUSED(ENOENT, DESCRIPTION_LKEY, NO_ENTRY);
	self->wr.mr = mine;
	/* partly outside of its MR */
	self->wr.addr = addr + ROOM - 24;
	self->header = (void *)(self->text.text + ROOM - 24);
	*self->header = *(struct ib_uverbs_mkey_layout *)self->text.text;
	REFUSED(ERANGE, DESCRIPTION_RANGE, NO_ENTRY);
	self->wr.addr = addr - 8;
	REFUSED(ERANGE, DESCRIPTION_RANGE, NO_ENTRY);
	/* partly outside, and of an unknown version: a short one and a long one */
	self->wr.addr = addr + ROOM - 24;
	self->header->version++;
	REFUSED(ERANGE, DESCRIPTION_RANGE, NO_ENTRY);
	self->wr.length = 1000;
	REFUSED(ERANGE, DESCRIPTION_RANGE, NO_ENTRY);
	self->wr.addr = UINT64_MAX - 8;
	REFUSED(ERANGE, DESCRIPTION_RANGE, NO_ENTRY);
	self->wr.addr = addr;
	/* too short for a header, and too long for its entries */
	self->wr.length = 23;
	REFUSED(EINVAL, DESCRIPTION, NO_ENTRY);
	self->wr.length = 24 + 3 * 24;
	REFUSED(EINVAL, DESCRIPTION, NO_ENTRY);
	self->wr.length = 24 + 2 * 24 - 1;
	REFUSED(EINVAL, DESCRIPTION, NO_ENTRY);
	self->wr.length = 24 + 2 * 24;
	/* on demand */
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, page);
	memcpy(page, self->text.text, self->text.length);
	mr = ibv_reg_mr(self->s.dev[0].pd, page, 4096, IBV_ACCESS_ON_DEMAND);
	if (mr) {
		self->wr.mr = mr;
		self->wr.addr = (uintptr_t)page;
		REFUSED(EOPNOTSUPP, DESCRIPTION_LEAF, NO_ENTRY);
		ASSERT_EQ(0, ibv_dereg_mr(mr));
	}
	munmap(page, 4096);
}

TEST_F(refused, key)
{
	struct ibv_mr *key = self->s.key[0], *other, wrong = *key;
	struct ibv_pd *pd = ibv_alloc_pd(self->s.dev[0].ctx);
	struct ibmkey_refused refused = {};

	ASSERT_NE(NULL, pd);
	/* another key portion than that of the key */
	self->wr.mkey = &wrong;
	wrong.rkey = key->rkey ^ 1;
	REFUSED(EINVAL, PORTION, NO_ENTRY);
	/* no key: an ordinary MR, and nothing */
	wrong.rkey = self->text.mr->rkey;
	ASSERT_EQ(IBV_WC_MW_BIND_ERR, mkt_request_status(&self->s.pair.end[0], &self->wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	wrong.rkey = 0x00fffe00;
	ASSERT_EQ(IBV_WC_MW_BIND_ERR, mkt_request_status(&self->s.pair.end[0], &self->wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	/* a key of another PD */
	other = ibmkey_alloc(pd, 4);
	ASSERT_NE(NULL, other);
	self->wr.mkey = other;
	ASSERT_EQ(IBV_WC_MW_BIND_ERR, mkt_request_status(&self->s.pair.end[0], &self->wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(0, ibmkey_query_refused(other, &refused));
	EXPECT_EQ(0, refused.error);
	EXPECT_EQ(0, ibv_dereg_mr(other));
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
	EXPECT_TRUE(refused_kept(&self->s));
	EXPECT_EQ(EINVAL, ibmkey_query_refused(self->text.mr, &refused));
}

TEST_F(refused, while_referred_to)
{
	struct ibv_mr *outer = ibmkey_alloc(self->s.dev[0].pd, 1);
	struct ibv_sge sge = { .length = 512, .lkey = self->s.key[0]->lkey };

	ASSERT_NE(NULL, outer);
	ASSERT_EQ(0, ibv_rereg_mr_sg(outer, MKT_ACCESS_ALL, 1, &sge));
	REFUSED(EBUSY, BUSY, NO_ENTRY);
	/* a circle */
	self->entry[1].lkey = outer->lkey;
	self->entry[1].addr = 0;
	REFUSED(ELOOP, CIRCLE, NO_ENTRY);
	EXPECT_EQ(0, ibv_dereg_mr(outer));
}

/* the ways to bind a key to a description in memory */
enum refused_way { REQUEST, IOCTL, MANY, INDICES, NUM_WAYS };

/* changes words of the descriptions all the time, each to a wrong value and back */
struct refused_writer {
	struct mkt_loop loop;
	struct {
		void *word;
		uint64_t flip;
		uint64_t right;
	} place[7];
};

static int refused_write(void *arg, unsigned int round)
{
	struct refused_writer *writer = arg;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(writer->place); i++)
		*(volatile uint64_t *)writer->place[i].word = writer->place[i].right ^
			(round >> i & 1 ? writer->place[i].flip : 0);
	return 0;
}

/* returns 0, or an errno value if the bind is refused */
static int refused_bind(FIXTURE_DATA(refused) *self, enum refused_way way, struct ibv_mr *other,
			const struct ib_uverbs_mkey_bind *binds)
{
	const uint32_t handles[2] = { self->s.key[0]->handle, other->handle };
	struct mkt_ioctl cmd;
	uint32_t failed;
	int status;

	if (way == REQUEST) {
		status = mkt_request_status(&self->s.pair.end[0], &self->wr);
		return !status ? 0 : status != IBV_WC_MW_BIND_ERR ? EIO :
		       mkt_pair_recover(&self->s.pair) ?: EINVAL;
	}
	if (way == MANY)
		mkt_raw_bind_many(&cmd, handles, 2, binds, &failed);
	else
		mkt_raw_bind(&cmd, handles[0], binds);
	return mkt_ioctl_run(self->s.dev[0].ctx, &cmd);
}

/* true if the key has the bytes of the right description and no others */
static bool refused_right(struct mkt_setup *s, struct ibv_mr *key)
{
	const char *right = (char *)s->arena[0].leaf[0].addr, *seen = (char *)s->plain[1].addr;
	struct mkt_wr wr = mkt_plain_wr(s, 1, MKT_READ, 1024, 0, key->rkey);
	struct ibmkey_info info = {};

	return !ibmkey_query(key, &info) && info.length == 1024 && !mkt_status(&s->pair, 1, &wr) &&
	       !memcmp(seen, right, 512) && !memcmp(seen + 512, right + 8192, 512);
}

/*
 * The layout that is bound is one that the kernel has checked, whatever the
 * program writes meanwhile.
 */
TEST_F(refused, description_that_changes)
{
	struct mkt_leaf *leaf = &self->s.arena[0].leaf[0];
	struct ibv_mr *other = ibmkey_alloc(self->s.dev[0].pd, 4);
	uint64_t index[2] = { 0, 1 };
	struct ib_uverbs_mkey_indexed indexed = {
		.addr = leaf->addr, .unit = 8192, .bytes_count = 512, .lkey = leaf->mr->lkey,
		.indices = (uintptr_t)index, .num_indices = 2, .index_bytes = 8,
	};
	struct ib_uverbs_mkey_bind list = mkt_raw_list(MKT_ACCESS_ALL, self->entry, 2), binds[2];
	unsigned int i, j, bound, rounds;
	enum refused_way way;
	int err;

	ASSERT_NE(NULL, other);
	for (way = 0; way < NUM_WAYS; way++) {
		struct refused_writer writer = { .place = {
			{ &self->entry[1].addr, 1ull << 40 },
			{ &self->entry[1].length, 1ull << 40 },
			{ &self->entry[1].lkey, 0x100 },
			{ &binds[0].kind, 0xfffcull << 32 },	/* the number of entries, too */
			{ &indexed.addr, 1ull << 40 },
			{ &indexed.num_indices, 0xfffc },
			{ &index[1], 1ull << 40 },
		} };

		binds[0] = way == INDICES ? mkt_raw_indexed(MKT_ACCESS_ALL, &indexed) : list;
		binds[1] = list;
		for (j = 0; j < ARRAY_SIZE(writer.place); j++)
			writer.place[j].right = *(uint64_t *)writer.place[j].word;
		rounds = mkt_scale(300, 30) * (way == REQUEST ? 1 : 10);
		ASSERT_EQ(0, mkt_loop_start(&writer.loop, refused_write, &writer));
		for (i = bound = 0; i < rounds || !bound; i++) {
			ASSERT_GT(100 * rounds, i);
			err = refused_bind(self, way, other, binds);
			ASSERT_NE(EIO, err);
			bound += !err;
			if (!err)
				ASSERT_TRUE(refused_right(&self->s, self->s.key[0]) &&
					    (way != MANY || refused_right(&self->s, other)))
					TH_LOG("way %u", way);
		}
		ASSERT_EQ(0, mkt_loop_end(&writer.loop));
		refused_write(&writer, 0);
		mkt_diag("way %u: %u of %u descriptions were right", way, bound, i);
	}
	EXPECT_EQ(0, ibv_dereg_mr(other));
}

TEST_HARNESS_MAIN
