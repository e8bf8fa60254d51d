# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The bytes that a layout describes are those of NumPy's copy, in the same order. Needs no device."""

from __future__ import annotations

import array
import ctypes
import errno
import itertools
import os
import random
import unittest
from typing import Any

import numpy as np
from arrays import Drawn, draw
from pyverbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
)

from ibmkey import Key, MkeyError, layout, memory, register
from ibmkey.errors import registration_reason
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
        for objects in (np.array([None]), np.zeros(2, [("a", "O")]), memoryview(np.array([None, None]))):
            with self.assertRaises(TypeError):
                memory.strided(objects)
        with self.assertRaises(TypeError):
            memory.strided(5)

    def test_indices(self) -> None:
        indexed = layout.indexed
        self.assertEqual(self.part(indexed, 0, (), (), 4, [0]), "the array")
        self.assertEqual(self.part(indexed, 0, (3,), (4,), 4, []), "the indices")
        self.assertEqual(self.part(indexed, 0, (3,), (4,), 4, [2, 3]), "index 1")
        self.assertEqual(self.part(indexed, 0, (3,), (4,), 4, [-4]), "index 0")
        self.assertEqual(self.part(indexed, 0, (3, 2), (16, 8), 4, [0]), "axis 1 (2 elements, stride 8)")

    def test_indices_that_are_no_numbers_of_rows(self) -> None:
        # NumPy refuses these, too, or takes them for something else.
        for indices in ([1.0], np.array([0.5]), [True, False, True], np.zeros(3, "?"), ["1"], np.zeros((1, 1), int)):
            with self.assertRaisesRegex(TypeError, "index 0"):
                layout.indexed(0, (3,), (4,), 4, indices)
        self.assertEqual(layout.indexed(0, (3,), (4,), 4, np.array([2, -3], "i2")).indices, [2, 0])

    def test_shapes_that_do_not_fit(self) -> None:
        self.assertEqual(self.part(layout.strided, 0, (2, 2), (8,), 4), "the strides")
        self.assertEqual(self.part(layout.strided, 0, (2,), (8, 4), 4), "the strides")
        self.assertEqual(self.part(layout.strided, 0, (-2,), (8,), 4), "axis 0")
        self.assertEqual(self.part(layout.strided, 0, (2,), (8,), -4), "the element")

    def test_fewer_entries(self) -> None:
        with self.assertRaisesRegex(LayoutError, "entry 3: .* a key of this device has at most 3"):
            layout.ranges([Block(2 * n, 1) for n in range(9)], 3)


class Callers(unittest.TestCase):
    """Layouts that a caller makes: each wrong field is an error that names it."""

    def test_strides(self) -> None:
        good = Block(0, 8, 7, (16,))
        for strides, dims in (((), 1), ((1, 2), 1), ((1,), 2), ((0,), 0)):
            with self.subTest(strides=strides, dims=dims):
                wanted = rf"blocks\[1\]: has {len(strides)} strides in a layout of {dims} dimensions"
                first = good._replace(strides=good.strides * dims)
                with self.assertRaisesRegex(LayoutError, wanted):
                    layout.checked(Interleaved((4,) * dims, (first, good._replace(strides=strides))))
        with self.assertRaisesRegex(LayoutError, r"ranges\[1\]: has 1 strides"):
            layout.checked(Ranges((Block(0, 8), good)))
        with self.assertRaisesRegex(LayoutError, r"repeat\[8\]: is one dimension too many: 9"):
            layout.checked(Interleaved((1,) * 9, (good._replace(strides=(0,) * 9),)))

    def test_numbers(self) -> None:
        block, rows = Block(8, 8, 7, (16,)), layout.Indexed(0, 8, 8, [1, 2], 7)
        most = 1 << 64
        for field, wrong in (
            ("blocks[0].address", block._replace(address=-1)),
            ("blocks[0].address", block._replace(address=most)),
            ("blocks[0].length", block._replace(length=-8)),
            ("blocks[0].lkey", block._replace(lkey=1 << 32)),
            ("blocks[0].strides[0]", block._replace(strides=(1 << 63,))),
            ("blocks[0].strides[0]", block._replace(strides=(-(1 << 63) - 1,))),
            ("repeat[1]", (3, -1)),
            ("repeat[0]", (most,)),
            ("address", rows._replace(address=-1)),
            ("unit", rows._replace(unit=-8)),
            ("block_length", rows._replace(block_length=most)),
            ("lkey", rows._replace(lkey=-1)),
            ("indices[1]", rows._replace(indices=[1, -1])),
            ("indices[0]", rows._replace(indices=array.array("i", [-1]))),
            ("index 1048576", rows._replace(indices=range(layout.MAX_INDICES + 1))),
            ("index 1048576", rows._replace(indices=range(1 << 62))),
        ):
            with self.subTest(field=field, wrong=wrong), self.assertRaises(LayoutError) as raised:
                layout.checked(self.with_part(wrong))
            self.assertEqual(raised.exception.part, field)

    def test_types(self) -> None:
        block, rows = Block(8, 8, 7, (16,)), layout.Indexed(0, 8, 8, [1, 2], 7)
        wrongs: list[tuple[str, Any]] = [
            ("blocks[0].address", block._replace(address="8")),  # type: ignore[arg-type]
            ("blocks[0].length", block._replace(length=8.0)),  # type: ignore[arg-type]
            ("blocks[0].strides[0]", block._replace(strides=(16.5,))),  # type: ignore[arg-type]
            ("blocks[0].lkey", block._replace(lkey=None)),  # type: ignore[arg-type]
            ("blocks[0]", (8, 8, 7, (16,))),
            ("repeat[0]", (2.0,)),
            ("indices[1]", rows._replace(indices=[0, True])),
            ("indices[0]", rows._replace(indices=np.zeros(2))),  # type: ignore[arg-type]
        ]
        for field, wrong in wrongs:
            described = Interleaved((1,), (wrong,)) if field == "blocks[0]" else self.with_part(wrong)
            with self.subTest(field=field), self.assertRaises(TypeError) as raised:
                layout.checked(described)
            self.assertTrue(str(raised.exception).startswith(f"{field}: "), raised.exception)
        for other in (None, [block], block):
            with self.assertRaisesRegex(TypeError, "not a layout"):
                layout.checked(other)  # type: ignore[arg-type]

    def with_part(self, part: Any) -> layout.Layout:
        if isinstance(part, layout.Indexed):
            return part
        if isinstance(part, Block):
            return Interleaved((2,), (part,))
        return Interleaved(part, (Block(0, 8, 7, (1,) * len(part)),))

    def test_good_ones(self) -> None:
        numbers: Any = np.array([3, 5, 1 << 40])
        block = Block(numbers[2], numbers[0], numbers[1], tuple(-numbers))
        plain = Block(1 << 40, 3, 5, (-3, -5, -(1 << 40)))
        for described, wanted in (
            (Interleaved(tuple(numbers), (block,)), Interleaved((3, 5, 1 << 40), (plain,))),
            (Ranges((block._replace(strides=()),)), Ranges((plain._replace(strides=()),))),
            (layout.Indexed(0, 1, 1, numbers, 7), layout.Indexed(0, 1, 1, (3, 5, 1 << 40), 7)),
        ):
            self.assertEqual(layout.checked(described), wanted)


class Exposed:
    """An array of another package: it has NumPy's array interface, and nothing else of NumPy."""

    def __init__(self, array: np.ndarray[Any, Any], **fields: Any) -> None:
        self.keep = array
        self.__array_interface__ = array.__array_interface__ | fields


class Interfaces(unittest.TestCase):
    def test_they_are_as_the_arrays(self) -> None:
        rng = random.Random(SEED)
        for _ in range(500):
            drawn = draw(rng)
            found = memory.strided(Exposed(drawn.view))
            described = layout.strided(found.address, found.shape, found.strides, found.itemsize)
            start = drawn.base.__array_interface__["data"][0]
            np.testing.assert_array_equal(offsets(described, start), drawn.offsets())
            self.assertEqual((found.shape, found.itemsize), (drawn.view.shape, drawn.view.dtype.itemsize))

    def test_optional_parts(self) -> None:
        raw = bytearray(range(48))
        start = memory.strided(raw).address
        bare = {"shape": (3, 4), "typestr": "<i4", "version": 3}

        class Bare:
            __array_interface__: Any = bare

        Bare.__array_interface__ = bare | {"data": raw}
        found = memory.strided(Bare())
        self.assertEqual(found[:5], (start, (3, 4), (16, 4), 4, False))
        Bare.__array_interface__ = bare | {"data": bytes(raw), "shape": (2,), "offset": 40, "strides": (-16,)}
        found = memory.strided(Bare())
        self.assertEqual((found.strides, found.readonly), ((-16,), True))
        for wrong in ({"offset": 4}, {"offset": 60}, {"strides": (-16, 4)}, {"shape": (4, 4)}):
            Bare.__array_interface__ = bare | {"data": raw} | wrong
            with self.subTest(wrong=wrong), self.assertRaisesRegex(LayoutError, "reaches outside its memory"):
                memory.strided(Bare())

    def test_wrong_ones(self) -> None:
        numbers: Any = np.arange(6.0).reshape(2, 3)
        for fields, error, words in (
            ({"typestr": "|O8"}, TypeError, "Python objects"),
            ({"typestr": "|O"}, TypeError, "Python objects"),
            ({"typestr": "|T16"}, TypeError, "Python objects"),
            ({"descr": [("a", "<i4"), ("b", [("c", "|O")])], "typestr": "|V12"}, TypeError, "Python objects"),
            ({"typestr": "|t4"}, TypeError, "whole bytes"),
            ({"typestr": "f"}, TypeError, "bytes are missing"),
            ({"mask": numbers}, TypeError, "mask"),
            ({"shape": (-1, 3)}, LayoutError, "axis 0: is -1"),
            ({"shape": (2.0, 3)}, TypeError, "axis 0: 2.0"),
            ({"strides": (8, 1 << 63)}, LayoutError, "stride 1: is"),
            ({"data": (-8, False)}, LayoutError, "the address: is -8"),
            ({"data": (8, False), "strides": (-16, 8)}, LayoutError, "outside its memory"),
        ):
            with self.subTest(fields=fields), self.assertRaisesRegex(error, words):
                found = memory.strided(Exposed(numbers, **fields))
                layout.strided(0, found.shape, found.strides, found.itemsize)
        found = memory.strided(Exposed(numbers, strides=(8,)))
        with self.assertRaisesRegex(LayoutError, "the strides"):
            layout.strided(0, found.shape, found.strides, found.itemsize)

    def test_names_of_fields(self) -> None:
        view = memoryview(np.zeros(3, [("Other", "<i4"), ("Object", "u1")]))
        self.assertEqual(memory.strided(view).itemsize, 5)
        with self.assertRaises(TypeError):
            memory.strided(memoryview(np.zeros(3, [("a", "O")])))


class Reasons(unittest.TestCase):
    def test_a_sentence_follows_the_errno(self) -> None:
        error = MkeyError("f", errno.EINVAL, "blocks[0] is wrong")
        self.assertEqual(str(error), f"f: EINVAL: {os.strerror(errno.EINVAL)}: blocks[0] is wrong")
        self.assertEqual(str(MkeyError("f", errno.EXDEV)), f"f: EXDEV: {os.strerror(errno.EXDEV)}")
        self.assertIsNone(MkeyError("f", errno.EXDEV).reason)

    def test_a_registration_names_its_cause(self) -> None:
        remote = (IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ)
        for access in remote:
            reason = registration_reason(errno.EINVAL, access) or ""
            self.assertRegex(reason, "IBV_ACCESS_REMOTE_WRITE .* without IBV_ACCESS_LOCAL_WRITE")
            reason = registration_reason(errno.EINVAL, access | IBV_ACCESS_LOCAL_WRITE) or ""
            self.assertRegex(reason, "a flag that the device refuses")
        self.assertIn("ulimit -l", registration_reason(errno.ENOMEM, 0) or "")
        self.assertIn("not mapped", registration_reason(errno.EFAULT, 0) or "")
        self.assertIsNone(registration_reason(errno.EBUSY, 0))

    def test_no_pd_is_a_type_error(self) -> None:
        calls: tuple[tuple[Any, Any], ...] = ((register, np.zeros(3)), (Key.from_buffer, np.zeros(3)), (Key, 1))
        for call, argument in calls:
            with self.subTest(call=call), self.assertRaisesRegex(TypeError, "'pd' is not a PD"):
                call("pd", argument)


class Others(unittest.TestCase):
    def test_a_block_has_no_negative_numbers(self) -> None:
        for arguments, part in (((8, -1, 1), "length"), ((-1, 8, 1), "address"), ((8, 8, 1 << 32), "lkey")):
            with self.subTest(part=part), self.assertRaisesRegex(ValueError, f"^{part}: is "):
                Block(*arguments)
        block = Block(8, 4, 1, (16,))
        self.assertEqual((repr(block), block), ("Block(address=8, length=4, lkey=1, strides=(16,))", (8, 4, 1, (16,))))
        self.assertIs(type(block._replace(lkey=2)), Block)

    def test_a_tuple_is_no_block(self) -> None:
        with self.assertRaisesRegex(TypeError, r"ranges\[0\]: .* is not a Block, as Block\(address, length, lkey\)"):
            layout.checked(Ranges(((8, 16, 7),)))  # type: ignore[arg-type]

    def test_ranges_that_continue_are_one(self) -> None:
        joined = layout.ranges([Block(0, 4, 1), Block(4, 4, 1), Block(8, 4, 2), Block(2, 1, 2)])
        self.assertEqual(joined, Ranges((Block(0, 8, 1), Block(8, 4, 2), Block(2, 1, 2))))
        self.assertEqual((joined.length, joined.entries), (13, 3))

    def test_too_many_indices_are_refused_before_they_are_copied(self) -> None:
        for many in (layout.MAX_INDICES + 1, 1 << 62):
            with self.assertRaisesRegex(LayoutError, "index 1048576: is one more than the 1048576"):
                layout.indexed(0, (8, 8), (8, 1), 1, range(many))

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
