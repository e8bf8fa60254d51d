// SPDX-License-Identifier: GPL-2.0
/*
 * subject: One call binds several keys: all of them, or none, and then everything is unchanged.
 * sets: smp
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "raw.h"

#define MANY_MAX 512
#define MANY 7

FIXTURE(many)
{
	struct mkt_setup s;
	struct mkt_leaf *leaf;		/* of side 1 */
	struct ibv_mr *key[MANY];	/* of side 1, bound to @was */
	struct ibmkey_range was[MANY];
	struct ibmkey_range sge[MANY][2];
	struct ibmkey_block block[MANY];
	struct ibmkey_indexed indexed[MANY];
	uint32_t indices[4];
	uint64_t repeat[2];
	struct ibmkey_bind bind[MANY];
};

FIXTURE_SETUP(many)
{
	unsigned int i;

	MKT_SETUP(&self->s, .mtu = IBV_MTU_4096, .host = 64 * 1024, .max_entries = 2);
	self->leaf = &self->s.arena[1].leaf[0];
	self->repeat[0] = 3;
	self->repeat[1] = 2;
	for (i = 0; i < MANY; i++) {
		struct ibmkey_bind *bind = &self->bind[i];

		self->key[i] = ibmkey_alloc(self->s.dev[1].pd, 2);
		ASSERT_NE(NULL, self->key[i]);
		self->was[i].addr = self->leaf->addr + 100 * i;
		self->was[i].length = 50 + i;
		self->was[i].lkey = self->leaf->mr->lkey;
		ASSERT_EQ(0, ibmkey_bind_list(self->key[i], MKT_ACCESS_ALL, 1,
					      &self->was[i]));

		/* a list, blocks, indexed blocks, a list, ... */
		bind->mkey = self->key[i];
		bind->access = IBV_ACCESS_REMOTE_READ;
		self->sge[i][0].addr = self->leaf->addr + 3000 + 200 * i;
		self->sge[i][0].length = 40;
		self->sge[i][0].lkey = self->leaf->mr->lkey;
		self->sge[i][1] = self->sge[i][0];
		self->sge[i][1].addr += 77;
		self->block[i].addr = self->leaf->addr + 9000 + 200 * i;
		self->block[i].bytes_count = 5;
		self->block[i].lkey = self->leaf->mr->lkey;
		self->block[i].stride[0] = 50;
		self->block[i].stride[1] = -7;
		self->indexed[i].addr = self->leaf->addr + 15000 + 200 * i;
		self->indexed[i].unit = 12;
		self->indexed[i].bytes_count = 9;
		self->indexed[i].indices = (uintptr_t)self->indices;
		self->indexed[i].index_bytes = 4;
		self->indexed[i].num_indices = 2;
		self->indexed[i].lkey = self->leaf->mr->lkey;
		switch (i % 3) {
		case 0:
			bind->kind = IBMKEY_LIST;
			bind->ranges = self->sge[i];
			bind->num_entries = 2;
			break;
		case 1:
			bind->kind = IBMKEY_INTERLEAVED;
			bind->blocks = &self->block[i];
			bind->repeat_count = self->repeat;
			bind->num_entries = 1;
			bind->num_dims = 2;
			break;
		default:
			bind->kind = IBMKEY_INDEXED;
			bind->indexed = &self->indexed[i];
			bind->num_entries = 1;
		}
	}
	self->indices[0] = 6;
	self->indices[1] = 2;
}

FIXTURE_TEARDOWN(many)
{
	unsigned int i;

	for (i = 0; i < MANY; i++) {
		EXPECT_EQ(0, ibv_dereg_mr(self->key[i]));
	}
	EXPECT_EQ(0, mkt_teardown(&self->s));
}

/* the other side reads through @key the bytes at @pos */
static int many_read(struct mkt_setup *s, struct ibv_mr *key, const uint32_t *pos, size_t length)
{
	struct mkt_end end = { .arena = &s->arena[1], .mr = key };
	struct mkt_xfer xfer = {
		.op = MKT_READ,
		.end = { &s->plain[0], &end },
		.length = length,
	};

	end.map.pos = (uint32_t *)pos;
	end.map.length = length;
	return mkt_xfer(&s->pair, &xfer);
}

/* key @i has its old binding, or that of bind @i */
static int many_check(struct mkt_setup *s, struct mkt_leaf *leaf, struct ibv_mr *key,
		      const struct ibmkey_range *was, const struct ibmkey_bind *bind)
{
	struct ibmkey_info info;
	uint32_t pos[128];
	unsigned int a, b, c, n = 0;

	if (was) {
		for (c = 0; c < was->length; c++)
			pos[n++] = was->addr - leaf->addr + c;
	} else if (bind->kind == IBMKEY_LIST) {
		for (a = 0; a < 2; a++)
			for (c = 0; c < bind->ranges[a].length; c++)
				pos[n++] = bind->ranges[a].addr - leaf->addr + c;
	} else if (bind->kind == IBMKEY_INDEXED) {
		const struct ibmkey_indexed *indexed = bind->indexed;
		const uint32_t *indices = (void *)(uintptr_t)indexed->indices;

		for (a = 0; a < indexed->num_indices; a++)
			for (c = 0; c < indexed->bytes_count; c++)
				pos[n++] = indexed->addr - leaf->addr + c +
					   indices[a] * indexed->unit;
	} else {
		const struct ibmkey_block *block = bind->blocks;

		for (a = 0; a < bind->repeat_count[0]; a++)
			for (b = 0; b < bind->repeat_count[1]; b++)
				for (c = 0; c < block->bytes_count; c++)
					pos[n++] = block->addr - leaf->addr +
						   a * block->stride[0] +
						   b * block->stride[1] + c;
	}
	for (c = 0; c < n; c++)
		pos[c] += leaf->at;
	if (ibmkey_query(key, &info) || info.length != n || key->length != n ||
	    (info.access & ~IBV_ACCESS_ZERO_BASED) !=
	    (was ? MKT_ACCESS_ALL : IBV_ACCESS_REMOTE_READ)) {
		mkt_diag("length %llu, %zu, not %u; access %x",
			 (unsigned long long)info.length, key->length, n,
			 info.access);
		return EBADMSG;
	}
	return many_read(s, key, pos, n);
}

#define MANY_AS_BEFORE() do {						\
	unsigned int __i;						\
									\
	for (__i = 0; __i < MANY; __i++)				\
		EXPECT_EQ(0, many_check(&self->s, self->leaf,		\
					self->key[__i],			\
					&self->was[__i], NULL))		\
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
			EXPECT_EQ(0, many_check(&self->s, self->leaf,
						self->key[i], NULL,
						&self->bind[i]));
			/* the next call unbinds some of them */
			if (i % 3 == round) {
				EXPECT_EQ(0, ibmkey_unbind(self->key[i]));
			}
		}
	}
	EXPECT_EQ(0, ibmkey_bind_many(&self->bind[2], 1, NULL));
	EXPECT_EQ(0, many_check(&self->s, self->leaf, self->key[2], NULL,
				&self->bind[2]));
}

/* a wrong description in each position; mkey_errors has all errors */
TEST_F(many, refused)
{
	unsigned int at;

	for (at = 0; at < MANY; at++) {
		struct ibmkey_block block = self->block[at];
		struct ibmkey_indexed indexed = self->indexed[at];
		struct ibmkey_range sge = self->sge[at][0];

		self->sge[at][0].lkey ^= 0xff;
		self->block[at].lkey ^= 0xff;
		self->indexed[at].lkey ^= 0xff;
		MANY_REFUSED(ENOENT, at);
		self->block[at] = block;
		self->indexed[at] = indexed;
		self->sge[at][0] = sge;
	}
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
		struct ibmkey_bind bind = {
			.mkey = self->key[at],
			.access = MKT_ACCESS_ALL | IBV_ACCESS_MW_BIND,
			.kind = IBMKEY_LIST,
			.num_entries = 1,
			.ranges = &self->was[at],
		};

		ASSERT_EQ(0, ibmkey_bind_many(&bind, 1, NULL));
		mw = ibv_alloc_mw(self->s.dev[1].pd, IBV_MW_TYPE_2);
		ASSERT_NE(NULL, mw);
		ASSERT_EQ(0, mkt_bind_window(&self->s.pair.end[1], mw,
					     self->key[at], 0, 20,
					     IBV_ACCESS_REMOTE_READ));
		EXPECT_EQ(EBUSY, ibmkey_bind_many(self->bind, MANY, NULL));
		ASSERT_EQ(0, ibv_dealloc_mw(mw));
		bind.access = MKT_ACCESS_ALL;
		ASSERT_EQ(0, ibmkey_bind_many(&bind, 1, NULL));
		MANY_AS_BEFORE();
	}
}

/* one key over another of the same call: the bindings before the call count */
TEST_F(many, among_themselves)
{
	unsigned int at;

	for (at = 1; at < MANY; at++) {
		struct ibmkey_range sge = self->sge[0][0];

		self->sge[0][0].addr = 0;
		self->sge[0][0].lkey = self->key[at]->lkey;
		MANY_REFUSED(EBUSY, at);
		self->sge[0][0] = sge;
	}
	self->sge[0][0].lkey = self->key[0]->lkey;
	MANY_REFUSED(ELOOP, 0);
	ASSERT_EQ(0, ibmkey_unbind(self->key[1]));
	self->sge[0][0].addr = 0;
	self->sge[0][0].lkey = self->key[1]->lkey;
	EXPECT_EQ(ERANGE, ibmkey_bind_many(self->bind, MANY, NULL));
	ASSERT_EQ(0, ibmkey_bind_list(self->key[1], MKT_ACCESS_ALL, 1,
				      &self->was[1]));
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
		list[i].addr = self->leaf->addr;
		list[i].length = 1 + i % 2;
		list[i].lkey = self->leaf->mr->lkey;
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
	struct mkt_ioctl cmd;
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
		self->bind[a].comp_mask = 1ull << 32;
		MANY_REFUSED(EINVAL, a);
		self->bind[a].comp_mask = 0;
		self->bind[a].kind ^= 4;
		MANY_REFUSED(EINVAL, a);
		self->bind[a].kind ^= 4;
	}
	self->bind[3].mkey = self->leaf->mr;
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

	/* a command that the library would not send */
	mkt_ioctl_init(&cmd, UVERBS_OBJECT_MR, IB_MKEY_METHOD_BIND_MANY);
	mkt_ioctl_add(&cmd, IB_MKEY_ATTR_BIND_MANY_HANDLES, 4,
		      self->key[0]->handle);
	mkt_ioctl_add(&cmd, IB_MKEY_ATTR_BIND_MANY_BINDS,
		      sizeof(struct ib_uverbs_mkey_bind), 4096);
	mkt_ioctl_add(&cmd, IB_MKEY_ATTR_BIND_MANY_BIND_SIZE, 4,
		      sizeof(struct ib_uverbs_mkey_bind));
	EXPECT_EQ(EFAULT, mkt_ioctl_run(self->s.dev[1].ctx, &cmd));
	MANY_AS_BEFORE();
}

struct many_thread {
	pthread_t thread;
	struct ibmkey_bind bind[MANY];
	unsigned int num, rounds;
	int err;
};

static void *many_run(void *arg)
{
	struct many_thread *t = arg;

	while (t->rounds-- && !t->err)
		t->err = ibmkey_bind_many(t->bind, t->num, NULL);
	return NULL;
}

/*
 * Calls for overlapping sets in opposite orders: all of them end, and the last
 * bindings of each set are complete.
 */
TEST_F(many, at_once)
{
	struct many_thread t[4] = {};
	unsigned int i, k, rounds = mkt_scale(300, 30);
	struct ibmkey_info info;

	for (i = 0; i < 4; i++) {
		t[i].num = MANY;
		t[i].rounds = rounds;
		for (k = 0; k < MANY; k++) {
			unsigned int from = i % 2 ? MANY - 1 - k : k;

			t[i].bind[k] = self->bind[from];
			/* the former binding shows which thread made it */
			t[i].bind[k].kind = IBMKEY_LIST;
			t[i].bind[k].ranges = self->sge[from];
			t[i].bind[k].repeat_count = NULL;
			t[i].bind[k].num_dims = 0;
			t[i].bind[k].num_entries = 1 + i % 2;
		}
	}
	for (i = 0; i < 4; i++) {
		ASSERT_EQ(0, pthread_create(&t[i].thread, NULL, many_run,
					    &t[i]));
	}
	for (i = 0; i < 4; i++) {
		ASSERT_EQ(0, pthread_join(t[i].thread, NULL));
		EXPECT_EQ(0, t[i].err);
	}
	ASSERT_EQ(0, ibmkey_query(self->key[0], &info));
	for (k = 1; k < MANY; k++) {
		struct ibmkey_info other;

		ASSERT_EQ(0, ibmkey_query(self->key[k], &other));
		EXPECT_EQ(info.num_entries, other.num_entries);
	}
}

TEST_HARNESS_MAIN
