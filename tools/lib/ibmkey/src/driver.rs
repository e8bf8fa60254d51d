// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Finds the driver that a message must be addressed to.
//!
//! A message names a driver. If the device has another driver, the kernel returns EINVAL without
//! reading more. Neither libibverbs nor sysfs tells the driver of a context, and every method that
//! could tell it needs its number first. But for a method that does not exist, the kernel returns
//! EPROTONOSUPPORT if the message names the right driver, and EINVAL otherwise. So the library
//! calls such a method for one driver after another.

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

/// The highest number of a driver that is tried. The kernel numbers drivers consecutively and has
/// about twenty.
const MAX_DRIVER_ID: u32 = 63;

/// The ids of an object and of a method that do not exist: valid ids are much lower.
const NO_OBJECT: u32 = 0xfff;
const NO_METHOD: u32 = 0xfff;

/// The number of the driver that was found last. Most processes use devices of one driver, and
/// [`send`] detects a wrong number. So the library stores one number only, not one for each
/// context: the address of a closed context can later be that of a context of another device.
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

    // EINVAL may come from the method, after the kernel has executed parts of the message. Send the
    // message again only if the driver was wrong, so that the kernel has not read the message.
    if result == Err(Errno::EINVAL) && !is_driver(fd, guess) {
        if let Some(id) = find(fd) {
            LAST.store(id, Ordering::Relaxed);
            result = message.send(fd, id);
        }
    }

    // Both values mean that the kernel lacks the method.
    result.map_err(|errno| match errno.get() {
        libc::EPROTONOSUPPORT | libc::ENOTTY => Errno::EOPNOTSUPP,
        _ => errno,
    })
}
