# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# cython: language_level=3, binding=False
"""MRs whose memory libibmkey allocates."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from libc.stdint cimport uintptr_t
from posix.fcntl cimport F_GETFL, O_ACCMODE, O_RDWR, fcntl

from ._lib cimport MrHandle, PdHandle, check, explained, ibv_mr, ibv_pd

from threading import Lock


cdef extern from "<fcntl.h>" nogil:
    int F_GET_SEALS
    int F_SEAL_FUTURE_WRITE


cdef extern from "infiniband/mkey.h" nogil:
    int IBMKEY_SHARE_READ_ONLY
    ibv_mr *ibmkey_reg_alloc(ibv_pd *pd, size_t length, int access)
    ibv_mr *ibmkey_reg_shared(ibv_pd *pd, int fd, int access)
    int ibmkey_share_mr(ibv_mr *mr, int flags, int *fd)
    int ibmkey_dereg(ibv_mr *mr)


cdef class AllocHandle(MrHandle):
    """An MR and its memory, which is a buffer. It stays as long as an array over it."""

    what = "the MR"
    cdef readonly size_t exports
    cdef int readonly

    def __cinit__(self, PdHandle pd not None, size_t length, fd, int access):
        cdef int file = -1 if fd is None else fd
        if fd is None:
            with nogil:
                self.mr = ibmkey_reg_alloc(pd.pd, length, access)
        else:
            self.readonly = (
                fcntl(file, F_GET_SEALS) & F_SEAL_FUTURE_WRITE or fcntl(file, F_GETFL) & O_ACCMODE != O_RDWR
            )
            with nogil:
                self.mr = ibmkey_reg_shared(pd.pd, file, access)
        if self.mr == NULL:
            raise explained(errno, "ibmkey_reg_alloc" if fd is None else "ibmkey_reg_shared")
        self.pd = pd
        self.lock = Lock()

    def __dealloc__(self):
        if self.mr != NULL:
            # Ignore an error: a key that was leaked still refers to the memory.
            ibmkey_dereg(self.mr)

    def destroy(self):
        """Deregisters the MR and frees its memory. Calling it again does nothing.

        Raises ``BufferError`` while an array over the memory exists.
        """
        cdef int ret
        cdef ibv_mr *mr
        with self.lock:
            if self.mr == NULL:
                return
            if self.exports:
                raise BufferError(f"{self.exports} arrays over the memory still exist")
            # As in MrHandle.destroy().
            mr, self.mr = self.mr, NULL
            with nogil:
                ret = ibmkey_dereg(mr)
            if ret:
                self.mr = mr
                raise explained(ret, "ibmkey_dereg")

    def share(self, bint read_only):
        """Returns a file descriptor of the memory. The caller closes it."""
        cdef int fd = -1
        check(ibmkey_share_mr(self.live(), IBMKEY_SHARE_READ_ONLY if read_only else 0, &fd), "ibmkey_share_mr")
        return fd

    @property
    def length(self):
        return self.live().length

    @property
    def buf(self):
        return <uintptr_t>self.live().addr

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        cdef ibv_mr *mr = self.live()
        PyBuffer_FillInfo(buffer, self, mr.addr, mr.length, self.readonly, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.exports -= 1
