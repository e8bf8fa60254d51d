// SPDX-License-Identifier: GPL-2.0

//! Functions that a module exports to C.
//!
//! [`export_c!`] declares such a function as its C header does, and checks that the types are the
//! same. The type of each argument expresses the promises of the C caller: [`FromC`] and
//! [`FromCArray`] state them in one place for each type. The body is safe code. [`IntoC`] converts
//! the result to a C type.
//!
//! `export_c/memory.rs` has the types of pointers to memory, and `export_c/opaque.rs` those of
//! pointers to incomplete types.

mod memory;
mod opaque;

pub(crate) use memory::{pointers, Bytes, BytesMut, Given, GivenArray, Out};
pub(crate) use opaque::{ForC, GivenUp, HeldOpaque, Opaque};

use kernel::{ffi::c_int, prelude::*};

/// An argument that is converted from a C type.
///
/// # Safety
///
/// The implementation states the promises of C callers about a `Raw`, and relies on nothing else.
pub(crate) unsafe trait FromC: Sized {
    /// The C type.
    type Raw;

    /// # Safety
    ///
    /// `raw` must fulfil the promises that the implementation states, as long as the result exists.
    unsafe fn from_c(raw: Self::Raw) -> Self;
}

/// An argument that is converted from a pointer and a number of elements.
///
/// # Safety
///
/// Those of [`FromC`], for `len` elements.
pub(crate) unsafe trait FromCArray: Sized {
    /// The C type.
    type Raw;

    /// # Safety
    ///
    /// `raw` must fulfil the promises that the implementation states, for `len` elements and as
    /// long as the result exists.
    unsafe fn from_c(raw: Self::Raw, len: usize) -> Self;
}

/// A result that is converted to a C type.
pub(crate) trait IntoC {
    /// The C type.
    type Raw;

    /// Converts the result.
    fn into_c(self) -> Self::Raw;
}

/// A type that C has as a pointer.
pub(crate) trait IntoPtr {
    /// The type that the pointer points to in C.
    type C;

    /// Gives the value to C.
    fn into_ptr(self) -> *mut Self::C;
}

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
        $(#[$attr:meta])*
        fn $name:ident($($arg:ident $([$len:ident])? : $ty:ty),* $(,)?) -> $ret:ty $body:block
    )+) => {$(
        $(#[$attr])*
        #[no_mangle]
        #[allow(
            clippy::missing_safety_doc,
            unused_variables,
            reason = "the C header says what callers promise; an array has its length"
        )]
        unsafe extern "C" fn $name(
            $($arg: $crate::kernel_ext::export_c::export_c!(@raw $ty $(, $len)?)),*
        ) -> <$ret as $crate::kernel_ext::export_c::IntoC>::Raw {
            #[allow(
                clippy::too_many_arguments,
                reason = "the C function has as many"
            )]
            fn body($($arg: $ty),*) -> $ret $body

            $crate::kernel_ext::export_c::IntoC::into_c(body(
                // SAFETY: C callers fulfil the promises of the argument types during the call.
                $(unsafe {
                    $crate::kernel_ext::export_c::export_c!(@from $ty, $arg $(, $len)?)
                }),*
            ))
        }

        const _: () = {
            use $module as header;
            let _ = if true { header::$name } else { $name };
        };
    )+};
    (@raw $ty:ty) => { <$ty as $crate::kernel_ext::export_c::FromC>::Raw };
    (@raw $ty:ty, $len:ident) => { <$ty as $crate::kernel_ext::export_c::FromCArray>::Raw };
    (@from $ty:ty, $arg:ident) => {
        <$ty as $crate::kernel_ext::export_c::FromC>::from_c($arg)
    };
    (@from $ty:ty, $arg:ident, $len:ident) => {
        <$ty as $crate::kernel_ext::export_c::FromCArray>::from_c($arg, $len as usize)
    };
}
pub(crate) use export_c;

macro_rules! scalars {
    ($($ty:ty),+) => {$(
        // SAFETY: Any value is valid.
        unsafe impl FromC for $ty {
            type Raw = Self;

            unsafe fn from_c(raw: Self) -> Self {
                raw
            }
        }
    )+};
}
scalars!(bool, i32, u32, u64, usize);

impl<T> IntoPtr for *mut T {
    type C = T;

    fn into_ptr(self) -> *mut T {
        self
    }
}

impl IntoC for Result {
    type Raw = c_int;

    fn into_c(self) -> c_int {
        self.map_or_else(|err| err.to_errno(), |()| 0)
    }
}

impl<T: IntoPtr> IntoC for Result<T> {
    type Raw = *mut T::C;

    fn into_c(self) -> *mut T::C {
        self.map_or_else(|err| err.to_ptr(), T::into_ptr)
    }
}

impl<T: IntoPtr> IntoC for Option<T> {
    type Raw = *mut T::C;

    fn into_c(self) -> *mut T::C {
        self.map_or(core::ptr::null_mut(), T::into_ptr)
    }
}
