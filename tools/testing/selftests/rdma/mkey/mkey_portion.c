// SPDX-License-Identifier: GPL-2.0
/*
 * subject: The key portion of a key: the low 8 bits of its lkey and rkey. A bind can set it, and an
 * unbind and an invalidation change it. An lkey or rkey from before then fails in every verb, also
 * in a request that has begun. mkey_wire tests requests that are replayed.
 * sets: smp
 */
#include "loop.h"
#include "mkey_harness.h"
#include "request.h"

#define LENGTH 8192
#define HALF (LENGTH / 2)
#define PACKET 256
#define TAG_ACCESS (MKT_ACCESS_ALL | IBV_ACCESS_FLUSH_GLOBAL)

FIXTURE(portion)
{
	struct mkt_setup s;
	struct ibv_mr *key;	/* of side 1, the peer's target */
	struct ibv_mr *leaf;
	struct mkt_request text;
	struct ibmkey_range range;	/* of the leaf */
	uint32_t first;		/* the rkey of the first half */
};

FIXTURE_SETUP(portion)
{
	MKT_SETUP(&self->s, .host = 64 * 1024, .max_entries = 4, .mtu = IBV_MTU_256);
	self->key = self->s.key[1];
	self->range.addr = (uintptr_t)self->s.arena[1].mem[0].host;
	self->range.length = LENGTH;
	self->leaf = ibv_reg_mr(self->s.dev[1].pd, self->s.arena[1].mem[0].host, LENGTH,
				TAG_ACCESS);
	ASSERT_NE(NULL, self->leaf);
	self->range.lkey = self->leaf->lkey;
	ASSERT_EQ(0, mkt_request_init(&self->text, self->s.dev[1].pd, 4096));
}

FIXTURE_TEARDOWN(portion)
{
	mkt_request_free(&self->text);
	EXPECT_EQ(0, ibmkey_unbind(self->s.key[1]));
	EXPECT_EQ(0, ibv_dereg_mr(self->leaf));
	EXPECT_EQ(0, mkt_arena_adopt(&self->s.arena[1], 0, LENGTH));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* binds the key with all access flags; @rkey 0 keeps the key portion */
static int portion_bind(FIXTURE_DATA(portion) *self, uint32_t rkey)
{
	return mkt_bind_as(self->key, TAG_ACCESS, rkey, self->range);
}

/* a request of side 0 that uses @rkey of side 1 */
static struct mkt_wr portion_wr(FIXTURE_DATA(portion) *self, enum mkt_op op, uint32_t rkey)
{
	bool atomic = op == MKT_FETCH_ADD || op == MKT_CMP_SWAP || op == MKT_ATOMIC_WRITE;
	struct mkt_wr wr = mkt_plain_wr(&self->s, 0, op, atomic ? 8 : LENGTH, 0, rkey);

	wr.num_sge = op != MKT_FLUSH;
	wr.flush_length = LENGTH;
	return wr;
}

/* a request of side 1 whose SGE has @lkey */
static struct mkt_wr portion_local_wr(FIXTURE_DATA(portion) *self, enum mkt_op op, uint32_t lkey)
{
	return (struct mkt_wr){
		.op = op,
		.sge[0] = { .length = LENGTH, .lkey = lkey },
		.num_sge = 1,
		.remote_addr = self->s.plain[0].addr,
		.rkey = self->s.plain[0].mr->rkey,
	};
}

/* each request that names @key succeeds if it @works; rxe tells a peer why not */
static int portion_used(FIXTURE_DATA(portion) *self, uint32_t key, bool works)
{
	static const struct {
		unsigned int side;
		enum mkt_op op;
	} uses[] = {
		{ 0, MKT_WRITE }, { 0, MKT_READ }, { 0, MKT_FETCH_ADD }, { 0, MKT_CMP_SWAP },
		{ 0, MKT_ATOMIC_WRITE }, { 0, MKT_FLUSH }, { 1, MKT_WRITE }, { 1, MKT_READ },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(uses); i++) {
		unsigned int side = uses[i].side;
		struct mkt_wr wr = side ? portion_local_wr(self, uses[i].op, key) :
					  portion_wr(self, uses[i].op, key);
		int got = mkt_status(&self->s.pair, side, &wr);

		if (!got != works || (got && !side && got != IBV_WC_REM_ACCESS_ERR)) {
			mkt_diag("%s of side %u by %#x: %s", mkt_op_name(uses[i].op), side, key,
				 ibv_wc_status_str(got));
			return EBADMSG;
		}
		if (got && mkt_pair_recover(&self->s.pair))
			return EIO;
	}
	return 0;
}

/* @old works nowhere, and the key's own lkey and rkey everywhere */
static void portion_changed(struct __test_metadata *_metadata, FIXTURE_DATA(portion) *self,
			    uint32_t old)
{
	struct ibmkey_info info = {};

	EXPECT_NE(old, self->key->rkey);
	EXPECT_EQ(old >> 8, self->key->rkey >> 8);
	EXPECT_EQ(self->key->rkey, self->key->lkey);
	EXPECT_EQ(0, ibmkey_query(self->key, &info));
	EXPECT_EQ(self->key->rkey, info.rkey);
	EXPECT_EQ(self->key->lkey, info.lkey);
	ASSERT_EQ(0, portion_used(self, old, false));
	ASSERT_EQ(0, portion_used(self, self->key->rkey, true));
}

TEST_F(portion, a_bind_keeps_or_sets_it)
{
	uint32_t old = self->key->rkey;

	ASSERT_EQ(0, portion_bind(self, 0));
	EXPECT_EQ(old, self->key->rkey);
	EXPECT_EQ(0, portion_used(self, old, true));
	ASSERT_EQ(0, portion_bind(self, ibv_inc_rkey(old)));
	EXPECT_EQ(ibv_inc_rkey(old), self->key->rkey);
	portion_changed(_metadata, self, old);
	ASSERT_EQ(0, portion_bind(self, old ^ 0x80));
	EXPECT_EQ(old ^ 0x80, self->key->rkey);
	portion_changed(_metadata, self, ibv_inc_rkey(old));
	/* another key's rkey is refused and changes nothing */
	EXPECT_EQ(EINVAL, portion_bind(self, old ^ 0x100));
	EXPECT_EQ(old ^ 0x80, self->key->rkey);
	EXPECT_EQ(0, portion_used(self, self->key->rkey, true));
}

TEST_F(portion, an_unbind_changes_it)
{
	uint32_t old = self->key->rkey;

	ASSERT_EQ(0, portion_bind(self, 0));
	ASSERT_EQ(0, ibmkey_unbind(self->key));
	EXPECT_EQ(ibv_inc_rkey(old), self->key->rkey);
	ASSERT_EQ(0, portion_bind(self, 0));
	portion_changed(_metadata, self, old);
}

/* binds the key of side 1 by a request; returns its status */
static int portion_request(FIXTURE_DATA(portion) *self, uint64_t mask, int access)
{
	struct ibmkey_wr wr;

	mkt_request_range(&self->text, mask, self->range);
	wr = mkt_request_wr(&self->text, self->key);
	wr.access = access;
	return mkt_request_status(&self->s.pair.end[1], &wr);
}

/* a peer's SEND that invalidates @rkey; returns its status, or -1 */
static int portion_send_inv(FIXTURE_DATA(portion) *self, uint32_t rkey)
{
	struct mkt_wr send = { .op = MKT_SEND_INV, .rkey = rkey, .imm = rkey };
	struct mkt_wr recv = { .op = MKT_SEND };
	struct mkt_result result;

	return mkt_exec(&self->s.pair, 0, &send, &recv, &result) ? -1 : (int)result.status;
}

TEST_F(portion, an_invalidation_changes_it)
{
	struct mkt_wr inv = { .op = MKT_LOCAL_INV };
	struct ibmkey_info info = {};
	uint32_t old = self->key->rkey;
	struct ibv_wc wc;

	ASSERT_EQ(0, portion_bind(self, 0));
	ASSERT_EQ(0, ibmkey_post_unbind(self->s.pair.end[1].qp, self->key, 1,
					IBV_SEND_SIGNALED));
	ASSERT_EQ(0, mkt_poll(&self->s.pair.end[1], &wc));
	ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(ibv_inc_rkey(old), self->key->rkey);
	ASSERT_EQ(IBV_WC_SUCCESS, portion_request(self, 0, TAG_ACCESS));
	portion_changed(_metadata, self, old);

	/* the stale rkey invalidates nothing */
	inv.rkey = old;
	EXPECT_NE(IBV_WC_SUCCESS, mkt_status(&self->s.pair, 1, &inv));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(0, ibmkey_query(self->key, &info));
	EXPECT_EQ(IBMKEY_LIST, info.kind);
	EXPECT_EQ(self->key->rkey, info.rkey);
}

TEST_F(portion, a_peer_s_invalidation_changes_it)
{
	uint32_t old = self->key->rkey;

	ASSERT_EQ(0, portion_bind(self, 0));
	ASSERT_EQ(IBV_WC_SUCCESS, portion_send_inv(self, old));
	/* the library learns it from the next call */
	ASSERT_EQ(0, portion_bind(self, 0));
	EXPECT_EQ(ibv_inc_rkey(old), self->key->rkey);
	portion_changed(_metadata, self, old);
}

/*
 * Without a remote access flag a peer may invalidate a key only if its description says so. A call
 * with the same layout says nothing of that, although ib_mkey moves the old binding.
 */
TEST_F(portion, a_call_does_not_keep_remote_inv)
{
	struct ibmkey_info info = {};
	unsigned int i;

	for (i = 0; i < 2; i++) {
		/* the library does not know of a peer's invalidation */
		ASSERT_EQ(0, ibmkey_query(self->key, &info));
		self->key->rkey = info.rkey;
		ASSERT_EQ(IBV_WC_SUCCESS,
			  portion_request(self, IBMKEY_BIND_REMOTE_INV, IBV_ACCESS_LOCAL_WRITE));
		if (i) {
			ASSERT_EQ(0, ibmkey_unbind(self->key));
			ASSERT_EQ(0, ibmkey_bind_list(self->key, IBV_ACCESS_LOCAL_WRITE, 1,
						      &self->range));
		}
		ASSERT_EQ(0, ibmkey_query(self->key, &info));
		/* the SEND itself succeeds; the peer's QP ends in an error */
		EXPECT_EQ(IBV_WC_SUCCESS, portion_send_inv(self, info.rkey));
		EXPECT_EQ(i ? IBMKEY_LIST : IBMKEY_UNBOUND, mkt_kind_of(self->key));
	}
	EXPECT_EQ(0, mkt_pair_recover(&self->s.pair));
}

/* a request names the key by its current rkey, unless the description allows any */
TEST_F(portion, a_request_with_a_stale_rkey)
{
	uint32_t old = self->key->rkey, now;

	ASSERT_EQ(0, portion_bind(self, 0));
	ASSERT_EQ(0, ibmkey_unbind(self->key));
	now = self->key->rkey;
	self->key->rkey = old;
	EXPECT_EQ(IBV_WC_MW_BIND_ERR, portion_request(self, 0, TAG_ACCESS));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	self->key->rkey = old;
	EXPECT_EQ(IBV_WC_SUCCESS, portion_request(self, IBMKEY_BIND_ANY_PORTION, TAG_ACCESS));
	self->key->lkey = old;
	portion_changed(_metadata, self, now);
	/* it is bound now: only its own rkey will do */
	self->key->rkey = now;
	EXPECT_EQ(IBV_WC_MW_BIND_ERR, portion_request(self, IBMKEY_BIND_ANY_PORTION, TAG_ACCESS));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(0, portion_bind(self, 0));
	EXPECT_EQ(old, self->key->rkey);
}

/* binds the key to half of the memory, and to the other half with another key portion */
static int portion_turn(void *arg, unsigned int round)
{
	FIXTURE_DATA(portion) *self = arg;
	struct ibmkey_range range = self->range;
	unsigned int half = round % 2;

	range.addr += half * HALF;
	range.length = HALF;
	return mkt_bind_as(self->key, TAG_ACCESS, self->first ^ half, range);
}

static bool portion_all(const uint8_t *bytes, uint8_t value, size_t length)
{
	return bytes[0] == value && !memcmp(bytes, bytes + 1, length - 1);
}

/*
 * rxe compares the key portion when a packet arrives, and ib_mkey copies its bytes later. Between
 * both the key is bound again, now and then. A request with the key portion of one half gets, and
 * changes, no byte of the other one.
 */
TEST_F(portion, changes_under_requests)
{
	static const enum mkt_op ops[] = { MKT_READ, MKT_WRITE };
	uint8_t *here = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
	uint8_t *there = (uint8_t *)(uintptr_t)self->range.addr;
	unsigned int o, i, rounds = mkt_rounds(10000, 2000);

	self->first = self->key->rkey;

	for (o = 0; o < ARRAY_SIZE(ops); o++) {
		struct mkt_wr wr = portion_wr(self, ops[o], self->first);
		unsigned int done[2] = {};
		struct mkt_loop loop = {};

		wr.sge[0].length = PACKET;
		memset(there, 0xaa, HALF);
		memset(there + HALF, 0x55, HALF);
		ASSERT_EQ(0, mkt_loop_start(&loop, portion_turn, self));
		for (i = 0; (i < rounds || !done[0] || !done[1]) && !atomic_load(&loop.err); i++) {
			int status;

			memset(here, 0x33, PACKET);
			status = mkt_status(&self->s.pair, 0, &wr);
			done[!status]++;
			if (!status && ops[o] == MKT_READ)
				ASSERT_TRUE(portion_all(here, 0xaa, PACKET));
			if (status) {
				ASSERT_EQ(IBV_WC_REM_ACCESS_ERR, status);
				ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
			}
		}
		EXPECT_EQ(0, mkt_loop_end(&loop));
		EXPECT_TRUE(portion_all(there + HALF, 0x55, HALF));
		ASSERT_EQ(0, portion_bind(self, self->first));
	}
}

TEST_HARNESS_MAIN
