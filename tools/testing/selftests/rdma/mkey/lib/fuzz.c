// SPDX-License-Identifier: GPL-2.0
/* Runs a sequence of calls and work requests in this process. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz_objects.h"

#define GUARD_BYTE 0xa7

bool fuzz_has(const struct fuzz_input *in, enum fuzz_call call)
{
	unsigned int i;

	for (i = 0; i < in->num; i++)
		if (in->op[i].op % FUZZ_NUM_OPS == call)
			return true;
	return false;
}

static void fuzz_do(struct fuzz *f, const struct fuzz_op *op)
{
	struct fuzz_side *s = &f->side[op->obj >> 7];
	struct fuzz_op of_side = *op;

	/* the tweak of the next command stays in the input */
	if (op->op % FUZZ_NUM_OPS == FUZZ_TWEAK) {
		f->tweak = op;
		return;
	}
	of_side.obj &= 0x7f;
	/* an operation belongs to one of them */
	fuzz_object(f, s, &of_side);
	fuzz_key(f, s, &of_side);
}

/* destroys what is there, in either order; returns true if nothing is left */
static bool fuzz_cleanup(struct fuzz *f, unsigned int order)
{
	unsigned int round, side, i;
	bool left = true;

	f->tweak = NULL;
	fuzz_clear(f);
	for (i = 0; i < PAIRS; i++)
		mkt_pair_recover(&f->pair[i]);
	/* a key is at most 8 levels above a leaf */
	for (round = 0; round < 10 && left; round++) {
		left = false;
		for (side = 0; side < 2; side++) {
			struct fuzz_side *s = &f->side[side];

			for (i = 0; i < MRS; i++) {
				struct fuzz_mr *m = &s->mr[order & 1 ? i : MRS - 1 - i];

				left |= m->mr && !fuzz_dereg(f, s, m);
			}
			for (i = 0; i < MWS; i++) {
				if (s->mw[i] && !ibv_dealloc_mw(s->mw[i]))
					s->mw[i] = NULL;
				left |= !!s->mw[i];
			}
			for (i = 0; i < DMS; i++) {
				if (s->dm[i] && !ibv_free_dm(s->dm[i]))
					s->dm[i] = NULL;
				left |= !!s->dm[i];
			}
		}
	}
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
	return !left;
}

static uint8_t *fuzz_part(struct fuzz_side *s, unsigned int page)
{
	return s->mem + page * PAGE;
}

static enum fuzz_result fuzz_look(struct fuzz *f)
{
	static const struct { unsigned int first, num; } kept[] = {
		{ 0, 1 }, { 1 + RW_PAGES, RO_PAGES }, { 1 + PAGES, 1 },
	};
	uint64_t secret = ~FUZZ_SECRET_INVERTED;
	enum fuzz_result result = FUZZ_FINE;
	unsigned int side, i, k;

	for (side = 0; side < 2; side++) {
		struct fuzz_side *s = &f->side[side];

		for (k = 0; k < 3; k++) {
			const uint8_t *at = fuzz_part(s, kept[k].first);

			for (i = 0; i < kept[k].num * PAGE; i++)
				if (at[i] != GUARD_BYTE)
					result = FUZZ_GUARD;
		}
		if (memmem(fuzz_part(s, 1), RW_PAGES * PAGE, &secret, sizeof(secret)))
			result = FUZZ_LEAK;
	}
	if (memmem(f->out, OUT_BYTES, &secret, sizeof(secret)))
		result = FUZZ_LEAK;
	*(volatile uint64_t *)&secret = 0;
	return result;
}

enum fuzz_result fuzz_run(struct fuzz *f, const struct fuzz_input *in)
{
	enum fuzz_result result;
	unsigned int i, order = 0;
	pid_t pid;

	for (i = 0; i < in->num; i++) {
		const struct fuzz_op *op = &in->op[i];

		order += op->n;
		if (op->op % FUZZ_NUM_OPS != FUZZ_FORK) {
			fuzz_do(f, op);
			continue;
		}
		/* the next operation is that of a child, whose memory is a copy */
		pid = fork();
		if (!pid) {
			if (i + 1 < in->num)
				fuzz_do(f, &in->op[i + 1]);
			_exit(0);
		}
		if (pid > 0)
			waitpid(pid, NULL, 0);
		i += op->a & 1;
	}
	fuzz_poll(f, 8);
	if (!fuzz_cleanup(f, order))
		return fuzz_has(in, FUZZ_TWEAK) || fuzz_has(in, FUZZ_FORK) ? FUZZ_RETIRE :
									     FUZZ_LEFT;
	for (i = 0; i < 2; i++)
		mmap(fuzz_part(&f->side[i], 1 + RW_PAGES + RO_PAGES), ODD_PAGES * PAGE,
		     PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	result = fuzz_look(f);
	return result == FUZZ_FINE && fuzz_has(in, FUZZ_SCRIBBLE) ? FUZZ_RETIRE : result;
}

struct fuzz *fuzz_open(const struct fuzz_victim *victim)
{
	struct fuzz *f = calloc(1, sizeof(*f));
	unsigned int i;

	if (!f)
		return NULL;
	f->victim = *victim;
	f->fd = -1;
	f->out = mmap(NULL, OUT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (f->out == MAP_FAILED)
		return NULL;
	for (i = 0; i < 2; i++) {
		struct fuzz_side *s = &f->side[i];

		if (mkt_dev_open(&s->dev[0], i))
			return NULL;
		s->dev[1] = s->dev[0];
		s->dev[1].pd = ibv_alloc_pd(s->dev[0].ctx);
		s->mem = mmap(NULL, MEM_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		s->text = ibv_reg_mr(s->dev[0].pd, f->out, OUT_BYTES, 0);
		if (!s->dev[1].pd || s->mem == MAP_FAILED || !s->text)
			return NULL;
		memset(s->mem, GUARD_BYTE, MEM_BYTES);
	}
	for (i = 0; i < PAIRS; i++) {
		static const unsigned int flags[PAIRS] = { 0, MKT_QP_SRQ, MKT_QP_UC, 0 };

		/* the last pair is in the other PDs */
		if (mkt_pair_create(&f->pair[i], &f->side[0].dev[i == PAIRS - 1],
				    &f->side[1].dev[i == PAIRS - 1],
				    i ? IBV_MTU_1024 : IBV_MTU_4096, flags[i] | MKT_QP_BRIEF))
			return NULL;
	}
	return f;
}
