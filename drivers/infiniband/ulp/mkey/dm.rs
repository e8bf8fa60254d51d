// SPDX-License-Identifier: GPL-2.0

//! Device memory of the class `host`: RAM near the device.
//!
//! A buffer has whole pages of its own, so that no two owners share one, and a region of the
//! driver over them in a protection domain that nobody else has. Users' regions over the buffer
//! are layouts that end in that region; atomics through any of them serialise.

use crate::{
    backend::{Backend, Hw},
    rdma::{OwnedMr, Pd, SharedMemory},
};
use kernel::{
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
};

/// Pages of one buffer: the driver keeps 16 bytes for each in one allocation.
const MAX_PAGES: usize = 1 << 16;

/// Bytes of device memory that are in use, of a limit.
pub(crate) struct Quota {
    used: Atomic<i64>,
    limit: i64,
}

impl Quota {
    /// Makes a quota of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                used: Atomic::new(0),
                // More than there is memory is as good as no limit.
                limit: i64::try_from(limit).unwrap_or(i64::MAX),
            },
            GFP_KERNEL,
        )?)
    }

    /// Returns the limit in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.limit as u64
    }

    fn charge(self: &Arc<Self>, bytes: i64) -> Result<Charge> {
        let mut used = self.used.load(ordering::Relaxed);
        loop {
            let sum = used.checked_add(bytes).filter(|sum| *sum <= self.limit);
            match self
                .used
                .cmpxchg(used, sum.ok_or(ENOMEM)?, ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => used = now,
            }
        }
        Ok(Charge {
            quota: self.clone(),
            bytes,
        })
    }
}

/// A part of a [`Quota`].
struct Charge {
    quota: Arc<Quota>,
    bytes: i64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.quota.used.fetch_sub(self.bytes, ordering::Relaxed);
    }
}

/// A buffer of device memory.
// Fields are dropped in order: the region before the memory that it is over.
pub(crate) struct Buffer {
    pub(crate) base: <Hw as Backend>::Base,
    _region: OwnedMr,
    pub(crate) memory: SharedMemory,
    _charge: Charge,
}

impl Buffer {
    /// Allocates a buffer of `length` zeroed bytes, aligned to `1 << log_align`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes, for more than the core's 32-bit length can tell and for an alignment
    /// above a page; `ENOMEM` beyond the quota or without memory.
    pub(crate) fn new(
        hw: &Hw,
        pd: &Pd,
        quota: &Arc<Quota>,
        node: i32,
        length: u64,
        log_align: u32,
    ) -> Result<Self> {
        if length == 0 || log_align > PAGE_SHIFT as u32 {
            return Err(EINVAL);
        }
        let length = usize::try_from(u32::try_from(length)?)?;
        let pages = SharedMemory::pages_of(length);
        if pages > MAX_PAGES {
            return Err(ENOMEM);
        }
        let bytes = pages.checked_mul(PAGE_SIZE).ok_or(ENOMEM)?;
        let charge = quota.charge(i64::try_from(bytes)?)?;
        let memory = SharedMemory::new(length, node)?;
        let region = OwnedMr::new(pd, u32::try_from(pages)?)?;
        Ok(Self {
            base: hw.back(&region, &memory)?,
            _region: region,
            memory,
            _charge: charge,
        })
    }
}
