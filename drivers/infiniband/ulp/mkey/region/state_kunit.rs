// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of which pins are live.

use kernel::prelude::*;

#[kunit_tests(ib_mkey_state)]
mod tests {
    use super::super::{pins::Holder, *};

    /// A deregistration must not wait for a thread that describes a binding, which may wait for the
    /// deregistration.
    #[test]
    fn a_description_that_is_overtaken_is_live() -> Result {
        let state = RegionState::new(1)?;
        let (first, second) = (state.next_number(), state.next_number());
        assert!(state.may_get(first) && state.may_get(second));
        state.set_bound(second);
        assert!(state.is_bound_to(second));
        assert!(!state.is_bound_to(first) && state.may_get(first));
        state.set_bound(first);
        assert!(state.is_bound_to(first));
        Ok(())
    }

    #[test]
    fn a_retired_binding_is_not_live() -> Result {
        let state = RegionState::new(1)?;
        let number = state.next_number();
        state.set_bound(number);
        state.retired.add();
        state.set_bound(0);
        assert!(!state.is_bound_to(number) && !state.may_get(number));
        assert!(state.may_get(state.next_number()));
        state.retired.end();
        Ok(())
    }
}
