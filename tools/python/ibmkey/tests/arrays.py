# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Random arrays and slices of them, and where each byte of a slice is."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np

RECORD = np.dtype([("a", "u1"), ("b", ">f4"), ("c", "<i2", (3,)), ("d", [("x", "<f8"), ("y", "u1")])])
TYPES = [np.dtype(name) for name in ("u1", "<i2", ">i4", "<f4", "<f8", "<c16", "S3", "<U2", "M8[s]", "?")] + [RECORD]


class Drawn(NamedTuple):
    """``view`` is a part of ``base``. ``places`` has the offset of each element from the start of ``base``."""

    base: np.ndarray[Any, Any]
    view: np.ndarray[Any, Any]
    places: np.ndarray[Any, Any]

    def offsets(self) -> np.ndarray[Any, Any]:
        """Returns the offset of each byte of the view, in the order of NumPy's copy."""
        return (self.places.reshape(-1, 1) + np.arange(self.view.dtype.itemsize)).reshape(-1)


def _slices(rng: random.Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    index: list[Any] = []
    for count in shape:
        kind = rng.randrange(8)
        if kind == 0:
            index.append(rng.randrange(-count, count))
        elif kind == 1:
            index += [np.newaxis, slice(None)]
        else:
            step = rng.choice([1, 1, 1, 2, 3, -1, -1, -2])
            ends = sorted(rng.choices(range(count + 1), k=2))
            start, stop = (ends[0], ends[1]) if step > 0 else (ends[1] - 1, ends[0] - 1)
            index.append(
                slice(start, None if stop < 0 else stop, step) if ends[0] != ends[1] else slice(None, None, step)
            )
    return tuple(index)


def draw(rng: random.Random, writable: bool = False) -> Drawn:
    """Returns a part of a random array of 1 to 5 dimensions that has at least one element."""
    shape = tuple(rng.randint(1, 6) for _ in range(rng.randint(1, 5)))
    dtype = rng.choice(TYPES)
    order: Any = rng.choice("CF")
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.random.default_rng(rng.getrandbits(32)).integers(0, 256, size, dtype=np.uint8)
    base: np.ndarray[Any, Any] = np.ndarray(shape, dtype, memory, order=order)
    places: np.ndarray[Any, Any] = np.ndarray(
        shape, np.int64, np.arange(0, size, dtype.itemsize, dtype=np.int64), order=order
    )
    view = base
    while view.dtype.names and rng.randrange(3):
        name = rng.choice(view.dtype.names)
        field, offset = view.dtype.fields[name][:2]
        view = view[name]
        places = places + offset
        if field.subdtype:
            inner = np.arange(int(np.prod(field.shape))) * field.base.itemsize
            places = places[..., np.newaxis] + inner.reshape(field.shape)
    for _ in range(rng.randint(0, 2)):
        index = _slices(rng, view.shape)
        view, places = view[index], places[index]
        # A scalar of NumPy is a copy, not a part of the array.
        if not isinstance(view, np.ndarray):
            return draw(rng, writable)
    if rng.randrange(3) == 0:
        axes = rng.sample(range(view.ndim), view.ndim)
        view, places = view.transpose(axes), places.transpose(axes)
    if not writable and rng.randrange(4) == 0:
        wide = (rng.randint(1, 3), *view.shape)
        view, places = np.broadcast_to(view, wide), np.broadcast_to(places, wide)
    return Drawn(base, view, places)
