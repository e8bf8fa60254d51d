// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Sentences about calls on one object, whose other arguments are places for results.

use super::calls::{
    other,
    BUSY,
    NO_KEYS, //
};
use crate::errno::Errno;

/// The name of a pointer, and `true` if it is NULL although the call uses it.
pub(crate) type Argument = (&'static str, bool);

/// Explains a failure of a call on a context or on device memory.
pub(crate) fn call(arguments: &[Argument], errno: Errno) -> String {
    let null = arguments.iter().find(|(_, is_null)| *is_null);

    match (errno.get(), null) {
        (libc::EINVAL | libc::EFAULT, Some((name, _))) => format!("{name} is NULL"),
        (libc::EOPNOTSUPP, _) => NO_KEYS.into(),
        _ => other(errno),
    }
}

/// Explains a failure of a call on a key.
pub(crate) fn on_key(arguments: &[Argument], errno: Errno) -> String {
    let has_null = arguments.iter().any(|(_, is_null)| *is_null);

    match errno.get() {
        libc::EINVAL if !has_null => "mkey is not a key of ibmkey_alloc()".into(),
        libc::EBUSY => format!("{BUSY} mkey: mkeyctl who shows which"),
        _ => call(arguments, errno),
    }
}

/// Explains a failure of `ibmkey_import_context()`.
pub(crate) fn import_context(cmd_fd: i32, errno: Errno) -> String {
    match errno.get() {
        libc::EBADF => format!("cmd_fd {cmd_fd} is no open descriptor"),
        libc::EMFILE => "the process has as many open descriptors as RLIMIT_NOFILE allows".into(),
        _ => other(errno),
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
        explain::last_text,
        ffi,
        sys, //
    };

    /// Checks the errno value and the sentence of a call.
    fn says(errno: i32, expected: i32, words: &str) {
        assert_eq!(errno, expected);
        assert_eq!(last_text(), words);
    }

    #[test]
    fn a_pointer_that_is_null_is_named() {
        let mut info = sys::ibmkey_info::default();
        let (mut error, mut entry) = (0, 0);

        // SAFETY: NULL is no object, so each call fails before it uses an object.
        unsafe {
            assert!(ffi::ibmkey_alloc(null_mut(), 1).is_null());
            says(ffi::ibmkey_unbind(null_mut()), libc::EINVAL, "mkey is NULL");
            assert!(ffi::ibmkey_alloc_ex(null_mut(), null()).is_null());
            says(ffi::ibmkey_dereg(null_mut()), libc::EINVAL, "mkey is NULL");
            let ret = ffi::ibmkey_query_caps(null_mut(), null_mut());
            says(ret, libc::EINVAL, "ctx is NULL");
            let ret = ffi::ibmkey_query(null_mut(), &mut info);
            says(ret, libc::EINVAL, "mkey is NULL");
            let ret = ffi::ibmkey_export_dm(null_mut(), &mut error);
            says(ret, libc::EINVAL, "dm is NULL");
            let ret = ffi::ibmkey_query_refused(null_mut(), &mut error, &mut entry);
            says(ret, libc::EINVAL, "mkey is NULL");
            says(ffi::ibmkey_enable(null_mut()), libc::EINVAL, "ctx is NULL");
            assert!(ffi::ibmkey_import_context(-1).is_null());
            assert_eq!(last_text(), "cmd_fd -1 is no open descriptor");
            assert!(ffi::ibmkey_import_pd(null_mut(), 1).is_null());
            assert_eq!(last_text(), "ctx is NULL");
        }
    }

    #[test]
    fn the_errno_value_decides() {
        let some = [("mkey", false), ("info", true)];
        let text = |errno| on_key(&some, Errno::from_raw(errno));

        assert_eq!(text(libc::EFAULT), "info is NULL");
        assert!(text(libc::EBUSY).ends_with(" refers to mkey: mkeyctl who shows which"));
        assert!(text(libc::EOPNOTSUPP).contains("mkeyctl doctor"));
        assert!(text(libc::ENODEV).starts_with("the kernel refused the call: "));
        assert_eq!(
            on_key(&some[..1], Errno::EINVAL),
            "mkey is not a key of ibmkey_alloc()"
        );
    }
}
