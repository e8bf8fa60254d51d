// SPDX-License-Identifier: GPL-2.0
/*
 * subject: One call binds several keys: all of them, or none, and then everything is unchanged.
 * sets: smp
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"
#include "mkey_harness.h"
#include "raw.h"

#define MANY_MAX 512
#define MANY 7

FIXTURE(many)
{
	struct mkt_setup s;
	struct mkt_arena *arena;	/* of side 1 */
	struct ibv_mr *key[MANY];	/* of side 1, bound to @was */
	struct mkt_block was[MANY], block[MANY][2];
	/* a list, blocks, indexed blocks, a list, ... */
	struct mkt_layout layout[MANY];
	struct mkt_entries entries[MANY];
	struct ibmkey_bind bind[MANY];
};

/* binds key @i to one range */
static int many_bind_range(FIXTURE_DATA(many) *self, unsigned int i, unsigned int access)
{
	const struct mkt_leaf *leaf = &self->arena->leaf[0];

	return mkt_bind_range(self->key[i], access, leaf->mr, leaf->addr + self->was[i].offset,
			      self->was[i].bytes);
}

FIXTURE_SETUP(many)
{
	unsigned int i;

	MKT_SETUP(&self->s, .mtu = IBV_MTU_4096, .host = 64 * 1024, .max_entries = 2);
	self->arena = &self->s.arena[1];
	for (i = 0; i < MANY; i++) {
		struct mkt_layout *layout = &self->layout[i];
		struct mkt_block *block = self->block[i];

		self->key[i] = ibmkey_alloc(self->s.dev[1].pd, 2);
		ASSERT_NE(NULL, self->key[i]);
		self->was[i] = (struct mkt_block){ .offset = 100 * i, .bytes = 50 + i };
		ASSERT_EQ(0, many_bind_range(self, i, MKT_ACCESS_ALL));
		block[0] = (struct mkt_block){ .offset = 3000 + 200 * i, .bytes = 40 };
		block[1] = block[0];
		block[1].offset += 77;
		*layout = (struct mkt_layout){ .num_blocks = 2, .block = block };
		if (i % 3 == 1) {
			layout->num_blocks = 1;
			layout->num_dims = 2;
			layout->repeat[0] = 3;
			layout->repeat[1] = 2;
			block[0].stride[0] = 50;
			block[0].stride[1] = -7;
			block[0].bytes = 5;
		} else if (i % 3 == 2) {
			layout->index_bytes = 4;
			layout->base = block[0].offset - 7;
			layout->unit = 7;
		}
		ASSERT_EQ(0, mkt_layout_entries(&self->entries[i], self->arena, layout));
		self->bind[i] = self->entries[i].bind;
		self->bind[i].mkey = self->key[i];
		self->bind[i].access = IBV_ACCESS_REMOTE_READ;
	}
}

FIXTURE_TEARDOWN(many)
{
	unsigned int i;

	for (i = 0; i < MANY; i++) {
		EXPECT_EQ(0, ibv_dereg_mr(self->key[i]));
		mkt_entries_free(&self->entries[i]);
	}
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* key @i has its old binding, or that of bind @i; the other side reads its bytes */
static int many_check(FIXTURE_DATA(many) *self, unsigned int i, bool old)
{
	struct mkt_layout was = { .num_blocks = 1, .block = &self->was[i] };
	struct mkt_end end = { .arena = self->arena, .mr = self->key[i] };
	struct mkt_xfer xfer = { .op = MKT_READ, .end = { &self->s.plain[0], &end } };
	int access = old ? MKT_ACCESS_ALL : IBV_ACCESS_REMOTE_READ;
	struct ibmkey_info info = {};
	int err;

	err = mkt_layout_map(self->arena, old ? &was : &self->layout[i], &end.map);
	xfer.length = end.map.length;
	err = err ?: ibmkey_query(end.mr, &info);
	if (!err && (info.length != xfer.length || end.mr->length != xfer.length ||
		     (info.access & ~IBV_ACCESS_ZERO_BASED) != access)) {
		mkt_diag("length %llu, %zu, not %zu; access %x", (unsigned long long)info.length,
			 end.mr->length, xfer.length, info.access);
		err = EBADMSG;
	}
	err = err ?: mkt_xfer(&self->s.pair, &xfer);
	mkt_map_free(&end.map);
	return err;
}

#define MANY_AS_BEFORE() do {						\
	unsigned int __i;						\
									\
	for (__i = 0; __i < MANY; __i++)				\
		EXPECT_EQ(0, many_check(self, __i, true))		\
		{							\
			TH_LOG("key %u", __i);				\
		}							\
} while (0)

#define MANY_REFUSED(errno_value, at) do {				\
	uint32_t __failed = 4711;					\
									\
	EXPECT_EQ(errno_value, ibmkey_bind_many(self->bind, MANY,	\
						&__failed));		\
	EXPECT_EQ(at, __failed);					\
	MANY_AS_BEFORE();						\
} while (0)

TEST_F(many, all)
{
	uint32_t failed = 4711;
	unsigned int i, round;

	MANY_AS_BEFORE();
	for (round = 0; round < 3; round++) {
		ASSERT_EQ(0, ibmkey_bind_many(self->bind, MANY, &failed));
		EXPECT_EQ(4711, failed);
		for (i = 0; i < MANY; i++) {
			EXPECT_EQ(0, many_check(self, i, false));
			/* the next call unbinds some of them */
			if (i % 3 == round) {
				EXPECT_EQ(0, ibmkey_unbind(self->key[i]));
			}
		}
	}
	EXPECT_EQ(0, ibmkey_bind_many(&self->bind[2], 1, NULL));
	EXPECT_EQ(0, many_check(self, 2, false));
}

/*
 * keys that cannot be bound now, because a window or another key refers to them
 */
TEST_F(many, busy)
{
	struct ibv_mr *outer = ibmkey_alloc(self->s.dev[1].pd, 1);
	struct ibv_mw *mw;
	struct ibv_sge sge = { .length = 10 };
	unsigned int at;

	ASSERT_NE(NULL, outer);
	for (at = 0; at < MANY; at++) {
		sge.lkey = self->key[at]->lkey;
		ASSERT_EQ(0, ibv_rereg_mr_sg(outer, 0, 1, &sge));
		MANY_REFUSED(EBUSY, at);
	}
	ASSERT_EQ(0, ibv_dereg_mr(outer));

	for (at = 0; at < MANY; at += 3) {
		ASSERT_EQ(0, many_bind_range(self, at, MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND));
		mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
		ASSERT_NE(NULL, mw);
		ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], mw,
					     self->key[at], 0, 20,
					     IBV_ACCESS_REMOTE_READ));
		EXPECT_EQ(EBUSY, ibmkey_bind_many(self->bind, MANY, NULL));
		ASSERT_EQ(0, ibv_dealloc_mw(mw));
		ASSERT_EQ(0, many_bind_range(self, at, MKT_ACCESS_ALL));
		MANY_AS_BEFORE();
	}
}

/* one key over another of the same call: the bindings before the call count */
TEST_F(many, among_themselves)
{
	struct ibmkey_range *range = &self->entries[0].ranges[0], right = *range;
	unsigned int at;

	for (at = 1; at < MANY; at++) {
		range->addr = 0;
		range->lkey = self->key[at]->lkey;
		MANY_REFUSED(EBUSY, at);
	}
	*range = right;
	range->lkey = self->key[0]->lkey;
	MANY_REFUSED(ELOOP, 0);
	ASSERT_EQ(0, ibmkey_unbind(self->key[1]));
	range->addr = 0;
	range->lkey = self->key[1]->lkey;
	EXPECT_EQ(ERANGE, ibmkey_bind_many(self->bind, MANY, NULL));
	ASSERT_EQ(0, many_bind_range(self, 1, MKT_ACCESS_ALL));
	MANY_AS_BEFORE();
}

#define KILLED_KEYS 8
#define KILLED_TRIES 30

/* memory that the killed process shares with its parent */
struct many_killed {
	uint32_t failed;
	atomic_bool begun;
};

static void many_bind_on(struct ibv_context *ctx, struct mkt_ioctl *cmd,
			 struct many_killed *shared)
{
	shared->begun = true;
	while (!mkt_ioctl_run(ctx, cmd))
		;
	_exit(1);
}

/*
 * A process that is killed during a bind ends there: the call reports the key
 * that it had reached, and no key is bound.
 */
TEST_F(many, killed)
{
	struct ib_uverbs_mkey_bind binds[KILLED_KEYS];
	uint32_t handles[KILLED_KEYS], num = self->s.dev[1].caps.max_entries;
	struct ib_uverbs_mkey_sge *list = calloc(num, sizeof(*list));
	struct ibv_mr *keys[KILLED_KEYS];
	struct many_killed *shared;
	struct mkt_ioctl cmd;
	unsigned int i, try;
	int status;
	pid_t pid;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, shared);
	ASSERT_NE(NULL, list);
	for (i = 0; i < num; i++) {
		list[i].addr = self->arena->leaf[0].addr;
		list[i].length = 1 + i % 2;
		list[i].lkey = self->arena->leaf[0].mr->lkey;
	}
	for (i = 0; i < KILLED_KEYS; i++) {
		keys[i] = ibmkey_alloc(self->s.dev[1].pd, num);
		ASSERT_NE(NULL, keys[i]);
		handles[i] = keys[i]->handle;
		binds[i] = mkt_raw_list(0, list, num);
	}
	mkt_raw_bind_many(&cmd, handles, KILLED_KEYS, binds,
			  &shared->failed);
	/* the signal may arrive between two calls */
	for (try = 0; try < KILLED_TRIES; try++) {
		shared->failed = 4711;
		shared->begun = false;
		pid = fork();
		ASSERT_NE(-1, pid);
		if (!pid)
			many_bind_on(self->s.dev[1].ctx, &cmd, shared);
		while (!shared->begun)
			usleep(1000);
		usleep(20000 + 1000 * try);
		ASSERT_EQ(0, kill(pid, SIGKILL));
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		ASSERT_EQ(1, WIFSIGNALED(status));
		if (shared->failed != 4711)
			break;
	}
	EXPECT_GT(KILLED_KEYS, shared->failed);
	for (i = 0; i < KILLED_KEYS; i++) {
		EXPECT_EQ(0, ibv_dereg_mr(keys[i]));
	}
	munmap(shared, sizeof(*shared));
	free(list);
}

/* invalid sets of keys */
TEST_F(many, not_a_set)
{
	static struct ibmkey_bind most[MANY_MAX + 1];
	static struct ibv_mr *keys[MANY_MAX + 1];
	struct ibv_mr *other = self->s.key[0];
	uint32_t failed = 0;
	unsigned int i, a, b;

	for (a = 0; a < MANY; a++) {
		for (b = a + 1; b < MANY; b++) {
			self->bind[b].mkey = self->key[a];
			MANY_REFUSED(EINVAL, b);
			self->bind[b].mkey = self->key[b];
		}
	}
	for (a = 0; a < MANY; a++) {
		self->bind[a].kind ^= 4;
		MANY_REFUSED(EINVAL, a);
		self->bind[a].kind ^= 4;
	}
	self->bind[3].mkey = self->arena->leaf[0].mr;
	MANY_REFUSED(EINVAL, 3);
	self->bind[3].mkey = other;		/* of another context */
	MANY_REFUSED(EINVAL, 3);
	self->bind[3].mkey = NULL;
	MANY_REFUSED(EINVAL, 3);
	self->bind[3].mkey = self->key[3];
	EXPECT_EQ(EINVAL, ibmkey_bind_many(self->bind, 0, &failed));
	EXPECT_EQ(EFAULT, ibmkey_bind_many(NULL, 1, &failed));
	EXPECT_EQ(1, failed);

	for (i = 0; i <= MANY_MAX; i++) {
		keys[i] = ibmkey_alloc(self->s.dev[1].pd, 1);
		ASSERT_NE(NULL, keys[i]);
		most[i] = self->bind[1];
		most[i].mkey = keys[i];
	}
	EXPECT_EQ(EINVAL, ibmkey_bind_many(most, MANY_MAX + 1, &failed));
	EXPECT_EQ(0, keys[0]->length);
	EXPECT_EQ(0, ibmkey_bind_many(most, MANY_MAX, &failed));
	for (i = 0; i <= MANY_MAX; i++) {
		EXPECT_EQ(i < MANY_MAX ? 30 : 0, keys[i]->length);
		EXPECT_EQ(0, ibv_dereg_mr(keys[i]));
	}
	MANY_AS_BEFORE();
}

struct many_thread {
	struct mkt_loop loop;
	struct ibmkey_bind bind[MANY];
};

static int many_step(void *arg, unsigned int round)
{
	struct many_thread *t = arg;

	return ibmkey_bind_many(t->bind, MANY, NULL);
}

/*
 * Calls for overlapping sets in opposite orders: all of them end, and the last
 * bindings of each set are complete.
 */
TEST_F(many, at_once)
{
	const struct ibmkey_range *range = self->entries[0].ranges;
	struct many_thread t[4] = {};
	unsigned int i, k, rounds = mkt_scale(300, 30);
	struct ibmkey_info info;

	for (i = 0; i < 4; i++) {
		for (k = 0; k < MANY; k++) {
			t[i].bind[k] = (struct ibmkey_bind){
				.mkey = self->key[i % 2 ? MANY - 1 - k : k],
				.access = IBV_ACCESS_REMOTE_READ,
				.kind = IBMKEY_LIST,
				.ranges = range,
				/* the binding shows which thread made it */
				.num_entries = 1 + i % 2,
			};
		}
		ASSERT_EQ(0, mkt_loop_start(&t[i].loop, many_step, &t[i]));
	}
	for (i = 0; i < 4; i++)
		EXPECT_EQ(0, mkt_loop_wait(&t[i].loop, rounds));
	ASSERT_EQ(0, ibmkey_query(self->key[0], &info));
	for (k = 1; k < MANY; k++) {
		struct ibmkey_info other;

		ASSERT_EQ(0, ibmkey_query(self->key[k], &other));
		EXPECT_EQ(info.num_entries, other.num_entries);
	}
}

TEST_HARNESS_MAIN
