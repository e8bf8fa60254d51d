// SPDX-License-Identifier: GPL-2.0
/*
 * subject: A memory window and the key under it: which access the key must allow, and what
 * happens when one of the two is bound while the other is in use.
 * sets: smp
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "mkey_harness.h"

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
		IBV_ACCESS_REMOTE_ATOMIC)
#define ZONE 4096
/* the window is a part of the MR */
#define AT 128
#define LENGTH 2048

FIXTURE(wkey)
{
	struct mkt_setup s;
	struct ibv_mr *leaf;
};

FIXTURE_SETUP(wkey)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		.host = 4 * ZONE,
		.max_entries = 4,
	};

	MKT_OPEN_EXTENDED(self->s.dev);
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	self->leaf = self->s.arena[1].leaf[0].mr;
}

FIXTURE_TEARDOWN(wkey)
{
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* a window gives a peer access that the key itself does not */
TEST_F(wkey, window_of_local_key)
{
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	struct ibv_mr *key = self->s.key[1];

	ASSERT_NE(NULL, mw);
	ASSERT_EQ(0, mkt_layout_bind(key, &self->s.arena[1],
				     &(struct mkt_layout){ .num_blocks = 1,
					.block = &(struct mkt_block){ .bytes = ZONE } },
				     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], mw, key, AT, LENGTH, REMOTE));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, mw->rkey, MKT_READ, AT, LENGTH));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, mw->rkey, MKT_WRITE, AT, LENGTH));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, mkt_try(&self->s, key->rkey, MKT_READ, AT, 1));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
}

/* a window cannot write where the key itself cannot */
TEST_F(wkey, window_of_read_only_key)
{
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	struct ibv_mr *key = self->s.key[1];

	ASSERT_NE(NULL, mw);
	ASSERT_EQ(0, mkt_layout_bind(key, &self->s.arena[1],
				     &(struct mkt_layout){ .num_blocks = 1,
					.block = &(struct mkt_block){ .bytes = ZONE } },
				     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND));
	EXPECT_EQ(EIO, mkt_bind_window(&self->s.pair.end[1], mw, key, AT, LENGTH, REMOTE));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], mw, key, AT, LENGTH,
				     IBV_ACCESS_REMOTE_READ));
	EXPECT_EQ(IBV_WC_SUCCESS, mkt_try(&self->s, mw->rkey, MKT_READ, AT, LENGTH));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
}

/* an MR of another PD, whose lkey a process may have guessed */
TEST_F(wkey, window_of_other_pd)
{
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	struct ibv_pd *pd = ibv_alloc_pd(self->s.dev[1].ctx);
	struct ibv_mr *leaf, *key;
	struct ibv_sge sge = { .length = ZONE };

	ASSERT_NE(NULL, mw);
	ASSERT_NE(NULL, pd);
	leaf = ibv_reg_mr(pd, self->s.arena[1].mem[0].host, ZONE, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, leaf);
	key = ibmkey_alloc(pd, 1);
	ASSERT_NE(NULL, key);
	sge.addr = (uintptr_t)leaf->addr;
	sge.lkey = leaf->lkey;
	ASSERT_EQ(0, ibv_rereg_mr_sg(key, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND, 1, &sge));
	EXPECT_EQ(EIO, mkt_bind_window(&self->s.pair.end[1], mw, key, AT, LENGTH, REMOTE));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	EXPECT_EQ(0, ibv_dereg_mr(key));
	EXPECT_EQ(0, ibv_dereg_mr(leaf));
	EXPECT_EQ(0, ibv_dealloc_pd(pd));
	EXPECT_EQ(0, ibv_dealloc_mw(mw));
}

static int wkey_bind(struct mkt_setup *s, struct ibv_mr *leaf, size_t offset,
		     unsigned int access)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->arena[1].mem[0].host + offset,
		.length = ZONE,
		.lkey = leaf->lkey,
	};

	return ibv_rereg_mr_sg(s->key[1], access, 1, &sge);
}

struct wkey_thread {
	struct mkt_setup *s;
	struct ibv_mr *leaf;
	atomic_bool stop;
	unsigned int done, busy;
	int err;
};

static void *wkey_loop(void *arg)
{
	struct wkey_thread *thread = arg;
	unsigned int turn = 0;

	while (!atomic_load(&thread->stop) && !thread->err) {
		int err = wkey_bind(thread->s, thread->leaf, (++turn & 1) * ZONE,
					   MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND);

		if (!err)
			thread->done++;
		else if (err == EBUSY)
			thread->busy++;
		else
			thread->err = err;
	}
	return NULL;
}

static int wkey_peek(struct mkt_setup *s, uint32_t rkey)
{
	const uint8_t *here = (uint8_t *)(uintptr_t)s->plain[0].addr;

	return mkt_touch(s, rkey, MKT_READ, 0, 1) == IBV_WC_SUCCESS ? *here : -1;
}

/* while a window is bound, the binding of its key does not change */
TEST_F(wkey, window_against_rebind)
{
	struct mkt_setup *s = &self->s;
	struct wkey_thread thread = { .s = s };
	unsigned int i, j, rounds = mkt_scale(1000, 150), bad = 0, seen[2] = {};
	uint8_t *host = s->arena[1].mem[0].host;
	struct ibv_mw *mw;
	pthread_t tid;

	memset(host, 0xa0, ZONE);
	memset(host + ZONE, 0xa1, ZONE);
	thread.leaf = ibv_reg_mr(s->dev[1].pd, host, 2 * ZONE, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, thread.leaf);
	ASSERT_EQ(0, wkey_bind(s, thread.leaf, 0, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND));
	ASSERT_EQ(0, pthread_create(&tid, NULL, wkey_loop, &thread));
	for (i = 0; i < rounds || ((!seen[0] || !seen[1]) && i < 100000); i++) {
		int first;

		mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_2);
		ASSERT_NE(NULL, mw);
		ASSERT_EQ(0, mkt_bind_window(&s->pair.end[1], mw, s->key[1], 0, ZONE, REMOTE));
		first = wkey_peek(s, mw->rkey);
		ASSERT_EQ(0xa0, first & 0xfe);
		seen[first & 1]++;
		for (j = 0; j < 3; j++)
			bad += wkey_peek(s, mw->rkey) != first;
		ASSERT_EQ(0, ibv_dealloc_mw(mw));
	}
	atomic_store(&thread.stop, true);
	pthread_join(tid, NULL);
	TH_LOG("%u windows, %u rebinds, %u refused", i, thread.done, thread.busy);
	EXPECT_EQ(0, thread.err);
	EXPECT_EQ(0, bad);
	EXPECT_LT(0, thread.busy);
	EXPECT_EQ(0, ibmkey_unbind(s->key[1]));
	EXPECT_EQ(0, ibv_dereg_mr(thread.leaf));
}

/* binds a window, of type 1, to @mr again and again, and lets it keep its rkey */
struct wkey_binder {
	struct mkt_qp *qp;
	struct ibv_mw mw;
	struct ibv_mr *mr;
	uint64_t addr;
	pthread_t tid;
	int err;
};

static void *wkey_bind_loop(void *arg)
{
	struct wkey_binder *binder = arg;
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = &binder->mw,
			.rkey = binder->mw.rkey,
			.bind_info = {
				.mr = binder->mr,
				.addr = binder->addr,
				.length = ZONE,
				.mw_access_flags = REMOTE,
			},
		},
	};
	struct ibv_wc wc = {};
	unsigned int i;

	/* the library lets only windows of type 2 be posted */
	binder->mw.type = IBV_MW_TYPE_2;
	for (i = 0; i < 50 && !binder->err; i++)
		binder->err = ibv_post_send(binder->qp->qp, &wr, &bad) ?:
			      mkt_poll(binder->qp, &wc) ?: (int)wc.status;
	return NULL;
}

/*
 * Two QPs bind one window at the same time, to a key and to an ordinary MR. If the window is bound
 * to the MR in the end, the key can be unbound.
 */
TEST_F(wkey, window_of_two_queues)
{
	struct mkt_setup *s = &self->s;
	uint8_t *host = s->arena[1].mem[0].host;
	unsigned int i, j, free = 0, rounds = mkt_scale(200, 30);
	struct mkt_pair other;
	struct ibv_mr *mr;
	struct ibv_mw *mw;

	memset(host, 0xa0, ZONE);
	memset(host + ZONE, 0xa1, ZONE);
	mr = ibv_reg_mr(s->dev[1].pd, host, 2 * ZONE, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND);
	ASSERT_NE(NULL, mr);
	mw = ibv_alloc_mw(s->dev[1].pd, IBV_MW_TYPE_1);
	ASSERT_NE(NULL, mw);
	ASSERT_EQ(0, mkt_pair_create(&other, &s->dev[0], &s->dev[1], IBV_MTU_1024, 0));
	for (i = 0; i < rounds; i++) {
		struct wkey_binder binder[2] = {
			{ .qp = &s->pair.end[1], .mw = *mw, .mr = s->key[1] },
			{ .qp = &other.end[1], .mw = *mw, .mr = mr, .addr = (uintptr_t)host },
		};
		bool plain;

		ASSERT_EQ(0, wkey_bind(s, mr, ZONE, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND));
		for (j = 0; j < 2; j++)
			ASSERT_EQ(0, pthread_create(&binder[j].tid, NULL, wkey_bind_loop,
						    &binder[j]));
		for (j = 0; j < 2; j++) {
			pthread_join(binder[j].tid, NULL);
			ASSERT_EQ(0, binder[j].err);
		}
		plain = mkt_touch(s, mw->rkey, MKT_READ, (uintptr_t)host, 1) == IBV_WC_SUCCESS;
		if (plain) {
			/* the window is over the ordinary MR */
			ASSERT_EQ(0, ibmkey_unbind(s->key[1]));
			free++;
		} else {
			ASSERT_EQ(0, mkt_pair_recover(&s->pair));
			ASSERT_EQ(0xa1, wkey_peek(s, mw->rkey));
			ASSERT_EQ(EBUSY, ibmkey_unbind(s->key[1]));
			ASSERT_EQ(0, mkt_bind_window(&other.end[1], mw, mr, (uintptr_t)host, ZONE,
						     REMOTE));
			ASSERT_EQ(0, ibmkey_unbind(s->key[1]));
		}
	}
	TH_LOG("the ordinary MR was last %u times of %u", free, rounds);
	ASSERT_EQ(0, ibv_dealloc_mw(mw));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
	mkt_pair_destroy(&other);
}

TEST_HARNESS_MAIN
