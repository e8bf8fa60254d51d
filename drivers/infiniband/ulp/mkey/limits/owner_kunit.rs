// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of `owner.rs`. KUnit runs each case in a kernel thread, which counts as a process
//! here.

use kernel::prelude::*;

#[kunit_tests(ib_mkey_owner)]
mod tests {
    use super::super::*;

    /// Returns the number of owners that are processes, and of those that are kernel users.
    fn known(owners: &Owners) -> (usize, usize) {
        let (mut processes, mut kernel) = (0, 0);
        let all = owners.each(|owner| {
            match owner.process() {
                Some(_) => processes += 1,
                None => kernel += 1,
            }
            Ok::<(), ()>(())
        });
        all.map_or((usize::MAX, usize::MAX), |()| (processes, kernel))
    }

    /// Returns `true` if the account of `charge` and the total have these bytes and buffers.
    fn has(charge: &OwnerCharge, own: (i64, i64), total: (i64, i64)) -> bool {
        let account = &charge.owner.account;
        let all = charge.owner.owners.total();
        (account.used(), account.buffers()) == own && (all.used(), all.buffers()) == total
    }

    #[test]
    fn a_process_has_a_quota_and_kernel_users_have_none() -> Result {
        let owners = Owners::new(100, 40)?;
        let process = Owners::charge(&owners, true, 40)?;
        assert!(Owners::charge(&owners, true, 1).err() == Some(ENOMEM));
        let kernel = Owners::charge(&owners, false, 60)?;
        assert!(Owners::charge(&owners, false, 1).err() == Some(ENOMEM));
        assert!(has(&process, (40, 1), (100, 2)) && has(&kernel, (60, 1), (100, 2)));
        assert_eq!(process.owner.account().limit(), 40);
        assert!(process.owner.process().is_some() && kernel.owner.process().is_none());
        Ok(())
    }

    #[test]
    fn an_owner_is_known_while_it_has_a_buffer() -> Result {
        let owners = Owners::new(100, 40)?;
        assert!(known(&owners) == (0, 0));
        let first = Owners::charge(&owners, true, 10)?;
        let second = Owners::charge(&owners, true, 10)?;
        let kernel = Owners::charge(&owners, false, 10)?;
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
            assert!(Owners::charge(&owners, true, bytes).err() == Some(ENOMEM));
            assert!(known(&owners) == (0, 0));
        }
        assert!(owners.total().used() == 0 && owners.total().high() == 0);
        let charge = Owners::charge(&owners, true, 10)?;
        assert!(Owners::charge(&owners, true, 1).err() == Some(ENOMEM));
        assert!(has(&charge, (10, 1), (10, 1)));
        Ok(())
    }

    #[test]
    fn a_buffer_beside_another_has_the_same_owner() -> Result {
        let owners = Owners::new(30, 20)?;
        let first = Owners::charge(&owners, true, 15)?;
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
        let kernel = Owners::charge(&owners, false, 15)?;
        let mut process = Owners::charge(&owners, true, 10)?;
        assert!(process.grow(11).err() == Some(ENOMEM));
        assert!(process.grow(6).err() == Some(ENOMEM));
        assert!(has(&process, (10, 1), (25, 2)));
        process.grow(5)?;
        assert!(has(&process, (15, 1), (30, 2)));
        drop(process);
        assert!(has(&kernel, (15, 1), (15, 1)));
        Ok(())
    }
}
