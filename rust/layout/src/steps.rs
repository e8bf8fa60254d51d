// SPDX-License-Identifier: GPL-2.0

//! Counts the steps of a seek or a cursor in unit tests. Otherwise it compiles to nothing.

#[cfg(not(test))]
#[inline(always)]
pub(super) fn step() {}

#[cfg(test)]
pub(super) use self::counted::{count, step};

#[cfg(test)]
mod counted {
    extern crate std;

    use core::cell::Cell;

    std::thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts one division, comparison or piece.
    pub(in super::super) fn step() {
        STEPS.with(|steps| steps.set(steps.get().saturating_add(1)));
    }

    /// Returns what `f` returns and the steps that it took.
    pub(in super::super) fn count<T>(f: impl FnOnce() -> T) -> (T, u64) {
        STEPS.with(|steps| steps.set(0));
        let result = f();
        (result, STEPS.with(Cell::get))
    }
}
