// SPDX-License-Identifier: GPL-2.0
/*
 * subject: An MR is registered again over other memory, again and again, while a peer writes to
 * it.
 * sets: smp
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "rereg.h"

#define PACKET 1024
#define MESSAGE (12 * PACKET)

struct rereg_mover {
	struct mkt_setup *s;
	unsigned int mem[2];
	atomic_bool stop;
	unsigned int done, busy;
	int err;
};

/* moves the MR between two memories, with the same addresses */
static void *rereg_mover(void *arg)
{
	struct rereg_mover *m = arg;
	struct mkt_arena *arena = &m->s->arena[1];
	unsigned int i;
	int err;

	for (i = 0; !m->stop; i++) {
		err = mkt_raw_rereg_to(arena->leaf[0].mr, TRANSLATION,
				       m->s->dev[1].pd, 0,
				       arena->mem[m->mem[i & 1]].host, MESSAGE,
				       0x100000);
		m->done += !err;
		m->busy += err == EBUSY;
		if (err && err != EBUSY)
			m->err = err;
		/* the MR is hidden at most half of the time */
		usleep(5000);
	}
	return NULL;
}

static unsigned int rereg_done(const struct rereg_mover *m)
{
	unsigned int done = __atomic_load_n(&m->done, __ATOMIC_RELAXED);

	return done;
}

/* number of packets with @value that are in neither memory */
static unsigned int rereg_lost(const uint8_t *const at[2], size_t length,
			       uint8_t value)
{
	unsigned int lost = 0, i;
	size_t p;

	for (p = 0; p < length; p += PACKET) {
		bool found = false;

		for (i = 0; i < 2; i++)
			found |= at[i][p] == value &&
				 !memcmp(at[i] + p, at[i] + p + 1, PACKET - 1);
		lost += !found;
	}
	return lost;
}

/* number of packets that were written in part */
static unsigned int rereg_torn(const uint8_t *const at[2])
{
	unsigned int torn = 0, i;
	size_t p;

	for (i = 0; i < 2; i++)
		for (p = 0; p < MESSAGE; p += PACKET)
			torn += !!memcmp(at[i] + p, at[i] + p + 1, PACKET - 1);
	return torn;
}

/* each packet of a WRITE is in one of the memories, or is refused */
TEST_F(rereg, under_traffic)
{
	struct mkt_setup *s = &self->s;
	struct rereg_mover mover = { .s = s, .mem = { 0, self->other } };
	uint8_t *from = s->arena[0].mem[0].host + 61;
	unsigned int i, n = mkt_scale(1500, 200), refused = 0, lost = 0, torn = 0;
	const uint8_t *at[2] = {
		s->arena[1].mem[0].host,
		s->arena[1].mem[self->other].host,
	};
	pthread_t thread;

	memset(s->arena[1].mem[0].host, 0, MESSAGE);
	memset(s->arena[1].mem[self->other].host, 0, MESSAGE);
	ASSERT_EQ(0, mkt_raw_rereg_to(self->mr, TRANSLATION, s->dev[1].pd, 0,
				      at[1], MESSAGE, 0x100000));
	ASSERT_EQ(0, pthread_create(&thread, NULL, rereg_mover, &mover));
	for (i = 0; i < n || !rereg_done(&mover); i++) {
		size_t length = i & 1 ? MESSAGE : PACKET;
		int status;

		memset(from, i % 255 + 1, length);
		status = rereg_status(s, MKT_WRITE, 0x100000, length);
		if (status != IBV_WC_SUCCESS) {
			ASSERT_EQ(IBV_WC_REM_ACCESS_ERR, status);
			refused++;
		} else {
			lost += rereg_lost(at, length, i % 255 + 1);
		}
		torn += rereg_torn(at);
	}
	mover.stop = true;
	pthread_join(thread, NULL);
	TH_LOG("%u messages, %u of them refused, moved %u times, busy %u times",
	       i, refused, mover.done, mover.busy);
	EXPECT_EQ(0, mover.err);
	EXPECT_EQ(0, lost);
	EXPECT_EQ(0, torn);
	EXPECT_LT(0, mover.done);
	EXPECT_GT(i, refused);
	ASSERT_EQ(0, mkt_arena_adopt(&s->arena[1], s->arena[1].mem[0].at,
				     MESSAGE));
	ASSERT_EQ(0, mkt_arena_adopt(&s->arena[1],
				     s->arena[1].mem[self->other].at, MESSAGE));
	ASSERT_EQ(0, rereg_to(s, 0, s->dev[1].pd, 0, self->other, 0, 8192, 0));
	EXPECT_EQ(0, rereg_use(s));
}

TEST_HARNESS_MAIN
