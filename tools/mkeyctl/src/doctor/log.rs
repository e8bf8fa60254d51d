// SPDX-License-Identifier: GPL-2.0

//! Checks the lines of ib_mkey in the kernel's log.

use std::io::ErrorKind;

use super::{
    machine::Machine,
    Finding, //
};

const CHECK: &str = "log";

/// Words of a line of ib_mkey, and the remedy.
const CAUSES: [(&str, &str); 2] = [
    (
        "its link was added before ib_mkey was loaded",
        "correct what the checks module and rxe say, then make the link again",
    ),
    (
        "is no class of device memory",
        "correct dm_class among the parameters in /etc/modprobe.d",
    ),
];

/// Checks the lines about `wanted` and about the module, or about all devices.
pub fn check(machine: &Machine, wanted: Option<&str>) -> Vec<Finding> {
    match machine.log() {
        Ok(lines) => found(machine, &lines, wanted),
        Err(ErrorKind::PermissionDenied) => vec![Finding::unknown(
            CHECK,
            "this user may not read the kernel's log",
            "run mkeyctl doctor as root",
        )],
        Err(kind) => vec![Finding::unknown(
            CHECK,
            format!("/dev/kmsg: {kind}"),
            "dmesg | grep ib_mkey",
        )],
    }
}

/// Returns a finding for each line that tells a problem. If a later line says that a device was
/// extended, ignores earlier lines about that device and about the module. Ignores lines about
/// devices that are gone.
fn found(machine: &Machine, lines: &[String], wanted: Option<&str>) -> Vec<Finding> {
    let is_gone = |line: &str| {
        line.split_once(": not extended")
            .is_some_and(|(device, _)| !machine.exists(&format!("sys/class/infiniband/{device}")))
    };
    let mut bad: Vec<(&str, &str)> = Vec::new();

    for line in lines
        .iter()
        .filter_map(|line| line.strip_prefix("ib_mkey: "))
    {
        if let Some((device, _)) = line.split_once(": extended, ") {
            bad.retain(|(line, _)| {
                line.split_once(": ")
                    .is_some_and(|(subject, _)| subject != device && is_device(subject))
            });
            continue;
        }
        let line = line.strip_prefix("ib_mkey: ").unwrap_or(line);
        if let Some((_, remedy)) = CAUSES.iter().find(|(words, _)| line.contains(words)) {
            bad.retain(|(other, _)| *other != line);
            bad.push((line, remedy));
        }
    }
    let is_wanted = |line: &str| match (wanted, line.split_once(": ")) {
        (Some(wanted), Some((subject, _))) => subject == wanted || !is_device(subject),
        _ => true,
    };
    bad.retain(|(line, _)| !is_gone(line) && is_wanted(line));
    if bad.is_empty() {
        return vec![Finding::ok(CHECK, "ib_mkey reports no problem")];
    }
    bad.into_iter()
        .map(|(line, remedy)| Finding::problem(CHECK, line, remedy))
        .collect()
}

/// Returns `true` if the words before a colon are a name, such as that of a device.
fn is_device(subject: &str) -> bool {
    !subject.contains(char::is_whitespace) && subject != "dm_class"
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        fs,
        path::{
            Path,
            PathBuf, //
        },
    };

    use super::*;

    fn tree() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// Appends the text of the sources below a directory.
    fn sources(dir: &Path, text: &mut String) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, text);
            } else {
                text.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }

    #[test]
    fn the_module_prints_the_words_of_each_cause() {
        let mut text = String::new();

        sources(&tree().join("drivers/infiniband/ulp/mkey"), &mut text);
        for (words, _) in CAUSES {
            assert!(text.contains(words), "{words}");
        }
    }

    /// operations.rst explains each line of `CAUSES`, and no other line.
    #[test]
    fn operations_rst_explains_the_same_lines() {
        const NO_CAUSES: [&str; 2] = [": extended, ", "non-flush error status"];
        let page = tree().join("Documentation/infiniband/mkey/operations.rst");
        let page = fs::read_to_string(page).unwrap();
        let (_, table) = page.split_once("\nLog\n===\n").unwrap();
        let lines: Vec<_> = table
            .lines()
            .filter_map(|line| line.strip_prefix("   * - ``")?.strip_suffix("``"))
            .collect();

        assert!(lines.len() > CAUSES.len());
        for line in &lines {
            let known = CAUSES.iter().any(|(words, _)| line.contains(words))
                || NO_CAUSES.iter().any(|words| line.contains(words));
            assert!(known, "{line}");
        }
        for (words, _) in CAUSES {
            assert!(lines.iter().any(|line| line.contains(words)), "{words}");
        }
    }
}
