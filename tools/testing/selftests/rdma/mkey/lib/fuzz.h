/* SPDX-License-Identifier: GPL-2.0 */
/* Sequences of calls and work requests, as bytes that a fuzzer changes. */
#ifndef MKEY_TEST_FUZZ_H
#define MKEY_TEST_FUZZ_H

#include "mkey_test.h"

#define FUZZ_MAX_OPS 48
/* the memory of another user begins with it; no process has it in this form but that one */
#define FUZZ_SECRET_INVERTED (~0x5ec2e7d06f00d5a1ull)

/* eight bytes, in a corpus 16 digits */
struct fuzz_op {
	uint8_t op;	/* modulo FUZZ_NUM_OPS */
	uint8_t obj;	/* bit 7 is the side; the rest chooses an object that exists */
	uint8_t a, b;	/* another object, a variant, flags */
	uint16_t n, m;	/* fuzz_number() gives what they stand for */
};

struct fuzz_input {
	uint32_t num;
	struct fuzz_op op[FUZZ_MAX_OPS];
};

enum fuzz_call {
	FUZZ_REG, FUZZ_CREATE, FUZZ_ENTRY, FUZZ_STRIDE, FUZZ_REPEAT, FUZZ_INDEX, FUZZ_BIND,
	FUZZ_BIND_MANY, FUZZ_BIND_WR, FUZZ_UNBIND, FUZZ_QUERY, FUZZ_DEREG, FUZZ_MW_ALLOC,
	FUZZ_MW_BIND, FUZZ_MW_FREE, FUZZ_DM_ALLOC, FUZZ_DM_COPY, FUZZ_DM_FILE, FUZZ_DM_FREE,
	FUZZ_POST, FUZZ_RECV, FUZZ_POLL, FUZZ_REREG, FUZZ_ADVISE, FUZZ_MEMORY, FUZZ_QP,
	FUZZ_TWEAK, FUZZ_SCRIBBLE, FUZZ_FORK, FUZZ_DIE, FUZZ_NUM_OPS,
};

enum fuzz_result {
	FUZZ_FINE = 1,
	FUZZ_RETIRE,	/* fine, but an object may be left: the process is to end */
	FUZZ_GUARD,	/* memory has changed that no MR allows to write */
	FUZZ_LEAK,	/* memory of another user was read */
	FUZZ_LEFT,	/* an object cannot be destroyed */
};

/* what the other user has, so that an input can name it */
struct fuzz_victim {
	uint32_t lkey[2], rkey[2];	/* of memory, of a key over it */
	uint64_t addr;
};

struct fuzz;

/* opens the devices; NULL after an error */
struct fuzz *fuzz_open(const struct fuzz_victim *victim);
/* runs an input, destroys what it has made, and looks at the memory */
enum fuzz_result fuzz_run(struct fuzz *f, const struct fuzz_input *in);
/* returns true if @in has an operation of this kind */
bool fuzz_has(const struct fuzz_input *in, enum fuzz_call call);

#endif /* MKEY_TEST_FUZZ_H */
