// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Finds the driver that a message must be addressed to.
//!
//! A message names a driver. If the device has another driver, the kernel returns EINVAL without
//! reading more. libibverbs knows the driver of a context but does not report it, and neither does
//! sysfs, nor a method that works without this knowledge. But a method that no driver has returns
//! EPROTONOSUPPORT for the right driver and EINVAL for all others, so this can be used to find the
//! driver.

use core::{
    ffi::c_int,
    sync::atomic::{
        AtomicU32,
        Ordering, //
    },
};

use crate::{
    errno::{
        Errno,
        Result, //
    },
    ioctl::Message,
};

/// The highest id that is tried. The kernel numbers drivers consecutively and has about twenty.
const MAX_DRIVER_ID: u32 = 63;

/// An object and a method that do not exist: valid ids are much lower.
const NO_OBJECT: u32 = 0xfff;
const NO_METHOD: u32 = 0xfff;

/// The driver that answered last. Most processes use devices of one driver, and a wrong guess is
/// detected. So this is not stored for each context, whose address may later belong to another
/// device.
static LAST: AtomicU32 = AtomicU32::new(crate::sys::RDMA_DRIVER_RXE);

fn is_driver(fd: c_int, id: u32) -> bool {
    let mut nothing = Message::<0>::nothing(NO_OBJECT, NO_METHOD);

    matches!(nothing.send(fd, id), Err(errno) if errno.get() == libc::EPROTONOSUPPORT)
}

fn find(fd: c_int) -> Option<u32> {
    (0..=MAX_DRIVER_ID).find(|&id| is_driver(fd, id))
}

/// Sends `message` to the driver of the device that `fd` refers to.
pub(crate) fn send<const N: usize>(fd: c_int, message: &mut Message<N>) -> Result {
    let guess = LAST.load(Ordering::Relaxed);
    let mut result = message.send(fd, guess);

    // EINVAL may come from the method, after the kernel has acted on parts of the message. Send the
    // message again only if the kernel cannot have read it.
    if result == Err(Errno::EINVAL) && !is_driver(fd, guess) {
        if let Some(id) = find(fd) {
            LAST.store(id, Ordering::Relaxed);
            result = message.send(fd, id);
        }
    }

    // Both mean that the kernel lacks the method.
    result.map_err(|errno| match errno.get() {
        libc::EPROTONOSUPPORT | libc::ENOTTY => Errno::EOPNOTSUPP,
        _ => errno,
    })
}
