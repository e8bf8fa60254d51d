// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl demo`: runs one RDMA WRITE from one strided key to another, and shows the result.

use std::{
    error::Error,
    fmt::Write as _,
    io::{
        stdout,
        Write, //
    },
    process::ExitCode,
};

use ibmkey::{
    keys::{
        last_error,
        Access,
        Key,
        Pd,
        Region, //
    },
    verbs::{
        self,
        Context,
        Queue,
        Span, //
    },
    Errno,
};

use serde_json::json;

use crate::devices;

#[derive(clap::Args)]
pub struct Args {
    /// Device that the bytes come from [default: rxe0, and rxe1 for the other]
    from: Option<String>,

    /// Device that they go to [default: where they come from]
    to: Option<String>,
}

/// Bytes of a row in the drawing.
const PITCH: usize = 16;
const ROWS: usize = 8;
/// The initial value of each byte of memory.
const NOTHING: u8 = b'.';

/// A rectangle of bytes.
struct Tile {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

const FROM: Tile = Tile {
    x: 4,
    y: 1,
    width: 4,
    height: 6,
};
/// The tile that the bytes of `FROM` are written to. It has as many bytes, in another shape.
const TO: Tile = Tile {
    x: 9,
    y: 2,
    width: 6,
    height: 4,
};

impl Tile {
    const fn len(&self) -> usize {
        self.width.saturating_mul(self.height)
    }

    /// Returns the offsets of the tile's bytes, in the order of a key over the tile.
    fn offsets(&self) -> impl Iterator<Item = usize> + '_ {
        (self.y..self.y.saturating_add(self.height)).flat_map(move |row| {
            let start = row.saturating_mul(PITCH).saturating_add(self.x);
            start..start.saturating_add(self.width)
        })
    }

    /// Makes a key of the tile: rows that are a stride apart.
    fn key<'r>(&self, pd: &Pd<'r>, memory: &'r Region<'r>) -> Result<Key<'r>, Errno> {
        let start = self.offsets().next().unwrap_or(0) as u64;
        let row = memory.slice(start..start.saturating_add(self.width as u64))?;

        Key::of_strided(pd, row, &[self.height as u64], &[PITCH as i64], access())
    }

    fn describe(&self) -> String {
        format!(
            "a key over {} rows of {} bytes, {PITCH} apart",
            self.height, self.width
        )
    }
}

const WRONG: &str = "the bytes are not where they should be; mkeyctl doctor looks for problems";

const _: () = assert!(FROM.len() == TO.len());

/// Returns the access flags of both sides.
fn access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE
}

/// Returns memory with letters in the tile, and `NOTHING` around it.
fn lettered(tile: &Tile) -> Vec<u8> {
    let mut memory = vec![NOTHING; PITCH * ROWS];

    for (at, letter) in tile.offsets().zip(b'A'..=b'Z') {
        if let Some(byte) = memory.get_mut(at) {
            *byte = letter;
        }
    }
    memory
}

/// Draws two pieces of memory beside each other.
fn side_by_side(left: &[u8], right: &[u8]) -> String {
    let mut text = String::new();

    let pairs = left.chunks(PITCH).zip(right.chunks(PITCH));
    for ((left, right), row) in pairs.zip((0..).step_by(PITCH)) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  {row:#04x}  {}      {row:#04x}  {}",
            left.escape_ascii(),
            right.escape_ascii()
        );
    }
    text
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    let (from, to) = names(args);
    let devices = devices::list()?;
    let open = |name: &str| -> Result<Context, String> {
        let chosen = devices::choose(&devices, Some(name))?;
        let device = chosen.first().ok_or("no device")?;
        let context = device
            .open()
            .map_err(|errno| devices::not_opened(name, errno))?;
        match context.caps() {
            Ok(_) => Ok(context),
            Err(Errno::EOPNOTSUPP) => Err(devices::not_extended(name)),
            Err(errno) => Err(format!("{name}: {errno}")),
        }
    };
    let (near, far) = (open(from)?, open(to)?);
    let seen = transfer(&near, &far)?;
    let right = seen.near == lettered(&FROM) && seen.far == lettered(&TO);
    let mut out = stdout().lock();

    if json {
        let end = |name: &str, tile: &Tile, memory: &[u8]| {
            json!({
                "device": name,
                "rows": tile.height,
                "row_bytes": tile.width,
                "stride": PITCH,
                "memory": memory
                    .chunks(PITCH)
                    .map(|row| row.escape_ascii().to_string())
                    .collect::<Vec<_>>(),
            })
        };
        let all = json!({
            "from": end(from, &FROM, &seen.near),
            "to": end(to, &TO, &seen.far),
            "bytes": FROM.len(),
            "right": right,
        });
        writeln!(out, "{all:#}")?;
        return if right {
            Ok(ExitCode::SUCCESS)
        } else {
            Err(WRONG.into())
        };
    }
    writeln!(out, "{from}: {}\n{to}: {}", FROM.describe(), TO.describe())?;
    writeln!(
        out,
        "One RDMA WRITE of {} bytes, from address 0 of the one to address 0 of the other:\n\n{}",
        FROM.len(),
        side_by_side(&seen.near, &seen.far)
    )?;
    if !right {
        return Err(WRONG.into());
    }
    writeln!(
        out,
        "Each byte is where it belongs, and no other was touched."
    )?;
    Ok(ExitCode::SUCCESS)
}

fn names(args: &Args) -> (&str, &str) {
    match (&args.from, &args.to) {
        (Some(from), Some(to)) => (from, to),
        (Some(both), None) => (both, both),
        (None, _) => ("rxe0", "rxe1"),
    }
}

/// Both memories after the transfer.
struct Seen {
    near: Vec<u8>,
    far: Vec<u8>,
}

fn transfer(near: &Context, far: &Context) -> Result<Seen, Box<dyn Error>> {
    let said = |what: &'static str| move |errno: Errno| format!("{what}: {errno}");
    let alloc = |context| -> Result<verbs::Pd<'_>, String> {
        Context::alloc_pd(context).map_err(said("a protection domain"))
    };
    let (near_verbs, far_verbs) = (alloc(near)?, alloc(far)?);
    let (near_pd, far_pd) = (Pd::from(&near_verbs), Pd::from(&far_verbs));
    let register = said("registering memory");
    let near_memory = near_pd
        .register(lettered(&FROM), access())
        .map_err(register)?;
    let far_memory = far_pd
        .register(vec![NOTHING; PITCH * ROWS], access())
        .map_err(register)?;

    // Print the library's sentence, too: it names the entry and the field.
    let refused = |errno: Errno| format!("a key: {}: {errno}", last_error());
    let near_key = FROM.key(&near_pd, &near_memory).map_err(refused)?;
    let far_key = TO.key(&far_pd, &far_memory).map_err(refused)?;

    let mut near_queue = Queue::new(&near_verbs).map_err(said("a queue"))?;
    let mut far_queue = Queue::new(&far_verbs).map_err(said("a queue"))?;
    let address = near_queue.address();
    near_queue
        .connect(&far_queue.address(), access().bits())
        .map_err(said("connecting"))?;
    far_queue
        .connect(&address, access().bits())
        .map_err(said("connecting"))?;

    let length = u32::try_from(FROM.len())?;
    near_queue
        .write(&Span::from(&near_key), &Span::from(&far_key), length)
        .map_err(|failure| format!("RDMA WRITE: {failure}"))?;
    let contents = |memory: &Region<'_>| {
        let mut bytes = vec![0; PITCH * ROWS];
        memory.read(0, &mut bytes).map(|()| bytes)
    };
    Ok(Seen {
        near: contents(&near_memory)?,
        far: contents(&far_memory)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_device_is_both() {
        let args = |from: Option<&str>, to: Option<&str>| Args {
            from: from.map(str::to_owned),
            to: to.map(str::to_owned),
        };

        assert_eq!(names(&args(None, None)), ("rxe0", "rxe1"));
        assert_eq!(names(&args(Some("rxe0"), None)), ("rxe0", "rxe0"));
        assert_eq!(names(&args(Some("a"), Some("b"))), ("a", "b"));
    }

    #[test]
    fn what_is_shown() {
        let text = side_by_side(&lettered(&FROM), &lettered(&TO));
        let rows: Vec<_> = text.lines().collect();

        assert_eq!(rows.len(), ROWS);
        assert_eq!(
            rows.get(2).copied(),
            Some("  0x20  ....EFGH........      0x20  .........ABCDEF.")
        );
        assert_eq!(text.matches(char::is_uppercase).count(), 2 * FROM.len());
    }
}
