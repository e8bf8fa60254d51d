// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Memory that the program lends to the device for a while.
//!
//! Safe code could leak a region that borrows memory, with `mem::forget()` or a circle of `Rc`. The
//! borrow would end, but the memory would stay registered, and peers could write memory to which
//! references exist. So borrowed memory is registered in a scope, as threads that borrow are
//! started in `std::thread::scope()`. The end of the scope deregisters the memory, whatever was
//! leaked. A [`Region`](super::Region) owns its memory, so a program may leak it.

use core::{
    cell::RefCell,
    marker::PhantomData,
    mem::size_of_val,
    ops::Range,
    ptr::NonNull, //
};

use super::{
    memory::Memory,
    Access,
    Key,
    Pd,
    Slice, //
};
use crate::{
    errno::{
        Errno,
        Result, //
    },
    explain::say,
    ioctl::Plain, //
};

/// The memory that was registered in a scope. Dropping this deregisters it.
struct Loans(RefCell<Vec<Memory>>);

impl Drop for Loans {
    fn drop(&mut self) {
        for memory in self.0.get_mut().iter().rev() {
            match memory.deregister().map_err(Errno::get) {
                // The device was removed, and the kernel has destroyed all its MRs.
                Ok(()) | Err(libc::EIO | libc::ENODEV) => {}
                Err(errno) => {
                    // Abort: the program could use the memory as soon as this returns, while peers
                    // could still write it.
                    eprintln!(
                        "ibmkey: borrowed memory is still registered at the end of its scope \
                         (errno {errno}): a key over it was leaked, or a window is bound to it"
                    );
                    std::process::abort();
                }
            }
        }
    }
}

/// A time during which the program lends memory to the device; see [`Pd::scope`].
pub struct Scope<'scope, 'env: 'scope> {
    pd: Pd<'scope>,
    loans: &'scope Loans,
    /// These types are invariant in the lifetimes, so that the compiler shortens neither: memory is
    /// lent until the end of the scope.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Memory that is registered until the end of a [`Scope`].
#[derive(Clone, Copy)]
pub struct Lent<'scope> {
    memory: Memory,
    scope: PhantomData<&'scope ()>,
}

impl Pd<'_> {
    /// Runs `work`, which can register borrowed memory, and deregisters that memory afterwards.
    ///
    /// When this returns, the program can use the memory again. If a leaked key still describes the
    /// memory, or a memory window of another crate is bound to it, this aborts the process.
    ///
    /// ```no_run
    /// use ibmkey::keys::{Access, Pd};
    ///
    /// # fn example(pd: &Pd<'_>, run: fn(u32)) -> ibmkey::Result {
    /// let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    /// let mut matrix = [[0.0; 6]; 4];
    /// pd.scope(|scope| {
    ///     // Column 1: elements 1, 7, 13 and 19.
    ///     let column = scope.strided(matrix.as_flattened_mut(), 1..2, &[4], &[6], access)?;
    ///     run(column.rkey()); // a peer writes the column
    ///     Ok(())
    /// })?;
    /// println!("{:?}", matrix);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scope<'env, R>(
        &self,
        work: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    ) -> R {
        let loans = Loans(RefCell::new(Vec::new()));
        let scope = Scope {
            pd: Pd {
                fd: self.fd,
                handle: self.handle,
                owner: PhantomData,
            },
            loans: &loans,
            scope: PhantomData,
            env: PhantomData,
        };

        work(&scope)
    }
}

/// Returns `EINVAL` for access flags that allow writing.
fn refuse_writes(access: Access) -> Result {
    if access.bits() & Access::ALL_WRITES == 0 {
        return Ok(());
    }
    let words = "the access flags allow writing memory that is borrowed for reading";
    Err(say(Errno::EINVAL, words))
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Returns the protection domain, for keys of the scope.
    pub fn pd(&self) -> &Pd<'scope> {
        &self.pd
    }

    /// Registers memory until the scope ends. Until then the program can use the memory only by
    /// [`Lent::read`] and [`Lent::write`].
    pub fn register<T: Plain>(
        &'scope self,
        memory: &'env mut [T],
        access: Access,
    ) -> Result<Lent<'scope>> {
        // SAFETY: The end of the scope deregisters the memory. The exclusive borrow does not end
        // before.
        unsafe {
            self.lend(
                NonNull::from(&mut *memory).cast(),
                size_of_val(memory),
                access,
            )
        }
    }

    /// Registers memory that the program may read until the scope ends. Returns `EINVAL` if
    /// `access` allows writing.
    pub fn share<T: Plain>(
        &'scope self,
        memory: &'env [T],
        access: Access,
    ) -> Result<Slice<'scope>> {
        refuse_writes(access)?;
        // SAFETY: The borrow does not end before the scope, which deregisters the memory, and
        // elements have no interior mutability. Nothing writes through this MR.
        let lent = unsafe { self.lend(NonNull::from(memory).cast(), size_of_val(memory), access) };
        Ok(lent?.all())
    }

    /// # Safety
    ///
    /// The requirements of [`Memory::register`]. The end of the scope deregisters the memory.
    unsafe fn lend(
        &'scope self,
        start: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<Lent<'scope>> {
        let mut loans = self.loans.0.borrow_mut();

        // Reserve room first: memory that is registered must be in the list.
        loans.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        // SAFETY: By the caller's promise.
        let memory = unsafe { Memory::register(self.pd, start, length, access) }?;
        loans.push(memory);
        Ok(Lent {
            memory,
            scope: PhantomData,
        })
    }

    /// Makes one key of several parts, one after another. Parts without elements are left out.
    ///
    /// Each part has its own MR, to which peers have no rights.
    pub fn gather<T: Plain>(
        &'scope self,
        parts: impl IntoIterator<Item = &'env mut [T]>,
        access: Access,
    ) -> Result<Key<'scope>> {
        let parts = parts.into_iter().filter(|part| size_of_val(*part) > 0);
        let slices: Result<Vec<_>> = parts
            .map(|part| Ok(self.register(part, access.of_leaves())?.all()))
            .collect();

        Key::of_slices(&self.pd, &slices?, access)
    }

    /// Makes one key of several parts that are only read; see [`Self::share`].
    pub fn gather_shared<T: Plain>(
        &'scope self,
        parts: impl IntoIterator<Item = &'env [T]>,
        access: Access,
    ) -> Result<Key<'scope>> {
        refuse_writes(access)?;
        let parts = parts.into_iter().filter(|part| size_of_val(*part) > 0);
        let slices: Result<Vec<_>> = parts
            .map(|part| self.share(part, access.of_leaves()))
            .collect();

        Key::of_slices(&self.pd, &slices?, access)
    }

    /// Makes one key of elements that repeat with strides. `block` has the elements at index 0 of
    /// every dimension. `strides[d]` is the number of elements from one start to the next in
    /// dimension d.
    ///
    /// Returns `ERANGE` if a block reaches outside the memory, `EOVERFLOW` if a number of bytes
    /// does not fit 64 bits.
    pub fn strided<T: Plain>(
        &'scope self,
        memory: &'env mut [T],
        block: Range<usize>,
        repeat: &[u64],
        strides: &[i64],
        access: Access,
    ) -> Result<Key<'scope>> {
        if block.start > block.end || block.end > memory.len() {
            return Err(Errno::ERANGE);
        }
        let bytes = |elements: usize| {
            let bytes = elements.checked_mul(size_of::<T>());
            bytes.map(|bytes| bytes as u64).ok_or(Errno::EOVERFLOW)
        };
        // CAST: A type has at most `isize::MAX` bytes.
        let stride = |&elements: &i64| elements.checked_mul(size_of::<T>() as i64);
        let strides: Option<Vec<i64>> = strides.iter().map(stride).collect();
        let strides = strides.ok_or(Errno::EOVERFLOW)?;

        let first = bytes(block.start)?..bytes(block.end)?;
        let all = self.register(memory, access.of_leaves())?.all();
        Key::of_strided(&self.pd, all.slice(first)?, repeat, &strides, access)
    }
}

impl<'scope> Lent<'scope> {
    /// Returns all bytes, for a layout.
    pub fn all(&self) -> Slice<'scope> {
        self.memory.all()
    }

    /// Returns some bytes, for a layout. Returns `ERANGE` if `range` reaches outside the memory.
    pub fn slice(&self, range: Range<u64>) -> Result<Slice<'scope>> {
        self.all().slice(range)
    }

    /// Returns the address of the first byte, for work requests.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Returns the lkey, for requests of this side.
    pub fn lkey(&self) -> u32 {
        self.memory.lkey()
    }

    /// Returns the rkey, for requests of peers.
    pub fn rkey(&self) -> u32 {
        self.memory.rkey()
    }

    /// Copies elements out of the memory, from byte `at` on. Returns `ERANGE` if they reach
    /// outside. If the device writes at the same time, some bytes can be old and others new.
    pub fn read<T: Plain>(&self, at: usize, to: &mut [T]) -> Result {
        self.memory.read(at, to)
    }

    /// Copies elements into the memory, from byte `at` on. Returns `ERANGE` if they reach outside.
    pub fn write<T: Plain>(&self, at: usize, from: &[T]) -> Result {
        self.memory.write(at, from)
    }
}
