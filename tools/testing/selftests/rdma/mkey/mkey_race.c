// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that do what excludes one another: regions are deregistered while
 * they are being bound, keys destroyed while they are being bound and used.
 * Either the one comes first or the other, and each says so.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "commands.h"
#include "mkey_harness.h"

#define THREADS 3

FIXTURE(race)
{
	struct mkt_commands c;
	struct mkt_rng rng;
};

FIXTURE_SETUP(race)
{
	if (mkt_dev_try_open(&self->c.dev, 0))
		SKIP(return, "no device %s", self->c.dev.name);
	if (!self->c.dev.extended)
		SKIP(return, "%s is not extended by ib_mkey",
		     self->c.dev.name);
	mkt_rng_init(&self->rng, _metadata->name);
	ASSERT_EQ(0, mkt_commands_setup(&self->c));
}

FIXTURE_TEARDOWN(race)
{
	EXPECT_EQ(0, mkt_commands_teardown(&self->c));
}

struct race {
	FIXTURE_DATA(race) *self;
	struct mkt_rng rng;
	atomic_bool *stop;
	_Atomic uint32_t *lkey;		/* of the region of the moment */
	unsigned int done, refused;
	int err;
};

/* binds the region of the moment, whichever that is by then */
static void *race_bind(void *arg)
{
	struct race *race = arg;
	struct ibv_mr *key = ibmkey_alloc(race->self->c.dev.pd, 1);
	struct ibv_sge sge = { .length = 100 };

	if (!key)
		race->err = errno;
	while (!race->err && !atomic_load(race->stop)) {
		int err;

		sge.addr = (uintptr_t)race->self->c.arena.mem[0].host;
		sge.lkey = atomic_load(race->lkey);
		err = ibv_rereg_mr_sg(key, MKT_ACCESS_ALL, 1, &sge);
		if (!err)
			race->done++;
		else if (err == ENOENT)
			race->refused++;
		else
			race->err = err;
		if (mkt_rand(&race->rng) & 1)
			race->err = race->err ?: ibmkey_unbind(key);
	}
	if (key && ibv_dereg_mr(key))
		race->err = race->err ?: EBUSY;
	return NULL;
}

/* a region is bound before it is deregistered, or not at all */
TEST_F(race, bind_and_deregister)
{
	unsigned int i, done = 0, busy = 0, rounds = mkt_scale(3000, 300);
	void *host = self->c.arena.mem[0].host;
	struct race race[THREADS];
	pthread_t tid[THREADS];
	_Atomic uint32_t lkey = 0;
	atomic_bool stop = false;

	for (i = 0; i < THREADS; i++) {
		race[i] = (struct race){
			.self = self,
			.rng.state = mkt_rand(&self->rng),
			.stop = &stop,
			.lkey = &lkey,
		};
		ASSERT_EQ(0, pthread_create(&tid[i], NULL, race_bind,
					    &race[i]));
	}
	for (i = 0; i < rounds; i++) {
		struct ibv_mr *mr = ibv_reg_mr(self->c.dev.pd, host, 4096,
					       MKT_ACCESS_ALL);
		int err;

		ASSERT_NE(NULL, mr);
		atomic_store(&lkey, mr->lkey);
		do {
			err = ibv_dereg_mr(mr);
			busy += err == EBUSY;
			/* or there would always be one who has just bound it */
			atomic_store(&lkey, 0);
		} while (err == EBUSY);
		ASSERT_EQ(0, err);
	}
	atomic_store(&stop, true);
	for (i = 0; i < THREADS; i++) {
		pthread_join(tid[i], NULL);
		EXPECT_EQ(0, race[i].err);
		done += race[i].done;
	}
	TH_LOG("%u binds, %u times busy", done, busy);
}

/* one handle for all: each command finds a key there, or none, or no key */
static void *race_handles(void *arg)
{
	struct race *race = arg;
	struct mkt_commands c = race->self->c;

	/* commands of its own, on handles that others use too */
	while (!race->err && !atomic_load(race->stop)) {
		enum mkt_what what = mkt_between(&race->rng, BIND_LIST, UNBIND);
		uint32_t handle = atomic_load(race->lkey);
		struct mkt_ioctl cmd;
		int err;

		if (mkt_between(&race->rng, 0, 9))
			mkt_command_build(&c, &cmd, what);
		else
			mkt_raw_mr_destroy(&cmd, handle);
		cmd.attr[0].data = handle;
		/* what they point to is this copy's */
		err = mkt_ioctl_run(c.dev.ctx, &cmd);
		if (!err)
			race->done++;
		else if (err == ENOENT || err == EBUSY || err == EINVAL)
			race->refused++;
		else
			race->err = err;
	}
	return NULL;
}

TEST_F(race, use_and_destroy)
{
	unsigned int i, done = 0, refused = 0, rounds = mkt_scale(3000, 300);
	_Atomic uint32_t handle = UINT32_MAX >> 1;
	unsigned int busy = 0;
	int before = mkt_dev_count(&self->c.dev, "mr");
	struct race race[THREADS];
	pthread_t tid[THREADS];
	atomic_bool stop = false;

	for (i = 0; i < THREADS; i++) {
		race[i] = (struct race){
			.self = self,
			.rng.state = mkt_rand(&self->rng),
			.stop = &stop,
			.lkey = &handle,
		};
		ASSERT_EQ(0, pthread_create(&tid[i], NULL, race_handles,
					    &race[i]));
	}
	for (i = 0; i < rounds; i++) {
		struct mkt_ioctl cmd;
		uint32_t made;
		int err;

		mkt_command_build(&self->c, &cmd, CREATE);
		ASSERT_EQ(0, mkt_ioctl_run(self->c.dev.ctx, &cmd));
		made = cmd.attr[0].data;
		atomic_store(&handle, made);
		sched_yield();
		do {
			mkt_raw_mr_destroy(&cmd, made);
			err = mkt_ioctl_run(self->c.dev.ctx, &cmd);
			busy += err == EBUSY;
			/* or there would always be one who is using it */
			atomic_store(&handle, UINT32_MAX >> 1);
		} while (err == EBUSY);
		ASSERT_TRUE(!err || err == ENOENT);
	}
	atomic_store(&stop, true);
	for (i = 0; i < THREADS; i++) {
		pthread_join(tid[i], NULL);
		EXPECT_EQ(0, race[i].err);
		done += race[i].done;
		refused += race[i].refused;
	}
	TH_LOG("%u commands were done, %u refused, %u times busy", done,
	       refused, busy);
	if (before >= 0) {
		EXPECT_EQ(before, mkt_dev_count(&self->c.dev, "mr"));
	}
}

/* a little device memory, of which there is plenty */
static void *race_dm(void *arg)
{
	struct race *race = arg;
	struct ibv_context *ctx = race->self->c.dev.ctx;

	while (!race->err && !atomic_load(race->stop)) {
		struct ibv_alloc_dm_attr attr = {
			.length = mkt_between(&race->rng, 1, 8192),
		};
		struct ibv_dm *dm = ibv_alloc_dm(ctx, &attr);

		if (!dm) {
			race->err = errno;
			break;
		}
		race->done++;
		race->err = ibv_free_dm(dm);
	}
	return NULL;
}

TEST_F(race, device_memory)
{
	unsigned int i, done = 0, rounds = mkt_scale(100, 20);
	uint64_t max = self->c.dev.caps.max_dm_size;
	struct ibv_alloc_dm_attr attr = { .length = max + 1 };
	struct race race[THREADS];
	pthread_t tid[THREADS];
	atomic_bool stop = false;

	if (max < 1 << 20)
		SKIP(return, "%" PRIu64 " bytes of device memory", max);
	for (i = 0; i < THREADS; i++) {
		race[i] = (struct race){
			.self = self,
			.rng.state = mkt_rand(&self->rng),
			.stop = &stop,
		};
		ASSERT_EQ(0, pthread_create(&tid[i], NULL, race_dm, &race[i]));
	}
	/* asking for what there never is takes nothing from the others */
	for (i = 0; i < rounds * 100; i++) {
		ASSERT_EQ(NULL, ibv_alloc_dm(self->c.dev.ctx, &attr));
	}
	atomic_store(&stop, true);
	for (i = 0; i < THREADS; i++) {
		pthread_join(tid[i], NULL);
		EXPECT_EQ(0, race[i].err);
		done += race[i].done;
	}
	TH_LOG("%u allocations", done);
}

TEST_HARNESS_MAIN
