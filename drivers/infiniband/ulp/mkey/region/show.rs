// SPDX-License-Identifier: GPL-2.0

//! Shows the regions of a device in debugfs. Each function writes lines of words; `dm/show.rs` has
//! the files and the names of the columns.
//!
//! A change of a region waits while this file has a reference to its binding. So a bounded number of
//! lines is written with one reference.

use crate::{
    backend::rxe,
    kernel_ext::{rdma::mr_key, sched::Process},
    layout::{Block, Entry, IndexSlice, Layout},
    mkey_core::Core,
    region::{
        binding::{Binding, KIndexed},
        Kind,
        Region, //
    },
};
use kernel::{fmt, prelude::*, str::BStr};

/// The most leaves that are written with one reference.
const AT_ONCE: usize = 256;

/// The most entries, blocks or indices of one layout that are written.
const MOST: usize = 256;

type Out<'a, 'b> = &'a mut fmt::Formatter<'b>;

/// Returns the word for the kind of a region, or of the layout that a key is bound to.
fn kind(region: &Region, binding: Option<&Binding>) -> &'static str {
    match &region.kind {
        Kind::Key { .. } => match binding.map(|binding| &binding.layout) {
            None => "unbound",
            Some(Layout::List(_)) => "list",
            Some(Layout::Interleaved(_)) => "interleaved",
            Some(Layout::Indexed(_)) => "indexed",
        },
        Kind::Dm => "dm",
        Kind::FastReg(_) => "fast_reg",
        Kind::DmaBuf(_) => "dmabuf",
    }
}

/// Writes the PID and name of the process that made a region.
fn maker(maker: Option<&Process>, f: Out<'_, '_>) -> fmt::Result {
    match maker {
        Some(process) => f.write_fmt(fmt!(
            "{} {}\n",
            process.number(),
            BStr::from_bytes(process.name())
        )),
        None => f.write_str("0 [kernel]\n"),
    }
}

/// Writes a line for each memory window over a region of `core`, with its rkey in place of an lkey.
/// A worker binds windows, so the process that made the region is shown.
fn windows(core: &Core, device: &dyn fmt::Display, f: Out<'_, '_>) -> fmt::Result {
    for window in rxe::windows(core.pd.device()) {
        let Some(region) = core.regions.at(mr_key::index(window.lkey)) else {
            continue;
        };
        let depth = region.binding.get().map_or(0, |binding| binding.depth());
        let (rkey, length, levels) = (window.rkey, window.length, depth.saturating_add(1));
        f.write_fmt(fmt!(
            "{device} {rkey:#010x} window {length} 1 0 {levels} 1 0 - "
        ))?;
        maker(region.maker.as_ref(), f)?;
    }
    Ok(())
}

/// Writes a line for each region of `core`: device, lkey, kind, bytes, entries, the most entries,
/// levels, leaves, pins, the address of the first byte, and the PID and name of the process that made
/// the region. Memory windows follow, with a dash for that address.
pub(crate) fn regions(core: &Core, device: &dyn fmt::Display, f: Out<'_, '_>) -> fmt::Result {
    for region in core.regions.iter() {
        let pins = core.pins.count(region.index());
        let binding = region.binding.get();
        let binding = binding.as_deref();
        let max_entries = match region.kind {
            Kind::Key { max_entries, .. } => max_entries,
            _ => 0,
        };
        f.write_fmt(fmt!(
            "{} {:#010x} {} {} {} {} {} {} {} {:#x} ",
            device,
            region.lkey(),
            kind(&region, binding),
            binding.map_or(0, |binding| binding.layout.length()),
            binding.map_or(0, |binding| binding.layout.count()),
            max_entries,
            binding.map_or(0, Binding::depth),
            binding.map_or(0, |binding| binding.leaves.len()),
            pins,
            binding.map_or(0, |binding| binding.start),
        ))?;
        maker(region.maker.as_ref(), f)?;
    }
    windows(core, device, f)
}

/// Writes a line for each region of which an access was refused: device, lkey, the members of
/// `struct ib_uverbs_mkey_refused_access`, the kind, and the PID and name of the process that made the
/// region.
pub(crate) fn refused(core: &Core, device: &dyn fmt::Display, f: Out<'_, '_>) -> fmt::Result {
    for region in core.regions.iter() {
        let refused = region.refused_access();
        if refused.number == 0 {
            continue;
        }
        f.write_fmt(fmt!(
            "{} {:#010x} {} {} {} {:#010x} {:#x} {} {:#x} {} {} ",
            device,
            region.lkey(),
            refused.number,
            refused.reason,
            refused.value,
            refused.key,
            refused.addr,
            refused.length,
            refused.access,
            refused.remote,
            kind(&region, region.binding.get().as_deref()),
        ))?;
        maker(region.maker.as_ref(), f)?;
    }
    Ok(())
}

/// Writes a line for each leaf of each key and memory window: device, the key's lkey or the window's
/// rkey, the kind, and the leaf's lkey.
pub(crate) fn leaves(core: &Core, device: &dyn fmt::Display, f: Out<'_, '_>) -> fmt::Result {
    for region in core.regions.iter() {
        let mut seen = None;
        let mut at = 0;
        while some_leaves(device, &region, &mut seen, at, f)? {
            at += AT_ONCE;
        }
    }
    for window in rxe::windows(core.pd.device()) {
        let (rkey, lkey) = (window.rkey, window.lkey);
        f.write_fmt(fmt!("{device} {rkey:#010x} window {lkey:#010x}\n"))?;
    }
    Ok(())
}

/// Writes the lines for the leaves of `region` from leaf `at` on. Returns `true` if there are more.
/// `seen` has the number of the binding that was seen before.
fn some_leaves(
    device: &dyn fmt::Display,
    region: &Region,
    seen: &mut Option<u64>,
    at: usize,
    f: Out<'_, '_>,
) -> Result<bool, fmt::Error> {
    if !matches!(region.kind, Kind::Key { .. }) {
        return Ok(false);
    }
    let Some(binding) = region.binding.get() else {
        return Ok(false);
    };
    // If another layout was bound meanwhile, the leaves are others.
    if *seen.get_or_insert(binding.number) != binding.number {
        return Ok(false);
    }
    let word = kind(region, Some(&binding));
    for leaf in binding.leaves.iter().skip(at).take(AT_ONCE) {
        f.write_fmt(fmt!(
            "{} {:#010x} {} {:#010x}\n",
            device,
            region.lkey(),
            word,
            leaf.lkey
        ))?;
    }
    Ok(binding.leaves.len().saturating_sub(at) > AT_ONCE)
}

/// Writes the layout of each key, the first [`MOST`] entries of each: device, lkey, kind, repeat
/// counts, the leaf's lkey, address, bytes, and strides. A dash stands for a value that a kind
/// lacks. The line of an indexed layout has the indices in place of the repeat counts, and the unit
/// as stride.
pub(crate) fn layouts(core: &Core, device: &dyn fmt::Display, f: Out<'_, '_>) -> fmt::Result {
    core.regions
        .iter()
        .try_for_each(|region| match (&region.kind, region.binding.get()) {
            (Kind::Key { .. }, Some(binding)) => {
                layout(&binding, fmt!("{} {:#010x}", device, region.lkey()), f)
            }
            _ => Ok(()),
        })
}

fn layout(binding: &Binding, head: fmt::Arguments<'_>, f: Out<'_, '_>) -> fmt::Result {
    let lkey = |leaf: u32| {
        binding
            .leaves
            .get(leaf as usize)
            .map_or(0, |leaf| leaf.lkey)
    };
    match &binding.layout {
        Layout::List(list) => {
            for entry in list.entries().iter().take(MOST) {
                list_entry(entry, lkey(entry.leaf()), head, f)?;
            }
            Ok(())
        }
        Layout::Interleaved(interleaved) => {
            for one in interleaved.blocks().iter().take(MOST) {
                f.write_fmt(fmt!("{} interleaved ", head))?;
                numbers(interleaved.repeat_counts(), f)?;
                let dims = interleaved.repeat_counts().len();
                block(one, lkey(one.leaf()), dims, f)?;
            }
            Ok(())
        }
        Layout::Indexed(layout) => indexed(layout, lkey(layout.leaf()), head, f),
    }
}

fn list_entry(entry: &Entry, lkey: u32, head: fmt::Arguments<'_>, f: Out<'_, '_>) -> fmt::Result {
    let (addr, length) = (entry.addr(), entry.length());
    f.write_fmt(fmt!("{head} list - {lkey:#010x} {addr:#x} {length} -\n"))
}

fn block(block: &Block, lkey: u32, dims: usize, f: Out<'_, '_>) -> fmt::Result {
    let (addr, bytes) = (block.addr(), block.bytes_count());
    f.write_fmt(fmt!(" {lkey:#010x} {addr:#x} {bytes} "))?;
    numbers(block.stride().iter().take(dims), f)?;
    f.write_str("\n")
}

fn indexed(layout: &KIndexed, lkey: u32, head: fmt::Arguments<'_>, f: Out<'_, '_>) -> fmt::Result {
    let all: IndexSlice<'_> = layout.indices();
    f.write_fmt(fmt!("{head} indexed "))?;
    numbers((0..all.len().min(MOST)).map_while(|at| all.get(at)), f)?;
    let (addr, bytes, unit) = (layout.addr(), layout.block_len(), layout.unit());
    f.write_fmt(fmt!(" {lkey:#010x} {addr:#x} {bytes} {unit}\n"))
}

/// Writes numbers with commas between them.
fn numbers<T: fmt::Display>(all: impl Iterator<Item = T>, f: Out<'_, '_>) -> fmt::Result {
    for (at, number) in all.enumerate() {
        f.write_fmt(fmt!("{}{}", if at > 0 { "," } else { "" }, number))?;
    }
    Ok(())
}
