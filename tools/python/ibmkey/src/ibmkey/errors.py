# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Errors of calls to the kernel."""

from __future__ import annotations

import errno as numbers
import os

from pyverbs.pyverbs_error import PyverbsError


def registration_reason(errno: int, access: int) -> str | None:
    """Returns why memory could not be registered, as far as the errno and the access flags tell."""
    from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_WRITE

    if errno == numbers.ENOMEM:
        return "no memory, or more than RLIMIT_MEMLOCK (ulimit -l) would be locked"
    if errno == numbers.EFAULT:
        return "the memory is not mapped, or it cannot be written and the access flags allow writing"
    if errno != numbers.EINVAL:
        return None
    if access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) and not access & IBV_ACCESS_LOCAL_WRITE:
        return "access has IBV_ACCESS_REMOTE_WRITE or IBV_ACCESS_REMOTE_ATOMIC without IBV_ACCESS_LOCAL_WRITE"
    return f"access {access:#x} has a flag that the device refuses, or the memory has no bytes"


class MkeyError(PyverbsError, OSError):  # type: ignore[misc]
    """A call failed. ``errno`` says why, ``call`` names the C function.

    ``reason`` is the sentence of the library, or None. That of a bind names the entry and its field.
    """

    def __init__(self, call: str, errno: int, reason: str | None = None) -> None:
        name = numbers.errorcode.get(errno, str(errno))
        text = f"{call}: {name}: {os.strerror(errno)}" + (f": {reason}" if reason else "")
        OSError.__init__(self, errno, text)
        self.errno: int = errno
        self.call = call
        self.reason = reason

    def __str__(self) -> str:
        return str(self.strerror)
