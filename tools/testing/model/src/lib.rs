// SPDX-License-Identifier: GPL-2.0

//! The life of a binding and of a key portion, in all orders of the threads that take part.
//!
//! The files that are links are the module's own. The `kernel` crate, its locks, atomics and RCU
//! (`kernel.rs`), and the driver's MRs and memory (`backend.rs`) are replaced by types of `loom`. It
//! runs each test of `tests/` in every order of its threads, with a bounded number of preemptions,
//! and with every value that a load may return in the memory model of C11. `README.md` says what this
//! shows and what it does not.

#![feature(arbitrary_self_types, coerce_unsized, unsize)]
#![allow(dead_code, unused_imports, clippy::all, unexpected_cfgs)]
#![allow(rustdoc::all)]

extern crate self as kernel;

pub(crate) mod access;
pub(crate) mod backend;
pub(crate) mod bindings;
pub(crate) mod host;
pub(crate) mod kernel_ext;
pub(crate) mod region;
#[cfg(test)]
mod tests;

pub(crate) use host::*;
pub(crate) use ib_mkey_layout as layout;
