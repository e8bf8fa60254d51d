# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Device memory: arrays and keys over it. Needs rxe0, or MKEY_TEST_DEV0."""

from __future__ import annotations

import ctypes
import errno
import gc
import unittest

import numpy as np
from device import READ, WRITE, Test

import ibmkey
from ibmkey import DM, Key, MkeyError


class DeviceMemory(Test):
    def test_memory_where_some_was_mapped(self) -> None:
        dm = DM(self.loop.context, 1 << 20)
        at = dm.address
        mapped = np.frombuffer(dm, "u1")
        del mapped
        gc.collect()
        dm.close()
        # Ordinary memory of this process, at the same address.
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        fixed_noreplace, private, anonymous = 0x100000, 2, 0x20
        self.assertEqual(libc.mmap(at, 1 << 20, 3, private | anonymous | fixed_noreplace, -1, 0), at)
        memory = (ctypes.c_ubyte * 100).from_address(at)
        memory[:] = list(range(100))
        with Key.from_buffer(self.pd, memory, READ) as key:
            self.assertEqual(self.read(key), bytes(range(100)))
        self.assertEqual(libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(1 << 20)), 0)

    def test_arrays_over_it(self) -> None:
        with DM(self.loop.context, 8192) as dm:
            a = np.frombuffer(dm, "<i4").reshape(32, 64)
            a[:] = np.arange(2048).reshape(32, 64)
            self.assertEqual(dm.read(8192), a.tobytes())
            dm.write(b"\xff" * 8, 4096)
            self.assertEqual(a[16, :2].tolist(), [-1, -1])
            for view in (a[:, 5], a[::-2, 3:9], a[7]):
                with Key.from_buffer(self.pd, view, READ | WRITE) as key:
                    self.assertEqual(self.read(key), view.tobytes())
                    self.write(key, np.zeros(view.size, "<i4"))
                self.assertFalse(view.any())
            self.assertTrue(a.any())
            with self.assertRaises(BufferError):
                dm.close()
            del a, view

    def test_coherent_memory(self) -> None:
        host, p2p = 1, 4
        with DM(self.loop.context, 4096, dm_class=host, coherent=True) as dm:
            self.assertTrue(dm.coherent)
            self.assertEqual(dm.dm_class, host | 1 << 63)
        refused = self.errno_of(DM, self.loop.context, 4096, dm_class=p2p, coherent=True)
        self.assertEqual(refused, errno.EOPNOTSUPP)
        caps = ibmkey.query_caps(self.loop.context)
        self.assertEqual(caps.flags >> 32, caps.dm_classes & ~p2p)

    def test_a_key_keeps_it(self) -> None:
        dm = DM(self.loop.context, 4096)
        key = Key.from_buffer(self.pd, np.frombuffer(dm, "u1")[::2], READ)
        dm.write(bytes(range(200)))
        del dm
        gc.collect()
        self.assertEqual(self.read(key)[:100], bytes(range(0, 200, 2)))
        key.close()

    def test_it_is_freed(self) -> None:
        # The share of one user.
        most = ibmkey.query_caps(self.loop.context).max_dm_size // 2
        for _ in range(3):
            dm = DM(self.loop.context, most // 2 + 4096)
            mapped = np.frombuffer(dm, "u1")
            del dm, mapped
            gc.collect()
        self.assertEqual(self.errno_of(DM, self.loop.context, 0), errno.EINVAL)

    def test_errors(self) -> None:
        with DM(self.loop.context, 100) as dm:
            with self.assertRaises(MkeyError):
                dm.write(b"123", 98)
            with self.assertRaisesRegex(MkeyError, "bytes 0 to 101 are not all in the memory, which has 100"):
                dm.read(101)
            with self.assertRaisesRegex(MkeyError, "not all in the memory"):
                dm.read(1 << 40)
            with self.assertRaises(TypeError):
                dm.write(None)  # type: ignore[arg-type]
            self.assertEqual(dm.read(0), b"")
        with self.assertRaises(ValueError):
            dm.read(1)
        dm.close()

    def test_it_is_not_unmapped_below_an_array(self) -> None:
        dm = DM(self.loop.context, 4096)
        array = np.frombuffer(dm, "u1")
        with self.assertRaises(BufferError):
            dm.destroy()
        self.assertFalse(array.any())
        del array
        dm.close()


if __name__ == "__main__":
    unittest.main()
