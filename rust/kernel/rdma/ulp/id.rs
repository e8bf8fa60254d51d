// SPDX-License-Identifier: GPL-2.0

//! Ids of `rdma_cm`, and the events that it reports for them.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

use crate::{bindings, kernel_ext::thread::Wake};
use core::{
    mem::size_of,
    net::{Ipv4Addr, SocketAddrV4},
    ptr,
    ptr::NonNull,
};
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_int,
    new_condvar, new_mutex,
    prelude::*,
    str::CStrExt,
    sync::{
        atomic::{ordering, Atomic},
        Arc, CondVar, CondVarTimeoutResult, Mutex,
    },
    time::msecs_to_jiffies,
};

/// The longest time for one step of a connection.
const STEP_MS: u32 = 5000;
/// The largest private data that `rdma_cm` sends with a request or a reply.
pub(crate) const PRIVATE_MAX: usize = 56;

/// `ENOTCONN`, which the kernel crate lacks.
pub(super) fn not_connected() -> Error {
    Error::from_errno(-(bindings::ENOTCONN as i32))
}

/// Returns a random number other than 0, as a name that one side of a connection gives the other. It
/// is no proof, because it is sent in clear.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: There are so many bytes.
    unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), bytes.len()) };
    u64::from_ne_bytes(bytes).max(1)
}

/// A network namespace, which stays while this exists.
///
/// # Invariants
///
/// This holds a reference.
pub(crate) struct Net(NonNull<bindings::net>);

// SAFETY: Any thread may use a network namespace.
unsafe impl Send for Net {}
// SAFETY: Any thread may use a network namespace, also several at once.
unsafe impl Sync for Net {}

impl Net {
    /// Returns the namespace of the current process.
    pub(crate) fn current() -> Result<Self> {
        // SAFETY: The current process has a namespace.
        let raw = unsafe { bindings::rdma_current_net() };
        // INVARIANT: The helper takes a reference.
        Ok(Self(NonNull::new(raw).ok_or(ESRCH)?))
    }

    /// Returns the namespace of the network device of a GID, if it has one.
    ///
    /// # Safety
    ///
    /// `attr` must be valid.
    pub(super) unsafe fn of_gid(attr: *const bindings::ib_gid_attr) -> Option<Self> {
        // SAFETY: By the safety requirement.
        let raw = unsafe { bindings::rdma_gid_net(attr) };
        // INVARIANT: The helper takes a reference.
        NonNull::new(raw).map(Self)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rdma_put_net(self.0.as_ptr()) };
    }
}

/// The most requests to connect that wait for a listener. `rdma_cm` refuses further ones.
const MAX_INCOMING: usize = 64;

/// The events that `rdma_cm` has reported for an id.
struct State {
    /// The result of the last step.
    step: Option<Result>,
    /// Private data of the other side.
    private: [u8; PRIVATE_MAX],
    private_len: usize,
    /// Requests of a listener.
    incoming: KVec<RawId>,
}

#[pin_data]
struct Events {
    #[pin]
    state: Mutex<State>,
    #[pin]
    changed: CondVar,
    /// The connection is gone, or is not coming.
    lost: Atomic<bool>,
    wake: Arc<Wake>,
}

impl Events {
    fn new(wake: &Arc<Wake>) -> Result<Arc<Self>> {
        let state = State {
            step: None,
            private: [0; PRIVATE_MAX],
            private_len: 0,
            incoming: KVec::new(),
        };
        Arc::pin_init(
            pin_init!(Self {
                state <- new_mutex!(state),
                changed <- new_condvar!(),
                lost: Atomic::new(false),
                wake: wake.clone(),
            }),
            GFP_KERNEL,
        )
    }

    /// Keeps the first private data of the other side.
    ///
    /// # Safety
    ///
    /// `event` must be a request to connect, an established connection or a rejection.
    unsafe fn keep_private(&self, event: &bindings::rdma_cm_event) {
        let mut state = self.state.lock();
        // SAFETY: By the safety requirement.
        let conn = unsafe { event.param.conn.as_ref() };
        if state.private_len != 0 || conn.private_data.is_null() {
            return;
        }
        let len = usize::from(conn.private_data_len).min(PRIVATE_MAX);
        // SAFETY: There are so many bytes, and `len` is not larger than the array.
        unsafe {
            ptr::copy_nonoverlapping(conn.private_data.cast(), state.private.as_mut_ptr(), len);
        }
        state.private_len = len;
    }

    fn lose(&self, errno: u32) {
        self.lost.store(true, ordering::Relaxed);
        self.state.lock().step = Some(Err(Error::from_errno(-(errno as i32))));
    }

    fn request(&self, raw: *mut bindings::rdma_cm_id, event: &bindings::rdma_cm_event) -> Result {
        let events = Events::new(&self.wake)?;
        // SAFETY: The event is a request to connect.
        unsafe { events.keep_private(event) };
        let mut state = self.state.lock();
        if state.incoming.len() >= MAX_INCOMING {
            return Err(EBUSY);
        }
        // An id must not be destroyed by its handler, so that nothing may fail after this.
        state.incoming.reserve(1, GFP_KERNEL)?;
        // SAFETY: No other code uses the new id.
        unsafe { (*raw).context = Arc::as_ptr(&events).cast_mut().cast() };
        // INVARIANT: The handler returns 0, so the id is ours. Its context is set.
        let id = RawId {
            raw: NonNull::new(raw).ok_or(EINVAL)?,
            events,
        };
        let _ = state.incoming.push_within_capacity(id);
        Ok(())
    }
}

/// An id of `rdma_cm`. Dropping it destroys the id. The device of the id is not removed before.
/// A handler or a completion must not drop it.
///
/// # Invariants
///
/// Only this destroys the id. Its context is `events`, and its handler is [`handler`].
pub(super) struct RawId {
    raw: NonNull<bindings::rdma_cm_id>,
    events: Arc<Events>,
}

// SAFETY: Any thread may use an id.
unsafe impl Send for RawId {}
// SAFETY: `rdma_cm` serialises the calls for an id.
unsafe impl Sync for RawId {}

/// # Safety
///
/// Only `rdma_cm` may call this. The id must belong to a [`RawId`], or be a new one of a listener
/// that does.
unsafe extern "C" fn handler(
    raw: *mut bindings::rdma_cm_id,
    event: *mut bindings::rdma_cm_event,
) -> c_int {
    use bindings::{
        rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED as ADDR_RESOLVED,
        rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST as CONNECT_REQUEST,
        rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED as ESTABLISHED,
        rdma_cm_event_type_RDMA_CM_EVENT_REJECTED as REJECTED,
        rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED as ROUTE_RESOLVED,
        rdma_cm_event_type_RDMA_CM_EVENT_TIMEWAIT_EXIT as TIMEWAIT_EXIT,
    };
    // SAFETY: The context is that of a `RawId`, which destroys the id before it drops `events`. A
    // new id has the context of its listener.
    let (events, event) = unsafe { (&*(*raw).context.cast::<Events>(), &*event) };
    match event.event {
        CONNECT_REQUEST => {
            if let Err(error) = events.request(raw, event) {
                return error.to_errno();
            }
        }
        ADDR_RESOLVED | ROUTE_RESOLVED => events.state.lock().step = Some(Ok(())),
        ESTABLISHED => {
            // SAFETY: By the type of the event.
            unsafe { events.keep_private(event) };
            events.state.lock().step = Some(Ok(()));
        }
        TIMEWAIT_EXIT => return 0,
        REJECTED => {
            // SAFETY: By the type of the event.
            unsafe { events.keep_private(event) };
            events.lose(bindings::ECONNREFUSED);
        }
        _ => events.lose(bindings::ENOTCONN),
    }
    events.changed.notify_all();
    events.wake.wake();
    0
}

impl RawId {
    pub(super) fn new(net: &Net, wake: &Arc<Wake>) -> Result<Self> {
        let events = Events::new(wake)?;
        // SAFETY: The namespace is valid, and the context is as `handler()` requires.
        let raw = from_err_ptr(unsafe {
            bindings::__rdma_create_kernel_id(
                net.0.as_ptr(),
                Some(handler),
                Arc::as_ptr(&events).cast_mut().cast(),
                bindings::rdma_ucm_port_space_RDMA_PS_TCP,
                bindings::ib_qp_type_IB_QPT_RC,
                super::NAME.as_char_ptr(),
            )
        })?;
        // INVARIANT: Created above.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            events,
        })
    }

    pub(super) fn as_raw(&self) -> *mut bindings::rdma_cm_id {
        self.raw.as_ptr()
    }

    /// Begins a step with `begin`.
    fn begin(&self, begin: impl FnOnce(*mut bindings::rdma_cm_id) -> c_int) -> Result {
        self.events.state.lock().step = None;
        to_result(begin(self.as_raw()))
    }

    /// Waits for the result of a step.
    pub(super) fn wait(&self) -> Result {
        let mut left = msecs_to_jiffies(STEP_MS);
        let mut state = self.events.state.lock();
        loop {
            if let Some(result) = state.step.take() {
                return result;
            }
            let changed = &self.events.changed;
            match changed.wait_interruptible_timeout(&mut state, left) {
                CondVarTimeoutResult::Woken { jiffies } => left = jiffies,
                CondVarTimeoutResult::Timeout => {
                    return state.step.take().unwrap_or(Err(ETIMEDOUT))
                }
                CondVarTimeoutResult::Signal { .. } => return Err(EINTR),
            }
        }
    }

    /// Begins a step with `begin`, and waits for its result.
    fn step(&self, begin: impl FnOnce(*mut bindings::rdma_cm_id) -> c_int) -> Result {
        self.begin(begin)?;
        self.wait()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.events.lost.load(ordering::Relaxed)
    }

    pub(super) fn wake(&self) -> &Arc<Wake> {
        &self.events.wake
    }

    /// Copies the private data of the other side. Returns their length.
    pub(super) fn private_data(&self, to: &mut [u8]) -> usize {
        let state = self.events.state.lock();
        let from = state.private.get(..state.private_len).unwrap_or_default();
        for (to, from) in to.iter_mut().zip(from) {
            *to = *from;
        }
        from.len()
    }
}

impl Drop for RawId {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. This waits until no handler runs.
        unsafe { bindings::rdma_destroy_id(self.as_raw()) };
    }
}

fn raw_address(address: SocketAddrV4) -> bindings::__kernel_sockaddr_storage {
    let mut raw: bindings::__kernel_sockaddr_storage = pin_init::zeroed();
    let bytes = (&raw mut raw).cast::<u8>();
    let family = (bindings::AF_INET as u16).to_ne_bytes();
    let parts: [&[u8]; 3] = [
        &family,
        &address.port().to_be_bytes(),
        &address.ip().octets(),
    ];
    for (at, byte) in parts.into_iter().flatten().enumerate() {
        const { assert!(size_of::<bindings::__kernel_sockaddr_storage>() >= 8) };
        // SAFETY: The parts have 8 bytes, those of a `struct sockaddr_in`.
        unsafe { bytes.add(at).write(*byte) };
    }
    raw
}

/// Parameters of both sides. Requests that find no receive are repeated without an end. Others are
/// not: rxe takes a retry count of 7 for no limit, and a side that has vanished would keep the other.
fn parameters(private: &[u8]) -> Result<bindings::rdma_conn_param> {
    let mut param: bindings::rdma_conn_param = pin_init::zeroed();
    if private.len() > PRIVATE_MAX {
        return Err(EINVAL);
    }
    param.private_data = private.as_ptr().cast();
    param.private_data_len = private.len() as u8;
    param.responder_resources = 16;
    param.initiator_depth = 16;
    param.retry_count = 6;
    param.rnr_retry_count = 7;
    Ok(param)
}

impl RawId {
    pub(super) fn listen(&self, port: u16) -> Result {
        let mut at = raw_address(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
        // SAFETY: The id and the address are valid.
        unsafe {
            to_result(bindings::rdma_bind_addr(
                self.as_raw(),
                (&raw mut at).cast(),
            ))?;
            to_result(bindings::rdma_listen(self.as_raw(), 8))
        }
    }

    /// Returns a request of a listener.
    pub(super) fn next(&self) -> Option<Self> {
        self.events.state.lock().incoming.remove(0).ok()
    }

    /// Resolves an address and the route to it.
    pub(super) fn resolve(&self, to: SocketAddrV4) -> Result {
        let to = raw_address(to);
        // SAFETY: The id and the address are valid.
        self.step(|id| unsafe {
            let to = (&raw const to).cast();
            // It misses a neighbour that answers at once, and finds it when its time is over. So this is
            // less than that of the step.
            bindings::rdma_resolve_addr(id, ptr::null_mut(), to, STEP_MS as usize / 2)
        })?;
        // SAFETY: As above.
        self.step(|id| unsafe { bindings::rdma_resolve_route(id, STEP_MS as usize) })
    }

    /// Asks the other side to connect. [`Self::wait`] waits for the result.
    pub(super) fn connect(&self, private: &[u8]) -> Result {
        let mut param = parameters(private)?;
        // SAFETY: The id is valid, and `private` lives until the call has copied it.
        self.begin(|id| unsafe { bindings::rdma_connect(id, &mut param) })
    }

    pub(super) fn reject(&self, private: &[u8]) -> Result {
        let param = parameters(private)?;
        let reason = bindings::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED as u8;
        // SAFETY: As above.
        to_result(unsafe {
            let (data, len) = (param.private_data, param.private_data_len);
            bindings::rdma_reject(self.as_raw(), data, len, reason)
        })
    }

    pub(super) fn accept(&self, private: &[u8]) -> Result {
        let mut param = parameters(private)?;
        // SAFETY: As above. `rdma_accept()` wants the lock.
        self.step(|id| unsafe {
            bindings::rdma_lock_handler(id);
            let ret = bindings::rdma_accept(id, &mut param);
            bindings::rdma_unlock_handler(id);
            ret
        })
    }
}
