// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Makes keys with the protection domain and the memory of another verbs crate.
//!
//! In this example the other crate is a module that bindgen made from `<infiniband/verbs.h>`, as
//! for crates such as rdma-sys. The types of that module are not those of this crate.
//!
//! usage: foreign DEVICE

use std::{
    error::Error,
    ffi::CStr,
    os::fd::BorrowedFd, //
};

use ibmkey::{
    keys::{
        Access,
        Key,
        Pd,
        Slice, //
    },
    Errno,
};

#[allow(
    dead_code,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::undocumented_unsafe_blocks
)]
mod verbs {
    include!(concat!(env!("OUT_DIR"), "/foreign.rs"));
}

/// Opens a device by its name.
fn open(name: &str) -> Option<*mut verbs::ibv_context> {
    let mut count = 0;
    // SAFETY: `count` is a variable of this function. The list is never freed.
    let list = unsafe { verbs::ibv_get_device_list(&mut count) };
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: `at` is less than `count`, the number of devices in the list. A name is a C
        // string.
        unsafe {
            let device = *list.add(at);
            if CStr::from_ptr(verbs::ibv_get_device_name(device)).to_str() == Ok(name) {
                return Some(verbs::ibv_open_device(device)).filter(|context| !context.is_null());
            }
        }
    }
    None
}

/// Makes a key of every second word of an MR in a protection domain.
fn words<'r>(pd: &Pd<'r>, mr: Slice<'r>) -> ibmkey::Result<Key<'r>> {
    Key::of_strided(pd, mr.slice(0..8)?, &[4], &[16], Access::LOCAL_READ)
}

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "rxe0".to_owned());
    let context = open(&name).ok_or(format!(
        "libibverbs does not list {name}; mkeyctl doctor says why"
    ))?;
    let mut memory = [0u64; 8];
    // SAFETY: The context is open, and the memory is that of the array, which outlives the MR. The
    // end of this function frees the objects, after the keys.
    let (mine, other, mr) = unsafe {
        let mine = verbs::ibv_alloc_pd(context);
        let other = verbs::ibv_alloc_pd(context);
        let start = memory.as_mut_ptr();
        (mine, other, verbs::ibv_reg_mr(mine, start.cast(), 64, 0))
    };
    if mine.is_null() || other.is_null() || mr.is_null() {
        return Err("no protection domain or no MR".into());
    }

    // SAFETY: The context and the MR are objects of the other crate that were made above and still
    // exist.
    let (fd, handle, slice) = unsafe {
        let fd = BorrowedFd::borrow_raw((*context).cmd_fd);
        (
            fd,
            (*mine).handle,
            Slice::from_raw((*mr).lkey, (*mr).addr as u64, 64),
        )
    };
    // SAFETY: The protection domains outlive the keys below.
    let (by_pointer, by_number, wrong) = unsafe {
        (
            Pd::from_raw(mine.cast())?,
            Pd::from_handle(fd, handle),
            Pd::from_raw(other.cast())?,
        )
    };
    for pd in [by_pointer, by_number] {
        let key = words(&pd, slice)?;
        // The kernel must find the key, too, in its protection domain.
        let again = Key::of_slices(&pd, &[key.slice(8..32)?], Access::LOCAL_READ)?;
        if (key.length(), again.length()) != (32, 24) {
            return Err("a key has a wrong length".into());
        }
        // The MR stays while a key describes it, even if the crate that made it deregisters it.
        // SAFETY: If this call succeeds, the program ends without using the MR again.
        if unsafe { verbs::ibv_dereg_mr(mr) } != Errno::EBUSY.get() {
            return Err("an MR that a key describes was deregistered".into());
        }
    }
    // In another protection domain there is no such MR.
    if words(&wrong, slice).map(drop).map_err(Errno::get) != Err(libc::ENOENT) {
        return Err("a key describes an MR of another protection domain".into());
    }

    // SAFETY: The keys were dropped above, and nothing else uses these objects.
    let freed = unsafe {
        [
            verbs::ibv_dereg_mr(mr),
            verbs::ibv_dealloc_pd(mine),
            verbs::ibv_dealloc_pd(other),
            verbs::ibv_close_device(context),
        ]
    };
    if freed != [0; 4] {
        return Err(format!("not everything could be freed: {freed:?}").into());
    }
    println!("keys of an MR of another crate, by its pointers and by its numbers");
    Ok(())
}
