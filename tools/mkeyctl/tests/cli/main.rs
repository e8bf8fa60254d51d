// SPDX-License-Identifier: GPL-2.0

//! Tests the program from a shell's view: its output and its exit status.

#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

mod completion;
mod doctor;
mod refusals;

use std::{
    io::Write,
    path::{
        Path,
        PathBuf, //
    },
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
    assert!(stderr.starts_with("mkeyctl: "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn a_file_without_an_end_is_refused() {
    refused(&["draw", "/dev/zero"], "", 1, "/dev/zero: more than 64 MiB");
}

/// Programs must not abort because nothing reads their errors.
#[test]
fn an_error_that_cannot_be_printed_is_an_error() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_mkeyctl"))
        .args(["draw", "/nonexistent"])
        .stderr(full)
        .status()
        .unwrap();

    assert_eq!(status.code(), Some(1));
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
    let named = std::fs::read_to_string(&file).unwrap();
    assert_eq!(printed(&["draw", "-o", name, "--list", "0+1"], ""), "");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), named);

    let svg = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

/// A directory with files. Dropping it removes them.
struct Dir(PathBuf);

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

    /// Makes an executable copy of `from`. Another process writes it: a process that a parallel test
    /// starts while this one has the copy open would have it open, too, and exec() would return ETXTBSY.
    fn program(&self, name: &str, from: &Path) -> PathBuf {
        let path = self.0.join(name);
        let mut install = Command::new("install");
        install.args(["-m", "755"]).args([from, &path]);
        assert!(install.status().unwrap().success());
        path
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
        "# device uid bytes high buffers\nrxe0 1000 8192 8192 2\nrxe1 kernel 0 0 0\n",
    );

    assert_eq!(
        printed(&["ls", "dm", "--debugfs", dir.name()], ""),
        "\
DEVICE  CLASS   TOTAL   USED   HIGH    BUFFERS
rxe0    host    64 MiB  8 KiB  12 KiB  2
rxe0    node=1  -       0      0       0
rxe1    host    64 MiB  0      0       0

DEVICE  CLASS  USER    USED   HIGH   BUFFERS
rxe0    -      1000    8 KiB  8 KiB  2
rxe1    -      kernel  0      0      0
"
    );
    let json = printed(&["ls", "--debugfs", dir.name(), "dm", "rxe1", "--json"], "");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["pools"].as_array().unwrap().len(), 1);
    assert_eq!(json["owners"][0]["user"], "kernel");

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

/// The file of refused accesses, as the kernel writes it.
const REFUSED: &str = "\
# device lkey number reason value key addr bytes access remote kind pid comm
rxe0 0x00003a3e 7 55 32 0x00003a3e 0x7ffd1000 32 0x0 0 list 237 my prog
rxe0 0x00004b01 9 56 5 0x00004b01 0x8 16 0x2 1 interleaved 0 [kernel]
rxe1 0x00003a40 8 54 0 0x00003a40 0x0 8 0x8 1 unbound 240 x
";

#[test]
fn why_tells_the_last_refused_access_of_each_key() {
    let dir = Dir::new("why");
    dir.file("refused", REFUSED);
    let why = |args: &[&str]| printed(&[&["why", "--debugfs", dir.name()], args].concat(), "");
    let first = "key 0x3a3e refused a local read of 32 bytes at its address 0x7ffd1000: it has 32 \
                 bytes, whose addresses begin at 0 (list, of process 237 my prog)\n";

    let both = why(&["rxe0"]);
    let (last, rest) = both.split_once('\n').unwrap();
    assert_eq!(rest, first);
    assert_eq!(
        last,
        "key 0x4b01 refused a peer's write of 16 bytes at its address 0x8: its access flags are \
         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ (interleaved, of the kernel)"
    );
    // Any key portion names the key.
    assert_eq!(why(&["rxe0", "0x3aff"]), first);
    let json: serde_json::Value = serde_json::from_str(&why(&["rxe1", "--json"])).unwrap();
    assert_eq!(json["device"], "rxe1");
    assert_eq!(json["refused"].as_array().unwrap().len(), 1);
    assert_eq!(json["refused"][0]["lkey"], "0x00003a40");
    assert_eq!(json["refused"][0]["number"], 8);
    assert_eq!(json["refused"][0]["remote"], true);
    assert!(json["refused"][0]["why"]
        .as_str()
        .unwrap()
        .contains("nothing is bound"));

    dir.file("refused", "# device lkey number reason\nrxe0 0x1 1 1\n");
    let rxe0 = ["why", "rxe0", "--debugfs", dir.name()];
    refused(&rxe0, "", 1, "refused: there is no column `addr'");
    let nowhere = ["why", "rxe0", "--debugfs", "/nonexistent"];
    refused(&nowhere, "", 1, "is ib_mkey loaded");
}

/// Runs `mkeyctl stat` with an `rdma` program that prints `objects` or `counters`.
fn stat(dir: &Dir, args: &[&str]) -> Output {
    dir.file(
        "script",
        "#!/bin/sh\nset -e\n[ \"$1\" = -j ]\nexec /bin/cat \"${0%/*}/$2\"\n",
    );
    dir.program("rdma", &dir.0.join("script"));
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
    dir.file(
        "keys",
        "# device uid bytes high limit\nrxe0 - 9216 9216 65536\nrxe0 1000 8192 8192 32768\n\
         rxe0 kernel 1024 1024 -\nrxe1 - 0 0 65536\n",
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
KEY MEMORY
  kernel       1024     -
  total        9216     0
  user 1000    8192     -
"
    );
    let output = stat(&dir, &["rxe1", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json[0]["counters"]["sent_pkts"], 1234);
    assert_eq!(json[0]["objects"]["mr"], 0);
    assert_eq!(json[0]["key_memory"]["total"], 0);
    assert_eq!(json.as_array().unwrap().len(), 1);

    let output = stat(&dir, &["eth9"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        output.stderr,
        b"mkeyctl: no device eth9: there are rxe0, rxe1\n"
    );
    dir.file(
        "rdma",
        "#!/bin/sh\necho Failed to open NETLINK_RDMA socket >&2\nexit 1\n",
    );
    let output = Command::new(env!("CARGO_BIN_EXE_mkeyctl"))
        .env("PATH", &dir.0)
        .arg("stat")
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.ends_with("ib_core module is not loaded; mkeyctl doctor has the remedy\n"),
        "{stderr}"
    );
    dir.file("statistic", "nonsense");
    let output = stat(&dir, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.starts_with(b"mkeyctl: rdma statistic show: "));
}

/// A full standard output is an error, also for the texts that clap prints.
#[test]
fn help_that_cannot_be_printed_is_an_error() {
    for option in ["--help", "--version"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let output = Command::new(env!("CARGO_BIN_EXE_mkeyctl"))
            .arg(option)
            .stdout(full.unwrap())
            .output()
            .unwrap();

        assert_eq!(output.status.code(), Some(1), "{option}");
        assert_eq!(
            String::from_utf8(output.stderr).unwrap(),
            "mkeyctl: No space left on device (os error 28)\n"
        );
    }
}

/// A layout that is printed as JSON can be read as a description.
#[test]
fn layouts_are_printed_as_json() {
    let args = ["--repeat", "2,3", "--block", "A@0x100+4:-64,8"];
    let all: Vec<_> = ["-j", "draw"].iter().chain(&args).copied().collect();
    let json: serde_json::Value = serde_json::from_str(&printed(&all, "")).unwrap();

    assert_eq!(json[0]["length"], 24);
    assert_eq!(json[0]["lkey"], serde_json::Value::Null);
    let all: Vec<_> = ["draw"].iter().chain(&args).copied().collect();
    assert_eq!(
        printed(&["draw", "-"], &json[0]["layout"].to_string()),
        printed(&all, "")
    );
}
