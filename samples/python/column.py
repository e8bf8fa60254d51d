#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Reads a column of a peer's matrix, every second element backwards, by one request.

usage: column.py [DEVICE]
"""

# %% A matrix, and room for what is read.
import sys

import numpy as np
from pyverbs import enums as e
from rc import Loop, sge

import ibmkey

matrix = np.arange(1000 * 37, dtype=np.float64).reshape(1000, 37)
part = matrix[::-2, 5]
received = np.zeros(part.shape)

# %% Both sides of a connection, and memory for what is read.
# The program's argument. In a notebook, it is the first device.
device = sys.argv[1] if len(sys.argv) == 2 else None
loop = Loop(device)
into = ibmkey.register(loop.pd, received, e.IBV_ACCESS_LOCAL_WRITE)

# %% The peer makes a key of the slice, and tells the reader its rkey.
key = ibmkey.Key.from_buffer(loop.pd, part, e.IBV_ACCESS_REMOTE_READ)
print(key)

# %% The reader needs only the rkey. Addresses of a key begin at 0.
loop.read(sge(into), 0, key.rkey)
assert (received == part).all()
print(f"{part.size} elements in one read: {received[:3]} ...")

# %% A key is closed before its connection. In a function, "with" does this.
key.close()
into.close()
loop.close()
