// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Accesses on either side that must fail and change no byte: by keys that are unbound,
 * lack the access flag, are shorter or belong to another PD, or whose leaf has lost its access
 * flags or its PD. The record of the last refused access to a key and to the keys of a process:
 * its reason, address, length, access flags and origin. Another process sees none of it, and cannot
 * change it.
 * sets: smp
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "loop.h"
#include "mkey_harness.h"
#include "raw.h"

#define PAGE 4096
#define LENGTH 4000
#define FAR 0x10000
#define R(name) IB_UVERBS_MKEY_REASON_ACCESS_##name

enum wrong {
	NOTHING,
	UNBOUND,
	OLD_KEY,	/* the request has the key portion of before an unbind */
	OTHER_PD,
	LEAF_CHANGED,	/* the leaf no longer has local write */
	LEAF_MOVED,	/* the leaf is in another PD */
	IN_PIECES,	/* of four bytes */
	ODD,		/* the key begins four bytes after an aligned address */
};

struct refusal {
	const char *name;
	enum mkt_op op;
	/* the key is in the SGE that the sender or the receiver gives; else it is remote */
	bool local, receives;
	enum wrong wrong;
	unsigned int bound;	/* access flags of the layout */
	uint64_t addr;
	uint32_t length;
	uint32_t reason;
	unsigned int access;
	uint64_t value;
};

static const struct refusal refusals[] = {
	{ "local length", MKT_SEND, true, false, NOTHING, 0, LENGTH - 99, 100, R(RANGE), 0,
	  LENGTH },
	{ "local end", MKT_WRITE, true, false, NOTHING, 0, LENGTH - 7, 8, R(RANGE), 0, LENGTH },
	{ "result of READ", MKT_READ, true, false, NOTHING, 0, 8, 32, R(FLAGS),
	  IBV_ACCESS_LOCAL_WRITE, 0 },
	{ "result of an atomic", MKT_FETCH_ADD, true, false, NOTHING, IBV_ACCESS_REMOTE_READ, 8, 8,
	  R(FLAGS), IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ },
	{ "receive", MKT_SEND, true, true, NOTHING, 0, 0, 32, R(FLAGS),
	  IBV_ACCESS_LOCAL_WRITE, 0 },
	{ "receive, unbound", MKT_SEND, true, true, UNBOUND, 0, 0, 32, R(UNBOUND),
	  IBV_ACCESS_LOCAL_WRITE, 0 },
	{ "receive at a far address", MKT_SEND, true, true, NOTHING, MKT_ACCESS_ALL, FAR, 32,
	  R(RANGE), IBV_ACCESS_LOCAL_WRITE, LENGTH },
	{ "receive, leaf changed", MKT_SEND, true, true, LEAF_CHANGED, MKT_ACCESS_ALL, 0, 32,
	  R(LEAF), IBV_ACCESS_LOCAL_WRITE, 0 },
	{ "atomic beyond the end", MKT_FETCH_ADD, false, false, NOTHING, MKT_ACCESS_ALL, LENGTH, 8,
	  R(RANGE), IBV_ACCESS_REMOTE_ATOMIC, LENGTH },
	{ "atomic in two pieces", MKT_FETCH_ADD, false, false, IN_PIECES, MKT_ACCESS_ALL, 8, 8,
	  R(PIECES), IBV_ACCESS_REMOTE_ATOMIC, 0 },
	{ "ATOMIC_WRITE in two pieces", MKT_ATOMIC_WRITE, false, false, IN_PIECES, MKT_ACCESS_ALL,
	  8, 8, R(PIECES), IBV_ACCESS_REMOTE_WRITE, 0 },
	{ "atomic on odd memory", MKT_CMP_SWAP, false, false, ODD, MKT_ACCESS_ALL, 8, 8,
	  R(ALIGN), IBV_ACCESS_REMOTE_ATOMIC, 0 },
};

/* what is refused to every request of a peer, and to every one whose SGE has the key */
static const struct {
	enum wrong wrong;
	uint32_t reason;
} always[] = {
	{ NOTHING, R(RANGE) },	/* at a far address */
	{ NOTHING, R(FLAGS) },	/* with the other access flags, to a peer */
	{ UNBOUND, R(UNBOUND) },
	{ OLD_KEY, R(KEY) },
	{ OTHER_PD, R(PD) },
	{ LEAF_CHANGED, R(LEAF) },
	{ LEAF_MOVED, R(LEAF) },
};

/* the access flag of the key that a peer needs */
static const struct {
	enum mkt_op op;
	uint32_t length;
	unsigned int needs;
} remote[] = {
	{ MKT_WRITE, 32, IBV_ACCESS_REMOTE_WRITE },
	{ MKT_READ, 32, IBV_ACCESS_REMOTE_READ },
	{ MKT_FETCH_ADD, 8, IBV_ACCESS_REMOTE_ATOMIC },
	{ MKT_CMP_SWAP, 8, IBV_ACCESS_REMOTE_ATOMIC },
	{ MKT_ATOMIC_WRITE, 8, IBV_ACCESS_REMOTE_WRITE },
};

FIXTURE(access)
{
	struct mkt_setup s;
	struct mkt_result unknown;	/* of a receive with an lkey that does not exist */
	/* of each side: a second domain with a key and an MR */
	struct ibv_pd *pd[2];
	struct ibv_mr *mr[2];
	struct ibv_mr *key[2];
	uint64_t before;		/* the number of the last refused access */
	unsigned int leaf;		/* under the key */
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
	unsigned int i;

	MKT_SETUP(&self->s, .flags = MKT_QP_PATIENT, .host = 16 * PAGE, .dm = 8 * PAGE,
		  .max_entries = 32);
	self->leaf = variant->leaf;
	for (i = 0; i < 2; i++) {
		self->pd[i] = ibv_alloc_pd(self->s.dev[i].ctx);
		ASSERT_NE(NULL, self->pd[i]);
		self->mr[i] = ibv_reg_mr(self->pd[i], self->s.arena[i].mem[0].host, PAGE,
					 MKT_ACCESS_ALL);
		ASSERT_NE(NULL, self->mr[i]);
		self->key[i] = ibmkey_alloc(self->pd[i], 4);
		ASSERT_NE(NULL, self->key[i]);
	}
}

FIXTURE_TEARDOWN(access)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		ibmkey_unbind(self->s.key[i]);
		EXPECT_EQ(0, ibv_dereg_mr(self->key[i]));
		EXPECT_EQ(0, ibv_dereg_mr(self->mr[i]));
		EXPECT_EQ(0, ibv_dealloc_pd(self->pd[i]));
	}
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* the last refused access to an MR that this process made; number 0 if there is none */
static struct ibmkey_refused_access last_of(struct ibv_context *ctx)
{
	struct ibmkey_refused_access access = { .number = UINT64_MAX };
	struct ib_uverbs_mkey_caps caps;
	struct mkt_ioctl cmd;

	mkt_raw_caps(&cmd, &caps);
	mkt_ioctl_add(&cmd, IB_MKEY_ATTR_QUERY_CAPS_RESP_REFUSED_ACCESS, sizeof(access),
		      (uintptr_t)&access);
	if (mkt_ioctl_run(ctx, &cmd))
		access.number = UINT64_MAX;
	return access;
}

static uint64_t number_of(struct ibv_mr *key)
{
	struct ibmkey_refused_access access;

	return ibmkey_query_refused_access(key, &access) ? UINT64_MAX : access.number;
}

/* binds @key as the case wants; @lkey gets the lkey and rkey that the request names */
static int prepare(struct mkt_leaf *leaf, struct ibv_mr *mr, struct ibv_mr *key,
		   const struct refusal *one, uint32_t *lkey)
{
	/* aligned in memory, as atomics need */
	uint64_t addr = leaf->addr + (-leaf->at & 7);
	int err = 0;

	*lkey = key->lkey;
	switch (one->wrong) {
	case UNBOUND:
		err = ibmkey_unbind(key);
		break;
	case OLD_KEY:
		err = ibmkey_unbind(key);
		return err ?: mkt_bind_range(key, one->bound, mr, addr, LENGTH);
	case IN_PIECES:
		err = mkt_bind_strided(key, one->bound, mr, addr, 4, 12, LENGTH / 4);
		break;
	case OTHER_PD:
		err = mkt_bind_range(key, one->bound, mr, (uintptr_t)mr->addr, LENGTH);
		break;
	default:
		err = mkt_bind_range(key, one->bound, mr, addr + (one->wrong == ODD ? 4 : 0),
				     LENGTH);
	}
	*lkey = key->lkey;
	return err;
}

/* changes the leaf as the case wants, or changes it back */
static int change_leaf(FIXTURE_DATA(access) *self, unsigned int side, enum wrong wrong, bool back)
{
	struct ibv_mr *mr = self->s.arena[side].leaf[self->leaf].mr;
	struct ibv_pd *pd = self->s.dev[side].pd;

	if (wrong == LEAF_CHANGED)
		return mkt_raw_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, pd,
				     back ? MKT_ACCESS_ALL : IBV_ACCESS_REMOTE_READ);
	if (wrong == LEAF_MOVED)
		return mkt_raw_rereg(mr, IBV_REREG_MR_CHANGE_PD, back ? pd : self->pd[side], 0);
	return 0;
}

/* runs the request of a case; a local one fails as it does with an lkey that does not exist */
static int run(struct mkt_setup *s, const struct refusal *one, uint32_t lkey,
	       const struct mkt_result *unknown)
{
	/* rxe posts atomics to aligned addresses only */
	struct mkt_wr wr = mkt_plain_wr(s, 0, one->op, one->length, (s->plain[1].addr + 7) & ~7,
					s->plain[1].mr->rkey);
	struct mkt_wr recv = { .sge[0] = wr.sge[0], .num_sge = 1 };
	struct ibv_sge key = { .addr = one->addr, .length = one->length, .lkey = lkey };
	enum ibv_wc_status status = IBV_WC_REM_ACCESS_ERR;
	struct mkt_result result;
	int err;

	recv.sge[0].addr = s->plain[1].addr;
	recv.sge[0].lkey = s->plain[1].mr->lkey;
	if (one->receives) {
		recv.sge[0] = key;
		status = unknown->status;
	} else if (one->local) {
		wr.sge[0] = key;
		status = IBV_WC_LOC_PROT_ERR;
	} else {
		wr.remote_addr = one->addr;
		wr.rkey = lkey;
		if (one->reason == R(ALIGN))
			status = IBV_WC_REM_INV_REQ_ERR;
	}
	err = mkt_exec(&s->pair, 0, &wr, one->op == MKT_SEND ? &recv : NULL, &result);
	if (!err && (result.status != status ||
		     (one->receives && result.recv_status != unknown->recv_status)))
		err = EPROTO;
	return mkt_pair_recover(&s->pair) ?: err;
}

/* what one case says: the request fails, changes no byte, and is recorded */
static void check(struct __test_metadata *_metadata, FIXTURE_DATA(access) *self,
		  const struct refusal *one)
{
	unsigned int side = !one->local || one->receives;
	struct mkt_leaf *leaf = &self->s.arena[side].leaf[self->leaf];
	bool other = one->wrong == OTHER_PD;
	struct ibv_mr *key = other ? self->key[side] : self->s.key[side];
	struct ibmkey_refused_access access, last;
	uint32_t lkey;
	int err;

	ASSERT_EQ(0, prepare(leaf, other ? self->mr[side] : leaf->mr, key, one, &lkey))
		TH_LOG("%s: %s", one->name, ibmkey_last_error());
	err = change_leaf(self, side, one->wrong, false);
	if (err) {
		/* device memory cannot be registered again */
		EXPECT_EQ(2, self->leaf);
		EXPECT_EQ(EINVAL, err);
		return;
	}
	EXPECT_EQ(0, run(&self->s, one, lkey, &self->unknown))
		TH_LOG("%s: the request has another status", one->name);
	/* the peer executes an atomic whose result cannot be stored */
	if (one->local && one->op == MKT_FETCH_ADD)
		ASSERT_EQ(0, mkt_arena_adopt(&self->s.arena[1],
					     self->s.plain[1].map.pos[-self->s.plain[1].addr & 7],
					     8));
	EXPECT_EQ(0, mkt_arena_check(&self->s.arena[0]));
	EXPECT_EQ(0, mkt_arena_check(&self->s.arena[1]));
	ASSERT_EQ(0, change_leaf(self, side, one->wrong, true));
	ASSERT_EQ(0, ibmkey_query_refused_access(key, &access));
	EXPECT_LT(self->before, access.number)
		TH_LOG("%s: no refusal is recorded", one->name);
	self->before = access.number;
	EXPECT_EQ(one->reason, access.reason)
		TH_LOG("%s: %s", one->name, ibmkey_last_error());
	EXPECT_EQ(one->addr, access.addr);
	EXPECT_EQ(one->length, access.length);
	EXPECT_EQ(one->access, access.access);
	EXPECT_EQ(!one->local, access.remote);
	EXPECT_EQ(lkey, access.key);
	EXPECT_EQ(one->reason == R(KEY) ? key->lkey : one->value, access.value);
	EXPECT_EQ(0, access.comp_mask | access.reserved);
	last = last_of(self->s.dev[side].ctx);
	EXPECT_EQ(0, memcmp(&access, &last, sizeof(last)))
		TH_LOG("%s: that of the device is %llu", one->name,
		       (unsigned long long)last.number);
}

TEST_F(access, reasons)
{
	const struct refusal *one;
	struct mkt_wr recv = { .sge[0] = { .length = 32, .lkey = 0x7f001100 }, .num_sge = 1 };
	struct mkt_wr send = mkt_plain_wr(&self->s, 0, MKT_SEND, 32, 0, 0);

	ASSERT_EQ(0, mkt_exec(&self->s.pair, 0, &send, &recv, &self->unknown));
	ASSERT_NE(IBV_WC_SUCCESS, self->unknown.status);
	ASSERT_NE(IBV_WC_SUCCESS, self->unknown.recv_status);
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	for (one = refusals; one < refusals + ARRAY_SIZE(refusals); one++)
		check(_metadata, self, one);
}

/* each request of a peer, with each thing that is wrong */
TEST_F(access, of_a_peer)
{
	unsigned int i, k;

	for (i = 0; i < ARRAY_SIZE(remote); i++)
		for (k = 0; k < ARRAY_SIZE(always); k++) {
			struct refusal one = {
				.name = mkt_op_name(remote[i].op),
				.op = remote[i].op,
				.wrong = always[k].wrong,
				.bound = MKT_ACCESS_ALL,
				.addr = always[k].reason == R(RANGE) ? FAR : 8,
				.length = remote[i].length,
				.reason = always[k].reason,
				.access = remote[i].needs,
			};

			if (one.reason == R(RANGE))
				one.value = LENGTH;
			if (one.reason == R(FLAGS)) {
				one.bound &= ~remote[i].needs;
				one.value = one.bound;
			}
			/* which a READ does not need */
			if (one.wrong != LEAF_CHANGED || one.op != MKT_READ)
				check(_metadata, self, &one);
		}
	/* what is allowed changes bytes, so it comes later */
	for (i = 0; i < ARRAY_SIZE(remote); i++) {
		struct mkt_leaf *leaf = &self->s.arena[1].leaf[self->leaf];
		unsigned int local = remote[i].op == MKT_READ ? 0 : IBV_ACCESS_LOCAL_WRITE;

		ASSERT_EQ(0, mkt_bind_range(self->s.key[1], remote[i].needs | local, leaf->mr,
					    leaf->addr + (-leaf->at & 7), LENGTH));
		EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, self->s.key[1]->rkey, remote[i].op,
						    LENGTH - remote[i].length, remote[i].length));
	}
}

/* each request whose SGE has the key */
TEST_F(access, of_this_side)
{
	static const enum mkt_op ops[] = { MKT_WRITE, MKT_SEND, MKT_READ };
	unsigned int i, k;

	for (i = 0; i < ARRAY_SIZE(ops); i++)
		for (k = 0; always[k].wrong != LEAF_CHANGED; k++) {
			struct refusal one = {
				.name = mkt_op_name(ops[i]),
				.op = ops[i],
				.local = true,
				.wrong = always[k].wrong,
				.bound = MKT_ACCESS_ALL,
				.addr = always[k].reason == R(RANGE) ? FAR : 0,
				.length = 32,
				.reason = always[k].reason,
				.access = ops[i] == MKT_READ ? IBV_ACCESS_LOCAL_WRITE : 0,
				.value = always[k].reason == R(RANGE) ? LENGTH : 0,
			};

			if (one.reason != R(FLAGS))
				check(_metadata, self, &one);
		}
}

TEST_F(access, beyond_the_end)
{
	const struct {
		uint64_t addr;
		uint32_t length;
	} ranges[] = {
		{ LENGTH, 1 }, { LENGTH - 7, 8 }, { LENGTH - 100, 101 },
		/* messages of several packets, of which none may arrive */
		{ 0, LENGTH + 1 }, { LENGTH - 3000, 3001 },
		/* addresses that wrap around, and addresses of the leaf itself */
		{ UINT64_MAX - 3, 8 },
		{ self->s.arena[1].leaf[variant->leaf].addr + LENGTH, 8 },
	};
	unsigned int i, k;

	for (i = 0; i < ARRAY_SIZE(ranges); i++)
		for (k = 0; remote[k].length != 8; k++)
			check(_metadata, self, &(struct refusal){
				.name = mkt_op_name(remote[k].op),
				.op = remote[k].op,
				.bound = MKT_ACCESS_ALL,
				.addr = ranges[i].addr,
				.length = ranges[i].length,
				.reason = R(RANGE),
				.access = remote[k].needs,
				.value = LENGTH,
			});
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
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, key->rkey, MKT_WRITE, 3, 8));

	ASSERT_EQ(0, mkt_bind_strided(key, MKT_ACCESS_ALL, top, start, 16, 4080, 2));
	memset(memory, 0, sizeof(memory));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, key->rkey, MKT_WRITE, 24, 8));
	EXPECT_EQ(0, memcmp(memory + 4088, sent, 8));
	EXPECT_EQ(0, memory[4087]);
	EXPECT_EQ(EOVERFLOW, mkt_bind_strided(key, MKT_ACCESS_ALL, top, start, 16, 4081, 2));
	EXPECT_EQ(0, ibmkey_unbind(key));
	EXPECT_EQ(0, ibv_dereg_mr(top));
}

/* what a program prints for the completion, on either side */
TEST_F(access, sentences)
{
	struct mkt_setup *s = &self->s;
	struct ibv_wc local = { .status = IBV_WC_WR_FLUSH_ERR };
	struct ibv_wc remote = { .status = IBV_WC_REM_ACCESS_ERR };

	EXPECT_NE(NULL, strstr(ibmkey_why(s->dev[0].ctx, &local), "no key of this process"));
	EXPECT_NE(NULL, strstr(ibmkey_why(s->dev[0].ctx, &remote), "the peer refused"));
	ASSERT_EQ(0, mkt_bind_range(s->key[1], MKT_ACCESS_ALL, s->plain[1].mr, s->plain[1].addr,
				    LENGTH));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(s, s->key[1]->rkey, MKT_WRITE, FAR, 32));
	EXPECT_NE(NULL, strstr(ibmkey_why(s->dev[1].ctx, NULL), "it has 4000 bytes"))
		TH_LOG("%s", ibmkey_why(s->dev[1].ctx, NULL));
	EXPECT_NE(NULL, strstr(ibmkey_why(s->dev[0].ctx, &remote), "the peer refused"));
	EXPECT_STREQ("ctx is NULL", ibmkey_why(NULL, &remote));
	EXPECT_EQ(EINVAL, ibmkey_query_refused_access(NULL, NULL));
}

/* a success leaves the record; another layout does, too */
TEST_F(access, stays)
{
	struct mkt_setup *s = &self->s;
	struct ibv_mr *key = s->key[1];
	uint64_t number;

	EXPECT_EQ(0, number_of(key));
	ASSERT_EQ(0, mkt_bind_range(key, MKT_ACCESS_ALL, s->plain[1].mr, s->plain[1].addr, LENGTH));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(s, key->rkey, MKT_WRITE, 0, 32));
	EXPECT_EQ(0, number_of(key));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(s, key->rkey, MKT_WRITE, FAR, 32));
	number = number_of(key);
	EXPECT_NE(0, number);
	ASSERT_EQ(0, mkt_bind_range(key, MKT_ACCESS_ALL, s->plain[1].mr, s->plain[1].addr, 32));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(s, key->rkey, MKT_READ, 0, 32));
	EXPECT_EQ(number, number_of(key));
}

/* the process has unmapped the memory, or may not write it */
TEST_F(access, memory)
{
	struct mkt_setup *s = &self->s;
	struct ibmkey_refused_access access;
	struct ibv_mr *odp;
	void *pages;

	pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, pages);
	odp = ibv_reg_mr(s->dev[1].pd, pages, 2 * PAGE, MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	if (!odp)
		SKIP(return, "%s has no memory on demand", s->dev[1].name);
	ASSERT_EQ(0, mkt_bind_range(s->key[1], MKT_ACCESS_ALL, odp, (uintptr_t)pages, 2 * PAGE));
	ASSERT_EQ(0, munmap(pages, PAGE));
	ASSERT_EQ(0, mprotect(pages + PAGE, PAGE, PROT_READ));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(s, s->key[1]->rkey, MKT_READ, 8, 16));
	ASSERT_EQ(0, ibmkey_query_refused_access(s->key[1], &access));
	EXPECT_EQ(R(MEMORY), access.reason);
	EXPECT_EQ(8, access.addr);
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(s, s->key[1]->rkey, MKT_WRITE, PAGE + 8, 16));
	ASSERT_EQ(0, ibmkey_query_refused_access(s->key[1], &access));
	EXPECT_EQ(R(MEMORY), access.reason);
	EXPECT_EQ(PAGE + 8, access.addr);
	ASSERT_EQ(0, ibmkey_unbind(s->key[1]));
	EXPECT_EQ(0, ibv_dereg_mr(odp));
	munmap(pages + PAGE, PAGE);
}

#define TRACING "/sys/kernel/tracing/"
#define EVENT TRACING "events/ib_mkey/ib_mkey_refused_access/enable"

/* the tracepoint has the fields of the record */
TEST_F(access, trace)
{
	struct mkt_setup *s = &self->s;
	char line[512], want[128];
	bool found = false;
	FILE *f;

	if (access(EVENT, W_OK))
		SKIP(return, "no " EVENT);
	ASSERT_EQ(0, mkt_bind_range(s->key[1], MKT_ACCESS_ALL, s->plain[1].mr, s->plain[1].addr,
				    LENGTH));
	ASSERT_EQ(0, system("echo 1 >" EVENT));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(s, s->key[1]->rkey, MKT_WRITE, FAR, 32));
	ASSERT_EQ(0, system("echo 0 >" EVENT));
	snprintf(want, sizeof(want), "number=%" PRIu64 " key=0x%x addr=0x%x length=32 reason=%u value=%u",
		 number_of(s->key[1]), s->key[1]->rkey, FAR, R(RANGE), LENGTH);
	f = fopen(TRACING "trace", "r");
	ASSERT_NE(NULL, f);
	while (fgets(line, sizeof(line), f))
		found = found || strstr(line, want);
	fclose(f);
	EXPECT_TRUE(found)
		TH_LOG("no \"%s\"", want);
}

/* in another process: names @lkey and @rkey in requests; returns 0 if it has no refused access */
static int stranger(uint32_t lkey, uint32_t rkey)
{
	struct mkt_wants wants = { .flags = MKT_QP_PATIENT, .host = 4 * PAGE };
	struct mkt_setup s = {};
	struct mkt_wr wr;
	unsigned int i;

	for (i = 0; i < 2; i++)
		if (mkt_dev_try_open(&s.dev[i], i) || last_of(s.dev[i].ctx).number)
			return 1;
	if (mkt_setup(&s, &wants, "stranger"))
		return 2;
	wr = mkt_plain_wr(&s, 0, MKT_WRITE, 32, s.plain[1].addr, s.plain[1].mr->rkey);
	wr.sge[0].lkey = lkey;
	if (mkt_status(&s.pair, 0, &wr) == IBV_WC_SUCCESS || mkt_pair_recover(&s.pair))
		return 3;
	if (mkt_try(&s, rkey, MKT_READ, 8, 32) == IBV_WC_SUCCESS)
		return 4;
	for (i = 0; i < 2; i++)
		if (last_of(s.dev[i].ctx).number)
			return 5;
	return mkt_teardown(&s) ? 6 : 0;
}

TEST_F(access, other_process)
{
	struct mkt_setup *s = &self->s;
	uint64_t number[2];
	unsigned int i;

	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, mkt_bind_range(s->key[i], MKT_ACCESS_ALL, s->plain[i].mr,
					    s->plain[i].addr, LENGTH));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(s, s->key[1]->rkey, MKT_WRITE, FAR, 32));
	for (i = 0; i < 2; i++)
		number[i] = number_of(s->key[i]);
	EXPECT_NE(0, number[1]);
	EXPECT_EQ(0, MKT_IN_CHILD(stranger(s->key[0]->lkey, s->key[1]->rkey)));
	/* a child that has the context of its parent is another process, too */
	EXPECT_EQ(0, MKT_IN_CHILD(last_of(s->dev[1].ctx).number != 0));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(number[i], number_of(s->key[i]));
}

/* binds and queries the key of side 1, and makes keys and destroys them */
static int look(void *arg, unsigned int round)
{
	struct mkt_setup *s = arg;
	struct ibmkey_refused_access access;
	struct ibv_mr *other = ibmkey_alloc(s->dev[1].pd, 1);
	int err = mkt_bind_range(s->key[1], MKT_ACCESS_ALL, s->plain[1].mr, s->plain[1].addr,
				 LENGTH) ?:
		  ibmkey_query_refused_access(s->key[1], &access) ?: ibmkey_unbind(s->key[1]);

	if (!err && access.number && (!access.reason || access.remote != 1))
		err = EBADMSG;
	if (!other || ibv_dereg_mr(other) || last_of(s->dev[1].ctx).number == UINT64_MAX)
		err = EIO;
	return err;
}

TEST_F(access, race)
{
	unsigned int i, rounds = mkt_rounds(400, 60);
	uint64_t number, before = 0;
	struct mkt_loop loop = {};

	ASSERT_EQ(0, mkt_loop_start(&loop, look, &self->s));
	for (i = 0; i < rounds; i++) {
		/* any key portion, bound or not */
		uint32_t rkey = (self->s.key[1]->rkey & ~0xffu) | (i & 0xff);

		EXPECT_LE(0, mkt_try(&self->s, rkey, i & 1 ? MKT_WRITE : MKT_READ,
				     i & 2 ? FAR : 0, 32));
		number = number_of(self->s.key[1]);
		EXPECT_LE(before, number);
		before = number;
	}
	EXPECT_EQ(0, mkt_loop_end(&loop));
	EXPECT_NE(0, before);
}

TEST_HARNESS_MAIN
