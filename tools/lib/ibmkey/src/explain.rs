// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The sentence about the last call that failed in this thread. `reason.rs` has the sentences for
//! the kernel's reasons to refuse a key or its layout; this file has those of all other errors.

use core::{
    cell::{
        Cell,
        RefCell, //
    },
    ffi::c_char,
};
use std::ffi::CString;

use crate::errno::{
    Errno,
    Result, //
};

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
    /// `true` if the call that runs now has stored a sentence.
    static SAID: Cell<bool> = const { Cell::new(false) };
}

/// The name of a pointer, and `true` if it is NULL although the call uses it.
pub(crate) type Argument = (&'static str, bool);

/// Returns the sentence for the last call that failed in this thread, or an empty one. It stays
/// valid until the next call that fails.
pub fn last() -> *const c_char {
    LAST.with_borrow(|last| last.as_ref().map_or(c"".as_ptr(), |text| text.as_ptr()))
}

/// Returns the sentence of [`last`] as a `String`, for programs in Rust.
pub fn last_text() -> String {
    LAST.with_borrow(|last| {
        last.as_ref()
            .map_or_else(String::new, |text| text.to_string_lossy().into_owned())
    })
}

/// Stores the sentence about a call that fails with `errno`. Returns `errno`.
pub fn say(errno: Errno, text: &str) -> Errno {
    store(text);
    SAID.set(true);
    errno
}

/// Stores a sentence outside of a call that fails.
pub(crate) fn store(text: &str) {
    LAST.with_borrow_mut(|last| *last = CString::new(text).ok());
}

/// Ends a call. If it failed, stores a sentence: it names an argument that is NULL, or is the one
/// that was stored where the error arose, or tells what the errno value means.
pub(crate) fn finish<T>(result: Result<T>, arguments: &[Argument]) -> Result<T> {
    let said = SAID.take();

    result.inspect_err(|&errno| {
        let null = arguments.iter().find(|(_, is_null)| *is_null);

        match (errno.get(), null) {
            (libc::EINVAL | libc::EFAULT, Some((name, _))) => {
                store(&format!("{name} is NULL"));
            }
            _ if said => {}
            _ => store(&format!("{errno}: {}", meaning(errno))),
        }
    })
}

/// Says what an errno value means for a call of which nothing more is known.
fn meaning(errno: Errno) -> &'static str {
    match errno.get() {
        libc::EINVAL => {
            "the device refuses a length, an address, an alignment or an access flag; or the object \
             is of another kind"
        }
        libc::EFAULT => {
            "the memory is not mapped, or not writable while the access flags allow writing"
        }
        libc::EBUSY => {
            "a memory window or a key still refers to the object: mkeyctl who shows which; or it is \
             in use without a pause"
        }
        libc::ENOMEM => {
            "no memory, or a limit is reached: RLIMIT_MEMLOCK for memory that is registered, \
             max_dm_size_per_user for device memory"
        }
        libc::EOPNOTSUPP => {
            "the device has no keys, or not this kind of memory, MR or request: mkeyctl doctor says \
             whether ib_mkey extends the device"
        }
        libc::EACCES => "the access flags allow writing, and the memory is read-only",
        libc::ENOENT => "the object was destroyed",
        libc::ENODEV => "the dma-buf was revoked by its exporter",
        libc::EBADF => "the descriptor is not open",
        _ => "the kernel refused the call",
    }
}

#[cfg(test)]
mod tests {
    use core::ptr::{
        null,
        null_mut, //
    };

    use super::*;
    use crate::{
        ffi,
        sys, //
    };

    /// Checks that a call failed with `expected`, and its sentence.
    fn says(errno: i32, expected: i32, words: &str) {
        assert_eq!(errno, expected);
        assert!(last_text().starts_with(words), "{}", last_text());
    }

    #[test]
    fn a_pointer_that_is_null_is_named() {
        let mut info = sys::ib_uverbs_mkey_info::default();
        let mut refused = sys::ib_uverbs_mkey_refused::default();
        let (mut fd, no) = (0, null_mut());
        let failed = || Errno::last().get();
        let wr = sys::ibmkey_wr::default();
        let qp: *mut sys::ibv_qp = core::ptr::NonNull::dangling().as_ptr();

        // SAFETY: NULL is no object, so each call fails before it uses an object.
        unsafe {
            assert!(ffi::ibmkey_alloc(null_mut(), 1).is_null());
            says(failed(), libc::EINVAL, "pd is NULL");
            assert!(ffi::ibmkey_alloc_ex(null_mut(), null()).is_null());
            says(failed(), libc::EFAULT, "attr is NULL");
            assert!(ffi::ibmkey_reg_iov(null_mut(), null(), 2, 0).is_null());
            says(failed(), libc::EFAULT, "iov is NULL");
            assert!(ffi::ibmkey_alloc_dm(null_mut(), null(), 0).is_null());
            says(failed(), libc::EFAULT, "attr is NULL");
            assert!(ffi::ibmkey_pool_get(null_mut()).is_null());
            says(failed(), libc::EINVAL, "pool is NULL");
            says(ffi::ibmkey_unbind(no), libc::EINVAL, "mkey is NULL");
            says(ffi::ibmkey_dereg(no), libc::EINVAL, "mkey is NULL");
            let ret = ffi::ibmkey_query_caps(null_mut(), null_mut());
            says(ret, libc::EINVAL, "ctx is NULL");
            says(
                ffi::ibmkey_query(no, &mut info),
                libc::EINVAL,
                "mkey is NULL",
            );
            let ret = ffi::ibmkey_export_dm(null_mut(), &mut fd);
            says(ret, libc::EINVAL, "dm is NULL");
            let ret = ffi::ibmkey_query_refused(no, &mut refused);
            says(ret, libc::EINVAL, "mkey is NULL");
            says(ffi::ibmkey_enable(null_mut()), libc::EINVAL, "ctx is NULL");
            let ret = ffi::ibmkey_bind_many(null(), 1, null_mut());
            says(ret, libc::EFAULT, "binds is NULL");
            let ret = ffi::ibmkey_post_bind(qp, null(), 0, 0);
            says(ret, libc::EFAULT, "wr is NULL");
            let ret = ffi::ibmkey_post_bind(null_mut(), &wr, 0, 0);
            says(ret, libc::EINVAL, "qp is NULL");
            let ret = ffi::ibmkey_post_bind(qp, &wr, 0, 0);
            says(ret, libc::EINVAL, "wr.mkey is NULL");
            let ret = ffi::ibmkey_post_unbind(qp, no, 0, 0);
            says(ret, libc::EINVAL, "mkey is NULL");
            assert!(ffi::ibmkey_import_context(-1).is_null());
            says(failed(), libc::EBADF, "Bad file descriptor: ");
        }
    }

    #[test]
    fn a_sentence_is_about_its_own_call() {
        let fail = |text: Option<&str>| {
            let result = Err::<(), _>(Errno::EBUSY);
            let result = result.inspect_err(|&errno| {
                if let Some(text) = text {
                    say(errno, text);
                }
            });
            assert_eq!(finish(result, &[("mkey", false)]), Err(Errno::EBUSY));
            last_text()
        };

        assert_eq!(fail(Some("first")), "first");
        assert!(fail(None).contains("mkeyctl who"));
        assert_eq!(fail(Some("second")), "second");
        // A call that succeeds leaves the sentence, also one that it stored itself.
        say(Errno::EBUSY, "third");
        assert_eq!(finish(Ok(()), &[]), Ok(()));
        assert!(fail(None).contains("mkeyctl who"));
    }
}
