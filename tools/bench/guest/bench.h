/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The measurements. A series is one quantity that is obtained in several ways.
 * The ways alternate, so that a change of the machine's speed affects all of
 * them. Any error, and any wrong byte, ends the program with one line.
 */
#ifndef MKEY_BENCH_H
#define MKEY_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rc.h>

#define KIB 1024ull
#define MIB (1024 * KIB)
#ifndef ARRAY_SIZE
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#endif

/* The side that posts the requests, and the other side. */
enum { NEAR, FAR };

struct bench {
	struct rc_dev dev[2];
	struct rc_conn conn[2];
	bool extended;			/* both devices, by ib_mkey */
	unsigned int repetitions;
	unsigned int shift;		/* sizes are divided by 2 to this power */
	bool quiet;			/* check everything, print no figures */
	bool icount;			/* the clock counts instructions */
	const char *way;		/* what groups ordinary and nfs call their way */
	const char *file;		/* of NFS, or NULL */
	const char *behind;		/* the same file in the server's directory */
};

/* measure.c */

struct series {
	const char *group;
	const char *name;
	uint64_t size;			/* what differs along the axis of a plot */
	uint64_t amount;		/* in one repetition, of: */
	const char *unit;		/* "bytes" or "operations" */
};

struct way {
	const char *name;
	void (*reset)(void *context);	/* before the clock starts, may be NULL */
	void (*run)(void *context);
	void (*check)(void *context);	/* after it stops, may be NULL */
	void *context;
	unsigned int times;		/* to run in a repetition, 0 is once */
};

/* Prints a record for each of @ways. */
void measure(const struct bench *bench, const struct series *series,
	     const struct way *ways, unsigned int num_ways);

uint64_t now_ns(void);
size_t scaled(const struct bench *bench, size_t amount, size_t at_least);

uint8_t *new_buffer(size_t size);
/*
 * Fills @to with bytes that differ from one another and, with another @seed,
 * from these.
 */
void fill_random(uint8_t *to, size_t size, uint32_t seed);
void must(int ret, const char *what);

/* move.c */

#define ACCESS_ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
		    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

enum op { OP_WRITE, OP_READ, OP_SEND, NUM_OPS };

extern const char *const op_names[NUM_OPS];

/* The side that the bytes are read from. */
static inline int source_of(enum op op)
{
	return op == OP_READ ? FAR : NEAR;
}

struct message {
	struct ibv_sge near[RC_MAX_SGE];
	struct ibv_sge far[RC_MAX_SGE];	/* more than the first is for OP_SEND */
	int num_sge;
	uint32_t rkey;			/* of the first one */
};

/*
 * Posts @count messages, each filled in by @get, and returns when all data are
 * in place.
 */
void move(struct bench *bench, enum op op, unsigned int count,
	  void (*get)(void *context, unsigned int index, struct message *message),
	  void *context);

/* The same bytes @count times, from and to the start of two MRs. */
struct span {
	uint64_t addr;
	struct ibv_mr *mr;
};

void move_span(struct bench *bench, enum op op, const struct span span[2],
	       size_t length, unsigned int count);

/* Adds 1 to the word at @to @count times; @found receives the old values. */
void fetch_and_add(struct bench *bench, const struct span *to, uint64_t *found,
		   const struct ibv_mr *found_mr, unsigned int count);
void check_found(const uint64_t *found, unsigned int count, uint64_t last);

/* strided.c: memory with blocks of one size, and gaps of the same size */

struct column {
	size_t block, count, bytes, span;
	uint8_t *strided, *packed;
	struct ibv_mr *strided_mr, *packed_mr, *key;
};

void column_open(struct rc_dev *dev, struct column *column, size_t block,
		 size_t count);
void column_close(struct column *column);
/* Binds the key to the default layout: one block, one dimension. */
void column_bind(struct column *column);
void column_clear(struct column *column);
/*
 * Checks that the blocks equal those of @from and that the gaps are unchanged.
 */
void column_check(const struct column *column, const struct column *from);

/* The groups of measurements. */
void measure_strided(struct bench *bench);
void measure_layouts(struct bench *bench);
void measure_growth(struct bench *bench);
void measure_bind(struct bench *bench);
void measure_request(struct bench *bench);
void measure_kv(struct bench *bench);
void measure_dm(struct bench *bench);
void measure_ordinary(struct bench *bench);
void measure_nfs(struct bench *bench);

#endif /* MKEY_BENCH_H */
