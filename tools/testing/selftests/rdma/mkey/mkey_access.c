// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Accesses on either side that must fail and change no byte: by keys that are unbound,
 * lack the access flag, are shorter or belong to another PD, or whose leaf has lost its access
 * flags.
 */
#include "mkey_harness.h"
#include "raw.h"

FIXTURE(access)
{
	struct mkt_setup s;
	struct ibmkey_block block;	/* 8 bytes of every 24 */
	uint64_t repeat;
};

/* the key refers to memory of the host or of the device */
FIXTURE_VARIANT(access)
{
	unsigned int leaf;
};

FIXTURE_VARIANT_ADD(access, host) { .leaf = 1 };
FIXTURE_VARIANT_ADD(access, dm) { .leaf = 2 };

static int access_bind(struct mkt_setup *s, unsigned int side, const struct ibmkey_block *block,
		       uint64_t repeat, unsigned int access)
{
	return ibv_rereg_mr_interleaved(s->key[side], access, 1, &repeat, 1,
					block);
}

FIXTURE_SETUP(access)
{
	struct mkt_leaf *leaf;

	MKT_SETUP(&self->s, .host = 64 * 1024, .dm = 32 * 1024, .max_entries = 4);
	leaf = &self->s.arena[1].leaf[variant->leaf];
	/* aligned in memory, as atomics need */
	self->block.addr = leaf->addr + (-leaf->at & 7);
	self->block.bytes_count = 8;
	self->block.lkey = leaf->mr->lkey;
	self->block.stride[0] = 24;
	self->repeat = 500;
}

FIXTURE_TEARDOWN(access)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* a request from side 0 to the key of side 1 */
static struct mkt_wr access_wr(struct mkt_setup *s, enum mkt_op op, uint64_t addr, uint32_t length)
{
	struct mkt_wr wr = {
		.op = op,
		.sge[0] = {
			.addr = s->plain[0].addr,
			.length = length,
			.lkey = s->plain[0].mr->lkey,
		},
		.num_sge = op == MKT_ATOMIC_WRITE ? 0 : 1,
		.remote_addr = addr,
		.rkey = s->key[1]->rkey,
		.swap_add = 1,
	};

	return wr;
}

/* returns 0 if @wr completes with @status and changes nothing */
static int access_fails(struct mkt_setup *s, const struct mkt_wr *wr, enum ibv_wc_status status)
{
	int seen = mkt_status(&s->pair, 0, wr);
	int err;

	if (seen != status) {
		mkt_diag("%s to 0x%" PRIx64 ": \"%s\" instead of \"%s\"",
			 mkt_op_name(wr->op), wr->remote_addr,
			 seen < 0 ? "nothing" : ibv_wc_status_str(seen),
			 ibv_wc_status_str(status));
		return EIO;
	}
	err = mkt_pair_recover(&s->pair);
	if (!err)
		err = mkt_arena_check(&s->arena[0]);
	return err ?: mkt_arena_check(&s->arena[1]);
}

static int access_refused(struct mkt_setup *s, enum mkt_op op)
{
	struct mkt_wr wr = access_wr(s, op, 0, 8);

	return access_fails(s, &wr, IBV_WC_REM_ACCESS_ERR);
}

static const enum mkt_op remote_ops[] = {
	MKT_WRITE, MKT_READ, MKT_FETCH_ADD, MKT_CMP_SWAP, MKT_ATOMIC_WRITE,
};

#define REMOTE_WRITE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define REMOTE_ATOMIC (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

TEST_F(access, unbound)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(remote_ops); i++) {
		EXPECT_EQ(0, access_refused(&self->s, remote_ops[i]));
	}
	ASSERT_EQ(0, access_bind(&self->s, 1, &self->block, self->repeat,
				 MKT_ACCESS_ALL));
	ASSERT_EQ(0, ibmkey_unbind(self->s.key[1]));
	for (i = 0; i < ARRAY_SIZE(remote_ops); i++) {
		EXPECT_EQ(0, access_refused(&self->s, remote_ops[i]));
	}
}

TEST_F(access, destroyed)
{
	struct mkt_wr wr;

	ASSERT_EQ(0, access_bind(&self->s, 1, &self->block, self->repeat,
				 MKT_ACCESS_ALL));
	wr = access_wr(&self->s, MKT_WRITE, 0, 8);
	ASSERT_EQ(0, ibv_dereg_mr(self->s.key[1]));
	self->s.key[1] = NULL;
	EXPECT_EQ(0, access_fails(&self->s, &wr, IBV_WC_REM_ACCESS_ERR));
}

/* for each access flag, the requests that it does not allow */
TEST_F(access, rights)
{
	static const struct {
		unsigned int access;
		enum mkt_op allowed[2];
	} rights[] = {
		{ 0, {} },
		{ IBV_ACCESS_LOCAL_WRITE, {} },
		{ IBV_ACCESS_REMOTE_READ, { MKT_READ } },
		{ REMOTE_WRITE, { MKT_WRITE, MKT_ATOMIC_WRITE } },
		{ REMOTE_ATOMIC, { MKT_FETCH_ADD, MKT_CMP_SWAP } },
	};
	unsigned int r, i;

	for (r = 0; r < ARRAY_SIZE(rights); r++) {
		ASSERT_EQ(0, access_bind(&self->s, 1, &self->block,
					 self->repeat, rights[r].access));
		for (i = 0; i < ARRAY_SIZE(remote_ops); i++) {
			if (remote_ops[i] == rights[r].allowed[0] ||
			    remote_ops[i] == rights[r].allowed[1])
				continue;
			EXPECT_EQ(0, access_refused(&self->s, remote_ops[i]))
			{
				TH_LOG("with access 0x%x", rights[r].access);
			}
		}
	}
}

/* and the requests that it allows */
TEST_F(access, rights_given)
{
	static const unsigned int access[] = {
		REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, REMOTE_ATOMIC,
		REMOTE_ATOMIC, REMOTE_WRITE,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(remote_ops); i++) {
		struct mkt_wr wr = access_wr(&self->s, remote_ops[i], 0, 8);

		ASSERT_EQ(0, access_bind(&self->s, 1, &self->block,
					 self->repeat, access[i]));
		EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	}
}

TEST_F(access, beyond_the_end)
{
	const uint64_t length = 8 * self->repeat;
	static const struct {
		int64_t from_end;
		uint32_t length;
	} ranges[] = {
		{ 0, 1 }, { -7, 8 }, { -100, 101 }, { -4000, 4001 },
		/* messages of several packets, of which none may arrive */
		{ -3000, 3001 },
		{ 1000000, 8 },
	};
	unsigned int i;

	ASSERT_EQ(0, access_bind(&self->s, 1, &self->block, self->repeat,
				 MKT_ACCESS_ALL));
	for (i = 0; i < ARRAY_SIZE(ranges); i++) {
		struct mkt_wr wr = access_wr(&self->s, MKT_WRITE,
					     length + ranges[i].from_end,
					     ranges[i].length);

		EXPECT_EQ(0, access_fails(&self->s, &wr,
					  IBV_WC_REM_ACCESS_ERR));
		wr.op = MKT_READ;
		EXPECT_EQ(0, access_fails(&self->s, &wr,
					  IBV_WC_REM_ACCESS_ERR));
	}
	/* addresses that wrap around, and addresses of the leaf itself */
	for (i = 0; i < 2; i++) {
		struct mkt_wr wr = access_wr(&self->s, MKT_WRITE,
					     i ? self->block.addr + length :
						 UINT64_MAX - 3, 8);

		EXPECT_EQ(0, access_fails(&self->s, &wr,
					  IBV_WC_REM_ACCESS_ERR));
	}
}

/* the low bits of a key change with each registration */
TEST_F(access, wrong_tag)
{
	struct mkt_wr wr;

	ASSERT_EQ(0, access_bind(&self->s, 1, &self->block, self->repeat,
				 MKT_ACCESS_ALL));
	wr = access_wr(&self->s, MKT_WRITE, 0, 8);
	wr.rkey ^= 1;
	EXPECT_EQ(0, access_fails(&self->s, &wr, IBV_WC_REM_ACCESS_ERR));
}

/* a leaf may end at 2^64; the key reaches its last byte and none after it */
TEST_F(access, last_byte)
{
	const uint64_t start = -4096ull;
	static uint8_t memory[4096] __attribute__((aligned(4096)));
	const void *sent = (void *)(uintptr_t)self->s.plain[0].addr;
	struct ibv_mr *top = ibv_reg_mr_iova(self->s.dev[1].pd, memory, 4096,
					     start, MKT_ACCESS_ALL);
	struct ibv_mr *key = self->s.key[1];
	struct ibmkey_block block = {
		.addr = start,
		.bytes_count = 16,
		.stride = { 4080 },
	};
	struct ibv_sge sge = { .addr = start + 4086, .length = 10 };
	const uint64_t twice = 2;
	struct mkt_wr wr;

	ASSERT_NE(NULL, top);
	block.lkey = top->lkey;
	sge.lkey = top->lkey;
	wr = access_wr(&self->s, MKT_WRITE, start + 4088, 8);
	wr.rkey = top->rkey;
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));

	ASSERT_EQ(0, ibv_rereg_mr_sg(key, MKT_ACCESS_ALL, 1, &sge));
	wr = access_wr(&self->s, MKT_WRITE, 2, 8);
	memset(memory, 0, sizeof(memory));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	EXPECT_EQ(0, memcmp(memory + 4088, sent, 8));
	EXPECT_EQ(0, memory[4087]);
	wr.remote_addr = 3;
	EXPECT_EQ(0, access_fails(&self->s, &wr, IBV_WC_REM_ACCESS_ERR));

	ASSERT_EQ(0, ibv_rereg_mr_interleaved(key, MKT_ACCESS_ALL, 1, &twice, 1,
					      &block));
	memset(memory, 0, sizeof(memory));
	wr.remote_addr = 24;
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	EXPECT_EQ(0, memcmp(memory + 4088, sent, 8));
	EXPECT_EQ(0, memory[4087]);
	block.stride[0]++;
	EXPECT_EQ(EOVERFLOW, ibv_rereg_mr_interleaved(key, MKT_ACCESS_ALL, 1,
						      &twice, 1, &block));
	EXPECT_EQ(0, ibmkey_unbind(key));
	EXPECT_EQ(0, ibv_dereg_mr(top));
}

/* zero bytes of device memory, so that no access reaches a byte */
TEST_F(access, no_bytes)
{
	struct ibv_dm *dm = mkt_dm_alloc(&self->s.dev[1], 100, 0, 0);
	struct mkt_wr wr;
	struct ibv_mr *mr;
	unsigned int i;

	ASSERT_NE(NULL, dm);
	mr = ibv_reg_dm_mr(self->s.dev[1].pd, dm, 0, 0,
			   MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	ASSERT_NE(NULL, mr);
	for (i = 0; i < ARRAY_SIZE(remote_ops); i++) {
		wr = access_wr(&self->s, remote_ops[i], 0, 8);
		wr.rkey = mr->rkey;
		EXPECT_EQ(0, access_fails(&self->s, &wr,
					  IBV_WC_REM_ACCESS_ERR));
	}
	wr = access_wr(&self->s, MKT_WRITE, 0, 0);
	wr.rkey = mr->rkey;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_EQ(0, ibv_free_dm(dm));
}

TEST_F(access, other_pd)
{
	struct ibv_pd *pd = ibv_alloc_pd(self->s.dev[1].ctx);
	struct mkt_arena *arena = &self->s.arena[1];
	struct ibv_mr *leaf, *key;
	struct ibv_sge sge;
	struct mkt_wr wr;

	ASSERT_NE(NULL, pd);
	leaf = ibv_reg_mr(pd, arena->mem[0].host, 4096, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, leaf);
	key = ibmkey_alloc(pd, 1);
	ASSERT_NE(NULL, key);
	sge.addr = (uintptr_t)leaf->addr;
	sge.length = 4096;
	sge.lkey = leaf->lkey;
	ASSERT_EQ(0, ibv_rereg_mr_sg(key, MKT_ACCESS_ALL, 1, &sge));
	wr = access_wr(&self->s, MKT_WRITE, 0, 8);
	wr.rkey = key->rkey;
	EXPECT_EQ(0, access_fails(&self->s, &wr, IBV_WC_REM_ACCESS_ERR));
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_dereg_mr(leaf));
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

/*
 * A device reports the same error for a local key that does not exist as for
 * one that is unbound, too short, or read-only.
 */
TEST_F(access, local)
{
	static const enum mkt_op ops[] = { MKT_WRITE, MKT_SEND, MKT_READ };
	struct mkt_leaf *leaf = &self->s.arena[0].leaf[variant->leaf];
	struct ibmkey_block block = self->block;
	unsigned int o;

	block.addr = leaf->addr;
	block.lkey = leaf->mr->lkey;
	for (o = 0; o < ARRAY_SIZE(ops); o++) {
		struct mkt_wr wr = {
			.op = ops[o],
			.sge[0] = { .length = 8, .lkey = 0x7f001100 },
			.num_sge = 1,
			.remote_addr = self->s.plain[1].addr,
			.rkey = self->s.plain[1].mr->rkey,
		};
		int status;

		/*
		 * nothing is received, because the request fails before it is
		 * sent
		 */
		status = mkt_status(&self->s.pair, 0, &wr);
		ASSERT_NE(IBV_WC_SUCCESS, status);
		ASSERT_LE(0, status);
		ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));

		wr.sge[0].lkey = self->s.key[0]->lkey;
		ASSERT_EQ(0, ibmkey_unbind(self->s.key[0]));
		EXPECT_EQ(0, access_fails(&self->s, &wr, status));
		ASSERT_EQ(0, access_bind(&self->s, 0, &block, self->repeat,
					 0));
		wr.sge[0].addr = 8 * self->repeat - 7;
		EXPECT_EQ(0, access_fails(&self->s, &wr, status));
		if (ops[o] != MKT_READ)
			continue;
		wr.sge[0].addr = 0;
		EXPECT_EQ(0, access_fails(&self->s, &wr, status));
	}
}

/* the same for receives */
TEST_F(access, local_recv)
{
	struct mkt_wr wr = access_wr(&self->s, MKT_SEND, 0, 8);
	struct mkt_wr recv = {
		.sge[0] = { .length = 8, .lkey = 0x7f001100 },
		.num_sge = 1,
	};
	struct mkt_result stock, result;
	unsigned int i;

	ASSERT_EQ(0, mkt_exec(&self->s.pair, 0, &wr, &recv, &stock));
	ASSERT_NE(IBV_WC_SUCCESS, stock.status);
	ASSERT_NE(IBV_WC_SUCCESS, stock.recv_status);
	recv.sge[0].lkey = self->s.key[1]->lkey;
	for (i = 0; i < 3; i++) {
		/* unbound, read-only, too short */
		if (i) {
			ASSERT_EQ(0, access_bind(&self->s, 1, &self->block,
						 i == 2 ? 1 : self->repeat,
						 i == 2 ?
						 IBV_ACCESS_LOCAL_WRITE : 0));
		}
		recv.sge[0].addr = i == 2 ? 1 : 0;
		ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
		ASSERT_EQ(0, mkt_exec(&self->s.pair, 0, &wr, &recv, &result));
		EXPECT_EQ(stock.status, result.status);
		EXPECT_EQ(stock.recv_status, result.recv_status);
		EXPECT_EQ(0, mkt_arena_check(&self->s.arena[1]));
	}
}

/*
 * device memory cannot be re-registered; other MRs cannot while they are in use
 */
static int access_rereg_error(unsigned int leaf)
{
	return leaf == 2 ? EINVAL : EBUSY;
}

/* when a leaf loses an access flag, the keys over it lose it, too */
TEST_F(access, leaf_loses_rights)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[variant->leaf];
	struct mkt_wr wr;
	int err;

	ASSERT_EQ(0, access_bind(&self->s, 1, &self->block, self->repeat,
				 MKT_ACCESS_ALL));
	err = mkt_raw_rereg(leaf->mr, IBV_REREG_MR_CHANGE_ACCESS,
			    self->s.dev[1].pd, IBV_ACCESS_REMOTE_READ);
	wr = access_wr(&self->s, MKT_WRITE, 0, 8);
	if (err) {
		/* or the leaf cannot lose it while a key is bound to it */
		EXPECT_EQ(access_rereg_error(variant->leaf), err);
		EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
		return;
	}
	EXPECT_EQ(0, access_refused(&self->s, MKT_WRITE));
	EXPECT_EQ(0, access_refused(&self->s, MKT_FETCH_ADD));
	EXPECT_EQ(0, access_refused(&self->s, MKT_ATOMIC_WRITE));
	wr.op = MKT_READ;
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 0, &wr));
}

/* a key does not reach a leaf that was moved to another PD */
TEST_F(access, leaf_moves)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[variant->leaf];
	struct ibv_pd *pd = ibv_alloc_pd(self->s.dev[1].ctx);
	int err;

	ASSERT_NE(NULL, pd);
	ASSERT_EQ(0, access_bind(&self->s, 1, &self->block, self->repeat,
				 MKT_ACCESS_ALL));
	err = mkt_raw_rereg(leaf->mr, IBV_REREG_MR_CHANGE_PD, pd, 0);
	if (err) {
		EXPECT_EQ(access_rereg_error(variant->leaf), err);
	} else {
		EXPECT_EQ(0, access_refused(&self->s, MKT_WRITE));
		EXPECT_EQ(0, access_refused(&self->s, MKT_READ));
		ASSERT_EQ(0, mkt_raw_rereg(leaf->mr, IBV_REREG_MR_CHANGE_PD,
					   self->s.dev[1].pd, 0));
	}
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

TEST_HARNESS_MAIN
