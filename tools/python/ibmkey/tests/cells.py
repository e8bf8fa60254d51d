# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Runs programs cell by cell, as a notebook does: cells.py DEVICE PROGRAM...

A cell begins with a line ``# %%``. Each is compiled alone and runs in the names of those before it.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any


def cells(program: pathlib.Path) -> list[str]:
    """Returns the cells of a program. Their lines have the numbers that they have in the file."""
    found: list[str] = []
    for number, line in enumerate(program.read_text(encoding="utf-8").splitlines(keepends=True)):
        if not found or line.lstrip().startswith("# %%"):
            found.append("\n" * number)
        found[-1] += line
    return found


def run(program: pathlib.Path, device: str) -> int:
    """Runs the cells of a program on a device. Returns how many there are."""
    names: dict[str, Any] = {"__name__": "__main__"}
    sys.argv = [str(program), device]
    sys.path[0] = str(program.parent)
    parts = cells(program)
    for part in parts:
        exec(compile(part, str(program), "exec"), names)
    return len(parts)


def main(device: str, *programs: str) -> None:
    """Runs all programs."""
    for name in programs:
        program = pathlib.Path(name)
        print(f"{program.name}: {run(program, device)} cells")


if __name__ == "__main__":
    main(*sys.argv[1:])
