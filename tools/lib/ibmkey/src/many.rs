// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Binds several keys in one call, all or none.

use core::ffi::c_int;

use crate::{
    errno::{
        Errno,
        Result, //
    },
    explain::say,
    ioctl::Command,
    mkey, object,
    reason::{
        self,
        Refused, //
    },
    sys::{
        self,
        ib_uverbs_mkey_bind as Bind,
        ibmkey_bind, //
    },
};

/// The bit of `ibmkey_bind.comp_mask` that says that the field `rkey` is valid.
const RKEY: u64 = sys::IBMKEY_BIND_RKEY as u64;

/// Returns the description of a key for the kernel, which checks it.
pub(crate) fn describe(bind: &ibmkey_bind) -> Result<Bind> {
    if bind.comp_mask & !RKEY != 0 {
        return Err(reason::invalid(
            sys::IB_UVERBS_MKEY_REASON_COMP_MASK,
            bind.comp_mask,
        ));
    }
    Ok(layout(bind))
}

/// Returns the layout of a key in the structure of the kernel.
pub(crate) fn layout(bind: &ibmkey_bind) -> Bind {
    // SAFETY: All members of the union are pointers.
    let entries = unsafe { bind.__bindgen_anon_1.ranges };
    let layout = match bind.kind {
        sys::IBMKEY_INTERLEAVED => {
            let (dims, repeat) = (bind.num_dims, bind.repeat_count);
            mkey::interleaved(bind.access, dims, repeat, 0, entries.cast())
        }
        sys::IBMKEY_INDEXED => mkey::indexed(bind.access, entries.cast()),
        _ => mkey::list(bind.access, 0, entries),
    };
    let has_rkey = bind.comp_mask & RKEY != 0;

    Bind {
        kind: bind.kind,
        num_entries: bind.num_entries,
        // The kernel refuses these unless the layout is interleaved.
        num_dims: bind.num_dims,
        repeat_count: bind.repeat_count as u64,
        comp_mask: match has_rkey {
            true => sys::IB_UVERBS_MKEY_BIND_RKEY,
            false => 0,
        },
        rkey: match has_rkey {
            true => bind.rkey,
            false => 0,
        },
        ..layout
    }
}

fn with_room_for<T>(count: usize) -> Result<Vec<T>> {
    let mut items = Vec::new();

    items.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    Ok(items)
}

/// Binds all of `binds`, or none. On an error, `failed` becomes the number of the key that caused
/// it, or the number of keys if no key did.
///
/// # Safety
///
/// Each of `binds` fulfils the contract of its declaration.
pub(crate) unsafe fn bind(binds: &[ibmkey_bind], failed: &mut u32) -> Result {
    let num = binds.len();

    *failed = num as u32;
    if num == 0 || num > sys::IB_MKEY_MAX_BINDS as usize {
        let reason = sys::IB_UVERBS_MKEY_REASON_NUM_KEYS;
        return Err(reason::invalid(reason, num as u64));
    }

    let mut fd: c_int = -1;
    let (mut handles, mut layouts) = (with_room_for(num)?, with_room_for(num)?);
    let mut rkeys = with_room_for(num)?;
    for (number, bind) in binds.iter().enumerate() {
        // CAST: `number` is less than the number of `binds`, which was checked above.
        *failed = number as u32;
        // SAFETY: By the caller's promise.
        let (its_fd, handle) = unsafe { object::mr_handle(bind.mkey) }
            .map_err(|errno| say(errno, &format!("binds[{number}].mkey is NULL")))?;
        if number > 0 && its_fd != fd {
            return Err(reason::invalid(sys::IB_UVERBS_MKEY_REASON_OTHER_DEVICE, 0));
        }
        fd = its_fd;
        handles.push(handle);
        layouts.push(describe(bind)?);
        rkeys.push(0u32);
    }

    let mut refused = Refused::default();
    *failed = num as u32;
    Command::<6>::new(sys::UVERBS_OBJECT_MR, sys::IB_MKEY_METHOD_BIND_MANY)
        .slice(sys::IB_MKEY_ATTR_BIND_MANY_HANDLES, &handles)
        .slice(sys::IB_MKEY_ATTR_BIND_MANY_BINDS, &layouts)
        // CAST: The size is 56.
        .u32(
            sys::IB_MKEY_ATTR_BIND_MANY_BIND_SIZE,
            size_of::<Bind>() as u32,
        )
        .out(sys::IB_MKEY_ATTR_BIND_MANY_RESP_FAILED, failed)
        .out_slice(sys::IB_MKEY_ATTR_BIND_MANY_RESP_RKEYS, &mut rkeys)
        .hint(sys::IB_MKEY_ATTR_BIND_MANY_RESP_REFUSED, &mut refused)
        .run(fd)
        .map_err(|errno| {
            let layout = layouts.get(*failed as usize);
            let name = layout.map_or(String::new(), |_| format!("binds[{failed}]: "));
            reason::named(errno, &name, &refused, layout)
        })?;

    for ((bind, layout), rkey) in binds.iter().zip(&layouts).zip(rkeys) {
        // SAFETY: By the caller's promise. The kernel has read the arrays, and has accepted
        // `bind.mkey` as a key.
        unsafe {
            let length = mkey::length(layout);
            object::set_bound(bind.mkey, mkey::Bound { length, rkey });
        }
    }
    Ok(())
}
