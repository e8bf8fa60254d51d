// SPDX-License-Identifier: GPL-2.0

//! The output of `mkey_bench`: one record of JSON per line.

use std::io::BufRead;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
enum Record {
    Run(Run),
    Series(Series),
}

/// The machine and the kernel of a measurement.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Run {
    pub kernel: String,
    pub cpus: u32,
    pub near: String,
    pub far: String,
    pub mtu: u32,
    pub repetitions: u32,
    pub shift: u32,
    /// The clock counted instructions, not nanoseconds.
    pub icount: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Bytes,
    Operations,
}

/// The times of all repetitions of one measurement.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Series {
    pub group: String,
    pub name: String,
    pub way: String,
    pub size: u64,
    /// Bytes or operations of one repetition.
    pub amount: u64,
    pub unit: Unit,
    pub ns: Vec<u64>,
}

impl Series {
    /// Returns `true` if both series are ways to do the same thing.
    pub fn compares_to(&self, other: &Self) -> bool {
        self.group == other.group && self.name == other.name && self.size == other.size
    }
}

#[derive(Debug, Default)]
pub struct Records {
    pub run: Option<Run>,
    pub series: Vec<Series>,
}

impl Records {
    /// Reads all records. Several runs of the program are combined: a repeated series is appended
    /// to the earlier one.
    pub fn read(from: impl BufRead) -> Result<Self, String> {
        let mut records = Self::default();

        for (number, line) in (1u64..).zip(from.lines()) {
            let wrong = |why: String| format!("line {number}: {why}");
            let line = line.map_err(|error| wrong(error.to_string()))?;
            if line.trim().is_empty() {
                continue;
            }
            let record = serde_json::from_str(&line).map_err(|error| wrong(error.to_string()))?;
            records.add(record).map_err(wrong)?;
        }
        if records.series.is_empty() {
            return Err("nothing was measured".to_owned());
        }
        Ok(records)
    }

    fn add(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Run(run) => {
                self.run.get_or_insert(run);
            }
            Record::Series(series) => {
                if series.ns.is_empty() || series.ns.contains(&0) || series.amount == 0 {
                    return Err(format!("{}, {}: no time", series.group, series.way));
                }
                let known = self
                    .series
                    .iter_mut()
                    .find(|known| known.compares_to(&series) && known.way == series.way);
                match known {
                    Some(known) if known.amount == series.amount => {
                        known.ns.extend(series.ns);
                    }
                    Some(_) => return Err(format!("{}: other amounts", series.group)),
                    None => self.series.push(series),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    const SERIES: &str = r#"{"record":"series","group":"dm","name":"write","way":"dm","size":4096,"amount":8192,"unit":"bytes","ns":[10,20]}"#;

    #[test]
    fn a_series_that_comes_again_goes_on() {
        let records = Records::read(format!("{SERIES}\n\n{SERIES}\n").as_bytes()).unwrap();

        assert_eq!(records.series.len(), 1);
        assert_eq!(records.series[0].ns, [10, 20, 10, 20]);
        assert_eq!(records.series[0].unit, Unit::Bytes);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let refused = |text: &str, why: &str| {
            let error = Records::read(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{error}");
        };

        refused("", "nothing was measured");
        refused("{}", "line 1: missing field `record`");
        refused(&format!("{SERIES}\nx"), "line 2: expected value");
        refused(&SERIES.replace("[10,20]", "[]"), "no time");
        refused(&SERIES.replace("20]", "0]"), "no time");
        refused(
            &format!("{SERIES}\n{}", SERIES.replace("8192", "1")),
            "other amounts",
        );
    }
}
