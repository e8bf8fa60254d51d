// SPDX-License-Identifier: GPL-2.0

//! Several keys bound in one call, all or none: the kernel API and the uverbs method.
//!
//! Pointers become references here; what follows is safe.

#![allow(clippy::missing_safety_doc, reason = "called from C only")]

use crate::{
    api::{kapi, uverbs},
    bindings::{
        self, ib_uverbs_mkey_bind as UapiBind,
        ib_uverbs_mkey_kind_IB_UVERBS_MKEY_INDEXED as KIND_INDEXED,
    },
    device::MkeyDevice,
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        rdma::{Access, Mr, Pd},
        same_types,
        uaccess::{read_array, read_one},
    },
    key::{bind_all, indexed, Described, Key},
    layout::MAX_DIMS,
    region::rebind::Refused,
};
use core::{result, slice};
use kernel::{error::from_result, ffi::c_int, prelude::*};

/// Finds the keys `raw`, has each described, and binds all or none.
///
/// # Safety
///
/// Each of `raw` must be a region that is not deregistered during the call.
///
/// # Errors
///
/// What is wrong, and with which one; its number is that of all if it is none of them.
unsafe fn bind(
    raw: impl ExactSizeIterator<Item = *mut bindings::ib_mr>,
    mut describe: impl for<'k> FnMut(usize, &'k Key<'_>) -> Result<Described<'k>>,
) -> result::Result<(), Refused> {
    let num = raw.len();
    let all = |error: Error| Refused { number: num, error };
    let mut mrs = KVVec::with_capacity(num, GFP_MAYFAIL).map_err(|err| all(err.into()))?;
    for raw in raw {
        // SAFETY: By the safety requirement. A region of ours cannot be reregistered, so that its
        // protection domain stays.
        let found = unsafe { (Mr::from_raw(raw), Pd::from_raw((*raw).pd)) };
        mrs.push(found, GFP_MAYFAIL)
            .map_err(|err| all(err.into()))?;
    }
    let (first, _) = mrs.first().ok_or_else(|| all(EINVAL))?;
    let device = MkeyDevice::of(first.device()).map_err(all)?;
    let mut keys = KVVec::with_capacity(num, GFP_MAYFAIL).map_err(|err| all(err.into()))?;
    for (number, (mr, pd)) in mrs.iter().enumerate() {
        // Of another device's keys it knows none.
        let key = Key::of(&device.core, mr, pd).map_err(|error| Refused { number, error })?;
        keys.push(key, GFP_MAYFAIL).map_err(|err| all(err.into()))?;
    }
    let mut described = KVVec::with_capacity(num, GFP_MAYFAIL).map_err(|err| all(err.into()))?;
    for (number, key) in keys.iter().enumerate() {
        let one = describe(number, key).map_err(|error| Refused { number, error })?;
        described
            .push(one, GFP_MAYFAIL)
            .map_err(|err| all(err.into()))?;
    }
    bind_all(&described)
}

#[no_mangle]
unsafe extern "C" fn ib_bind_mkeys(binds: *mut bindings::ib_mkey_bind, num: u32) -> c_int {
    if num == 0 || num > bindings::IB_MKEY_MAX_BINDS {
        return EINVAL.to_errno();
    }
    // SAFETY: The caller gives `num` elements.
    let binds = unsafe { slice::from_raw_parts_mut(binds, num as usize) };
    for bind in binds.iter_mut() {
        bind.error = 0;
    }
    // SAFETY: The caller gives keys, and descriptions: of a list where there is no other.
    let result = unsafe {
        bind(binds.iter().map(|bind| bind.mkey), |number, key| {
            let bind = binds.get(number).ok_or(EINVAL)?;
            match (bind.interleaved.as_ref(), bind.indexed.as_ref()) {
                (Some(layout), _) => kapi::describe_interleaved(key, layout, bind.access),
                (_, Some(layout)) => kapi::describe_indexed(key, layout, bind.access),
                _ => kapi::describe_list(key, bind.sg_list, bind.num_sge, bind.access),
            }
        })
    };
    let Err(refused) = result else {
        return 0;
    };
    let error = refused.error.to_errno();
    if let Some(bind) = binds.get_mut(refused.number) {
        bind.error = error;
    }
    error
}

/// Describes what `bind` says.
fn describe<'k>(bind: &UapiBind, key: &'k Key<'_>) -> Result<Described<'k>> {
    let mut repeat_count = [0; MAX_DIMS];
    let repeat_count = repeat_count
        .get_mut(..bind.num_dims as usize)
        .ok_or(EINVAL)?;
    if bind.access & !bindings::ib_access_flags_IB_ACCESS_SUPPORTED != 0 {
        return Err(EINVAL);
    }
    let access = Access::checked(key.mr().device(), bind.access as c_int)?;
    match bind.kind {
        0 => {}
        KIND_INDEXED if bind.num_dims == 0 && bind.num_entries == 1 && bind.repeat_count == 0 => {
            return indexed::describe_user(key, access, &read_one(bind.entries)?);
        }
        _ => return Err(EINVAL),
    }
    if bind.num_dims == 0 {
        return uverbs::describe_list(key, access, bind.entries, bind.num_entries);
    }
    let mut counts = repeat_count.iter_mut();
    read_array(bind.repeat_count, bind.num_dims, |count: u64| {
        *counts.next().ok_or(EINVAL)? = count;
        Ok(())
    })?;
    uverbs::describe_interleaved(key, access, repeat_count, bind.entries, bind.num_entries)
}

#[no_mangle]
unsafe extern "C" fn ib_mkey_uapi_bind_many(
    handles: *mut *mut bindings::ib_uobject,
    num: u32,
    array: u64,
    failed: *mut u32,
) -> c_int {
    // SAFETY: The C half gives an array of `num`, and a place for the answer.
    let (handles, failed) = unsafe { (slice::from_raw_parts(handles, num as usize), &mut *failed) };
    *failed = num;
    let call = || {
        let mut binds: KVVec<UapiBind> = KVVec::with_capacity(handles.len(), GFP_MAYFAIL)?;
        read_array(array, num, |bind| Ok(binds.push(bind, GFP_MAYFAIL)?))?;
        // SAFETY: uverbs holds the handles, so that the regions are not deregistered.
        unsafe {
            bind(
                handles.iter().map(|handle| (**handle).object.cast()),
                |number, key| describe(binds.get(number).ok_or(EINVAL)?, key),
            )
        }
        .map_err(|refused| {
            *failed = refused.number as u32;
            refused.error
        })?;
        Ok(0)
    };
    from_result(call)
}

same_types!(ib_bind_mkeys, ib_mkey_uapi_bind_many);
