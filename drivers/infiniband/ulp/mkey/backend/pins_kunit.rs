// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of `pins.rs`.

use kernel::prelude::*;

#[kunit_tests(ib_mkey_pins)]
mod tests {
    use super::super::*;
    use core::cell::RefCell;
    use kernel::sync::atomic::{ordering, Atomic};

    /// A key that has the binding with this number.
    struct Fake(Atomic<u64>);

    impl Holder for Fake {
        fn is_bound_to(&self, number: u64) -> bool {
            self.0.load(ordering::Relaxed) == number
        }

        fn may_get(&self, _: u64) -> bool {
            false
        }
    }

    type FakePin = Pin<Fake>;

    fn holder(bound: u64) -> Result<Arc<Fake>> {
        Ok(Arc::new(Fake(Atomic::new(bound)), GFP_KERNEL)?)
    }

    /// Pins the MR at `index` for a binding of `holder`, or for none.
    fn pin(pins: &Arc<Pins<Fake>>, index: u32, of: Option<(&Arc<Fake>, u64)>) -> Result<FakePin> {
        let of = of.map(|(holder, number)| PinnedFor {
            holder: holder.clone(),
            number,
        });
        Ok(Pins::pin(pins, index, of, |_| Ok(()))?.1)
    }

    /// Returns `true` if the MR at `index` is not pinned.
    fn is_unpinned(pins: &Pins<Fake>, index: u32) -> bool {
        let mut ran = false;
        let _ = pins.if_unpinned(index, |_| ran = true);
        ran
    }

    #[test]
    fn a_pin_excludes_a_change_until_it_is_dropped() -> Result {
        let pins = Pins::<Fake>::of(0)?;
        assert!(is_unpinned(&pins, 7));
        let (found, pin) = Pins::pin(&pins, 7, None, |_| Ok(42))?;
        assert_eq!(found, 42);
        assert!(!is_unpinned(&pins, 7));
        assert!(is_unpinned(&pins, 6));
        assert!(is_unpinned(&pins, 8));
        drop(pin);
        assert!(is_unpinned(&pins, 7));
        Ok(())
    }

    #[test]
    fn each_pin_of_a_region_counts() -> Result {
        let pins = Pins::of(0)?;
        let first = pin(&pins, u32::MAX, None)?;
        let second = pin(&pins, u32::MAX, None)?;
        let third = pin(&pins, u32::MAX, None)?;
        let other = pin(&pins, 0, None)?;
        assert!(pins.count(u32::MAX) == 3);
        drop(second);
        assert!(!is_unpinned(&pins, u32::MAX));
        drop(first);
        assert!(!is_unpinned(&pins, u32::MAX));
        drop(third);
        assert!(is_unpinned(&pins, u32::MAX));
        assert!(pins.count(u32::MAX) == 0 && pins.count(0) == 1);
        drop(other);
        Ok(())
    }

    #[test]
    fn a_failed_lookup_pins_nothing() -> Result {
        let pins = Pins::<Fake>::of(0)?;
        let refused = Pins::pin(&pins, 7, None, |_| Err::<(), _>(ENOENT)).err();
        assert!(refused == Some(ENOENT));
        assert!(is_unpinned(&pins, 7));
        let first = pin(&pins, 7, None)?;
        let refused = Pins::pin(&pins, 7, None, |_| Err::<(), _>(EACCES)).err();
        assert!(refused == Some(EACCES));
        drop(first);
        assert!(is_unpinned(&pins, 7));
        Ok(())
    }

    #[test]
    fn the_result_of_a_change_is_returned() -> Result {
        let pins = Pins::<Fake>::of(0)?;
        // EBUSY of the change itself is not taken for a pin.
        let refused = || pins.if_unpinned(7, |_| Err::<(), _>(EBUSY));
        assert!(matches!(refused(), Ok(Err(EBUSY))));
        let result = pins.when_unpinned(7, Timeout::After(0), refused);
        assert!(result? == Err(EBUSY));
        Ok(())
    }

    #[test]
    fn a_live_pin_is_not_waited_for() -> Result {
        let pins = Pins::of(0)?;
        let key = holder(3)?;
        let retired = pin(&pins, 7, Some((&key, 2)))?;
        let live = pin(&pins, 7, Some((&key, 3)))?;
        assert!(pins.wait_for_retired(7, Timeout::Never) == Err(EBUSY));
        drop(live);
        // A pin without a key is live, too.
        let read = pin(&pins, 7, None)?;
        assert!(pins.wait_for_retired(7, Timeout::Never) == Err(EBUSY));
        drop(read);
        assert!(pins.wait_for_retired(7, Timeout::After(1)) == Err(EBUSY));
        drop(retired);
        assert!(pins.wait_for_retired(7, Timeout::Never).is_ok());
        Ok(())
    }

    #[test]
    fn a_retired_pin_is_waited_for() -> Result {
        let pins = Pins::of(0)?;
        let key = holder(3)?;
        let place = RefCell::new(Some(pin(&pins, 7, Some((&key, 2)))?));
        let first = Atomic::new(true);
        let attempt = || {
            let result = pins.if_unpinned(7, |_| 5);
            // Another thread would drop the pin after the first attempt.
            if first.xchg(false, ordering::Relaxed) {
                drop(place.take());
            }
            result
        };
        assert!(pins.when_unpinned(7, Timeout::After(0), attempt) == Ok(5));
        Ok(())
    }

    #[test]
    fn each_pin_is_found_with_its_binding() -> Result {
        let pins = Pins::of(0)?;
        let (one, two) = (holder(1)?, holder(5)?);
        let held = [
            pin(&pins, 7, Some((&one, 1)))?,
            pin(&pins, 8, Some((&one, 1)))?,
            pin(&pins, 7, Some((&two, 4)))?,
            pin(&pins, 7, None)?,
        ];
        let mut numbers = [0; 3];
        let mut count = 0;
        pins.each(7, |found| {
            if let Some(place) = numbers.get_mut(count) {
                *place = found.of.as_ref().map_or(0, |of| of.number);
            }
            assert!(found.is_live == (count != 1));
            count += 1;
            // A pin that is made meanwhile is left out.
            drop(pin(&pins, 7, None)?);
            Ok(())
        })?;
        assert!(count == 3 && numbers == [1, 4, 0]);
        assert!(pins.each(7, |_| Err(EINTR)) == Err(EINTR));
        drop(held);
        Ok(())
    }

    #[test]
    fn all_items_change_or_none() -> Result {
        let pins = Pins::of(0)?;
        let mut items = [(3, 0), (1, 0), (2, 0), (1, 0)];
        let two = pin(&pins, 2, None)?;
        let one = pin(&pins, 1, None)?;
        // The first pinned item in the order of the list, not of the indices.
        let pinned = pins
            .if_all_unpinned(&mut items, |item| item.0, |item| item.1 += 1)
            .err()
            .copied();
        assert!(pinned == Some((1, 0)));
        drop(one);
        let pinned = pins
            .if_all_unpinned(&mut items, |item| item.0, |item| item.1 += 1)
            .err()
            .copied();
        assert!(pinned == Some((2, 0)));
        assert!(items == [(3, 0), (1, 0), (2, 0), (1, 0)]);
        drop(two);
        let result = pins.if_all_unpinned(&mut items, |item| item.0, |item| item.1 += 1);
        assert!(result.is_ok());
        assert!(items == [(3, 1), (1, 1), (2, 1), (1, 1)]);
        Ok(())
    }
}
