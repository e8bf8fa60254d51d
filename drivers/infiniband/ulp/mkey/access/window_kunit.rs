// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the region to which a request binds a window (`window.rs`).

use kernel::prelude::*;

#[kunit_tests(ib_mkey_window_bind)]
mod tests {
    use super::super::*;
    use crate::limits::owner::Owners;
    use core::{cell::RefCell, ptr};

    /// Makes the region of `mr`.
    fn region_of(mr: &Mr) -> Result<Arc<Region>> {
        let owners = Owners::new(1, 1)?;
        Region::new(mr, Kind::Dm, None, Owners::charge(&owners, None, 1)?)
    }

    /// Returns the region that a request finds, if `find` finds the region of the index, and the
    /// pinned MR is `mr`.
    fn found(find: impl Fn() -> Option<Arc<Region>>, mr: &Mr) -> Result<Option<Arc<Region>>> {
        let pin = || Ok(((), ptr::from_ref(mr)));
        Ok(named(find, pin)?.map(|(region, ())| region))
    }

    /// rxe may give the index of an MR to another one before a request pins the MR.
    #[test]
    fn a_region_is_found_for_its_mr_alone() -> Result {
        let (mr, other) = (Mr::blank(), Mr::blank());
        let region = region_of(&mr)?;
        let find = || Some(region.clone());
        assert!(found(find, &mr)?.is_some_and(|found| Arc::ptr_eq(&found, &region)));
        assert!(found(find, &other)?.is_none());
        Ok(())
    }

    /// The allocator may give the address of an MR that rxe has freed to another MR of the same
    /// index, while the region of the first MR is still in the table.
    #[test]
    fn a_region_outlives_no_mr() -> Result {
        let mr = Mr::blank();
        let region = region_of(&mr)?;
        let find = || Some(region.clone());
        region.set_gone(true);
        assert!(found(find, &mr)?.is_none());
        // rxe refused to deregister the MR.
        region.set_gone(false);
        assert!(found(find, &mr)?.is_some());
        Ok(())
    }

    /// Before a request pins an MR, another MR may get its index and its address.
    #[test]
    fn the_region_is_that_of_the_pinned_mr() -> Result {
        let mr = Mr::blank();
        let (before, after) = (region_of(&mr)?, region_of(&mr)?);
        let table = RefCell::new(before);
        let pin = || {
            table.replace(after.clone());
            Ok(((), ptr::from_ref(&mr)))
        };
        let found = named(|| Some(table.borrow().clone()), pin)?;
        assert!(found.is_some_and(|(region, ())| Arc::ptr_eq(&region, &after)));
        Ok(())
    }

    /// An MR without a region, such as most MRs of rxe, is not pinned.
    #[test]
    fn an_mr_without_a_region_is_not_pinned() -> Result {
        let pin = || Err::<((), *const Mr), _>(ENOENT);
        assert!(named(|| None, pin)?.is_none());
        Ok(())
    }
}
