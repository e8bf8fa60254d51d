// SPDX-License-Identifier: GPL-2.0

//! Medians and spreads.

use crate::record::Series;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Returns the spread of the values, or [`None`] if there are no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<_> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);

        let upper = *sorted.get(sorted.len() / 2)?;
        let lower = *sorted.get(sorted.len().saturating_sub(1) / 2)?;
        Some(Self {
            median: (lower + upper) / 2.0,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }
}

/// Returns bytes or operations per second.
pub fn rate(series: &Series) -> Option<Spread> {
    Spread::of(
        series
            .ns
            .iter()
            .map(|&ns| series.amount as f64 / ns as f64 * 1e9),
    )
}

/// Returns the nanoseconds of one operation.
pub fn latency(series: &Series) -> Option<Spread> {
    Spread::of(series.ns.iter().map(|&ns| ns as f64 / series.amount as f64))
}

/// Returns how many times faster `series` is than `baseline`. The ratio is taken in each
/// repetition, because a disturbance slows both measurements of one repetition. The amounts
/// may differ.
pub fn speedup(series: &Series, baseline: &Series) -> Option<Spread> {
    let amounts = series.amount as f64 / baseline.amount as f64;

    Spread::of(
        baseline
            .ns
            .iter()
            .zip(&series.ns)
            .map(|(&base, &ns)| base as f64 / ns as f64 * amounts),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Unit;

    fn series(ns: &[u64]) -> Series {
        Series {
            group: "g".to_owned(),
            name: "n".to_owned(),
            way: "w".to_owned(),
            size: 1,
            amount: 1000,
            unit: Unit::Bytes,
            ns: ns.to_owned(),
        }
    }

    fn spread(median: f64, min: f64, max: f64) -> Option<Spread> {
        Some(Spread { median, min, max })
    }

    #[test]
    fn medians() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0]), spread(3.0, 3.0, 3.0));
        assert_eq!(Spread::of([9.0, 1.0, 2.0]), spread(2.0, 1.0, 9.0));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 9.0]), spread(3.0, 1.0, 9.0));
    }

    #[test]
    fn rates_and_ratios() {
        assert_eq!(rate(&series(&[1000, 2000, 500])), spread(1e9, 0.5e9, 2e9));
        assert_eq!(latency(&series(&[1000, 3000])), spread(2.0, 1.0, 3.0));
        assert_eq!(
            speedup(&series(&[100, 100, 50]), &series(&[100, 50, 100])),
            spread(1.0, 0.5, 2.0)
        );

        let twice = Series {
            amount: 2000,
            ..series(&[100])
        };
        assert_eq!(speedup(&twice, &series(&[100])), spread(2.0, 2.0, 2.0));
    }
}
