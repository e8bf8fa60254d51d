# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Errors of calls to the kernel."""

from __future__ import annotations

import errno as numbers
import os

from pyverbs.pyverbs_error import PyverbsError

# What an errno means for a key; <infiniband/mkey.h> has the table.
_REASONS = {
    numbers.EINVAL: "a count or a length is zero, a flag is unknown, or an object belongs to another PD",
    numbers.ENOENT: "an lkey names no MR of the key's PD",
    numbers.EACCES: "the key would allow more than an MR under it",
    numbers.ENOSPC: "the layout has more entries than the key was created for",
    numbers.EOVERFLOW: "a length or an address does not fit 64 bits",
    numbers.ERANGE: "a block reaches outside its MR",
    numbers.ELOOP: "the key would refer to itself, or the keys below it have too many levels or pieces",
    numbers.EBUSY: "a key or a memory window still refers to the object",
    numbers.ENOMEM: "no memory, or a limit is reached: max_key_memory_per_user of ib_mkey for keys, "
    "max_dm_size_per_user for device memory, RLIMIT_MEMLOCK (ulimit -l) for memory that is registered",
    numbers.EFAULT: "the memory is not mapped, or it cannot be written and the access flags allow writing",
    numbers.EPERM: "this process may not do that, by its privileges or by the rules of its container",
    numbers.EOPNOTSUPP: "the device, or this kind of MR, cannot do it",
}


def reason_of(errno: int) -> str:
    """Returns the name of an errno, and what it means for a key."""
    name = numbers.errorcode.get(errno, str(errno))
    return f"{name}: {_REASONS.get(errno) or os.strerror(errno)}"


def registration_reason(errno: int, access: int) -> str | None:
    """Returns why memory could not be registered, as far as the errno and the access flags tell."""
    from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_WRITE

    if errno == numbers.ENOMEM:
        return "no memory, or more than RLIMIT_MEMLOCK (ulimit -l) would be locked"
    if errno != numbers.EINVAL:
        return None
    if access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) and not access & IBV_ACCESS_LOCAL_WRITE:
        return "access has IBV_ACCESS_REMOTE_WRITE or IBV_ACCESS_REMOTE_ATOMIC without IBV_ACCESS_LOCAL_WRITE"
    return f"access {access:#x} has a flag that the device refuses, or the memory has no bytes"


class MkeyError(PyverbsError, OSError):  # type: ignore[misc]
    """A call failed. ``errno`` says why, ``call`` names the C function.

    ``reason`` is a sentence. That of a bind names the entry and its field.
    """

    def __init__(self, call: str, errno: int, detail: str | None = None) -> None:
        reason = detail or _REASONS.get(errno)
        name = numbers.errorcode.get(errno, str(errno))
        text = f"{call}: {name}: {os.strerror(errno)}" + (f": {reason}" if reason else "")
        OSError.__init__(self, errno, text)
        self.errno: int = errno
        self.call = call
        self.reason = reason

    def __str__(self) -> str:
        return str(self.strerror)
