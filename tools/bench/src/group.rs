// SPDX-License-Identifier: GPL-2.0

//! Descriptions of the groups of measurements.

/// The direction in which a figure is better.
#[derive(Clone, Copy, PartialEq)]
pub enum Quantity {
    /// Bytes or operations per second.
    Rate,
    /// Time of one operation.
    Latency,
}

/// The quantity along the horizontal axis.
#[derive(Clone, Copy, PartialEq)]
pub enum Size {
    Bytes,
    Number,
}

pub struct Group {
    pub key: &'static str,
    pub title: &'static str,
    /// One line that explains how to read the group.
    pub shows: &'static str,
    pub quantity: Quantity,
    pub size: Size,
    /// Heading of the column, label of the axis.
    pub size_label: &'static str,
    pub baseline: Way,
    pub ways: &'static [Way],
}

pub struct Way {
    pub key: &'static str,
    pub label: &'static str,
}

pub const GROUPS: &[Group] = &[
    Group {
        key: "strided",
        title: "Blocks with gaps as long as themselves, at both ends",
        shows: "One transfer by a key at each end; by packing, a contiguous transfer and unpacking; \
                piece by piece: one request a block, SEND 16 blocks a list. Ratio: to the same bytes contiguous.",
        quantity: Quantity::Rate,
        size: Size::Bytes,
        size_label: "block",
        baseline: Way { key: "contiguous", label: "contiguous" },
        ways: &[
            Way { key: "key", label: "one key" },
            Way { key: "packed", label: "packed" },
            Way { key: "pieces", label: "piece by piece" },
        ],
    },
    Group {
        key: "layouts",
        title: "WRITE by other layouts, at both ends: blocks of one size with gaps",
        shows: "3 dimensions: 8 blocks in each of the inner two. 4 blocks: those of a record, at unequal \
                distances. Uneven list: an entry for each block, no two adjacent distances equal. \
                Indexed: in random order. Packing uses a list of the blocks' places. \
                Ratio: to the same bytes contiguous.",
        quantity: Quantity::Rate,
        size: Size::Bytes,
        size_label: "block",
        baseline: Way { key: "contiguous", label: "contiguous" },
        ways: &[
            Way { key: "key", label: "one key" },
            Way { key: "packed", label: "packed" },
        ],
    },
    Group {
        key: "growth",
        title: "WRITE of 4 KiB to the middle of a key",
        shows: "With that number of blocks or entries, or through so many levels of keys over keys. \
                Blocks and entries are of 64 bytes. Ratio: to the same bytes contiguous. \
                The plot shows the cost relative to that of the smallest number.",
        quantity: Quantity::Latency,
        size: Size::Number,
        size_label: "number",
        baseline: Way { key: "contiguous", label: "contiguous" },
        ways: &[Way { key: "key", label: "key" }],
    },
    Group {
        key: "bind",
        title: "Describing memory: blocks of 16 bytes, in a list or nested in dimensions",
        shows: "Binding an unbound key, a bound one, and unbinding; QUERY_MR: a call that only looks \
                an MR up. The pieces of an uneven list are of 7 and 9 bytes in turn. \
                Ratio: to ibv_reg_mr() of the memory that the blocks are in; above 1 is faster.",
        quantity: Quantity::Latency,
        size: Size::Number,
        size_label: "entries, dims",
        baseline: Way { key: "register", label: "ibv_reg_mr" },
        ways: &[
            Way { key: "bind", label: "bind" },
            Way { key: "rebind", label: "rebind" },
            Way { key: "unbind", label: "unbind" },
            Way { key: "query", label: "QUERY_MR" },
        ],
    },
    Group {
        key: "request",
        title: "Binds by work requests: keys of one doorbell",
        shows: "64 keys of up to 1,024 entries, or one key, of blocks of 64 bytes. A bind of a bound key \
                waits until earlier requests have completed. Ratio: to as many calls; above 1 is faster.",
        quantity: Quantity::Latency,
        size: Size::Number,
        size_label: "entries",
        baseline: Way { key: "call", label: "call" },
        ways: &[
            Way { key: "request", label: "request" },
            Way { key: "rebind", label: "request, bound key" },
        ],
    },
    Group {
        key: "message",
        title: "A message of blocks of 64 bytes with gaps: bind, WRITE, invalidate",
        shows: "Request: 16 messages with one doorbell. Call: bind and unbind by calls. Alone: without \
                the WRITE. Ratio: to registering contiguous memory for each message; above 1 is faster.",
        quantity: Quantity::Latency,
        size: Size::Bytes,
        size_label: "message",
        baseline: Way { key: "register", label: "reg + WRITE + dereg" },
        ways: &[
            Way { key: "request", label: "requests" },
            Way { key: "call", label: "calls" },
            Way { key: "packed", label: "packed" },
        ],
    },
    Group {
        key: "dm",
        title: "Device memory (class host) on the remote side",
        shows: "Ratio: to the same traffic with ordinary memory.",
        quantity: Quantity::Rate,
        size: Size::Bytes,
        size_label: "message",
        baseline: Way { key: "ordinary", label: "ordinary memory" },
        ways: &[Way { key: "dm", label: "device memory" }],
    },
    Group {
        key: "ulp",
        title: "Fast registration by a ULP: a list of that many pages",
        shows: "Map the list, then one chain: REG_MR, WRITE or READ of all bytes, LOCAL_INV. \
                Ratio: to the same by an MR of rxe (IB_MR_TYPE_MEM_REG); above 1 is faster.",
        quantity: Quantity::Latency,
        size: Size::Number,
        size_label: "pages",
        baseline: Way { key: "mem_reg", label: "MEM_REG" },
        ways: &[Way { key: "sg_gaps", label: "SG_GAPS" }],
    },
    Group {
        key: "nfs",
        title: "A file of NFS over RDMA, without the client's cache, in the group ulp",
        shows: "NFSv4.2 of this kernel, which does not know ib_mkey, between the two devices; the server's \
                file is in memory. Ratio: to the same without the module, loaded and unloaded by turns.",
        quantity: Quantity::Rate,
        size: Size::Bytes,
        size_label: "request",
        baseline: Way { key: "without", label: "without ib_mkey" },
        ways: &[Way { key: "with", label: "with ib_mkey" }],
    },
    Group {
        key: "halo",
        title: "Halo exchange of two processes: the 6 faces of a cube of doubles",
        shows: "Both ways at once, over one device. Open MPI sends derived datatypes, or what MPI_Pack makes of \
                them; keys: one SEND a face. Ratio: to derived datatypes.",
        quantity: Quantity::Rate,
        size: Size::Number,
        size_label: "cells an edge",
        baseline: Way { key: "mpi", label: "datatypes" },
        ways: &[
            Way { key: "key", label: "keys" },
            Way { key: "packed", label: "packed" },
        ],
    },
    Group {
        key: "ordinary",
        title: "Ordinary memory regions while ib_mkey is loaded",
        shows: "Ratio: to the same without the module, loaded and unloaded by turns.",
        quantity: Quantity::Rate,
        size: Size::Bytes,
        size_label: "message",
        baseline: Way { key: "without", label: "without ib_mkey" },
        ways: &[Way { key: "with", label: "with ib_mkey" }],
    },
];
