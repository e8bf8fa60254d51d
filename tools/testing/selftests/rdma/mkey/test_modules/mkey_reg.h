/* SPDX-License-Identifier: GPL-2.0 */
/* Keys that kernel users bind by work requests: the shared declarations. */
#ifndef MKEY_REG_H
#define MKEY_REG_H

#include <linux/prandom.h>
#include <rdma/ib_mkey.h>
#include "mkey_module.h"
#include "mkey_ulp.h"

#define REG_ACCESS (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | \
		    IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC)
#define REG_MEMORY (64 * 1024)
#define REG_ENTRIES 300
/* Requests of one chain. */
#define REG_CHAIN 6

/* One side's memory, its expected bytes, and a key. */
struct reg_side {
	struct ulp_side *side;
	u8 *memory;
	u64 addr;
	u8 *expected;
	struct ib_mr *key;
};

struct reg_test {
	struct ulp_link link;
	struct reg_side here;
	struct reg_side there;
	struct rnd_state random;
};

/*
 * Returns -EIO from the caller, and logs the place, unless the condition holds.
 */
#define expect(condition)                                                    \
	do {                                                                 \
		if (!(condition)) {                                          \
			pr_err("mkey_reg: %s:%d: %s does not hold\n",        \
			       __func__, __LINE__, #condition);              \
			return -EIO;                                         \
		}                                                            \
	} while (0)

/* The same unless a call has this result. */
#define expect_is(call, want)                                                \
	do {                                                                 \
		int _is = (call);                                            \
									     \
		if (_is != (want)) {                                         \
			pr_err("mkey_reg: %s:%d: %s is %d, not %s\n",        \
			       __func__, __LINE__, #call, _is, #want);       \
			return -EIO;                                         \
		}                                                            \
	} while (0)

/* A layout of a side's memory, and where its bytes are. */
struct reg_layout {
	enum { REG_LIST, REG_INTERLEAVED, REG_INDEXED, REG_KINDS } kind;
	struct ib_sge sge[REG_ENTRIES];
	u32 num_sge;
	struct ib_mkey_block block[2];
	u64 repeat_count[2];
	u32 index[REG_ENTRIES];
	struct ib_mkey_interleaved interleaved;
	struct ib_mkey_indexed indexed;
	u32 place[REG_MEMORY];
	u32 length;
};

/* mkey_reg_layout.c */
void reg_draw(struct reg_test *test, struct reg_side *side, struct reg_layout *layout);
int reg_map(struct ib_mr *key, const struct reg_layout *layout);

/* Work requests, each of which completes. */
struct reg_chain {
	union {
		struct ib_send_wr send;
		struct ib_reg_wr reg;
		struct ib_rdma_wr rdma;
	} wr[REG_CHAIN];
	struct ib_sge sge[REG_CHAIN];
	int length;
	/* The status of each request, after reg_run(). */
	enum ib_wc_status status[REG_CHAIN];
};

/* mkey_reg_chain.c */
void reg_bind(struct reg_chain *chain, struct ib_mr *key, u32 rkey, int access);
void reg_rdma(struct reg_chain *chain, enum ib_wr_opcode opcode, u64 addr, u32 lkey, u32 length,
	      u64 remote_addr, u32 rkey);
void reg_inv(struct reg_chain *chain, u32 rkey);
int reg_post(struct ulp_side *side, struct reg_chain *chain);
int reg_run(struct ulp_side *side, struct reg_chain *chain);
u32 reg_next_key(struct ib_mr *key);
void reg_fill(struct reg_test *test, struct reg_side *side);
int reg_same(struct reg_side *side);
struct ib_sge reg_range(struct reg_side *side, u32 at, u32 length);
int reg_bind_status(struct reg_test *test, struct reg_side *side, struct ib_mr *key, u32 rkey,
		    int access);
int reg_inv_status(struct reg_test *test, struct reg_side *side, u32 rkey);
int reg_peek(struct reg_test *test, u32 rkey);

int reg_order(struct reg_test *test, unsigned int rounds);
int reg_refusals(struct reg_test *test);
int reg_tags(struct reg_test *test);
int reg_lives(struct reg_test *test);
int reg_linger(struct reg_test *test);

#endif /* MKEY_REG_H */
