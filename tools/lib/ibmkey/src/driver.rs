// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Which driver a message must be addressed to.
//!
//! A message names its driver, and the kernel looks at nothing else in it if
//! the device has another one: EINVAL. libibverbs knows the driver of a context
//! but does not tell, and neither sysfs nor a method that could be called
//! without knowing does. But a method that no driver has is EPROTONOSUPPORT to
//! the right driver and EINVAL to all others, so it can be found out.

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

/// Ids to try. The kernel numbers drivers one by one and has some twenty.
const MAX_DRIVER_ID: u32 = 63;

/// An object and a method that cannot exist: ids end far below.
const NO_OBJECT: u32 = 0xfff;
const NO_METHOD: u32 = 0xfff;

/// The driver that answered last. Most processes use devices of one driver, and
/// a wrong guess is noticed, so this needs no relation to a context, whose
/// address may be another device's next time.
static LAST: AtomicU32 = AtomicU32::new(crate::sys::RDMA_DRIVER_RXE);

fn is_driver(fd: c_int, id: u32) -> bool {
    let mut nothing = Message::<0>::nothing(NO_OBJECT, NO_METHOD);

    matches!(nothing.send(fd, id), Err(errno) if errno.get() == libc::EPROTONOSUPPORT)
}

fn find(fd: c_int) -> Option<u32> {
    (0..=MAX_DRIVER_ID).find(|&id| is_driver(fd, id))
}

/// Sends `message` to the driver of the device that `fd` has open.
pub(crate) fn send<const N: usize>(fd: c_int, message: &mut Message<N>) -> Result {
    let guess = LAST.load(Ordering::Relaxed);
    let mut result = message.send(fd, guess);

    // EINVAL may be the method's own, and the kernel may have acted on parts of
    // the message then: it is only sent again if it cannot have been looked at.
    if result == Err(Errno::EINVAL) && !is_driver(fd, guess) {
        if let Some(id) = find(fd) {
            LAST.store(id, Ordering::Relaxed);
            result = message.send(fd, id);
        }
    }

    // No such method, no such ioctl: both mean that the kernel has no support.
    result.map_err(|errno| match errno.get() {
        libc::EPROTONOSUPPORT | libc::ENOTTY => Errno::EOPNOTSUPP,
        _ => errno,
    })
}
