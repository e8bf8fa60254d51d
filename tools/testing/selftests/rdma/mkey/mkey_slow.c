// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Changes of a key while an access by it waits for a page. Only a change of the same
 * key waits for the access, and a worker of the driver does not wait arbitrarily long.
 * needs: on-demand
 * sets: first long
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include "slow_test.h"

/* the offset of the access in its page */
#define AT 72

enum change { BIND, UNBIND, DEREG };

FIXTURE(slow)
{
	struct slow_test t;
};

FIXTURE_VARIANT(slow)
{
	enum change change;
};

FIXTURE_VARIANT_ADD(slow, bind) { .change = BIND };
FIXTURE_VARIANT_ADD(slow, unbind) { .change = UNBIND };
FIXTURE_VARIANT_ADD(slow, dereg) { .change = DEREG };

FIXTURE_SETUP(slow)
{
	SLOW_SETUP(&self->t);
}

FIXTURE_TEARDOWN(slow)
{
	EXPECT_EQ(0, slow_test_free(&self->t));
}

/* a change of the key of side 1, for a thread; a bind is one to ordinary memory */
struct slow_change {
	enum change change;
	const struct mkt_setup *s;
};

static int slow_change(void *arg)
{
	struct slow_change *change = arg;
	struct ibv_mr *key = change->s->key[1];

	switch (change->change) {
	case BIND:
		return slow_bind_plain(change->s, key);
	case UNBIND:
		return ibmkey_unbind(key);
	default:
		return ibv_dereg_mr(key);
	}
}

/* binds the key of side 1 over page @page, and starts an access that waits for it */
static const char *slow_begin(struct slow_test *t, enum mkt_op op, unsigned int page)
{
	if (mkt_bind_range(t->s.key[1], MKT_ACCESS_ALL, t->mr[1], slow_page(t, page) + AT, LENGTH))
		return "the first bind";
	return slow_hold(t, op, t->s.key[1]->rkey);
}

/*
 * A process that removes its own device when it is told to. It is made before
 * any page is held back, too.
 */
static pid_t slow_remover(int *tell)
{
	int fd[2];
	pid_t pid;
	char c;

	if (pipe(fd))
		return -1;
	pid = fork();
	if (!pid) {
		close(fd[1]);
		if (read(fd[0], &c, 1) != 1)
			_exit(0);
		_exit(system("rdma link add mkey_slow0 type rxe netdev lo") ||
		      system("rdma link delete mkey_slow0"));
	}
	close(fd[0]);
	*tell = fd[1];
	return pid;
}

/* returns true if the process ends without help and succeeds */
static bool slow_removes(pid_t pid, int tell)
{
	int status;

	return write(tell, "", 1) == 1 && mkt_ended(pid, MKT_STALL_SECONDS, &status) &&
	       WIFEXITED(status) && !WEXITSTATUS(status);
}

/*
 * What must happen while the change waits. With @late, the page arrives after the kernel's page
 * walk has given up, which it does when another page is unmapped meanwhile. Another process removes
 * its device if there is a @remover.
 */
static const char *slow_meanwhile(struct slow_test *t, pid_t remover, int tell, bool late)
{
	struct slow_thread *thread = &t->thread[0];

	if (slow_returns(thread, late ? 1500 : 500))
		return "the change: it did not wait";
	/* as the kernel itself does, to move pages or to find those in use */
	if (late && madvise(t->slow.map + t->slow.size - PAGE, PAGE, MADV_DONTNEED))
		return "another page";
	/* no other process has to wait */
	if (slow_bind_plain(&t->s, t->unused) || ibmkey_unbind(t->unused))
		return "another key";
	if (remover && !slow_removes(remover, tell))
		return "another device: it is not removed";
	return atomic_load(&thread->running) ? NULL : "the change: it waited for another key's";
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
 * One access by a key over a page that is held back. Meanwhile @change changes
 * the key, and another process removes its device if @removes is set. Returns an
 * error message, or NULL.
 */
static const char *slow_round(struct slow_test *t, unsigned int page, enum mkt_op op,
			      enum change change, bool removes, bool late)
{
	struct slow_change to = { .change = change, .s = &t->s };
	uint8_t before[LENGTH];
	const char *wrong;
	pid_t remover = 0;
	int tell = -1, err;

	mkt_rand_bytes(&t->s.rng, (void *)(uintptr_t)t->s.plain[0].addr, LENGTH);
	memcpy(before, (const void *)(uintptr_t)t->s.plain[1].addr, LENGTH);
	if (removes)
		remover = slow_remover(&tell);
	if (remover < 0)
		return "a process";
	wrong = slow_begin(t, op, page);
	slow_run(&t->thread[0], slow_change, &to);
	wrong = wrong ?: slow_meanwhile(t, remover, tell, late);
	mkt_slow_hold(&t->slow, false);
	if (removes)
		close(tell);
	if (removes && wrong)
		waitpid(remover, NULL, 0);
	err = slow_join(&t->thread[0]);
	if (change == DEREG)
		t->s.key[1] = NULL;
	if (wrong)
		return wrong;
	if (err)
		return strerror(err);
	if (slow_status(&t->s.pair.end[0], 1) != IBV_WC_SUCCESS)
		return "the access";
	return slow_bytes(t, op, page, before);
}

static void slow_rounds(struct __test_metadata *_metadata, struct slow_test *t, enum mkt_op op,
			enum change change)
{
	unsigned int i, rounds = change == DEREG || mkt_quick() ? 1 : 3;
	/* the debug kernel takes half a minute to remove a device */
	bool removes = !mkt_quick() ||
		       (change == DEREG && (op == MKT_WRITE || mkt_quick() == 1));
	const char *wrong = NULL;

	for (i = 0; i < rounds && !wrong; i++)
		wrong = slow_round(t, 8 + i, op, change, removes && !i, !i);
	slow_expect(_metadata, wrong);
}

TEST_F(slow, write)
{
	slow_rounds(_metadata, &self->t, MKT_WRITE, variant->change);
}

TEST_F(slow, read)
{
	slow_rounds(_metadata, &self->t, MKT_READ, variant->change);
}

TEST_F(slow, atomic)
{
	slow_rounds(_metadata, &self->t, MKT_FETCH_ADD, variant->change);
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
 * Returns a message if an access or another key is disturbed while @count queue
 * pairs invalidate a key whose access waits for a page.
 */
static const char *slow_others(struct slow_test *t, struct mkt_qp *qp, unsigned int count)
{
	struct mkt_setup *s = &t->s;
	struct mkt_wr inv = { .op = MKT_LOCAL_INV, .rkey = s->key[1]->rkey };
	struct mkt_wr wr = slow_wr(s, MKT_WRITE, s->plain[1].addr, s->plain[1].mr->rkey);
	struct ibmkey_info info = {};
	unsigned int i;

	for (i = 0; i < count; i++)
		if (mkt_post_send(&qp[i], &inv, 1))
			return "the post of an invalidation";
	if (mkt_status(&t->other, 0, &wr) != IBV_WC_SUCCESS)
		return "another queue pair";
	if (slow_bind_plain(s, t->unused) || ibmkey_unbind(t->unused))
		return "another key";
	for (i = 0; i < count; i++)
		if (slow_status(&qp[i], 1) <= IBV_WC_SUCCESS)
			return "an invalidation: it did not end in an error";
	if (ibmkey_query(s->key[1], &info) || info.kind != IBMKEY_UNBOUND)
		return "the key: it is bound";
	return NULL;
}

/*
 * A worker of the driver, which executes a LOCAL_INV of a key whose access waits for a page, does
 * not wait arbitrarily long for the page. More of them than the driver has workers delay no other
 * queue pair. One of them may be of the queue pair that executes the access. A later change of the
 * key by a call waits for the access.
 */
TEST_F(slow, workers)
{
	struct mkt_setup *s = &self->t.s;
	struct slow_change to = { .change = variant->change, .s = s };
	unsigned int i, count = variant->change == BIND ? mkt_scale(2100, 300) : 1;
	struct mkt_qp *qp = count > 1 ? calloc(count, sizeof(*qp)) : &s->pair.end[1];
	const char *wrong;
	int changed;

	ASSERT_NE(NULL, qp);
	if (count > 1)
		ASSERT_EQ(0, slow_queue_pairs(s, qp, count));
	wrong = slow_begin(&self->t, MKT_WRITE, 28) ?: slow_others(&self->t, qp, count);
	slow_run(&self->t.thread[0], slow_change, &to);
	if (!wrong && slow_returns(&self->t.thread[0], 500))
		wrong = "the change: it did not wait";
	mkt_slow_hold(&self->t.slow, false);
	changed = slow_join(&self->t.thread[0]);
	if (variant->change == DEREG)
		s->key[1] = NULL;
	slow_expect(_metadata, wrong);
	EXPECT_EQ(0, changed);
	if (count > 1) {
		EXPECT_EQ(IBV_WC_SUCCESS, slow_status(&s->pair.end[0], 1));
		for (i = 0; i < count; i++)
			mkt_qp_destroy(&qp[i]);
		free(qp);
		EXPECT_EQ(0, ibmkey_unbind(s->key[1]));
	}
	EXPECT_EQ(0, mkt_pair_recover(&s->pair));
	/* the leaf has been released */
	EXPECT_EQ(0, slow_free_mr(&self->t.mr[1]));
}

TEST_HARNESS_MAIN
