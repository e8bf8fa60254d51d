// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of `rcu_arc.rs`.

use kernel::prelude::*;

#[kunit_tests(rust_rcu_arc)]
mod tests {
    use super::super::*;
    use kernel::sync::Arc;

    /// A value that says when it is released, and when it is dropped.
    struct Told {
        number: u32,
        released: Arc<Atomic<u32>>,
        dropped: Arc<Atomic<u32>>,
        /// The place to which the value returns when it is released.
        home: Option<Arc<Home>>,
    }

    /// A place for a value that was released.
    struct Home(RcuCell<Told>);

    impl RcuShared for Told {
        fn released(mut this: RcuUnique<Self>) {
            this.released.add(1, ordering::Relaxed);
            if let Some(home) = this.home.take() {
                drop(home.0.swap(Some(this.share())));
            }
        }
    }

    impl Drop for Told {
        fn drop(&mut self) {
            self.dropped.add(1, ordering::Relaxed);
        }
    }

    type Count = Arc<Atomic<u32>>;

    fn told(number: u32) -> Result<(RcuUnique<Told>, Count, Count)> {
        let released = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let dropped = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let value = Told {
            number,
            released: released.clone(),
            dropped: dropped.clone(),
            home: None,
        };
        Ok((RcuUnique::new(value, GFP_KERNEL)?, released, dropped))
    }

    fn count(of: &Count) -> u32 {
        of.load(ordering::Relaxed)
    }

    #[test]
    fn the_last_reference_releases_the_value_once() -> Result {
        let (value, released, dropped) = told(5)?;
        let cell = RcuCell::empty();
        assert!(cell.get().is_none() && cell.is_empty());
        assert!(cell.swap(Some(value.share())).is_none());
        assert!(!cell.is_empty());
        let reader = cell.get();
        let other = reader.clone();
        let taken = cell.swap(None);
        assert!(cell.get().is_none() && cell.is_empty());
        drop(taken);
        drop(reader);
        assert!(count(&released) == 0);
        assert!(other.as_deref().is_some_and(|value| value.number == 5));
        drop(other);
        assert!(count(&released) == 1 && count(&dropped) == 1);
        Ok(())
    }

    #[test]
    fn a_reader_keeps_what_it_found() -> Result {
        let ((one, released, _), (two, ..)) = (told(1)?, told(2)?);
        let cell = RcuCell::empty();
        drop(cell.swap(Some(one.share())));
        let reader = cell.get();
        drop(cell.swap(Some(two.share())));
        assert!(reader.as_deref().is_some_and(|value| value.number == 1));
        assert!(cell.get().is_some_and(|value| value.number == 2));
        assert!(count(&released) == 0);
        drop(reader);
        assert!(count(&released) == 1);
        Ok(())
    }

    #[test]
    fn a_value_that_is_not_shared_is_only_dropped() -> Result {
        let (mut value, released, dropped) = told(5)?;
        value.number = 6;
        assert!(value.number == 6);
        drop(value);
        assert!(count(&released) == 0 && count(&dropped) == 1);
        Ok(())
    }

    #[test]
    fn a_released_value_can_be_shared_again() -> Result {
        let (mut value, released, dropped) = told(5)?;
        let home = Arc::new(Home(RcuCell::empty()), GFP_KERNEL)?;
        value.home = Some(home.clone());
        let cell = RcuCell::empty();
        drop(cell.swap(Some(value.share())));
        let reader = cell.get();
        drop(cell.swap(None));
        assert!(home.0.is_empty());
        drop(reader);
        assert!(count(&released) == 1 && count(&dropped) == 0);
        assert!(home.0.get().is_some_and(|value| value.number == 5));
        drop(home);
        assert!(count(&released) == 2 && count(&dropped) == 1);
        Ok(())
    }

    #[test]
    fn a_cell_releases_its_value() -> Result {
        let (value, released, dropped) = told(5)?;
        let cell = RcuCell::empty();
        drop(cell.swap(Some(value.share())));
        drop(cell);
        assert!(count(&released) == 1 && count(&dropped) == 1);
        Ok(())
    }
}
