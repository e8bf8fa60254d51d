# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Keys on a device: what they move, what they refuse, and what they keep. Needs rxe0, or MKEY_TEST_DEV0."""

from __future__ import annotations

import array
import ctypes
import errno
import gc
import json
import os
import random
import subprocess
import sys
import unittest
from typing import Any, ClassVar

import numpy as np
from arrays import draw
from pyverbs import enums as e
from pyverbs.pd import PD
from rc import Loop, sge

import ibmkey
from ibmkey import DM, Block, Key, LayoutError, MkeyError

DEVICE = os.environ.get("MKEY_TEST_DEV0", "rxe0")
QUICK = "MKEY_TEST_QUICK" in os.environ
SEED = int(os.environ.get("MKEY_TEST_SEED", "1"))
READ = e.IBV_ACCESS_REMOTE_READ
WRITE = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE


class Test(unittest.TestCase):
    loop: ClassVar[Loop]
    pd: ClassVar[Any]

    @classmethod
    def setUpClass(cls) -> None:
        cls.loop = Loop(DEVICE)
        cls.pd = cls.loop.pd

    @classmethod
    def tearDownClass(cls) -> None:
        gc.collect()
        cls.loop.close()

    def read(self, key: Key) -> bytes:
        """Reads all of a key by its rkey."""
        got = np.zeros(key.length, np.uint8)
        into = ibmkey.register(self.pd, got, e.IBV_ACCESS_LOCAL_WRITE)
        self.loop.read(sge(into), 0, key.rkey)
        into.close()
        return got.tobytes()

    def write(self, key: Key, data: np.ndarray[Any, Any]) -> None:
        """Writes contiguous data to all of a key by its rkey."""
        source = ibmkey.register(self.pd, data)
        self.loop.write(sge(source), 0, key.rkey)
        source.close()

    def errno_of(self, call: Any, *args: Any, **named: Any) -> int:
        with self.assertRaises(MkeyError) as raised:
            call(*args, **named)
        found = int(raised.exception.errno or 0)
        self.assertIn(errno.errorcode[found], str(raised.exception))
        return found


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

    def test_a_key_keeps_it(self) -> None:
        dm = DM(self.loop.context, 4096)
        key = Key.from_buffer(self.pd, np.frombuffer(dm, "u1")[::2], READ)
        dm.write(bytes(range(200)))
        del dm
        gc.collect()
        self.assertEqual(self.read(key)[:100], bytes(range(0, 200, 2)))
        key.close()

    def test_it_is_freed(self) -> None:
        most = ibmkey.query_caps(self.loop.context).max_dm_size
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
            with self.assertRaises(MkeyError):
                dm.read(101)
            self.assertEqual(dm.read(0), b"")
        with self.assertRaises(ValueError):
            dm.read(1)
        dm.close()


class Errors(Test):
    def test_errno(self) -> None:
        a = np.arange(16, dtype="u1")
        whole = ibmkey.register(self.pd, a)
        self.assertEqual(self.errno_of(Key, self.pd, 0), errno.EINVAL)
        with self.assertRaisesRegex(MkeyError, "max_entries is 0, not 1 to"):
            Key(self.pd, 0)
        for call in (ibmkey.register, Key.from_buffer):
            with self.assertRaisesRegex(MkeyError, "EINVAL.* without IBV_ACCESS_LOCAL_WRITE"):
                call(self.pd, a, e.IBV_ACCESS_REMOTE_WRITE)
        with Key(self.pd, 1) as key:
            one = Block(whole.buf, 4, whole.lkey)
            two = ibmkey.Ranges((one, one))
            self.assertEqual(self.errno_of(key.bind, two), errno.ENOSPC)
            self.assertEqual(self.errno_of(key.bind, ibmkey.Ranges((one._replace(lkey=0x123456),))), errno.ENOENT)
            self.assertEqual(self.errno_of(key.bind, ibmkey.Ranges((one,)), READ | WRITE), errno.EACCES)
            self.assertEqual(self.errno_of(key.bind, ibmkey.Ranges((one._replace(length=17),))), errno.ERANGE)
            huge = ibmkey.Interleaved((1 << 40, 1 << 40), (one._replace(strides=(0, 0)),))
            self.assertEqual(self.errno_of(key.bind, huge), errno.EOVERFLOW)
            self.assertEqual(self.errno_of(key.bind, ibmkey.Ranges((Block(0, 4, key.lkey),))), errno.ELOOP)
            with self.assertRaisesRegex(MkeyError, r"ENOENT.*ranges\[0\]\.lkey 0x123456"):
                key.bind(ibmkey.Ranges((one._replace(lkey=0x123456),)))
            key.bind(ibmkey.Ranges((one,)), keep=whole)
            with self.assertRaises(Exception) as raised:
                whole.close()
            self.assertIn("busy", str(raised.exception))
        whole.close()

    def test_a_layout_that_does_not_fit_binds_nothing(self) -> None:
        whole = ibmkey.register(self.pd, np.arange(64, dtype="u1"), READ)
        block = Block(whole.buf, 8, whole.lkey, (16,))
        good = ibmkey.Interleaved((4,), (block,))
        with Key.from_layout(self.pd, good, READ, keep=whole) as key:
            wanted = self.read(key)
            for wrong in (
                ibmkey.Interleaved((4,), (block._replace(strides=()),)),
                ibmkey.Interleaved((4,), (block._replace(strides=(16, 1)),)),
                ibmkey.Ranges((block,)),
                # As many as the number of entries in 32 bits, and one more.
                ibmkey.Indexed(whole.buf, 8, 8, range((1 << 32) + 1), whole.lkey),
            ):
                with self.assertRaises(LayoutError):
                    key.bind(wrong, READ)
                with self.assertRaises(LayoutError):
                    Key.from_layout(self.pd, wrong, READ)
            self.assertEqual((self.read(key), key.length), (wanted, 32))
            for offset, length in ((0, 33), (33, None), (-1, 4), (4, -1), (32, 1)):
                with self.assertRaisesRegex(ValueError, "not all in the key"):
                    key.sge(offset, length)
        whole.close()

    def test_what_the_library_gets_has_one_length(self) -> None:
        """The module in C does not trust a length, also without the checks of layout.py."""
        from ibmkey._lib import KeyHandle
        from ibmkey.verbs import imported_pd

        class Longer(list[int]):
            def __len__(self) -> int:
                return 1

        whole = ibmkey.register(self.pd, np.arange(64, dtype="u1"), READ)
        handle = KeyHandle(imported_pd(self.pd), 64)
        handle.bind(ibmkey.Indexed(whole.buf, 1, 1, Longer(range(50)), whole.lkey), READ)
        self.assertEqual(handle.length, 50)
        with self.assertRaises(ValueError):
            handle.bind(ibmkey.Interleaved((4,), (Block(whole.buf, 8, whole.lkey),)), READ)
        self.assertEqual(handle.length, 50)
        handle.destroy()
        whole.close()

    def test_limits(self) -> None:
        caps = ibmkey.query_caps(self.loop.context)
        self.assertEqual(self.errno_of(DM, self.loop.context, caps.max_dm_size + 4096), errno.ENOMEM)
        # IBMKEY_DM_THE_NODE(200), and IBMKEY_DM_THE_P2P(0xffffffff, 0xff, 0xff).
        for absent in (1 << 1 | 201 << 8, 1 << 2 | 1 << 56):
            self.assertEqual(self.errno_of(DM, self.loop.context, 4096, dm_class=absent), errno.EOPNOTSUPP)
        many = np.zeros(2 * caps.max_entries + 2, "u1")
        whole = ibmkey.register(self.pd, many)
        parts = [memoryview(many)[2 * n : 2 * n + 1] for n in range(caps.max_entries + 1)]
        with self.assertRaisesRegex(LayoutError, f"entry {caps.max_entries}: .* at most {caps.max_entries}"):
            Key.from_list(self.pd, parts, mrs=[whole])
        whole.close()

    def test_memory_that_cannot_be_registered(self) -> None:
        class Nowhere:
            __array_interface__: ClassVar[Any] = {"shape": (8,), "typestr": "|u1", "version": 3, "data": (4096, False)}

        self.assertEqual(self.errno_of(ibmkey.register, self.pd, Nowhere()), errno.EFAULT)
        self.assertEqual(self.errno_of(Key.from_buffer, self.pd, Nowhere()), errno.EFAULT)

    def test_it_is_an_oserror_and_an_error_of_pyverbs(self) -> None:
        from pyverbs.pyverbs_error import PyverbsError

        for kind in (OSError, PyverbsError):
            with self.assertRaises(kind) as raised:
                Key(self.pd, 0)
            self.assertEqual(raised.exception.call, "ibmkey_alloc")

    def test_what_no_key_can_describe(self) -> None:
        with self.assertRaisesRegex(LayoutError, "axis 8 .* a key has at most 8"):
            Key.from_buffer(self.pd, np.zeros((3,) * 9, "u1")[(slice(None, None, 2),) * 9])
        with self.assertRaisesRegex(LayoutError, "axis 0: has no elements"):
            Key.from_buffer(self.pd, np.zeros(3)[:0])
        with self.assertRaisesRegex(LayoutError, "entry 1: axis 0: has no elements"):
            Key.from_list(self.pd, [b"a", b""])
        most = ibmkey.query_caps(self.loop.context).max_indices
        with self.assertRaisesRegex(LayoutError, f"index {most}"):
            Key.from_indexed(self.pd, np.zeros(3), [0] * (most + 1))

    def test_memory(self) -> None:
        a = np.zeros((4, 4))
        part = ibmkey.register(self.pd, a[1:3])
        with self.assertRaisesRegex(ValueError, "not all in the MR"):
            Key.from_buffer(self.pd, a[:, 1], mr=part)
        part.close()
        a.flags.writeable = False
        for access in (WRITE, e.IBV_ACCESS_LOCAL_WRITE):
            with self.assertRaisesRegex(ValueError, "read-only"):
                Key.from_buffer(self.pd, a, access)
            with self.assertRaisesRegex(ValueError, "read-only"):
                ibmkey.register(self.pd, a, access)
        Key.from_buffer(self.pd, a, READ).close()
        with self.assertRaises(TypeError):
            Key.from_buffer(self.pd, np.array([None, 1]))

    def test_a_pd(self) -> None:
        closed = PD(self.loop.context)
        closed.close()
        a = np.zeros(3)
        with DM(self.loop.context, 64) as dm:
            mapped = np.frombuffer(dm, "u1")
            for wrong, reason in (("pd", "not a PD"), (closed, "closed")):
                for call, args in (
                    (Key, (wrong,)),
                    (ibmkey.register, (wrong, a)),
                    (Key.from_buffer, (wrong, a)),
                    (Key.from_buffer, (wrong, mapped)),
                    (Key.from_list, (wrong, [a])),
                    (dm.mr, (wrong,)),
                ):
                    with self.subTest(call=call, wrong=wrong), self.assertRaisesRegex(TypeError, reason):
                        call(*args)
            del mapped, args
            gc.collect()
        other = PD(self.loop.context)
        part = ibmkey.register(other, np.zeros(3))
        self.assertEqual(self.errno_of(Key.from_buffer, self.pd, part.memory.owner, mr=part), errno.ENOENT)
        part.close()
        other.close()

    def test_a_closed_key(self) -> None:
        key = Key.from_buffer(self.pd, np.zeros(3))
        self.assertIn("24 bytes", repr(key))
        key.close()
        key.close()
        self.assertEqual(repr(key), "<Key: closed>")
        for use in (lambda: key.lkey, key.query, key.unbind, key.sge):
            with self.assertRaisesRegex(ValueError, "closed"):
                use()

    def test_a_refused_access_ends_in_an_error(self) -> None:
        with Key.from_buffer(self.pd, np.zeros(10)[::2], READ) as key:
            with self.assertRaises(OSError):
                self.write(key, np.ones(5))
            self.loop.reset()
            self.assertEqual(self.read(key), bytes(40))
        gc.collect()


def mrs_of_this_process() -> int:
    out = subprocess.check_output(["rdma", "-j", "resource", "show", "mr"], text=True)
    return sum(mr.get("pid") == os.getpid() for mr in json.loads(out or "[]"))


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


def run_program(text: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in which ``loop`` is connected and ``a`` is an array."""
    start = (
        "import numpy as np, ibmkey, sys\nfrom rc import Loop\nfrom pyverbs import enums as e\n"
        f"loop = Loop({DEVICE!r})\na = np.arange(100.)\n"
    )
    return subprocess.run([sys.executable, "-c", start + text], capture_output=True, text=True, check=False)


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
