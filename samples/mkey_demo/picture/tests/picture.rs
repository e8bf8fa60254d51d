// SPDX-License-Identifier: GPL-2.0

//! Tests what the program says of output that cannot be written.

#![allow(clippy::unwrap_used)]

use std::{
    fs::{
        self,
        File,
        OpenOptions, //
    },
    io::Read,
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

/// A file of a picture that goes with the test.
struct Picture(PathBuf);

impl Picture {
    /// Each test has a file of another name.
    fn new(name: &str) -> Self {
        let file = format!("mkey-picture-{}-{name}.ppm", std::process::id());
        let file = std::env::temp_dir().join(file);
        let pixels = [7; 400 * 400 * 3];

        fs::write(&file, [b"P6\n400 400\n255\n", &pixels[..]].concat()).unwrap();
        Self(file)
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mkey_picture"));

    command.stdin(Stdio::null());
    command
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

fn said(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn full_standard_output_is_named() {
    let picture = Picture::new("full");
    let commands: [&[&Path]; 4] = [
        &[Path::new("read"), &picture.0],
        &[Path::new("show"), &picture.0],
        &[Path::new("table"), Path::new("text")],
        &[Path::new("--help")],
    ];
    let row = Picture::new("row");

    fs::write(&row.0, "a\tb\n").unwrap();
    for arguments in commands {
        let output = program()
            .args(arguments)
            .stdin(File::open(&row.0).unwrap())
            .stdout(full())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(
            said(&output),
            "mkey_picture: standard output: No space left on device (os error 28)\n",
            "{arguments:?}"
        );
    }
}

#[test]
fn errors_of_other_files_name_them() {
    let output = program().args(["read", "/nonexistent"]).output().unwrap();

    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).starts_with("mkey_picture: /nonexistent: "));
    let output = program().args(["png", "/nonexistent/x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).starts_with("mkey_picture: standard input: "));
}

#[test]
fn full_standard_error_is_an_ordinary_failure() {
    for (arguments, code) in [(["read", "/nonexistent"], 1), (["read", "--nonsense"], 2)] {
        let status = program().args(arguments).stderr(full()).status().unwrap();

        // A signal would leave no code.
        assert_eq!(status.code(), Some(code));
    }
}

#[test]
fn reader_that_has_ended_is_no_error() {
    let picture = Picture::new("pipe");

    for command in ["read", "show"] {
        let mut child = program()
            .arg(command)
            .arg(&picture.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut begin = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut begin).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), said(&output)),
            (Some(0), ""),
            "{command}"
        );
    }
}
