#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The group kv of "make bench" by Mooncake's transfer engine: one call with all pieces of some blocks.

usage: kv_mooncake.py REPETITIONS near|far DEVICE ADDRESS DIRECTORY

Each side is a process, because an engine has the address of one namespace. The receiver (far) writes its name into
DIRECTORY and waits until it is ended. Its memory is a file there, so the sender (near) checks every byte.
"""

import ast
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from mooncake.engine import TransferEngine

COUNTS = (1, 16)


def shapes():
    """Yields the name, the widths of the layers, and the number of blocks."""
    for line in (Path(__file__).parent / "kv_shapes.h").read_text().splitlines():
        if line.startswith("SHAPE("):
            name, layers, width, fifth, blocks = ast.literal_eval(line[len("SHAPE") :])
            yield name, [fifth if layer % 5 == 4 else width for layer in range(layers)], blocks


def received(device):
    """The packets that the device has received. The receiver acknowledges each WRITE of up to 64 packets by one."""
    show = ["rdma", "-j", "statistic", "show", "link", f"{device}/1"]
    return json.loads(subprocess.check_output(show))[0]["rcvd_pkts"]


def main():
    """Runs one side."""
    repetitions, side, device, address, directory = sys.argv[1:]
    engine = TransferEngine()
    if engine.initialize(address, "P2PHANDSHAKE", "rdma", device):
        sys.exit("the transfer engine cannot be initialised")
    # The largest cache fits.
    size = max(sum(widths) * blocks for _, widths, blocks in shapes())
    far = np.memmap(Path(directory) / "far", np.uint8, "w+" if side == "far" else "r+", shape=size)
    near = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    own = far if side == "far" else near
    if engine.register_memory(own.ctypes.data, own.nbytes):
        sys.exit("the memory cannot be registered")
    if side == "far":
        ready = Path(directory) / "ready.new"
        ready.write_text(f"{address}:{engine.get_rpc_port()} {far.ctypes.data}")
        ready.rename(Path(directory) / "ready")
        while True:
            time.sleep(60)
    target, base = (Path(directory) / "ready").read_text().split()
    for name, widths, blocks in shapes():
        starts = np.cumsum([0, *(width * blocks for width in widths)])
        for count in COUNTS:
            pieces = [
                (int(start) + (i * 7 + 1) % blocks * width, int(start) + (i * 7 + 4) % blocks * width, width)
                for i in range(count)
                for start, width in zip(starts, widths, strict=False)
            ]
            times = []
            for _ in range(int(repetitions) + 1):
                for _, to, width in pieces:
                    far[to : to + width] = 0
                before, start = received(device), time.monotonic_ns()
                result = engine.batch_transfer_sync_write(
                    target,
                    [near.ctypes.data + source for source, _, _ in pieces],
                    [int(base) + to for _, to, _ in pieces],
                    [width for _, _, width in pieces],
                )
                times.append(time.monotonic_ns() - start)
                requests = received(device) - before
                if result or any((far[to : to + n] != near[source : source + n]).any() for source, to, n in pieces):
                    sys.exit(f"{name}: the transfer failed, with {result}")
            record = {"record": "series", "group": "kv", "name": name, "way": "mooncake", "size": count}
            # The first transfer connects.
            record |= {"amount": count * sum(widths), "unit": "bytes", "ns": times[1:], "requests": requests}
            print(json.dumps(record))


main()
