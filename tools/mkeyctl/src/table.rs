// SPDX-License-Identifier: GPL-2.0

//! Tables and sizes in a readable form.

/// Formats a table. Columns are as wide as their widest cell.
pub fn render<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0usize; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }

    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Returns the value's text, or a dash.
pub fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Formats a size with a unit if it is an exact multiple of one.
pub fn size(bytes: u64) -> String {
    let units = ["", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"];
    let mut value = bytes;
    let mut unit = 0usize;

    while value != 0 && value % 1024 == 0 && unit < units.len().saturating_sub(1) {
        value /= 1024;
        unit = unit.saturating_add(1);
    }
    format!("{value}{}", units.get(unit).unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        assert_eq!(size(0), "0");
        assert_eq!(size(1023), "1023");
        assert_eq!(size(1024), "1 KiB");
        assert_eq!(size(1536), "1536");
        assert_eq!(size(64 << 20), "64 MiB");
        assert_eq!(size(u64::MAX), u64::MAX.to_string());
        assert_eq!(size(1 << 63), "8 EiB");
    }
}
