// SPDX-License-Identifier: GPL-2.0

//! The figures of an earlier tree, and the rows that have changed since.
//!
//! A baseline is a file of JSON, one record per line: the kernel, then the cost of each row in
//! instructions. Counts of instructions hardly depend on the machine, so one file serves all.

use std::{
    collections::BTreeMap,
    fs::{
        read_to_string,
        write, //
    },
    io::ErrorKind,
    path::Path,
};

use serde::{
    Deserialize,
    Serialize, //
};

use crate::{
    record::{
        Records,
        Run,
        Series, //
    },
    stats::{
        self,
        Spread, //
    },
    table, text,
};

/// The largest change of a cost that is not reported, relative to the earlier cost.
const TOLERANCE: f64 = 0.02;

/// The properties that all rows of a baseline share.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Header {
    kernel: String,
    mtu: u32,
}

/// The cost of a byte or an operation, in instructions.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
struct Cost {
    median: f64,
    min: f64,
    max: f64,
}

impl Cost {
    fn of(spread: Spread) -> Self {
        // Ten-thousandths of an instruction are of no interest, and lengthen the file.
        let short = |value: f64| (value * 1e4).round() / 1e4;
        Self {
            median: short(spread.median),
            min: short(spread.min),
            max: short(spread.max),
        }
    }

    fn contains(&self, value: f64) -> bool {
        (self.min..=self.max).contains(&value)
    }

    /// Returns `true` if the cost is another one now. A median that lies within the range of the
    /// other's repetitions can be the same.
    fn differs(&self, now: &Self) -> bool {
        let change = (now.median / self.median - 1.0).abs();
        change > TOLERANCE && !self.contains(now.median) && !now.contains(self.median)
    }
}

#[derive(Deserialize, Serialize)]
struct Line {
    row: String,
    #[serde(flatten)]
    cost: Cost,
}

/// The costs of an earlier tree.
pub struct Baseline {
    header: Header,
    rows: BTreeMap<String, Cost>,
}

/// A row whose cost is another one.
struct Change<'a> {
    row: &'a str,
    before: f64,
    after: f64,
}

/// The result of a comparison.
pub struct Changes<'a> {
    changed: Vec<Change<'a>>,
    /// The number of rows that were compared.
    compared: usize,
    /// The rows that the baseline lacks.
    new: Vec<&'a str>,
}

/// Returns the name of a row.
fn row(series: &Series) -> String {
    let Series {
        group,
        name,
        way,
        size,
        ..
    } = series;
    format!("{group}: {name} {size}, {way}")
}

/// Returns why the figures of `run` cannot be compared with others; [`None`] if they can.
fn unfit(run: &Run) -> Option<&'static str> {
    if !run.icount {
        Some("the clock did not count instructions")
    } else if run.shift != 0 {
        Some("the sizes were divided")
    } else {
        None
    }
}

/// Returns the header and the costs of `records`.
///
/// # Errors
///
/// The reason why the figures cannot be compared with others.
fn costs(records: &Records) -> Result<(Header, BTreeMap<String, Cost>), String> {
    let run = records.run.as_ref().ok_or("no record of the run")?;
    if let Some(why) = unfit(run) {
        return Err(why.to_owned());
    }
    let header = Header {
        kernel: run.kernel.clone(),
        mtu: run.mtu,
    };
    let rows = records
        .series
        .iter()
        .filter_map(|series| Some((row(series), Cost::of(stats::latency(series)?))))
        .collect();
    Ok((header, rows))
}

impl Baseline {
    /// Reads a baseline.
    ///
    /// # Errors
    ///
    /// The reason why the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = read_to_string(path).map_err(|error| error.to_string())?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let header = lines.next().ok_or("an empty file")?;
        let header = serde_json::from_str(header).map_err(|error| format!("line 1: {error}"))?;
        let mut rows = BTreeMap::new();

        for (number, line) in (2u64..).zip(lines) {
            let Line { row, cost } =
                serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))?;
            rows.insert(row, cost);
        }
        Ok(Self { header, rows })
    }

    /// Stores the costs of `records` in the file `path`. Rows that were not measured stay, unless
    /// they are of another kernel.
    ///
    /// # Errors
    ///
    /// The reason why the figures cannot be compared with others, or why the file cannot be read or
    /// written.
    pub fn save(path: &Path, records: &Records) -> Result<(), String> {
        let (header, mut rows) = costs(records)?;
        let text = match read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error.to_string()),
        };
        if let Some(before) = text.map(|text| Self::parse(&text)).transpose()? {
            if before.header == header {
                for (row, cost) in before.rows {
                    rows.entry(row).or_insert(cost);
                }
            }
        }
        let json = |error: serde_json::Error| error.to_string();
        let mut text = serde_json::to_string(&header).map_err(json)? + "\n";
        for (row, cost) in rows {
            text.push_str(&serde_json::to_string(&Line { row, cost }).map_err(json)?);
            text.push('\n');
        }
        write(path, text).map_err(|error| error.to_string())
    }
}

/// The costs of a run.
pub struct Costs(BTreeMap<String, Cost>);

impl Costs {
    /// Returns the costs of `records`, if they can be compared with `baseline`.
    ///
    /// # Errors
    ///
    /// The reason why they cannot.
    pub fn of(records: &Records, baseline: &Baseline) -> Result<Self, String> {
        let (header, rows) = costs(records)?;
        let Header { kernel, mtu } = &baseline.header;
        if header != baseline.header {
            return Err(format!("that is of Linux {kernel} with MTU {mtu}"));
        }
        Ok(Self(rows))
    }

    /// Returns the rows whose cost is another one than in `baseline`.
    pub fn since(&self, baseline: &Baseline) -> Changes<'_> {
        let mut changes = Changes {
            changed: Vec::new(),
            compared: 0,
            new: Vec::new(),
        };

        for (row, now) in &self.0 {
            let Some(before) = baseline.rows.get(row) else {
                changes.new.push(row);
                continue;
            };
            changes.compared = changes.compared.saturating_add(1);
            if before.differs(now) {
                changes.changed.push(Change {
                    row,
                    before: before.median,
                    after: now.median,
                });
            }
        }
        changes
    }
}

impl Changes<'_> {
    /// Returns `true` if a row costs more than before.
    pub fn slower(&self) -> bool {
        self.changed.iter().any(|row| row.after > row.before)
    }

    /// Returns the text for a terminal.
    pub fn report(&self) -> String {
        let (changed, compared) = (self.changed.len(), self.compared);
        let mut text = if changed == 0 {
            format!("Since the baseline, none of {compared} rows changed by more than 2 %.\n")
        } else {
            format!(
                "Since the baseline, {changed} of {compared} rows changed by more than 2 %; \
                 instructions of a byte or an operation:\n{}\n",
                self.table()
            )
        };
        if !self.new.is_empty() {
            text.push_str(&format!("The baseline lacks {} rows.\n", self.new.len()));
        }
        text
    }

    fn table(&self) -> String {
        let header = ["row", "before", "now", "change"].map(str::to_owned);
        let mut table = table::new_table(header);

        for Change { row, before, after } in &self.changed {
            let percent = (after / before - 1.0) * 100.0;
            let change = format!("{percent:+.1} %");
            table.add_row([
                row.to_string(),
                text::digits(*before),
                text::digits(*after),
                change,
            ]);
        }
        table::finish(table, 1)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn cost(median: f64, min: f64, max: f64) -> Cost {
        Cost { median, min, max }
    }

    #[test]
    fn small_changes_and_noise_are_none() {
        let before = cost(100.0, 99.0, 101.0);

        assert!(!before.differs(&before));
        assert!(!before.differs(&cost(101.9, 101.8, 102.0)));
        assert!(before.differs(&cost(102.1, 102.0, 102.2)));
        assert!(before.differs(&cost(97.9, 97.0, 98.5)));
        // The earlier median is among the repetitions, and the reverse.
        assert!(!before.differs(&cost(110.0, 90.0, 111.0)));
        assert!(!cost(100.0, 99.0, 120.0).differs(&cost(110.0, 109.0, 111.0)));
    }

    #[test]
    fn a_file_that_is_no_baseline_is_refused() {
        let why = |text| Baseline::parse(text).err().unwrap();
        let header = r#"{"kernel":"7.2","mtu":4096}"#;

        assert!(why("").contains("empty"));
        assert!(why("{}").contains("line 1: missing field `kernel`"));
        assert!(why(&format!("{header}\nx")).contains("line 2: expected value"));
    }
}
