// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The kernel's reasons to refuse a key or its layout, as sentences.

use crate::{
    errno::Errno,
    explain::{
        self,
        say, //
    },
    sys::{
        self,
        ib_uverbs_mkey_bind as Bind,
        ib_uverbs_mkey_block as Block,
        ib_uverbs_mkey_indexed as Indexed,
        ib_uverbs_mkey_sge as Range, //
    },
};

pub use sys::{
    ib_uverbs_mkey_refused as Refused,
    ib_uverbs_mkey_refused_access as RefusedAccess, //
};

/// A refusal without a value, of no single entry.
pub(crate) const fn of(reason: u32) -> Refused {
    Refused {
        error: 0,
        entry: sys::IB_MKEY_NO_ENTRY,
        reason,
        comp_mask: 0,
        value: 0,
    }
}

/// Stores the sentence about a call that this library refuses with `EINVAL`.
pub(crate) fn invalid(reason: u32, value: u64) -> Errno {
    let refused = Refused {
        value,
        ..of(reason)
    };
    say(Errno::EINVAL, &sentence(&refused, None))
}

/// Stores the sentence about a call that the kernel refused with `errno`. Stores none if the kernel
/// gave no reason.
pub(crate) fn refused(errno: Errno, refused: &Refused, layout: Option<&Bind>) -> Errno {
    named(errno, "", refused, layout)
}

/// The same, with a name in front of the sentence.
pub(crate) fn named(errno: Errno, name: &str, refused: &Refused, layout: Option<&Bind>) -> Errno {
    if refused.reason != sys::IB_UVERBS_MKEY_REASON_NONE {
        say(errno, &format!("{name}{}", sentence(refused, layout)));
    }
    errno
}

/// Stores the sentence about a work request that was refused, if one was.
pub(crate) fn tell(refused: &Refused) {
    if refused.error != 0 {
        explain::store(&sentence(refused, None));
    }
}

/// Returns the sentence for a refused access.
pub fn access_sentence(refused: &RefusedAccess) -> String {
    let access = match (refused.remote, refused.access) {
        (0, 0) => "a local read",
        (0, _) => "a local write",
        (_, access) if access & sys::IBV_ACCESS_REMOTE_READ != 0 => "a peer's read",
        (_, access) if access & sys::IBV_ACCESS_REMOTE_WRITE != 0 => "a peer's write",
        (_, access) if access & sys::IBV_ACCESS_REMOTE_ATOMIC != 0 => "a peer's atomic operation",
        _ => "a peer's flush",
    };
    let why = Refused {
        value: refused.value,
        ..of(refused.reason)
    };
    format!(
        "key {:#x} refused {access} of {} bytes at its address {:#x}: {}",
        refused.key,
        refused.length,
        refused.addr,
        sentence(&why, None)
    )
}

/// Stores the sentence about the last refused access to a key, if one was refused.
pub(crate) fn tell_access(refused: &RefusedAccess) {
    if refused.number != 0 {
        explain::store(&access_sentence(refused));
    }
}

/// Returns the sentence for a request that completed with `status`, in a process whose MRs have
/// last refused the access `last`.
pub(crate) fn why(status: Option<u32>, last: &RefusedAccess) -> String {
    let by_peer = matches!(
        status,
        Some(sys::IBV_WC_REM_ACCESS_ERR | sys::IBV_WC_REM_INV_REQ_ERR | sys::IBV_WC_REM_OP_ERR)
    );
    match (last.number, last.remote) {
        (0, _) | (_, 0) if by_peer => {
            "the peer refused the access: ask there, by ibmkey_why() or mkeyctl why".into()
        }
        (0, _) => "no key of this process has refused an access: an lkey may name no MR, or an \
                   earlier request has failed"
            .into(),
        _ => access_sentence(last),
    }
}

/// The bytes of an entry that are outside of its MR.
struct Outside {
    /// The entry, with its repetition or its index if these are the reason.
    at: String,
    first: u64,
    bytes: u64,
    lkey: u32,
}

/// # Safety
///
/// The array at address `addr` has an element `at`.
unsafe fn element<T: Copy>(addr: u64, at: usize) -> T {
    let array: *const T = core::ptr::with_exposed_provenance(addr as usize);
    // SAFETY: By the caller's promise.
    unsafe { array.add(at).read() }
}

/// Returns the entry that is the reason, in the repetition that begins at the lowest address if
/// `lowest`, or else at the highest one. Returns `None` if the layout is not known, or has no such
/// entry.
fn outside(refused: &Refused, layout: Option<&Bind>, lowest: bool) -> Option<Outside> {
    let layout = layout?;
    let at = refused.entry as usize;
    let name = |many: &str| format!("{many}[{at}]");

    // SAFETY: The kernel has read the arrays, and the caller keeps them during the call.
    unsafe {
        match layout.kind {
            sys::IB_UVERBS_MKEY_LIST if refused.entry < layout.num_entries => {
                let range: Range = element(layout.entries, at);
                Some(Outside {
                    at: name("ranges"),
                    first: range.addr,
                    bytes: range.length,
                    lkey: range.lkey,
                })
            }
            sys::IB_UVERBS_MKEY_INTERLEAVED if refused.entry < layout.num_entries => {
                let block: Block = element(layout.entries, at);
                let mut first = block.addr;
                let mut repetition = Vec::new();
                for (dim, stride) in (0..layout.num_dims as usize).zip(block.stride) {
                    let last = element::<u64>(layout.repeat_count, dim).saturating_sub(1);
                    let index = if (stride < 0) == lowest { last } else { 0 };
                    first = first.wrapping_add_signed(stride.wrapping_mul(index as i64));
                    repetition.push(index);
                }
                let at = match repetition.iter().all(|&index| index == 0) {
                    true => name("blocks"),
                    false => format!("{} in repetition {repetition:?}", name("blocks")),
                };
                Some(Outside {
                    at,
                    first,
                    bytes: block.bytes_count,
                    lkey: block.lkey,
                })
            }
            sys::IB_UVERBS_MKEY_INDEXED => {
                let table: Indexed = element(layout.entries, 0);
                if refused.entry >= table.num_indices {
                    return None;
                }
                let index = match table.index_bytes {
                    4 => element::<u32>(table.indices, at).into(),
                    _ => element::<u64>(table.indices, at),
                };
                Some(Outside {
                    at: format!("{} is {index}: the block", name("indices")),
                    first: table.addr.wrapping_add(table.unit.wrapping_mul(index)),
                    bytes: table.bytes_count,
                    lkey: table.lkey,
                })
            }
            _ => None,
        }
    }
}

/// The access flags for which each MR under a key needs `IBV_ACCESS_LOCAL_WRITE`.
const WRITES: u32 =
    sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_REMOTE_WRITE | sys::IBV_ACCESS_REMOTE_ATOMIC;

/// Returns the names of access flags.
fn flags(access: u64) -> String {
    let names = [
        ("LOCAL_WRITE", sys::IBV_ACCESS_LOCAL_WRITE),
        ("REMOTE_WRITE", sys::IBV_ACCESS_REMOTE_WRITE),
        ("REMOTE_READ", sys::IBV_ACCESS_REMOTE_READ),
        ("REMOTE_ATOMIC", sys::IBV_ACCESS_REMOTE_ATOMIC),
        ("MW_BIND", sys::IBV_ACCESS_MW_BIND),
        ("ZERO_BASED", sys::IBV_ACCESS_ZERO_BASED),
        ("ON_DEMAND", sys::IBV_ACCESS_ON_DEMAND),
        ("HUGETLB", sys::IBV_ACCESS_HUGETLB),
        ("FLUSH_GLOBAL", sys::IBV_ACCESS_FLUSH_GLOBAL),
        ("FLUSH_PERSISTENT", sys::IBV_ACCESS_FLUSH_PERSISTENT),
        ("RELAXED_ORDERING", sys::IBV_ACCESS_RELAXED_ORDERING),
    ];
    let mut rest = access;
    let mut all = Vec::new();
    for (name, flag) in names {
        if access & u64::from(flag) != 0 {
            rest &= !u64::from(flag);
            all.push(format!("IBV_ACCESS_{name}"));
        }
    }
    if rest != 0 || all.is_empty() {
        all.push(format!("{rest:#x}"));
    }
    all.join(" | ")
}

/// The names that a caller's description has for the parts of a layout.
struct Names {
    many: &'static str,
    bytes: &'static str,
}

fn names(layout: Option<&Bind>) -> Names {
    let (many, bytes) = match layout.map(|layout| layout.kind) {
        Some(sys::IB_UVERBS_MKEY_LIST) => ("ranges", "length"),
        Some(sys::IB_UVERBS_MKEY_INTERLEAVED) => ("blocks", "bytes_count"),
        Some(sys::IB_UVERBS_MKEY_INDEXED) => ("indices", "bytes_count"),
        _ => ("entries", "length"),
    };
    Names { many, bytes }
}

/// Returns the sentence for a refusal. `layout` is the layout that was refused, if it is known.
pub(crate) fn sentence(refused: &Refused, layout: Option<&Bind>) -> String {
    let Refused { value, .. } = *refused;
    let Names { many, bytes } = names(layout);
    let at = match refused.entry {
        sys::IB_MKEY_NO_ENTRY => String::new(),
        at => format!("{many}[{at}]"),
    };
    // A layout of indices has one lkey and one size, and a description has other fields.
    let is_indexed = layout.is_some_and(|layout| layout.kind == sys::IB_UVERBS_MKEY_INDEXED);
    let of = |name: &str| match at.as_str() {
        "" => name.to_owned(),
        _ if is_indexed => name.to_owned(),
        at => format!("{at}.{name}"),
    };
    let lkey = of("lkey");
    let reaches = |lowest: bool, bound: &str| match outside(refused, layout, lowest) {
        None => format!("{at} reaches outside its MR, {bound} {value:#x}"),
        Some(entry) => format!(
            "{}, the bytes {:#x} to {:#x}, is outside the MR of its lkey {:#x}, {bound} {value:#x}",
            entry.at,
            entry.first,
            entry.first.wrapping_add(entry.bytes.wrapping_sub(1)),
            entry.lkey
        ),
    };

    match refused.reason {
        sys::IB_UVERBS_MKEY_REASON_MEMORY => {
            "no memory, or a limit of the kernel's memory for keys is reached: \
             max_key_memory_per_user or max_key_memory, parameters of ib_mkey"
                .into()
        }
        sys::IB_UVERBS_MKEY_REASON_KILLED => "the process was killed".into(),
        sys::IB_UVERBS_MKEY_REASON_BUSY => {
            "a memory window or another key refers to mkey: mkeyctl who shows which; or another \
             thread binds it"
                .into()
        }
        sys::IB_UVERBS_MKEY_REASON_NOT_A_KEY => "mkey is not a key of ibmkey_alloc()".into(),
        sys::IB_UVERBS_MKEY_REASON_DEVICE => {
            "the device has no keys: mkeyctl doctor says whether ib_mkey extends it".into()
        }
        sys::IB_UVERBS_MKEY_REASON_MAX_ENTRIES => {
            format!(
                "max_entries is {value}, not 1 to {}",
                sys::IB_MKEY_MAX_INDICES
            )
        }
        sys::IB_UVERBS_MKEY_REASON_COMP_MASK => {
            format!("{} {value:#x} has an unknown bit", of("comp_mask"))
        }
        sys::IB_UVERBS_MKEY_REASON_RESERVED => {
            format!("reserved, or base_addr without its bit of comp_mask, is {value}, not 0")
        }
        sys::IB_UVERBS_MKEY_REASON_UNKNOWN_BYTES => {
            "the kernel does not know a field that is not 0: it is older than this program".into()
        }
        sys::IB_UVERBS_MKEY_REASON_FAULT => {
            let name = match layout {
                Some(layout)
                    if layout.kind == sys::IB_UVERBS_MKEY_INTERLEAVED
                        && value == layout.repeat_count =>
                {
                    "repeat_count"
                }
                _ => many,
            };
            match value {
                0 => format!("{name} is NULL"),
                _ => format!("{name} cannot be read at its address {value:#x}"),
            }
        }
        sys::IB_UVERBS_MKEY_REASON_KIND => format!("kind {value} is no kind of a layout"),
        sys::IB_UVERBS_MKEY_REASON_ENTRY_SIZE => {
            format!("entry_size {value} is not the size of an entry of this kind")
        }
        sys::IB_UVERBS_MKEY_REASON_NOT_INTERLEAVED => {
            "num_dims is not 0 or repeat_count is not NULL, and only an interleaved layout has \
             dimensions"
                .into()
        }
        sys::IB_UVERBS_MKEY_REASON_DIMS => {
            format!("num_dims is {value}, not 1 to {}", sys::IB_MKEY_MAX_DIMS)
        }
        sys::IB_UVERBS_MKEY_REASON_ONE_INDEXED => {
            format!("num_entries is {value}, and an indexed layout has 1")
        }
        sys::IB_UVERBS_MKEY_REASON_ACCESS => {
            format!("access has a flag that a key cannot have: {}", flags(value))
        }
        sys::IB_UVERBS_MKEY_REASON_LOCAL_WRITE => {
            "access has IBV_ACCESS_REMOTE_WRITE or IBV_ACCESS_REMOTE_ATOMIC without \
             IBV_ACCESS_LOCAL_WRITE"
                .into()
        }
        sys::IB_UVERBS_MKEY_REASON_DEVICE_ACCESS => {
            format!("access has a flag that the device lacks: {}", flags(value))
        }
        sys::IB_UVERBS_MKEY_REASON_EMPTY => format!("num_{many} is 0"),
        sys::IB_UVERBS_MKEY_REASON_TOO_MANY => match layout {
            Some(layout) if !is_indexed && u64::from(layout.num_entries) > value => format!(
                "num_{many} is {}, but the key was created for {value} entries",
                layout.num_entries
            ),
            _ => format!("num_{many} is more than {value}, for which the key was created"),
        },
        sys::IB_UVERBS_MKEY_REASON_STRIDE => {
            format!("{at}.stride[{value}] is not 0, and the layout has fewer dimensions")
        }
        sys::IB_UVERBS_MKEY_REASON_LKEY => {
            format!("{lkey} {value:#x} names no MR in the protection domain of mkey")
        }
        sys::IB_UVERBS_MKEY_REASON_LEAF => {
            format!("{lkey} {value:#x} names an MR of a type that cannot be a leaf")
        }
        sys::IB_UVERBS_MKEY_REASON_NO_LENGTH => {
            format!("{lkey} {value:#x} names an MR without bytes, such as a key that is not bound")
        }
        sys::IB_UVERBS_MKEY_REASON_ITSELF => format!("{lkey} {value:#x} is mkey itself"),
        sys::IB_UVERBS_MKEY_REASON_LEVELS => {
            format!("{lkey} {value:#x} is a key of too many levels")
        }
        sys::IB_UVERBS_MKEY_REASON_INDEX_BYTES => format!("index_bytes is {value}, not 4 or 8"),
        sys::IB_UVERBS_MKEY_REASON_NO_BYTES => format!("{} is 0", of(bytes)),
        sys::IB_UVERBS_MKEY_REASON_NO_REPEAT => format!("repeat_count[{value}] is 0"),
        sys::IB_UVERBS_MKEY_REASON_NO_UNIT => "unit is 0".into(),
        sys::IB_UVERBS_MKEY_REASON_ADDRESS => match many {
            "ranges" => format!("{at}: addr + length exceeds 64 bits"),
            _ => format!("{at} leads to an address beyond 64 bits"),
        },
        sys::IB_UVERBS_MKEY_REASON_LENGTH => {
            "the length of the layout, all repetitions together, exceeds 64 bits".into()
        }
        sys::IB_UVERBS_MKEY_REASON_LEAF_ACCESS => {
            let needed = layout.map_or("a flag that the key needs".into(), |layout| {
                let flush = sys::IBV_ACCESS_FLUSH_GLOBAL | sys::IBV_ACCESS_FLUSH_PERSISTENT;
                let writes = match layout.access & WRITES {
                    0 => 0,
                    _ => sys::IBV_ACCESS_LOCAL_WRITE,
                };
                flags((layout.access & flush | writes).into())
            });
            format!("the MR of {lkey} {value:#x} was registered without {needed}")
        }
        sys::IB_UVERBS_MKEY_REASON_BEFORE_LEAF => reaches(true, "which begins at"),
        sys::IB_UVERBS_MKEY_REASON_BEYOND_LEAF => reaches(false, "whose last byte is at"),
        sys::IB_UVERBS_MKEY_REASON_PIECES => format!(
            "mkey would have more than {value} pieces of memory: let its blocks be whole pieces of \
             the keys below it, or describe fewer levels of keys"
        ),
        sys::IB_UVERBS_MKEY_REASON_FLUSH_ON_DEMAND => {
            "access has IBV_ACCESS_FLUSH_PERSISTENT, and the layout has an ODP MR".into()
        }
        sys::IB_UVERBS_MKEY_REASON_FLUSH_PIECES => format!(
            "access has IBV_ACCESS_FLUSH_PERSISTENT, and the layout has more than {value} pieces"
        ),
        sys::IB_UVERBS_MKEY_REASON_FLUSH_BYTES => format!(
            "access has IBV_ACCESS_FLUSH_PERSISTENT, and the layout has more than {value} bytes"
        ),
        sys::IB_UVERBS_MKEY_REASON_RKEY => {
            format!("rkey {value:#x} differs from that of mkey in more than the low 8 bits")
        }
        sys::IB_UVERBS_MKEY_REASON_CIRCLE => format!(
            "a key in {many} leads back to mkey through other keys: mkeyctl who shows which"
        ),
        sys::IB_UVERBS_MKEY_REASON_NUM_KEYS => {
            format!("num is {value}, not 1 to {}", sys::IB_MKEY_MAX_BINDS)
        }
        sys::IB_UVERBS_MKEY_REASON_TWICE => "mkey is there twice".into(),
        sys::IB_UVERBS_MKEY_REASON_OTHER_DEVICE => "mkey is of another context".into(),
        sys::IB_UVERBS_MKEY_REASON_VERSION => {
            format!(
                "the description has version {value}, not {}",
                sys::IB_MKEY_LAYOUT_VERSION
            )
        }
        sys::IB_UVERBS_MKEY_REASON_DESCRIPTION => {
            format!("the description has {value} bytes, and its header says another length")
        }
        sys::IB_UVERBS_MKEY_REASON_DESCRIPTION_LKEY => format!(
            "the request's lkey {value:#x} names no MR in the protection domain of the queue pair"
        ),
        sys::IB_UVERBS_MKEY_REASON_DESCRIPTION_LEAF => format!(
            "the description is in the MR of lkey {value:#x}, which is an ODP MR or no ordinary MR"
        ),
        sys::IB_UVERBS_MKEY_REASON_DESCRIPTION_RANGE => {
            format!("the description is not within the MR of the request's lkey {value:#x}")
        }
        sys::IB_UVERBS_MKEY_REASON_PORTION => {
            format!("the rkey {value:#x}, by which the request names mkey, is not that of mkey")
        }
        sys::IB_UVERBS_MKEY_REASON_NOT_MAPPED => {
            format!("no layout is mapped to mkey under the rkey {value:#x}")
        }
        sys::IB_UVERBS_MKEY_REASON_INDICES => "indices is not 0 in the description".into(),
        sys::IB_UVERBS_MKEY_REASON_ALL_MAPPED => {
            "as many layouts are mapped to mkey as it can have".into()
        }
        sys::IB_UVERBS_MKEY_REASON_ACCESS_UNBOUND => "nothing is bound to it".into(),
        sys::IB_UVERBS_MKEY_REASON_ACCESS_RANGE => {
            format!("it has {value} bytes, whose addresses begin at 0")
        }
        sys::IB_UVERBS_MKEY_REASON_ACCESS_FLAGS => {
            format!("its access flags are {}", flags(value))
        }
        sys::IB_UVERBS_MKEY_REASON_ACCESS_PD => {
            "the queue pair is in another protection domain".into()
        }
        sys::IB_UVERBS_MKEY_REASON_ACCESS_KEY => format!("its lkey and rkey are {value:#x} now"),
        sys::IB_UVERBS_MKEY_REASON_ACCESS_LEAF => {
            "an MR under it was registered again, or lacks IBV_ACCESS_LOCAL_WRITE now".into()
        }
        sys::IB_UVERBS_MKEY_REASON_ACCESS_PIECES => {
            "the eight bytes are not in one piece of memory".into()
        }
        sys::IB_UVERBS_MKEY_REASON_ACCESS_ALIGN => {
            "the memory under it is not aligned to eight bytes".into()
        }
        sys::IB_UVERBS_MKEY_REASON_ACCESS_MEMORY => {
            "the process has no memory there, or may not write it".into()
        }
        sys::IB_UVERBS_MKEY_REASON_ACCESS_POISON => {
            "the persistent memory under it cannot be read".into()
        }
        sys::IB_UVERBS_MKEY_REASON_BASE => {
            format!("the addresses of the key, from base_addr {value:#x} on, exceed 64 bits")
        }
        sys::IB_UVERBS_MKEY_REASON_ACCESS_BASE => {
            format!("its addresses begin at {value:#x}, and the bytes are not all there")
        }
        reason => format!(
            "the kernel gives the reason {reason} with {value:#x}, which this library does not know"
        ),
    }
}

#[cfg(test)]
#[path = "reason_tests.rs"]
mod tests;
