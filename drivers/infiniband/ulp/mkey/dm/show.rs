// SPDX-License-Identifier: GPL-2.0

//! The files of the module in debugfs. `pools` shows the pools of device memory, `owners` their
//! owners. `keys` shows the owners of the kernel's memory that keys and other regions take.
//! `accesses_outside` is the number of accesses outside of SRCU, for which only a rebind of the
//! same key waits.
//!
//! Each of the first three has a line of column names, then a line for each pool or owner of each
//! extended device. Bytes of device memory are whole pages.

use super::OfferedMemory;
use crate::{
    kernel_ext::{process::Process, sync::global::global_mutex},
    limits::owner::Owners,
    region::binding,
};

use kernel::{
    debugfs::{Dir, File},
    fmt,
    prelude::*,
    str::BStr,
    sync::Arc,
};

global_mutex!(static DEVICES: KVec<Offered> = KVec::new());

/// A device whose memory is shown.
struct Offered {
    memory: Arc<OfferedMemory>,
    keys: Arc<Owners>,
}

/// The files. They are removed when this is dropped.
pub(crate) struct Shown {
    _pools: Pin<KBox<File<()>>>,
    _owners: Pin<KBox<File<()>>>,
    _keys: Pin<KBox<File<()>>>,
    _accesses: Pin<KBox<File<()>>>,
    _dir: Dir,
}

impl Shown {
    /// Makes the files.
    pub(crate) fn new() -> Result<Self> {
        let dir = Dir::new(c"ib_mkey");
        Ok(Self {
            _pools: KBox::pin_init(
                dir.read_callback_file(c"pools", (), &show_pools),
                GFP_KERNEL,
            )?,
            _owners: KBox::pin_init(
                dir.read_callback_file(c"owners", (), &show_owners),
                GFP_KERNEL,
            )?,
            _keys: KBox::pin_init(dir.read_callback_file(c"keys", (), &show_keys), GFP_KERNEL)?,
            _accesses: KBox::pin_init(
                dir.read_callback_file(c"accesses_outside", (), &show_accesses),
                GFP_KERNEL,
            )?,
            _dir: dir,
        })
    }
}

/// Begins to show a device's memory.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn add(memory: &Arc<OfferedMemory>, keys: &Arc<Owners>) -> Result {
    let offered = Offered {
        memory: memory.clone(),
        keys: keys.clone(),
    };
    Ok(DEVICES::lock().push(offered, GFP_KERNEL)?)
}

/// Stops showing a device's memory.
pub(crate) fn remove(memory: &Arc<OfferedMemory>) {
    let mut devices = DEVICES::lock();
    devices.retain(|other| !Arc::ptr_eq(&other.memory, memory));
    // A static is never dropped: free its vector here.
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
    f.write_str("# device pid bytes high buffers comm\n")?;
    for device in DEVICES::lock().iter() {
        show_each(&device.memory, &device.memory.owners, f)?;
    }
    Ok(())
}

fn show_keys(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("# device pid bytes high regions+bindings comm\n")?;
    for device in DEVICES::lock().iter() {
        let total = device.keys.total();
        f.write_fmt(fmt!(
            "{} - {} {} {} [all of {}]\n",
            device.memory.name.get(),
            total.used(),
            total.high(),
            total.buffers(),
            total.limit()
        ))?;
        show_each(&device.memory, &device.keys, f)?;
    }
    Ok(())
}

fn show_accesses(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_fmt(fmt!("{}\n", binding::accesses_outside()))
}

fn show_each(device: &OfferedMemory, owners: &Owners, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    owners.each(|owner| {
        let account = owner.account();
        f.write_fmt(fmt!(
            "{} {} {} {} {} ",
            device.name.get(),
            owner.process().map_or(0, Process::number),
            account.used(),
            account.high(),
            account.buffers()
        ))?;
        match owner.process() {
            // A process chooses its name. `BStr` prints unprintable bytes as numbers.
            Some(process) => f.write_fmt(fmt!("{}\n", BStr::from_bytes(process.name()))),
            None => f.write_str("[kernel]\n"),
        }
    })
}
