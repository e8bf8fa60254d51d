// SPDX-License-Identifier: GPL-2.0

//! Reads the command line. A wrong one is one line on standard error and exit status 2, as every
//! other error is one line.

use std::{
    error::Error,
    ffi::OsString,
    fmt,
    io::{
        stdout,
        Write, //
    },
};

use clap::{
    error::ErrorKind,
    CommandFactory,
    Parser, //
};

use crate::Cli;

/// A command line that is wrong, in a line that says why.
#[derive(Debug)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}

impl Usage {
    /// Names the help of `command`, which has no other command below it.
    pub fn of(command: &str, why: impl fmt::Display) -> Self {
        Self(format!("{why}; see mkeyctl {command} --help"))
    }
}

/// Returns what the command line says. Prints help and the version, and then returns `None`.
pub fn parse() -> Result<Option<Cli>, Box<dyn Error>> {
    let words: Vec<OsString> = std::env::args_os().collect();

    match Cli::try_parse_from(&words) {
        Ok(cli) => Ok(Some(cli)),
        Err(error) if error.exit_code() == 0 => {
            let mut out = stdout().lock();

            write!(out, "{}", error.render())?;
            out.flush()?;
            Ok(None)
        }
        Err(error) => {
            let why = match error.kind() {
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => no_command(),
                _ => one_line(&error.render().to_string()),
            };
            Err(Usage(format!("{why}; see mkeyctl {}--help", command(&words))).into())
        }
    }
}

/// Returns the name of the command among the words, and a space.
fn command(words: &[OsString]) -> String {
    let all = Cli::command();
    let name = words.iter().skip(1).filter_map(|word| word.to_str());
    let found = name.filter_map(|word| all.find_subcommand(word)).next();

    found.map_or_else(String::new, |command| format!("{} ", command.get_name()))
}

fn no_command() -> String {
    let all = Cli::command();
    let names: Vec<_> = all.get_subcommands().map(clap::Command::get_name).collect();

    format!("a command is missing; there are {}", names.join(", "))
}

/// Returns the reason in clap's message, which has a list and advice on further lines.
fn one_line(message: &str) -> String {
    let lines = message
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let mut text = String::new();

    for line in lines
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
    {
        let line = line.strip_prefix("error: ").unwrap_or(line);
        let tip = line.strip_prefix("tip: ");
        match tip {
            _ if text.is_empty() => {}
            Some(_) => text.push_str("; "),
            None => text.push(' '),
        }
        text.push_str(tip.unwrap_or(line));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_becomes_one_line() {
        let message =
            "error: the following arguments were not provided:\n  <A>\n  <B>\n\n  tip: an \
                       argument\n\nUsage: mkeyctl\n\nFor more information, try '--help'.\n";

        assert_eq!(
            one_line(message),
            "the following arguments were not provided: <A> <B>; an argument"
        );
        assert_eq!(
            command(&["mkeyctl".into(), "-j".into(), "ls".into()]),
            "ls "
        );
        assert_eq!(command(&["mkeyctl".into(), "list".into()]), "");
    }
}
