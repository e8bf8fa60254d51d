// SPDX-License-Identifier: GPL-2.0

//! References of keys over keys.
//!
//! A bind that was refused with `EBUSY` searches for a circle, which has the error `ELOOP` instead.
//! Without a circle, another key merely refers to the key.

use crate::{
    kernel_ext::{alloc::GFP_MAYFAIL, rdma::mr_key, sched},
    region::binding::{Binding, Leaf, LeafPlace, MAX_DEPTH},
};
use core::{ptr, slice};
use kernel::rbtree::RBTree;

/// Returns `true` if `binding` refers, at any level, to the MR at `index`. Visits each key once.
/// Sleeps, because a process can make very many keys.
///
/// Returns `false` if there is no memory for the list of visited keys.
pub(crate) fn reaches(binding: &Binding, index: u32) -> bool {
    let mut seen: RBTree<usize, ()> = RBTree::new();
    let mut levels: [slice::Iter<'_, Leaf>; MAX_DEPTH] = Default::default();
    let mut depth = 0usize;
    if let Some(level) = levels.first_mut() {
        *level = binding.leaves.iter();
    }
    while let Some(level) = levels.get_mut(depth) {
        let Some(leaf) = level.next() else {
            let Some(outer) = depth.checked_sub(1) else {
                return false;
            };
            depth = outer;
            continue;
        };
        if mr_key::index(leaf.lkey) == index {
            return true;
        }
        let LeafPlace::Key(inner) = &leaf.place else {
            continue;
        };
        let inner: &Binding = inner;
        let name = ptr::from_ref(inner) as usize;
        if seen.get(&name).is_some() {
            continue;
        }
        if seen.try_create_and_insert(name, (), GFP_MAYFAIL).is_err() {
            return false;
        }
        sched::cond_resched();
        depth = depth.saturating_add(1);
        if let Some(level) = levels.get_mut(depth) {
            *level = inner.leaves.iter();
        }
    }
    false
}
