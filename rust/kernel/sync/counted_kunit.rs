// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of `counted.rs`.

use kernel::prelude::*;

#[kunit_tests(rust_counted_cell)]
mod tests {
    use super::super::*;
    use kernel::{
        time::{delay::fsleep, Delta},
        workqueue,
    };

    /// The step of another thread: 1 after it has begun, 2 after it has ended.
    type Progress = Arc<Atomic<u32>>;

    fn filled(value: u32) -> Result<Arc<CountedCell<u32>>> {
        let cell = Arc::new(CountedCell::new()?, GFP_KERNEL)?;
        cell.fill(Arc::new(value, GFP_KERNEL)?).map_err(|_| EBUSY)?;
        Ok(cell)
    }

    /// Takes the value out. Does not wait for its readers.
    fn take(cell: &CountedCell<u32>) -> Option<Taken<u32>> {
        match cell.take_unread() {
            Ok(value) => value.map(|value| cell.taken(value)),
            Err(taken) => taken,
        }
    }

    /// Runs `wait` in another thread, and returns when that has begun.
    fn spawn(wait: impl FnOnce() + Send + 'static) -> Result<Progress> {
        let progress = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let there = progress.clone();
        workqueue::system().try_spawn(GFP_KERNEL, move || {
            there.store(1, ordering::Release);
            wait();
            there.store(2, ordering::Release);
        })?;
        assert!(reaches(&progress, 1));
        Ok(progress)
    }

    /// Returns `true` if the other thread reaches `step` within a minute.
    fn reaches(progress: &Atomic<u32>, step: u32) -> bool {
        (0..6000).any(|_| {
            let reached = progress.load(ordering::Acquire) >= step;
            if !reached {
                fsleep(Delta::from_millis(10));
            }
            reached
        })
    }

    /// Returns `true` if the other thread waits. Gives it time to end if it does not.
    fn waits(progress: &Atomic<u32>) -> bool {
        fsleep(Delta::from_millis(50));
        progress.load(ordering::Acquire) == 1
    }

    #[test]
    fn a_value_is_read_until_it_is_taken() -> Result {
        let cell = filled(5)?;
        assert!(cell.read().is_some_and(|value| *value == 5));
        assert!(cell.fill(Arc::new(6, GFP_KERNEL)?).is_err());
        let taken = take(&cell).ok_or(EINVAL)?;
        assert!(cell.read().is_none());
        assert!(take(&cell).is_none());
        assert!(taken.wait().is_some_and(|value| *value == 5));
        assert!(cell.fill(Arc::new(6, GFP_KERNEL)?).is_ok());
        assert!(cell.read().is_some_and(|value| *value == 6));
        Ok(())
    }

    #[test]
    fn a_value_is_taken_at_once_without_readers() -> Result {
        let cell = filled(5)?;
        let reader = cell.read();
        let taken = cell.take_unread().err().flatten();
        // A reader of the previous value counts, too.
        assert!(cell.take_unread().is_err_and(|taken| taken.is_none()));
        drop(reader);
        assert!(cell.take_unread().is_ok_and(|value| value.is_none()));
        assert!(taken.and_then(Taken::wait).is_some_and(|value| *value == 5));
        assert!(cell.fill(Arc::new(6, GFP_KERNEL)?).is_ok());
        let value = cell.take_unread().ok().flatten();
        assert!(value.is_some_and(|value| *value == 6));
        Ok(())
    }

    #[test]
    fn a_value_that_was_taken_waits_for_its_last_reader() -> Result {
        let cell = filled(5)?;
        let (first, second) = (cell.read(), cell.read());
        let taken = take(&cell).ok_or(EINVAL)?;
        let progress = spawn(move || drop(taken))?;
        assert!(waits(&progress));
        drop(first);
        assert!(waits(&progress));
        // A reader that finds the cell empty does not count.
        assert!(cell.read().is_none());
        assert!(waits(&progress));
        assert!(second.as_deref() == Some(&5));
        drop(second);
        assert!(reaches(&progress, 2));
        Ok(())
    }

    #[test]
    fn all_threads_that_wait_go_on() -> Result {
        let cell = filled(5)?;
        let reader = cell.read();
        let taken = take(&cell).ok_or(EINVAL)?;
        let empty = cell.clone();
        let one = spawn(move || drop(taken.wait()))?;
        let other = spawn(move || empty.wait_for_readers())?;
        assert!(waits(&one) && waits(&other));
        drop(reader);
        assert!(reaches(&one, 2) && reaches(&other, 2));
        Ok(())
    }
}
