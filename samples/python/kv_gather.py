#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Gathers the blocks of a sequence from a KV cache by one READ.

usage: kv_gather.py [DEVICE]
"""

# %% A cache of 2,000 blocks, and the blocks of a sequence, in its order.
import sys

import numpy as np
from pyverbs import enums as e
from rc import Loop, sge

import ibmkey

rng = np.random.default_rng(1)
cache = rng.integers(0, 1 << 16, (2000, 8, 64), dtype=np.uint16)
blocks = rng.choice(len(cache), 500, replace=False)
gathered = np.zeros((len(blocks), 8, 64), dtype=np.uint16)

# %% The node with the cache registers it once. A key takes 8 bytes for each block.
# The program's argument. In a notebook, it is the first device.
device = sys.argv[1] if len(sys.argv) == 2 else None
loop = Loop(device)
memory = ibmkey.register(loop.pd, cache, e.IBV_ACCESS_REMOTE_READ)
key = ibmkey.Key.from_indexed(loop.pd, cache, blocks, e.IBV_ACCESS_REMOTE_READ, mr=memory)

# %% The node that needs the sequence reads all of its blocks.
into = ibmkey.register(loop.pd, gathered, e.IBV_ACCESS_LOCAL_WRITE)
loop.read(sge(into), 0, key.rkey)
assert (gathered == cache[blocks]).all()
print(f"{len(blocks)} blocks of {cache[0].nbytes} bytes in one read")

# %% A key is closed before its MR, and both before the connection.
key.close()
memory.close()
into.close()
loop.close()
