/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The functions of the C half of the rxe backend, and the Rust functions that it
 * calls. bindgen makes the Rust bindings from this file.
 */
#ifndef IB_MKEY_RXE_HOOK_H
#define IB_MKEY_RXE_HOOK_H

#include <rdma/ib_mkey_ioctl.h>
#include <rdma/ib_pack.h>
#include "rxe_provider.h"

/* Marks an MR for fast registration of scatterlists with gaps. No MR has such a page size. */
#define IB_MKEY_RXE_FAST_REG_SHIFT 63

/* The most bytes of a description that is copied at once. */
#define IB_MKEY_RXE_SHORT 192
static_assert(IB_MKEY_RXE_SHORT <= RXE_MAX_INLINE_DATA);

/* The PD of the QP that serves a peer, and the rkey of the peer's request. */
struct ib_mkey_rxe_peer {
	struct ib_pd *pd;
	u32 rkey;
	/* the rkey is that of a window, with these access flags */
	bool by_window;
	int access;
};

struct ib_mkey_window;

/* A window, and the MR of ib_mkey that it is bound to. */
struct ib_mkey_rxe_mw {
	u32 rkey;
	u32 lkey;
	u64 length;
};

/* provider.c */
int ib_mkey_rxe_register(const struct ib_device_ops *ops);
void ib_mkey_rxe_unregister(void);
bool ib_mkey_rxe_is_ours(const struct ib_device *ibdev);
void *ib_mkey_rxe_data(struct ib_device *ibdev);
const struct ib_device_ops *ib_mkey_rxe_ops(void);
const struct cred *ib_mkey_rxe_cred(struct ib_ucontext *context);
void ib_mkey_rxe_claim(struct rxe_mr *mr);
struct ib_mkey_rxe_peer ib_mkey_rxe_peer_of(const struct rxe_qp *qp, enum rxe_mr_copy_dir dir);
void ib_mkey_rxe_trace_refused(const struct ib_uverbs_mkey_refused_access *access);
int ib_mkey_rxe_leaf_atomic_op(struct rxe_mr *mr, u64 iova, int opcode, u64 compare,
			       u64 swap_add, u64 *orig_val);
int ib_mkey_rxe_leaf_atomic_write(struct rxe_mr *mr, u64 iova, u64 value);
int ib_mkey_rxe_leaf_flush(struct rxe_mr *mr, u64 iova, u64 length);
int ib_mkey_rxe_leaf_prefetch(struct rxe_mr *mr, u64 iova, u64 length, u32 advice, bool wait);
bool ib_mkey_rxe_leaf_odp_stats(struct rxe_mr *mr, struct rxe_odp_stats *stats);
struct ib_umem_odp *ib_mkey_rxe_get_umem(struct rxe_mr *mr, u64 va);
struct ib_umem_odp *ib_mkey_rxe_fault_and_lock(struct rxe_mr *mr, u64 va, bool write);
void ib_mkey_rxe_unlock_part(struct ib_umem_odp *umem_odp);

/* mr.c */
extern unsigned long ib_mkey_rxe_page_base;
void ib_mkey_rxe_init_page_base(void);
unsigned long ib_mkey_copy_mc(void *to, const void *from, unsigned long len);
struct rxe_mr *ib_mkey_rxe_get_mr(struct ib_device *ibdev, u32 index);
void ib_mkey_rxe_ref_mr(struct rxe_mr *mr);
void ib_mkey_rxe_put_mr(struct rxe_mr *mr);
bool ib_mkey_rxe_find_mw(struct ib_device *ibdev, u32 from, struct ib_mkey_rxe_mw *found);
bool ib_mkey_rxe_is_odp(struct rxe_mr *mr);
bool ib_mkey_rxe_is_user(struct rxe_mr *mr);
bool ib_mkey_rxe_fits(struct rxe_mr *mr, u64 iova, u64 length);

/* rxe_odp_page.c */
u64 ib_mkey_rxe_odp_faults(void);
void *ib_mkey_rxe_odp_lock(struct rxe_mr *mr, u64 iova, bool write, void **umem);
void ib_mkey_rxe_odp_unlock(struct rxe_mr *mr, void *page, void *umem);

/* Defined in Rust: device.rs. */
int ib_mkey_rxe_add(struct ib_device *ibdev, const char *name, void **data);
void ib_mkey_rxe_remove(void *data);

/* Defined in Rust: mr_ops.rs. The MR is one that was claimed. */
int ib_mkey_rxe_check_range(struct rxe_mr *mr, u64 iova, size_t length);
void ib_mkey_rxe_refused(struct rxe_mr *mr, struct ib_pd *pd, u32 key, int access, u64 iova,
			 u64 length, bool remote);
int ib_mkey_rxe_copy(struct rxe_mr *mr, u64 iova, void *addr, unsigned int length,
		     enum rxe_mr_copy_dir dir, struct rxe_qp *qp);
enum resp_states ib_mkey_rxe_atomic_op(struct rxe_mr *mr, u64 iova, int opcode, u64 compare,
				       u64 swap_add, u64 *orig_val, struct rxe_qp *qp);
enum resp_states ib_mkey_rxe_atomic_write(struct rxe_mr *mr, u64 iova, u64 value,
					  struct rxe_qp *qp);
int ib_mkey_rxe_flush(struct rxe_mr *mr, u64 iova, u64 length, struct rxe_qp *qp);
/* @advice is one of enum ib_uverbs_advise_mr_advice. */
int ib_mkey_rxe_prefetch(struct rxe_mr *mr, u64 iova, u64 length, u32 advice, bool wait);
/* Returns 0, or an error if no memory is on demand. */
int ib_mkey_rxe_odp_stats(struct rxe_mr *mr, struct rxe_odp_stats *stats);
int ib_mkey_rxe_invalidate_mr(struct rxe_mr *mr, struct ib_pd *pd, u32 key, bool remote);
int ib_mkey_rxe_reg_fast_mr(struct rxe_mr *mr, struct ib_pd *pd, u32 key, int access);
int ib_mkey_rxe_reg_mkey(struct rxe_mr *mr, struct ib_pd *pd, u32 key, int access, bool oldest);
/*
 * If @bind->length is 0, @data has @length bytes of inline data. Otherwise @data is a buffer of
 * IB_MKEY_RXE_SHORT bytes.
 */
int ib_mkey_rxe_bind_mkey(struct rxe_mr *mr, struct ib_pd *pd, const struct rxe_bind_mw *bind,
			  void *data, unsigned int length);
/* What a bound window keeps, or an error pointer. */
struct ib_mkey_window *ib_mkey_rxe_bind_mw(struct rxe_mr *mr, struct ib_pd *pd,
					   const struct rxe_bind_mw *bind);
void ib_mkey_rxe_unbind_mw(struct ib_mkey_window *window);

#endif /* IB_MKEY_RXE_HOOK_H */
