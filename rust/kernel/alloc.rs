// SPDX-License-Identifier: GPL-2.0

//! Allocation flags that the kernel crate has no names for.
//!
//! C header: [`include/linux/gfp_types.h`](srctree/include/linux/gfp_types.h)

use crate::bindings;
use core::mem::transmute;
use kernel::{alloc::Flags, prelude::*};

/// Makes flags of the C bit mask.
const fn flags(raw: bindings::gfp_t) -> Flags {
    // SAFETY: `Flags` is a structure whose one field is the bit mask. Both have the same size, so
    // that there is nothing but the field.
    unsafe { transmute::<bindings::gfp_t, Flags>(raw) }
}

// The field is what the crate's own constants say.
const _: () = {
    // SAFETY: As for `flags()`.
    let raw = unsafe { transmute::<Flags, bindings::gfp_t>(GFP_KERNEL_ACCOUNT) };
    assert!(raw == bindings::GFP_KERNEL_ACCOUNT);
};

/// For what a process asks for by the megabyte and can do without: charged to its control group. If
/// there is no memory, in the group or in the machine, the allocation fails, without a word in the
/// log and without the OOM killer.
pub(crate) const GFP_MAYFAIL: Flags = flags(
    bindings::GFP_KERNEL_ACCOUNT | bindings::__GFP_NOWARN | 1 << bindings::___GFP_RETRY_MAYFAIL_BIT,
);
