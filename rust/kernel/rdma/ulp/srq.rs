// SPDX-License-Identifier: GPL-2.0

//! Receives that several connections share.
//!
//! The end of a connection does not flush them: they stay for the other connections. So a [`Srq`]
//! owns them until they complete, and frees those that are left when it is dropped.

use super::{DevicePd, MAX_SEGMENTS};
use crate::{
    bindings,
    kernel_ext::sync::lock::{new_irq_lock, IrqLock},
};
use core::{marker::PhantomData, mem, ptr, ptr::NonNull};
use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
};

/// A request that can be a receive of an SRQ, whatever its type is.
pub(super) trait Receive: Send {
    /// Returns its place in the table of the SRQ.
    fn slot(&self) -> &Atomic<usize>;
}

/// The SRQ of a device.
struct RawSrq(NonNull<bindings::ib_srq>);

// SAFETY: Any thread may use an SRQ.
unsafe impl Send for RawSrq {}
// SAFETY: Any thread may post to an SRQ, also several at once.
unsafe impl Sync for RawSrq {}

impl RawSrq {
    fn new(pd: &DevicePd, room: u32) -> Result<Self> {
        let mut init: bindings::ib_srq_init_attr = pin_init::zeroed();
        init.attr.max_wr = room;
        init.attr.max_sge = MAX_SEGMENTS as u32;
        init.srq_type = bindings::ib_srq_type_IB_SRQT_BASIC;
        // SAFETY: The device is registered.
        if unsafe { (*pd.device().as_raw()).ops.create_srq }.is_none() {
            return Err(Error::from_errno(-(bindings::EOPNOTSUPP as i32)));
        }
        // SAFETY: The domain and the attributes are valid, and the device makes SRQs.
        let raw = from_err_ptr(unsafe {
            bindings::ib_create_srq_user(pd.as_raw(), &mut init, ptr::null_mut(), ptr::null_mut())
        })?;
        Ok(Self(NonNull::new(raw).ok_or(ENOMEM)?))
    }
}

/// A shared receive queue: receives that connections with the data `C` share.
///
/// It holds its domain and the device. Its owners are the ULP and the connections
/// ([`Link::with_srq`](super::Link::with_srq)). When the last one is gone, it frees the receives that
/// have not completed, and sleeps. A receive must not own the SRQ or a [`Queue`](super::Queue) that
/// uses it, directly or through its data, because they would keep each other.
///
/// C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)
///
/// # Invariants
///
/// Only this destroys `raw`. While it is unlocked, `posted` has all receives that were posted to
/// `raw` and not taken after that, up to `room`. Each of them is at its [`Receive::slot`].
#[pin_data(PinnedDrop)]
pub(crate) struct Srq<C> {
    /// Has room for all receives, so posting does not allocate.
    #[pin]
    posted: IrqLock<KVVec<KBox<dyn Receive>>>,
    raw: RawSrq,
    room: u32,
    pd: Arc<DevicePd>,
    _session: PhantomData<fn(C) -> C>,
}

impl<C> Srq<C> {
    /// Makes an SRQ for `room` receives of up to [`MAX_SEGMENTS`] segments.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no receives or more than the device allows, `EOPNOTSUPP` if the device has no
    /// SRQs, `ENOMEM`.
    pub(crate) fn new(pd: &Arc<DevicePd>, room: u32) -> Result<Arc<Self>> {
        // SAFETY: The device is registered.
        let most = unsafe { (*pd.device().as_raw()).attrs.max_srq_wr };
        if room == 0 || i64::from(room) > i64::from(most) {
            return Err(EINVAL);
        }
        let table = KVVec::with_capacity(room as usize, GFP_KERNEL)?;
        Arc::pin_init(
            // INVARIANT: The SRQ is new. Nothing can fail after it is made.
            try_pin_init!(Self {
                posted <- new_irq_lock!(table, "Srq::posted"),
                raw: RawSrq::new(pd, room)?,
                room,
                pd: pd.clone(),
                _session: PhantomData,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Posts a receive. Returns it if it is refused.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no room; the errors of `ib_post_srq_recv()`.
    ///
    /// # Safety
    ///
    /// `receive` must begin with an `ib_cqe` whose `done` calls [`Self::take`], and have all memory
    /// that `recv` names.
    pub(super) unsafe fn post<T: Receive + 'static>(
        &self,
        receive: KBox<T>,
        recv: &mut bindings::ib_recv_wr,
    ) -> Result<(), (KBox<T>, Error)> {
        // If the receive completes at once, `take()` waits for this lock.
        let mut posted = self.posted.lock();
        if posted.len() >= self.room as usize {
            return Err((receive, ENOMEM));
        }
        receive.slot().store(posted.len(), ordering::Relaxed);
        let owned = KBox::into_raw(receive);
        // SAFETY: The SRQ is valid (type invariant), and the call copies the request. By the safety
        // requirement the box has what the device uses, and it is not freed before `take()`.
        let ret = unsafe {
            *recv.__bindgen_anon_1.wr_cqe.as_mut() = owned.cast();
            bindings::ib_post_srq_recv(self.as_raw(), recv, ptr::null_mut())
        };
        if let Err(error) = to_result(ret) {
            // SAFETY: The pointer is that of the box above. Nothing was posted.
            return Err((unsafe { KBox::from_raw(owned) }, error));
        }
        // SAFETY: The pointer is that of the box above. `take()` makes no second box: it takes this
        // one out of the table.
        let owned: KBox<dyn Receive> = unsafe { KBox::from_raw(owned as *mut dyn Receive) };
        // INVARIANT: The receive is at its slot. There is room, which was compared above.
        let _ = posted.push_within_capacity(owned);
        Ok(())
    }

    /// Takes a receive that the device has completed.
    ///
    /// # Safety
    ///
    /// `receive` must have been posted to this SRQ, and have completed. It is taken once.
    pub(super) unsafe fn take<T: Receive>(&self, receive: *mut T) -> KBox<T> {
        let mut posted = self.posted.lock();
        // SAFETY: By the safety requirement and the type invariant the table has the box.
        let slot = unsafe { (*receive).slot() }.load(ordering::Relaxed);
        // INVARIANT: The last receive is now at the slot of the one that is taken.
        if let Some(last) = posted.pop() {
            last.slot().store(slot, ordering::Relaxed);
            mem::forget(match posted.get_mut(slot) {
                Some(taken) => mem::replace(taken, last),
                None => last,
            });
        }
        // SAFETY: By the type invariant the box that was forgotten above is that of `receive`.
        unsafe { KBox::from_raw(receive) }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_srq {
        self.raw.0.as_ptr()
    }

    pub(super) fn pd(&self) -> &Arc<DevicePd> {
        &self.pd
    }

    /// Returns the largest number of receives that can be posted at once.
    pub(super) fn room(&self) -> u32 {
        self.room
    }
}

#[pinned_drop]
impl<C> PinnedDrop for Srq<C> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant. A queue pair with this SRQ is destroyed before its `Queue`
        // drops the SRQ.
        let failed = unsafe { bindings::ib_destroy_srq_user(self.as_raw(), ptr::null_mut()) };
        if failed != 0 {
            pr_err!("an SRQ cannot be destroyed: error {failed}\n");
            // The device may still write to their memory.
            mem::forget(mem::take(&mut *self.posted.lock()));
            mem::forget(self.pd.clone());
        }
    }
}
