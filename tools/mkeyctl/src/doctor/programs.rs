// SPDX-License-Identifier: GPL-2.0

//! Checks what programs need: the libraries, locked memory and the rdma program.

use std::env;

use super::{
    machine::Machine,
    Finding, //
};

const LIBRARY: &str = "libibmkey.so.2";
const PRELOAD: &str = "libibmkey-preload.so";
const DIRS: [&str; 6] = [
    "usr/local/lib",
    "usr/lib/x86_64-linux-gnu",
    // Debian's package has the preload library in a separate directory.
    "usr/lib/x86_64-linux-gnu/libibmkey",
    "usr/local/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/lib",
];

/// The smallest limit on locked memory that is not reported.
const MEMLOCK: u64 = 8 << 20;

pub fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![library(machine), preload(machine), memlock(machine)];

    findings.extend(rdma(machine));
    findings
}

/// Searches the file in `LD_LIBRARY_PATH` and in the linker's directories. Returns its directory.
fn find(machine: &Machine, file: &str) -> Option<String> {
    let path = env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let own = path
        .split(':')
        .filter(|dir| machine.is_this() && !dir.is_empty())
        .map(|dir| dir.trim_start_matches('/').to_owned());

    own.chain(DIRS.map(str::to_owned))
        .find(|dir| machine.exists(&format!("{dir}/{file}")))
        .map(|dir| format!("/{dir}/{file}"))
}

fn library(machine: &Machine) -> Finding {
    const CHECK: &str = "library";
    let known = machine
        .read("etc/ld.so.cache")
        .is_some_and(|cache| cache.contains(LIBRARY));

    let by_path = machine.is_this() && env::var_os("LD_LIBRARY_PATH").is_some();

    match find(machine, LIBRARY) {
        Some(file) if known => Finding::ok(CHECK, file),
        Some(file) if by_path => Finding::ok(CHECK, format!("{file}, by LD_LIBRARY_PATH alone")),
        Some(file) => Finding::note(
            CHECK,
            format!("{file} is not in the linker's cache"),
            "ldconfig; for a directory that the linker does not search, echo DIR >/etc/ld.so.conf.d/ib_mkey.conf first",
        ),
        None if known => Finding::ok(CHECK, "in the linker's cache"),
        None => Finding::note(
            CHECK,
            format!("{LIBRARY} is not installed in the linker's directories"),
            "make install, the package libibmkey2, or link with -Wl,-rpath,DIR",
        ),
    }
}

/// Checks the preload library, which programs need that do not link to the library.
fn preload(machine: &Machine) -> Finding {
    const CHECK: &str = "preload";
    let global = machine
        .read("etc/ld.so.preload")
        .is_some_and(|text| text.contains(PRELOAD));
    let asked = env::var("LD_PRELOAD").unwrap_or_default();
    let missing = asked.split([':', ' ']).find(|file| {
        machine.is_this()
            && file.contains(PRELOAD)
            && file.starts_with('/')
            && !machine.exists(file.trim_start_matches('/'))
    });

    if global {
        return Finding::note(
            CHECK,
            format!("/etc/ld.so.preload has {PRELOAD}: every program of the machine loads it"),
            "set LD_PRELOAD= for the programs that need it instead",
        );
    }
    if let Some(file) = missing {
        return Finding::problem(
            CHECK,
            format!("LD_PRELOAD names {file}, which is not there"),
            "correct LD_PRELOAD; make install puts the library into PREFIX/lib",
        );
    }
    match find(machine, PRELOAD) {
        Some(file) => Finding::ok(CHECK, file),
        None => Finding::note(
            CHECK,
            format!("{PRELOAD} is not installed in the linker's directories"),
            "needed only for programs that are not linked with libibmkey: make install, or the package libibmkey2",
        ),
    }
}

fn memlock(machine: &Machine) -> Finding {
    const CHECK: &str = "locked memory";
    let limits = machine.read("proc/self/limits").unwrap_or_default();
    let limit = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))
        .and_then(|rest| rest.split_whitespace().next());

    match limit.map(|limit| (limit, limit.parse::<u64>())) {
        Some((_, Ok(_))) if may_lock(machine) => {
            Finding::ok(CHECK, "without a limit, because of CAP_IPC_LOCK")
        }
        Some((_, Ok(bytes))) if bytes < MEMLOCK => Finding::problem(
            CHECK,
            format!(
                "this user may lock {bytes} bytes: ibv_reg_mr() fails with ENOMEM beyond it, or with EPERM if it is 0"
            ),
            "raise memlock in /etc/security/limits.conf, or ulimit -l unlimited as root",
        ),
        Some((_, Ok(bytes))) => Finding::ok(CHECK, format!("{} MiB", bytes >> 20)),
        Some((limit, Err(_))) => Finding::ok(CHECK, limit),
        None => Finding::unknown(
            CHECK,
            "/proc/self/limits does not show the limit on locked memory",
            "ulimit -l shows it",
        ),
    }
}

/// Returns `true` if this process has CAP_IPC_LOCK, so that the limit does not apply.
fn may_lock(machine: &Machine) -> bool {
    const CAP_IPC_LOCK: u64 = 1 << 14;
    let status = machine.read("proc/self/status").unwrap_or_default();

    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .is_some_and(|bits| bits & CAP_IPC_LOCK != 0)
}

fn rdma(machine: &Machine) -> Option<Finding> {
    let dirs = ["usr/sbin", "usr/bin", "sbin", "bin", "usr/local/sbin"];

    (!dirs
        .iter()
        .any(|dir| machine.exists(&format!("{dir}/rdma"))))
    .then(|| {
        Finding::problem(
            "rdma",
            "the rdma program is not installed; mkeyctl ls and stat run it",
            "install iproute2",
        )
    })
}
