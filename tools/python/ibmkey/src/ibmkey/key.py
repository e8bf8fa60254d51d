# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Keys: one MR for bytes that are not contiguous."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from pyverbs.enums import IBV_SEND_SIGNALED
from pyverbs.wr import SGE

from . import _lib, _wr, layout, memory
from .description import Description
from .layout import U32, Block, Layout, LayoutError, integer
from .memory import HasMr
from .verbs import Caps, imported_pd

# IBV_SEND_SIGNALED, the default of pyverbs's SendWR, too.
_SIGNALED = int(IBV_SEND_SIGNALED)


class Info(NamedTuple):
    """What is bound to a key. ``kind`` is 0 unbound, 1 list, 2 interleaved, 3 indexed."""

    length: int
    kind: int
    access: int
    max_entries: int
    num_entries: int
    num_dims: int
    lkey: int
    rkey: int
    base: int


class Refused(NamedTuple):
    """Why the kernel refused a work request that binds a key.

    ``entry`` is the number of the wrong entry, or None if no single one is the reason. ``reason`` is a sentence, and
    ``code`` its number in ``enum ib_uverbs_mkey_reason``.
    """

    errno: int
    entry: int | None
    reason: str
    code: int


class RefusedAccess(NamedTuple):
    """The last access that a key refused.

    ``number`` counts the refused accesses of all devices. ``key`` is the lkey or rkey of the request, ``access`` are
    the access flags that it needs, and ``remote`` is true for one of a peer. ``reason`` is a sentence, and ``code`` its
    number in ``enum ib_uverbs_mkey_reason``.
    """

    number: int
    addr: int
    length: int
    key: int
    access: int
    remote: bool
    reason: str
    code: int


def _destroy(handle: _lib.KeyHandle, keeps: list[object]) -> None:
    # The key goes first, because its leaves are busy until then.
    handle.destroy()
    keeps.clear()


class Key:
    """An MR that has no memory itself: it describes bytes of other MRs.

    Its addresses are ``base`` to ``base + length - 1``; ``base`` is 0 unless a bind gives another one. It keeps what it
    describes: the MRs, and the arrays under them. ``close()``, or the end of a ``with`` block, destroys it; so does the
    garbage collector.
    """

    def __init__(self, pd: Any, max_entries: int = 1) -> None:
        """Creates a key that is not bound. ``pd`` is a ``PD`` of pyverbs."""
        self._pd = pd
        self._max_entries = integer(max_entries, "max_entries", U32)
        self._handle = _lib.KeyHandle(imported_pd(pd), self._max_entries)
        self._base = 0
        self._keeps: list[object] = []
        # At exit this runs before pyverbs deregisters the MRs.
        self._end = weakref.finalize(self, _destroy, self._handle, self._keeps)

    # --- made from ---------------------------------------------------------

    @classmethod
    def from_buffer(cls, pd: Any, array: Any, access: int = 0, *, mr: HasMr | None = None) -> Key:
        """Makes a key of the elements of an array, in C order, wherever they are in memory.

        ``array`` is a NumPy array, a memoryview or any other object with the buffer protocol, sliced,
        transposed or broadcast as you like. ``access`` is a set of ``IBV_ACCESS_*``; a key that is only
        read by this device needs none. Without ``mr``, the memory of the array is registered, unless it is
        device memory (``DM``), whose MR is used. Peers have no rights to that MR.
        """
        described, keep = memory.elements(pd, array, access, mr)
        return cls._bound(pd, described, access, [keep])

    @classmethod
    def from_indexed(
        cls, pd: Any, array: Any, indices: Collection[Any], access: int = 0, *, mr: HasMr | None = None
    ) -> Key:
        """Makes a key of rows of an array by their numbers: the bytes of ``array[indices]``."""
        described, keep = memory.rows(pd, array, indices, access, mr)
        return cls._bound(pd, described, access, [keep])

    @classmethod
    def from_list(cls, pd: Any, parts: Iterable[Any], access: int = 0, *, mrs: Sequence[HasMr] = ()) -> Key:
        """Makes a key of arrays and keys, one after another.

        An array that is not contiguous gets its own key, to which the new one refers.
        Arrays within one of ``mrs`` are not registered.
        """
        blocks: list[Block] = []
        keeps: list[object] = []
        for number, part in enumerate(parts):
            try:
                blocks.append(cls._entry(pd, part, access, mrs, keeps))
            except LayoutError as error:
                raise LayoutError(f"entry {number}: {error.part}", error.reason) from None
            except TypeError as error:
                raise TypeError(f"entry {number}: {error}") from None
        most = Caps(*imported_pd(pd).context.query_caps()).max_entries
        return cls._bound(pd, layout.ranges(blocks, most), access, keeps)

    @classmethod
    def _entry(cls, pd: Any, part: Any, access: int, mrs: Sequence[HasMr], keeps: list[object]) -> Block:
        if not isinstance(part, Key):
            found = memory.strided(part)
            shape = layout.strided(0, found.shape, found.strides, found.itemsize)
            mr = memory.all_in(mrs, found)
            if shape.repeat == (1,):
                leaf = memory.leaf(pd, found, access, mr)
                keeps.append(leaf.keep)
                return Block(leaf.at, shape.length, leaf.lkey)
            part = cls.from_buffer(pd, part, access, mr=mr)
        keeps.append(part)
        return Block(part.base, part.length, part.lkey)

    @classmethod
    def from_layout(cls, pd: Any, described: Layout, access: int = 0, keep: object = None, *, base: int = 0) -> Key:
        """Makes a key of a layout whose blocks name MRs by their lkeys.

        The caller's MRs must exist as long as the key; ``keep`` is an object that sees to that. ``base`` is the
        address of the key's first byte.
        """
        return cls._bound(pd, layout.checked(described), access, [keep], base)

    @classmethod
    def _bound(cls, pd: Any, described: Layout, access: int, keeps: list[object], base: int = 0) -> Key:
        key = cls(pd, described.entries)
        try:
            key._bind(described, access, keeps, base)
        except BaseException:
            key.close()
            raise
        return key

    # --- bound again -------------------------------------------------------

    def bind(self, described: Layout, access: int = 0, keep: object = None, *, base: int = 0) -> None:
        """Binds the key to another layout, in one step. On an error the old one stays."""
        self._bind(layout.checked(described), access, [keep], base)

    def bind_buffer(self, array: Any, access: int = 0, *, mr: HasMr | None = None) -> None:
        """Binds the key to the elements of another array, as ``from_buffer()`` does.

        This is much faster than a new key, above all with an ``mr`` that exists.
        """
        described, keep = memory.elements(self._pd, array, access, mr)
        self._bind(described, access, [keep])

    def _bind(self, described: Layout, access: int, keeps: list[object], base: int = 0) -> None:
        self._handle.bind(described, integer(access, "access", U32), integer(base, "base"))
        self._base = base
        self._keeps[:] = keeps

    def unbind(self) -> None:
        """Unbinds the key and releases what it described."""
        self._handle.unbind()
        self._base = 0
        self._keeps.clear()

    # --- bound by work requests --------------------------------------------

    def post_bind(
        self, qp: Any, description: Description, *, wr_id: int = 0, send_flags: int = _SIGNALED, rkey: int = 0
    ) -> None:
        """Posts a work request that binds the key in the order of the queue.

        ``qp`` is an RC or UC ``QP`` of pyverbs. ``rkey`` is the new lkey and rkey, which may differ from the old
        ones in the low 8 bits; with 0 they stay. From now on ``length``, ``lkey`` and ``rkey`` are those after the
        request, so later requests can use them. If the completion has an error, ``query_refused()`` tells why.
        """
        text = self._text(description)
        number, flags = integer(wr_id, "wr_id"), integer(send_flags, "send_flags", U32)
        _wr.post_bind(self._handle, qp, text, description.access, integer(rkey, "rkey", U32), number, flags)
        self._requested(description)

    def post_unbind(self, qp: Any, *, wr_id: int = 0, send_flags: int = _SIGNALED) -> None:
        """Posts a work request that unbinds the key in the order of the queue, and changes its lkey and rkey.

        ``qp`` is an RC ``QP`` of pyverbs. After the completion, ``refresh()`` releases what the key described.
        """
        _wr.post_unbind(self._handle, qp, integer(wr_id, "wr_id"), integer(send_flags, "send_flags", U32))
        self._handle.set(0, self.lkey, self.rkey)

    def wr_bind(self, qp: Any, description: Description, *, rkey: int = 0, inline: bool = False) -> None:
        """Adds a request as of ``post_bind()`` between ``wr_start()`` and ``wr_complete()`` of a ``QPEx``.

        The ``QPEx`` has the send operation ``IBV_QP_EX_WITH_BIND_MW``; its ``wr_id`` and ``wr_flags`` apply. With
        ``inline``, the description is copied into the request. If ``wr_complete()`` fails, call ``refresh()``.
        """
        text = self._text(description)
        _wr.wr_bind(self._handle, qp, text, description.access, integer(rkey, "rkey", U32), inline)
        self._requested(description)

    def wr_unbind(self, qp: Any) -> None:
        """Adds a request as of ``post_unbind()``. The ``QPEx`` has ``IBV_QP_EX_WITH_LOCAL_INV``."""
        _wr.wr_unbind(self._handle, qp)
        self._handle.set(0, self.lkey, self.rkey)

    def _text(self, description: Description) -> tuple[int, int, int]:
        if not isinstance(description, Description):
            raise TypeError(f"{description!r} is not a Description")
        if imported_pd(description.pd) is not imported_pd(self._pd):
            raise ValueError("the description is in another PD than the key")
        return description.text

    def _requested(self, description: Description) -> None:
        self._handle.set(description.length, self.lkey, self.rkey)
        self._base = description.base
        # Earlier layouts may be in use until the key is unbound.
        if not any(kept is description for kept in self._keeps):
            self._keeps.append(description)

    def query_refused(self) -> Refused | None:
        """Returns why the kernel refused the last request that it refused for this key."""
        found = Refused(*_wr.query_refused(self._handle))
        return found if found.errno else None

    def query_refused_access(self) -> RefusedAccess | None:
        """Returns the last access that the key refused."""
        found = RefusedAccess(*_wr.query_refused_access(self._handle))
        return found if found.number else None

    def refresh(self) -> Info:
        """Takes ``length``, ``base``, ``lkey`` and ``rkey`` from the kernel, and returns what is bound.

        Call it while no request of this key is outstanding: after a refused one, after a peer's SEND with
        invalidate, and to release what the key described after ``post_unbind()``.
        """
        info = self.query()
        self._handle.set(info.length, info.lkey, info.rkey)
        self._base = info.base
        if info.kind == 0:
            self._keeps.clear()
        return info

    # --- what it is --------------------------------------------------------

    @property
    def lkey(self) -> int:
        """The key for work requests of this side."""
        return self._handle.lkey

    @property
    def rkey(self) -> int:
        """The key for a peer."""
        return self._handle.rkey

    @property
    def length(self) -> int:
        """The bytes that the key describes; 0 if it is not bound."""
        return self._handle.length

    @property
    def base(self) -> int:
        """The address of the first byte."""
        return self._base

    @property
    def max_entries(self) -> int:
        """The entries that the key was created for."""
        return self._max_entries

    @property
    def handle(self) -> int:
        """The number of the MR in the kernel."""
        return self._handle.handle

    def query(self) -> Info:
        """Returns what the kernel says is bound."""
        return Info(*self._handle.query())

    def sge(self, offset: int = 0, length: int | None = None) -> Any:
        """Returns a pyverbs ``SGE`` of the key's bytes, for a work request."""
        if length is None:
            length = self.length - offset
        if not 0 <= offset <= offset + length <= self.length:
            raise ValueError(f"bytes {offset} to {offset + length} are not all in the key, which has {self.length}")
        return SGE(self._base + offset, length, self.lkey)

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        if self._handle.closed:
            return "<Key: closed>"
        return f"<Key: {self.length} bytes, lkey {self.lkey:#x}, rkey {self.rkey:#x}>"

    # --- its end -----------------------------------------------------------

    def close(self) -> None:
        """Destroys the key. Calling it again does nothing.

        Raises ``MkeyError`` with ``EBUSY`` while another key or a memory window refers to it.
        """
        _destroy(self._handle, self._keeps)
        self._end.detach()

    def __enter__(self) -> Key:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
