// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the region to which a request binds a window (`window.rs`).

use kernel::prelude::*;

#[kunit_tests(ib_mkey_window_bind)]
mod tests {
    use super::super::*;
    use crate::limits::owner::Owners;

    /// Makes the region of `mr`.
    fn region_of(mr: &Mr) -> Result<Arc<Region>> {
        let owners = Owners::new(1, 1)?;
        Region::new(mr, Kind::Dm, Owners::charge(&owners, false, 1)?)
    }

    /// rxe may give the index of an MR to another one before a request pins the MR.
    #[test]
    fn a_region_gives_rights_to_its_mr_alone() -> Result {
        let (mr, other) = (Mr::blank(), Mr::blank());
        let region = region_of(&mr)?;
        let flags = Access::from(Right::MwBind);
        let given = |to: &Mr| rights(&region, to, flags);
        assert!(given(&mr).is_some_and(|access| access.contains(Right::MwBind)));
        assert!(given(&other).is_none());
        Ok(())
    }
}
