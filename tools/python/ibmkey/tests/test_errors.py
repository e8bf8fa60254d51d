# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Keys on a device: what they refuse. Needs rxe0, or MKEY_TEST_DEV0."""

from __future__ import annotations

import errno
import functools
import gc
import threading
import unittest
from typing import Any, ClassVar

import numpy as np
from device import DEVICE, QUICK, READ, WRITE, Test
from pyverbs import enums as e
from pyverbs.device import Context
from pyverbs.pd import PD

import ibmkey
from ibmkey import DM, Block, Key, LayoutError, MkeyError


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
        if QUICK:
            # test_layout has the limit of a list, without a device.
            return
        many = np.zeros(2 * caps.max_entries + 2, "u1")
        whole = ibmkey.register(self.pd, many)
        parts = [memoryview(many)[2 * n : 2 * n + 1] for n in range(caps.max_entries + 1)]
        with self.assertRaisesRegex(LayoutError, f"entry {caps.max_entries}: .* at most {caps.max_entries}"):
            Key.from_list(self.pd, parts, mrs=[whole])
        whole.close()

    def test_numbers_and_objects_are_named(self) -> None:
        key, data = Key(self.pd), np.zeros(3)
        no_integers: tuple[Any, ...] = (1.5, True, "1", None)
        for wrong in no_integers:
            for name, call in (
                ("max_entries", functools.partial(Key, self.pd)),
                ("length", functools.partial(DM, self.loop.context)),
                ("access", functools.partial(Key.from_buffer, self.pd, data)),
                ("access", functools.partial(ibmkey.register, self.pd, data)),
                ("access", functools.partial(key.bind_buffer, data)),
            ):
                with self.assertRaisesRegex(TypeError, f"{name}: .*, not an integer|{name}: .* is not an integer"):
                    call(wrong)
        for call in (functools.partial(Key, self.pd), functools.partial(key.bind_buffer, data)):
            with self.assertRaisesRegex(LayoutError, ": is -1, and the kernel takes 0 to "):
                call(-1)
        for wrong in (None, 5, self.pd):
            for context in (functools.partial(DM, length=64), ibmkey.query_caps):
                with self.assertRaisesRegex(TypeError, "is not a Context of pyverbs"):
                    context(wrong)
        with self.assertRaisesRegex(TypeError, "entry 1: .*bytes-like"):
            Key.from_list(self.pd, [data, None])
        key.close()

    def test_closed_objects_of_pyverbs(self) -> None:
        data = np.zeros(3)
        mr = ibmkey.register(self.pd, data)
        mr.close()
        with_mr: tuple[Any, ...] = (
            functools.partial(Key.from_buffer, self.pd, data, mr=mr),
            functools.partial(Key.from_list, self.pd, [data], mrs=[mr]),
        )
        for call in with_mr:
            with self.assertRaisesRegex(ValueError, "the MR is closed"):
                call()
        context = Context(name=DEVICE)
        context.close()
        with_context: tuple[Any, ...] = (
            functools.partial(DM, context, 64),
            functools.partial(ibmkey.query_caps, context),
        )
        for call in with_context:
            with self.assertRaisesRegex(TypeError, "the Context is closed"):
                call()

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
        self.assertIn("24 bytes at 0x", repr(part))
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

    def test_two_threads_close_the_same_object(self) -> None:
        data, errors, together = np.zeros(8), list[BaseException](), threading.Barrier(2)
        mr = ibmkey.register(self.pd, data)

        def run(call: Any, expected: tuple[type[BaseException], ...]) -> None:
            together.wait()
            try:
                call()
            except BaseException as error:
                if not isinstance(error, expected):
                    errors.append(error)

        def both(call: Any, other: Any, *expected: type[BaseException]) -> None:
            thread = threading.Thread(target=run, args=(other, expected))
            thread.start()
            run(call, ())
            thread.join()

        for _ in range(100):
            key = Key(self.pd)
            both(key.close, key.close)
            key = Key.from_buffer(self.pd, data, mr=mr)
            both(key.close, functools.partial(key.bind_buffer, data[::2], mr=mr), ValueError)
            dm = DM(self.loop.context, 64)
            both(dm.close, dm.close)
        mr.close()
        self.assertEqual(errors, [])

    def test_a_refused_access_ends_in_an_error(self) -> None:
        with Key.from_buffer(self.pd, np.zeros(10)[::2], READ) as key:
            self.assertIsNone(key.query_refused_access())
            with self.assertRaises(OSError):
                self.write(key, np.ones(5))
            self.loop.reset()
            access = key.query_refused_access()
            assert access is not None
            self.assertEqual((access.addr, access.length, access.key, access.remote), (0, 40, key.rkey, True))
            self.assertIn("its access flags are IBV_ACCESS_REMOTE_READ", access.reason)
            self.assertEqual(ibmkey.why(self.loop.context), access.reason)
            self.assertEqual(ibmkey.why(self.loop.context, e.IBV_WC_REM_ACCESS_ERR), access.reason)
            self.assertEqual(self.read(key), bytes(40))
        gc.collect()


if __name__ == "__main__":
    unittest.main()
