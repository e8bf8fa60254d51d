// SPDX-License-Identifier: GPL-2.0

//! The types of `rust/kernel`.

pub(crate) mod alloc {
    pub(crate) const GFP_MAYFAIL: kernel::alloc::Flags = kernel::alloc::Flags;
}

pub(crate) mod dma_buf {
    pub(crate) struct Import;
}

pub(crate) mod user {
    pub(crate) struct User;
}

pub(crate) mod sched {
    pub(crate) struct Process;

    pub(crate) fn check_killed() -> kernel::error::Result {
        Ok(())
    }
    pub(crate) fn sleep_one_jiffy() {
        loom::thread::yield_now();
    }
}

pub(crate) mod sync {
    pub(crate) mod lock;
    pub(crate) mod pending;
    pub(crate) mod rcu_arc;

    pub(crate) mod racing {
        use kernel::sync::atomic::{ordering, Atomic, AtomicType};

        pub(crate) fn load_relaxed<T: AtomicType>(atomic: &Atomic<T>) -> T {
            atomic.load(ordering::Relaxed)
        }
    }
}

pub(crate) mod rdma;
