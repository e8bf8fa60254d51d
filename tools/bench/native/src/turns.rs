// SPDX-License-Identifier: GPL-2.0

//! Measures several ways to do the same, which take turns.

use std::{array, hint::black_box, time::Instant};

/// The name of a way, and a function that copies the slice with a number.
pub(super) type Way<C> = (&'static str, fn(&mut C, usize));

/// A message in slices.
pub(super) trait Sliced {
    /// Returns the number of slices.
    fn slices(&self) -> usize;

    /// Returns the number of bytes of slice number `index`.
    fn bytes(&self, index: usize) -> usize;
}

/// The number of measurements.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// The number of turns of each way, for each slice.
    pub(super) rounds: usize,
    /// The number of copies in a turn.
    pub(super) copies: usize,
}

/// Returns the number of the way whose turn is `place` of a round. Each way follows each other one
/// equally often, because the number of ways is a prime.
fn turn(place: usize, round: usize, ways: usize) -> usize {
    (place * (1 + round % (ways - 1)) + round) % ways
}

/// Returns the nanoseconds of a byte.
fn cost<C: Sliced>(case: &mut C, run: fn(&mut C, usize), slice: usize, copies: usize) -> f64 {
    let bytes = case.bytes(slice) * copies;
    let start = Instant::now();
    for _ in 0..copies {
        run(black_box(case), slice);
    }
    start.elapsed().as_secs_f64() * 1e9 / bytes as f64
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Returns the median of the nanoseconds of a byte for each way.
pub(super) fn medians<C: Sliced, const N: usize>(
    case: &mut C,
    ways: &[Way<C>; N],
    times: Times,
) -> [f64; N] {
    const { assert!(N == 5 || N == 7, "a prime") };
    let mut seen = array::from_fn(|_| Vec::new());
    // One after another, so that no slice is in a cache since its last turn.
    let mut slices = (0..case.slices()).cycle();
    for round in 0..times.rounds * case.slices() {
        for way in (0..N).map(|place| turn(place, round, N)) {
            let slice = slices.next().unwrap_or(0);
            seen[way].push(cost(case, ways[way].1, slice, times.copies));
        }
    }
    seen.map(median)
}

/// Prints the head of a table.
pub(super) fn print_head<C>(title: &str, ways: &[Way<C>]) {
    println!("\n{title}; GB/s of the loop in C, and the speed of the others by its");
    print!("{:>6} {:>10}", "bytes", ways[0].0);
    ways[1..].iter().for_each(|way| print!(" {:>8}", way.0));
    println!();
}

/// Prints a row of a table.
pub(super) fn print_row(len: usize, medians: &[f64]) {
    let c_loop = medians[0];
    print!("{len:>6} {:>10.2}", 1.0 / c_loop);
    medians[1..]
        .iter()
        .for_each(|other| print!(" {:>8.2}", c_loop / other));
    println!();
}
