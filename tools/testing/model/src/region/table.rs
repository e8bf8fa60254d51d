// SPDX-License-Identifier: GPL-2.0

//! The regions of the device.

use super::{state::RegionState, Region};
use kernel::sync::Arc;

pub(crate) struct Regions(pub(crate) Vec<Arc<Region>>);

impl Regions {
    pub(crate) fn with_state(&self, state: &Arc<RegionState>) -> Option<Arc<Region>> {
        let found = self
            .0
            .iter()
            .find(|region| Arc::ptr_eq(&region.state, state));
        found.cloned()
    }
}
