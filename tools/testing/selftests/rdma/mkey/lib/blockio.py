# SPDX-License-Identifier: GPL-2.0
"""Random direct reads and writes of a block device or a file by several threads, each of which
knows every byte of its part. At the end, compares it with the one behind it.

usage: blockio.py DEVICE BEHIND ROUNDS SEED
"""

import mmap
import os
import random
import sys
import threading

THREADS = 4
PART = 4 << 20
SECTOR = 512
MAX_IO = 256 << 10


class Part(threading.Thread):
    """The part of one thread. Buffers of mmap begin at a page, as direct requests need."""

    def __init__(self, number: int, fd: int, behind: int, rounds: int, seed: int) -> None:
        super().__init__()
        self.fd, self.behind = fd, behind
        self.first, self.rounds = number * PART, rounds
        self.random = random.Random(seed * THREADS + number)
        self.expected = memoryview(mmap.mmap(-1, PART))
        self.buffer = memoryview(mmap.mmap(-1, MAX_IO + 9 * SECTOR))
        self.failed: Exception | None = None

    def read(self, fd: int, to: memoryview, at: int) -> None:
        if os.preadv(fd, [to], self.first + at) != len(to):
            raise EOFError(f"a read of {len(to)} bytes at {at}")

    def one(self) -> None:
        sectors = self.random.choice([1, *[self.random.randint(1, MAX_IO // SECTOR)] * 3])
        length = sectors * SECTOR
        at = SECTOR * self.random.randint(0, (PART - length) // SECTOR)
        begin = SECTOR * self.random.randrange(8)
        buffer, known = self.buffer[begin : begin + length], self.expected[at : at + length]
        if self.random.randrange(2):
            known[:] = buffer[:] = self.random.randbytes(length)
            if os.pwritev(self.fd, [buffer], self.first + at) != length:
                raise EOFError(f"a write of {length} bytes at {at}")
            return
        self.buffer[:] = b"\xa5" * len(self.buffer)
        self.read(self.fd, buffer, at)
        if buffer != known or self.buffer[begin + length] != 0xA5:
            raise ValueError(f"{length} bytes at {at} are wrong, or the one after them")

    def compare(self, fd: int, name: str) -> None:
        for at in range(0, PART, MAX_IO):
            self.read(fd, self.buffer[:MAX_IO], at)
            if self.buffer[:MAX_IO] != self.expected[at : at + MAX_IO]:
                raise ValueError(f"{name} differs afterwards from {at} on")

    def run(self) -> None:
        try:
            self.read(self.behind, self.expected, 0)
            for _ in range(self.rounds):
                self.one()
        except (OSError, EOFError, ValueError) as error:
            self.failed = error


def main(device: str, behind: str, rounds: str, seed: str) -> int:
    """Reads without the cache, which does not know the writes to the other device."""
    fd, fd_behind = os.open(device, os.O_RDWR | os.O_DIRECT), os.open(behind, os.O_DIRECT)
    parts = [Part(i, fd, fd_behind, int(rounds), int(seed)) for i in range(THREADS)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
        if part.failed:
            raise part.failed
        part.compare(fd, device)
        part.compare(fd_behind, behind)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
