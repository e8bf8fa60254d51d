// SPDX-License-Identifier: GPL-2.0

//! The uverbs method and the kernel call that bind several keys, all or none.

use crate::{
    api::{
        kapi,
        uverbs::{self, told},
    },
    bindings::{
        self, ib_mkey_bind, ib_mkey_indexed, ib_mkey_interleaved, ib_sge,
        ib_uverbs_mkey_bind as UapiBind, ib_uverbs_mkey_refused,
    },
    errors::{Refused, Result},
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        export_c::{export_c, pointers, Given, Out},
        rdma::export::HeldMr,
    },
    key::{bind_all, Described, Key},
    region::rebind::RefusedChange,
};
use core::mem::offset_of;
use kernel::prelude::*;

/// The number of the key that was refused, or of all keys if no single one is the reason.
type Bound = Result<(), RefusedChange>;

fn refused(number: usize, why: impl Into<Refused>) -> RefusedChange {
    RefusedChange {
        number,
        why: why.into(),
    }
}

/// Finds the keys `mrs`, describes each with `describe`, and binds all or none.
fn bind<'a>(
    mrs: impl ExactSizeIterator<Item = HeldMr<'a>> + Clone,
    mut describe: impl for<'k> FnMut(usize, &'k Key<'_>) -> Result<Described<'k>>,
) -> Bound {
    let num = mrs.len();
    let mut keys = KVVec::with_capacity(num, GFP_MAYFAIL).map_err(|err| refused(num, err))?;
    let mut device = None;
    for (number, mr) in mrs.enumerate() {
        let this = mr.mr().device().as_raw();
        if *device.get_or_insert(this) != this {
            return Err(refused(number, Refused::OTHER_DEVICE));
        }
        let key = Key::of(mr.mr(), mr.pd()).map_err(|why| refused(number, why))?;
        keys.push(key, GFP_MAYFAIL)
            .map_err(|err| refused(num, err))?;
    }
    let mut described = KVVec::with_capacity(num, GFP_MAYFAIL).map_err(|err| refused(num, err))?;
    for (number, key) in keys.iter().enumerate() {
        let one = describe(number, key).map_err(|why| refused(number, why))?;
        described
            .push(one, GFP_MAYFAIL)
            .map_err(|err| refused(num, err))?;
    }
    bind_all(&mut described)
}

pointers!(ib_mkey_bind {
    mkey: (HeldMr),
    interleaved: ib_mkey_interleaved,
    indexed: ib_mkey_indexed,
    sg_list: [ib_sge; num_sge],
});

/// Describes the layout that a kernel user gave. It is a list unless another layout is given.
fn describe_given<'k>(bind: &Given<ib_mkey_bind>, key: &'k Key<'_>) -> Result<Described<'k>> {
    let mut described = match (bind.interleaved(), bind.indexed()) {
        (Some(layout), _) => kapi::describe_interleaved(key, layout, bind.access),
        (_, Some(layout)) => kapi::describe_indexed(key, layout, bind.access),
        _ => kapi::describe_list(key, bind.sg_list().ok_or(EINVAL)?, bind.access),
    }?;
    described.begin_at(bind.base_addr)?;
    Ok(described)
}

/// Stages the layout that a kernel user gave.
fn stage_given(bind: &Given<ib_mkey_bind>, key: &Key<'_>) -> Result {
    let base = bind.base_addr;
    match (bind.interleaved(), bind.indexed()) {
        (Some(layout), _) => kapi::stage_interleaved(key, base, layout),
        (_, Some(layout)) => kapi::stage_indexed(key, base, layout),
        _ => kapi::stage_list(key, base, bind.sg_list().ok_or(EINVAL)?),
    }
}

/// Binds all of `binds`, or none. Records in a key that is the reason why it was refused.
fn bind_given(binds: &[Given<ib_mkey_bind>]) -> Bound {
    let num = binds.len();
    if num == 0 || num > bindings::IB_MKEY_MAX_BINDS as usize {
        return Err(refused(num, Refused::NUM_KEYS.with(num as u64)));
    }
    let bound = bind(binds.iter().map(|bind| bind.mkey()), |number, key| {
        describe_given(binds.get(number).ok_or(EINVAL)?, key)
    });
    bound.inspect_err(|RefusedChange { number, why }| {
        let mr = binds.get(*number).map(|bind| bind.mkey());
        if let Some(Ok(key)) = mr.map(|mr| Key::of(mr.mr(), mr.pd())) {
            key.region().refuse(*why);
        }
    })
}

/// The size of a description in the first version of the ABI.
const FIRST_SIZE: usize = offset_of!(UapiBind, base_addr);

/// Returns the description at the start of `bytes`. The process may know more or fewer fields than
/// this kernel does. Fields that it does not know are zero.
fn read_bind(bytes: &[u8]) -> Result<UapiBind> {
    let mut bind: UapiBind = Zeroable::zeroed();
    let (known, unknown) = bytes.split_at(bytes.len().min(size_of::<UapiBind>()));
    if unknown.iter().any(|byte| *byte != 0) {
        return Err(Refused::UNKNOWN_BYTES);
    }
    let to = bind.as_mut_bytes().get_mut(..known.len());
    to.ok_or(EINVAL)?.copy_from_slice(known);
    Ok(bind)
}

/// Binds all of `mkeys`, or none. `binds` has a description of `size` bytes for each.
fn bind_user(mkeys: &[HeldMr<'_>], binds: &[u8], size: usize) -> Bound {
    let keys = mkeys.iter().copied();
    let num = keys.len();
    if size < FIRST_SIZE || num.checked_mul(size) != Some(binds.len()) {
        return Err(refused(num, Refused::NUM_KEYS.with(num as u64)));
    }
    bind(keys, |number, key| {
        let bytes = binds.chunks_exact(size).nth(number).ok_or(EINVAL)?;
        uverbs::describe(&read_bind(bytes)?, key)
    })
}

export_c! {
    in crate::bindings;

    fn ib_bind_mkeys(
        binds[num]: &[Given<ib_mkey_bind>],
        num: u32,
        failed: Option<Out<'_, u32>>,
    ) -> Result<(), Error> {
        let bound = bind_given(binds).map_err(|RefusedChange { number, why }| {
            if let Some(failed) = failed {
                // CAST: The number is at most `num`.
                failed.set(number as u32);
            }
            why
        });
        Ok(bound?)
    }

    fn ib_map_mkey(bind: &Given<ib_mkey_bind>) -> Result<(), Error> {
        kapi::recorded(bind.mkey(), |key| stage_given(bind, key))
    }
}

export_c! {
    in crate::api::bindings;

    fn ib_mkey_uapi_bind_many(
        mkeys[num]: &[HeldMr<'_>],
        num: u32,
        binds[length]: &[u8],
        length: u32,
        size: u32,
        failed: Out<'_, u32>,
        refused: Out<'_, ib_uverbs_mkey_refused>,
    ) -> Result<(), Error> {
        let bound = bind_user(mkeys, binds, size as usize);
        let bound = bound.map_err(|RefusedChange { number, why }| {
            // CAST: The number is at most `num`.
            failed.set(number as u32);
            why
        });
        told(bound, refused)
    }
}
