// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Sends a column of a matrix, and rows by their numbers, from one side to the other.
//!
//! The queue pairs are those of the crate's feature `verbs`; any other verbs crate serves as well.
//!
//! usage: keys DEVICE

use std::error::Error;

use ibmkey::{
    keys::{
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
};

const ROW: usize = 48;

/// Returns the bytes of a key, as requests name them.
fn span(key: &Key<'_>) -> Span {
    Span {
        addr: 0,
        lkey: key.lkey(),
        rkey: key.rkey(),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "rxe0".to_owned());
    let devices = Devices::list()?;
    let device = devices.iter().find(|device| device.name() == name);
    let context = device
        .ok_or(format!("there is no RDMA device {name} here"))?
        .open()?;
    let verbs_pd = context.alloc_pd()?;
    let remote = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let (mut here, mut there) = (Queue::new(&verbs_pd)?, Queue::new(&verbs_pd)?);
    let address = here.address();
    here.connect(&there.address(), remote.bits())?;
    there.connect(&address, remote.bits())?;

    // SAFETY: `verbs_pd` is dropped after `pd`.
    let pd = unsafe { Pd::from_raw(verbs_pd.as_raw()) }?;
    let numbers: Vec<u8> = (0..4 * ROW).map(|byte| byte as u8).collect();
    let matrix = pd.register(numbers.clone(), Access::LOCAL_READ)?;
    let target = pd.register(vec![0; 4 * ROW], remote)?;

    // Column 1 of 8-byte elements, to every second group of 8 bytes, the last one first.
    let column = Interleaved::new(&[4]).block(matrix.slice(8..16)?, &[ROW as i64]);
    let backwards = Interleaved::new(&[4]).block(target.slice(48..56)?, &[-16]);
    let (mut from, mut to) = (Key::new(&pd, 2)?, Key::new(&pd, 1)?);
    from.bind(&column, Access::LOCAL_READ)?;
    to.bind(&backwards, remote)?;
    here.write(&span(&from), &span(&to), 32)?;
    let mut got = [0; 56];
    target.read(0, &mut got)?;
    for (row, element) in numbers.chunks(ROW).zip(got.rchunks(16)) {
        if row.get(8..16) != element.get(element.len().saturating_sub(8)..) {
            return Err("an element of the column is wrong".into());
        }
    }
    println!("column: {} bytes in one write", from.length());

    // Rows 3 and 1, into a list of two slices.
    from.bind_indexed(
        &Indexed::new(matrix.all(), ROW as u64, ROW as u64, &[3, 1]),
        Access::LOCAL_READ,
    )?;
    let mut list = Key::new(&pd, 2)?;
    list.bind_list(&[target.slice(100..148)?, target.slice(0..48)?], remote)?;
    here.write(&span(&from), &span(&list), 96)?;
    let mut rows = [0; 96];
    let (first, second) = rows.split_at_mut(ROW);
    target.read(100, first)?;
    target.read(0, second)?;
    if Some(&*first) != numbers.get(3 * ROW..) || Some(&*second) != numbers.get(ROW..2 * ROW) {
        return Err("the rows are wrong".into());
    }
    println!("rows 3 and 1: {} bytes in one write", list.length());

    // A row too many, which the kernel refuses, and a dimension too many.
    let long = Interleaved::new(&[5]).block(matrix.slice(8..16)?, &[ROW as i64]);
    let deep = Interleaved::new(&[1; 9]).block(matrix.slice(8..16)?, &[0; 9]);
    for (layout, part) in [(&long, "blocks[0]"), (&deep, "repeat[8]")] {
        if from.bind(layout, Access::LOCAL_READ).is_ok() || !last_error().starts_with(part) {
            return Err(format!("{part} is not refused: {}", last_error()).into());
        }
        println!("refused: {}", last_error());
    }
    Ok(())
}
