// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Operations while an access by a key waits for a page. A table says which of them wait
 * until the access ends, which wait for two seconds at most, and which do not wait. Each access
 * uses the binding that it began with. Other keys and queue pairs do not wait, and a worker of the
 * driver does not wait arbitrarily long. stock_waits has other devices.
 * needs: on-demand
 * sets: first long
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "slow_test.h"

/* the offset of the access in its page */
#define AT 72

FIXTURE(slow)
{
	struct slow_test t;
};

FIXTURE_SETUP(slow)
{
	SLOW_SETUP(&self->t);
}

FIXTURE_TEARDOWN(slow)
{
	EXPECT_EQ(0, slow_test_free(&self->t));
}

/* the operations, for a thread; a bind is one to ordinary memory */

static int bind_by_call(void *arg)
{
	struct slow_test *t = arg;

	return slow_bind_plain(&t->s, t->s.key[1]);
}

static int unbind(void *arg)
{
	struct slow_test *t = arg;

	return ibmkey_unbind(t->s.key[1]);
}

static int dereg_key(void *arg)
{
	struct slow_test *t = arg;

	return slow_free_mr(&t->s.key[1]);
}

static int invalidate(void *arg)
{
	struct slow_test *t = arg;
	struct mkt_wr inv = { .op = MKT_LOCAL_INV, .rkey = t->s.key[1]->rkey };

	return mkt_status(&t->other, 1, &inv);
}

static int bind_by_request(void *arg)
{
	struct slow_test *t = arg;
	const struct mkt_end *plain = &t->s.plain[1];
	struct ibmkey_wr wr;

	mkt_request_range(&t->text, 0, slow_range(plain->addr, LENGTH, plain->mr));
	wr = mkt_request_wr(&t->text, t->s.key[1]);
	return mkt_request_inline(&t->other.end[1], &wr);
}

static int dereg_leaf(void *arg)
{
	struct slow_test *t = arg;

	return ibv_dereg_mr(t->mr[1]);
}

static const struct operation {
	const char *name;
	int (*run)(void *t);
	/* for the access; after TWO_SECONDS the operation fails */
	enum { UNTIL_IT_ENDS, TWO_SECONDS, NOT_AT_ALL } waits;
	int result;
} operations[] = {
	{ "bind by a call",	bind_by_call,		UNTIL_IT_ENDS,	0 },
	{ "unbind",		unbind,			UNTIL_IT_ENDS,	0 },
	{ "dereg of the key",	dereg_key,		UNTIL_IT_ENDS,	0 },
	{ "LOCAL_INV",		invalidate,		TWO_SECONDS,	IBV_WC_LOC_QP_OP_ERR },
	{ "bind by a request",	bind_by_request,	NOT_AT_ALL,	IBV_WC_SUCCESS },
	{ "dereg of the leaf",	dereg_leaf,		NOT_AT_ALL,	EBUSY },
};

/* binds the key of side 1 over page @page, and starts an access that waits for it */
static const char *slow_begin(struct slow_test *t, enum mkt_op op, unsigned int page)
{
	uint64_t addr = slow_page(t, page) + AT;
	struct ibv_mr *key = t->s.key[1] ?: ibmkey_alloc(t->s.dev[1].pd, slow_wants.max_entries);

	t->s.key[1] = key;
	if (!key || mkt_bind_range(key, MKT_ACCESS_ALL, t->mr[1], addr, LENGTH))
		return "the first bind";
	return slow_hold(t, op, key->rkey);
}

/* what waits for nothing while an access waits for a page, and an operation for the access */
static const char *slow_others(struct slow_test *t)
{
	const struct mkt_end *plain = &t->s.plain[1];
	struct mkt_wr wr = slow_wr(&t->s, MKT_WRITE, plain->addr + LENGTH, plain->mr->rkey);

	if (slow_bind_plain(&t->s, t->unused) || ibmkey_unbind(t->unused))
		return "another key";
	if (mkt_status(&t->other, 0, &wr) != IBV_WC_SUCCESS)
		return "another queue pair";
	return NULL;
}

/*
 * What must happen before the page arrives. With @late, that is after the kernel's page walk has
 * given up, which it does when another page is unmapped meanwhile.
 */
static const char *slow_meanwhile(struct slow_test *t, const struct operation *operation, bool late)
{
	struct slow_thread *thread = &t->thread[0];
	const char *wrong;

	if (operation->waits != NOT_AT_ALL && slow_returns(thread, late ? 1500 : 500))
		return "it did not wait";
	if (operation->waits != UNTIL_IT_ENDS)
		return slow_returns(thread, 1000 * MKT_STALL_SECONDS) ? NULL : "it waits";
	/* as the kernel itself does, to move pages or to find those in use */
	if (late && madvise(t->slow.map + t->slow.size - PAGE, PAGE, MADV_DONTNEED))
		return "another page";
	wrong = slow_others(t);
	if (!wrong && !atomic_load(&thread->running))
		wrong = "it waited for another key's access";
	return wrong;
}

/* the bytes after the access, which used the binding that it began with */
static const char *slow_bytes(struct slow_test *t, enum mkt_op op, unsigned int page,
			      const uint8_t *before)
{
	const uint8_t *at = (const uint8_t *)(uintptr_t)slow_page(t, page) + AT;
	const uint8_t *sent = (const uint8_t *)(uintptr_t)t->s.plain[0].addr;
	unsigned int i;
	uint64_t word;

	switch (op) {
	case MKT_WRITE:
		if (memcmp(at, sent, LENGTH))
			return "what was written";
		break;
	case MKT_READ:
		for (i = 0; i < LENGTH; i++)
			if (sent[i])
				return "what was read";
		break;
	default:
		memcpy(&word, at, sizeof(word));
		if (word != 3)
			return "what was added";
	}
	return memcmp((const void *)(uintptr_t)t->s.plain[1].addr, before, LENGTH) ?
	       "what is bound now: it was written" : NULL;
}

/*
 * One access by a key over a page that is held back, while the operation runs. Returns an error
 * message, or NULL.
 */
static const char *slow_round(struct slow_test *t, const struct operation *operation,
			      enum mkt_op op, unsigned int page, bool late)
{
	uint8_t before[LENGTH];
	const char *wrong;
	int result;

	mkt_rand_bytes(&t->s.rng, (void *)(uintptr_t)t->s.plain[0].addr, LENGTH);
	memcpy(before, (const void *)(uintptr_t)t->s.plain[1].addr, LENGTH);
	wrong = slow_begin(t, op, page);
	slow_run(&t->thread[0], operation->run, t);
	wrong = wrong ?: slow_meanwhile(t, operation, late);
	mkt_slow_hold(&t->slow, false);
	result = slow_join(&t->thread[0]);
	if (wrong)
		return wrong;
	if (result != operation->result)
		return "its result";
	if (slow_status(&t->s.pair.end[0], 1) != IBV_WC_SUCCESS)
		return "the access";
	/* the queue pair of an invalidation that failed */
	if (operation->waits == TWO_SECONDS && mkt_pair_recover(&t->other))
		return "the queue pair";
	return slow_bytes(t, op, page, before);
}

static void slow_rounds(struct __test_metadata *_metadata, struct slow_test *t, enum mkt_op op)
{
	unsigned int i, k, page = 0, rounds = mkt_quick() ? 1 : 3;
	const char *wrong = NULL;

	for (k = 0; k < ARRAY_SIZE(operations) && !wrong; k++) {
		for (i = 0; i < rounds && !wrong; i++)
			wrong = slow_round(t, &operations[k], op, page++, !i);
		if (wrong)
			TH_LOG("round %u of %s", i, operations[k].name);
	}
	slow_expect(_metadata, wrong);
}

TEST_F(slow, write)
{
	slow_rounds(_metadata, &self->t, MKT_WRITE);
}

TEST_F(slow, read)
{
	slow_rounds(_metadata, &self->t, MKT_READ);
}

TEST_F(slow, atomic)
{
	slow_rounds(_metadata, &self->t, MKT_FETCH_ADD);
}

/*
 * makes queue pairs of side 1 that are connected to themselves, before any page is
 * held back
 */
static int slow_queue_pairs(struct mkt_setup *s, struct mkt_qp *qp, unsigned int count)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < count && !err; i++) {
		struct mkt_peer self;

		err = mkt_qp_create(&qp[i], &s->dev[1], 0);
		if (!err) {
			mkt_qp_self(&qp[i], &self);
			err = mkt_qp_connect(&qp[i], &self, IBV_MTU_1024);
		}
	}
	return err;
}

/*
 * Lets @count queue pairs invalidate a key whose access waits for page @page. Returns a message if
 * that disturbs others, or if the key stays bound.
 */
static const char *slow_invalidate(struct slow_test *t, struct mkt_qp *qp, unsigned int count,
				   unsigned int page)
{
	const char *wrong = slow_begin(t, MKT_WRITE, page);
	struct mkt_wr inv = { .op = MKT_LOCAL_INV };
	unsigned int i;

	if (wrong)
		return wrong;
	inv.rkey = t->s.key[1]->rkey;
	for (i = 0; i < count; i++)
		if (mkt_post_send(&qp[i], &inv, 1))
			return "the post of an invalidation";
	wrong = slow_others(t);
	for (i = 0; i < count && !wrong; i++)
		if (slow_status(&qp[i], 1) <= IBV_WC_SUCCESS)
			wrong = "an invalidation: it did not end in an error";
	if (!wrong && mkt_kind_of(t->s.key[1]) != IBMKEY_UNBOUND)
		wrong = "the key: it is bound";
	return wrong;
}

/* the same; then the operation still waits for the access */
static void slow_occupied(struct __test_metadata *_metadata, struct slow_test *t,
			  const struct operation *operation, struct mkt_qp *qp, unsigned int count)
{
	const char *wrong = slow_invalidate(t, qp, count, 28 + (operation - operations));

	slow_run(&t->thread[0], operation->run, t);
	if (!wrong && slow_returns(&t->thread[0], 500))
		wrong = "the operation: it did not wait";
	mkt_slow_hold(&t->slow, false);
	EXPECT_EQ(operation->result, slow_join(&t->thread[0]));
	slow_expect(_metadata, wrong);
}

/*
 * A worker of the driver, which executes a LOCAL_INV of a key whose access waits for a page, does
 * not wait arbitrarily long for the page. More of them than the driver has workers delay no other
 * queue pair. A later operation that waits for the access still does.
 */
TEST_F(slow, workers)
{
	unsigned int i, count = mkt_scale(2100, 300);
	struct mkt_qp *qp = calloc(count, sizeof(*qp));
	struct mkt_setup *s = &self->t.s;

	ASSERT_NE(NULL, qp);
	ASSERT_EQ(0, slow_queue_pairs(s, qp, count));
	slow_occupied(_metadata, &self->t, &operations[0], qp, count);
	EXPECT_EQ(IBV_WC_SUCCESS, slow_status(&s->pair.end[0], 1));
	for (i = 0; i < count; i++)
		mkt_qp_destroy(&qp[i]);
	free(qp);
	/* a worker of the queue pair that executes the access */
	for (i = 1; operations[i].waits == UNTIL_IT_ENDS; i++) {
		slow_occupied(_metadata, &self->t, &operations[i], &s->pair.end[1], 1);
		EXPECT_EQ(0, mkt_pair_recover(&s->pair));
	}
	/* the leaf has been released */
	EXPECT_EQ(0, slow_free_mr(&self->t.mr[1]));
}

TEST_HARNESS_MAIN
