# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Contexts and PDs of pyverbs, for libibmkey, and what a device can do.

All keys of a PD use one imported PD, and all of a context one imported context. An imported context has
its own file descriptor, which is closed with the last key or device memory.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any, NamedTuple

from pyverbs.device import Context
from pyverbs.pd import PD

from . import _lib


class Caps(NamedTuple):
    """What a device can do."""

    max_dm_size: int
    max_entries: int
    max_dims: int
    max_depth: int
    dm_classes: int
    flags: int
    max_indices: int


_contexts: weakref.WeakKeyDictionary[Any, weakref.ref[_lib.ContextHandle]] = weakref.WeakKeyDictionary()
_pds: weakref.WeakKeyDictionary[Any, weakref.ref[_lib.PdHandle]] = weakref.WeakKeyDictionary()


def imported_context(context: Any) -> _lib.ContextHandle:
    """Returns the imported context of a ``Context`` of pyverbs. Raises ``TypeError`` for another object."""
    if not isinstance(context, Context):
        raise TypeError(f"{context!r} is not a Context of pyverbs")
    known = _contexts.get(context)
    found = known() if known else None
    if found is None:
        # The property of a closed one would end the program.
        if not _lib.has_pointer(context, Context.__base__.__basicsize__):
            raise TypeError("the Context is closed")
        found = _lib.ContextHandle(context.cmd_fd)
        _contexts[context] = weakref.ref(found)
    return found


def context_of(pd: Any) -> Any:
    """Returns the context of a ``PD`` of pyverbs. Raises ``TypeError`` for another object and a closed PD."""
    if not isinstance(pd, PD):
        raise TypeError(f"{pd!r} is not a PD of pyverbs")
    # A PD keeps its context, but has no property for it.
    context = next((kept for kept in gc.get_referents(pd) if isinstance(kept, Context)), None)
    if context is None:
        raise TypeError("the PD is closed")
    return context


def imported_pd(pd: Any) -> _lib.PdHandle:
    """Returns the imported PD of a ``PD`` of pyverbs. Raises ``TypeError`` as ``context_of()`` does."""
    known = _pds.get(pd) if isinstance(pd, PD) else None
    found = known() if known else None
    if found is None:
        found = _lib.PdHandle(imported_context(context_of(pd)), pd.handle)
        _pds[pd] = weakref.ref(found)
    return found


def query_caps(context: Any) -> Caps:
    """Returns the limits of an open device."""
    return Caps(*imported_context(context).query_caps())


def why(context: Any, status: int | None = None) -> str:
    """Returns why a request has completed with the error ``status``, the ``status`` of a ``WC`` of pyverbs.

    The sentence is about the last access that a key of this process has refused on the device of ``context``.
    """
    return imported_context(context).why(status)
