// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Threads whose operations exclude each other: MRs are deregistered while they are
 * bound, keys are destroyed while they are bound and used. One of the two succeeds, and each
 * reports its result. A key is queried while it is bound.
 * sets: smp
 */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "commands.h"
#include "loop.h"
#include "mkey_harness.h"

#define THREADS 3

FIXTURE(race)
{
	struct mkt_commands c;
	struct mkt_rng rng;
};

FIXTURE_SETUP(race)
{
	MKT_OPEN_SIDE(&self->c.dev, 0);
	mkt_rng_init(&self->rng, _metadata->name);
	ASSERT_EQ(0, mkt_commands_setup(&self->c));
}

FIXTURE_TEARDOWN(race)
{
	EXPECT_EQ(0, mkt_commands_teardown(&self->c));
}

struct race_thread {
	struct race *race;
	struct mkt_loop loop;
	struct mkt_rng rng;
	struct ibv_mr *key;
};

struct race {
	FIXTURE_DATA(race) *self;
	struct race_thread thread[THREADS];
	_Atomic uint32_t name;		/* of the region of the moment */
	_Atomic uint32_t gone;		/* the name of the last region, or 0 while there is one */
	atomic_uint done, refused;	/* by all of them */
};

static int race_start(struct race *race, int (*step)(void *thread, unsigned int round))
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < THREADS && !err; i++) {
		struct race_thread *thread = &race->thread[i];

		thread->race = race;
		thread->rng.state = mkt_rand(&race->self->rng);
		thread->key = ibmkey_alloc(race->self->c.dev.pd, 1);
		err = thread->key ? mkt_loop_start(&thread->loop, step, thread) : errno;
	}
	return err;
}

/* true if there is another round after @i: at least @rounds, and until the race was @met */
static bool race_goes_on(bool met, unsigned int i, unsigned int rounds)
{
	return i < rounds || (!met && i < 1000 * rounds);
}

/* the first error of any thread, or 0 */
static int race_error(struct race *race)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < THREADS && !err; i++)
		err = atomic_load(&race->thread[i].loop.err);
	return err;
}

/* waits until a thread has done something, or has failed */
static void race_wait(struct race *race)
{
	unsigned int done = atomic_load(&race->done);

	while (atomic_load(&race->done) == done && !race_error(race))
		sched_yield();
}

/* ends the threads; returns the first error of any of them, or 0 */
static int race_end(struct race *race)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < THREADS; i++) {
		err = mkt_loop_end(&race->thread[i].loop) ?: err;
		err = ibv_dereg_mr(race->thread[i].key) ?: err;
	}
	return err;
}

#define LEAVES 1500		/* more than ib_mkey lists at once */
#define LIST "/sys/kernel/debug/ib_mkey/leaves"

/* binds the current MR, which may change meanwhile */
static int race_bind(void *arg, unsigned int round)
{
	struct race_thread *thread = arg;
	struct race *race = thread->race;
	struct ibv_sge sge = {
		.addr = (uintptr_t)race->self->c.arena.mem[0].host,
		.length = 100,
		.lkey = atomic_load(&race->name),
	};
	int err = ibv_rereg_mr_sg(thread->key, MKT_ACCESS_ALL, 1, &sge);

	if (err == ENOENT) {
		race->refused += sge.lkey != 0;
		err = 0;
	} else if (!err) {
		atomic_fetch_add(&race->done, 1);
		sched_yield();
		/* The MR cannot go while the key is bound. */
		if (atomic_load(&race->gone) == sge.lkey)
			return EADDRNOTAVAIL;
	}
	return err || mkt_rand(&thread->rng) & 1 ? err : ibmkey_unbind(thread->key);
}

/*
 * An MR is bound before it is deregistered, or not at all. In every second round the MR is
 * deregistered only after a thread has bound it.
 */
TEST_F(race, bind_and_deregister)
{
	unsigned int i, busy = 0, rounds = mkt_rounds(3000, 300);
	void *host = self->c.arena.mem[0].host;
	struct race race = { .self = self };

	ASSERT_EQ(0, race_start(&race, race_bind));
	for (i = 0; race_goes_on(busy && race.refused, i, rounds); i++) {
		struct ibv_mr *mr;
		uint32_t lkey;
		int err;

		/* A new MR may have the name of an earlier one. */
		atomic_store(&race.gone, 0);
		mr = ibv_reg_mr(self->c.dev.pd, host, 4096, MKT_ACCESS_ALL);
		ASSERT_NE(NULL, mr);
		lkey = mr->lkey;
		atomic_store(&race.name, lkey);
		if (i & 1)
			race_wait(&race);
		do {
			err = ibv_dereg_mr(mr);
			busy += err == EBUSY;
			/*
			 * otherwise a thread would always have bound it again
			 */
			atomic_store(&race.name, 0);
		} while (err == EBUSY);
		ASSERT_EQ(0, err);
		atomic_store(&race.gone, lkey);
	}
	EXPECT_EQ(0, race_end(&race));
	EXPECT_LT(0, busy);
	EXPECT_LT(0, race.refused);
	TH_LOG("%u binds, %u came too late, %u times busy", race.done, race.refused, busy);
}

/* all threads use one handle: each command finds a key, none, or another object */
static int race_handles(void *arg, unsigned int round)
{
	struct race_thread *thread = arg;
	struct race *race = thread->race;
	/* the command points to memory of this copy */
	struct mkt_commands c = race->self->c;
	uint32_t handle = atomic_load(&race->name);
	struct mkt_ioctl cmd;
	int err;

	if (mkt_between(&thread->rng, 0, 9))
		mkt_command_build(&c, &cmd, mkt_between(&thread->rng, BIND_LIST, UNBIND));
	else
		mkt_raw_mr_destroy(&cmd, handle);
	cmd.attr[0].data = handle;
	err = mkt_ioctl_run(c.dev.ctx, &cmd);
	if (!err)
		race->done++;
	else if (err == ENOENT || err == EBUSY || err == EINVAL)
		race->refused++;
	else
		return err;
	return 0;
}

TEST_F(race, use_and_destroy)
{
	unsigned int i, busy = 0, rounds = mkt_rounds(3000, 300);
	struct race race = { .self = self, .name = UINT32_MAX >> 1 };
	int before = mkt_dev_count(&self->c.dev, "mr");

	ASSERT_EQ(0, race_start(&race, race_handles));
	for (i = 0; race_goes_on(busy && race.done, i, rounds); i++) {
		struct mkt_ioctl cmd;
		uint32_t made;
		int err;

		mkt_command_build(&self->c, &cmd, CREATE);
		ASSERT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		made = cmd.attr[0].data;
		atomic_store(&race.name, made);
		sched_yield();
		do {
			mkt_raw_mr_destroy(&cmd, made);
			err = mkt_ioctl_run(self->c.dev.ctx, &cmd);
			busy += err == EBUSY;
			/* otherwise a thread would always be using it */
			atomic_store(&race.name, UINT32_MAX >> 1);
		} while (err == EBUSY);
		ASSERT_TRUE(!err || err == ENOENT);
	}
	EXPECT_EQ(0, race_end(&race));
	EXPECT_LT(0, race.done);
	EXPECT_LT(0, busy);
	TH_LOG("%u commands were done, %u refused, %u times busy", race.done,
	       race.refused, busy);
	if (before >= 0) {
		EXPECT_EQ(before, mkt_dev_count(&self->c.dev, "mr"));
	}
}

/* reads the list of all leaves */
static int race_read_list(void)
{
	static _Thread_local char text[65536];
	int fd = open(LIST, O_RDONLY);
	ssize_t got = -1;

	if (fd < 0)
		return errno;
	while ((got = read(fd, text, sizeof(text))) > 0)
		;
	close(fd);
	return got < 0 ? EIO : 0;
}

/*
 * Looks at all keys: the first thread deregisters the MR to which its key is bound, which is
 * refused, and the others list the leaves.
 */
static int race_look(void *arg, unsigned int round)
{
	struct race_thread *thread = arg;
	struct race *race = thread->race;
	struct mkt_leaf *leaf = &race->self->c.arena.leaf[1];
	int err;

	if (thread != &race->thread[0])
		err = race_read_list();
	else if (!round)
		err = mkt_bind_range(thread->key, 0, leaf->mr, leaf->addr, 100);
	else
		err = ibv_dereg_mr(leaf->mr) == EBUSY ? 0 : EADDRNOTAVAIL;
	atomic_fetch_add(&race->done, 1);
	return err;
}

/* binds a new key to all leaves, destroys it, and deregisters one of the leaves at once */
static int race_bind_and_go(FIXTURE_DATA(race) *self, struct ibv_mr **leaf, unsigned int at)
{
	static struct ibmkey_range range[LEAVES];
	struct ibv_mr *key = ibmkey_alloc(self->c.dev.pd, LEAVES);
	unsigned int i;
	int err;

	if (!key)
		return errno;
	for (i = 0; i < LEAVES; i++)
		range[i] = (struct ibmkey_range){
			.addr = (uintptr_t)leaf[i]->addr, .length = 1, .lkey = leaf[i]->lkey,
		};
	err = ibmkey_bind_list(key, IBV_ACCESS_LOCAL_WRITE, LEAVES, range);
	err = ibv_dereg_mr(key) ?: err;
	return err ?: ibv_dereg_mr(leaf[at]);
}

/* whatever looks at a key when it is destroyed: its leaves are free after that */
TEST_F(race, look_and_destroy)
{
	static struct ibv_mr *leaf[LEAVES];
	unsigned int i, at, rounds = mkt_rounds(300, 40);
	void *host = self->c.arena.mem[0].host;
	struct race race = { .self = self };

	if (race_read_list())
		SKIP(return, "no debugfs of ib_mkey");
	for (i = 0; i < LEAVES; i++) {
		leaf[i] = ibv_reg_mr(self->c.dev.pd, host, 100, IBV_ACCESS_LOCAL_WRITE);
		ASSERT_NE(NULL, leaf[i]);
	}
	ASSERT_EQ(0, race_start(&race, race_look));
	for (i = 0; race_goes_on(race.done, i, rounds) && !race_error(&race); i++) {
		at = mkt_between(&self->rng, 0, LEAVES - 1);
		ASSERT_EQ(0, race_bind_and_go(self, leaf, at));
		leaf[at] = ibv_reg_mr(self->c.dev.pd, host, 100, IBV_ACCESS_LOCAL_WRITE);
		ASSERT_NE(NULL, leaf[at]);
	}
	EXPECT_EQ(0, race_end(&race));
	TH_LOG("%u looks, %u keys", race.done, i);
	for (i = 0; i < LEAVES; i++) {
		EXPECT_EQ(0, ibv_dereg_mr(leaf[i]));
	}
}

/* the layouts of the key that is bound and queried */
struct race_layouts {
	struct ibv_mr *key;
	uint32_t lkey;
	uint64_t addr;
	uint32_t *indices;		/* RACE_INDICES of zero */
	uint32_t *others;		/* RACE_INDICES of one */
};

/* more than the kernel copies at once */
#define RACE_INDICES 40000

static int race_bind_indexed(void *arg, unsigned int round)
{
	struct race_layouts *race = arg;
	unsigned int which = round & 1;
	struct ibmkey_indexed layout = {
		.addr = race->addr,
		.unit = which + 1,
		.bytes_count = 1,
		.lkey = race->lkey,
		.num_indices = RACE_INDICES,
		.indices = (uintptr_t)(which ? race->others : race->indices),
		.index_bytes = 4,
	};

	return ibmkey_bind_indexed(race->key, MKT_ACCESS_ALL, &layout);
}

/* a query returns one layout, although it copies a part at a time and the key is bound meanwhile */
TEST_F(race, bind_and_query)
{
	struct mkt_leaf *leaf = &self->c.arena.leaf[0];
	unsigned int i, j, rounds = mkt_rounds(1000, 100), seen[2] = {};
	struct race_layouts race = { .lkey = leaf->mr->lkey, .addr = leaf->addr };
	struct ibmkey_indexed layout;
	struct ibmkey_info info;
	struct mkt_loop binder = {};
	uint64_t *indices;

	race.key = ibmkey_alloc(self->c.dev.pd, RACE_INDICES);
	ASSERT_NE(NULL, race.key);
	race.indices = calloc(RACE_INDICES, sizeof(*race.indices));
	race.others = calloc(RACE_INDICES, sizeof(*race.others));
	indices = calloc(RACE_INDICES, sizeof(*indices));
	ASSERT_TRUE(race.indices && race.others && indices);
	for (i = 0; i < RACE_INDICES; i++)
		race.others[i] = 1;
	ASSERT_EQ(0, race_bind_indexed(&race, 0));
	ASSERT_EQ(0, mkt_loop_start(&binder, race_bind_indexed, &race));
	for (i = 0; race_goes_on(seen[0] && seen[1], i, rounds); i++) {
		ASSERT_EQ(0, ibmkey_query_indexed(race.key, &info, &layout, RACE_INDICES,
						  indices));
		ASSERT_EQ(RACE_INDICES, info.num_entries);
		ASSERT_TRUE(layout.unit == 1 || layout.unit == 2);
		for (j = 0; j < RACE_INDICES; j++) {
			ASSERT_EQ(layout.unit - 1, indices[j]);
		}
		seen[layout.unit - 1]++;
	}
	EXPECT_EQ(0, mkt_loop_end(&binder));
	EXPECT_LT(0, seen[0]);
	EXPECT_LT(0, seen[1]);
	TH_LOG("%u binds, %u and %u queries", atomic_load(&binder.rounds), seen[0], seen[1]);
	EXPECT_EQ(0, ibv_dereg_mr(race.key));
	free(race.indices);
	free(race.others);
	free(indices);
}

TEST_HARNESS_MAIN
