// SPDX-License-Identifier: GPL-2.0

//! Tables for a terminal.

use comfy_table::{
    presets,
    CellAlignment,
    Table, //
};

use crate::{
    group::{
        Group,
        GROUPS, //
    },
    record::{
        Records,
        Series, //
    },
    stats::{
        self,
        Spread, //
    },
    text,
};

/// Returns the tables of all groups.
pub fn all(records: &Records) -> String {
    let mut parts = vec![heading(records)];

    for group in GROUPS {
        parts.extend(of_group(group, records));
    }
    parts.join("\n")
}

fn heading(records: &Records) -> String {
    let Some(run) = &records.run else {
        return String::new();
    };
    let clock = if run.icount {
        "\nTime is counted in instructions: 1 ns is one.\n"
    } else {
        "\n"
    };

    format!(
        "Linux {}, {} CPU{}, {} to {}, MTU {}. Every byte was checked. Medians, (min-max) of ratios.{clock}",
        run.kernel,
        run.cpus,
        if run.cpus == 1 { "" } else { "s" },
        run.near,
        run.far,
        run.mtu,
    )
}

/// Formats a table: figures are aligned to the right, words to the left.
fn finish(mut table: Table) -> String {
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if at > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<_> = table
        .lines()
        .map(|line| format!("  {}", line.trim_end()))
        .collect();
    lines.join("\n")
}

fn ratio(spread: Spread) -> String {
    format!(
        "{} ({}-{})",
        text::digits(spread.median),
        text::digits(spread.min),
        text::digits(spread.max)
    )
}

/// Returns the table of a group, or [`None`] if no series of the group was measured.
fn of_group(group: &Group, records: &Records) -> Option<String> {
    let rows: Vec<&Series> = records
        .series
        .iter()
        .filter(|series| series.group == group.key && series.way == group.baseline.key)
        .collect();
    if rows.is_empty() {
        return None;
    }

    let mut header = vec![
        String::new(),
        group.size_label.to_owned(),
        String::new(),
        group.baseline.label.to_owned(),
    ];
    for way in group.ways {
        header.extend([way.label.to_owned(), "ratio".to_owned()]);
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);

    let mut last = "";
    for base in rows {
        let name = if base.name == last { "" } else { &base.name };
        last = &base.name;
        let mut row = vec![
            name.to_owned(),
            text::size(group.size, base.size),
            text::unit(group, base.unit).to_owned(),
            figure(group, base),
        ];
        for way in group.ways {
            let series = records
                .series
                .iter()
                .find(|series| series.compares_to(base) && series.way == way.key);
            row.push(series.map_or_else(none, |series| figure(group, series)));
            row.push(
                series
                    .and_then(|series| stats::speedup(series, base))
                    .map_or_else(none, ratio),
            );
        }
        table.add_row(row);
    }

    Some(format!(
        "{}\n{}\n{}\n",
        group.title,
        finish(table),
        wrap(group.shows)
    ))
}

fn none() -> String {
    "-".to_owned()
}

fn figure(group: &Group, series: &Series) -> String {
    text::figure(group, series).map_or_else(none, |spread| text::digits(spread.median))
}

/// Wraps sentences to the width of a terminal.
fn wrap(sentences: &str) -> String {
    let mut lines = String::new();
    let mut width = 0usize;

    for word in sentences.split_whitespace() {
        if width > 0 && width.saturating_add(word.len()) >= 96 {
            lines.push('\n');
            width = 0;
        }
        lines.push_str(if width == 0 { "  " } else { " " });
        lines.push_str(word);
        width = width.saturating_add(word.len()).saturating_add(1);
    }
    lines
}
