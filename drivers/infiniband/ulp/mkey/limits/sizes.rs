// SPDX-License-Identifier: GPL-2.0

//! Checks at compile time that the charge for a structure (`limits/cost.rs`) is at least its size.

use super::cost::{FLAT, KERNELS_KEY, LEAF, REGION};
use crate::{
    layout::Shape,
    region::{
        binding::{Binding, Flat, Leaf},
        staged::StagedLayouts,
        Region,
    },
};
use core::mem::size_of;

const _: () = {
    // Lockdep makes locks larger.
    assert!(cfg!(CONFIG_LOCKDEP) || size_of::<Region>() <= 256);
    assert!(cfg!(CONFIG_LOCKDEP) || size_of::<StagedLayouts>() <= (KERNELS_KEY - REGION) as usize);
    assert!(size_of::<Binding>() + size_of::<Shape>() <= 256 + 128);
    assert!(2 * size_of::<Leaf>() + 64 <= LEAF as usize);
    assert!(size_of::<Flat>() + size_of::<usize>() + size_of::<Shape>() <= FLAT as usize);
};
