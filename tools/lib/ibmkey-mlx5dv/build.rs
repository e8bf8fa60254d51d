// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Generates the bindings from rdma-core's header. The types of libibverbs are those of the crate
//! `ibmkey`.

use std::{
    env, fs,
    path::PathBuf,
    process::{
        exit,
        Command, //
    },
};

const TYPES: &str = "mlx5dv_(context|mkey|mr|wc|alloc_dm|cq_init|qp_(ex|init|create)\
    |sig_block|crypto_attr)(_.*)?";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let bindgen = env::var_os("BINDGEN").unwrap_or_else(|| "bindgen".into());
    let header = out.join("mlx5dv.h");

    // The tests link to libibverbs. The Makefile links the library itself.
    println!("cargo::rustc-link-lib=ibverbs");
    println!("cargo::rerun-if-env-changed=BINDGEN");
    println!("cargo::rerun-if-changed=build.rs");

    if let Err(error) = fs::write(&header, "#include <infiniband/mlx5dv.h>\n") {
        eprintln!("{}: {error}", header.display());
        exit(1)
    }
    let result = Command::new(&bindgen)
        .arg(&header)
        .arg("--output")
        .arg(out.join("bindings.rs"))
        .args(["--allowlist-type", TYPES])
        .args(["--blocklist-type", "_?(compat_)?ibv_.*|verbs_.*"])
        .args(["--raw-line", "use ibmkey::sys::*;"])
        .args([
            "--ignore-functions",
            "--with-derive-default",
            "--use-core",
            "--no-doc-comments",
            "--no-prepend-enum-name",
        ])
        .args(["--rust-edition", "2021", "--rust-target", "1.85"])
        .status();

    match result {
        Ok(status) if status.success() => {}
        other => {
            eprintln!(
                "{}: {other:?}: is the bindgen program there, or BINDGEN set, and is \
                 libibverbs-dev installed?",
                bindgen.to_string_lossy()
            );
            exit(1)
        }
    }
}
