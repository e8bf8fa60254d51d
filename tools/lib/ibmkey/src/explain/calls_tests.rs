// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Tests the sentences about calls that fail without a device. The tests use the C interface, as a
//! program does.

use core::{
    ffi::{
        c_int,
        c_void,
        CStr, //
    },
    ptr::{
        null,
        null_mut, //
    },
};

use super::*;
use crate::{
    ffi,
    sys::{
        ibv_mr,
        ibv_qp, //
    },
};

/// Returns the sentence about the last call that failed.
fn said() -> String {
    // SAFETY: The pointer is to a C string until the next call that fails, and this thread makes no
    // call meanwhile.
    unsafe { CStr::from_ptr(ffi::ibmkey_last_error()) }
        .to_string_lossy()
        .into_owned()
}

fn raw(errno: c_int) -> Errno {
    Errno::from_raw(errno)
}

fn element(start: u64, length: usize) -> Iovec {
    Iovec {
        iov_base: start as *mut c_void,
        iov_len: length,
    }
}

/// Returns a pointer for calls that fail before they use the protection domain.
fn some_pd() -> *mut Pd {
    core::ptr::NonNull::dangling().as_ptr()
}

#[test]
fn a_new_key_names_its_argument() {
    let mut attr = AllocAttr::default();

    // SAFETY: NULL is no protection domain.
    unsafe {
        assert!(ffi::ibmkey_alloc(null_mut(), 1).is_null());
        assert_eq!(said(), "pd is NULL");
        assert!(ffi::ibmkey_alloc_ex(null_mut(), null()).is_null());
        assert_eq!(said(), "attr is NULL");
        attr.comp_mask = 1;
        assert!(ffi::ibmkey_alloc_ex(null_mut(), &attr).is_null());
        assert_eq!(said(), "attr.comp_mask is not 0");
        attr.comp_mask = 0;
        assert!(ffi::ibmkey_alloc_ex(null_mut(), &attr).is_null());
        assert_eq!(said(), "pd is NULL");
    }
    let says = |attr: &AllocAttr, errno| alloc_ex(true, Some(attr), raw(errno));
    assert!(alloc(true, 0, raw(libc::EINVAL)).starts_with("max_entries is 0, not 1 to "));
    assert!(says(&attr, libc::EINVAL).starts_with("attr.max_entries is 0, not 1 to "));
    attr.flags = 6;
    assert_eq!(
        says(&attr, libc::EINVAL),
        "attr.flags 0x6 has an unknown bit"
    );
    // These calls register no memory, so the limit on locked memory is not the reason.
    for text in [alloc(true, 1, raw(libc::ENOMEM)), says(&attr, libc::ENOMEM)] {
        assert!(text.contains("max_key_memory_per_user"), "{text}");
        assert!(!text.contains("MEMLOCK"), "{text}");
    }
}

#[test]
fn an_iovec_names_its_element() {
    let iov = [element(0x1000, 8), element(u64::MAX, 2)];
    // SAFETY: The elements are checked before the protection domain is used.
    unsafe {
        assert!(ffi::ibmkey_reg_iov(some_pd(), null(), 2, 0).is_null());
        assert_eq!(said(), "iov is NULL");
        assert!(ffi::ibmkey_reg_iov(some_pd(), null(), 0, 0).is_null());
        assert_eq!(said(), "num_iov is 0");
        assert!(ffi::ibmkey_reg_iov(some_pd(), [element(9, 0)].as_ptr(), 1, 0).is_null());
        assert_eq!(said(), "iov_len of each element of iov is 0");
        assert!(ffi::ibmkey_reg_iov(some_pd(), iov.as_ptr(), 2, 0).is_null());
        assert_eq!(said(), "iov[1].iov_len: iov_base + iov_len exceeds 64 bits");
        assert!(ffi::ibmkey_reg_iov(null_mut(), iov.as_ptr(), 1, 0).is_null());
        assert_eq!(said(), "pd is NULL");
        let writes = sys::IBV_ACCESS_REMOTE_WRITE;
        let text = reg_iov(some_pd(), Some(&iov), writes, raw(libc::EINVAL));
        assert!(text.contains("without IBV_ACCESS_LOCAL_WRITE"), "{text}");
        let text = reg_iov(some_pd(), Some(&iov), 0, raw(libc::ENOMEM));
        assert!(text.contains("RLIMIT_MEMLOCK"), "{text}");
    }
}

#[test]
fn a_description_names_its_field() {
    let mut bind = Bind {
        kind: sys::IBMKEY_LIST,
        num_entries: 1,
        ..Bind::default()
    };
    let mut says = |change: &dyn Fn(&mut Bind), words: &str| {
        change(&mut bind);
        // SAFETY: NULL is allowed, and nothing is written to no room.
        let length = unsafe { ffi::ibmkey_describe(&bind, null_mut(), 0) };
        assert_eq!(length, 0);
        assert_eq!(said(), words);
    };

    says(&|_| {}, "bind.ranges is NULL");
    says(
        &|bind| bind.num_entries = 70000,
        "bind.num_entries is 70000, more than 65536 ranges",
    );
    let range = sys::ibmkey_range::default();
    says(
        &|bind| {
            bind.num_entries = 0;
            bind.__bindgen_anon_1.ranges = &range;
        },
        "bind.num_entries is 0, for ranges",
    );
    says(
        &|bind| bind.kind = sys::IBMKEY_INTERLEAVED,
        "bind.num_dims is 0, not 1 to 8",
    );
    says(&|bind| bind.num_dims = 1, "bind.repeat_count is NULL");
    says(
        &|bind| {
            bind.kind = sys::IBMKEY_INDEXED;
            bind.__bindgen_anon_1.indexed = null();
        },
        "bind.indexed is NULL",
    );
    // The indices themselves are not read.
    let mut indexed = sys::ibmkey_indexed {
        unit: 8,
        bytes_count: 8,
        indices64: &0,
        ..sys::ibmkey_indexed::default()
    };
    let most = sys::IB_MKEY_MAX_INDICES;
    for wrong in [0, most + 1, u32::MAX] {
        indexed.num_indices = wrong;
        says(
            &|bind| bind.__bindgen_anon_1.indexed = &indexed,
            &format!("bind.indexed: num_indices is {wrong}, not 1 to {most}"),
        );
    }
    says(
        &|bind| bind.kind = 77,
        "bind.kind 77 is none of enum ibmkey_kind",
    );
    says(
        &|bind| bind.comp_mask = 1 << 60,
        "bind.comp_mask has an unknown bit",
    );
    // SAFETY: As above.
    unsafe {
        assert_eq!(ffi::ibmkey_describe(null(), null_mut(), 0), 0);
        assert_eq!(said(), "bind is NULL");
        assert_eq!(ffi::ibmkey_describe(&Bind::default(), null_mut(), 9), 0);
    }
    assert_eq!(said(), "to is NULL, and room is not 0");
}

#[test]
fn a_request_names_its_field() {
    let mut wr = Wr::default();
    let mut mr = ibv_mr::default();
    let qp: *mut ibv_qp = core::ptr::NonNull::dangling().as_ptr();

    // SAFETY: Each call fails before it uses the queue pair.
    unsafe {
        assert_eq!(ffi::ibmkey_post_bind(qp, null(), 0, 0), libc::EFAULT);
        assert_eq!(said(), "wr is NULL");
        assert_eq!(ffi::ibmkey_post_bind(null_mut(), &wr, 0, 0), libc::EINVAL);
        assert_eq!(said(), "qp is NULL");
        assert_eq!(ffi::ibmkey_post_bind(qp, &wr, 0, 0), libc::EINVAL);
        assert_eq!(said(), "wr.length is 0");
        wr.length = 8;
        assert_eq!(ffi::ibmkey_post_bind(qp, &wr, 0, 0), libc::EINVAL);
        assert!(said().starts_with("wr.mr is NULL"));
        wr.mr = &mut mr;
        assert_eq!(ffi::ibmkey_post_bind(qp, &wr, 0, 0), libc::EINVAL);
        assert_eq!(said(), "wr.mkey is NULL");
        wr.comp_mask = 1;
        assert_eq!(ffi::ibmkey_post_bind(qp, &wr, 0, 0), libc::EINVAL);
        assert_eq!(said(), "wr.comp_mask is not 0");
        assert_eq!(ffi::ibmkey_wr_bind(null_mut(), &wr), libc::EINVAL);
        assert_eq!(said(), "qp is NULL");
        assert_eq!(ffi::ibmkey_post_unbind(qp, null_mut(), 0, 0), libc::EINVAL);
        assert_eq!(said(), "mkey is NULL");
        assert_eq!(ffi::ibmkey_wr_unbind(null_mut(), &mut mr), libc::EINVAL);
        assert_eq!(said(), "qp is NULL");
    }
    assert_eq!(
        request(true, Some(&wr), true, raw(libc::ENOMEM)),
        "the send queue of qp is full"
    );
    assert!(request(true, Some(&wr), false, raw(libc::EOPNOTSUPP)).contains("WITH_BIND_MW"));
}

#[test]
fn device_memory_names_its_field() {
    let mut attr = DmAttr::default();

    // SAFETY: NULL is no context.
    unsafe {
        assert!(ffi::ibmkey_alloc_dm(null_mut(), null(), 0).is_null());
        assert_eq!(said(), "attr is NULL");
        assert!(ffi::ibmkey_alloc_dm(null_mut(), &attr, 0).is_null());
        assert_eq!(said(), "ctx is NULL");
    }
    let says = |attr: &DmAttr, errno| alloc_dm(true, Some(attr), 9, raw(errno));
    assert_eq!(says(&attr, libc::EINVAL), "attr.length is 0");
    attr.length = 1 << 32;
    assert_eq!(
        says(&attr, libc::EINVAL),
        "attr.length 4294967296 exceeds 32 bits"
    );
    attr.length = 4096;
    assert_eq!(
        says(&attr, libc::EINVAL),
        "dm_class 0x9 is none of enum ibmkey_dm_class"
    );
    attr.log_align_req = 63;
    assert_eq!(
        alloc_dm(true, Some(&attr), 0, raw(libc::EINVAL)),
        "attr.log_align_req 63 is too large"
    );
    assert!(says(&attr, libc::EOPNOTSUPP).contains("dm_class 9: mkeyctl caps"));
    assert!(says(&attr, libc::ENOMEM).starts_with("attr.length 4096: no memory"));
}

#[test]
fn regions_name_their_argument() {
    // SAFETY: NULL is no MR and no protection domain.
    unsafe {
        assert!(ffi::ibmkey_reg_dmabuf_mr(null_mut(), 0, 8, 0, -1, 0).is_null());
        assert_eq!(said(), "fd -1 is no open descriptor");
        assert!(ffi::ibmkey_reg_dmabuf_mr(null_mut(), 0, 8, 0, 3, 0).is_null());
        assert_eq!(said(), "pd is NULL");
        let ret = ffi::ibmkey_rereg_mr(null_mut(), 1, null_mut(), null_mut(), 0, 0);
        assert_eq!(ret, libc::EINVAL);
        assert_eq!(said(), "mr is NULL");
    }
    let mut dmabuf = DmaBuf {
        has_pd: true,
        offset: 4096,
        length: 0,
        iova: 7,
        fd: -1,
        access: 1 << 31,
    };
    assert_eq!(dmabuf.sentence(raw(libc::EINVAL)), "length is 0");
    dmabuf.length = 8;
    assert_eq!(dmabuf.sentence(raw(libc::EINVAL)), "fd -1 is no dma-buf");
    assert_eq!(
        dmabuf.invalid(Some(4096)),
        "offset 4096 + length 8 is outside of the dma-buf, which has 4096 bytes"
    );
    assert!(dmabuf
        .invalid(Some(8192))
        .starts_with("iova 0x7 and offset 0x1000"));
    dmabuf.iova = 0;
    assert!(dmabuf.invalid(Some(8192)).starts_with("access 0x80000000"));
    let mut rereg = Rereg {
        has_mr: true,
        has_pd: false,
        flags: sys::IBV_REREG_MR_CHANGE_PD,
        length: 0,
        access: 0,
    };
    assert!(rereg.sentence(raw(libc::EINVAL)).starts_with("pd is NULL"));
    rereg.flags = sys::IBV_REREG_MR_CHANGE_TRANSLATION;
    assert!(rereg.sentence(raw(libc::EINVAL)).starts_with("length is 0"));
    rereg.flags = 64;
    assert!(rereg.sentence(raw(libc::EINVAL)).starts_with("flags 0x40"));
    rereg.flags = sys::IBV_REREG_MR_CHANGE_ACCESS;
    rereg.access = sys::IBV_ACCESS_REMOTE_WRITE;
    assert!(rereg
        .sentence(raw(libc::EINVAL))
        .contains("without IBV_ACCESS_LOCAL_WRITE"));
}

#[test]
fn pools_name_their_argument() {
    // SAFETY: NULL is no pool and no protection domain.
    unsafe {
        assert!(ffi::ibmkey_pool_create(null_mut(), 1, 0).is_null());
        assert_eq!(said(), "max_keys is 0");
        assert!(ffi::ibmkey_pool_create(null_mut(), 1, 1).is_null());
        assert_eq!(said(), "pd is NULL");
        assert!(ffi::ibmkey_pool_get(null_mut()).is_null());
        assert_eq!(said(), "pool is NULL");
        assert_eq!(ffi::ibmkey_pool_put(null_mut(), null_mut()), libc::EINVAL);
        assert_eq!(said(), "pool is NULL");
    }
    assert!(pool_create(true, 0, 1, raw(libc::EINVAL)).starts_with("max_entries is 0"));
    assert_eq!(
        pool_get(Some(7), raw(libc::EAGAIN)),
        "all 7 keys of the pool are in use"
    );
    assert!(pool_put(true, raw(libc::EINVAL)).contains("given back before"));
    assert!(pool_destroy(raw(libc::EBUSY)).contains("not given back"));
}
