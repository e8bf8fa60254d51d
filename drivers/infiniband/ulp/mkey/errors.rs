// SPDX-License-Identifier: GPL-2.0

//! The table of errors: the errno value of each reason to refuse a key or its layout.
//!
//! `enum ib_uverbs_mkey_reason` describes the reasons.

use crate::{
    bindings::{self, ib_uverbs_mkey_refused, IB_MKEY_NO_ENTRY},
    layout::{self, Part},
};
use core::num::TryFromIntError;
use kernel::{
    alloc::{kvec::PushError, AllocError},
    macros::paste,
    prelude::*,
};

/// The reason for which a key was not created or bound, or an access was refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    errno: u32,
    reason: u32,
    entry: u32,
    value: u64,
}

/// The result of a call that says why it refuses a key or its layout.
pub(crate) type Result<T = (), E = Refused> = core::result::Result<T, E>;

macro_rules! reasons {
    ($($errno:ident: $($name:ident)+;)+) => {
        impl Refused {
            paste! { $($(
                pub(crate) const $name: Self = Self::new(
                    bindings::$errno,
                    bindings::[<ib_uverbs_mkey_reason_IB_UVERBS_MKEY_REASON_ $name>],
                );
            )+)+ }
        }
    };
}

reasons! {
    EINVAL: NOT_A_KEY MAX_ENTRIES COMP_MASK RESERVED KIND ENTRY_SIZE NOT_INTERLEAVED DIMS
        ONE_INDEXED ACCESS LOCAL_WRITE EMPTY STRIDE INDEX_BYTES NO_BYTES NO_REPEAT NO_UNIT RKEY
        NUM_KEYS TWICE OTHER_DEVICE VERSION DESCRIPTION PORTION NOT_MAPPED INDICES;
    ENOENT: LKEY DESCRIPTION_LKEY;
    EACCES: LEAF_ACCESS ACCESS_FLAGS;
    ENOSPC: TOO_MANY;
    EOVERFLOW: ADDRESS LENGTH BASE;
    ERANGE: NO_LENGTH BEFORE_LEAF BEYOND_LEAF DESCRIPTION_RANGE ACCESS_RANGE ACCESS_BASE;
    ELOOP: ITSELF LEVELS PIECES CIRCLE;
    EBUSY: BUSY ALL_MAPPED;
    ENOMEM: MEMORY;
    EFAULT: FAULT ACCESS_MEMORY;
    EINTR: KILLED;
    EOPNOTSUPP: DEVICE UNKNOWN_BYTES DEVICE_ACCESS LEAF FLUSH_ON_DEMAND FLUSH_PIECES FLUSH_BYTES
        DESCRIPTION_LEAF;
    ENXIO: ACCESS_UNBOUND;
    EPERM: ACCESS_PD;
    EKEYREVOKED: ACCESS_KEY;
    ESTALE: ACCESS_LEAF;
    EXDEV: ACCESS_PIECES;
    EDOM: ACCESS_ALIGN;
    EIO: ACCESS_POISON;
}

impl Refused {
    /// No refusal.
    pub(crate) const NONE: Self = Self::new(0, 0);

    const fn new(errno: u32, reason: u32) -> Self {
        Self {
            errno,
            reason,
            entry: IB_MKEY_NO_ENTRY,
            value: 0,
        }
    }

    /// Sets the value that the reason names.
    pub(crate) fn with(self, value: impl Into<u64>) -> Self {
        let value = value.into();
        Self { value, ..self }
    }

    /// Sets the number of the entry that is the reason. No entry is the reason that memory is
    /// short.
    pub(crate) fn at(self, entry: u32) -> Self {
        match self {
            Self::MEMORY => self,
            _ => Self { entry, ..self },
        }
    }

    /// Names the array that could not be read, if that is the reason.
    pub(crate) fn of_array(self, addr: u64) -> Self {
        match self {
            Self::FAULT => self.with(addr),
            _ => self,
        }
    }

    /// Returns the structure of the uAPI.
    pub(crate) fn to_uapi(self) -> ib_uverbs_mkey_refused {
        ib_uverbs_mkey_refused {
            error: self.errno,
            entry: self.entry,
            reason: self.reason,
            comp_mask: 0,
            value: self.value,
        }
    }

    /// Returns the reason why the MR of `lkey`, which a layout names, cannot be a leaf.
    pub(crate) fn of_leaf(error: Error, lkey: u32) -> Self {
        let reasons = [Self::LKEY, Self::NO_LENGTH, Self::LEVELS, Self::LEAF];
        Self::from(error).one_of(&reasons).with(lkey)
    }

    /// Returns the reason why a description cannot be read from the MR of `lkey`.
    pub(crate) fn of_description(error: Error, lkey: u32) -> Self {
        let range = Self::DESCRIPTION_RANGE;
        let reasons = [Self::DESCRIPTION_LKEY, range, Self::DESCRIPTION_LEAF];
        Self::from(error).one_of(&reasons).with(lkey)
    }

    /// Returns the reason why the memory of a leaf could not be accessed.
    pub(crate) fn of_memory(error: Error) -> Self {
        match error {
            EIO => Self::ACCESS_POISON,
            _ => Self::ACCESS_MEMORY,
        }
    }

    /// Returns the reason why an access was refused. Each has its own errno value, so that the data
    /// path returns an errno value alone.
    pub(crate) fn of_access(error: Error) -> Self {
        let reasons = [
            Self::ACCESS_UNBOUND,
            Self::ACCESS_RANGE,
            Self::ACCESS_FLAGS,
            Self::ACCESS_PD,
            Self::ACCESS_KEY,
            Self::ACCESS_LEAF,
            Self::ACCESS_PIECES,
            Self::ACCESS_ALIGN,
            Self::ACCESS_POISON,
        ];
        let errno = error.to_errno().unsigned_abs();
        let same = reasons.iter().find(|reason| reason.errno == errno);
        *same.unwrap_or(&Self::ACCESS_MEMORY)
    }

    /// Returns the number of the reason.
    pub(crate) fn reason(self) -> u32 {
        self.reason
    }

    /// Returns the reason with the same errno value; `self` if there is none.
    fn one_of(self, reasons: &[Self]) -> Self {
        let same = reasons.iter().find(|reason| reason.errno == self.errno);
        *same.unwrap_or(&self)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        let errno = error.to_errno().unsigned_abs();
        let any = [Self::BUSY, Self::MEMORY, Self::FAULT, Self::KILLED];
        Self::new(errno, 0).one_of(&any)
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        // CAST: An errno value is a small number.
        Self::from_errno((refused.errno as i32).wrapping_neg())
    }
}

impl From<layout::Error> for Refused {
    fn from(error: layout::Error) -> Self {
        match error {
            layout::Error::Zero(Part::All) => Self::EMPTY,
            layout::Error::Zero(Part::Entry(at)) => Self::NO_BYTES.at(at),
            layout::Error::Zero(Part::Dim(dim)) => Self::NO_REPEAT.with(dim),
            layout::Error::Zero(Part::Unit) => Self::NO_UNIT,
            layout::Error::TooManyDims => Self::DIMS,
            layout::Error::Overflow(Part::Entry(at)) => Self::ADDRESS.at(at),
            layout::Error::Overflow(_) => Self::LENGTH,
            layout::Error::OutOfLeaf => Self::BEYOND_LEAF,
            layout::Error::Range => Self::ACCESS_RANGE,
            layout::Error::Straddles => Self::ACCESS_PIECES,
        }
    }
}

impl From<layout::Error> for Error {
    fn from(error: layout::Error) -> Self {
        Refused::from(error).into()
    }
}

impl From<AllocError> for Refused {
    fn from(_: AllocError) -> Self {
        Self::MEMORY
    }
}

impl From<TryFromIntError> for Refused {
    fn from(error: TryFromIntError) -> Self {
        Error::from(error).into()
    }
}

impl<T> From<PushError<T>> for Refused {
    fn from(error: PushError<T>) -> Self {
        Error::from(error).into()
    }
}
