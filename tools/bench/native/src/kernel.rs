// SPDX-License-Identifier: GPL-2.0

//! The parts of a kernel that the module's copy uses: its `memcpy()`, and pages.

use std::{ffi::c_void, slice};

use super::copy::{Block, Direction, Fault, Memory};

/// Bytes of a page.
pub(super) const PAGE: usize = 4096;

/// The functions of `rust/kernel/sync/racing.rs`.
pub(super) mod racing {
    /// Copies as the kernel does. For a small constant length, the compiler makes moves of words.
    /// `.cargo/config.toml` keeps it from making vectors of them.
    ///
    /// # Safety
    ///
    /// Those of [`super::memcpy`].
    #[inline(always)]
    pub(crate) unsafe fn copy_racing(to: *mut u8, from: *const u8, len: usize) {
        // SAFETY: By the safety requirement.
        unsafe {
            match len {
                1 => move_word::<u8>(to, from),
                2 => move_word::<u16>(to, from),
                4 => move_word::<u32>(to, from),
                _ if len > 64 || len % 8 != 0 => {
                    super::memcpy(to.cast(), from.cast(), len);
                }
                _ => (0..len)
                    .step_by(8)
                    .for_each(|at| move_word::<u64>(to.add(at), from.add(at))),
            }
        }
    }

    /// Copies a `T`.
    ///
    /// # Safety
    ///
    /// Those of [`super::memcpy`].
    #[inline(always)]
    unsafe fn move_word<T>(to: *mut u8, from: *const u8) {
        // SAFETY: By the safety requirement.
        unsafe {
            to.cast::<T>()
                .write_unaligned(from.cast::<T>().read_unaligned())
        };
    }
}

/// Copies as `memcpy()` of the kernel does on a processor with fast strings. The one of the C
/// library copies by vectors, which a kernel has not.
///
/// # Safety
///
/// `from` must be valid for reads and `to` for writes of `len` bytes, which do not overlap.
// `gather.c` calls it, too.
#[export_name = "mkey_bench_kernel_memcpy"]
unsafe extern "C" fn memcpy(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: By the safety requirements.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rdi") to => _,
            inout("rsi") from => _,
            inout("rcx") len => _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: By the safety requirements.
    unsafe {
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), len);
    }
    to
}

/// The byte that [`ib_mkey_copy_mc`] cannot read.
pub(super) const POISON: u8 = 0xee;

/// Copies the bytes before the first [`POISON`]. Returns how many were not copied.
///
/// # Safety
///
/// Those of [`memcpy`].
#[no_mangle]
unsafe extern "C" fn ib_mkey_copy_mc(to: *mut u8, from: *const u8, len: usize) -> usize {
    for at in 0..len {
        // SAFETY: By the safety requirements.
        unsafe {
            if *from.add(at) == POISON {
                return len - at;
            }
            *to.add(at) = *from.add(at);
        }
    }
    0
}

/// A page. Its bytes are accessed by their address.
#[derive(Clone, Copy)]
#[repr(align(4096))]
struct Page(#[allow(dead_code)] [u8; PAGE]);

/// Bytes in pages; the address of the first one is 0. As for an MR of rxe, there is a list of the
/// pages.
pub(super) struct Paged {
    list: Vec<*mut u8>,
    pub(super) is_persistent: bool,
    pages: Vec<Page>,
}

impl Paged {
    /// Makes `count` pages. `place` gives the place in memory of the page with a number.
    pub(super) fn new(count: usize, place: impl Fn(usize) -> usize) -> Self {
        let mut pages = vec![Page([0; PAGE]); count];
        let first = pages.as_mut_ptr().cast::<u8>();
        Self {
            list: (0..count)
                .map(|page| first.wrapping_add(PAGE * place(page)))
                .collect(),
            is_persistent: false,
            pages,
        }
    }

    /// Returns the address of the first place in memory.
    pub(super) fn as_ptr(&self) -> *const u8 {
        self.pages.as_ptr().cast()
    }

    /// Fills the bytes with numbers that differ from place to place.
    pub(super) fn fill(&mut self) {
        let (mut number, list) = (0, self.list.iter());
        // SAFETY: The page is one of `pages`, to which there is no other reference.
        for page in list.map(|page| unsafe { slice::from_raw_parts_mut(*page, PAGE) }) {
            fill(page, number);
            number += PAGE;
        }
    }

    /// Returns the bytes in the order of their addresses.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> Vec<u8> {
        // SAFETY: The page is one of `pages`, which no copy writes meanwhile.
        let page = |page: &*mut u8| unsafe { slice::from_raw_parts(*page, PAGE) };
        self.list.iter().flat_map(page).copied().collect()
    }
}

/// Fills `bytes` with numbers from `first` on that differ from place to place, none of them
/// [`POISON`].
pub(super) fn fill(bytes: &mut [u8], first: usize) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        let place = first + i;
        *byte = ((place + place / 241) % 229) as u8;
    }
}

impl Memory for Paged {
    type Error = Fault;

    const HAS_SIZES: bool = true;

    fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    #[inline]
    fn map(&mut self, addr: u64, _direction: Direction) -> Result<Block<'_>, Fault> {
        let page = *self.list.get(addr as usize / PAGE).ok_or(Fault::Outside)?;
        let before = addr as usize % PAGE;
        // SAFETY: The page is one of `pages`, to which there is no reference.
        Ok(unsafe { Block::new(page.add(before), before as u64, (PAGE - before) as u64) })
    }
}
