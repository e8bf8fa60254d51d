// SPDX-License-Identifier: GPL-2.0

//! All tests in one program, so that the shared code is compiled once.

#[path = "../common/mod.rs"]
mod common;
mod edges;
mod exhaustive;
mod fuzz;
mod overlap;
mod properties;
