// SPDX-License-Identifier: GPL-2.0

//! Block devices that read and write the memory of requests.
//!
//! C headers: [`include/linux/bio.h`](srctree/include/linux/bio.h),
//! [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h)

use super::{
    id::not_connected,
    wr::{Held, Segment},
    LeafMemory, Queue, Refused, Request, Wr,
};
use crate::{
    bindings,
    kernel_ext::{block::Direction, thread::Wake},
};
use core::ptr::NonNull;
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_void,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc, ArcBorrow, Completion,
    },
};

/// A request whose memory a block device may read and write.
pub(crate) trait Transfer: Request {
    /// Called when the block device has moved the data. May be called in any context, so it does
    /// not sleep, and does not drop the last owner of device memory.
    fn moved(wr: KBox<Wr<Self>>, qp: &Queue<Self::Session>, result: Result);
}

/// Bytes of a sector.
const SECTOR: usize = 512;
/// A write that has ended is on the medium: the receiver of a reply has no way to flush a cache.
const DURABLE: u32 =
    1 << bindings::req_flag_bits___REQ_FUA | 1 << bindings::req_flag_bits___REQ_SYNC;

/// The holder of a block device, as the block layer knows it.
#[pin_data]
struct Holder {
    gone: Atomic<bool>,
    wake: Arc<Wake>,
    /// Completed when the device is closed.
    #[pin]
    unused: Completion,
}

/// # Safety
///
/// Only the block layer may call this, for a device whose holder is a [`Holder`].
unsafe extern "C" fn mark_dead(bdev: *mut bindings::block_device, _surprise: bool) {
    // SAFETY: The holder is in an `Arc` that exists while it holds the device, whose lock the
    // caller has taken. The block layer wants it unlocked.
    let holder = unsafe {
        let raw = (*bdev).bd_holder.cast::<Holder>().cast_const();
        let holder = Arc::from(ArcBorrow::from_raw(raw));
        // Before the lock is released, which closing the device takes.
        holder.gone.store(true, ordering::Relaxed);
        bindings::mutex_unlock(&raw mut (*bdev).bd_holder_lock);
        holder
    };
    holder.wake.wake();
    // The device may have the memory of requests, which the driver would take away.
    holder.unused.wait_for_completion();
}

/// A block device, which no other holder has open. Dropping it closes the device. The removal of the
/// device waits for that, and so for all bios. A driver that stops its queues before it reports the
/// removal would wait for ever. NVMe's driver does not.
///
/// # Invariants
///
/// `file` is the open device. Its holder is `holder`.
pub(crate) struct BlockDevice {
    file: NonNull<bindings::file>,
    holder: Arc<Holder>,
}

// SAFETY: Any thread may use a block device.
unsafe impl Send for BlockDevice {}
// SAFETY: Any thread may use a block device, also several at once.
unsafe impl Sync for BlockDevice {}

impl BlockDevice {
    const OPERATIONS: &'static bindings::blk_holder_ops = &bindings::blk_holder_ops {
        mark_dead: Some(mark_dead),
        ..pin_init::zeroed()
    };

    /// Opens the device with this number, `major << 20 | minor`, for reads and writes. `wake` is
    /// set when the device is removed.
    ///
    /// # Errors
    ///
    /// `ENXIO` if there is no such device, `ENODEV` if it is being removed, `EBUSY` if it has another
    /// holder, `EINVAL` if its blocks are larger than 512 bytes, `ENOMEM`; the errors of its driver.
    pub(crate) fn open(number: u32, wake: &Arc<Wake>) -> Result<Arc<Self>> {
        let holder = Arc::pin_init(
            pin_init!(Holder {
                gone: Atomic::new(false),
                wake: wake.clone(),
                unused <- Completion::new(),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The holder exists until the device is closed, and the operations are static.
        let file = from_err_ptr(unsafe {
            let raw_holder = Arc::as_ptr(&holder).cast_mut().cast();
            bindings::bdev_open(number, raw_holder, Self::OPERATIONS)
        })?;
        // INVARIANT: Opened above.
        let this = Self {
            file: NonNull::new(file).ok_or(ENXIO)?,
            holder,
        };
        // The removal of a disk may have been reported before this was its holder.
        // SAFETY: The device is open.
        if unsafe { bindings::bdev_is_dead(this.as_raw()) } {
            return Err(ENODEV);
        }
        // SAFETY: The device is open.
        if unsafe { bindings::bdev_logical_block_size(this.as_raw()) } > SECTOR as u32 {
            return Err(EINVAL);
        }
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    fn as_raw(&self) -> *mut bindings::block_device {
        // SAFETY: By the type invariant.
        unsafe { bindings::file_bdev(self.file.as_ptr()) }
    }

    /// Returns `true` if the device is being removed. The owner then drops all requests and this.
    pub(crate) fn is_gone(&self) -> bool {
        self.holder.gone.load(ordering::Relaxed)
    }

    /// Returns the capacity in sectors of 512 bytes.
    pub(crate) fn sectors(&self) -> u64 {
        // SAFETY: The device is open.
        unsafe { bindings::bdev_nr_sectors(self.as_raw()) }
    }

    /// Checks that the device can access `memory`. Returns the number of its segments.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for memory of a PCI device, if the driver does not take that; `EINVAL` for
    /// device memory without pages, and for a key.
    pub(crate) fn check(&self, memory: &LeafMemory) -> Result<u32> {
        if let LeafMemory::Host(_) = memory {
            return Ok(1);
        }
        let pages = memory.pages().ok_or(EINVAL)?;
        // SAFETY: The table has an entry, and the device is open.
        let refused = unsafe {
            bindings::sg_is_peer_memory(pages.as_raw())
                && !bindings::bdev_takes_peer_memory(self.as_raw())
        };
        if refused {
            return Err(Error::from_errno(-(bindings::EOPNOTSUPP as i32)));
        }
        Ok(pages.len())
    }

    /// Moves the bytes of the segments of `wr`, from `sector` on. The block device owns the request
    /// until it has called [`Transfer::moved`]. A write is on the medium then. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection is lost, `EINVAL` for too much memory or a part of a sector, the
    /// errors of [`Self::check`].
    pub(crate) fn submit<W: Transfer>(
        &self,
        mut wr: KBox<Wr<W>>,
        qp: &Queue<W::Session>,
        direction: Direction,
        sector: u64,
    ) -> Result<(), Refused<W>> {
        let prepared = self.prepare(&wr, qp, direction);
        let (bio, held) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err(Refused { wr, error }),
        };
        wr.held = Some(held);
        // SAFETY: The bio is new. The box that is leaked has all its memory, and `ended()` makes the
        // box again.
        unsafe {
            (*bio).bi_iter.bi_sector = sector;
            (*bio).bi_private = KBox::into_raw(wr).cast();
            (*bio).bi_end_io = Some(ended::<W>);
            bindings::submit_bio(bio);
        }
        Ok(())
    }

    /// Makes a bio of the segments of a request.
    fn prepare<W: Transfer>(
        &self,
        wr: &Wr<W>,
        qp: &Queue<W::Session>,
        direction: Direction,
    ) -> Result<(*mut bindings::bio, Held<W::Session>)> {
        let (mut vecs, mut total) = (0u32, 0usize);
        for segment in &wr.segments {
            let leaf = segment.leaf.as_ref().ok_or(EINVAL)?;
            vecs = vecs.saturating_add(self.check(leaf)?);
            total = total.saturating_add(segment.len);
        }
        if vecs == 0 || vecs > bindings::BIO_MAX_VECS || total % SECTOR != 0 {
            return Err(EINVAL);
        }
        let held = qp.hold().ok_or_else(not_connected)?;
        let op = match direction {
            Direction::Read => bindings::req_op_REQ_OP_READ,
            Direction::Write => bindings::req_op_REQ_OP_WRITE | DURABLE,
        };
        // SAFETY: The device is open.
        let bio = unsafe { bindings::bio_alloc(self.as_raw(), vecs as u16, op) };
        if bio.is_null() {
            return Err(ENOMEM);
        }
        for segment in &wr.segments {
            let &Segment { offset, len, .. } = segment;
            // CAST: `Wr::add()` checked that the bytes are in the memory, which has fewer than 2^32.
            let (skip, bytes) = (offset as u32, len as u32);
            let added = match &segment.leaf {
                Some(LeafMemory::Host(buffer)) => {
                    let at = (buffer.start() + offset as u64) as *mut c_void;
                    // They are the block device's until `give_back()`.
                    let synced = buffer.sync_for_cpu(offset, len).is_ok();
                    // SAFETY: The memory is in the linear mapping, and there are so many bytes.
                    synced && unsafe { bindings::bio_add_linear(bio, at, bytes) }
                }
                // SAFETY: The table is valid.
                Some(leaf) => leaf.pages().is_some_and(|pages| unsafe {
                    bindings::bio_add_list(bio, pages.as_raw(), skip, bytes)
                }),
                None => false,
            };
            if !added {
                give_back(wr);
                // SAFETY: The bio was not submitted.
                unsafe { bindings::bio_put(bio) };
                return Err(EINVAL);
            }
        }
        Ok((bio, held))
    }
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. After it the block layer does not know the holder.
        unsafe { bindings::bdev_fput(self.file.as_ptr()) };
        self.holder.unused.complete_all();
        if self.is_gone() {
            // `mark_dead()` has returned after this, so the module may be unloaded.
            // SAFETY: The owner of a block device may sleep when it drops it.
            unsafe { bindings::rcu_tasks_wait() };
        }
    }
}

/// Gives the memory of a request back to the device of the connection.
fn give_back<W: Transfer>(wr: &Wr<W>) {
    for &Segment {
        ref leaf,
        offset,
        len,
    } in &wr.segments
    {
        if let Some(LeafMemory::Host(buffer)) = leaf {
            // `Wr::add()` checked that the bytes are in the memory.
            let _ = buffer.sync_for_device(offset, len);
        }
    }
}

/// # Safety
///
/// Only the block layer may call this, as the end of a bio of [`BlockDevice::submit`].
unsafe extern "C" fn ended<W: Transfer>(bio: *mut bindings::bio) {
    // SAFETY: By the safety requirement. The bio gives the box back.
    let (status, mut wr) = unsafe {
        let wr = KBox::from_raw((*bio).bi_private.cast::<Wr<W>>());
        ((*bio).bi_status, wr)
    };
    // SAFETY: The bio has ended, and this owns it.
    let result = to_result(unsafe {
        bindings::bio_put(bio);
        bindings::blk_status_to_errno(status)
    });
    give_back(&wr);
    if let Some(held) = wr.held.take() {
        W::moved(wr, &held, result);
    }
}
