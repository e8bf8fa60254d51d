// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Checks that programs that use memory, regions or protection domains for too long do not compile,
//! and that this is the only error. The second line of each file in `lifetimes/` is the first line
//! of the error. `compile_fail` of rustdoc is not enough: it compares error codes only on nightly
//! compilers.

#![allow(clippy::expect_used, clippy::panic)]

use std::{
    env, fs,
    path::{
        Path,
        PathBuf, //
    },
    process::Command,
};

/// Builds the crate with all features, and returns the path of the result.
fn crate_file() -> PathBuf {
    let cargo = env::var_os("CARGO").expect("cargo test sets CARGO");
    let built = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--offline", "--locked", "--lib"])
        .args(["--features", "verbs", "--message-format", "json"])
        .output()
        .expect("cargo runs");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );

    let messages = String::from_utf8(built.stdout).expect("messages are text");
    let file = messages
        .split('"')
        .find(|text| text.ends_with("/libibmkey.rlib"));
    PathBuf::from(file.unwrap_or_else(|| panic!("no crate in {messages}")))
}

/// Compiles a program, and returns the first lines of its errors.
fn errors(program: &Path, ibmkey: &Path) -> Vec<String> {
    // The directory of the crates that this crate needs is beside its file.
    let deps = ibmkey.with_file_name("deps");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let result = Command::new(rustc)
        .args([
            "--edition",
            "2021",
            "--crate-type",
            "lib",
            "--emit",
            "metadata",
        ])
        .args(["-C", "panic=abort", "-A", "warnings", "--color", "never"])
        .arg("-o")
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("lifetimes.rmeta"))
        .arg("-L")
        .arg(format!("dependency={}", deps.display()))
        .arg("--extern")
        .arg(format!("ibmkey={}", ibmkey.display()))
        .arg(program)
        .output()
        .expect("rustc runs");
    let text = String::from_utf8_lossy(&result.stderr);
    let found: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with("error") && !line.starts_with("error: aborting"))
        .map(str::to_owned)
        .collect();

    assert_eq!(result.status.success(), found.is_empty(), "{text}");
    found
}

#[test]
fn each_program_has_its_error_and_no_other() {
    let ibmkey = crate_file();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lifetimes");
    let mut wrong = Vec::new();
    let mut count = 0;

    for entry in fs::read_dir(directory).expect("the programs are there") {
        let program = entry.expect("a program").path();
        let text = fs::read_to_string(&program).expect("a program is text");
        let wanted = text
            .lines()
            .nth(1)
            .and_then(|line| line.strip_prefix("// "));
        let wanted = wanted.unwrap_or_else(|| panic!("{}: no error", program.display()));
        let found = errors(&program, &ibmkey);

        count += 1;
        let right = match found.as_slice() {
            [] => wanted == "no error",
            [one] => one.starts_with(wanted),
            _ => false,
        };
        if !right {
            wrong.push(format!("{}: {found:?}, not {wanted}", program.display()));
        }
    }
    assert!(count >= 20, "only {count} programs");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
