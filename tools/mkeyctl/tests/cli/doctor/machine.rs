// SPDX-License-Identifier: GPL-2.0

//! A machine on which `mkeyctl doctor` finds no problem, as a directory of its files.

use super::super::{
    mkeyctl,
    Dir, //
};

/// The options of the kernel of these machines.
pub(super) const CONFIG: &str = "boot/config-7.2.12+deb13-amd64";

/// Makes a machine without problems.
pub(super) fn machine(name: &str) -> Dir {
    let dir = Dir::new(name);
    let files = [
        ("proc/sys/kernel/osrelease", "7.2.12+deb13-amd64\n"),
        (
            CONFIG,
            "CONFIG_RUST=y\nCONFIG_INFINIBAND=m\nCONFIG_INFINIBAND_USER_ACCESS=m\nCONFIG_RDMA_RXE=m\n",
        ),
        (
            "proc/self/limits",
            "Max locked memory         unlimited            unlimited            bytes\n",
        ),
        ("sys/module/ib_mkey/refcnt", "1"),
        ("sys/module/ib_uverbs/refcnt", "1"),
        ("sys/module/rdma_rxe/refcnt", "1"),
        ("sys/module/rxe_provider/holders/rdma_rxe/refcnt", "1"),
        (
            "sys/kernel/debug/ib_mkey/pools",
            "# device class total used high buffers\nrxe0 host 4096 0 0 0\n",
        ),
        ("sys/class/infiniband/rxe0/parent", "eth0\n"),
        ("sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n"),
        ("sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0\n"),
        ("dev/infiniband/uverbs0", ""),
        (
            "dev/kmsg",
            "6,1,2,-;ib_mkey: rxe0: extended, 4096 bytes of device memory\n",
        ),
        ("usr/local/lib/libibmkey.so.2", ""),
        ("usr/local/lib/libibmkey-preload.so", ""),
        ("etc/ld.so.cache", "libibmkey.so.2"),
        ("usr/sbin/rdma", ""),
        (
            "usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
            "",
        ),
        // Providers of other devices do not count.
        (
            "usr/lib/x86_64-linux-gnu/libibverbs/libsiw-rdmav34.so",
            "",
        ),
        ("etc/libibverbs.d/rxe.driver", "driver rxe\n"),
    ];

    for (name, text) in files {
        std::fs::create_dir_all(dir.0.join(name).parent().unwrap()).unwrap();
        dir.file(name, text);
    }
    dir
}

/// Returns the name and the remedy of each check that is not "ok".
pub(super) fn doctor(dir: &Dir, status: i32) -> Vec<(String, String)> {
    let output = mkeyctl(&["-j", "doctor", "--root", dir.name()], "");
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let words = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();

    json["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["status"] != "ok")
        .map(|check| (words(&check["check"]), words(&check["remedy"])))
        .collect()
}
