// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of `worker.rs`.

use kernel::prelude::*;

#[kunit_tests(ib_mkey_worker)]
mod tests {
    use super::super::*;
    use kernel::prelude::*;

    const USER: WaitingWorkers = WaitingWorkers::new(false);

    /// Returns the number of workers that a user gets while `others` are occupied by others.
    fn share(others: i32) -> i32 {
        let mut own = 0;
        while own < MAX_WORKERS && USER.may_wait(own, others + own) {
            own += 1;
        }
        own
    }

    #[test]
    fn an_owner_alone_gets_a_fifth() {
        assert_eq!(share(0), 51);
    }

    #[test]
    fn greedy_owners_leave_workers_to_others() {
        let mut occupied = 0;
        for _ in 0..20 {
            let own = share(occupied);
            assert!(own > 0);
            occupied += own;
            assert!(occupied < MAX_WORKERS);
        }
    }

    #[test]
    fn the_limit_holds() {
        let mut occupied = 0;
        for _ in 0..10_000 {
            occupied += share(occupied);
        }
        assert!(occupied <= MAX_WORKERS);
        assert!(!USER.may_wait(0, MAX_WORKERS));
    }

    #[test]
    fn kernel_users_and_others_leave_workers_to_each_other() {
        let kernel = WaitingWorkers::new(true);
        let mut workers = KVec::new();
        for _ in 0..KERNEL_WORKERS {
            let worker = Worker::of(&kernel);
            assert!(worker.owner.is_some());
            assert!(workers.push(worker, GFP_KERNEL).is_ok());
        }
        assert!(Worker::of(&kernel).owner.is_none());
        let user = USER;
        assert!(Worker::of(&user).owner.is_some());
        // The limit is that of all kernel users together.
        let other = WaitingWorkers::new(true);
        assert!(Worker::of(&other).owner.is_none());
        drop(workers.pop());
        assert!(Worker::of(&other).owner.is_some());
        // Many users occupy all of their workers.
        let mut users = KVec::new();
        for _ in 0..MAX_WORKERS {
            let owner = KBox::new(WaitingWorkers::new(false), GFP_KERNEL);
            assert!(owner.is_ok_and(|owner| users.push(owner, GFP_KERNEL).is_ok()));
        }
        let mut waiting = KVec::new();
        for owner in &users {
            assert!(waiting.push(Worker::of(owner), GFP_KERNEL).is_ok());
        }
        assert!(Worker::of(&user).owner.is_none());
        assert!(Worker::of(&kernel).owner.is_some());
    }

    #[test]
    fn workers_are_counted_while_they_wait() {
        let (owner, other) = (USER, USER);
        {
            let mut workers = KVec::new();
            // No other test occupies workers meanwhile.
            for _ in 0..51 {
                let worker = Worker::of(&owner);
                assert!(worker.owner.is_some());
                assert!(workers.push(worker, GFP_KERNEL).is_ok());
            }
            assert!(Worker::of(&owner).owner.is_none());
            assert!(Worker::of(&other).owner.is_some());
        }
        assert_eq!(owner.count.load(ordering::Relaxed), 0);
        assert_eq!(other.count.load(ordering::Relaxed), 0);
        assert!(Worker::of(&owner).owner.is_some());
    }
}
