// SPDX-License-Identifier: GPL-2.0
/*
 * Changes of a key while an access by it waits for a page. Only a change of the
 * same key waits for the access.
 */
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "raw.h"
#include "slow.h"

#define PAGE 4096
/* the offset of the access in its page, and its length */
#define AT 72
#define LENGTH 1000

enum change { BIND, UNBIND, DEREG };

/* made before any page is held back, because making a thread maps memory */
struct slow_thread {
	pthread_t tid;
	sem_t start;
	enum change change;
	struct ibv_mr *key;
	struct ibv_sge sge;
	atomic_bool done;
	int err;
};

static void *slow_change(void *arg)
{
	struct slow_thread *thread = arg;

	while (sem_wait(&thread->start))
		;
	switch (thread->change) {
	case BIND:
		thread->err = ibv_rereg_mr_sg(thread->key, MKT_ACCESS_ALL, 1,
					      &thread->sge);
		break;
	case UNBIND:
		thread->err = ibmkey_unbind(thread->key);
		break;
	case DEREG:
		thread->err = ibv_dereg_mr(thread->key);
		break;
	}
	atomic_store(&thread->done, true);
	return NULL;
}

FIXTURE(slow)
{
	struct mkt_setup s;
	struct mkt_slow slow;
	struct ibv_mr *mr;		/* of all of it, on demand */
	struct ibv_mr *other;		/* a key without waiting accesses */
	bool open;
};

FIXTURE_VARIANT(slow)
{
	enum change change;
};

FIXTURE_VARIANT_ADD(slow, bind)
{
	.change = BIND,
};

FIXTURE_VARIANT_ADD(slow, unbind)
{
	.change = UNBIND,
};

FIXTURE_VARIANT_ADD(slow, dereg)
{
	.change = DEREG,
};

FIXTURE_SETUP(slow)
{
	struct mkt_wants wants = {
		.mtu = IBV_MTU_1024,
		/* a retransmitted READ runs again, after the key was destroyed */
		.flags = MKT_QP_PATIENT,
		.host = 64 * 1024,
		.max_entries = 4,
	};

	MKT_OPEN_SLOW(self->s.dev, 1, &self->slow, 64 * PAGE);
	self->open = true;
	ASSERT_EQ(0, mkt_setup(&self->s, &wants, _metadata->name));
	self->mr = ibv_reg_mr(self->s.dev[1].pd, self->slow.map,
			      self->slow.size,
			      MKT_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	ASSERT_NE(NULL, self->mr);
	self->other = ibmkey_alloc(self->s.dev[1].pd, 4);
	ASSERT_NE(NULL, self->other);
}

FIXTURE_TEARDOWN(slow)
{
	if (!self->open)
		return;
	if (self->other) {
		EXPECT_EQ(0, ibv_dereg_mr(self->other));
	}
	if (self->s.key[1]) {
		EXPECT_EQ(0, ibv_dereg_mr(self->s.key[1]));
		self->s.key[1] = NULL;
	}
	if (self->mr) {
		EXPECT_EQ(0, ibv_dereg_mr(self->mr));
	}
	EXPECT_EQ(0, mkt_teardown(&self->s));
	mkt_slow_close(&self->slow);
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
	unsigned int i;
	int status;

	if (write(tell, "", 1) != 1)
		return false;
	for (i = 0; i < MKT_STALL_PAUSES; i++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) && !WEXITSTATUS(status);
		usleep(1000);
	}
	return false;
}

static bool slow_is_done(struct slow_thread *thread, unsigned int ms)
{
	while (ms-- && !atomic_load(&thread->done))
		usleep(1000);
	return atomic_load(&thread->done);
}

/*
 * One access by a key over a page that is held back. Meanwhile @change changes
 * the key, and another process removes its device if @removes is set. With
 * @late, the page arrives after the kernel's page walk has given up, which it
 * does when another page is unmapped meanwhile. Returns an error message, or
 * NULL.
 */
static const char *slow_round(struct mkt_setup *s, struct mkt_slow *slow,
			      struct ibv_mr *mr, struct ibv_mr *other,
			      unsigned int page, enum mkt_op op,
			      enum change change, bool removes, bool late)
{
	bool atomic = op == MKT_FETCH_ADD;
	uint8_t *at = slow->map + page * PAGE + AT;
	uint8_t *sent = (uint8_t *)(uintptr_t)s->plain[0].addr;
	uint8_t *now = (uint8_t *)(uintptr_t)s->plain[1].addr;
	struct ibv_sge sge = {
		.addr = (uintptr_t)at,
		.length = LENGTH,
		.lkey = mr->lkey,
	};
	struct slow_thread thread = {
		.change = change,
		.key = s->key[1],
		.sge = {
			.addr = s->plain[1].addr,
			.length = LENGTH,
			.lkey = s->plain[1].mr->lkey,
		},
	};
	struct mkt_wr wr = {
		.op = op,
		.sge[0] = {
			.addr = s->plain[0].addr,
			.length = atomic ? 8 : LENGTH,
			.lkey = s->plain[0].mr->lkey,
		},
		.num_sge = 1,
		.rkey = s->key[1]->rkey,
		.swap_add = 3,
	};
	const char *wrong = NULL;
	uint8_t before[LENGTH];
	struct ibv_wc wc;
	uint64_t word;
	unsigned int i;
	pid_t remover = 0;
	int tell;

	if (ibv_rereg_mr_sg(s->key[1], MKT_ACCESS_ALL, 1, &sge))
		return "the first bind";
	mkt_rand_bytes(&s->rng, sent, LENGTH);
	memcpy(before, now, LENGTH);
	sem_init(&thread.start, 0, 0);
	if (pthread_create(&thread.tid, NULL, slow_change, &thread))
		return "a thread";
	if (removes)
		remover = slow_remover(&tell);
	if (remover < 0)
		return "a process";
	mkt_slow_hold(slow, true);
	if (mkt_post_send(&s->pair.end[0], &wr, 1))
		wrong = "the post";
	else if (mkt_slow_wait(slow))
		wrong = ibv_poll_cq(s->pair.end[0].cq, 1, &wc) == 1 ?
			ibv_wc_status_str(wc.status) :
			"the access: it neither waits for a page nor ends";
	sem_post(&thread.start);
	if (!wrong && slow_is_done(&thread, late ? 1500 : 500))
		wrong = "the change: it did not wait";
	/* as the kernel itself does, to move pages or to find those in use */
	if (!wrong && late &&
	    madvise(slow->map + slow->size - PAGE, PAGE, MADV_DONTNEED))
		wrong = "another page";
	/* no other process has to wait */
	if (!wrong && (ibv_rereg_mr_sg(other, MKT_ACCESS_ALL, 1, &thread.sge) ||
		       ibmkey_unbind(other)))
		wrong = "another key";
	if (!wrong && removes && !slow_removes(remover, tell))
		wrong = "another device: it is not removed";
	if (!wrong && atomic_load(&thread.done))
		wrong = "the change: it waited for another key's";
	mkt_slow_hold(slow, false);
	if (removes)
		close(tell);
	if (removes && wrong)
		waitpid(remover, NULL, 0);
	pthread_join(thread.tid, NULL);
	sem_destroy(&thread.start);
	if (wrong)
		return wrong;
	if (thread.err)
		return strerror(thread.err);
	if (mkt_poll(&s->pair.end[0], &wc) || wc.status != IBV_WC_SUCCESS)
		return "the access";
	/* the whole access used the binding that it began with */
	switch (op) {
	case MKT_WRITE:
		if (memcmp(at, sent, LENGTH))
			wrong = "what was written";
		break;
	case MKT_READ:
		for (i = 0; i < LENGTH; i++)
			if (sent[i])
				wrong = "what was read";
		break;
	default:
		memcpy(&word, at, sizeof(word));
		if (word != 3)
			wrong = "what was added";
	}
	if (memcmp(now, before, LENGTH))
		wrong = "what is bound now: it was written";
	return wrong;
}

static void slow_rounds(struct __test_metadata *_metadata,
			FIXTURE_DATA(slow) *self, enum mkt_op op,
			enum change change)
{
	unsigned int i, rounds = change == DEREG || mkt_quick() ? 1 : 3;
	/* the debug kernel takes half a minute to remove a device */
	bool removes = !mkt_quick() ||
		       (change == DEREG && (op == MKT_WRITE || mkt_quick() == 1));

	for (i = 0; i < rounds; i++) {
		const char *wrong = slow_round(&self->s, &self->slow, self->mr,
					       self->other, 8 + i, op, change,
					       removes && !i, !i);

		if (change == DEREG)
			self->s.key[1] = NULL;
		if (wrong) {
			TH_LOG("%s", wrong);
			ASSERT_EQ(NULL, wrong);
		}
	}
}

TEST_F(slow, write)
{
	slow_rounds(_metadata, self, MKT_WRITE, variant->change);
}

TEST_F(slow, read)
{
	slow_rounds(_metadata, self, MKT_READ, variant->change);
}

TEST_F(slow, atomic)
{
	slow_rounds(_metadata, self, MKT_FETCH_ADD, variant->change);
}

/*
 * binds the key of side 1 over a page that is held back, and starts a WRITE that
 * waits for it
 */
static const char *slow_begin(struct mkt_setup *s, struct mkt_slow *slow,
			      struct ibv_mr *mr, unsigned int page)
{
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = {
			.addr = s->plain[0].addr,
			.length = LENGTH,
			.lkey = s->plain[0].mr->lkey,
		},
		.num_sge = 1,
		.rkey = s->key[1]->rkey,
	};
	struct ibv_sge sge = {
		.addr = (uintptr_t)(slow->map + page * PAGE + AT),
		.length = LENGTH,
		.lkey = mr->lkey,
	};

	if (ibv_rereg_mr_sg(s->key[1], MKT_ACCESS_ALL, 1, &sge))
		return "the first bind";
	mkt_slow_hold(slow, true);
	if (mkt_post_send(&s->pair.end[0], &wr, 1))
		return "the post";
	return mkt_slow_wait(slow) ? "the access: it does not wait" : NULL;
}

/* a worker of the driver does not wait arbitrarily long for a page */
TEST_F(slow, worker)
{
	struct mkt_setup *s = &self->s;
	struct mkt_wr inv = { .op = MKT_LOCAL_INV, .rkey = s->key[1]->rkey };
	struct slow_thread thread = {
		.change = variant->change,
		.key = s->key[1],
		.sge = {
			.addr = s->plain[1].addr,
			.length = LENGTH,
			.lkey = s->plain[1].mr->lkey,
		},
	};
	struct ibmkey_info info = {};
	struct ibv_wc wc = {};
	const char *wrong;
	int err = 0;

	sem_init(&thread.start, 0, 0);
	ASSERT_EQ(0, pthread_create(&thread.tid, NULL, slow_change, &thread));
	wrong = slow_begin(s, &self->slow, self->mr, 20);
	if (!wrong) {
		err = mkt_post_send(&s->pair.end[1], &inv, 1) ?:
		      mkt_poll(&s->pair.end[1], &wc) ?:
		      ibmkey_query(s->key[1], &info);
		/* all later changes wait for the access */
		sem_post(&thread.start);
		if (slow_is_done(&thread, 500))
			wrong = "the change: it did not wait";
		else if (ibv_rereg_mr_sg(self->other, MKT_ACCESS_ALL, 1,
					 &thread.sge))
			wrong = "another key";
	} else {
		sem_post(&thread.start);
	}
	mkt_slow_hold(&self->slow, false);
	pthread_join(thread.tid, NULL);
	sem_destroy(&thread.start);
	if (variant->change == DEREG)
		s->key[1] = NULL;
	EXPECT_EQ(NULL, wrong)
	{
		TH_LOG("%s", wrong);
	}
	EXPECT_EQ(0, err);
	EXPECT_NE(IBV_WC_SUCCESS, wc.status);
	EXPECT_EQ(IBMKEY_UNBOUND, info.kind);
	EXPECT_EQ(0, thread.err);
	/* the leaf has been released */
	if (variant->change != BIND) {
		EXPECT_EQ(0, ibv_dereg_mr(self->mr));
		self->mr = NULL;
	}
	EXPECT_EQ(0, mkt_pair_recover(&s->pair));
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
static const char *slow_others(struct mkt_setup *s, struct mkt_pair *pair,
			       struct ibv_mr *key, struct mkt_qp *qp,
			       unsigned int count)
{
	struct mkt_wr inv = { .op = MKT_LOCAL_INV, .rkey = s->key[1]->rkey };
	struct mkt_wr wr = {
		.op = MKT_WRITE,
		.sge[0] = {
			.addr = s->plain[0].addr,
			.length = LENGTH,
			.lkey = s->plain[0].mr->lkey,
		},
		.num_sge = 1,
		.remote_addr = s->plain[1].addr,
		.rkey = s->plain[1].mr->rkey,
	};
	struct ibv_sge sge = {
		.addr = s->plain[1].addr,
		.length = LENGTH,
		.lkey = s->plain[1].mr->lkey,
	};
	struct ibv_wc wc;
	unsigned int i;

	for (i = 0; i < count; i++)
		if (mkt_post_send(&qp[i], &inv, 1))
			return "the post of an invalidation";
	if (mkt_post_send(&pair->end[0], &wr, 1) || mkt_poll(&pair->end[0], &wc) ||
	    wc.status != IBV_WC_SUCCESS)
		return "another queue pair";
	if (ibv_rereg_mr_sg(key, MKT_ACCESS_ALL, 1, &sge) || ibmkey_unbind(key))
		return "another key";
	for (i = 0; i < count; i++)
		if (mkt_poll(&qp[i], &wc) || wc.status == IBV_WC_SUCCESS)
			return "an invalidation: it did not end in an error";
	return NULL;
}

/*
 * More invalidations than the driver has workers, of a key whose access waits for
 * a page: they end before the page arrives, and delay no other queue pair.
 */
TEST_F(slow, workers)
{
	unsigned int i, count = mkt_scale(2100, 300);
	struct mkt_setup *s = &self->s;
	struct ibmkey_info info = {};
	struct mkt_pair pair = {};
	struct ibv_wc wc = {};
	struct mkt_qp *qp;
	const char *wrong;

	if (variant->change != UNBIND)
		SKIP(return, "the same for each change");
	qp = calloc(count, sizeof(*qp));
	ASSERT_NE(NULL, qp);
	ASSERT_EQ(0, slow_queue_pairs(s, qp, count));
	ASSERT_EQ(0, mkt_pair_create(&pair, &s->dev[0], &s->dev[1], IBV_MTU_1024, 0));
	wrong = slow_begin(s, &self->slow, self->mr, 28) ?:
		slow_others(s, &pair, self->other, qp, count);
	if (!wrong && (ibmkey_query(s->key[1], &info) || info.kind != IBMKEY_UNBOUND))
		wrong = "the key: it is bound";
	mkt_slow_hold(&self->slow, false);
	EXPECT_EQ(NULL, wrong)
	{
		TH_LOG("%s", wrong);
	}
	EXPECT_EQ(0, mkt_poll(&s->pair.end[0], &wc));
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	mkt_pair_destroy(&pair);
	for (i = 0; i < count; i++)
		mkt_qp_destroy(&qp[i]);
	free(qp);
	/* nothing is left of these */
	EXPECT_EQ(0, ibmkey_unbind(s->key[1]));
	EXPECT_EQ(0, ibv_dereg_mr(self->mr));
	self->mr = NULL;
}

/* a process that waits for an access can be killed */
TEST_F(slow, killed)
{
	struct mkt_setup *s = &self->s;
	struct ib_uverbs_mkey_sge sge = {
		.addr = s->plain[1].addr,
		.length = LENGTH / 2,
		.lkey = s->plain[1].mr->lkey,
	};
	struct ib_uverbs_mkey_bind bind = mkt_raw_list(MKT_ACCESS_ALL, &sge, 1);
	struct ibmkey_info info = { .length = LENGTH };
	struct mkt_ioctl cmd;
	struct ibv_wc wc = {};
	const char *wrong;
	unsigned int i;
	int fd[2], status = 0;
	pid_t pid, gone = 0;
	char c;

	if (variant->change == DEREG)
		SKIP(return, "as long as it takes: nothing is left of an MR");
	if (variant->change == BIND)
		mkt_raw_bind(&cmd, s->key[1]->handle, &bind);
	else
		mkt_raw_unbind(&cmd, s->key[1]->handle);
	ASSERT_EQ(0, pipe(fd));
	pid = fork();
	ASSERT_NE(-1, pid);
	if (!pid) {
		close(fd[1]);
		if (read(fd[0], &c, 1) == 1)
			mkt_ioctl_run(s->dev[1].ctx, &cmd);
		_exit(0);
	}
	close(fd[0]);
	wrong = slow_begin(s, &self->slow, self->mr, 24);
	if (!wrong && write(fd[1], "", 1) != 1)
		wrong = "the pipe";
	/* the old binding has been replaced already */
	for (i = 0; !wrong && info.length == LENGTH; i++) {
		usleep(1000);
		if (i > MKT_STALL_PAUSES || ibmkey_query(s->key[1], &info))
			wrong = "the change: it does not begin";
	}
	if (!wrong && waitpid(pid, &status, WNOHANG))
		wrong = "the change: it did not wait";
	kill(pid, SIGKILL);
	for (i = 0; i < MKT_STALL_PAUSES && !gone; i++) {
		gone = waitpid(pid, &status, WNOHANG);
		usleep(1000);
	}
	mkt_slow_hold(&self->slow, false);
	EXPECT_EQ(pid, gone);
	if (!gone)
		waitpid(pid, &status, 0);
	close(fd[1]);
	EXPECT_EQ(NULL, wrong)
	{
		TH_LOG("%s", wrong);
	}
	EXPECT_EQ(0, mkt_poll(&s->pair.end[0], &wc));
	EXPECT_EQ(IBV_WC_SUCCESS, wc.status);
	/* the next change has waited for the access, and its leaf is released */
	EXPECT_EQ(0, ibmkey_unbind(s->key[1]));
	EXPECT_EQ(0, ibv_dereg_mr(self->mr));
	self->mr = NULL;
}

TEST_HARNESS_MAIN
