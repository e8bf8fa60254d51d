// SPDX-License-Identifier: GPL-2.0

//! Keys over keys: does one lead to another?
//!
//! Asked only when a bind was refused, to tell a circle from a key that others merely use.

use crate::{
    kernel_ext::alloc::GFP_MAYFAIL,
    region::binding::{Binding, Leaf, LeafPlace, MAX_DEPTH},
};
use core::{ptr, slice};
use kernel::rbtree::RBTree;

/// Does `bound` refer, at any level, to the key `lkey`? Each key is looked at once.
///
/// Without memory to remember them by the answer is no.
pub(crate) fn reaches(bound: &Binding, lkey: u32) -> bool {
    let mut seen: RBTree<usize, ()> = RBTree::new();
    let mut levels: [slice::Iter<'_, Leaf>; MAX_DEPTH] = Default::default();
    let mut depth = 0usize;
    if let Some(level) = levels.first_mut() {
        *level = bound.leaves.iter();
    }
    while let Some(level) = levels.get_mut(depth) {
        let Some(leaf) = level.next() else {
            let Some(outer) = depth.checked_sub(1) else {
                return false;
            };
            depth = outer;
            continue;
        };
        let LeafPlace::Key(inner) = &leaf.place else {
            continue;
        };
        if leaf.lkey == lkey {
            return true;
        }
        let inner: &Binding = inner;
        let name = ptr::from_ref(inner) as usize;
        if seen.get(&name).is_some() {
            continue;
        }
        if seen.try_create_and_insert(name, (), GFP_MAYFAIL).is_err() {
            return false;
        }
        depth = depth.saturating_add(1);
        if let Some(level) = levels.get_mut(depth) {
            *level = inner.leaves.iter();
        }
    }
    false
}
