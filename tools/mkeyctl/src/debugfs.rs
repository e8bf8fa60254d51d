// SPDX-License-Identifier: GPL-2.0

//! Reads the tables that the module shows in debugfs, such as those of device memory. The first
//! line of a table has the names of the columns. Columns are found by name, because a later module
//! may show more.

use std::{
    fs,
    io::ErrorKind,
    path::Path, //
};

use serde::Serialize;

/// The usual directory of the files.
pub const DIR: &str = "/sys/kernel/debug/ib_mkey";

/// The word for users in the kernel.
pub const KERNEL: &str = "kernel";

/// The device memory of one class of a device.
#[derive(Debug, PartialEq, Serialize)]
pub struct Pool {
    pub device: String,
    pub class: String,
    /// `None` if the kernel does not know the size yet.
    pub total: Option<u64>,
    pub used: Option<u64>,
    pub high: Option<u64>,
    pub buffers: Option<u64>,
}

/// An owner of memory: a user, the kernel, or all owners of a device.
#[derive(Debug, PartialEq, Serialize)]
pub struct Owner {
    pub device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The number of the user or `kernel`; `None` for all owners of the device together.
    pub user: Option<String>,
    pub bytes: Option<u64>,
    pub high: Option<u64>,
    pub buffers: Option<u64>,
    /// `None` if there is no limit.
    pub limit: Option<u64>,
}

/// Returns the pools; `None` if the kernel does not show them.
pub fn pools(dir: &Path) -> Result<Option<Vec<Pool>>, String> {
    read(dir, "pools", |row| {
        Ok(Pool {
            device: row.text("device")?,
            class: row.text("class")?,
            total: row.number("total")?,
            used: row.number("used")?,
            high: row.number("high")?,
            buffers: row.number("buffers")?,
        })
    })
}

/// Returns the owners of device memory; `None` if the kernel does not show them.
pub fn owners(dir: &Path) -> Result<Option<Vec<Owner>>, String> {
    owners_in(dir, "owners")
}

/// Returns the owners of key memory, and the sum for each device. Returns `None` if the kernel does
/// not show them.
pub fn key_owners(dir: &Path) -> Result<Option<Vec<Owner>>, String> {
    owners_in(dir, "keys")
}

fn owners_in(dir: &Path, file: &str) -> Result<Option<Vec<Owner>>, String> {
    read(dir, file, |row| {
        let uid = row.text("uid")?;

        if !matches!(uid.as_str(), "-" | KERNEL) && uid.parse::<u32>().is_err() {
            return Err(format!("`{uid}' is no user's number"));
        }
        Ok(Owner {
            device: row.text("device")?,
            class: row.get("class").map(str::to_owned),
            user: Some(uid).filter(|uid| uid != "-"),
            bytes: row.number("bytes")?,
            high: row.number("high")?,
            buffers: row.number("buffers")?,
            limit: row.number("limit")?,
        })
    })
}

/// A line whose cells are found by the names of their columns.
pub struct Row<'a> {
    names: &'a [&'a str],
    cells: Vec<String>,
}

impl Row<'_> {
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut columns = self.names.iter().zip(&self.cells);

        columns
            .find(|(column, _)| **column == name)
            .map(|(_, cell)| cell.as_str())
    }

    pub fn text(&self, name: &str) -> Result<String, String> {
        self.get(name)
            .map(str::to_owned)
            .ok_or_else(|| format!("there is no column `{name}'"))
    }

    /// Returns a number, or `None` for a dash or a missing column.
    pub fn number(&self, name: &str) -> Result<Option<u64>, String> {
        self.get(name)
            .filter(|&cell| cell != "-")
            .map(|cell| {
                cell.parse()
                    .map_err(|_| format!("{name} `{cell}' is no number"))
            })
            .transpose()
    }
}

/// Returns an error if this user may not read the file. `what` is what the file shows.
pub fn allowed(path: &Path, what: &str) -> Result<(), String> {
    match fs::File::open(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err(format!("{}: only root may see {what}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Reads the rows of a file. Returns `None` if the file does not exist.
pub fn read<T>(
    dir: &Path,
    name: &str,
    each: impl Fn(&Row<'_>) -> Result<T, String>,
) -> Result<Option<Vec<T>>, String> {
    let path = dir.join(name);
    let wrong = |why: String| format!("{}: {why}", path.display());

    match fs::read_to_string(&path) {
        Ok(text) => parse(&text, each).map(Some).map_err(wrong),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrong(error.to_string())),
    }
}

fn parse<T>(text: &str, each: impl Fn(&Row<'_>) -> Result<T, String>) -> Result<Vec<T>, String> {
    let mut lines = text.lines();
    let names: Vec<_> = lines
        .next()
        .and_then(|line| line.strip_prefix('#'))
        .ok_or("there is no line of column names")?
        .split_whitespace()
        .collect();

    lines
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let cells =
                cells(line, &names).ok_or_else(|| format!("`{line}' has too few columns"))?;
            each(&Row {
                names: &names,
                cells,
            })
        })
        .collect()
}

/// Splits a line into cells. The name of a process may contain spaces, or be empty: a process
/// chooses its name. Other cells are one word.
fn cells(line: &str, names: &[&str]) -> Option<Vec<String>> {
    let words: Vec<_> = line.split_whitespace().collect();
    let others = names.iter().filter(|&&name| name != "comm").count();
    let of_comm = words.len().checked_sub(others)?;
    let mut rest = words.as_slice();

    names
        .iter()
        .map(|&name| {
            let take = if name == "comm" { of_comm } else { 1 };
            let (cell, after) = rest.split_at_checked(take)?;
            rest = after;
            Some(cell.join(" "))
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn owner(user: Option<&str>) -> Owner {
        Owner {
            device: "rxe0".to_owned(),
            class: None,
            user: user.map(str::to_owned),
            bytes: Some(8192),
            high: None,
            buffers: Some(2),
            limit: None,
        }
    }

    fn name_of(text: &str) -> Result<Vec<String>, String> {
        parse(text, |row| row.text("comm"))
    }

    #[test]
    fn columns_go_by_their_names() {
        let names = |text| {
            parse(text, |row| {
                Ok((
                    row.text("device")?,
                    row.number("used")?,
                    row.number("high")?,
                ))
            })
        };

        assert_eq!(
            names("# used colour device\n7 red rxe0\n\n- blue rxe1\n"),
            Ok(vec![
                ("rxe0".to_owned(), Some(7), None),
                ("rxe1".to_owned(), None, None)
            ])
        );
        assert_eq!(names("# device used\n"), Ok(Vec::new()));
    }

    #[test]
    fn names_of_processes_may_have_spaces() {
        assert_eq!(
            name_of("# pid comm bytes\n1 a b  c 7\n2 [kernel] 8\n"),
            Ok(vec!["a b c".to_owned(), "[kernel]".to_owned()])
        );
        assert_eq!(name_of("# pid comm\n1 a b\n"), Ok(vec!["a b".to_owned()]));
    }

    #[test]
    fn names_of_processes_may_be_empty() {
        assert_eq!(
            name_of("# pid bytes comm\n1 7 \n2 8    \n3 9 x\n"),
            Ok(vec![String::new(), String::new(), "x".to_owned()])
        );
        assert_eq!(name_of("# pid comm bytes\n1  7\n"), Ok(vec![String::new()]));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |text| name_of(text).unwrap_err();

        assert!(error("").contains("column names"));
        assert!(error("a b\n").contains("column names"));
        assert!(error("# pid bytes comm\n1\n").contains("`1' has too few"));
        assert!(error("# pid\n1\n").contains("no column `comm'"));
    }

    #[test]
    fn files_that_are_not_there_are_no_error() {
        let dir = std::env::temp_dir().join(format!("mkeyctl-debugfs-{}", std::process::id()));
        assert_eq!(pools(&dir), Ok(None));

        fs::create_dir_all(&dir).unwrap();
        fs::write(
            dir.join("owners"),
            "# device uid bytes buffers\nrxe0 - 8192 2\nrxe0 kernel 8192 2\nrxe0 1000 8192 2\n",
        )
        .unwrap();
        let shown = owners(&dir);
        fs::write(dir.join("owners"), "# device uid bytes\nrxe0 root 8192\n").unwrap();
        let wrong = owners(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(
            shown,
            Ok(Some(vec![
                owner(None),
                owner(Some("kernel")),
                owner(Some("1000"))
            ]))
        );
        assert!(wrong.unwrap_err().contains("`root' is no user's number"));
    }
}
