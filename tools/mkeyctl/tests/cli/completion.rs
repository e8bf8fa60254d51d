// SPDX-License-Identifier: GPL-2.0

//! Tests the scripts by which shells complete command lines.

use std::process::Command;

use super::{
    printed,
    refused,
    Dir, //
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
    // These three take the names of devices from sysfs.
    for (shell, words) in [
        ("bash", "complete -F _mkeyctl_with_devices "),
        ("zsh", "all of them if left out:_mkeyctl_devices' "),
        (
            "fish",
            "__fish_seen_subcommand_from caps demo doctor ls stat ",
        ),
    ] {
        let script = printed(&["completion", shell], "");
        assert!(script.contains(words), "{shell}");
        assert!(!script.contains("complete -F _mkeyctl "), "{shell}");
    }
}

/// Bash completes the names of devices after a command, and not those of a file.
#[test]
fn bash_completes_devices() {
    let dir = Dir::new("completion");
    dir.file(
        "script",
        &printed(&["completion", "bash"], "").replace("/sys/class/infiniband", dir.name()),
    );
    dir.file("rxe_eth0", "").file("rxe_eth1", "");
    let complete = |words: &str| {
        let script = format!(
            "source {}/script; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             COMPREPLY=(); _mkeyctl_with_devices mkeyctl \"${{COMP_WORDS[COMP_CWORD]}}\" \
             \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[*]}}\"",
            dir.name()
        );
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };

    assert!(complete("mkeyctl caps rxe_").contains("rxe_eth0 rxe_eth1"));
    assert!(complete("mkeyctl -j stat ''").contains("rxe_eth1"));
    assert!(!complete("mkeyctl draw rxe_").contains("rxe_eth0"));
    assert!(!complete("mkeyctl caps --").contains("rxe_eth0"));
    assert!(complete("mkeyctl ca").contains("caps"));
}
