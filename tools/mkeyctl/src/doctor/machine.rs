// SPDX-License-Identifier: GPL-2.0

//! Reads the files that describe a machine. All of them are below one directory, so that a test can
//! make a directory with the files of a machine.

use std::{
    fs::{
        self,
        File,
        OpenOptions, //
    },
    io::{
        ErrorKind,
        Read, //
    },
    os::unix::fs::OpenOptionsExt,
    path::{
        Path,
        PathBuf, //
    },
    process::{
        Command,
        Stdio, //
    },
};

pub struct Machine {
    root: PathBuf,
    /// The release, as `uname -r` prints it.
    pub release: String,
}

impl Machine {
    pub fn new(root: &Path) -> Result<Self, String> {
        let file = root.join("proc/sys/kernel/osrelease");

        Ok(Self {
            root: root.to_owned(),
            release: fs::read_to_string(&file)
                .map_err(|error| {
                    format!(
                        "{}: {error}: {} must have the files of a machine that runs, with its /proc and /sys",
                        file.display(),
                        root.display()
                    )
                })?
                .trim()
                .to_owned(),
        })
    }

    /// Returns `true` if this is the machine that mkeyctl runs on.
    pub fn is_this(&self) -> bool {
        self.root == Path::new("/")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns the text of a file, or `None` if it cannot be read.
    pub fn read(&self, name: &str) -> Option<String> {
        let bytes = fs::read(self.path(name)).ok()?;

        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub fn read_bytes(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.path(name)).ok()
    }

    /// Returns the bytes of a file that `program` unpacks. Returns `None` if there is no such file, or
    /// no such program.
    pub fn unpacked(&self, program: &str, name: &str) -> Option<Vec<u8>> {
        if !self.exists(name) {
            return None;
        }
        Command::new(program)
            .arg("-dc")
            .arg(self.path(name))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()
            .filter(|output| output.status.success())
            .map(|output| output.stdout)
    }

    pub fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Returns the sorted names in a directory, or no names if the directory does not exist.
    pub fn names(&self, dir: &str) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.path(dir))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();

        names.sort();
        names
    }

    pub fn is_loaded(&self, module: &str) -> bool {
        self.exists(&format!("sys/module/{module}"))
    }

    /// Returns the file of the module in a list, `modules.builtin` or `modules.dep` of the kernel.
    fn listed(&self, list: &str, module: &str) -> Option<String> {
        let dir = format!("lib/modules/{}", self.release);
        let text = self.read(&format!("{dir}/{list}"))?;

        text.lines()
            .map(|line| line.split(':').next().unwrap_or_default())
            .find(|path| {
                let name = path.rsplit('/').next().unwrap_or_default();

                name.split(".ko")
                    .next()
                    .is_some_and(|name| name.replace('-', "_") == module)
            })
            .map(|path| format!("{dir}/{path}"))
    }

    pub fn is_built_in(&self, module: &str) -> bool {
        self.listed("modules.builtin", module).is_some()
    }

    /// Returns the file of a module that is installed for the kernel.
    pub fn installed(&self, module: &str) -> Option<String> {
        self.listed("modules.dep", module)
    }

    pub fn is_installed(&self, module: &str) -> bool {
        self.installed(module).is_some()
    }

    /// Returns the messages of the kernel from `/dev/kmsg`, one for each record.
    pub fn log(&self) -> Result<Vec<String>, ErrorKind> {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(self.path("dev/kmsg"))
            .map_err(|error| error.kind())?;
        let mut lines = Vec::new();

        loop {
            match read_record(&mut file) {
                Ok(Some(text)) => lines.extend(text.lines().filter_map(message).map(str::to_owned)),
                Ok(None) => return Ok(lines),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(lines),
                    // EPIPE: the kernel overwrote the record before it was read.
                    ErrorKind::BrokenPipe | ErrorKind::Interrupted => {}
                    kind => return Err(kind),
                },
            }
        }
    }
}

fn read_record(file: &mut File) -> std::io::Result<Option<String>> {
    let mut record = [0u8; 8192];
    let len = file.read(&mut record)?;
    let bytes = record.get(..len).unwrap_or_default();

    Ok((len != 0).then(|| String::from_utf8_lossy(bytes).into_owned()))
}

/// Returns the text after "level,number,time,flags;". Lines that begin with a space belong to
/// the message before them.
fn message(line: &str) -> Option<&str> {
    (!line.starts_with(' ')).then_some(())?;
    line.split_once(';').map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_a_head() {
        assert_eq!(message("6,1,2,-;ib_mkey: x; y"), Some("ib_mkey: x; y"));
        assert_eq!(message(" SUBSYSTEM=a;b"), None);
    }
}
