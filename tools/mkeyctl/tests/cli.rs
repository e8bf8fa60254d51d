// SPDX-License-Identifier: GPL-2.0

//! The program as a shell sees it: what it prints where, and its status.

#![allow(clippy::unwrap_used)]

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

/// Expects success, and returns what was printed.
fn printed(args: &[&str], input: &str) -> String {
    let output = mkeyctl(args, input);

    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Expects a failure with one line that says why, and nothing on stdout.
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
}
