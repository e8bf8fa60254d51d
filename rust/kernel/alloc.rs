// SPDX-License-Identifier: GPL-2.0

//! Allocation flags that the kernel crate has no names for.
//!
//! C header: [`include/linux/gfp_types.h`](srctree/include/linux/gfp_types.h)

use crate::bindings;
use core::mem::transmute;
use kernel::{alloc::Flags, prelude::*};

/// Makes flags of the C bit mask.
const fn flags(raw: bindings::gfp_t) -> Flags {
    // SAFETY: `Flags` is a structure whose only field is the bit mask: both have the same size.
    unsafe { transmute::<bindings::gfp_t, Flags>(raw) }
}

// Check the field against a constant of the crate.
const _: () = {
    // SAFETY: As for `flags()`.
    let raw = unsafe { transmute::<Flags, bindings::gfp_t>(GFP_KERNEL_ACCOUNT) };
    assert!(raw == bindings::GFP_KERNEL_ACCOUNT);
};

/// Flags for large allocations on behalf of a process, which may fail. They are charged to the
/// control group of the process. If the group or the machine has no memory, the allocation fails
/// without a message and without the OOM killer.
pub(crate) const GFP_MAYFAIL: Flags = flags(
    bindings::GFP_KERNEL_ACCOUNT | bindings::__GFP_NOWARN | 1 << bindings::___GFP_RETRY_MAYFAIL_BIT,
);
