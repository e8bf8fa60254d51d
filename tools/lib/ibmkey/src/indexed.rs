// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Blocks of one size at the places that indices give.
//!
//! The kernel reads the indices from the caller's memory; this library does not copy them.

use core::{
    ffi::c_int,
    mem::size_of, //
};

use crate::{
    errno::{
        Errno,
        Result, //
    },
    ioctl::Command,
    mkey::{
        self,
        Bound, //
    },
    sys::{
        self,
        ib_uverbs_mkey_bind as Bind,
        ib_uverbs_mkey_indexed as Uapi,
        ibmkey_indexed as Indexed, //
    },
};

/// Translates `layout` for the kernel.
pub(crate) fn to_uapi(layout: &Indexed) -> Result<Uapi> {
    // `comp_mask` of the kernel's structure has fewer bits, so check it here.
    if layout.comp_mask != 0 {
        return Err(Errno::EINVAL);
    }
    let (indices, index_bytes) = match (layout.indices32.is_null(), layout.indices64.is_null()) {
        (false, true) => (layout.indices32 as u64, 4),
        (true, false) => (layout.indices64 as u64, 8),
        _ => return Err(Errno::EINVAL),
    };

    Ok(Uapi {
        addr: layout.addr,
        unit: layout.unit,
        bytes_count: layout.bytes_count,
        indices,
        num_indices: layout.num_indices,
        index_bytes,
        lkey: layout.lkey,
        comp_mask: 0,
    })
}

/// Returns the length of a layout that the kernel has accepted.
pub(crate) fn length(layout: &Indexed) -> usize {
    mkey::length(
        &[layout.num_indices.into()],
        core::iter::once(layout.bytes_count),
    )
}

/// Describes the layout `uapi` for a bind. The kernel reads `uapi` during the bind.
pub(crate) fn describe(access: u32, uapi: &Uapi) -> Bind {
    Bind {
        entries: core::ptr::from_ref(uapi) as u64,
        kind: sys::IBMKEY_INDEXED,
        num_entries: 1,
        entry_size: size_of::<Uapi>() as u32,
        access,
        ..Bind::default()
    }
}

/// Binds blocks at indices.
pub(crate) fn bind(fd: c_int, handle: u32, access: u32, layout: &Indexed) -> Result<Bound> {
    let uapi = to_uapi(layout)?;
    let rkey = mkey::bind(fd, handle, describe(access, &uapi))?;
    let length = length(layout);

    Ok(Bound { length, rkey })
}

/// Queries the binding, and as many indices as the slice can hold. Returns a layout only if the key
/// is bound to an indexed one.
pub(crate) fn query(
    fd: c_int,
    handle: u32,
    indices: &mut [u64],
) -> Result<(sys::ibmkey_info, Option<Indexed>)> {
    let mut info = sys::ib_uverbs_mkey_info::default();
    let mut bound = Uapi::default();
    let wanted = [Uapi {
        indices: indices.as_mut_ptr() as u64,
        num_indices: u32::try_from(indices.len()).unwrap_or(u32::MAX),
        index_bytes: 8,
        ..Uapi::default()
    }];

    Command::<4>::new(sys::UVERBS_OBJECT_MR, sys::IB_MKEY_METHOD_QUERY)
        .object(sys::IB_MKEY_ATTR_QUERY_HANDLE, handle)
        .out(sys::IB_MKEY_ATTR_QUERY_RESP, &mut info)
        .slice(sys::IB_MKEY_ATTR_QUERY_INDEXED, &wanted)
        .out(sys::IB_MKEY_ATTR_QUERY_RESP_INDEXED, &mut bound)
        .run(fd)?;

    let indexed = (info.kind == sys::IB_UVERBS_MKEY_INDEXED).then_some(Indexed {
        comp_mask: 0,
        addr: bound.addr,
        unit: bound.unit,
        bytes_count: bound.bytes_count,
        indices32: core::ptr::null(),
        indices64: core::ptr::null(),
        num_indices: bound.num_indices,
        lkey: bound.lkey,
    });
    Ok((mkey::info_from_uapi(&info), indexed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(small: *const u32, large: *const u64) -> Indexed {
        Indexed {
            comp_mask: 0,
            addr: 1,
            unit: 2,
            bytes_count: 3,
            indices32: small,
            indices64: large,
            num_indices: 5,
            lkey: 7,
        }
    }

    #[test]
    fn indices_have_one_size() {
        let (small, large) = ([0u32; 5], [0u64; 5]);
        let none = (core::ptr::null(), core::ptr::null());
        let size = |small, large| to_uapi(&layout(small, large)).map(|uapi| uapi.index_bytes);

        assert_eq!(size(small.as_ptr(), none.1), Ok(4));
        assert_eq!(size(none.0, large.as_ptr()), Ok(8));
        assert_eq!(size(none.0, none.1), Err(Errno::EINVAL));
        assert_eq!(size(small.as_ptr(), large.as_ptr()), Err(Errno::EINVAL));
    }

    #[test]
    fn unknown_fields_are_refused() {
        let small = [0u32; 5];
        let unknown = Indexed {
            comp_mask: 1 << 32,
            ..layout(small.as_ptr(), core::ptr::null())
        };

        assert_eq!(to_uapi(&unknown).map(|_| ()), Err(Errno::EINVAL));
    }

    #[test]
    fn the_length_is_the_product_of_indices_and_bytes() {
        assert_eq!(length(&layout(core::ptr::null(), core::ptr::null())), 15);
    }
}
