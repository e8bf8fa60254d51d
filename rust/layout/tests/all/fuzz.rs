// SPDX-License-Identifier: GPL-2.0

//! The fuzz targets on stable Rust, with the stored inputs and random ones.

use std::fs;
use std::path::Path;

use crate::common::bodies::{self, TARGETS};
use crate::common::small::long;
use proptest::collection::vec;
use proptest::prelude::*;

/// Each line is an input in hex that covers code which no other input covers.
#[test]
fn stored_inputs() {
    for (name, run) in TARGETS {
        // Relative to the crate: another tree can run the program that one tree has compiled.
        let seeds = Path::new("fuzz/seeds").join(name).with_extension("txt");
        let seeds = fs::read_to_string(seeds).unwrap();
        for line in seeds.lines() {
            println!("{name} {line}");
            let digits: Vec<_> = line.chars().map(|c| c.to_digit(16).unwrap()).collect();
            let bytes = digits
                .chunks_exact(2)
                .map(|pair| ((pair[0] << 4) | pair[1]) as u8);
            run(&bytes.collect::<Vec<_>>());
        }
        assert!(seeds.lines().count() >= 20);
    }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if long() { 4096 } else { 1024 }))]

    #[test]
    fn list(data in bytes()) {
        bodies::list(&data);
    }

    #[test]
    fn interleaved(data in bytes()) {
        bodies::interleaved(&data);
    }

    #[test]
    fn indexed(data in bytes()) {
        bodies::indexed(&data);
    }

    #[test]
    fn flat(data in vec(any::<u8>(), 0..600)) {
        bodies::flat(&data);
    }

    #[test]
    fn accesses(data in bytes()) {
        bodies::accesses(&data);
    }

    #[test]
    fn raw_numbers(data in bytes()) {
        bodies::raw_numbers(&data);
    }
}
