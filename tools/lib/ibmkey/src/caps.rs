// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The limits of a device.

use core::ffi::c_int;

use crate::{
    errno::Result,
    ioctl::Command,
    sys::{
        self,
        ibmkey_caps, //
    },
};

/// Queries the limits of the device of the context whose command file descriptor is `fd`.
pub fn query(fd: c_int) -> Result<ibmkey_caps> {
    let mut caps = sys::ib_uverbs_mkey_caps::default();

    Command::<1>::new(sys::UVERBS_OBJECT_DEVICE, sys::IB_MKEY_METHOD_QUERY_CAPS)
        .out(sys::IB_MKEY_ATTR_QUERY_CAPS_RESP, &mut caps)
        .run(fd)?;

    Ok(ibmkey_caps {
        comp_mask: 0,
        max_dm_size: caps.max_dm_size,
        max_entries: caps.max_entries,
        max_dims: caps.max_dims,
        max_depth: caps.max_depth,
        dm_classes: caps.dm_classes,
        flags: caps.flags,
        max_indices: caps.max_indices,
    })
}

// The library passes the kernel's flags to the program unchanged, so both headers must have the
// same values.
const _: () = {
    assert!(sys::IBMKEY_CAP_DM == sys::IB_UVERBS_MKEY_CAP_DM);
    assert!(sys::IBMKEY_CAP_LIST == sys::IB_UVERBS_MKEY_CAP_LIST);
    assert!(sys::IBMKEY_CAP_INTERLEAVED == sys::IB_UVERBS_MKEY_CAP_INTERLEAVED);
    assert!(sys::IBMKEY_CAP_ATOMIC == sys::IB_UVERBS_MKEY_CAP_ATOMIC);
    assert!(sys::IBMKEY_CAP_INDEXED == sys::IB_UVERBS_MKEY_CAP_INDEXED);
    assert!(sys::IBMKEY_CAP_REQUEST == sys::IB_UVERBS_MKEY_CAP_REQUEST);
    assert!(sys::IBMKEY_DM_HOST == sys::IB_UVERBS_MKEY_DM_HOST);
    assert!(sys::IBMKEY_UNBOUND == sys::IB_UVERBS_MKEY_UNBOUND);
    assert!(sys::IBMKEY_LIST == sys::IB_UVERBS_MKEY_LIST);
    assert!(sys::IBMKEY_INTERLEAVED == sys::IB_UVERBS_MKEY_INTERLEAVED);
    assert!(sys::IBMKEY_INDEXED == sys::IB_UVERBS_MKEY_INDEXED);
    assert!(sys::IBMKEY_MAX_DIMS == sys::IB_MKEY_MAX_DIMS);
};
