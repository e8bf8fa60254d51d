// SPDX-License-Identifier: GPL-2.0

//! Pointers to an incomplete type of a C header. A Rust value is behind each of them.

use super::{FromC, IntoPtr};
use core::ops::Deref;
use kernel::sync::{Arc, ArcBorrow};

/// An incomplete type of a C header. All pointers of C to it come from [`ForC`].
pub(crate) trait Opaque {
    /// The Rust type behind it.
    type Rust: Send + Sync;
}

/// An opaque value that C will hold.
pub(crate) struct ForC<C: Opaque>(pub(crate) Arc<C::Rust>);

impl<C: Opaque> IntoPtr for ForC<C> {
    type C = C;

    fn into_ptr(self) -> *mut C {
        Arc::into_raw(self.0).cast_mut().cast()
    }
}

/// An opaque value that C holds.
pub(crate) struct HeldOpaque<'a, C: Opaque>(ArcBorrow<'a, C::Rust>);

// SAFETY: The pointer came from `ForC`, and C does not give it up for `'a`.
unsafe impl<C: Opaque> FromC for HeldOpaque<'_, C> {
    type Raw = *mut C;

    unsafe fn from_c(raw: *mut C) -> Self {
        // SAFETY: By the safety requirement, it came from `Arc::into_raw()`.
        Self(unsafe { ArcBorrow::from_raw(raw.cast::<C::Rust>()) })
    }
}

impl<C: Opaque> Deref for HeldOpaque<'_, C> {
    type Target = C::Rust;

    fn deref(&self) -> &C::Rust {
        &self.0
    }
}

/// An opaque value that C gives up, unless the function fails.
pub(crate) struct GivenUp<'a, C: Opaque> {
    raw: *mut C,
    held: HeldOpaque<'a, C>,
}

// SAFETY: As for `HeldOpaque`, and C does not use the pointer again after it was taken.
unsafe impl<C: Opaque> FromC for GivenUp<'_, C> {
    type Raw = *mut C;

    unsafe fn from_c(raw: *mut C) -> Self {
        Self {
            raw,
            // SAFETY: By the safety requirement.
            held: unsafe { HeldOpaque::from_c(raw) },
        }
    }
}

impl<C: Opaque> Deref for GivenUp<'_, C> {
    type Target = C::Rust;

    fn deref(&self) -> &C::Rust {
        &self.held
    }
}

impl<C: Opaque> GivenUp<'_, C> {
    /// Takes the value. The function must not fail after this.
    pub(crate) fn take(self) -> Arc<C::Rust> {
        // SAFETY: It came from `Arc::into_raw()`, and C does not use it again.
        unsafe { Arc::from_raw(self.raw.cast::<C::Rust>()) }
    }
}
