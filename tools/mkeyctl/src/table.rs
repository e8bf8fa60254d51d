// SPDX-License-Identifier: GPL-2.0

//! Tables and sizes in a readable form.

use comfy_table::{
    presets,
    CellAlignment,
    ColumnConstraint,
    Table,
    Width, //
};

/// The number of spaces after a column.
const GAP: u16 = 2;

/// Formats a table. A column is as wide as its widest cell, and cells are aligned to the left.
pub fn render<const N: usize>(rows: &[[String; N]]) -> String {
    finish(&mut new_table(rows))
}

/// Formats a table with names in the first column, and numbers in the others, aligned to the right.
pub fn render_numbers(rows: &[Vec<String>]) -> String {
    let mut table = new_table(rows);

    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    finish(&mut table)
}

/// Formats one line of a table whose other lines are not known yet. Each cell comes with the
/// smallest width of its column, and is aligned to the right.
pub fn render_line(cells: &[(String, u16)]) -> String {
    let words: Vec<_> = cells.iter().map(|(word, _)| word.clone()).collect();
    let mut table = new_table(&[words]);

    for (column, (_, width)) in table.column_iter_mut().zip(cells) {
        let width = Width::Fixed(width.saturating_add(GAP));
        column.set_constraint(ColumnConstraint::LowerBoundary(width));
        column.set_cell_alignment(CellAlignment::Right);
    }
    finish(&mut table)
}

fn new_table<R: AsRef<[String]>>(rows: &[R]) -> Table {
    let mut table = Table::new();

    table.load_preset(presets::NOTHING);
    table.add_rows(rows.iter().map(AsRef::as_ref));
    table
}

fn finish(table: &mut Table) -> String {
    let mut text = String::new();

    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns the text of a value, or a dash if there is none.
pub fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Returns the name of a process in a form that a terminal shows in one line. A process may choose
/// any bytes as its name, or none.
pub fn printable(name: &str) -> String {
    let shown: String = name
        .chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = escaped.is_none().then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect();

    or_dash(Some(shown).filter(|shown| !shown.trim().is_empty()))
}

/// Formats a size, with the largest unit of which it is a multiple.
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
    fn a_line_has_the_widths_of_its_columns() {
        let line = |cells: &[(&str, u16)]| {
            let cells = cells
                .iter()
                .map(|(word, width)| ((*word).to_owned(), *width));
            render_line(&cells.collect::<Vec<_>>())
        };

        assert_eq!(line(&[("keys", 8), ("binds", 5)]), "    keys  binds\n");
        assert_eq!(line(&[("2", 8), ("1234567", 5)]), "       2  1234567\n");
    }

    #[test]
    fn a_name_is_one_word_or_more_of_one_line() {
        assert_eq!(printable("my prog"), "my prog");
        assert_eq!(
            printable("a\nb\u{1b}[31m\u{fffd}"),
            "a\\nb\\u{1b}[31m\u{fffd}"
        );
        assert_eq!(printable(""), "-");
        assert_eq!(printable("  "), "-");
    }

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
