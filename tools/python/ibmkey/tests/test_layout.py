# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The bytes that a layout describes are those of NumPy's copy, in the same order. Needs no device."""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import unittest
from typing import Any

import numpy as np
from arrays import Drawn, draw

from ibmkey import layout, memory
from ibmkey.layout import Block, Interleaved, LayoutError, Ranges

SEED = int(os.environ.get("MKEY_TEST_SEED", "1"))


def offsets(described: layout.Layout, base: int) -> np.ndarray[Any, Any]:
    """Lists the bytes of a layout one by one, from the definition in <infiniband/mkey.h>."""
    found = [np.arange(run.address, run.address + run.length) for run in described.runs()]
    return np.asarray(np.concatenate(found) - base)


class Slices(unittest.TestCase):
    def check(self, drawn: Drawn) -> None:
        start = drawn.base.__array_interface__["data"][0]
        found = memory.strided(drawn.view)
        described = layout.strided(found.address, found.shape, found.strides, found.itemsize)
        wanted = drawn.offsets()
        np.testing.assert_array_equal(offsets(described, start), wanted)
        self.assertEqual(described.length, np.ascontiguousarray(drawn.view).nbytes)
        low, length = found.span
        self.assertEqual((low - start, length), (wanted.min(), wanted.max() - wanted.min() + 1))

    def test_random_slices(self) -> None:
        rng = random.Random(SEED)
        for number in range(3000):
            with self.subTest(number=number):
                self.check(draw(rng))

    def test_every_slice_of_small_arrays(self) -> None:
        base = np.arange(24, dtype="<i2").reshape(2, 3, 4)
        places = (np.arange(24) * 2).reshape(2, 3, 4)
        steps = (-3, -2, -1, 1, 2, 3)
        one = [
            [slice(a, b, s) for a in (None, *range(n)) for b in (None, *range(n)) for s in steps] for n in base.shape
        ]
        # Slices that give the same elements of an axis are tested once.
        for axis, n in enumerate(base.shape):
            distinct = {tuple(range(n)[s]): s for s in one[axis]}
            one[axis] = [s for elements, s in distinct.items() if elements]
        for index in itertools.product(*one):
            self.check(Drawn(base, base[index], places[index]))

    def test_memoryviews(self) -> None:
        raw = bytearray(range(200))
        whole = memoryview(raw).cast("H", (5, 20))
        table = (ctypes.c_uint8 * 20 * 10).from_buffer(raw)
        for view in (memoryview(raw)[3:90:7], memoryview(raw)[::-1], whole, table):
            found = memory.strided(view)
            described = layout.strided(found.address, found.shape, found.strides, found.itemsize)
            start = memory.strided(raw).address
            self.assertEqual([raw[at] for at in offsets(described, start)], list(memoryview(view).tobytes()))

    def test_a_resize_is_refused_while_memory_is_in_use(self) -> None:
        raw = bytearray(10)
        found = memory.strided(raw)
        with self.assertRaises(BufferError):
            raw.append(1)
        del found
        raw.append(1)


class Fewest(unittest.TestCase):
    """Known cases: the fewest dimensions and one block."""

    def repeat(self, view: Any) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
        found = memory.strided(view)
        described = layout.strided(0, found.shape, found.strides, found.itemsize)
        (block,) = described.blocks
        return described.repeat, block.length, block.strides

    def test_known_cases(self) -> None:
        a = np.zeros((4, 5, 6, 7), dtype="u1")
        self.assertEqual(self.repeat(a), ((1,), 840, (0,)))
        self.assertEqual(self.repeat(a[1:3]), ((1,), 420, (0,)))
        self.assertEqual(self.repeat(a[1:3, 2]), ((2,), 42, (210,)))
        self.assertEqual(self.repeat(a[:, :, 1:3, 2:5]), ((20, 2), 3, (42, 7)))
        self.assertEqual(self.repeat(a[..., 3]), ((120,), 1, (7,)))
        self.assertEqual(self.repeat(a[::-1, ::-1, ::-1, ::-1]), ((840,), 1, (-1,)))
        self.assertEqual(self.repeat(a[1:3, 1:3, 1:3, 1:3]), ((2, 2, 2), 2, (210, 42, 7)))
        self.assertEqual(self.repeat(a.T), ((7, 6, 5, 4), 1, (1, 7, 42, 210)))
        self.assertEqual(self.repeat(np.broadcast_to(np.zeros(3, "u1"), (4, 5, 3))), ((20,), 3, (0,)))
        self.assertEqual(self.repeat(np.zeros((), "f8")), ((1,), 8, (0,)))

    def test_8_dimensions_and_not_9(self) -> None:
        base = np.zeros((3,) * 9, dtype="u1")
        self.assertEqual(len(self.repeat(base[(slice(None, None, 2),) * 8 + (0,)])[0]), 8)
        with self.assertRaises(LayoutError) as raised:
            self.repeat(base[(slice(None, None, 2),) * 9])
        self.assertEqual(raised.exception.part, "axis 8 (2 elements, stride 2)")
        self.assertIn("dimension 9 of 9", str(raised.exception))


class Refused(unittest.TestCase):
    def part(self, call: Any, *args: Any) -> str:
        with self.assertRaises(LayoutError) as raised:
            call(*args)
        return raised.exception.part

    def test_no_bytes(self) -> None:
        self.assertEqual(self.part(layout.strided, 0, (2, 0), (1, 1), 1), "axis 1")
        self.assertEqual(self.part(layout.strided, 0, (2,), (1,), 0), "the element")
        self.assertEqual(self.part(layout.ranges, [Block(0, 4), Block(8, 0)]), "entry 1")
        self.assertEqual(self.part(layout.ranges, []), "the list")

    def test_too_many_entries(self) -> None:
        many = [Block(2 * n, 1) for n in range(layout.MAX_ENTRIES + 1)]
        self.assertEqual(layout.ranges(many[:-1]).entries, layout.MAX_ENTRIES)
        self.assertEqual(self.part(layout.ranges, many), f"entry {layout.MAX_ENTRIES}")

    def test_objects(self) -> None:
        for array in (np.array([None]), np.zeros(2, [("a", "O")]), memoryview(np.array([None, None]))):
            with self.assertRaises(TypeError):
                memory.strided(array)
        with self.assertRaises(TypeError):
            memory.strided(5)

    def test_indices(self) -> None:
        indexed = layout.indexed
        self.assertEqual(self.part(indexed, 0, (), (), 4, [0]), "the array")
        self.assertEqual(self.part(indexed, 0, (3,), (4,), 4, []), "the indices")
        self.assertEqual(self.part(indexed, 0, (3,), (4,), 4, [2, 3]), "index 1")
        self.assertEqual(self.part(indexed, 0, (3,), (4,), 4, [-4]), "index 0")
        self.assertEqual(self.part(indexed, 0, (3, 2), (16, 8), 4, [0]), "axis 1 (2 elements, stride 8)")


class Others(unittest.TestCase):
    def test_ranges_that_continue_are_one(self) -> None:
        joined = layout.ranges([Block(0, 4, 1), Block(4, 4, 1), Block(8, 4, 2), Block(2, 1, 2)])
        self.assertEqual(joined, Ranges((Block(0, 8, 1), Block(8, 4, 2), Block(2, 1, 2))))
        self.assertEqual((joined.length, joined.entries), (13, 3))

    def test_indexed_rows(self) -> None:
        rng = random.Random(SEED)
        for _ in range(500):
            base = np.arange(60, dtype="<i4").reshape(10, 6)
            view = rng.choice(
                [base, base[::2], base[::-1], base[:, 1:4], base[::-3, 2:], np.broadcast_to(base[4], (7, 6))]
            )
            picks = [rng.randrange(-len(view), len(view)) for _ in range(rng.randint(1, 20))]
            found = memory.strided(view)
            rows = layout.indexed(found.address, found.shape, found.strides, found.itemsize, picks)
            start = base.__array_interface__["data"][0]
            got = base.view(np.uint8).reshape(-1)[offsets(rows, start)]
            self.assertEqual(got.tobytes(), view[picks].tobytes())
            self.assertTrue(rows.unit > 0 and all(index >= 0 for index in rows.indices))

    def test_blocks_interleave(self) -> None:
        described = Interleaved((2,), (Block(0, 2, 1, (10,)), Block(100, 1, 2, (-5,))))
        self.assertEqual(list(described.runs()), [(1, 0, 2), (2, 100, 1), (1, 10, 2), (2, 95, 1)])
        self.assertEqual((described.length, described.entries), (6, 2))


if __name__ == "__main__":
    unittest.main()
