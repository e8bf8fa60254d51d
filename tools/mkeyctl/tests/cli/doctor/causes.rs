// SPDX-License-Identifier: GPL-2.0

//! Tests that `mkeyctl doctor` finds each cause of a problem and names a remedy. Each test changes or
//! removes one file of a machine.

use super::{
    doctor,
    machine,
    CONFIG, //
};

/// The causes, one by one: the file, its contents with that cause, the check that finds it, and
/// words of the remedy.
const CAUSES: &[(&str, &str, &str, &str)] = &[
    (
        "proc/sys/kernel/osrelease",
        "6.12.0",
        "kernel",
        "Linux 7.2 or 7.3",
    ),
    (
        "proc/sys/kernel/osrelease",
        "7.20.1",
        "kernel",
        "Linux 7.2 or 7.3",
    ),
    (
        CONFIG,
        "# CONFIG_RUST is not set\nCONFIG_INFINIBAND=m\nCONFIG_INFINIBAND_USER_ACCESS=m\nCONFIG_RDMA_RXE=m\n",
        "configuration",
        "CONFIG_RUST",
    ),
    (
        CONFIG,
        "CONFIG_RUST=y\nCONFIG_INFINIBAND=m\nCONFIG_INFINIBAND_USER_ACCESS=m\n",
        "configuration",
        "CONFIG_RDMA_RXE",
    ),
    (
        "sys/class/infiniband/rxe0/ports/1/state",
        "1: DOWN",
        "device",
        "ip link set eth0 up",
    ),
    (
        "sys/class/infiniband/rxe0/ports/1/gids/0",
        "0000:0000:0000:0000:0000:0000:0000:0000\n",
        "address",
        "ip addr add ADDRESS/PREFIX dev",
    ),
    (
        "sys/class/infiniband/rxe0/ports/1/gids/0",
        "fe80:0000:0000:0000:505d:bfff:fe55:aa01\n",
        "address",
        "ip addr add ADDRESS/PREFIX dev",
    ),
    (
        "sys/class/infiniband_verbs/uverbs0/ibdev",
        "rxe9",
        "permission",
        "modprobe ib_uverbs",
    ),
    (
        "etc/libibverbs.d/rxe.driver",
        "# driver rxe\ndriver siw\n",
        "provider",
        "echo driver rxe",
    ),
    (
        "proc/self/limits",
        "Max locked memory         65536                65536                bytes\n",
        "locked memory",
        "ulimit -l",
    ),
    (
        "etc/ld.so.preload",
        "/usr/local/lib/libibmkey-preload.so",
        "preload",
        "LD_PRELOAD=",
    ),
    ("etc/ld.so.cache", "", "library", "ldconfig"),
    (
        "sys/kernel/debug/ib_mkey/pools",
        "# device class total used high buffers\nrxe0 host 4096 4096 4096 1\n",
        "limits",
        "mkeyctl ls dm",
    ),
    (
        "sys/kernel/debug/ib_mkey/owners",
        "# device uid bytes high buffers limit\nrxe0 1000 3800 3800 1 4096\nrxe0 kernel 9999 9999 1 -\n",
        "limits",
        "max_dm_size_per_user",
    ),
    (
        "sys/kernel/debug/ib_mkey/keys",
        "# device uid bytes high regions+bindings limit\nrxe0 - 3800 3800 1 4096\nrxe0 1000 100 200 1 1024\n",
        "limits",
        "max_key_memory, a parameter",
    ),
    (
        "sys/kernel/debug/ib_mkey/keys",
        "# device uid bytes high regions+bindings limit\nrxe0 - 922 1024 1 4096\nrxe0 1000 922 1024 1 1024\n",
        "limits",
        "max_key_memory_per_user",
    ),
    (
        "dev/kmsg",
        "5,1,2,-;ib_mkey: rxe0: not extended: its link was added before ib_mkey was loaded, or by an\n",
        "log",
        "make the link again",
    ),
    (
        "dev/kmsg",
        "3,1,2,-;ib_mkey: dm_class: 'x' is no class of device memory\n",
        "log",
        "correct dm_class",
    ),
    (
        "lib/modules/7.2.12+deb13-amd64/modules.builtin",
        "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko\n",
        "rxe",
        "CONFIG_RDMA_RXE=m",
    ),
];

/// Files that a test removes, the check that finds that, and words of the remedy.
const MISSING: &[(&str, &str, &str)] = &[
    ("boot", "configuration", "/proc/config.gz"),
    ("sys/module/ib_mkey", "module", "make install"),
    ("sys/module/rdma_rxe", "rxe", "modprobe rdma_rxe"),
    (
        "sys/module/rxe_provider",
        "rxe",
        "rmmod rdma_rxe && modprobe rdma_rxe",
    ),
    ("sys/module/ib_uverbs", "uverbs", "modprobe ib_uverbs"),
    ("sys/class/infiniband", "devices", "rdma link add"),
    (
        "sys/class/infiniband/rxe0/parent",
        "devices",
        "rdma link add",
    ),
    ("dev/infiniband", "permission", "is udev running"),
    (
        "usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
        "provider",
        "install the package ibverbs-providers",
    ),
    ("etc/libibverbs.d", "provider", "echo driver rxe"),
    ("usr/local/lib", "preload", "make install"),
    ("usr/sbin/rdma", "rdma", "install iproute2"),
    ("sys/kernel/debug", "limits", "mount -t debugfs"),
    ("dev/kmsg", "log", "dmesg | grep ib_mkey"),
];

#[test]
fn the_doctor_finds_each_cause() {
    for (at, &(file, text, check, remedy)) in CAUSES.iter().enumerate() {
        let dir = machine(&format!("doctor-{at}"));
        std::fs::create_dir_all(dir.0.join(file).parent().unwrap()).unwrap();
        dir.file(file, text);
        if check == "kernel" {
            let config = std::fs::read_to_string(dir.0.join(CONFIG)).unwrap();
            dir.file(&format!("boot/config-{text}"), &config);
        }
        let note = ["preload", "library", "limits"].contains(&check);

        let found = doctor(&dir, if note { 0 } else { 1 });
        assert_eq!(found.len(), 1, "{file}: {found:?}");
        assert_eq!(found[0].0, check, "{file}");
        assert!(found[0].1.contains(remedy), "{file}: {found:?}");
    }
}

#[test]
fn the_doctor_finds_what_is_missing() {
    for (at, &(path, check, remedy)) in MISSING.iter().enumerate() {
        let dir = machine(&format!("doctor-missing-{at}"));
        let file = dir.0.join(path);
        if file.is_dir() {
            std::fs::remove_dir_all(&file).unwrap();
        } else {
            std::fs::remove_file(&file).unwrap();
        }
        let status = i32::from(!["configuration", "preload", "limits", "log"].contains(&check));

        let found = doctor(&dir, status);
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        assert_eq!(found[0].0, check, "{path}");
        assert!(found[0].1.contains(remedy), "{path}: {found:?}");
    }
}
