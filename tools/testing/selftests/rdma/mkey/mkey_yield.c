// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Keys that yield: the deregistration of a leaf succeeds and unbinds the key. Other
 * keys keep their leaves.
 * sets: smp
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "yield_long.h"

#define LENGTH 8192
#define BYTE 0xc5

FIXTURE(yield)
{
	struct mkt_setup s;
	struct ibv_mr *key[3];
	struct ibv_mr *leaf;
	uint8_t *at;
};

static struct ibv_mr *yield_key(struct mkt_dev *dev, uint32_t flags)
{
	struct ibmkey_alloc_attr attr = { .max_entries = 4, .flags = flags };

	return ibmkey_alloc_ex(dev->pd, &attr);
}

static struct ibv_mr *yield_leaf(FIXTURE_DATA(yield) *self)
{
	return ibv_reg_mr(self->s.dev[1].pd, self->at, LENGTH, MKT_ACCESS_ALL);
}

FIXTURE_SETUP(yield)
{
	unsigned int i;

	MKT_SETUP(&self->s, .host = 64 * 1024);
	self->at = self->s.arena[1].mem[0].host;
	memset(self->at, BYTE, LENGTH);
	ASSERT_EQ(0, mkt_arena_adopt(&self->s.arena[1], 0, LENGTH));
	self->leaf = yield_leaf(self);
	ASSERT_NE(NULL, self->leaf);
	for (i = 0; i < 3; i++) {
		self->key[i] = yield_key(&self->s.dev[1], IBMKEY_ALLOC_YIELD);
		ASSERT_NE(NULL, self->key[i]);
	}
}

FIXTURE_TEARDOWN(yield)
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
static int yield_bind(FIXTURE_DATA(yield) *self, struct ibv_mr *key, struct ibv_mr *below)
{
	struct ibmkey_range range = {
		.addr = below == self->leaf ? (uintptr_t)self->at : 0,
		.length = LENGTH,
		.lkey = below->lkey,
	};

	return ibmkey_bind_list(key, MKT_ACCESS_ALL, 1, &range);
}

static int yield_read(FIXTURE_DATA(yield) *self, uint32_t rkey)
{
	struct mkt_wr wr = mkt_plain_wr(&self->s, 0, MKT_READ, LENGTH, 0, rkey);

	return mkt_status(&self->s.pair, 0, &wr);
}

static uint32_t yield_kind(struct ibv_mr *key)
{
	struct ibmkey_info info = {};

	return ibmkey_query(key, &info) ? UINT32_MAX : info.kind;
}

TEST_F(yield, the_leaf_goes_and_the_key_is_unbound)
{
	uint32_t old = self->key[0]->rkey;

	ASSERT_EQ(0, yield_bind(self, self->key[0], self->leaf));
	EXPECT_EQ(IBV_WC_SUCCESS, yield_read(self, old));
	ASSERT_EQ(0, ibv_dereg_mr(self->leaf));
	self->leaf = NULL;
	EXPECT_EQ(IBMKEY_UNBOUND, yield_kind(self->key[0]));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, yield_read(self, old));
	ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	/* the next bind changes the tag */
	self->leaf = yield_leaf(self);
	ASSERT_NE(NULL, self->leaf);
	ASSERT_EQ(0, yield_bind(self, self->key[0], self->leaf));
	EXPECT_EQ(ibv_inc_rkey(old), self->key[0]->rkey);
	EXPECT_EQ(IBV_WC_SUCCESS, yield_read(self, self->key[0]->rkey));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, yield_read(self, old));
	EXPECT_EQ(0, mkt_pair_recover(&self->s.pair));
}

TEST_F(yield, keys_over_keys_go_too)
{
	unsigned int i;

	ASSERT_EQ(0, yield_bind(self, self->key[0], self->leaf));
	ASSERT_EQ(0, yield_bind(self, self->key[1], self->key[0]));
	ASSERT_EQ(0, yield_bind(self, self->key[2], self->key[1]));
	EXPECT_EQ(IBV_WC_SUCCESS, yield_read(self, self->key[2]->rkey));
	ASSERT_EQ(0, ibv_dereg_mr(self->leaf));
	self->leaf = NULL;
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(IBMKEY_UNBOUND, yield_kind(self->key[i]));
		EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, yield_read(self, self->key[i]->rkey));
		ASSERT_EQ(0, mkt_pair_recover(&self->s.pair));
	}
}

/* a key in between goes, and the keys over it; the one below stays */
TEST_F(yield, a_key_is_a_leaf)
{
	ASSERT_EQ(0, yield_bind(self, self->key[0], self->leaf));
	ASSERT_EQ(0, yield_bind(self, self->key[1], self->key[0]));
	ASSERT_EQ(0, ibv_dereg_mr(self->key[0]));
	EXPECT_EQ(IBMKEY_UNBOUND, yield_kind(self->key[1]));
	self->key[0] = yield_key(&self->s.dev[1], IBMKEY_ALLOC_YIELD);
	ASSERT_NE(NULL, self->key[0]);
}

TEST_F(yield, a_key_without_the_flag_keeps_the_leaf)
{
	struct ibv_mr *firm = yield_key(&self->s.dev[1], 0);

	ASSERT_NE(NULL, firm);
	ASSERT_EQ(0, yield_bind(self, self->key[0], self->leaf));
	ASSERT_EQ(0, yield_bind(self, firm, self->leaf));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(self->leaf));
	EXPECT_EQ(IBMKEY_LIST, yield_kind(self->key[0]));
	EXPECT_EQ(IBMKEY_LIST, yield_kind(firm));
	/* over the key that yields: another key that yields stays bound, too */
	ASSERT_EQ(0, yield_bind(self, firm, self->key[0]));
	ASSERT_EQ(0, yield_bind(self, self->key[2], self->leaf));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(self->leaf));
	EXPECT_EQ(IBMKEY_LIST, yield_kind(self->key[0]));
	EXPECT_EQ(IBMKEY_LIST, yield_kind(self->key[2]));
	EXPECT_EQ(IBV_WC_SUCCESS, yield_read(self, firm->rkey));
	ASSERT_EQ(0, ibmkey_unbind(firm));
	EXPECT_EQ(0, ibv_dereg_mr(self->leaf));
	self->leaf = NULL;
	EXPECT_EQ(0, ibv_dereg_mr(firm));
}

TEST_F(yield, a_window_keeps_the_leaf)
{
	struct ibv_mw *mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
	struct ibmkey_range range = {
		.addr = (uintptr_t)self->at,
		.length = LENGTH,
		.lkey = self->leaf->lkey,
	};

	ASSERT_NE(NULL, mw);
	ASSERT_EQ(0, ibmkey_bind_list(self->key[0], MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND, 1,
				      &range));
	ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], mw, self->key[0], 0, LENGTH,
				     IBV_ACCESS_REMOTE_READ));
	EXPECT_EQ(EBUSY, ibv_dereg_mr(self->leaf));
	EXPECT_EQ(IBV_WC_SUCCESS, yield_read(self, mw->rkey));
	ASSERT_EQ(0, ibv_dealloc_mw(mw));
}

TEST_F(yield, unknown_flags)
{
	errno = 0;
	EXPECT_ERRNO(EINVAL, yield_key(&self->s.dev[1], IBMKEY_ALLOC_YIELD << 1));
}

struct yield_loop {
	FIXTURE_DATA(yield) *self;
	atomic_bool stop;
	atomic_uint turns;
	int err;
};

/* registers the memory, binds the key to it, and deregisters the memory */
static void *yield_turn(void *arg)
{
	struct yield_loop *loop = arg;
	FIXTURE_DATA(yield) *self = loop->self;

	while (!loop->err && !atomic_load(&loop->stop)) {
		loop->err = yield_bind(self, self->key[0], self->leaf);
		usleep(2000);
		if (!loop->err)
			loop->err = ibv_dereg_mr(self->leaf);
		if (loop->err)
			break;
		self->leaf = yield_leaf(self);
		if (!self->leaf)
			loop->err = errno;
		atomic_fetch_add(&loop->turns, 1);
	}
	return NULL;
}

/* a thread that deregisters an MR of each round, at the same time as the test another one */
struct yield_other {
	pthread_barrier_t begin, end;
	struct ibv_mr *mr;	/* NULL: no more rounds */
	int err;
};

static void *yield_dereg(void *arg)
{
	struct yield_other *other = arg;

	for (;;) {
		pthread_barrier_wait(&other->begin);
		if (!other->mr)
			return NULL;
		other->err = ibv_dereg_mr(other->mr);
		pthread_barrier_wait(&other->end);
	}
}

/* two threads deregister two leaves of one key: each succeeds, whichever unbinds the key */
TEST_F(yield, two_leaves_go_at_once)
{
	struct mkt_dev *dev = &self->s.dev[0];
	struct ibv_mr *key = yield_key(dev, IBMKEY_ALLOC_YIELD), *mr;
	void *host = self->s.arena[0].mem[0].host;
	unsigned int i, rounds = mkt_scale(2000, 300);
	struct yield_other other = {};
	pthread_t tid;

	ASSERT_NE(NULL, key);
	pthread_barrier_init(&other.begin, NULL, 2);
	pthread_barrier_init(&other.end, NULL, 2);
	ASSERT_EQ(0, pthread_create(&tid, NULL, yield_dereg, &other));
	for (i = 0; i < rounds; i++) {
		struct ibmkey_range range[2] = {
			{ .addr = (uintptr_t)host, .length = 64 },
			{ .addr = (uintptr_t)host, .length = 64 },
		};

		mr = ibv_reg_mr(dev->pd, host, 64, 0);
		other.mr = ibv_reg_mr(dev->pd, host, 64, 0);
		ASSERT_NE(NULL, mr);
		ASSERT_NE(NULL, other.mr);
		range[0].lkey = mr->lkey;
		range[1].lkey = other.mr->lkey;
		ASSERT_EQ(0, ibmkey_bind_list(key, 0, 2, range));
		pthread_barrier_wait(&other.begin);
		ASSERT_EQ(0, ibv_dereg_mr(mr));
		pthread_barrier_wait(&other.end);
		ASSERT_EQ(0, other.err);
		EXPECT_EQ(IBMKEY_UNBOUND, yield_kind(key));
	}
	other.mr = NULL;
	pthread_barrier_wait(&other.begin);
	pthread_join(tid, NULL);
	EXPECT_EQ(0, ibv_dereg_mr(key));
}

/* the kernel looks at all leaves of a key, some at a time */
TEST_F(yield, a_key_of_many_leaves)
{
	static struct yield_long l;
	bool last;

	ASSERT_EQ(0, yield_long_make(&l, &self->s.dev[0], self->s.arena[0].mem[0].host));
	for (last = false;; last = true) {
		ASSERT_EQ(0, yield_long_bind(&l, last));
		ASSERT_EQ(0, ibv_dereg_mr(l.mr));
		l.mr = NULL;
		EXPECT_EQ(IBMKEY_UNBOUND, yield_kind(l.key));
		if (last)
			break;
		l.mr = ibv_reg_mr(self->s.dev[0].pd, self->s.arena[0].mem[0].host, 64, 0);
		ASSERT_NE(NULL, l.mr);
	}
	EXPECT_EQ(0, yield_long_free(&l));
}

/*
 * A key of many leaves is bound while the kernel looks at its leaves. Its leaf, a key over the MR,
 * counts once. So a key that does not yield keeps the leaf, and another key that yields stays
 * bound.
 */
TEST_F(yield, a_key_of_many_leaves_is_bound_meanwhile)
{
	unsigned int i, done, rounds = mkt_scale(20000, 3000), binds = mkt_scale(3000, 300);
	struct mkt_dev *dev = &self->s.dev[0];
	struct ibmkey_range range = { .length = 1 };
	struct ibv_mr *mr, *firm, *soft;
	static struct yield_long l;
	pthread_t tid;

	firm = yield_key(dev, 0);
	soft = yield_key(dev, IBMKEY_ALLOC_YIELD);
	ASSERT_NE(NULL, firm);
	ASSERT_NE(NULL, soft);
	ASSERT_EQ(0, yield_long_make(&l, dev, self->s.arena[0].mem[0].host));
	mr = l.mr;
	l.mr = yield_key(dev, IBMKEY_ALLOC_YIELD);
	ASSERT_NE(NULL, l.mr);
	range.addr = l.addr;
	range.lkey = mr->lkey;
	ASSERT_EQ(0, ibmkey_bind_list(l.mr, 0, 1, &range));
	l.at = 0;
	range.addr = 0;
	range.lkey = l.mr->lkey;
	ASSERT_EQ(0, ibmkey_bind_list(firm, 0, 1, &range));
	ASSERT_EQ(0, ibmkey_bind_list(soft, 0, 1, &range));
	ASSERT_EQ(0, pthread_create(&tid, NULL, yield_long_loop, &l));
	for (i = 0; !atomic_load(&l.err); i++) {
		done = atomic_load(&l.binds);
		if (done >= binds || (done >= 10 && i >= rounds))
			break;
		ASSERT_EQ(EBUSY, ibv_dereg_mr(mr));
		ASSERT_EQ(IBMKEY_LIST, yield_kind(soft));
		mkt_alive();
	}
	atomic_store(&l.stop, true);
	pthread_join(tid, NULL);
	TH_LOG("%u deregistrations during %u binds", i, atomic_load(&l.binds));
	EXPECT_EQ(0, atomic_load(&l.err));
	EXPECT_EQ(0, ibv_dereg_mr(firm));
	EXPECT_EQ(0, ibv_dereg_mr(soft));
	EXPECT_EQ(0, yield_long_free(&l));
	EXPECT_EQ(0, ibv_dereg_mr(mr));
}

/* what the thread of @loop has done */
struct yield_state {
	uint32_t rkey;
	unsigned int turns;
	int err;
};

static struct yield_state yield_now(const struct yield_loop *loop)
{
	struct yield_state state = {
		.rkey = __atomic_load_n(&loop->self->key[0]->rkey, __ATOMIC_RELAXED),
		.turns = atomic_load(&loop->turns),
		.err = __atomic_load_n(&loop->err, __ATOMIC_RELAXED),
	};

	return state;
}

/* a READ succeeds with the right bytes, or it fails */
TEST_F(yield, while_a_peer_reads)
{
	uint8_t *here = (uint8_t *)(uintptr_t)self->s.plain[0].addr;
	unsigned int i, rounds = mkt_scale(2000, 200), done = 0;
	struct yield_loop loop = { .self = self };
	struct yield_state now;
	pthread_t tid;

	ASSERT_EQ(0, pthread_create(&tid, NULL, yield_turn, &loop));
	for (i = 0;; i++) {
		now = yield_now(&loop);
		if ((i >= rounds && done && now.turns >= 10) || now.err)
			break;
		memset(here, 0, LENGTH);
		if (yield_read(self, now.rkey)) {
			if (mkt_pair_recover(&self->s.pair))
				break;
			continue;
		}
		done++;
		EXPECT_EQ(BYTE, here[0]);
		EXPECT_EQ(0, memcmp(here, here + 1, LENGTH - 1));
	}
	atomic_store(&loop.stop, true);
	pthread_join(tid, NULL);
	EXPECT_EQ(0, yield_now(&loop).err);
	EXPECT_LT(0, done);
}

/* the shortest time, in ns, of a deregistration that unbinds a key; 0 after an error */
static uint64_t yield_time(FIXTURE_DATA(yield) *self)
{
	uint64_t best = UINT64_MAX, ns;
	struct timespec from, to;
	unsigned int i;

	for (i = 0; i < 30; i++) {
		if (!self->leaf)
			self->leaf = yield_leaf(self);
		if (!self->leaf || yield_bind(self, self->key[0], self->leaf))
			return 0;
		clock_gettime(CLOCK_MONOTONIC, &from);
		if (ibv_dereg_mr(self->leaf))
			return 0;
		clock_gettime(CLOCK_MONOTONIC, &to);
		self->leaf = NULL;
		ns = (to.tv_sec - from.tv_sec) * 1000000000ull + to.tv_nsec - from.tv_nsec;
		best = ns < best ? ns : best;
	}
	return best;
}

/* makes keys that yield, each bound to an MR, tells how many, and keeps them until it is killed */
static void yield_crowd(unsigned int most, int to)
{
	unsigned int i, made = 0;
	struct ibmkey_range range;
	struct mkt_dev dev;
	struct ibv_mr *mr, *key;
	void *host = malloc(64);

	if (!host || mkt_dev_try_open(&dev, 1))
		_exit(1);
	mr = ibv_reg_mr(dev.pd, host, 64, 0);
	if (!mr)
		_exit(2);
	range = (struct ibmkey_range){ (uintptr_t)host, 64, mr->lkey };
	for (i = 0; i < most; i++) {
		key = yield_key(&dev, IBMKEY_ALLOC_YIELD);
		if (!key)
			break;
		made += !ibmkey_bind_list(key, 0, 1, &range);
	}
	if (write(to, &made, sizeof(made)) != sizeof(made))
		_exit(3);
	for (;;)
		pause();
}

/* a deregistration costs what refers to the MR, not what other processes have */
TEST_F(yield, keys_of_another_process_cost_nothing)
{
	unsigned int made = 0, most = mkt_scale(100000, 20000);
	uint64_t before, after;
	int fd[2], status;
	pid_t pid;

	ASSERT_EQ(0, pipe(fd));
	before = yield_time(self);
	ASSERT_LT(0, before);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(fd[0]);
		yield_crowd(most, fd[1]);
	}
	close(fd[1]);
	EXPECT_EQ(sizeof(made), read(fd[0], &made, sizeof(made)));
	after = yield_time(self);
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
