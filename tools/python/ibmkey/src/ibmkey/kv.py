# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Keys of a KV cache.

A cache has layers, each with its own MR, and each layer has a piece of every cache block. A ``View`` is one key in
which every cache block is contiguous. A ``Gather`` is a key over a view, with the blocks of a list::

    view = kv.View(pd, layers, 16384, 1000, access)
    request = kv.Gather(pd, view, [17, 4, 981], access)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Any, TypeVar

from .description import Description
from .key import Key
from .layout import U32, Block, Indexed, Interleaved, LayoutError, few, integer, integers
from .memory import HasMr

Self = TypeVar("Self", bound="_Closing")


class _Closing:
    key: Key

    def close(self) -> None:
        """Destroys the key. Calling it again does nothing."""
        self.key.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class View(_Closing):
    """One key over all layers of a cache, bound once. Block ``i`` begins at address ``i * block``.

    ``key`` is the key, ``block`` the bytes of a cache block, and ``num_blocks`` the number of blocks.
    """

    def __init__(
        self, pd: Any, layers: Sequence[HasMr], block_bytes: int | Sequence[int], num_blocks: int, access: int = 0
    ) -> None:
        """Makes the view of MRs whose memory begins with the piece of block 0, one MR a layer.

        ``block_bytes`` has the bytes of a piece: one number, or one for each layer.
        """
        if isinstance(block_bytes, int):
            block_bytes = [block_bytes] * len(layers)
        widths = integers(block_bytes, "block_bytes[{}]")
        if len(widths) != len(layers):
            raise LayoutError("block_bytes", f"has {len(widths)} numbers for {len(layers)} layers")
        self.num_blocks = integer(num_blocks, "num_blocks")
        pieces = (Block(layer.buf, width, layer.lkey, (width,)) for layer, width in zip(layers, widths, strict=True))
        self.block = sum(widths)
        self.key = Key.from_layout(pd, Interleaved((self.num_blocks,), tuple(pieces)), access, tuple(layers))

    def sge(self, first: int, count: int = 1) -> Any:
        """Returns a pyverbs ``SGE`` of ``count`` adjacent blocks."""
        return self.key.sge(first * self.block, count * self.block)

    def address(self, first: int) -> int:
        """Returns the address of a block, for a request with the rkey of ``key``."""
        if not 0 <= first < self.num_blocks:
            raise ValueError(f"block {first} is not in the cache, which has {self.num_blocks}")
        return first * self.block


class Gather(_Closing):
    """A key with the blocks of a list, in the order of the list. ``key`` is the key."""

    def __init__(
        self, pd: Any, view: View, ids: Collection[Any], access: int = 0, *, max_blocks: int | None = None
    ) -> None:
        """Binds a new key to blocks of the view. It can later be bound to as many blocks, or to ``max_blocks``."""
        described = self._layout(view, ids)
        self._pd, self._view = pd, view
        self.key = Key(pd, described.entries if max_blocks is None else integer(max_blocks, "max_blocks", U32))
        try:
            self.bind(ids, access)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _layout(view: View, ids: Collection[Any]) -> Indexed:
        few(ids)
        return Indexed(0, view.block, view.block, integers(ids, "ids[{}]"), view.key.lkey)

    def bind(self, ids: Collection[Any], access: int = 0) -> None:
        """Binds the key to another list at once. On an error the old one stays."""
        self.key.bind(self._layout(self._view, ids), access, self._view)

    def post(self, qp: Any, ids: Collection[Any], access: int = 0, **more: int) -> Description:
        """Posts a work request that binds the key to another list in the order of the queue.

        ``more`` goes to ``Key.post_bind()``. Returns the description, which can be closed after the completion.
        """
        description = Description(self._pd, self._layout(self._view, ids), access, keep=self._view)
        try:
            self.key.post_bind(qp, description, **more)
        except BaseException:
            description.close()
            raise
        return description
