# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The set-up of tests with a device, which is rxe0, or MKEY_TEST_DEV0."""

from __future__ import annotations

import errno
import gc
import json
import os
import subprocess
import sys
import unittest
from typing import Any, ClassVar

import numpy as np
from pyverbs import enums as e
from rc import Loop, sge

import ibmkey
from ibmkey import Key, MkeyError

DEVICE = os.environ.get("MKEY_TEST_DEV0", "rxe0")
QUICK = "MKEY_TEST_QUICK" in os.environ
SEED = int(os.environ.get("MKEY_TEST_SEED", "1"))
READ = e.IBV_ACCESS_REMOTE_READ
WRITE = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE


class Test(unittest.TestCase):
    loop: ClassVar[Loop]
    pd: ClassVar[Any]

    @classmethod
    def setUpClass(cls) -> None:
        cls.loop = Loop(DEVICE)
        cls.pd = cls.loop.pd

    @classmethod
    def tearDownClass(cls) -> None:
        gc.collect()
        cls.loop.close()

    def read(self, key: Key) -> bytes:
        """Reads all of a key by its rkey."""
        got = np.zeros(key.length, np.uint8)
        into = ibmkey.register(self.pd, got, e.IBV_ACCESS_LOCAL_WRITE)
        self.loop.read(sge(into), key.base, key.rkey)
        into.close()
        return got.tobytes()

    def write(self, key: Key, data: np.ndarray[Any, Any]) -> None:
        """Writes contiguous data to all of a key by its rkey."""
        source = ibmkey.register(self.pd, data)
        self.loop.write(sge(source), key.base, key.rkey)
        source.close()

    def errno_of(self, call: Any, *args: Any, **named: Any) -> int:
        with self.assertRaises(MkeyError) as raised:
            call(*args, **named)
        found = int(raised.exception.errno or 0)
        self.assertIn(errno.errorcode[found], str(raised.exception))
        return found


def mrs_of_this_process() -> int:
    out = subprocess.check_output(["rdma", "-j", "resource", "show", "mr"], text=True)
    return sum(mr.get("pid") == os.getpid() for mr in json.loads(out or "[]"))


def run_program(text: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in which ``loop`` is connected and ``a`` is an array."""
    start = (
        "import numpy as np, ibmkey, sys\nfrom rc import Loop\nfrom pyverbs import enums as e\n"
        f"loop = Loop({DEVICE!r})\na = np.arange(100.)\n"
    )
    return subprocess.run([sys.executable, "-c", start + text], capture_output=True, text=True, check=False)
