// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Memory windows that a queue pair must not use: windows of another PD or queue pair,
 * and unbound ones. Also tests that no request names the hidden MRs that windows are bound to.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "mkey_harness.h"
#include "replay.h"

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define FOREIGN_ALL (REMOTE | IBV_ACCESS_REMOTE_ATOMIC)
#define ZONE 4096

FIXTURE(foreign)
{
	struct mkt_setup s;
	struct mkt_dev other;	/* device 1 with another PD */
	struct mkt_pair pair;	/* side 1 is in that PD */
	struct ibv_mw *mw;
};

FIXTURE_SETUP(foreign)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.host = 4 * ZONE,
		.max_entries = 4,
	};
	struct mkt_block block = { .bytes = ZONE };
	struct mkt_layout layout = { .num_blocks = 1, .block = &block };

	MKT_OPEN_EXTENDED(self->s.dev);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	ASSERT_EQ(0, mkt_layout_bind(self->s.key[1], &self->s.arena[1], &layout,
				     MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND));
	self->other = self->s.dev[1];
	self->other.pd = ibv_alloc_pd(self->other.ctx);
	ASSERT_NE(NULL, self->other.pd);
	ASSERT_EQ(0, mkt_pair_create(&self->pair, &self->s.dev[0], &self->other,
				     IBV_MTU_1024, 0));
}

FIXTURE_TEARDOWN(foreign)
{
	if (self->mw)
		EXPECT_EQ(0, ibv_dealloc_mw(self->mw));
	mkt_pair_destroy(&self->pair);
	EXPECT_EQ(0, ibv_dealloc_pd(self->other.pd));
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

static bool foreign_local_inv(struct mkt_pair *pair, uint32_t rkey)
{
	struct mkt_wr wr = { .op = MKT_LOCAL_INV, .rkey = rkey };
	bool done = mkt_status(pair, 1, &wr) == IBV_WC_SUCCESS;

	return mkt_pair_recover(pair) || done;
}

static bool foreign_send_inv(struct mkt_pair *pair, uint32_t rkey)
{
	struct mkt_wr wr = { .op = MKT_SEND_INV, .rkey = rkey }, recv = {};
	struct mkt_result result = {};
	int err = mkt_exec(pair, 0, &wr, &recv, &result);

	return mkt_pair_recover(pair) || err || result.recv_status == IBV_WC_SUCCESS;
}

/* an unbound window cannot be invalidated */
TEST_F(foreign, invalidate_unbound)
{
	self->mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, self->mw);
	EXPECT_FALSE(foreign_local_inv(&self->s.pair, self->mw->rkey));
	EXPECT_FALSE(foreign_send_inv(&self->s.pair, self->mw->rkey));
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], self->mw, self->s.key[1], 0, ZONE,
				     REMOTE));
	EXPECT_TRUE(foreign_local_inv(&self->s.pair, self->mw->rkey));
	EXPECT_FALSE(foreign_local_inv(&self->s.pair, self->mw->rkey));
	EXPECT_FALSE(foreign_send_inv(&self->s.pair, self->mw->rkey));
}

/* a QP or its peer cannot invalidate the window of another QP */
TEST_F(foreign, invalidate)
{
	self->mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, self->mw);
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], self->mw, self->s.key[1], 0, ZONE,
				     REMOTE));
	EXPECT_FALSE(foreign_local_inv(&self->pair, self->mw->rkey));
	EXPECT_FALSE(foreign_send_inv(&self->pair, self->mw->rkey));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_touch(&self->s, self->mw->rkey, MKT_READ, 0, ZONE));
}

/* nor bind it: otherwise the owner's peer would reach the memory of others */
TEST_F(foreign, bind)
{
	const struct mkt_end *plain = &self->s.plain[1];
	struct ibv_mw named;

	self->mw = ibv_alloc_mw(self->other.pd, IBV_MW_TYPE_1);
	ASSERT_NE(NULL, self->mw);
	/* the library refuses foreign windows, and windows of type 1 here */
	named = *self->mw;
	named.pd = self->s.dev[1].pd;
	named.type = IBV_MW_TYPE_2;
	EXPECT_EQ(EIO, mkt_bind_window(&self->s.pair.end[1], &named, self->s.key[1], 0, ZONE,
				       REMOTE));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(EIO, mkt_bind_window(&self->s.pair.end[1], &named, plain->mr, plain->addr, 1,
				       0));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
}

/* nor can a window be bound to an MR of another PD */
TEST_F(foreign, bind_to)
{
	struct ibv_mr *mr = ibv_reg_mr(self->other.pd, self->s.arena[1].mem[0].host, ZONE,
				       MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND);

	ASSERT_NE(NULL, mr);
	self->mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, self->mw);
	EXPECT_EQ(EIO, mkt_bind_window(&self->s.pair.end[1], self->mw, mr,
				       (uintptr_t)mr->addr, ZONE, REMOTE));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(0, ibv_dealloc_mw(self->mw));
	self->mw = NULL;
	EXPECT_EQ(0, ibv_dereg_mr(mr));
}

static int foreign_bind_as(struct mkt_qp *qp, struct ibv_mw *mw, struct ibv_mr *mr, uint32_t rkey)
{
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = mw,
			.rkey = rkey,
			.bind_info = { .mr = mr, .length = ZONE, .mw_access_flags = REMOTE },
		},
	};
	struct ibv_wc wc;
	int err = ibv_post_send(qp->qp, &wr, &bad) ?: mkt_poll(qp, &wc);

	return err ?: wc.status;
}

/*
 * a READ of a window's first peer is sent again when another peer has the
 * window
 */
TEST_F(foreign, replay)
{
	struct mkt_setup *s = &self->s;
	uint8_t *host = s->arena[1].mem[0].host;
	struct ibv_mr *own = ibv_reg_mr(s->dev[1].pd, host, ZONE, MKT_ACCESS_ALL);
	struct ibv_sge sge = { .addr = (uintptr_t)host, .length = ZONE };
	struct mkt_wr inv = { .op = MKT_LOCAL_INV };
	struct mkt_replay replay;
	struct mkt_pair second;
	uint32_t rkey;

	ASSERT_NE(NULL, own);
	sge.lkey = own->lkey;
	ASSERT_EQ(0, ibv_rereg_mr_sg(s->key[1], MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND, 1, &sge));
	ASSERT_EQ(0, mkt_pair_create(&second, &s->dev[0], &s->dev[1], IBV_MTU_1024, 0));
	self->mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, self->mw);
	memset(host, 0x11, ZONE);
	ASSERT_EQ(0, mkt_bind_window(&s->pair.end[1], self->mw, s->key[1], 0, ZONE, REMOTE));
	rkey = self->mw->rkey;
	ASSERT_EQ(0, mkt_replay_open(&replay, &s->dev[0]));
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_touch(s, rkey, MKT_READ, 0, 256));
	ASSERT_EQ(0, mkt_replay_find(&replay, MKT_BTH_READ_REQUEST));
	ASSERT_TRUE(foreign_local_inv(&second, rkey) == false);
	inv.rkey = rkey;
	ASSERT_EQ(IBV_WC_SUCCESS, mkt_status(&s->pair, 1, &inv));
	memset(host, 0x5c, ZONE);
	ASSERT_EQ(0, foreign_bind_as(&second.end[1], self->mw, s->key[1], rkey));
	EXPECT_EQ(0, mkt_replay_send(&replay, 0x5c, 256));
	mkt_replay_close(&replay);
	EXPECT_EQ(0, ibv_dealloc_mw(self->mw));
	self->mw = NULL;
	mkt_pair_destroy(&second);
	EXPECT_EQ(0, ibmkey_unbind(s->key[1]));
	EXPECT_EQ(0, ibv_dereg_mr(own));
}

#define MAX_KEYS 64
#define HIDDEN 2	/* a window that was bound twice has so many hidden MRs */

/* the keys of all MRs of the device, also of MRs that no process has */
static unsigned int foreign_keys(const struct mkt_dev *dev, uint32_t key[MAX_KEYS])
{
	static const char keys[] = "sed -n 's/.* rkey 0x\\([0-9a-f]*\\) .*/\\1/p' | tr '\\n' ' '";
	char line[16 * MAX_KEYS] = "", *at = line, *end;
	unsigned int n;

	if (!mkt_command(line, sizeof(line), "rdma resource show mr dev %s 2>/dev/null | %s",
			 dev->name, keys))
		mkt_command(line, sizeof(line),
			    "ip netns exec %s rdma resource show mr dev %s 2>/dev/null | %s",
			    dev->netns, dev->name, keys);
	for (n = 0; n < MAX_KEYS; n++, at = end) {
		key[n] = strtoul(at, &end, 16);
		if (end == at)
			break;
	}
	return n;
}

/* the number of a peer's requests that succeed with the rkey */
static unsigned int foreign_remote(struct mkt_setup *s, struct mkt_pair *pair, uint32_t rkey)
{
	static const enum mkt_op ops[] = {
		MKT_READ, MKT_WRITE, MKT_FETCH_ADD, MKT_CMP_SWAP, MKT_ATOMIC_WRITE,
	};
	const struct mkt_end *plain = &s->plain[0];
	unsigned int o, done = 0;

	for (o = 0; o < ARRAY_SIZE(ops); o++) {
		struct mkt_wr wr = {
			.op = ops[o],
			.sge[0] = { plain->addr, 8, plain->mr->lkey },
			.num_sge = 1,
			.rkey = rkey,
		};
		bool failed = mkt_status(pair, 0, &wr) != IBV_WC_SUCCESS;

		done += !failed || mkt_pair_recover(pair);
	}
	return done;
}

/* the number of requests of side 1 that succeed with the lkey */
static unsigned int foreign_local(struct mkt_setup *s, struct mkt_pair *pair, uint32_t lkey)
{
	const struct mkt_end *plain = &s->plain[0];
	struct mkt_wr recv = { .sge[0] = { 0, 8, lkey }, .num_sge = 1 };
	struct mkt_wr send = {
		.op = MKT_SEND,
		.sge[0] = { plain->addr, 8, plain->mr->lkey },
		.num_sge = 1,
	};
	struct mkt_wr own[] = { { .op = MKT_WRITE }, { .op = MKT_READ } };
	struct mkt_result result = {};
	unsigned int i, done = 0;
	bool failed;

	for (i = 0; i < ARRAY_SIZE(own); i++) {
		own[i].sge[0] = recv.sge[0];
		own[i].num_sge = 1;
		own[i].remote_addr = plain->addr;
		own[i].rkey = plain->mr->rkey;
		failed = mkt_status(pair, 1, &own[i]) != IBV_WC_SUCCESS;
		done += !failed || mkt_pair_recover(pair);
	}
	failed = mkt_exec(pair, 0, &send, &recv, &result) ||
		 result.status != IBV_WC_SUCCESS || result.recv_status != IBV_WC_SUCCESS;
	return done + (!failed || mkt_pair_recover(pair));
}

/* the number of uses of an MR by its keys that succeed */
static unsigned int foreign_uses(struct mkt_setup *s, struct mkt_pair *pair, uint32_t key)
{
	struct ibv_mw *mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_2);
	struct ibv_mr *over = ibmkey_alloc(s->dev[1].pd, 1);
	struct ibv_sge sge = { 0, 8, key };
	struct ibv_mr named = *s->key[1];
	unsigned int done = 0;

	if (!mw || !over)
		return 1;
	named.lkey = key;
	done += foreign_remote(s, pair, key);
	done += foreign_local(s, pair, key);
	done += foreign_local_inv(pair, key);
	done += foreign_send_inv(pair, key);
	done += mkt_bind_window(&pair->end[1], mw, &named, 0, 8, REMOTE) != EIO ||
		mkt_pair_recover(pair);
	done += ibv_rereg_mr_sg(over, MKT_ACCESS_ALL, 1, &sge) != ENOENT;
	return done + !!ibv_dereg_mr(over) + !!ibv_dealloc_mw(mw);
}

/* a request with another rkey makes no hidden MR, which takes memory and time */
TEST_F(foreign, bind_by_wrong_rkey)
{
	uint32_t before[MAX_KEYS], after[MAX_KEYS];
	struct mkt_setup *s = &self->s;
	struct ibv_mw named;
	unsigned int n;

	self->mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_2);
	ASSERT_NE(NULL, self->mw);
	n = foreign_keys(&s->dev[1], before);
	ASSERT_NE(0, n);
	named = *self->mw;
	named.rkey ^= 3;
	EXPECT_EQ(EIO, mkt_bind_window(&s->pair.end[1], &named, s->key[1], 0, ZONE, REMOTE));
	ASSERT_EQ(0, mkt_pair_recover(&s->pair));
	EXPECT_EQ(n, foreign_keys(&s->dev[1], after));
	ASSERT_EQ(0, mkt_bind_window(&s->pair.end[1], self->mw, s->key[1], 0, ZONE, REMOTE));
	EXPECT_EQ(n + 1, foreign_keys(&s->dev[1], after));
}

struct foreign_thread {
	struct mkt_setup *s;
	struct ibv_mw *mw;
	atomic_bool stop;
	_Atomic int err;
	atomic_uint done;
};

static void *foreign_loop(void *arg)
{
	struct foreign_thread *thread = arg;

	while (!atomic_load(&thread->stop) && !thread->err) {
		thread->err = mkt_bind_window(&thread->s->pair.end[1], thread->mw,
					      thread->s->key[1], 0, ZONE, FOREIGN_ALL);
		thread->done++;
	}
	return NULL;
}

static bool foreign_began(const struct foreign_thread *thread)
{
	return thread->done || thread->err;
}

/*
 * A window is bound to a hidden MR. The keys of that MR can be guessed, and must
 * not work: they would reach its bytes without the window. Before, during and
 * after binds.
 */
TEST_F(foreign, hidden)
{
	uint32_t before[MAX_KEYS], now[MAX_KEYS], hidden[HIDDEN] = {};
	struct mkt_setup *s = &self->s;
	/* aligned in memory, for atomics */
	struct mkt_block block = { .offset = -s->plain[1].addr & 7, .bytes = ZONE };
	struct mkt_layout layout = { .num_blocks = 1, .block = &block };
	unsigned int i, j, n, found = 0, rounds = mkt_scale(20, 3);
	struct foreign_thread thread = { .s = s };
	struct mkt_pair second;
	pthread_t tid;

	ASSERT_EQ(0, mkt_layout_bind(s->key[1], &s->arena[1], &layout,
				     MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND));
	ASSERT_EQ(0, mkt_pair_create(&second, &s->dev[0], &s->dev[1], IBV_MTU_1024, 0));
	self->mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_1);
	ASSERT_NE(NULL, self->mw);
	n = foreign_keys(&s->dev[1], before);
	ASSERT_NE(0, n);
	for (i = 0; i < HIDDEN; i++)
		ASSERT_EQ(0, mkt_bind_window(&s->pair.end[1], self->mw, s->key[1], 0, ZONE,
					     FOREIGN_ALL));
	ASSERT_EQ(n + HIDDEN, foreign_keys(&s->dev[1], now));
	for (i = 0; i < n + HIDDEN; i++) {
		for (j = 0; j < n && before[j] != now[i]; j++)
			;
		if (j == n && found < HIDDEN)
			hidden[found++] = now[i];
	}
	ASSERT_EQ(HIDDEN, found);
	/* what works with a key that may be used */
	EXPECT_EQ(5, foreign_remote(s, &second, self->mw->rkey));
	EXPECT_EQ(3, foreign_local(s, &second, s->key[1]->lkey));
	for (i = 0; i < HIDDEN; i++)
		EXPECT_EQ(0, foreign_uses(s, &second, hidden[i]));

	thread.mw = self->mw;
	ASSERT_EQ(0, pthread_create(&tid, NULL, foreign_loop, &thread));
	for (i = 0; i < rounds * HIDDEN || !foreign_began(&thread); i++)
		EXPECT_EQ(0, foreign_uses(s, &second, hidden[i % HIDDEN]));
	atomic_store(&thread.stop, true);
	pthread_join(tid, NULL);
	TH_LOG("%u binds", thread.done);
	EXPECT_EQ(0, thread.err);

	EXPECT_EQ(5, foreign_remote(s, &second, self->mw->rkey));
	EXPECT_EQ(0, ibv_dealloc_mw(self->mw));
	self->mw = NULL;
	for (i = 0; i < HIDDEN; i++)
		EXPECT_EQ(0, foreign_uses(s, &second, hidden[i]));
	mkt_pair_destroy(&second);
}

TEST_HARNESS_MAIN
