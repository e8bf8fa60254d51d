// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Work requests that bind keys.
//!
//! Such a request is `IBV_WR_BIND_MW` with the rkey of a key instead of that of a window. rxe's
//! provider copies fields of a window and of an MR from the structures that the request points to,
//! and reads nothing else there. So this module fills in only these fields.

use core::{
    mem::{
        size_of,
        size_of_val, //
    },
    slice,
};

use crate::{
    errno::{
        Errno,
        Result, //
    },
    explain::say,
    ioctl::Plain,
    many,
    mkey::{
        self,
        Bound, //
    },
    object, reason,
    sys::{
        self,
        ib_uverbs_mkey_block as Block,
        ib_uverbs_mkey_indexed as Indexed,
        ib_uverbs_mkey_layout as Layout,
        ib_uverbs_mkey_sge as Range,
        ibmkey_bind,
        ibmkey_wr,
        ibv_mr,
        ibv_mw,
        ibv_mw_bind_info,
        ibv_qp,
        ibv_qp_ex, //
    },
};

/// The bits of `ibmkey_bind.comp_mask` that `ibmkey_describe()` accepts.
pub(crate) const KNOWN: u64 =
    (sys::IBMKEY_BIND_RKEY | sys::IBMKEY_BIND_ANY_PORTION | sys::IBMKEY_BIND_REMOTE_INV) as u64;

/// Returns `ib_uverbs_mkey_layout.comp_mask` for `ibmkey_bind.comp_mask`.
fn layout_mask(bind: u64) -> u32 {
    let bits = [
        (
            sys::IBMKEY_BIND_ANY_PORTION,
            sys::IB_UVERBS_MKEY_LAYOUT_ANY_PORTION,
        ),
        (
            sys::IBMKEY_BIND_REMOTE_INV,
            sys::IB_UVERBS_MKEY_LAYOUT_REMOTE_INV,
        ),
    ];

    bits.iter()
        .filter(|(own, _)| bind & u64::from(*own) != 0)
        .fold(0, |mask, (_, uapi)| mask | uapi)
}

/// Returns the `count` entries of a description.
///
/// # Safety
///
/// `entries` is NULL or points to `count` elements.
unsafe fn some<'a, T>(count: u32, most: u32, entries: *const T) -> Result<&'a [T]> {
    if count == 0 {
        return Err(reason::invalid(sys::IB_UVERBS_MKEY_REASON_EMPTY, 0));
    }
    if count > most {
        let reason = sys::IB_UVERBS_MKEY_REASON_TOO_MANY;
        return Err(reason::invalid(reason, most.into()));
    }
    if entries.is_null() {
        return Err(say(Errno::EINVAL, "the array of entries is NULL"));
    }
    // SAFETY: By the caller's promise.
    Ok(unsafe { slice::from_raw_parts(entries, count as usize) })
}

/// Stores the sentence about a number of the layout that is 0.
fn zero(bind: &ibmkey_bind, reason: u32, entry: usize, value: usize) -> Errno {
    let refused = reason::Refused {
        // CAST: A description has fewer than 2^32 entries.
        entry: entry as u32,
        value: value as u64,
        ..reason::of(reason)
    };
    reason::refused(Errno::EINVAL, &refused, Some(&many::layout(bind)))
}

/// Memory for a description. The description may be longer than the memory.
pub(crate) struct Writer {
    to: *mut u8,
    room: usize,
    /// The number of bytes of the description so far.
    length: usize,
}

impl Writer {
    /// # Safety
    ///
    /// The `room` bytes at `to` may be written as long as the result exists.
    pub(crate) unsafe fn new(to: *mut u8, room: usize) -> Self {
        Self {
            to,
            room,
            length: 0,
        }
    }

    /// Adds a value. If the value does not fit, only counts its bytes.
    fn add<T: Plain>(&mut self, value: &T) -> Result {
        let end = self
            .length
            .checked_add(size_of_val(value))
            .ok_or(Errno::EINVAL)?;

        if end <= self.room {
            // SAFETY: As checked above, the bytes are among those that may be written by the
            // contract of `new()`. A plain value has no padding.
            unsafe {
                let to = self.to.add(self.length);
                to.copy_from_nonoverlapping(
                    core::ptr::from_ref(value).cast::<u8>(),
                    size_of_val(value),
                );
            }
        }
        self.length = end;
        Ok(())
    }

    /// Writes the header of a description whose entries are of type `T`.
    fn begin<T>(&mut self, bind: &ibmkey_bind, base: u64) -> Result {
        let base_mask = match base {
            0 => 0,
            _ => sys::IB_UVERBS_MKEY_LAYOUT_BASE,
        };
        self.add(&Layout {
            version: sys::IB_MKEY_LAYOUT_VERSION,
            kind: bind.kind,
            num_entries: bind.num_entries,
            // CAST: An entry is much smaller than 4 GiB.
            entry_size: size_of::<T>() as u32,
            num_dims: bind.num_dims,
            comp_mask: layout_mask(bind.comp_mask) | base_mask,
        })?;
        match base {
            0 => Ok(()),
            _ => self.add(&base),
        }
    }

    /// Writes the description of the layout in `bind` with the base address `base`, as far as it fits.
    /// Returns the length of the whole description.
    ///
    /// # Safety
    ///
    /// `bind` fulfils the contract of its declaration.
    pub(crate) unsafe fn describe(mut self, bind: &ibmkey_bind, base: u64) -> Result<usize> {
        if bind.comp_mask & !KNOWN != 0 {
            let reason = sys::IB_UVERBS_MKEY_REASON_COMP_MASK;
            return Err(reason::invalid(reason, bind.comp_mask));
        }
        match bind.kind {
            // SAFETY: By the caller's promise, and the kind is that of the method.
            sys::IBMKEY_LIST => unsafe { self.list(bind, base) }?,
            // SAFETY: As above.
            sys::IBMKEY_INTERLEAVED => unsafe { self.interleaved(bind, base) }?,
            // SAFETY: As above.
            sys::IBMKEY_INDEXED => unsafe { self.indexed(bind, base) }?,
            kind => {
                let reason = sys::IB_UVERBS_MKEY_REASON_KIND;
                return Err(reason::invalid(reason, kind.into()));
            }
        }
        Ok(self.length)
    }

    /// # Safety
    ///
    /// As for [`Self::describe`].
    unsafe fn list(&mut self, bind: &ibmkey_bind, base: u64) -> Result {
        self.begin::<Range>(bind, base)?;
        let most = sys::IB_MKEY_MAX_ENTRIES;
        // SAFETY: By the caller's promise.
        let ranges = unsafe { some(bind.num_entries, most, bind.__bindgen_anon_1.ranges) }?;
        for (at, range) in ranges.iter().enumerate() {
            if range.length == 0 {
                return Err(zero(bind, sys::IB_UVERBS_MKEY_REASON_NO_BYTES, at, 0));
            }
            self.add(range)?;
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As for [`Self::describe`].
    unsafe fn interleaved(&mut self, bind: &ibmkey_bind, base: u64) -> Result {
        if bind.num_dims == 0 || bind.num_dims > sys::IB_MKEY_MAX_DIMS {
            let reason = sys::IB_UVERBS_MKEY_REASON_DIMS;
            return Err(reason::invalid(reason, bind.num_dims.into()));
        }
        if bind.repeat_count.is_null() {
            return Err(say(Errno::EFAULT, "repeat_count is NULL"));
        }

        self.begin::<Block>(bind, base)?;
        // SAFETY: By the caller's promise. As checked above, the pointer is not NULL.
        let counts = unsafe { slice::from_raw_parts(bind.repeat_count, bind.num_dims as usize) };
        for (dim, count) in counts.iter().enumerate() {
            if *count == 0 {
                return Err(zero(bind, sys::IB_UVERBS_MKEY_REASON_NO_REPEAT, 0, dim));
            }
            self.add(count)?;
        }
        let most = sys::IB_MKEY_MAX_ENTRIES;
        // SAFETY: By the caller's promise.
        let blocks = unsafe { some(bind.num_entries, most, bind.__bindgen_anon_1.blocks) }?;
        for (at, block) in blocks.iter().enumerate() {
            if block.bytes_count == 0 {
                return Err(zero(bind, sys::IB_UVERBS_MKEY_REASON_NO_BYTES, at, 0));
            }
            self.add(block)?;
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As for [`Self::describe`].
    unsafe fn indexed(&mut self, bind: &ibmkey_bind, base: u64) -> Result {
        // SAFETY: By the caller's promise.
        let layout = unsafe { bind.__bindgen_anon_1.indexed.as_ref() }
            .ok_or_else(|| say(Errno::EFAULT, "indexed is NULL"))?;
        let (count, most) = (layout.num_indices, sys::IB_MKEY_MAX_INDICES);
        let indices = core::ptr::with_exposed_provenance::<()>(layout.indices as usize);

        if layout.comp_mask != 0 {
            let reason = sys::IB_UVERBS_MKEY_REASON_COMP_MASK;
            return Err(reason::invalid(reason, layout.comp_mask.into()));
        }
        for (number, reason) in [
            (layout.bytes_count, sys::IB_UVERBS_MKEY_REASON_NO_BYTES),
            (layout.unit, sys::IB_UVERBS_MKEY_REASON_NO_UNIT),
        ] {
            if number == 0 {
                return Err(zero(bind, reason, 0, 0));
            }
        }
        self.begin::<Indexed>(bind, base)?;
        self.add(&Indexed {
            indices: 0,
            ..*layout
        })?;
        // SAFETY: By the caller's promise, there are as many indices of this size.
        unsafe {
            match layout.index_bytes {
                4 => {
                    let indices = some(count, most, indices.cast::<u32>())?;
                    indices.iter().try_for_each(|index| self.add(index))
                }
                8 => {
                    let indices = some(count, most, indices.cast::<u64>())?;
                    indices.iter().try_for_each(|index| self.add(index))
                }
                bytes => {
                    let reason = sys::IB_UVERBS_MKEY_REASON_INDEX_BYTES;
                    Err(reason::invalid(reason, bytes.into()))
                }
            }
        }
    }
}

/// The structures that a request points to, and the fields of the request itself.
struct Parts {
    window: ibv_mw,
    rkey: u32,
    info: ibv_mw_bind_info,
}

/// # Safety
///
/// `wr` fulfils the contract of its declaration. `mr` is an MR.
unsafe fn parts(wr: &ibmkey_wr, mr: *mut ibv_mr) -> Result<Parts> {
    if wr.comp_mask != 0 {
        let reason = sys::IB_UVERBS_MKEY_REASON_COMP_MASK;
        return Err(reason::invalid(reason, wr.comp_mask));
    }
    // SAFETY: By the caller's promise.
    let mkey = unsafe { wr.mkey.as_ref() };
    let mkey = mkey.ok_or_else(|| say(Errno::EINVAL, "wr.mkey is NULL"))?;

    Ok(Parts {
        window: ibv_mw {
            context: mkey.context,
            pd: mkey.pd,
            rkey: mkey.rkey,
            type_: sys::IBV_MW_TYPE_2,
            ..ibv_mw::default()
        },
        rkey: match wr.rkey {
            0 => mkey.rkey,
            rkey => rkey,
        },
        info: ibv_mw_bind_info {
            mr,
            addr: wr.addr,
            length: wr.length.into(),
            mw_access_flags: wr.access,
        },
    })
}

/// Sets the lkey and the rkey of a key, which are equal on all devices that support such requests,
/// and the length, if `layout` is known.
///
/// # Safety
///
/// `mkey` is a key, and `layout` is NULL or fulfils the contract of its declaration.
unsafe fn rekey(mkey: *mut ibv_mr, rkey: u32, layout: *const ibmkey_bind) {
    // SAFETY: By the caller's promise.
    unsafe {
        let length = match layout.as_ref() {
            Some(layout) => mkey::length(&many::layout(layout)),
            None => (*mkey).length,
        };
        object::set_bound(mkey, Bound { length, rkey });
    }
}

/// Posts a request.
///
/// # Safety
///
/// `qp` is a QP, and `wr` fulfils the contract of its declaration.
pub(crate) unsafe fn post(qp: *mut ibv_qp, wr: &ibmkey_wr, wr_id: u64, send_flags: u32) -> Result {
    // SAFETY: By the caller's promise.
    let mut parts = unsafe { parts(wr, wr.mr) }?;
    if qp.is_null() || wr.length == 0 {
        return Err(no_length());
    }
    if wr.mr.is_null() {
        let words = "wr.mr is NULL: only ibmkey_wr_bind() takes a description that is inline";
        return Err(say(Errno::EINVAL, words));
    }
    let mut send = sys::ibv_send_wr {
        wr_id,
        opcode: sys::IBV_WR_BIND_MW,
        send_flags,
        ..sys::ibv_send_wr::default()
    };
    send.__bindgen_anon_2.bind_mw.mw = &mut parts.window;
    send.__bindgen_anon_2.bind_mw.rkey = parts.rkey;
    send.__bindgen_anon_2.bind_mw.bind_info = parts.info;

    // SAFETY: By the caller's promise.
    unsafe {
        post_send(qp, &mut send)?;
        rekey(wr.mkey, parts.rkey, wr.layout);
    }
    Ok(())
}

fn no_length() -> Errno {
    say(Errno::EINVAL, "wr.length is 0")
}

/// Explains an error of the provider for a request.
fn refused_by_qp(errno: Errno) -> Errno {
    let words = match errno {
        Errno::ENOMEM => "the send queue of qp is full".to_owned(),
        Errno::EOPNOTSUPP => {
            "qp was created without the send operations IBV_QP_EX_WITH_BIND_MW and \
             IBV_QP_EX_WITH_LOCAL_INV"
                .to_owned()
        }
        _ => format!("qp refused the request: {errno}; its state may be wrong"),
    };
    say(errno, &words)
}

/// Posts a request to the QP. The provider stores no pointer of the request, so the structures that
/// the request points to need not outlive this call.
///
/// # Safety
///
/// `qp` is a QP, and `send` a valid request.
unsafe fn post_send(qp: *mut ibv_qp, send: &mut sys::ibv_send_wr) -> Result {
    let mut bad = core::ptr::null_mut();
    // SAFETY: By the caller's promise.
    let ret = unsafe {
        let post_send = (*(*qp).context).ops.post_send.ok_or(Errno::EOPNOTSUPP)?;
        post_send(qp, send, &mut bad)
    };
    Errno::check(ret).map_err(refused_by_qp)
}

/// Returns `rkey` with the next key portion, which the key has after the kernel unbinds it.
fn next(rkey: u32) -> u32 {
    (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff)
}

/// Posts a request that unbinds a key.
///
/// # Safety
///
/// `qp` is a QP or NULL, and `mkey` is a key or NULL.
pub(crate) unsafe fn post_unbind(
    qp: *mut ibv_qp,
    mkey: *mut ibv_mr,
    wr_id: u64,
    send_flags: u32,
) -> Result {
    if qp.is_null() || mkey.is_null() {
        return Err(Errno::EINVAL);
    }

    // SAFETY: `mkey` is not NULL, so it is a key, by the caller's promise.
    let rkey = unsafe { (*mkey).rkey };
    let mut send = sys::ibv_send_wr {
        wr_id,
        opcode: sys::IBV_WR_LOCAL_INV,
        send_flags,
        ..sys::ibv_send_wr::default()
    };
    send.__bindgen_anon_1.invalidate_rkey = rkey;
    // SAFETY: By the caller's promise.
    unsafe {
        post_send(qp, &mut send)?;
        rekey(mkey, next(rkey), core::ptr::null());
    }
    Ok(())
}

/// Adds a request that unbinds a key to those that `ibv_wr_complete()` posts.
///
/// # Safety
///
/// `qp` is a QP between `ibv_wr_start()` and `ibv_wr_complete()`, or NULL, and `mkey` is a key or
/// NULL.
pub(crate) unsafe fn add_unbind(qp: *mut ibv_qp_ex, mkey: *mut ibv_mr) -> Result {
    if qp.is_null() || mkey.is_null() {
        return Err(Errno::EINVAL);
    }

    // SAFETY: By the caller's promise; neither pointer is NULL.
    unsafe {
        let none = || refused_by_qp(Errno::EOPNOTSUPP);
        let local_inv = (*qp).wr_local_inv.ok_or_else(none)?;
        let rkey = (*mkey).rkey;
        local_inv(qp, rkey);
        rekey(mkey, next(rkey), core::ptr::null());
    }
    Ok(())
}

/// Adds a request to those that `ibv_wr_complete()` posts.
///
/// # Safety
///
/// `qp` is a QP between `ibv_wr_start()` and `ibv_wr_complete()`, and `wr` fulfils the contract of
/// its declaration.
pub(crate) unsafe fn add(qp: *mut ibv_qp_ex, wr: &ibmkey_wr) -> Result {
    if qp.is_null() || wr.length == 0 {
        return Err(no_length());
    }

    // SAFETY: By the caller's promise.
    let ops = unsafe { ((*qp).wr_bind_mw, (*qp).wr_set_inline_data) };
    let (Some(bind_mw), Some(set_inline_data)) = ops else {
        return Err(refused_by_qp(Errno::EOPNOTSUPP));
    };
    let is_inline = wr.mr.is_null();
    // The provider reads the lkey of an MR even if the request needs none.
    let mut none = ibv_mr::default();
    let mr = if is_inline { &mut none } else { wr.mr };
    // SAFETY: By the caller's promise.
    let mut parts = unsafe { parts(wr, mr) }?;

    if is_inline {
        parts.info.addr = 0;
        parts.info.length = 0;
    }
    // SAFETY: By the caller's promise. The provider copies the description, and stores no pointer
    // of the request.
    unsafe {
        bind_mw(qp, &mut parts.window, parts.rkey, &parts.info);
        if is_inline {
            let data = core::ptr::with_exposed_provenance_mut(wr.addr as usize);
            set_inline_data(qp, data, wr.length as usize);
        }
        rekey(wr.mkey, parts.rkey, wr.layout);
    }
    Ok(())
}

/// Posts a request with an inline description.
///
/// # Safety
///
/// `qp` is NULL or a QP, and `bind` fulfils the contract of its declaration.
pub(crate) unsafe fn post_layout(
    qp: *mut ibv_qp_ex,
    bind: &ibmkey_bind,
    wr_id: u64,
    send_flags: u32,
) -> Result {
    // SAFETY: By the caller's promise.
    let key = unsafe { bind.mkey.as_ref() };
    let key = key.ok_or_else(|| say(Errno::EINVAL, "bind.mkey is NULL"))?;
    let before = Bound {
        length: key.length,
        rkey: key.rkey,
    };
    let mut text = Vec::<u8>::new();
    // SAFETY: By the caller's promise; nothing is written to a room of 0 bytes.
    let length = unsafe { Writer::new(core::ptr::null_mut(), 0).describe(bind, 0) }?;
    text.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
    text.resize(length, 0);
    // SAFETY: By the caller's promise.
    unsafe { Writer::new(text.as_mut_ptr(), length).describe(bind, 0) }?;
    let wr = ibmkey_wr {
        mkey: bind.mkey,
        addr: text.as_ptr().expose_provenance() as u64,
        // CAST: A description has less than 4 GiB.
        length: length as u32,
        access: bind.access,
        rkey: match bind.comp_mask & u64::from(sys::IBMKEY_BIND_RKEY) {
            0 => 0,
            _ => bind.rkey,
        },
        layout: bind,
        ..ibmkey_wr::default()
    };

    if qp.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: By the caller's promise; `qp` is not NULL.
    unsafe {
        let functions = ((*qp).wr_start, (*qp).wr_complete, (*qp).wr_abort);
        let (Some(start), Some(complete), Some(abort)) = functions else {
            return Err(refused_by_qp(Errno::EOPNOTSUPP));
        };
        start(qp);
        (*qp).wr_id = wr_id;
        (*qp).wr_flags = send_flags;
        add(qp, &wr).inspect_err(|_| abort(qp))?;
        Errno::check(complete(qp)).map_err(|errno| {
            object::set_bound(bind.mkey, before);
            match errno {
                Errno::EINVAL | Errno::ENOSPC => {
                    let words = "is longer than the max_inline_data of qp, or its queue is full";
                    say(errno, &format!("the description of {length} bytes {words}"))
                }
                _ => refused_by_qp(errno),
            }
        })
    }
}

const _: () = assert!(size_of::<Layout>() == 24);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::last_text;

    /// Checks that a layout cannot be described, and the sentence.
    fn refused(bind: &ibmkey_bind, words: &str) {
        // SAFETY: The arrays of the layout are in the test. Nothing is written.
        let described = unsafe { Writer::new(core::ptr::null_mut(), 0).describe(bind, 0) };
        assert_eq!(described, Err(Errno::EINVAL));
        assert_eq!(last_text(), words);
    }

    #[test]
    fn a_number_that_is_zero_is_named() {
        let mut bind = ibmkey_bind {
            kind: sys::IBMKEY_LIST,
            num_entries: 1,
            ..ibmkey_bind::default()
        };
        let (range, repeat) = (Range::default(), [1u64, 0]);
        let mut blocks = [Block::default(), Block::default()];
        let mut table = Indexed::default();

        bind.__bindgen_anon_1.ranges = &range;
        refused(&bind, "ranges[0].length is 0");
        (bind.kind, bind.num_entries, bind.num_dims) = (sys::IBMKEY_INTERLEAVED, 2, 2);
        bind.repeat_count = repeat.as_ptr();
        bind.__bindgen_anon_1.blocks = blocks.as_ptr();
        refused(&bind, "repeat_count[1] is 0");
        bind.num_dims = 1;
        refused(&bind, "blocks[0].bytes_count is 0");
        blocks[0].bytes_count = 1;
        refused(&bind, "blocks[1].bytes_count is 0");
        (bind.kind, bind.num_entries, bind.num_dims) = (sys::IBMKEY_INDEXED, 1, 0);
        bind.__bindgen_anon_1.indexed = &table;
        refused(&bind, "bytes_count is 0");
        table.bytes_count = 8;
        refused(&bind, "unit is 0");
    }
}
