// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Binds several keys in one call, all or none.

use core::ffi::c_int;

use crate::{
    errno::{
        Errno,
        Result, //
    },
    explain::{
        self,
        Failed,
        Layout, //
    },
    indexed,
    ioctl::Command,
    mkey::{
        self,
        block_to_uapi,
        length,
        Array, //
    },
    object,
    sys::{
        self,
        ib_uverbs_mkey_bind as Bind,
        ib_uverbs_mkey_block as Block,
        ib_uverbs_mkey_indexed as Indexed,
        ibmkey_bind, //
    },
};

/// The bit of `ibmkey_bind.comp_mask` that says that the field `rkey` is valid.
const RKEY: u64 = sys::IBMKEY_BIND_RKEY as u64;

/// The size of a description for the kernel.
// CAST: The size is 48.
const BIND_SIZE: u32 = size_of::<Bind>() as u32;

/// The description of one key for the kernel, and the arrays that it points to.
struct Described {
    handle: u32,
    bind: Bind,
    length: usize,
    _blocks: Vec<Block>,
    _indexed: Vec<Indexed>,
}

fn translated<T, U>(items: Option<&[T]>, translate: impl Fn(&T) -> U) -> Result<Vec<U>> {
    let items = items.unwrap_or_default();
    let mut out = Vec::new();

    out.try_reserve_exact(items.len())
        .map_err(|_| Errno::ENOMEM)?;
    out.extend(items.iter().map(translate));
    Ok(out)
}

/// # Safety
///
/// `bind` fulfils the contract of its declaration.
unsafe fn describe(bind: &ibmkey_bind, handle: u32) -> Result<Described> {
    if bind.comp_mask & !RKEY != 0 {
        return Err(Errno::EINVAL);
    }
    let mut described = match bind.kind {
        // SAFETY: By the caller's promise, and the kind is that of the function.
        sys::IBMKEY_LIST => unsafe { describe_list(bind, handle) },
        // SAFETY: As above.
        sys::IBMKEY_INTERLEAVED => unsafe { describe_interleaved(bind, handle) },
        // SAFETY: As above.
        sys::IBMKEY_INDEXED => unsafe { describe_indexed(bind, handle) },
        _ => Err(Errno::EINVAL),
    }?;
    if bind.comp_mask & RKEY != 0 {
        described.bind.comp_mask = sys::IB_UVERBS_MKEY_BIND_RKEY;
        described.bind.rkey = bind.rkey;
    }
    Ok(described)
}

/// # Safety
///
/// `bind` fulfils the contract of its declaration and describes a list.
unsafe fn describe_list(bind: &ibmkey_bind, handle: u32) -> Result<Described> {
    // SAFETY: By the caller's promise.
    let list = unsafe { Array::from_raw(bind.num_entries, bind.__bindgen_anon_1.ranges) };
    let bytes = list.items().unwrap_or_default();

    Ok(Described {
        handle,
        bind: Bind {
            // A list has no such fields. The kernel refuses the layout if they are not zero.
            repeat_count: bind.repeat_count as u64,
            num_dims: bind.num_dims,
            ..mkey::describe_list(bind.access, bind.num_entries, list.as_ptr())
        },
        length: length(&[], bytes.iter().map(|range| range.length)),
        _blocks: Vec::new(),
        _indexed: Vec::new(),
    })
}

/// # Safety
///
/// `bind` fulfils the contract of its declaration and describes an interleaved layout.
unsafe fn describe_interleaved(bind: &ibmkey_bind, handle: u32) -> Result<Described> {
    // The kernel refuses invalid counts.
    // SAFETY: By the caller's promise.
    let (repeat, array) = unsafe {
        (
            Array::from_raw(bind.num_dims, bind.repeat_count),
            Array::from_raw(bind.num_entries, bind.__bindgen_anon_1.blocks),
        )
    };
    let dims = repeat.items().unwrap_or_default();
    let blocks = translated(array.items(), |block| block_to_uapi(block, dims.len()))?;
    let at = array.items().map_or(core::ptr::null(), |_| blocks.as_ptr());

    Ok(Described {
        handle,
        bind: mkey::describe_interleaved(
            bind.access,
            bind.num_dims,
            repeat.as_ptr(),
            bind.num_entries,
            at,
        ),
        length: length(dims, blocks.iter().map(|block| block.bytes_count)),
        _blocks: blocks,
        _indexed: Vec::new(),
    })
}

/// # Safety
///
/// `bind` fulfils the contract of its declaration and describes an indexed layout.
unsafe fn describe_indexed(bind: &ibmkey_bind, handle: u32) -> Result<Described> {
    // SAFETY: By the caller's promise.
    let layout = unsafe { bind.__bindgen_anon_1.indexed.as_ref() }.ok_or(Errno::EFAULT)?;
    let uapi = translated(Some(&[indexed::to_uapi(layout)?]), |uapi| *uapi)?;
    let first = uapi.first().ok_or(Errno::ENOMEM)?;

    Ok(Described {
        handle,
        bind: Bind {
            repeat_count: bind.repeat_count as u64,
            num_entries: bind.num_entries,
            num_dims: bind.num_dims,
            ..indexed::describe(bind.access, first)
        },
        length: indexed::length(layout),
        _blocks: Vec::new(),
        _indexed: uapi,
    })
}

/// Binds all of `binds`, or none. On an error, `failed` becomes the number of the key that caused
/// it, or the number of keys if no key did.
///
/// # Safety
///
/// Each of `binds` fulfils the contract of its declaration.
pub(crate) unsafe fn bind(binds: &[ibmkey_bind], failed: &mut u32) -> Result {
    *failed = binds.len() as u32;
    if binds.is_empty() || binds.len() > sys::IB_MKEY_MAX_BINDS as usize {
        return Err(Errno::EINVAL);
    }

    let mut fd: c_int = -1;
    let mut all = Vec::new();
    all.try_reserve_exact(binds.len())
        .map_err(|_| Errno::ENOMEM)?;
    for (number, bind) in binds.iter().enumerate() {
        // SAFETY: By the caller's promise.
        let described = unsafe { object::mr_handle(bind.mkey) }.and_then(|(its_fd, handle)| {
            if number > 0 && its_fd != fd {
                return Err(Errno::EINVAL);
            }
            fd = its_fd;
            // SAFETY: By the caller's promise.
            unsafe { describe(bind, handle) }
        });
        // CAST: `number` is less than the number of `binds`, which was checked above.
        all.push(described.inspect_err(|_| *failed = number as u32)?);
    }

    let handles = translated(Some(&all), |one| one.handle)?;
    let calls = translated(Some(&all), |one| one.bind)?;
    let mut rkeys = translated(Some(&all), |_| 0u32)?;
    Command::<5>::new(sys::UVERBS_OBJECT_MR, sys::IB_MKEY_METHOD_BIND_MANY)
        .slice(sys::IB_MKEY_ATTR_BIND_MANY_HANDLES, &handles)
        .slice(sys::IB_MKEY_ATTR_BIND_MANY_BINDS, &calls)
        .u32(sys::IB_MKEY_ATTR_BIND_MANY_BIND_SIZE, BIND_SIZE)
        .out(sys::IB_MKEY_ATTR_BIND_MANY_RESP_FAILED, failed)
        .out_slice(sys::IB_MKEY_ATTR_BIND_MANY_RESP_RKEYS, &mut rkeys)
        .run(fd)?;

    for ((bind, described), rkey) in binds.iter().zip(&all).zip(rkeys) {
        let length = described.length;
        // SAFETY: `bind.mkey` is an MR, by the caller's promise. The kernel has accepted it as a
        // key.
        unsafe { object::set_bound(bind.mkey, mkey::Bound { length, rkey }) };
    }
    Ok(())
}

/// Says which field of `bind` does not suit its kind of layout. Returns `None` if all of them do.
fn wrong_field(bind: &ibmkey_bind) -> Option<String> {
    match bind.kind {
        sys::IBMKEY_LIST | sys::IBMKEY_INDEXED if bind.num_dims != 0 => Some(format!(
            "num_dims is {}, and only an interleaved layout has dimensions",
            bind.num_dims
        )),
        sys::IBMKEY_LIST | sys::IBMKEY_INDEXED if !bind.repeat_count.is_null() => {
            Some("repeat_count is not NULL, and only an interleaved layout has dimensions".into())
        }
        sys::IBMKEY_LIST | sys::IBMKEY_INTERLEAVED => None,
        // SAFETY: All members of the union are pointers.
        sys::IBMKEY_INDEXED if unsafe { bind.__bindgen_anon_1.indexed }.is_null() => {
            Some("indexed is NULL".into())
        }
        sys::IBMKEY_INDEXED if bind.num_entries != 1 => Some(format!(
            "num_entries is {}, and an indexed layout has 1",
            bind.num_entries
        )),
        sys::IBMKEY_INDEXED => None,
        kind => Some(format!(
            "kind {kind} is none of IBMKEY_LIST, IBMKEY_INTERLEAVED and IBMKEY_INDEXED"
        )),
    }
}

/// Stores a sentence about a call with `binds` that failed because of the key with the number
/// `failed`.
///
/// # Safety
///
/// `binds` is NULL or points to `num` descriptions, each of which fulfils the contract of its
/// declaration.
pub(crate) unsafe fn explain(binds: *const ibmkey_bind, num: u32, failed: u32, errno: Errno) {
    if binds.is_null() {
        explain::store_sentence("binds is NULL");
        return;
    }
    if num == 0 || num > sys::IB_MKEY_MAX_BINDS {
        explain::store_sentence(&format!(
            "num is {num}, not 1 to {}",
            sys::IB_MKEY_MAX_BINDS
        ));
        return;
    }
    // SAFETY: By the caller's promise.
    let binds = unsafe { core::slice::from_raw_parts(binds, num as usize) };
    let Some(bind) = binds.get(failed as usize) else {
        explain::store_sentence(&format!("no single key is the reason: {errno}"));
        return;
    };
    let twice = binds.iter().take(failed as usize);
    if twice.clone().any(|other| other.mkey == bind.mkey) {
        explain::store_sentence(&format!("binds[{failed}].mkey is there twice"));
        return;
    }
    if bind.comp_mask & !RKEY != 0 {
        explain::store_sentence(&format!("binds[{failed}].comp_mask has an unknown bit"));
        return;
    }
    // SAFETY: By the caller's promise; `mkey` may be NULL.
    let now = unsafe { bind.mkey.as_ref() }.map_or(0, |mkey| mkey.rkey);
    if bind.comp_mask & RKEY != 0 && (bind.rkey ^ now) >> 8 != 0 {
        let rkey = bind.rkey;
        explain::store_sentence(&format!(
            "binds[{failed}].rkey {rkey:#x} differs from the key's {now:#x} in more than the low 8 bits"
        ));
        return;
    }

    if let Some(field) = wrong_field(bind) {
        explain::store_sentence(&format!("binds[{failed}].{field}"));
        return;
    }

    let mut count = bind.num_entries;
    // SAFETY: By the caller's promise, the union has the member of this kind.
    let layout = unsafe {
        match bind.kind {
            sys::IBMKEY_LIST => {
                let list = Array::from_raw(count, bind.__bindgen_anon_1.ranges);
                Layout::List(list.items().unwrap_or_default())
            }
            sys::IBMKEY_INTERLEAVED => {
                let repeat = Array::from_raw(bind.num_dims, bind.repeat_count);
                let blocks = Array::from_raw(count, bind.__bindgen_anon_1.blocks);
                Layout::Interleaved(
                    repeat.items().unwrap_or_default(),
                    blocks.items().unwrap_or_default(),
                )
            }
            // The kind is valid, and `indexed` is not NULL: `wrong_field()` checked both.
            _ => {
                let layout = &*bind.__bindgen_anon_1.indexed;
                count = layout.num_indices;
                Layout::Indexed(layout)
            }
        }
    };
    let failed_bind = Failed {
        layout,
        access: bind.access,
        count,
        dims: bind.num_dims,
    };
    // SAFETY: By the caller's promise.
    unsafe {
        explain::keep(
            bind.mkey,
            errno,
            &failed_bind,
            &format!("binds[{failed}]: "),
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_another_kind_of_layout_is_named() {
        let indexed = sys::ibmkey_indexed::default();
        let mut bind = ibmkey_bind {
            kind: sys::IBMKEY_LIST,
            num_dims: 1,
            ..ibmkey_bind::default()
        };
        let says = |bind: &ibmkey_bind, words: &str| {
            let found = wrong_field(bind).unwrap_or_default();
            assert!(found.starts_with(words), "{found}");
        };

        says(&bind, "num_dims is 1, and only an interleaved layout");
        bind.num_dims = 0;
        bind.repeat_count = &1;
        says(&bind, "repeat_count is not NULL");
        bind.repeat_count = core::ptr::null();
        assert_eq!(wrong_field(&bind), None);
        bind.kind = sys::IBMKEY_INDEXED;
        says(&bind, "indexed is NULL");
        bind.__bindgen_anon_1.indexed = &indexed;
        says(&bind, "num_entries is 0, and an indexed layout has 1");
        bind.kind = sys::IBMKEY_UNBOUND;
        says(&bind, "kind 0 is none of IBMKEY_LIST");
    }
}
