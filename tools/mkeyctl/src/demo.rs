// SPDX-License-Identifier: GPL-2.0

//! `mkeyctl demo`: runs one RDMA WRITE from one strided key to another, and shows the result.
//!
//! The memory is a few rows of letters, or a picture.

mod photo;

use std::{
    error::Error,
    fmt::Write as _,
    io::{
        stdout,
        Write, //
    },
    path::PathBuf,
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

    /// Send a tile of this PNG, JPEG or PNM picture instead of letters
    #[arg(long, value_name = "FILE", requires = "out")]
    picture: Option<PathBuf>,

    /// Directory for the pictures source.png, before.png and after.png
    #[arg(long, value_name = "DIR", requires = "picture")]
    out: Option<PathBuf>,

    /// Draw the pictures in the terminal, too, in so many columns
    #[arg(long, value_name = "COLUMNS", requires = "picture")]
    columns: Option<u32>,
}

/// A rectangle of bytes.
struct Tile {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

/// The memory of one side before the transfer, in rows of `pitch` bytes, and the tile of it that a
/// key describes.
struct End {
    memory: Vec<u8>,
    pitch: usize,
    tile: Tile,
}

impl End {
    /// Returns the offsets of the tile's bytes, in the order of a key over the tile.
    fn offsets(&self) -> impl Iterator<Item = usize> + '_ {
        let Tile { x, y, .. } = self.tile;
        (y..y.saturating_add(self.tile.height)).flat_map(move |row| {
            let start = row.saturating_mul(self.pitch).saturating_add(x);
            start..start.saturating_add(self.tile.width)
        })
    }

    const fn len(&self) -> usize {
        self.tile.width.saturating_mul(self.tile.height)
    }

    /// Makes a key of the tile: rows that are a stride apart.
    fn key<'r>(&self, pd: &Pd<'r>, memory: &'r Region<'r>) -> Result<Key<'r>, Errno> {
        let start = self.offsets().next().unwrap_or(0) as u64;
        let row = memory.slice(start..start.saturating_add(self.tile.width as u64))?;

        Key::of_strided(
            pd,
            row,
            &[self.tile.height as u64],
            &[self.pitch as i64],
            access(),
        )
    }

    fn describe(&self) -> String {
        format!(
            "a key over {} rows of {} bytes, {} apart",
            self.tile.height, self.tile.width, self.pitch
        )
    }

    /// Returns what the memory must be after the tile of `from` was written to the tile.
    fn after(&self, from: &Self) -> Vec<u8> {
        let mut memory = self.memory.clone();

        for (to, from_at) in self.offsets().zip(from.offsets()) {
            if let (Some(byte), Some(sent)) = (memory.get_mut(to), from.memory.get(from_at)) {
                *byte = *sent;
            }
        }
        memory
    }

    fn json(&self, device: &str, seen: &[u8]) -> serde_json::Value {
        json!({
            "device": device,
            "rows": self.tile.height,
            "row_bytes": self.tile.width,
            "stride": self.pitch,
            "memory": seen
                .chunks(self.pitch)
                .map(|row| row.escape_ascii().to_string())
                .collect::<Vec<_>>(),
        })
    }
}

const WRONG: &str = "the bytes are not where they should be; mkeyctl doctor looks for problems";

/// Returns the access flags of both sides.
fn access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE
}

/// Returns both sides with letters in the tile of the first. The tiles have as many bytes, in
/// different shapes.
fn letters() -> [End; 2] {
    const PITCH: usize = 16;
    let end = |[x, y, width, height]: [usize; 4]| End {
        memory: vec![b'.'; PITCH * 8],
        pitch: PITCH,
        tile: Tile {
            x,
            y,
            width,
            height,
        },
    };
    let mut from = end([4, 1, 4, 6]);

    for (at, letter) in from.offsets().collect::<Vec<_>>().into_iter().zip(b'A'..) {
        if let Some(byte) = from.memory.get_mut(at) {
            *byte = letter;
        }
    }
    [from, end([9, 2, 6, 4])]
}

/// Draws two pieces of memory beside each other.
fn side_by_side(left: &[u8], right: &[u8], pitch: usize) -> String {
    let mut text = String::new();

    let pairs = left.chunks(pitch).zip(right.chunks(pitch));
    for ((left, right), row) in pairs.zip((0..).step_by(pitch)) {
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

fn open(devices: &verbs::Devices, name: &str) -> Result<Context, String> {
    let chosen = devices::choose(devices, Some(name))?;
    let device = chosen.first().ok_or("no device")?;
    let context = device
        .open()
        .map_err(|errno| devices::not_opened(name, errno))?;

    match context.caps() {
        Ok(_) => Ok(context),
        Err(Errno::EOPNOTSUPP) => Err(devices::not_extended(name)),
        Err(errno) => Err(format!("{name}: {errno}")),
    }
}

pub fn run(args: &Args, json: bool) -> Result<ExitCode, Box<dyn Error>> {
    let (from_name, to_name) = names(args);
    let photo = args
        .picture
        .as_deref()
        .map(photo::Photo::load)
        .transpose()?;
    let [from, to] = photo.as_ref().map_or_else(letters, photo::Photo::ends);
    let devices = devices::list()?;
    let (near, far) = (open(&devices, from_name)?, open(&devices, to_name)?);
    let seen = transfer(&near, &far, &from, &to)?;
    let right = seen.near == from.memory && seen.far == to.after(&from);
    let mut out = stdout().lock();

    if json {
        let all = json!({
            "from": from.json(from_name, &seen.near),
            "to": to.json(to_name, &seen.far),
            "bytes": from.len(),
            "right": right,
        });
        writeln!(out, "{all:#}")?;
    } else {
        writeln!(
            out,
            "{from_name}: {}\n{to_name}: {}\n\
             One RDMA WRITE of {} bytes, from address 0 of the one to address 0 of the other:\n",
            from.describe(),
            to.describe(),
            from.len()
        )?;
        if photo.is_none() {
            writeln!(out, "{}", side_by_side(&seen.near, &seen.far, from.pitch))?;
        }
    }
    if let (Some(photo), Some(dir)) = (&photo, &args.out) {
        let pictures = photo.pictures([&seen.near, &to.memory, &seen.far])?;
        photo::save(dir, &pictures)?;
        if !json {
            if let Some(columns) = args.columns {
                photo::show(&mut out, &pictures, columns)?;
            }
            let dir = dir.display();
            writeln!(
                out,
                "The pictures are {dir}/source.png, {dir}/before.png and {dir}/after.png."
            )?;
        }
    }
    if !right {
        return Err(WRONG.into());
    }
    if !json {
        writeln!(
            out,
            "Each byte is where it belongs, and no other was touched."
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

fn names(args: &Args) -> (&str, &str) {
    match (&args.from, &args.to) {
        (Some(from), Some(to)) => (from, to),
        (Some(both), None) => (both, both),
        (None, _) => ("rxe0", "rxe1"),
    }
}

/// Says why the queues cannot be connected.
fn connecting(errno: Errno) -> String {
    match errno.get() {
        libc::ENETUNREACH => "no route from one device to the other: have their netdevs IP \
                              addresses? mkeyctl doctor shows it"
            .to_owned(),
        _ => format!("connecting: {errno}"),
    }
}

/// Both memories after the transfer.
struct Seen {
    near: Vec<u8>,
    far: Vec<u8>,
}

fn transfer(near: &Context, far: &Context, from: &End, to: &End) -> Result<Seen, Box<dyn Error>> {
    let said = |what: &'static str| move |errno: Errno| format!("{what}: {errno}");
    let alloc = |context| -> Result<verbs::Pd<'_>, String> {
        Context::alloc_pd(context).map_err(said("a protection domain"))
    };
    let (near_verbs, far_verbs) = (alloc(near)?, alloc(far)?);
    let (near_pd, far_pd) = (Pd::from(&near_verbs), Pd::from(&far_verbs));
    let register = said("registering memory");
    let near_memory = near_pd
        .register(from.memory.clone(), access())
        .map_err(register)?;
    let far_memory = far_pd
        .register(to.memory.clone(), access())
        .map_err(register)?;

    // Print the library's sentence, too: it names the entry and the field.
    let refused = |errno: Errno| format!("a key: {}: {errno}", last_error());
    let near_key = from.key(&near_pd, &near_memory).map_err(refused)?;
    let far_key = to.key(&far_pd, &far_memory).map_err(refused)?;

    let mut near_queue = Queue::new(&near_verbs).map_err(said("a queue"))?;
    let mut far_queue = Queue::new(&far_verbs).map_err(said("a queue"))?;
    let address = near_queue.address();
    near_queue
        .connect(&far_queue.address(), access().bits())
        .map_err(connecting)?;
    far_queue
        .connect(&address, access().bits())
        .map_err(connecting)?;

    let length = u32::try_from(from.len())?;
    near_queue
        .write(&Span::from(&near_key), &Span::from(&far_key), length)
        .map_err(|failure| format!("RDMA WRITE: {failure}"))?;
    let contents = |memory: &Region<'_>, end: &End| {
        let mut bytes = vec![0; end.memory.len()];
        memory.read(0, &mut bytes).map(|()| bytes)
    };
    Ok(Seen {
        near: contents(&near_memory, from)?,
        far: contents(&far_memory, to)?,
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
            picture: None,
            out: None,
            columns: None,
        };

        assert_eq!(names(&args(None, None)), ("rxe0", "rxe1"));
        assert_eq!(names(&args(Some("rxe0"), None)), ("rxe0", "rxe0"));
        assert_eq!(names(&args(Some("a"), Some("b"))), ("a", "b"));
    }

    #[test]
    fn a_netdev_without_an_address_is_named() {
        let unreachable = Errno::check(libc::ENETUNREACH).map_err(connecting);
        let said = unreachable.err().unwrap_or_default();

        assert!(said.contains("have their netdevs IP addresses?"), "{said}");
    }

    #[test]
    fn what_is_shown() {
        let [from, to] = letters();
        let after = to.after(&from);
        let text = side_by_side(&from.memory, &after, from.pitch);
        let rows: Vec<_> = text.lines().collect();

        assert_eq!(from.len(), to.len());
        assert_eq!(rows.len(), 8);
        assert_eq!(
            rows.get(2).copied(),
            Some("  0x20  ....EFGH........      0x20  .........ABCDEF.")
        );
        assert_eq!(text.matches(char::is_uppercase).count(), 2 * from.len());
    }
}
