// SPDX-License-Identifier: GPL-2.0

//! Counts how often a copy writes each byte, one instruction at a time.

use std::{
    arch::asm,
    ffi::c_int,
    ptr,
    sync::{
        atomic::{AtomicPtr, AtomicUsize, Ordering},
        Mutex,
    },
};

extern "C" {
    fn signal(signum: c_int, handler: extern "C" fn(c_int)) -> usize;
}

const SIGTRAP: c_int = 5;

/// The bytes that are watched. A written byte is not zero.
static WATCHED: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static LENGTH: AtomicUsize = AtomicUsize::new(0);
/// The number of writes to each of them.
static WRITES: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// The handler has one set of bytes to watch.
static TURN: Mutex<()> = Mutex::new(());

/// Runs after each instruction. Counts the bytes that the instruction has written, and clears them.
extern "C" fn count(_signal: c_int) {
    let watched = WATCHED.load(Ordering::Relaxed);
    let writes = WRITES.load(Ordering::Relaxed);
    for at in 0..LENGTH.load(Ordering::Relaxed) {
        // SAFETY: `writes()` has set the places, which stay until it returns.
        unsafe {
            if watched.add(at).read_volatile() != 0 {
                watched.add(at).write_volatile(0);
                *writes.add(at) += 1;
            }
        }
    }
}

/// Returns how often `copy` writes each of `length` bytes at the address that it gets. The values
/// that it writes must not be zero.
pub(crate) fn writes(length: usize, copy: impl FnOnce(*mut u8)) -> Vec<u8> {
    let _turn = TURN.lock().unwrap();
    let (mut bytes, mut writes) = (vec![0u8; length], vec![0u8; length]);
    let to = bytes.as_mut_ptr();
    WATCHED.store(to, Ordering::Relaxed);
    WRITES.store(writes.as_mut_ptr(), Ordering::Relaxed);
    LENGTH.store(length, Ordering::Relaxed);
    // SAFETY: The handler only uses what was stored above. The flag TF is set during the copy, so
    // the processor traps after each instruction of this thread.
    unsafe {
        signal(SIGTRAP, count);
        asm!("pushfq", "or dword ptr [rsp], 0x100", "popfq");
        copy(to);
        asm!("pushfq", "and dword ptr [rsp], 0xfffffeff", "popfq");
    }
    LENGTH.store(0, Ordering::Relaxed);
    writes
}
