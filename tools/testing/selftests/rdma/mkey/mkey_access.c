// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Accesses on either side that must fail and change no byte: by keys that are unbound,
 * lack the access flag, are shorter or belong to another PD, or whose leaf has lost its access
 * flags.
 */
#include "mkey_harness.h"
#include "raw.h"

#define REMOTE_WRITE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define REMOTE_ATOMIC (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

FIXTURE(access)
{
	struct mkt_setup s;
	struct ibv_mr *mr;		/* the leaf */
	uint64_t addr;			/* of 8 bytes of every 24 */
};

/* the key refers to memory of the host or of the device */
FIXTURE_VARIANT(access)
{
	unsigned int leaf;
};

FIXTURE_VARIANT_ADD(access, host) { .leaf = 1 };
FIXTURE_VARIANT_ADD(access, dm) { .leaf = 2 };

FIXTURE_SETUP(access)
{
	struct mkt_leaf *leaf;

	MKT_SETUP(&self->s, .host = 64 * 1024, .dm = 32 * 1024, .max_entries = 4);
	leaf = &self->s.arena[1].leaf[variant->leaf];
	/* aligned in memory, as atomics need */
	self->addr = leaf->addr + (-leaf->at & 7);
	self->mr = leaf->mr;
}

FIXTURE_TEARDOWN(access)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

#define REPEAT 500

static int access_bind(FIXTURE_DATA(access) *self, unsigned int access)
{
	return mkt_bind_strided(self->s.key[1], access, self->mr, self->addr, 8, 24, REPEAT);
}

static const enum mkt_op remote_ops[] = {
	MKT_WRITE, MKT_READ, MKT_FETCH_ADD, MKT_CMP_SWAP, MKT_ATOMIC_WRITE,
};

/* returns 0 if a request of side 0 with this rkey of side 1 is refused */
static int access_refused(FIXTURE_DATA(access) *self, uint32_t rkey, enum mkt_op op,
			  uint64_t addr, uint32_t length)
{
	return mkt_refused(&self->s, rkey, op, addr, length, IBV_WC_REM_ACCESS_ERR);
}

/* returns 0 if each request for 8 bytes is */
static int access_all_refused(FIXTURE_DATA(access) *self, uint32_t rkey)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < ARRAY_SIZE(remote_ops) && !err; i++)
		err = access_refused(self, rkey, remote_ops[i], 0, 8);
	return err;
}

TEST_F(access, unbound)
{
	uint32_t rkey = self->s.key[1]->rkey;

	EXPECT_EQ(0, access_all_refused(self, rkey));
	ASSERT_EQ(0, access_bind(self, MKT_ACCESS_ALL));
	ASSERT_EQ(0, ibmkey_unbind(self->s.key[1]));
	EXPECT_EQ(0, access_all_refused(self, rkey));
	EXPECT_EQ(0, access_all_refused(self, self->s.key[1]->rkey));
}

TEST_F(access, destroyed)
{
	uint32_t rkey = self->s.key[1]->rkey;

	ASSERT_EQ(0, access_bind(self, MKT_ACCESS_ALL));
	ASSERT_EQ(0, ibv_dereg_mr(self->s.key[1]));
	self->s.key[1] = NULL;
	EXPECT_EQ(0, access_refused(self, rkey, MKT_WRITE, 0, 8));
}

/* for each access flag, the requests that it allows, and those that it does not */
TEST_F(access, rights)
{
	static const struct {
		unsigned int access;
		enum mkt_op allowed[2];
		unsigned int num;
	} rights[] = {
		{ 0 },
		{ IBV_ACCESS_LOCAL_WRITE },
		{ IBV_ACCESS_REMOTE_READ, { MKT_READ }, 1 },
		{ REMOTE_WRITE, { MKT_WRITE, MKT_ATOMIC_WRITE }, 2 },
		{ REMOTE_ATOMIC, { MKT_FETCH_ADD, MKT_CMP_SWAP }, 2 },
	};
	uint32_t rkey = self->s.key[1]->rkey;
	unsigned int r, i, k;

	/* what is allowed changes bytes, so it comes later */
	for (r = 0; r < ARRAY_SIZE(rights); r++) {
		ASSERT_EQ(0, access_bind(self, rights[r].access));
		for (i = 0; i < ARRAY_SIZE(remote_ops); i++) {
			for (k = 0; k < rights[r].num; k++)
				if (rights[r].allowed[k] == remote_ops[i])
					break;
			if (k < rights[r].num)
				continue;
			EXPECT_EQ(0, access_refused(self, rkey, remote_ops[i], 0, 8))
			{
				TH_LOG("with access 0x%x", rights[r].access);
			}
		}
	}
	for (r = 0; r < ARRAY_SIZE(rights); r++) {
		ASSERT_EQ(0, access_bind(self, rights[r].access));
		for (k = 0; k < rights[r].num; k++)
			EXPECT_EQ(IBV_WC_SUCCESS,
				  mkt_touch(&self->s, rkey, rights[r].allowed[k], 0, 8));
	}
}

TEST_F(access, beyond_the_end)
{
	const uint64_t length = 8 * REPEAT;
	const struct {
		uint64_t addr;
		uint32_t length;
	} ranges[] = {
		{ length, 1 }, { length - 7, 8 }, { length - 100, 101 }, { length - 4000, 4001 },
		/* messages of several packets, of which none may arrive */
		{ length - 3000, 3001 },
		{ length + 1000000, 8 },
		/* addresses that wrap around, and addresses of the leaf itself */
		{ UINT64_MAX - 3, 8 }, { self->addr + length, 8 },
	};
	uint32_t rkey = self->s.key[1]->rkey;
	unsigned int i;

	ASSERT_EQ(0, access_bind(self, MKT_ACCESS_ALL));
	for (i = 0; i < ARRAY_SIZE(ranges); i++) {
		EXPECT_EQ(0, access_refused(self, rkey, MKT_WRITE, ranges[i].addr,
					    ranges[i].length));
		EXPECT_EQ(0, access_refused(self, rkey, MKT_READ, ranges[i].addr,
					    ranges[i].length));
	}
}

/* the low bits of a key change with each registration */
TEST_F(access, wrong_tag)
{
	ASSERT_EQ(0, access_bind(self, MKT_ACCESS_ALL));
	EXPECT_EQ(0, access_refused(self, self->s.key[1]->rkey ^ 1, MKT_WRITE, 0, 8));
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
	ASSERT_NE(NULL, top);
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, top->rkey, MKT_WRITE, start + 4088, 8));

	ASSERT_EQ(0, mkt_bind_range(key, MKT_ACCESS_ALL, top, start + 4086, 10));
	memset(memory, 0, sizeof(memory));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, key->rkey, MKT_WRITE, 2, 8));
	EXPECT_EQ(0, memcmp(memory + 4088, sent, 8));
	EXPECT_EQ(0, memory[4087]);
	EXPECT_EQ(0, access_refused(self, key->rkey, MKT_WRITE, 3, 8));

	ASSERT_EQ(0, mkt_bind_strided(key, MKT_ACCESS_ALL, top, start, 16, 4080, 2));
	memset(memory, 0, sizeof(memory));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, key->rkey, MKT_WRITE, 24, 8));
	EXPECT_EQ(0, memcmp(memory + 4088, sent, 8));
	EXPECT_EQ(0, memory[4087]);
	EXPECT_EQ(EOVERFLOW, mkt_bind_strided(key, MKT_ACCESS_ALL, top, start, 16, 4081, 2));
	EXPECT_EQ(0, ibmkey_unbind(key));
	EXPECT_EQ(0, ibv_dereg_mr(top));
}

/* zero bytes of device memory, so that no access reaches a byte */
TEST_F(access, no_bytes)
{
	struct ibv_alloc_dm_attr attr = { .length = 100 };
	struct ibv_dm *dm = ibv_alloc_dm(self->s.dev[1].ctx, &attr);
	struct ibv_mr *mr;

	ASSERT_NE(NULL, dm);
	mr = ibv_reg_dm_mr(self->s.dev[1].pd, dm, 0, 0,
			   MKT_ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	ASSERT_NE(NULL, mr);
	EXPECT_EQ(0, access_all_refused(self, mr->rkey));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, mr->rkey, MKT_WRITE, 0, 0));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	EXPECT_EQ(0, ibv_free_dm(dm));
}

TEST_F(access, other_pd)
{
	struct ibv_pd *pd = ibv_alloc_pd(self->s.dev[1].ctx);
	struct ibv_mr *leaf, *key;

	ASSERT_NE(NULL, pd);
	leaf = ibv_reg_mr(pd, self->s.arena[1].mem[0].host, 4096, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, leaf);
	key = ibmkey_alloc(pd, 1);
	ASSERT_NE(NULL, key);
	ASSERT_EQ(0, mkt_bind_range(key, MKT_ACCESS_ALL, leaf, (uintptr_t)leaf->addr, 4096));
	EXPECT_EQ(0, access_refused(self, key->rkey, MKT_WRITE, 0, 8));
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_dereg_mr(leaf));
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

/* a request of side 0 with an lkey that does not do completes with @status and changes nothing */
static int access_local_fails(FIXTURE_DATA(access) *self, const struct mkt_wr *wr, int status)
{
	if (mkt_status(&self->s.pair, 0, wr) != status)
		return EIO;
	return mkt_pair_recover(&self->s.pair) ?: mkt_arena_check(&self->s.arena[0]) ?:
	       mkt_arena_check(&self->s.arena[1]);
}

/*
 * A device reports the same error for a local key that does not exist as for
 * one that is unbound, too short, or read-only.
 */
TEST_F(access, local)
{
	static const enum mkt_op ops[] = { MKT_WRITE, MKT_SEND, MKT_READ };
	struct mkt_leaf *leaf = &self->s.arena[0].leaf[variant->leaf];
	unsigned int o;

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
		EXPECT_EQ(0, access_local_fails(self, &wr, status));
		ASSERT_EQ(0, mkt_bind_strided(self->s.key[0], 0, leaf->mr, leaf->addr, 8, 24,
					      REPEAT));
		wr.sge[0].addr = 8 * REPEAT - 7;
		EXPECT_EQ(0, access_local_fails(self, &wr, status));
		if (ops[o] != MKT_READ)
			continue;
		wr.sge[0].addr = 0;
		EXPECT_EQ(0, access_local_fails(self, &wr, status));
	}
}

/* the same for receives */
TEST_F(access, local_recv)
{
	struct mkt_end *plain = &self->s.plain[0];
	struct mkt_wr wr = {
		.op = MKT_SEND,
		.sge[0] = { .addr = plain->addr, .length = 8, .lkey = plain->mr->lkey },
		.num_sge = 1,
	};
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
			ASSERT_EQ(0, mkt_bind_strided(self->s.key[1],
						      i == 2 ? IBV_ACCESS_LOCAL_WRITE : 0, self->mr,
						      self->addr, 8, 24, i == 2 ? 1 : REPEAT));
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
	uint32_t rkey = self->s.key[1]->rkey;
	int err;

	ASSERT_EQ(0, access_bind(self, MKT_ACCESS_ALL));
	err = mkt_raw_rereg(leaf->mr, IBV_REREG_MR_CHANGE_ACCESS,
			    self->s.dev[1].pd, IBV_ACCESS_REMOTE_READ);
	if (err) {
		/* or the leaf cannot lose it while a key is bound to it */
		EXPECT_EQ(access_rereg_error(variant->leaf), err);
		EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, rkey, MKT_WRITE, 0, 8));
		return;
	}
	EXPECT_EQ(0, access_refused(self, rkey, MKT_WRITE, 0, 8));
	EXPECT_EQ(0, access_refused(self, rkey, MKT_FETCH_ADD, 0, 8));
	EXPECT_EQ(0, access_refused(self, rkey, MKT_ATOMIC_WRITE, 0, 8));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, rkey, MKT_READ, 0, 8));
}

/* a key does not reach a leaf that was moved to another PD */
TEST_F(access, leaf_moves)
{
	struct mkt_leaf *leaf = &self->s.arena[1].leaf[variant->leaf];
	struct ibv_pd *pd = ibv_alloc_pd(self->s.dev[1].ctx);
	int err;

	ASSERT_NE(NULL, pd);
	ASSERT_EQ(0, access_bind(self, MKT_ACCESS_ALL));
	err = mkt_raw_rereg(leaf->mr, IBV_REREG_MR_CHANGE_PD, pd, 0);
	if (err) {
		EXPECT_EQ(access_rereg_error(variant->leaf), err);
	} else {
		EXPECT_EQ(0, access_refused(self, self->s.key[1]->rkey, MKT_WRITE, 0, 8));
		EXPECT_EQ(0, access_refused(self, self->s.key[1]->rkey, MKT_READ, 0, 8));
		ASSERT_EQ(0, mkt_raw_rereg(leaf->mr, IBV_REREG_MR_CHANGE_PD,
					   self->s.dev[1].pd, 0));
	}
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

TEST_HARNESS_MAIN
