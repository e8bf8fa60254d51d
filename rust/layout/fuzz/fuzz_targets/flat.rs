// SPDX-License-Identifier: GPL-2.0

#![no_main]

#[path = "../../tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|data: &[u8]| common::bodies::flat(data));
