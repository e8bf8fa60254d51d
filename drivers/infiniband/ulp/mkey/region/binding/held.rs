// SPDX-License-Identifier: GPL-2.0

//! Accesses that leave SRCU and keep their binding.
//!
//! # Lifetime
//!
//! The data path reads bindings under SRCU. An access that may wait for ODP pages leaves SRCU,
//! because a process decides how long the wait takes. An access to a binding that can be flushed to
//! persistence leaves SRCU, too. Such a slow access counts as one of the [`Users`] of the binding, so that only a
//! rebind of the same key waits for it.
//!
//! [`Users`]: crate::kernel_ext::sync::users::Users

use super::Binding;
use crate::kernel_ext::sync::users::User;
use core::ops::Deref;
use kernel::sync::{
    atomic::{ordering, Atomic},
    Arc,
    ArcBorrow, //
};

/// The number of accesses outside of SRCU since the module was loaded.
static OUTSIDE: Atomic<i64> = Atomic::new(0);

/// Returns the number of accesses outside of SRCU since the module was loaded.
pub(crate) fn accesses_outside() -> i64 {
    OUTSIDE.load(ordering::Relaxed)
}

/// A reference to a binding, for an access that counts as one of the binding's users.
// Fields drop in declaration order. If a rebind gave up its wait, this may be the last reference.
// The binding then drops and unpins its leaves before `_user` ends the next wait for the users.
pub(crate) struct Held {
    binding: Arc<Binding>,
    _user: User,
}

impl Held {
    /// Keeps `binding` for an access that leaves SRCU. Returns [`None`] if accesses through it are
    /// short.
    #[inline(never)]
    pub(crate) fn new(binding: ArcBorrow<'_, Binding>) -> Option<Self> {
        let user = User::new(binding.users.as_ref()?);
        let binding = binding.into();
        OUTSIDE.add(1, ordering::Relaxed);
        Some(Self {
            binding,
            _user: user,
        })
    }
}

impl Deref for Held {
    type Target = Binding;

    fn deref(&self) -> &Binding {
        &self.binding
    }
}
