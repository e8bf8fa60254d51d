// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Memory windows over keys, and work requests that invalidate keys: both work as for
 * other MRs.
 */
#include "mkey_harness.h"

#define WINDOW_ACCESS (MKT_ACCESS_ALL & ~IBV_ACCESS_LOCAL_WRITE)

FIXTURE(window)
{
	struct mkt_setup s;
	struct mkt_block block;
	struct mkt_layout layout;
	struct mkt_end end;
};

FIXTURE_SETUP(window)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.host = 64 * 1024,
		.dm = 8 * 1024,
		.max_entries = 4,
	};

	MKT_OPEN_EXTENDED(self->s.dev);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	self->block.offset = 5;
	self->block.bytes = 30;
	self->block.stride[0] = 70;
	self->layout.num_dims = 1;
	self->layout.repeat[0] = 300;
	self->layout.num_blocks = 1;
	self->layout.block = &self->block;
	ASSERT_EQ(0, mkt_end_key(&self->end, self->s.key[1],
				 &self->s.arena[1], &self->layout,
				 MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND));
}

FIXTURE_TEARDOWN(window)
{
	mkt_end_free(&self->end);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* bytes that are sent through the window arrive where the key puts them */
static int window_copy(struct mkt_setup *s, const struct mkt_end *key,
		       uint32_t rkey, enum mkt_op op, size_t offset)
{
	const struct mkt_end *here = &s->plain[0];
	struct mkt_wr wr = {
		.op = op,
		.sge[0] = {
			.addr = here->addr + 77,
			.length = 3000,
			.lkey = here->mr->lkey,
		},
		.num_sge = 1,
		.remote_addr = offset,
		.rkey = rkey,
	};
	unsigned int i;
	int err;

	err = mkt_arena_fill(&s->arena[op == MKT_READ], &s->rng);
	if (err)
		return err;
	if (mkt_status(&s->pair, 0, &wr) != IBV_WC_SUCCESS)
		return EIO;
	for (i = 0; i < 3000; i++) {
		uint8_t *a = &s->arena[0].expect[here->map.pos[77 + i]];
		uint8_t *b = &s->arena[1].expect[key->map.pos[offset + i]];

		if (op == MKT_READ)
			*a = *b;
		else
			*b = *a;
	}
	err = mkt_arena_check(&s->arena[0]);
	return err ?: mkt_arena_check(&s->arena[1]);
}

static int window_refused(struct mkt_setup *s, uint32_t rkey)
{
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = {
			.addr = s->plain[0].addr,
			.length = 8,
			.lkey = s->plain[0].mr->lkey,
		},
		.num_sge = 1,
		.rkey = rkey,
	};
	int err;

	if (mkt_status(&s->pair, 0, &wr) != IBV_WC_REM_ACCESS_ERR)
		return EIO;
	err = mkt_pair_recover(&s->pair);
	return err ?: mkt_arena_check(&s->arena[1]);
}

static void window_use(struct __test_metadata *_metadata,
		       FIXTURE_DATA(window) *self, enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, type);
	struct mkt_qp *owner = &self->s.pair.end[1];
	const struct mkt_leaf *leaf = &self->s.arena[1].leaf[0];
	struct ibv_sge other = {
		.addr = leaf->addr,
		.length = 1,
		.lkey = leaf->mr->lkey,
	};

	ASSERT_NE(NULL, mw);
	ASSERT_EQ(0, mkt_bind_window(owner, mw, self->s.key[1], 0,
				     self->end.map.length, WINDOW_ACCESS));
	EXPECT_EQ(0, window_copy(&self->s, &self->end, mw->rkey, MKT_WRITE,
				 0));
	EXPECT_EQ(0, window_copy(&self->s, &self->end, mw->rkey, MKT_READ,
				 1234));
	/* a key with a window cannot be deregistered */
	EXPECT_EQ(EBUSY, ibv_dereg_mr(self->s.key[1]));
	EXPECT_EQ(0, window_copy(&self->s, &self->end, mw->rkey, MKT_WRITE,
				 11));
	/* nor bound again: the window would give its access flags on other memory */
	EXPECT_EQ(EBUSY, ibmkey_unbind(self->s.key[1]));
	EXPECT_EQ(EBUSY, ibv_rereg_mr_sg(self->s.key[1], MKT_ACCESS_ALL, 1,
					 &other));
	EXPECT_EQ(0, window_copy(&self->s, &self->end, mw->rkey, MKT_READ, 5));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
	EXPECT_EQ(0, ibmkey_unbind(self->s.key[1]));
}

TEST_F(window, type_1)
{
	window_use(_metadata, self, IBV_MW_TYPE_1);
}

TEST_F(window, type_2)
{
	window_use(_metadata, self, IBV_MW_TYPE_2);
}

/* a bind gives the access flag for windows, or does not */
TEST_F(window, not_allowed)
{
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	struct mkt_qp *owner = &self->s.pair.end[1];

	ASSERT_NE(NULL, mw);
	ASSERT_EQ(0, mkt_layout_bind(self->s.key[1], &self->s.arena[1],
				     &self->layout, MKT_ACCESS_ALL));
	EXPECT_EQ(EIO, mkt_bind_window(owner, mw, self->s.key[1], 0,
				       self->end.map.length, WINDOW_ACCESS));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	/* nor can a window be bound to an unbound key */
	ASSERT_EQ(0, ibmkey_unbind(self->s.key[1]));
	EXPECT_EQ(EIO, mkt_bind_window(owner, mw, self->s.key[1], 0, 100,
				       WINDOW_ACCESS));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
}

static int window_kind(struct ibv_mr *key)
{
	struct ibmkey_info info;

	return ibmkey_query(key, &info) ? -1 : (int)info.kind;
}

/* an invalidated key is unbound: it reaches no memory and holds none */
TEST_F(window, local_invalidate)
{
	struct mkt_wr wr = {
		.op = MKT_LOCAL_INV,
		.rkey = self->s.key[1]->rkey,
	};

	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	EXPECT_EQ(IBMKEY_UNBOUND, window_kind(self->s.key[1]));
	EXPECT_EQ(0, window_refused(&self->s, self->s.key[1]->rkey));
	EXPECT_EQ(0, ibv_dereg_mr(self->s.arena[1].leaf[1].mr));
	self->s.arena[1].leaf[1] = self->s.arena[1].leaf[3];
	self->s.arena[1].num_leaves = 3;
	ASSERT_EQ(0, mkt_layout_bind(self->s.key[1], &self->s.arena[1],
				     &self->layout, MKT_ACCESS_ALL));
	EXPECT_EQ(0, window_copy(&self->s, &self->end, self->s.key[1]->rkey,
				 MKT_WRITE, 0));
}

TEST_F(window, remote_invalidate)
{
	struct mkt_wr wr = {
		.op = MKT_SEND_INV,
		.rkey = self->s.key[1]->rkey,
	};
	struct mkt_wr recv = {};
	struct mkt_result result;

	ASSERT_EQ(0, mkt_exec(&self->s.pair, 0, &wr, &recv, &result));
	EXPECT_EQ(IBV_WC_SUCCESS, result.status);
	EXPECT_EQ(IBV_WC_SUCCESS, result.recv_status);
	EXPECT_EQ(IBMKEY_UNBOUND, window_kind(self->s.key[1]));
	EXPECT_EQ(0, window_refused(&self->s, self->s.key[1]->rkey));
}

/* a peer cannot invalidate a key without remote access flags */
TEST_F(window, remote_invalidate_of_local_key)
{
	struct mkt_layout layout = {
		.num_blocks = 1,
		.block = &(struct mkt_block){ .bytes = 4096 },
	};
	struct mkt_wr wr = { .op = MKT_SEND_INV, .rkey = self->s.key[1]->rkey };
	struct mkt_wr recv = {};
	struct mkt_result result;

	ASSERT_EQ(0, mkt_layout_bind(self->s.key[1], &self->s.arena[1], &layout,
				     IBV_ACCESS_LOCAL_WRITE));
	ASSERT_EQ(0, mkt_exec(&self->s.pair, 0, &wr, &recv, &result));
	EXPECT_NE(IBV_WC_SUCCESS, result.recv_status);
	EXPECT_EQ(IBMKEY_LIST, window_kind(self->s.key[1]));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	/* the local node may */
	wr.op = MKT_LOCAL_INV;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	EXPECT_EQ(IBMKEY_UNBOUND, window_kind(self->s.key[1]));
	/* any remote access flag suffices */
	ASSERT_EQ(0, mkt_layout_bind(self->s.key[1], &self->s.arena[1], &layout,
				     IBV_ACCESS_REMOTE_READ));
	wr.op = MKT_SEND_INV;
	wr.rkey = self->s.key[1]->rkey;
	ASSERT_EQ(0, mkt_exec(&self->s.pair, 0, &wr, &recv, &result));
	EXPECT_EQ(IBV_WC_SUCCESS, result.status);
	EXPECT_EQ(IBMKEY_UNBOUND, window_kind(self->s.key[1]));
}

/* other PDs cannot invalidate a key, and a key with a window stays */
TEST_F(window, invalidate_refused)
{
	struct ibv_pd *pd = ibv_alloc_pd(self->s.dev[1].ctx);
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_1);
	struct mkt_wr wr = { .op = MKT_LOCAL_INV };
	struct ibv_sge sge = { .length = 10 };
	struct ibv_mr *leaf, *key;

	ASSERT_NE(NULL, pd);
	ASSERT_NE(NULL, mw);
	leaf = ibv_reg_mr(pd, self->s.arena[1].mem[0].host, 4096, 0);
	ASSERT_NE(NULL, leaf);
	key = ibmkey_alloc(pd, 1);
	ASSERT_NE(NULL, key);
	sge.addr = (uintptr_t)leaf->addr;
	sge.lkey = leaf->lkey;
	ASSERT_EQ(0, ibv_rereg_mr_sg(key, 0, 1, &sge));

	/* a key of another PD */
	wr.rkey = key->rkey;
	EXPECT_NE(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	EXPECT_EQ(IBMKEY_LIST, window_kind(key));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	/* the wrong tag */
	wr.rkey = self->s.key[1]->rkey ^ 3;
	EXPECT_NE(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	EXPECT_EQ(IBMKEY_INTERLEAVED, window_kind(self->s.key[1]));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	/* an ordinary MR and one of device memory, neither of which is a key */
	wr.rkey = self->s.plain[1].mr->rkey;
	EXPECT_NE(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	wr.rkey = self->s.arena[1].leaf[2].mr->rkey;
	EXPECT_NE(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	/* a key with a window */
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], mw, self->s.key[1],
				     0, 100, WINDOW_ACCESS));
	wr.rkey = self->s.key[1]->rkey;
	EXPECT_NE(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &wr));
	EXPECT_EQ(IBMKEY_INTERLEAVED, window_kind(self->s.key[1]));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(0, window_copy(&self->s, &self->end, self->s.key[1]->rkey,
				 MKT_WRITE, 0));

	EXPECT_EQ(0, ibv_dealloc_mw(mw));
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_dereg_mr(leaf));
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

/*
 * A buffer of device memory has an MR that no program knows. Its key precedes
 * that of the first registered MR. No process can invalidate it by guessing the
 * rest.
 */
TEST_F(window, hidden_region)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(self->s.dev[1].ctx, &attr);
	struct mkt_wr inv = { .op = MKT_LOCAL_INV };
	struct mkt_wr add = {
		.op = MKT_FETCH_ADD,
		.sge[0] = {
			.addr = self->s.plain[0].addr,
			.length = 8,
			.lkey = self->s.plain[0].mr->lkey,
		},
		.num_sge = 1,
		.swap_add = 5,
	};
	unsigned int tag, bad = 0;
	uint64_t counter = 0;
	struct ibv_mr *mr;

	ASSERT_NE(NULL, dm);
	mr = ibv_reg_dm_mr(self->s.dev[1].pd, dm, 0, 64,
			   MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	ASSERT_NE(NULL, mr);
	for (tag = 0; tag < 256; tag++) {
		inv.rkey = ((mr->rkey >> 8) - 1) << 8 | tag;
		bad += mkt_status(&self->s.pair, 1, &inv) == IBV_WC_SUCCESS;
		ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	}
	EXPECT_EQ(0, bad);
	add.rkey = mr->rkey;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &add));
	EXPECT_EQ(0, ibv_memcpy_from_dm(&counter, dm, 0, sizeof(counter)));
	EXPECT_EQ(5, counter);
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_EQ(0, ibv_free_dm(dm));
}

/* remote flush is an access flag like the others */
TEST_F(window, flush)
{
	struct mkt_arena *arena = &self->s.arena[1];
	unsigned int num = arena->num_leaves;
	const unsigned int flush = MKT_ACCESS_ALL | IBV_ACCESS_FLUSH_GLOBAL;
	struct mkt_wr wr = {
		.op = MKT_FLUSH,
		.remote_addr = 100,
		.flush_length = 2000,
		.rkey = self->s.key[1]->rkey,
	};
	struct ibv_sge sge = {
		.addr = arena->leaf[0].addr,
		.length = 100,
		.lkey = arena->leaf[0].mr->lkey,
	};

	/* and the leaf must have this flag */
	EXPECT_EQ(EACCES, ibv_rereg_mr_sg(self->s.key[1], flush, 1, &sge));
	EXPECT_EQ(0, mkt_arena_add_leaf(arena, 0, 4096, 40000, flush, 0));
	self->block.leaf = num;
	self->layout.repeat[0] = 100;
	ASSERT_EQ(0, mkt_layout_bind(self->s.key[1], arena, &self->layout,
				     flush));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	wr.flush_length = 2901;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_status(&self->s.pair, 0, &wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	ASSERT_EQ(0, mkt_layout_bind(self->s.key[1], arena, &self->layout,
				     MKT_ACCESS_ALL));
	wr.flush_length = 2000;
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_status(&self->s.pair, 0, &wr));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(0, mkt_arena_check(arena));
}

TEST_HARNESS_MAIN
