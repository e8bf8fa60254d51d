// SPDX-License-Identifier: GPL-2.0

//! The table of errors: what a caller is told when a description is refused.

use crate::layout;
use kernel::prelude::*;

impl From<layout::Error> for Error {
    fn from(err: layout::Error) -> Self {
        match err {
            layout::Error::Zero | layout::Error::TooManyDims => EINVAL,
            layout::Error::Overflow => EOVERFLOW,
            layout::Error::OutOfLeaf => ERANGE,
            // Of an access, not of a description: the data path only asks whether there was one.
            layout::Error::Range | layout::Error::Straddles => EINVAL,
        }
    }
}
