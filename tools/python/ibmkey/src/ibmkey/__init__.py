# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Indirect memory keys and device memory, on top of pyverbs.

A key is an RDMA memory region (MR) that has no memory itself: it describes bytes of other MRs. One work
request with its lkey or rkey moves all of them::

    column = ibmkey.Key.from_buffer(pd, matrix[:, 5])
"""

from .description import Description
from .errors import MkeyError
from .key import Info, Key, Refused, RefusedAccess
from .layout import Block, Indexed, Interleaved, LayoutError, Ranges
from .memory import DM, AllocatedMR, ArrayMR, register
from .verbs import Caps, query_caps, why

__all__ = [
    "DM",
    "AllocatedMR",
    "ArrayMR",
    "Block",
    "Caps",
    "Description",
    "Indexed",
    "Info",
    "Interleaved",
    "Key",
    "LayoutError",
    "MkeyError",
    "Ranges",
    "Refused",
    "RefusedAccess",
    "query_caps",
    "register",
    "why",
]
