# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# cython: language_level=3
"""Declarations that the modules in Cython share. The compiler checks them against the C headers."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from "infiniband/verbs.h" nogil:
    struct ibv_context:
        pass
    struct ibv_pd:
        pass
    struct ibv_wc:
        int status
    struct ibv_mr:
        void *addr
        size_t length
        uint32_t handle
        uint32_t lkey
        uint32_t rkey


cdef extern from "infiniband/mkey.h" nogil:
    int IBMKEY_MAX_DIMS
    int IBMKEY_LIST
    int IBMKEY_INTERLEAVED
    int IBMKEY_INDEXED
    struct ibmkey_range:
        uint64_t addr
        uint64_t length
        uint32_t lkey
    struct ibmkey_block:
        uint64_t addr
        uint64_t bytes_count
        uint32_t lkey
        int64_t stride[8]
    struct ibmkey_indexed:
        uint64_t addr
        uint64_t unit
        uint64_t bytes_count
        uint64_t indices
        uint32_t num_indices
        uint32_t index_bytes
        uint32_t lkey
    struct ibmkey_refused:
        uint32_t error
        uint32_t entry
        uint32_t reason
    struct ibmkey_refused_access:
        uint64_t number
        uint64_t addr
        uint64_t length
        uint32_t key
        uint32_t reason
        uint32_t access
        uint32_t remote
    struct ibmkey_bind:
        uint64_t comp_mask
        ibv_mr *mkey
        uint32_t kind
        unsigned access
        uint32_t num_entries
        uint32_t num_dims
        const uint64_t *repeat_count
        const ibmkey_range *ranges
        const ibmkey_block *blocks
        const ibmkey_indexed *indexed
    uint32_t IB_MKEY_NO_ENTRY
    int ibmkey_query_refused_access(ibv_mr *mkey, ibmkey_refused_access *access)
    const char *ibmkey_why(ibv_context *ctx, const ibv_wc *wc)
    const char *ibmkey_last_error()


cdef int check(int ret, str call) except -1
cdef object explained(int ret, str call)


cdef class ContextHandle:
    cdef object __weakref__
    cdef ibv_context *ctx


cdef class PdHandle:
    cdef object __weakref__
    cdef ibv_pd *pd
    cdef readonly ContextHandle context


cdef class Described:
    cdef uint32_t kind
    cdef uint32_t entries
    cdef uint32_t dims
    cdef uint64_t repeat[8]
    cdef ibmkey_range *ranges
    cdef ibmkey_block *blocks
    cdef uint64_t *indices
    cdef ibmkey_indexed indexed
    cdef fill(self, ibmkey_bind *bind)
    cdef fill_ranges(self, tuple items)
    cdef fill_blocks(self, tuple items)
    cdef fill_indexed(self, layout, tuple items)


cdef class MrHandle:
    cdef ibv_mr *mr
    cdef PdHandle pd
    cdef object lock
    cdef ibv_mr *live(self) except NULL


cdef class KeyHandle(MrHandle):
    pass
