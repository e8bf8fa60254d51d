// SPDX-License-Identifier: GPL-2.0

//! Checks that libibverbs has its provider library for rxe. Without it, libibverbs does not list
//! the devices that the kernel has.

use std::path::Path;

use super::{
    machine::Machine,
    Finding, //
};

const CHECK: &str = "provider";
const CONFIG_DIR: &str = "etc/libibverbs.d";
/// The directories in which the libibverbs of a distribution searches its provider libraries.
const DIRS: [&str; 6] = [
    "usr/lib/x86_64-linux-gnu/libibverbs",
    "usr/lib64/libibverbs",
    "usr/lib/libibverbs",
    "usr/local/lib/x86_64-linux-gnu/libibverbs",
    "usr/local/lib64/libibverbs",
    "usr/local/lib/libibverbs",
];

/// Searches the reason why libibverbs does not list a device of rxe whose node exists. `listed` is
/// `None` for another machine, whose libibverbs cannot be asked.
pub fn check(machine: &Machine, name: &str, listed: Option<bool>) -> Finding {
    let (found, remedy) = if listed == Some(true) {
        return Finding::ok(CHECK, format!("libibverbs lists {name}"));
    } else if !has_library(machine) {
        (
            "its provider library librxe is missing",
            "install the package ibverbs-providers",
        )
    } else if !is_configured(machine) {
        (
            "no file of /etc/libibverbs.d names its provider library librxe",
            "echo driver rxe >/etc/libibverbs.d/rxe.driver; the package ibverbs-providers has this file",
        )
    } else if listed.is_none() {
        return Finding::ok(CHECK, "libibverbs has librxe");
    } else {
        (
            "its provider library librxe is installed",
            "IBV_SHOW_WARNINGS=1 ibv_devices shows why; rdma link lists the devices of this network namespace",
        )
    };

    Finding::problem(
        CHECK,
        format!("{name} is not among the devices of libibverbs: {found}"),
        remedy,
    )
}

/// Returns `true` if there is a provider library for rxe. Its name ends with the version of the
/// interface, such as `librxe-rdmav34.so`.
fn has_library(machine: &Machine) -> bool {
    let own = loaded(&machine.read("proc/self/maps").unwrap_or_default());

    own.into_iter().chain(DIRS.map(str::to_owned)).any(|dir| {
        machine
            .names(&dir)
            .iter()
            .any(|name| name.starts_with("librxe-rdmav") && name.ends_with(".so"))
    })
}

/// Returns the directory of the libibverbs that is loaded, and that of its provider libraries.
fn loaded(maps: &str) -> Vec<String> {
    maps.lines()
        .filter_map(|line| line.find('/').and_then(|at| line.get(at..)))
        .map(Path::new)
        .filter(|file| {
            file.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("libibverbs.so"))
        })
        .filter_map(|file| file.parent()?.to_str())
        .take(1)
        .map(|dir| dir.trim_start_matches('/'))
        .flat_map(|dir| [dir.to_owned(), format!("{dir}/libibverbs")])
        .collect()
}

/// Returns `true` if a file of libibverbs's configuration names the driver rxe.
fn is_configured(machine: &Machine) -> bool {
    machine
        .names(CONFIG_DIR)
        .iter()
        .filter_map(|name| machine.read(&format!("{CONFIG_DIR}/{name}")))
        .any(|text| {
            text.lines().any(|line| {
                let mut words = line.split_whitespace();

                words.next() == Some("driver")
                    && words
                        .next()
                        .is_some_and(|driver| driver.rsplit('/').next().is_some_and(is_rxe))
            })
        })
}

/// Returns `true` for the name of rxe's provider library, alone or at the end of a path.
fn is_rxe(name: &str) -> bool {
    name == "rxe" || name == "librxe"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_providers_are_beside_the_library_that_is_loaded() {
        let maps = "7f00-7f01 r-xp 0 fe:00 1    /usr/lib/libc.so.6\n\
                    7f01-7f02 r--p 0 fe:00 2    /opt/my lib/libibverbs.so.1.14.56.1\n\
                    7f02-7f03 r-xp 0 fe:00 2    /opt/my lib/libibverbs.so.1.14.56.1\n\
                    7f03-7f04 rw-p 0 00:00 0\n";

        assert_eq!(loaded(maps), ["opt/my lib", "opt/my lib/libibverbs"]);
        assert!(
            loaded("7f00-7f01 r-xp 0 fe:00 1 /usr/lib/libibverbs/librxe-rdmav34.so\n").is_empty()
        );
    }
}
