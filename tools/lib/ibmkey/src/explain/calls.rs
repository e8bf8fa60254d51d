// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Sentences about calls that failed, except those that bind a key. A sentence names the argument,
//! and its field or element, if the errno value and the arguments show which one caused the error.

use crate::{
    dmabuf,
    errno::{
        Errno,
        Result, //
    },
    iov,
    sys::{
        self,
        ibmkey_alloc_attr as AllocAttr,
        ibmkey_bind as Bind,
        ibmkey_wr as Wr,
        ibv_alloc_dm_attr as DmAttr,
        ibv_pd as Pd,
        iovec as Iovec, //
    },
};

pub(super) const KEY_MEMORY: &str =
    "no memory, or a limit of the kernel's memory for keys is reached: max_key_memory_per_user or \
     max_key_memory, parameters of ib_mkey";
pub(super) const BUSY: &str = "a memory window or another key refers to";
pub(super) const NO_KEYS: &str = "the device has no keys: mkeyctl doctor says why";

/// Access flags that every device accepts.
const ALWAYS: u32 = sys::IBV_ACCESS_LOCAL_WRITE
    | sys::IBV_ACCESS_REMOTE_READ
    | sys::IBV_ACCESS_REMOTE_WRITE
    | sys::IBV_ACCESS_REMOTE_ATOMIC
    | sys::IBV_ACCESS_MW_BIND
    | sys::IBV_ACCESS_ZERO_BASED
    | sys::IBV_ACCESS_RELAXED_ORDERING;

/// If a call failed, stores the sentence that `why` returns.
pub(crate) fn explained<T>(result: Result<T>, why: impl FnOnce(Errno) -> String) -> Result<T> {
    result.inspect_err(|&errno| super::store_sentence(&why(errno)))
}

/// Says what is wrong with access flags. Returns `None` if they have no fault that all devices
/// refuse.
fn access_reason(access: u32) -> Option<String> {
    let remote = sys::IBV_ACCESS_REMOTE_WRITE | sys::IBV_ACCESS_REMOTE_ATOMIC;

    (access & remote != 0 && access & sys::IBV_ACCESS_LOCAL_WRITE == 0).then(|| {
        "access has IBV_ACCESS_REMOTE_WRITE or IBV_ACCESS_REMOTE_ATOMIC without \
         IBV_ACCESS_LOCAL_WRITE"
            .to_owned()
    })
}

pub(super) fn other(errno: Errno) -> String {
    format!("the kernel refused the call: {errno}")
}

/// Explains a failure of `ibmkey_alloc()`.
pub(crate) fn alloc(has_pd: bool, max_entries: u32, errno: Errno) -> String {
    let most = sys::IB_MKEY_MAX_INDICES;

    match errno.get() {
        libc::EINVAL if !has_pd => "pd is NULL".into(),
        libc::EINVAL if max_entries == 0 || max_entries > most => {
            format!("max_entries is {max_entries}, not 1 to {most}")
        }
        libc::ENOMEM => KEY_MEMORY.into(),
        libc::EOPNOTSUPP => NO_KEYS.into(),
        _ => other(errno),
    }
}

/// Explains a failure of `ibmkey_alloc_ex()`; `attr` is `None` for NULL.
pub(crate) fn alloc_ex(has_pd: bool, attr: Option<&AllocAttr>, errno: Errno) -> String {
    let Some(attr) = attr else {
        return "attr is NULL".into();
    };

    match errno.get() {
        libc::EINVAL if attr.comp_mask != 0 => "attr.comp_mask is not 0".into(),
        libc::EINVAL if attr.flags & !sys::IBMKEY_ALLOC_YIELD != 0 => {
            format!("attr.flags {:#x} has an unknown bit", attr.flags)
        }
        libc::EINVAL if has_pd => format!("attr.{}", alloc(has_pd, attr.max_entries, errno)),
        _ => alloc(has_pd, attr.max_entries, errno),
    }
}

/// Explains a failure of `ibmkey_reg_iov()`; `iov` is `None` for NULL.
///
/// # Safety
///
/// `pd` is NULL or a protection domain.
pub(crate) unsafe fn reg_iov(
    pd: *mut Pd,
    iov: Option<&[Iovec]>,
    access: u32,
    errno: Errno,
) -> String {
    let Some(iov) = iov else {
        return "iov is NULL".into();
    };

    match errno.get() {
        libc::EINVAL if pd.is_null() => "pd is NULL".into(),
        libc::EINVAL if iov.is_empty() => "num_iov is 0".into(),
        libc::EINVAL if iov.iter().all(|element| element.iov_len == 0) => {
            "iov_len of each element of iov is 0".into()
        }
        libc::EINVAL => access_reason(access).unwrap_or_else(|| {
            // SAFETY: By the caller's promise.
            let refused = unsafe { iov::first_refused(pd, iov, access, errno) };
            match refused.filter(|_| access & !ALWAYS == 0) {
                Some((at, element)) => {
                    format!("iov[{at}].iov_len {}: the device refuses so much memory", element.iov_len)
                }
                None => format!("access {access:#x} has a flag that the device refuses"),
            }
        }),
        libc::EOVERFLOW => match iov::too_far(iov) {
            Some(at) => format!("iov[{at}].iov_len: iov_base + iov_len exceeds 64 bits"),
            None => other(errno),
        },
        // SAFETY: By the caller's promise.
        libc::EFAULT => match unsafe { iov::first_refused(pd, iov, access, errno) } {
            Some((at, element)) => format!(
                "iov[{at}].iov_base {:#x}, {} bytes: not mapped, or not writable while access allows writing",
                element.iov_base as u64, element.iov_len
            ),
            None => "memory of an element of iov cannot be registered".into(),
        },
        libc::ENOSPC => format!(
            "num_iov is {}, and a key of this device has fewer entries",
            iov.len()
        ),
        libc::ENOMEM => {
            format!("no memory, or more than RLIMIT_MEMLOCK would be locked; or {KEY_MEMORY}")
        }
        libc::EOPNOTSUPP => NO_KEYS.into(),
        _ => other(errno),
    }
}

/// Explains a failure of `ibmkey_describe()`; `bind` is `None` for NULL. `has_room` is false if
/// `to` is NULL and `room` is not 0.
pub(crate) fn describe(bind: Option<&Bind>, has_room: bool) -> String {
    let Some(bind) = bind else {
        return "bind is NULL".into();
    };
    if !has_room {
        return "to is NULL, and room is not 0".into();
    }
    let most = sys::IB_MKEY_MAX_ENTRIES;
    let too_many = |count, what: &str| match count {
        0 => format!("bind.num_entries is 0, for {what}"),
        _ if count > most => format!("bind.num_entries is {count}, more than {most} {what}"),
        _ => format!("bind.{what} is NULL"),
    };

    match bind.kind {
        _ if bind.comp_mask & !crate::request::KNOWN != 0 => {
            "bind.comp_mask has an unknown bit".into()
        }
        sys::IBMKEY_LIST => too_many(bind.num_entries, "ranges"),
        sys::IBMKEY_INTERLEAVED if bind.num_dims == 0 || bind.num_dims > sys::IBMKEY_MAX_DIMS => {
            format!(
                "bind.num_dims is {}, not 1 to {}",
                bind.num_dims,
                sys::IBMKEY_MAX_DIMS
            )
        }
        sys::IBMKEY_INTERLEAVED if bind.repeat_count.is_null() => {
            "bind.repeat_count is NULL".into()
        }
        sys::IBMKEY_INTERLEAVED => too_many(bind.num_entries, "blocks"),
        // SAFETY: By the contract of `ibmkey_describe()`, a bind of this kind has this member of
        // the union, which is NULL or a layout.
        sys::IBMKEY_INDEXED => match unsafe { bind.__bindgen_anon_1.indexed.as_ref() } {
            Some(layout) => {
                let found = super::invalid_indexed(layout);
                let found = found.unwrap_or_else(|| {
                    let most = sys::IB_MKEY_MAX_INDICES;
                    format!("num_indices is {}, not 1 to {most}", layout.num_indices)
                });
                format!("bind.indexed: {found}")
            }
            None => "bind.indexed is NULL".into(),
        },
        kind => format!("bind.kind {kind} is none of enum ibmkey_kind"),
    }
}

/// Explains a failure of `ibmkey_post_bind()`, where `posted` is true, or of `ibmkey_wr_bind()`.
/// `wr` is `None` for NULL. `has_qp` is false if the queue pair is NULL. A posted request must name
/// its description by an MR.
pub(crate) fn request(has_qp: bool, wr: Option<&Wr>, posted: bool, errno: Errno) -> String {
    let Some(wr) = wr else {
        return "wr is NULL".into();
    };

    match errno.get() {
        libc::EINVAL if !has_qp => "qp is NULL".into(),
        libc::EINVAL if wr.length == 0 => "wr.length is 0".into(),
        libc::EINVAL if posted && wr.mr.is_null() => {
            "wr.mr is NULL: only ibmkey_wr_bind() takes a description that is inline".into()
        }
        libc::EINVAL if wr.comp_mask != 0 => "wr.comp_mask is not 0".into(),
        libc::EINVAL if wr.mkey.is_null() => "wr.mkey is NULL".into(),
        _ => queue(posted, errno),
    }
}

/// Explains a failure of `ibmkey_post_unbind()`, where `posted` is true, or of
/// `ibmkey_wr_unbind()`.
pub(crate) fn unbind_request(has_qp: bool, has_key: bool, posted: bool, errno: Errno) -> String {
    match errno.get() {
        libc::EINVAL if !has_qp => "qp is NULL".into(),
        libc::EINVAL if !has_key => "mkey is NULL".into(),
        _ => queue(posted, errno),
    }
}

/// Explains why the provider refused a request.
fn queue(posted: bool, errno: Errno) -> String {
    match errno.get() {
        libc::ENOMEM => "the send queue of qp is full".into(),
        libc::EOPNOTSUPP if !posted => {
            "qp was created without the send operations IBV_QP_EX_WITH_BIND_MW and \
             IBV_QP_EX_WITH_LOCAL_INV"
                .into()
        }
        _ => format!("qp refused the request: {errno}; its state may be wrong"),
    }
}

/// The bits of `enum ibmkey_dm_class`.
const CLASSES: [u64; 4] = [
    sys::IBMKEY_DM_HOST as u64,
    sys::IBMKEY_DM_NODE as u64,
    sys::IBMKEY_DM_P2P as u64,
    sys::IBMKEY_DM_PMEM as u64,
];

/// `ibmkey_alloc_dm()`; `attr` is `None` for NULL.
pub(crate) fn alloc_dm(has_ctx: bool, attr: Option<&DmAttr>, class: u64, errno: Errno) -> String {
    let Some(attr) = attr else {
        return "attr is NULL".into();
    };

    match errno.get() {
        libc::EINVAL if !has_ctx => "ctx is NULL".into(),
        libc::EINVAL if attr.length == 0 => "attr.length is 0".into(),
        libc::EINVAL if attr.length > u32::MAX as usize => {
            format!("attr.length {} exceeds 32 bits", attr.length)
        }
        libc::EINVAL if attr.comp_mask != 0 => "attr.comp_mask is not 0".into(),
        // The bits above the lowest 8 are the number of a class.
        libc::EINVAL if class != 0 && !CLASSES.contains(&(class & 0xff)) => {
            format!("dm_class {class:#x} is none of enum ibmkey_dm_class")
        }
        libc::EINVAL if class == 0 => {
            format!("attr.log_align_req {} is too large", attr.log_align_req)
        }
        libc::EINVAL => format!(
            "attr.log_align_req {} is too large, or dm_class {class:#x} has a wrong number",
            attr.log_align_req
        ),
        libc::EOPNOTSUPP => format!(
            "the device gives no memory of dm_class {class}: mkeyctl caps shows the classes"
        ),
        libc::EBUSY => format!("another user has the memory of dm_class {class} open"),
        libc::ENOMEM => format!(
            "attr.length {}: no memory, or a limit of the device, the class or the process is reached: see mkeyctl ls dm",
            attr.length
        ),
        _ => other(errno),
    }
}

/// The arguments of `ibmkey_reg_dmabuf_mr()`.
pub(crate) struct DmaBuf {
    pub(crate) has_pd: bool,
    pub(crate) offset: u64,
    pub(crate) length: usize,
    pub(crate) iova: u64,
    pub(crate) fd: i32,
    pub(crate) access: u32,
}

impl DmaBuf {
    /// Says what is invalid. `bytes` is the size of the dma-buf, `None` if `fd` is not a dma-buf.
    fn invalid(&self, bytes: Option<u64>) -> String {
        let Self {
            offset,
            length,
            iova,
            fd,
            access,
            ..
        } = self;
        let Some(bytes) = bytes else {
            return format!("fd {fd} is no dma-buf");
        };
        let end = offset.checked_add(*length as u64);

        if end.is_none_or(|end| end > bytes) {
            return format!(
                "offset {offset} + length {length} is outside of the dma-buf, which has {bytes} bytes"
            );
        }
        if (iova ^ offset) & iov::page_size().wrapping_sub(1) != 0 {
            return format!("iova {iova:#x} and offset {offset:#x} differ in the offset in a page");
        }
        access_reason(*access)
            .unwrap_or_else(|| format!("access {access:#x} has a flag that the device refuses"))
    }
    pub(crate) fn sentence(&self, errno: Errno) -> String {
        let Self {
            length, fd, access, ..
        } = self;

        match errno.get() {
            libc::EBADF => format!("fd {fd} is no open descriptor"),
            libc::EINVAL if !self.has_pd => "pd is NULL".into(),
            libc::EINVAL if *length == 0 => "length is 0".into(),
            libc::EINVAL => self.invalid(dmabuf::size(*fd)),
            libc::EACCES => {
                format!("access {access:#x} allows writing, and the dma-buf is read-only")
            }
            libc::ENODEV => "the dma-buf was revoked by its exporter".into(),
            libc::ENOMEM => KEY_MEMORY.into(),
            libc::EOPNOTSUPP => {
                "the exporter of the dma-buf gives the kernel no mapping, or the device is not extended"
                    .into()
            }
            _ => other(errno),
        }
    }
}

/// The arguments of `ibmkey_rereg_mr()`.
pub(crate) struct Rereg {
    pub(crate) has_mr: bool,
    pub(crate) has_pd: bool,
    pub(crate) flags: u32,
    pub(crate) length: usize,
    pub(crate) access: u32,
}

impl Rereg {
    pub(crate) fn sentence(&self, errno: Errno) -> String {
        const ALL: u32 = sys::IBV_REREG_MR_CHANGE_TRANSLATION
            | sys::IBV_REREG_MR_CHANGE_PD
            | sys::IBV_REREG_MR_CHANGE_ACCESS;
        let has = |flag| self.flags & flag != 0;

        match errno.get() {
            libc::EINVAL if !self.has_mr => "mr is NULL".into(),
            libc::EINVAL | libc::EOPNOTSUPP if self.flags == 0 || self.flags & !ALL != 0 => {
                format!("flags {:#x} is no set of IBV_REREG_MR_CHANGE_*", self.flags)
            }
            libc::EINVAL if has(sys::IBV_REREG_MR_CHANGE_PD) && !self.has_pd => {
                "pd is NULL, and flags has IBV_REREG_MR_CHANGE_PD".into()
            }
            libc::EINVAL if has(sys::IBV_REREG_MR_CHANGE_TRANSLATION) && self.length == 0 => {
                "length is 0, and flags has IBV_REREG_MR_CHANGE_TRANSLATION".into()
            }
            libc::EINVAL if has(sys::IBV_REREG_MR_CHANGE_ACCESS) => access_reason(self.access)
                .unwrap_or_else(|| {
                    format!(
                        "access {:#x} has a flag that the device refuses, or mr is over device memory",
                        self.access
                    )
                }),
            libc::EINVAL => "the device refuses addr and length, or mr is over device memory".into(),
            libc::EBUSY => format!(
                "{BUSY} mr (mkeyctl who shows which), or it is in use without a pause"
            ),
            libc::EOPNOTSUPP => "mr is a key or an MR over a dma-buf".into(),
            libc::EFAULT => "memory of addr and length is not mapped, or not writable".into(),
            libc::ENOMEM => "no memory, or more than RLIMIT_MEMLOCK would be locked".into(),
            _ => other(errno),
        }
    }
}

/// Explains a failure of `ibmkey_pool_create()`.
pub(crate) fn pool_create(has_pd: bool, max_entries: u32, max_keys: u32, errno: Errno) -> String {
    let most = sys::IB_MKEY_MAX_INDICES;

    match errno.get() {
        libc::EINVAL if max_keys == 0 => "max_keys is 0".into(),
        libc::EINVAL if !has_pd => "pd is NULL".into(),
        libc::EINVAL => format!("max_entries is {max_entries}, not 1 to {most}"),
        libc::ENOMEM => KEY_MEMORY.into(),
        libc::EOPNOTSUPP => NO_KEYS.into(),
        _ => other(errno),
    }
}

/// Explains a failure of `ibmkey_pool_get()`; `max_keys` is `None` if the pool is NULL.
pub(crate) fn pool_get(max_keys: Option<u32>, errno: Errno) -> String {
    let Some(max_keys) = max_keys else {
        return "pool is NULL".into();
    };

    match errno.get() {
        libc::EAGAIN => format!("all {max_keys} keys of the pool are in use"),
        libc::ENOMEM => KEY_MEMORY.into(),
        _ => other(errno),
    }
}

/// Explains a failure of `ibmkey_pool_put()`.
pub(crate) fn pool_put(has_pool: bool, errno: Errno) -> String {
    match errno.get() {
        libc::EINVAL if !has_pool => "pool is NULL".into(),
        libc::EINVAL => "mkey is no key of this pool, or it was given back before".into(),
        libc::EBUSY => format!("{BUSY} mkey: mkeyctl who shows which"),
        _ => other(errno),
    }
}

/// Explains a failure of `ibmkey_pool_destroy()`.
pub(crate) fn pool_destroy(errno: Errno) -> String {
    match errno.get() {
        libc::EBUSY => {
            format!("a key of the pool was not given back, or {BUSY} one: mkeyctl who shows which")
        }
        _ => other(errno),
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
#[path = "calls_tests.rs"]
mod tests;
