// SPDX-License-Identifier: GPL-2.0

//! Tests the program from a shell's view: its output and its exit status.

#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use std::{
    io::Write,
    process::{
        Command,
        Output,
        Stdio, //
    },
};

fn mkeyctl(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mkeyctl"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();

    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

/// Expects success and returns the output.
fn printed(args: &[&str], input: &str) -> String {
    let output = mkeyctl(args, input);

    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Expects a failure with the reason on one line of stderr, and nothing on stdout.
fn refused(args: &[&str], input: &str, status: i32, why: &str) {
    let output = mkeyctl(args, input);
    let stderr = String::from_utf8(output.stderr).unwrap();

    assert_eq!(output.status.code(), Some(status), "{stderr}");
    assert!(output.stdout.is_empty());
    assert!(stderr.contains(why), "{stderr}");
}

#[test]
fn the_command_line_and_json_draw_the_same() {
    let json = r#"{"interleaved": {"repeat_count": [8], "blocks": [
        {"leaf": "A", "addr": 16, "bytes_count": 4, "stride": [64]}]}}"#;
    let from_json = printed(&["draw", "-"], json);

    assert_eq!(
        from_json,
        printed(&["draw", "--repeat", "8", "--block", "A@16+4:64"], "")
    );
    assert_eq!(from_json.matches("0000").count(), 8);
}

#[test]
fn a_negative_stride_can_be_given() {
    let text = printed(&["draw", "--repeat", "2", "--block", "A@64+4:-64"], "");

    assert!(text.contains("stride -64"), "{text}");
}

#[test]
fn svg_goes_to_a_file() {
    let file = std::env::temp_dir().join(format!("mkeyctl-test-{}.svg", std::process::id()));
    let name = file.to_str().unwrap();

    assert_eq!(
        printed(
            &["draw", "--format", "svg", "-o", name, "--list", "0+1"],
            ""
        ),
        ""
    );

    let svg = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

/// A directory with files. Dropping it removes them.
struct Dir(std::path::PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mkeyctl-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> &Self {
        std::fs::write(self.0.join(name), text).unwrap();
        self
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn device_memory_is_listed_by_the_names_of_columns() {
    let dir = Dir::new("ls-dm");
    dir.file(
        "pools",
        "# device class later total used high buffers\n\
         rxe0 host x 67108864 8192 12288 2\n\
         rxe0 node=1 x - 0 0 0\n\
         rxe1 host x 67108864 0 0 0\n",
    );
    dir.file(
        "owners",
        "# device pid bytes high buffers comm\nrxe0 812 8192 8192 2 my prog\nrxe1 0 0 0 0 [kernel]\n",
    );

    assert_eq!(
        printed(&["ls", "dm", "--debugfs", dir.name()], ""),
        "\
DEVICE  CLASS   TOTAL   USED   HIGH    BUFFERS
rxe0    host    64 MiB  8 KiB  12 KiB  2
rxe0    node=1  -       0      0       0
rxe1    host    64 MiB  0      0       0

DEVICE  CLASS  PID  COMMAND   USED   HIGH   BUFFERS
rxe0    -      812  my prog   8 KiB  8 KiB  2
rxe1    -      -    [kernel]  0      0      0
"
    );
    let json = printed(&["ls", "--debugfs", dir.name(), "dm", "rxe1", "--json"], "");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["pools"].as_array().unwrap().len(), 1);
    assert_eq!(json["owners"][0]["comm"], "[kernel]");

    refused(
        &["ls", "dm", "eth9", "--debugfs", dir.name()],
        "",
        1,
        "no device eth9",
    );
    dir.file("pools", "nothing of the kind\n");
    refused(
        &["ls", "dm", "--debugfs", dir.name()],
        "",
        1,
        "pools: there is no line of column names",
    );
    refused(
        &["ls", "dm", "--debugfs", "/nonexistent"],
        "",
        1,
        "is ib_mkey loaded",
    );
}

/// Runs `mkeyctl stat` with an `rdma` program that prints `objects` or `counters`.
fn stat(dir: &Dir, args: &[&str]) -> Output {
    use std::os::unix::fs::PermissionsExt;

    let rdma = dir.0.join("rdma");
    dir.file(
        "rdma",
        "#!/bin/sh\nset -e\n[ \"$1\" = -j ]\nexec /bin/cat \"${0%/*}/$2\"\n",
    );
    std::fs::set_permissions(&rdma, std::fs::Permissions::from_mode(0o755)).unwrap();
    Command::new(env!("CARGO_BIN_EXE_mkeyctl"))
        .env("PATH", &dir.0)
        .args(["stat", "--debugfs", dir.name()])
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn numbers_of_devices_are_beside_each_other() {
    let dir = Dir::new("stat");
    dir.file(
        "resource",
        r#"[{"ifindex":0,"ifname":"rxe0","qp":12,"mr":0},{"ifindex":1,"ifname":"rxe1","qp":1,"mr":0}]"#,
    );
    dir.file(
        "statistic",
        r#"[{"ifname":"rxe0","port":1,"sent_pkts":0},{"ifname":"rxe1","port":1,"sent_pkts":1234,"late":3}]"#,
    );
    dir.file(
        "pools",
        "# device class total used high buffers\nrxe0 host 4096 0 0 0\n",
    );

    let output = stat(&dir, &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "\
OBJECTS        rxe0  rxe1
  qp             12     1
COUNTERS
  late            -     3
  sent_pkts       0  1234
DEVICE MEMORY
  host total   4096     -
"
    );
    let output = stat(&dir, &["rxe1", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json[0]["counters"]["sent_pkts"], 1234);
    assert_eq!(json[0]["objects"]["mr"], 0);
    assert_eq!(json.as_array().unwrap().len(), 1);

    let output = stat(&dir, &["eth9"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stderr, b"mkeyctl: no device eth9\n");
    dir.file("statistic", "nonsense");
    let output = stat(&dir, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.starts_with(b"mkeyctl: rdma statistic show: "));
}

/// Makes a machine without problems.
fn machine(name: &str) -> Dir {
    let dir = Dir::new(name);
    let files = [
        ("proc/sys/kernel/osrelease", "7.2.12+deb13-amd64\n"),
        ("proc/sys/kernel/ftrace_enabled", "1\n"),
        (
            "proc/modules",
            "ib_uverbs 1 0 - Live 0\nrdma_rxe 1 0 - Live 0\nib_mkey 1 2 - Live 0\n",
        ),
        (
            "proc/self/limits",
            "Max locked memory         unlimited            unlimited            bytes\n",
        ),
        ("sys/module/ib_mkey/refcnt", "1"),
        ("sys/module/rdma_rxe/refcnt", "1"),
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
        (
            "etc/modprobe.d/ib_mkey.conf",
            "softdep ib_uverbs pre: ib_mkey\n",
        ),
        ("usr/local/lib/libibmkey.so.1", ""),
        ("usr/local/lib/libibmkey-preload.so", ""),
        ("etc/ld.so.cache", "libibmkey.so.1"),
        ("usr/sbin/rdma", ""),
    ];

    for (name, text) in files {
        std::fs::create_dir_all(dir.0.join(name).parent().unwrap()).unwrap();
        dir.file(name, text);
    }
    dir
}

/// Returns the name and the remedy of each check that is not "ok".
fn doctor(dir: &Dir, status: i32) -> Vec<(String, String)> {
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

/// A driver with a table of operations is not redirected, so it needs no ftrace.
#[test]
fn the_doctor_wants_ftrace_for_a_redirection_only() {
    let dir = machine("doctor-table");
    dir.file("proc/sys/kernel/ftrace_enabled", "0\n");
    dir.file(
        "proc/kallsyms",
        "0000000000000000 T rxe_mr_copy\t[rdma_rxe]\n0000000000000000 t rxe_mr_set_ops2\t[other]\n",
    );
    assert_ne!(doctor(&dir, 1), []);
    dir.file(
        "proc/kallsyms",
        "0000000000000000 T rxe_mr_set_ops\t[rdma_rxe]\n",
    );
    assert_eq!(doctor(&dir, 0), []);
}

/// Each cause alone: the file, what is in it then, and the check and words of its remedy.
#[test]
fn the_doctor_finds_each_cause() {
    let causes = [
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
            "proc/sys/kernel/ftrace_enabled",
            "0",
            "ftrace",
            "ftrace_enabled=1",
        ),
        (
            "proc/modules",
            "ib_mkey 1\nib_uverbs 1\n",
            "load order",
            "modprobe -r rdma_ucm ib_uverbs",
        ),
        (
            "proc/modules",
            "ib_mkey 1\n",
            "load order",
            "modprobe ib_uverbs",
        ),
        (
            "etc/modprobe.d/ib_mkey.conf",
            "# nothing",
            "softdep",
            "softdep ib_uverbs pre: ib_mkey",
        ),
        (
            "sys/kernel/livepatch/fix/rdma_rxe",
            "",
            "conflicts",
            "livepatch",
        ),
        (
            "sys/kernel/debug/kprobes/list",
            "ffff  k  rxe_mr_copy+0x0  [rdma_rxe]\n",
            "conflicts",
            "post_handler",
        ),
        (
            "sys/class/infiniband/rxe0/ports/1/state",
            "1: DOWN",
            "device",
            "ip link set eth0 up",
        ),
        (
            "sys/class/infiniband_verbs/uverbs0/ibdev",
            "rxe9",
            "permission",
            "modprobe ib_uverbs",
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
            "dev/kmsg",
            "3,1,2,-;ib_mkey: rxe0: not extended, self-test failed: EIO\n",
            "log",
            "inlined",
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
        (
            "lib/modules/7.2.12+deb13-amd64/modules.builtin",
            "kernel/drivers/infiniband/core/ib_uverbs.ko\n",
            "load order",
            "CONFIG_INFINIBAND_USER_ACCESS=m",
        ),
    ];

    for (at, (file, text, check, remedy)) in causes.into_iter().enumerate() {
        let dir = machine(&format!("doctor-{at}"));
        std::fs::create_dir_all(dir.0.join(file).parent().unwrap()).unwrap();
        dir.file(file, text);
        let note = ["conflicts", "preload", "library", "limits"].contains(&check)
            && !file.contains("livepatch");

        let found = doctor(&dir, if note { 0 } else { 1 });
        assert_eq!(found.len(), 1, "{file}: {found:?}");
        assert_eq!(found[0].0, check, "{file}");
        assert!(found[0].1.contains(remedy), "{file}: {found:?}");
    }
}

/// Files that are not there.
#[test]
fn the_doctor_finds_what_is_missing() {
    let causes: [(&str, &[&str]); 8] = [
        ("sys/module/ib_mkey", &["module"]),
        ("sys/module/rdma_rxe", &["rxe"]),
        ("etc/modprobe.d", &["softdep"]),
        ("sys/class/infiniband", &["devices"]),
        ("dev/infiniband", &["permission"]),
        ("usr/local/lib", &["preload"]),
        ("usr/sbin/rdma", &["rdma"]),
        ("dev/kmsg", &["log"]),
    ];

    for (at, (path, checks)) in causes.into_iter().enumerate() {
        let dir = machine(&format!("doctor-missing-{at}"));
        let file = dir.0.join(path);
        if file.is_dir() {
            std::fs::remove_dir_all(&file).unwrap();
        } else {
            std::fs::remove_file(&file).unwrap();
        }
        let status = i32::from(!["preload", "log"].contains(&checks[0]));

        let found: Vec<_> = doctor(&dir, status)
            .into_iter()
            .map(|(check, _)| check)
            .collect();
        assert_eq!(found, checks, "{path}");
    }
}

/// A problem that was solved since is not reported: the later line counts.
#[test]
fn the_doctor_reads_the_log_to_its_end() {
    let dir = machine("doctor-log");
    dir.file(
        "dev/kmsg",
        "3,1,2,-;ib_mkey: cannot redirect rdma_rxe: error -16: is the sysctl kernel.ftrace_enabled 0?\n\
         3,2,3,-;ib_mkey: rxe0: not extended, self-test failed: EIO\n\
         6,3,4,-;ib_mkey: rxe0: extended, 4096 bytes of device memory\n",
    );

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
        "osrelease: No such file",
    );
}

#[test]
fn shells_complete_each_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completion", shell], "");

        for command in ["caps", "demo", "doctor", "draw", "ls", "stat"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    refused(&["completion", "dos"], "", 2, "invalid value");
}

#[test]
fn layouts_that_a_key_would_refuse_are_refused() {
    refused(
        &["draw", "--list", "0+0"],
        "",
        1,
        "mkeyctl: zero count or byte count",
    );
    refused(
        &["draw", "--repeat", "2", "--block", "0+1:-1"],
        "",
        1,
        "64 bits",
    );
    refused(&["draw", "-"], "{\"list\": []}", 1, "mkeyctl: -: zero");
    refused(
        &["draw", "/nonexistent"],
        "",
        1,
        "/nonexistent: No such file",
    );
}

#[test]
fn command_lines_that_make_no_sense_are_refused() {
    refused(&["draw"], "", 2, "Usage:");
    refused(
        &["draw", "--list", "0+1", "file"],
        "",
        2,
        "cannot be used with",
    );
    refused(&["draw", "--block", "0+1:1"], "", 2, "--repeat");
    refused(
        &["draw", "--repeat", "2", "--list", "0+1"],
        "",
        2,
        "cannot be used with",
    );
    refused(&["draw", "--repeat", "2"], "", 2, "--block");
    refused(
        &["draw", "--pitch", "0", "--list", "0+1"],
        "",
        2,
        "at least one byte",
    );
    refused(&["flush"], "", 2, "unrecognized subcommand");
    refused(
        &["-j", "draw", "--list", "0+1"],
        "",
        2,
        "--json is for commands that list or count",
    );
}
