// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Sends a column of a matrix, rows by their numbers, borrowed memory, and device memory, from one
//! side to the other. At the end it leaks a region: the memory of the region is then never freed.
//!
//! The queue pairs are those of the crate's feature `verbs`; any other verbs crate serves as well.
//!
//! usage: keys DEVICE

use std::error::Error;

use ibmkey::{
    keys::{
        bytes_mut,
        last_error,
        Access,
        Indexed,
        Interleaved,
        Key,
        Pd, //
    },
    verbs::{
        Devices,
        Queue,
        Span, //
    },
    Errno,
};

const ROW: usize = 48;

/// Sends a header, and every second element of an array, from device memory into memory of the
/// program. Then sends them from there to other memory of the program.
fn borrowed(pd: &Pd<'_>, queue: &mut Queue<'_>) -> Result<(), Box<dyn Error>> {
    let remote = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let dm = pd.alloc_dm(4096, remote)?;
    let numbers: Vec<u32> = (0..10).collect();
    dm.write(100, &numbers)?;
    let elements = Key::of_strided(pd, dm.slice(100..104)?, &[5], &[8], remote)?;

    let (mut header, mut payload) = ([0u16; 2], [0u32; 4]);
    let mut wide = [7u32; 9];
    pd.scope(|scope| -> Result<(), Box<dyn Error>> {
        let parts = [bytes_mut(&mut header), bytes_mut(&mut payload)];
        let message = scope.gather(parts, remote)?;
        queue.write(&Span::from(&elements), &Span::from(&message), 20)?;
        Ok(())
    })?;
    if (header, payload) != ([0, 0], [2, 4, 6, 8]) {
        return Err(format!("{header:?} and {payload:?} are wrong").into());
    }
    let (first, second) = payload.split_at(2);
    pd.scope(|scope| -> Result<(), Box<dyn Error>> {
        let source = scope.gather_shared([first, second], Access::LOCAL_READ)?;
        // The key describes elements 8, 6, 4 and 2.
        let target = scope.strided(&mut wide, 8..9, &[4], &[-2], remote)?;
        queue.write(&Span::from(&source), &Span::from(&target), 16)?;
        let refused = scope.share(&payload, remote);
        if refused.map(drop) != Err(Errno::EINVAL) {
            return Err("memory that is borrowed for reading can be written".into());
        }
        Ok(())
    })?;
    if wide != [7, 7, 8, 7, 6, 7, 4, 7, 2] {
        return Err(format!("{wide:?} is wrong").into());
    }
    println!("borrowed memory: {payload:?} in one write, {wide:?} in another");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "rxe0".to_owned());
    let devices = Devices::list()?;
    let device = devices.iter().find(|device| device.name() == name);
    let context = device
        .ok_or(format!(
            "libibverbs does not list {name}; mkeyctl doctor says why"
        ))?
        .open()?;
    let verbs_pd = context.alloc_pd()?;
    let remote = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let (mut here, mut there) = (Queue::new(&verbs_pd)?, Queue::new(&verbs_pd)?);
    let address = here.address();
    here.connect(&there.address(), remote.bits())?;
    there.connect(&address, remote.bits())?;

    let pd = Pd::from(&verbs_pd);
    let numbers: Vec<u8> = (0..4 * ROW).map(|byte| byte as u8).collect();
    let matrix = pd.register(numbers.clone(), Access::LOCAL_READ)?;
    let target = pd.register(vec![0; 4 * ROW], remote)?;

    // Sends column 1 of 8-byte elements to every second group of 8 bytes, the last one first.
    let column = Interleaved::new(&[4]).block(matrix.slice(8..16)?, &[ROW as i64]);
    let backwards = Interleaved::new(&[4]).block(target.slice(48..56)?, &[-16]);
    let (mut from, mut to) = (Key::new(&pd, 2)?, Key::new(&pd, 1)?);
    from.bind(&column, Access::LOCAL_READ)?;
    to.bind(&backwards, remote)?;
    here.write(&Span::from(&from), &Span::from(&to), 32)?;
    let mut got = [0; 56];
    target.read(0, &mut got)?;
    for (row, element) in numbers.chunks(ROW).zip(got.rchunks(16)) {
        if row.get(8..16) != element.get(element.len().saturating_sub(8)..) {
            return Err("an element of the column is wrong".into());
        }
    }
    println!("column: {} bytes in one write", from.length());

    // Sends rows 3 and 1 into a list of two slices.
    from.bind_indexed(
        &Indexed::new(matrix.all(), ROW as u64, ROW as u64, &[3, 1]),
        Access::LOCAL_READ,
    )?;
    let parts = [target.slice(100..148)?, target.slice(0..48)?];
    let list = Key::of_slices(&pd, &parts, remote)?;
    here.write(&Span::from(&from), &Span::from(&list), 96)?;
    let mut rows = [0; 96];
    let (first, second) = rows.split_at_mut(ROW);
    target.read(100, first)?;
    target.read(0, second)?;
    if Some(&*first) != numbers.get(3 * ROW..) || Some(&*second) != numbers.get(ROW..2 * ROW) {
        return Err("the rows are wrong".into());
    }
    println!("rows 3 and 1: {} bytes in one write", list.length());

    // `long` has a row too many, which the kernel refuses. `deep` has a dimension too many.
    let long = Interleaved::new(&[5]).block(matrix.slice(8..16)?, &[ROW as i64]);
    let deep = Interleaved::new(&[1; 9]).block(matrix.slice(8..16)?, &[0; 9]);
    for (layout, part) in [(&long, "blocks[0]"), (&deep, "repeat[8]")] {
        if from.bind(layout, Access::LOCAL_READ).is_ok() || !last_error().starts_with(part) {
            return Err(format!("{part} is not refused: {}", last_error()).into());
        }
        println!("refused: {}", last_error());
    }

    borrowed(&pd, &mut here)?;

    // Memory that the library allocates, of huge pages if there are some.
    let (large, end) = (pd.allocate(2 << 20, remote)?, (2 << 20) - 24);
    let numbers = [3u64, 4, 5];
    large.write(end, &numbers)?;
    let parts = [large.slice(end as u64..2 << 20)?];
    let last = Key::of_slices(&pd, &parts, Access::LOCAL_READ)?;
    here.write(&Span::from(&last), &Span::from(&to), 24)?;
    let mut first = [0u64; 1];
    target.read(48, &mut first)?;
    if first != [3] || pd.allocate(0, remote).err() != Some(Errno::EINVAL) {
        return Err("memory of the library is wrong".into());
    }
    println!("memory of the library: {numbers:?}");

    // The memory of a leaked region stays registered and is not freed, so a key over it works.
    let leaked = Box::leak(Box::new(pd.register(vec![5u64; 3], remote)?));
    let key = Key::of_strided(&pd, leaked.slice(0..8)?, &[3], &[8], Access::LOCAL_READ)?;
    here.write(&Span::from(&key), &Span::from(&to), 24)?;
    let mut five = [0u64; 1];
    target.read(48, &mut five)?;
    if five != [5] {
        return Err("the leaked region is wrong".into());
    }
    Ok(())
}
