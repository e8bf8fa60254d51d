// SPDX-License-Identifier: GPL-2.0

//! The owners of memory: users, each with a quota, and the kernel, whose users share the limit of the
//! device.
//!
//! The owner is the user who opened the device (`rust/kernel/user.rs`), not the process that calls.
//! A user gets no more by more processes, nor by processes that end while others keep what they
//! made.
//!
//! A device has two sets of owners: one for device memory, one for the kernel's memory that keys
//! and other regions take.
//!
//! # Locking
//!
//! `Owners::known` protects the tree of owners. No lock nests in it. `OwnerCharge::beside` and
//! `OwnerCharge::grow` take no lock, because an owner stays in the tree while it has a buffer.

use crate::{
    kernel_ext::user::User,
    limits::{account::Account, worker::WaitingWorkers},
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::RBTree,
    sync::{Arc, Mutex},
};

/// An owner of memory, and its account.
pub(crate) struct Owner {
    /// The set that contains the owner until its last buffer is released.
    owners: Arc<Owners>,
    /// The user; [`None`] for kernel users.
    user: Option<User>,
    account: Account,
    /// The workers that wait for accesses to the owner's regions.
    waits: WaitingWorkers,
}

impl Owner {
    /// Returns the user, or [`None`] for kernel users.
    pub(crate) fn user(&self) -> Option<User> {
        self.user
    }

    /// Returns the account of the owner.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the number of workers that wait for the owner.
    pub(crate) fn waits(&self) -> &WaitingWorkers {
        &self.waits
    }
}

/// The owners of one kind of memory of a device.
#[pin_data]
pub(crate) struct Owners {
    /// The account of all owners together.
    total: Account,
    limit: u64,
    /// The owners that have a buffer.
    #[pin]
    known: Mutex<RBTree<Option<User>, Arc<Owner>>>,
}

impl Owners {
    /// Makes an empty set. Each user may have `limit` bytes, all owners together `total` bytes.
    pub(crate) fn new(total: u64, limit: u64) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                total: Account::new(total),
                limit,
                known <- new_mutex!(RBTree::new(), "ib_mkey owners"),
            }),
            GFP_KERNEL,
        )
    }

    /// Charges a buffer of `bytes` bytes to `user`, or to kernel users.
    /// Fails with `ENOMEM` beyond the quota of the user or of the device.
    pub(crate) fn charge(this: &Arc<Self>, user: Option<User>, bytes: i64) -> Result<OwnerCharge> {
        let mut known = this.known.lock();
        let owner = match known.get(&user) {
            Some(owner) => {
                let owner = owner.clone();
                owner.account.add(bytes)?;
                owner
            }
            None => {
                let limit = user.map_or(u64::MAX, |_| this.limit);
                let owner = Arc::new(
                    Owner {
                        owners: this.clone(),
                        waits: WaitingWorkers::new(user.is_none()),
                        user,
                        account: Account::new(limit),
                    },
                    GFP_KERNEL,
                )?;
                owner.account.add(bytes)?;
                known.try_create_and_insert(user, owner.clone(), GFP_KERNEL)?;
                owner
            }
        };
        drop(known);
        OwnerCharge::complete(owner, bytes)
    }

    /// Returns the account of all owners together.
    pub(crate) fn total(&self) -> &Account {
        &self.total
    }

    /// Runs `look` on each owner.
    pub(crate) fn each<E>(&self, mut look: impl FnMut(&Owner) -> Result<(), E>) -> Result<(), E> {
        self.known.lock().values().try_for_each(|owner| look(owner))
    }

    /// Removes a buffer of `bytes` bytes from `owner`.
    fn release(&self, owner: &Arc<Owner>, bytes: i64) {
        if !owner.account.remove_last(bytes) {
            return;
        }
        let mut known = self.known.lock();
        // Meanwhile another thread may have charged a buffer, and may have released that buffer and
        // removed the owner.
        let is_it = known
            .get(&owner.user)
            .is_some_and(|other| Arc::ptr_eq(other, owner) && owner.account.buffers() == 0);
        let gone = if is_it {
            known.remove(&owner.user)
        } else {
            None
        };
        drop(known);
        drop(gone);
    }
}

/// A buffer that is charged to an owner.
// It is kept small, because each binding contains one.
pub(crate) struct OwnerCharge {
    owner: Arc<Owner>,
    bytes: i64,
}

impl OwnerCharge {
    /// Charges `bytes` bytes, which were charged to `owner`, to the account of all owners too.
    fn complete(owner: Arc<Owner>, bytes: i64) -> Result<Self> {
        if let Err(err) = owner.owners.total.add(bytes) {
            owner.owners.release(&owner, bytes);
            return Err(err);
        }
        Ok(Self { owner, bytes })
    }

    /// Returns the user who is charged, or [`None`] for kernel users.
    pub(crate) fn user(&self) -> Option<User> {
        self.owner.user()
    }

    /// Returns the number of workers that wait for the owner.
    pub(crate) fn waits(&self) -> &WaitingWorkers {
        self.owner.waits()
    }

    /// Charges another buffer, of `bytes` bytes, to the same owner.
    /// Fails with `ENOMEM` beyond the quota of the user or of the device.
    pub(crate) fn beside(&self, bytes: i64) -> Result<Self> {
        self.owner.account.add(bytes)?;
        Self::complete(self.owner.clone(), bytes)
    }

    /// Charges more bytes, if they are less than `bytes`.
    pub(crate) fn cover(&mut self, bytes: i64) -> Result {
        match bytes.checked_sub(self.bytes) {
            Some(more) if more > 0 => self.grow(more),
            _ => Ok(()),
        }
    }

    /// Charges `bytes` bytes more.
    /// Fails with `ENOMEM` beyond the quota of the user or of the device, with nothing changed.
    pub(crate) fn grow(&mut self, bytes: i64) -> Result {
        self.owner.account.grow(bytes)?;
        if let Err(err) = self.owner.owners.total.grow(bytes) {
            self.owner.account.shrink(bytes);
            return Err(err);
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for OwnerCharge {
    fn drop(&mut self) {
        self.owner.owners.total.remove(self.bytes);
        self.owner.owners.release(&self.owner, self.bytes);
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "owner_kunit.rs"]
mod kunit;
