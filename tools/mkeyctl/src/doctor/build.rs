// SPDX-License-Identifier: GPL-2.0

//! Compares a module that is loaded with the file that modprobe would load.

use super::machine::Machine;

/// The header of an ELF note for GNU: three numbers of 32 bits, and a name of 4 bytes.
const NOTE_HEADER: usize = 16;

/// Returns the installed file of a module if another build of the module is loaded. The build ID of
/// the linker is in a note of the file, and the kernel shows this note.
pub fn other_build(machine: &Machine, module: &str) -> Option<String> {
    let note = machine.read_bytes(&format!("sys/module/{module}/notes/.note.gnu.build-id"))?;
    let id = note.get(NOTE_HEADER..).filter(|id| !id.is_empty())?;
    let file = machine.installed(module)?;
    let bytes = contents(machine, &file)?;

    (!bytes.windows(id.len()).any(|part| part == id)).then_some(file)
}

/// Returns the bytes of a module's file, unpacked. Returns `None` without the program that unpacks
/// it.
fn contents(machine: &Machine, file: &str) -> Option<Vec<u8>> {
    let program = match file.rsplit('.').next() {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return machine.read_bytes(file),
    };

    machine.unpacked(program, file)
}
