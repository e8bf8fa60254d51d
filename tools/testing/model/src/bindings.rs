// SPDX-License-Identifier: GPL-2.0

//! Functions of C that the linked files call.

#![allow(non_camel_case_types, non_upper_case_globals)]

use core::ffi::{c_long, c_void};
use loom::sync::{
    atomic::{fence, AtomicI32, AtomicU32, Ordering},
    Condvar, Mutex,
};
use std::sync::atomic::{AtomicBool, AtomicUsize};

pub(crate) const IB_MKEY_MAX_ENTRIES: u32 = 16;
pub(crate) const IB_MKEY_MAX_INDICES: u32 = 16;
pub(crate) const ib_access_flags_IB_ACCESS_OPTIONAL: u32 = 0x3ff0_0000;

pub(crate) struct ib_pd;

#[derive(Default)]
pub(crate) struct ib_uverbs_mkey_refused_access {
    pub(crate) number: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct callback_head;

/// The most counts of one test.
const COUNTS: usize = 16;

/// The counts of a test. They exist before its threads, because a reader of RCU finds a count by a
/// dependency of addresses, which C11 has not: in the model such a reader may find 0 in a new count.
struct Counts {
    all: [AtomicU32; COUNTS],
    used: AtomicUsize,
}

loom::lazy_static! {
    static ref POOL: Counts = Counts {
        all: core::array::from_fn(|_| AtomicU32::new(0)),
        used: 0.into(),
    };
}

/// Makes the counts of a test.
pub(crate) fn prepare() {
    POOL.used.store(0, Ordering::Relaxed);
}

/// A count of references. It is not used after RCU has freed its memory.
#[repr(C)]
pub(crate) struct refcount_t {
    number: usize,
    freed: AtomicBool,
}

impl Default for refcount_t {
    fn default() -> Self {
        Self {
            number: POOL.used.fetch_add(1, Ordering::Relaxed),
            freed: false.into(),
        }
    }
}

impl refcount_t {
    pub(crate) fn poison(&self) {
        self.freed.store(true, Ordering::Relaxed);
    }
    fn count(&self) -> &'static AtomicU32 {
        assert!(
            !self.freed.load(Ordering::Relaxed),
            "a use after the grace period"
        );
        &POOL.all[self.number]
    }
}

unsafe fn of(refs: *const refcount_t) -> &'static AtomicU32 {
    // SAFETY: The memory is never freed during an execution.
    unsafe { (*refs).count() }
}

pub(crate) unsafe fn refcount_set_release(refs: *mut refcount_t, count: u32) {
    unsafe { of(refs) }.store(count, Ordering::Release);
}

pub(crate) unsafe fn refcount_set(refs: *mut refcount_t, count: u32) {
    unsafe { of(refs) }.store(count, Ordering::Relaxed);
}

pub(crate) unsafe fn refcount_inc(refs: *mut refcount_t) {
    let before = unsafe { of(refs) }.fetch_add(1, Ordering::Relaxed);
    assert_ne!(before, 0, "a reference to a value that has none");
}

unsafe fn inc_not_zero(refs: *mut refcount_t, order: Ordering) -> bool {
    let refs = unsafe { of(refs) };
    let counted = refs.fetch_update(order, Ordering::Relaxed, |n| (n != 0).then_some(n + 1));
    if counted.is_err() {
        loom::thread::yield_now();
    }
    counted.is_ok()
}

pub(crate) unsafe fn refcount_inc_not_zero_acquire(refs: *mut refcount_t) -> bool {
    unsafe { inc_not_zero(refs, Ordering::Acquire) }
}

pub(crate) unsafe fn refcount_inc_not_zero(refs: *mut refcount_t) -> bool {
    unsafe { inc_not_zero(refs, Ordering::Relaxed) }
}

pub(crate) unsafe fn refcount_dec_and_test(refs: *mut refcount_t) -> bool {
    let before = unsafe { of(refs) }.fetch_sub(1, Ordering::Release);
    assert_ne!(before, 0, "more references dropped than taken");
    if before == 1 {
        fence(Ordering::Acquire);
    }
    before == 1
}

pub(crate) unsafe fn kvfree_call_rcu(_: *mut callback_head, memory: *mut c_void) {
    kernel::sync::rcu::free(memory.cast());
}

/// The count of `Pending`, with its wait queue.
pub(crate) struct atomic_t {
    count: AtomicI32,
    waiting: AtomicU32,
    queue: Mutex<()>,
    woken: Condvar,
}

impl Default for atomic_t {
    fn default() -> Self {
        Self {
            count: AtomicI32::new(0),
            waiting: AtomicU32::new(0),
            queue: Mutex::new(()),
            woken: Condvar::new(),
        }
    }
}

pub(crate) unsafe fn atomic_inc(count: *mut atomic_t) {
    unsafe { &*count }.count.fetch_add(1, Ordering::Relaxed);
}

pub(crate) unsafe fn rdma_none_pending(count: *mut atomic_t) -> bool {
    unsafe { &*count }.count.load(Ordering::Acquire) == 0
}

/// `atomic_dec_and_test()` and `wake_up_var()`, which looks for waiting threads before it takes the
/// lock of the queue.
pub(crate) unsafe fn rdma_end_pending(count: *mut atomic_t) {
    let this = unsafe { &*count };
    let before = this.count.fetch_sub(1, Ordering::AcqRel);
    assert!(before > 0, "more ended than began");
    fence(Ordering::SeqCst);
    if before == 1 && this.waiting.load(Ordering::Relaxed) != 0 {
        drop(this.queue.lock().unwrap());
        this.woken.notify_all();
    }
}

/// `wait_var_event()`: joins the queue, and then looks at the count.
pub(crate) unsafe fn rdma_wait_pending(count: *mut atomic_t) {
    let this = unsafe { &*count };
    let mut queue = this.queue.lock().unwrap();
    this.waiting.fetch_add(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    while this.count.load(Ordering::Acquire) != 0 {
        queue = this.woken.wait(queue).unwrap();
    }
    this.waiting.fetch_sub(1, Ordering::Relaxed);
}

pub(crate) unsafe fn rdma_wait_pending_killable(count: *mut atomic_t) -> bool {
    unsafe { rdma_wait_pending(count) };
    true
}

pub(crate) unsafe fn rdma_wait_pending_timeout(count: *mut atomic_t, _: c_long) -> bool {
    unsafe { rdma_wait_pending(count) };
    true
}
