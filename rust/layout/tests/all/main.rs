// SPDX-License-Identifier: GPL-2.0

//! All tests, in one program: what they share is compiled once.

#[path = "../common/mod.rs"]
mod common;
mod edges;
mod exhaustive;
mod fuzz;
mod overlap;
mod properties;
