// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl watch`: shows what changes from one moment to the next.

use std::{
    error::Error,
    io::{
        stdout,
        Write, //
    },
    path::{
        Path,
        PathBuf, //
    },
    process::ExitCode,
    thread::sleep,
    time::Duration,
};

use serde_json::{
    Map,
    Value, //
};

use crate::{
    debugfs,
    regions,
    table::render_line, //
};

#[derive(clap::Args)]
pub struct Args {
    /// Seconds between two lines
    #[arg(short = 'n', long, value_name = "SECONDS", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    interval: u32,

    /// Number of lines to print; without a limit if left out
    #[arg(short, long, value_name = "LINES")]
    count: Option<u32>,

    /// Directory in which debugfs shows ib_mkey
    #[arg(long, value_name = "DIR", default_value = debugfs::DIR)]
    debugfs: PathBuf,
}

/// The number of lines after which the names of the columns are repeated.
const PAGE: u32 = 20;

/// The number of keys at one moment, and the counts up to then.
struct Moment {
    keys: u64,
    bound: u64,
    counts: Vec<(String, u64)>,
}

impl Moment {
    fn look(dir: &Path) -> Result<Self, String> {
        let counts = regions::counters(dir)?;
        let regions = regions::regions(dir)?;
        let keys = regions.iter().filter(|region| region.is_key());

        Ok(Self {
            keys: keys.clone().count() as u64,
            bound: keys.filter(|key| key.kind != "unbound").count() as u64,
            counts,
        })
    }

    /// Returns the columns of a line: the numbers of keys, and the events that were counted since
    /// `before`.
    fn since(&self, before: &Self) -> Vec<(String, u64)> {
        let now =
            [("keys", self.keys), ("bound", self.bound)].map(|(name, n)| (name.to_owned(), n));
        let counted = self.counts.iter().map(|(name, count)| {
            let was = before.counts.iter().find(|(other, _)| other == name);
            let was = was.map_or(0, |(_, count)| *count);
            // If the count is smaller, the module was loaded again and counts from zero.
            (name.clone(), count.checked_sub(was).unwrap_or(*count))
        });

        now.into_iter().chain(counted).collect()
    }
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    let mut before = Moment::look(&args.debugfs)?;
    let mut line = 0u32;

    while args.count.is_none_or(|count| line < count) {
        sleep(Duration::from_secs(args.interval.into()));
        let now = Moment::look(&args.debugfs)?;
        let columns = now.since(&before);
        let mut out = stdout().lock();

        if json {
            let object: Map<_, _> = columns
                .into_iter()
                .map(|(name, value)| (name, Value::from(value)))
                .collect();
            writeln!(out, "{}", Value::Object(object))?;
        } else {
            let columns = with_one_refused(columns);

            if line % PAGE == 0 {
                let names = columns.iter().map(|(name, _)| (name, name.clone()));
                write!(out, "{}", line_of(names))?;
            }
            let numbers = columns.iter().map(|(name, n)| (name, n.to_string()));
            write!(out, "{}", line_of(numbers))?;
        }
        out.flush()?;
        before = now;
        line = line.wrapping_add(1);
    }
    Ok(ExitCode::SUCCESS)
}

/// The first part of the names of the counts of refused accesses. The rest of a name is the reason.
const REFUSED: &str = "refused_";

/// Returns the columns with the sum of all refused accesses in one column, so that a line fits a
/// terminal. `mkeyctl stat` and JSON show the counts for each reason.
fn with_one_refused(columns: Vec<(String, u64)>) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = Vec::new();

    for (name, count) in columns {
        let name = match name.starts_with(REFUSED) {
            true => "refused".to_owned(),
            false => name,
        };
        match all.iter_mut().find(|(other, _)| *other == name) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => all.push((name, count)),
        }
    }
    all
}

/// Formats a line of cells, each at least as wide as the name of its column.
fn line_of<'a>(cells: impl Iterator<Item = (&'a String, String)>) -> String {
    let cells: Vec<_> = cells
        .map(|(name, cell)| (cell, u16::try_from(name.len().max(8)).unwrap_or(8)))
        .collect();

    render_line(&cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(keys: u64, binds: u64) -> Moment {
        Moment {
            keys,
            bound: 1,
            counts: vec![("binds".to_owned(), binds)],
        }
    }

    #[test]
    fn refused_accesses_are_one_column() {
        let columns = [
            ("binds", 2),
            ("refused_unbound", 3),
            ("refused_rights", 4),
            ("accesses", 5),
        ];
        let columns = columns.map(|(name, count)| (name.to_owned(), count));
        let shown = with_one_refused(columns.to_vec());
        let shown: Vec<_> = shown.iter().map(|(name, n)| (name.as_str(), *n)).collect();

        assert_eq!(shown, [("binds", 2), ("refused", 7), ("accesses", 5)]);
    }

    #[test]
    fn counts_are_differences_and_keys_are_not() {
        let columns = |now: &Moment, before: &Moment| -> Vec<u64> {
            now.since(before).into_iter().map(|(_, n)| n).collect()
        };

        assert_eq!(columns(&moment(5, 17), &moment(3, 10)), [5, 1, 7]);
        assert_eq!(columns(&moment(5, 4), &moment(3, 10)), [5, 1, 4]);
    }
}
