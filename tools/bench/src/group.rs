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
    pub plot: Plot,
}

pub struct Way {
    pub key: &'static str,
    pub label: &'static str,
}

/// The quantity on the vertical axis of the group's plot.
#[derive(Clone, Copy, PartialEq)]
pub enum Plot {
    /// Speed relative to the baseline.
    Ratio,
    /// The cost by the first way relative to that of the smallest size, all names in one panel.
    Growth,
    /// The figures, including the baseline's, on a logarithmic axis.
    Figures,
    /// The group has no plot.
    None,
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
        plot: Plot::Ratio,
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
        plot: Plot::Ratio,
    },
    Group {
        key: "lists",
        title: "WRITE by lists of many blocks of 64 bytes, at both ends",
        shows: "As above. List: all distances equal. Ratio: to the same bytes contiguous.",
        quantity: Quantity::Rate,
        size: Size::Number,
        size_label: "blocks",
        baseline: Way { key: "contiguous", label: "contiguous" },
        ways: &[
            Way { key: "key", label: "one key" },
            Way { key: "packed", label: "packed" },
        ],
        plot: Plot::Ratio,
    },
    Group {
        key: "nested",
        title: "Keys over keys on the remote side: blocks of 256 bytes with gaps",
        shows: "One key: the innermost one, which is strided. Each other level is a list of eight ranges of \
                the one below. Packed: at both ends. Ratio: to the same bytes contiguous.",
        quantity: Quantity::Rate,
        size: Size::Number,
        size_label: "levels",
        baseline: Way { key: "contiguous", label: "contiguous" },
        ways: &[
            Way { key: "flat", label: "one key" },
            Way { key: "nested", label: "keys over keys" },
            Way { key: "demand", label: "the same, pages on demand" },
            Way { key: "packed", label: "packed" },
        ],
        plot: Plot::Ratio,
    },
    Group {
        key: "growth",
        title: "WRITE of 4 KiB to the middle of a key",
        shows: "With that number of blocks or entries, while so many keys exist, or through so many \
                levels. Blocks and entries are of 64 bytes. Ratio: to the same bytes contiguous. \
                The plot shows the cost relative to that of the smallest number.",
        quantity: Quantity::Latency,
        size: Size::Number,
        size_label: "number",
        baseline: Way { key: "contiguous", label: "contiguous" },
        ways: &[Way { key: "key", label: "key" }],
        plot: Plot::Growth,
    },
    Group {
        key: "fine",
        title: "A packet of 4 KiB through keys over keys of small pieces",
        shows: "READ and WRITE of 4 KiB by the outermost key. Levels and ways that are not in the \
                table are refused. Ratio: to a READ of contiguous bytes.",
        quantity: Quantity::Latency,
        size: Size::Number,
        size_label: "levels",
        baseline: Way { key: "plain", label: "contiguous" },
        ways: &[
            Way { key: "nest", label: "keys over keys" },
            Way { key: "write", label: "the same, WRITE" },
            Way { key: "demand", label: "the same, pages on demand" },
        ],
        plot: Plot::None,
    },
    Group {
        key: "bind",
        title: "Describing memory: blocks of 16 bytes, in a list or nested in dimensions",
        shows: "Binding an unbound key, a bound one, and unbinding; QUERY_MR: a call that only looks \
                an MR up; nothing: a call with the attributes of a bind, which copies what a bind \
                of a block copies, and does nothing. The pieces of an uneven list are of 7 and 9 bytes in turn. \
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
            Way { key: "floor", label: "nothing" },
        ],
        plot: Plot::Figures,
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
        plot: Plot::Figures,
    },
    Group {
        key: "doorbell",
        title: "Binds by work requests, from the post to the completion, by requests of a doorbell",
        shows: "One strided block, whose description is in an MR or in the request; a list of 4 blocks. \
                Worker first: the program sees the completion when the call of the doorbell returns, on \
                one processor. Program first: it looks in vain, and sleeps. Ratio: to BIND_MW of a stock window, which is what the driver and the program cost.",
        quantity: Quantity::Latency,
        size: Size::Number,
        size_label: "requests",
        baseline: Way { key: "window", label: "stock window" },
        ways: &[
            Way { key: "strided", label: "strided" },
            Way { key: "inline", label: "strided, inline" },
            Way { key: "list", label: "list" },
            Way { key: "other", label: "strided after a list" },
            Way { key: "rebind", label: "strided, bound key" },
            Way { key: "unbind", label: "LOCAL_INV" },
        ],
        plot: Plot::None,
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
        plot: Plot::None,
    },
    Group {
        key: "pool",
        title: "A key for one use: a list of that many blocks",
        shows: "From a pool: ibmkey_pool_get(), bind, ibmkey_pool_put(). \
                Ratio: to creating a key, binding and destroying it; above 1 is faster.",
        quantity: Quantity::Latency,
        size: Size::Number,
        size_label: "entries",
        baseline: Way { key: "create", label: "create + destroy" },
        ways: &[Way { key: "pool", label: "get + put" }],
        plot: Plot::Figures,
    },
    Group {
        key: "dm",
        title: "Device memory (class host) on the remote side",
        shows: "Ratio: to the same traffic with ordinary memory; the goal is 0.99.",
        quantity: Quantity::Rate,
        size: Size::Bytes,
        size_label: "message",
        baseline: Way { key: "ordinary", label: "ordinary memory" },
        ways: &[Way { key: "dm", label: "device memory" }],
        plot: Plot::Ratio,
    },
    Group {
        key: "alloc",
        title: "Allocating and freeing 4 KiB of device memory",
        shows: "While so many buffers exist; emptied: after all others were freed. \
                Ratio: to registering and deregistering 4 KiB of ordinary memory.",
        quantity: Quantity::Latency,
        size: Size::Number,
        size_label: "live buffers",
        baseline: Way { key: "register", label: "reg + dereg" },
        ways: &[Way { key: "alloc", label: "alloc + free" }],
        plot: Plot::Figures,
    },
    Group {
        key: "copy",
        title: "Copies between a program and device memory",
        shows: "ibv_memcpy_to_dm() and ibv_memcpy_from_dm(), through the mapping. Ratio: to memcpy().",
        quantity: Quantity::Rate,
        size: Size::Bytes,
        size_label: "length",
        baseline: Way { key: "memcpy", label: "memcpy" },
        ways: &[
            Way { key: "to", label: "to device memory" },
            Way { key: "from", label: "from device memory" },
        ],
        plot: Plot::Figures,
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
        plot: Plot::Figures,
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
        plot: Plot::None,
    },
    Group {
        key: "grace",
        title: "A grace period of SRCU, in the group ulp",
        shows: "A bind or an unbind by a call waits for an expedited one if an access is in progress; \
                otherwise, and by a work request, for none. No reader is in the domain.",
        quantity: Quantity::Latency,
        size: Size::Number,
        size_label: "",
        baseline: Way { key: "ordinary", label: "ordinary" },
        ways: &[Way { key: "expedited", label: "expedited" }],
        plot: Plot::None,
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
        plot: Plot::Ratio,
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
        plot: Plot::None,
    },
];
