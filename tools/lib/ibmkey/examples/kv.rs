// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Sends blocks of one KV cache to another: all layers of a block by one WRITE, and all layers of a
//! list of blocks by another.
//!
//! A cache has layers with their own regions, and a piece of every cache block in each layer. A
//! `View` is one key in which every cache block is contiguous. It is bound once. A `Gather` is a key
//! over a view, with the blocks of a list.
//!
//! usage: kv DEVICE

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "the numbers are small constants"
)]

use std::error::Error;

use ibmkey::{
    keys::{
        Access,
        Indexed,
        Interleaved,
        Key,
        Pd,
        Region,
        Slice, //
    },
    verbs::{
        Devices,
        Queue,
        Span, //
    },
    Errno,
    Result, //
};

const BLOCKS: usize = 1000;
const LAYERS: usize = 32;
/// The bytes of a piece, in every fourth layer and in the others.
const WIDTHS: [usize; 4] = [400, 800, 800, 800];

/// A key over all layers. Cache block `i` begins at `i * block`.
struct View<'r> {
    key: Key<'r>,
    block: u64,
}

impl<'r> View<'r> {
    /// Makes a view of layers that begin with their piece of block 0, and have pieces of these widths.
    fn new(
        pd: &Pd<'r>,
        layers: impl IntoIterator<Item = (Slice<'r>, u64)>,
        blocks: u64,
        access: Access,
    ) -> Result<Self> {
        let (mut layout, mut block) = (Interleaved::new(&[blocks]), 0u64);
        for (piece, width) in layers {
            let stride = i64::try_from(width).map_err(|_| Errno::EOVERFLOW)?;
            layout = layout.block(piece, &[stride]);
            block = block.checked_add(width).ok_or(Errno::EOVERFLOW)?;
        }
        let key = Key::of(pd, &layout, access)?;
        Ok(Self { key, block })
    }

    /// Names a block in a request.
    fn span(&self, first: u64) -> Result<Span> {
        let addr = first.checked_mul(self.block).ok_or(Errno::EOVERFLOW)?;
        Ok(Span {
            addr,
            ..Span::from(&self.key)
        })
    }
}

/// Returns a key with these blocks of a view, in the order of the list.
fn gather<'v>(pd: &Pd<'v>, view: &'v View<'v>, ids: &[u32], access: Access) -> Result<Key<'v>> {
    let all = view.key.slice(0..view.key.length())?;
    Key::of_indexed(pd, &Indexed::new(all, view.block, view.block, ids), access)
}

/// Returns the pieces of block 0, each with its width.
fn pieces<'r>(layers: &'r [Region<'_>]) -> Result<Vec<(Slice<'r>, u64)>> {
    let widths = WIDTHS.iter().cycle().map(|width| *width as u64);
    let all = layers.iter().zip(widths);
    all.map(|(layer, width)| Ok((layer.slice(0..width)?, width)))
        .collect()
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "rxe0".to_owned());
    let devices = Devices::list()?;
    let device = devices.iter().find(|device| device.name() == name);
    let context = device.ok_or(format!("there is no device {name}"))?.open()?;
    let verbs_pd = context.alloc_pd()?;
    let remote = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let (mut here, mut there) = (Queue::new(&verbs_pd)?, Queue::new(&verbs_pd)?);
    let address = here.address();
    here.connect(&there.address(), remote.bits())?;
    there.connect(&address, remote.bits())?;

    let pd = Pd::from(&verbs_pd);
    let (mut full, mut near, mut far) = (Vec::new(), Vec::new(), Vec::new());
    for (layer, width) in (0..LAYERS).zip(WIDTHS.iter().cycle()) {
        let bytes = (0..BLOCKS * width).map(|at| (at / 7 + at + layer) as u8 | 1);
        let bytes: Vec<u8> = bytes.collect();
        near.push(pd.register(bytes.clone(), Access::LOCAL_READ)?);
        far.push(pd.register(vec![0u8; bytes.len()], Access::LOCAL_WRITE)?);
        full.push(bytes);
    }
    let source = View::new(&pd, pieces(&near)?, BLOCKS as u64, Access::LOCAL_READ)?;
    let target = View::new(&pd, pieces(&far)?, BLOCKS as u64, remote)?;

    // Block 7 to block 991, without a bind. Then a list of blocks to other blocks.
    here.write(
        &source.span(7)?,
        &target.span(991)?,
        u32::try_from(source.block)?,
    )?;
    let mut moved = vec![(7, 991)];
    let ids: [Vec<u32>; 2] = [389, 617].map(|step| (0..64).map(|i| (i * step + 5) % 991).collect());
    let from = gather(&pd, &source, &ids[0], Access::LOCAL_READ)?;
    let into = gather(&pd, &target, &ids[1], remote)?;
    here.write(
        &Span::from(&from),
        &Span::from(&into),
        u32::try_from(from.length())?,
    )?;
    moved.extend(ids[0].iter().copied().zip(ids[1].iter().copied()));

    // Every byte of the target: that of the block that was sent there, or 0.
    for ((bytes, layer), width) in full.iter().zip(&far).zip(WIDTHS.iter().cycle()) {
        let mut wanted = vec![0; bytes.len()];
        for (from, to) in &moved {
            let (from, to) = (*from as usize * width, *to as usize * width);
            wanted[to..to + width].copy_from_slice(&bytes[from..from + width]);
        }
        let mut got = vec![0; bytes.len()];
        layer.read(0, &mut got)?;
        if got != wanted {
            return Err("a block is wrong".into());
        }
    }
    if gather(&pd, &target, &[BLOCKS as u32], remote).err() != Some(Errno::ERANGE) {
        return Err("a block outside of the cache is not refused".into());
    }
    println!(
        "{LAYERS} pieces in one write, then {} in one write",
        LAYERS * ids[0].len()
    );
    Ok(())
}
