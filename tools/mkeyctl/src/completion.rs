// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl completion`: prints the script with which a shell completes command lines.

use std::{
    error::Error,
    io::{
        stdout,
        Write, //
    },
    process::ExitCode,
};

use clap::CommandFactory;
use clap_complete::{
    generate,
    Shell, //
};

#[derive(clap::Args)]
pub struct Args {
    /// Shell that the script is for
    shell: Shell,
}

pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let mut script = Vec::new();

    // The generator panics if it cannot write, so let it write to a vector.
    generate(
        args.shell,
        &mut crate::Cli::command(),
        "mkeyctl",
        &mut script,
    );
    let script = with_devices(args.shell, &String::from_utf8(script)?);
    stdout().lock().write_all(script.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Commands with the name of a device.
const COMMANDS: [&str; 6] = ["caps", "demo", "doctor", "ls", "stat", "who"];

/// Adds the names of devices to a script, which clap cannot know.
fn with_devices(shell: Shell, script: &str) -> String {
    let commands = COMMANDS.join(if shell == Shell::Fish { " " } else { "|" });

    match shell {
        Shell::Bash => format!(
            r#"{}
_mkeyctl_with_devices() {{
    _mkeyctl "$@"
    local word cur=${{COMP_WORDS[COMP_CWORD]}}
    [[ $cur != -* ]] || return 0
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case $word in
        {commands})
            COMPREPLY+=($(compgen -W "$(command ls /sys/class/infiniband 2>/dev/null)" -- "$cur"))
            return 0
            ;;
        -*) ;;
        *) return 0 ;;
        esac
    done
}}
"#,
            script.replace(
                "complete -F _mkeyctl ",
                "complete -F _mkeyctl_with_devices "
            )
        ),
        Shell::Zsh => {
            let devices = r#"
_mkeyctl_devices() {
    local -a devices
    devices=(/sys/class/infiniband/*(N:t))
    _describe device devices
}
"#;
            let (head, rest) = script.split_once('\n').unwrap_or((script, ""));
            let mut lines = String::new();
            for line in rest.lines() {
                let is_device = ["'::device", "':device", "'::from", "'::to"]
                    .iter()
                    .any(|name| line.starts_with(name));
                let line = match line.strip_suffix(":_default' \\") {
                    Some(start) if is_device => format!("{start}:_mkeyctl_devices' \\"),
                    _ => line.to_owned(),
                };
                lines.push_str(&line);
                lines.push('\n');
            }
            format!("{head}\n{devices}{lines}")
        }
        Shell::Fish => format!(
            "{script}complete -c mkeyctl -n \"__fish_seen_subcommand_from {commands}\" -f -a \
             \"(command ls /sys/class/infiniband 2>/dev/null)\"\n"
        ),
        _ => script.to_owned(),
    }
}
