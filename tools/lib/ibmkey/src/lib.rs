// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Device memory and indirect memory keys for RDMA devices that lack them.
//!
//! This is the user library of ib_mkey. Its C interface, which `<infiniband/mkey.h>` describes, is
//! in [`ffi`]; the other modules implement it. The state of keys and of device memory is in the
//! kernel and in libibverbs's objects.
//!
//! The library does not call libibverbs. It works on libibverbs's objects and on the command file
//! descriptor of contexts. Only the module `verbs`, a feature for programs in Rust, links to
//! libibverbs.

mod advise;
mod alloc;
mod convert;
mod driver;
pub mod errno;
pub mod explain;
mod import;
mod ioctl;
mod iov;
mod many;
pub mod object;
mod owners;
mod pool;
pub mod reason;
mod request;

pub mod dm;
pub mod dmabuf;
pub mod ffi;
pub mod keys;
pub mod mkey;
pub mod rereg;
pub mod sys;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use errno::{
    Errno,
    Result, //
};
