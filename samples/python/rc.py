# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A device connected to itself, or to another process, by reliable queue pairs, for the samples in Python.

A program ends with one line if the device cannot be used, as the samples in C do.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Any, NoReturn

from pyverbs import enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT = 1
DEPTH = 64
GID_TYPE_ROCE_V2 = 2


def _end(why: str) -> NoReturn:
    sys.exit(f"{Path(sys.argv[0]).name}: {why}")


def _gid(context: Context) -> Any:
    """Returns the IPv4 address of the port among its GIDs, or another RoCE v2 one."""
    found = [entry for entry in context.query_gid_table(64) if entry.gid_type == GID_TYPE_ROCE_V2]
    if not found:
        _end(f"{context.name} has no RoCE v2 address: has its interface an IP address?")
    return next((entry for entry in found if entry.gid_subnet_prefix == 0), found[0])


def _check(what: str, status: int) -> None:
    """Raises an error that names the status of a completion, unless that is success."""
    if status != e.IBV_WC_SUCCESS:
        raise OSError(errno.EIO, f"the {what} ended with {e.ibv_wc_status(status).name}")


class Loop:
    """``qp`` sends to ``peer``, and the other way round. ``pd`` is the PD of both."""

    def __init__(self, device: str | None = None) -> None:
        names = [found.name.decode() for found in get_device_list()]
        if device is None and names:
            device = names[0]
        if device not in names:
            _end(f"libibverbs does not list {device or 'any device'}; mkeyctl doctor says why")
        try:
            self.context = Context(name=device)
        except PyverbsError as error:
            _end(f"cannot open {device}: {error}")
        self.pd = PD(self.context)
        self.channel = CompChannel(self.context)
        self.cq = CQ(self.context, 2 * DEPTH, None, self.channel)
        self.peer_cq = CQ(self.context, 2 * DEPTH)
        self.qp, self.peer = (self._queues(cq) for cq in (self.cq, self.peer_cq))
        self.reset()

    def _queues(self, cq: CQ) -> QP:
        cap = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH, max_send_sge=4, max_recv_sge=4)
        return QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap))

    @property
    def address(self) -> tuple[str, int]:
        """The GID and the number of ``qp``, with which another process connects to it."""
        return str(_gid(self.context).gid_str()), int(self.qp.qp_num)

    def connect(self, peer: tuple[str, int]) -> None:
        """Connects ``qp`` to that of another process, which has the address ``peer``, in place of ``self.peer``."""
        self._connect(self.qp, *peer)

    def reset(self) -> None:
        """Connects the queue pairs, also after an error."""
        gid, _ = self.address
        self._connect(self.qp, gid, self.peer.qp_num)
        self._connect(self.peer, gid, self.qp.qp_num)

    def _connect(self, qp: QP, gid: str, number: int) -> None:
        # rxe completes a request with an error before it moves the queue pair to the error state.
        # That move may replace the first reset, so reset twice.
        for _ in range(2):
            qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
        attr.dest_qp_num = number
        attr.path_mtu = self.context.query_port(PORT).active_mtu
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 16
        attr.min_rnr_timer, attr.rnr_retry, attr.retry_cnt, attr.timeout = 12, 7, 7, 17
        route = GlobalRoute(dgid=GID(gid), sgid_index=_gid(self.context).gid_index, hop_limit=64)
        attr.ah_attr = AHAttr(port_num=PORT, is_global=1, gr=route)
        qp.to_rts(attr)

    def run(self, wr: SendWR) -> None:
        """Posts a work request and waits until it is done."""
        self.qp.post_send(wr)
        _check("work request", self.wait(self.cq))

    def wait(self, cq: CQ) -> int:
        """Returns the status of the next completion."""
        while True:
            count, completions = cq.poll()
            if count:
                return int(completions[0].status)
            if cq is not self.cq:
                continue
            cq.req_notify()
            # Poll again: a completion may have arrived before the notification was requested.
            count, completions = cq.poll()
            if count:
                return int(completions[0].status)
            self.channel.get_cq_event(cq)
            cq.ack_events(1)

    def _rdma(self, opcode: int, local: SGE, address: int, rkey: int) -> None:
        wr = SendWR(opcode=opcode, num_sge=1, sg=[local], send_flags=e.IBV_SEND_SIGNALED)
        wr.set_wr_rdma(rkey, address)
        self.run(wr)

    def write(self, local: SGE, address: int, rkey: int) -> None:
        """Writes the bytes of ``local`` to an address of the peer."""
        self._rdma(e.IBV_WR_RDMA_WRITE, local, address, rkey)

    def read(self, local: SGE, address: int, rkey: int) -> None:
        """Reads from an address of the peer into ``local``."""
        self._rdma(e.IBV_WR_RDMA_READ, local, address, rkey)

    def compare_and_swap(self, old: SGE, address: int, rkey: int, compare: int, swap: int) -> None:
        """Stores ``swap`` in 8 bytes of the peer if they are ``compare``. ``old`` becomes what they were."""
        wr = SendWR(opcode=e.IBV_WR_ATOMIC_CMP_AND_SWP, num_sge=1, sg=[old], send_flags=e.IBV_SEND_SIGNALED)
        wr.set_wr_atomic(rkey, address, compare, swap)
        self.run(wr)

    def send(self, local: SGE, into: SGE) -> None:
        """Sends ``local``; the peer receives it in ``into``."""
        self.peer.post_recv(RecvWR(num_sge=1, sg=[into]))
        self.run(SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=[local], send_flags=e.IBV_SEND_SIGNALED))
        _check("receive", self.wait(self.peer_cq))

    def close(self) -> None:
        """Closes everything. A key that still exists makes this fail."""
        for part in (self.qp, self.peer, self.cq, self.peer_cq, self.channel, self.pd, self.context):
            part.close()

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sge(mr: MR, length: int | None = None) -> SGE:
    """Returns an SGE of an MR from its beginning."""
    return SGE(mr.buf, mr.length if length is None else length, mr.lkey)
