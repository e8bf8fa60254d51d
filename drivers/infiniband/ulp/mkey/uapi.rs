// SPDX-License-Identifier: GPL-2.0

//! Structures of `include/uapi/rdma/ib_mkey_ioctl.h` in the memory of processes.

use crate::{
    bindings::{
        ib_uverbs_mkey_bind, ib_uverbs_mkey_block, ib_uverbs_mkey_indexed, ib_uverbs_mkey_layout,
        ib_uverbs_mkey_sge,
    },
    kernel_ext::transmute::plain_bytes,
    layout::MAX_DIMS,
};

plain_bytes!(ib_uverbs_mkey_sge {
    addr: u64,
    length: u64,
    lkey: u32,
    comp_mask: u32,
});

plain_bytes!(ib_uverbs_mkey_block {
    addr: u64,
    bytes_count: u64,
    stride: [i64; MAX_DIMS],
    lkey: u32,
    comp_mask: u32,
});

plain_bytes!(ib_uverbs_mkey_indexed {
    addr: u64,
    unit: u64,
    bytes_count: u64,
    indices: u64,
    num_indices: u32,
    index_bytes: u32,
    lkey: u32,
    comp_mask: u32,
});

plain_bytes!(ib_uverbs_mkey_layout {
    version: u32,
    kind: u32,
    num_entries: u32,
    entry_size: u32,
    num_dims: u32,
    comp_mask: u32,
});

plain_bytes!(ib_uverbs_mkey_bind {
    entries: u64,
    repeat_count: u64,
    kind: u32,
    num_entries: u32,
    entry_size: u32,
    num_dims: u32,
    access: u32,
    comp_mask: u32,
    rkey: u32,
    reserved: u32,
});
