# SPDX-License-Identifier: GPL-2.0
"""Random direct reads and writes of a block device or a file by several threads, each of which
knows every byte of its part. At the end, compares it with the one behind it.

usage: blockio.py DEVICE BEHIND ROUNDS SEED [GRAIN]

With GRAIN, each is a vector of up to 4 MiB, whose elements begin and end at multiples of GRAIN
bytes, with memory between them that keeps its bytes. If the block layer refuses a vector with
EINVAL, the same is done without one. Prints how many were refused.
"""

import errno
import mmap
import os
import random
import sys
import threading

THREADS = 4
PART = 4 << 20
SECTOR = 512
PAGE = 4096
MAX_IO = 256 << 10
ELEMENTS = 64
UNTOUCHED = b"\xa5"


class Part(threading.Thread):
    """The part of one thread. Buffers of mmap begin at a page, as direct requests need."""

    def __init__(self, number: int, files: tuple[int, int], rounds: int, seed: int, grain: int) -> None:
        super().__init__()
        self.fd, self.behind = files
        self.first, self.rounds, self.grain = number * PART, rounds, grain
        self.random = random.Random(seed * THREADS + number)
        self.expected = memoryview(mmap.mmap(-1, PART))
        self.buffer = memoryview(mmap.mmap(-1, PART + (ELEMENTS + 1) * PAGE))
        self.vectors = self.refused = 0
        self.failed: Exception | None = None

    def read(self, fd: int, to: list[memoryview], at: int) -> None:
        if os.preadv(fd, to, self.first + at) != sum(map(len, to)):
            raise EOFError(f"a read at {at}")

    def write(self, source: list[memoryview], at: int) -> None:
        if os.pwritev(self.fd, source, self.first + at) != sum(map(len, source)):
            raise EOFError(f"a write at {at}")

    def elements(self, length: int) -> list[slice]:
        """Where the elements of a vector of that length lie in the buffer."""
        if not self.grain:
            begin = SECTOR * self.random.randrange(8)
            return [slice(begin, begin + length)]
        mean = length // self.grain // self.random.randint(1, ELEMENTS // 2)
        slices: list[slice] = []
        end = 0
        while length:
            count = min(length, self.grain * self.random.randint(1, 2 * mean + 1))
            if len(slices) == ELEMENTS - 1:
                count = length
            begin = end + self.grain * self.random.randrange(PAGE // self.grain)
            slices.append(slice(begin, end := begin + count))
            length -= count
        return slices

    def one(self) -> None:
        most = 1 << self.random.randrange(14) if self.grain else MAX_IO // SECTOR
        length = SECTOR * self.random.choice([1, *[self.random.randint(1, most)] * 3])
        at = SECTOR * self.random.randint(0, (PART - length) // SECTOR)
        write = self.random.randrange(2)
        known = self.expected[at : at + length]
        if write:
            known[:] = self.random.randbytes(length)
        slices = self.elements(length)
        vector = [self.buffer[s] for s in slices]
        self.vectors += 1
        try:
            self.transfer(write, slices, vector, known, at)
        except OSError as error:
            if error.errno != errno.EINVAL or not self.grain:
                raise
            self.refused += 1
            slices = [slice(0, length)]
            self.transfer(write, slices, [self.buffer[:length]], known, at)

    def transfer(self, write: int, slices: list[slice], vector: list[memoryview], known: memoryview, at: int) -> None:
        end = slices[-1].stop + SECTOR
        image = bytearray(UNTOUCHED * end)
        done = 0
        for place in slices:
            count = place.stop - place.start
            image[place] = known[done : done + count]
            done += count
        self.buffer[:end] = image if write else UNTOUCHED * end
        if write:
            self.write(vector, at)
        else:
            self.read(self.fd, vector, at)
        if self.buffer[:end] != image:
            raise ValueError(f"{done} bytes at {at} are wrong, or those around them")

    def compare(self, fd: int, name: str) -> None:
        for at in range(0, PART, MAX_IO):
            self.read(fd, [self.buffer[:MAX_IO]], at)
            if self.buffer[:MAX_IO] != self.expected[at : at + MAX_IO]:
                raise ValueError(f"{name} differs afterwards from {at} on")

    def run(self) -> None:
        try:
            self.read(self.behind, [self.expected], 0)
            for _ in range(self.rounds):
                self.one()
        except (OSError, EOFError, ValueError) as error:
            self.failed = error


def main(device: str, behind: str, rounds: str, seed: str, grain: str = "0") -> int:
    """Reads without the cache, which does not know the writes to the other device."""
    fd, fd_behind = os.open(device, os.O_RDWR | os.O_DIRECT), os.open(behind, os.O_DIRECT)
    parts = [Part(i, (fd, fd_behind), int(rounds), int(seed), int(grain)) for i in range(THREADS)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
        if part.failed:
            raise part.failed
        part.compare(fd, device)
        part.compare(fd_behind, behind)
    if int(grain):
        print(f"{sum(p.refused for p in parts)} of {sum(p.vectors for p in parts)} vectors refused")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
