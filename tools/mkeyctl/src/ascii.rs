// SPDX-License-Identifier: GPL-2.0

//! Draws a picture in characters.

use std::{
    fmt::Write,
    num::NonZeroUsize, //
};

use crate::{
    picture::{
        repeats,
        Panel,
        Picture,
        Span, //
    },
    table::render_numbers,
};

/// Memory that the layout does not contain.
const NONE: char = '.';

/// Several bytes of which the layout contains some.
const SOME: char = '+';

/// Memory that the layout contains more than once.
const REPEATED: char = '*';

/// Returns the character of an entry or block.
fn symbol(entry: usize) -> char {
    const SYMBOLS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

    SYMBOLS.get(entry).map_or('#', |&byte| byte.into())
}

pub fn render(picture: &Picture, columns: NonZeroUsize) -> String {
    let mut text = String::new();

    // Writing to a string cannot fail.
    let _ = try_render(&mut text, picture, columns.get() as u64);
    text
}

fn try_render(text: &mut String, picture: &Picture, columns: u64) -> std::fmt::Result {
    writeln!(text, "{}", picture.summary)?;
    for (at, words) in picture.entries.iter().enumerate() {
        writeln!(text, "  {}  {words}", symbol(at))?;
    }
    if let Some(more @ 1..) = picture.num_entries.checked_sub(picture.entries.len()) {
        writeln!(text, "  {more} more")?;
    }

    for panel in &picture.panels {
        render_panel(text, panel, columns)?;
    }

    match picture.repeated {
        0 => {}
        1 => writeln!(text, "\n1 byte is in the key more than once: {REPEATED}")?,
        bytes => writeln!(
            text,
            "\n{bytes} bytes are in the key more than once: {REPEATED}"
        )?,
    }
    match (picture.kind, picture.num_runs) {
        ("position", Some(count)) => writeln!(text, "\nThe blocks of the key, {count}:")?,
        (_, Some(1)) => writeln!(text, "\n1 run of contiguous bytes:")?,
        (_, Some(count)) => writeln!(text, "\n{count} runs of contiguous bytes:")?,
        (_, None) => writeln!(text, "\nThe first of many runs of contiguous bytes:")?,
    }
    let mut rows = vec![[picture.kind, "key offset", "address", "bytes"]
        .map(str::to_owned)
        .to_vec()];
    rows.extend(picture.runs.iter().map(|run| {
        vec![
            symbol(run.entry).to_string(),
            format!("{:#x}", run.offset),
            format!("{:#x}", run.addr),
            run.len.to_string(),
        ]
    }));
    text.push_str(&render_numbers(&rows));
    if picture
        .num_runs
        .is_none_or(|count| count > picture.runs.len())
    {
        writeln!(text, "  ...")?;
    }
    Ok(())
}

fn render_panel(text: &mut String, panel: &Panel, columns: u64) -> std::fmt::Result {
    let scale = panel.pitch.get().div_ceil(columns.max(1));

    write!(text, "\n{}: {} bytes a row", panel.leaf, panel.pitch.get())?;
    if scale > 1 {
        write!(text, ", {scale} bytes a character")?;
    }
    writeln!(text)?;

    let last = panel.rows.last_key_value().map_or(0, |(&row, _)| row);
    let last = row_address(last, panel.pitch.get());
    let width = format!("{last:#x}").len().max(6);
    let mut expected = None;
    for (&row, spans) in &panel.rows {
        if expected.is_some_and(|expected| expected != row) {
            writeln!(text, "  {:>width$}", "...")?;
        }
        expected = row.checked_add(1);

        let line = render_row(spans, panel.pitch.get(), scale);
        writeln!(
            text,
            "  {:>#width$x}  {line}",
            row_address(row, panel.pitch.get())
        )?;
    }
    if panel.more {
        writeln!(text, "  {:>width$}  and more", "...")?;
    }
    Ok(())
}

/// Returns the address of the first byte of a row. The row has a byte of the layout at or after
/// that address, so the product does not overflow.
fn row_address(row: u64, pitch: u64) -> u64 {
    row.saturating_mul(pitch)
}

fn render_row(spans: &[Span], pitch: u64, scale: u64) -> String {
    /// The number of bytes of a character that spans name, and the entry of the first span.
    #[derive(Clone, Copy, Default)]
    struct Cell {
        named: u64,
        first: Option<usize>,
    }
    let start = |cell: usize| (cell as u64).saturating_mul(scale);
    let end = |cell: usize| start(cell).saturating_add(scale).min(pitch);
    let mut cells = vec![Cell::default(); pitch.div_ceil(scale) as usize];

    let repeated = repeats(spans);
    for span in spans {
        let skip = span.from.checked_div(scale).unwrap_or(0) as usize;
        let of_span = cells
            .iter_mut()
            .enumerate()
            .skip(skip)
            .take_while(|(at, _)| start(*at) < span.to);

        for (at, cell) in of_span {
            let overlap = span
                .to
                .min(end(at))
                .saturating_sub(span.from.max(start(at)));

            cell.named = cell.named.saturating_add(overlap);
            cell.first = cell.first.or(Some(span.entry));
        }
    }
    let is_repeated = |at: usize| {
        let has = |&(from, to): &(u64, u64)| from < end(at) && start(at) < to;
        repeated.iter().any(has)
    };
    cells
        .iter()
        .enumerate()
        .map(|(at, cell)| match cell.first {
            None => NONE,
            Some(_) if is_repeated(at) => REPEATED,
            Some(_) if cell.named < end(at).saturating_sub(start(at)) => SOME,
            Some(entry) => symbol(entry),
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::describe::Description;

    fn draw(repeat: &str, blocks: &[&str], rows: usize, columns: usize) -> String {
        let blocks: Vec<_> = blocks.iter().map(|&block| block.to_owned()).collect();
        let description = Description::from_blocks(repeat, &blocks).unwrap();
        let picture = Picture::new(&description, None, NonZeroUsize::new(rows).unwrap());

        render(&picture, NonZeroUsize::new(columns).unwrap())
    }

    #[test]
    fn two_columns_of_a_matrix() {
        let text = draw("3", &["A@4+4:32", "A@16+8:32"], 32, 64);

        assert_eq!(
            text,
            "\
interleaved, 2 blocks repeated 3: 36 bytes
  0  A at 0x4, 4 bytes, stride 32
  1  A at 0x10, 8 bytes, stride 32

A: 32 bytes a row
     0x0  ....0000........11111111........
    0x20  ....0000........11111111........
    0x40  ....0000........11111111........

6 runs of contiguous bytes:
block  key offset  address  bytes
0             0x0      0x4      4
1             0x4     0x10      8
0             0xc     0x24      4
1            0x10     0x30      8
0            0x18     0x44      4
1            0x1c     0x50      8
"
        );
    }

    #[test]
    fn bytes_that_the_layout_repeats_are_marked() {
        let text = draw("3", &["A@0+8:4"], 32, 64);

        assert!(text.contains("     0x0  0000********0000"), "{text}");
        assert!(text.contains("\n8 bytes are in the key more than once: *\n"));
    }

    #[test]
    fn indexed_blocks_are_drawn_in_the_order_of_the_key() {
        let description = Description::from_indices("A@0+4:4", "2,0,2,1").unwrap();
        let picture = Picture::new(&description, None, NonZeroUsize::MAX);
        let text = render(&picture, NonZeroUsize::new(64).unwrap());

        assert!(
            text.contains("\n  0  index 2 at 0x8\n  1  index 0 at 0x0\n"),
            "{text}"
        );
        assert!(text.contains("     0x0  11113333****...."), "{text}");
        assert!(
            text.contains("position  key offset  address  bytes\n0"),
            "{text}"
        );
    }

    #[test]
    fn a_wide_row_is_scaled() {
        let text = draw("2", &["A@0+6:64"], 32, 16);

        assert!(text.contains("A: 64 bytes a row, 4 bytes a character\n"));
        assert!(text.contains("     0x0  0+..............\n"));
    }

    #[test]
    fn what_is_left_out_is_said() {
        let text = draw("4", &["A@0+1:64", "A@0x1000+1:64"], 3, 64);

        assert!(text.contains("  and more\n"), "{text}");

        let text = draw("2", &["A@0+1:64", "A@0x1000+1:64"], 32, 64);
        let rows: Vec<_> = text.lines().skip(5).take(5).map(first_word).collect();

        assert_eq!(rows, ["0x0", "0x40", "...", "0x1000", "0x1040"]);
    }

    fn first_word(line: &str) -> &str {
        line.split_whitespace().next().unwrap_or_default()
    }
}
