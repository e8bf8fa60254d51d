// SPDX-License-Identifier: GPL-2.0

//! Compiles the loops in C without an additional crate.

use std::{env, path::PathBuf, process::Command};

fn run(command: &mut Command) {
    let status = command.status().expect("cc and ar are needed");
    assert!(status.success(), "{command:?}: {status}");
}

/// Returns the arguments for the loops as a kernel has them: without vectors.
fn as_kernel() -> &'static [&'static str] {
    match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64" | "aarch64") => &["-DAS_KERNEL", "-mgeneral-regs-only"],
        _ => &["-DAS_KERNEL"],
    }
}

fn main() {
    println!("cargo::rerun-if-changed=src");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("of cargo"));
    let library = out.join("libgather.a");
    let mut archive = Command::new("ar");
    archive.arg("crs").arg(&library);
    for (file, object, more) in [
        ("gather.c", "gather.o", &[][..]),
        ("gather.c", "gather_kernel.o", as_kernel()),
        ("places.c", "places.o", &[]),
        ("places.c", "places_kernel.o", as_kernel()),
        ("fast_strings.c", "fast_strings.o", &[]),
    ] {
        let object = out.join(object);
        run(Command::new("cc")
            .args(["-O2", "-Wall", "-fPIC", "-c"])
            .args(more)
            .arg(format!("src/{file}"))
            .arg("-o")
            .arg(&object));
        archive.arg(object);
    }
    run(&mut archive);
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=gather");
}
