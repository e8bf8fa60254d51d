/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Kernel users that register MRs by work requests: scatterlists with gaps, and keys. Two connected
 * sides with memory whose bytes are known, and chains of requests.
 */
#ifndef MKEY_REG_H
#define MKEY_REG_H

#include <linux/prandom.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>
#include <rdma/ib_mkey.h>
#include "mkey_module.h"

#define REG_ACCESS (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | \
		    IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC)
#define REG_MEMORY SZ_1M
/* Bytes of the memory that layouts of keys use. */
#define REG_LAYOUT SZ_64K
#define REG_ENTRIES 300
/* Elements of a scatterlist. */
#define REG_ELEMENTS 512
/* Requests of one chain. */
#define REG_CHAIN 6

/*
 * One side's memory, its expected bytes, a key, and an MR over the pieces of a list. The list has
 * room for one element more than the MR takes.
 */
struct reg_side {
	struct ulp_side *side;
	u8 *memory;
	u64 addr;
	u8 *expected;
	struct ib_mr *key;
	struct ib_mr *mr;
	struct scatterlist sg[REG_ELEMENTS + 1];
	int nents;
	u32 length;
};

struct reg_test {
	struct ulp_link link;
	struct reg_side here;
	struct reg_side there;
	struct rnd_state random;
};

/*
 * Returns true if a local request was refused. The queue pair may be in the error state by then,
 * and rxe reports the request as flushed.
 */
static inline bool reg_refused(int status)
{
	return status == IB_WC_LOC_QP_OP_ERR || status == IB_WC_WR_FLUSH_ERR;
}

/* A layout of a side's memory, and where its bytes are. */
struct reg_layout {
	/* REG_GAPS is the side's scatterlist, for its MR. The others are for its key. */
	enum { REG_LIST, REG_INTERLEAVED, REG_INDEXED, REG_GAPS, REG_KINDS } kind;
	struct ib_sge sge[REG_ENTRIES];
	u32 num_sge;
	struct ib_mkey_block block[2];
	u64 repeat_count[2];
	u32 index[REG_ENTRIES];
	struct ib_mkey_interleaved interleaved;
	struct ib_mkey_indexed indexed;
	u32 place[REG_LAYOUT];
	u32 length;
	u64 base;	/* the address of the first byte */
};

/* mkey_reg_layout.c */
void reg_draw(struct reg_test *test, struct reg_side *side, struct reg_layout *layout);
struct ib_mr *reg_mr(struct reg_side *side, const struct reg_layout *layout);
int reg_map(struct reg_side *side, struct ib_mr *key, struct reg_layout *layout);
void reg_unmap(struct reg_side *side, const struct reg_layout *layout);

/* Work requests, each of which completes. */
struct reg_chain {
	union {
		struct ib_send_wr send;
		struct ib_reg_wr reg;
		struct ib_rdma_wr rdma;
		struct ib_atomic_wr atomic;
	} wr[REG_CHAIN];
	struct ib_sge sge[REG_CHAIN];
	int length;
	/* The status of each request, after reg_run(). */
	enum ib_wc_status status[REG_CHAIN];
};

/* mkey_reg_chain.c */
void reg_bind(struct reg_chain *chain, struct ib_mr *mr, u32 rkey, int access);
void reg_rdma(struct reg_chain *chain, enum ib_wr_opcode opcode, u64 addr, u32 lkey, u32 length,
	      u64 remote_addr, u32 rkey);
void reg_inv(struct reg_chain *chain, u32 rkey);
int reg_post(struct ulp_side *side, struct reg_chain *chain);
int reg_wait(struct ulp_side *side, struct reg_chain *chain);
int reg_run(struct ulp_side *side, struct reg_chain *chain);
u32 reg_next_key(struct ib_mr *mr);
int reg_status(struct reg_test *test, struct reg_side *side, struct reg_chain *chain);
void reg_fill(struct reg_test *test, struct reg_side *side);
int reg_same(struct reg_side *side);
struct ib_sge reg_range(struct reg_side *side, u32 at, u32 length);
int reg_bind_status(struct reg_test *test, struct reg_side *side, struct ib_mr *mr, u32 rkey,
		    int access);
int reg_inv_status(struct reg_test *test, struct reg_side *side, u32 rkey);
int reg_rdma_status(struct reg_test *test, enum ib_wr_opcode opcode, u64 addr, u32 length,
		    u32 rkey);

/* mkey_gaps_list.c */
void gaps_draw(struct reg_test *test, struct reg_side *side, int nents, u32 room);
void gaps_even(struct reg_side *side, int nents, u32 at);
void gaps_unmap(struct reg_side *side);
int gaps_map(struct reg_side *side);
u32 gaps_place(u32 at, u32 offset);
int gaps_register(struct reg_test *test, struct reg_side *side, int access);
int gaps_invalidate(struct reg_test *test, struct reg_side *side);

int reg_bare(struct ib_device *device);
int reg_order(struct reg_test *test, unsigned int rounds);
int reg_refusals(struct reg_test *test);
int reg_steps(struct reg_test *test);
int reg_lives(struct reg_test *test);
int reg_linger(struct reg_test *test);
int gaps_order(struct reg_test *test);

#endif /* MKEY_REG_H */
