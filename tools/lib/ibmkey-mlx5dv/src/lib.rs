// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A `libmlx5.so.1` for devices on which ib_mkey makes the keys. With it, programs that configure
//! mkeys by mlx5dv run on these devices. `<infiniband/mlx5dv.h>` in this directory describes its
//! functions.
//!
//! `LD_LIBRARY_PATH` makes programs load this library instead of rdma-core's. This library is not a
//! provider: the device's own provider makes the contexts, CQs and QPs. This library replaces
//! functions in them, in fields that `<infiniband/verbs.h>` declares:
//!
//! * `poll_cq` of a context and `read_opcode` of a CQ, which give completions their opcode
//!   (`completion.rs`);
//! * `wr_start`, `wr_complete` and `wr_abort` of a QP, which report the errors of requests that
//!   this library refuses (`qp.rs`).
//!
//! libibverbs does not tell this library when a QP is destroyed. So the library frees the state of
//! a QP later, see `Table` in `qp.rs`.
//!
//! # Locks
//!
//! A thread takes locks in this order: the turn in `State` of `qp.rs`; the provider's lock of the
//! send queue; the layout of an mkey; the table of QPs. It holds the first two from `wr_start` to
//! `wr_complete`.

mod builder;
mod completion;
mod description;
mod device;
mod mkey;
mod qp;
mod staging;
mod sys;
mod unsupported;

use std::io::Write;

/// Returns `true` if `IBMKEY_DEBUG` is 1.
pub(crate) fn is_debug() -> bool {
    std::env::var_os("IBMKEY_DEBUG").is_some_and(|value| value == "1")
}

/// With `IBMKEY_DEBUG=1`, prints to standard error why a call or a request failed. A program of
/// mlx5dv does not know `ibmkey_last_error()`.
pub(crate) fn debug(what: impl FnOnce() -> String) {
    if is_debug() {
        // Ignore an error: if standard error is closed, there is no other place for the message.
        let _ = writeln!(std::io::stderr(), "ibmkey-mlx5dv: {}", what());
    }
}
