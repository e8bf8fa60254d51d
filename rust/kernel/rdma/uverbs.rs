// SPDX-License-Identifier: GPL-2.0

//! Tells whether `ib_uverbs` was registered before this module's client.
//!
//! `ib_core` removes a device from its clients last in, first out. An `ib_uverbs` that was
//! registered later therefore waits for all processes before this client's `remove` is called. An
//! `ib_uverbs` that was registered earlier does not wait for them: this client's data are freed
//! while processes have the device open. After `ib_uverbs` is unloaded and loaded again, it is
//! registered later.
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

/// `false` once no `ib_uverbs` that was registered before the client can be loaded.
static OLDER: Atomic<bool> = Atomic::new(true);

/// Returns `true` if `ib_uverbs` may have been registered before the client.
pub(crate) fn is_older() -> bool {
    OLDER.load(ordering::Acquire)
}

/// Refuses an object that depends on the client's data to a process.
///
/// # Errors
///
/// `EOPNOTSUPP` if [`is_older`] returns `true`.
pub(super) fn refuse_older() -> Result {
    if is_older() {
        return Err(eopnotsupp());
    }
    Ok(())
}

/// Follows the loading and unloading of `ib_uverbs` until it is dropped.
#[pin_data(PinnedDrop)]
pub(crate) struct UverbsMonitor {
    #[pin]
    block: Opaque<bindings::notifier_block>,
}

// SAFETY: Only the notifier chain uses the block while it is registered.
unsafe impl Send for UverbsMonitor {}
// SAFETY: As above.
unsafe impl Sync for UverbsMonitor {}

impl UverbsMonitor {
    /// Begins to follow. The caller has registered the client: an `ib_uverbs` that is loaded after
    /// this call is later than the client.
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
    /// Only the kernel may call this, with a module whose state changes.
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
        // The clients of a module that is going are unregistered, and it has no users any more.
        let gone = bindings::module_state_MODULE_STATE_GOING as c_ulong;
        if action == gone && name.to_bytes() == b"ib_uverbs" {
            OLDER.store(false, ordering::Release);
        }
        0
    }
}

#[pinned_drop]
impl PinnedDrop for UverbsMonitor {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `new()` registered the block.
        unsafe { bindings::unregister_module_notifier(self.block.get()) };
    }
}
