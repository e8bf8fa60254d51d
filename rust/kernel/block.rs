// SPDX-License-Identifier: GPL-2.0

//! Disks with limits, whose requests have one owner each and fail if they are dropped.
//!
//! `kernel::block::mq` has no limits for segments and alignment, no owner of a disk's operations,
//! no errors for requests, and no way to their pages. This adds these to its requests and tag sets.
//!
//! C header: [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h)

use crate::{
    bindings,
    kernel_ext::rdma::ulp::{Pages, ScatterList},
};
use core::marker::PhantomData;
use kernel::{
    block::mq::{Operations, Request, TagSet},
    dma::DataDirection,
    error::{from_err_ptr, to_result},
    prelude::*,
    static_lock_class,
    str::{CStr, CStrExt},
    sync::{aref::ARef, Arc, ArcBorrow},
    types::ForeignOwnable,
};

/// A driver of a disk, and its data.
pub(crate) trait Driver: Send + Sync + Sized + 'static {
    /// Called with each request, which the driver owns until it ends it. Does not sleep.
    fn queue(this: ArcBorrow<'_, Self>, io: Io<Self>);
}

/// The operations of `kernel::block::mq` for a [`Driver`].
pub(crate) struct Queue<D>(PhantomData<D>);

#[vtable]
impl<D: Driver> Operations for Queue<D> {
    type QueueData = Arc<D>;

    fn queue_rq(data: ArcBorrow<'_, D>, rq: ARef<Request<Self>>, _is_last: bool) -> Result {
        // INVARIANT: The only reference, which nothing else can copy.
        D::queue(data, Io(Some(rq)));
        Ok(())
    }

    fn commit_rqs(_data: ArcBorrow<'_, D>) {}

    fn complete(rq: ARef<Request<Self>>) {
        // INVARIANT: As above.
        Io(Some(rq)).end(Ok(()));
    }
}

/// The direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// A request, of which this is the owner. Dropping it ends the request with `EIO`.
///
/// # Invariants
///
/// The reference is the only one to a started request, until [`Self::end`] takes it.
pub(crate) struct Io<D: Driver>(Option<ARef<Request<Queue<D>>>>);

impl<D: Driver> Io<D> {
    fn raw(&self) -> *mut bindings::request {
        // `Request` is a transparent wrapper.
        self.0.as_ref().map_or(core::ptr::null_mut(), |rq| {
            (&raw const **rq).cast_mut().cast()
        })
    }

    /// Returns the tag: a number below the depth of the disk, different from those of all requests
    /// that have not ended.
    pub(crate) fn tag(&self) -> usize {
        // SAFETY: By the type invariant, the request is valid. Its owner reads it.
        unsafe { (*self.raw()).tag as usize }
    }

    /// Returns the direction, or [`None`] for requests that are neither reads nor writes.
    pub(crate) fn direction(&self) -> Option<Direction> {
        // SAFETY: As in `tag()`.
        let flags = unsafe { (*self.raw()).cmd_flags };
        match flags & ((1 << bindings::REQ_OP_BITS) - 1) {
            bindings::req_op_REQ_OP_READ => Some(Direction::Read),
            bindings::req_op_REQ_OP_WRITE => Some(Direction::Write),
            _ => None,
        }
    }

    /// Returns the first sector.
    pub(crate) fn sector(&self) -> u64 {
        // SAFETY: As in `tag()`.
        unsafe { (*self.raw()).__sector }
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> u32 {
        // SAFETY: As in `tag()`.
        unsafe { (*self.raw()).__data_len }
    }

    /// Ends the request.
    pub(crate) fn end(mut self, result: Result) {
        self.end_with(result);
    }

    fn end_with(&mut self, result: Result) {
        let raw = self.raw();
        let Some(rq) = self.0.take() else { return };
        if let Err(error) = result {
            // SAFETY: The request is valid and this is its only owner. All its bytes are ended, so
            // `end_ok()` finds none and keeps the status.
            unsafe {
                let status = bindings::errno_to_blk_status(error.to_errno());
                bindings::blk_update_request(raw, status, (*raw).__data_len);
            }
        }
        // By the type invariant this is the only reference, so it cannot fail.
        if Request::end_ok(rq).is_err() {
            pr_err!("a request has a second owner\n");
        }
    }
}

impl<D: Driver> Drop for Io<D> {
    fn drop(&mut self) {
        self.end_with(Err(EIO));
    }
}

// SAFETY: The block layer keeps the pages until the request ends, which this does not before it
// is dropped.
unsafe impl<D: Driver> Pages for Io<D> {
    fn direction(&self) -> DataDirection {
        match self.direction() {
            Some(Direction::Write) => DataDirection::ToDevice,
            _ => DataDirection::FromDevice,
        }
    }

    fn fill(&self, list: &mut ScatterList) -> Result<u32> {
        let raw = self.raw();
        // SAFETY: The request is valid. There is room for its segments, of which
        // `nr_phys_segments` is the largest number.
        unsafe {
            if usize::from((*raw).nr_phys_segments) > list.capacity() {
                return Err(EINVAL);
            }
            let mut last = core::ptr::null_mut();
            let filled = bindings::__blk_rq_map_sg(raw, list.reset(), &mut last);
            Ok(u32::try_from(filled)?)
        }
    }
}

/// The capacity of a disk, and the requests that it takes.
pub(crate) struct Limits {
    /// The capacity in sectors of 512 bytes.
    pub(crate) sectors: u64,
    /// The largest request in sectors.
    pub(crate) max_sectors: u32,
    /// The largest number of segments of a request. They begin anywhere and have any length.
    pub(crate) max_segments: u16,
    /// The boundary at which memory of direct requests begins and ends: a power of two.
    pub(crate) alignment: u32,
}

extern "C" {
    /// The first byte of the module of this code, which the build defines.
    static __this_module: u8;
}

/// A disk. Dropping it removes the disk after all its requests have ended. Open files keep the
/// module, but not the disk.
///
/// # Invariants
///
/// The pointer came from `__blk_mq_alloc_disk()` with the tag set, and the disk was added.
pub(crate) struct Disk<D: Driver> {
    raw: *mut bindings::gendisk,
    _tags: Arc<TagSet<Queue<D>>>,
}

// SAFETY: Any thread may remove a disk.
unsafe impl<D: Driver> Send for Disk<D> {}

impl<D: Driver> Disk<D> {
    const OPERATIONS: &'static bindings::block_device_operations =
        &bindings::block_device_operations {
            owner: (&raw const __this_module).cast_mut().cast(),
            ..pin_init::zeroed()
        };

    /// Adds a disk without partitions, for `depth` requests at a time. Does not transfer data.
    ///
    /// # Errors
    ///
    /// `EINVAL` for limits that the block layer refuses, an alignment that is no power of two, or a
    /// name that is too long; `EEXIST` if there is a disk of this name; `ENOMEM`.
    pub(crate) fn new(name: &CStr, depth: u32, limits: &Limits, driver: Arc<D>) -> Result<Self> {
        if !limits.alignment.is_power_of_two() {
            return Err(EINVAL);
        }
        let tags = Arc::pin_init(TagSet::<Queue<D>>::new(1, depth, 1), GFP_KERNEL)?;
        let mut raw_limits: bindings::queue_limits = pin_init::zeroed();
        raw_limits.logical_block_size = 512;
        raw_limits.max_hw_sectors = limits.max_sectors;
        raw_limits.max_segments = limits.max_segments;
        raw_limits.max_segment_size = u32::MAX;
        raw_limits.dma_alignment = limits.alignment - 1;

        let data = driver.into_foreign();
        // `TagSet` is a transparent wrapper.
        let set = Arc::as_ptr(&tags).cast_mut().cast();
        let class = static_lock_class!().as_ptr();
        // SAFETY: The tag set is valid, and it outlives the disk.
        let raw = from_err_ptr(unsafe {
            bindings::__blk_mq_alloc_disk(set, &mut raw_limits, data.cast(), class)
        });
        let added = raw.and_then(|raw| {
            // SAFETY: The disk is new, and nothing else uses it.
            let added = unsafe { Self::add(raw, name, limits.sectors) };
            if added.is_err() {
                // SAFETY: The disk was not added.
                unsafe { bindings::put_disk(raw) };
            }
            added.map(|()| raw)
        });
        match added {
            // INVARIANT: Allocated and added above.
            Ok(raw) => Ok(Self { raw, _tags: tags }),
            Err(error) => {
                // SAFETY: From `into_foreign()` above, and no disk uses it.
                drop(unsafe { <Arc<D> as ForeignOwnable>::from_foreign(data) });
                Err(error)
            }
        }
    }

    /// # Safety
    ///
    /// `raw` must be a new disk.
    unsafe fn add(raw: *mut bindings::gendisk, name: &CStr, sectors: u64) -> Result {
        // SAFETY: By the safety requirement. The name has room for a NUL after the bytes.
        unsafe {
            let to = &mut (*raw).disk_name;
            let bytes = name.to_bytes();
            if bytes.len() >= to.len() {
                return Err(EINVAL);
            }
            for (to, from) in to.iter_mut().zip(bytes) {
                *to = *from;
            }
            (*raw).fops = Self::OPERATIONS;
            // Reading a partition table would wait for the driver.
            (*raw).flags |= bindings::GENHD_FL_NO_PART as i32;
            bindings::set_capacity(raw, sectors);
            to_result(bindings::device_add_disk(
                core::ptr::null_mut(),
                raw,
                core::ptr::null_mut(),
            ))
        }
    }
}

impl<D: Driver> Drop for Disk<D> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. `del_gendisk()` waits for the requests, and refuses later
        // ones, so nothing uses the data, which came from `into_foreign()`.
        unsafe {
            let data = (*(*self.raw).queue).queuedata;
            bindings::del_gendisk(self.raw);
            bindings::put_disk(self.raw);
            drop(<Arc<D> as ForeignOwnable>::from_foreign(data));
        }
    }
}
