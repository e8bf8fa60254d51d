// SPDX-License-Identifier: GPL-2.0

//! Tables in a terminal.

use comfy_table::{
    presets,
    CellAlignment,
    Table, //
};

/// The number of spaces after a column.
const GAP: u16 = 2;

/// Arranges the lines of `text` in columns. A tab ends a cell. If `figures` is set, all columns
/// but the first are aligned to the right.
pub fn arrange(text: &str, figures: bool) -> String {
    let mut table = Table::new();
    let mut arranged = String::new();

    table.load_preset(presets::NOTHING);
    table.add_rows(text.lines().map(|line| line.split('\t')));
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, GAP));
        if figures && index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in table.lines() {
        arranged.push_str(line.trim_end());
        arranged.push('\n');
    }
    arranged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_end_below_the_ends_of_their_headings() {
        assert_eq!(
            arrange("ms\tone key\tratio\na tile\t11.20\t1.06\n", true),
            "ms      one key  ratio\na tile    11.20   1.06\n"
        );
    }

    #[test]
    fn text_begins_below_text() {
        assert_eq!(
            arrange("times\tmedians\nmany WRs\tone request a run\n", false),
            "times     medians\nmany WRs  one request a run\n"
        );
    }

    #[test]
    fn nothing_is_an_empty_table() {
        assert_eq!(arrange("", true), "");
    }
}
