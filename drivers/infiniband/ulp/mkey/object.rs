// SPDX-License-Identifier: GPL-2.0

//! Regions of ours: keys, and regions over device memory. Both are a layout over leaves.
//!
//! # Locking
//!
//! `edit` serialises those who change what is bound; it may be held while sleeping. The data path
//! reads `bound` under SRCU (`rust/kernel/rdma/table.rs`) and takes no lock.
//!
//! # Lifetime
//!
//! An object is in its device's table, by its region's index, from before the region is first
//! published until after it was deregistered. It may be found after the region at its index was
//! replaced by another: [`Object::is`] tells them apart.

use crate::{
    backend::{Backend, Hw},
    layout::{Block, Entry, Layout},
    pins::Pin,
    rdma::{mr::Right, table::Cell, Access, Mr, Pd},
};
use core::ptr;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};

/// The layout of this module: entries in memory that need not be contiguous.
pub(crate) type KLayout = Layout<KVVec<Entry>, KVVec<Block>>;

/// A range of memory that a layout refers to, by its lkey.
pub(crate) struct Leaf {
    /// The lkey that was named.
    pub(crate) lkey: u32,
    /// First address that may be named.
    pub(crate) start: u64,
    /// Bytes from `start` on.
    pub(crate) len: u64,
    /// Rights at the time of the bind.
    pub(crate) access: Access,
    /// Where the bytes are.
    pub(crate) base: <Hw as Backend>::Base,
    /// What to add to an address to have one of `base`.
    pub(crate) delta: u64,
    /// May rereg_mr change the rights? Then they are looked at on each access.
    pub(crate) mutable: bool,
    /// Keeps what was named, and with it `base`. Device memory's own regions have none: the core
    /// counts them in `ib_dm.usecnt`.
    pub(crate) _pin: Option<Pin>,
}

/// What is bound to a region; never changed, only replaced.
pub(crate) struct Bound {
    /// Which bytes, in which order. Its leaves are indices of `leaves`.
    pub(crate) layout: KLayout,
    /// The memory.
    pub(crate) leaves: KVVec<Leaf>,
    /// The rights of the region.
    pub(crate) access: Access,
    /// The protection domain in which leaves must be.
    pub(crate) pd: usize,
}

impl Bound {
    /// Checks the layout against its leaves.
    ///
    /// # Errors
    ///
    /// `ERANGE` for a block outside of its leaf, `EACCES` for a right that a leaf does not give.
    /// A leaf is used by its lkey, so local rights count: whatever writes, here or from afar,
    /// needs local write.
    pub(crate) fn new(
        layout: KLayout,
        leaves: KVVec<Leaf>,
        access: Access,
        pd: &Pd,
    ) -> Result<KBox<Self>> {
        let writes = access.contains(Right::LocalWrite)
            || access.contains(Right::RemoteWrite)
            || access.contains(Right::RemoteAtomic);
        for leaf in leaves.iter() {
            if writes && !leaf.access.contains(Right::LocalWrite) {
                return Err(EACCES);
            }
            for flush in [Right::FlushGlobal, Right::FlushPersistent] {
                if access.contains(flush) && !leaf.access.contains(flush) {
                    return Err(EACCES);
                }
            }
        }
        for extent in layout.extents() {
            let leaf = leaves.get(extent.leaf() as usize).ok_or(EINVAL)?;
            extent.check_within(leaf.start, leaf.len)?;
        }
        Ok(KBox::new(
            Self {
                layout,
                leaves,
                access,
                pd: pd.as_raw() as usize,
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }
}

/// What a region of ours is.
pub(crate) enum Kind {
    /// An indirect key, bound and unbound at will.
    Key {
        /// Entries that it was created for.
        max_entries: u32,
    },
    /// A region over device memory, bound once.
    Dm,
}

/// A region of ours.
#[pin_data]
pub(crate) struct Object {
    mr: usize,
    pub(crate) kind: Kind,
    pub(crate) bound: Cell<Bound>,
    #[pin]
    edit: Mutex<()>,
}

impl Object {
    /// Makes the object of a claimed region, with nothing bound.
    pub(crate) fn new(mr: &Mr, kind: Kind) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                mr: ptr::from_ref(mr) as usize,
                kind,
                bound: Cell::empty(),
                edit <- new_mutex!((), "ib_mkey edit"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Is this the object of `mr`?
    #[inline]
    pub(crate) fn is(&self, mr: *const Mr) -> bool {
        self.mr == mr as usize
    }

    /// Binds `new` in place of what is bound. An access sees the one or the other; those to the
    /// old one have ended when this returns.
    ///
    /// # Errors
    ///
    /// `EBUSY`, with nothing changed, while a memory window refers to what is bound: it would
    /// give its rights on something else.
    pub(crate) fn bind(&self, hw: &Hw, mr: &Mr, new: KBox<Bound>) -> Result {
        let (len, access) = (new.layout.length(), new.access);
        let edit = self.edit.lock();
        if hw.has_windows(mr) {
            return Err(EBUSY);
        }
        // Never more than both allow while the one goes and the other comes.
        hw.narrow(mr, access);
        let old = self.bound.replace(Some(new));
        hw.publish(mr, len, access);
        drop(edit);
        // Takes the lock of the pins.
        drop(old);
        Ok(())
    }

    /// Unbinds what is bound. No access is left when this returns.
    ///
    /// # Errors
    ///
    /// As for [`Self::bind`].
    pub(crate) fn unbind(&self, hw: &Hw, mr: &Mr) -> Result {
        let edit = self.edit.lock();
        if hw.has_windows(mr) {
            return Err(EBUSY);
        }
        hw.withdraw(mr);
        let old = self.bound.replace(None);
        drop(edit);
        drop(old);
        Ok(())
    }
}
