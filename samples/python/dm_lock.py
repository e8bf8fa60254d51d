#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Two peers update a record under a lock; the lock and the record are in device memory.

usage: dm_lock.py [DEVICE]
"""

# %% Device memory with a lock, and a record in every second of the numbers after it.
import sys

import numpy as np
from pyverbs import enums as e
from rc import Loop, sge

import ibmkey

ROUNDS = 20
FREE = 0
access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC

# The program's argument. In a notebook, it is the first device.
device = sys.argv[1] if len(sys.argv) == 2 else None
loop = Loop(device)
dm = ibmkey.DM(loop.context, 16 * 8)
words = np.frombuffer(dm, dtype=np.uint64)
words[:] = 0

# %% One key for the lock, and one for every second number of the record.
lock = ibmkey.Key.from_buffer(loop.pd, words[:1], access)
record = ibmkey.Key.from_buffer(loop.pd, words[2::2], access)

# %% The memory of a peer: what it finds in the lock, and its copy of the record.
old = np.zeros(1, dtype=np.uint64)
mine = np.zeros(7, dtype=np.uint64)
old_mr = ibmkey.register(loop.pd, old, e.IBV_ACCESS_LOCAL_WRITE)
mine_mr = ibmkey.register(loop.pd, mine, e.IBV_ACCESS_LOCAL_WRITE)

# %% Peer 1 takes the lock by a compare-and-swap with its own number, and peer 2 cannot. Then the lock is free again.
for expected, swap, found in ((FREE, 1, FREE), (FREE, 2, 1), (1, FREE, 1)):
    loop.compare_and_swap(sge(old_mr), 0, lock.rkey, expected, swap)
    assert old[0] == found


# %% An update under the lock: read the record, change it, write it back.
def update(peer: int) -> None:
    """Adds 1, 2, 3, ... to the numbers of the record."""
    loop.compare_and_swap(sge(old_mr), 0, lock.rkey, FREE, peer)
    assert old[0] == FREE
    loop.read(sge(mine_mr), 0, record.rkey)
    mine[:] += np.arange(7, dtype=np.uint64) + 1
    loop.write(sge(mine_mr), 0, record.rkey)
    loop.compare_and_swap(sge(old_mr), 0, lock.rkey, peer, FREE)
    assert old[0] == peer


# %% Two peers in turn.
for turn in range(ROUNDS):
    update(1 + turn % 2)
assert (words[2::2] == ROUNDS * (np.arange(7) + 1)).all() and not words[1::2].any()
print(f"{ROUNDS} updates under a lock in device memory: {words[2::2]}")

# %% Drop the arrays over the memory, and close the keys, before the memory is closed.
del words
lock.close()
record.close()
old_mr.close()
mine_mr.close()
dm.close()
loop.close()
