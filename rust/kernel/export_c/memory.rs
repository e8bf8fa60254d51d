// SPDX-License-Identifier: GPL-2.0

//! Arguments that are pointers to memory: structures, arrays, bytes, and memory for an answer.

use super::{FromC, FromCArray};
use core::{marker::PhantomData, mem::MaybeUninit, ops::Deref, slice};
use kernel::ffi::c_void;

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
