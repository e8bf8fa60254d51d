# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Keys of a KV cache on a device. Needs rxe0, or MKEY_TEST_DEV0."""

from __future__ import annotations

import errno
import unittest
from typing import Any

import numpy as np
from device import READ, SEED, WRITE, Test
from rc import sge

import ibmkey
from ibmkey import LayoutError, kv

BLOCKS = 1000
WIDTHS = [56 if layer % 5 else 24 for layer in range(101)]


class Cache(Test):
    def setUp(self) -> None:
        rng = np.random.default_rng(SEED)
        self.arrays = [rng.integers(0, 256, (BLOCKS, width), np.uint8) for width in WIDTHS]
        self.layers = [ibmkey.register(self.pd, array, WRITE) for array in self.arrays]
        self.view = kv.View(self.pd, self.layers, WIDTHS, BLOCKS, READ | WRITE)

    def tearDown(self) -> None:
        self.view.close()
        for layer in self.layers:
            layer.close()

    def blocks(self, ids: list[int]) -> bytes:
        """What the pieces of these blocks are, by NumPy."""
        return b"".join(array[i].tobytes() for i in ids for array in self.arrays)

    def test_a_view_has_every_block_contiguous(self) -> None:
        self.assertEqual((self.view.block, self.view.key.length), (sum(WIDTHS), BLOCKS * sum(WIDTHS)))
        # The entries are those of the layers, independent of the number of blocks.
        self.assertEqual(self.view.key.query().num_entries, len(WIDTHS))
        self.assertEqual(self.read(self.view.key), self.blocks(list(range(BLOCKS))))

    def test_a_block_of_a_view_is_written_in_all_layers(self) -> None:
        before = [array.copy() for array in self.arrays]
        data = np.arange(self.view.block, dtype=np.uint32).astype(np.uint8)
        source = ibmkey.register(self.pd, data)
        self.loop.write(sge(source), self.view.address(991), self.view.key.rkey)
        source.close()
        at = 0
        for array, old in zip(self.arrays, before, strict=True):
            old[991] = data[at : at + old.shape[1]]
            at += old.shape[1]
            np.testing.assert_array_equal(array, old)

    def test_a_gather_has_the_blocks_of_its_list(self) -> None:
        ids = [999, 0, 17, 17, 4]
        with kv.Gather(self.pd, self.view, ids, READ, max_blocks=8) as some:
            self.assertEqual(self.read(some.key), self.blocks(ids))
            some.bind(np.array([3, 2, 1]), READ)
            self.assertEqual(self.read(some.key), self.blocks([3, 2, 1]))
            description = some.post(self.loop.qp, [8, 900], READ)
            self.loop.wait(self.loop.cq)
            self.assertEqual(self.read(some.key), self.blocks([8, 900]))
            some.key.unbind()
            description.close()

    def test_wrong_lists_change_nothing(self) -> None:
        with kv.Gather(self.pd, self.view, [5, 6], READ) as some:
            self.assertEqual(self.errno_of(some.bind, [5, BLOCKS], READ), errno.ERANGE)
            self.assertEqual(self.errno_of(some.bind, [1, 2, 3], READ), errno.ENOSPC)
            self.assertEqual(self.errno_of(some.bind, [], READ), errno.EINVAL)
            for wrong in ([-1], [1.5]):
                with self.assertRaises((LayoutError, TypeError)):
                    some.bind(wrong, READ)
            self.assertEqual(self.read(some.key), self.blocks([5, 6]))

    def test_wrong_views(self) -> None:
        def view(widths: Any, blocks: int = BLOCKS) -> None:
            kv.View(self.pd, self.layers, widths, blocks, READ).close()

        # A layer ends before its last block.
        self.assertEqual(self.errno_of(view, WIDTHS, BLOCKS + 1), errno.ERANGE)
        with self.assertRaisesRegex(LayoutError, "100 numbers for 101 layers"):
            view(WIDTHS[1:])
        with self.assertRaises(LayoutError):
            view(-1)
        with self.assertRaises(ValueError):
            self.view.address(BLOCKS)


if __name__ == "__main__":
    unittest.main()
