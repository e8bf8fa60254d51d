// SPDX-License-Identifier: GPL-2.0

//! Kernel threads that their owner waits for, an event that a thread waits for, and allocations
//! without I/O.
//!
//! C header: [`include/linux/kthread.h`](srctree/include/linux/kthread.h)

use crate::{
    bindings,
    kernel_ext::sync::lock::{new_irq_lock, IrqLock},
};
use core::pin::Pin;
use kernel::{
    error::from_err_ptr,
    ffi::{c_int, c_void},
    new_condvar,
    prelude::*,
    str::{CStr, CStrExt},
    sync::{Arc, CondVar, CondVarTimeoutResult},
    time::msecs_to_jiffies,
    types::Opaque,
};

/// An event that one thread waits for, and that others set in any context.
#[pin_data]
pub(crate) struct Wake {
    #[pin]
    set: IrqLock<bool>,
    #[pin]
    changed: CondVar,
}

impl Wake {
    /// Makes an event that is not set.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                set <- new_irq_lock!(false, "Wake::set"),
                changed <- new_condvar!(),
            }),
            GFP_KERNEL,
        )
    }

    /// Sets the event.
    pub(crate) fn wake(&self) {
        *self.set.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until the event is set, or until `timeout_ms` are over. Clears the event. Returns
    /// `false` if a signal ended the wait: later waits would return at once, too.
    pub(crate) fn wait(&self, timeout_ms: u32) -> bool {
        let mut set = self.set.lock();
        let mut signal = false;
        if !*set {
            let timeout = msecs_to_jiffies(timeout_ms);
            let ended = self.changed.wait_interruptible_timeout(&mut set, timeout);
            signal = matches!(ended, CondVarTimeoutResult::Signal { .. });
        }
        *set = false;
        !signal
    }
}

/// Calls `body`, in which no allocation of this thread begins I/O. A thread that I/O waits for
/// would wait for itself. Work queues that it calls for allocate as they do otherwise.
pub(crate) fn without_io<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: It changes a flag of the current thread.
    let flags = unsafe { bindings::noio_begin() };
    let result = body();
    // SAFETY: The flags are those of the call above, and what `body` began has ended.
    unsafe { bindings::noio_end(flags) };
    result
}

/// A kernel thread. Dropping it waits until the thread has ended, so the owner tells the thread
/// before to end.
///
/// # Invariants
///
/// The thread completes `ended` once, as the last that it does.
pub(crate) struct Thread {
    ended: Pin<KBox<Opaque<bindings::completion>>>,
}

// SAFETY: Any thread may wait for a completion.
unsafe impl Send for Thread {}
// SAFETY: There is nothing to do with a reference.
unsafe impl Sync for Thread {}

struct Start<F> {
    body: F,
    ended: *mut bindings::completion,
}

impl Thread {
    /// Starts a thread that runs `body`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn spawn<F>(name: &'static CStr, body: F) -> Result<Self>
    where
        F: FnOnce() + Send + 'static,
    {
        let ended = KBox::into_pin(KBox::new(
            Opaque::<bindings::completion>::uninit(),
            GFP_KERNEL,
        )?);
        // SAFETY: There is room for a completion, which is pinned.
        unsafe { bindings::init_completion(ended.get()) };
        let start = Start {
            body,
            ended: ended.get(),
        };
        let start = KBox::into_raw(KBox::new(start, GFP_KERNEL)?);
        // SAFETY: `run()` takes over `start`, and the names are C strings.
        let task = from_err_ptr(unsafe {
            bindings::kthread_create_on_node(
                Some(Self::run::<F>),
                start.cast(),
                bindings::NUMA_NO_NODE,
                c"%s".as_char_ptr(),
                name.as_char_ptr(),
            )
        });
        match task {
            // SAFETY: The thread has not run, so it exists. Nothing else wakes or stops it.
            // INVARIANT: `run()` completes `ended`.
            Ok(task) => unsafe {
                bindings::wake_up_process(task);
                Ok(Self { ended })
            },
            Err(error) => {
                // SAFETY: There is no thread that took it over.
                drop(unsafe { KBox::from_raw(start) });
                Err(error)
            }
        }
    }

    /// # Safety
    ///
    /// Only a new thread may call this, with a `Start<F>` that it owns.
    unsafe extern "C" fn run<F: FnOnce()>(start: *mut c_void) -> c_int {
        // SAFETY: By the safety requirement.
        let start = unsafe { KBox::from_raw(start.cast::<Start<F>>()) };
        let Start { body, ended } = KBox::into_inner(start);
        body();
        // SAFETY: `Thread` frees the completion after it is completed. Nothing is left to drop.
        unsafe { bindings::kthread_complete_and_exit(ended, 0) }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: The completion is initialised.
        unsafe { bindings::wait_for_completion(self.ended.get()) };
    }
}
