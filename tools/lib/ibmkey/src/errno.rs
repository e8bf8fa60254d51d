// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Errno values as a Rust error.

use core::{
    ffi::{
        c_int,
        CStr, //
    },
    fmt, //
};

/// An errno value, never 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(c_int);

/// The result of the functions in this crate.
pub type Result<T = ()> = core::result::Result<T, Errno>;

impl Errno {
    /// All keys are in use.
    pub const EAGAIN: Self = Self(libc::EAGAIN);
    /// The object is in use.
    pub const EBUSY: Self = Self(libc::EBUSY);
    /// The memory is read-only.
    pub const EACCES: Self = Self(libc::EACCES);
    /// A seal of the file forbids this.
    pub const EPERM: Self = Self(libc::EPERM);
    /// An argument is invalid.
    pub const EINVAL: Self = Self(libc::EINVAL);
    /// The file descriptor is not open.
    pub const EBADF: Self = Self(libc::EBADF);
    /// The layout has too many entries.
    pub const ENOSPC: Self = Self(libc::ENOSPC);
    /// The bytes reach outside of the MR.
    pub const ERANGE: Self = Self(libc::ERANGE);
    /// A length or an address does not fit 64 bits.
    pub const EOVERFLOW: Self = Self(libc::EOVERFLOW);
    /// The address is not in this process's memory.
    pub const EFAULT: Self = Self(libc::EFAULT);
    /// No memory.
    pub const ENOMEM: Self = Self(libc::ENOMEM);
    /// A key would describe itself, there are too many levels of keys, or their pieces are small.
    pub const ELOOP: Self = Self(libc::ELOOP);
    /// The kernel lacks this interface.
    pub const ENOSYS: Self = Self(libc::ENOSYS);
    /// The kernel does not offer this on this device.
    pub const EOPNOTSUPP: Self = Self(libc::EOPNOTSUPP);

    /// Returns the current errno.
    pub fn last() -> Self {
        match std::io::Error::last_os_error().raw_os_error() {
            Some(errno) if errno != 0 => Self(errno),
            _ => Self(libc::EIO),
        }
    }

    /// Converts the result of a C function that returns 0 or an errno value.
    pub fn check(returned: c_int) -> Result {
        match returned {
            0 => Ok(()),
            errno => Err(Self(errno)),
        }
    }

    /// Returns the errno value.
    pub const fn get(self) -> c_int {
        self.0
    }

    /// Sets errno, as a C function that returns NULL does.
    pub fn set(self) {
        // SAFETY: The pointer to this thread's errno is always valid.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

/// Converts a result to 0 or an errno value, as a C function returns it.
pub fn to_int(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => errno.get(),
    }
}

/// Converts a result to a pointer, or to NULL and errno, as a C function returns it.
pub fn to_ptr<T>(result: Result<*mut T>) -> *mut T {
    result.unwrap_or_else(|errno| {
        errno.set();
        core::ptr::null_mut()
    })
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 128];
        // SAFETY: strerror_r() writes at most `text.len()` bytes. This is the POSIX variant, which
        // writes a string for every number, even an unknown one.
        let text = unsafe {
            libc::strerror_r(self.0, text.as_mut_ptr(), text.len());
            CStr::from_ptr(text.as_ptr())
        };

        f.write_str(&text.to_string_lossy())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {self})", self.0)
    }
}

impl std::error::Error for Errno {}
