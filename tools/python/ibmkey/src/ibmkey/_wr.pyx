# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# cython: language_level=3, binding=False
"""Work requests that bind and unbind keys, posted to queue pairs of pyverbs."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.errno cimport errno
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset
from posix.types cimport pid_t
from posix.unistd cimport getpid

from pyverbs.qp import QP

from ._lib cimport (
    IB_MKEY_NO_ENTRY,
    Described,
    KeyHandle,
    check,
    explained,
    ibmkey_bind,
    ibmkey_last_error,
    ibmkey_query_refused_access,
    ibmkey_refused,
    ibmkey_refused_access,
    ibv_mr,
)


cdef extern from "sys/uio.h" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    ssize_t process_vm_readv(pid_t pid, const iovec *local, unsigned long liovcnt, const iovec *remote,
                             unsigned long riovcnt, unsigned long flags)


cdef extern from "infiniband/verbs.h" nogil:
    struct ibv_qp:
        uint32_t handle
        uint32_t qp_num
        int qp_type
    struct ibv_qp_ex:
        pass
    ibv_qp_ex *ibv_qp_to_qp_ex(ibv_qp *qp)


cdef extern from "infiniband/mkey_wr.h" nogil:
    struct ibmkey_wr:
        ibv_mr *mkey
        ibv_mr *mr
        uint64_t addr
        uint32_t length
        unsigned access
        uint32_t rkey
    int IBMKEY_BIND_ANY_PORTION
    int IBMKEY_BIND_REMOTE_INV
    size_t ibmkey_describe_at(const ibmkey_bind *bind, uint64_t base_addr, void *to, size_t room)
    int ibmkey_post_bind(ibv_qp *qp, const ibmkey_wr *wr, uint64_t wr_id, unsigned send_flags)
    int ibmkey_wr_bind(ibv_qp_ex *qp, const ibmkey_wr *wr)
    int ibmkey_post_unbind(ibv_qp *qp, ibv_mr *mkey, uint64_t wr_id, unsigned send_flags)
    int ibmkey_wr_unbind(ibv_qp_ex *qp, ibv_mr *mkey)
    int ibmkey_query_refused(ibv_mr *mkey, ibmkey_refused *refused)


# pyverbs has no property for the address of the ibv_qp. It is the first field of its class QP, after those
# of the base class, from rdma-core 24 to 64.
cdef Py_ssize_t place = QP.__base__.__basicsize__
cdef bint place_is_right = False


cdef int check_place(ibv_qp *found, qp) except -1:
    """Raises ``RuntimeError`` if the address that was found in a QP of pyverbs is not that of its ibv_qp.

    Reads the memory by a system call, which fails at an address that is not mapped.
    """
    global place_is_right
    cdef ibv_qp copy
    cdef iovec to, source
    to.iov_base = &copy
    source.iov_base = found
    to.iov_len = source.iov_len = sizeof(copy)
    if (
        process_vm_readv(getpid(), &to, 1, &source, 1, 0) != <ssize_t>sizeof(copy)
        or copy.qp_num != qp.qp_num
        or copy.qp_type != qp.qp_type
    ):
        raise RuntimeError("ibmkey does not find the queue pair in a QP of this version of pyverbs")
    place_is_right = True
    return 0


cdef ibv_qp *address_of(qp) except NULL:
    """Returns the ibv_qp of a QP of pyverbs. Raises ``TypeError`` for another object and a closed QP."""
    if not isinstance(qp, QP):
        raise TypeError(f"{qp!r} is not a QP of pyverbs")
    cdef ibv_qp *found = (<ibv_qp **>(<char *><PyObject *>qp + place))[0]
    if found == NULL:
        raise TypeError("the QP is closed")
    if not place_is_right:
        check_place(found, qp)
    return found


cdef ibv_qp_ex *extended(qp) except NULL:
    """Returns the ibv_qp_ex of a QPEx of pyverbs."""
    cdef ibv_qp_ex *found = ibv_qp_to_qp_ex(address_of(qp))
    if found == NULL:
        raise TypeError("the QP was created without send_ops_flags, so it has no wr_bind_mw() and wr_local_inv()")
    return found


def describe(layout, bint any_portion, bint remote_invalidate, uint64_t base):
    """Returns the description of a layout as bytes."""
    cdef Described d = Described(layout)
    cdef ibmkey_bind bind
    cdef size_t length
    d.fill(&bind)
    bind.comp_mask = (IBMKEY_BIND_ANY_PORTION if any_portion else 0) | (IBMKEY_BIND_REMOTE_INV if remote_invalidate else 0)
    length = ibmkey_describe_at(&bind, base, NULL, 0)
    if length == 0:
        raise explained(errno, "ibmkey_describe_at")
    text = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>length)
    ibmkey_describe_at(&bind, base, PyBytes_AS_STRING(text), length)
    return text


cdef int fill(ibmkey_wr *wr, ibv_mr *mr, KeyHandle key, text, unsigned int access, uint32_t rkey) except -1:
    """Fills in a request. ``text`` has the address and the length of the description, and the lkey of its MR."""
    memset(wr, 0, sizeof(wr[0]))
    # The library reads only the lkey.
    memset(mr, 0, sizeof(mr[0]))
    wr.mkey = key.live()
    wr.mr = mr
    wr.addr, wr.length, mr.lkey = text
    wr.access = access
    wr.rkey = rkey
    return 0


def post_bind(
    KeyHandle key not None, qp, text, unsigned int access, uint32_t rkey, uint64_t wr_id, unsigned int send_flags
):
    """Posts a request that binds the key."""
    cdef ibmkey_wr wr
    cdef ibv_mr mr
    fill(&wr, &mr, key, text, access, rkey)
    ret = ibmkey_post_bind(address_of(qp), &wr, wr_id, send_flags)
    if ret:
        raise explained(ret, "ibmkey_post_bind")


def wr_bind(KeyHandle key not None, qp, text, unsigned int access, uint32_t rkey, bint inline):
    """Adds such a request. If it is inline, the description is copied into it."""
    cdef ibmkey_wr wr
    cdef ibv_mr mr
    fill(&wr, &mr, key, text, access, rkey)
    if inline:
        wr.mr = NULL
    ret = ibmkey_wr_bind(extended(qp), &wr)
    if ret:
        raise explained(ret, "ibmkey_wr_bind")


def post_unbind(KeyHandle key not None, qp, uint64_t wr_id, unsigned int send_flags):
    """Posts a request that unbinds the key."""
    ret = ibmkey_post_unbind(address_of(qp), key.live(), wr_id, send_flags)
    if ret:
        raise explained(ret, "ibmkey_post_unbind")


def wr_unbind(KeyHandle key not None, qp):
    """Adds a request that unbinds the key."""
    ret = ibmkey_wr_unbind(extended(qp), key.live())
    if ret:
        raise explained(ret, "ibmkey_wr_unbind")


def query_refused(KeyHandle key not None):
    """Returns why the last request was refused: errno, entry, reason and sentence. The errno is 0 if none was."""
    cdef ibmkey_refused refused
    memset(&refused, 0, sizeof(refused))
    check(ibmkey_query_refused(key.live(), &refused), "ibmkey_query_refused")
    entry = None if refused.entry == IB_MKEY_NO_ENTRY else refused.entry
    return refused.error, entry, ibmkey_last_error().decode(), refused.reason


def query_refused_access(KeyHandle key not None):
    """Returns the last refused access: the fields of ``RefusedAccess``. The number is 0 if none was refused."""
    cdef ibmkey_refused_access access
    memset(&access, 0, sizeof(access))
    check(ibmkey_query_refused_access(key.live(), &access), "ibmkey_query_refused_access")
    return (
        access.number, access.addr, access.length, access.key, access.access, bool(access.remote),
        ibmkey_last_error().decode(), access.reason,
    )
