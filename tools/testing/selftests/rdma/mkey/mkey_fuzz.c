// SPDX-License-Identifier: GPL-2.0
/*
 * subject: Sequences of calls and work requests that a fuzzer makes, of several processes at once.
 * A kernel with kcov guides it: an input that reaches new code is kept and changed further. No
 * memory may change that no MR allows to write, no memory of another user may be read, each object
 * can be destroyed, and the kernel may not warn. MKEY_TEST_SECONDS is the time for inputs that are
 * not in the corpus, MKEY_FUZZ_INPUT repeats one input, MKEY_FUZZ_DUMP=1 prints a smaller corpus.
 * sets: smp
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <linux/kcov.h>

#include "fuzz.h"
#include "mkey_harness.h"

#define WORKERS 3
#define MOST_INPUTS 4096
/* modules are within 8 MiB, so these bits of an address tell them apart */
#define SEEN_BITS 23
#define COVER_WORDS (64 * 1024)
/* an emulated debug kernel takes a second for some inputs; a QP gives up in 15 */
#define HANG_SECONDS 240
#define INPUTS_OF_A_PROCESS 64
#define VICTIM_BYTES 8192

struct fuzz_shared {
	struct fuzz_victim victim;
	double end;
	atomic_uint num_inputs, next, num_pcs, runs, processes, failed;
	unsigned int corpus;		/* inputs that were read from the file */
	struct fuzz_input input[MOST_INPUTS];
	struct fuzz_input now[WORKERS];
	atomic_uchar seen[1 << SEEN_BITS];
};

/* a process that gives inputs to another process, one after another */
struct fuzz_worker {
	struct fuzz_shared *shared;
	unsigned int number;
	struct mkt_rng rng;
	pid_t pid;			/* that runs them, or 0 */
	int to, from;			/* pipes */
	unsigned int runs;		/* of this process */
	uint64_t *cover[2];		/* of its calls; of its tasks in rxe. NULL without kcov */
	int kcov[2];
};

static void fuzz_print(const char *what, const struct fuzz_input *in)
{
	char line[17 * FUZZ_MAX_OPS + 1], *at = line;
	unsigned int i;

	*at = '\0';
	for (i = 0; i < in->num; i++)
		at += sprintf(at, "%s%02x%02x%02x%02x%04x%04x", i ? "," : "", in->op[i].op,
			      in->op[i].obj, in->op[i].a, in->op[i].b, in->op[i].n,
			      in->op[i].m);
	printf("# %s %s\n", what, line);
	fflush(stdout);
}

static bool fuzz_parse(struct fuzz_input *in, const char *line)
{
	int length;

	for (in->num = 0; in->num < FUZZ_MAX_OPS; in->num++) {
		struct fuzz_op *op = &in->op[in->num];

		if (sscanf(line, "%2hhx%2hhx%2hhx%2hhx%4hx%4hx%n", &op->op, &op->obj, &op->a,
			   &op->b, &op->n, &op->m, &length) != 6)
			break;
		line += length;
		if (*line == ',')
			line++;
	}
	return in->num && *line < ' ';
}

/* inputs to begin with: the committed ones, or the one that the environment names */
static unsigned int fuzz_read(struct fuzz_shared *shared)
{
	const char *only = getenv("MKEY_FUZZ_INPUT");
	char path[512], line[17 * FUZZ_MAX_OPS + 2];
	unsigned int num = 0;
	ssize_t length;
	FILE *file;

	if (only)
		return fuzz_parse(&shared->input[0], only);
	length = readlink("/proc/self/exe", path, sizeof(path) - 8);
	if (length < 0)
		return 0;
	memcpy(path + length, ".corpus", 8);
	file = fopen(path, "re");
	while (file && num < MOST_INPUTS / 2 && fgets(line, sizeof(line), file))
		num += fuzz_parse(&shared->input[num], line);
	if (file)
		fclose(file);
	return num;
}

/* --- coverage --- */

static bool fuzz_kcov_open(struct fuzz_worker *w)
{
	struct kcov_remote_arg remote = {
		.trace_mode = KCOV_TRACE_PC,
		.area_size = COVER_WORDS,
		.common_handle = kcov_remote_handle(KCOV_SUBSYSTEM_COMMON, w->number + 1),
	};
	unsigned int i;

	for (i = 0; i < 2; i++) {
		void *map;

		w->kcov[i] = open("/sys/kernel/debug/kcov", O_RDWR | O_CLOEXEC);
		if (w->kcov[i] < 0 || ioctl(w->kcov[i], KCOV_INIT_TRACE, COVER_WORDS))
			return false;
		map = mmap(NULL, COVER_WORDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, w->kcov[i],
			   0);
		if (map == MAP_FAILED)
			return false;
		w->cover[i] = map;
	}
	/* processes inherit the handle, and the tasks of a QP have that of its process */
	return !ioctl(w->kcov[1], KCOV_REMOTE_ENABLE, &remote);
}

/* counts what was reached for the first time */
static unsigned int fuzz_collect(struct fuzz_worker *w)
{
	struct fuzz_shared *shared = w->shared;
	unsigned int fresh = 0;
	uint64_t i, num;
	int k;

	for (k = 0; k < 2 && w->cover[k]; k++) {
		num = __atomic_load_n(&w->cover[k][0], __ATOMIC_ACQUIRE);
		for (i = 1; i <= num && i < COVER_WORDS; i++) {
			uint64_t pc = w->cover[k][i];

			if (atomic_exchange(&shared->seen[pc & ((1 << SEEN_BITS) - 1)], 1))
				continue;
			fresh++;
			shared->num_pcs++;
		}
	}
	return fresh;
}

/* --- a process that runs inputs --- */

static void fuzz_process(struct fuzz_worker *w, int from, int to)
{
	struct fuzz *f;
	uint8_t byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* of requests that fail, and of queue pairs that cannot be reset */
	if (!getenv("MKEY_FUZZ_INPUT") && !freopen("/dev/null", "w", stdout))
		_exit(1);
	f = fuzz_open(&w->shared->victim);
	if (!f)
		_exit(1);
	if (w->cover[0] && ioctl(w->kcov[0], KCOV_ENABLE, KCOV_TRACE_PC))
		_exit(1);
	while (read(from, &byte, 1) == 1) {
		byte = fuzz_run(f, &w->shared->now[w->number]);
		if (write(to, &byte, 1) != 1)
			break;
	}
	_exit(0);
}

static bool fuzz_spawn(struct fuzz_worker *w)
{
	int there[2], back[2];

	if (pipe(there) || pipe(back))
		return false;
	fflush(stdout);
	w->pid = fork();
	if (!w->pid) {
		close(there[1]);
		close(back[0]);
		fuzz_process(w, there[0], back[1]);
	}
	close(there[0]);
	close(back[1]);
	w->to = there[1];
	w->from = back[0];
	w->runs = 0;
	w->shared->processes++;
	return w->pid > 0;
}

/* ends the process; returns how it ended, or -1 if it does not */
static int fuzz_end(struct fuzz_worker *w, bool kill_it)
{
	int status = -1;

	close(w->to);
	if (kill_it)
		kill(w->pid, SIGKILL);
	if (!mkt_ended(w->pid, HANG_SECONDS, &status))
		status = -1;
	close(w->from);
	w->pid = 0;
	return status;
}

static bool fuzz_tainted(void)
{
	unsigned long taint = 0;
	FILE *file = fopen("/proc/sys/kernel/tainted", "re");

	if (file) {
		if (fscanf(file, "%lu", &taint) != 1)
			taint = 0;
		fclose(file);
	}
	/* an oops, a bad page, a warning, a soft lockup */
	return taint & (1 << 7 | 1 << 5 | 1 << 9 | 1 << 14);
}

/* runs @in; returns NULL, or what is wrong */
static const char *fuzz_input(struct fuzz_worker *w, const struct fuzz_input *in)
{
	static const char *const wrong[] = {
		[FUZZ_GUARD] = "memory has changed that no MR allows to write",
		[FUZZ_LEAK] = "memory of another user was read",
		[FUZZ_LEFT] = "an object cannot be destroyed",
	};
	struct pollfd fd;
	uint8_t byte = 0;
	int status;

	w->shared->now[w->number] = *in;
	if (!w->pid && !fuzz_spawn(w))
		return "no process";
	if (w->cover[0]) {
		w->cover[0][0] = 0;
		w->cover[1][0] = 0;
	}
	if (write(w->to, &byte, 1) != 1)
		return "the process has ended early";
	fd = (struct pollfd){ .fd = w->from, .events = POLLIN };
	if (!poll(&fd, 1, HANG_SECONDS * 1000)) {
		fuzz_end(w, true);
		return "it hangs";
	}
	w->shared->runs++;
	if (read(w->from, &byte, 1) != 1) {
		status = fuzz_end(w, false);
		if (status == -1)
			return "the process does not end";
		/* rings that the input has broken, and memory that it has freed */
		if (WIFSIGNALED(status) &&
		    (WTERMSIG(status) == SIGKILL ? fuzz_has(in, FUZZ_DIE) :
						   fuzz_has(in, FUZZ_SCRIBBLE) ||
						   fuzz_has(in, FUZZ_DM_FILE)))
			return NULL;
		mkt_diag("the process has ended with status %d", status);
		return "the process has ended";
	}
	if (byte == FUZZ_RETIRE || ++w->runs == INPUTS_OF_A_PROCESS)
		if (fuzz_end(w, false) == -1)
			return "the process does not end";
	if (fuzz_tainted())
		return "the kernel has warned";
	return byte <= FUZZ_RETIRE ? NULL : wrong[byte];
}

/* --- mutation --- */

static void fuzz_draw_op(struct mkt_rng *rng, struct fuzz_op *op)
{
	uint64_t word = mkt_rand(rng);

	memcpy(op, &word, sizeof(*op));
	/* ends a process, or makes it useless */
	if (op->op % FUZZ_NUM_OPS >= FUZZ_SCRIBBLE && mkt_between(rng, 0, 7))
		op->op = mkt_between(rng, 0, FUZZ_TWEAK - 1);
	/* most numbers are small, and most objects those of one side */
	if (mkt_between(rng, 0, 2))
		op->n &= 0x7fff >> mkt_between(rng, 0, 12);
	if (mkt_between(rng, 0, 2))
		op->m &= 0x7fff >> mkt_between(rng, 0, 12);
	if (mkt_between(rng, 0, 3))
		op->obj &= 0x7f;
}

static uint16_t fuzz_near(struct mkt_rng *rng, uint16_t n)
{
	return mkt_between(rng, 0, 1) ? n + mkt_between(rng, 0, 2) - 1 : mkt_rand(rng);
}

static void fuzz_mutate(struct fuzz_worker *w, struct fuzz_input *in)
{
	struct mkt_rng *rng = &w->rng;
	unsigned int num = w->shared->num_inputs, rounds = mkt_between(rng, 1, 5), at, cut;
	struct fuzz_op *op;

	in->num = 0;
	if (num)
		*in = w->shared->input[mkt_between(rng, 0, 3) ? mkt_between(rng, 0, num - 1) :
				       num - 1 - mkt_between(rng, 0, (num - 1) / 8)];
	while (rounds--) {
		at = mkt_between(rng, 0, in->num);
		op = &in->op[at];
		switch (mkt_between(rng, 0, 8)) {
		case 0:
		case 1:
		case 2:
			if (in->num == FUZZ_MAX_OPS)
				break;
			memmove(op + 1, op, (in->num++ - at) * sizeof(*op));
			fuzz_draw_op(rng, op);
			break;
		case 3:
			if (at == in->num)
				break;
			memmove(op, op + 1, (--in->num - at) * sizeof(*op));
			break;
		case 4: {
			/* the rest is that of another input */
			const struct fuzz_input *other;

			if (!num)
				break;
			other = &w->shared->input[mkt_between(rng, 0, num - 1)];
			cut = mkt_between(rng, 0, other->num);
			in->num = at;
			while (in->num < FUZZ_MAX_OPS && cut < other->num)
				in->op[in->num++] = other->op[cut++];
			break;
		}
		case 5:
			/* again */
			if (!at || in->num == FUZZ_MAX_OPS)
				break;
			memmove(op + 1, op, (in->num++ - at) * sizeof(*op));
			*op = in->op[mkt_between(rng, 0, at - 1)];
			break;
		case 6:
			if (at < in->num)
				((uint8_t *)op)[mkt_between(rng, 1, 3)] ^=
					1 << mkt_between(rng, 0, 7);
			break;
		case 7:
			if (at < in->num)
				op->n = fuzz_near(rng, op->n);
			break;
		case 8:
			if (at < in->num)
				op->m = fuzz_near(rng, op->m);
			break;
		}
	}
}

static int fuzz_worker(struct fuzz_shared *shared, unsigned int number)
{
	struct fuzz_worker w = { .shared = shared, .number = number };
	struct fuzz_input in;
	const char *wrong = NULL;
	unsigned int at, i;
	char salt[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	snprintf(salt, sizeof(salt), "fuzz %u", number);
	mkt_rng_init(&w.rng, salt);
	if (!fuzz_kcov_open(&w))
		memset(w.cover, 0, sizeof(w.cover));
	while (!shared->failed && !wrong) {
		bool given;

		at = shared->next++;
		given = at < shared->corpus;
		if (given)
			in = shared->input[at];
		else if (mkt_seconds() < shared->end)
			fuzz_mutate(&w, &in);
		else
			break;
		wrong = fuzz_input(&w, &in);
		if (!fuzz_collect(&w) || given || !in.num)
			continue;
		if (shared->num_inputs < MOST_INPUTS - WORKERS)
			shared->input[shared->num_inputs++] = in;
	}
	if (w.pid && fuzz_end(&w, false) == -1 && !wrong)
		wrong = "the process does not end";
	if (!wrong)
		return 0;
	shared->failed++;
	mkt_diag("%s; the inputs of this moment:", wrong);
	for (i = 0; i < WORKERS; i++)
		fuzz_print(i == number ? "its input" : "input", &shared->now[i]);
	return 1;
}

/* --- another user --- */

/* has memory, a key over it, and device memory, all full of the secret; ends when @go is closed */
static int fuzz_other(struct fuzz_shared *shared, int ready, int go)
{
	uint64_t secret = ~FUZZ_SECRET_INVERTED, *mem;
	struct ibv_alloc_dm_attr attr = { .length = VICTIM_BYTES };
	struct ibv_mr *mr, *key;
	struct mkt_dev dev;
	struct ibv_dm *dm;
	unsigned int i, round;
	struct pollfd fd = { .fd = go, .events = POLLIN };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	mem = mmap(NULL, VICTIM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		   0);
	if (mem == MAP_FAILED || mkt_dev_open(&dev, 1))
		return 1;
	for (i = 0; i < VICTIM_BYTES / 8; i++)
		mem[i] = secret;
	mr = ibv_reg_mr(dev.pd, mem, VICTIM_BYTES, MKT_ACCESS_ALL);
	key = ibmkey_alloc(dev.pd, 4);
	if (!mr || !key || mkt_bind_range(key, MKT_ACCESS_ALL, mr, (uintptr_t)mem, VICTIM_BYTES))
		return 1;
	shared->victim = (struct fuzz_victim){
		.lkey = { mr->lkey, key->lkey },
		.rkey = { mr->rkey, key->rkey },
		.addr = (uintptr_t)mem,
	};
	if (write(ready, "", 1) != 1)
		return 1;
	/* what is freed may not be found in new device memory of another user */
	for (round = 0; !poll(&fd, 1, 200); round++) {
		dm = ibv_alloc_dm(dev.ctx, &attr);
		if (dm && (ibv_memcpy_to_dm(dm, 0, mem, VICTIM_BYTES) || ibv_free_dm(dm)))
			return 2;
		for (i = 0; i < VICTIM_BYTES / 8; i++)
			if (mem[i] != secret)
				return 3;
	}
	return 0;
}

/* prints the inputs that reach a PC which no shorter input has reached */
static void fuzz_dump(struct fuzz_shared *shared)
{
	struct fuzz_worker w = { .shared = shared };
	unsigned int i, length;

	memset(shared->seen, 0, sizeof(shared->seen));
	if (!fuzz_kcov_open(&w))
		return;
	for (length = 1; length <= FUZZ_MAX_OPS; length++)
		for (i = 0; i < shared->num_inputs; i++)
			if (shared->input[i].num == length && !fuzz_input(&w, &shared->input[i]) &&
			    fuzz_collect(&w))
				fuzz_print("corpus", &shared->input[i]);
	if (w.pid)
		fuzz_end(&w, false);
}

TEST(fuzz)
{
	const char *wanted = getenv("MKEY_TEST_SECONDS");
	int ready[2], go[2], status, failed = 0;
	struct fuzz_shared *shared;
	pid_t victim, pid[WORKERS];
	unsigned int i, workers = getenv("MKEY_FUZZ_INPUT") ? 1 : WORKERS;
	struct mkt_dev dev[2];
	double begin;
	char byte;

	MKT_OPEN_EXTENDED(dev);
	for (i = 0; i < 2; i++)
		mkt_dev_close(&dev[i]);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	ASSERT_NE(MAP_FAILED, shared);
	shared->corpus = fuzz_read(shared);
	shared->num_inputs = shared->corpus;
	ASSERT_LT(0, shared->corpus);
	ASSERT_EQ(0, pipe(ready) || pipe(go));
	fflush(stdout);
	victim = fork();
	if (!victim) {
		close(go[1]);
		_exit(fuzz_other(shared, ready[1], go[0]));
	}
	close(ready[1]);
	ASSERT_EQ(1, read(ready[0], &byte, 1));
	begin = mkt_seconds();
	shared->end = begin + (wanted ? strtod(wanted, NULL) : mkt_scale(60, 20));
	for (i = 0; i < workers; i++) {
		pid[i] = fork();
		if (!pid[i])
			_exit(fuzz_worker(shared, i));
	}
	for (i = 0; i < workers; i++) {
		while (!mkt_ended(pid[i], 10, &status))
			mkt_alive();
		failed |= status;
	}
	EXPECT_EQ(0, failed);
	TH_LOG("%u inputs in the corpus, %u runs by %u processes, %u kept, %u PCs, %.0f s",
	       shared->corpus, shared->runs, shared->processes,
	       shared->num_inputs - shared->corpus, shared->num_pcs, mkt_seconds() - begin);
	if (!access("/sys/kernel/debug/kcov", F_OK))
		EXPECT_LT(1000, shared->num_pcs);
	if (getenv("MKEY_FUZZ_DUMP") && !failed)
		fuzz_dump(shared);
	close(go[1]);
	ASSERT_TRUE(mkt_ended(victim, HANG_SECONDS, &status));
	EXPECT_EQ(0, status)
		TH_LOG("the memory of the other user has changed, or it cannot use the device");
}

TEST_HARNESS_MAIN
