// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The attribute encoding of `RDMA_VERBS_IOCTL`.
//!
//! A [`Command`] is a header and an array of attributes. It borrows the values that the attributes
//! point to. So a command cannot outlive them, and the program cannot read a value while the kernel
//! may write it.

use core::{
    ffi::c_int,
    marker::PhantomData,
    mem::{
        offset_of,
        size_of,
        size_of_val, //
    },
};

use crate::{
    driver,
    errno::{
        Errno,
        Result, //
    },
    sys,
};

/// `struct ib_uverbs_attr`, with its unions reduced to the members in use.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attr {
    id: u16,
    len: u16,
    flags: u16,
    reserved: u16,
    data: u64,
}

/// `struct ib_uverbs_ioctl_hdr` with room for `N` attributes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<const N: usize> {
    length: u16,
    object_id: u16,
    method_id: u16,
    num_attrs: u16,
    reserved1: u64,
    driver_id: u32,
    reserved2: u32,
    attrs: [Attr; N],
}

const _: () = {
    use sys::{
        ib_uverbs_attr as CAttr,
        ib_uverbs_ioctl_hdr as CHdr, //
    };

    assert!(size_of::<Attr>() == size_of::<CAttr>());
    assert!(offset_of!(Attr, id) == offset_of!(CAttr, attr_id));
    assert!(offset_of!(Attr, len) == offset_of!(CAttr, len));
    assert!(offset_of!(Attr, flags) == offset_of!(CAttr, flags));
    assert!(offset_of!(Attr, reserved) == offset_of!(CAttr, attr_data));
    assert!(offset_of!(Attr, data) == offset_of!(CAttr, __bindgen_anon_1));

    assert!(size_of::<Message<0>>() == size_of::<CHdr>());
    assert!(offset_of!(Message<1>, length) == offset_of!(CHdr, length));
    assert!(offset_of!(Message<1>, object_id) == offset_of!(CHdr, object_id));
    assert!(offset_of!(Message<1>, method_id) == offset_of!(CHdr, method_id));
    assert!(offset_of!(Message<1>, num_attrs) == offset_of!(CHdr, num_attrs));
    assert!(offset_of!(Message<1>, reserved1) == offset_of!(CHdr, reserved1));
    assert!(offset_of!(Message<1>, driver_id) == offset_of!(CHdr, driver_id));
    assert!(offset_of!(Message<1>, reserved2) == offset_of!(CHdr, reserved2));
    assert!(offset_of!(Message<1>, attrs) == offset_of!(CHdr, attrs));
};

impl<const N: usize> Message<N> {
    const fn new(object: u32, method: u32) -> Self {
        Self {
            length: 0,
            // CAST: Ids have 16 bits; the bindings use unsigned int, the type of C enumerators.
            object_id: object as u16,
            method_id: method as u16,
            num_attrs: 0,
            reserved1: 0,
            driver_id: 0,
            reserved2: 0,
            attrs: [Attr {
                id: 0,
                len: 0,
                flags: 0,
                reserved: 0,
                data: 0,
            }; N],
        }
    }

    /// Makes a message without attributes.
    pub(crate) const fn nothing(object: u32, method: u32) -> Self {
        let mut message = Self::new(object, method);

        // CAST: As asserted above, the size is 24 bytes.
        message.length = size_of::<Message<0>>() as u16;
        message
    }

    /// Sends the message to the kernel, addressed to one driver.
    pub(crate) fn send(&mut self, fd: c_int, driver_id: u32) -> Result {
        self.driver_id = driver_id;

        // SAFETY: The kernel reads `length` bytes, which are within the message, and writes
        // attributes back in place. The attributes point to arguments of a `Command`, which borrows
        // them.
        let ret = unsafe {
            libc::ioctl(
                fd,
                sys::ibmkey_verbs_ioctl as _,
                core::ptr::from_mut(self).cast::<libc::c_void>(),
            )
        };

        if ret == 0 {
            Ok(())
        } else {
            Err(Errno::last())
        }
    }
}

/// A type that may be shared with the kernel, or with a device, as bytes.
///
/// # Safety
///
/// The type has no padding and no invariant: all its bytes are initialised, and any values of them
/// are valid.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($number:ty),+) => {
        // SAFETY: A number has no padding, and any bytes are a valid number.
        $(unsafe impl Plain for $number {})+
    };
}

plain!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);
// SAFETY: An array has no padding between its elements, and `T` has none in them.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

macro_rules! plain_structs {
    ($($name:ident),+ $(,)?) => {
        // SAFETY: The fields are integers in naturally aligned order, as the bindings assert.
        $(unsafe impl Plain for sys::$name {})+
    };
}

plain_structs!(
    ib_uverbs_mkey_bind,
    ib_uverbs_mkey_block,
    ib_uverbs_mkey_caps,
    ib_uverbs_mkey_indexed,
    ib_uverbs_mkey_info,
    ib_uverbs_mkey_layout,
    ib_uverbs_mkey_refused,
    ib_uverbs_mkey_refused_access,
    ib_uverbs_mkey_sge,
);

/// A method call under construction, with at most `N` attributes.
pub(crate) struct Command<'a, const N: usize> {
    message: Message<N>,
    used: usize,
    /// The attribute in which the kernel stores a new handle.
    created: Option<usize>,
    /// Set if an argument is too long for an attribute, or if there are more than `N` attributes.
    unfit: bool,
    borrowed: PhantomData<&'a mut ()>,
}

impl<'a, const N: usize> Command<'a, N> {
    pub(crate) const fn new(object: u32, method: u32) -> Self {
        Self {
            message: Message::new(object, method),
            used: 0,
            created: None,
            unfit: false,
            borrowed: PhantomData,
        }
    }

    fn push(mut self, id: u32, len: usize, data: u64) -> Self {
        match (self.message.attrs.get_mut(self.used), u16::try_from(len)) {
            (Some(attr), Ok(len)) => {
                *attr = Attr {
                    // CAST: Ids have 16 bits, as above.
                    id: id as u16,
                    len,
                    flags: sys::UVERBS_ATTR_F_MANDATORY as u16,
                    reserved: 0,
                    data,
                };
                self.used = self.used.saturating_add(1);
            }
            _ => self.unfit = true,
        }
        self
    }

    /// Adds an existing object.
    pub(crate) fn object(self, id: u32, handle: u32) -> Self {
        self.push(id, 0, handle.into())
    }

    /// Adds an object that the call creates. The call returns its handle.
    pub(crate) fn new_object(mut self, id: u32) -> Self {
        self.created = Some(self.used);
        self.push(id, 0, 0)
    }

    /// Adds an array. The attribute itself contains an array of up to 8 bytes, and points to a
    /// longer one.
    pub(crate) fn slice<T: Plain>(self, id: u32, values: &'a [T]) -> Self {
        let len = size_of_val(values);
        let data = values.as_ptr();

        if len > size_of::<u64>() {
            return self.push(id, len, data as u64);
        }

        let mut inline = [0u8; size_of::<u64>()];
        // SAFETY: `T` is plain, so the `len` bytes of the array are initialised. As checked above,
        // they fit.
        unsafe { core::ptr::copy_nonoverlapping(data.cast::<u8>(), inline.as_mut_ptr(), len) };
        self.push(id, len, u64::from_ne_bytes(inline))
    }

    /// Adds a 32-bit number or set of flags.
    pub(crate) fn u32(self, id: u32, value: u32) -> Self {
        let mut inline = [0u8; size_of::<u64>()];
        let (head, _) = inline.split_at_mut(size_of::<u32>());

        head.copy_from_slice(&value.to_ne_bytes());
        self.push(id, size_of::<u32>(), u64::from_ne_bytes(inline))
    }

    /// Adds a 64-bit number, or an address that the method reads itself.
    pub(crate) fn u64(self, id: u32, value: u64) -> Self {
        self.push(id, size_of::<u64>(), value)
    }

    /// Adds a value that the call fills in.
    pub(crate) fn out<T: Plain>(self, id: u32, value: &'a mut T) -> Self {
        self.push(id, size_of::<T>(), core::ptr::from_mut(value) as u64)
    }

    /// Adds a value that a kernel fills in if it knows the attribute.
    pub(crate) fn hint<T: Plain>(self, id: u32, value: &'a mut T) -> Self {
        let at = self.used;
        let mut command = self.out(id, value);

        if let Some(attr) = command.message.attrs.get_mut(at) {
            attr.flags = 0;
        }
        command
    }

    /// Adds an array that the kernel fills in.
    pub(crate) fn out_slice<T: Plain>(self, id: u32, values: &'a mut [T]) -> Self {
        self.push(id, size_of_val(values), values.as_mut_ptr() as u64)
    }

    /// Runs the call.
    ///
    /// Returns the handle of the created object, or 0 if the call creates none.
    pub(crate) fn run(mut self, fd: c_int) -> Result<u32> {
        // An argument that is too long for an attribute is too long for every method. Methods
        // return this errno value for such an argument.
        if self.unfit {
            return Err(Errno::EINVAL);
        }

        // CAST: The number of attributes is at most N, which is small, and so is the length.
        self.message.num_attrs = self.used as u16;
        self.message.length = self
            .used
            .saturating_mul(size_of::<Attr>())
            .saturating_add(size_of::<Message<0>>()) as u16;

        driver::send(fd, &mut self.message)?;

        let created = self.created.and_then(|at| self.message.attrs.get(at));
        // CAST: Handles have 32 bits.
        Ok(created.map_or(0, |attr| attr.data as u32))
    }
}

#[cfg(test)]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used
)]
#[path = "ioctl_tests.rs"]
mod tests;
