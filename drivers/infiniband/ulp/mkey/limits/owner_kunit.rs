// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of `owner.rs`.

use kernel::prelude::*;

#[kunit_tests(ib_mkey_owner)]
mod tests {
    use super::super::*;

    const USER: Option<User> = Some(User::new(1000));
    const OTHER: Option<User> = Some(User::new(1001));

    /// Returns the number of owners that are users, and of those that are kernel users.
    fn known(owners: &Owners) -> (usize, usize) {
        let (mut users, mut kernel) = (0, 0);
        let all = owners.each(|owner| {
            match owner.user() {
                Some(_) => users += 1,
                None => kernel += 1,
            }
            Ok::<(), ()>(())
        });
        all.map_or((usize::MAX, usize::MAX), |()| (users, kernel))
    }

    /// Returns `true` if the account of `charge` and the total have these bytes and buffers.
    fn has(charge: &OwnerCharge, own: (i64, i64), total: (i64, i64)) -> bool {
        let account = &charge.owner.account;
        let all = charge.owner.owners.total();
        (account.used(), account.buffers()) == own && (all.used(), all.buffers()) == total
    }

    #[test]
    fn a_user_has_a_quota_and_kernel_users_have_none() -> Result {
        let owners = Owners::new(100, 40)?;
        let user = Owners::charge(&owners, USER, 40)?;
        assert!(Owners::charge(&owners, USER, 1).err() == Some(ENOMEM));
        let kernel = Owners::charge(&owners, None, 60)?;
        assert!(Owners::charge(&owners, None, 1).err() == Some(ENOMEM));
        assert!(has(&user, (40, 1), (100, 2)) && has(&kernel, (60, 1), (100, 2)));
        assert_eq!(user.owner.account().limit(), 40);
        assert!(user.owner.user() == USER && kernel.owner.user().is_none());
        Ok(())
    }

    #[test]
    fn users_share_the_limit_of_the_device_only() -> Result {
        let owners = Owners::new(100, 40)?;
        let first = Owners::charge(&owners, USER, 40)?;
        let second = Owners::charge(&owners, OTHER, 40)?;
        assert!(Owners::charge(&owners, USER, 1).err() == Some(ENOMEM));
        assert!(Owners::charge(&owners, OTHER, 1).err() == Some(ENOMEM));
        assert!(has(&first, (40, 1), (80, 2)) && has(&second, (40, 1), (80, 2)));
        assert!(known(&owners) == (2, 0));
        drop(first);
        let again = Owners::charge(&owners, USER, 40)?;
        assert!(has(&again, (40, 1), (80, 2)));
        Ok(())
    }

    #[test]
    fn an_owner_is_known_while_it_has_a_buffer() -> Result {
        let owners = Owners::new(100, 40)?;
        assert!(known(&owners) == (0, 0));
        let first = Owners::charge(&owners, USER, 10)?;
        let second = Owners::charge(&owners, USER, 10)?;
        let kernel = Owners::charge(&owners, None, 10)?;
        assert!(known(&owners) == (1, 1));
        assert!(has(&second, (20, 2), (30, 3)));
        drop(first);
        assert!(known(&owners) == (1, 1));
        drop(second);
        assert!(known(&owners) == (0, 1));
        drop(kernel);
        assert!(known(&owners) == (0, 0));
        assert!(owners.total().used() == 0 && owners.total().buffers() == 0);
        Ok(())
    }

    #[test]
    fn a_refused_charge_leaves_nothing() -> Result {
        let owners = Owners::new(10, 40)?;
        // Beyond the device's limit, beyond the quota, and both.
        for bytes in [11, 40, 41] {
            assert!(Owners::charge(&owners, USER, bytes).err() == Some(ENOMEM));
            assert!(known(&owners) == (0, 0));
        }
        assert!(owners.total().used() == 0 && owners.total().high() == 0);
        let charge = Owners::charge(&owners, USER, 10)?;
        assert!(Owners::charge(&owners, USER, 1).err() == Some(ENOMEM));
        assert!(has(&charge, (10, 1), (10, 1)));
        Ok(())
    }

    #[test]
    fn a_buffer_beside_another_has_the_same_owner() -> Result {
        let owners = Owners::new(30, 20)?;
        let first = Owners::charge(&owners, USER, 15)?;
        assert!(first.beside(6).err() == Some(ENOMEM));
        let second = first.beside(5)?;
        assert!(Arc::ptr_eq(&first.owner, &second.owner));
        assert!(has(&first, (20, 2), (20, 2)));
        drop(first);
        assert!(has(&second, (5, 1), (5, 1)) && known(&owners) == (1, 0));
        drop(second);
        assert!(known(&owners) == (0, 0));
        Ok(())
    }

    #[test]
    fn a_charge_grows_within_both_limits() -> Result {
        let owners = Owners::new(30, 20)?;
        let kernel = Owners::charge(&owners, None, 15)?;
        let mut user = Owners::charge(&owners, USER, 10)?;
        assert!(user.grow(11).err() == Some(ENOMEM));
        assert!(user.grow(6).err() == Some(ENOMEM));
        assert!(has(&user, (10, 1), (25, 2)));
        user.grow(5)?;
        assert!(has(&user, (15, 1), (30, 2)));
        drop(user);
        assert!(has(&kernel, (15, 1), (15, 1)));
        Ok(())
    }
}
