// SPDX-License-Identifier: GPL-2.0

//! Old bindings that accesses may still use.
//!
//! A bind by a work request waits for no access, because its queue would wait, too. It puts the old
//! binding into the list of this file. The next bind by a work request drops the old binding, and
//! so does another change of the same key, or the deregistration of a leaf, which the old binding
//! pins.
//!
//! # Locking
//!
//! `OldBindings::dropping` nests in a region's `edit`. `OldBindings::list` nests in both. The lock
//! of the pins nests in all three. No old binding is dropped under the lock of the list.

use crate::{
    backend::pins::IsPinned,
    kernel_ext::{
        alloc::GFP_MAYFAIL,
        rdma::mr_key,
        sync::{
            srcu::{self, Retired},
            users::{Deadline, Timeout, Users},
        },
    },
    region::binding::Binding,
};
use core::ops::Range;
use kernel::{
    list::{impl_list_arc_safe, impl_list_item, List, ListArc, ListLinks},
    new_mutex,
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        Arc, Mutex, UniqueArc,
    },
};

/// An old binding, or an empty element of the list for the next one.
#[pin_data]
struct Old {
    /// The number of bindings that were put into the list before.
    number: u64,
    /// The address of its region.
    region: usize,
    /// [`None`] in an empty element.
    binding: Option<Retired<Binding>>,
    #[pin]
    links: ListLinks,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Old { untracked; }
}

impl_list_item! {
    impl ListItem<0> for Old { using ListLinks { self.links }; }
}

impl Old {
    /// Makes an empty element.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn empty() -> Result<Pin<UniqueArc<Self>>> {
        UniqueArc::pin_init(
            pin_init!(Self {
                number: 0,
                region: 0,
                binding: None,
                links <- ListLinks::new(),
            }),
            GFP_MAYFAIL,
        )
    }

    /// Returns the binding.
    fn value(&self) -> Option<&Arc<Binding>> {
        self.binding.as_ref()?.value()
    }

    /// Returns the accesses outside of SRCU.
    fn users(&self) -> Option<&Arc<Users>> {
        self.value()?.users.as_ref()
    }

    /// Returns `true` if no access under SRCU is left.
    fn is_over(&self) -> bool {
        self.binding.as_ref().is_none_or(Retired::is_over)
    }

    /// Returns `true` if no access outside of SRCU is left.
    fn is_idle(&self) -> bool {
        self.users().is_none_or(|users| users.is_idle())
    }

    /// Returns `true` if the binding is one of `which`.
    fn is_of(&self, which: Which) -> bool {
        match which {
            Which::Region(region) => self.region == region,
            Which::Pinning(index) => self.value().is_some_and(|old| {
                old.leaves
                    .iter()
                    .any(|leaf| mr_key::index(leaf.lkey) == index)
            }),
        }
    }
}

/// The most old bindings of other regions that a bind drops. A bind adds one binding and drops up
/// to two, so the list becomes shorter. There is a limit because another process may have made
/// these bindings, and dropping a binding of very many leaves takes long.
const MOST_OF_OTHERS: usize = 2;

/// Some of the old bindings of a device.
#[derive(Clone, Copy)]
pub(crate) enum Which {
    /// Those of the region at this address.
    Region(usize),
    /// Those that pin the MR at this index.
    Pinning(u32),
}

/// The list, in the order in which the bindings were replaced.
struct Kept {
    list: List<Old>,
    /// The number of the next binding.
    next: u64,
    /// An empty element for the next binding, so that not every bind allocates one.
    spare: Option<Pin<UniqueArc<Old>>>,
}

impl Kept {
    /// Takes the first binding out for which `choose` returns [`Choice::Take`].
    fn take(&mut self, mut choose: impl FnMut(&Old) -> Choice) -> Option<ListArc<Old>> {
        let mut cursor = self.list.cursor_front();
        while let Some(old) = cursor.peek_next() {
            match choose(&old) {
                Choice::Take => return Some(old.remove()),
                Choice::Stop => break,
                Choice::Pass => (),
            }
            cursor.move_next();
        }
        None
    }
}

/// The decision of a search about one binding.
enum Choice {
    /// Take this binding.
    Take,
    /// Continue with the next binding.
    Pass,
    /// End the search without a binding.
    Stop,
}

/// The old bindings of a device.
#[pin_data]
pub(crate) struct OldBindings {
    /// The number of bindings that are in the list, that are about to enter it, or that left it and
    /// were not dropped yet.
    count: Atomic<usize>,
    #[pin]
    list: Mutex<Kept>,
    /// Held from before a binding leaves the list until it is dropped. A caller that does not find
    /// a binding in the list takes this lock. When it has the lock, the leaves of the binding are
    /// unpinned.
    #[pin]
    dropping: Mutex<()>,
}

impl OldBindings {
    /// Makes an empty list.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let kept = Kept {
            list: List::new(),
            next: 0,
            spare: None,
        };
        Arc::pin_init(
            pin_init!(Self {
                count: Atomic::new(0),
                list <- new_mutex!(kept, "ib_mkey old bindings"),
                dropping <- new_mutex!((), "ib_mkey dropping"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns `true` if no old binding was kept, or if all were dropped. A binding that is being
    /// replaced now may be kept later.
    #[inline]
    fn is_empty(&self) -> bool {
        // Pairs with the decrements in `replace_and_keep()` and `end()`: the caller sees all that
        // was done before a binding was dropped.
        self.count.load(ordering::Acquire) == 0
    }

    /// Runs `replace`, which returns the old binding of the region at address `region`, and puts
    /// that binding into the list.
    ///
    /// # Errors
    ///
    /// [`IsPinned`] of `replace`. In the inner result: `ENOMEM`, before `replace` runs; other
    /// errors of `replace`.
    pub(crate) fn replace_and_keep(
        &self,
        region: usize,
        replace: impl FnOnce() -> Result<Result<Retired<Binding>>, IsPinned>,
    ) -> Result<Result, IsPinned> {
        let mut kept = self.list.lock();
        let mut element = match kept.spare.take() {
            Some(element) => element,
            None => {
                drop(kept);
                let element = match Old::empty() {
                    Ok(element) => element,
                    Err(error) => return Ok(Err(error)),
                };
                kept = self.list.lock();
                element
            }
        };
        // A full barrier before `replace()`: a thread that finds the old binding replaced also
        // finds the count in `is_empty()`.
        self.count.fetch_add(1, ordering::Full);
        let binding = match replace() {
            Ok(Ok(binding)) if binding.value().is_some() => binding,
            other => {
                self.count.fetch_sub(1, ordering::Release);
                let surplus = kept.spare.replace(element);
                drop(kept);
                drop(surplus);
                return other.map(|replaced| replaced.map(drop));
            }
        };
        let number = kept.next;
        let old = element.as_mut().project();
        (*old.number, *old.region, *old.binding) = (number, region, Some(binding));
        kept.list.push_back(element.into());
        kept.next = number.wrapping_add(1);
        Ok(Ok(()))
    }

    /// Drops an old binding that no access uses any more.
    fn end(&self, old: ListArc<Old>) {
        let Some(mut element) = Arc::into_unique_or_drop(old.into_arc()) else {
            self.count.fetch_sub(1, ordering::Release);
            return;
        };
        let binding = element.as_mut().project().binding.take();
        drop(binding.and_then(Retired::wait));
        self.count.fetch_sub(1, ordering::Release);
        let surplus = self.list.lock().spare.replace(element);
        drop(surplus);
    }

    /// Ends bindings that no access uses any more: those of the region at address `region`, and a
    /// few others. Does not wait for accesses.
    #[inline]
    pub(crate) fn drop_idle(&self, region: usize) {
        if !self.is_empty() {
            self.drop_some_idle(region);
        }
    }

    fn drop_some_idle(&self, region: usize) {
        let _dropping = self.dropping.lock();
        let mut others = MOST_OF_OTHERS;
        loop {
            let old = self.list.lock().take(|old| {
                if !old.is_over() {
                    // The bindings after this one were replaced later, so they may have readers,
                    // too.
                    Choice::Stop
                } else if old.is_idle() && (old.region == region || others > 0) {
                    Choice::Take
                } else {
                    Choice::Pass
                }
            });
            let Some(old) = old else {
                break;
            };
            if old.region != region {
                others = others.saturating_sub(1);
            }
            self.end(old);
        }
    }

    /// Returns the number of the first binding of `which` whose number is in `numbers`, and its
    /// accesses outside of SRCU.
    fn find(&self, which: Which, numbers: Range<u64>) -> Option<(u64, Option<Arc<Users>>)> {
        let kept = self.list.lock();
        let old = kept
            .list
            .iter()
            .find(|old| numbers.contains(&old.number) && old.is_of(which))?;
        Some((old.number, old.users().cloned()))
    }

    /// Drops the binding with `number`, unless another caller has dropped it.
    fn drop_one(&self, number: u64) {
        let _dropping = self.dropping.lock();
        let old = self.list.lock().take(|old| {
            if old.number == number {
                Choice::Take
            } else {
                Choice::Pass
            }
        });
        if let Some(old) = old {
            self.end(old);
        }
    }

    /// Waits for accesses through the bindings of `which` that are in the list now, and drops these
    /// bindings. Sleeps. `timeout` bounds all waits together.
    ///
    /// Requests of a process can put bindings into the list all the time. This therefore does not
    /// wait for bindings that are put there later.
    ///
    /// # Errors
    ///
    /// Those of [`Users::wait`]. Then the bindings that accesses use stay in the list.
    #[inline]
    pub(crate) fn wait_and_drop(&self, which: Which, timeout: Timeout) -> Result {
        if self.is_empty() {
            return Ok(());
        }
        self.wait_and_drop_some(which, timeout)
    }

    fn wait_and_drop_some(&self, which: Which, timeout: Timeout) -> Result {
        let deadline = Deadline::new(timeout);
        let mut numbers = 0..self.list.lock().next;
        let mut synchronized = false;
        // The binding stays in the list during the wait: another caller must wait for it, too.
        while let Some((number, users)) = self.find(which, numbers.clone()) {
            if !synchronized {
                srcu::synchronize();
                synchronized = true;
            }
            if let Some(users) = users {
                users.wait(deadline.left())?;
            }
            self.drop_one(number);
            numbers.start = number.wrapping_add(1);
        }
        drop(self.dropping.lock());
        Ok(())
    }
}
