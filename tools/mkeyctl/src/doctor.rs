// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl doctor`: finds the reasons why keys do not work on this machine, and the remedies.

mod devices;
mod limits;
mod links;
mod log;
mod machine;
mod module;
mod programs;
mod provider;

use std::{
    error::Error,
    io::{
        stdout,
        Write, //
    },
    path::PathBuf,
    process::ExitCode,
};

use serde::Serialize;
use serde_json::json;

use crate::{
    regions,
    why, //
};
use machine::Machine;

#[derive(clap::Args)]
pub struct Args {
    /// Device, as in `rdma link`; all of them if left out
    device: Option<String>,

    /// Directory with the files of another machine that runs; its devices are not queried
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    /// Keys work, or the finding may be intended, but the user should know.
    Note,
    /// The check could not be made, for example because this user may not read a file.
    Unknown,
    Problem,
}

/// The outcome of a check.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    status: Status,
    /// The result, in one line.
    found: String,
    /// The remedy, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            status: Status::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    fn with(
        check: &'static str,
        status: Status,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            check,
            status,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }

    fn problem(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::with(check, Status::Problem, found, remedy)
    }

    fn note(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::with(check, Status::Note, found, remedy)
    }

    fn unknown(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::with(check, Status::Unknown, found, remedy)
    }
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    let machine = Machine::new(&args.root)?;
    let devices = devices::look(&machine, args.device.as_deref())?;
    let mut findings = module::check(&machine);

    findings.extend(devices::check(&machine, &devices));
    findings.extend(links::check(&machine, args.device.as_deref()));
    findings.extend(programs::check(&machine));
    findings.extend(limits::check(&machine, args.device.as_deref()));
    findings.extend(log::check(&machine, args.device.as_deref()));
    findings.extend(refusals(&machine, args.device.as_deref()));

    let problems = findings
        .iter()
        .filter(|finding| finding.status == Status::Problem)
        .count();
    let mut out = stdout().lock();
    if json {
        writeln!(
            out,
            "{:#}",
            json!({ "problems": problems, "checks": findings })
        )?;
    } else {
        write!(out, "{}", text(&findings, problems))?;
    }
    Ok(if problems == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns a note if keys that exist have refused accesses. Only root may read that.
fn refusals(machine: &Machine, wanted: Option<&str>) -> Option<Finding> {
    let all = regions::refusals(&machine.path("sys/kernel/debug/ib_mkey")).ok()?;
    let found: Vec<_> = all
        .iter()
        .filter(|refusal| wanted.is_none_or(|wanted| wanted == refusal.device))
        .collect();
    let last = found.first()?;

    Some(Finding::note(
        "accesses",
        format!(
            "keys that have refused an access: {}; the last: {}",
            found.len(),
            why::line(last)
        ),
        format!("mkeyctl why {}", last.device),
    ))
}

fn text(findings: &[Finding], problems: usize) -> String {
    let mut text = String::new();

    for finding in findings {
        let status = match finding.status {
            Status::Ok => "ok",
            Status::Note => "note",
            Status::Unknown => "?",
            Status::Problem => "PROBLEM",
        };
        text.push_str(&format!(
            "{status:<8} {}: {}\n",
            finding.check, finding.found
        ));
        if let Some(remedy) = &finding.remedy {
            text.push_str(&format!("         -> {remedy}\n"));
        }
    }
    text.push_str(&match problems {
        0 => "No problem found.\n".to_owned(),
        1 => "1 problem found.\n".to_owned(),
        n => format!("{n} problems found; begin with the first.\n"),
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_finding_and_one_for_its_remedy() {
        let findings = [
            Finding::ok("kernel", "Linux 7.2.12"),
            Finding::problem("module", "not loaded", "modprobe ib_mkey"),
        ];

        assert_eq!(
            text(&findings, 1),
            "ok       kernel: Linux 7.2.12\n\
             PROBLEM  module: not loaded\n         -> modprobe ib_mkey\n\
             1 problem found.\n"
        );
        assert!(text(&[], 0).ends_with("No problem found.\n"));
    }
}
