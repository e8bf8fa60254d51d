// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Revocable keys: the deregistration of a leaf succeeds and unbinds the key. Other
 * keys keep their leaves.
 * sets: smp
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"
#include "mkey_harness.h"
#include "slow.h"

#define LENGTH 8192
#define BYTE 0xc5

FIXTURE(revocable)
{
	struct mkt_setup s;
	struct ibv_mr *key[3];
	struct ibv_mr *leaf;
	uint8_t *at;
};

static struct ibv_mr *revocable_key(struct mkt_dev *dev, uint32_t flags)
{
	struct ibmkey_alloc_attr attr = { .max_entries = 4, .flags = flags };

	return ibmkey_alloc_ex(dev->pd, &attr);
}

static struct ibv_mr *revocable_leaf(FIXTURE_DATA(revocable) *self)
{
	return ibv_reg_mr(self->s.dev[1].pd, self->at, LENGTH, MKT_ACCESS_ALL);
}

FIXTURE_SETUP(revocable)
{
	unsigned int i;

	MKT_SETUP(&self->s, .host = 64 * 1024);
	self->at = self->s.arena[1].mem[0].host;
	memset(self->at, BYTE, LENGTH);
	ASSERT_EQ(0, mkt_arena_adopt(&self->s.arena[1], 0, LENGTH));
	self->leaf = revocable_leaf(self);
	ASSERT_NE(NULL, self->leaf);
	for (i = 0; i < 3; i++) {
		self->key[i] = revocable_key(&self->s.dev[1], IBMKEY_ALLOC_REVOCABLE);
		ASSERT_NE(NULL, self->key[i]);
	}
}

FIXTURE_TEARDOWN(revocable)
{
	unsigned int i;

	for (i = 3; i-- > 0;)
		EXPECT_EQ(0, ibv_dereg_mr(self->key[i]));
	if (self->leaf) {
		EXPECT_EQ(0, ibv_dereg_mr(self->leaf));
	}
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* binds @key to all of @below, a leaf or another key */
static int revocable_bind(FIXTURE_DATA(revocable) *self, struct ibv_mr *key, struct ibv_mr *below)
{
	return mkt_bind_range(key, MKT_ACCESS_ALL, below,
			      below == self->leaf ? (uintptr_t)self->at : 0, LENGTH);
}

static int revocable_read(FIXTURE_DATA(revocable) *self, uint32_t rkey)
{
	return mkt_try(&self->s, rkey, MKT_READ, 0, LENGTH);
}

/* deregisters the leaf, and makes no new one */
static int revocable_go(FIXTURE_DATA(revocable) *self)
{
	int err = ibv_dereg_mr(self->leaf);

	if (!err)
		self->leaf = NULL;
	return err;
}

TEST_F(revocable, the_leaf_goes_and_the_key_is_unbound)
{
	uint32_t old = self->key[0]->rkey;

	ASSERT_EQ(0, revocable_bind(self, self->key[0], self->leaf));
	EXPECT_EQ(IBV_WC_SUCCESS, revocable_read(self, old));
	ASSERT_EQ(0, revocable_go(self));
	EXPECT_EQ(IBMKEY_UNBOUND, mkt_kind_of(self->key[0]));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, revocable_read(self, old));
	/* the next bind changes the key portion */
	self->leaf = revocable_leaf(self);
	ASSERT_NE(NULL, self->leaf);
	ASSERT_EQ(0, revocable_bind(self, self->key[0], self->leaf));
	EXPECT_EQ(ibv_inc_rkey(old), self->key[0]->rkey);
	EXPECT_EQ(IBV_WC_SUCCESS, revocable_read(self, self->key[0]->rkey));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, revocable_read(self, old));
}

TEST_F(revocable, keys_over_keys_go_too)
{
	unsigned int i;

	ASSERT_EQ(0, revocable_bind(self, self->key[0], self->leaf));
	ASSERT_EQ(0, revocable_bind(self, self->key[1], self->key[0]));
	ASSERT_EQ(0, revocable_bind(self, self->key[2], self->key[1]));
	EXPECT_EQ(IBV_WC_SUCCESS, revocable_read(self, self->key[2]->rkey));
	ASSERT_EQ(0, revocable_go(self));
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(IBMKEY_UNBOUND, mkt_kind_of(self->key[i]));
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, revocable_read(self, self->key[i]->rkey));
	}
}

/* a key in between goes, and the keys over it; the one below stays */
TEST_F(revocable, a_key_is_a_leaf)
{
	ASSERT_EQ(0, revocable_bind(self, self->key[0], self->leaf));
	ASSERT_EQ(0, revocable_bind(self, self->key[1], self->key[0]));
	ASSERT_EQ(0, ibv_dereg_mr(self->key[0]));
	EXPECT_EQ(IBMKEY_UNBOUND, mkt_kind_of(self->key[1]));
	self->key[0] = revocable_key(&self->s.dev[1], IBMKEY_ALLOC_REVOCABLE);
	ASSERT_NE(NULL, self->key[0]);
}

TEST_F(revocable, a_key_without_the_flag_keeps_the_leaf)
{
	struct ibv_mr *firm = revocable_key(&self->s.dev[1], 0);

	ASSERT_NE(NULL, firm);
	ASSERT_EQ(0, revocable_bind(self, self->key[0], self->leaf));
	ASSERT_EQ(0, revocable_bind(self, firm, self->leaf));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(self->leaf));
	EXPECT_EQ(IBMKEY_LIST, mkt_kind_of(self->key[0]));
	EXPECT_EQ(IBMKEY_LIST, mkt_kind_of(firm));
	/* over the revocable key: another revocable key stays bound, too */
	ASSERT_EQ(0, revocable_bind(self, firm, self->key[0]));
	ASSERT_EQ(0, revocable_bind(self, self->key[2], self->leaf));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(self->leaf));
	EXPECT_EQ(IBMKEY_LIST, mkt_kind_of(self->key[0]));
	EXPECT_EQ(IBMKEY_LIST, mkt_kind_of(self->key[2]));
	EXPECT_EQ(IBV_WC_SUCCESS, revocable_read(self, firm->rkey));
	ASSERT_EQ(0, ibmkey_unbind(firm));
	EXPECT_EQ(0, revocable_go(self));
	EXPECT_EQ(0, ibv_dereg_mr(firm));
}

TEST_F(revocable, a_window_keeps_the_leaf)
{
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);

	ASSERT_NE(NULL, mw);
	ASSERT_EQ(0, mkt_bind_range(self->key[0], MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND, self->leaf,
				    (uintptr_t)self->at, LENGTH));
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], mw, self->key[0], 0, LENGTH,
				     IBV_ACCESS_REMOTE_READ));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(self->leaf));
	EXPECT_EQ(IBV_WC_SUCCESS, revocable_read(self, mw->rkey));
	ASSERT_EQ(0, ibv_dealloc_mw(mw));
}

TEST_F(revocable, unknown_flags)
{
	errno = 0;
	EXPECT_ERRNO(EINVAL, revocable_key(&self->s.dev[1], IBMKEY_ALLOC_REVOCABLE << 1));
}

/* registers the memory, binds the key to it, and deregisters the memory */
static int revocable_turn(void *arg, unsigned int round)
{
	FIXTURE_DATA(revocable) *self = arg;
	int err = revocable_bind(self, self->key[0], self->leaf);

	usleep(2000);
	err = err ?: ibv_dereg_mr(self->leaf);
	if (err)
		return err;
	self->leaf = revocable_leaf(self);
	return self->leaf ? 0 : errno;
}

/* two threads deregister two leaves of one key: each succeeds, whichever unbinds the key */
TEST_F(revocable, two_leaves_go_at_once)
{
	struct mkt_dev *dev = &self->s.dev[0];
	struct ibv_mr *key = revocable_key(dev, IBMKEY_ALLOC_REVOCABLE), *mr[2];
	void *host = self->s.arena[0].mem[0].host;
	unsigned int i, k, rounds = mkt_rounds(2000, 300);
	struct slow_thread thread;

	ASSERT_NE(NULL, key);
	ASSERT_EQ(0, slow_thread_create(&thread));
	for (i = 0; i < rounds; i++) {
		struct ibmkey_range range[2];

		for (k = 0; k < 2; k++) {
			mr[k] = ibv_reg_mr(dev->pd, host, 64, 0);
			ASSERT_NE(NULL, mr[k]);
			range[k] = (struct ibmkey_range){
				.addr = (uintptr_t)host, .length = 64, .lkey = mr[k]->lkey,
			};
		}
		ASSERT_EQ(0, ibmkey_bind_list(key, 0, 2, range));
		slow_run(&thread, slow_dereg, mr[0]);
		ASSERT_EQ(0, ibv_dereg_mr(mr[1]));
		ASSERT_EQ(0, slow_join(&thread));
		EXPECT_EQ(IBMKEY_UNBOUND, mkt_kind_of(key));
	}
	slow_thread_end(&thread);
	EXPECT_EQ(0, ibv_dereg_mr(key));
}

static int revocable_again(void *arg, unsigned int round)
{
	FIXTURE_DATA(revocable) *self = arg;

	return revocable_bind(self, self->key[0], self->key[1]);
}

/*
 * Keys over a leaf are found while one of them is bound again and again. A key that is not
 * revocable keeps the leaf, so another revocable key stays bound.
 */
TEST_F(revocable, a_key_is_bound_meanwhile)
{
	struct ibv_mr *firm = revocable_key(&self->s.dev[1], 0);
	unsigned int i, binds = mkt_rounds(20000, 2000);
	struct mkt_loop loop = {};

	ASSERT_NE(NULL, firm);
	ASSERT_EQ(0, revocable_bind(self, self->key[1], self->leaf));
	ASSERT_EQ(0, revocable_bind(self, self->key[2], self->key[1]));
	ASSERT_EQ(0, revocable_bind(self, firm, self->key[1]));
	ASSERT_EQ(0, mkt_loop_start(&loop, revocable_again, self));
	for (i = 0; atomic_load(&loop.rounds) < binds && !atomic_load(&loop.err); i++) {
		ASSERT_EQ(EBUSY, ibv_dereg_mr(self->leaf));
		ASSERT_EQ(IBMKEY_LIST, mkt_kind_of(self->key[2]));
		mkt_alive();
	}
	EXPECT_EQ(0, mkt_loop_end(&loop));
	TH_LOG("%u deregistrations during %u binds", i, atomic_load(&loop.rounds));
	EXPECT_EQ(0, ibv_dereg_mr(firm));
}

/* a READ succeeds with the right bytes, or it fails */
TEST_F(revocable, while_a_peer_reads)
{
	uint8_t *here = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
	unsigned int i, rounds = mkt_rounds(2000, 200), done = 0;
	struct mkt_loop loop = {};

	ASSERT_EQ(0, mkt_loop_start(&loop, revocable_turn, self));
	for (i = 0; !atomic_load(&loop.err); i++) {
		uint32_t rkey = __atomic_load_n(&self->key[0]->rkey, __ATOMIC_RELAXED);

		if (i >= rounds && done && atomic_load(&loop.rounds) >= 10)
			break;
		memset(here, 0, LENGTH);
		if (revocable_read(self, rkey))
			continue;
		done++;
		EXPECT_EQ(BYTE, here[0]);
		EXPECT_EQ(0, memcmp(here, here + 1, LENGTH - 1));
	}
	EXPECT_EQ(0, mkt_loop_end(&loop));
	EXPECT_LT(0, done);
}

/* the shortest time, in ns, of a deregistration that unbinds a key; 0 after an error */
static uint64_t revocable_time(FIXTURE_DATA(revocable) *self)
{
	uint64_t best = UINT64_MAX, ns;
	struct timespec from, to;
	unsigned int i;

	for (i = 0; i < 30; i++) {
		if (!self->leaf)
			self->leaf = revocable_leaf(self);
		if (!self->leaf || revocable_bind(self, self->key[0], self->leaf))
			return 0;
		clock_gettime(CLOCK_MONOTONIC, &from);
		if (revocable_go(self))
			return 0;
		clock_gettime(CLOCK_MONOTONIC, &to);
		ns = (to.tv_sec - from.tv_sec) * 1000000000ull + to.tv_nsec - from.tv_nsec;
		best = ns < best ? ns : best;
	}
	return best;
}

/* makes revocable keys, each bound to an MR, tells how many, and keeps them until it is killed */
static void revocable_crowd(unsigned int most, int to)
{
	unsigned int i, made = 0;
	struct mkt_dev dev;
	struct ibv_mr *mr, *key;
	void *host = malloc(64);

	if (!host || mkt_dev_try_open(&dev, 1))
		_exit(1);
	mr = ibv_reg_mr(dev.pd, host, 64, 0);
	if (!mr)
		_exit(2);
	for (i = 0; i < most; i++) {
		key = revocable_key(&dev, IBMKEY_ALLOC_REVOCABLE);
		if (!key)
			break;
		made += !mkt_bind_range(key, 0, mr, (uintptr_t)host, 64);
	}
	if (write(to, &made, sizeof(made)) != sizeof(made))
		_exit(3);
	for (;;)
		pause();
}

/* a deregistration costs what refers to the MR, not what other processes have */
TEST_F(revocable, keys_of_another_process_cost_nothing)
{
	unsigned int made = 0, most = mkt_rounds(100000, 20000);
	uint64_t before, after;
	int fd[2], status;
	pid_t pid;

	ASSERT_EQ(0, pipe(fd));
	before = revocable_time(self);
	ASSERT_LT(0, before);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(fd[0]);
		revocable_crowd(most, fd[1]);
	}
	close(fd[1]);
	EXPECT_EQ(sizeof(made), read(fd[0], &made, sizeof(made)));
	after = revocable_time(self);
	kill(pid, SIGKILL);
	EXPECT_EQ(pid, waitpid(pid, &status, 0));
	close(fd[0]);
	TH_LOG("%llu ns, and %llu ns with %u keys of another process", (unsigned long long)before,
	       (unsigned long long)after, made);
	EXPECT_LE(1000, made);
	ASSERT_LT(0, after);
	/* a search through all keys took 30 to 1,000 times as long */
	EXPECT_LT(after, 10 * before);
}

TEST_HARNESS_MAIN
