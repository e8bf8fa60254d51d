// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of `account.rs`.

use kernel::prelude::*;

#[kunit_tests(ib_mkey_account)]
mod tests {
    use super::super::*;

    /// Returns `true` if the account has these bytes, buffers and highest number of bytes.
    fn has(account: &Account, used: i64, buffers: i64, high: i64) -> bool {
        account.used() == used && account.buffers() == buffers && account.high() == high
    }

    #[test]
    fn the_limit_is_reached_and_not_exceeded() {
        let account = Account::new(100);
        assert_eq!(account.limit(), 100);
        assert!(account.add(60).is_ok());
        assert!(account.add(41).err() == Some(ENOMEM));
        assert!(has(&account, 60, 1, 60));
        assert!(account.add(40).is_ok());
        assert!(account.add(1).err() == Some(ENOMEM));
        assert!(account.grow(1).err() == Some(ENOMEM));
        assert!(account.add(0).is_ok());
        assert!(has(&account, 100, 3, 100));
    }

    #[test]
    fn the_highest_number_of_bytes_stays() {
        let account = Account::new(100);
        assert!(account.add(70).is_ok());
        account.remove(70);
        assert!(has(&account, 0, 0, 70));
        assert!(account.add(30).is_ok());
        assert!(has(&account, 30, 1, 70));
        assert!(account.grow(50).is_ok());
        assert!(has(&account, 80, 1, 80));
    }

    #[test]
    fn a_buffer_grows_and_shrinks() {
        let account = Account::new(100);
        assert!(account.add(10).is_ok());
        assert!(account.grow(90).is_ok());
        assert!(account.grow(1).err() == Some(ENOMEM));
        assert!(has(&account, 100, 1, 100));
        account.shrink(95);
        assert!(has(&account, 5, 1, 100));
        account.remove(5);
        assert!(has(&account, 0, 0, 100));
    }

    #[test]
    fn the_last_buffer_is_told() {
        let account = Account::new(100);
        assert!(account.add(1).is_ok());
        assert!(account.add(2).is_ok());
        assert!(!account.remove_last(1));
        assert!(account.remove_last(2));
        assert!(has(&account, 0, 0, 3));
    }

    #[test]
    fn a_sum_does_not_overflow() {
        let account = Account::new(u64::MAX);
        assert_eq!(account.limit(), i64::MAX as u64);
        assert!(account.add(i64::MAX).is_ok());
        assert!(account.add(1).err() == Some(ENOMEM));
        assert!(account.grow(i64::MAX).err() == Some(ENOMEM));
        assert!(has(&account, i64::MAX, 1, i64::MAX));
    }

    #[test]
    fn a_pool_and_all_pools_are_charged_or_neither() -> Result {
        let one = Arc::new(Account::new(50), GFP_KERNEL)?;
        let two = Arc::new(Account::new(50), GFP_KERNEL)?;
        let all = Arc::new(Account::new(60), GFP_KERNEL)?;
        let first = Charge::new(&one, Some(&all), 40)?;
        assert!(Charge::new(&one, Some(&all), 11).err() == Some(ENOMEM));
        assert!(has(&all, 40, 1, 40));
        assert!(Charge::new(&two, Some(&all), 30).err() == Some(ENOMEM));
        assert!(has(&two, 0, 0, 30));
        let second = Charge::new(&two, Some(&all), 20)?;
        assert!(has(&all, 60, 2, 60));
        drop(first);
        assert!(has(&one, 0, 0, 40) && has(&all, 20, 1, 60));
        let alone = Charge::new(&one, None, 50)?;
        assert!(has(&one, 50, 1, 50) && has(&all, 20, 1, 60));
        drop(alone);
        drop(second);
        assert!(has(&one, 0, 0, 50) && has(&two, 0, 0, 30) && has(&all, 0, 0, 60));
        Ok(())
    }
}
