/* SPDX-License-Identifier: GPL-2.0 */
/* Queue pairs between the two devices, and their work requests. Part of mkey_test.h. */
#ifndef MKEY_TEST_QP_H
#define MKEY_TEST_QP_H

#include "dev.h"

/* qp.c: queue pairs */

#define MKT_DEPTH 128
#define MKT_MAX_SGE 8

/* the address of a queue pair, for the other side */
struct mkt_peer {
	union ibv_gid gid;
	uint32_t qp_num;
	uint32_t psn;
};

struct mkt_qp {
	struct mkt_dev *dev;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	struct mkt_peer peer;
	uint32_t psn;
	unsigned int flags;
};

#define MKT_QP_SRQ (1u << 0)
#define MKT_QP_UD (1u << 1)
#define MKT_QP_UC (1u << 2)
/* retransmits early and without limit, for a network that loses packets */
#define MKT_QP_LOSSY (1u << 3)
/* never retransmits, for slow peers */
#define MKT_QP_PATIENT (1u << 4)
/* reports within 15 seconds that its peer is gone */
#define MKT_QP_BRIEF (1u << 5)

#define MKT_QKEY 0x1ee7

int mkt_qp_create(struct mkt_qp *qp, struct mkt_dev *dev, unsigned int flags);
void mkt_qp_self(const struct mkt_qp *qp, struct mkt_peer *self);
int mkt_qp_connect(struct mkt_qp *qp, const struct mkt_peer *peer,
		   enum ibv_mtu mtu);
/* sets a state that needs no other attribute; returns an errno value */
int mkt_qp_state(struct mkt_qp *qp, enum ibv_qp_state state);
void mkt_qp_destroy(struct mkt_qp *qp);

struct mkt_pair {
	struct mkt_qp end[2];
	enum ibv_mtu mtu;
};

/* side 0 is on @dev0, side 1 on @dev1; both have the MKT_QP_* @flags */
int mkt_pair_create(struct mkt_pair *pair, struct mkt_dev *dev0,
		    struct mkt_dev *dev1, enum ibv_mtu mtu, unsigned int flags);
/* connects two queue pairs to each other; their packets have the pair's mtu */
int mkt_pair_connect(struct mkt_pair *pair);
/* after an error: resets both, connects them again and drops completions */
int mkt_pair_recover(struct mkt_pair *pair);
void mkt_pair_destroy(struct mkt_pair *pair);

static inline size_t mkt_mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

/*
 * What is waited for as long without anything happening does not come. On a busy
 * machine the slowest of all takes a tenth of it.
 */
#define MKT_STALL_SECONDS 180
/*
 * Pauses of a millisecond. Each takes 4 in an emulated guest, which has no timers of high
 * resolution.
 */
#define MKT_STALL_PAUSES (MKT_STALL_SECONDS * 250)

/* looks at a condition again and again; false if it stays false */
#define mkt_until(condition) ({						\
	unsigned int __pauses = MKT_STALL_PAUSES;			\
									\
	while (!(condition) && --__pauses)				\
		usleep(1000);						\
	__pauses > 0;							\
})

/* wr.c: work requests */

enum mkt_op {
	MKT_SEND,
	MKT_SEND_IMM,
	MKT_WRITE,
	MKT_WRITE_IMM,
	MKT_READ,
	MKT_FETCH_ADD,
	MKT_CMP_SWAP,
	MKT_ATOMIC_WRITE,
	MKT_FLUSH,
	MKT_SEND_INV,
	MKT_LOCAL_INV,
};

const char *mkt_op_name(enum mkt_op op);

struct mkt_wr {
	enum mkt_op op;
	struct ibv_sge sge[MKT_MAX_SGE];
	int num_sge;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t imm;
	/* FETCH_ADD adds swap_add; ATOMIC_WRITE stores it */
	uint64_t compare;
	uint64_t swap_add;
	/* FLUSH: number of bytes from remote_addr */
	size_t flush_length;
	bool whole;		/* the MR, whatever its length */
	bool persistent;	/* or else globally visible */
};

int mkt_post_send(struct mkt_qp *qp, const struct mkt_wr *wr, uint64_t wr_id);
int mkt_post_recv(struct mkt_qp *qp, const struct ibv_sge *sge, int num_sge,
		  uint64_t wr_id);
/* waits for one completion; ETIMEDOUT if nothing completes for minutes */
int mkt_poll(struct mkt_qp *qp, struct ibv_wc *wc);
/* a request that binds a window under the rkey that it has */
struct ibv_send_wr mkt_window_wr(struct ibv_mw *mw, struct ibv_mr *mr, uint64_t addr,
				 uint64_t length, unsigned int access);
/* binds a window of either type and waits; EIO if the bind is refused */
int mkt_bind_window(struct mkt_qp *qp, struct ibv_mw *mw, struct ibv_mr *mr,
		    uint64_t addr, uint64_t length, unsigned int access);

struct mkt_result {
	enum ibv_wc_status status;	/* of the work request */
	bool received;			/* the rest is valid */
	enum ibv_wc_status recv_status;
	uint32_t byte_len;
	uint32_t imm;			/* 0 when none came */
};

/*
 * Posts @recv, which may be NULL, on the other side, then @wr on side @side.
 * Waits until both have completed.
 */
int mkt_exec(struct mkt_pair *pair, unsigned int side, const struct mkt_wr *wr,
	     const struct mkt_wr *recv, struct mkt_result *result);
/* runs a request without a receive; returns its status, or -1 */
int mkt_status(struct mkt_pair *pair, unsigned int side,
	       const struct mkt_wr *wr);

#endif /* MKEY_TEST_QP_H */
