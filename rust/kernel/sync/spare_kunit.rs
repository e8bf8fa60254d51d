// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of `spare.rs`.

use kernel::prelude::*;

#[kunit_tests(rust_spare)]
mod tests {
    use super::super::*;
    use kernel::prelude::*;

    fn value(of: u32) -> Result<UniqueArc<u32>> {
        Ok(UniqueArc::new(of, GFP_KERNEL)?)
    }

    #[test]
    fn a_value_is_taken_once() -> Result {
        let place = Spare::empty();
        assert!(place.take().is_none());
        assert!(place.put(value(5)?).is_none());
        assert!(place.take().is_some_and(|value| *value == 5));
        assert!(place.take().is_none());
        Ok(())
    }

    #[test]
    fn a_value_replaces_the_one_before() -> Result {
        let place = Spare::empty();
        assert!(place.put(value(5)?).is_none());
        assert!(place.put(value(6)?).is_some_and(|before| *before == 5));
        assert!(place.take().is_some_and(|value| *value == 6));
        Ok(())
    }

    #[test]
    fn a_value_is_dropped_with_its_place() -> Result {
        let shared = Arc::new(7, GFP_KERNEL)?;
        let place = Spare::empty();
        let unused = UniqueArc::new(shared.clone(), GFP_KERNEL)?;
        assert!(place.put(unused).is_none());
        assert!(Arc::into_unique_or_drop(shared.clone()).is_none());
        drop(place);
        assert!(Arc::into_unique_or_drop(shared).is_some());
        Ok(())
    }
}
