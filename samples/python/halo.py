#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Exchanges the faces of a 3-D array with a neighbour: each of the 6 faces is one work request.

usage: halo.py [DEVICE]
"""

# %% A grid of 3 dimensions with a border of one cell, and that of a neighbour.
import sys

import numpy as np
from pyverbs import enums as e
from rc import Loop

import ibmkey

inside = slice(1, -1)
grid = np.arange(20 * 30 * 40, dtype=np.float64).reshape(20, 30, 40)
neighbour = np.zeros_like(grid)
mine = grid.copy()

# %% Faces are slices. The first and last layer within the border go to the opposite border.
faces = []
for axis in range(3):
    for edge, border in ((1, -1), (-2, 0)):
        own = tuple(edge if at == axis else inside for at in range(3))
        its = tuple(border if at == axis else inside for at in range(3))
        faces.append((own, its))

# %% One MR for each grid. The peer may write the neighbour's grid.
# The program's argument. In a notebook, it is the first device.
device = sys.argv[1] if len(sys.argv) == 2 else None
loop = Loop(device)
write = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
here = ibmkey.register(loop.pd, grid)
there = ibmkey.register(loop.pd, neighbour, write)

# %% A key for each face. A key that only this device reads needs no access flags.
sources = [ibmkey.Key.from_buffer(loop.pd, grid[own], mr=here) for own, _ in faces]
targets = [ibmkey.Key.from_buffer(loop.pd, neighbour[its], write, mr=there) for _, its in faces]

# %% Whole faces, from one array into the other: addresses of a key begin at 0.
for source, target in zip(sources, targets, strict=True):
    loop.write(source.sge(), 0, target.rkey)

# %% NumPy's own assignment does the same within one process.
expected = np.zeros_like(grid)
for own, its in faces:
    expected[its] = mine[own]
assert (neighbour == expected).all() and (grid == mine).all()
print(f"6 faces of {grid.shape}, {sum(grid[own].size for own, _ in faces)} cells, in 6 writes")

# %% Keys are closed before their MRs, and MRs before the connection.
for key in sources + targets:
    key.close()
here.close()
there.close()
loop.close()
