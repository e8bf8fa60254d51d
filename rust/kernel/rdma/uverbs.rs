// SPDX-License-Identifier: GPL-2.0

//! Whether `ib_uverbs` came before this module's client.
//!
//! `ib_core` removes a device from its clients last in, first out. A later `ib_uverbs` therefore
//! waits for all programs before the client is told that the device goes. An older one does not: the
//! client's data goes while programs have the device open. It may be unloaded and loaded again, and
//! then is the later one.
//!
//! C header: [`include/linux/module.h`](srctree/include/linux/module.h)

use super::client::uverbs_is_loaded;
use crate::{bindings, kernel_ext::error::eopnotsupp};
use core::ptr;
use kernel::{
    error::to_result,
    ffi::{c_int, c_ulong, c_void},
    prelude::*,
    str::CStr,
    sync::atomic::{ordering, Atomic},
    types::Opaque,
};

/// Until it is known that a later `ib_uverbs` calls, it may be an older one.
static OLDER: Atomic<bool> = Atomic::new(true);

/// Returns `true` if `ib_uverbs` is older than the client, or may be.
pub(crate) fn is_older() -> bool {
    OLDER.load(ordering::Acquire)
}

/// Refuses to give a program what depends on the client's data.
///
/// # Errors
///
/// `EOPNOTSUPP` if `ib_uverbs` is older.
pub(super) fn refuse_older() -> Result {
    if is_older() {
        return Err(eopnotsupp());
    }
    Ok(())
}

/// Follows `ib_uverbs`, until it is dropped.
#[pin_data(PinnedDrop)]
pub(crate) struct Follower {
    #[pin]
    block: Opaque<bindings::notifier_block>,
}

// SAFETY: The block is the notifier's between registration and its end.
unsafe impl Send for Follower {}
// SAFETY: As above.
unsafe impl Sync for Follower {}

impl Follower {
    /// Begins to follow. Called once, when the client is registered: an `ib_uverbs` that is not
    /// there now will be later than the client.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Pin<KBox<Self>>> {
        let block = |block: *mut bindings::notifier_block| {
            let new = bindings::notifier_block {
                notifier_call: Some(Self::notify),
                next: ptr::null_mut(),
                priority: 0,
            };
            // SAFETY: `block` is valid for writes, and stays where it is until it is unregistered.
            unsafe {
                block.write(new);
                to_result(bindings::register_module_notifier(block))
            }
        };
        let this = KBox::try_pin_init(
            try_pin_init!(Self {
                block <- Opaque::try_ffi_init(block),
            }? Error),
            GFP_KERNEL,
        )?;
        if !uverbs_is_loaded() {
            OLDER.store(false, ordering::Release);
        }
        Ok(this)
    }

    /// # Safety
    ///
    /// Only for the kernel to call, with a module that changes its state.
    unsafe extern "C" fn notify(
        _block: *mut bindings::notifier_block,
        action: c_ulong,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: By the safety requirement; the name is terminated.
        let name = unsafe {
            let module = data.cast::<bindings::module>();
            CStr::from_char_ptr((&raw const (*module).name).cast())
        };
        // Its clients are unregistered and all its users are gone.
        let gone = bindings::module_state_MODULE_STATE_GOING as c_ulong;
        if action == gone && name.to_bytes() == b"ib_uverbs" {
            OLDER.store(false, ordering::Release);
        }
        0
    }
}

#[pinned_drop]
impl PinnedDrop for Follower {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: As registered by `new()`.
        unsafe { bindings::unregister_module_notifier(self.block.get()) };
    }
}
