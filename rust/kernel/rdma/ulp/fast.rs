// SPDX-License-Identifier: GPL-2.0

//! Fast registration of pages that others own.

use super::{
    pd::{PdMr, Remote},
    DevicePd, HeldDevice,
};
use crate::{bindings, kernel_ext::rdma::mr_key};
use core::ptr;
use kernel::{dma::DataDirection, error::to_result, ffi::c_int, prelude::*, sync::Arc};

/// Pages for a device.
///
/// # Safety
///
/// The pages that `fill()` puts on the list must stay valid until this is dropped, and be as many
/// elements as it returns.
pub(crate) unsafe trait Pages: Send + 'static {
    /// Returns the direction in which the device moves data.
    fn direction(&self) -> DataDirection;

    /// Puts the pages on `list`, and returns the number of elements.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are more than the capacity.
    fn fill(&self, list: &mut ScatterList) -> Result<u32>;
}

/// No pages: requests that register none.
pub(crate) enum NoPages {}

// SAFETY: There is no value.
unsafe impl Pages for NoPages {
    fn direction(&self) -> DataDirection {
        match *self {}
    }

    fn fill(&self, _list: &mut ScatterList) -> Result<u32> {
        match *self {}
    }
}

/// A scatterlist, which is mapped for a device or not. Dropping it unmaps it.
///
/// # Invariants
///
/// If `mapped` is not zero, so many elements are mapped for `device` in `direction`.
pub(crate) struct ScatterList {
    elements: KVVec<bindings::scatterlist>,
    mapped: u32,
    direction: DataDirection,
    device: HeldDevice,
}

impl ScatterList {
    fn new(device: &HeldDevice, capacity: usize) -> Result<Self> {
        let mut elements = KVVec::with_capacity(capacity, GFP_KERNEL)?;
        for _ in 0..capacity {
            elements.push(pin_init::zeroed(), GFP_KERNEL)?;
        }
        // INVARIANT: Nothing is mapped.
        Ok(Self {
            elements,
            mapped: 0,
            direction: DataDirection::Bidirectional,
            device: device.clone(),
        })
    }

    /// Returns the number of elements that there is room for.
    pub(crate) fn capacity(&self) -> usize {
        self.elements.len()
    }

    /// Makes the list empty and returns its first element.
    pub(crate) fn reset(&mut self) -> *mut bindings::scatterlist {
        self.unmap();
        let (list, len) = (self.elements.as_mut_ptr(), self.elements.len());
        // SAFETY: There are so many elements.
        unsafe { bindings::sg_init_table(list, len as u32) };
        list
    }

    /// Maps the pages. Returns the number of elements for the device.
    fn map<P: Pages>(&mut self, pages: &P) -> Result<c_int> {
        let (direction, filled) = (pages.direction(), pages.fill(self)?);
        let list = self.elements.as_mut_ptr();
        if filled == 0 || filled as usize > self.capacity() {
            return Err(EINVAL);
        }
        // SAFETY: The list has so many elements, whose pages stay while `pages` exists.
        let count = unsafe {
            let raw = self.device.as_raw();
            bindings::ib_dma_map_sg(raw, list, filled as c_int, direction.into())
        };
        if count == 0 {
            return Err(ENOMEM);
        }
        self.direction = direction;
        self.mapped = filled;
        Ok(count)
    }

    fn unmap(&mut self) {
        let filled = core::mem::take(&mut self.mapped);
        if filled != 0 {
            let list = self.elements.as_mut_ptr();
            // SAFETY: By the type invariant.
            unsafe {
                let raw = self.device.as_raw();
                bindings::ib_dma_unmap_sg(raw, list, filled as c_int, self.direction.into());
            }
        }
    }
}

impl Drop for ScatterList {
    fn drop(&mut self) {
        self.unmap();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No peer can use the rkey.
    Free,
    /// Pages are mapped for the next registration.
    Mapped,
    /// A request has registered the MR, or may have.
    Registered,
}

/// An MR of the type with gaps, for pages of any offset and length. It owns the pages until no
/// peer can access them: until LOCAL_INV has succeeded or the MR is deregistered.
pub(crate) struct FastMr<P: Pages> {
    // Fields drop in declaration order: the MR is deregistered before the pages are unmapped, and
    // they are unmapped before their owner lets them go.
    mr: PdMr,
    list: ScatterList,
    pages: Option<P>,
    pub(super) state: State,
}

impl<P: Pages> FastMr<P> {
    /// Makes an MR for up to `segments` segments.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no segments, or if the device has no such MRs; `ENOMEM`.
    pub(crate) fn new(pd: &Arc<DevicePd>, segments: u16) -> Result<Self> {
        if segments == 0 {
            return Err(EINVAL);
        }
        // SAFETY: The domain is valid. `ib_alloc_mr()` returns a new MR in the domain, or an error.
        let mr = unsafe {
            let kind = bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS;
            PdMr::from_raw(
                bindings::ib_alloc_mr(pd.as_raw(), kind, segments.into()),
                pd,
            )
        }?;
        Ok(Self {
            mr,
            list: ScatterList::new(pd.held_device(), segments.into())?,
            pages: None,
            state: State::Free,
        })
    }

    /// Takes the pages, and maps them for the next registration. Returns the address and the rkey
    /// that they will have for a peer.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the MR has pages, `EINVAL` for too many segments, `ENOMEM`. The pages are
    /// returned.
    pub(crate) fn map(&mut self, pages: P) -> Result<Remote, (P, Error)> {
        if self.pages.is_some() || self.state != State::Free {
            return Err((pages, EBUSY));
        }
        let count = match self.list.map(&pages) {
            Ok(count) => count,
            Err(error) => return Err((pages, error)),
        };
        self.mr.set_key(mr_key::next(self.mr.rkey()));
        let (raw, list) = (self.mr.as_raw(), self.list.elements.as_mut_ptr());
        // SAFETY: The MR is free, and the list has so many mapped elements.
        let mapped = unsafe {
            bindings::ib_map_mr_sg(
                raw,
                list,
                count,
                ptr::null_mut(),
                bindings::PAGE_SIZE as u32,
            )
        };
        if mapped != count {
            self.list.unmap();
            return Err((pages, to_result(mapped).err().unwrap_or(EINVAL)));
        }
        self.pages = Some(pages);
        self.state = State::Mapped;
        Ok(Remote {
            addr: self.mr.iova(),
            rkey: self.mr.rkey(),
        })
    }

    /// Returns the pages, unless a peer may access them.
    pub(crate) fn release(&mut self) -> Option<P> {
        if self.state == State::Registered {
            return None;
        }
        self.list.unmap();
        self.state = State::Free;
        self.pages.take()
    }

    /// Deregisters the MR and returns the pages. Sleeps.
    pub(crate) fn into_pages(self) -> Option<P> {
        drop(self.mr);
        drop(self.list);
        self.pages
    }

    pub(super) fn mr(&self) -> &PdMr {
        &self.mr
    }
}
