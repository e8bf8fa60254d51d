// SPDX-License-Identifier: GPL-2.0

//! Figures in a readable form.

use crate::{
    group::{
        Group,
        Quantity,
        Size, //
    },
    record::{
        Series,
        Unit, //
    },
    stats::{
        self,
        Spread, //
    },
};

/// Formats a value with three significant digits.
pub fn digits(value: f64) -> String {
    let magnitude = value.abs();

    if magnitude >= 99.95 {
        format!("{value:.0}")
    } else if magnitude >= 9.995 {
        format!("{value:.1}")
    } else if magnitude >= 0.0995 || magnitude == 0.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// Formats a number of bytes, or a plain number.
pub fn size(kind: Size, value: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];

    if kind == Size::Number {
        return thousands(value);
    }
    for (shift, unit) in UNITS {
        if value != 0 && value.trailing_zeros() >= shift {
            return format!("{} {unit}", value >> shift);
        }
    }
    format!("{value} B")
}

pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();

    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && digits.len().saturating_sub(at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the unit of a group's figures.
pub fn unit(group: &Group, unit: Unit) -> &'static str {
    match (group.quantity, unit) {
        (Quantity::Latency, _) => "us",
        (Quantity::Rate, Unit::Bytes) => "MB/s",
        (Quantity::Rate, Unit::Operations) => "op/s",
    }
}

/// Returns a series' figure in that unit.
pub fn figure(group: &Group, series: &Series) -> Option<Spread> {
    let (spread, factor) = match (group.quantity, series.unit) {
        (Quantity::Latency, _) => (stats::latency(series)?, 1e-3),
        (Quantity::Rate, Unit::Bytes) => (stats::rate(series)?, 1e-6),
        (Quantity::Rate, Unit::Operations) => (stats::rate(series)?, 1.0),
    };

    Some(Spread {
        median: spread.median * factor,
        min: spread.min * factor,
        max: spread.max * factor,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(digits(0.984), "0.98");
        assert_eq!(digits(0.0), "0.00");
        assert_eq!(digits(0.0123), "0.012");
        assert_eq!(digits(9.999), "10.0");
        assert_eq!(digits(54.321), "54.3");
        assert_eq!(digits(1234.5), "1234");
        assert_eq!(thousands(1), "1");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(100_000), "100,000");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(size(Size::Bytes, 16), "16 B");
        assert_eq!(size(Size::Bytes, 65536), "64 KiB");
        assert_eq!(size(Size::Bytes, 1 << 20), "1 MiB");
        assert_eq!(size(Size::Bytes, 1500), "1500 B");
        assert_eq!(size(Size::Number, 65536), "65,536");
    }
}
