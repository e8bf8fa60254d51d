// SPDX-License-Identifier: GPL-2.0

//! Reads the regions of extended devices, which the module shows to root in debugfs.

use std::path::Path;

use ibmkey::reason::{
    access_sentence,
    RefusedAccess, //
};
use serde::{
    Serialize,
    Serializer, //
};

use crate::{
    debugfs::{
        allowed,
        read,
        Row, //
    },
    describe::{
        number,
        Description, //
    },
};

/// An lkey, which is printed as `0x00001234`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lkey(pub u32);

impl std::fmt::Display for Lkey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl std::str::FromStr for Lkey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let value = number(text)?;

        u32::try_from(value)
            .map(Self)
            .map_err(|_| format!("`{text}' is no lkey: it has 32 bits"))
    }
}

impl Serialize for Lkey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A region of ib_mkey: a key, a memory window, or an MR over device memory or a dma-buf.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Region {
    pub device: String,
    pub lkey: Lkey,
    /// `unbound`, `list`, `interleaved` or `indexed` for a key.
    pub kind: String,
    pub bytes: Option<u64>,
    pub entries: Option<u64>,
    pub max_entries: Option<u64>,
    pub levels: Option<u64>,
    pub leaves: Option<u64>,
    /// The number of bindings that refer to the region, and of binds in progress.
    pub pins: Option<u64>,
    /// The address of the first byte.
    pub base: Option<u64>,
    /// 0 for kernel users.
    pub pid: u32,
    pub comm: String,
}

impl Region {
    pub fn is_key(&self) -> bool {
        ["unbound", "list", "interleaved", "indexed"].contains(&self.kind.as_str())
    }
}

/// A region, and the lkey of one of its leaves.
#[derive(Debug, PartialEq)]
pub struct Reference {
    pub device: String,
    pub lkey: Lkey,
    pub leaf: Lkey,
}

/// An entry of a layout, in the words that the kernel shows.
#[derive(Debug, PartialEq)]
pub struct Piece {
    device: String,
    lkey: Lkey,
    kind: String,
    counts: String,
    leaf: Lkey,
    addr: String,
    bytes: String,
    strides: String,
}

/// Reads the rows of one of the files. Returns a reason if the file does not exist or may not be
/// read.
fn shown<T>(
    dir: &Path,
    file: &str,
    each: impl Fn(&Row<'_>) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let path = dir.join(file);

    allowed(&path, "the keys of all processes")?;
    read(dir, file, each)?.ok_or_else(|| {
        format!(
            "{} is not there: is ib_mkey loaded, and debugfs mounted?",
            path.display()
        )
    })
}

/// Returns the regions of all devices.
pub fn regions(dir: &Path) -> Result<Vec<Region>, String> {
    shown(dir, "regions", |row| {
        let pid = row.text("pid")?;

        Ok(Region {
            device: row.text("device")?,
            lkey: row.text("lkey")?.parse()?,
            kind: row.text("kind")?,
            bytes: row.number("bytes")?,
            entries: row.number("entries")?,
            max_entries: row.number("max_entries")?,
            levels: row.number("levels")?,
            leaves: row.number("leaves")?,
            pins: row.number("pins")?,
            base: row.text("base").and_then(|base| number(&base)).ok(),
            pid: pid
                .parse()
                .map_err(|_| format!("`{pid}' is no process's number"))?,
            comm: row.text("comm")?,
        })
    })
}

/// Returns the leaves of all keys and memory windows.
pub fn references(dir: &Path) -> Result<Vec<Reference>, String> {
    shown(dir, "leaves", |row| {
        Ok(Reference {
            device: row.text("device")?,
            lkey: row.text("lkey")?.parse()?,
            leaf: row.text("leaf")?.parse()?,
        })
    })
}

/// Returns the counts since the module was loaded, in the kernel's order.
pub fn counters(dir: &Path) -> Result<Vec<(String, u64)>, String> {
    shown(dir, "counters", |row| {
        Ok((row.text("name")?, row.number("count")?.unwrap_or(0)))
    })
}

/// The last access that a region refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refusal {
    pub device: String,
    pub lkey: Lkey,
    pub kind: String,
    /// Among all refused accesses since the module was loaded.
    pub number: u64,
    pub addr: u64,
    pub length: u64,
    pub access: u32,
    pub remote: bool,
    pub reason: u32,
    pub why: String,
    pub pid: u64,
    pub comm: String,
}

/// Returns the last refused access of each region that has refused one, the latest first.
pub fn refusals(dir: &Path) -> Result<Vec<Refusal>, String> {
    let mut all = shown(dir, "refused", |row| {
        let value = |name| number(&row.text(name)?);
        let narrow = |name| {
            let wide = value(name)?;
            u32::try_from(wide).map_err(|_| format!("{name} {wide} has more than 32 bits"))
        };
        let refused = RefusedAccess {
            number: value("number")?,
            addr: value("addr")?,
            length: value("bytes")?,
            value: value("value")?,
            key: narrow("key")?,
            reason: narrow("reason")?,
            access: narrow("access")?,
            remote: narrow("remote")?,
            ..RefusedAccess::default()
        };

        Ok(Refusal {
            device: row.text("device")?,
            lkey: row.text("lkey")?.parse()?,
            kind: row.text("kind")?,
            number: refused.number,
            addr: refused.addr,
            length: refused.length,
            access: refused.access,
            remote: refused.remote != 0,
            reason: refused.reason,
            why: access_sentence(&refused),
            pid: value("pid")?,
            comm: row.text("comm")?,
        })
    })?;

    all.sort_by_key(|refusal| std::cmp::Reverse(refusal.number));
    Ok(all)
}

/// Returns the pieces of all keys.
pub fn pieces(dir: &Path) -> Result<Vec<Piece>, String> {
    shown(dir, "layouts", |row| {
        Ok(Piece {
            device: row.text("device")?,
            lkey: row.text("lkey")?.parse()?,
            kind: row.text("kind")?,
            counts: row.text("counts")?,
            leaf: row.text("leaf")?.parse()?,
            addr: row.text("addr")?,
            bytes: row.text("bytes")?,
            strides: row.text("strides")?,
        })
    })
}

impl Piece {
    fn is_of(&self, device: &str, lkey: Lkey) -> bool {
        self.device == device && self.lkey == lkey
    }

    /// Returns the piece in the words of the command line.
    fn text(&self) -> String {
        let place = format!("{}@{}+{}", self.leaf, self.addr, self.bytes);

        match self.kind.as_str() {
            "list" => place,
            _ => format!("{place}:{}", self.strides),
        }
    }
}

/// Returns the layout that a key is bound to. Returns `None` for a key that is not bound, and for a
/// region that is not a key.
pub fn layout(pieces: &[Piece], device: &str, lkey: Lkey) -> Result<Option<Description>, String> {
    let own: Vec<_> = pieces
        .iter()
        .filter(|piece| piece.is_of(device, lkey))
        .collect();
    let Some(first) = own.first() else {
        return Ok(None);
    };
    let texts: Vec<_> = own.iter().map(|piece| piece.text()).collect();

    match first.kind.as_str() {
        "list" => Description::from_ranges(&texts),
        "interleaved" => Description::from_blocks(&first.counts, &texts),
        "indexed" => Description::from_indices(&first.text(), &first.counts),
        other => Err(format!("{lkey}: the kind `{other}' of a later module")),
    }
    .map(Some)
}

/// Returns the leaves of a key, each once, in the order of the pieces.
pub fn leaves(pieces: &[Piece], device: &str, lkey: Lkey) -> Vec<Lkey> {
    let mut all = Vec::new();

    for piece in pieces.iter().filter(|piece| piece.is_of(device, lkey)) {
        if !all.contains(&piece.leaf) {
            all.push(piece.leaf);
        }
    }
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    fn dir(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("mkeyctl-{name}-{}", std::process::id()))
    }

    #[test]
    fn lkeys_are_numbers_of_32_bits() {
        assert_eq!("0x1234".parse(), Ok(Lkey(0x1234)));
        assert_eq!("4660".parse(), Ok(Lkey(0x1234)));
        assert!("0x100000000".parse::<Lkey>().is_err());
        assert!("key".parse::<Lkey>().is_err());
        assert_eq!(Lkey(0x1234).to_string(), "0x00001234");
    }

    #[test]
    fn layouts_are_drawn_from_their_pieces() {
        let dir = dir("layouts");
        fs::create_dir_all(&dir).unwrap();
        fs::write(
            dir.join("layouts"),
            "# device lkey kind counts leaf addr bytes strides\n\
             rxe0 0x00000101 list - 0x00000201 0x1000 16 -\n\
             rxe0 0x00000101 list - 0x00000301 0x0 8 -\n\
             rxe0 0x00000301 interleaved 4,2 0x00000201 0x2000 4 64,-8\n\
             rxe1 0x00000301 indexed 9,3 0x00000201 0x0 64 128\n",
        )
        .unwrap();
        let all = pieces(&dir);
        fs::remove_dir_all(&dir).unwrap();
        let all = all.unwrap();
        let length = |device, lkey| {
            layout(&all, device, Lkey(lkey))
                .unwrap()
                .map(|description| description.layout.length())
        };

        assert_eq!(length("rxe0", 0x101), Some(24));
        assert_eq!(length("rxe0", 0x301), Some(32));
        assert_eq!(length("rxe1", 0x301), Some(128));
        assert_eq!(length("rxe1", 0x101), None);
        assert_eq!(
            leaves(&all, "rxe0", Lkey(0x101)),
            [Lkey(0x201), Lkey(0x301)]
        );
    }

    #[test]
    fn a_missing_file_is_named_with_what_to_look_at() {
        let dir = dir("missing");
        let error = regions(&dir).unwrap_err();

        assert!(error.contains("regions is not there: is ib_mkey loaded"));
    }
}
