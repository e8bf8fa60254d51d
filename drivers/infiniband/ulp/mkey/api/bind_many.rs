// SPDX-License-Identifier: GPL-2.0

//! The uverbs method and the kernel call that bind several keys, all or none.

use crate::{
    api::{kapi, uverbs},
    bindings::{
        self, ib_mkey_bind, ib_mkey_indexed, ib_mkey_interleaved, ib_sge,
        ib_uverbs_mkey_bind as UapiBind,
    },
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        error::eopnotsupp,
        export_c::{export_c, pointers, Given, Out},
        rdma::export::HeldMr,
    },
    key::{bind_all, Described, Key},
    region::rebind::Refused,
};
use core::result;
use kernel::prelude::*;

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
    let device = first.mr().device().as_raw();
    let mut keys = KVVec::with_capacity(num, GFP_MAYFAIL).map_err(|err| all(err.into()))?;
    for (number, mr) in mrs.enumerate() {
        if mr.mr().device().as_raw() != device {
            return Err(Refused {
                number,
                error: EINVAL,
            });
        }
        let key = Key::of(mr.mr(), mr.pd());
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
    match (bind.interleaved(), bind.indexed()) {
        (Some(layout), _) => kapi::describe_interleaved(key, layout, bind.access),
        (_, Some(layout)) => kapi::describe_indexed(key, layout, bind.access),
        _ => kapi::describe_list(key, bind.sg_list().ok_or(EINVAL)?, bind.access),
    }
}

/// Binds all of `binds`, or none.
fn bind_given(binds: &[Given<ib_mkey_bind>]) -> result::Result<(), Refused> {
    if binds.is_empty() || binds.len() > bindings::IB_MKEY_MAX_BINDS as usize {
        return Err(Refused {
            number: binds.len(),
            error: EINVAL,
        });
    }
    bind(binds.iter().map(|bind| bind.mkey()), |number, key| {
        describe_given(binds.get(number).ok_or(EINVAL)?, key)
    })
}

/// Returns the description at the start of `bytes`. The process may know more fields than this
/// kernel does.
///
/// # Errors
///
/// `EINVAL` if `bytes` is too short, `EOPNOTSUPP` if a field that this kernel does not know is not
/// zero.
fn read_bind(bytes: &[u8]) -> Result<UapiBind> {
    let (bind, unknown) = UapiBind::read_from_prefix(bytes).map_err(|_| EINVAL)?;
    if unknown.iter().any(|byte| *byte != 0) {
        return Err(eopnotsupp());
    }
    Ok(bind)
}

/// Binds all of `mkeys`, or none. `binds` has a description of `size` bytes for each.
fn bind_user(mkeys: &[HeldMr<'_>], binds: &[u8], size: usize, failed: &mut u32) -> Result {
    let keys = mkeys.iter().copied();
    if size < size_of::<UapiBind>() || keys.len().checked_mul(size) != Some(binds.len()) {
        return Err(EINVAL);
    }
    bind(keys, |number, key| {
        let bytes = binds.chunks_exact(size).nth(number).ok_or(EINVAL)?;
        uverbs::describe(&read_bind(bytes)?, key)
    })
    .map_err(|refused| {
        *failed = refused.number as u32;
        refused.error
    })
}

export_c! {
    in crate::bindings;

    fn ib_bind_mkeys(
        binds[num]: &[Given<ib_mkey_bind>],
        num: u32,
        failed: Option<Out<'_, u32>>,
    ) -> Result {
        bind_given(binds).map_err(|refused| {
            if let Some(failed) = failed {
                // CAST: The number is at most `num`.
                failed.set(refused.number as u32);
            }
            refused.error
        })
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
    ) -> Result {
        let mut number = num;
        let result = bind_user(mkeys, binds, size as usize, &mut number);
        failed.set(number);
        result
    }
}
