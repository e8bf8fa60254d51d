// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Processes that bind keys by calls and by requests, transfer through them on many queue
 * pairs, and destroy them, for a minute and a half or for MKEY_TEST_SECONDS=n. Each transfer is
 * checked in every byte. After each quarter, all keys get one layout. The kernel's memory is the
 * same then to one percent, and in the end it is as it was at the beginning.
 * sets: first smp
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mkey_harness.h"
#include "request.h"

#define MOST_PROCESSES 8
#define MOST_PAIRS 32
#define MOST_KEYS 1000
#define MAX_ENTRIES 64
/* all processes rest after each quarter of the time; the first one allocates what is kept */
#define RESTS 4
/* how long a process may take for its last step, and to rebind its keys */
#define REST_SECONDS 600

/* what the processes share */
struct soak_shared {
	double end[RESTS];	/* of each quarter, see mkt_seconds() */
	atomic_uint resting;	/* processes, in all rests together */
	atomic_uint over;	/* rests that have ended */
	atomic_ullong calls, requests, created, transfers, bytes;
	atomic_uint refused;	/* binds and keys, with ENOMEM: in a control group at its limit */
};

struct soak {
	struct mkt_setup s;
	struct soak_shared *shared;
	unsigned int num_pairs, num_keys;
	struct mkt_pair pair[MOST_PAIRS];
	struct mkt_request request[2];
	/* of each side; an end without a map is not bound to a random layout */
	struct mkt_end key[2][MOST_KEYS / 2];
};

/* what a bind by a request that failed returns; the queue pair can be used again after ENOMEM */
static int soak_refused(struct mkt_pair *pair, struct ibv_mr *mr)
{
	struct ibmkey_refused why = {};

	if (ibmkey_query_refused(mr, &why) || why.error != ENOMEM)
		return EIO;
	return mkt_pair_recover(pair) ?: ENOMEM;
}

static int soak_bind_request(struct soak *soak, unsigned int side, struct mkt_end *end,
			     const struct mkt_layout *layout)
{
	struct mkt_pair *pair = &soak->pair[mkt_between(&soak->s.rng, 0, soak->num_pairs - 1)];
	struct mkt_request *request = &soak->request[side];
	struct ibmkey_wr wr;
	int err;

	err = mkt_request_describe(request, end->arena, layout);
	if (err)
		return err;
	wr = mkt_request_wr(request, end->mr);
	if (mkt_request_status(&pair->end[side], &wr) != IBV_WC_SUCCESS)
		return soak_refused(pair, end->mr);
	end->addr = layout->first;
	soak->shared->requests++;
	return mkt_layout_map(end->arena, layout, &end->map);
}

/* binds a key to a new random layout, by a call or by a request */
static int soak_bind(struct soak *soak, unsigned int side, struct mkt_end *end)
{
	struct mkt_setup *s = &soak->s;
	const struct mkt_draw draw = {
		.max_length = mkt_between(&s->rng, 0, 15) ? 1024 : 16 * 1024,
		.max_block = 8 * 1024,
		.max_blocks = 16,
		.max_dims = s->dev[side].caps.max_dims,
	};
	enum mkt_kind kind = mkt_between(&s->rng, 0, MKT_NUM_KINDS - 1);
	struct ibv_mr *mr = end->mr;
	struct mkt_layout layout;
	int err;

	err = mkt_draw_layout(&layout, &s->rng, &s->arena[side], kind, &draw);
	if (err)
		return err;
	layout.first = mkt_draw_first(&s->rng);
	mkt_end_free(end);
	if (mkt_between(&s->rng, 0, 1)) {
		err = mkt_end_key(end, mr, end->arena, &layout, MKT_ACCESS_ALL);
		soak->shared->calls++;
	} else {
		err = soak_bind_request(soak, side, end, &layout);
	}
	mkt_layout_free(&layout);
	return err;
}

static int soak_create(struct soak *soak, unsigned int side, struct mkt_end *end)
{
	memset(end, 0, sizeof(*end));
	end->arena = &soak->s.arena[side];
	end->mr = ibmkey_alloc(soak->s.dev[side].pd, MAX_ENTRIES);
	return end->mr ? 0 : errno;
}

/* creates a key, and destroys the one that it replaces, which is bound or not */
static int soak_renew(struct soak *soak, unsigned int side, struct mkt_end *end)
{
	struct mkt_end created;
	int err = soak_create(soak, side, &created) ?: ibv_dereg_mr(end->mr);

	if (err)
		return err;
	mkt_end_free(end);
	*end = created;
	soak->shared->created++;
	return 0;
}

/* one transfer between two random ends, through a random queue pair */
static int soak_step(struct soak *soak)
{
	struct mkt_setup *s = &soak->s;
	struct mkt_pair *pair = &soak->pair[mkt_between(&s->rng, 0, soak->num_pairs - 1)];
	struct mkt_xfer xfer = {
		.op = mkt_between(&s->rng, MKT_SEND, MKT_READ),
		.side = mkt_between(&s->rng, 0, 1),
		.num_sge = mkt_between(&s->rng, 1, 4),
	};
	unsigned int side, count = mkt_between(&s->rng, 0, 3) ? 1 : mkt_between(&s->rng, 2, 16);
	size_t max = SIZE_MAX;
	int err = 0;

	for (side = 0; side < 2 && !err; side++) {
		struct mkt_end *end = &s->plain[side];

		if (mkt_between(&s->rng, 0, 3)) {
			end = &soak->key[side][mkt_between(&s->rng, 0, soak->num_keys / 2 - 1)];
			if (!mkt_between(&s->rng, 0, 31))
				err = soak_renew(soak, side, end);
			if (!err && (!end->map.length || mkt_between(&s->rng, 0, 1)))
				err = soak_bind(soak, side, end);
		}
		xfer.end[side] = end;
		if (end->map.length < max)
			max = end->map.length;
	}
	/* a key that could not be bound has no map, and is bound before its next use */
	if (err == ENOMEM) {
		if (!soak->shared->refused++)
			mkt_diag("refused with ENOMEM");
		return 0;
	}
	xfer.length = mkt_rand_size(&s->rng, max ?: 1);
	soak->shared->transfers += count;
	soak->shared->bytes += count * xfer.length;
	if (err || count == 1 || xfer.op == MKT_SEND_IMM || xfer.op == MKT_WRITE_IMM)
		return err ?: mkt_xfer_drawn(pair, &s->rng, &xfer);
	return mkt_xfer_queue(pair, &xfer, count);
}

/*
 * Gives all keys the same layout, and waits until all processes have done so. A key keeps
 * the memory of a short binding for its next bind, so the layout is a longer one, and bound twice.
 */
static int soak_rest(struct soak *soak, unsigned int rest)
{
	struct soak_shared *shared = soak->shared;
	unsigned int side, k, twice;
	int err = 0;

	for (side = 0; side < 2; side++) {
		const struct mkt_leaf *leaf = &soak->s.arena[side].leaf[0];

		for (k = 0; k < soak->num_keys / 2 && !err; k++) {
			struct mkt_end *end = &soak->key[side][k];

			mkt_end_free(end);
			for (twice = 0; twice < 2 && !err; twice++)
				err = mkt_bind_rows(end->mr, leaf, MKT_ROWS_LIST, 16, 1,
						    MKT_ACCESS_ALL);
		}
	}
	shared->resting++;
	while (!err && shared->over == rest)
		usleep(10000);
	return err;
}

static int soak_build(struct soak *soak, unsigned int number)
{
	struct mkt_setup *s = &soak->s;
	char salt[32];
	unsigned int side, i;
	int err = 0;

	snprintf(salt, sizeof(salt), "soak %u", number);
	for (side = 0; side < 2 && !err; side++)
		err = mkt_dev_open(&s->dev[side], side);
	err = err ?: mkt_setup(s, &(struct mkt_wants){ .host = 32 * 1024, .dm = 8 * 1024 }, salt);
	for (i = 0; i < soak->num_pairs && !err; i++)
		err = mkt_pair_create(&soak->pair[i], &s->dev[0], &s->dev[1],
				      i & 1 ? IBV_MTU_4096 : IBV_MTU_1024, 0);
	for (side = 0; side < 2 && !err; side++) {
		err = mkt_request_init(&soak->request[side], s->dev[side].pd, 64 * 1024);
		for (i = 0; i < soak->num_keys / 2 && !err; i++)
			err = soak_create(soak, side, &soak->key[side][i]) ?:
			      soak_bind(soak, side, &soak->key[side][i]);
	}
	return err;
}

static int soak_free(struct soak *soak)
{
	unsigned int side, i;
	int err = 0;

	for (side = 0; side < 2; side++) {
		for (i = 0; i < soak->num_keys / 2; i++) {
			err = ibv_dereg_mr(soak->key[side][i].mr) ?: err;
			mkt_end_free(&soak->key[side][i]);
		}
		mkt_request_free(&soak->request[side]);
	}
	for (i = 0; i < soak->num_pairs; i++)
		mkt_pair_destroy(&soak->pair[i]);
	return mkt_teardown(&soak->s) ?: err;
}

static int soak_process(struct soak *soak, unsigned int number)
{
	unsigned int rest;
	int err;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	err = soak_build(soak, number);
	for (rest = 0; rest < RESTS && !err; rest++) {
		while (!err && mkt_seconds() < soak->shared->end[rest])
			err = soak_step(soak);
		err = err ?: soak_rest(soak, rest);
	}
	return err ?: soak_free(soak);
}

/* what the kernel's memory is while the processes rest, in KiB */
struct soak_memory {
	long slab, available, keys, mrs;
};

static long soak_meminfo(const char *name)
{
	char line[128];

	return mkt_command(line, sizeof(line), "awk '$1 == \"%s:\" { print $2 }' /proc/meminfo",
			   name) ? atol(line) : -1;
}

static void soak_measure(const struct mkt_dev *dev, struct soak_memory *memory)
{
	/* freed after a grace period, or given back by a worker */
	sleep(2);
	memory->slab = soak_meminfo("SUnreclaim");
	memory->available = soak_meminfo("MemAvailable");
	memory->keys = mkt_keys_charged(&dev[0]) + mkt_keys_charged(&dev[1]);
	memory->mrs = mkt_dev_count(&dev[0], "mr") + mkt_dev_count(&dev[1], "mr");
	mkt_diag("SUnreclaim %ld KiB, MemAvailable %ld KiB, keys %ld bytes, %ld MRs",
		 memory->slab, memory->available, memory->keys, memory->mrs);
}

static double soak_seconds(void)
{
	const char *wanted = getenv("MKEY_TEST_SECONDS");

	return wanted ? strtod(wanted, NULL) : mkt_quick() == 2 ? 9 : mkt_scale(90, 15);
}

#define EXPECT_FLAT(before, after, percent) do {			\
	long __b = before, __a = after, __more = __b > __a ? __b : __a;	\
									\
	EXPECT_LE(labs(__a - __b), __more * (percent) / 100)		\
		TH_LOG(#before " %ld, " #after " %ld", __b, __a);	\
} while (0)

/* waits until all processes rest; false if one has ended */
static bool soak_wait(struct soak_shared *shared, const pid_t *pid, unsigned int num, double until,
		      unsigned int resting)
{
	unsigned int i;

	while (shared->resting < resting && mkt_seconds() < until) {
		for (i = 0; i < num; i++)
			if (waitpid(pid[i], NULL, WNOHANG))
				return false;
		usleep(20000);
		mkt_alive();
	}
	return shared->resting >= resting;
}

TEST(soak)
{
	unsigned int num = mkt_rounds(MOST_PROCESSES, 4), i, rest, percent;
	struct soak_memory before, after, at[RESTS];
	double begin, seconds = soak_seconds();
	pid_t pid[MOST_PROCESSES];
	struct soak_shared *shared;
	struct mkt_dev dev[2];
	struct soak *soak;
	int status;

	MKT_OPEN_EXTENDED(dev);
	soak = calloc(1, sizeof(*soak));
	ASSERT_NE(NULL, soak);
	soak->num_pairs = mkt_rounds(MOST_PAIRS, 8);
	soak->num_keys = mkt_rounds(MOST_KEYS, 200) & ~1u;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	ASSERT_NE(MAP_FAILED, shared);
	soak->shared = shared;
	soak_measure(dev, &before);
	begin = mkt_seconds();
	for (rest = 0; rest < RESTS; rest++)
		shared->end[rest] = begin + seconds * (rest + 1) / RESTS;
	fflush(stdout);
	for (i = 0; i < num; i++) {
		pid[i] = fork();
		ASSERT_LE(0, pid[i]);
		if (!pid[i])
			_exit(soak_process(soak, i) ? 1 : 0);
	}
	for (rest = 0; rest < RESTS; rest++) {
		ASSERT_TRUE(soak_wait(shared, pid, num, shared->end[rest] + REST_SECONDS,
				      num * (rest + 1)))
			TH_LOG("a process has ended, or hangs, before rest %u", rest);
		soak_measure(dev, &at[rest]);
		shared->over++;
	}
	for (i = 0; i < num; i++) {
		ASSERT_TRUE(mkt_ended(pid[i], REST_SECONDS, &status));
		EXPECT_EQ(0, status);
	}
	soak_measure(dev, &after);
	TH_LOG("%u processes, %u queue pairs and %u keys each, %.0f s", num, soak->num_pairs,
	       soak->num_keys, mkt_seconds() - begin);
	TH_LOG("%llu binds by calls, %llu by requests, %llu new keys, %llu transfers of %llu bytes",
	       shared->calls, shared->requests, shared->created, shared->transfers, shared->bytes);
	EXPECT_LT(0, shared->requests);
	EXPECT_EQ(0, shared->refused);
	/* in a short run, caches of other parts of the kernel still fill */
	percent = seconds < 60 ? 4 : 1;
	EXPECT_FLAT(at[1].slab, at[3].slab, percent);
	EXPECT_FLAT(at[1].available, at[3].available, percent);
	EXPECT_FLAT(at[1].keys, at[3].keys, 1);
	EXPECT_EQ(at[1].mrs, at[3].mrs);
	EXPECT_EQ(before.keys, after.keys);
	EXPECT_EQ(before.mrs, after.mrs);
	free(soak);
	for (i = 0; i < 2; i++)
		mkt_dev_close(&dev[i]);
}

TEST_HARNESS_MAIN
