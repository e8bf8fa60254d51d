// SPDX-License-Identifier: GPL-2.0
/*
 * subject: The order of requests that bind keys and of requests that use them. All requests of a
 * round are posted at once: bind, WRITE, bind another layout, WRITE, LOCAL_INV. Each WRITE must
 * carry the bytes of its own layout, also if packets are lost and rxe gathers the bytes again.
 * needs: netem
 * sets: long smp
 */
#include <stdlib.h>
#include <unistd.h>

#include "loop.h"
#include "mkey_harness.h"
#include "request.h"

#define LAYOUTS 6
#define ROOM 4096
#define LENGTH (6 * 1024)
#define HOST (96 * 1024)
#define THREADS 4
#define QPS 8

/* a queue pair with a key, and the layouts that the key is bound to */
struct order_queue {
	struct mkt_setup *s;
	struct mkt_pair pair;
	struct ibv_mr *key;
	struct mkt_request text[LAYOUTS];
	struct mkt_map map[LAYOUTS];
	struct ibv_mr *sink;
	uint8_t *received;
	struct mkt_rng rng;
};

/* a layout of at most LENGTH bytes: a list, or repeated blocks */
static int order_layout(struct order_queue *queue, unsigned int i)
{
	struct mkt_draw draw = {
		.min_length = LENGTH / 2,
		.max_length = LENGTH,
		.max_block = 2 * 1024,
		.max_blocks = 24,
		.max_dims = 2,
	};
	struct mkt_arena *arena = &queue->s->arena[0];
	struct mkt_layout layout;
	int err;

	err = mkt_draw_layout(&layout, &queue->rng, arena, i & 1 ? MKT_STRIDED : MKT_LIST,
			      &draw);
	if (err)
		return err;
	err = mkt_request_describe(&queue->text[i], arena, &layout);
	if (!err)
		err = mkt_layout_map(arena, &layout, &queue->map[i]);
	mkt_layout_free(&layout);
	return err;
}

static void order_close(struct order_queue *queue)
{
	unsigned int i;

	mkt_pair_destroy(&queue->pair);
	if (queue->key)
		ibv_dereg_mr(queue->key);
	for (i = 0; i < LAYOUTS; i++) {
		mkt_request_free(&queue->text[i]);
		mkt_map_free(&queue->map[i]);
	}
	if (queue->sink)
		ibv_dereg_mr(queue->sink);
	free(queue->received);
}

static int order_open(struct order_queue *queue, struct mkt_setup *s, unsigned int flags,
		      unsigned int number)
{
	char salt[32];
	unsigned int i;
	int err;

	memset(queue, 0, sizeof(*queue));
	queue->s = s;
	snprintf(salt, sizeof(salt), "order %u", number);
	mkt_rng_init(&queue->rng, salt);
	err = mkt_pair_create(&queue->pair, &s->dev[0], &s->dev[1], IBV_MTU_1024, flags);
	if (err)
		return err;
	queue->key = ibmkey_alloc(s->dev[0].pd, 64);
	queue->received = calloc(2, LENGTH);
	if (!queue->key || !queue->received)
		return errno ?: ENOMEM;
	queue->sink = ibv_reg_mr(s->dev[1].pd, queue->received, 2 * LENGTH,
				 MKT_ACCESS_ALL);
	if (!queue->sink)
		return errno;
	for (i = 0; i < LAYOUTS && !err; i++) {
		err = mkt_request_init(&queue->text[i], s->dev[0].pd, ROOM);
		if (!err)
			err = order_layout(queue, i);
	}
	return err;
}

/* the bytes of layout @i arrived in half @half of the sink */
static bool order_arrived(struct order_queue *queue, unsigned int i, unsigned int half)
{
	const uint8_t *got = queue->received + half * LENGTH;
	size_t at;

	if (queue->map[i].length > LENGTH)
		return false;
	for (at = 0; at < queue->map[i].length; at++)
		if (got[at] != queue->s->arena[0].expect[queue->map[i].pos[at]]) {
			mkt_diag("layout %u, byte %zu of %zu in half %u is wrong", i, at,
				 queue->map[i].length, half);
			return false;
		}
	return true;
}

/* one round, whose requests are posted at once */
static int order_round(struct order_queue *queue)
{
	struct mkt_qp *self = &queue->pair.end[0], *peer = &queue->pair.end[1];
	struct mkt_wr nothing = { .op = MKT_SEND };
	struct mkt_wr inv = { .op = MKT_LOCAL_INV };
	unsigned int i, which[2];
	struct ibmkey_info info = {};
	struct ibv_wc wc;
	int err = 0;

	memset(queue->received, 0, 2 * LENGTH);
	/* one bind changes the key portion, the other one does not */
	for (i = 0; i < 2 && !err; i++) {
		struct ibmkey_wr wr;
		struct mkt_wr write = {
			.op = MKT_WRITE,
			.num_sge = 1,
			.remote_addr = (uintptr_t)queue->received + i * LENGTH,
			.rkey = queue->sink->rkey,
		};

		which[i] = mkt_between(&queue->rng, 0, LAYOUTS - 1);
		wr = mkt_request_wr(&queue->text[which[i]], queue->key);
		wr.rkey = i ? 0 : ibv_inc_rkey(queue->key->rkey);
		err = ibmkey_post_bind(self->qp, &wr, 10 + i, 0);
		write.sge[0].lkey = queue->key->lkey;
		write.sge[0].length = queue->map[which[i]].length;
		if (!err)
			err = mkt_post_send(self, &write, 20 + i);
	}
	inv.rkey = queue->key->rkey;
	if (!err)
		err = mkt_post_send(self, &inv, 30);
	/* UC: what was sent before a message has arrived before it */
	if (!err)
		err = mkt_post_recv(peer, NULL, 0, 40);
	if (!err)
		err = mkt_post_send(self, &nothing, 41);
	for (i = 0; i < 6 && !err; i++) {
		err = mkt_poll(self, &wc);
		if (!err && wc.status) {
			mkt_diag("request %lu: %s", (long)wc.wr_id,
				 ibv_wc_status_str(wc.status));
			err = EIO;
		}
	}
	if (!err)
		err = mkt_poll(peer, &wc);
	if (!err)
		err = ibmkey_query(queue->key, &info);
	if (err)
		return err;
	if (info.kind != IBMKEY_UNBOUND) {
		mkt_diag("the key is still bound");
		return EBADMSG;
	}
	queue->key->lkey = info.lkey;
	queue->key->rkey = info.rkey;
	return order_arrived(queue, which[0], 0) && order_arrived(queue, which[1], 1) ?
	       0 : EBADMSG;
}

FIXTURE(order)
{
	struct mkt_setup s;
	struct mkt_netem netem[2];
};

FIXTURE_VARIANT(order)
{
	unsigned int flags;
	const char *netem;	/* what happens to the packets of both sides */
};

FIXTURE_VARIANT_ADD(order, rc) { .flags = 0 };
FIXTURE_VARIANT_ADD(order, uc) { .flags = MKT_QP_UC };
/* a bind that is executed again fails, because the first one changed the key portion */
FIXTURE_VARIANT_ADD(order, lost) { .flags = MKT_QP_LOSSY, .netem = "loss 8%" };
FIXTURE_VARIANT_ADD(order, reordered) { .flags = MKT_QP_LOSSY, .netem = "delay 4ms reorder 40%" };

FIXTURE_SETUP(order)
{
	unsigned int i;

	MKT_SETUP(&self->s, .host = HOST, .flags = variant->flags & MKT_QP_LOSSY);
	if (!variant->netem)
		return;
	MKT_NETEM(self->netem, self->s.dev);
	for (i = 0; i < 2; i++)
		if (!mkt_netem_set(&self->netem[i], variant->netem))
			SKIP(return, "no netem");
}

FIXTURE_TEARDOWN(order)
{
	unsigned int i;

	for (i = 0; i < 2 && variant->netem; i++)
		mkt_netem_close(&self->netem[i]);
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

TEST_F(order, requests_of_one_queue)
{
	unsigned int i, rounds = variant->netem ? mkt_rounds(200, 24) : mkt_rounds(10000, 400);
	struct order_queue queue;

	ASSERT_EQ(0, order_open(&queue, &self->s, variant->flags, 0));
	for (i = 0; i < rounds; i++) {
		ASSERT_EQ(0, order_round(&queue));
	}
	order_close(&queue);
}

struct order_thread {
	struct mkt_loop loop;
	struct order_queue queue[QPS / THREADS];
};

static int order_step(void *arg, unsigned int round)
{
	struct order_thread *thread = arg;
	unsigned int k;
	int err = 0;

	for (k = 0; k < QPS / THREADS && !err; k++)
		err = order_round(&thread->queue[k]);
	return err;
}

TEST_F(order, eight_queues_in_four_threads)
{
	struct order_thread *thread = calloc(THREADS, sizeof(*thread));
	unsigned int i, k, rounds = variant->netem ? mkt_rounds(30, 4) : mkt_rounds(1000, 24);

	ASSERT_NE(NULL, thread);
	for (i = 0; i < THREADS; i++)
		for (k = 0; k < QPS / THREADS; k++) {
			ASSERT_EQ(0, order_open(&thread[i].queue[k], &self->s,
						variant->flags, 2 * i + k));
		}
	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, mkt_loop_start(&thread[i].loop, order_step, &thread[i]));
	for (i = 0; i < THREADS; i++) {
		EXPECT_EQ(0, mkt_loop_wait(&thread[i].loop, rounds));
		for (k = 0; k < QPS / THREADS; k++)
			order_close(&thread[i].queue[k]);
	}
	free(thread);
}

/*
 * A READ brings the description of another length. With the fence flag a bind of
 * an unbound key waits for it, too.
 */
TEST_F(order, fence)
{
	struct mkt_setup *s = &self->s;
	struct mkt_leaf *leaf = &s->arena[0].leaf[0];
	struct ibmkey_range range = {
		.addr = leaf->addr,
		.length = 64,
		.lkey = leaf->mr->lkey,
	};
	struct mkt_request text, other;
	struct mkt_wr read = { .op = MKT_READ, .num_sge = 1 };
	struct ibmkey_info info = {};
	struct ibmkey_wr wr;
	struct ibv_mr *key;
	struct ibv_wc wc;
	unsigned int i, k;

	if (variant->flags & MKT_QP_UC)
		SKIP(return, "no READ on UC");
	key = ibmkey_alloc(s->dev[0].pd, 4);
	ASSERT_NE(NULL, key);
	ASSERT_EQ(0, mkt_request_init(&text, s->dev[0].pd, ROOM));
	ASSERT_EQ(0, mkt_request_init(&other, s->dev[1].pd, ROOM));
	/* side 0 reads this memory of side 1 */
	ASSERT_EQ(0, ibv_dereg_mr(other.mr));
	other.mr = ibv_reg_mr(s->dev[1].pd, other.text, ROOM, MKT_ACCESS_ALL);
	ASSERT_NE(NULL, other.mr);
	range.length = 128;
	mkt_request_range(&other, 0, range);
	ASSERT_EQ(48, other.length);
	range.length = 64;
	for (i = 0; i < mkt_scale(variant->netem ? 30 : 300, variant->netem ? 5 : 30); i++) {
		mkt_request_range(&text, 0, range);
		read.sge[0].addr = (uintptr_t)text.text;
		read.sge[0].length = text.length;
		read.sge[0].lkey = text.mr->lkey;
		read.remote_addr = (uintptr_t)other.text;
		read.rkey = other.mr->rkey;
		wr = mkt_request_wr(&text, key);
		ASSERT_EQ(0, mkt_post_send(&s->pair.end[0], &read, 1));
		ASSERT_EQ(0, ibmkey_post_bind(s->pair.end[0].qp, &wr, 2, IBV_SEND_FENCE));
		for (k = 0; k < 2; k++) {
			ASSERT_EQ(0, mkt_poll(&s->pair.end[0], &wc));
			ASSERT_EQ(IBV_WC_SUCCESS, wc.status);
		}
		ASSERT_EQ(0, ibmkey_query(key, &info));
		ASSERT_EQ(128, info.length);
		ASSERT_EQ(0, ibmkey_unbind(key));
	}
	EXPECT_EQ(0, ibv_dereg_mr(key));
	mkt_request_free(&other);
	mkt_request_free(&text);
}

TEST_HARNESS_MAIN
