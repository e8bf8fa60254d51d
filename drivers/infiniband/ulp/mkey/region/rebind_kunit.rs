// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the order in which `rebind.rs` locks regions.

use kernel::prelude::*;

#[kunit_tests(ib_mkey_rebind)]
mod tests {
    use super::super::*;

    /// Returns the indices of `N` regions with the numbers of their changes in the caller's list.
    fn numbered<const N: usize>(indices: [u32; N]) -> [(u32, usize); N] {
        let mut number = 0;
        indices.map(|index| {
            number += 1;
            (index, number - 1)
        })
    }

    /// Sorts changes of these regions. Returns `true` if the indices rise, changes of one region
    /// keep the caller's order, and each change occurs once.
    fn sorts<const N: usize>(indices: [u32; N]) -> bool {
        let given = numbered(indices);
        let mut sorted = given;
        sort(&mut sorted, |change| *change);
        let rising = sorted.windows(2).all(|pair| match pair {
            [one, two] => one < two,
            _ => false,
        });
        rising && given.iter().all(|change| sorted.contains(change))
    }

    #[test]
    fn every_short_list_is_sorted() {
        assert!(sorts([]));
        assert!(sorts([5]));
        for lists in 0..4u32.pow(5) {
            let digit = |at: u32| lists / 4u32.pow(at) % 4;
            assert!(sorts([digit(0), digit(1)]));
            assert!(sorts([digit(0), digit(1), digit(2)]));
            assert!(sorts([digit(0), digit(1), digit(2), digit(3), digit(4)]));
        }
    }

    #[test]
    fn long_lists_are_sorted() {
        let mut at = 0;
        let rising = [0; 64].map(|_: u32| {
            at += 1;
            at
        });
        let mut falling = rising;
        falling.reverse();
        assert!(sorts(rising));
        assert!(sorts(falling));
        assert!(sorts(rising.map(|index| index * 37 % 64)));
        assert!(sorts(rising.map(|index| u32::MAX - index % 3)));
    }

    #[test]
    fn a_region_that_is_there_twice_is_found() {
        let index = |change: &(u32, usize)| change.0;
        let none: [(u32, usize); 0] = [];
        assert!(repeated(&none, index).is_none());
        assert!(repeated(&numbered([9]), index).is_none());
        assert!(repeated(&numbered([1, 2, 3]), index).is_none());
        let mut changes = numbered([4, 2, 7, 4, 2]);
        sort(&mut changes, |change| *change);
        // The result is the second change of the repeated region with the lowest index.
        assert!(repeated(&changes, index) == Some(&(2, 4)));
        assert!(repeated(&numbered([1, 5, 5]), index) == Some(&(5, 2)));
    }
}
