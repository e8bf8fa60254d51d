// SPDX-License-Identifier: GPL-2.0

//! Device memory as seen from outside: `pools` and `owners` in the debugfs folder of the module; and
//! `keys`, the kernel's memory that keys and other regions take, by its owners. `accesses_outside`
//! is a number: accesses that were done outside of SRCU, which hold up nobody but their own key.
//!
//! Each of the others has a line of column names, then a line for each pool or owner of each extended device.
//! Bytes of device memory are whole pages.

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

/// What is shown of a device.
struct Offered {
    memory: Arc<OfferedMemory>,
    keys: Arc<Owners>,
}

/// The files; gone when it is dropped.
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

/// Shows a device's memory from here on.
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

/// Shows a device's memory no longer.
pub(crate) fn remove(memory: &Arc<OfferedMemory>) {
    let mut devices = DEVICES::lock();
    devices.retain(|other| !Arc::ptr_eq(&other.memory, memory));
    // Nothing drops a static.
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
                // Not looked for yet.
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
            // A process chooses its name: what is not printable is shown as a number.
            Some(process) => f.write_fmt(fmt!("{}\n", BStr::from_bytes(process.name()))),
            None => f.write_str("[kernel]\n"),
        }
    })
}
