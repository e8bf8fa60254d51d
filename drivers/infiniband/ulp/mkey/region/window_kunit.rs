// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the table of windows (`window.rs`).

use kernel::prelude::*;

#[kunit_tests(ib_mkey_window)]
mod tests {
    use super::super::*;
    use crate::kernel_ext::rdma::Mr;
    use core::ptr;

    /// A window of no driver.
    struct Fake {
        address: usize,
        exists: bool,
    }

    impl DriverWindow for Fake {
        type Held = ();

        fn address(&self) -> usize {
            self.address
        }

        fn hold(&self) -> Option<()> {
            self.exists.then_some(())
        }

        fn is_over(&self, _hidden: &Mr) -> bool {
            true
        }
    }

    const fn fake(address: usize) -> Fake {
        let exists = true;
        Fake { address, exists }
    }

    /// Returns the address of the shadow MRs that a bind of `window` gets.
    fn bindings_of(windows: &Windows, window: &Fake) -> Result<usize> {
        let mut at = 0;
        windows.bind(window, &mut ReplacedBinding::default(), |bindings, _| {
            at = ptr::from_ref(bindings) as usize;
            Ok(())
        })?;
        Ok(at)
    }

    /// rxe can give the index of a window to another window while a bind of the first window is in
    /// progress.
    #[test]
    fn each_window_has_shadow_mrs_of_its_own() -> Result {
        let windows = KBox::pin_init(Windows::new(), GFP_KERNEL)?;
        let (first, second) = (fake(0x1000), fake(0x1080));
        let of_first = bindings_of(&windows, &first)?;
        let of_second = bindings_of(&windows, &second)?;
        assert!(of_first != of_second);
        assert!(bindings_of(&windows, &first)? == of_first);
        assert!(windows.forget(second.address).is_some());
        assert!(bindings_of(&windows, &first)? == of_first);
        assert!(windows.forget(second.address).is_none());
        assert!(windows.forget(first.address).is_some());
        Ok(())
    }

    /// An entry that is made after the deallocation would stay for ever.
    #[test]
    fn a_deallocated_window_gets_no_entry() -> Result {
        let windows = KBox::pin_init(Windows::new(), GFP_KERNEL)?;
        let (address, exists) = (0x1000, false);
        let refused = bindings_of(&windows, &Fake { address, exists });
        assert!(refused.err() == Some(EINVAL));
        assert!(windows.forget(address).is_none());
        Ok(())
    }

    /// The deallocation takes the shadow MRs also from a change that has the entry of the window.
    #[test]
    fn a_change_in_progress_keeps_no_shadow_mrs() -> Result {
        let windows = KBox::pin_init(Windows::new(), GFP_KERNEL)?;
        let window = fake(0x1000);
        let known = windows.entry(&window)?;
        assert!(windows.forget(window.address).is_some());
        // A change that has this entry does not reach a later window at the same address.
        assert!(known.lock().is_none());
        assert!(windows.forget(window.address).is_none());
        assert!(bindings_of(&windows, &window)? != 0);
        assert!(known.lock().is_none());
        assert!(windows.forget(window.address).is_some());
        Ok(())
    }
}
