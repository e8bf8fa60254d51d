// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Changes of a key while an access by it waits for a page. Only a change of the same
 * key waits for the access.
 * needs: on-demand
 * sets: first long
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw.h"
#include "slow_change.h"

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
	struct slow_change to = {
		.change = change,
		.key = s->key[1],
		.sge = {
			.addr = s->plain[1].addr,
			.length = LENGTH,
			.lkey = s->plain[1].mr->lkey,
		},
	};
	struct mkt_wr wr = slow_wr(s, op, 0, s->key[1]->rkey);
	struct slow_thread thread;
	const char *wrong = NULL;
	uint8_t before[LENGTH];
	struct ibv_wc wc;
	uint64_t word;
	unsigned int i;
	pid_t remover = 0;
	int tell, err;

	if (atomic) {
		wr.sge[0].length = 8;
		wr.swap_add = 3;
	}
	if (slow_bind_to(s->key[1], (uintptr_t)at, mr, MKT_ACCESS_ALL))
		return "the first bind";
	mkt_rand_bytes(&s->rng, sent, LENGTH);
	memcpy(before, now, LENGTH);
	if (slow_thread_create(&thread))
		return "a thread";
	if (removes)
		remover = slow_remover(&tell);
	if (remover < 0)
		return "a process";
	mkt_slow_hold(slow, true);
	if (mkt_post_send(&s->pair.end[0], &wr, 1))
		wrong = "the post";
	else if (mkt_slow_wait(slow, 1))
		wrong = ibv_poll_cq(s->pair.end[0].cq, 1, &wc) == 1 ?
			ibv_wc_status_str(wc.status) :
			"the access: it neither waits for a page nor ends";
	slow_run(&thread, slow_change, &to);
	if (!wrong && slow_is_done(&thread, late ? 1500 : 500))
		wrong = "the change: it did not wait";
	/* as the kernel itself does, to move pages or to find those in use */
	if (!wrong && late &&
	    madvise(slow->map + slow->size - PAGE, PAGE, MADV_DONTNEED))
		wrong = "another page";
	/* no other process has to wait */
	if (!wrong && (ibv_rereg_mr_sg(other, MKT_ACCESS_ALL, 1, &to.sge) ||
		       ibmkey_unbind(other)))
		wrong = "another key";
	if (!wrong && removes && !slow_removes(remover, tell))
		wrong = "another device: it is not removed";
	if (!wrong && !atomic_load(&thread.running))
		wrong = "the change: it waited for another key's";
	mkt_slow_hold(slow, false);
	if (removes)
		close(tell);
	if (removes && wrong)
		waitpid(remover, NULL, 0);
	err = slow_join(&thread);
	slow_thread_end(&thread);
	if (wrong)
		return wrong;
	if (err)
		return strerror(err);
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

/* A process that maps the device of an earlier test keeps it. The next test gets another one. */
TEST(device_of_an_earlier_test)
{
	struct mkt_slow old, slow;
	int fd[2], err;
	pid_t pid;
	char c;

	err = mkt_slow_open(&old, PAGE);
	if (err == ENOENT || err == ENXIO)
		SKIP(return, "no network block devices");
	ASSERT_EQ(0, err);
	ASSERT_EQ(0, pipe(fd));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(fd[1]);
		_exit(read(fd[0], &c, 1));
	}
	close(fd[0]);
	mkt_slow_close(&old);
	ASSERT_EQ(0, mkt_slow_open(&slow, PAGE));
	EXPECT_EQ(1, pread(slow.fd, &c, 1, 0));
	mkt_slow_close(&slow);
	close(fd[1]);
	EXPECT_EQ(pid, waitpid(pid, NULL, 0));
}

TEST_HARNESS_MAIN
