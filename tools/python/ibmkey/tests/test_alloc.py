# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""MRs whose memory the library allocates, and that processes share. Needs rxe0, or MKEY_TEST_DEV0."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import unittest

import numpy as np
from device import DEVICE, READ, WRITE, Test, mrs_of_this_process
from rc import sge

from ibmkey import AllocatedMR, Key

CHILD = """
import os, sys
import numpy as np
from rc import Loop
from pyverbs import enums as e
from ibmkey import AllocatedMR
loop = Loop(sys.argv[2])
access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
mr = AllocatedMR.shared(loop.pd, int(sys.argv[1]), access)
array = np.frombuffer(mr, "<i4")
assert len(mr) == 40000 and (array == np.arange(10000)).all()
array[::2] = -1
del array
mr.close()
"""


class Allocated(Test):
    def test_arrays_over_it(self) -> None:
        before = mrs_of_this_process()
        for length in (40000, (2 << 20) + 4008):
            with AllocatedMR(self.pd, length, READ | WRITE) as mr:
                array = np.frombuffer(mr, "<i4").reshape(-1, 10)
                self.assertEqual(len(mr), length)
                self.assertFalse(array.any())
                array[:] = np.arange(array.size).reshape(array.shape)
                with Key.from_buffer(self.pd, array[:, 3], READ | WRITE, mr=mr) as key:
                    self.assertEqual(self.read(key), array[:, 3].tobytes())
                    self.write(key, np.zeros(len(array), "<i4"))
                    with self.assertRaises(BufferError):
                        mr.close()
                self.assertFalse(array[:, 3].any())
                into = AllocatedMR(self.pd, 40, WRITE)
                self.loop.read(sge(into), mr.buf + 40, mr.rkey)
                self.assertEqual(bytes(into), array[1].tobytes())
                into.close()
                with self.assertRaises(BufferError):
                    mr.close()
                del array
        with self.assertRaises(ValueError):
            mr.buf  # noqa: B018
        mr.close()
        self.assertEqual(mrs_of_this_process(), before)

    def test_an_array_keeps_it(self) -> None:
        before = mrs_of_this_process()
        array = np.frombuffer(AllocatedMR(self.pd, 5000, READ), "u1")
        gc.collect()
        self.assertFalse(array.any())
        self.assertEqual(mrs_of_this_process(), before + 1)
        del array
        gc.collect()
        self.assertEqual(mrs_of_this_process(), before)

    def test_another_process_shares_it(self) -> None:
        with AllocatedMR(self.pd, 40000, READ | WRITE) as mr:
            array = np.frombuffer(mr, "<i4")
            array[:] = np.arange(10000)
            fd = mr.share()
            self.assertFalse(os.get_inheritable(fd))
            child = subprocess.run([sys.executable, "-c", CHILD, str(fd), DEVICE], pass_fds=[fd], check=False)
            os.close(fd)
            self.assertEqual(child.returncode, 0)
            self.assertTrue((array[::2] == -1).all())
            self.assertTrue((array[1::2] == np.arange(1, 10000, 2)).all())
            del array

    def test_for_reading_only(self) -> None:
        with AllocatedMR(self.pd, 4096, READ | WRITE) as mr:
            fd = mr.share(read_only=True)
            self.assertEqual(self.errno_of(AllocatedMR.shared, self.pd, fd, WRITE), errno.EACCES)
            with AllocatedMR.shared(self.pd, fd, READ) as other:
                array = np.frombuffer(other, "u1")
                self.assertFalse(array.flags.writeable)
                np.frombuffer(mr, "u1")[:] = 7
                self.assertTrue((array == 7).all())
                del array
            os.close(fd)

    def test_errors(self) -> None:
        self.assertEqual(self.errno_of(AllocatedMR, self.pd, 0), errno.EINVAL)
        self.assertEqual(self.errno_of(AllocatedMR, self.pd, 1 << 46), errno.ENOMEM)
        self.assertEqual(self.errno_of(AllocatedMR, self.pd, 4096, 1 << 19), errno.EINVAL)
        with self.assertRaises(TypeError):
            AllocatedMR(None, 4096)
        with open("/dev/zero", "rb") as zero:
            self.assertEqual(self.errno_of(AllocatedMR.shared, self.pd, zero.fileno()), errno.EINVAL)
        # No process here has so many.
        self.assertEqual(self.errno_of(AllocatedMR.shared, self.pd, 1 << 20), errno.EBADF)


if __name__ == "__main__":
    unittest.main()
