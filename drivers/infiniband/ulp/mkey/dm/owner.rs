// SPDX-License-Identifier: GPL-2.0

//! Who has memory of a device: processes, each with a quota, and kernel users, with none but that
//! of the device.
//!
//! # Locking
//!
//! `Owners::known` serialises all changes. Nothing is taken under it.

use super::account::Account;
use crate::rdma::process::Process;
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::RBTree,
    sync::{Arc, Mutex},
};

/// An owner and what it has.
pub(crate) struct Owner {
    /// [`None`]: kernel users.
    process: Option<Process>,
    account: Account,
}

impl Owner {
    /// Returns the process, or [`None`] for kernel users.
    pub(crate) fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Returns what it has.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    fn key(process: Option<&Process>) -> usize {
        process.map_or(0, Process::key)
    }
}

/// The owners of a device's memory.
#[pin_data]
pub(crate) struct Owners {
    limit: u64,
    /// Those that have a buffer.
    #[pin]
    known: Mutex<RBTree<usize, Arc<Owner>>>,
}

impl Owners {
    /// Makes an empty set, of processes that may each have `limit` bytes.
    pub(crate) fn new(limit: u64) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                limit,
                known <- new_mutex!(RBTree::new(), "ib_mkey owners"),
            }),
            GFP_KERNEL,
        )
    }

    /// Charges a buffer of `bytes` bytes to the process that runs this, or to kernel users.
    ///
    /// # Errors
    ///
    /// `ENOMEM` beyond the quota of the process.
    pub(crate) fn charge(this: &Arc<Self>, to_process: bool, bytes: i64) -> Result<OwnerCharge> {
        let (process, limit) = if to_process {
            (Some(Process::current()?), this.limit)
        } else {
            (None, u64::MAX)
        };
        let key = Owner::key(process.as_ref());
        let mut known = this.known.lock();
        let owner = match known.get(&key) {
            Some(owner) => {
                owner.account.add(bytes)?;
                owner.clone()
            }
            None => {
                let owner = Arc::new(
                    Owner {
                        process,
                        account: Account::new(limit),
                    },
                    GFP_KERNEL,
                )?;
                owner.account.add(bytes)?;
                known.try_create_and_insert(key, owner.clone(), GFP_KERNEL)?;
                owner
            }
        };
        drop(known);
        Ok(OwnerCharge {
            owners: this.clone(),
            owner,
            bytes,
        })
    }

    /// Shows each owner to `look`.
    pub(crate) fn each<E>(&self, mut look: impl FnMut(&Owner) -> Result<(), E>) -> Result<(), E> {
        self.known.lock().values().try_for_each(|owner| look(owner))
    }
}

/// A buffer that is charged to an owner.
pub(crate) struct OwnerCharge {
    owners: Arc<Owners>,
    owner: Arc<Owner>,
    bytes: i64,
}

impl Drop for OwnerCharge {
    fn drop(&mut self) {
        let mut known = self.owners.known.lock();
        self.owner.account.remove(self.bytes);
        let gone = if self.owner.account.buffers() == 0 {
            known.remove(&Owner::key(self.owner.process()))
        } else {
            None
        };
        drop(known);
        drop(gone);
    }
}
