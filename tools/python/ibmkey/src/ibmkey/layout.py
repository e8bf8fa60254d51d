# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Layouts: which bytes a key describes, and in which order.

This module needs neither a device nor libibmkey. Addresses and strides are in bytes.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

#: Dimensions of an interleaved layout, at most.
MAX_DIMS = 8

#: Entries or blocks of a key, at most; a device may allow fewer.
MAX_ENTRIES = 65536

#: Indices of a key, at most; a device may allow fewer.
MAX_INDICES = 1048576

# What the kernel's fields can hold: the least and the most.
U32 = (0, (1 << 32) - 1)
U64 = (0, (1 << 64) - 1)
S64 = (-(1 << 63), (1 << 63) - 1)


class LayoutError(ValueError):
    """No single key can describe this.

    ``part`` names the part that cannot be expressed: an axis, an entry.
    """

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f"{part}: {reason}")
        self.part = part
        self.reason = reason


class Run(NamedTuple):
    """Contiguous bytes of one leaf."""

    lkey: int
    address: int
    length: int


class _Block(NamedTuple):
    address: int
    length: int
    lkey: int = 0
    strides: tuple[int, ...] = ()


class Block(_Block):
    """A block of a leaf.

    ``address`` is that of the first byte at index 0 of every dimension. ``strides`` has the bytes from
    one start to the next, for each dimension, outermost first. Raises ``LayoutError``, a ``ValueError``,
    for an address, a length or an lkey that is negative or too large.
    """

    __slots__ = ()

    def __new__(cls, address: int, length: int, lkey: int = 0, strides: tuple[int, ...] = ()) -> Block:
        """Checks what the kernel's fields can hold."""
        integer(address, "address")
        integer(length, "length")
        integer(lkey, "lkey", U32)
        return super().__new__(cls, address, length, lkey, strides)


class Ranges(NamedTuple):
    """Ranges, one after another: a ``Block`` without strides for each, as in ``Block(address, length, lkey)``."""

    blocks: tuple[Block, ...]

    @property
    def length(self) -> int:
        """Returns the number of bytes."""
        return sum(block.length for block in self.blocks)

    @property
    def entries(self) -> int:
        """Returns the number of entries that a key needs."""
        return len(self.blocks)

    def runs(self) -> Iterator[Run]:
        """Yields the ranges in the order of the key's bytes."""
        for block in self.blocks:
            yield Run(block.lkey, block.address, block.length)


class Interleaved(NamedTuple):
    """Blocks that repeat with a stride in each of up to 8 dimensions, the outermost first."""

    repeat: tuple[int, ...]
    blocks: tuple[Block, ...]

    @property
    def length(self) -> int:
        """Returns the number of bytes."""
        return math.prod(self.repeat) * sum(block.length for block in self.blocks)

    @property
    def entries(self) -> int:
        """Returns the number of entries that a key needs."""
        return len(self.blocks)

    def runs(self) -> Iterator[Run]:
        """Yields the blocks in the order of the key's bytes."""
        for index in itertools.product(*map(range, self.repeat)):
            for block in self.blocks:
                at = sum(i * stride for i, stride in zip(index, block.strides, strict=True))
                yield Run(block.lkey, block.address + at, block.length)


class Indexed(NamedTuple):
    """Blocks of one size at ``address + index * unit``, in the order of the indices."""

    address: int
    unit: int
    block_length: int
    indices: Sequence[int]
    lkey: int = 0

    @property
    def length(self) -> int:
        """Returns the number of bytes."""
        return len(self.indices) * self.block_length

    @property
    def entries(self) -> int:
        """Returns the number of entries that a key needs."""
        return len(self.indices)

    def runs(self) -> Iterator[Run]:
        """Yields the blocks in the order of the key's bytes."""
        for index in self.indices:
            yield Run(self.lkey, self.address + int(index) * self.unit, self.block_length)


Layout = Ranges | Interleaved | Indexed


def integer(value: Any, part: str, limits: tuple[int, int] = U64) -> int:
    """Returns an integer within limits, or raises an error that names the part of a layout.

    A float is a ``TypeError``, as is a bool, which would be an element of a mask.
    """
    if isinstance(value, bool):
        raise TypeError(f"{part}: {value} is a bool, not an integer")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{part}: {value!r} is not an integer") from None
    if not limits[0] <= number <= limits[1]:
        raise LayoutError(part, f"is {number}, and the kernel takes {limits[0]} to {limits[1]}")
    return number


def integers(values: Iterable[Any], part: str, limits: tuple[int, int] = U64) -> tuple[int, ...]:
    """Returns all of some integers. ``part`` has ``{}`` where the number of a wrong one belongs in its name."""
    # A list of NumPy's integers has integers of Python, and is much faster to check.
    found = tuple(values.tolist() if hasattr(values, "tolist") else values)
    if all(type(value) is int for value in found) and (not found or limits[0] <= min(found) <= max(found) <= limits[1]):
        return found
    return tuple(integer(value, part.format(number), limits) for number, value in enumerate(found))


def few(indices: Collection[Any], most: int = MAX_INDICES) -> None:
    """Refuses more indices than a key can have, before they are copied: a range() of many numbers is small."""
    if len(indices) > most:
        raise LayoutError(f"index {most}", f"is one more than the {most} that a key can have")


def _checked_block(block: Block, part: str, dims: int) -> Block:
    if not isinstance(block, Block):
        raise TypeError(f"{part}: {block!r} is not a Block, as Block(address, length, lkey) makes it")
    strides = integers(block.strides, part + ".strides[{}]", S64)
    if len(strides) != dims:
        raise LayoutError(part, f"has {len(strides)} strides in a layout of {dims} dimensions")
    return Block(
        integer(block.address, f"{part}.address"),
        integer(block.length, f"{part}.length"),
        integer(block.lkey, f"{part}.lkey", U32),
        strides,
    )


def checked(described: Layout) -> Layout:
    """Returns a layout that a caller has made, in integers that the kernel's fields can hold.

    An error names the first part that is wrong. The kernel checks counts of zero, the lkeys and the MRs.
    """
    if isinstance(described, Ranges):
        # A range does not repeat, so a stride would have no effect.
        return Ranges(tuple(_checked_block(block, f"ranges[{n}]", 0) for n, block in enumerate(described.blocks)))
    if isinstance(described, Interleaved):
        repeat = integers(described.repeat, "repeat[{}]")
        if len(repeat) > MAX_DIMS:
            raise LayoutError(f"repeat[{MAX_DIMS}]", f"is one dimension too many: {len(repeat)} of at most {MAX_DIMS}")
        blocks = (_checked_block(block, f"blocks[{n}]", len(repeat)) for n, block in enumerate(described.blocks))
        return Interleaved(repeat, tuple(blocks))
    if isinstance(described, Indexed):
        few(described.indices)
        return Indexed(
            integer(described.address, "address"),
            integer(described.unit, "unit"),
            integer(described.block_length, "block_length"),
            integers(described.indices, "indices[{}]"),
            integer(described.lkey, "lkey", U32),
        )
    raise TypeError(f"{described!r} is not a layout: a Ranges, an Interleaved or an Indexed")


class _Axis(NamedTuple):
    """Axes of an array that one dimension describes: ``first`` to ``last``."""

    repeat: int
    stride: int
    first: int
    last: int

    def __str__(self) -> str:
        if self.first == self.last:
            return f"axis {self.first} ({self.repeat} elements, stride {self.stride})"
        return f"axes {self.first} to {self.last} ({self.repeat} elements, stride {self.stride})"


def contiguous(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Returns the strides of an array in C order without gaps."""
    return tuple(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def span(address: int, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Returns the lowest address of a strided array's bytes, and the bytes from there to the last one."""
    reach = [(count - 1) * stride for count, stride in zip(shape, strides, strict=True)]
    low = sum(at for at in reach if at < 0)
    high = sum(at for at in reach if at > 0)
    return address + low, high - low + itemsize


def _merged(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[list[_Axis], int]:
    """Returns the axes that remain when all that continue each other are one, and the bytes of a block."""
    axes: list[_Axis] = []
    for number in reversed(range(len(shape))):
        count, stride = shape[number], strides[number]
        if count == 1:
            continue
        if not axes and stride == itemsize:
            itemsize *= count
        elif axes and stride == axes[-1].stride * axes[-1].repeat:
            inner = axes.pop()
            axes.append(_Axis(count * inner.repeat, inner.stride, number, inner.last))
        else:
            axes.append(_Axis(count, stride, number, number))
    axes.reverse()
    return axes, itemsize


def strided(address: int, shape: Sequence[int], strides: Sequence[int], itemsize: int, lkey: int = 0) -> Interleaved:
    """Describes the elements of a strided array in C order, by one block and the fewest dimensions.

    ``address`` is that of element ``[0, ..., 0]``. Strides may be negative, and zero.
    """
    if len(shape) != len(strides):
        raise LayoutError("the strides", f"are {len(strides)}, and the array has {len(shape)} axes")
    for number, count in enumerate(shape):
        if count <= 0:
            raise LayoutError(f"axis {number}", "has no elements, and a key describes at least one byte")
    if itemsize <= 0:
        raise LayoutError("the element", "has no bytes, and a key describes at least one byte")

    axes, length = _merged(shape, strides, itemsize)
    if len(axes) > MAX_DIMS:
        raise LayoutError(
            str(axes[MAX_DIMS]),
            f"is dimension {MAX_DIMS + 1} of {len(axes)} that do not continue each other; a key has at most {MAX_DIMS}",
        )
    repeat = tuple(axis.repeat for axis in axes) or (1,)
    steps = tuple(axis.stride for axis in axes) or (0,)
    return Interleaved(repeat, (Block(address, length, lkey, steps),))


def ranges(blocks: Sequence[Block], most: int = MAX_ENTRIES) -> Ranges:
    """Describes ranges, one after another. Ranges that continue each other in one leaf become one.

    ``most`` is the number of ranges that a key of the device can have.
    """
    joined: list[Block] = []
    for number, block in enumerate(blocks):
        if block.length <= 0:
            raise LayoutError(f"entry {number}", "has no bytes")
        last = joined[-1] if joined else None
        if last and last.lkey == block.lkey and last.address + last.length == block.address:
            joined[-1] = last._replace(length=last.length + block.length)
        else:
            joined.append(Block(block.address, block.length, block.lkey))
        if len(joined) > most:
            raise LayoutError(f"entry {number}", f"is range {len(joined)}; a key of this device has at most {most}")
    if not joined:
        raise LayoutError("the list", "has no entries")
    return Ranges(tuple(joined))


def indexed(
    address: int,
    shape: Sequence[int],
    strides: Sequence[int],
    itemsize: int,
    indices: Collection[Any],
    lkey: int = 0,
) -> Indexed:
    """Describes ``array[indices]``: rows of a strided array, by their numbers.

    The bytes of a row must be contiguous. An index counts from the end if it is negative, as in Python.
    """
    if not shape:
        raise LayoutError("the array", "has no axis to index")
    if len(indices) == 0:
        raise LayoutError("the indices", "are none")
    few(indices)
    row = strided(address, shape[1:], strides[1:], itemsize)
    if row.repeat != (1,):
        inner, _ = _merged(shape[1:], strides[1:], itemsize)
        part = inner[-1]
        raise LayoutError(
            str(part._replace(first=part.first + 1, last=part.last + 1)),
            "leaves gaps in a row; an indexed layout has contiguous rows",
        )
    rows, unit = shape[0], strides[0]
    numbers = list(integers(indices, "index {}", S64))
    for number, index in enumerate(numbers):
        if not -rows <= index < rows:
            raise LayoutError(f"index {number}", f"is {index}, and there are {rows} rows")
        if index < 0:
            numbers[number] = index + rows
    if unit < 0:
        # The kernel's unit has no sign: count from the other end.
        address, unit = address + (rows - 1) * unit, -unit
        numbers = [rows - 1 - index for index in numbers]
    # Rows at one place are the same as row 0.
    if unit == 0:
        unit, numbers = itemsize, [0] * len(numbers)
    return Indexed(address, unit, row.blocks[0].length, numbers, lkey)
