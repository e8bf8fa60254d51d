// SPDX-License-Identifier: GPL-2.0

//! Error codes that the `kernel` crate has no constants for.

use crate::bindings;
use kernel::error::Error;

/// `EOPNOTSUPP`.
pub(crate) fn eopnotsupp() -> Error {
    Error::from_errno(-(bindings::EOPNOTSUPP as i32))
}

/// `ELOOP`.
pub(crate) fn eloop() -> Error {
    Error::from_errno(-(bindings::ELOOP as i32))
}
