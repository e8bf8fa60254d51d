// SPDX-License-Identifier: GPL-2.0

//! The table of errors: the errno for each reason to refuse a description.

use crate::layout;
use kernel::prelude::*;

impl From<layout::Error> for Error {
    fn from(err: layout::Error) -> Self {
        match err {
            layout::Error::Zero(_) | layout::Error::TooManyDims => EINVAL,
            layout::Error::Overflow(_) => EOVERFLOW,
            layout::Error::OutOfLeaf => ERANGE,
            // Only accesses cause these. The data path does not tell one errno from another.
            layout::Error::Range | layout::Error::Straddles => EINVAL,
        }
    }
}
