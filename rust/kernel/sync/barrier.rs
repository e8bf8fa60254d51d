// SPDX-License-Identifier: GPL-2.0

//! Barriers between processors. Those of `kernel::sync::barrier` have other names and arguments in
//! Linux 7.2 than in 7.3.

use crate::bindings;

/// A full barrier.
pub(crate) fn smp_mb() {
    // SAFETY: A barrier has no preconditions.
    unsafe { bindings::rdma_smp_mb() };
}
