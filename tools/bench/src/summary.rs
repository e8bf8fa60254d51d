// SPDX-License-Identifier: GPL-2.0

//! All figures as JSON, for programs.

use serde::Serialize;

use crate::{
    group::GROUPS,
    record::{
        Memory,
        Records,
        Run,
        Series, //
    },
    stats::{
        self,
        Spread, //
    },
};

#[derive(Serialize)]
pub struct Summary<'a> {
    run: Option<&'a Run>,
    series: Vec<Entry<'a>>,
    memory: &'a [Memory],
}

#[derive(Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    series: &'a Series,
    /// Bytes or operations per second.
    rate: Option<Spread>,
    /// The name of the baseline; [`None`] for the baseline itself.
    baseline: Option<&'a str>,
    speedup: Option<Spread>,
}

impl<'a> Summary<'a> {
    pub fn new(records: &'a Records) -> Self {
        Self {
            run: records.run.as_ref(),
            series: records
                .series
                .iter()
                .map(|series| Entry::new(series, &records.series))
                .collect(),
            memory: &records.memory,
        }
    }
}

impl<'a> Entry<'a> {
    fn new(series: &'a Series, all: &'a [Series]) -> Self {
        let baseline = GROUPS
            .iter()
            .find(|group| group.key == series.group)
            .map(|group| group.baseline.key)
            .filter(|&way| way != series.way)
            .and_then(|way| {
                all.iter()
                    .find(|other| other.compares_to(series) && other.way == way)
            });

        Self {
            series,
            rate: stats::rate(series),
            baseline: baseline.map(|other| other.way.as_str()),
            speedup: baseline.and_then(|other| stats::speedup(series, other)),
        }
    }
}
