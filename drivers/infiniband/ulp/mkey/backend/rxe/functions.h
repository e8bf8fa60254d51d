/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The functions of rxe that ib_mkey redirects or calls. This file is included
 * several times, each time with another definition of
 *
 *   RXE_FUNCTION(name, symbol, type, parameters, arguments, failure)
 *
 * and of RXE_REDIRECTED(), for functions that are redirected. A call returns
 * @failure while rdma_rxe is not loaded.
 *
 * With IB_MKEY_RXE_TABLE these are the functions of an rxe that has a table of
 * operations for each MR (patches/rxe). ib_mkey redirects none of them, and all
 * symbols begin with rxe_.
 */
#ifdef IB_MKEY_RXE_TABLE
#undef RXE_REDIRECTED
#define RXE_SYMBOL(symbol) rxe_##symbol
#else
#define RXE_SYMBOL(symbol) symbol
#endif

#ifndef RXE_REDIRECTED
#define RXE_REDIRECTED RXE_FUNCTION
#endif

RXE_REDIRECTED(check_range, RXE_SYMBOL(mr_check_range), int,
	       (struct rxe_mr *mr, u64 iova, size_t length),
	       (mr, iova, length), -ENODEV)
RXE_REDIRECTED(reg_fast_mr, rxe_reg_fast_mr, int,
	       (struct rxe_qp *qp, struct rxe_send_wqe *wqe), (qp, wqe), -ENODEV)
RXE_FUNCTION(copy_data, RXE_SYMBOL(copy_data), int,
	     (struct rxe_pd *pd, int access, struct rxe_dma_info *dma,
	      void *addr, int length, enum rxe_mr_copy_dir dir),
	     (pd, access, dma, addr, length, dir), -ENODEV)
RXE_FUNCTION(sender, rxe_sender, int, (struct rxe_qp *qp), (qp), -EAGAIN)
RXE_FUNCTION(completer, rxe_completer, int, (struct rxe_qp *qp), (qp), -EAGAIN)
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

/* The functions below have other parameters if rxe has a table. */
#ifdef IB_MKEY_RXE_TABLE
RXE_FUNCTION(qp_atomic_op, rxe_mr_do_atomic_op, enum resp_states,
	     (struct rxe_mr *mr, u64 iova, int opcode, u64 compare,
	      u64 swap_add, u64 *orig_val, struct rxe_qp *qp),
	     (mr, iova, opcode, compare, swap_add, orig_val, qp),
	     RESPST_ERR_RKEY_VIOLATION)
RXE_FUNCTION(qp_atomic_write, rxe_mr_do_atomic_write, enum resp_states,
	     (struct rxe_mr *mr, u64 iova, u64 value, struct rxe_qp *qp),
	     (mr, iova, value, qp), RESPST_ERR_RKEY_VIOLATION)
RXE_FUNCTION(qp_flush, rxe_flush_pmem_iova, int,
	     (struct rxe_mr *mr, u64 iova, unsigned int length,
	      struct rxe_qp *qp),
	     (mr, iova, length, qp), -ENODEV)
RXE_FUNCTION(set_ops, rxe_mr_set_ops, void,
	     (struct rxe_mr *mr, const struct rxe_mr_ops *ops), (mr, ops), /* none */)
RXE_FUNCTION(copy, rxe_mr_copy, int,
	     (struct rxe_mr *mr, u64 iova, void *addr, unsigned int length,
	      enum rxe_mr_copy_dir dir, struct rxe_qp *qp),
	     (mr, iova, addr, length, dir, qp), -ENODEV)
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
#else
RXE_REDIRECTED(atomic_op, rxe_mr_do_atomic_op, enum resp_states,
	       (struct rxe_mr *mr, u64 iova, int opcode, u64 compare,
		u64 swap_add, u64 *orig_val),
	       (mr, iova, opcode, compare, swap_add, orig_val),
	       RESPST_ERR_RKEY_VIOLATION)
RXE_REDIRECTED(atomic_write, rxe_mr_do_atomic_write, enum resp_states,
	       (struct rxe_mr *mr, u64 iova, u64 value),
	       (mr, iova, value), RESPST_ERR_RKEY_VIOLATION)
RXE_REDIRECTED(flush, rxe_flush_pmem_iova, int,
	       (struct rxe_mr *mr, u64 iova, unsigned int length),
	       (mr, iova, length), -ENODEV)
RXE_REDIRECTED(copy, rxe_mr_copy, int,
	       (struct rxe_mr *mr, u64 iova, void *addr, unsigned int length,
		enum rxe_mr_copy_dir dir),
	       (mr, iova, addr, length, dir), -ENODEV)
RXE_REDIRECTED(invalidate_mr, rxe_invalidate_mr, int,
	       (struct rxe_qp *qp, u32 key), (qp, key), -ENODEV)
RXE_REDIRECTED(bind_mw, rxe_bind_mw, int,
	       (struct rxe_qp *qp, struct rxe_send_wqe *wqe), (qp, wqe), -ENODEV)
RXE_REDIRECTED(invalidate_mw, rxe_invalidate_mw, int,
	       (struct rxe_qp *qp, u32 rkey), (qp, rkey), -ENODEV)
#endif

#undef RXE_REDIRECTED
#undef RXE_SYMBOL
