// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Work requests that configure mkeys, between `wr_start` and `wr_complete`.
//!
//! Each request that configures an mkey becomes a request that binds the key. The functions of
//! mlx5dv return no errors: `wr_complete` returns the first one.

use ibmkey::{
    explain::say,
    ffi,
    sys::{
        ibmkey_wr,
        ibv_ah,
        ibv_sge,
        IBV_ACCESS_LOCAL_WRITE,
        IBV_ACCESS_RELAXED_ORDERING,
        IBV_ACCESS_REMOTE_ATOMIC,
        IBV_ACCESS_REMOTE_READ,
        IBV_ACCESS_REMOTE_WRITE,
        IBV_SEND_INLINE, //
    },
    Errno,
    Result, //
};

use crate::{
    description::Description,
    mkey::{
        Bound,
        Mkey, //
    },
    qp::State,
    staging::Progress,
    sys::{
        self,
        mlx5dv_crypto_attr,
        mlx5dv_mkey,
        mlx5dv_mkey_conf_attr,
        mlx5dv_mr_interleaved,
        mlx5dv_qp_ex,
        mlx5dv_sig_block_attr, //
    },
};

/// The access flags that an mkey may have. `IBV_ACCESS_RELAXED_ORDERING` is a hint.
const ACCESS: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_RELAXED_ORDERING;

fn no_request() -> Errno {
    say(Errno::EINVAL, "a setter without a request that expects it")
}

/// A request whose setters have not all been called.
struct Request {
    mkey: *mut mlx5dv_mkey,
    /// The fields `wr_id` and `wr_flags` of the QP when the request began.
    wr_id: u64,
    wr_flags: u32,
    /// The number of setters that are still to be called.
    setters: u8,
    access: Option<u32>,
    has_layout: bool,
}

/// The requests that a program adds between `wr_start` and `wr_complete`.
pub(crate) struct Building {
    request: Option<Request>,
    error: Option<Errno>,
    description: Description,
    progress: Progress,
}

impl Building {
    pub(crate) fn new(progress: Progress) -> Self {
        Self {
            request: None,
            error: None,
            description: Description::default(),
            progress,
        }
    }

    /// Drops the request and the error of the last batch, and begins a new batch.
    pub(crate) fn begin(&mut self) {
        self.request = None;
        self.error = None;
        self.progress.added = 0;
        self.progress.batch = self.progress.batch.wrapping_add(1);
    }

    /// Returns an error if `wr_complete` must not post the requests: a request failed or is not
    /// complete.
    pub(crate) fn check(&self) -> Result {
        match (self.error, &self.request) {
            (Some(errno), _) => Err(errno),
            (None, Some(_)) => Err(say(Errno::EINVAL, "a request lacks setters")),
            (None, None) => Ok(()),
        }
    }

    /// Counts the requests that were added as posted.
    pub(crate) fn posted(&mut self) {
        let progress = &mut self.progress;
        progress.posted = progress.posted.wrapping_add(progress.added);
    }

    /// Begins a request. Returns `EINVAL` if an earlier one is not complete.
    ///
    /// # Safety
    ///
    /// `mkey` is NULL or an mkey.
    unsafe fn request(
        &mut self,
        state: &State,
        flag: u32,
        mkey: *mut mlx5dv_mkey,
    ) -> Result<&mut Request> {
        // SAFETY: By the invariant of `State`, the QP exists.
        let (wr_id, wr_flags) = unsafe { ((*state.qp).wr_id, (*state.qp).wr_flags) };

        if state.allowed & u64::from(flag) == 0 {
            let words = "the QP was created without this request in send_ops_flags";
            return Err(say(Errno::EOPNOTSUPP, words));
        }
        if wr_flags & IBV_SEND_INLINE == 0 {
            return Err(say(Errno::EOPNOTSUPP, "wr_flags lacks IBV_SEND_INLINE"));
        }
        if self.request.is_some() {
            return Err(say(Errno::EINVAL, "the request before lacks setters"));
        }
        // SAFETY: By the caller's promise.
        unsafe { Mkey::from_raw(mkey) }.map_err(|errno| say(errno, "mkey is NULL"))?;
        Ok(self.request.insert(Request {
            mkey,
            wr_id,
            wr_flags,
            setters: 0,
            access: None,
            has_layout: false,
        }))
    }

    fn set_access(&mut self, access: u32) -> Result {
        let request = self.request.as_mut().ok_or_else(no_request)?;

        if request.access.is_some() {
            return Err(say(
                Errno::EINVAL,
                "the request has two setters of access flags",
            ));
        }
        if access & !ACCESS != 0 {
            let words = format!("access_flags {access:#x} has a flag that an mkey cannot have");
            return Err(say(Errno::EINVAL, &words));
        }
        request.access = Some(access);
        Ok(())
    }

    /// Sets the layout to the one that `describe` writes.
    fn set_layout(
        &mut self,
        num: u16,
        describe: impl FnOnce(&mut Description, u64) -> Result,
    ) -> Result {
        let request = self.request.as_mut().ok_or_else(no_request)?;

        if request.has_layout {
            return Err(say(
                Errno::EINVAL,
                "the request has two setters of a layout",
            ));
        }
        // SAFETY: The request has an mkey, as `request()` checked.
        let mkey = unsafe { Mkey::from_raw(request.mkey) }?;
        if num > mkey.max_entries {
            let most = mkey.max_entries;
            let words = format!("{num} entries, and the mkey was created for {most}");
            return Err(say(Errno::ENOMEM, &words));
        }
        request.has_layout = true;
        describe(&mut self.description, mkey.mask)
    }

    /// Counts a call of a setter. After the last setter, adds the request.
    fn set(&mut self, state: &State) -> Result {
        let request = self.request.as_mut().ok_or_else(no_request)?;

        request.setters = request.setters.checked_sub(1).ok_or_else(no_request)?;
        match request.setters {
            0 => self.finish(state),
            _ => Ok(()),
        }
    }

    /// Adds the request, with the layout and the access flags of the mkey's last request in place
    /// of those that were not set.
    fn finish(&mut self, state: &State) -> Result {
        let request = self.request.take().ok_or_else(no_request)?;
        // SAFETY: The request has an mkey, as `request()` checked.
        let mkey = unsafe { Mkey::from_raw(request.mkey) }?;
        let bound = &mut *mkey.bound();
        let access = request.access.unwrap_or(bound.access);

        if !request.has_layout {
            if bound.text.is_empty() {
                let words = "the request has no layout, and no earlier request of the mkey had one";
                return Err(say(Errno::EOPNOTSUPP, words));
            }
            self.add(state, &request, mkey, bound, access)?;
        } else {
            core::mem::swap(&mut bound.text, &mut self.description.text);
            self.add(state, &request, mkey, bound, access)
                .inspect_err(|_| {
                    core::mem::swap(&mut bound.text, &mut self.description.text);
                })?;
        }
        bound.access = access;
        Ok(())
    }

    /// Adds a request that binds the key to `bound.text`.
    fn add(
        &mut self,
        state: &State,
        request: &Request,
        mkey: &Mkey,
        bound: &mut Bound,
        access: u32,
    ) -> Result {
        let is_inline = bound.text.len() <= state.max_inline;
        let (mr, addr) = if is_inline {
            let addr = bound.text.as_ptr().expose_provenance() as u64;
            (core::ptr::null_mut(), addr)
        } else {
            // SAFETY: `mkey.pd()` is the protection domain of the mkey.
            unsafe {
                bound
                    .staging
                    .place(mkey.pd(), &bound.text, &mut self.progress)
            }?
        };
        let wr = ibmkey_wr {
            mkey: mkey.mr,
            mr,
            addr,
            length: u32::try_from(bound.text.len()).map_err(|_| Errno::ENOMEM)?,
            access,
            ..ibmkey_wr::default()
        };
        let qp = state.qp;

        // SAFETY: The QP exists, and this thread is between `wr_start` and `wr_complete`. The
        // provider copies an inline description. Any other description stays in its slot until the
        // request was executed.
        let ret = unsafe {
            let saved = ((*qp).wr_id, (*qp).wr_flags);

            (*qp).wr_id = request.wr_id;
            (*qp).wr_flags = request.wr_flags & !IBV_SEND_INLINE;
            let ret = ffi::ibmkey_wr_bind(qp, &wr);
            if !is_inline && ret == 0 {
                mark(state);
            }
            ((*qp).wr_id, (*qp).wr_flags) = saved;
            ret
        };
        Errno::check(ret)
    }
}

/// Gives the request that was added last an inline byte, so that `completion.rs` recognises its
/// completion. The kernel does not read the byte.
///
/// # Safety
///
/// The QP of `state` exists, and this thread is between `wr_start` and `wr_complete`.
unsafe fn mark(state: &State) {
    let mut byte = 0u8;

    // SAFETY: By the caller's promise. The provider copies the byte.
    unsafe {
        if let Some(set_inline_data) = (*state.qp).wr_set_inline_data {
            set_inline_data(state.qp, (&raw mut byte).cast(), 1);
        }
    }
}

/// Calls `build`, unless an earlier call failed. Stores the error of `build`.
///
/// # Safety
///
/// `ops` are the functions of a QP, and this thread is between `wr_start` and `wr_complete` of that
/// QP.
unsafe fn build(ops: *mut mlx5dv_qp_ex, build: impl FnOnce(&mut Building, &State) -> Result) {
    // SAFETY: By the caller's promise.
    let state = unsafe { State::from_ops(ops) };
    // SAFETY: As above.
    let building = unsafe { state.building() };

    if building.error.is_none() {
        building.error = build(building, state).err();
    }
}

unsafe extern "C" fn mr_list(
    ops: *mut mlx5dv_qp_ex,
    mkey: *mut mlx5dv_mkey,
    access: u32,
    num: u16,
    sge: *mut ibv_sge,
) {
    // SAFETY: By the contract in `mlx5dv.h`.
    unsafe {
        build(ops, |building, state| {
            building.request(state, sys::MLX5DV_QP_EX_WITH_MR_LIST, mkey)?;
            building.set_access(access)?;
            building.set_layout(num, |to, mask| to.list(mask, num, sge))?;
            building.finish(state)
        });
    }
}

unsafe extern "C" fn mr_interleaved(
    ops: *mut mlx5dv_qp_ex,
    mkey: *mut mlx5dv_mkey,
    access: u32,
    repeat_count: u32,
    num: u16,
    data: *mut mlx5dv_mr_interleaved,
) {
    // SAFETY: By the contract in `mlx5dv.h`.
    unsafe {
        build(ops, |building, state| {
            building.request(state, sys::MLX5DV_QP_EX_WITH_MR_INTERLEAVED, mkey)?;
            building.set_access(access)?;
            building.set_layout(num, |to, mask| {
                to.interleaved(mask, repeat_count, num, data)
            })?;
            building.finish(state)
        });
    }
}

unsafe extern "C" fn mkey_configure(
    ops: *mut mlx5dv_qp_ex,
    mkey: *mut mlx5dv_mkey,
    setters: u8,
    attr: *mut mlx5dv_mkey_conf_attr,
) {
    // SAFETY: By the contract in `mlx5dv.h`.
    unsafe {
        build(ops, |building, state| {
            let attr = attr
                .as_ref()
                .ok_or_else(|| say(Errno::EINVAL, "attr is NULL"))?;
            let request = building.request(state, sys::MLX5DV_QP_EX_WITH_MKEY_CONFIGURE, mkey)?;

            request.setters = setters;
            if attr.comp_mask != 0
                || attr.conf_flags & !sys::MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR != 0
            {
                let words = "comp_mask or conf_flags has a bit that is not offered";
                return Err(say(Errno::EOPNOTSUPP, words));
            }
            match setters {
                0 => building.finish(state),
                _ => Ok(()),
            }
        });
    }
}

unsafe extern "C" fn set_access_flags(ops: *mut mlx5dv_qp_ex, access: u32) {
    // SAFETY: By the contract in `mlx5dv.h`.
    unsafe {
        build(ops, |building, state| {
            building.set_access(access)?;
            building.set(state)
        });
    }
}

unsafe extern "C" fn set_layout_list(ops: *mut mlx5dv_qp_ex, num: u16, sge: *const ibv_sge) {
    // SAFETY: By the contract in `mlx5dv.h`.
    unsafe {
        build(ops, |building, state| {
            building.set_layout(num, |to, mask| to.list(mask, num, sge))?;
            building.set(state)
        });
    }
}

unsafe extern "C" fn set_layout_interleaved(
    ops: *mut mlx5dv_qp_ex,
    repeat_count: u32,
    num: u16,
    data: *const mlx5dv_mr_interleaved,
) {
    // SAFETY: By the contract in `mlx5dv.h`.
    unsafe {
        build(ops, |building, state| {
            building.set_layout(num, |to, mask| {
                to.interleaved(mask, repeat_count, num, data)
            })?;
            building.set(state)
        });
    }
}

unsafe fn refuse(ops: *mut mlx5dv_qp_ex) {
    // SAFETY: By the contract in `mlx5dv.h`.
    unsafe {
        build(ops, |_, _| {
            Err(say(
                Errno::EOPNOTSUPP,
                "signatures, encryption, raw WQEs, DC and memcpy are not offered",
            ))
        })
    };
}

unsafe extern "C" fn sig_block(ops: *mut mlx5dv_qp_ex, _: *const mlx5dv_sig_block_attr) {
    // SAFETY: By the contract in `mlx5dv.h`.
    unsafe { refuse(ops) };
}

unsafe extern "C" fn crypto(ops: *mut mlx5dv_qp_ex, _: *const mlx5dv_crypto_attr) {
    // SAFETY: By the contract in `mlx5dv.h`.
    unsafe { refuse(ops) };
}

unsafe extern "C" fn memcpy(ops: *mut mlx5dv_qp_ex, _: u32, _: u64, _: u32, _: u64, _: usize) {
    // SAFETY: By the contract in `mlx5dv.h`.
    unsafe { refuse(ops) };
}

unsafe extern "C" fn raw_wqe(ops: *mut mlx5dv_qp_ex, _: *const core::ffi::c_void) {
    // SAFETY: By the contract in `mlx5dv.h`.
    unsafe { refuse(ops) };
}

unsafe extern "C" fn dc_addr(ops: *mut mlx5dv_qp_ex, _: *mut ibv_ah, _: u32, _: u64) {
    // SAFETY: By the contract in `mlx5dv.h`.
    unsafe { refuse(ops) };
}

unsafe extern "C" fn dc_stream(ops: *mut mlx5dv_qp_ex, _: *mut ibv_ah, _: u32, _: u64, _: u16) {
    // SAFETY: By the contract in `mlx5dv.h`.
    unsafe { refuse(ops) };
}

/// Returns the functions for work requests, which a program calls.
pub(crate) fn ops() -> mlx5dv_qp_ex {
    mlx5dv_qp_ex {
        comp_mask: 0,
        wr_set_dc_addr: Some(dc_addr),
        wr_mr_interleaved: Some(mr_interleaved),
        wr_mr_list: Some(mr_list),
        wr_mkey_configure: Some(mkey_configure),
        wr_set_mkey_access_flags: Some(set_access_flags),
        wr_set_mkey_layout_list: Some(set_layout_list),
        wr_set_mkey_layout_interleaved: Some(set_layout_interleaved),
        wr_set_mkey_sig_block: Some(sig_block),
        wr_raw_wqe: Some(raw_wqe),
        wr_set_dc_addr_stream: Some(dc_stream),
        wr_memcpy: Some(memcpy),
        wr_set_mkey_crypto: Some(crypto),
    }
}
