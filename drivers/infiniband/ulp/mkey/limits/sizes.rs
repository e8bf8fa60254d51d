// SPDX-License-Identifier: GPL-2.0

//! Checks at compile time that what is charged for a structure (`limits/cost.rs`) is not less than its
//! size.

use super::cost::{FLAT, LEAF, REACHED};
use crate::{
    layout::Shape,
    region::{
        binding::{Binding, Flat, Leaf, Reached},
        Region,
    },
};
use core::mem::size_of;

const _: () = {
    // Locks are larger where lockdep follows them.
    assert!(cfg!(CONFIG_LOCKDEP) || size_of::<Region>() <= 256);
    assert!(size_of::<Binding>() + size_of::<Shape>() <= 256 + 128);
    assert!(2 * size_of::<Leaf>() + 64 <= LEAF as usize);
    assert!(2 * size_of::<Reached>() + 64 <= REACHED as usize);
    assert!(size_of::<Flat>() + size_of::<usize>() <= FLAT as usize);
};
