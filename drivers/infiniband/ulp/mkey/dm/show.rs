// SPDX-License-Identifier: GPL-2.0

//! The files of the module in debugfs, for root.
//!
//! | file | a line for |
//! |---|---|
//! | `pools` | each pool of device memory |
//! | `owners` | each owner of device memory |
//! | `keys` | each owner of the kernel's memory that keys and other regions take |
//! | `regions` | each region: keys, windows, MRs over device memory and dma-bufs |
//! | `leaves` | each leaf of a key or window |
//! | `layouts` | each of the first entries of a key |
//! | `refused` | the last refused access of each region |
//! | `counters` | each count since the module was loaded |
//!
//! Each of these files begins with a line of column names. Bytes of device memory are whole pages.
//!
//! # Locking
//!
//! `DEVICES` protects the list of devices. It is held while a file is written. The lock of
//! the pins, `Regions::known`, `Owners::known` and `ClassPool::source` nest in it.

use super::OfferedMemory;
use crate::{
    backend::rxe,
    counters,
    kernel_ext::{sync::global::global_mutex, user::User},
    limits::{account::Account, owner::Owners},
    mkey_core::{Core, HasCore},
    region,
};

use kernel::{debugfs::Scope, fmt, prelude::*, sync::Arc};

global_mutex!(static DEVICES: KVec<Offered> = KVec::new());

/// A device whose memory is shown.
struct Offered {
    memory: Arc<OfferedMemory>,
    device: Arc<dyn HasCore>,
}

/// The files. They are removed when this is dropped.
pub(crate) struct Shown {
    _files: Pin<KBox<Scope<()>>>,
}

impl Shown {
    /// Makes the files.
    pub(crate) fn new() -> Result<Self> {
        let files = Scope::dir((), c"ib_mkey", |data, dir| {
            dir.read_callback_file(c"pools", data, &show_pools);
            dir.read_callback_file(c"owners", data, &show_owners);
            dir.read_callback_file(c"keys", data, &show_keys);
            dir.read_callback_file(c"regions", data, &show_regions);
            dir.read_callback_file(c"leaves", data, &show_leaves);
            dir.read_callback_file(c"layouts", data, &show_layouts);
            dir.read_callback_file(c"refused", data, &show_refused);
            dir.read_callback_file(c"counters", data, &show_counters);
        });
        Ok(Self {
            _files: KBox::pin_init(files, GFP_KERNEL)?,
        })
    }
}

/// Begins to show a device and its memory.
pub(crate) fn add(memory: &Arc<OfferedMemory>, device: Arc<dyn HasCore>) -> Result {
    let offered = Offered {
        memory: memory.clone(),
        device,
    };
    Ok(DEVICES::lock().push(offered, GFP_KERNEL)?)
}

/// Stops showing a device.
pub(crate) fn remove(memory: &Arc<OfferedMemory>) {
    let mut devices = DEVICES::lock();
    devices.retain(|other| !Arc::ptr_eq(&other.memory, memory));
    // A static is never dropped, so its vector is freed here.
    if devices.is_empty() {
        *devices = KVec::new();
    }
}

fn show_pools(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("# device class total used high buffers\n")?;
    for device in DEVICES::lock().iter() {
        let name = device.memory.name.get();
        for pool in device.memory.pools() {
            let class = pool.class();
            match pool.account() {
                Some(account) => f.write_fmt(fmt!(
                    "{name} {class} {} {} {} {}\n",
                    account.limit(),
                    account.used(),
                    account.high(),
                    account.buffers()
                ))?,
                // The source was not searched yet.
                None => f.write_fmt(fmt!("{name} {class} - 0 0 0\n"))?,
            }
        }
    }
    Ok(())
}

fn show_owners(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("# device uid bytes high buffers limit\n")?;
    for device in DEVICES::lock().iter() {
        show_each(&device.memory, &device.memory.owners, f)?;
    }
    Ok(())
}

fn show_keys(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("# device uid bytes high regions+bindings limit\n")?;
    for device in DEVICES::lock().iter() {
        let keys = &device.device.core().owners;
        let total = keys.total();
        f.write_fmt(fmt!(
            "{} - {} {} {} {}\n",
            device.memory.name.get(),
            total.used(),
            total.high(),
            total.buffers(),
            Limit(total)
        ))?;
        show_each(&device.memory, keys, f)?;
    }
    Ok(())
}

/// Runs `show` on the core and the name of each device.
fn each_core(
    f: &mut fmt::Formatter<'_>,
    show: impl Fn(&Core, &dyn fmt::Display, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    for device in DEVICES::lock().iter() {
        show(device.device.core(), &device.memory.name.get(), f)?;
    }
    Ok(())
}

fn show_regions(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("# device lkey kind bytes entries max_entries levels leaves pins base pid comm\n")?;
    each_core(f, region::show::regions)
}

fn show_leaves(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("# device lkey kind leaf\n")?;
    each_core(f, region::show::leaves)
}

fn show_layouts(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("# device lkey kind counts leaf addr bytes strides\n")?;
    each_core(f, region::show::layouts)
}

fn show_refused(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("# device lkey number reason value key addr bytes access remote kind pid comm\n")?;
    each_core(f, region::show::refused)
}

fn show_counters(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("# name count\n")?;
    for (name, count) in counters::all() {
        f.write_fmt(fmt!("{name} {count}\n"))?;
    }
    f.write_fmt(fmt!("odp_faults {}\n", rxe::faults()))
}

/// Prints the limit of an account, or a dash if there is none.
struct Limit<'a>(&'a Account);

impl fmt::Display for Limit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.limit() {
            Account::NO_LIMIT => f.write_str("-"),
            bytes => f.write_fmt(fmt!("{bytes}")),
        }
    }
}

/// Prints the number of a user, or the word for kernel users.
struct Uid(Option<User>);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(user) => f.write_fmt(fmt!("{}", user.number())),
            None => f.write_str("kernel"),
        }
    }
}

fn show_each(device: &OfferedMemory, owners: &Owners, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    owners.each(|owner| {
        let account = owner.account();
        f.write_fmt(fmt!(
            "{} {} {} {} {} {}\n",
            device.name.get(),
            Uid(owner.user()),
            account.used(),
            account.high(),
            account.buffers(),
            Limit(account)
        ))
    })
}
