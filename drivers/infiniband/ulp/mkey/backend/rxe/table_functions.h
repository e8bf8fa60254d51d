/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The counterpart of functions.h for an rxe that has a table of operations for
 * each MR (patches/rxe). ib_mkey calls these functions and redirects none.
 */
RXE_FUNCTION(set_ops, rxe_mr_set_ops, void,
	     (struct rxe_mr *mr, const struct rxe_mr_ops *ops), (mr, ops), /* none */)
RXE_FUNCTION(check_range, rxe_mr_check_range, int,
	     (struct rxe_mr *mr, u64 iova, size_t length),
	     (mr, iova, length), -ENODEV)
RXE_FUNCTION(copy, rxe_mr_copy, int,
	     (struct rxe_mr *mr, u64 iova, void *addr, unsigned int length,
	      enum rxe_mr_copy_dir dir, struct rxe_qp *qp),
	     (mr, iova, addr, length, dir, qp), -ENODEV)
RXE_FUNCTION(copy_data, rxe_copy_data, int,
	     (struct rxe_pd *pd, int access, struct rxe_dma_info *dma,
	      void *addr, int length, enum rxe_mr_copy_dir dir),
	     (pd, access, dma, addr, length, dir), -ENODEV)
RXE_FUNCTION(invalidate_mr, rxe_invalidate_mr, int,
	     (struct rxe_qp *qp, u32 key, bool remote),
	     (qp, key, remote), -ENODEV)
RXE_FUNCTION(bind_mw, rxe_mw_bind, int,
	     (struct rxe_mw *mw, struct rxe_mr *mr, struct rxe_qp *qp,
	      const struct rxe_bind_mw *bind),
	     (mw, mr, qp, bind), -ENODEV)
RXE_FUNCTION(invalidate_mw, rxe_mw_invalidate, int,
	     (struct rxe_mw *mw, struct rxe_qp *qp, u32 rkey),
	     (mw, qp, rkey), -ENODEV)
RXE_FUNCTION(atomic_op, rxe_mr_do_atomic_op, enum resp_states,
	     (struct rxe_mr *mr, u64 iova, int opcode, u64 compare,
	      u64 swap_add, u64 *orig_val),
	     (mr, iova, opcode, compare, swap_add, orig_val),
	     RESPST_ERR_RKEY_VIOLATION)
RXE_FUNCTION(atomic_write, rxe_mr_do_atomic_write, enum resp_states,
	     (struct rxe_mr *mr, u64 iova, u64 value),
	     (mr, iova, value), RESPST_ERR_RKEY_VIOLATION)
RXE_FUNCTION(flush, rxe_flush_pmem_iova, int,
	     (struct rxe_mr *mr, u64 iova, unsigned int length),
	     (mr, iova, length), -ENODEV)
RXE_FUNCTION(reg_fast_mr, rxe_reg_fast_mr, int,
	     (struct rxe_qp *qp, struct rxe_send_wqe *wqe), (qp, wqe), -ENODEV)
#ifdef CONFIG_INFINIBAND_ON_DEMAND_PAGING
RXE_FUNCTION(odp_atomic_op, rxe_odp_atomic_op, enum resp_states,
	     (struct rxe_mr *mr, u64 iova, int opcode, u64 compare,
	      u64 swap_add, u64 *orig_val),
	     (mr, iova, opcode, compare, swap_add, orig_val),
	     RESPST_ERR_RKEY_VIOLATION)
RXE_FUNCTION(odp_atomic_write, rxe_odp_do_atomic_write, enum resp_states,
	     (struct rxe_mr *mr, u64 iova, u64 value),
	     (mr, iova, value), RESPST_ERR_RKEY_VIOLATION)
#endif

#undef RXE_REDIRECTED
