// SPDX-License-Identifier: GPL-2.0

//! Accounts of bytes in use, each with a limit.

use kernel::{
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc,
    },
};

/// The bytes and buffers in use, and the most bytes that were in use at one time.
pub(crate) struct Account {
    used: Atomic<i64>,
    high: Atomic<i64>,
    buffers: Atomic<i64>,
    limit: i64,
}

impl Account {
    /// The result of [`Account::limit`] without a limit. No machine has as much memory.
    pub(crate) const NO_LIMIT: u64 = i64::MAX as u64;

    /// Makes an account of at most `limit` bytes; [`Account::NO_LIMIT`] or more is no limit.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            used: Atomic::new(0),
            high: Atomic::new(0),
            buffers: Atomic::new(0),
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
        }
    }

    /// Returns the limit in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.limit as u64
    }

    /// Returns the bytes in use.
    pub(crate) fn used(&self) -> i64 {
        self.used.load(ordering::Relaxed)
    }

    /// Returns the most bytes that were in use at one time.
    pub(crate) fn high(&self) -> i64 {
        self.high.load(ordering::Relaxed)
    }

    /// Returns the buffers in use.
    pub(crate) fn buffers(&self) -> i64 {
        self.buffers.load(ordering::Relaxed)
    }

    /// Adds a buffer of `bytes` bytes.
    /// Fails with `ENOMEM` beyond the limit.
    pub(crate) fn add(&self, bytes: i64) -> Result {
        self.take(bytes, true)
    }

    /// Adds `bytes` bytes to a buffer.
    /// Fails with `ENOMEM` beyond the limit.
    pub(crate) fn grow(&self, bytes: i64) -> Result {
        self.take(bytes, false)
    }

    fn take(&self, bytes: i64, new: bool) -> Result {
        let mut used = self.used();
        let now = loop {
            let sum = used.checked_add(bytes).filter(|sum| *sum <= self.limit);
            let sum = sum.ok_or(ENOMEM)?;
            match self.used.cmpxchg(used, sum, ordering::Relaxed) {
                Ok(_) => break sum,
                Err(other) => used = other,
            }
        };
        if new {
            self.buffers.add(1, ordering::Relaxed);
        }
        let mut high = self.high();
        while now > high {
            match self.high.cmpxchg(high, now, ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => high = other,
            }
        }
        Ok(())
    }

    /// Removes a buffer of `bytes` bytes.
    pub(crate) fn remove(&self, bytes: i64) {
        self.used.fetch_sub(bytes, ordering::Relaxed);
        self.buffers.fetch_sub(1, ordering::Relaxed);
    }

    /// Removes `bytes` bytes from a buffer.
    pub(crate) fn shrink(&self, bytes: i64) {
        self.used.fetch_sub(bytes, ordering::Relaxed);
    }

    /// Removes a buffer of `bytes` bytes. Returns `true` if it was the last one.
    pub(crate) fn remove_last(&self, bytes: i64) -> bool {
        self.used.fetch_sub(bytes, ordering::Relaxed);
        self.buffers.fetch_sub(1, ordering::Full) == 1
    }
}

/// A buffer on an account.
struct AccountEntry {
    account: Arc<Account>,
    bytes: i64,
}

impl AccountEntry {
    fn new(account: &Arc<Account>, bytes: i64) -> Result<Self> {
        account.add(bytes)?;
        Ok(Self {
            account: account.clone(),
            bytes,
        })
    }
}

impl Drop for AccountEntry {
    fn drop(&mut self) {
        self.account.remove(self.bytes);
    }
}

/// A buffer on the account of its pool and, if pools share one limit, on their common account.
pub(crate) struct Charge {
    _pool: AccountEntry,
    _shared: Option<AccountEntry>,
}

impl Charge {
    /// Charges a buffer of `bytes` bytes to `pool` and, if it is given, to `shared`.
    /// Fails with `ENOMEM` beyond a limit, with nothing charged.
    pub(crate) fn new(
        pool: &Arc<Account>,
        shared: Option<&Arc<Account>>,
        bytes: i64,
    ) -> Result<Self> {
        Ok(Self {
            _pool: AccountEntry::new(pool, bytes)?,
            _shared: shared
                .map(|all| AccountEntry::new(all, bytes))
                .transpose()?,
        })
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[path = "account_kunit.rs"]
mod kunit;
