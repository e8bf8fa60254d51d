/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The functions of the C half of the rxe backend, and the Rust functions that it
 * calls. bindgen makes the Rust bindings from this file.
 */
#ifndef IB_MKEY_RXE_HOOK_H
#define IB_MKEY_RXE_HOOK_H

#include <rdma/ib_pack.h>
#include "rxe.h"

/* Marks an MR for fast registration of scatterlists with gaps. No MR has such a page size. */
#define IB_MKEY_RXE_FAST_REG_SHIFT 63

/* The most bytes of a description that is copied at once. */
#define IB_MKEY_RXE_SHORT 192
static_assert(IB_MKEY_RXE_SHORT <= RXE_MAX_INLINE_DATA);

/* A request to bind a memory window, with the fields of struct rxe_send_wr. */
struct ib_mkey_rxe_bind_mw {
	u64 addr;
	u64 length;
	u32 mr_lkey;
	u32 mw_rkey;
	u32 rkey;
	u32 access;
	/* true for a window of type 2, which only the QP that binds it may use */
	bool of_qp;
};

/* The QP that serves a peer, and the rkey of the peer's request. */
struct ib_mkey_rxe_peer {
	struct ib_pd *pd;
	struct rxe_qp *qp;
	u32 rkey;
};

/* The QP that the running task serves, or NULL, and the rkey of its request; two registers. */
struct ib_mkey_rxe_served {
	struct rxe_qp *qp;
	u64 rkey;
};

/* The length of a copy in bytes, and its direction. */
struct ib_mkey_rxe_part {
	u32 length;
	u32 dir;
};

/* Replacements read the PD of a QP, whose other fields they do not know. */
static_assert(offsetof(struct rxe_qp, ibqp) == 0);

static inline struct ib_mkey_rxe_part ib_mkey_rxe_part(u32 length, enum rxe_mr_copy_dir dir)
{
	return (struct ib_mkey_rxe_part){ .length = length, .dir = dir };
}

/*
 * Returns the rkey of the request of the peer that @qp serves. The rkey of a READ is kept
 * separately, because rxe may answer the READ again.
 */
static inline u32 ib_mkey_rxe_rkey_of(struct rxe_qp *qp, enum rxe_mr_copy_dir dir)
{
	bool read = dir == RXE_FROM_MR_OBJ && qp->resp.res;

	return read ? qp->resp.res->read.rkey : qp->resp.rkey;
}

/* Returns the peer that @qp serves with an operation other than a READ, or NULL without a QP. */
static inline const struct ib_mkey_rxe_peer *
ib_mkey_rxe_fill_peer(struct ib_mkey_rxe_peer *peer, struct rxe_qp *qp)
{
	if (!qp)
		return NULL;
	*peer = (struct ib_mkey_rxe_peer){
		.pd = qp->ibqp.pd,
		.qp = qp,
		.rkey = ib_mkey_rxe_rkey_of(qp, RXE_TO_MR_OBJ),
	};
	return peer;
}

/* 1 if rxe passes the QP that serves a peer to ib_mkey. Otherwise redirect.c finds it. */
#ifdef IB_MKEY_RXE_TABLE
#define IB_MKEY_RXE_PASSES_QP 1
#else
#define IB_MKEY_RXE_PASSES_QP 0
#endif

/* Returns the index in an lkey or rkey; the low 8 bits are the tag. */
static inline u32 ib_mkey_rxe_index(u32 key)
{
	return key >> 8;
}

/* redirect.c */
struct ib_mkey_rxe_served ib_mkey_rxe_served(u32 dir);

/* attach.c or table.c */
int ib_mkey_rxe_init(void);
void ib_mkey_rxe_exit(void);
bool ib_mkey_rxe_attach(void);
void ib_mkey_rxe_claim(struct rxe_mr *mr);

/* sender.c */
int ib_mkey_rxe_request_bind(struct rxe_qp *qp, struct rxe_send_wqe *wqe);
void ib_mkey_rxe_take_binds(struct ib_qp *ibqp);
void ib_mkey_rxe_give_binds_back(struct ib_device *ibdev);

/*
 * stock.c; and stock_redirected.c and redirect_mw.c, or table.c: stock rxe, as it would run without
 * ib_mkey
 */
int ib_mkey_rxe_stock_copy(struct rxe_mr *mr, u64 iova, void *addr,
			   unsigned int length, enum rxe_mr_copy_dir dir);
int ib_mkey_rxe_test_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
			       u64 compare, u64 swap_add, u64 *orig_val);
int ib_mkey_rxe_test_atomic_write(struct rxe_mr *mr, u64 iova, u64 value);
int ib_mkey_rxe_test_flush(struct rxe_mr *mr, u64 iova, unsigned int length);
int ib_mkey_rxe_leaf_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
			       u64 compare, u64 swap_add, u64 *orig_val);
int ib_mkey_rxe_stock_atomic_write(struct rxe_mr *mr, u64 iova, u64 value);
int ib_mkey_rxe_stock_flush(struct rxe_mr *mr, u64 iova, unsigned int length);
int ib_mkey_rxe_stock_check_range(struct rxe_mr *mr, u64 iova, size_t length);
int ib_mkey_rxe_stock_copy_data(struct ib_pd *pd, int access, u32 lkey, u64 iova,
				void *addr, int length, enum rxe_mr_copy_dir dir);
int ib_mkey_rxe_stock_invalidate_mr(struct ib_pd *pd, u32 key);
int ib_mkey_rxe_stock_reg_fast_mr(struct ib_mr *mr, u32 key, int access);
/* These three refuse a window that is no longer at the index of its rkey. @mw may be freed. */
int ib_mkey_rxe_stock_invalidate_mw(struct rxe_qp *qp, struct rxe_mw *mw, u32 rkey);
int ib_mkey_rxe_stock_bind_mw(struct rxe_qp *qp, struct rxe_mw *mw,
			      const struct ib_mkey_rxe_bind_mw *bind);
int ib_mkey_rxe_bind_hidden_mr(struct rxe_qp *qp, struct rxe_mw *mw, struct ib_mr *hidden,
			       const struct ib_mkey_rxe_bind_mw *bind);
void ib_mkey_rxe_close_mw(struct ib_mw *ibmw);
bool ib_mkey_rxe_close_qp(struct ib_qp *ibqp);
struct rxe_mw *ib_mkey_rxe_next_mw(struct ib_qp *ibqp, u32 *rkey);

/* tasks.c */
void ib_mkey_rxe_end_tasks(struct ib_qp *ibqp);
void ib_mkey_rxe_end_ah(struct ib_ah *ibah);

/* mr.c */
extern unsigned long ib_mkey_rxe_page_base;
extern bool ib_mkey_fast_strings;
void ib_mkey_rxe_init_copies(void);
struct rxe_mr *ib_mkey_rxe_get_mr(struct ib_device *ibdev, u32 index);
void ib_mkey_rxe_ref_mr(struct rxe_mr *mr);
void ib_mkey_rxe_put_mr(struct rxe_mr *mr);
struct rxe_mw *ib_mkey_rxe_get_mw(struct ib_device *ibdev, u32 index);
struct rxe_mw *ib_mkey_rxe_hold_mw(struct ib_device *ibdev, u32 index, const struct rxe_mw *mw);
void ib_mkey_rxe_put_mw(struct rxe_mw *mw);
struct rxe_qp *ib_mkey_rxe_get_qp(struct ib_device *ibdev, u32 index);
void ib_mkey_rxe_put_qp(struct rxe_qp *qp);
void ib_mkey_rxe_count_hidden(u32 device, int more);
bool ib_mkey_rxe_hides_windows(const struct ib_device *ibdev);
bool ib_mkey_rxe_mw_is_over(struct rxe_mw *mw, struct ib_mr *ibmr);
bool ib_mkey_rxe_is_odp(struct rxe_mr *mr);
bool ib_mkey_rxe_is_user(struct rxe_mr *mr);
bool ib_mkey_rxe_fits(struct rxe_mr *mr, u64 iova, u64 length);
void ib_mkey_rxe_own_umem(struct rxe_mr *mr);
void ib_mkey_rxe_compare_pds(void);
bool ib_mkey_rxe_sizes_match(const struct ib_device *ibdev);
bool ib_mkey_rxe_has_room(const struct rxe_mr *mr);

/* rxe_odp_page.c */
bool ib_mkey_rxe_odp_at_address(struct rxe_mr *mr);
bool ib_mkey_rxe_odp_fault(struct rxe_mr *mr, u64 iova);
u64 ib_mkey_rxe_odp_faults(void);
void *ib_mkey_rxe_odp_lock(struct rxe_mr *mr, u64 iova, bool write);
void ib_mkey_rxe_odp_unlock(struct rxe_mr *mr, void *page);

/* rust/helpers/rdma.c */
unsigned long rust_helper_text_address(const char *symbol);

/* Defined in Rust: replacements of stock functions, for MRs of ib_mkey only. */
int ib_mkey_rxe_check_range(struct rxe_mr *mr, u64 iova, size_t length);
/* These three functions need an MR of ib_mkey. The first is for an access of this node. */
int ib_mkey_rxe_copy_local(struct rxe_mr *mr, u64 iova, void *addr,
			   struct ib_mkey_rxe_part part);
/* @qp serves a peer, whose request has @rkey. */
int ib_mkey_rxe_copy_peer(struct rxe_mr *mr, u64 iova, void *addr, struct ib_mkey_rxe_part part,
			  struct rxe_qp *qp, u32 rkey);
/* The task that runs this serves a peer. */
int ib_mkey_rxe_copy_served(struct rxe_mr *mr, u64 iova, void *addr,
			    struct ib_mkey_rxe_part part);
/* These four fail if @peer is NULL, or if no task of rxe that serves a peer runs them. */
int ib_mkey_rxe_atomic_op(struct rxe_mr *mr, u64 iova, int opcode, u64 compare, u64 swap_add,
			  u64 *orig_val, const struct ib_mkey_rxe_peer *peer);
/* The task that runs this serves a peer. */
int ib_mkey_rxe_atomic_op_served(struct rxe_mr *mr, u64 iova, int opcode, u64 compare,
				 u64 swap_add, u64 *orig_val);
int ib_mkey_rxe_atomic_write(struct rxe_mr *mr, u64 iova, u64 value,
			     const struct ib_mkey_rxe_peer *peer);
int ib_mkey_rxe_flush(struct rxe_mr *mr, u64 iova, unsigned int length,
		      const struct ib_mkey_rxe_peer *peer);
int ib_mkey_rxe_invalidate_mr(struct rxe_mr *mr, struct ib_pd *pd, u32 key, bool remote);
int ib_mkey_rxe_reg_fast_mr(struct rxe_mr *mr, struct ib_pd *pd, u32 key, int access);
int ib_mkey_rxe_reg_mkey(struct rxe_mr *mr, struct ib_pd *pd, u32 key, int access,
			 bool is_last);
/* For memory windows. The caller has no reference to @mw, see mw.rs. */
int ib_mkey_rxe_bind_mw(struct rxe_qp *qp, struct ib_pd *pd, struct rxe_mw *mw,
			const struct ib_mkey_rxe_bind_mw *bind);
void ib_mkey_rxe_replaced_hidden(struct ib_device *ibdev, struct rxe_mw *mw, u32 rkey);
/*
 * If @bind->length is 0, @data has @length bytes of inline data. Otherwise @data is a buffer of
 * IB_MKEY_RXE_SHORT bytes.
 */
int ib_mkey_rxe_bind_mkey(struct rxe_mr *mr, struct ib_pd *pd,
			  const struct ib_mkey_rxe_bind_mw *bind, void *data,
			  unsigned int length);
int ib_mkey_rxe_invalidate_mw(struct rxe_qp *qp, struct ib_device *ibdev, struct rxe_mw *mw,
			      u32 rkey);

#endif /* IB_MKEY_RXE_HOOK_H */
