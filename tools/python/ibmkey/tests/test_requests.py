# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Keys that work requests bind: what they move, what is refused, and what they keep. Needs rxe0, or MKEY_TEST_DEV0."""

from __future__ import annotations

import errno
import gc
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from arrays import draw
from device import DEVICE, QUICK, READ, SEED, WRITE, Test, mrs_of_this_process, run_program
from pyverbs import enums as e
from pyverbs.cq import CQ
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from pyverbs.wr import RecvWR, SendWR
from rc import DEPTH, Loop, sge

import ibmkey
from ibmkey import Block, Description, Indexed, Interleaved, Key, LayoutError, MkeyError, Ranges

INLINE = 256


class ExLoop(Loop):
    """Queue pairs with the send operations of ``ibv_wr_start()``."""

    def _queues(self, cq: CQ) -> QP:
        cap = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH, max_send_sge=4, max_recv_sge=4, max_inline_data=INLINE)
        return QPEx(
            self.context,
            QPInitAttrEx(
                qp_type=e.IBV_QPT_RC,
                scq=cq,
                rcq=cq,
                cap=cap,
                pd=self.pd,
                send_ops_flags=e.IBV_QP_EX_WITH_BIND_MW | e.IBV_QP_EX_WITH_LOCAL_INV,
                comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            ),
        )


class Requests(Test):
    def status(self, loop: Loop | None = None) -> int:
        """Returns the status of the next completion of the queue pair."""
        loop = loop or self.loop
        return loop.wait(loop.cq)

    def bind(self, key: Key, description: Description, **named: Any) -> None:
        key.post_bind(self.loop.qp, description, **named)
        self.assertEqual(self.status(), e.IBV_WC_SUCCESS)

    def refused(self, key: Key, description: Description) -> ibmkey.Refused:
        """Posts a bind that is refused, and connects the queue pairs again."""
        before = key.refresh()
        key.post_bind(self.loop.qp, description)
        self.assertEqual(self.status(), e.IBV_WC_MW_BIND_ERR)
        self.loop.reset()
        self.assertEqual(key.refresh(), before)
        self.assertEqual((key.length, key.lkey, key.rkey), (before.length, before.lkey, before.rkey))
        found = key.query_refused()
        assert found is not None
        return found


class Transfers(Requests):
    def test_three_messages_and_one_wait(self) -> None:
        m, got = np.arange(36.0).reshape(6, 6), np.zeros((3, 6))
        whole, into = ibmkey.register(self.pd, m), ibmkey.register(self.pd, got, e.IBV_ACCESS_LOCAL_WRITE)
        views = (m[1], m[:, 2], m.reshape(-1)[::7])
        key = Key(self.pd)
        for number, view in enumerate(views):
            part = sge(into, 48)
            part.addr += 48 * number
            self.loop.peer.post_recv(RecvWR(wr_id=number, num_sge=1, sg=[part]))
            # The program drops the description at once.
            key.post_bind(self.loop.qp, Description.from_buffer(self.pd, view, mr=whole), send_flags=0)
            self.assertEqual(key.length, 48)
            self.loop.qp.post_send(SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=[key.sge()], send_flags=0))
            last = number == len(views) - 1
            key.post_unbind(self.loop.qp, wr_id=number, send_flags=e.IBV_SEND_SIGNALED if last else 0)
            self.assertEqual(key.length, 0)
        gc.collect()
        self.assertEqual(self.status(), e.IBV_WC_SUCCESS)
        for _ in views:
            self.assertEqual(self.loop.wait(self.loop.peer_cq), e.IBV_WC_SUCCESS)
        np.testing.assert_array_equal(got, np.array(views))
        lkey, rkey = key.lkey, key.rkey
        info = key.refresh()
        self.assertEqual((info.kind, info.length, info.lkey, info.rkey), (0, 0, lkey, rkey))
        # refresh() has released what the key described.
        gc.collect()
        whole.close()
        into.close()
        key.close()

    def test_slices_are_the_copies_of_numpy(self) -> None:
        rng = random.Random(SEED + 2)
        with Key(self.pd) as key:
            for number in range(20 if QUICK else 200):
                with self.subTest(number=number):
                    drawn = draw(rng)
                    self.bind(key, Description.from_buffer(self.pd, drawn.view, READ))
                    self.assertEqual(self.read(key), np.ascontiguousarray(drawn.view).tobytes())

    def test_each_kind_of_layout(self) -> None:
        a = np.arange(64, dtype="u1")
        mr = ibmkey.register(self.pd, a)
        at, lkey = mr.buf, mr.lkey
        kinds: list[tuple[Any, Any]] = [
            (Ranges((Block(at + 9, 2, lkey), Block(at, 3, lkey))), [9, 10, 0, 1, 2]),
            (Interleaved((2, 2), (Block(at, 1, lkey, (16, 4)), Block(at + 1, 1, lkey, (8, -1)))), None),
            (Indexed(at, 8, 2, [7, 0, 7], lkey), [56, 57, 0, 1, 56, 57]),
        ]
        with Key(self.pd, 3) as key:
            for kind, (described, wanted) in enumerate(kinds, 1):
                description = Description(self.pd, described, READ, keep=mr)
                self.assertEqual((description.length, description.entries), (described.length, described.entries))
                self.bind(key, description)
                runs = [a[run.address - at + n] for run in described.runs() for n in range(run.length)]
                self.assertEqual(self.read(key), bytes(wanted or runs))
                self.assertEqual(key.refresh().kind, kind)
        mr.close()

    def test_a_base_address(self) -> None:
        a = np.arange(64, dtype="u1")
        mr = ibmkey.register(self.pd, a)
        described = Interleaved((4,), (Block(mr.buf, 2, mr.lkey, (8,)),))
        with Key.from_layout(self.pd, described, READ, mr, base=1 << 40) as key:
            self.assertEqual((key.base, key.query().base, key.sge(3, 2).addr), (1 << 40, 1 << 40, (1 << 40) + 3))
            self.assertEqual(self.read(key), bytes([0, 1, 8, 9, 16, 17, 24, 25]))
            with self.assertRaisesRegex(OSError, "IBV_WC_REM_ACCESS_ERR"):
                self.loop.read(sge(mr), 0, key.rkey)
            self.loop.reset()
            with Key.from_list(self.pd, [key, a[:3]], READ, mrs=[mr]) as outer:
                self.assertEqual(self.read(outer), bytes([0, 1, 8, 9, 16, 17, 24, 25, 0, 1, 2]))
            self.bind(key, Description(self.pd, described, READ, keep=mr, base=77))
            self.assertEqual((key.base, key.refresh().base), (77, 77))
            self.assertEqual(self.read(key), bytes([0, 1, 8, 9, 16, 17, 24, 25]))
            self.assertEqual(self.errno_of(key.bind, described, READ, mr, base=2**64 - 7), errno.EOVERFLOW)
            self.assertEqual((key.base, key.query().base), (77, 77))
            key.bind(described, READ, mr)
            self.assertEqual((key.base, key.query().base), (0, 0))
        mr.close()

    def test_rows_by_index(self) -> None:
        table = np.arange(3000, dtype="<i4").reshape(100, 30)
        picks = [5, -1, 5, 0]
        with Key(self.pd, 4) as key:
            self.bind(key, Description.from_indexed(self.pd, table, picks, READ))
            self.assertEqual(self.read(key), table[picks].tobytes())

    def test_another_tag(self) -> None:
        a = np.arange(8, dtype="u1")
        description = Description.from_buffer(self.pd, a[::2], READ)
        with Key(self.pd) as key:
            self.bind(key, description)
            old = key.rkey
            new = old & ~0xFF | (old + 9) & 0xFF
            self.bind(key, description, rkey=new)
            self.assertEqual((key.lkey, key.rkey, key.query().rkey), (new, new, new))
            self.assertEqual(self.read(key), a[::2].tobytes())
            got = ibmkey.register(self.pd, np.zeros(4, "u1"), e.IBV_ACCESS_LOCAL_WRITE)
            with self.assertRaisesRegex(OSError, "IBV_WC_REM_ACCESS_ERR"):
                self.loop.read(sge(got), 0, old)
            self.loop.reset()
            got.close()

    def invalidate(self, key: Key) -> int:
        """Lets the peer send with invalidate, and returns the status of the receive."""
        got = ibmkey.register(self.pd, np.zeros(8, "u1"), e.IBV_ACCESS_LOCAL_WRITE)
        self.loop.qp.post_recv(RecvWR(num_sge=1, sg=[sge(got)]))
        flags = e.IBV_SEND_SIGNALED
        wr = SendWR(opcode=e.IBV_WR_SEND_WITH_INV, num_sge=1, sg=[sge(got, 4)], imm_data=key.rkey, send_flags=flags)
        self.loop.peer.post_send(wr)
        self.loop.wait(self.loop.peer_cq)
        status = self.status()
        got.close()
        return status

    def test_a_peer_invalidates_a_key(self) -> None:
        """Without a remote access flag a peer may do that only if the description says so."""
        a = np.arange(8, dtype="u1")
        with Key(self.pd) as key:
            self.bind(key, Description.from_buffer(self.pd, a[::2]))
            self.assertEqual(self.invalidate(key), e.IBV_WC_REM_INV_REQ_ERR)
            self.loop.reset()
            self.assertEqual(key.refresh().kind, 2)
            self.bind(key, Description.from_buffer(self.pd, a[::2], remote_invalidate=True))
            self.assertEqual(self.invalidate(key), e.IBV_WC_SUCCESS)
            self.assertEqual(key.query().kind, 0)
            # The key has the lkey and rkey from before, whose key portion is wrong.
            stale = key.rkey
            key.post_bind(self.loop.qp, Description.from_buffer(self.pd, a[1::2], READ))
            self.assertNotEqual(self.status(), e.IBV_WC_SUCCESS)
            self.loop.reset()
            self.bind(key, Description.from_buffer(self.pd, a[1::2], READ, any_portion=True))
            self.assertEqual((key.rkey, self.read(key)), (stale, a[1::2].tobytes()))


class Extended(Requests):
    """Requests between wr_start() and wr_complete()."""

    def test_in_memory_and_inline(self) -> None:
        a = np.arange(60, dtype="<u4").reshape(10, 6)
        with ExLoop(DEVICE) as loop, Key(loop.pd) as key:
            got = np.zeros(10, "<u4")
            into = ibmkey.register(loop.pd, got, e.IBV_ACCESS_LOCAL_WRITE)
            for column, inline in ((1, False), (4, True)):
                description = Description.from_buffer(loop.pd, a[:, column], READ)
                if inline:
                    # The request has all of it.
                    description._mr.close()
                loop.qp.wr_start()
                loop.qp.wr_id, loop.qp.wr_flags = column, e.IBV_SEND_SIGNALED
                key.wr_bind(loop.qp, description, inline=inline)
                loop.qp.wr_complete()
                self.assertEqual((self.status(loop), key.length), (e.IBV_WC_SUCCESS, 40))
                loop.read(sge(into), 0, key.rkey)
                np.testing.assert_array_equal(got, a[:, column])
            loop.qp.wr_start()
            loop.qp.wr_id, loop.qp.wr_flags = 9, e.IBV_SEND_SIGNALED
            key.wr_unbind(loop.qp)
            loop.qp.wr_complete()
            self.assertEqual((self.status(loop), key.refresh().kind), (e.IBV_WC_SUCCESS, 0))
            into.close()
            del description
            gc.collect()

    def test_more_than_the_queue_pair_copies(self) -> None:
        a = np.zeros(64, "u1")
        with ExLoop(DEVICE) as loop, Key(loop.pd, 64) as key:
            long = Description.from_indexed(loop.pd, a, range(64))
            self.assertGreater(long.text[1], INLINE)
            loop.qp.wr_start()
            loop.qp.wr_id, loop.qp.wr_flags = 1, e.IBV_SEND_SIGNALED
            key.wr_bind(loop.qp, long, inline=True)
            with self.assertRaises(PyverbsRDMAError):
                loop.qp.wr_complete()
            self.assertEqual((key.refresh().kind, key.length), (0, 0))
            del long
            gc.collect()

    def test_a_queue_pair_without_these_operations(self) -> None:
        description = Description.from_buffer(self.pd, np.zeros(4))
        with Key(self.pd) as key:
            calls: list[Callable[[], object]] = [
                lambda: key.wr_bind(self.loop.qp, description),
                lambda: key.wr_unbind(self.loop.qp),
            ]
            for call in calls:
                with self.assertRaisesRegex(TypeError, "created without send_ops_flags"):
                    call()


class Errors(Requests):
    def test_what_the_kernel_refuses(self) -> None:
        a = np.arange(64, dtype="u1")
        mr = ibmkey.register(self.pd, a)
        good = Block(mr.buf, 4, mr.lkey)

        def described(*blocks: Block, access: int = READ) -> Description:
            return Description(self.pd, Ranges(blocks), access, keep=mr)

        with Key(self.pd, 2) as key:
            self.assertIsNone(key.query_refused())
            self.bind(key, described(good))
            for wrong, error, entry, words in (
                (
                    described(good, good._replace(lkey=0x123456)),
                    errno.ENOENT,
                    1,
                    "entries[1].lkey 0x123456 names no MR",
                ),
                (described(good, good._replace(length=65)), errno.ERANGE, 1, "entries[1] reaches outside its MR"),
                (described(good, access=WRITE), errno.EACCES, 0, "was registered without a flag that the key needs"),
                (described(good, good, good), errno.ENOSPC, None, "num_entries is more than 2"),
            ):
                with self.subTest(words=words):
                    found = self.refused(key, wrong)
                    self.assertEqual((found.errno, found.entry), (error, entry))
                    self.assertIn(words, found.reason)
                    self.assertEqual(self.read(key), bytes(range(4)))
            del wrong
        gc.collect()
        mr.close()

    def test_bad_input(self) -> None:
        a = np.arange(8, dtype="u1")
        other = PD(self.loop.context)
        elsewhere = Description.from_buffer(other, a)
        cap = QPCap(max_send_wr=1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
        unused = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.loop.cq, rcq=self.loop.cq, cap=cap))
        unused.close()
        closed = Description.from_buffer(self.pd, a)
        closed.close()
        closed.close()
        good = Description.from_buffer(self.pd, a)
        self.assertEqual(repr(good), "<Description: 8 bytes in 1 entries>")
        key, qp, nothing = Key(self.pd), self.loop.qp, Block(0, 1, 0, (1,))
        calls: list[tuple[type[Exception], str, Callable[[], object]]] = [
            (TypeError, "'qp' is not a QP of pyverbs", lambda: key.post_bind("qp", good)),
            (TypeError, "None is not a QP of pyverbs", lambda: key.post_unbind(None)),
            (TypeError, "the QP is closed", lambda: key.post_bind(unused, good)),
            (TypeError, "the QP is closed", lambda: key.wr_unbind(unused)),
            (TypeError, "is not a Description", lambda: key.post_bind(qp, a)),  # type: ignore[arg-type]
            (TypeError, "is not a Description", lambda: key.wr_bind(qp, good.layout)),  # type: ignore[arg-type]
            (ValueError, "the description is in another PD than the key", lambda: key.post_bind(qp, elsewhere)),
            (ValueError, "the description is closed", lambda: key.post_bind(qp, closed)),
            (ValueError, "wr_id: is -1", lambda: key.post_bind(qp, good, wr_id=-1)),
            (ValueError, "send_flags: is 4294967296", lambda: key.post_unbind(qp, send_flags=1 << 32)),
            (TypeError, "rkey: True is a bool", lambda: key.wr_bind(qp, good, rkey=True)),
            (ValueError, "access: is -1", lambda: Description(self.pd, good.layout, -1)),
            (TypeError, "is not a layout", lambda: Description(self.pd, a)),  # type: ignore[arg-type]
            (TypeError, "'pd' is not a PD", lambda: Description("pd", good.layout)),
            (LayoutError, "the layout: has no bytes", lambda: Description(self.pd, Ranges(()))),
            (LayoutError, "the layout: has no bytes", lambda: Description(self.pd, Interleaved((0,), (nothing,)))),
            (ValueError, "ranges\\[0\\]: has 1 strides", lambda: Description(self.pd, Ranges((nothing,)))),
        ]
        for kind, words, call in calls:
            with self.subTest(words=words), self.assertRaisesRegex(kind, words) as raised:
                call()
            self.assertEqual(len(str(raised.exception).splitlines()), 1)
        self.assertEqual((key.query().kind, key.length), (0, 0))
        key.close()
        uses: list[Callable[[], object]] = [
            lambda: key.post_bind(qp, good),
            lambda: key.post_unbind(qp),
            key.refresh,
            key.query_refused,
        ]
        for call in uses:
            with self.assertRaisesRegex(ValueError, "the key is closed"):
                call()
        elsewhere.close()
        # It closes the MR under the array, too.
        other.close()

    def test_a_full_queue(self) -> None:
        a = np.zeros(4)
        with Loop(DEVICE) as loop, Key.from_buffer(loop.pd, a) as key:
            description = Description.from_buffer(loop.pd, a)
            # The peer has no receive for it, and a bind of a bound key waits for earlier requests.
            loop.qp.post_send(SendWR(num_sge=1, sg=[key.sge()], send_flags=0))
            with self.assertRaisesRegex(MkeyError, "ibmkey_post_bind: ENOMEM: .*the send queue of qp is full"):
                for _ in range(1000):
                    key.post_bind(loop.qp, description, send_flags=0)
            with self.assertRaisesRegex(MkeyError, "ibmkey_post_unbind: ENOMEM: .*the send queue of qp is full"):
                key.post_unbind(loop.qp)
            loop.reset()
            del description
            gc.collect()

    def test_a_queue_pair_in_the_wrong_state(self) -> None:
        cap = QPCap(max_send_wr=1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
        qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.loop.cq, rcq=self.loop.cq, cap=cap))
        with Key(self.pd) as key:
            description = Description.from_buffer(self.pd, np.zeros(4))
            with self.assertRaisesRegex(MkeyError, "ibmkey_post_bind: EINVAL: .*its state may be wrong"):
                key.post_bind(qp, description)
            self.assertEqual((key.length, key._keeps), (0, []))
        qp.close()

    def test_a_pyverbs_with_another_class(self) -> None:
        done = run_program(
            "from pyverbs.qp import QP, QPCap, QPInitAttr\n"
            "class Other(QP):\n    qp_num = property(lambda self: -1)\n"
            "cap = QPCap(max_send_wr=1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)\n"
            "qp = Other(loop.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=loop.cq, rcq=loop.cq, cap=cap))\n"
            "key, text = ibmkey.Key(loop.pd), ibmkey.Description.from_buffer(loop.pd, a)\n"
            "try: key.post_bind(qp, text)\nexcept RuntimeError as error: print(error)\n"
        )
        self.assertEqual((done.stdout.count("does not find the queue pair"), done.stderr), (1, ""))


class Lifetimes(Requests):
    def test_a_key_keeps_what_its_requests_describe(self) -> None:
        a = np.arange(1000, dtype="u1")
        wanted = a[::3].tobytes()
        before = mrs_of_this_process()
        key = Key(self.pd)
        self.bind(key, Description.from_buffer(self.pd, a[::3], READ))
        del a
        gc.collect()
        others = [np.full(1000, 255, "u1") for _ in range(100)]
        self.assertEqual(self.read(key), wanted)
        # The key, the MR of the array and that of the description.
        self.assertEqual(mrs_of_this_process(), before + 3)
        key.close()
        del key
        gc.collect()
        self.assertEqual(mrs_of_this_process(), before)
        del others

    def test_one_description_for_many_requests(self) -> None:
        a = np.arange(100, dtype="u1")
        mr = ibmkey.register(self.pd, a, READ)
        two = [Description.from_buffer(self.pd, a[n::2], READ, mr=mr) for n in range(2)]
        before = mrs_of_this_process()
        with Key(self.pd) as first, Key(self.pd) as second:
            for number in range(50 if QUICK else 500):
                for key in (first, second):
                    self.bind(key, two[number % 2])
            self.assertEqual(mrs_of_this_process(), before + 2)
            self.assertEqual((len(first._keeps), self.read(second)), (2, a[1::2].tobytes()))
            second.post_unbind(self.loop.qp)
            self.assertEqual(self.status(), e.IBV_WC_SUCCESS)
            second.refresh()
            self.assertEqual(len(second._keeps), 0)
            # A call releases what requests described.
            first.bind_buffer(a[:3], READ, mr=mr)
            self.assertEqual((len(first._keeps), self.read(first)), (1, bytes(range(3))))
        del two, mr
        gc.collect()

    def test_a_program_that_posts_may_just_end(self) -> None:
        done = run_program(
            "key, text = ibmkey.Key(loop.pd), ibmkey.Description.from_buffer(loop.pd, a[::2])\n"
            "key.post_bind(loop.qp, text)\nprint(loop.wait(loop.cq))"
        )
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("0\n", "", 0))
