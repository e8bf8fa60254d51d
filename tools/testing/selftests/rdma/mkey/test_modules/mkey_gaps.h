/* SPDX-License-Identifier: GPL-2.0 */
/* MRs for fast registration over scatterlists with gaps: the shared declarations. */
#ifndef MKEY_GAPS_H
#define MKEY_GAPS_H

#include <linux/scatterlist.h>
#include <linux/sizes.h>
#include "mkey_module.h"
#include "mkey_ulp.h"

#define GAPS_ELEMENTS 512
#define GAPS_MEMORY (1024 * 1024)
#define GAPS_ACCESS (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | \
		     IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC)

/*
 * One side's memory, its expected bytes, and an MR over pieces of it. The list
 * has room for one element more than the MR takes.
 */
struct gaps_side {
	struct ulp_side *side;
	u8 *memory;
	u8 *expected;
	struct ib_mr *mr;
	struct scatterlist sg[GAPS_ELEMENTS + 1];
	int nents;
	u32 length;
};

struct gaps {
	struct ulp_link link;
	struct gaps_side here;
	struct gaps_side there;
	struct rnd_state *random;
};

/*
 * Returns -EIO from the caller, and logs the place, unless the condition holds.
 */
#define expect(condition)                                                    \
	do {                                                                 \
		if (!(condition)) {                                          \
			pr_err("mkey_gaps: %s:%d: %s does not hold\n",       \
			       __func__, __LINE__, #condition);              \
			return -EIO;                                         \
		}                                                            \
	} while (0)

/* The same unless a request has this status. */
#define expect_status(call, want)                                            \
	do {                                                                 \
		int _is = (call);                                            \
									     \
		if (_is != (want)) {                                         \
			pr_err("mkey_gaps: %s:%d: %s is %d, not %s\n",       \
			       __func__, __LINE__, #call, _is, #want);       \
			return -EIO;                                         \
		}                                                            \
	} while (0)

/*
 * The same unless a local request was refused. The queue pair is in the error
 * state by then, and rxe reports the request as flushed.
 */
#define expect_refused(call)                                                 \
	do {                                                                 \
		int _is = (call);                                            \
									     \
		if (_is != IB_WC_LOC_QP_OP_ERR && _is != IB_WC_WR_FLUSH_ERR) { \
			pr_err("mkey_gaps: %s:%d: %s is %d, not refused\n",  \
			       __func__, __LINE__, #call, _is);              \
			return -EIO;                                         \
		}                                                            \
	} while (0)

void gaps_draw(struct gaps *gaps, struct gaps_side *side, int nents);
void gaps_unmap(struct gaps_side *side);
int gaps_map(struct gaps_side *side);
void gaps_fill(struct gaps *gaps, struct gaps_side *side);
int gaps_same(struct gaps_side *side);
void gaps_copy(struct gaps_side *to, u32 to_offset, struct gaps_side *from,
	       u32 from_offset, u32 length);

/* Work requests, each of which completes. */
union gaps_wr {
	struct ib_send_wr send;
	struct ib_reg_wr reg;
	struct ib_rdma_wr rdma;
	struct ib_atomic_wr atomic;
};

struct gaps_chain {
	union gaps_wr wr[3];
	struct ib_sge sge;
	int length;
	/* The status of each request, after gaps_run(). */
	enum ib_wc_status status[3];
};

void gaps_reg(struct gaps_chain *chain, struct gaps_side *side, int access);
void gaps_rdma(struct gaps_chain *chain, enum ib_wr_opcode opcode, u64 addr, u32 lkey,
	       u32 length, u64 remote_addr, u32 rkey);
void gaps_send(struct gaps_chain *chain, u64 addr, u32 lkey, u32 length);
void gaps_inv(struct gaps_chain *chain, u32 key);
int gaps_run(struct ulp_side *side, struct gaps_chain *chain);

int gaps_register(struct gaps_side *side, int access);
int gaps_invalidate(struct gaps_side *side);
int gaps_refusals(struct gaps *gaps);
int gaps_order(struct gaps *gaps);

#endif /* MKEY_GAPS_H */
