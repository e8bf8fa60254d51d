// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! QPs of the provider, to which this library adds the work requests of mlx5dv.

use core::{
    cell::UnsafeCell,
    ffi::c_int,
    hint,
    mem::transmute,
    ptr::{
        fn_addr_eq,
        NonNull, //
    },
    sync::atomic::{
        AtomicBool,
        AtomicU64,
        Ordering, //
    },
};
use std::{
    sync::{
        Mutex,
        MutexGuard,
        PoisonError, //
    },
    thread, //
};

use ibmkey::{
    errno::to_ptr,
    explain,
    object,
    sys::{
        ibv_context,
        ibv_qp,
        ibv_qp_ex,
        ibv_qp_init_attr_ex,
        verbs_context, //
    },
    Errno,
    Result, //
};

use crate::{
    builder::{
        self,
        Building, //
    },
    completion, device,
    staging::Progress,
    sys::{
        self,
        mlx5dv_qp_ex,
        mlx5dv_qp_init_attr, //
    },
};

/// The work requests that configure mkeys.
const CONFIGURES: u64 = (sys::MLX5DV_QP_EX_WITH_MR_LIST
    | sys::MLX5DV_QP_EX_WITH_MR_INTERLEAVED
    | sys::MLX5DV_QP_EX_WITH_MKEY_CONFIGURE) as u64;

/// The flags of a QP that are accepted, one at a time. They change nothing: rxe puts no data into a
/// CQE, because it needs the MRs of the receive buffers to check a message.
const CREATE_FLAGS: u32 =
    sys::MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE | sys::MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;

/// The smallest number of inline bytes of a QP that can configure mkeys: the size of the
/// description of 3 blocks. The description of 4 ranges is smaller.
const MIN_INLINE: u32 = 24 + 8 + 3 * 88;

type Start = unsafe extern "C" fn(*mut ibv_qp_ex);
type Complete = unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int;
type SendTso = unsafe extern "C" fn(*mut ibv_qp_ex, *mut core::ffi::c_void, u16, u16);

/// The functions and the requests of a QP.
///
/// # Invariants
///
/// The QP exists during every call of a function in `ops`, and of a function that this library has
/// put into the QP.
#[repr(C)]
pub(crate) struct State {
    /// The functions that the program calls. Their argument is the address of this member, so it
    /// must be the first one.
    ops: mlx5dv_qp_ex,
    pub(crate) qp: *mut ibv_qp_ex,
    /// `enum mlx5dv_qp_create_send_ops_flags`.
    pub(crate) allowed: u64,
    /// The largest number of inline bytes of a request.
    pub(crate) max_inline: usize,
    start: Start,
    complete: Complete,
    abort: Start,
    /// A lock: set from the beginning of `wr_start` to the end of `wr_complete` or `wr_abort`.
    turn: AtomicBool,
    building: UnsafeCell<Building>,
}

impl State {
    /// Returns the state of a QP.
    ///
    /// # Safety
    ///
    /// `qp` is a QP of [`create`].
    unsafe fn of<'a>(qp: *mut ibv_qp_ex) -> &'a Self {
        // SAFETY: By the caller's promise, `attach()` has written the field. Nothing writes it
        // later.
        unsafe { &*transmute::<Option<SendTso>, *const Self>((*qp).wr_send_tso) }
    }

    /// Returns the state that contains `ops`.
    ///
    /// # Safety
    ///
    /// [`mlx5dv_qp_ex_from_ibv_qp_ex`] returned `ops`, and the QP exists.
    pub(crate) unsafe fn from_ops<'a>(ops: *mut mlx5dv_qp_ex) -> &'a Self {
        // SAFETY: By the caller's promise, `ops` is the first member of a `State`.
        unsafe { &*ops.cast::<Self>() }
    }

    /// Returns the requests that this thread builds.
    ///
    /// # Safety
    ///
    /// The caller is between `wr_start` and `wr_complete`, and has no other reference that this
    /// function returned.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn building(&self) -> &mut Building {
        // SAFETY: `turn` lets one thread at a time into this section. By the caller's promise, that
        // thread has no other reference.
        unsafe { &mut *self.building.get() }
    }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: `attach()` puts this function only into QPs of `create()`.
    let state = unsafe { State::of(qp) };

    // The provider's `wr_start` resets the error of the QP, and its `wr_complete` reads the error
    // after it has released the provider's lock. So a thread must not start before the last one has
    // returned from `wr_complete`.
    let mut tries = 0u32;
    while state.turn.swap(true, Ordering::Acquire) {
        tries = tries.wrapping_add(1);
        match tries % 64 {
            0 => thread::yield_now(),
            _ => hint::spin_loop(),
        }
    }
    // SAFETY: It is the provider's function for this QP.
    unsafe { (state.start)(qp) };
    // SAFETY: This thread has set `turn`.
    unsafe { state.building() }.begin();
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: `attach()` puts this function only into QPs of `create()`.
    let state = unsafe { State::of(qp) };
    // SAFETY: This thread has set `turn` in `wr_start`.
    let building = unsafe { state.building() };

    let ret = match building.check() {
        Err(errno) => {
            crate::debug(|| format!("ibv_wr_complete: {errno}: {}", explain::last_text()));
            // SAFETY: It is the provider's function for this QP, which was started.
            unsafe { (state.abort)(qp) };
            errno.get()
        }
        Ok(()) => {
            // SAFETY: It is the provider's function for this QP, which was started.
            let ret = unsafe { (state.complete)(qp) };
            // If the provider returns ENOSPC, it has not posted the requests. After any other error
            // they are in the queue.
            if ret != libc::ENOSPC {
                building.posted();
            }
            ret
        }
    };
    state.turn.store(false, Ordering::Release);
    ret
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: `attach()` puts this function only into QPs of `create()`.
    let state = unsafe { State::of(qp) };

    // SAFETY: It is the provider's function for this QP, which was started.
    unsafe { (state.abort)(qp) };
    state.turn.store(false, Ordering::Release);
}

/// The state of a QP, and what identifies the QP.
struct Entry {
    ctx: usize,
    /// The handle of the QP in the kernel.
    handle: u32,
    id: u64,
    state: NonNull<State>,
}

// SAFETY: One thread frees the state, when no thread uses it any more.
unsafe impl Send for Entry {}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: `attach()` made the box. The QP no longer exists, see `Table`, so nothing uses
        // the state.
        drop(unsafe { Box::from_raw(self.state.as_ptr()) });
    }
}

/// The states of all QPs that exist, and of some that were destroyed.
///
/// When a program destroys a QP, libibverbs calls only the provider, so the state stays. It is
/// freed when a new QP has the handle of the old one in the same context, or when a new context has
/// the address of the old context: two objects that exist at once never do. So the number of states
/// is bounded by the largest number of QPs that existed at once.
pub(crate) struct Table(Vec<Entry>);

static TABLE: Mutex<Table> = Mutex::new(Table(Vec::new()));
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns `false` if the QP was destroyed, and `true` if it may still exist.
pub(crate) fn exists(id: u64) -> bool {
    table().0.iter().any(|entry| entry.id == id)
}

/// Frees the states of the closed context that had the address of the new context `ctx`.
pub(crate) fn forget(ctx: *mut ibv_context) {
    table().0.retain(|entry| entry.ctx != ctx.addr());
}

/// Puts the functions of this library into a QP.
///
/// # Safety
///
/// `qp` is a new QP that has functions for work requests.
unsafe fn attach(qp: *mut ibv_qp, attr: &ibv_qp_init_attr_ex, allowed: u64) -> Result {
    let qp_ex = qp.cast::<ibv_qp_ex>();
    // SAFETY: By the caller's promise.
    let functions = unsafe { ((*qp_ex).wr_start, (*qp_ex).wr_complete, (*qp_ex).wr_abort) };
    let (Some(start), Some(complete), Some(abort)) = functions else {
        return Err(Errno::EOPNOTSUPP);
    };
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let progress = Progress {
        qp: id,
        capacity: attr.cap.max_send_wr.into(),
        posted: 0,
        added: 0,
        batch: 0,
    };
    let state = NonNull::from(Box::leak(Box::new(State {
        ops: builder::ops(),
        qp: qp_ex,
        allowed,
        max_inline: attr.cap.max_inline_data as usize,
        start,
        complete,
        abort,
        turn: AtomicBool::new(false),
        building: UnsafeCell::new(Building::new(progress)),
    })));
    // SAFETY: By the caller's promise.
    let (ctx, handle) = unsafe { ((*qp).context.addr(), (*qp).handle) };
    let entry = Entry {
        ctx,
        handle,
        id,
        state,
    };

    {
        let mut table = table();
        table.0.retain(|old| (old.ctx, old.handle) != (ctx, handle));
        table.0.push(entry);
    }
    // No RC or UC QP of these devices has the function `wr_send_tso`, so its field can hold the
    // address of the state.
    // SAFETY: By the caller's promise, the QP has these fields, and no other thread knows the QP.
    // An address that is not 0 is a valid value of the type. Nothing calls it.
    unsafe {
        (*qp_ex).wr_send_tso = transmute::<*mut State, Option<SendTso>>(state.as_ptr());
        (*qp_ex).wr_start = Some(wr_start);
        (*qp_ex).wr_complete = Some(wr_complete);
        (*qp_ex).wr_abort = Some(wr_abort);
    }
    Ok(())
}

/// Returns the bits of the requests that configure mkeys, among those that `asked` asks for.
fn allowed(asked: &mlx5dv_qp_init_attr) -> Result<u64> {
    let has = |mask: u32| asked.comp_mask & u64::from(mask) != 0;
    let known = sys::MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS
        | sys::MLX5DV_QP_INIT_ATTR_MASK_DC
        | sys::MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS
        | sys::MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;

    if asked.comp_mask & !u64::from(known) != 0 {
        return Err(Errno::EINVAL);
    }
    if has(sys::MLX5DV_QP_INIT_ATTR_MASK_DC | sys::MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS) {
        return Err(Errno::EOPNOTSUPP);
    }
    if has(sys::MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) {
        if asked.create_flags & !CREATE_FLAGS != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if asked.create_flags == CREATE_FLAGS {
            return Err(Errno::EINVAL);
        }
    }
    if !has(sys::MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) {
        return Ok(0);
    }
    if asked.send_ops_flags & !CONFIGURES != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(asked.send_ops_flags)
}

/// Returns the work requests that QPs of a type have, or `None` for a type that cannot configure
/// mkeys.
fn requests(qp_type: u32) -> Option<u64> {
    use ibmkey::sys as ib;

    let uc = ib::IBV_QP_EX_WITH_RDMA_WRITE
        | ib::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
        | ib::IBV_QP_EX_WITH_SEND
        | ib::IBV_QP_EX_WITH_SEND_WITH_IMM
        | ib::IBV_QP_EX_WITH_SEND_WITH_INV
        | ib::IBV_QP_EX_WITH_BIND_MW;
    let rc = uc
        | ib::IBV_QP_EX_WITH_RDMA_READ
        | ib::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | ib::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        | ib::IBV_QP_EX_WITH_LOCAL_INV;

    match qp_type {
        ib::IBV_QPT_RC => Some(rc.into()),
        ib::IBV_QPT_UC => Some(uc.into()),
        _ => None,
    }
}

/// Creates a QP of the provider.
///
/// # Safety
///
/// `ctx` is an open context, and `attr` fulfils the contract of `ibv_create_qp_ex()`.
unsafe fn create_qp_ex(
    ctx: *mut ibv_context,
    attr: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp> {
    let member = core::mem::offset_of!(verbs_context, create_qp_ex);
    // SAFETY: By the caller's promise.
    let extended = unsafe { object::extended(ctx, member) }.ok_or(Errno::EOPNOTSUPP)?;
    // SAFETY: As checked above, the context has this member. `ctx` and `attr` are valid by the
    // caller's promise.
    let qp = unsafe { (*extended.as_ptr()).create_qp_ex.ok_or(Errno::EOPNOTSUPP)?(ctx, attr) };

    if qp.is_null() {
        return Err(Errno::last());
    }
    Ok(qp)
}

unsafe fn create(
    ctx: *mut ibv_context,
    attr: Option<&mut ibv_qp_init_attr_ex>,
    own: Option<&mlx5dv_qp_init_attr>,
) -> Result<*mut ibv_qp> {
    const SEND_OPS: u32 = ibmkey::sys::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

    let attr = attr.ok_or(Errno::EINVAL)?;
    let allowed = own.map_or(Ok(0), allowed)?;
    let mut wants = *attr;

    if attr.comp_mask & SEND_OPS == 0 {
        wants.send_ops_flags = 0;
    }
    match requests(attr.qp_type) {
        Some(requests) if allowed != 0 || attr.comp_mask & SEND_OPS != 0 => {
            wants.comp_mask |= SEND_OPS;
            wants.send_ops_flags |= requests;
        }
        None if allowed != 0 => return Err(Errno::EOPNOTSUPP),
        _ => {}
    }
    if allowed != 0 {
        wants.cap.max_inline_data = wants.cap.max_inline_data.max(MIN_INLINE);
    }

    // SAFETY: By the contract in `mlx5dv.h`.
    let qp = unsafe {
        device::prepare(ctx)?;
        create_qp_ex(ctx, &mut wants)
    }?;
    attr.cap = wants.cap;
    if wants.comp_mask & SEND_OPS != 0 && requests(attr.qp_type).is_some() {
        // SAFETY: The QP is new and has functions for work requests.
        let attached = unsafe { attach(qp, &wants, allowed) };
        if let Err(errno) = attached {
            // SAFETY: The QP is new, and nothing uses it any more.
            unsafe { ibmkey::sys::ibv_destroy_qp(qp) };
            return Err(errno);
        }
    }
    if !attr.send_cq.is_null() {
        // SAFETY: `prepare()` has called `watch()` on the context, and the CQ belongs to it.
        unsafe { completion::watch_cq(attr.send_cq) };
    }
    Ok(qp)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlx5dv_create_qp(
    ctx: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
    own: *mut mlx5dv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: By the contract in `mlx5dv.h`.
    to_ptr(unsafe { create(ctx, attr.as_mut(), own.as_ref()) })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn mlx5dv_qp_ex_from_ibv_qp_ex(qp: *mut ibv_qp_ex) -> *mut mlx5dv_qp_ex {
    // SAFETY: By the contract in `mlx5dv.h`.
    let complete = unsafe { qp.as_ref() }.and_then(|qp| qp.wr_complete);
    let is_own = complete.is_some_and(|complete| fn_addr_eq(complete, wr_complete as Complete));

    to_ptr(match is_own {
        // SAFETY: Only `attach()` puts this function into a QP, so `create()` made the QP.
        true => Ok(unsafe { State::of(qp) } as *const State as *mut mlx5dv_qp_ex),
        false => Err(Errno::EINVAL),
    })
}
