# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Keys on a device: what they keep, and what they leave. Needs rxe0, or MKEY_TEST_DEV0."""

from __future__ import annotations

import ctypes
import gc
import os
import unittest
from typing import Any, ClassVar

import numpy as np
from device import DEVICE, QUICK, READ, Test, mrs_of_this_process, run_program

import ibmkey
from ibmkey import DM, Key, MkeyError


def kernel_memory() -> tuple[int, int]:
    """Returns the bytes that all keys of the device take, and the bytes of its device memory in use."""

    def lines(name: str) -> list[list[str]]:
        with open(f"/sys/kernel/debug/ib_mkey/{name}", encoding="ascii") as file:
            return [line.split() for line in file if line.startswith(f"{DEVICE} ")]

    keys = next(int(line[2]) for line in lines("keys") if line[1] == "-")
    return keys, sum(int(line[3]) for line in lines("pools"))


def heap() -> int:
    """Returns the bytes in use of the C library's heap."""

    class Info(ctypes.Structure):
        _fields_: ClassVar[list[Any]] = [(name, ctypes.c_size_t) for name in "abcdefghij"]

    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Info
    info = mallinfo2()
    # hblkhd and uordblks
    return int(info.e + info.h)


class Lifetimes(Test):
    def test_a_key_keeps_the_array_and_its_mr(self) -> None:
        a = np.arange(1000, dtype="u1")
        wanted = a[::3].tobytes()
        key = Key.from_buffer(self.pd, a[::3], READ)
        before = mrs_of_this_process()
        del a
        gc.collect()
        # Memory that was freed would be used again.
        others = [np.full(1000, 255, "u1") for _ in range(100)]
        self.assertEqual(self.read(key), wanted)
        key.close()
        self.assertEqual(mrs_of_this_process(), before - 2)
        del others

    def test_the_collector_destroys_keys(self) -> None:
        before = mrs_of_this_process()
        keys = [Key.from_list(self.pd, [np.zeros(9)[::2], b"end"], READ) for _ in range(5)]
        self.assertEqual(mrs_of_this_process(), before + 5 * 4)
        # In a circle, too.
        circle: list[Any] = [keys.pop()]
        circle.append(circle)
        del keys, circle
        gc.collect()
        self.assertEqual(mrs_of_this_process(), before)

    def test_the_collector_does_not_free_the_memory_of_arrays(self) -> None:
        done = run_program(
            "import ctypes, gc\n"
            "libc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\n"
            "memory = [(ctypes.c_char * 4096).from_address(libc.malloc(4096)) for _ in range(20)]\n"
            "circles = [[ibmkey.register(loop.pd, m)] for m in memory]\n"
            "for circle in circles: circle.append(circle)\n"
            "del circle, circles\ngc.collect()\n"
            "again = [libc.malloc(4096) for _ in range(20)]\n"
            "print(len({ctypes.addressof(m) for m in memory} & set(again)))\nloop.close()"
        )
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("0\n", "", 0))

    def test_an_error_leaves_nothing(self) -> None:
        before = mrs_of_this_process()
        with self.assertRaises(RuntimeError), Key.from_buffer(self.pd, np.zeros(9), READ):
            raise RuntimeError
        with self.assertRaises(TypeError):
            Key.from_list(self.pd, [np.zeros(9)[::2], None])
        with self.assertRaises(MkeyError):
            # An unknown flag, which ibv_reg_mr() of this MR never sees.
            whole = ibmkey.register(self.pd, np.zeros(9))
            Key.from_buffer(self.pd, whole.memory.owner, 1 << 30, mr=whole)
        whole.close()
        gc.collect()
        self.assertEqual(mrs_of_this_process(), before)

    def test_10000_keys_leave_nothing(self) -> None:
        a = np.zeros((50, 50))
        table = np.arange(100).reshape(10, 10)

        def some(count: int) -> None:
            for number in range(count):
                with Key.from_buffer(self.pd, a[number % 50, ::-2], READ):
                    pass
                key = Key.from_list(self.pd, [b"head", a[:, number % 50]], READ)
                del key
                with Key.from_indexed(self.pd, table, [number % 10, 3], READ):
                    pass
                if number % 10 == 0:
                    dm = DM(self.loop.context, 8192)
                    key = Key.from_buffer(self.pd, np.frombuffer(dm, "u2")[::3], READ)
                    # One of them while the other one still keeps it.
                    del dm, key

        some(100)
        gc.collect()
        with Key.from_buffer(self.pd, DM(self.loop.context, 8192)):
            keys, dm = kernel_memory()
        gc.collect()
        self.assertTrue(kernel_memory()[0] < keys and kernel_memory()[1] < dm, "the counts do not count")
        before = (mrs_of_this_process(), heap(), len(gc.get_objects()), kernel_memory())
        # 4 keys each
        some(250 if QUICK else 2500)
        gc.collect()
        after = (mrs_of_this_process(), heap(), len(gc.get_objects()), kernel_memory())
        self.assertEqual((after[0], after[3]), (before[0], before[3]))
        self.assertLess(after[1] - before[1], 32 << 10)
        self.assertLess(after[2] - before[2], 50)

    def test_locked_memory(self) -> None:
        # A user who may lock 64 KiB.
        done = run_program(
            "import os, resource\nresource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))\nos.setuid(65534)\n"
            "b = np.zeros(1 << 20, 'u1')\n"
            "for call in (ibmkey.register, ibmkey.Key.from_buffer):\n"
            "    try: call(loop.pd, b[::2])\n    except ibmkey.MkeyError as error: print(error)\n"
        )
        self.assertEqual((done.stdout.count("ibv_reg_mr: ENOMEM"), done.stdout.count("ulimit -l")), (2, 2), done)

    def test_a_program_may_just_end(self) -> None:
        done = run_program(
            "keys = [ibmkey.Key.from_buffer(loop.pd, a[::2]), ibmkey.Key.from_list(loop.pd, [a, a[::3]])]\n"
            "dm = ibmkey.DM(loop.context, 4096)\nb = np.frombuffer(dm, 'u1')\n"
            "keys.append(ibmkey.Key.from_buffer(loop.pd, b[::2]))\nprint('end')"
        )
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("end\n", "", 0))

    def test_a_pd_is_not_closed_before_its_keys(self) -> None:
        done = run_program(
            "key = ibmkey.Key.from_buffer(loop.pd, a[::2])\n"
            "try: loop.pd.close()\nexcept Exception as error: print(error)\n"
            "key.close()\nloop.close()\nprint('closed')"
        )
        self.assertEqual(done.stderr, "")
        self.assertIn("busy", done.stdout)
        self.assertIn("closed", done.stdout)

    def test_a_context_closed_before_its_device_memory(self) -> None:
        done = run_program(
            "dm = ibmkey.DM(loop.context, 4096)\nloop.close()\ndm.write(b'12345')\nprint(dm.read(5))\ndm.close()"
        )
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("b'12345'\n", "", 0))

    def test_descriptors_are_closed(self) -> None:
        def descriptors() -> list[str]:
            return sorted(os.listdir("/proc/self/fd"))

        before = descriptors()
        keys = [Key(self.pd) for _ in range(20)]
        self.assertEqual(len(descriptors()), len(before) + 1)
        for key in keys:
            key.close()
        del key, keys
        self.assertEqual(descriptors(), before)


if __name__ == "__main__":
    unittest.main()
