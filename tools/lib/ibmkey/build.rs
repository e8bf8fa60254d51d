// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Generates the bindings from the C headers, so that the crate repeats no layout and no number.
//! This needs only the program `bindgen` and the headers of a C compiler.

use std::{
    env,
    path::{
        Path,
        PathBuf, //
    },
    process::{
        exit,
        Command, //
    },
};

/// Patterns of the names in use. bindgen includes the types that these refer to.
const TYPES: &str = "ibmkey_.*|ibv_(alloc_dm_attr|dm_mask|sge|access_flags)\
    |ibv_(qp_attr_mask|gid_entry|gid_type|mtu|send_wr|send_flags|wc|cq_ex|create_cq_wc_flags)\
    |ibv_(qp_init_attr_ex|qp_init_attr_mask|qp_create_send_ops_flags)\
    |ibv_(context|device|pd|mr|dm|qp_ex|mw|mw_bind_info)|verbs_context|ibv_rereg_mr_flags|ib_uverbs_(re)?reg_mr|iovec|ib_uverbs_write_cmds\
    |uverbs_(methods|attrs)_(device|invoke_write.*)\
    |ib_uverbs_(ioctl_hdr|attr|mkey_.*)|ib_mkey_.*|rdma_driver_id\
    |uverbs_default_objects|uverbs_(methods|attrs)_.*(dm|mr).*";
const FUNCTIONS: &str = "ibmkey_.*|ibv_rereg_mr_(sg|interleaved)\
    |ibv_(get_device_list|free_device_list|get_device_name|open_device|close_device)\
    |ibv_(alloc_pd|dealloc_pd|reg_mr|dereg_mr|create_cq|destroy_cq|create_qp|modify_qp|destroy_qp)\
    |ibv_wc_status_str|_ibv_query_gid_table";
const FOREIGN: &str =
    "ibv_(get_device_list|get_device_name|open_device|close_device|alloc_pd|dealloc_pd)\
    |ibv_(reg_mr|dereg_mr)";
const CONSTANTS: &str = "ibmkey_.*|IBMKEY_.*|IB_MKEY_.*|UVERBS_ATTR_F_.*";

fn fail(what: &str) -> ! {
    eprintln!("{what}");
    exit(1)
}

/// Returns the directory of the uAPI header: `IBMKEY_UAPI_INCLUDE`, or the one in the source tree.
fn uapi_dir(manifest: &Path) -> PathBuf {
    match env::var_os("IBMKEY_UAPI_INCLUDE") {
        Some(dir) => dir.into(),
        None => manifest.join("../../../include/uapi"),
    }
}

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let bindgen = env::var_os("BINDGEN").unwrap_or_else(|| "bindgen".into());
    let wrapper = manifest.join("src/wrapper.h");
    let own = manifest.join("include");
    let uapi = uapi_dir(&manifest);

    for var in ["BINDGEN", "IBMKEY_UAPI_INCLUDE"] {
        println!("cargo::rerun-if-env-changed={var}");
    }
    // For a directory, Cargo looks for changes in all its files.
    for file in [
        wrapper.clone(),
        own.join("infiniband"),
        uapi.join("rdma/ib_mkey_ioctl.h"),
    ] {
        println!("cargo::rerun-if-changed={}", file.display());
    }

    let run = |output: &str, options: &[&str]| {
        Command::new(&bindgen)
            .arg(&wrapper)
            .arg("--output")
            .arg(out.join(output))
            .args(options)
            .args(["--use-core", "--no-doc-comments", "--no-prepend-enum-name"])
            .args(["--rust-edition", "2021", "--rust-target", "1.85"])
            .arg("--")
            .arg("-I")
            .arg(&own)
            // The compiler searches this directory after the system's directories. So it adds the
            // header of keys and replaces no other.
            .arg("-idirafter")
            .arg(&uapi)
            .status()
    };
    let result = run(
        "bindings.rs",
        &[
            "--with-derive-default",
            "--allowlist-type",
            TYPES,
            "--allowlist-function",
            FUNCTIONS,
            "--allowlist-var",
            CONSTANTS,
        ],
    );
    let result = match result {
        // The types of examples/foreign.rs are those of another crate.
        Ok(status) if status.success() && env::var_os("CARGO_FEATURE_VERBS").is_some() => {
            run("foreign.rs", &["--allowlist-function", FOREIGN])
        }
        other => other,
    };

    match result {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!(
            "{}: {status}: are the headers of libibverbs and of the kernel installed \
             (libibverbs-dev, linux-libc-dev), and is {} there?",
            bindgen.to_string_lossy(),
            uapi.join("rdma/ib_mkey_ioctl.h").display(),
        )),
        Err(error) => fail(&format!(
            "cannot run {}: {error}; set BINDGEN, or install the bindgen program",
            bindgen.to_string_lossy()
        )),
    }
}
