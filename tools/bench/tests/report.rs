// SPDX-License-Identifier: GPL-2.0

//! Tests the program as `tools/bench/run` uses it: records in, tables and files out.

#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use std::{
    fs,
    path::PathBuf,
    process::{
        Command,
        Output, //
    },
};

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bench-report-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn report(&self, records: &str) -> Output {
        self.report_with(records, &[])
    }

    fn report_with(&self, records: &str, args: &[&str]) -> Output {
        let file = self.0.join("records.jsonl");
        fs::write(&file, records).unwrap();
        Command::new(env!("CARGO_BIN_EXE_mkey-bench-report"))
            .arg("--out")
            .arg(self.0.join("out"))
            .args(args)
            .arg(file)
            .output()
            .unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join("out").join(name)).unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn series(group: &str, name: &str, way: &str, size: u64, ns: &str) -> String {
    let unit = if name == "fetch-and-add" {
        "operations"
    } else {
        "bytes"
    };

    format!(
        r#"{{"record":"series","group":"{group}","name":"{name}","way":"{way}","size":{size},"amount":1000000,"unit":"{unit}","ns":[{ns}]}}"#
    ) + "\n"
}

const RUN: &str = r#"{"record":"run","kernel":"7.2.12","cpus":1,"near":"rxe0","far":"rxe1","mtu":4096,"repetitions":3,"shift":0,"icount":true}
"#;

#[test]
fn tables_plots_and_json() {
    let dir = Dir::new("all");
    let mut records = RUN.to_owned();
    for size in [4096, 65536] {
        records += &series("dm", "write", "ordinary", size, "1000000,2000000,4000000");
        records += &series("dm", "write", "dm", size, "2000000,2000000,2000000");
    }
    records += &series("dm", "fetch-and-add", "ordinary", 8, "1000000000");
    records += &series("dm", "fetch-and-add", "dm", 8, "1000000000");
    records += r#"{"record":"memory","name":"key, unbound","objects":10,"bytes":1234}"#;

    let output = dir.report(&records);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{text}"
    );
    let line = |start: &str| {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(start));
        line.unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(line("write"), "write 4 KiB MB/s 500 500 1.00 (0.50-2.00)");
    assert_eq!(
        line("fetch-and-add"),
        "fetch-and-add 8 B op/s 1000000 1000000 1.00 (1.00-1.00)"
    );
    assert_eq!(line("key, unbound"), "key, unbound 1,234");
    assert!(
        text.contains("Linux 7.2.12, 1 CPU, rxe0 to rxe1, MTU 4096."),
        "{text}"
    );
    assert!(text.contains("counted in instructions"), "{text}");
    assert!(
        !text.contains("Copies"),
        "a group that was not measured: {text}"
    );

    let svg = dir.read("dm.svg");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("device memory") && svg.contains("64 KiB"));
    assert!(!svg.contains("fetch-and-add"), "a line of one point");

    let json: serde_json::Value = serde_json::from_str(&dir.read("bench.json")).unwrap();
    assert_eq!(json["run"]["icount"], true);
    assert_eq!(json["series"][1]["baseline"], "ordinary");
    assert_eq!(json["series"][1]["speedup"]["max"], 2.0);
    assert_eq!(json["series"][0]["speedup"], serde_json::Value::Null);
    assert_eq!(json["memory"][0]["bytes"], 1234);
}

#[test]
fn a_way_without_its_baseline_or_the_reverse() {
    let dir = Dir::new("half");
    let records = series("copy", "host", "memcpy", 64, "1000")
        + &series("copy", "host", "memcpy", 256, "1000")
        + &series("copy", "host", "to", 256, "1000")
        + &series("alloc", "filling", "alloc", 1, "1000");

    let output = dir.report(&records);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let row = text
        .lines()
        .find(|line| line.contains("64 B"))
        .unwrap_or_default();
    assert!(row.trim_end().ends_with('-'), "{text}");
}

#[test]
fn what_cannot_be_read_is_said() {
    let dir = Dir::new("wrong");
    let output = dir.report("nonsense");

    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("records.jsonl: line 1: expected"),
        "{stderr}"
    );
}

/// If standard error cannot be written, the status still tells of the error.
#[test]
fn full_standard_error_is_an_ordinary_failure() {
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_mkey-bench-report"))
        .arg("/nonexistent")
        .stderr(full)
        .status()
        .unwrap();

    // A signal would leave no code.
    assert_eq!(status.code(), Some(1));
}

/// A baseline is stored, extended by other groups, and compared with.
#[test]
fn changes_since_the_baseline() {
    let dir = Dir::new("baseline");
    let file = dir.0.join("baseline.jsonl");
    let run = |records: &str, more: &[&str]| {
        let mut args = vec!["--baseline", file.to_str().unwrap()];
        args.extend(more);
        dir.report_with(records, &args)
    };
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    let dm = |ns: &str| RUN.to_owned() + &series("dm", "write", "dm", 64, ns);
    let copy = RUN.to_owned() + &series("copy", "host", "to", 64, "500000");

    assert_eq!(run(&dm("1000000"), &[]).status.code(), Some(1));
    assert!(run(&dm("1000000,1000000"), &["--save"]).status.success());
    assert!(run(&copy, &["--save"]).status.success());
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 3);

    let same = run(&dm("1010000"), &["--strict"]);
    assert!(same.status.success());
    assert!(text(&same).contains("none of 1 rows changed by more than 2 %"));

    let slower = run(&dm("1030000"), &[]);
    assert!(slower.status.success());
    let row = "dm: write 64, dm";
    let line = text(&slower)
        .lines()
        .find(|line| line.contains(row))
        .map(str::to_owned);
    let words = line.unwrap_or_default();
    let words: Vec<_> = words.split_whitespace().skip(4).collect();
    assert_eq!(words, ["1.00", "1.03", "+3.0", "%"]);
    assert_eq!(run(&dm("1030000"), &["--strict"]).status.code(), Some(1));
    assert!(run(&dm("900000"), &["--strict"]).status.success());

    let new = run(&(dm("1000000") + &series("dm", "read", "dm", 64, "1")), &[]);
    assert!(text(&new).contains("The baseline lacks 1 rows."));
}

/// Times of a clock, or of another kernel, are not compared with counts of instructions.
#[test]
fn what_cannot_be_compared_is_said() {
    let dir = Dir::new("unfit");
    let file = dir.0.join("baseline.jsonl");
    let baseline = ["--baseline", file.to_str().unwrap()];
    let strict = [baseline[0], baseline[1], "--strict"];
    let save = [baseline[0], baseline[1], "--save"];
    let dm = series("dm", "write", "dm", 64, "1000000");
    let clock = RUN.replace("true", "false") + &dm;

    assert!(dir
        .report_with(&(RUN.to_owned() + &dm), &save)
        .status
        .success());
    for (records, why) in [
        (clock.clone(), "the clock did not count instructions"),
        (
            RUN.replace("\"shift\":0", "\"shift\":5") + &dm,
            "the sizes were divided",
        ),
        (
            RUN.replace("\"7.2.12\"", "\"7.3.4\"") + &dm,
            "that is of Linux 7.2.12 with MTU 4096",
        ),
    ] {
        let output = dir.report_with(&records, &baseline);
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains(&format!("Not compared with the baseline: {why}.")),
            "{text}"
        );
        let output = dir.report_with(&records, &strict);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8(output.stderr).unwrap().contains(why));
    }
    assert_eq!(dir.report_with(&clock, &save).status.code(), Some(1));
}

/// The plot of the growth has a line for each quantity.
#[test]
fn growth_in_one_plot() {
    let dir = Dir::new("growth");
    let mut records = RUN.to_owned();
    for (name, sizes) in [("blocks", [256, 4096]), ("levels", [1, 2])] {
        for size in sizes {
            for way in ["contiguous", "key"] {
                records += &series("growth", name, way, size, "1000000,1010000,1020000");
            }
        }
    }

    assert!(dir.report(&records).status.success());
    let svg = dir.read("growth.svg");
    assert!(svg.contains("blocks") && svg.contains("levels"));
    assert!(!svg.contains("contiguous"), "only the key's cost is drawn");
}
