# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Keys on a device: what they move. Needs rxe0, or MKEY_TEST_DEV0."""

from __future__ import annotations

import array
import ctypes
import errno
import random
import unittest
from typing import Any

import numpy as np
from arrays import draw
from device import DEVICE, QUICK, READ, SEED, WRITE, Test
from pyverbs import enums as e
from rc import Loop, sge

import ibmkey
from ibmkey import DM, Block, Key


class Transfers(Test):
    def test_reads_are_the_copies_of_numpy(self) -> None:
        rng = random.Random(SEED)
        for number in range(40 if QUICK else 400):
            with self.subTest(number=number):
                drawn = draw(rng)
                with Key.from_buffer(self.pd, drawn.view, READ) as key:
                    self.assertEqual(self.read(key), np.ascontiguousarray(drawn.view).tobytes())

    def test_writes_are_the_assignments_of_numpy(self) -> None:
        rng = random.Random(SEED + 1)
        for number in range(40 if QUICK else 400):
            with self.subTest(number=number):
                drawn = draw(rng, writable=True)
                data = np.random.default_rng(number).integers(0, 256, drawn.view.nbytes, dtype=np.uint8)
                memory: np.ndarray[Any, Any] = np.ndarray(drawn.base.nbytes, np.uint8, drawn.base.base)
                expected = memory.copy()
                expected[drawn.offsets()] = data
                with Key.from_buffer(self.pd, drawn.view, WRITE) as key:
                    self.write(key, data)
                np.testing.assert_array_equal(memory, expected)

    def test_send_from_one_slice_to_another(self) -> None:
        a, b = np.arange(120, dtype="f8").reshape(10, 12), np.zeros((12, 10))
        with (
            Key.from_buffer(self.pd, a[::-1, 1:4]) as source,
            Key.from_buffer(self.pd, b.T[:, 2:5], e.IBV_ACCESS_LOCAL_WRITE) as target,
        ):
            self.loop.send(source.sge(), target.sge())
        expected = np.zeros((12, 10))
        expected.T[:, 2:5] = a[::-1, 1:4]
        np.testing.assert_array_equal(b, expected)

    def test_a_part_of_a_key(self) -> None:
        a, got = np.arange(20, dtype="u1"), np.zeros(4, "u1")
        into = ibmkey.register(self.pd, got, WRITE)
        with Key.from_buffer(self.pd, a[::-2]) as key:
            self.loop.write(key.sge(3, 4), into.buf, into.rkey)
        self.assertEqual(got.tobytes(), a[::-2][3:7].tobytes())
        into.close()

    def test_peers_have_no_rights_to_the_mr_under_a_key(self) -> None:
        rights = READ | WRITE | e.IBV_ACCESS_REMOTE_ATOMIC
        for work, in_dm in ((Loop.read, False), (Loop.write, False), (Loop.read, True), (Loop.write, True)):
            loop = Loop(DEVICE)
            dm = DM(loop.context, 64)
            memory = np.frombuffer(dm, "u1") if in_dm else np.arange(64, dtype="u1")
            key = Key.from_buffer(loop.pd, memory[::2], rights)
            keeps: Any = key._keeps
            mr = keeps[0][0]
            plain = ibmkey.register(loop.pd, np.zeros(32, "u1"), e.IBV_ACCESS_LOCAL_WRITE)
            work(loop, sge(plain), 0, key.rkey)
            # On rxe the lkey of an MR is its rkey, too.
            with self.assertRaisesRegex(OSError, "IBV_WC_REM_ACCESS_ERR"):
                work(loop, sge(plain), 0 if in_dm else mr.buf, mr.lkey)
            key.close()
            del memory, mr, keeps
            plain.close()
            dm.close()
            loop.close()

    def test_other_buffers(self) -> None:
        raw = bytearray(range(100))
        for view in (
            memoryview(raw)[90:2:-3],
            memoryview(bytes(range(50)))[::7],
            array.array("i", range(10)),
            (ctypes.c_int * 5)(*range(5)),
            b"constant",
        ):
            with Key.from_buffer(self.pd, view, READ) as key:
                self.assertEqual(self.read(key), memoryview(view).tobytes())

    def test_a_list_of_arrays_slices_and_keys(self) -> None:
        header, table = bytearray(b"header"), np.arange(200, dtype="<i4").reshape(20, 10)
        whole = ibmkey.register(self.pd, table, READ)
        with Key.from_buffer(self.pd, table[:, 3], READ, mr=whole) as column:
            parts = [header, table[4], column, table[::-2, 1:3], header]
            with Key.from_list(self.pd, parts, READ, mrs=[whole]) as key:
                wanted = b"".join(
                    [header, table[4].tobytes(), table[:, 3].tobytes(), table[::-2, 1:3].tobytes(), header]
                )
                self.assertEqual(self.read(key), wanted)
                self.assertEqual(key.query().num_entries, 5)
                # The list refers to the column.
                self.assertEqual(self.errno_of(column.close), errno.EBUSY)
        whole.close()

    def test_rows_by_index(self) -> None:
        rng = random.Random(SEED)
        table = np.arange(3000, dtype="<i4").reshape(100, 30)
        for view in (table, table[::-3], table[1::2, 4:9]):
            picks = [rng.randrange(-len(view), len(view)) for _ in range(50)]
            with Key.from_indexed(self.pd, view, picks, READ) as key:
                self.assertEqual(self.read(key), view[picks].tobytes())

    def test_a_layout_with_lkeys(self) -> None:
        a, b = np.arange(12, dtype="u1"), np.arange(100, 112, dtype="u1")
        ra, rb = (ibmkey.register(self.pd, x, READ) for x in (a, b))
        first, second = Block(ra.buf, 1, ra.lkey, (3,)), Block(rb.buf + 10, 2, rb.lkey, (-2,))
        described = ibmkey.Interleaved((4,), (first, second))
        outside = ibmkey.Interleaved((4,), (first, second._replace(address=rb.buf + 11)))
        with Key.from_layout(self.pd, described, READ, keep=(ra, rb)) as key:
            wanted = [x for n in range(4) for x in (a[3 * n], b[10 - 2 * n], b[11 - 2 * n])]
            self.assertEqual(self.read(key), bytes(wanted))
            # The block's last byte is one past the MR.
            self.assertEqual(self.errno_of(key.bind, outside, READ), errno.ERANGE)
            self.assertEqual(self.read(key), bytes(wanted))
        ra.close()
        rb.close()

    def test_a_key_is_bound_again(self) -> None:
        a = np.arange(64, dtype="u1").reshape(8, 8)
        whole = ibmkey.register(self.pd, a, READ)
        with Key(self.pd) as key:
            self.assertEqual((key.length, key.query().kind), (0, 0))
            for view in (a[:, 1], a[::2, ::-1], a.T):
                key.bind_buffer(view, READ, mr=whole)
                self.assertEqual(self.read(key), view.tobytes())
            key.unbind()
            self.assertEqual((key.length, key.query().kind), (0, 0))
            # Nothing refers to the MR any more.
            whole.close()


if __name__ == "__main__":
    unittest.main()
