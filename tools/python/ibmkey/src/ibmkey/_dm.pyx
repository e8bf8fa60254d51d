# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# cython: language_level=3, binding=False
"""Device memory of libibmkey."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport EINVAL, errno
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap
from posix.unistd cimport close

from ._lib cimport ContextHandle, MrHandle, PdHandle, check, explained, ibv_context, ibv_mr, ibv_pd

from threading import Lock

from .errors import MkeyError, registration_reason


cdef extern from "infiniband/verbs.h" nogil:
    struct ibv_dm:
        pass
    struct ibv_alloc_dm_attr:
        size_t length
        uint32_t log_align_req
        uint32_t comp_mask
    int IBV_ACCESS_ZERO_BASED
    int ibv_free_dm(ibv_dm *dm)
    ibv_mr *ibv_reg_dm_mr(ibv_pd *pd, ibv_dm *dm, uint64_t dm_offset, size_t length, unsigned int access)
    int ibv_memcpy_to_dm(ibv_dm *dm, uint64_t dm_offset, const void *host_addr, size_t length)
    int ibv_memcpy_from_dm(void *host_addr, ibv_dm *dm, uint64_t dm_offset, size_t length)


cdef extern from "infiniband/mkey.h" nogil:
    ibv_dm *ibmkey_alloc_dm(ibv_context *ctx, const ibv_alloc_dm_attr *attr, uint64_t dm_class)
    int ibmkey_query_dm(ibv_dm *dm, uint64_t *dm_class)
    int ibmkey_export_dm(ibv_dm *dm, int *fd)


cdef class DmMr(MrHandle):
    """An MR over device memory. Its addresses begin at 0."""

    what = "the device memory"

    def __cinit__(
        self, DmHandle dm not None, PdHandle pd not None, uint64_t offset, size_t length, unsigned int access
    ):
        cdef int error
        with dm.lock:
            with nogil:
                self.mr = ibv_reg_dm_mr(pd.pd, dm.live(), offset, length, access | IBV_ACCESS_ZERO_BASED)
                error = errno
        if self.mr == NULL:
            raise MkeyError("ibv_reg_dm_mr", error, registration_reason(error, access) if error == EINVAL else None)
        self.pd = pd
        self.lock = Lock()


cdef class DmHandle:
    """Device memory, and its mapping in this process if a buffer of it was requested."""

    cdef ibv_dm *dm
    cdef ContextHandle context
    cdef void *mapped
    cdef object lock
    cdef readonly size_t exports
    cdef readonly size_t length

    def __cinit__(self, *args, **named):
        self.lock = Lock()

    def __init__(self, ContextHandle context not None, size_t length, uint32_t log_align, uint64_t dm_class):
        cdef ibv_alloc_dm_attr attr
        if self.dm != NULL:
            raise TypeError("the device memory is allocated")
        attr.length = length
        attr.log_align_req = log_align
        attr.comp_mask = 0
        with nogil:
            self.dm = ibmkey_alloc_dm(context.ctx, &attr, dm_class)
        if self.dm == NULL:
            raise explained(errno, "ibmkey_alloc_dm")
        self.context = context
        self.length = length

    cdef ibv_dm *live(self) except NULL nogil:
        if self.dm == NULL:
            with gil:
                raise ValueError("the device memory is closed")
        return self.dm

    def destroy(self):
        """Frees the memory. Calling it again does nothing.

        Raises ``BufferError`` while an array over the memory exists.
        """
        cdef int ret
        cdef ibv_dm *dm
        with self.lock:
            if self.dm == NULL:
                return
            if self.exports:
                raise BufferError(f"{self.exports} arrays over the device memory still exist")
            # As in MrHandle.destroy().
            dm, self.dm = self.dm, NULL
            with nogil:
                ret = ibv_free_dm(dm)
            if ret:
                self.dm = dm
                raise MkeyError("ibv_free_dm", ret)
            if self.mapped != NULL:
                munmap(self.mapped, self.length)
                self.mapped = NULL

    @property
    def dm_class(self):
        """The class of the memory, as ``IB_MKEY_DM_*`` of ``rdma/ib_mkey_ioctl.h``."""
        cdef uint64_t found = 0
        check(ibmkey_query_dm(self.live(), &found), "ibmkey_query_dm")
        return found

    def export(self):
        """Returns the file descriptor of a new dma-buf. The caller closes it."""
        cdef int fd = -1
        check(ibmkey_export_dm(self.live(), &fd), "ibmkey_export_dm")
        return fd

    @property
    def mapping(self):
        """Where the memory is mapped, or 0."""
        return <uintptr_t>self.mapped

    @property
    def address(self):
        """Where the memory is mapped in this process."""
        cdef int fd
        cdef void *at
        self.live()
        if self.mapped == NULL:
            fd = self.export()
            at = mmap(NULL, self.length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
            if at == MAP_FAILED:
                error = errno
                close(fd)
                raise MkeyError("mmap", error)
            close(fd)
            self.mapped = at
        return <uintptr_t>self.mapped

    cdef int within(self, str call, uint64_t offset, size_t length) except -1:
        """Raises the kernel's error for bytes that are not in the memory, with a reason."""
        if length > self.length or offset > self.length - length:
            reason = f"bytes {offset} to {int(offset) + length} are not all in the memory, which has {self.length}"
            raise MkeyError(call, EINVAL, reason)
        return 0

    def write(self, const unsigned char[::1] data not None, uint64_t offset=0):
        """Copies bytes to the device memory; does not map it."""
        cdef ibv_dm *dm = self.live()
        if len(data):
            self.within("ibv_memcpy_to_dm", offset, len(data))
            check(ibv_memcpy_to_dm(dm, offset, &data[0], len(data)), "ibv_memcpy_to_dm")

    def read(self, size_t length, uint64_t offset=0):
        """Returns a copy of bytes; does not map the memory."""
        cdef ibv_dm *dm = self.live()
        cdef unsigned char[::1] to
        if length:
            self.within("ibv_memcpy_from_dm", offset, length)
        data = bytearray(length)
        if length:
            to = data
            check(ibv_memcpy_from_dm(&to[0], dm, offset, length), "ibv_memcpy_from_dm")
            del to
        return bytes(data)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        address = self.address
        PyBuffer_FillInfo(buffer, self, <void *><uintptr_t>address, self.length, 0, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.exports -= 1
