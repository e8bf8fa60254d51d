// SPDX-License-Identifier: GPL-2.0

//! Tests the program as `tools/bench/run` uses it: records in, tables and a plot out.

#![allow(clippy::unwrap_used)]

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
        let file = self.0.join("records.jsonl");
        fs::write(&file, records).unwrap();
        Command::new(env!("CARGO_BIN_EXE_mkey-bench-report"))
            .arg("--growth")
            .arg(self.0.join("growth.svg"))
            .arg(file)
            .output()
            .unwrap()
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
fn tables() {
    let dir = Dir::new("tables");
    let mut records = RUN.to_owned();
    for size in [4096, 65536] {
        records += &series("dm", "write", "ordinary", size, "1000000,2000000,4000000");
        records += &series("dm", "write", "dm", size, "2000000,2000000,2000000");
    }
    records += &series("dm", "fetch-and-add", "ordinary", 8, "1000000000");
    records += &series("dm", "fetch-and-add", "dm", 8, "1000000000");

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
    assert!(
        text.contains("Linux 7.2.12, 1 CPU, rxe0 to rxe1, MTU 4096."),
        "{text}"
    );
    assert!(text.contains("counted in instructions"), "{text}");
    assert!(
        !text.contains("Describing memory"),
        "a group that was not measured: {text}"
    );
    assert!(!dir.0.join("growth.svg").exists());
}

#[test]
fn a_way_without_its_baseline_or_the_reverse() {
    let dir = Dir::new("half");
    let records = series("layouts", "indexed", "contiguous", 64, "1000")
        + &series("layouts", "indexed", "contiguous", 256, "1000")
        + &series("layouts", "indexed", "key", 256, "1000")
        + &series("dm", "write", "dm", 64, "1000");

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

/// The plot has a line for each quantity.
#[test]
fn growth() {
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
    let svg = fs::read_to_string(dir.0.join("growth.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("blocks") && svg.contains("levels"));
    assert!(!svg.contains("contiguous"), "only the key's cost is drawn");
}
