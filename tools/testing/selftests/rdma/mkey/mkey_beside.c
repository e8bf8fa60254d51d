// SPDX-License-Identifier: GPL-2.0
/*
 * Not a test: prints how long a READ of 4 KiB through a key takes a process while a process of
 * another user does one thing again and again. "alone" is without it, and "traffic" is with READs
 * of 4 KiB of that user, without a key. Needs root, to be other users. mkey_beside [READS]
 */
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands.h"

#define VICTIM 64001
#define OTHER 64002
#define LENGTH 4096
#define MOST_KEYS 4096

struct beside {
	struct mkt_setup s;
	struct ibv_mr *key;		/* of as many entries as there may be */
	struct mkt_commands c;
};

static int beside_traffic(struct beside *b)
{
	struct mkt_end *to = &b->s.plain[1];

	return mkt_touch(&b->s, to->mr->rkey, MKT_READ, to->addr, LENGTH) != IBV_WC_SUCCESS;
}

static int beside_long_binds(struct beside *b)
{
	return mkt_bind_rows(b->key, &b->s.arena[1].leaf[0], MKT_ROWS_LIST,
			     b->s.dev[1].caps.max_entries, 2, MKT_ACCESS_ALL);
}

static int beside_short_binds(struct beside *b)
{
	return mkt_bind_rows(b->key, &b->s.arena[1].leaf[0], MKT_ROWS_LIST, 1, 1, MKT_ACCESS_ALL);
}

static int beside_keys(struct beside *b)
{
	struct ibv_mr *key = ibmkey_alloc(b->s.dev[1].pd, 1);

	return key ? ibv_dereg_mr(key) : errno;
}

/* takes all of the user's memory for keys, and frees it */
static int beside_memory(struct beside *b)
{
	static struct ibv_mr *key[MOST_KEYS];
	unsigned int n = 0;
	int err = 0;

	while (n < MOST_KEYS && !err) {
		key[n] = ibmkey_alloc(b->s.dev[1].pd, b->s.dev[1].caps.max_entries);
		err = key[n] ? mkt_bind_rows(key[n], &b->s.arena[1].leaf[0], MKT_ROWS_BLOCKS,
					     b->s.dev[1].caps.max_entries, 2, MKT_ACCESS_ALL) :
			       errno;
		n += !!key[n];
	}
	while (n)
		ibv_dereg_mr(key[--n]);
	return err == ENOMEM ? 0 : err;
}

static int beside_wrong_rkeys(struct beside *b)
{
	return mkt_try(&b->s, b->key->rkey ^ 0x5500, MKT_READ, 0, 64) < 0;
}

/* binds and invalidations by requests, which workers of rxe execute */
static int beside_invalidations(struct beside *b)
{
	struct mkt_wr wr = { .op = MKT_LOCAL_INV, .rkey = b->key->rkey };
	int err = beside_short_binds(b);

	if (err || mkt_status(&b->s.pair, 1, &wr) != IBV_WC_SUCCESS)
		return err ?: EIO;
	b->key->rkey = ibv_inc_rkey(b->key->rkey);
	b->key->lkey = b->key->rkey;
	return 0;
}

static int beside_commands(struct beside *b)
{
	struct mkt_ioctl cmd;
	unsigned int what = mkt_between(&b->s.rng, 0, NUM_COMMANDS - 1);

	mkt_command_build(&b->c, &cmd, what);
	cmd.attr[mkt_between(&b->s.rng, 0, cmd.hdr.num_attrs - 1)].len = mkt_rand(&b->s.rng);
	mkt_command_run(&b->c, &cmd);
	return 0;
}

static const struct beside_attack {
	const char *name;
	int (*step)(struct beside *b);
} attacks[] = {
	{ "alone", NULL },
	{ "traffic", beside_traffic },
	{ "short binds", beside_short_binds },
	{ "binds of the longest list", beside_long_binds },
	{ "keys, created and destroyed", beside_keys },
	{ "all memory for keys, again and again", beside_memory },
	{ "invalidations by requests", beside_invalidations },
	{ "accesses by wrong rkeys", beside_wrong_rkeys },
	{ "calls with wrong arguments", beside_commands },
	{ "alone", NULL },
	{ NULL, NULL },
};

#define MOST_ATTACKS 16

static int beside_open(struct beside *b, uid_t uid)
{
	unsigned int side;
	int err;

	if (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
		return errno;
	for (side = 0; side < 2; side++) {
		err = mkt_dev_open(&b->s.dev[side], side);
		if (err)
			return err;
	}
	b->c.dev = b->s.dev[1];
	err = mkt_setup(&b->s, &(struct mkt_wants){ .host = 64 * 1024, .max_entries = 16 },
			"beside");
	b->key = ibmkey_alloc(b->s.dev[1].pd, b->s.dev[1].caps.max_entries);
	return err ?: b->key ? mkt_commands_setup(&b->c) : errno;
}

static void __attribute__((noreturn)) beside_attack(const struct beside_attack *attack, int ready)
{
	static struct beside b;
	int err;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	err = beside_open(&b, OTHER) ?: attack->step(&b);
	if (err || write(ready, "", 1) != 1)
		_exit(1);
	while (!err)
		err = attack->step(&b);
	mkt_diag("%s: %s", attack->name, strerror(err));
	_exit(1);
}

static int beside_compare(const void *a, const void *b)
{
	double one = *(const double *)a, two = *(const double *)b;

	return (one > two) - (one < two);
}

static int beside_measure(struct beside *b, double *time, unsigned int num)
{
	unsigned int i;

	for (i = 0; i < num; i++) {
		double begin = mkt_seconds();

		if (mkt_touch(&b->s, b->s.key[1]->rkey, MKT_READ, 0, LENGTH) != IBV_WC_SUCCESS)
			return EIO;
		time[i] = (mkt_seconds() - begin) * 1e6;
	}
	qsort(time, num, sizeof(*time), beside_compare);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned int num = argc > 1 ? atoi(argv[1]) : 20000, i;
	double *time = calloc(num, sizeof(*time));
	static struct beside b;
	pid_t pid[MOST_ATTACKS];
	int fd[2], ready[2];
	char byte, begun;

	/* the child that measures is another user; this process starts the others */
	if (!num || !time || pipe(fd) || pipe(ready))
		return 1;
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (beside_open(&b, VICTIM) ||
		    mkt_bind_strided(b.s.key[1], MKT_ACCESS_ALL, b.s.arena[1].leaf[0].mr,
				     b.s.arena[1].leaf[0].addr, 64, 128, LENGTH / 64))
			_exit(1);
		while (read(fd[0], &byte, 1) == 1) {
			if (beside_measure(&b, time, num))
				_exit(1);
			printf("%-38s %8.0f %8.0f %8.0f\n", attacks[(int)byte].name, time[num / 2],
			       time[num - 1 - num / 100], time[num - 1]);
			fflush(stdout);
			if (write(ready[1], "", 1) != 1)
				_exit(1);
		}
		_exit(0);
	}
	printf("%-38s %8s %8s %8s\n", "us for a READ of 4 KiB, beside", "median", "99 %", "longest");
	fflush(stdout);
	for (i = 0; attacks[i].name; i++) {
		pid[i] = attacks[i].step ? fork() : -1;
		if (!pid[i])
			beside_attack(&attacks[i], ready[1]);
		byte = i;
		if ((pid[i] > 0 && read(ready[0], &begun, 1) != 1) ||
		    write(fd[1], &byte, 1) != 1 || read(ready[0], &byte, 1) != 1)
			return 1;
		if (pid[i] > 0 && (waitpid(pid[i], NULL, WNOHANG) || kill(pid[i], SIGKILL) ||
				   waitpid(pid[i], NULL, 0) != pid[i]))
			return 1;
	}
	return 0;
}
