# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Descriptions of layouts, for work requests that bind keys."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from . import _wr, layout, memory
from .layout import U32, Layout, LayoutError, integer
from .memory import HasMr


class Description:
    """The description of a layout, in memory that the device can read.

    Any number of requests can use it, for any keys of its PD: ``key.post_bind(qp, description)``. It keeps what
    it describes. A key keeps the descriptions of its requests. ``close()`` deregisters the memory of the
    description; until then, and not longer, requests can use it.
    """

    def __init__(
        self,
        pd: Any,
        described: Layout,
        access: int = 0,
        *,
        keep: object = None,
        any_portion: bool = False,
        remote_invalidate: bool = False,
        base: int = 0,
    ) -> None:
        """Describes a layout whose blocks name MRs by their lkeys.

        ``access`` is a set of ``IBV_ACCESS_*``, which the key then has. ``keep`` is an object, such as the MR,
        that must exist as long as a key is bound to the layout. With ``any_portion``, a request finds an unbound key by
        an rkey with any key portion. With ``remote_invalidate``, a peer may invalidate the key by SEND with
        invalidate even if ``access`` has no remote flag. ``base`` is the address of the key's first byte.
        """
        self.pd = pd
        self.access = integer(access, "access", U32)
        self.layout = layout.checked(described)
        if not self.layout.length:
            raise LayoutError("the layout", "has no bytes, and a key describes at least one byte")
        self.base = integer(base, "base")
        self._keep = keep
        self._bytes = _wr.describe(self.layout, any_portion, remote_invalidate, self.base)
        self._mr = memory.register(pd, self._bytes)
        self._text: tuple[int, int, int] | None = (self._mr.buf, len(self._bytes), self._mr.lkey)

    @classmethod
    def from_buffer(cls, pd: Any, array: Any, access: int = 0, *, mr: HasMr | None = None, **more: Any) -> Description:
        """Describes the elements of an array, as ``Key.from_buffer()`` does. ``more`` goes to ``Description()``."""
        described, keep = memory.elements(pd, array, access, mr)
        return cls(pd, described, access, keep=keep, **more)

    @classmethod
    def from_indexed(
        cls, pd: Any, array: Any, indices: Collection[Any], access: int = 0, *, mr: HasMr | None = None, **more: Any
    ) -> Description:
        """Describes rows of an array by their numbers, as ``Key.from_indexed()`` does."""
        described, keep = memory.rows(pd, array, indices, access, mr)
        return cls(pd, described, access, keep=keep, **more)

    @property
    def length(self) -> int:
        """The bytes that a key with this layout has."""
        return self.layout.length

    @property
    def entries(self) -> int:
        """The entries that a key for this layout needs."""
        return self.layout.entries

    @property
    def text(self) -> tuple[int, int, int]:
        """Where the description is: its address, its length in bytes, and the lkey of its MR."""
        if self._text is None:
            raise ValueError("the description is closed")
        return self._text

    def __repr__(self) -> str:
        return f"<Description: {self.length} bytes in {self.entries} entries>"

    def close(self) -> None:
        """Deregisters the memory of the description. Calling it again does nothing."""
        self._text = None
        self._mr.close()
