// SPDX-License-Identifier: GPL-2.0

//! Checks the kernel and its options, ib_mkey and rdma_rxe.

use super::{
    machine::Machine,
    Finding, //
};

pub fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![kernel(machine), configuration(machine), loaded(machine)];

    findings.extend(signed(machine));
    findings.extend([rxe(machine), uverbs(machine)]);
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

fn loaded(machine: &Machine) -> Finding {
    if machine.is_loaded("ib_mkey") {
        match other_build(machine, "ib_mkey") {
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

fn uverbs(machine: &Machine) -> Finding {
    const CHECK: &str = "uverbs";

    if machine.is_loaded("ib_uverbs") || machine.is_built_in("ib_uverbs") {
        Finding::ok(CHECK, "ib_uverbs is there")
    } else {
        Finding::problem(
            CHECK,
            "ib_uverbs is not loaded: programs find no device",
            "modprobe ib_uverbs",
        )
    }
}

/// Says which rdma_rxe is loaded. One with the series of patches/rxe asks for a provider, and so it
/// uses the module with the registry of the provider.
fn rxe(machine: &Machine) -> Finding {
    const CHECK: &str = "rxe";
    const RELOAD: &str =
        "delete the links (rdma link delete), then rmmod rdma_rxe && modprobe rdma_rxe";

    if machine.is_built_in("rdma_rxe") {
        return Finding::problem(
            CHECK,
            "rdma_rxe is built into the kernel: its devices are not extended",
            "use a kernel with CONFIG_RDMA_RXE=m",
        );
    }
    if !machine.is_loaded("rdma_rxe") {
        return Finding::problem(CHECK, "rdma_rxe is not loaded", "modprobe rdma_rxe");
    }
    if !machine.exists("sys/module/rxe_provider/holders/rdma_rxe") {
        return Finding::problem(
            CHECK,
            "the rdma_rxe that is loaded lacks patches/rxe, as the kernel's own does: its devices are not extended",
            format!("{RELOAD}; if that loads the same one, make install or install the package ib-mkey-dkms first"),
        );
    }
    // The kernel's own is not a later build.
    match other_build(machine, "rdma_rxe").filter(|file| !file.contains("/kernel/")) {
        Some(file) => Finding::note(
            CHECK,
            format!(
                "the rdma_rxe that is loaded has patches/rxe, and is another build than /{file}"
            ),
            RELOAD,
        ),
        None => Finding::ok(CHECK, "the rdma_rxe that is loaded has patches/rxe"),
    }
}

const CONFIGURATION: &str = "configuration";
const REMEDY: &str =
    "use a kernel with CONFIG_RUST and with CONFIG_RDMA_RXE=m; Debian has such ones";

/// The options that every kernel needs. Another check finds a built-in rdma_rxe.
const NEEDED: [&str; 4] = [
    "CONFIG_RUST",
    "CONFIG_INFINIBAND",
    "CONFIG_INFINIBAND_USER_ACCESS",
    "CONFIG_RDMA_RXE",
];

fn configuration(machine: &Machine) -> Finding {
    let Some((file, text)) = config(machine) else {
        return Finding::unknown(
            CONFIGURATION,
            "no file that this user may read has the options of the kernel",
            format!("look in zcat /proc/config.gz or in the kernel's package; {REMEDY}"),
        );
    };
    let is_on = |option: &str| {
        text.lines()
            .filter_map(|line| line.split_once('='))
            .any(|(name, value)| name == option && matches!(value.trim(), "y" | "m"))
    };
    let missing: Vec<_> = NEEDED.into_iter().filter(|option| !is_on(option)).collect();

    if !missing.is_empty() {
        Finding::problem(
            CONFIGURATION,
            format!("the kernel was built without {}", missing.join(", ")),
            REMEDY,
        )
    } else {
        Finding::ok(CONFIGURATION, file)
    }
}

/// Returns the options of the kernel, and the name of the file that has them.
fn config(machine: &Machine) -> Option<(String, String)> {
    let release = &machine.release;
    let files = [
        format!("boot/config-{release}"),
        format!("lib/modules/{release}/config"),
        format!("lib/modules/{release}/build/.config"),
    ];

    files
        .into_iter()
        .find_map(|file| {
            let text = machine.read(&file)?;
            Some((format!("/{file}"), text))
        })
        .or_else(|| {
            let bytes = machine.unpacked("gzip", "proc/config.gz")?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Some(("/proc/config.gz".to_owned(), text))
        })
}

/// The header of an ELF note for GNU: three numbers of 32 bits, and a name of 4 bytes.
const NOTE_HEADER: usize = 16;

/// Returns the installed file of a module if another build of the module is loaded. The build ID of
/// the linker is in a note of the file, and the kernel shows this note.
fn other_build(machine: &Machine, module: &str) -> Option<String> {
    let note = machine.read_bytes(&format!("sys/module/{module}/notes/.note.gnu.build-id"))?;
    let id = note.get(NOTE_HEADER..).filter(|id| !id.is_empty())?;
    let file = machine.installed(module)?;
    let bytes = contents(machine, &file)?;

    (!bytes.windows(id.len()).any(|part| part == id)).then_some(file)
}

/// Returns the bytes of a module's file, unpacked. Returns `None` without the program that unpacks
/// it.
fn contents(machine: &Machine, file: &str) -> Option<Vec<u8>> {
    let program = match file.rsplit('.').next() {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return machine.read_bytes(file),
    };

    machine.unpacked(program, file)
}
