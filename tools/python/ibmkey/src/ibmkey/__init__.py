# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Indirect memory keys and device memory, on top of pyverbs.

A key is an RDMA memory region (MR) that has no memory itself: it describes bytes of other MRs. One work
request with its lkey or rkey moves all of them::

    column = ibmkey.Key.from_buffer(pd, matrix[:, 5])
"""

from .errors import MkeyError
from .key import Caps, Info, Key, query_caps
from .layout import Block, Indexed, Interleaved, LayoutError, Ranges
from .memory import DM, ArrayMR, register

__all__ = [
    "DM",
    "ArrayMR",
    "Block",
    "Caps",
    "Indexed",
    "Info",
    "Interleaved",
    "Key",
    "LayoutError",
    "MkeyError",
    "Ranges",
    "query_caps",
    "register",
]
