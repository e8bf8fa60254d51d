# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Each cell of a sample compiles alone, as in a notebook; errors name statuses. Needs no device."""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile
import unittest
from types import SimpleNamespace
from typing import Any

from cells import cells, run

SAMPLES = pathlib.Path(os.environ["MKEY_TEST_SAMPLES"])


class Cells(unittest.TestCase):
    def test_each_cell_of_the_samples_compiles_alone(self) -> None:
        programs = [found for found in sorted(SAMPLES.glob("*.py")) if "# %%" in found.read_text()]
        self.assertEqual(
            [found.stem for found in programs], ["column", "dm_lock", "halo", "header_payload", "kv_cache"]
        )
        for program in programs:
            parts = cells(program)
            self.assertEqual("".join(part.lstrip("\n") for part in parts), program.read_text())
            self.assertGreaterEqual(len(parts), 5)
            for part in parts:
                with self.subTest(program=program.name, line=part.count("\n")):
                    compile(part, str(program), "exec")

    def test_cells_share_their_names_and_nothing_else(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            program = pathlib.Path(directory) / "program.py"
            program.write_text(
                '"""Doc."""\n# %% one\nimport sys\na = [sys.argv[1]]\n# %% two\na.append(a[0])\nassert a == ["x"] * 2\n'
            )
            self.assertEqual(run(program, "x"), 3)
            program.write_text("# %% one\nif True:\n    a = 1\n    # %% two\n    a += 1\n")
            with self.assertRaises(IndentationError) as raised:
                run(program, "x")
            self.assertEqual(raised.exception.lineno, 5)


class Statuses(unittest.TestCase):
    def test_an_error_names_the_status(self) -> None:
        sys.path.insert(0, str(SAMPLES))
        try:
            from rc import Loop
        finally:
            sys.path.pop(0)
        queue = SimpleNamespace(post_send=lambda _: None)

        def loop(status: int) -> Any:
            return SimpleNamespace(qp=queue, cq=None, wait=lambda _: status)

        Loop.run(loop(0), None)
        with self.assertRaisesRegex(OSError, "the work request ended with IBV_WC_REM_ACCESS_ERR$"):
            Loop.run(loop(10), None)


if __name__ == "__main__":
    unittest.main()
