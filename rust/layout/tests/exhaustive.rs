// SPDX-License-Identifier: GPL-2.0

//! All layouts of a small domain, all accesses to each.

mod common;

use common::{check_access, check_shape, Spec};

/// Calls `f` with every choice of one value from each of `domains`.
fn choices<T: Clone>(domains: &[Vec<T>], f: &mut impl FnMut(&[T])) {
    let mut odometer = vec![0; domains.len()];
    loop {
        let choice: Vec<T> = odometer
            .iter()
            .zip(domains)
            .map(|(&i, d)| d[i].clone())
            .collect();
        f(&choice);
        let Some(wheel) = (0..domains.len())
            .rev()
            .find(|&i| odometer[i] + 1 < domains[i].len())
        else {
            return;
        };
        odometer[wheel] += 1;
        odometer[wheel + 1..].fill(0);
    }
}

/// Checks everything about one layout; returns whether it was right.
fn check(spec: &Spec) -> bool {
    let layout = spec.build();
    assert_eq!(
        layout.as_ref().map(|_| ()).map_err(|error| *error),
        spec.verdict(),
        "{spec:?}"
    );
    let Ok(layout) = layout else {
        return false;
    };
    let bytes = spec.bytes();
    check_shape(spec, &layout, &bytes);
    for offset in 0..=bytes.len() + 1 {
        for len in 0..=bytes.len() + 1 - offset {
            check_access(&layout, &bytes, offset, len);
        }
    }
    true
}

/// Counts what was accepted and refused, so that no test passes on nothing.
#[derive(Default)]
struct Tally {
    accepted: u64,
    refused: u64,
}

impl Tally {
    fn check(&mut self, spec: &Spec) {
        if check(spec) {
            self.accepted += 1;
        } else {
            self.refused += 1;
        }
    }

    fn finish(self, total: u64) {
        assert_eq!(self.accepted + self.refused, total);
        assert!(self.accepted > 0 && self.refused > 0);
    }
}

#[test]
fn lists() {
    // Leaf, address and length of up to three entries.
    let mut entries = Vec::new();
    choices(
        &[vec![0, 1], vec![0, 1, 2, 3], vec![0, 1, 2, 3]],
        &mut |choice| {
            entries.push((choice[0] as u32, choice[1], choice[2]));
        },
    );
    let mut tally = Tally::default();
    for count in 0..=3 {
        choices(&vec![entries.clone(); count], &mut |choice| {
            tally.check(&Spec::List(choice.to_vec()));
        });
    }
    tally.finish(1 + 32 + 32 * 32 + 32 * 32 * 32);
}

#[test]
fn one_block() {
    let mut tally = Tally::default();
    let mut total = 0;
    for dims in 0..=3 {
        choices(&vec![vec![0, 1, 2, 3]; dims], &mut |counts| {
            for bytes in 0..=3 {
                choices(
                    &vec![(-4..=4).collect::<Vec<i64>>(); dims],
                    &mut |strides| {
                        // Enough for most negative strides, not for all.
                        tally.check(&Spec::Interleaved(
                            counts.to_vec(),
                            vec![(7, 9, bytes, strides.to_vec())],
                        ));
                        total += 1;
                    },
                );
            }
        });
    }
    assert_eq!(total, 4 * (1 + 4 * 9 + 16 * 81 + 64 * 729));
    tally.finish(total);
}

#[test]
fn two_blocks() {
    let mut tally = Tally::default();
    let mut total = 0;
    for dims in 1..=2 {
        choices(&vec![vec![1, 2, 3]; dims], &mut |counts| {
            choices(&vec![vec![-2, 0, 1, 2, 3]; 2 * dims], &mut |strides| {
                let (first, second) = strides.split_at(dims);
                // The second block before, over, next to and after the first; in another leaf.
                choices(
                    &[vec![1, 2], vec![1, 2], vec![0, 2, 3, 4, 5], vec![0, 1]],
                    &mut |c| {
                        tally.check(&Spec::Interleaved(
                            counts.to_vec(),
                            vec![
                                (0, 2, c[0], first.to_vec()),
                                (c[3] as u32, c[2], c[1], second.to_vec()),
                            ],
                        ));
                        total += 1;
                    },
                );
            });
        });
    }
    assert_eq!(total, 40 * (3 * 25 + 9 * 625));
    tally.finish(total);
}
