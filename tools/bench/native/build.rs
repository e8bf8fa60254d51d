// SPDX-License-Identifier: GPL-2.0

//! Compiles the loop in C without an additional crate.

use std::{env, path::PathBuf, process::Command};

fn run(command: &mut Command) {
    let status = command.status().expect("cc and ar are needed");
    assert!(status.success(), "{command:?}: {status}");
}

fn main() {
    println!("cargo::rerun-if-changed=src");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("of cargo"));
    let (object, library) = (out.join("gather.o"), out.join("libgather.a"));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-fPIC", "-c", "src/gather.c", "-o"]);
    cc.arg(&object);
    // Without vectors, as a kernel.
    if let Ok("x86_64" | "aarch64") = env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        cc.arg("-mgeneral-regs-only");
    }
    run(&mut cc);
    run(Command::new("ar").arg("crs").arg(&library).arg(&object));
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=gather");
}
