# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Memory of arrays: where it is, its MRs, and device memory that arrays can use."""

from __future__ import annotations

import re
import weakref
from collections.abc import Collection, Iterable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from pyverbs.mr import MR
from pyverbs.pyverbs_error import PyverbsRDMAError

from . import _alloc, _dm, _lib, layout
from .errors import MkeyError, registration_reason
from .layout import Indexed, Interleaved
from .verbs import Caps, context_of, imported_context, imported_pd


class HasMr(Protocol):
    """What a key needs to know of an MR, such as pyverbs's ``MR``."""

    @property
    def lkey(self) -> int:
        """The local key."""

    @property
    def length(self) -> int:
        """The bytes of the MR."""

    @property
    def buf(self) -> int:
        """The address of its first byte."""


class Strided(NamedTuple):
    """The memory of an array. ``owner`` keeps it where it is."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    readonly: bool
    owner: object

    @property
    def span(self) -> tuple[int, int]:
        """Returns the lowest address, and the bytes from there to the last one."""
        return layout.span(self.address, self.shape, self.strides, self.itemsize)


# A type of NumPy's array interface: the byte order, the kind, the bytes of an element (of a string:
# its characters), the unit of a date.
_TYPESTR = re.compile(r"[<>|=]?([a-zA-Z])([0-9]+)(\[.*\])?")
_UCS4 = 4


def _kinds(typestr: str, fields: Any) -> Iterable[str]:
    """Yields the kinds of an array's elements and of their fields."""
    found = _TYPESTR.fullmatch(typestr)
    yield found[1] if found else typestr.lstrip("<>|=")
    for field in fields or ():
        inner = field[1]
        yield from _kinds("|V0", inner) if isinstance(inner, list) else _kinds(inner, None)


def _itemsize(interface: dict[str, Any]) -> int:
    typestr = interface["typestr"]
    for kind in _kinds(typestr, interface.get("descr")):
        if kind in "OT":
            raise TypeError(f"elements of type {typestr} are or contain Python objects, not bytes that a peer can use")
        if kind not in "biufcmMSUV":
            raise TypeError(f"elements of type {typestr} do not consist of whole bytes")
    found = _TYPESTR.fullmatch(typestr)
    if not found:
        raise TypeError(f"{typestr!r} is not a type of the array interface: its bytes are missing")
    return int(found[2]) * (_UCS4 if found[1] == "U" else 1)


def _from_interface(array: Any, interface: dict[str, Any]) -> Strided:
    """Reads NumPy's array interface, version 3, which other packages have, too."""
    if interface.get("mask") is not None:
        raise TypeError("the array has a mask, and a key describes all elements")
    itemsize = _itemsize(interface)
    shape = layout.integers(interface["shape"], "axis {}")
    steps = interface.get("strides")
    strides = layout.contiguous(shape, itemsize) if steps is None else layout.integers(steps, "stride {}", layout.S64)
    data = interface.get("data")
    if isinstance(data, tuple):
        address, readonly = layout.integer(data[0], "the address"), bool(data[1])
        owner: object = array
        first, end = 0, 1 << 64
    else:
        # The elements are in a buffer: that of another object, or its own.
        view = _lib.View(array if data is None else data)
        first, end = view.address, view.address + view.length
        address, readonly = first + layout.integer(interface.get("offset", 0), "the offset"), view.readonly
        owner = (array, view)
    found = Strided(address, shape, strides, itemsize, readonly, owner)
    # An array without elements is refused for that reason.
    if all(shape) and len(shape) == len(strides):
        low, length = found.span
        if not first <= low <= low + length <= end:
            raise layout.LayoutError("the array", f"reaches outside its memory, {first:#x} to {end - 1:#x}")
    return found


def strided(array: Any) -> Strided:
    """Describes the memory of an object with NumPy's array interface or with the buffer protocol.

    Raises ``TypeError`` if the elements are Python objects, whose addresses mean nothing to a peer.
    """
    interface = getattr(array, "__array_interface__", None)
    if interface is not None:
        # The buffer protocol cannot express all of NumPy's types: dates, for example.
        return _from_interface(array, interface)
    view = _lib.View(array)
    # Names of fields are between colons.
    if "O" in re.sub(":[^:]*:", "", view.format):
        raise TypeError(f"elements of format {view.format} are Python objects, not bytes that a peer can use")
    return Strided(view.address, view.shape, view.strides, view.itemsize, view.readonly, view)


# pyverbs has the access flags of an MR as a C int.
_FLAGS = (0, (1 << 31) - 1)


def _writable(memory: Strided, access: int) -> None:
    from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_WRITE

    layout.integer(access, "access", _FLAGS)
    if memory.readonly and access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC):
        raise ValueError("the array is read-only, and the access flags allow a peer or the device to write it")


def _of_leaves(access: int) -> int:
    """Returns the flags of an MR that only keys with these flags use.

    The MR has bytes that a key over a part of it does not have. Without remote rights, a peer that guesses
    its rkey reaches none of them.
    """
    from pyverbs.enums import (
        IBV_ACCESS_MW_BIND,
        IBV_ACCESS_REMOTE_ATOMIC,
        IBV_ACCESS_REMOTE_READ,
        IBV_ACCESS_REMOTE_WRITE,
    )

    remote = IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE
    return int(access & ~(IBV_ACCESS_MW_BIND | remote))


class ArrayMR(MR):  # type: ignore[misc]
    """An MR over the memory of an array. It keeps the array."""

    memory: Strided

    def __init__(self, pd: Any, array: Any, access: int = 0) -> None:
        memory = array if isinstance(array, Strided) else strided(array)
        # pyverbs reports another object with the errno of an earlier call.
        context_of(pd)
        _writable(memory, access)
        low, length = memory.span
        try:
            super().__init__(pd, length, access, address=low)
        except PyverbsRDMAError as error:
            code = error.error_code
            raise MkeyError("ibv_reg_mr", code, registration_reason(code, access)) from error
        self.memory = memory

    def __repr__(self) -> str:
        low, length = self.memory.span
        return f"<ArrayMR: {length} bytes at {low:#x}>"

    def __del__(self) -> None:
        # The collector clears the fields of an MR in a circle before pyverbs deregisters it. pyverbs then takes
        # the memory for its own, and frees it.
        self.close()


def register(pd: Any, array: Any, access: int = 0) -> ArrayMR:
    """Registers the memory of an array, for any number of keys over parts of it.

    ``access`` is a set of ``pyverbs.enums.IBV_ACCESS_*``. The MR keeps the array, and every key over it
    keeps the MR.
    """
    return ArrayMR(pd, array, access)


def _free(handle: _alloc.AllocHandle) -> None:
    # An array over the memory keeps the handle, which frees the memory after it.
    if not handle.exports:
        handle.destroy()


class AllocatedMR:
    """An MR whose memory the library allocates, as a buffer: ``numpy.frombuffer(mr)`` is an array in it.

    The memory is of huge pages if possible, and children of ``fork()`` share it. For a key over a part of it, name
    this MR: ``Key.from_buffer(pd, array, access, mr=mr)``.
    """

    def __init__(self, pd: Any, length: int, access: int = 0, *, fd: int | None = None) -> None:
        """Allocates memory and registers it. ``access`` is a set of ``pyverbs.enums.IBV_ACCESS_*``."""
        context_of(pd)
        numbers = layout.integer(length, "length"), fd, layout.integer(access, "access", _FLAGS)
        self._handle = _alloc.AllocHandle(imported_pd(pd), *numbers)
        # As for a key.
        self._end = weakref.finalize(self, _free, self._handle)

    @classmethod
    def shared(cls, pd: Any, fd: int, access: int = 0) -> AllocatedMR:
        """Registers memory that another process shares by ``share()``, or another memfd with ``F_SEAL_SHRINK``."""
        return cls(pd, 0, access, fd=layout.integer(fd, "fd", _FLAGS))

    def share(self, *, read_only: bool = False) -> int:
        """Returns a file descriptor for ``shared()`` in another process. The caller closes it.

        If ``read_only``, no process can map the memory for writing from now on.
        """
        return self._handle.share(read_only)

    def close(self) -> None:
        """Deregisters the MR and frees the memory. Calling it again does nothing.

        Raises ``BufferError`` while an array over the memory exists, and ``MkeyError`` with ``EBUSY``
        while a key refers to it.
        """
        self._handle.destroy()
        self._end.detach()

    def __enter__(self) -> AllocatedMR:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return self.length

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self._handle)

    def __release_buffer__(self, view: memoryview) -> None:
        # Without this method, NumPy does not keep the view, which keeps the memory mapped.
        view.release()

    @property
    def lkey(self) -> int:
        """The local key."""
        return self._handle.lkey

    @property
    def rkey(self) -> int:
        """The remote key."""
        return self._handle.rkey

    @property
    def length(self) -> int:
        """The bytes of the MR."""
        return self._handle.length

    @property
    def buf(self) -> int:
        """The address of its first byte."""
        return self._handle.buf


class Leaf(NamedTuple):
    """An MR as a key names it. Address ``host`` of this process is address ``at`` of the MR."""

    lkey: int
    host: int
    at: int
    keep: object


# Device memory that is mapped: first byte -> DM.
_mapped: weakref.WeakValueDictionary[int, DM] = weakref.WeakValueDictionary()


def _deregister(regions: dict[tuple[int, int], _dm.DmMr]) -> None:
    while regions:
        which, mr = next(iter(regions.items()))
        mr.destroy()
        del regions[which]


# IB_MKEY_DM_COHERENT
_COHERENT = 1 << 63


class DM(_dm.DmHandle):
    """Device memory as a buffer: ``numpy.frombuffer(dm)`` is an array in it, which keeps it.

    A key over a part of such an array refers to the device memory.
    """

    def __init__(
        self, context: Any, length: int, *, log_align: int = 0, dm_class: int = 0, coherent: bool = False
    ) -> None:
        """Allocates device memory. ``context`` is a ``Context`` of pyverbs.

        With ``coherent``, memory that the caches of the processor are not coherent with is refused.
        """
        self._regions: dict[tuple[int, int], _dm.DmMr] = {}
        numbers = (layout.integer(length, "length"), layout.integer(log_align, "log_align", layout.U32))
        wanted = layout.integer(dm_class, "dm_class") | (_COHERENT if coherent else 0)
        super().__init__(imported_context(context), *numbers, wanted)
        # At exit this runs after keys are destroyed and before pyverbs deallocates the PD.
        self._end = weakref.finalize(self, _deregister, self._regions)

    @property
    def coherent(self) -> bool:
        """True if the caches of the processor are coherent with the memory."""
        return bool(self.dm_class & _COHERENT)

    def __len__(self) -> int:
        return self.length

    def __enter__(self) -> DM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Frees the memory and its MRs. Calling it again does nothing.

        Raises ``BufferError`` while an array over the memory exists, and ``MkeyError`` with ``EBUSY``
        while a key refers to it.
        """
        if self.exports:
            raise BufferError(f"{self.exports} arrays over the device memory still exist")
        _deregister(self._regions)
        at = self.mapping
        self.destroy()
        # Other memory may be mapped there from now on.
        if at and _mapped.get(at) is self:
            del _mapped[at]

    def __del__(self) -> None:
        self.close()

    def __buffer__(self, flags: int) -> memoryview:
        _mapped[self.address] = self
        return super().__buffer__(flags)

    def mr(self, pd: Any, access: int = 0) -> _dm.DmMr:
        """Returns an MR over the whole memory, the same one for equal PDs and access flags."""
        context_of(pd)
        which = (pd.handle, access)
        if which not in self._regions:
            self._regions[which] = _dm.DmMr(self, imported_pd(pd), 0, self.length, access)
        return self._regions[which]


def _in_dm(low: int, length: int) -> tuple[DM, int] | None:
    """Returns the device memory that is mapped at an address, and where it is mapped."""
    for start, dm in list(_mapped.items()):
        if start <= low and low + length <= start + len(dm):
            return dm, start
    return None


def _check_open(mr: HasMr) -> None:
    """Raises ``ValueError`` for an MR of pyverbs that is closed. Its other properties would end the program."""
    if isinstance(mr, MR) and not mr.buf:
        raise ValueError("the MR is closed, or not over memory of this process")


def leaf(pd: Any, memory: Strided, access: int, mr: HasMr | None) -> Leaf:
    """Returns the MR under an array: the one that the caller has, that of device memory, or a new one."""
    low, length = memory.span
    _writable(memory, access)
    if mr is not None:
        _check_open(mr)
        if not mr.buf <= low <= low + length <= mr.buf + mr.length:
            raise ValueError(
                f"the array's bytes, {low:#x} to {low + length - 1:#x}, are not all in the MR, "
                f"which has {mr.buf:#x} to {mr.buf + mr.length - 1:#x}"
            )
        return Leaf(mr.lkey, low, low, (mr, memory.owner))
    found = _in_dm(low, length)
    if found is not None:
        dm, start = found
        region = dm.mr(pd, _of_leaves(access))
        return Leaf(region.lkey, low, low - start, (region, dm, memory.owner))
    new = ArrayMR(pd, memory, _of_leaves(access))
    return Leaf(new.lkey, low, low, (new,))


def all_in(mrs: Sequence[HasMr], memory: Strided) -> HasMr | None:
    """Returns the first of some MRs that contains an array."""
    low, length = memory.span
    for mr in mrs:
        _check_open(mr)
        if mr.buf <= low and low + length <= mr.buf + mr.length:
            return mr
    return None


def elements(pd: Any, array: Any, access: int, mr: HasMr | None) -> tuple[Interleaved, object]:
    """Returns the layout of an array's elements, and what keeps their memory. Registers the memory if necessary."""
    found = strided(array)
    # Fail before memory is registered.
    shape = layout.strided(0, found.shape, found.strides, found.itemsize)
    under = leaf(pd, found, access, mr)
    (block,) = shape.blocks
    at = found.address - under.host + under.at
    return Interleaved(shape.repeat, (block._replace(address=at, lkey=under.lkey),)), under.keep


def rows(pd: Any, array: Any, indices: Collection[Any], access: int, mr: HasMr | None) -> tuple[Indexed, object]:
    """Returns the layout of rows of an array by their numbers, and what keeps their memory."""
    found = strided(array)
    layout.few(indices, Caps(*imported_pd(pd).context.query_caps()).max_indices)
    some = layout.indexed(0, found.shape, found.strides, found.itemsize, indices)
    under = leaf(pd, found, access, mr)
    at = some.address + found.address - under.host + under.at
    return some._replace(address=at, lkey=under.lkey), under.keep
