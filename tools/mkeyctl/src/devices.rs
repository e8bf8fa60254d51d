// SPDX-License-Identifier: GPL-2.0

//! Lists the RDMA devices and chooses among them.

use std::{
    io::ErrorKind,
    path::{
        Path,
        PathBuf, //
    },
};

use ibmkey::{
    verbs::{
        Device,
        Devices, //
    },
    Errno,
};

/// Lists the devices.
pub fn list() -> Result<Devices, String> {
    Devices::list().map_err(|errno| match errno {
        // libibverbs returns this if the kernel has no ib_uverbs.
        Errno::ENOSYS => {
            "no RDMA devices: the kernel's ib_uverbs module is not loaded; mkeyctl doctor has the \
                           remedy"
                .into()
        }
        _ => format!("cannot list the RDMA devices: {errno}"),
    })
}

/// Returns an error if there is no device of this name.
pub fn check(name: &str) -> Result<(), String> {
    choose(&list()?, Some(name)).map(drop)
}

pub const NONE: &str = "no RDMA devices; mkeyctl doctor has the remedy";

/// Returns the message for a name that is not among the devices.
pub fn unknown(name: &str, known: &[impl AsRef<str>]) -> String {
    let known: Vec<_> = known.iter().map(AsRef::as_ref).collect();

    match known.as_slice() {
        [] => format!("no device {name}: there are none"),
        known => format!("no device {name}: there are {}", known.join(", ")),
    }
}

/// Returns the message for a device without keys.
pub fn not_extended(name: &str) -> String {
    format!("{name} is not extended by ib_mkey; mkeyctl doctor {name} has the remedy")
}

/// Returns the message for a device that cannot be opened. libibverbs returns ENOENT also if the
/// user may not open the node of the device.
pub fn not_opened(name: &str, errno: Errno) -> String {
    let root = Path::new("/");
    let node = node(root, name).map(|node| root.join(node));
    let refused = node.as_deref().and_then(|node| {
        let opened = std::fs::File::options().read(true).write(true).open(node);
        opened.err().map(|error| (node, error))
    });

    match refused {
        Some((node, error)) if error.kind() == ErrorKind::PermissionDenied => format!(
            "{name}: this user may not open {}; mkeyctl doctor {name} has the remedy",
            node.display()
        ),
        Some((node, error)) => format!("{name}: {}: {error}", node.display()),
        None => format!("{name}: cannot be opened: {errno}"),
    }
}

/// Returns the node by which programs open the device, a path below the root directory.
pub fn node(root: &Path, name: &str) -> Option<PathBuf> {
    let nodes = std::fs::read_dir(root.join("sys/class/infiniband_verbs")).ok()?;

    nodes.flatten().find_map(|entry| {
        let device = std::fs::read_to_string(entry.path().join("ibdev")).ok()?;
        (device.trim() == name).then(|| Path::new("dev/infiniband").join(entry.file_name()))
    })
}

/// Returns the device with this name, or all devices. Returns an error if there is none.
pub fn choose<'a>(devices: &'a Devices, name: Option<&str>) -> Result<Vec<Device<'a>>, String> {
    let chosen: Vec<_> = devices
        .iter()
        .filter(|device| name.is_none_or(|name| name == device.name()))
        .collect();

    if chosen.is_empty() {
        let known: Vec<_> = devices
            .iter()
            .map(|device| device.name().to_owned())
            .collect();
        return Err(match name {
            Some(name) if in_sysfs(name) => {
                format!("libibverbs does not list {name}; mkeyctl doctor has the remedy")
            }
            Some(name) => unknown(name, &known),
            None => NONE.to_owned(),
        });
    }
    Ok(chosen)
}

/// Returns `true` if the kernel has the device. libibverbs lists it only if it has the provider
/// library of the device, and if the device has a node.
fn in_sysfs(name: &str) -> bool {
    !name.contains('/') && Path::new("/sys/class/infiniband").join(name).exists()
}
