// SPDX-License-Identifier: GPL-2.0

//! Functions that a module exports to C, and functions that C calls by pointers.
//!
//! [`export_c!`] defines a function of a C header, and checks that its type is the one in the
//! header. [`callbacks!`] defines functions for a table of C. The arguments have Rust types with
//! the representation of the C types. Each type states the promises of C callers in one place
//! ([`FromC`], [`Element`]), so a body needs no unsafe code for them. [`IntoC`] converts the result
//! to a C type.
//!
//! The kernel's `#[export]` checks against `kernel::bindings`, which has no functions of a module.

use core::{mem::MaybeUninit, ops::Deref, slice};
use kernel::{
    ffi::{c_int, c_void},
    prelude::*,
};

/// An argument that C passes.
///
/// # Safety
///
/// The type has the representation of `C`. The implementation states the promises of C callers
/// about an argument, which last until the function returns, and relies on nothing else.
pub(crate) unsafe trait FromC: Sized {
    /// The C type.
    type C;

    /// Returns the argument.
    ///
    /// # Safety
    ///
    /// `raw` must be as the implementation states as long as the result exists.
    unsafe fn from_c(raw: Self::C) -> Self {
        const { assert!(size_of::<Self>() == size_of::<Self::C>()) };
        // SAFETY: Both types have one representation, and by the safety requirement the value is
        // valid.
        unsafe { core::mem::transmute_copy(&raw) }
    }
}

/// An element of an array that C passes as a pointer and a number of elements.
///
/// # Safety
///
/// The requirements of [`FromC`], for an array.
pub(crate) unsafe trait Element {
    /// The C type.
    type C;
}

/// An array, as [`Element`] describes it.
pub(crate) trait FromCArray {
    /// The C type of the pointer.
    type C;

    /// Returns the array.
    ///
    /// # Safety
    ///
    /// The array must be as its [`Element`] states as long as the result exists. If it has no
    /// elements, the pointer may be anything.
    unsafe fn from_c(raw: Self::C, len: usize) -> Self;
}

impl<T: Element> FromCArray for &[T] {
    type C = *const T::C;

    unsafe fn from_c(raw: *const T::C, len: usize) -> Self {
        if len == 0 {
            return &[];
        }
        // SAFETY: By the safety requirements, and both types have one representation.
        unsafe { slice::from_raw_parts(raw.cast(), len) }
    }
}

impl<T: Element> FromCArray for &mut [T] {
    type C = *mut T::C;

    unsafe fn from_c(raw: *mut T::C, len: usize) -> Self {
        if len == 0 {
            return &mut [];
        }
        // SAFETY: By the safety requirements, and both types have one representation.
        unsafe { slice::from_raw_parts_mut(raw.cast(), len) }
    }
}

macro_rules! scalars {
    ($($ty:ty),+) => {$(
        // SAFETY: Any value is valid.
        unsafe impl FromC for $ty {
            type C = Self;
        }
    )+};
}
scalars!(bool, i32, u32, u64, usize);

// SAFETY: What the pointer is to, if anything, is known to the function alone.
unsafe impl<T> FromC for *mut T {
    type C = Self;
}

macro_rules! elements {
    ($($ty:ty),+) => {$(
        // SAFETY: The pointer is to initialised elements that do not change.
        unsafe impl Element for $ty {
            type C = Self;
        }
    )+};
}
elements!(u8, u32, u64, crate::bindings::ib_sge);

// SAFETY: The pointer is valid for that many bytes, which nothing else writes.
unsafe impl Element for MaybeUninit<u8> {
    type C = c_void;
}

// SAFETY: The pointer is to an initialised value that nothing else uses.
unsafe impl<T> FromC for &mut T {
    type C = *mut T;
}

/// Memory for an answer, which need not be initialised.
#[repr(transparent)]
pub(crate) struct Out<'a, T>(&'a mut MaybeUninit<T>);

impl<T> Out<'_, T> {
    /// Writes the answer.
    pub(crate) fn set(self, value: T) {
        self.0.write(value);
    }
}

// SAFETY: The pointer is to memory for a `T` that nothing else uses.
unsafe impl<T> FromC for Out<'_, T> {
    type C = *mut T;
}

// SAFETY: The pointer is NULL, or as above.
unsafe impl<T> FromC for Option<Out<'_, T>> {
    type C = *mut T;
}

/// A structure that C passes for reading.
///
/// # Invariants
///
/// The pointers in the structure are valid, as its header says.
#[repr(transparent)]
pub(crate) struct Given<T>(T);

// SAFETY: The pointer is to an initialised structure as the type invariant requires. The structure
// and the memory to which it points do not change.
unsafe impl<T> FromC for &Given<T> {
    type C = *const T;
}

// SAFETY: The pointer is NULL, or to an initialised structure as the type invariant requires. The
// structure and the memory to which it points do not change.
unsafe impl<T> FromC for Option<&Given<T>> {
    type C = *const T;
}

// SAFETY: The pointer is to initialised structures as the type invariant requires. They and the
// memory to which they point do not change.
unsafe impl<T> Element for Given<T> {
    type C = T;
}

impl<T> Deref for Given<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Declares the targets of the pointers of a C structure: one `Type`, or `[Type; count]`, where
/// `count` is the field with the number of elements. Each becomes a method of a [`Given`] structure
/// that returns [`None`] for NULL, but an empty array if `count` is zero. A pointer that is never
/// NULL is declared as `(Type)`, a type that is [`FromC`]. The C header must say the same.
macro_rules! pointers {
    ($structure:ty { $($field:ident: $target:tt),+ $(,)? }) => {
        impl $crate::kernel_ext::export_c::Given<$structure> {
            $($crate::kernel_ext::export_c::pointers!(@one $field, $target);)+
        }
    };
    (@one $field:ident, [$target:ty; $count:ident]) => {
        fn $field(&self) -> Option<&[$target]> {
            let len = self.$count as usize;
            // SAFETY: By the type invariant of `Given`, there are as many elements.
            (len == 0 || !self.$field.is_null()).then(|| unsafe {
                $crate::kernel_ext::export_c::FromCArray::from_c(self.$field, len)
            })
        }
    };
    (@one $field:ident, ($held:ident)) => {
        fn $field(&self) -> $held<'_> {
            // SAFETY: By the type invariant of `Given`, the pointer is as the type requires.
            unsafe { $crate::kernel_ext::export_c::FromC::from_c(self.$field) }
        }
    };
    (@one $field:ident, $target:tt) => {
        fn $field(&self) -> Option<&$crate::kernel_ext::export_c::Given<$target>> {
            // SAFETY: By the type invariant of `Given`, the pointer is NULL or to a structure that
            // is as the invariant requires.
            unsafe { self.$field.cast::<$crate::kernel_ext::export_c::Given<$target>>().as_ref() }
        }
    };
}
pub(crate) use pointers;

/// Lets C hold a value as a pointer to an incomplete type: `opaque!(c_type, RustType)`. C gets the
/// pointer as a `Pin<KBox<RustType>>`, passes it as a `&RustType`, and gives it up as the box.
macro_rules! opaque {
    ($c:ty, $rust:ty) => {
        // SAFETY: The pointer came from `into_ptr()`, and C does not give it up meanwhile.
        unsafe impl $crate::kernel_ext::export_c::FromC for &$rust {
            type C = *mut $c;
        }

        // SAFETY: The pointer came from `into_ptr()`, and C does not use it again.
        unsafe impl $crate::kernel_ext::export_c::FromC for Pin<KBox<$rust>> {
            type C = *mut $c;
        }

        impl $crate::kernel_ext::export_c::IntoPtr for Pin<KBox<$rust>> {
            type C = $c;

            fn into_ptr(self) -> *mut $c {
                ::kernel::types::ForeignOwnable::into_foreign(self).cast()
            }
        }
    };
}
pub(crate) use opaque;

/// A result that is converted to a C type.
pub(crate) trait IntoC {
    /// The C type.
    type C;

    /// Converts the result.
    fn into_c(self) -> Self::C;
}

/// A type that C has as a pointer.
pub(crate) trait IntoPtr {
    /// The type that the pointer points to in C.
    type C;

    /// Gives the value to C.
    fn into_ptr(self) -> *mut Self::C;
}

impl<T> IntoPtr for *mut T {
    type C = T;

    fn into_ptr(self) -> *mut T {
        self
    }
}

impl IntoC for () {
    type C = ();

    fn into_c(self) {}
}

impl IntoC for u32 {
    type C = u32;

    fn into_c(self) -> u32 {
        self
    }
}

impl IntoC for c_int {
    type C = c_int;

    fn into_c(self) -> c_int {
        self
    }
}

impl IntoC for Result<c_int> {
    type C = c_int;

    fn into_c(self) -> c_int {
        self.unwrap_or_else(|err| err.to_errno())
    }
}

impl IntoC for Result {
    type C = c_int;

    fn into_c(self) -> c_int {
        self.map_or_else(|err| err.to_errno(), |()| 0)
    }
}

impl<T: IntoPtr> IntoC for Result<T> {
    type C = *mut T::C;

    fn into_c(self) -> *mut T::C {
        self.map_or_else(|err| err.to_ptr(), T::into_ptr)
    }
}

impl<T: IntoPtr> IntoC for Option<T> {
    type C = *mut T::C;

    fn into_c(self) -> *mut T::C {
        self.map_or(core::ptr::null_mut(), T::into_ptr)
    }
}

/// Declares functions of a C header, with their bodies in Rust.
///
/// `in module;` names the bindings of the header. An argument `name[count]: Type` is a pointer to
/// as many elements as the argument `count` says.
///
/// C callers promise that arguments are valid during the call. So the body is a separate function,
/// which must be correct for any lifetimes of its arguments. A body that keeps an argument does not
/// compile:
///
/// ```text
/// fn ib_keep(pd: &Pd) -> Result {
///     KEPT.populate(pd); // static KEPT: SetOnce<&'static Pd>
///     Ok(())             // error[E0521]: borrowed data escapes outside of function
/// }
/// ```
macro_rules! export_c {
    (in $module:path; $(
        fn $name:ident($($arg:ident $([$len:ident])? : $ty:ty),* $(,)?) -> $ret:ty $body:block
    )+) => {$(
        #[no_mangle]
        #[allow(
            clippy::too_many_arguments,
            unused_variables,
            reason = "the C function has as many; an array has its length"
        )]
        extern "C" fn $name(
            $($arg: $crate::kernel_ext::export_c::export_c!(@raw $ty $(, $len)?)),*
        ) -> <$ret as $crate::kernel_ext::export_c::IntoC>::C {
            fn body($($arg: $ty),*) -> $ret $body

            $crate::kernel_ext::export_c::IntoC::into_c(body(
                $($crate::kernel_ext::export_c::export_c!(@from $ty, $arg $(, $len)?)),*
            ))
        }

        const _: unsafe extern "C" fn(
            $($crate::kernel_ext::export_c::export_c!(@c $ty $(, $len)?)),*
        ) -> <$ret as $crate::kernel_ext::export_c::IntoC>::C = {
            use $module as header;
            header::$name
        };
    )+};
    (@raw $ty:ty) => { $ty };
    (@raw $ty:ty, $len:ident) => { <$ty as $crate::kernel_ext::export_c::FromCArray>::C };
    (@c $ty:ty) => { <$ty as $crate::kernel_ext::export_c::FromC>::C };
    (@c $ty:ty, $len:ident) => { <$ty as $crate::kernel_ext::export_c::FromCArray>::C };
    (@from $ty:ty, $arg:ident) => { $arg };
    (@from $ty:ty, $arg:ident, $len:ident) => {
        // SAFETY: C callers fulfil the promises of the element during the call.
        unsafe { <$ty as $crate::kernel_ext::export_c::FromCArray>::from_c($arg, $len as usize) }
    };
}
pub(crate) use export_c;

/// Declares functions that C calls as operations of a table, for any `$t: $bound`. Otherwise as for
/// [`export_c!`].
macro_rules! callbacks {
    (for $t:ident: $bound:path; $(
        $(#[$attr:meta])*
        fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block
    )+) => {$(
        $(#[$attr])*
        ///
        /// # Safety
        ///
        /// Only C code may call this, as the operation of this name.
        #[allow(clippy::too_many_arguments, reason = "the C function has as many")]
        unsafe extern "C" fn $name<$t: $bound>(
            $($arg: <$ty as $crate::kernel_ext::export_c::FromC>::C),*
        ) -> <$ret as $crate::kernel_ext::export_c::IntoC>::C {
            fn body<$t: $bound>($($arg: $ty),*) -> $ret $body

            $crate::kernel_ext::export_c::IntoC::into_c(body::<$t>(
                // SAFETY: C callers fulfil the promises of the argument types during the call.
                $(unsafe { $crate::kernel_ext::export_c::FromC::from_c($arg) }),*
            ))
        }
    )+};
}
pub(crate) use callbacks;

/// Returns a string parameter of the module, which is declared in C.
///
/// `module_param_string()` must have declared it with the array `$array` and mode 0444.
macro_rules! string_parameter {
    ($array:path) => {{
        // SAFETY: The string is terminated. It is set before the module is initialised, and does
        // not change after that.
        let string: &'static ::kernel::str::CStr = unsafe {
            <::kernel::str::CStr as ::kernel::str::CStrExt>::from_char_ptr(
                (&raw const $array).cast(),
            )
        };
        string
    }};
}
pub(crate) use string_parameter;
