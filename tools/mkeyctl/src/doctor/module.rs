// SPDX-License-Identifier: GPL-2.0

//! Checks the kernel, ib_mkey and rdma_rxe.

use super::{
    build,
    config,
    machine::Machine,
    Finding, //
};

pub fn check(machine: &Machine) -> Vec<Finding> {
    let table = has_table(machine);
    let mut findings = vec![
        kernel(machine),
        config::check(machine, table),
        ftrace(machine, table),
        loaded(machine),
    ];

    findings.extend(signed(machine));
    findings.extend([order(machine), softdep(machine), rxe(machine)]);
    findings.extend(held(machine));
    findings
}

fn kernel(machine: &Machine) -> Finding {
    let release = &machine.release;
    let supported = ["7.2", "7.3"].iter().any(|series| {
        release
            .strip_prefix(series)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+']))
    });

    if supported {
        Finding::ok("kernel", format!("Linux {release}"))
    } else {
        Finding::problem(
            "kernel",
            format!("Linux {release}"),
            "boot Linux 7.2 or 7.3; Debian has 7.2 in trixie-backports",
        )
    }
}

/// Returns `true` if rdma_rxe is loaded and calls ib_mkey by a table of operations. ib_mkey then
/// redirects no functions.
fn has_table(machine: &Machine) -> bool {
    machine.read("proc/kallsyms").is_some_and(|symbols| {
        symbols
            .lines()
            .any(|line| line.split_whitespace().nth(2) == Some("rxe_mr_set_ops"))
    })
}

fn ftrace(machine: &Machine, has_table: bool) -> Finding {
    const FILE: &str = "proc/sys/kernel/ftrace_enabled";

    match machine.read(FILE).as_deref().map(str::trim) {
        Some("1") => Finding::ok("ftrace", "kernel.ftrace_enabled is 1"),
        _ if has_table => Finding::ok("ftrace", "not needed: rdma_rxe has a table of operations"),
        Some(value) => Finding::problem(
            "ftrace",
            format!("kernel.ftrace_enabled is {value}: rdma_rxe cannot be redirected"),
            "sysctl kernel.ftrace_enabled=1, then load ib_mkey again",
        ),
        None => Finding::problem(
            "ftrace",
            "the kernel has no ftrace (no sysctl kernel.ftrace_enabled)",
            "use a kernel with CONFIG_DYNAMIC_FTRACE_WITH_JMP and CONFIG_KPROBES",
        ),
    }
}

fn loaded(machine: &Machine) -> Finding {
    if machine.is_loaded("ib_mkey") {
        match build::other_build(machine, "ib_mkey") {
            Some(file) => Finding::note(
                "module",
                format!("the ib_mkey that is loaded is another build than /{file}"),
                "delete the links, then rmmod ib_mkey && modprobe ib_mkey",
            ),
            None => Finding::ok("module", "ib_mkey is loaded"),
        }
    } else if machine.is_installed("ib_mkey") {
        Finding::problem(
            "module",
            "ib_mkey is installed and not loaded",
            "modprobe ib_mkey; if it refuses, the last lines of dmesg say why",
        )
    } else {
        Finding::problem(
            "module",
            format!("ib_mkey is not installed for {}", machine.release),
            "make install from the source, or install the package ib-mkey-dkms",
        )
    }
}

/// Checks the signature of the module. A module that is loaded needs no check.
fn signed(machine: &Machine) -> Option<Finding> {
    let enforced = machine
        .read("sys/module/module/parameters/sig_enforce")
        .is_some_and(|text| text.trim() == "Y");
    let locked = machine
        .read("sys/kernel/security/lockdown")
        .is_some_and(|text| text.contains('[') && !text.contains("[none]"));

    (!machine.is_loaded("ib_mkey") && (enforced || locked)).then(|| {
        Finding::problem(
            "signature",
            "this kernel loads signed modules only",
            "sign ib_mkey.ko with a key that the kernel knows (see mokutil), or disable secure boot",
        )
    })
}

/// Checks the order of loading. ib_mkey must be loaded first, because ib_uverbs reads the
/// operations of a device only once, when the device is added.
fn order(machine: &Machine) -> Finding {
    const CHECK: &str = "load order";
    let modules = machine.modules();
    let place = |name: &str| modules.iter().position(|module| module == name);

    if machine.is_built_in("ib_uverbs") {
        return Finding::problem(
            CHECK,
            "ib_uverbs is built into the kernel, so it is always there first",
            "use a kernel with CONFIG_INFINIBAND_USER_ACCESS=m",
        );
    }
    match (place("ib_mkey"), place("ib_uverbs")) {
        (_, None) => Finding::problem(
            CHECK,
            "ib_uverbs is not loaded: programs find no device",
            "modprobe ib_uverbs",
        ),
        (None, Some(_)) => Finding::problem(
            CHECK,
            "ib_uverbs is loaded and ib_mkey is not",
            "modprobe -r rdma_ucm ib_uverbs, then modprobe -a ib_mkey ib_uverbs rdma_ucm",
        ),
        // `modules()` begins with the module that was loaded last.
        (Some(mkey), Some(uverbs)) if mkey < uverbs => Finding::problem(
            CHECK,
            "ib_uverbs was loaded before ib_mkey: programs get no keys and no device memory",
            "modprobe -r rdma_ucm ib_uverbs, then modprobe -a ib_uverbs rdma_ucm; \
             if an initramfs loads ib_uverbs, update-initramfs -u",
        ),
        (Some(_), Some(_)) => Finding::ok(CHECK, "ib_mkey was loaded before ib_uverbs"),
    }
}

fn softdep(machine: &Machine) -> Finding {
    match machine.softdep() {
        Some(file) => Finding::ok("softdep", file.display().to_string()),
        None => Finding::problem(
            "softdep",
            "no file in /etc/modprobe.d has the load order, so it may differ after a restart",
            "echo 'softdep ib_uverbs pre: ib_mkey' >/etc/modprobe.d/ib_mkey.conf",
        ),
    }
}

fn rxe(machine: &Machine) -> Finding {
    if machine.is_built_in("rdma_rxe") {
        Finding::problem(
            "rxe",
            "rdma_rxe is built into the kernel: its devices are not extended",
            "use a kernel with CONFIG_RDMA_RXE=m",
        )
    } else if machine.is_loaded("rdma_rxe") {
        Finding::ok("rxe", "rdma_rxe is loaded as a module")
    } else if machine.is_installed("rdma_rxe") {
        Finding::problem("rxe", "rdma_rxe is not loaded", "modprobe rdma_rxe")
    } else {
        Finding::problem(
            "rxe",
            format!("there is no module rdma_rxe for {}", machine.release),
            "install all modules of the kernel, or use one with CONFIG_RDMA_RXE=m",
        )
    }
}

const KPROBES: &str = "sys/kernel/debug/kprobes/list";

/// Finds livepatches and kprobes of rxe's functions. ib_mkey cannot redirect a function that one of
/// them holds.
fn held(machine: &Machine) -> Option<Finding> {
    let patch = machine
        .names("sys/kernel/livepatch")
        .into_iter()
        .find(|patch| machine.exists(&format!("sys/kernel/livepatch/{patch}/rdma_rxe")));
    if patch.is_none() && machine.is_refused(KPROBES) {
        return Some(Finding::unknown(
            "conflicts",
            "this user may not read the list of kprobes",
            "run mkeyctl doctor as root",
        ));
    }
    let probe = machine.read(KPROBES).and_then(|text| {
        text.lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            // The address, the kind, the function with an offset, and the module.
            .find_map(|words| match words.as_slice() {
                [_, _, function, "rdma_rxe", ..] => Some((*function).to_owned()),
                _ => None,
            })
    });

    if let Some(patch) = patch {
        return Some(Finding::problem(
            "conflicts",
            format!("the livepatch {patch} changes rdma_rxe"),
            "remove the livepatch, then load rdma_rxe and ib_mkey again",
        ));
    }
    probe.map(|function| {
        Finding::note(
            "conflicts",
            format!("there is a kprobe on {function} of rdma_rxe"),
            "a kprobe with a post_handler keeps ib_mkey from redirecting rdma_rxe: remove it before loading",
        )
    })
}
