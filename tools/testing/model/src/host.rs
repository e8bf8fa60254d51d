// SPDX-License-Identifier: GPL-2.0

//! The `kernel` crate, and the parts of the module that are not modelled.

use std::marker::PhantomData;

pub(crate) mod alloc {
    //! Memory, which the host always has.

    use core::ops::{Deref, DerefMut};
    use kernel::error::Result;

    #[derive(Clone, Copy)]
    pub(crate) struct Flags;

    pub(crate) struct KBox<T: ?Sized>(Box<T>);

    impl<T> KBox<T> {
        pub(crate) fn new(value: T, _: Flags) -> Result<Self> {
            Ok(Self(Box::new(value)))
        }
        pub(crate) fn new_uninit(_: Flags) -> Result<Box<core::mem::MaybeUninit<T>>> {
            Ok(Box::new_uninit())
        }
        pub(crate) fn write(mut memory: Box<core::mem::MaybeUninit<T>>, value: T) -> Self {
            memory.write(value);
            // SAFETY: Written above.
            Self(unsafe { memory.assume_init() })
        }
        pub(crate) fn leak<'a>(this: Self) -> &'a mut T {
            Box::leak(this.0)
        }
    }

    impl<T: ?Sized> Deref for KBox<T> {
        type Target = T;
        fn deref(&self) -> &T {
            &self.0
        }
    }

    impl<T: ?Sized> DerefMut for KBox<T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.0
        }
    }

    impl<T> core::borrow::Borrow<T> for KBox<T> {
        fn borrow(&self) -> &T {
            self
        }
    }

    impl<T> core::borrow::BorrowMut<T> for KBox<T> {
        fn borrow_mut(&mut self) -> &mut T {
            self
        }
    }

    pub(crate) struct KVVec<T>(Vec<T>);

    impl<T> KVVec<T> {
        pub(crate) const fn new() -> Self {
            Self(Vec::new())
        }
        pub(crate) fn with_capacity(capacity: usize, _: Flags) -> Result<Self> {
            Ok(Self(Vec::with_capacity(capacity)))
        }
        pub(crate) fn push(&mut self, value: T, _: Flags) -> Result {
            self.0.push(value);
            Ok(())
        }
        pub(crate) fn push_within_capacity(&mut self, value: T) -> Result {
            self.0.push(value);
            Ok(())
        }
        pub(crate) fn pop(&mut self) -> Option<T> {
            self.0.pop()
        }
        pub(crate) fn capacity(&self) -> usize {
            self.0.capacity()
        }
        pub(crate) fn clear(&mut self) {
            self.0.clear();
        }
    }

    impl<T> Default for KVVec<T> {
        fn default() -> Self {
            Self::new()
        }
    }

    impl<T> Deref for KVVec<T> {
        type Target = [T];
        fn deref(&self) -> &[T] {
            &self.0
        }
    }

    impl<T> DerefMut for KVVec<T> {
        fn deref_mut(&mut self) -> &mut [T] {
            &mut self.0
        }
    }
}

pub(crate) mod error {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Error(pub(crate) i32);

    pub(crate) type Result<T = (), E = Error> = core::result::Result<T, E>;

    pub(crate) const ENOENT: Error = Error(2);
    pub(crate) const EINTR: Error = Error(4);
    pub(crate) const ENXIO: Error = Error(6);
    pub(crate) const ENOMEM: Error = Error(12);
    pub(crate) const EACCES: Error = Error(13);
    pub(crate) const EFAULT: Error = Error(14);
    pub(crate) const EBUSY: Error = Error(16);
    pub(crate) const EINVAL: Error = Error(22);

    impl From<core::num::TryFromIntError> for Error {
        fn from(_: core::num::TryFromIntError) -> Self {
            EINVAL
        }
    }

    impl From<crate::layout::Error> for Error {
        fn from(_: crate::layout::Error) -> Self {
            EINVAL
        }
    }
}

pub(crate) mod errors {
    //! The reasons of `errors.rs`, as numbers.

    use kernel::error::Error;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Refused(i32);

    impl Refused {
        pub(crate) const NONE: Self = Self(0);
        pub(crate) const TWICE: Self = Self(101);
        pub(crate) const ACCESS_UNBOUND: Self = Self(102);
        pub(crate) const ACCESS_PD: Self = Self(103);
        pub(crate) const ACCESS_KEY: Self = Self(104);
        pub(crate) const ACCESS_FLAGS: Self = Self(105);
    }

    impl From<Error> for Refused {
        fn from(error: Error) -> Self {
            Self(error.0)
        }
    }

    impl From<crate::layout::Error> for Refused {
        fn from(_: crate::layout::Error) -> Self {
            Self(kernel::error::EINVAL.0)
        }
    }

    impl From<Refused> for Error {
        fn from(refused: Refused) -> Self {
            Self(refused.0)
        }
    }
}

pub(crate) mod prelude {
    pub(crate) use crate::pin_init;
    pub(crate) use core::pin::Pin;
    pub(crate) use ib_mkey_model_macros::pin_data;
    pub(crate) use kernel::{
        alloc::{Flags, KBox, KVVec},
        error::{Error, Result, EACCES, EBUSY, EFAULT, EINTR, EINVAL, ENOENT, ENOMEM, ENXIO},
    };

    pub(crate) const GFP_KERNEL: Flags = Flags;
    pub(crate) const GFP_KERNEL_ACCOUNT: Flags = Flags;

    pub(crate) trait Zeroable: Default {
        fn zeroed() -> Self {
            Self::default()
        }
    }
    impl<T: Default> Zeroable for T {}
}

/// Makes a structure, whose fields are not pinned.
#[macro_export]
macro_rules! pin_init {
    (Self { $($fields:tt)* }) => { $crate::pin_init!(@ [] $($fields)*) };
    (@ [$($done:tt)*]) => { Self { $($done)* } };
    (@ [$($done:tt)*] $name:ident <- $value:expr, $($rest:tt)*) => {
        $crate::pin_init!(@ [$($done)* $name: $value,] $($rest)*)
    };
    (@ [$($done:tt)*] $name:ident : $value:expr, $($rest:tt)*) => {
        $crate::pin_init!(@ [$($done)* $name: $value,] $($rest)*)
    };
    (@ [$($done:tt)*] $name:ident, $($rest:tt)*) => {
        $crate::pin_init!(@ [$($done)* $name,] $($rest)*)
    };
}

pub(crate) mod ffi {
    pub(crate) use core::ffi::{c_int, c_long, c_ulong, c_void};
}

pub(crate) mod page {
    pub(crate) const PAGE_SIZE: usize = 4096;
}

pub(crate) mod time {
    use std::marker::PhantomData;

    pub(crate) type Jiffies = u64;
    pub(crate) struct Monotonic;
    pub(crate) struct Instant<C>(PhantomData<C>);
    pub(crate) struct Delta;

    impl<C> Instant<C> {
        pub(crate) fn now() -> Self {
            Self(PhantomData)
        }
        pub(crate) fn elapsed(&self) -> Delta {
            Delta
        }
    }

    impl Delta {
        /// No time passes, so no wait ends early.
        pub(crate) fn as_millis(&self) -> i64 {
            0
        }
    }

    pub(crate) fn msecs_to_jiffies(msecs: u32) -> Jiffies {
        msecs.into()
    }
}

pub(crate) mod types {
    pub(crate) struct Opaque<T>(core::cell::UnsafeCell<T>);

    impl<T> Opaque<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }
        pub(crate) fn get(&self) -> *mut T {
            self.0.get()
        }
    }
}

pub(crate) mod rbtree {
    //! A tree that one lock protects.

    use kernel::{alloc::Flags, error::Result};
    use std::collections::BTreeMap;

    pub(crate) struct RBTree<K, V>(BTreeMap<K, V>);
    pub(crate) struct RBTreeNodeReservation;
    pub(crate) struct Node<K, V>(K, V);
    pub(crate) struct Cursor<'a, K, V>(&'a K, &'a V);

    impl RBTreeNodeReservation {
        pub(crate) fn new(_: Flags) -> Result<Self> {
            Ok(Self)
        }
        pub(crate) fn into_node<K, V>(self, key: K, value: V) -> Node<K, V> {
            Node(key, value)
        }
    }

    impl<'a, K, V> Cursor<'a, K, V> {
        pub(crate) fn current(&self) -> (&'a K, &'a V) {
            (self.0, self.1)
        }
    }

    impl<K: Ord, V> RBTree<K, V> {
        pub(crate) const fn new() -> Self {
            Self(BTreeMap::new())
        }
        pub(crate) fn cursor_lower_bound(&self, key: &K) -> Option<Cursor<'_, K, V>> {
            self.0
                .range(key..)
                .next()
                .map(|(key, value)| Cursor(key, value))
        }
        pub(crate) fn insert(&mut self, node: Node<K, V>) -> Option<V> {
            self.0.insert(node.0, node.1)
        }
        pub(crate) fn remove_node(&mut self, key: &K) -> Option<V> {
            self.0.remove(key)
        }
        pub(crate) fn get(&self, key: &K) -> Option<&V> {
            self.0.get(key)
        }
        pub(crate) fn try_create_and_insert(&mut self, key: K, value: V, _: Flags) -> Result {
            self.0.insert(key, value);
            Ok(())
        }
        pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
            self.0.values()
        }
    }
}

pub(crate) mod limits {
    //! No limits.

    pub(crate) mod cost {
        pub(crate) const FLAT: i64 = 1 << 20;
        pub(crate) const KERNELS_KEY: i64 = 1 << 20;
        pub(crate) const LEAF: i64 = 1 << 20;
        pub(crate) const REGION: i64 = 0;
    }

    pub(crate) mod owner {
        use kernel::kernel_ext::user::User;
        use loom::cell::UnsafeCell;

        /// The charge of a binding or of a region. That of a binding has the number of the binding,
        /// so that an access that should not read the binding now races with the write.
        pub(crate) struct OwnerCharge(UnsafeCell<u64>);

        // SAFETY: The explorer finds races.
        unsafe impl Sync for OwnerCharge {}

        impl OwnerCharge {
            pub(crate) fn new() -> Self {
                Self(UnsafeCell::new(0))
            }
            pub(crate) fn write(&mut self, number: u64) {
                // SAFETY: `self` is not shared, if the module keeps its promises.
                self.0.with_mut(|value| unsafe { *value = number });
            }
            pub(crate) fn read(&self) -> u64 {
                // SAFETY: As above.
                self.0.with(|value| unsafe { *value })
            }
            pub(crate) fn cover(&mut self, _: i64) -> kernel::prelude::Result {
                Ok(())
            }
            pub(crate) fn user(&self) -> Option<User> {
                Some(User)
            }
            pub(crate) fn waits(&self) {}
        }

        impl Drop for OwnerCharge {
            fn drop(&mut self) {
                self.write(u64::MAX);
            }
        }
    }

    pub(crate) mod worker {
        use kernel::kernel_ext::sync::pending::Timeout;
        use std::marker::PhantomData;

        pub(crate) struct Worker<'a> {
            pub(crate) timeout: Timeout,
            _owner: PhantomData<&'a ()>,
        }

        impl Worker<'_> {
            pub(crate) fn of((): ()) -> Self {
                Self {
                    timeout: call_timeout(),
                    _owner: PhantomData,
                }
            }
        }

        pub(crate) fn call_timeout() -> Timeout {
            Timeout::After(1)
        }
    }
}

pub(crate) mod counters {
    pub(crate) enum Count {
        Access,
        Unbind,
    }
    pub(crate) fn add(_: Count, _: usize) {}
}

pub(crate) mod mkey_core {
    use crate::region::{state::Pins, table::Regions};
    use kernel::sync::Arc;

    pub(crate) struct Core {
        pub(crate) pins: Arc<Pins>,
        pub(crate) regions: Regions,
    }
}

pub(crate) mod sync;
