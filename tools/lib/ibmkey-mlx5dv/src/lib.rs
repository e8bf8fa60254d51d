// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! `libmlx5.so.1` for devices on which ib_mkey makes the keys, so that programs that configure mkeys
//! by mlx5dv run on them. `<infiniband/mlx5dv.h>` in this directory describes what it offers.
//!
//! The library stands in front of rdma-core's by `LD_LIBRARY_PATH`. It is no provider: the device's
//! own provider makes the contexts, CQs and QPs. This library replaces functions in them, in fields
//! that `<infiniband/verbs.h>` declares:
//!
//! * `poll_cq` of a context and `read_opcode` of a CQ, which give completions their opcode
//!   (`completion.rs`);
//! * `wr_start`, `wr_complete` and `wr_abort` of a QP, which report the errors of requests that this
//!   library refuses (`qp.rs`).
//!
//! libibverbs does not tell it when a QP is destroyed. What it keeps for a QP is freed later, see
//! `Table` in `qp.rs`.
//!
//! # Locks
//!
//! The order is: the provider's lock of a send queue, which is held from `wr_start` to
//! `wr_complete`; the turn in `State` of `qp.rs`; the layout of an mkey; the table of QPs.

mod builder;
mod completion;
mod description;
mod device;
mod mkey;
mod qp;
mod staging;
mod sys;
mod unsupported;
