# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# cython: language_level=3, binding=False
"""Keys of libibmkey, and the buffer protocol.

Objects of pyverbs are imported by their numbers: ``Context.cmd_fd`` and ``PD.handle``. Its properties
with addresses of C objects return them as Python objects in some versions, which damages them.
"""

from cpython.buffer cimport PyBUF_FULL_RO, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from libc.errno cimport EINVAL, errno
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from threading import Lock

from .errors import MkeyError
from .layout import Indexed, Interleaved, contiguous


cdef extern from "infiniband/mkey.h" nogil:
    struct ibmkey_caps:
        uint64_t max_dm_size
        uint32_t max_entries
        uint32_t max_dims
        uint32_t max_depth
        uint32_t dm_classes
        uint64_t flags
        uint32_t max_indices
    struct ibmkey_info:
        uint64_t length
        uint32_t kind
        uint32_t access
        uint32_t max_entries
        uint32_t num_entries
        uint32_t num_dims
        uint32_t lkey
        uint32_t rkey
    ibv_context *ibmkey_import_context(int cmd_fd)
    void ibmkey_unimport_context(ibv_context *ctx)
    ibv_pd *ibmkey_import_pd(ibv_context *ctx, uint32_t pd_handle)
    void ibmkey_unimport_pd(ibv_pd *pd)
    int ibmkey_query_caps(ibv_context *ctx, ibmkey_caps *caps)
    ibv_mr *ibmkey_alloc(ibv_pd *pd, uint32_t max_entries)
    int ibmkey_bind_at(const ibmkey_bind *bind, uint64_t base_addr)
    int ibmkey_unbind(ibv_mr *mkey)
    int ibmkey_dereg(ibv_mr *mkey)
    int ibmkey_query(ibv_mr *mkey, ibmkey_info *info)
    int ibmkey_query_base(ibv_mr *mkey, uint64_t *base_addr)


cdef int check(int ret, str call) except -1:
    """Raises the error that a call returned."""
    if ret:
        raise explained(ret, call)
    return 0


cdef object explained(int ret, str call):
    """Returns the error of a call that ``ibmkey_last_error()`` explains: it names the entry or the argument."""
    return MkeyError(call, ret, ibmkey_last_error().decode() or None)


cdef uint32_t count_of(tuple items, str call) except? 0xffffffff:
    """Returns the number of some items, if the kernel's field can hold it."""
    if <size_t>len(items) > 0xfffffffe:
        raise MkeyError(call, EINVAL)
    return <uint32_t>len(items)


cdef void *array_of(size_t count, size_t size) except NULL:
    """Allocates a zeroed array, which free() frees."""
    cdef void *items = calloc(count or 1, size)
    if items == NULL:
        raise MemoryError
    return items


def has_pointer(thing, Py_ssize_t place):
    """Returns ``False`` if the C pointer at this place in an object is NULL, as in a closed object of pyverbs."""
    return (<void **>(<char *><PyObject *>thing + place))[0] != NULL


cdef class ContextHandle:
    """A context of pyverbs, imported. It stays open as long as this object exists."""

    def __cinit__(self, int cmd_fd):
        self.ctx = ibmkey_import_context(cmd_fd)
        if self.ctx == NULL:
            raise explained(errno, "ibmkey_import_context")

    def __dealloc__(self):
        ibmkey_unimport_context(self.ctx)

    def query_caps(self):
        """Returns the fields of ``struct ibmkey_caps``."""
        cdef ibmkey_caps caps
        memset(&caps, 0, sizeof(caps))
        check(ibmkey_query_caps(self.ctx, &caps), "ibmkey_query_caps")
        return (
            caps.max_dm_size, caps.max_entries, caps.max_dims, caps.max_depth, caps.dm_classes, caps.flags,
            caps.max_indices,
        )

    def why(self, status):
        """Returns the sentence for a completion with this status, or with None for any."""
        cdef ibv_wc wc
        memset(&wc, 0, sizeof(wc))
        if status is None:
            return ibmkey_why(self.ctx, NULL).decode()
        wc.status = status
        return ibmkey_why(self.ctx, &wc).decode()


cdef class PdHandle:
    """A PD of pyverbs, imported. pyverbs deallocates it."""

    def __cinit__(self, ContextHandle context not None, uint32_t handle):
        self.pd = ibmkey_import_pd(context.ctx, handle)
        if self.pd == NULL:
            raise explained(errno, "ibmkey_import_pd")
        self.context = context

    def __dealloc__(self):
        ibmkey_unimport_pd(self.pd)


cdef class View:
    """The memory of an object with the buffer protocol. The object cannot be resized until ``release()``."""

    cdef Py_buffer buffer
    cdef bint held

    def __cinit__(self, owner):
        PyObject_GetBuffer(owner, &self.buffer, PyBUF_FULL_RO)
        self.held = True
        if self.buffer.suboffsets != NULL:
            for axis in range(self.buffer.ndim):
                if self.buffer.suboffsets[axis] >= 0:
                    raise TypeError("a buffer of pointers (suboffsets) is not one array")

    def __dealloc__(self):
        self.release()

    def release(self):
        """Releases the object."""
        if self.held:
            self.held = False
            PyBuffer_Release(&self.buffer)

    @property
    def address(self):
        return <uintptr_t>self.buffer.buf

    @property
    def length(self):
        return self.buffer.len

    @property
    def itemsize(self):
        return self.buffer.itemsize

    @property
    def readonly(self):
        return bool(self.buffer.readonly)

    @property
    def format(self):
        return self.buffer.format.decode() if self.buffer.format != NULL else "B"

    @property
    def shape(self):
        if self.buffer.shape == NULL:
            # One dimension of bytes.
            return (self.buffer.len // self.buffer.itemsize,) if self.buffer.ndim else ()
        return tuple([self.buffer.shape[axis] for axis in range(self.buffer.ndim)])

    @property
    def strides(self):
        if self.buffer.strides == NULL:
            # As of ctypes: the array is contiguous, in C order.
            return contiguous(self.shape, self.buffer.itemsize)
        return tuple([self.buffer.strides[axis] for axis in range(self.buffer.ndim)])


cdef class Described:
    """A layout in the structures of the library. Nothing can change them."""

    def __cinit__(self, layout):
        # Nothing can change the length of a tuple.
        cdef tuple repeat = (), items
        if isinstance(layout, Indexed):
            self.kind = IBMKEY_INDEXED
            items = tuple(layout.indices)
        elif isinstance(layout, Interleaved):
            self.kind = IBMKEY_INTERLEAVED
            repeat, items = tuple(layout.repeat), tuple(layout.blocks)
        else:
            self.kind = IBMKEY_LIST
            items = tuple(layout.blocks)
        if len(repeat) > IBMKEY_MAX_DIMS:
            raise MkeyError("ibmkey_bind_at", EINVAL)
        self.entries = count_of(items, "ibmkey_bind_at")
        self.dims = <uint32_t>len(repeat)
        for axis, count in enumerate(repeat):
            self.repeat[axis] = count
        if self.kind == <uint32_t>IBMKEY_INDEXED:
            self.fill_indexed(layout, items)
        elif self.kind == <uint32_t>IBMKEY_INTERLEAVED:
            self.fill_blocks(items)
        else:
            self.fill_ranges(items)

    cdef fill(self, ibmkey_bind *bind):
        """Fills in the fields of the layout. All others become zero."""
        memset(bind, 0, sizeof(bind[0]))
        bind.kind = self.kind
        bind.num_entries = self.entries
        if self.kind == <uint32_t>IBMKEY_LIST:
            bind.ranges = self.ranges
        elif self.kind == <uint32_t>IBMKEY_INTERLEAVED:
            bind.num_dims = self.dims
            bind.repeat_count = self.repeat
            bind.blocks = self.blocks
        else:
            bind.num_entries = 1
            bind.indexed = &self.indexed

    def __dealloc__(self):
        free(self.ranges)
        free(self.blocks)
        free(self.indices)

    cdef fill_ranges(self, tuple items):
        self.ranges = <ibmkey_range *>array_of(self.entries, sizeof(ibmkey_range))
        for i, block in enumerate(items):
            self.ranges[i].addr = block.address
            self.ranges[i].length = block.length
            self.ranges[i].lkey = block.lkey

    cdef fill_blocks(self, tuple items):
        self.blocks = <ibmkey_block *>array_of(self.entries, sizeof(ibmkey_block))
        for i, block in enumerate(items):
            self.blocks[i].addr = block.address
            self.blocks[i].bytes_count = block.length
            self.blocks[i].lkey = block.lkey
            for axis, stride in zip(range(self.dims), block.strides, strict=True):
                self.blocks[i].stride[axis] = stride

    cdef fill_indexed(self, layout, tuple items):
        self.indices = <uint64_t *>array_of(self.entries, sizeof(uint64_t))
        for i, index in enumerate(items):
            self.indices[i] = index
        self.indexed.addr = layout.address
        self.indexed.unit = layout.unit
        self.indexed.bytes_count = layout.block_length
        self.indexed.indices = <uint64_t>self.indices
        self.indexed.index_bytes = sizeof(uint64_t)
        self.indexed.num_indices = self.entries
        self.indexed.lkey = layout.lkey


cdef class MrHandle:
    """An MR of the library. ``destroy()`` destroys it; nothing else does.

    A call that lets other threads run holds ``lock``, so that no other thread destroys the MR meanwhile.
    """

    cdef ibv_mr *live(self) except NULL:
        if self.mr == NULL:
            raise ValueError(f"{self.what} is closed")
        return self.mr

    def destroy(self):
        """Destroys the MR. Calling it again does nothing."""
        cdef int ret
        cdef ibv_mr *mr
        with self.lock:
            if self.mr == NULL:
                return
            # Other threads find the MR closed while this one destroys it.
            mr, self.mr = self.mr, NULL
            with nogil:
                ret = ibmkey_dereg(mr)
            if ret:
                self.mr = mr
                raise explained(ret, "ibmkey_dereg")

    @property
    def lkey(self):
        return self.live().lkey

    @property
    def rkey(self):
        return self.live().rkey


cdef class KeyHandle(MrHandle):
    """An MR that is a key."""

    what = "the key"

    def __cinit__(self, PdHandle pd not None, uint32_t max_entries):
        with nogil:
            self.mr = ibmkey_alloc(pd.pd, max_entries)
        if self.mr == NULL:
            raise explained(errno, "ibmkey_alloc")
        self.pd = pd
        self.lock = Lock()

    @property
    def closed(self):
        return self.mr == NULL

    @property
    def handle(self):
        return self.live().handle

    @property
    def length(self):
        return self.live().length

    def bind(self, layout, unsigned int access, uint64_t base=0):
        """Binds the key to a layout, whose first byte gets the address ``base``."""
        cdef Described d = Described(layout)
        cdef ibmkey_bind bind
        cdef int ret
        d.fill(&bind)
        bind.access = access
        with self.lock:
            bind.mkey = self.live()
            with nogil:
                ret = ibmkey_bind_at(&bind, base)
            if ret:
                raise explained(ret, "ibmkey_bind_at")

    def unbind(self):
        """Unbinds the key."""
        cdef ibv_mr *mr
        cdef int ret
        with self.lock:
            mr = self.live()
            with nogil:
                ret = ibmkey_unbind(mr)
            check(ret, "ibmkey_unbind")
            mr.length = 0

    def query(self):
        """Returns the fields of ``struct ibmkey_info``, and the base address."""
        cdef ibmkey_info info
        cdef uint64_t base = 0
        memset(&info, 0, sizeof(info))
        check(ibmkey_query(self.live(), &info), "ibmkey_query")
        check(ibmkey_query_base(self.live(), &base), "ibmkey_query_base")
        return (
            info.length, info.kind, info.access, info.max_entries, info.num_entries, info.num_dims, info.lkey, info.rkey,
            base,
        )

    def set(self, size_t length, uint32_t lkey, uint32_t rkey):
        """Stores what the kernel says of the key: its length, lkey and rkey."""
        cdef ibv_mr *mr = self.live()
        mr.length = length
        mr.lkey = lkey
        mr.rkey = rkey
