// SPDX-License-Identifier: GPL-2.0

//! Compiles the loops in C without an additional crate.

use std::{env, path::PathBuf, process::Command};

fn run(command: &mut Command) {
    let status = command.status().expect("cc and ar are needed");
    assert!(status.success(), "{command:?}: {status}");
}

fn main() {
    println!("cargo::rerun-if-changed=src/gather.c");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("of cargo"));
    let (object, library) = (out.join("gather.o"), out.join("libgather.a"));
    run(Command::new("cc")
        .args(["-O2", "-Wall", "-fPIC", "-c", "src/gather.c", "-o"])
        .arg(&object));
    run(Command::new("ar").arg("crs").arg(&library).arg(&object));
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=gather");
}
