// SPDX-License-Identifier: GPL-2.0

//! Functions that a module exports to C.
//!
//! [`export_c!`] declares such a function as its C header does, and checks that the types are the
//! same. The type of each argument expresses the promises of the C caller: [`FromC`] and
//! [`FromCArray`] state them in one place for each type. The body is safe code. [`IntoC`] converts
//! the result to a C type.

use core::{marker::PhantomData, mem::MaybeUninit, ops::Deref, slice};
use kernel::{
    ffi::{c_int, c_void},
    prelude::*,
    sync::{Arc, ArcBorrow},
};

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

/// A structure that C passes for reading. The memory that it points to is valid, too, as its header
/// says.
pub(crate) struct Given<'a, T>(&'a T);

// SAFETY: The pointer is to an initialised structure that does not change, and the memory that it
// points to is valid. Both stay so for `'a`.
unsafe impl<'a, T> FromC for Given<'a, T> {
    type Raw = *const T;

    unsafe fn from_c(raw: *const T) -> Self {
        // SAFETY: By the safety requirement.
        Self(unsafe { &*raw })
    }
}

impl<T> Deref for Given<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<'a, T> Given<'a, T> {
    /// Returns the value that the pointer `field` of the structure points to; [`None`] for NULL.
    ///
    /// # Safety
    ///
    /// By the header, the field must be a valid pointer or NULL.
    pub(crate) unsafe fn pointee<U>(
        &self,
        field: impl FnOnce(&T) -> *const U,
    ) -> Option<Given<'a, U>> {
        // SAFETY: By the safety requirement, and valid for `'a` as the structure is.
        unsafe { field(self.0).as_ref() }.map(Given)
    }

    /// Returns the `len` elements that the pointer `field` of the structure points to. Returns
    /// [`None`] for NULL, unless `len` is zero.
    ///
    /// # Safety
    ///
    /// By the header, the field must be a pointer to as many elements, or NULL.
    pub(crate) unsafe fn elements<U>(
        &self,
        field: impl FnOnce(&T) -> *const U,
        len: usize,
    ) -> Option<&'a [U]> {
        let first = field(self.0);
        if first.is_null() {
            return (len == 0).then_some(&[]);
        }
        // SAFETY: As for `pointee()`.
        Some(unsafe { slice::from_raw_parts(first, len) })
    }
}

/// Declares the targets of the pointers of a C structure: one `Type`, or `[Type; count]`, where
/// `count` is the field with the number of elements. Each becomes a method of a [`Given`] structure
/// that returns [`None`] for NULL. A pointer that is never NULL is declared as `(Type)`, a type
/// that is [`FromC`]. The C header must say the same.
macro_rules! pointers {
    ($structure:ty { $($field:ident: $target:tt),+ $(,)? }) => {
        impl<'a> $crate::kernel_ext::export_c::Given<'a, $structure> {
            $($crate::kernel_ext::export_c::pointers!(@one $field, $target);)+
        }
    };
    (@one $field:ident, [$target:ty; $count:ident]) => {
        fn $field(&self) -> Option<&'a [$target]> {
            // SAFETY: The C header promises this, as `pointers!` requires.
            unsafe { self.elements(|this| this.$field, self.$count as usize) }
        }
    };
    (@one $field:ident, ($held:ident)) => {
        fn $field(&self) -> $held<'a> {
            // SAFETY: The C header promises this, as `pointers!` requires.
            unsafe { $crate::kernel_ext::export_c::FromC::from_c(self.$field) }
        }
    };
    (@one $field:ident, $target:tt) => {
        fn $field(&self) -> Option<$crate::kernel_ext::export_c::Given<'a, $target>> {
            // SAFETY: The C header promises this, as `pointers!` requires.
            unsafe { self.pointee(|this| this.$field) }
        }
    };
}
pub(crate) use pointers;

/// Structures that C passes for reading, each as [`Given`].
pub(crate) struct GivenArray<'a, T> {
    first: *const T,
    len: usize,
    _given: PhantomData<&'a T>,
}

// SAFETY: The pointer is to that many structures as for `Given`.
unsafe impl<'a, T> FromCArray for GivenArray<'a, T> {
    type Raw = *const T;

    unsafe fn from_c(raw: *const T, len: usize) -> Self {
        Self {
            first: raw,
            len,
            _given: PhantomData,
        }
    }
}

impl<'a, T> GivenArray<'a, T> {
    /// Returns structure `index`.
    pub(crate) fn get(&self, index: usize) -> Option<Given<'a, T>> {
        // SAFETY: There are `len` structures.
        (index < self.len).then(|| Given(unsafe { &*self.first.add(index) }))
    }

    /// Returns the structures in their order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Given<'a, T>> + Clone {
        let first = self.first;
        // SAFETY: There are `len` structures.
        (0..self.len).map(move |index| Given(unsafe { &*first.add(index) }))
    }
}

// SAFETY: The pointer is to an initialised value that nothing else uses for `'a`.
unsafe impl<'a, T> FromC for &'a mut T {
    type Raw = *mut T;

    unsafe fn from_c(raw: *mut T) -> Self {
        // SAFETY: By the safety requirement.
        unsafe { &mut *raw }
    }
}

/// Memory for an answer, which need not be initialised.
pub(crate) struct Out<'a, T>(&'a mut MaybeUninit<T>);

// SAFETY: The pointer is to memory for a `T` that nothing else uses for `'a`.
unsafe impl<'a, T> FromC for Out<'a, T> {
    type Raw = *mut T;

    unsafe fn from_c(raw: *mut T) -> Self {
        // SAFETY: By the safety requirement.
        Self(unsafe { &mut *raw.cast() })
    }
}

// SAFETY: The pointer is NULL, or as for `Out`.
unsafe impl<'a, T> FromC for Option<Out<'a, T>> {
    type Raw = *mut T;

    unsafe fn from_c(raw: *mut T) -> Self {
        // SAFETY: By the safety requirement.
        unsafe { raw.cast::<MaybeUninit<T>>().as_mut() }.map(Out)
    }
}

impl<T> Out<'_, T> {
    /// Writes the answer.
    pub(crate) fn set(self, value: T) {
        self.0.write(value);
    }
}

// SAFETY: The pointer is to `len` initialised values that do not change for `'a`, if there are any.
unsafe impl<'a, T> FromCArray for &'a [T] {
    type Raw = *const T;

    unsafe fn from_c(raw: *const T, len: usize) -> Self {
        if len == 0 {
            return &[];
        }
        // SAFETY: By the safety requirement.
        unsafe { slice::from_raw_parts(raw, len) }
    }
}

// SAFETY: The pointer is to `len` initialised values that nothing else uses for `'a`.
unsafe impl<'a, T> FromCArray for &'a mut [T] {
    type Raw = *mut T;

    unsafe fn from_c(raw: *mut T, len: usize) -> Self {
        // SAFETY: By the safety requirement.
        unsafe { slice::from_raw_parts_mut(raw, len) }
    }
}

/// Bytes that C passes for reading. Rust code never has a reference to them.
pub(crate) struct Bytes<'a> {
    start: *const u8,
    len: usize,
    _given: PhantomData<&'a [u8]>,
}

// SAFETY: The pointer is valid for reads of `len` bytes for `'a`.
unsafe impl<'a> FromCArray for Bytes<'a> {
    type Raw = *const c_void;

    unsafe fn from_c(raw: *const c_void, len: usize) -> Self {
        Self {
            start: raw.cast(),
            len,
            _given: PhantomData,
        }
    }
}

impl Bytes<'_> {
    /// Returns the first byte and the number of bytes.
    pub(crate) fn as_raw(&self) -> (*const u8, usize) {
        (self.start, self.len)
    }
}

/// Bytes that C passes for writing. Rust code never has a reference to them.
pub(crate) struct BytesMut<'a> {
    start: *mut u8,
    len: usize,
    _given: PhantomData<&'a mut [u8]>,
}

// SAFETY: The pointer is valid for writes of `len` bytes for `'a`.
unsafe impl<'a> FromCArray for BytesMut<'a> {
    type Raw = *mut c_void;

    unsafe fn from_c(raw: *mut c_void, len: usize) -> Self {
        Self {
            start: raw.cast(),
            len,
            _given: PhantomData,
        }
    }
}

impl<'a> From<&'a mut [u8]> for BytesMut<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Self {
            start: bytes.as_mut_ptr(),
            len: bytes.len(),
            _given: PhantomData,
        }
    }
}

impl BytesMut<'_> {
    /// Returns the first byte and the number of bytes.
    pub(crate) fn as_raw(&self) -> (*mut u8, usize) {
        (self.start, self.len)
    }
}

/// An incomplete type of a C header. All pointers of C to it come from [`ForC`].
pub(crate) trait Opaque {
    /// The Rust type behind it.
    type Rust: Send + Sync;
}

/// An opaque value that C will hold.
pub(crate) struct ForC<C: Opaque>(pub(crate) Arc<C::Rust>);

impl<C: Opaque> IntoPtr for ForC<C> {
    type C = C;

    fn into_ptr(self) -> *mut C {
        Arc::into_raw(self.0).cast_mut().cast()
    }
}

/// An opaque value that C holds.
pub(crate) struct HeldOpaque<'a, C: Opaque>(ArcBorrow<'a, C::Rust>);

// SAFETY: The pointer came from `ForC`, and C does not give it up for `'a`.
unsafe impl<C: Opaque> FromC for HeldOpaque<'_, C> {
    type Raw = *mut C;

    unsafe fn from_c(raw: *mut C) -> Self {
        // SAFETY: By the safety requirement, it came from `Arc::into_raw()`.
        Self(unsafe { ArcBorrow::from_raw(raw.cast::<C::Rust>()) })
    }
}

impl<C: Opaque> Deref for HeldOpaque<'_, C> {
    type Target = C::Rust;

    fn deref(&self) -> &C::Rust {
        &self.0
    }
}

/// An opaque value that C gives up, unless the function fails.
pub(crate) struct GivenUp<'a, C: Opaque> {
    raw: *mut C,
    held: HeldOpaque<'a, C>,
}

// SAFETY: As for `HeldOpaque`, and C does not use the pointer again after it was taken.
unsafe impl<C: Opaque> FromC for GivenUp<'_, C> {
    type Raw = *mut C;

    unsafe fn from_c(raw: *mut C) -> Self {
        Self {
            raw,
            // SAFETY: By the safety requirement.
            held: unsafe { HeldOpaque::from_c(raw) },
        }
    }
}

impl<C: Opaque> Deref for GivenUp<'_, C> {
    type Target = C::Rust;

    fn deref(&self) -> &C::Rust {
        &self.held
    }
}

impl<C: Opaque> GivenUp<'_, C> {
    /// Takes the value. The function must not fail after this.
    pub(crate) fn take(self) -> Arc<C::Rust> {
        // SAFETY: It came from `Arc::into_raw()`, and C does not use it again.
        unsafe { Arc::from_raw(self.raw.cast::<C::Rust>()) }
    }
}

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
