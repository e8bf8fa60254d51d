/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the C half of the rxe backend offers to its Rust half, and the Rust
 * functions that it redirects to. Bound by bindgen.
 */
#ifndef IB_MKEY_RXE_HOOK_H
#define IB_MKEY_RXE_HOOK_H

#include <rdma/ib_pack.h>
#include "rxe.h"

int ib_mkey_rxe_init(void);
void ib_mkey_rxe_exit(void);
bool ib_mkey_rxe_redirected(void);

/* Stock rxe, by static calls: its functions have no ENDBR left to call them by pointer. */
int ib_mkey_rxe_stock_copy(struct rxe_mr *mr, u64 iova, void *addr,
			   unsigned int length, enum rxe_mr_copy_dir dir);
int ib_mkey_rxe_stock_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
				u64 compare, u64 swap_add, u64 *orig_val);
int ib_mkey_rxe_stock_atomic_write(struct rxe_mr *mr, u64 iova, u64 value);
int ib_mkey_rxe_stock_flush(struct rxe_mr *mr, u64 iova, unsigned int length);
int ib_mkey_rxe_stock_check_range(struct rxe_mr *mr, u64 iova, size_t length);
int ib_mkey_rxe_stock_copy_data(struct ib_pd *pd, int access, u32 lkey, u64 iova,
				void *addr, int length, enum rxe_mr_copy_dir dir);

int ib_mkey_rxe_stock_invalidate(struct ib_pd *pd, u32 key);
int ib_mkey_rxe_stock_reg_fast(struct ib_mr *mr, u32 key, int access);

struct rxe_mr *ib_mkey_rxe_to_mr(struct ib_mr *ibmr);
struct rxe_mr *ib_mkey_rxe_get_mr(struct ib_device *ibdev, u32 index);
void ib_mkey_rxe_put_mr(struct rxe_mr *mr);
bool ib_mkey_rxe_is_odp(struct rxe_mr *mr);
bool ib_mkey_rxe_odp_at_address(struct rxe_mr *mr);
void *ib_mkey_rxe_odp_lock(struct rxe_mr *mr, u64 iova, bool write);
void ib_mkey_rxe_odp_unlock(struct rxe_mr *mr, void *page);
bool ib_mkey_rxe_odp_fits(struct rxe_mr *mr, u64 iova);
void ib_mkey_rxe_own_umem(struct rxe_mr *mr);
int ib_mkey_rxe_num_mw(struct rxe_mr *mr);
enum rxe_mr_state ib_mkey_rxe_state(struct rxe_mr *mr);
void ib_mkey_rxe_set_state(struct rxe_mr *mr, enum rxe_mr_state state);

/* rust/helpers/rdma.c */
unsigned long rust_helper_text_address(const char *symbol);

/* Rust: backend/rxe/entry.rs. In place of the stock function, for our MRs only. */
int ib_mkey_rxe_check_range(struct rxe_mr *mr, u64 iova, size_t length);
int ib_mkey_rxe_copy(struct rxe_mr *mr, u64 iova, void *addr,
		     unsigned int length, enum rxe_mr_copy_dir dir);
int ib_mkey_rxe_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
			  u64 compare, u64 swap_add, u64 *orig_val);
int ib_mkey_rxe_atomic_write(struct rxe_mr *mr, u64 iova, u64 value);
int ib_mkey_rxe_flush(struct rxe_mr *mr, u64 iova, unsigned int length);
int ib_mkey_rxe_invalidate(struct rxe_mr *mr, struct ib_pd *pd, u32 key);
int ib_mkey_rxe_reg_fast(struct rxe_mr *mr, struct ib_pd *pd, u32 key, int access);

#endif /* IB_MKEY_RXE_HOOK_H */
