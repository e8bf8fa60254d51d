// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of `pins.rs`.

use kernel::prelude::*;

#[kunit_tests(ib_mkey_pins)]
mod tests {
    use super::super::*;
    use core::cell::RefCell;

    /// Returns `true` if the MR at `index` is not pinned.
    fn is_unpinned(pins: &Pins, index: u32) -> bool {
        let mut ran = false;
        let _ = pins.if_unpinned(index, |_| ran = true);
        ran
    }

    #[test]
    fn a_pin_excludes_a_change_until_it_is_dropped() -> Result {
        let pins = Pins::of(0)?;
        assert!(is_unpinned(&pins, 7));
        let (found, pin) = pins.pin(7, |_| Ok(42))?;
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
        let (_, first) = pins.pin(u32::MAX, |_| Ok(()))?;
        let (_, second) = pins.pin(u32::MAX, |_| Ok(()))?;
        let (_, third) = pins.pin(u32::MAX, |_| Ok(()))?;
        drop(second);
        assert!(!is_unpinned(&pins, u32::MAX));
        drop(first);
        assert!(!is_unpinned(&pins, u32::MAX));
        drop(third);
        assert!(is_unpinned(&pins, u32::MAX));
        Ok(())
    }

    #[test]
    fn a_failed_lookup_pins_nothing() -> Result {
        let pins = Pins::of(0)?;
        let refused = pins.pin(7, |_| Err::<(), _>(ENOENT)).err();
        assert!(refused == Some(ENOENT));
        assert!(is_unpinned(&pins, 7));
        let (_, pin) = pins.pin(7, |_| Ok(()))?;
        let refused = pins.pin(7, |_| Err::<(), _>(EACCES)).err();
        assert!(refused == Some(EACCES));
        drop(pin);
        assert!(is_unpinned(&pins, 7));
        Ok(())
    }

    #[test]
    fn the_result_of_a_change_is_returned() -> Result {
        let pins = Pins::of(0)?;
        // EBUSY of the change itself is not taken for a pin.
        let refused = || pins.if_unpinned(7, |_| Err::<(), _>(EBUSY));
        assert!(matches!(refused(), Ok(Err(EBUSY))));
        assert!(when_unpinned(refused, || Err(ERANGE))? == Err(EBUSY));
        Ok(())
    }

    #[test]
    fn a_pin_that_was_waited_for_does_not_count() -> Result {
        let pins = Pins::of(0)?;
        let ((), pin) = pins.pin(7, |_| Ok(()))?;
        let place = RefCell::new(Some(pin));
        let attempt = || pins.if_unpinned(7, |_| 5);
        assert!(when_unpinned(attempt, || Ok(())) == Err(EBUSY));
        assert!(when_unpinned(attempt, || Err(EINTR)) == Err(EINTR));
        let unpin = || {
            drop(place.take());
            Ok(())
        };
        assert!(when_unpinned(attempt, unpin) == Ok(5));
        assert!(when_unpinned(attempt, || Err(EINTR)) == Ok(5));
        Ok(())
    }

    #[test]
    fn a_count_does_not_overflow() -> Result {
        let pins = Pins::of(0)?;
        let (_, _pin) = pins.pin(7, |_| Ok(()))?;
        let set = match pins.counts.lock().pinned.get_mut(&7) {
            Some(count) => {
                *count = u32::MAX;
                true
            }
            None => false,
        };
        assert!(set);
        let refused = pins.pin(7, |_| Ok(())).err();
        assert!(refused == Some(EOVERFLOW));
        let count = pins.counts.lock().pinned.get(&7).copied();
        assert!(count == Some(u32::MAX));
        Ok(())
    }

    #[test]
    fn all_items_change_or_none() -> Result {
        let pins = Pins::of(0)?;
        let mut items = [(3, 0), (1, 0), (2, 0), (1, 0)];
        let (_, two) = pins.pin(2, |_| Ok(()))?;
        let (_, one) = pins.pin(1, |_| Ok(()))?;
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

    #[test]
    fn a_locked_pin_needs_no_memory_after_an_unpin() -> Result {
        let pins = Pins::of(0)?;
        // There is no unused node yet.
        assert!(pins.lock().pin(7).is_none());
        let (_, first) = pins.pin(7, |_| Ok(()))?;
        let mut locked = pins.lock();
        let second = locked.pin(7);
        assert!(second.is_some() && !locked.is_unpinned(7));
        assert!(locked.pin(8).is_none());
        drop(locked);
        drop((first, second));
        assert!(is_unpinned(&pins, 7));
        // The node of the last unpin serves one MR.
        let mut locked = pins.lock();
        let third = locked.pin(8);
        assert!(third.is_some() && locked.pin(9).is_none());
        drop(locked);
        assert!(!is_unpinned(&pins, 8));
        drop(third);
        assert!(is_unpinned(&pins, 8));
        Ok(())
    }
}
