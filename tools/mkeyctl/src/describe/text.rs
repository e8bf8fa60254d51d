// SPDX-License-Identifier: GPL-2.0

//! The forms of a range, a block and a number on the command line.

/// The name of a leaf for which the user gave no name.
pub(super) const UNNAMED: &str = "memory";

/// A range as in `A@0x1000+64`.
pub(super) struct Range {
    pub(super) leaf: String,
    pub(super) addr: u64,
    pub(super) bytes: u64,
}

/// Checks the name of a leaf, which is printed in one line.
pub(super) fn check_name(leaf: &str) -> Result<(), String> {
    if leaf.is_empty() {
        return Err("the name of a leaf is empty".to_owned());
    }
    if leaf.chars().any(char::is_control) {
        return Err(format!(
            "the name of a leaf has a control character: {leaf:?}"
        ));
    }
    Ok(())
}

/// Parses a number: `64`, `0x40`, `4K`.
pub fn number(text: &str) -> Result<u64, String> {
    let (digits, radix) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let (digits, unit) = match digits.char_indices().last() {
        Some((at, 'K' | 'k')) => (digits.get(..at), 1u64 << 10),
        Some((at, 'M' | 'm')) => (digits.get(..at), 1 << 20),
        Some((at, 'G' | 'g')) => (digits.get(..at), 1 << 30),
        _ => (Some(digits), 1),
    };

    digits
        .filter(|digits| digits.starts_with(|c: char| c.is_ascii_hexdigit()))
        .and_then(|digits| u64::from_str_radix(digits, radix).ok())
        .and_then(|value| value.checked_mul(unit))
        .ok_or_else(|| format!("`{text}' is no number below 2^64"))
}

pub(super) fn signed(text: &str) -> Result<i64, String> {
    let wrong = || format!("`{text}' is no signed number of 64 bits");
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let value = i128::from(number(digits).map_err(|_| wrong())?);

    i64::try_from(if negative {
        value.checked_neg().unwrap_or(value)
    } else {
        value
    })
    .map_err(|_| wrong())
}

pub(super) fn range(text: &str) -> Result<Range, String> {
    let (leaf, place) = text.split_once('@').unwrap_or((UNNAMED, text));
    let (addr, bytes) = place
        .split_once('+')
        .ok_or_else(|| format!("`{text}' is not LEAF@ADDRESS+BYTES"))?;
    let part = |digits| number(digits).map_err(|why| format!("`{text}': {why}"));

    if leaf.is_empty() {
        return Err(format!("`{text}': there is no name before the @"));
    }
    check_name(leaf)?;

    Ok(Range {
        leaf: leaf.to_owned(),
        addr: part(addr)?,
        bytes: part(bytes)?,
    })
}

/// Parses `A@0+16:256,64`.
pub(super) fn block(text: &str) -> Result<(Range, Vec<i64>), String> {
    let (place, stride) = text
        .split_once(':')
        .ok_or_else(|| format!("`{text}' is not LEAF@ADDRESS+BYTES:STRIDE,..."))?;
    let stride = stride.split(',').map(signed).collect::<Result<_, _>>()?;

    Ok((range(place)?, stride))
}

/// Parses `A@0+16:64`.
pub(super) fn indexed_block(text: &str) -> Result<(Range, u64), String> {
    let (place, unit) = text
        .split_once(':')
        .ok_or_else(|| format!("`{text}' is not LEAF@ADDRESS+BYTES:UNIT"))?;

    Ok((range(place)?, number(unit)?))
}

/// Parses `3,0,7`.
pub(super) fn numbers(text: &str) -> Result<Vec<u64>, String> {
    text.split(',').map(number).collect()
}

/// Returns `text` if it has the form of a range. This does not check the layout.
pub fn range_text(text: &str) -> Result<String, String> {
    range(text).map(|_| text.to_owned())
}

/// Returns `text` if it has the form of a block that repeats. This does not check the layout.
pub fn block_text(text: &str) -> Result<String, String> {
    block(text).map(|_| text.to_owned())
}

/// Returns `text` if it has the form of a block of an index. This does not check the layout.
pub fn indexed_text(text: &str) -> Result<String, String> {
    indexed_block(text).map(|_| text.to_owned())
}

/// Returns `text` if it has the form of a list of numbers. This does not check the layout.
pub fn numbers_text(text: &str) -> Result<String, String> {
    numbers(text).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number("0"), Ok(0));
        assert_eq!(number("0x40"), Ok(64));
        assert_eq!(number("0xfG"), Ok(15 << 30));
        assert_eq!(number("4K"), Ok(4096));
        assert_eq!(number("18446744073709551615"), Ok(u64::MAX));
        for wrong in [
            "",
            "-1",
            "+1",
            "K",
            "0x",
            "4KK",
            "18446744073709551616",
            "16777216T",
            "é",
        ] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
        assert_eq!(signed("-0x10"), Ok(-16));
        assert_eq!(signed("-9223372036854775808"), Ok(i64::MIN));
        assert!(signed("9223372036854775808").is_err());
        assert!(signed("--1").is_err());
    }
}
