#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Sends blocks of one KV cache to another: all layers of a list of blocks in one WRITE.

usage: kv_cache.py [DEVICE]
"""

# %% Two caches of 32 layers of unequal width, with 1,000 blocks each.
import sys

import numpy as np
from pyverbs import enums as e
from rc import Loop

import ibmkey
from ibmkey import kv

BLOCKS = 1000
widths = [800 if layer % 4 else 400 for layer in range(32)]
rng = np.random.default_rng(1)
full = [rng.integers(0, 256, (BLOCKS, width), np.uint8) for width in widths]
empty = [np.zeros_like(layer) for layer in full]
WRITE = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE

# %% Each side registers its layers, and binds its view once.
# The program's argument. In a notebook, it is the first device.
device = sys.argv[1] if len(sys.argv) == 2 else None
loop = Loop(device)
near = [ibmkey.register(loop.pd, layer) for layer in full]
far = [ibmkey.register(loop.pd, layer, e.IBV_ACCESS_LOCAL_WRITE) for layer in empty]
source = kv.View(loop.pd, near, widths, BLOCKS)
target = kv.View(loop.pd, far, widths, BLOCKS, WRITE)

# %% A block needs no bind: all of its layers are contiguous in the view.
loop.write(source.sge(7), target.address(991), target.key.rkey)
assert all((to[991] == of[7]).all() for to, of in zip(empty, full, strict=True))
print(f"{len(widths)} pieces in one write")

# %% The receiver binds a key to its list of blocks, and tells the sender the rkey.
ids_from, ids_to = rng.choice(BLOCKS, (2, 64), replace=False)
into = kv.Gather(loop.pd, target, ids_to, WRITE)
blocks = kv.Gather(loop.pd, source, ids_from)
loop.write(blocks.key.sge(), 0, into.key.rkey)
assert all((to[ids_to] == of[ids_from]).all() for to, of in zip(empty, full, strict=True))
print(f"{len(widths) * len(ids_from)} pieces in one write")

# %% A key is closed before what it describes.
for key in (into, blocks, source, target):
    key.close()
for mr in (*near, *far):
    mr.close()
loop.close()
