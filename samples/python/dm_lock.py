#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Two peers update a record under a lock; the lock and the record are in device memory.

usage: dm_lock.py [DEVICE]
"""

# %% Device memory with a lock, a counter and a record of 14 numbers.
import sys

import numpy as np
from pyverbs import enums as e
from rc import Loop, sge

import ibmkey

ROUNDS = 20
FREE = 0
access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC

with Loop(sys.argv[1] if len(sys.argv) > 1 else None) as loop, ibmkey.DM(loop.context, 16 * 8) as dm:
    words = np.frombuffer(dm, dtype=np.uint64)
    words[:] = 0
    # %% One key for the lock, and one for every second number of the record.
    lock = ibmkey.Key.from_buffer(loop.pd, words[:1], access)
    record = ibmkey.Key.from_buffer(loop.pd, words[2::2], access)
    old = np.zeros(1, dtype=np.uint64)
    mine = np.zeros(7, dtype=np.uint64)
    old_mr = ibmkey.register(loop.pd, old, e.IBV_ACCESS_LOCAL_WRITE)
    mine_mr = ibmkey.register(loop.pd, mine, e.IBV_ACCESS_LOCAL_WRITE)

    for turn in range(ROUNDS):
        # %% A peer takes the lock by a compare-and-swap with its own number, and a second one cannot.
        owner, other = 1 + turn % 2, 2 - turn % 2
        loop.compare_and_swap(sge(old_mr), 0, lock.rkey, FREE, owner)
        assert old[0] == FREE
        loop.compare_and_swap(sge(old_mr), 0, lock.rkey, FREE, other)
        assert old[0] == owner
        # %% It reads the record, changes it and writes it back, then frees the lock.
        loop.read(sge(mine_mr), 0, record.rkey)
        mine += np.arange(7, dtype=np.uint64) + 1
        loop.write(sge(mine_mr), 0, record.rkey)
        loop.compare_and_swap(sge(old_mr), 0, lock.rkey, owner, FREE)

    assert (words[2::2] == ROUNDS * (np.arange(7) + 1)).all() and not words[1::2].any()
    print(f"{ROUNDS} updates under a lock in device memory: {words[2::2]}")
    del words
    for part in (lock, record, old_mr, mine_mr):
        part.close()
