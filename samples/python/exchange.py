#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Two processes exchange a column and a tile of a matrix. MPI has the addresses of their keys, and no byte is packed.

usage: mpirun -n 2 python3 exchange.py [DEVICE DEVICE]
"""

import sys

import numpy as np
from mpi4py import MPI
from pyverbs import enums as e
from rc import Loop

import ibmkey

comm = MPI.COMM_WORLD
other = 1 - comm.rank
matrices = [np.arange(rank, rank + 2000.0).reshape(40, 50) for rank in range(2)]
received = np.zeros_like(matrices[other])
# A column arrives in another one, from the bottom to the top. A tile arrives in a corner.
parts = ((np.s_[:, 7], np.s_[::-1, 3]), (np.s_[10:20, 20:28], np.s_[30:, 42:]))

with Loop(sys.argv[1 + comm.rank] if len(sys.argv) == 3 else None) as loop:
    loop.connect(comm.sendrecv(loop.address, other))
    write = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
    sources = [ibmkey.Key.from_buffer(loop.pd, matrices[comm.rank][part]) for part, _ in parts]
    targets = [ibmkey.Key.from_buffer(loop.pd, received[place], write) for _, place in parts]
    rkeys = comm.sendrecv([key.rkey for key in targets], other)
    for source, rkey in zip(sources, rkeys, strict=True):
        loop.write(source.sge(), 0, rkey)
    comm.Barrier()  # The other process has written, too.
    for key in sources + targets:
        key.close()

expected = np.zeros_like(received)
for part, place in parts:
    expected[place] = matrices[other][part]
assert (received == expected).all()
if comm.allreduce(1) == 2 and comm.rank == 0:
    print("a column and a tile of 2 processes, in 4 writes")
