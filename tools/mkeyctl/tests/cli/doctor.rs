// SPDX-License-Identifier: GPL-2.0

//! Tests `mkeyctl doctor`. A machine in these tests is a directory with the machine's files.
//! `doctor/causes.rs` tests each cause of a problem alone.

mod causes;
mod machine;

use self::machine::{
    doctor,
    machine,
    CONFIG, //
};
use super::{
    mkeyctl,
    printed,
    refused,
    REFUSED, //
};

const SIGN: &str = "sign ib_mkey.ko";

#[test]
fn a_machine_on_which_all_is_well_has_no_findings() {
    let dir = machine("doctor-well");

    assert_eq!(doctor(&dir, 0), []);
    let text = printed(&["doctor", "--root", dir.name()], "");
    assert!(text.ends_with("No problem found.\n"), "{text}");
    assert!(text
        .lines()
        .all(|line| line.starts_with("ok ") || line.starts_with("No ")));
}

/// An IPv6 link-local address has the same GID as the netdev itself.
#[test]
fn the_doctor_knows_a_link_local_address() {
    let dir = machine("doctor-link-local");
    let gid = "fe80:0000:0000:0000:505d:bfff:fe55:aa01\n";
    for made in ["sys/class/infiniband/rxe0/ports/1/gids", "proc/net"] {
        std::fs::create_dir_all(dir.0.join(made)).unwrap();
    }
    dir.file("sys/class/infiniband/rxe0/ports/1/gids/0", gid);
    let address = "fe80000000000000505dbffffe55aa01 02 40 20 80";

    dir.file("proc/net/if_inet6", &format!("{address}     eth1\n"));
    assert_eq!(doctor(&dir, 1)[0].0, "address");
    dir.file("proc/net/if_inet6", &format!("{address}     eth0\n"));
    assert_eq!(doctor(&dir, 0), []);
}

/// A refused access may be what a program tests.
#[test]
fn the_doctor_notes_a_refused_access() {
    let dir = machine("doctor-why");
    dir.file("sys/kernel/debug/ib_mkey/refused", REFUSED);

    let found = doctor(&dir, 0);
    assert_eq!(found, [("accesses".into(), "mkeyctl why rxe0".into())]);
    let text = printed(&["doctor", "--root", dir.name()], "");
    assert!(
        text.contains("refused an access: 3; the last: key 0x4b01"),
        "{text}"
    );
}

/// No order of loading counts, so ib_uverbs may be built in.
#[test]
fn the_doctor_takes_a_built_in_ib_uverbs() {
    let dir = machine("doctor-uverbs");
    std::fs::remove_dir_all(dir.0.join("sys/module/ib_uverbs")).unwrap();
    assert_eq!(doctor(&dir, 1)[0].0, "uverbs");
    std::fs::create_dir_all(dir.0.join("lib/modules/7.2.12+deb13-amd64")).unwrap();
    dir.file(
        "lib/modules/7.2.12+deb13-amd64/modules.builtin",
        "kernel/drivers/infiniband/core/ib_uverbs.ko\n",
    );
    assert_eq!(doctor(&dir, 0), []);
}

/// A link that no unit makes is lost at the next start, and a unit may have made no link.
#[test]
fn the_doctor_looks_for_the_links_of_the_next_start() {
    let dir = machine("doctor-links");
    let make = |file: &str| {
        let path = dir.0.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        dir.file(file, "");
    };
    let wants = "etc/systemd/system/sys-subsystem-net-devices-eth0.device.wants";
    let links = |status: i32| {
        let found = doctor(&dir, status);
        assert!(found.iter().all(|(check, _)| check == "links"), "{found:?}");
        found
            .into_iter()
            .map(|(_, remedy)| remedy)
            .collect::<Vec<_>>()
    };

    // Only one of systemd and the unit.
    make("usr/lib/systemd/system/ib-mkey-rxe@.service");
    assert!(links(0).is_empty());
    std::fs::create_dir_all(dir.0.join("run/systemd/system")).unwrap();
    let found = links(0);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("systemctl enable 'ib-mkey-rxe@eth0'"));

    make(&format!("{wants}/other.service"));
    assert_eq!(links(0), found);
    make(&format!("{wants}/ib-mkey-rxe@eth0.service"));
    assert!(links(0).is_empty());
    // A netdev with a dash whose link is missing, and then the netdev itself.
    make("etc/systemd/system/multi-user.target.wants/ib-mkey-rxe@br\\x2dlan.service");
    make("sys/class/net/br-lan/ifindex");
    let found = links(1);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("systemctl restart 'ib-mkey-rxe@br\\x2dlan'"),
        "{found:?}"
    );
    std::fs::remove_dir_all(dir.0.join("sys/class/net")).unwrap();
    assert!(links(0)[0].starts_with("systemctl disable"));
    make("sys/class/infiniband/mine/parent");
    dir.file("sys/class/infiniband/mine/parent", "br-lan\n");
    assert!(!doctor(&dir, 1).iter().any(|(check, _)| check == "links"));
}

/// Some kernels show their options only in /proc/config.gz.
#[test]
fn the_doctor_unpacks_the_configuration() {
    let dir = machine("doctor-packed");
    let config = dir.0.join(CONFIG);
    let pack = |text: &str| {
        dir.file("proc/config", text);
        let gzip = std::process::Command::new("gzip")
            .arg("-f")
            .arg(dir.0.join("proc/config"))
            .status();
        assert!(gzip.unwrap().success());
    };

    pack(&std::fs::read_to_string(&config).unwrap());
    std::fs::remove_file(&config).unwrap();
    assert_eq!(doctor(&dir, 0), []);
    pack("CONFIG_MODULES=y\n");
    let found = doctor(&dir, 1);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "configuration");
}

#[test]
fn the_doctor_finds_that_a_module_must_be_signed() {
    let dir = machine("doctor-signed");
    std::fs::remove_dir_all(dir.0.join("sys/module/ib_mkey")).unwrap();
    std::fs::create_dir_all(dir.0.join("sys/module/module/parameters")).unwrap();
    std::fs::create_dir_all(dir.0.join("sys/kernel/security")).unwrap();
    let enforced = "sys/module/module/parameters/sig_enforce";
    let locked = "sys/kernel/security/lockdown";

    for (file, text, signed) in [
        (enforced, "Y\n", true),
        (enforced, "N\n", false),
        (locked, "none [integrity] confidentiality\n", true),
        (locked, "none integrity [confidentiality]\n", true),
        (locked, "[none] integrity confidentiality\n", false),
    ] {
        dir.file(file, text);
        let found = doctor(&dir, 1);
        assert_eq!(found[0].0, "module", "{found:?}");
        assert_eq!(found.len(), if signed { 2 } else { 1 }, "{text}: {found:?}");
        if signed {
            assert_eq!(found[1].0, "signature");
            assert!(found[1].1.contains(SIGN), "{found:?}");
        }
    }
}

#[test]
fn the_doctor_finds_a_module_that_is_not_loaded() {
    let dir = machine("doctor-not-loaded");
    std::fs::create_dir_all(dir.0.join("lib/modules/7.2.12+deb13-amd64")).unwrap();
    dir.file(
        "lib/modules/7.2.12+deb13-amd64/modules.dep",
        "updates/ib_mkey.ko.xz: kernel/drivers/infiniband/core/ib_core.ko.xz\n\
         updates/rdma_rxe.ko.xz:\n",
    );

    for (module, check) in [("rdma_rxe", "rxe"), ("ib_mkey", "module")] {
        std::fs::remove_dir_all(dir.0.join("sys/module").join(module)).unwrap();
        let found = doctor(&dir, 1);
        let remedy = &found.iter().find(|(found, _)| found == check).unwrap().1;
        assert!(
            remedy.starts_with(&format!("modprobe {module}")),
            "{found:?}"
        );
    }
}

/// Modules that were installed while older ones were loaded.
#[test]
fn the_doctor_finds_another_build_of_a_module() {
    let dir = machine("doctor-build");
    let modules = "lib/modules/7.2.12+deb13-amd64";
    std::fs::create_dir_all(dir.0.join(modules).join("updates")).unwrap();
    dir.file(
        &format!("{modules}/modules.dep"),
        "updates/ib_mkey.ko.xz:\nupdates/rdma_rxe.ko.xz:\n",
    );

    for (module, check) in [("ib_mkey", "module"), ("rdma_rxe", "rxe")] {
        let file = format!("{modules}/updates/{module}.ko");
        dir.file(&file, "code, 0123456789abcdefghij, data");
        let packed = std::process::Command::new("xz")
            .arg(dir.0.join(&file))
            .status();
        assert!(packed.unwrap().success());

        let notes = format!("sys/module/{module}/notes");
        std::fs::create_dir_all(dir.0.join(&notes)).unwrap();
        let note = format!("{notes}/.note.gnu.build-id");
        dir.file(&note, "16 bytes of head0123456789abcdefghij");
        assert_eq!(doctor(&dir, 0), []);
        dir.file(&note, "16 bytes of head0123456789ABCDEFGHIJ");
        let found = doctor(&dir, 0);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, check);
        let reload = format!("rmmod {module} && modprobe {module}");
        assert!(found[0].1.contains(&reload), "{found:?}");
        if module == "rdma_rxe" {
            // The kernel's own.
            let kernel = format!("{modules}/kernel");
            std::fs::rename(dir.0.join(modules).join("updates"), dir.0.join(kernel)).unwrap();
            dir.file(
                &format!("{modules}/modules.dep"),
                "kernel/rdma_rxe.ko.xz:\n",
            );
            assert_eq!(doctor(&dir, 0), []);
        }
        std::fs::remove_dir_all(dir.0.join(notes)).unwrap();
    }
}

/// `ip` finds no netdev of another network namespace.
#[test]
fn the_doctor_names_the_namespace_of_a_netdev() {
    let dir = machine("doctor-netns");
    dir.file("sys/class/infiniband/rxe0/ports/1/state", "1: DOWN\n");
    std::fs::create_dir_all(dir.0.join("sys/class/net/lo")).unwrap();
    let found = doctor(&dir, 1);
    assert!(
        found[0]
            .1
            .starts_with("eth0 is in another network namespace: ip netns exec"),
        "{found:?}"
    );
    std::fs::create_dir_all(dir.0.join("sys/class/net/eth0")).unwrap();
    assert!(doctor(&dir, 1)[0].1.starts_with("ip link set eth0 up"));
}

/// With a device on the command line, the checks are of this device and of what all devices need.
#[test]
fn the_doctor_checks_one_device() {
    let dir = machine("doctor-one");
    std::fs::create_dir_all(dir.0.join("sys/class/infiniband/rxe9")).unwrap();
    dir.file(
        "dev/kmsg",
        "5,1,2,-;ib_mkey: rxe9: not extended: its link was added before ib_mkey was loaded, or by an\n\
         3,1,3,-;ib_mkey: dm_class: 'x' is no class of device memory\n",
    );
    dir.file(
        "sys/kernel/debug/ib_mkey/pools",
        "# device class total used high buffers\nrxe9 host 4096 4096 4096 1\n",
    );
    let checks = |device: &[&str]| {
        let args = ["doctor", "--root", dir.name()];
        let output = mkeyctl(&[&args[..], device].concat(), "");
        String::from_utf8(output.stdout).unwrap()
    };

    let all = checks(&[]);
    assert!(
        all.contains("log: rxe9:") && all.contains("device memory of rxe9"),
        "{all}"
    );
    let one = checks(&["rxe0"]);
    assert!(
        !one.contains("rxe9") && one.contains("log: dm_class:"),
        "{one}"
    );
}

/// Tests the remedy for a node that this user may not open, and that it helps.
#[test]
fn the_doctor_finds_a_node_without_rights() {
    use std::os::unix::{
        fs::{
            MetadataExt,
            PermissionsExt, //
        },
        process::CommandExt, //
    };
    const OTHER_USER: u32 = 65534;
    let dir = machine("doctor-rights");
    let node = dir.0.join("dev/infiniband/uverbs0");
    // Any user may run it there.
    let program = dir.program("mkeyctl", env!("CARGO_BIN_EXE_mkeyctl").as_ref());
    let mode = |mode: u32| {
        std::fs::set_permissions(&node, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let doctor = || {
        let mut command = std::process::Command::new(&program);
        command.args(["-j", "doctor", "--root", dir.name()]);
        // Root may open a node with any mode.
        if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.uid(OTHER_USER).gid(OTHER_USER);
        }
        let output = command.output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let permission = json["checks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|check| check["check"] == "permission")
            .unwrap()
            .clone();
        (output.status.code(), permission)
    };

    mode(0o000);
    let (status, found) = doctor();
    assert_eq!(status, Some(1));
    assert_eq!(found["status"], "problem");
    assert_eq!(
        found["found"],
        "this user may not open /dev/infiniband/uverbs0"
    );
    let remedy = found["remedy"].as_str().unwrap();
    assert!(
        remedy.starts_with("chmod a+rw /dev/infiniband/uverbs0"),
        "{remedy}"
    );
    mode(0o666);
    let (status, found) = doctor();
    assert_eq!((status, found["status"].as_str()), (Some(0), Some("ok")));
}

/// The variable LD_PRELOAD is that of this machine, so the program searches the library on this
/// machine.
#[test]
fn the_doctor_finds_a_preload_library_that_is_not_there() {
    const FILE: &str = "/nonexistent/libibmkey-preload.so";
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_mkeyctl"))
        .args(["-j", "doctor"])
        .env("LD_PRELOAD", FILE)
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = json["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["check"] == "preload");
    let found = found.unwrap();

    assert_eq!(output.status.code(), Some(1));
    assert_eq!(found["status"], "problem");
    assert_eq!(
        found["found"],
        format!("LD_PRELOAD names {FILE}, which is not there")
    );
    let remedy = found["remedy"].as_str().unwrap();
    assert!(remedy.starts_with("correct LD_PRELOAD"), "{remedy}");
}

/// The limit on locked memory does not apply to a process with CAP_IPC_LOCK.
#[test]
fn the_doctor_knows_who_may_lock_memory() {
    let dir = machine("doctor-memlock");
    let limit = "Max locked memory         0                    0                    bytes\n";
    dir.file("proc/self/limits", limit);
    dir.file("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n");
    let problems = doctor(&dir, 1);
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].0, "locked memory");
    dir.file("proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n");
    assert_eq!(doctor(&dir, 0), []);
}

#[test]
fn the_doctor_says_if_the_file_of_limits_is_cut_off() {
    let dir = machine("doctor-cut-off");
    let head = "# device uid bytes high regions+bindings limit\n";
    dir.file(
        "sys/kernel/debug/ib_mkey/keys",
        &format!("{head}rxe0 - 10 10 1 4096\nrxe0 7 10 10 1 1024\n"),
    );
    assert_eq!(doctor(&dir, 0), []);
    dir.file("sys/kernel/debug/ib_mkey/keys", &format!("{head}rxe0 7\n"));
    let output = mkeyctl(&["doctor", "--root", dir.name()], "");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("has too few columns"), "{text}");
    assert!(!text.contains("run as root"), "{text}");
}

/// A problem that was solved later is not reported.
#[test]
fn the_doctor_reads_the_log_to_its_end() {
    let dir = machine("doctor-log");
    dir.file(
        "dev/kmsg",
        "3,1,2,-;ib_mkey: dm_class: 'x' is no class of device memory\n\
         5,2,3,-;ib_mkey: rxe0: not extended: its link was added before ib_mkey was loaded, or by an\n\
         6,3,4,-;ib_mkey: rxe0: extended, 4096 bytes of device memory\n\
         5,4,5,-;ib_mkey: rxe9: not extended: its link was added before ib_mkey was loaded, or by an\n",
    );

    // rxe9 is gone.
    assert_eq!(doctor(&dir, 0), []);
    refused(
        &["doctor", "--root", dir.name(), "eth9"],
        "",
        1,
        "no device eth9: there are rxe0",
    );
    refused(
        &["doctor", "--root", "/nonexistent"],
        "",
        1,
        "must have the files of a machine that runs, with its /proc and /sys",
    );
}
