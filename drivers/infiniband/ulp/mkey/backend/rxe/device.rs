// SPDX-License-Identifier: GPL-2.0

//! The devices of rxe that have this module as their provider, and the data that rxe keeps for them.

use super::bindings;
use crate::kernel_ext::rdma::Device;
use core::ptr::NonNull;
use kernel::ffi::c_void;

/// Returns `true` if `device` belongs to an rxe that this module was built with, and has this module
/// as its provider.
#[inline]
pub(super) fn is_ours(device: &Device) -> bool {
    // SAFETY: The device is valid.
    unsafe { bindings::ib_mkey_rxe_is_ours(device.as_raw()) }
}

/// Returns what `ib_mkey_rxe_add()` made, if this module is the provider of `device`.
#[inline]
pub(crate) fn data(device: &Device) -> Option<NonNull<c_void>> {
    // SAFETY: The device is valid.
    NonNull::new(unsafe { bindings::ib_mkey_rxe_data(device.as_raw()) })
}

/// Makes `$new`, a `fn(NewDevice<'_>, &CStr) -> Result<Arc<$data>>`, make what rxe keeps for each
/// device. This can be used once.
macro_rules! rxe_keeps {
    ($data:ty, $new:path) => {
        /// Puts the data of `device` into `data`, before rxe registers the device as `name`.
        ///
        /// # Safety
        ///
        /// Only `provider.c` may call this, once for each device, with its operations set.
        #[no_mangle]
        unsafe extern "C" fn ib_mkey_rxe_add(
            device: *mut $crate::bindings::ib_device,
            name: *const ::kernel::ffi::c_char,
            data: *mut *mut ::kernel::ffi::c_void,
        ) -> ::kernel::ffi::c_int {
            ::kernel::error::from_result(|| {
                // SAFETY: rxe calls this once for each device, which no other code uses yet, with
                // the name that the device gets.
                let (device, name) = unsafe {
                    (
                        $crate::kernel_ext::rdma::device::NewDevice::from_raw(device),
                        ::kernel::str::CStr::from_char_ptr(name),
                    )
                };
                let this: ::kernel::sync::Arc<$data> = $new(device, name)?;
                // SAFETY: `data` is a field of the device, in which rxe keeps the data.
                unsafe { *data = ::kernel::sync::Arc::into_raw(this).cast_mut().cast() };
                Ok(0)
            })
        }

        /// Drops the data of a device that has no users and no objects any more.
        ///
        /// # Safety
        ///
        /// Only `provider.c` may call this, once, with what `ib_mkey_rxe_add()` made.
        #[no_mangle]
        unsafe extern "C" fn ib_mkey_rxe_remove(data: *mut ::kernel::ffi::c_void) {
            // SAFETY: `ib_mkey_rxe_add()` made the data, and nothing borrows them any more.
            drop(unsafe { ::kernel::sync::Arc::from_raw(data.cast_const().cast::<$data>()) });
        }

        impl $data {
            /// Finds the data of an extended device. They stay as long as the device.
            ///
            /// # Errors
            ///
            /// `EOPNOTSUPP` for a device that is not extended.
            #[inline]
            pub(crate) fn data(device: &$crate::kernel_ext::rdma::Device) -> Result<&Self> {
                let data = $crate::backend::device_data(device)
                    .ok_or_else($crate::kernel_ext::error::eopnotsupp)?;
                // SAFETY: `ib_mkey_rxe_add()` made the data. `ib_mkey_rxe_remove()` takes them back
                // when the device has no users.
                Ok(unsafe { &*data.cast::<Self>().as_ptr() })
            }

            /// Returns a reference to the data, if the device is extended.
            fn shared(
                device: &$crate::kernel_ext::rdma::Device,
            ) -> Option<::kernel::sync::Arc<Self>> {
                let data = $crate::backend::device_data(device)?;
                let data = data.cast::<Self>().as_ptr();
                // SAFETY: `ib_mkey_rxe_add()` got the pointer by `Arc::into_raw()`. The data stay as
                // long as the device.
                Some(unsafe { ::kernel::sync::ArcBorrow::from_raw(data) }.into())
            }
        }
    };
}
pub(crate) use rxe_keeps;
