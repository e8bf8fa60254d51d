// SPDX-License-Identifier: GPL-2.0

//! The uverbs method and the kernel call that bind several keys, all or none.

use crate::{
    api::{kapi, uverbs},
    bindings::{
        self, ib_mkey_bind, ib_mkey_indexed, ib_mkey_interleaved, ib_sge,
        ib_uverbs_mkey_bind as UapiBind,
    },
    device::MkeyDevice,
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        export_c::{answer, export_c, pointers, Given, GivenArray, Out},
        rdma::export::{HeldMr, MrHandles},
        uaccess::read_array,
    },
    key::{bind_all, Described, Key},
    region::rebind::Refused,
};
use core::result;
use kernel::{ffi::c_int, prelude::*};

/// Finds the keys `mrs`, describes each with `describe`, and binds all or none.
///
/// # Errors
///
/// The error and the number of the key that caused it. If no single key caused it, the number is
/// the count of all keys.
fn bind<'a>(
    mrs: impl ExactSizeIterator<Item = HeldMr<'a>> + Clone,
    mut describe: impl for<'k> FnMut(usize, &'k Key<'_>) -> Result<Described<'k>>,
) -> result::Result<(), Refused> {
    let num = mrs.len();
    let all = |error: Error| Refused { number: num, error };
    let first = mrs.clone().next().ok_or_else(|| all(EINVAL))?;
    let device = MkeyDevice::of(first.mr().device()).map_err(all)?;
    let mut keys = KVVec::with_capacity(num, GFP_MAYFAIL).map_err(|err| all(err.into()))?;
    for (number, mr) in mrs.enumerate() {
        // `Key::of` refuses a key of another device: this core does not know it.
        let key = Key::of(&device.core, mr.mr(), mr.pd());
        let key = key.map_err(|error| Refused { number, error })?;
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

pointers!(ib_mkey_bind {
    mkey: (HeldMr),
    interleaved: ib_mkey_interleaved,
    indexed: ib_mkey_indexed,
    sg_list: [ib_sge; num_sge],
});
answer!(ib_mkey_bind { error: c_int });

/// Describes the layout that a kernel user gave. It is a list unless another layout is given.
fn describe_given<'k>(bind: &Given<'_, ib_mkey_bind>, key: &'k Key<'_>) -> Result<Described<'k>> {
    match (bind.interleaved(), bind.indexed()) {
        (Some(layout), _) => kapi::describe_interleaved(key, &layout, bind.access),
        (_, Some(layout)) => kapi::describe_indexed(key, &layout, bind.access),
        _ => kapi::describe_list(key, bind.sg_list().ok_or(EINVAL)?, bind.access),
    }
}

/// Binds all of `binds`, or none.
fn bind_given(mut binds: GivenArray<'_, ib_mkey_bind>) -> Result {
    let num = binds.len();
    if num == 0 || num > bindings::IB_MKEY_MAX_BINDS as usize {
        return Err(EINVAL);
    }
    for number in 0..num {
        *binds.error(number).ok_or(EINVAL)? = 0;
    }
    let mut mrs = KVVec::with_capacity(num, GFP_MAYFAIL)?;
    for bind in binds.iter() {
        mrs.push(bind.mkey(), GFP_MAYFAIL)?;
    }
    let result = bind(mrs.iter().copied(), |number, key| {
        describe_given(&binds.get(number).ok_or(EINVAL)?, key)
    });
    drop(mrs);
    result.map_err(|refused| {
        if let Some(error) = binds.error(refused.number) {
            *error = refused.error.to_errno();
        }
        refused.error
    })
}

/// Binds the array of descriptions at the user address `array`, all or none.
fn bind_user(handles: MrHandles<'_>, num: u32, array: u64, failed: &mut u32) -> Result {
    let mut binds: KVVec<UapiBind> = KVVec::with_capacity(num as usize, GFP_MAYFAIL)?;
    read_array(array, num, |bind| Ok(binds.push(bind, GFP_MAYFAIL)?))?;
    bind(handles.iter(), |number, key| {
        uverbs::describe(binds.get(number).ok_or(EINVAL)?, key)
    })
    .map_err(|refused| {
        *failed = refused.number as u32;
        refused.error
    })
}

export_c! {
    in crate::bindings;

    fn ib_bind_mkeys(binds[num]: GivenArray<'_, ib_mkey_bind>, num: u32) -> Result {
        bind_given(binds)
    }
}

export_c! {
    in crate::api::bindings;

    fn ib_mkey_uapi_bind_many(
        handles[num]: MrHandles<'_>,
        num: u32,
        array: u64,
        failed: Out<'_, u32>,
    ) -> Result {
        let mut number = num;
        let result = bind_user(handles, num, array, &mut number);
        failed.set(number);
        result
    }
}
