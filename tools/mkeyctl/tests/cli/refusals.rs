// SPDX-License-Identifier: GPL-2.0

//! Tests that command lines and layouts without a meaning are refused in one line.

use super::refused;

#[test]
fn layouts_that_a_key_would_refuse_are_refused() {
    refused(
        &["draw", "--list", "0+0"],
        "",
        1,
        "mkeyctl: entry 0 of the list has no bytes",
    );
    refused(
        &["draw", "--repeat", "1,0", "--block", "0+1:1,1"],
        "",
        1,
        "mkeyctl: repeat_count[1] is 0",
    );
    refused(
        &["draw", "--repeat", "4", "--block", "m@16+8:-8"],
        "",
        1,
        "blocks[0]: its strides lead to addresses below 0",
    );
    refused(
        &["draw", "-"],
        "{\"list\": []}",
        1,
        "mkeyctl: -: the list has no entries",
    );
    refused(
        &["draw", "-"],
        "{}",
        1,
        "mkeyctl: -: a description is an object",
    );
    refused(
        &["draw", "/nonexistent"],
        "",
        1,
        "/nonexistent: No such file",
    );
}

#[test]
fn command_lines_that_make_no_sense_are_refused() {
    refused(
        &[],
        "",
        2,
        "a command is missing; there are caps, completion, demo",
    );
    refused(&["draw"], "", 2, "not provided: <FILE|--list");
    refused(&["draw"], "", 2, "; see mkeyctl draw --help");
    refused(
        &["draw", "--list", "0+1", "file"],
        "",
        2,
        "cannot be used with",
    );
    refused(&["draw", "--block", "0+1:1"], "", 2, "--repeat");
    refused(
        &["draw", "--repeat", "2", "--list", "0+1"],
        "",
        2,
        "cannot be used with",
    );
    refused(&["draw", "--repeat", "2"], "", 2, "--block");
    refused(
        &["draw", "--pitch", "0", "--list", "0+1"],
        "",
        2,
        "at least one byte",
    );
    let blocks = |repeat, block, why| {
        refused(&["draw", "--repeat", repeat, "--block", block], "", 2, why);
    };
    blocks("2", "a@0+4", "LEAF@ADDRESS+BYTES:STRIDE");
    blocks("2", "a@0:4", "LEAF@ADDRESS+BYTES");
    blocks("2,2", "a@0+4:4", "one stride for each of the 2 dimensions");
    blocks("1,1,1,1,1,1,1,1,1", "a@0+1:1", "more than 8 dimensions");
    blocks("x", "a@0+4:4", "no number");
    refused(&["draw", "--list", "a@0+4,7"], "", 2, "ADDRESS+BYTES");
    let indexed = |block, indices, why| {
        refused(
            &["draw", "--indexed", block, "--indices", indices],
            "",
            2,
            why,
        );
    };
    indexed("a@0+4", "1", "LEAF@ADDRESS+BYTES:UNIT");
    indexed("a@0+4:4", "1,b", "no number");
    for side in ["--rows", "--columns"] {
        for wrong in ["0", "10001", "18446744073709551615"] {
            let args = ["draw", side, wrong, "--list", "0+0xffffffffffffffff"];
            refused(&args, "", 2, "not a number from 1 to 10000");
        }
    }
    refused(&["draw", "--list", "@0+4"], "", 2, "no name before the @");
    refused(&["draw", "--key", "rxe0", "zz"], "", 2, "`zz' is no number");
    refused(&["watch", "-n", "0"], "", 2, "is not in 1..=4294967295");
    refused(&["flush"], "", 2, "unrecognized subcommand");
    refused(
        &["drow"],
        "",
        2,
        "; a similar subcommand exists: 'draw'; see mkeyctl --help",
    );
    refused(
        &["-j", "completion", "bash"],
        "",
        2,
        "--json is not for a script",
    );
}

/// An option that has no effect beside others is refused.
#[test]
fn options_without_an_effect_are_refused() {
    let draw = |args: &[&str], why| {
        let all: Vec<_> = ["draw", "--list", "0+1"]
            .iter()
            .chain(args)
            .copied()
            .collect();
        refused(&all, "", 2, why);
    };

    draw(&["-j", "--format", "svg"], "--format is not for --json");
    draw(&["-j", "--pitch", "8"], "--pitch is not for --json");
    draw(&["-j", "--rows", "8"], "--rows is not for --json");
    draw(&["-j", "--columns", "8"], "--columns is not for --json");
    draw(
        &["--format", "svg", "--columns", "8"],
        "--columns is for the format ascii",
    );
    draw(
        &["-o", "x.svg", "--columns", "8"],
        "--columns is for the format ascii",
    );
    draw(&["-o", "x.png"], "the suffix is none of .svg and .txt");
    draw(&["--debugfs", "/tmp"], "--debugfs is for --key");
    draw(&["--columns", "-1"], "not a number from 1 to 10000");
}
