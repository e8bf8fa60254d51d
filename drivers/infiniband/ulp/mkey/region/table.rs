// SPDX-License-Identifier: GPL-2.0

//! The regions of a device, by the indices of their MRs.
//!
//! An access finds the region of a claimed MR by the MR itself (`backend/rxe/claimed.rs`). The table
//! keeps the regions, finds those of MRs over dma-bufs, and lists all regions for debugfs.
//!
//! # Locking
//!
//! `Regions::known` is a spinlock, so that a thread with a low priority does not hold up other
//! processes of the device. It is innermost.

use super::{state::RegionState, Region};
use crate::kernel_ext::rdma::Mr;
use core::iter;
use kernel::{
    new_spinlock,
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::{Arc, SpinLock},
};

/// The regions of a device.
#[pin_data]
pub(crate) struct Regions {
    #[pin]
    known: SpinLock<RBTree<u32, Arc<Region>>>,
}

impl Regions {
    /// Makes an empty table.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            known <- new_spinlock!(RBTree::new(), "ib_mkey regions"),
        })
    }

    /// Adds the region of an MR. If another region is at the index of the MR, its own MR was freed;
    /// it leaves the table.
    pub(crate) fn insert(&self, region: &Arc<Region>) -> Result {
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let node = node.into_node(region.index(), region.clone());
        let before = self.known.lock().insert(node);
        drop(before);
        Ok(())
    }

    /// Removes `region`, unless the region of a later MR has taken its place.
    pub(crate) fn remove(&self, region: &Arc<Region>) {
        let mut known = self.known.lock();
        let is_it = known
            .get(&region.index())
            .is_some_and(|other| Arc::ptr_eq(other, region));
        let node = if is_it {
            known.remove_node(&region.index())
        } else {
            None
        };
        drop(known);
        drop(node);
    }

    /// Returns the region of `mr`, an MR that cannot be freed meanwhile.
    pub(crate) fn of(&self, mr: &Mr) -> Option<Arc<Region>> {
        let known = self.known.lock();
        // The driver may have freed the MR of a region that is still in the table, and the index may
        // be that of `mr` now.
        known
            .get(&mr.index())
            .filter(|region| region.is(mr))
            .cloned()
    }

    /// Returns the region at `index`, whose MR may have been freed.
    pub(crate) fn at(&self, index: u32) -> Option<Arc<Region>> {
        self.known.lock().get(&index).cloned()
    }

    /// Returns the region with this state, if it is still in the table.
    pub(crate) fn with_state(&self, state: &Arc<RegionState>) -> Option<Arc<Region>> {
        let region = self.at(state.index)?;
        Arc::ptr_eq(&region.state, state).then_some(region)
    }

    /// Returns the regions that are in the table, in the order of their indices. The lock is not
    /// held between two of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Arc<Region>> + '_ {
        let mut from = Some(0);
        iter::from_fn(move || {
            let known = self.known.lock();
            let cursor = known.cursor_lower_bound(&from?)?;
            let (index, region) = cursor.current();
            from = index.checked_add(1);
            Some(region.clone())
        })
    }
}
