// SPDX-License-Identifier: GPL-2.0

//! Tests the scripts by which shells complete command lines.

use super::{
    printed,
    refused, //
};

/// Returns the commands that the help lists.
fn commands() -> Vec<String> {
    let help = printed(&["--help"], "");
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let commands: Vec<_> = list
        .lines()
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|command| command != "help")
        .collect();

    for command in [
        "caps",
        "completion",
        "demo",
        "doctor",
        "draw",
        "ls",
        "stat",
        "watch",
        "who",
    ] {
        assert!(commands.iter().any(|known| known == command), "{command}");
    }
    commands
}

#[test]
fn shells_complete_each_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completion", shell], "");

        for command in commands() {
            assert!(script.contains(&command), "{shell}: {command}");
        }
    }
    refused(&["completion", "dos"], "", 2, "invalid value");
}
