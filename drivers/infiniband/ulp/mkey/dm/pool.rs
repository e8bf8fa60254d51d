// SPDX-License-Identifier: GPL-2.0

//! The memory that a device offers: a pool for each class.
//!
//! # Locking
//!
//! `ClassPool::source` serialises the search for a pool's memory, which may open a DAX device. It
//! may be held while sleeping. `Owners::known` is not taken under it. `OfferedMemory::exporting`
//! serialises the making of dma-bufs.

use super::class::{Class, ClassRequest, Offer};
use crate::{
    kernel_ext::{
        error::eopnotsupp,
        memory::{node_has_memory, PmemRegion, Provider, Source},
        rdma::device::DeviceName,
    },
    limits::{
        account::{Account, Charge},
        owner::Owners,
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    str::{CStr, CString},
    sync::{Arc, Mutex},
};

/// Returns the bytes that each user may take of a source of `total` bytes: half of them, unless
/// `user_limit` limits the user's device memory of all sources.
fn share(user_limit: Option<u64>, total: u64) -> u64 {
    match user_limit {
        Some(_) => u64::MAX,
        None => total / 2,
    }
}

/// A source that was found, and the account of its memory.
#[derive(Clone)]
pub(super) struct FoundSource {
    pub(super) source: Source,
    account: Arc<Account>,
    /// The users of the source. All sources of RAM have the same ones.
    pub(super) shares: Arc<Owners>,
}

/// Memory of one class.
#[pin_data]
pub(crate) struct ClassPool {
    class: Class,
    /// The NUMA node that [`Class::Host`] prefers.
    near: i32,
    /// The account that all pools of RAM share.
    ram: Arc<Account>,
    /// The users of RAM.
    ram_shares: Arc<Owners>,
    user_limit: Option<u64>,
    /// The source. It is searched at the first use, because its device may be added later.
    #[pin]
    source: Mutex<Option<FoundSource>>,
}

impl ClassPool {
    fn new(
        class: Class,
        near: i32,
        ram: &Arc<Account>,
        ram_shares: &Arc<Owners>,
        user_limit: Option<u64>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                class,
                near,
                ram: ram.clone(),
                ram_shares: ram_shares.clone(),
                user_limit,
                source <- new_mutex!(None, "ib_mkey pool"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the class.
    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Finds the source of the memory.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the source is absent; the errors of opening a DAX device; `ENOMEM`.
    pub(super) fn find(&self) -> Result<FoundSource> {
        let mut known = self.source.lock();
        if let Some(found) = &*known {
            if found.source.is_there() {
                return Ok(found.clone());
            }
        }
        *known = None;
        let (source, limit) = match self.class {
            Class::Host => (Source::Near(self.near), self.ram.limit()),
            Class::Node(node) => {
                let node = i32::from(node);
                if !node_has_memory(node) {
                    return Err(eopnotsupp());
                }
                (Source::Node(node), self.ram.limit())
            }
            Class::P2p { domain, bus, devfn } => {
                let provider = Provider::find(domain, bus, devfn).map_err(|_| eopnotsupp())?;
                let size = provider.size().map_err(|_| eopnotsupp())?;
                (Source::P2p(provider), size)
            }
            Class::Pmem(n) => {
                let name = CString::try_from_fmt(fmt!("pmem{n}"))?;
                let region = PmemRegion::open(&name).map_err(|err| match err {
                    ENOENT | ENXIO | ENODEV => eopnotsupp(),
                    other => other,
                })?;
                let size = region.size();
                (Source::Pmem(region), size)
            }
        };
        // The shares need no total limit, because the source has one.
        let shares = match source {
            Source::Near(_) | Source::Node(_) => self.ram_shares.clone(),
            _ => Owners::new(u64::MAX, share(self.user_limit, limit))?,
        };
        let found = FoundSource {
            source,
            account: Arc::new(Account::new(limit), GFP_KERNEL)?,
            shares,
        };
        *known = Some(found.clone());
        Ok(found)
    }

    /// Returns the account, if the source was found.
    pub(crate) fn account(&self) -> Option<Arc<Account>> {
        self.source
            .lock()
            .as_ref()
            .map(|found| found.account.clone())
    }

    /// Charges a buffer of `bytes` bytes of the source, which the pool found.
    ///
    /// # Errors
    ///
    /// `ENOMEM` beyond the pool's size or the device's quota.
    pub(super) fn charge(&self, found: &FoundSource, bytes: i64) -> Result<Charge> {
        let shared = matches!(found.source, Source::Near(_) | Source::Node(_)).then_some(&self.ram);
        Charge::new(&found.account, shared, bytes)
    }
}

/// The memory of a device.
#[pin_data]
pub(crate) struct OfferedMemory {
    pub(crate) name: DeviceName,
    /// The pools, the default first. No class occurs twice.
    pools: KVec<Arc<ClassPool>>,
    pub(crate) owners: Arc<Owners>,
    /// Held while a dma-buf is made.
    #[pin]
    pub(super) exporting: Mutex<()>,
}

impl OfferedMemory {
    /// Makes the pools that `offer` has for a device near `node`, which gets the name `new_name`.
    /// They give at most `limit` bytes of RAM, and to each user at most `user_limit` bytes of all
    /// classes, or half of each memory.
    pub(crate) fn new(
        (name, new_name): (DeviceName, &CStr),
        offer: Offer<'_>,
        node: i32,
        limit: u64,
        user_limit: Option<u64>,
    ) -> Result<Arc<Self>> {
        let ram = Arc::new(Account::new(limit), GFP_KERNEL)?;
        let ram_shares = Owners::new(u64::MAX, share(user_limit, limit))?;
        let mut pools: KVec<Arc<ClassPool>> = KVec::new();
        for class in offer.to(new_name.to_str()?) {
            if !pools.iter().any(|pool| pool.class == class) {
                let pool = ClassPool::new(class, node, &ram, &ram_shares, user_limit)?;
                pools.push(pool, GFP_KERNEL)?;
            }
        }
        // The owners need no total limit, because each pool has a limit.
        let owners = Owners::new(u64::MAX, user_limit.unwrap_or(u64::MAX))?;
        Arc::pin_init(
            pin_init!(Self {
                name,
                pools,
                owners,
                exporting <- new_mutex!((), "ib_mkey exporting"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the pools, the default first.
    pub(crate) fn pools(&self) -> &[Arc<ClassPool>] {
        &self.pools
    }

    /// Returns the pool that an allocation asks for.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device offers no such memory.
    pub(crate) fn pool(&self, wanted: ClassRequest) -> Result<&ClassPool> {
        self.pools
            .iter()
            .find(|pool| wanted.is(pool.class))
            .map(|pool| &**pool)
            .ok_or_else(eopnotsupp)
    }

    /// Returns the classes, as bits of `enum ib_uverbs_mkey_dm_class`.
    pub(crate) fn classes(&self) -> u32 {
        self.pools
            .iter()
            .fold(0, |bits, pool| bits | pool.class.bit())
    }

    /// Returns the coherent ones of the classes.
    pub(crate) fn coherent_classes(&self) -> u32 {
        let coherent = self.pools.iter().filter(|pool| pool.class.is_coherent());
        coherent.fold(0, |bits, pool| bits | pool.class.bit())
    }

    /// Returns the bytes of the default class; 0 while its source is absent.
    pub(crate) fn size(&self) -> u64 {
        self.pool(ClassRequest::DEFAULT)
            .and_then(ClassPool::find)
            .map_or(0, |found| found.account.limit())
    }
}
